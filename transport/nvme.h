// NVMe structures shared by target and initiator: queue entries, opcodes, status codes, property
// offsets, and the data structures of Connect, Identify and the log pages. Field names as in the
// NVMe Base specification 2.0, the NVMe over Fabrics commands in it, the Key Value Command Set
// specification 1.0 and the Zoned Namespace Command Set specification 1.1.
// The wire is little-endian and so is every machine that Furrow supports (asserted); every field
// here is naturally aligned, so that these structures are their own codec. All of them start
// zeroed, reserved bytes included.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace furrow::nvme {

static_assert(std::endian::native == std::endian::little);

struct Sqe {
  std::uint8_t opc = 0;
  std::uint8_t flags = 0;  // FUSE 1:0, PSDT 7:6
  std::uint16_t cid = 0;
  std::uint32_t nsid = 0;  // fabrics: FCTYPE in bits 7:0
  std::uint32_t cdw2 = 0, cdw3 = 0;
  std::uint64_t mptr = 0;
  std::uint64_t sgl_address = 0;  // SGL1: address or offset
  std::uint32_t sgl_length = 0;
  std::uint8_t sgl_reserved[3]{};
  std::uint8_t sgl_type = 0;  // type 7:4, subtype 3:0
  std::uint32_t cdw10 = 0, cdw11 = 0, cdw12 = 0, cdw13 = 0, cdw14 = 0, cdw15 = 0;

  std::uint8_t fctype() const { return static_cast<std::uint8_t>(nsid); }
};
static_assert(sizeof(Sqe) == 64);

struct Cqe {
  std::uint32_t dw0 = 0, dw1 = 0;
  std::uint16_t sqhd = 0, sqid = 0;
  std::uint16_t cid = 0;
  std::uint16_t status = 0;  // bit 0 phase, SC 8:1, SCT 11:9, CRD 13:12, M 14, DNR 15
  static constexpr std::uint16_t kRetryDelay1 = 1u << 12;  // CRD: after CRDT1

  void set_status(std::uint16_t sct_sc, bool dnr = false) {
    status = static_cast<std::uint16_t>(sct_sc << 1 | (dnr ? 0x8000u : 0u));
  }
  std::uint16_t sct_sc() const { return (status >> 1) & 0x7ff; }  // SCT 10:8, SC 7:0
  bool dnr() const { return (status & 0x8000u) != 0; }
};
static_assert(sizeof(Cqe) == 16);

// Sqe::flags.
inline constexpr std::uint8_t kFuseMask = 0x03, kFuseFirst = 0x01, kFuseSecond = 0x02;
inline constexpr std::uint8_t kPsdtMask = 0xC0;
inline constexpr std::uint8_t kPsdtSgl = 0x40;  // 01b: what every fabrics host must set

// Sqe::sgl_type over TCP.
inline constexpr std::uint8_t kSglInCapsule = 0x01;  // data block, address is an offset
inline constexpr std::uint8_t kSglTransport = 0x5A;  // transport SGL data block; also zero length

inline constexpr std::uint32_t kNsidAll = 0xFFFFFFFF;
inline constexpr std::uint16_t kCntlidDynamic = 0xFFFF;
inline constexpr std::uint16_t kSqhdNoFlowControl = 0xFFFF;
inline constexpr std::string_view kDiscoveryNqn = "nqn.2014-08.org.nvmexpress.discovery";
inline constexpr std::size_t kNqnBytesMax = 223;        // section 4.7
inline constexpr std::uint16_t kAdminEntriesMax = 128;  // ours; the discovery log says so (ASQSZ)

namespace opcode {
inline constexpr std::uint8_t kFabrics = 0x7F;
}
namespace admin {
inline constexpr std::uint8_t kGetLogPage = 0x02, kIdentify = 0x06, kAbort = 0x08,
                              kSetFeatures = 0x09, kGetFeatures = 0x0A, kAsyncEvent = 0x0C,
                              kKeepAlive = 0x18;
}
namespace fabrics {  // FCTYPE
inline constexpr std::uint8_t kPropertySet = 0x00, kConnect = 0x01, kPropertyGet = 0x04,
                              kAuthSend = 0x05, kAuthReceive = 0x06, kDisconnect = 0x08;
}
namespace kv {  // I/O opcodes of CSI 1
inline constexpr std::uint8_t kFlush = 0x00, kStore = 0x01, kRetrieve = 0x02, kList = 0x06,
                              kDelete = 0x10, kExist = 0x14;
// CDW11[15:8].
inline constexpr std::uint8_t kStoreIfExists = 0x01, kStoreIfAbsent = 0x02, kStoreNoCompress = 0x04,
                              kStoreOptions = 0x07, kRetrieveRaw = 0x01;
}  // namespace kv

namespace nvm {  // I/O opcodes of CSI 0
inline constexpr std::uint8_t kFlush = 0x00, kWrite = 0x01, kRead = 0x02, kCompare = 0x05,
                              kWriteZeroes = 0x08, kDatasetManagement = 0x09;
inline constexpr std::uint32_t kForceUnitAccess = 1u << 30;  // CDW12
inline constexpr std::uint32_t kDeallocate = 1u << 2;        // CDW11 of Dataset Management
}  // namespace nvm

namespace zns {  // I/O opcodes of CSI 2 beside Flush, Write and Read of CSI 0
inline constexpr std::uint8_t kManagementSend = 0x79, kManagementReceive = 0x7A, kAppend = 0x7D;
// CDW13 of Zone Management Send: the action, and bits; the option is of actions that there are not.
inline constexpr std::uint8_t kActionClose = 0x01, kActionFinish = 0x02, kActionOpen = 0x03,
                              kActionReset = 0x04, kActionOffline = 0x05;
inline constexpr std::uint32_t kSelectAll = 1u << 8, kSendOptions = 1u << 9;
// CDW13 of Zone Management Receive: action 7:0, which zones 15:8.
inline constexpr std::uint8_t kReportZones = 0x00;
inline constexpr std::uint32_t kPartialReport = 1u << 16;
inline constexpr std::uint8_t kTypeSequential = 0x2;
inline constexpr std::uint32_t kNoLimit = 0xFFFFFFFF;  // MAR, MOR, which are 0's-based
}  // namespace zns

struct ChangedZonesLog {
  static constexpr std::size_t kZonesMax = 511;
  static constexpr std::uint16_t kTooMany = 0xFFFF;
  std::uint16_t zones = 0;
  std::uint8_t reserved2[6]{};
  std::uint64_t zslba[kZonesMax]{};
};
static_assert(sizeof(ChangedZonesLog) == 4096);

struct ZoneReportHeader {
  std::uint64_t zones = 0;
  std::uint8_t reserved8[56]{};
};
struct ZoneDescriptor {
  std::uint8_t type = 0, state = 0;  // state in bits 7:4
  std::uint8_t attributes = 0, attributes_information = 0, reserved4[4]{};
  std::uint64_t zcap = 0, zslba = 0, wp = 0;
  std::uint8_t reserved32[32]{};
};
static_assert(sizeof(ZoneReportHeader) == 64 && sizeof(ZoneDescriptor) == 64);
static_assert(offsetof(ZoneDescriptor, wp) == 24);

struct DatasetRange {
  std::uint32_t attributes = 0, nlb = 0;  // nlb: not 0's-based
  std::uint64_t slba = 0;
};
static_assert(sizeof(DatasetRange) == 16);

namespace csi {
inline constexpr std::uint8_t kNvm = 0, kKv = 1, kZoned = 2;
}

// Status as in Cqe::set_status: SCT in bits 10:8, SC in bits 7:0.
namespace sc {
inline constexpr std::uint16_t kSuccess = 0x000, kInvalidOpcode = 0x001, kInvalidField = 0x002,
                               kCidConflict = 0x003, kDataTransferError = 0x004,
                               kInternalError = 0x006, kAbortRequested = 0x007,
                               kAbortedSqDeletion = 0x008, kFailedFused = 0x009,
                               kMissingFused = 0x00A, kInvalidNamespaceOrFormat = 0x00B,
                               kCommandSequenceError = 0x00C, kInvalidSglCount = 0x00E,
                               kDataSglLengthInvalid = 0x00F, kSglTypeInvalid = 0x011,
                               kAtomicWriteUnitExceeded = 0x014, kSglOffsetInvalid = 0x016,
                               kHostIdInconsistent = 0x018, kKeepAliveExpired = 0x019,
                               kKeepAliveInvalid = 0x01A, kCommandInterrupted = 0x021,
                               kTransientTransportError = 0x022, kWriteProtected = 0x020,
                               kInvalidIoCommandSet = 0x02C,
                               // NVM Command Set.
    kLbaOutOfRange = 0x080, kWriteFault = 0x280, kUnrecoveredRead = 0x281, kCompareFailure = 0x285,
                               // Key Value Command Set.
    kCapacityExceeded = 0x081, kNamespaceNotReady = 0x082, kReservationConflict = 0x083,
                               kFormatInProgress = 0x084, kInvalidValueSize = 0x085,
                               kInvalidKeySize = 0x086, kKeyNotFound = 0x087, kUnrecovered = 0x088,
                               kKeyExists = 0x089,
                               // Command specific.
    kAbortLimit = 0x103, kAsyncEventLimit = 0x105, kInvalidLogPage = 0x109,
                               kFeatureNotSaveable = 0x10D, kFeatureNotChangeable = 0x10E,
                               kFeatureNotNamespaceSpecific = 0x10F,
                               kCommandSetCombinationRejected = 0x12B,
                               // Fabrics.
    kIncompatibleFormat = 0x180, kControllerBusy = 0x181, kConnectInvalidParameters = 0x182,
                               kConnectRestartDiscovery = 0x183, kConnectInvalidHost = 0x184,
                               kInvalidQueueType = 0x185, kDiscoverRestart = 0x190,
                               kAuthenticationRequired = 0x191;
}  // namespace sc

// Property offsets and the fields that both sides use.
namespace property {
inline constexpr std::uint32_t kCap = 0x00, kVs = 0x08, kCc = 0x14, kCsts = 0x1C, kNssr = 0x20,
                               kCrto = 0x68;
}
inline constexpr std::uint32_t kCcEnable = 1u << 0;
inline constexpr std::uint32_t kCcCssShift = 4, kCcMpsShift = 7, kCcAmsShift = 11, kCcShnShift = 14,
                               kCcIosqesShift = 16, kCcIocqesShift = 20;
inline constexpr std::uint32_t kShutdownNormal = 1, kShutdownAbrupt = 2;  // CC.SHN
inline constexpr std::uint32_t kCssNvm = 0, kCssAll = 6, kCssAdminOnly = 7;
inline constexpr std::uint32_t kCstsReady = 1u << 0, kCstsFatal = 1u << 1, kCstsShstShift = 2;
inline constexpr std::uint64_t kCapCssNvm = 1ull << 37;
inline constexpr std::uint64_t kCapCssAll = 1ull << 43, kCapCssAdminOnly = 1ull << 44,
                               kCapCrwms = 1ull << 59;

// Connect data, 1024 bytes in the capsule (section 6.3). NQNs are NUL-padded.
struct ConnectData {
  std::uint8_t hostid[16]{};
  std::uint16_t cntlid = 0;
  std::uint8_t reserved18[238]{};
  char subnqn[256]{};
  char hostnqn[256]{};
  std::uint8_t reserved768[256]{};
};
static_assert(sizeof(ConnectData) == 1024);
static_assert(offsetof(ConnectData, subnqn) == 256 && offsetof(ConnectData, hostnqn) == 512);
// Connect: CDW10 = RECFMT 15:0, QID 31:16; CDW11 = SQSIZE 15:0 (0's-based), CATTR 23:16;
// CDW12 = KATO in ms.
inline constexpr std::uint8_t kCattrNoFlowControl = 1u << 2;

constexpr std::uint64_t kInstanceMagic = 0x3174736e49727546;  // "FurInst1"

struct IdentifyController {  // CNS 01h
  std::uint16_t vid = 0, ssvid = 0;
  char sn[20]{};
  char mn[40]{};
  char fr[8]{};
  std::uint8_t rab = 0, ieee[3]{}, cmic = 0, mdts = 0;
  std::uint16_t cntlid = 0;
  std::uint32_t ver = 0, rtd3r = 0, rtd3e = 0, oaes = 0, ctratt = 0;
  std::uint16_t rrls = 0;
  std::uint8_t reserved102[9]{}, cntrltype = 0, fguid[16]{};
  std::uint16_t crdt1 = 0, crdt2 = 0, crdt3 = 0;
  std::uint8_t reserved134[122]{};
  std::uint16_t oacs = 0;
  std::uint8_t acl = 0, aerl = 0, frmw = 0, lpa = 0, elpe = 0, npss = 0, avscc = 0, apsta = 0;
  std::uint16_t wctemp = 0, cctemp = 0, mtfa = 0;
  std::uint32_t hmpre = 0, hmmin = 0;
  std::uint64_t tnvmcap[2]{}, unvmcap[2]{};
  std::uint32_t rpmbs = 0;
  std::uint16_t edstt = 0;
  std::uint8_t dsto = 0, fwug = 0;
  std::uint16_t kas = 0, hctma = 0, mntmt = 0, mxtmt = 0;
  std::uint32_t sanicap = 0, hmminds = 0;
  std::uint16_t hmmaxd = 0, nsetidmax = 0, endgidmax = 0;
  std::uint8_t anatt = 0, anacap = 0;
  std::uint32_t anagrpmax = 0, nanagrpid = 0, pels = 0;
  std::uint16_t domainid = 0;
  std::uint8_t reserved358[10]{};
  std::uint64_t megcap[2]{};
  std::uint8_t reserved384[128]{}, sqes = 0, cqes = 0;
  std::uint16_t maxcmd = 0;
  std::uint32_t nn = 0;
  std::uint16_t oncs = 0, fuses = 0;
  std::uint8_t fna = 0, vwc = 0;
  std::uint16_t awun = 0, awupf = 0;
  std::uint8_t icsvscc = 0, nwpc = 0;
  std::uint16_t acwu = 0, cdfs = 0;
  std::uint32_t sgls = 0, mnan = 0;
  std::uint64_t maxdna[2]{};
  std::uint32_t maxcna = 0;
  std::uint8_t reserved564[204]{};
  char subnqn[256]{};
  std::uint8_t reserved1024[768]{};
  std::uint32_t ioccsz = 0, iorcsz = 0;  // in 16-byte units
  std::uint16_t icdoff = 0;
  std::uint8_t fcatt = 0, msdbd = 0;
  std::uint16_t ofcs = 0;
  std::uint8_t reserved1806[242]{}, psd[32][32]{};
  // Vendor specific, from here on: of a Furrow, kInstanceMagic and a number drawn when it started.
  std::uint64_t instance_magic = 0, instance = 0;
  std::uint8_t vendor[1008]{};
};
static_assert(sizeof(IdentifyController) == 4096);
static_assert(offsetof(IdentifyController, cntrltype) == 111);
static_assert(offsetof(IdentifyController, oacs) == 256);
static_assert(offsetof(IdentifyController, tnvmcap) == 280);
static_assert(offsetof(IdentifyController, kas) == 320);
static_assert(offsetof(IdentifyController, sqes) == 512);
static_assert(offsetof(IdentifyController, vwc) == 525);
static_assert(offsetof(IdentifyController, sgls) == 536);
static_assert(offsetof(IdentifyController, subnqn) == 768);
static_assert(offsetof(IdentifyController, ioccsz) == 1792);
static_assert(offsetof(IdentifyController, psd) == 2048);

struct KvFormat {
  std::uint16_t kml = 0;  // longest key, bytes
  std::uint8_t reserved2 = 0, afo = 0;
  std::uint32_t vml = 0;  // longest value, bytes
  std::uint32_t mnk = 0;  // most keys; 0: not stated
  std::uint8_t reserved12[4]{};
};
static_assert(sizeof(KvFormat) == 16);

struct IdentifyNamespaceKv {  // CNS 05h, CSI 1
  std::uint64_t nsze = 0;     // bytes
  std::uint64_t reserved8 = 0;
  std::uint64_t nuse = 0;  // bytes
  std::uint8_t nsfeat = 0, nkvf = 0, nmic = 0, rescap = 0, fpi = 0, kvfc = 0, reserved30[2]{};
  std::uint32_t novg = 0, anagrpid = 0;
  std::uint8_t reserved40[3]{}, nsattr = 0;
  std::uint16_t nvmsetid = 0, endgid = 0;
  std::uint8_t nguid[16]{}, eui64[8]{};
  KvFormat kvf[16];
  std::uint8_t reserved328[3512]{}, vendor[256]{};
};
static_assert(sizeof(IdentifyNamespaceKv) == 4096);
static_assert(offsetof(IdentifyNamespaceKv, novg) == 32);
static_assert(offsetof(IdentifyNamespaceKv, nsattr) == 43);
static_assert(offsetof(IdentifyNamespaceKv, nguid) == 48);
static_assert(offsetof(IdentifyNamespaceKv, kvf) == 72);
static_assert(offsetof(IdentifyNamespaceKv, vendor) == 3840);

// Namespace identification descriptor types (CNS 03h).
inline constexpr std::uint8_t kNidtEui64 = 1, kNidtNguid = 2, kNidtUuid = 3, kNidtCsi = 4;

struct DiscoveryLogEntry {
  std::uint8_t trtype = 0, adrfam = 0, subtype = 0, treq = 0;
  std::uint16_t portid = 0, cntlid = 0, asqsz = 0, eflags = 0;
  std::uint8_t reserved12[20]{};
  char trsvcid[32]{};  // ASCII, padded with spaces
  std::uint8_t reserved64[192]{};
  char subnqn[256]{};
  char traddr[256]{};  // ASCII, padded with spaces
  std::uint8_t tsas[256]{};
};
static_assert(sizeof(DiscoveryLogEntry) == 1024);
static_assert(offsetof(DiscoveryLogEntry, trsvcid) == 32);
static_assert(offsetof(DiscoveryLogEntry, subnqn) == 256);
static_assert(offsetof(DiscoveryLogEntry, tsas) == 768);
inline constexpr std::uint8_t kTrtypeTcp = 3, kAdrfamIpv4 = 1, kAdrfamIpv6 = 2;
inline constexpr std::uint8_t kSubtypeDiscovery = 1, kSubtypeNvm = 2, kSubtypeCurrentDiscovery = 3;

struct DiscoveryLogHeader {  // followed by numrec entries
  std::uint64_t genctr = 0, numrec = 0;
  std::uint16_t recfmt = 0;
  std::uint8_t reserved18[1006]{};
};
static_assert(sizeof(DiscoveryLogHeader) == 1024);

// Log page identifiers.
namespace lid {
inline constexpr std::uint8_t kSupported = 0x00, kError = 0x01, kSmart = 0x02, kFirmware = 0x03,
                              kChangedNamespaces = 0x04, kEffects = 0x05, kFeatures = 0x12,
                              kDiscovery = 0x70, kReservations = 0x80, kChangedZones = 0xBF;
}
// Feature identifiers.
namespace fid {
inline constexpr std::uint8_t kArbitration = 0x01, kPowerManagement = 0x02, kTemperature = 0x04,
                              kErrorRecovery = 0x05, kVolatileWriteCache = 0x06, kQueues = 0x07,
                              kWriteAtomicity = 0x0A, kAsyncEvent = 0x0B, kKeepAlive = 0x0F,
                              kHostBehavior = 0x16, kCommandSetProfile = 0x19, kKvConfig = 0x20,
                              kHostId = 0x81, kReservationMask = 0x82,
                              kReservationPersistence = 0x83;
}

struct ErrorLogEntry {
  std::uint64_t error_count = 0;
  std::uint16_t sqid = 0, cid = 0;
  std::uint16_t status = 0;  // as Cqe::status: bit 0 is the phase tag
  std::uint16_t parameter = 0xFFFF;
  std::uint64_t lba = 0;
  std::uint32_t nsid = 0;
  std::uint8_t vendor = 0, trtype = 0, reserved30[2]{};
  std::uint64_t command_specific = 0;
  std::uint16_t transport_specific = 0;
  std::uint8_t reserved42[22]{};
};
static_assert(sizeof(ErrorLogEntry) == 64);

struct SmartLog {
  std::uint8_t critical_warning = 0, temperature[2]{}, spare = 0, spare_threshold = 0,
               percentage_used = 0, endurance_group_warning = 0, reserved7[25]{};
  std::uint64_t data_units_read[2]{}, data_units_written[2]{}, host_reads[2]{}, host_writes[2]{},
      busy_minutes[2]{}, power_cycles[2]{}, power_on_hours[2]{}, unsafe_shutdowns[2]{},
      media_errors[2]{}, error_log_entries[2]{};
  std::uint8_t reserved192[320]{};
};
static_assert(sizeof(SmartLog) == 512);
static_assert(offsetof(SmartLog, data_units_read) == 32);
static_assert(offsetof(SmartLog, error_log_entries) == 176);

namespace smart {  // SmartLog::critical_warning
inline constexpr std::uint8_t kSpareLow = 1, kReliability = 1u << 2, kReadOnly = 1u << 3;
}

struct EffectsLog {
  std::uint32_t admin[256]{}, io[256]{};
  std::uint8_t reserved2048[2048]{};
};
static_assert(sizeof(EffectsLog) == 4096);

// ASCII, left-justified, padded with spaces (Base specification, 1.8); what does not fit is cut.
template <std::size_t kSize>
void put_text(char (&field)[kSize], std::string_view text) {
  std::memset(field, ' ', kSize);
  std::memcpy(field, text.data(), std::min(text.size(), kSize));
}

}  // namespace furrow::nvme
