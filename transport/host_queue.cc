// The life of a host's queue and what it sends; what it receives is in host_receive.cc.
#include "transport/host_queue.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "zone/check.h"

namespace furrow::transport {

namespace {
// The command identifier: an index, and a count that tells a late answer from a current one.
constexpr unsigned kIndexBits = 10;
static_assert(HostQueue::kEntriesMax == 1u << kIndexBits);
}  // namespace

HostQueue::HostQueue(SocketRing& ring, Owner& owner, int fd, const HostQueueOptions& options)
    : ring_(ring),
      owner_(owner),
      options_(options),
      fd_(fd),
      stream_(ring, *this, fd, PduDecoder::Role::initiator),
      commands_(std::make_unique<HostCommand[]>(options.entries)) {
  FURROW_CHECK(options.entries >= 1 && options.entries <= kEntriesMax);
  for (std::uint32_t i = options.entries; i-- > 0;) {
    commands_[i].index_ = static_cast<std::uint16_t>(i);
    commands_[i].sqe.cid = static_cast<std::uint16_t>(i);
    commands_[i].link_ = free_;
    free_ = &commands_[i];
  }
  batch_.reserve(SendBatch::kPiecesMax);
  stream_.set_receive_bytes(options.receive_bytes);
  connect_op_.self = gone_work_.self = this;
  connect_op_.done = [](SocketRing::Op& op, int result, bool) {
    static_cast<ConnectOp&>(op).self->on_connected(result);
  };
  gone_work_.run = [](SocketRing::Deferred& work) { static_cast<Work&>(work).self->try_gone(); };
}

HostQueue::~HostQueue() { FURROW_CHECK(state_ == State::gone && !gone_work_.queued); }

void HostQueue::start(const sockaddr_storage& address, socklen_t bytes) {
  address_ = address;
  ring_.connect(connect_op_, fd_, reinterpret_cast<const sockaddr*>(&address_), bytes);
}

void HostQueue::on_connected(int result) {
  if (state_ != State::opening) return ring_.defer(gone_work_);
  if (result < 0) {
    return down(Status(Code::io_error, Origin::transport,
                       "cannot connect; is the server running at this address and port?", -result));
  }
  state_ = State::initializing;
  icreq_due_ = true;
  stream_.start();
  stream_.want_send();
}

HostCommand* HostQueue::take() {
  if (state_ != State::ready || free_ == nullptr) return nullptr;
  HostCommand* command = free_;
  free_ = command->link_;
  const auto cid = static_cast<std::uint16_t>(command->sqe.cid + (1u << kIndexBits));
  command->sqe = {};
  command->sqe.cid = cid;
  command->state_ = HostCommand::State::taken;
  command->direction = HostCommand::Direction::none;
  command->data = nullptr;
  command->data_bytes = 0;
  command->cqe = {};
  command->sent = false;
  command->received_bytes = 0;
  command->answered_ = command->digest_failed_ = command->last_received_ = false;
  command->late_ = false;
  command->ticks_ = 0;
  command->asked_bytes_ = command->sent_bytes_ = 0;
  ++in_flight_;
  return command;
}

void HostQueue::give_back(HostCommand& command) {
  command.state_ = HostCommand::State::free;
  command.link_ = free_;
  free_ = &command;
  --in_flight_;
}

void HostQueue::submit(HostCommand& command) {
  FURROW_CHECK(command.state_ == HostCommand::State::taken);
  command.state_ = HostCommand::State::unsent;
  enqueue(command);
}

void HostQueue::enqueue(HostCommand& command) {
  command.queued_ = true;
  ++waiting_;
  command.link_ = nullptr;
  *(first_out_ == nullptr ? &first_out_ : &last_out_->link_) = &command;
  last_out_ = &command;
  stream_.want_send();
}

void HostQueue::fill(SendBatch& batch) {
  if (icreq_due_) {
    icreq_due_ = false;
    batch.wrote(
        PduEncoder::icreq(batch.space(), 0, options_.header_digest, options_.data_digest, 0));
  }
  if (term_due_) {
    term_due_ = false;
    batch.wrote(PduEncoder::term_req(batch.space(), PduType::h2c_term_req, term_,
                                     stream_.decoder().offending()));
    return;
  }
  if (state_ != State::ready) return;
  while (first_out_ != nullptr && batch.has_room()) {
    HostCommand& command = *first_out_;
    first_out_ = command.link_;
    --waiting_;
    command.queued_ = false;
    if (command.answered_) {  // the target did not wait for the data that it had asked for
      answered(command);
      continue;
    }
    if (!command.in_batch_) batch_.push_back(&command);
    command.in_batch_ = true;
    if (command.state_ == HostCommand::State::unsent) {
      put_capsule(batch, command);
    } else {
      put_data(batch, command);
    }
  }
}

void HostQueue::put_capsule(SendBatch& batch, HostCommand& command) {
  command.state_ = HostCommand::State::sent;
  command.sent = true;
  nvme::Sqe& sqe = command.sqe;
  sqe.flags = nvme::kPsdtSgl;
  sqe.sgl_address = 0;
  sqe.sgl_length = command.data_bytes;
  const bool in_capsule = command.direction == HostCommand::Direction::to_target &&
                          command.data_bytes != 0 &&
                          command.data_bytes <= options_.in_capsule_bytes;
  sqe.sgl_type = in_capsule ? nvme::kSglInCapsule : nvme::kSglTransport;
  batch.wrote(encoder_.capsule_cmd(batch.space(), sqe, in_capsule ? command.data_bytes : 0));
  if (!in_capsule) return;
  command.sent_bytes_ = command.data_bytes;  // an R2T would ask for what it has
  put_payload(batch, command.data, command.data_bytes);
}

// One H2CData of what the R2T asked for; the rest goes to the end of the line.
void HostQueue::put_data(SendBatch& batch, HostCommand& command) {
  const std::uint32_t bytes = std::min(command.asked_bytes_, h2c_data_bytes_);
  const bool last = bytes == command.asked_bytes_;
  batch.wrote(encoder_.data(batch.space(), PduType::h2c_data, command.sqe.cid, command.ttag_,
                            command.sent_bytes_, bytes, last ? kFlagLast : std::uint8_t{0}));
  put_payload(batch, command.data + command.sent_bytes_, bytes);
  command.asked_bytes_ -= bytes;
  command.sent_bytes_ += bytes;
  if (!last) enqueue(command);
}

void HostQueue::put_payload(SendBatch& batch, const std::byte* from, std::uint32_t bytes) {
  batch.data(from, bytes);
  if (!encoder_.format().data_digest) return;
  PduEncoder::put_digest(batch.space(), crc32c({from, bytes}));
  batch.wrote(kDigestBytes);
}

void HostQueue::on_sent() {
  for (std::size_t i = 0; i < batch_.size(); ++i) {
    HostCommand& command = *batch_[i];
    command.in_batch_ = false;
    if (command.answered_) answered(command);
  }
  batch_.clear();
  if (state_ == State::ending && !term_due_) stream_.abort();
}

// The target has answered: the command is done as soon as nothing refers to its memory.
void HostQueue::answered(HostCommand& command) {
  command.answered_ = true;
  if (command.in_batch_ || command.queued_) return;
  Status status;
  if (command.digest_failed_) {
    status = Status(Code::io_error, Origin::transport,
                    "the data was damaged on the way: its digest does not match", 0,
                    nvme::sc::kTransientTransportError);
  }
  finish(command, status);
}

void HostQueue::finish(HostCommand& command, Status status) {
  command.state_ = HostCommand::State::taken;  // while `done` looks at it
  command.done(command, status);
  give_back(command);
  if (state_ == State::ready) owner_.on_room(*this);
}

// The target broke the protocol: say why, then end.
void HostQueue::refuse(Fes fes, std::size_t information) {
  if (state_ == State::ending || state_ == State::gone) return;
  term_ = {fes, static_cast<std::uint32_t>(information)};
  term_due_ = true;
  stream_.discard_input();
  stream_.want_send();
  down(Status(Code::protocol, Origin::transport,
              "the target broke the NVMe/TCP protocol; the connection was given up"));
}

void HostQueue::on_end(int error) {
  down(Status(Code::aborted, Origin::transport,
              state_ == State::ready ? "the target closed the connection"
                                     : "the peer closed the connection instead of answering: it "
                                       "does not serve NVMe/TCP at this port, or takes no more "
                                       "connections",
              error));
}

void HostQueue::down(Status why) {
  if (state_ == State::ending || state_ == State::gone) return;
  state_ = State::ending;
  if (!term_due_) stream_.abort();
  owner_.on_down(*this, why);
}

void HostQueue::end() {
  if (state_ == State::gone) return;
  state_ = State::ending;
  term_due_ = false;
  ring_.cancel(connect_op_);
  stream_.abort();
}

void HostQueue::age(unsigned ticks_max) {
  if (state_ != State::ready) return;
  bool any_late = false;
  for (std::uint32_t i = 0; i < options_.entries; ++i) {
    HostCommand& command = commands_[i];
    if (command.state_ != HostCommand::State::unsent &&
        command.state_ != HostCommand::State::sent) {
      continue;
    }
    command.late_ = ++command.ticks_ > ticks_max;
    any_late |= command.late_;
  }
  if (any_late) {
    down(Status(Code::late, Origin::transport, "the target did not answer a command in time",
                ETIMEDOUT));
  }
}

void HostQueue::on_quiet() {
  quiet_ = true;
  try_gone();
}

// Nothing touches memory any longer: gives back what has no answer.
void HostQueue::try_gone() {
  if (!quiet_ || connect_op_.in_flight || gone_work_.queued || state_ == State::gone) return;
  state_ = State::gone;
  receiving_ = nullptr;
  first_out_ = nullptr;
  batch_.clear();
  for (std::uint32_t i = 0; i < options_.entries; ++i) {
    HostCommand& command = commands_[i];
    if (command.state_ != HostCommand::State::unsent &&
        command.state_ != HostCommand::State::sent) {
      continue;
    }
    command.in_batch_ = command.queued_ = false;
    if (command.answered_) {  // before the socket had told that it was sent
      answered(command);
      continue;
    }
    finish(command, command.late_
                        ? Status(Code::late, Origin::transport,
                                 "the target did not answer in time; it may have been done or not",
                                 ETIMEDOUT)
                        : Status(Code::aborted, Origin::transport,
                                 "the connection ended before the target answered"));
  }
  owner_.on_gone(*this);
}

}  // namespace furrow::transport
