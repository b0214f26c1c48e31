// InitiatorImpl: the Initiator, as it is. See transport/initiator.h. Connecting is in initiator.cc,
// the operations' way, and what becomes of them when a connection is lost, in initiator_ops.cc.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/host_controller.h"
#include "transport/initiator.h"
#include "transport/op_queue.h"
#include "transport/page_command.h"
#include "transport/socket_ring.h"

namespace furrow::transport {

class InitiatorImpl final : public Initiator, private HostController::Owner {
 public:
  // A target that takes connections and ends them with what they carry gets no operation for ever.
  static constexpr std::uint64_t kLossesMax = 8;

  // Has a target said of it that it could not do it then? For tests.
  static bool was_put_off(const PageOp& op) { return op.internal.state[2] != 0; }

  // `ring` is used by nobody else while this exists; `own_ring` may be it.
  InitiatorImpl(Executor& executor, const InitiatorOptions& options, SocketRing& ring,
                std::unique_ptr<SocketRing> own_ring = nullptr);
  ~InitiatorImpl() override;
  Status connect();
  // Instead: begins to connect to an address, by `executor`, as after a lost connection. For tests
  // whose target lives on the same thread.
  void begin(const sockaddr_storage& address, socklen_t address_bytes);

  void submit(PageOp& op) override;
  std::uint32_t value_bytes_max() const override {
    return value_bytes_max_.load(std::memory_order_relaxed);
  }
  std::uint64_t reconnects() const override { return reconnects_; }
  std::uint64_t system_calls() const override { return ring_.system_calls(); }

 private:
  struct RetryTimer : Timer {
    InitiatorImpl* self;
  };
  struct Work : SocketRing::Deferred {
    InitiatorImpl* self;
  };

  // HostController::Owner.
  void on_up() override;
  void on_down(Status why) override;
  void on_room() override { dispatch_waiting(); }
  void on_gone() override;

  Status check_options() const;
  Status resolve();
  Status connect_once(bool discovery);
  void make_identity();
  void set_controller_options();
  void open_controller(bool discovery);
  void wait_for_controller();
  void close_controller();
  void give_up();
  void reconnect_later();
  void send_again();
  std::uint64_t hold_ns() const;
  std::uint64_t held_until_ns(const PageOp& op) const;
  bool dispatch(PageOp& op);
  void dispatch_waiting();
  void on_answer(HostCommand& command, const Status& status);
  bool send_later(PageOp& op);
  void send_again_now();
  void on_lost(PageOp& op, bool sent);
  Status lost(const PageOp& op) const;
  void lose_unflushed();
  void settle(PageOp& op, Status status);
  static InitiatorImpl& self_of(PageOp& op);
  void drop_late_soon() { ring_.defer(late_work_); }
  void drop_late();
  static Status given_up(const PageOp& op);
  void refuse(PageOp& op, Status status);
  void refuse_waiting();
  void deliver_refused();

  Executor& executor_;
  const InitiatorOptions options_;
  const std::unique_ptr<SocketRing> own_ring_;
  SocketRing& ring_;
  HostControllerOptions controller_options_;
  struct Address {
    sockaddr_storage address{};
    socklen_t bytes = 0;
  };
  std::vector<Address> addresses_;
  std::unique_ptr<HostController> controller_;
  PageLimits limits_;
  std::atomic<std::uint32_t> value_bytes_max_{0};  // of limits_, for other threads
  OpQueue waiting_;                                // for room or for the connection
  OpQueue again_;  // for the time at which the target is asked again
  RetryTimer again_timer_{};
  OpQueue resend_;  // lost with the connection
  // Of these, what changes pages and may still be on its way to the target by the connection that
  // lost it.
  OpQueue held_;
  RetryTimer hold_{};
  std::uint64_t instance_ = 0;      // of the target of the last association
  std::uint64_t forgotten_ns_ = 0;  // what was lost before that, this target knows nothing of
  OpQueue refused_;                 // whose status is final, to be told in a turn of the executor
  Work refused_work_{};
  Work late_work_{};
  RetryTimer retry_{};
  RetryTimer patience_{};  // its end is that of reconnect_for_ms
  Status down_why_;
  bool connecting_ = true;  // within connect()
  bool answered_ = false;   // connect(): up or down
  bool down_ = false;       // since the connection was lost
  bool given_up_ = false;   // down for longer than reconnect_for_ms
  bool closing_ = false;
  bool takes_more_ = true;  // submit(); not any more at the end of closing_
  std::uint32_t delay_ms_ = 0;
  std::uint64_t reconnects_ = 0;
};

}  // namespace furrow::transport
