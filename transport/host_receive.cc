// What a target sends: ICResp, completions, C2HData, R2T. Each is checked against the command that
// it names; whatever does not fit ends the connection.
#include <cstddef>

#include "transport/host_queue.h"

namespace furrow::transport {

void HostQueue::on_pdu_error() {
  refuse(stream_.decoder().error().fes, stream_.decoder().error().information);
}

void HostQueue::on_header() {
  switch (stream_.decoder().type()) {
    case PduType::icresp:
      return on_icresp();
    case PduType::capsule_resp:
      return on_response();
    case PduType::c2h_data:
      return on_data();
    case PduType::r2t:
      return on_r2t();
    default:
      return down(Status(Code::protocol, Origin::transport,
                         "the target refused what this host sent (C2HTermReq)"));
  }
}

void HostQueue::on_icresp() {
  const auto& response = stream_.decoder().header<IcResp>();
  if (response.pfv != 0) return refuse(Fes::unsupported_parameter, offsetof(IcResp, pfv));
  if (response.cpda > kPdaMax) return refuse(Fes::invalid_header_field, offsetof(IcResp, cpda));
  const bool header_digest = (response.digests & 1) != 0;
  const bool data_digest = (response.digests & 2) != 0;
  if (header_digest != options_.header_digest || data_digest != options_.data_digest) {
    return refuse(Fes::invalid_header_field, offsetof(IcResp, digests));
  }
  if (response.maxh2cdata < 4096 || response.maxh2cdata % 4 != 0) {
    return refuse(Fes::invalid_header_field, offsetof(IcResp, maxh2cdata));
  }
  h2c_data_bytes_ = response.maxh2cdata;
  encoder_.set_format({header_digest, data_digest, response.cpda});
  stream_.decoder().set_format({header_digest, data_digest, 0});  // HPDA of our ICReq
  stream_.decoder().set_initialized();
  state_ = State::ready;
  owner_.on_ready(*this);
}

// The command in flight that the target names; null, and the connection ends, when there is none.
HostCommand* HostQueue::find(std::uint16_t cid) {
  const std::uint32_t index = cid & (kEntriesMax - 1);
  if (index < options_.entries) {
    HostCommand& command = commands_[index];
    if (command.state_ == HostCommand::State::sent && command.sqe.cid == cid &&
        !command.answered_) {
      return &command;
    }
  }
  refuse(Fes::invalid_header_field, offsetof(DataPdu, cccid));
  return nullptr;
}

void HostQueue::on_response() {
  const nvme::Cqe cqe = stream_.decoder().header<CapsuleResp>().cqe;
  HostCommand* command = find(cqe.cid);
  if (command == nullptr) return;
  command->cqe = cqe;
  answered(*command);
}

void HostQueue::on_data() {
  const auto& pdu = stream_.decoder().header<DataPdu>();
  HostCommand* command = find(pdu.cccid);
  if (command == nullptr) return;
  if (command->direction != HostCommand::Direction::from_target || command->last_received_) {
    return refuse(Fes::sequence, offsetof(PduCommon, type));
  }
  if (pdu.datao != command->received_bytes) {
    return refuse(Fes::invalid_header_field, offsetof(DataPdu, datao));
  }
  if (std::uint64_t{pdu.datao} + pdu.datal > command->data_bytes) {
    return refuse(Fes::out_of_range, offsetof(DataPdu, datal));
  }
  receiving_ = command;
  stream_.decoder().set_destination(command->data + pdu.datao);
}

void HostQueue::on_data_end() {
  HostCommand* command = receiving_;
  receiving_ = nullptr;
  if (command == nullptr) return;
  const auto& pdu = stream_.decoder().header<DataPdu>();
  command->received_bytes += pdu.datal;
  if (!stream_.decoder().data_intact()) command->digest_failed_ = true;
  if ((pdu.common.flags & kFlagLast) != 0) command->last_received_ = true;
  // Stands for a completion whose fields are all zero.
  if ((pdu.common.flags & kFlagSuccess) != 0) answered(*command);
}

void HostQueue::on_r2t() {
  const auto& pdu = stream_.decoder().header<R2t>();
  HostCommand* command = find(pdu.cccid);
  if (command == nullptr) return;
  if (command->direction != HostCommand::Direction::to_target) {
    return refuse(Fes::sequence, offsetof(PduCommon, type));
  }
  // MAXR2T of our ICReq: one at a time.
  if (command->asked_bytes_ != 0) return refuse(Fes::limit_exceeded, offsetof(PduCommon, type));
  if (pdu.r2tl == 0) return refuse(Fes::invalid_header_field, offsetof(R2t, r2tl));
  if (std::uint64_t{pdu.r2to} + pdu.r2tl > command->data_bytes) {
    return refuse(Fes::out_of_range, offsetof(R2t, r2to));
  }
  if (pdu.r2to != command->sent_bytes_) {  // each byte once, in order
    return refuse(Fes::invalid_header_field, offsetof(R2t, r2to));
  }
  command->ttag_ = pdu.ttag;
  command->asked_bytes_ = pdu.r2tl;
  enqueue(*command);
}

}  // namespace furrow::transport
