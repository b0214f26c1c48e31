// The life of a connection: set-up, orderly end, teardown. What arrives is in tcp_receive.cc, what
// leaves in tcp_send.cc.
#include "transport/tcp_connection.h"

#include <utility>

#include "transport/tcp_listener.h"
#include "zone/check.h"

namespace furrow::transport {

TcpConnection::TcpConnection(const Environment& environment, int fd, std::string peer,
                             std::uint64_t address)
    : environment_(environment),
      peer_(std::move(peer)),
      address_(address),
      stream_(environment.ring, *this, fd, PduDecoder::Role::target) {
  timer_.self = work_.self = this;
  timer_.fire = [](Timer& timer) { static_cast<SetupTimer&>(timer).self->on_timer(); };
  work_.run = [](SocketRing::Deferred& work) { static_cast<Work&>(work).self->run_work(); };
  stream_.decoder().set_limits({kAdminInCapsuleBytes, environment_.limits.h2c_data_bytes});
}

void TcpConnection::start() {
  connect_slot_ = std::make_unique<CommandSlot>();
  slots_.push_back(connect_slot_.get());
  free_.push(*connect_slot_);
  environment_.executor.start(timer_, environment_.limits.setup_ms * kNsPerMs);
  stream_.start();
}

TcpConnection::~TcpConnection() { FURROW_CHECK(held_ == 0 && !work_.queued); }

std::string TcpConnection::local_address() const { return local_name(stream_.fd()); }

// Called by the handler when it accepts Connect, before it completes it. std::bad_alloc: nothing
// has changed.
void TcpConnection::set_queue(std::uint32_t entries, bool flow_control_disabled) {
  FURROW_CHECK(!queue_set_ && entries >= 1 && entries <= 32768);
  const std::uint32_t more = 2 * entries - 1;
  auto more_slots = std::make_unique<CommandSlot[]>(more);
  slots_.reserve(1 + std::size_t{more});
  more_slots_ = std::move(more_slots);
  queue_set_ = true;
  flow_control_ = !flow_control_disabled;
  entries_ = entries;
  sq_head_ = static_cast<std::uint16_t>(1 % entries);  // Connect itself was taken
  for (std::uint32_t i = 0; i < more; ++i) {
    more_slots_[i].index = static_cast<std::uint16_t>(i + 1);
    slots_.push_back(&more_slots_[i]);
    free_.push(more_slots_[i]);
  }
  if (queue_id_ != 0) {
    stream_.decoder().set_limits(
        {environment_.limits.in_capsule_bytes, environment_.limits.h2c_data_bytes});
    stream_.set_receive_bytes(kReceiveBytesMax);
  }
  if (state_ != State::await_connect) return;  // it ended meanwhile
  state_ = State::live;
  was_live_ = true;
  environment_.executor.start(timer_, environment_.limits.data_ms * kNsPerMs / kDataTicks);
  if (environment_.on_live != nullptr) environment_.on_live(*this);
}

void TcpConnection::on_timer() {
  if (state_ == State::live) return watch();
  if (state_ != State::lingering) ++environment_.stats.timeouts;
  teardown();
}

// A live connection's tick: is the host slower with a command's data than it may be?
void TcpConnection::watch() {
  send_ticks_ = stream_.sending() && !sent_ ? send_ticks_ + 1 : 0;
  sent_ = false;
  const bool reads_nothing = send_ticks_ > kDataTicks;
  if (!reads_nothing && !data_is_late()) {
    return environment_.executor.start(timer_, environment_.limits.data_ms * kNsPerMs / kDataTicks);
  }
  ++environment_.stats.timeouts;
  if (reads_nothing) return teardown();  // it would not read a C2HTermReq either
  // The specification has no code for a time-out: the H2CData that had to come next did not.
  terminate({Fes::sequence, 0}, {});
}

bool TcpConnection::data_is_late() {
  bool late = false;
  for (CommandSlot* slot : slots_) {
    if (slot->state != CommandSlot::State::with_handler) continue;
    if (slot->pull != CommandSlot::Pull::arriving && !slot->capsule_arriving) continue;
    late |= ++slot->data_ticks > kDataTicks;
  }
  return late;
}

void TcpConnection::close() { finish(); }

void TcpConnection::cut() { teardown(); }

void TcpConnection::stop_accepting() {
  if (state_ != State::live) finish();
  accepting_ = false;
  if (opened_ && !detached_) environment_.handler.on_last_request(*this);
}

void TcpConnection::drain() {
  stop_accepting();
  draining_ = true;
  finish_when_answered();
}

void TcpConnection::finish_when_answered() {
  if (accepting_ || !answered()) return;
  if (draining_) finish();
  if (environment_.on_answered != nullptr) environment_.on_answered(*this);
}

// Sends what is queued, then ends. Requests still with the handler are not waited for.
void TcpConnection::finish() {
  if (state_ >= State::finishing) return;
  state_ = State::finishing;
  stream_.discard_input();
  environment_.executor.start(timer_, environment_.limits.finish_ms * kNsPerMs);
  stream_.want_send();
  environment_.ring.defer(work_);
}

// The host broke the protocol: tell it why, and nothing else.
void TcpConnection::terminate(const PduError& error) {
  terminate(error, stream_.decoder().offending());
}

void TcpConnection::terminate(const PduError& error, std::span<const std::byte> offending) {
  if (state_ >= State::finishing) return;
  ++environment_.stats.protocol_errors;
  control_bytes_ = PduEncoder::term_req(control_, PduType::c2h_term_req, error, offending);
  term_due_ = true;
  icresp_due_ = false;
  finish();
}

void TcpConnection::linger() {
  state_ = State::lingering;
  stream_.end_output();
  detach();
  environment_.executor.start(timer_, environment_.limits.linger_ms * kNsPerMs);
}

// The handler's last news of this connection. Its requests come back through complete().
void TcpConnection::detach() {
  if (!opened_ || detached_) return;
  detached_ = true;
  environment_.handler.on_close(*this);
}

void TcpConnection::on_end(int) { teardown(); }

void TcpConnection::teardown() {
  if (state_ == State::closing) return;
  state_ = State::closing;
  environment_.executor.stop(timer_);
  stream_.abort();
  detach();
  environment_.ring.defer(work_);
}

void TcpConnection::on_quiet() {
  quiet_ = true;
  reap();
}

// Closing, and the socket touches no memory: gives every request back, then goes.
void TcpConnection::reap() {
  if (!quiet_) return;
  receiving_ = nullptr;
  while (!sending_.empty()) release(sending_.pop());
  drop_output();
  for (CommandSlot* slot : slots_) {
    if (slot->state != CommandSlot::State::with_handler) continue;
    if (slot->pull == CommandSlot::Pull::ready) continue;  // run_work() tells it
    if (slot->pulling()) {
      slot->pull_status = Status(Code::aborted, Origin::transport, "the host's connection ended");
      tell_pulled(*slot);
    } else if (slot->answer_held) {
      slot->answer_held = false;
      answer(*slot);
    }
  }
  if (!out_.empty() || !pulled_.empty()) {
    environment_.ring.defer(work_);
  } else if (held_ == 0 && !work_.queued) {
    environment_.on_gone(*this);
  }
}

// What was put off to the beginning of the ring's next poll.
void TcpConnection::run_work() {
  while (!pulled_.empty()) {
    CommandSlot& slot = pulled_.pop();
    tell_pulled(slot);
  }
  if (state_ == State::finishing && out_.empty() && !stream_.sending() && !term_due_ &&
      !icresp_due_) {
    linger();
  } else if (state_ == State::lingering) {
    drop_output();
  } else if (state_ == State::closing) {
    reap();
  }
}

}  // namespace furrow::transport
