// Log pages (Base specification 2.0, 5.16). Each is made whole; get_log_page sends the part that
// was asked for.
#include <algorithm>
#include <cstring>
#include <set>

#include "transport/nvme_reservation.h"
#include "transport/reactor_impl.h"

namespace furrow::transport {

namespace sc = nvme::sc;

namespace {

template <class T>
void append(std::vector<std::byte>& log, const T& value) {
  const std::size_t at = log.size();
  log.resize(at + sizeof(value));
  std::memcpy(log.data() + at, &value, sizeof(value));
}

struct KnownLog {
  std::uint8_t id;
  bool nvm, discovery;
};
constexpr KnownLog kLogs[] = {
    {nvme::lid::kSupported, true, true},
    {nvme::lid::kError, true, true},
    {nvme::lid::kSmart, true, false},
    {nvme::lid::kFirmware, true, false},
    {nvme::lid::kChangedNamespaces, true, false},
    {nvme::lid::kEffects, true, false},
    {nvme::lid::kFeatures, true, false},
    {nvme::lid::kDiscovery, false, true},
    {nvme::lid::kReservations, true, false},
    {nvme::lid::kChangedZones, true, false},
};

bool known(std::uint8_t log_id, Controller::Kind kind) {
  return std::any_of(std::begin(kLogs), std::end(kLogs), [&](const KnownLog& log) {
    return log.id == log_id && (kind == Controller::Kind::discovery ? log.discovery : log.nvm);
  });
}

void supported_logs(Controller::Kind kind, std::vector<std::byte>& log) {
  std::uint32_t entries[256]{};
  for (unsigned id = 0; id < 256; ++id) {
    if (known(static_cast<std::uint8_t>(id), kind)) entries[id] = 1;  // LSUPP
  }
  append(log, entries);
}

constexpr std::uint32_t kSupported = 1, kChangesContent = 1u << 1;

void effects(std::uint8_t csi, std::vector<std::byte>& log) {
  nvme::EffectsLog out;
  for (const std::uint8_t opcode :
       {nvme::admin::kGetLogPage, nvme::admin::kIdentify, nvme::admin::kAbort,
        nvme::admin::kSetFeatures, nvme::admin::kGetFeatures, nvme::admin::kAsyncEvent,
        nvme::admin::kKeepAlive}) {
    out.admin[opcode] = kSupported;
  }
  for (const std::uint8_t opcode : {nvme::reservation::kRegister, nvme::reservation::kReport,
                                    nvme::reservation::kAcquire, nvme::reservation::kRelease}) {
    out.io[opcode] = kSupported;
  }
  if (csi == nvme::csi::kNvm) {
    for (const std::uint8_t opcode : {nvme::nvm::kFlush, nvme::nvm::kRead, nvme::nvm::kCompare}) {
      out.io[opcode] = kSupported;
    }
    for (const std::uint8_t opcode :
         {nvme::nvm::kWrite, nvme::nvm::kWriteZeroes, nvme::nvm::kDatasetManagement}) {
      out.io[opcode] = kSupported | kChangesContent;
    }
  }
  if (csi == nvme::csi::kZoned) {
    for (const std::uint8_t opcode :
         {nvme::nvm::kFlush, nvme::nvm::kRead, nvme::zns::kManagementReceive}) {
      out.io[opcode] = kSupported;
    }
    for (const std::uint8_t opcode :
         {nvme::nvm::kWrite, nvme::zns::kAppend, nvme::zns::kManagementSend}) {
      out.io[opcode] = kSupported | kChangesContent;
    }
  }
  if (csi == nvme::csi::kKv) {
    for (const std::uint8_t opcode :
         {nvme::kv::kFlush, nvme::kv::kRetrieve, nvme::kv::kList, nvme::kv::kExist}) {
      out.io[opcode] = kSupported;
    }
    out.io[nvme::kv::kStore] = out.io[nvme::kv::kDelete] = kSupported | kChangesContent;
  }
  append(log, out);
}

// Feature Identifiers Supported and Effects (log 12h): none changes data or namespaces.
void features(std::vector<std::byte>& log) {
  constexpr std::uint32_t kOfNamespace = 1u << 20, kOfController = 1u << 21;  // FSP
  std::uint32_t entries[256]{};
  for (const std::uint8_t feature :
       {nvme::fid::kArbitration, nvme::fid::kPowerManagement, nvme::fid::kTemperature,
        nvme::fid::kErrorRecovery, nvme::fid::kVolatileWriteCache, nvme::fid::kQueues,
        nvme::fid::kWriteAtomicity, nvme::fid::kAsyncEvent, nvme::fid::kKeepAlive,
        nvme::fid::kHostBehavior, nvme::fid::kCommandSetProfile, nvme::fid::kHostId}) {
    entries[feature] = kSupported | kOfController;
  }
  for (const std::uint8_t feature :
       {nvme::fid::kKvConfig, nvme::fid::kReservationMask, nvme::fid::kReservationPersistence}) {
    entries[feature] = kSupported | kOfNamespace;
  }
  append(log, entries);
}

// Zoned Namespace Command Set specification, 4.1.4.1 (Changed Zone List).
void changed_zones(const std::set<std::uint64_t>& changed, std::vector<std::byte>& log) {
  nvme::ChangedZonesLog out;
  if (changed.size() > nvme::ChangedZonesLog::kZonesMax) {
    out.zones = nvme::ChangedZonesLog::kTooMany;
  } else {
    out.zones = static_cast<std::uint16_t>(changed.size());
    std::copy(changed.begin(), changed.end(), out.zslba);
  }
  append(log, out);
}

// A port that listens on all addresses is at the one that this host found.
std::string address_of(const Port& port, const std::string& reached_at) {
  const bool everywhere = port.address == "0.0.0.0" || port.address == "::";
  return everywhere && !reached_at.empty() ? reached_at : port.address;
}

void discovery_log(const SubsystemImpl& subsystem, const std::string& host,
                   const std::string& reached_at, std::vector<std::byte>& log) {
  const auto state = subsystem.discovery_log();
  nvme::DiscoveryLogHeader header;
  header.genctr = state.generation;
  // A host that may not connect is not told.
  if (subsystem.host_allowed(host)) header.numrec = state.ports.size();
  append(log, header);
  for (std::size_t i = 0; i < header.numrec; ++i) {
    const Port& port = state.ports[i];
    const std::string address = address_of(port, reached_at);
    nvme::DiscoveryLogEntry entry;
    entry.trtype = nvme::kTrtypeTcp;
    entry.adrfam = address.find(':') == std::string::npos ? nvme::kAdrfamIpv4 : nvme::kAdrfamIpv6;
    entry.subtype = nvme::kSubtypeNvm;
    entry.treq = 1u << 2;  // SQ flow control may be disabled; no secure channel is required
    entry.portid = port.id;
    entry.cntlid = nvme::kCntlidDynamic;
    entry.asqsz = nvme::kAdminEntriesMax;
    nvme::put_text(entry.trsvcid, std::to_string(port.port));
    nvme::put_text(entry.traddr, address);
    std::memcpy(entry.subnqn, subsystem.nqn().data(), subsystem.nqn().size());
    append(log, entry);
  }
}

}  // namespace

nvme::SmartLog Controller::smart_log() const {
  static constexpr std::uint64_t kUnitBytes = 512 * 1000;
  // There is no sensor, and the field has no value that says so: 0 is -273 degrees to a host. What
  // stands for it is for the controller to choose (5.16.1.3).
  static constexpr std::uint16_t kRoomTemperature_K = 298;
  const SubsystemStats stats = subsystem_.stats();
  const auto gauges = subsystem_.pool_gauges();
  nvme::SmartLog out;
  out.critical_warning = gauges.warnings;
  out.spare = gauges.spare_percent;
  out.temperature[0] = kRoomTemperature_K & 0xFF;
  out.temperature[1] = kRoomTemperature_K >> 8;
  out.spare_threshold = SubsystemImpl::kSparePercentLow;
  out.data_units_read[0] = (stats.bytes_read + kUnitBytes - 1) / kUnitBytes;
  out.data_units_written[0] = (stats.bytes_written + kUnitBytes - 1) / kUnitBytes;
  out.host_reads[0] = stats.host_reads;
  out.host_writes[0] = stats.host_writes;
  out.power_on_hours[0] =
      (reactor_.executor().now_ns() - subsystem_.created_ns()) / 3'600'000'000'000;
  out.media_errors[0] = gauges.media_errors;
  out.error_log_entries[0] = errors_.count();
  return out;
}

std::uint16_t Controller::log_page(std::uint8_t log_id, const nvme::Sqe& command,
                                   const std::string& reached_at, std::vector<std::byte>& log) {
  const auto csi = static_cast<std::uint8_t>(command.cdw14 >> 24);
  if (!known(log_id, kind_)) return sc::kInvalidLogPage;
  const bool begins = command.cdw12 == 0 && command.cdw13 == 0;  // at offset 0
  switch (log_id) {
    case nvme::lid::kSupported:
      supported_logs(kind_, log);
      break;
    case nvme::lid::kError:
      for (const auto& entry : errors_.newest_first()) append(log, entry);
      break;
    case nvme::lid::kSmart:
      append(log, smart_log());
      break;
    case nvme::lid::kFirmware: {
      log.resize(512);
      log[0] = std::byte{1};  // slot 1 is active
      std::memcpy(log.data() + 8, "0.1     ", 8);
      break;
    }
    case nvme::lid::kChangedNamespaces:
      for (const std::uint32_t nsid : changed_namespaces_.page(begins)) append(log, nsid);
      log.resize(4096);  // kNamespacesMax identifiers fit
      break;
    case nvme::lid::kEffects:
      if (csi > nvme::csi::kZoned) return sc::kInvalidField;
      effects(csi, log);
      break;
    case nvme::lid::kFeatures:
      features(log);
      break;
    case nvme::lid::kChangedZones: {
      const auto ns = subsystem_.namespaces()->find(command.nsid);
      if (ns == nullptr || ns->csi() != nvme::csi::kZoned || !command_sets().has(ns->csi())) {
        return sc::kInvalidNamespaceOrFormat;
      }
      const auto changed = changed_zones_.find(command.nsid);
      changed_zones(changed == changed_zones_.end() ? std::set<std::uint64_t>()
                                                    : changed->second.page(begins),
                    log);
      break;
    }
    case nvme::lid::kReservations:
      append(log, reservation_log_.oldest());
      break;
    case nvme::lid::kDiscovery:
      discovery_log(subsystem_, host_.nqn, reached_at, log);
      break;
    default:
      return sc::kInvalidLogPage;
  }
  return sc::kSuccess;
}

// The host has seen it: the event may be raised again.
void Controller::log_page_read(std::uint8_t log_id, std::uint32_t nsid) {
  if (log_id == nvme::lid::kSmart) {
    warnings_new_ = 0;
    event_pending_[static_cast<unsigned>(Event::health)] = false;
    event_masked_[static_cast<unsigned>(Event::health)] = false;
  } else if (log_id == nvme::lid::kChangedNamespaces) {
    changed_namespaces_.acknowledge();
    event_pending_[static_cast<unsigned>(Event::namespaces)] = false;
    event_masked_[static_cast<unsigned>(Event::namespaces)] = false;
    if (!changed_namespaces_.empty()) raise(Event::namespaces);
  } else if (log_id == nvme::lid::kChangedZones) {
    const auto read = changed_zones_.find(nsid);
    if (read != changed_zones_.end()) {
      read->second.acknowledge();
      if (read->second.empty()) changed_zones_.erase(read);
    }
    zones_acknowledged();
  } else if (log_id == nvme::lid::kReservations) {
    reservation_log_.drop_oldest();
    event_masked_[static_cast<unsigned>(Event::reservations)] = false;
    event_pending_[static_cast<unsigned>(Event::reservations)] = false;
    if (!reservation_log_.empty()) raise(Event::reservations);
  } else if (log_id == nvme::lid::kDiscovery) {
    event_masked_[static_cast<unsigned>(Event::discovery)] = false;
    send_events();
  }
}

// There was no memory to tell it. Few hosts ask again before the next event, so that comes all the
// same, and the log has this time's as well then.
void Controller::log_page_missed(std::uint8_t log_id) {
  for (unsigned i = 0; i < kEvents; ++i) {
    if (kLogOf[i] == log_id) event_masked_[i] = false;
  }
  send_events();
}

}  // namespace furrow::transport
