// Identify data structures (Base specification 2.0, 5.17; NVM and Key Value Command
// Set 1.0, 4.1.5; Zoned Namespace Command Set 1.1, 4.1.5).
#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>

#include "transport/nvme_reservation.h"
#include "transport/reactor_impl.h"

namespace furrow::transport {

namespace sc = nvme::sc;

namespace {

// Identify Controller or Namespace Structure (CNS) values.
enum Cns : std::uint8_t {
  kNamespace = 0x00,
  kController = 0x01,
  kActiveNamespaces = 0x02,
  kNamespaceDescriptors = 0x03,
  kNamespaceOfCommandSet = 0x05,
  kControllerOfCommandSet = 0x06,
  kActiveNamespacesOfCommandSet = 0x07,
  kNamespaceIndependent = 0x08,
  kControllersOfNamespace = 0x12,
  kControllers = 0x13,
  kCommandSets = 0x1C,
};

constexpr std::uint32_t kKvVersion = 0x00010000;   // 1.0
constexpr std::uint8_t kShared = 1;                // NMIC: more than one controller may attach
constexpr std::uint32_t kShutdownUs = 15'000'000;  // above Controller::kQuiesceTimeoutMs
constexpr std::uint8_t kLbaShift = 12;             // unit of CNS 00h's sizes

template <class T>
void put(std::vector<std::byte>& page, std::size_t offset, const T& value) {
  std::memcpy(page.data() + offset, &value, sizeof(value));
}

void kv_namespace(const Namespace& ns, std::vector<std::byte>& page) {
  nvme::IdentifyNamespaceKv out;
  out.nsze = ns.size_bytes();
  out.nuse = ns.store->usage().live_bytes;
  out.nmic = kShared;
  out.rescap = nvme::reservation::kCapabilities;
  out.novg = ns.lba_bytes;
  std::copy(ns.uuid.begin(), ns.uuid.end(), out.nguid);
  out.kvf[0].kml = Key::kBytesMax;
  out.kvf[0].vml = ns.value_bytes_max;
  put(page, 0, out);
}

// CNS 00h of a block namespace (NVM Command Set 1.0, 4.1.5.1). A write is atomic within a block of
// 4 KiB, whatever the LBA.
void nvm_namespace(const Namespace& ns, std::vector<std::byte>& page) {
  constexpr std::uint8_t kThin = 1u << 0, kAtomicity = 1u << 1, kPreferences = 1u << 4;
  constexpr std::uint8_t kReadsZeroes = 1u << 0, kWriteZeroesDeallocates = 1u << 3;
  constexpr std::uint32_t kOptimalWriteBytes = 64u << 10;
  const std::uint64_t lba_bytes = ns.block_lba_bytes;
  const std::uint64_t capacity = std::min(ns.block_bytes, ns.size_bytes()) / lba_bytes;
  const std::uint64_t used = ns.store->usage().live_bytes / lba_bytes;
  const auto block = static_cast<std::uint16_t>(kBlockPageBytes / lba_bytes - 1);    // 0's-based
  put(page, 0, ns.lbas());                                                           // NSZE
  put(page, 8, capacity);                                                            // NCAP
  put(page, 16, std::min(used, capacity));                                           // NUSE
  put(page, 24, static_cast<std::uint8_t>(kThin | kAtomicity | kPreferences));       // NSFEAT
  put(page, 30, kShared);                                                            // NMIC
  put(page, 31, nvme::reservation::kCapabilities);                                   // RESCAP
  put(page, 33, static_cast<std::uint8_t>(kReadsZeroes | kWriteZeroesDeallocates));  // DLFEAT
  for (const std::size_t field : {34, 36, 38, 40, 44}) {
    put(page, field, block);  // NAWUN, NAWUPF, NACWU, NABSN, NABSPF
  }
  for (const std::size_t field : {64, 66, 68, 70}) put(page, field, block);       // NPWG to NPDA
  put(page, 72, static_cast<std::uint16_t>(kOptimalWriteBytes / lba_bytes - 1));  // NOWS
  put(page, 104, ns.uuid);                                                        // NGUID
  put(page, 128, static_cast<std::uint32_t>(std::countr_zero(lba_bytes)) << 16);  // LBAF0: LBADS
}

// CNS 06h of the NVM command set. What is full is deallocated block by block: hosts are asked for
// commands that end well within their time-outs. Other limits there are none: zeroes.
void nvm_limits(std::vector<std::byte>& page) {
  constexpr std::uint32_t kDeallocateLbas = 1u << 20;
  put(page, 4, kDeallocateLbas);                 // DMRSL, of a range
  put(page, 8, std::uint64_t{kDeallocateLbas});  // DMSL, of all
}

// CNS 00h of a zoned namespace: NSZE has the gaps between a zone's capacity and its end, NCAP not.
void zoned_namespace(const Namespace& ns, std::vector<std::byte>& page) {
  constexpr std::uint8_t kReadsZeroes = 1u << 0;
  const std::uint64_t capacity = ns.zones.zone_count * ns.zones.zone_capacity_lbas;
  put(page, 0, ns.lbas());                                                           // NSZE
  put(page, 8, capacity);                                                            // NCAP
  put(page, 16, ns.store->usage().live_bytes / ns.lba_bytes);                        // NUSE
  put(page, 30, kShared);                                                            // NMIC
  put(page, 31, nvme::reservation::kCapabilities);                                   // RESCAP
  put(page, 33, kReadsZeroes);                                                       // DLFEAT
  put(page, 104, ns.uuid);                                                           // NGUID
  put(page, 128, static_cast<std::uint32_t>(std::countr_zero(ns.lba_bytes)) << 16);  // LBAF0: LBADS
}

// CNS 05h of CSI 2: limits are 0's-based.
void zone_properties(const Namespace& ns, std::vector<std::byte>& page) {
  constexpr std::size_t kLbaFormatExtensions = 2816;
  const auto limit = [](std::uint32_t zones) {
    return zones == 0 ? nvme::zns::kNoLimit : zones - 1;
  };
  put(page, 4, limit(ns.zones.active_zones_max));            // MAR
  put(page, 8, limit(ns.zones.open_zones_max));              // MOR
  put(page, kLbaFormatExtensions, ns.zones.zone_size_lbas);  // LBAFE0: ZSZE
}

// CNS 00h of a KV namespace: it has no blocks; sizes in units of 4 KiB and the identifiers, for
// tools that ask every namespace for this structure.
void generic_namespace(const Namespace& ns, std::vector<std::byte>& page) {
  const std::uint64_t size = ns.size_bytes() >> kLbaShift;
  const std::uint64_t used = (ns.store->usage().live_bytes + 4095) >> kLbaShift;
  put(page, 0, size);                               // NSZE
  put(page, 8, size);                               // NCAP
  put(page, 16, std::min(used, size));              // NUSE
  put(page, 30, kShared);                           // NMIC
  put(page, 31, nvme::reservation::kCapabilities);  // RESCAP
  put(page, 104, ns.uuid);                          // NGUID
  put(page, 128, std::uint32_t{kLbaShift} << 16);   // LBAF0: LBADS
}

void independent_namespace(std::vector<std::byte>& page) {
  put(page, 1, kShared);                           // NMIC
  put(page, 2, nvme::reservation::kCapabilities);  // RESCAP
  put(page, 14, std::uint8_t{1});                  // NSTAT.NRDY
}

void namespace_descriptors(const Namespace& ns, std::vector<std::byte>& page) {
  std::size_t at = 0;
  const auto add = [&](std::uint8_t type, const auto& id) {
    put(page, at, type);
    put(page, at + 1, static_cast<std::uint8_t>(sizeof(id)));
    put(page, at + 4, id);
    at += 4 + sizeof(id);
  };
  add(nvme::kNidtNguid, ns.uuid);
  add(nvme::kNidtUuid, ns.uuid);
  add(nvme::kNidtCsi, ns.csi());
}

}  // namespace

nvme::IdentifyController Controller::identify_controller() const {
  const SubsystemOptions& options = subsystem_.options();
  const auto gauges = subsystem_.pool_gauges();
  const bool discovery = kind_ == Kind::discovery;
  nvme::IdentifyController out;
  nvme::put_text(out.sn, subsystem_.serial());
  nvme::put_text(out.mn, discovery ? "Furrow discovery" : "Furrow page server");
  nvme::put_text(out.fr, "0.1");
  out.cmic = 1u << 1;  // more than one controller
  out.mdts = static_cast<std::uint8_t>(std::countr_zero(options.transfer_bytes_max) - 12);
  out.cntlid = id_;
  out.ver = 0x00020000;
  out.rtd3e = kShutdownUs;  // how long a host waits for CSTS.SHST
  // Discovery log; namespace attribute changes, zone descriptor changes.
  out.oaes = discovery ? 1u << 31 : 1u << 8 | 1u << 27;
  out.ctratt = 1u << 0 | 1u << 6;  // 128-bit host identifier, TBKAS
  out.cntrltype = discovery ? 2 : 1;
  out.aerl = kAsyncEventsMax - 1;
  out.elpe = ErrorLog::kEntries - 1;
  out.lpa = 1u << 2;  // extended data: offsets
  out.kas = kKeepAliveGranularityMs / 100;
  out.maxcmd = static_cast<std::uint16_t>(options.io_queue_entries_max);
  out.sgls = 1u << 0 | 1u << 20 | 1u << 21;  // SGLs; offset in the capsule; transport data block
  const std::string_view nqn = discovery ? nvme::kDiscoveryNqn : std::string_view(subsystem_.nqn());
  std::memcpy(out.subnqn, nqn.data(), nqn.size());
  if (discovery) return out;
  out.lpa |= 1u << 1;  // commands supported and effects
  out.crdt1 = kRetryDelayMs / 100;
  out.acl = kAbortsMax - 1;
  out.frmw = 1u << 1 | 1u << 0;  // one slot, read-only
  out.tnvmcap[0] = gauges.capacity_bytes;
  out.unvmcap[0] = gauges.free_bytes;
  out.sqes = 0x66;
  out.cqes = 0x44;
  out.nn = kNamespacesMax;
  // Compare, Dataset Management, Write Zeroes, reservations.
  out.oncs = 1u << 0 | 1u << 2 | 1u << 3 | 1u << 5;
  out.fuses = 1u << 0;  // Compare and Write, of one LBA (ACWU) or what the namespace says
  out.mnan = kNamespacesMax;
  out.vwc = 1u << 0 | 2u << 1;  // a volatile write cache; Flush takes one namespace
  out.ioccsz = (64 + options.in_capsule_bytes) / 16;
  out.iorcsz = 1;
  out.msdbd = 1;
  out.ofcs = 1;  // Disconnect
  out.instance_magic = nvme::kInstanceMagic;
  out.instance = subsystem_.instance();
  return out;
}

std::uint16_t Controller::identify_page(const nvme::Sqe& command,
                                        std::vector<std::byte>& page) const {
  const auto cns = static_cast<std::uint8_t>(command.cdw10);
  const auto csi = static_cast<std::uint8_t>(command.cdw11 >> 24);
  if (cns == kController) {
    put(page, 0, identify_controller());
    return sc::kSuccess;
  }
  if (kind_ == Kind::discovery) return sc::kInvalidField;
  switch (cns) {
    case kNamespace:
    case kNamespaceDescriptors:
    case kNamespaceOfCommandSet:
    case kNamespaceIndependent:
      return identify_namespace_page(cns, command.nsid, csi, page);
    case kActiveNamespaces:
    case kActiveNamespacesOfCommandSet:
    case kControllersOfNamespace:
    case kControllers:
      return identify_list_page(cns, command, page);
    case kControllerOfCommandSet:
      if (csi == nvme::csi::kKv) put(page, 0, kKvVersion);
      if (csi == nvme::csi::kNvm) nvm_limits(page);
      // Of CSI 2: ZASL is 0, an append may be as long as any transfer.
      return csi <= nvme::csi::kZoned ? sc::kSuccess : sc::kInvalidField;
    case kCommandSets:  // one combination: all of them
      put(page, 0, std::uint64_t{CommandSets::all().bits});
      return sc::kSuccess;
    default:
      return sc::kInvalidField;
  }
}

std::uint16_t Controller::identify_namespace_page(std::uint8_t cns, std::uint32_t nsid,
                                                  std::uint8_t csi,
                                                  std::vector<std::byte>& page) const {
  if (nsid == 0 || nsid > kNamespacesMax) return sc::kInvalidNamespaceOrFormat;
  if (cns == kNamespaceOfCommandSet && csi > nvme::csi::kZoned) return sc::kInvalidField;
  const auto ns = subsystem_.namespaces()->find(nsid);
  if (ns == nullptr || !command_sets().has(ns->csi())) {
    // An inactive namespace is all zeroes, but it has no identification descriptors.
    return cns == kNamespaceDescriptors ? sc::kInvalidNamespaceOrFormat : sc::kSuccess;
  }
  switch (cns) {
    case kNamespace:
      if (ns->csi() == nvme::csi::kNvm) {
        nvm_namespace(*ns, page);
      } else if (ns->csi() == nvme::csi::kZoned) {
        zoned_namespace(*ns, page);
      } else {
        generic_namespace(*ns, page);
      }
      return sc::kSuccess;
    case kNamespaceDescriptors:
      namespace_descriptors(*ns, page);
      return sc::kSuccess;
    case kNamespaceIndependent:
      independent_namespace(page);
      return sc::kSuccess;
    default:
      if (csi != ns->csi()) return sc::kInvalidIoCommandSet;
      if (csi == nvme::csi::kKv) kv_namespace(*ns, page);  // of CSI 0: no protection, zeroes
      if (csi == nvme::csi::kZoned) zone_properties(*ns, page);
      return sc::kSuccess;
  }
}

std::uint16_t Controller::identify_list_page(std::uint8_t cns, const nvme::Sqe& command,
                                             std::vector<std::byte>& page) const {
  if (cns == kControllersOfNamespace || cns == kControllers) {
    if (cns == kControllersOfNamespace && subsystem_.namespaces()->find(command.nsid) == nullptr) {
      return sc::kInvalidNamespaceOrFormat;
    }
    const auto ids = subsystem_.controller_ids(static_cast<std::uint16_t>(command.cdw10 >> 16));
    const std::size_t count = std::min<std::size_t>(ids.size(), 2047);
    put(page, 0, static_cast<std::uint16_t>(count));
    for (std::size_t i = 0; i < count; ++i) put(page, 2 + 2 * i, ids[i]);
    return sc::kSuccess;
  }
  const auto csi = static_cast<std::uint8_t>(command.cdw11 >> 24);
  if (command.nsid >= nvme::kNsidAll - 1) return sc::kInvalidNamespaceOrFormat;
  if (cns == kActiveNamespacesOfCommandSet && csi > nvme::csi::kZoned) return sc::kInvalidField;
  std::size_t at = 0;
  const auto table = subsystem_.namespaces();
  for (const auto& ns : table->all()) {
    if (ns->nsid <= command.nsid || at == page.size()) continue;
    if (!command_sets().has(ns->csi())) continue;
    if (cns == kActiveNamespacesOfCommandSet && csi != ns->csi()) continue;
    put(page, at, ns->nsid);
    at += sizeof(ns->nsid);
  }
  return sc::kSuccess;
}

}  // namespace furrow::transport
