// Initiator: a host's side of NVMe/TCP for KV namespaces. Takes the same PageOp as a local
// PageSession, so a program can move between the two.
//
// Threads: made and used on one executor's thread, which may be an EventLoop of its own. For more
// threads, one Initiator each.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/page_op.h"
#include "zone/executor.h"
#include "zone/status.h"

namespace furrow::transport {

struct InitiatorOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 4420;
  std::string subsystem_nqn;  // empty: the only KV subsystem that discovery finds there
  std::string host_nqn;       // empty: made from a random UUID
  std::uint32_t nsid = 1;
  std::uint16_t io_queues = 1;
  std::uint16_t queue_entries = 128;  // commands in flight on a queue; up to 1024
  bool header_digest = false, data_digest = false;
  std::uint32_t keep_alive_ms = 5000;
  std::uint32_t connect_timeout_ms = 10000;
  // For the answer to one operation once it was sent, give or take a quarter (0: for ever). Then
  // the connection is given up, as only that makes sure of the operation's memory: the operation
  // fails with `late`, the others in flight as after any lost connection. Also how long an
  // operation is sent again to a target that says that it cannot do it now.
  std::uint32_t command_timeout_ms = 30000;
  std::uint32_t reconnect_delay_ms = 200;  // at least 1; doubled up to 2 s
  std::uint32_t reconnect_for_ms = 30000;  // then operations fail with `aborted`; 0: never
};

class Initiator {
 public:
  // Not from a callback. What has no answer fails with `aborted`, and so does what the callbacks of
  // that submit, with ESHUTDOWN. Callbacks that go on submitting for all that, ten thousand times
  // one after another, are not called any more: the operation has its status when submit() returns,
  // and is its caller's.
  virtual ~Initiator() = default;
  // Connects the admin queue and all I/O queues; blocks by running the executor's pollers itself
  // (call it before the executor runs). Errors: io_error (errno says), permission (host not
  // allowed), not_found (NQN or namespace), busy (the target takes no more connections), protocol.
  static Result<std::unique_ptr<Initiator>> connect(Executor& executor,
                                                    const InitiatorOptions& options);
  // As PageSession::submit. More operations than the queues hold wait here, in order. On a lost
  // connection, what has no answer is sent again after the reconnect when it is idempotent (get,
  // exist, list, unconditional put and remove) or cannot have reached the target, else it fails
  // with `aborted`. Of such a failure sys_errno() is ECONNRESET when it may have been done; when
  // nothing was, ENOTCONN, or ESHUTDOWN while the initiator ends.
  // A remove of a key that is not there is ok, unless some host has set the namespace's feature 20h
  // (EDNEK): then it says not_found, also one that was sent twice of what itself deleted. Whoever
  // wants to know asks with exist.
  // A put or remove that may have been done is sent again at once where the target is a Furrow that
  // was started since, else only after twice keep_alive_ms, when nothing of the old connection can
  // reach the target any more: what others (or this host) store under its key meanwhile may be
  // followed by it, as it has no answer yet. One that fails instead may still be carried out until
  // then. What was lost eight times is not sent again. `late` (ETIMEDOUT): no answer in
  // command_timeout_ms; it may have been done or not. PageOp::within_us: `late` comes by then, and
  // what is not with the target at that time is not sent (any more); the memory of what is comes
  // back with the answer, or when command_timeout_ms ends the connection. `busy`: in all of that
  // time the target had no room for it, or could not do it for another reason that passes; it was
  // not done, or is stored and not flushed; or a list, for whose answer there is no memory, was not
  // sent. `in_use`: another host's reservation forbids it.
  // `protocol`: the target's answer made no sense. A `flushed` put or remove is stored and flushed
  // over one connection, or again from its beginning; a flush of its own vouches for what was
  // acknowledged since reconnects() last changed, as a target that lost its power before may have
  // lost what was put before. Where the namespace has become another volume's (by its NGUID) while
  // the connection was lost, that is not taken for the server: nothing reaches it. kinds
  // get, put, remove, exist, list, flush; others: unsupported.
  virtual void submit(PageOp& op) = 0;
  // Any thread. A server that has started again may take larger values than it did.
  virtual std::uint32_t value_bytes_max() const = 0;
  virtual std::uint64_t reconnects() const = 0;
  virtual std::uint64_t system_calls() const = 0;
};

}  // namespace furrow::transport
