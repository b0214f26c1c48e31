// The steps that bring a controller up: what each sends, and what its answer leads to.
#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/discovery_log.h"
#include "transport/host_controller.h"
#include "transport/nvme.h"

namespace furrow::transport {

namespace {

constexpr std::uint64_t kCstsAgainNs = 5'000'000;
constexpr std::uint32_t kIoReceiveBytes = 65536;
constexpr std::uint32_t kTransferBytesLimit = 4u << 20;  // what MDTS = 0 ("no limit") means to us
constexpr std::uint32_t kDiscoveryEntries = 64;
// Of the discovery log: what the smallest MDTS allows.
constexpr std::uint32_t kDiscoveryPieceBytes = 4096;

Status protocol(const char* hint) { return Status(Code::protocol, Origin::transport, hint); }

// What Connect Invalid Parameters says in DW0: in the data (IATTR), and where (IPO).
const char* wrong_parameter(std::uint32_t dw0) {
  constexpr std::uint32_t kInData = 1u << 16, kSqsizeAt = offsetof(nvme::Sqe, cdw11);
  switch (dw0) {
    case kInData | offsetof(nvme::ConnectData, subnqn):
      return "the target has no subsystem with this NQN; see what it has with `nvme discover`";
    case kInData | offsetof(nvme::ConnectData, hostnqn):
      return "the target takes this host NQN for none; an NQN is \"nqn.\" and up to 219 bytes";
    case kSqsizeAt:
      return "the target refuses a queue of this size; use a smaller depth";
    default:
      return "the target refuses a parameter of Connect";
  }
}

Status connect_failure(const nvme::Cqe& answer) {
  const std::uint16_t status = answer.sct_sc();
  switch (status) {
    case nvme::sc::kConnectInvalidHost:
      return Status(
          Code::permission, Origin::transport,
          "the target does not allow this host NQN: name one that it allows (--hostnqn), or "
          "add it to the server's --allowed_hosts",
          0, status);
    case nvme::sc::kConnectInvalidParameters:
      return Status(Code::not_found, Origin::transport, wrong_parameter(answer.dw0), 0, status);
    case nvme::sc::kControllerBusy:
      return Status(Code::busy, Origin::transport, "the target takes no more connections now", 0,
                    status);
    default:
      return Status(Code::io_error, Origin::transport, "the target refused to connect", 0, status);
  }
}

// How much of it is to be read, as far as `log`, which was read, tells.
std::size_t discovery_log_bytes(std::span<const std::byte> log) {
  nvme::DiscoveryLogHeader header;
  if (log.size() < sizeof header) return kDiscoveryPieceBytes;
  std::memcpy(&header, log.data(), sizeof header);
  const std::uint64_t entries = std::min<std::uint64_t>(header.numrec, kDiscoveryEntries);
  return sizeof header + entries * sizeof(nvme::DiscoveryLogEntry);
}

template <std::size_t N>
void put_nqn(char (&field)[N], const std::string& text) {
  std::memcpy(field, text.data(), std::min(text.size(), N - 1));
}

}  // namespace

std::uint32_t HostController::io_entries() const {
  const auto mqes = static_cast<std::uint32_t>(facts_.cap & 0xffff) + 1;
  return std::clamp(std::min(options_.queue_entries, mqes), 2u, HostQueue::kEntriesMax);
}

void HostController::on_ready(HostQueue& queue) {
  if (step_ == Step::down) return;
  run(&queue == queues_[0].get() ? Step::connect_admin : Step::connect_io);
}

void HostController::run(Step step) {
  step_ = step;
  switch (step) {
    case Step::connect_admin:
      return send_connect(*queues_[0], 0, 32);
    case Step::read_cap:
      return get_property(nvme::property::kCap, true);
    case Step::enable: {
      nvme::Sqe sqe;
      sqe.opc = nvme::opcode::kFabrics;
      sqe.nsid = nvme::fabrics::kPropertySet;
      sqe.cdw11 = nvme::property::kCc;
      const std::uint32_t css = (facts_.cap & nvme::kCapCssAll) != 0         ? nvme::kCssAll
                                : (facts_.cap & nvme::kCapCssAdminOnly) != 0 ? nvme::kCssAdminOnly
                                                                             : nvme::kCssNvm;
      sqe.cdw12 = nvme::kCcEnable | css << nvme::kCcCssShift | 6u << nvme::kCcIosqesShift |
                  4u << nvme::kCcIocqesShift;
      return send(*queues_[0], sqe, HostCommand::Direction::none, 0);
    }
    case Step::read_csts:
      return get_property(nvme::property::kCsts, false);
    case Step::read_vs:
      return get_property(nvme::property::kVs, false);
    case Step::identify:
      return send_identify(0, 0x01, 0);
    case Step::set_queues: {
      nvme::Sqe sqe;
      sqe.opc = nvme::admin::kSetFeatures;
      sqe.cdw10 = nvme::fid::kQueues;
      sqe.cdw11 = (options_.io_queues - 1u) | (options_.io_queues - 1u) << 16;
      return send(*queues_[0], sqe, HostCommand::Direction::none, 0);
    }
    case Step::open_io: {
      const Status opened = open_queue(io_entries(), facts_.in_capsule_bytes, kIoReceiveBytes);
      return opened.ok() ? void() : fail(opened);
    }
    case Step::connect_io:
      return send_connect(*queues_.back(), static_cast<std::uint16_t>(queues_.size() - 1),
                          io_entries());
    case Step::identify_namespace:
      return send_identify(options_.nsid, 0x05, nvme::csi::kKv);
    case Step::read_discovery_log: {
      const std::size_t left = discovery_log_bytes(discovery_log_) - discovery_log_.size();
      return read_discovery_log(
          discovery_log_.size(),
          static_cast<std::uint32_t>(std::min<std::size_t>(left, kDiscoveryPieceBytes)));
    }
    case Step::check_discovery_log:
      return read_discovery_log(0, sizeof(nvme::DiscoveryLogHeader));
    case Step::up:
      set_due(std::max(options_.keep_alive_ms / 2, 1u) * std::uint64_t{1'000'000});
      if (options_.command_timeout_ms != 0) age_commands();
      return owner_.on_up();
    case Step::open_admin:
    case Step::down:
      return;
  }
}

void HostController::send(HostQueue& queue, const nvme::Sqe& sqe, HostCommand::Direction direction,
                          std::uint32_t data_bytes) {
  HostCommand* command = queue.take();
  if (command == nullptr) return fail(Status(Code::aborted, Origin::transport, "queue lost"));
  const std::uint16_t cid = command->sqe.cid;
  command->sqe = sqe;
  command->sqe.cid = cid;
  command->direction = direction;
  command->data = data_.data();
  command->data_bytes = data_bytes;
  command->context = this;
  command->done = [](HostCommand& done, Status status) {
    static_cast<HostController*>(done.context)->on_answer(done, status);
  };
  queue.submit(*command);
}

void HostController::get_property(std::uint32_t offset, bool wide) {
  nvme::Sqe sqe;
  sqe.opc = nvme::opcode::kFabrics;
  sqe.nsid = nvme::fabrics::kPropertyGet;
  sqe.cdw10 = wide ? 1 : 0;
  sqe.cdw11 = offset;
  send(*queues_[0], sqe, HostCommand::Direction::none, 0);
}

void HostController::send_connect(HostQueue& queue, std::uint16_t qid, std::uint32_t entries) {
  nvme::ConnectData connect;
  std::memcpy(connect.hostid, options_.host_id.data(), sizeof connect.hostid);
  connect.cntlid = qid == 0 ? nvme::kCntlidDynamic : facts_.cntlid;
  put_nqn(connect.subnqn, options_.subsystem_nqn);
  put_nqn(connect.hostnqn, options_.host_nqn);
  std::memcpy(data_.data(), &connect, sizeof connect);
  nvme::Sqe sqe;
  sqe.opc = nvme::opcode::kFabrics;
  sqe.nsid = nvme::fabrics::kConnect;
  sqe.cdw10 = std::uint32_t{qid} << 16;
  sqe.cdw11 = (entries - 1) | std::uint32_t{nvme::kCattrNoFlowControl} << 16;
  if (qid == 0) sqe.cdw12 = options_.keep_alive_ms;
  send(queue, sqe, HostCommand::Direction::to_target, sizeof connect);
}

void HostController::send_identify(std::uint32_t nsid, std::uint8_t cns, std::uint8_t csi) {
  nvme::Sqe sqe;
  sqe.opc = nvme::admin::kIdentify;
  sqe.nsid = nsid;
  sqe.cdw10 = cns;
  sqe.cdw11 = std::uint32_t{csi} << 24;
  send(*queues_[0], sqe, HostCommand::Direction::from_target, 4096);
}

void HostController::read_discovery_log(std::uint64_t offset, std::uint32_t bytes) {
  const std::uint32_t dwords = bytes / 4 - 1;
  nvme::Sqe sqe;
  sqe.opc = nvme::admin::kGetLogPage;
  sqe.cdw10 = nvme::lid::kDiscovery | (dwords & 0xffff) << 16;
  sqe.cdw12 = static_cast<std::uint32_t>(offset);
  send(*queues_[0], sqe, HostCommand::Direction::from_target, bytes);
}

void HostController::on_answer(HostCommand& command, const Status& status) {
  if (!status.ok()) return fail(status);
  const std::uint16_t code = command.cqe.sct_sc();
  if (code == nvme::sc::kSuccess) {
    received_bytes_ = command.received_bytes;
    return after(step_, command.cqe);
  }
  if (step_ == Step::connect_admin || step_ == Step::connect_io) {
    return fail(connect_failure(command.cqe));
  }
  if (step_ == Step::identify_namespace) {
    return fail(Status(Code::not_found, Origin::transport,
                       "the subsystem has no KV namespace with this NSID", 0, code));
  }
  fail(Status(Code::io_error, Origin::transport, "the target failed a command of the bring-up", 0,
              code));
}

void HostController::after(Step step, const nvme::Cqe& cqe) {
  switch (step) {
    case Step::connect_admin:
      facts_.cntlid = static_cast<std::uint16_t>(cqe.dw0);
      return run(Step::read_cap);
    case Step::read_cap:
      facts_.cap = cqe.dw0 | std::uint64_t{cqe.dw1} << 32;
      return run(Step::enable);
    case Step::enable:
      return run(Step::read_csts);
    case Step::read_csts:
      if ((cqe.dw0 & nvme::kCstsFatal) != 0) return fail(protocol("the controller has failed"));
      if ((cqe.dw0 & nvme::kCstsReady) == 0) return set_due(kCstsAgainNs);
      return run(Step::read_vs);
    case Step::read_vs:
      facts_.vs = cqe.dw0;
      return run(options_.discovery ? Step::read_discovery_log : Step::identify);
    case Step::identify:
      return take_identify();
    case Step::set_queues: {
      const std::uint32_t granted = std::min(cqe.dw0 & 0xffff, cqe.dw0 >> 16) + 1;
      io_queues_ = static_cast<std::uint16_t>(std::min<std::uint32_t>(granted, options_.io_queues));
      return run(Step::open_io);
    }
    case Step::connect_io:
      return run(queues_.size() - 1 < io_queues_ ? Step::open_io : Step::identify_namespace);
    case Step::identify_namespace:
      return take_namespace();
    case Step::read_discovery_log:
      return take_discovery_log();
    case Step::check_discovery_log:
      return check_discovery_log();
    default:
      return;
  }
}

void HostController::take_identify() {
  nvme::IdentifyController identify;
  if (received_bytes_ < sizeof identify) return fail(protocol("the Identify data is too short"));
  std::memcpy(&identify, data_.data(), sizeof identify);
  if (identify.ioccsz < 4 || identify.iorcsz < 1 || identify.icdoff != 0) {
    return fail(protocol("the controller's capsule sizes are impossible (IOCCSZ, IORCSZ, ICDOFF)"));
  }
  const std::uint64_t capsule = std::uint64_t{identify.ioccsz} * 16 - sizeof(nvme::Sqe);
  facts_.in_capsule_bytes =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(capsule, kTransferBytesLimit));
  const auto page_shift = 12 + static_cast<unsigned>(facts_.cap >> 48 & 15);  // CAP.MPSMIN
  const unsigned shift = page_shift + identify.mdts;
  facts_.instance = identify.instance_magic == nvme::kInstanceMagic ? identify.instance : 0;
  facts_.transfer_bytes_max = identify.mdts == 0 || shift >= 22 ? kTransferBytesLimit : 1u << shift;
  run(Step::set_queues);
}

void HostController::take_namespace() {
  nvme::IdentifyNamespaceKv identify;
  if (received_bytes_ < sizeof identify) return fail(protocol("the Identify data is too short"));
  std::memcpy(&identify, data_.data(), sizeof identify);
  if (identify.nsze == 0) {  // all zeroes: allocated to nobody
    return fail(Status(Code::not_found, Origin::transport,
                       "the subsystem has no active KV namespace with this NSID; `furrowctl volume "
                       "list` shows them"));
  }
  std::copy_n(identify.nguid, facts_.nguid.size(), facts_.nguid.begin());
  if (options_.nguid != decltype(options_.nguid){} && options_.nguid != facts_.nguid) {
    return fail(Status(
        Code::not_found, Origin::transport,
        "the server has another volume under this NSID now, or is another "
        "server (the NGUID differs), so it was sent nothing: find yours with `furrowctl volume "
        "list` and connect to it anew"));
  }
  const nvme::KvFormat& format = identify.kvf[identify.kvfc & 15];
  const std::uint32_t longest = format.vml == 0 ? kTransferBytesLimit : format.vml;
  facts_.value_bytes_max = std::min(longest, facts_.transfer_bytes_max);
  // Feature 20h stays as it is: it is the namespace's, so setting it would change what Delete says
  // to all other hosts.
  run(Step::up);
}

// A piece that is shorter than it may be is the last, whatever the header says.
void HostController::take_discovery_log() {
  discovery_log_.insert(discovery_log_.end(), data_.begin(), data_.begin() + received_bytes_);
  const bool first = discovery_log_.size() <= kDiscoveryPieceBytes;
  const bool all = received_bytes_ == 0 || received_bytes_ % kDiscoveryPieceBytes != 0 ||
                   discovery_log_.size() >= discovery_log_bytes(discovery_log_);
  if (!all) return run(Step::read_discovery_log);
  if (first) return decode_subsystems();
  run(Step::check_discovery_log);
}

// Pieces of two logs are none: it is read anew, for as long as the bring-up may take.
void HostController::check_discovery_log() {
  const bool same =
      received_bytes_ >= sizeof(std::uint64_t) &&
      std::equal(data_.begin(), data_.begin() + sizeof(std::uint64_t), discovery_log_.begin());
  if (same) return decode_subsystems();
  discovery_log_.clear();
  run(Step::read_discovery_log);
}

void HostController::decode_subsystems() {
  auto subsystems = decode_discovery_log(discovery_log_);
  if (!subsystems) return fail(subsystems.status());
  facts_.subsystems = std::move(*subsystems);
  run(Step::up);
}

}  // namespace furrow::transport
