// HostQueue: the host's side of one NVMe/TCP queue. It sends commands with their data, lands what
// the target returns in the caller's memory, and believes nothing that the target says: a broken or
// malicious target costs the connection, never memory.
//
//   opening -> initializing -> ready -> ending -> (gone)
//
// Threads: its ring's. Ownership: whoever made it destroys it after Owner::on_gone.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/nvme.h"
#include "transport/pdu.h"
#include "transport/tcp_stream.h"
#include "zone/status.h"

namespace furrow::transport {

// One command in flight. Owned by its queue: take(), fill in, submit(), and it is the queue's again
// when `done` returns.
struct HostCommand {
  enum class Direction : std::uint8_t { none, to_target, from_target };

  nvme::Sqe sqe;  // the queue fills in cid, flags and the SGL
  Direction direction = Direction::none;
  std::byte* data = nullptr;  // lent until done
  std::uint32_t data_bytes = 0;
  // `status` ok: the target has answered, `cqe` and `received_bytes` say what. Else there is no
  // answer: the connection ended (aborted), it did not come in time (late, see age()), or the data
  // was damaged on the way (io_error).
  void (*done)(HostCommand&, Status status) = nullptr;
  void* context = nullptr;

  nvme::Cqe cqe;
  std::uint32_t received_bytes = 0;
  bool sent = false;  // a part of it, at least: without an answer it may have been done or not

 private:
  friend class HostQueue;
  enum class State : std::uint8_t { free, taken, unsent, sent };
  State state_ = State::free;
  bool in_batch_ = false;  // the sendmsg in flight names its memory
  bool queued_ = false;    // in the list of what is to be sent
  bool answered_ = false;  // done, but for the above
  bool digest_failed_ = false;
  bool last_received_ = false;  // no more data may come
  bool late_ = false;           // why the connection was given up
  std::uint8_t ticks_ = 0;      // of age(), since submit()
  std::uint16_t index_ = 0;
  std::uint16_t ttag_ = 0;
  std::uint32_t asked_bytes_ = 0;  // what is left of the R2T being answered
  std::uint32_t sent_bytes_ = 0;   // from the beginning
  HostCommand* link_ = nullptr;
};

struct HostQueueOptions {
  std::uint32_t entries = 32;  // commands in flight, 1024 at most
  std::uint32_t in_capsule_bytes = kAdminInCapsuleBytes;
  std::uint32_t receive_bytes = 8192;
  bool header_digest = false, data_digest = false;
};

class HostQueue final : private TcpStream::Owner {
 public:
  static constexpr std::uint32_t kEntriesMax = 1024;

  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void on_ready(HostQueue& queue) = 0;             // commands may be sent
    virtual void on_down(HostQueue& queue, Status why) = 0;  // once, if end() was not called before
    virtual void on_room(HostQueue& queue) = 0;              // a command became free
    virtual void on_gone(HostQueue& queue) = 0;  // after end() or on_down(): all are done
  };

  HostQueue(SocketRing& ring, Owner& owner, int fd, const HostQueueOptions& options);
  ~HostQueue() override;

  // Connects and exchanges ICReq and ICResp.
  void start(const sockaddr_storage& address, socklen_t bytes);
  HostCommand* take();  // null: all are in flight
  void submit(HostCommand& command);
  void give_back(HostCommand& command);  // one that was taken and not submitted
  void end();                            // idempotent; commands in flight are done with `aborted`
  // One tick of time for every command in flight. One that sees more than `ticks_max` before it is
  // done ends the queue: its target may still write to the command's memory, so nothing less than
  // the connection's end gives that back. Such commands are done with `late`.
  void age(unsigned ticks_max);
  bool ready() const { return state_ == State::ready; }
  std::uint32_t in_flight() const override { return in_flight_; }

 private:
  enum class State : std::uint8_t { opening, initializing, ready, ending, gone };
  struct ConnectOp : SocketRing::Op {
    HostQueue* self;
  };
  struct Work : SocketRing::Deferred {
    HostQueue* self;
  };

  // TcpStream::Owner.
  void on_header() override;
  void on_data_end() override;
  void on_pdu_error() override;
  void fill(SendBatch& batch) override;
  // Most of the commands stay with the target, so that it has work meanwhile.
  bool output_may_wait() const override { return waiting_ * 4 < in_flight_; }
  void on_sent() override;
  void on_end(int error) override;
  void on_quiet() override;

  void on_connected(int result);
  void on_icresp();
  void on_response();
  void on_data();
  void on_r2t();
  HostCommand* find(std::uint16_t cid);
  void put_capsule(SendBatch& batch, HostCommand& command);
  void put_data(SendBatch& batch, HostCommand& command);
  void put_payload(SendBatch& batch, const std::byte* from, std::uint32_t bytes);
  void enqueue(HostCommand& command);
  void answered(HostCommand& command);
  void finish(HostCommand& command, Status status);
  void refuse(Fes fes, std::size_t information);
  void down(Status why);
  void try_gone();

  SocketRing& ring_;
  Owner& owner_;
  const HostQueueOptions options_;
  State state_ = State::opening;
  const int fd_;
  TcpStream stream_;
  PduEncoder encoder_;
  ConnectOp connect_op_{};
  Work gone_work_{};
  sockaddr_storage address_{};
  std::unique_ptr<HostCommand[]> commands_;
  HostCommand* free_ = nullptr;
  HostCommand* first_out_ = nullptr;
  HostCommand* last_out_ = nullptr;
  std::vector<HostCommand*> batch_;  // of the sendmsg in flight
  HostCommand* receiving_ = nullptr;
  std::uint32_t in_flight_ = 0;
  std::uint32_t waiting_ = 0;         // to be sent, of those in flight
  std::uint32_t h2c_data_bytes_ = 0;  // MAXH2CDATA
  bool icreq_due_ = false, term_due_ = false, quiet_ = false;
  PduError term_;
};

}  // namespace furrow::transport
