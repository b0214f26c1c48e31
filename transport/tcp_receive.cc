// What a host sends: ICReq, command capsules, H2CData.
#include <cstddef>
#include <cstring>
#include <new>

#include "transport/fair_share.h"
#include "transport/tcp_connection.h"
#include "zone/check.h"

namespace furrow::transport {

using Pull = CommandSlot::Pull;

void TcpConnection::on_pdu_error() { terminate(stream_.decoder().error()); }

void TcpConnection::on_header() {
  switch (stream_.decoder().type()) {
    case PduType::icreq:
      return on_icreq();
    case PduType::capsule_cmd:
      return on_capsule();
    case PduType::h2c_data:
      return on_h2c_data();
    default:
      return teardown();  // H2CTermReq: the host gives up, and reads nothing any longer
  }
}

void TcpConnection::on_icreq() {
  const auto& request = stream_.decoder().header<IcReq>();
  if (request.pfv != 0) {
    return terminate({Fes::unsupported_parameter, offsetof(IcReq, pfv)});
  }
  if (request.hpda > kPdaMax) {
    return terminate({Fes::invalid_header_field, offsetof(IcReq, hpda)});
  }
  try {
    cids_ = std::make_unique<std::bitset<65536>>();
    environment_.handler.on_open(*this);
  } catch (const std::bad_alloc&) {
    return teardown();
  }
  opened_ = true;
  // MAXR2T needs no memory: a command's data is asked for with one R2T, and one is always allowed.
  const bool header_digest = (request.digests & 1) != 0, data_digest = (request.digests & 2) != 0;
  encoder_.set_format({header_digest, data_digest, request.hpda});
  stream_.decoder().set_format({header_digest, data_digest, 0});
  stream_.decoder().set_initialized();
  control_bytes_ = PduEncoder::icresp(control_, 0, header_digest, data_digest,
                                      environment_.limits.h2c_data_bytes);
  icresp_due_ = true;
  state_ = State::await_connect;
  environment_.executor.start(timer_, std::uint64_t{environment_.limits.setup_ms} * 1'000'000);
  stream_.want_send();
}

// Null: the host has more in flight than it may; the connection ends.
CommandSlot* TcpConnection::take_slot() {
  if (unanswered_ >= entries_ || free_.empty()) {
    terminate({Fes::sequence, 0});
    return nullptr;
  }
  CommandSlot& slot = free_.pop();
  slot.state = CommandSlot::State::with_handler;
  slot.pull = Pull::none;
  slot.capsule_arriving = slot.digest_failed = slot.answer_held = slot.waits_for_event = false;
  slot.shed = false;
  slot.data_ticks = 0;
  slot.owns_cid = false;
  slot.pull_into = nullptr;
  slot.pulled_bytes = 0;
  slot.push_from = nullptr;
  slot.push_bytes = 0;
  slot.connection = this;
  slot.completion = {};
  slot.on_pulled = slot.on_done = nullptr;
  slot.pull_status = {};
  ++unanswered_;
  ++held_;
  return &slot;
}

void TcpConnection::on_capsule() {
  if (!accepting_) return;  // not accepted: the host sees the connection end and sends it again
  CommandSlot* slot = take_slot();
  if (slot == nullptr) return;
  slot->command = stream_.decoder().header<CapsuleCmd>().sqe;
  ++environment_.stats.commands;
  if (queue_set_) {
    sq_head_ = static_cast<std::uint16_t>(sq_head_ + 1u == entries_ ? 0 : sq_head_ + 1u);
  }
  if (!describe(*slot)) return;
  hand_over(*slot);
}

// Fills in the request; false when the command was refused already.
bool TcpConnection::describe(CommandSlot& slot) {
  const nvme::Sqe& command = slot.command;
  const bool connect =
      command.opc == nvme::opcode::kFabrics && command.fctype() == nvme::fabrics::kConnect;
  slot.data_in_capsule = command.sgl_type == nvme::kSglInCapsule;
  slot.data_bytes = command.sgl_length;
  if (cids_->test(command.cid)) {
    refuse(slot, nvme::sc::kCidConflict);
    return false;
  }
  cids_->set(command.cid);
  slot.owns_cid = true;
  if (!queue_set_ && !connect) {
    refuse(slot, nvme::sc::kCommandSequenceError);
    return false;
  }
  // (Before the Connect is done no H2CData is taken.)
  const bool by_transport = command.sgl_type == nvme::kSglTransport && queue_set_;
  if (!slot.data_in_capsule && !by_transport && slot.data_bytes != 0) {
    refuse(slot, nvme::sc::kSglTypeInvalid);
    return false;
  }
  if (slot.data_in_capsule && command.sgl_address != 0) {  // ICDOFF is 0
    refuse(slot, nvme::sc::kSglOffsetInvalid);
    return false;
  }
  if (connect && !queue_set_) queue_id_ = static_cast<std::uint16_t>(command.cdw10 >> 16);
  slot.waits_for_event = queue_id_ == 0 && command.opc == nvme::admin::kAsyncEvent;
  if (slot.waits_for_event) ++waiting_events_;
  return true;
}

void TcpConnection::hand_over(CommandSlot& slot) {
  slot.capsule_arriving = stream_.decoder().data_bytes() != 0;
  environment_.handler.on_request(slot);
  // The handler may have answered, pulled, closed the connection, any of it.
  if (slot.capsule_arriving) place_capsule_data(slot);
}

// The header is in; the data comes next. Where to?
void TcpConnection::place_capsule_data(CommandSlot& slot) {
  if (state_ >= State::finishing) return;  // it never comes; a pull ends at the teardown
  if (slot.state != CommandSlot::State::with_handler) return;  // answered without it: drained
  if (slot.pull_into == nullptr) {
    // The handler waits for something. The bytes must not keep later commands waiting, which may be
    // what it waits for.
    make_stash(slot);
  }
  receiving_ = &slot;
  stream_.decoder().set_destination(slot.stash != nullptr || slot.shed ? slot.stash.get()
                                                                       : slot.pull_into);
}

// Many hosts with deep queues could make this any amount of memory: beyond the connection's share
// of the limit, or where there is none, the bytes are thrown away, and the pull fails with a status
// that lets the host try again.
void TcpConnection::make_stash(CommandSlot& slot) {
  std::atomic<std::uint64_t>& held = environment_.stats.stash_bytes;
  const Shared shared{environment_.limits.stash_bytes_max, environment_.limits.in_capsule_bytes};
  if (within_share(shared, stash_bytes_, slot.data_bytes, shared.total - held)) {
    slot.stash.reset(new (std::nothrow) std::byte[slot.data_bytes]);
  }
  slot.shed = slot.stash == nullptr;
  if (slot.shed) {
    ++environment_.stats.stashes_refused;
    return;
  }
  held += slot.data_bytes;
  stash_bytes_ += slot.data_bytes;
}

void TcpConnection::drop_stash(CommandSlot& slot) {
  if (slot.stash == nullptr) return;
  environment_.stats.stash_bytes -= slot.data_bytes;
  stash_bytes_ -= slot.data_bytes;
  slot.stash.reset();
}

// H2CData is the classic way to harm a target: nothing in it is believed.
bool TcpConnection::check_h2c_data(CommandSlot*& slot) {
  const auto& pdu = stream_.decoder().header<DataPdu>();
  const auto refuse_field = [this](std::size_t offset) {
    terminate({Fes::invalid_header_field, static_cast<std::uint32_t>(offset)});
    return false;
  };
  if (pdu.ttag >= slots_.size()) return refuse_field(offsetof(DataPdu, ttag));
  slot = slots_[pdu.ttag];
  if (slot->state != CommandSlot::State::with_handler || slot->pull != Pull::arriving) {
    return refuse_field(offsetof(DataPdu, ttag));
  }
  if (pdu.cccid != slot->command.cid) return refuse_field(offsetof(DataPdu, cccid));
  const std::uint64_t end = std::uint64_t{pdu.datao} + pdu.datal;
  if (end > slot->data_bytes) {
    terminate({Fes::out_of_range, offsetof(DataPdu, datao)});
    return false;
  }
  if (pdu.datao != slot->pulled_bytes) return refuse_field(offsetof(DataPdu, datao));
  const bool last = (pdu.common.flags & kFlagLast) != 0;
  if (last != (end == slot->data_bytes)) return refuse_field(offsetof(PduCommon, flags));
  return true;
}

void TcpConnection::on_h2c_data() {
  CommandSlot* slot = nullptr;
  if (!check_h2c_data(slot)) return;
  receiving_ = slot;
  // The decoder counts from this PDU's first byte.
  stream_.decoder().set_destination(slot->pull_into + slot->pulled_bytes);
}

void TcpConnection::on_data_end() {
  CommandSlot* slot = receiving_;
  receiving_ = nullptr;
  if (slot == nullptr) return;  // drained
  if (!stream_.decoder().data_intact()) {
    slot->digest_failed = true;
    ++environment_.stats.digest_errors;
  }
  if (!slot->capsule_arriving) {  // H2CData
    slot->pulled_bytes += stream_.decoder().data_bytes();
    if (slot->pulled_bytes == slot->data_bytes) end_pull(*slot);
    return;
  }
  slot->capsule_arriving = false;
  if (slot->pull == Pull::wanted) {
    end_pull(*slot);
  } else if (slot->answer_held) {
    slot->answer_held = false;
    answer(*slot);
  }
}

// All of the data is here.
void TcpConnection::settle_pull(CommandSlot& slot) {
  if (slot.stash != nullptr) {
    std::memcpy(slot.pull_into, slot.stash.get(), slot.data_bytes);
    drop_stash(slot);
  }
  if (slot.shed) {
    slot.pull_status = Status(Code::busy, Origin::transport, "no memory to keep the data in", 0,
                              nvme::sc::kTransientTransportError);
  }
  if (slot.digest_failed) {
    slot.pull_status = Status(Code::protocol, Origin::transport, "data digest mismatch", 0,
                              nvme::sc::kTransientTransportError);
  }
}

void TcpConnection::end_pull(CommandSlot& slot) {
  settle_pull(slot);
  tell_pulled(slot);
}

void TcpConnection::tell_pulled(CommandSlot& slot) {
  slot.pull = Pull::done;
  if (slot.answer_held) {  // the handler answered without waiting
    slot.answer_held = false;
    answer(slot);
  } else if (slot.on_pulled != nullptr) {
    slot.on_pulled(slot);
  }
}

void TcpConnection::pull(Request& request, std::byte* into) {
  auto& slot = static_cast<CommandSlot&>(request);
  FURROW_CHECK(slot.state == CommandSlot::State::with_handler && slot.pull == Pull::none);
  slot.pull_into = into;
  if (slot.data_bytes == 0 || (slot.data_in_capsule && !slot.capsule_arriving)) {
    settle_pull(slot);
    slot.pull = Pull::ready;  // told later: never from within this call
    pulled_.push(slot);
    environment_.ring.defer(work_);
    return;
  }
  if (state_ >= State::finishing) {
    slot.pull = Pull::wanted;  // nothing comes any more: the teardown ends it
    if (state_ == State::closing) environment_.ring.defer(work_);
    return;
  }
  if (slot.data_in_capsule) {
    slot.pull = Pull::wanted;
    return;
  }
  slot.pull = Pull::r2t_due;
  out_.push(slot);
  stream_.want_send();
}

}  // namespace furrow::transport
