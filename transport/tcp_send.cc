// What a host is sent: ICResp and C2HTermReq, R2T, C2HData, completions.
#include <algorithm>

#include "transport/tcp_connection.h"
#include "zone/check.h"

namespace furrow::transport {

void TcpConnection::push(Request& request, const std::byte* from, std::uint32_t bytes) {
  auto& slot = static_cast<CommandSlot&>(request);
  FURROW_CHECK(slot.state == CommandSlot::State::with_handler && bytes <= slot.data_bytes);
  slot.push_from = from;
  slot.push_bytes = bytes;
  complete(request);
}

void TcpConnection::complete(Request& request) {
  auto& slot = static_cast<CommandSlot&>(request);
  FURROW_CHECK(slot.state == CommandSlot::State::with_handler && !slot.answer_held);
  // The host's data is still on its way into a buffer, or the TTAG is in the host's hands: the slot
  // must live until that is over.
  if (slot.pulling() || receiving_ == &slot) {
    slot.answer_held = true;
    return;
  }
  answer(slot);
}

void TcpConnection::answer(CommandSlot& slot) {
  slot.state = CommandSlot::State::answered;
  out_.push(slot);
  if (state_ >= State::lingering) {
    environment_.ring.defer(work_);
  } else {
    stream_.want_send();
  }
}

void TcpConnection::refuse(CommandSlot& slot, std::uint16_t status) {
  slot.completion.set_status(status, true);
  answer(slot);
}

void TcpConnection::fill(SendBatch& batch) {
  if (icresp_due_ || term_due_) {
    std::copy_n(control_, control_bytes_, batch.space());
    batch.wrote(control_bytes_);
    icresp_due_ = false;
  }
  if (term_due_) {  // nothing after it
    term_due_ = false;
    drop_output();
    return;
  }
  while (!out_.empty() && batch.has_room()) {
    CommandSlot& slot = out_.pop();
    if (slot.state == CommandSlot::State::answered) {
      put_response(batch, slot);
    } else if (state_ == State::live) {
      slot.pull = CommandSlot::Pull::arriving;
      batch.wrote(encoder_.r2t(batch.space(), slot.command.cid, slot.index, 0, slot.data_bytes));
    }  // else its data would not be read any more
  }
  if (state_ == State::finishing && batch.empty()) environment_.ring.defer(work_);
}

// The handler's answers that nobody will read. An R2T is dropped too: its pull ends at the
// teardown.
void TcpConnection::drop_output() {
  while (!out_.empty()) {
    CommandSlot& slot = out_.pop();
    if (slot.state == CommandSlot::State::answered) release(slot);
  }
}

void TcpConnection::put_response(SendBatch& batch, CommandSlot& slot) {
  if (slot.digest_failed) {  // whatever the handler made of it
    slot.completion = {};
    slot.completion.set_status(nvme::sc::kTransientTransportError);
    slot.push_bytes = 0;
  }
  bool success = false;
  if (slot.push_bytes != 0) {
    // The flag stands for a completion that says nothing: it would lose DW0, DW1 and SQHD.
    const nvme::Cqe& cqe = slot.completion;
    success = !flow_control_ && cqe.dw0 == 0 && cqe.dw1 == 0 && cqe.status == 0 &&
              slot.push_bytes == slot.data_bytes;
    const auto flags = static_cast<std::uint8_t>(kFlagLast | (success ? kFlagSuccess : 0u));
    batch.wrote(encoder_.data(batch.space(), PduType::c2h_data, slot.command.cid, 0, 0,
                              slot.push_bytes, flags));
    batch.data(slot.push_from, slot.push_bytes);
    if (encoder_.format().data_digest) {
      PduEncoder::put_digest(batch.space(), crc32c({slot.push_from, slot.push_bytes}));
      batch.wrote(kDigestBytes);
    }
  }
  if (!success) put_completion(batch, slot);
  slot.state = CommandSlot::State::sending;
  sending_.push(slot);
  --unanswered_;
  if (slot.waits_for_event) --waiting_events_;
  slot.waits_for_event = false;
  // From the moment that the host has the answer it may use the identifier again.
  if (slot.owns_cid) cids_->reset(slot.command.cid);
  slot.owns_cid = false;
}

void TcpConnection::put_completion(SendBatch& batch, const CommandSlot& slot) {
  nvme::Cqe cqe = slot.completion;
  cqe.cid = slot.command.cid;
  cqe.sqid = 0;  // reserved over fabrics
  cqe.sqhd = flow_control_ ? sq_head_ : nvme::kSqhdNoFlowControl;
  batch.wrote(encoder_.capsule_resp(batch.space(), cqe));
}

void TcpConnection::on_sent() {
  sent_ = true;
  while (!sending_.empty()) release(sending_.pop());
  if (state_ == State::finishing) environment_.ring.defer(work_);
  finish_when_answered();
}

// The response is out, or nobody will read it: the slot is free again.
void TcpConnection::release(CommandSlot& slot) {
  if (slot.state == CommandSlot::State::answered) {  // never sent
    --unanswered_;
    if (slot.waits_for_event) --waiting_events_;
    if (slot.owns_cid) cids_->reset(slot.command.cid);
  }
  if (slot.on_done != nullptr) slot.on_done(slot);
  slot.state = CommandSlot::State::free;
  drop_stash(slot);
  --held_;
  free_.push(slot);
}

}  // namespace furrow::transport
