// Connection and Request: what controller logic sees of the wire. A transport (TCP now, RDMA
// later) turns capsules into Requests; the controller answers each with data and a completion.
//
// Threads: a connection and its requests live on one reactor; every call here is made on it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/block/block_op.h"
#include "engine/page_op.h"
#include "engine/zoned/zoned_op.h"
#include "transport/nvme.h"
#include "zone/executor.h"
#include "zone/status.h"

namespace furrow::transport {

class Connection;

// One command in flight. Owned by the connection, one for each command identifier slot; the
// controller may use it from on_request until the transport has taken complete()/push() and called
// `on_done`.
struct Request {
  nvme::Sqe command;
  nvme::Cqe completion;  // the controller fills dw0, dw1 and status; the rest is the transport's
  Connection* connection = nullptr;
  std::uint32_t data_bytes = 0;  // the length of the command's SGL
  bool data_in_capsule = false;  // the bytes came with the command

  // Set by the controller before pull(), push() or complete().
  void (*on_pulled)(Request&) = nullptr;  // `pull_status` is final; the data is in the buffer
  Status pull_status;
  void (*on_done)(Request&) = nullptr;  // the buffer is the controller's again; may be null

  // The controller's own.
  PageOp page_op;
  BlockOp block_op;
  ZonedOp zoned_op;
  void (*after_pull)(Request&) = nullptr;
  std::uint32_t progress = 0;
  std::uint32_t buffer_bytes = 0;
  std::byte* buffer = nullptr;
  std::int32_t buffer_index = -1;
  std::int8_t turn = -1;  // of its namespace, while the pool works on it
  bool cached = false;    // what it changes is not durable: it is made so if the cache is off then
  void* context = nullptr;
  Request* fused = nullptr;  // the other command of a pair (FusedCommands)
  Request* next = nullptr;   // while it waits in one of the controller's lists
};

class Connection {
 public:
  virtual ~Connection() = default;
  // Brings the command's host data (data_bytes of it) into `into`: in-capsule bytes, or R2T and
  // H2CData. Then calls request.on_pulled. Data that arrives for an aborted request still lands.
  virtual void pull(Request& request, std::byte* into) = 0;
  // Sends `bytes` from `from`, then the completion; then calls request.on_done. May be short of
  // data_bytes (Retrieve of a shorter value).
  virtual void push(Request& request, const std::byte* from, std::uint32_t bytes) = 0;
  // Sends the completion alone.
  virtual void complete(Request& request) = 0;
  // After the responses queued so far: ends the connection.
  virtual void close() = 0;
  virtual Executor& executor() = 0;
  virtual std::string_view peer() const = 0;  // "127.0.0.1:51234"
  // This end's numeric address, as the host reached it: "127.0.0.1", "::1"; empty: it has none.
  virtual std::string local_address() const { return {}; }
  // Whom it counts for (AddressKey in connection_budget.h); 0: nobody known.
  virtual std::uint64_t address() const { return 0; }
  // SQ flow control was disabled by Connect: completions carry SQHD = FFFFh and reads may use the
  // SUCCESS flag. `entries`: the queue's depth; a host that has more in flight is closed.
  // std::bad_alloc: there is no memory for them, and nothing has changed.
  virtual void set_queue(std::uint32_t entries, bool flow_control_disabled) = 0;

  void* controller_context = nullptr;  // the handler's own
};

// The controller's side. A transport has one per listening port.
class ConnectionHandler {
 public:
  virtual ~ConnectionHandler() = default;
  // std::bad_alloc: there is no memory for it; it ends, and the handler hears of it no more.
  virtual void on_open(Connection& connection) = 0;
  // A command capsule arrived. The request is the handler's until it completes it.
  virtual void on_request(Request& request) = 0;
  // No further command is taken: none may wait for one that follows it.
  virtual void on_last_request(Connection& connection) = 0;
  // The connection is gone. Requests still with the handler must be completed all the same (the
  // transport then only calls on_done); the Connection is destroyed after the last.
  virtual void on_close(Connection& connection) = 0;
};

}  // namespace furrow::transport
