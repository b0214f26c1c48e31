// Establishes the Zoned Namespace command set over a volume of kind zoned, beside NVM and Key Value
// in one subsystem: what a host is told of it (lists, descriptors, structures, effects, by CC.CSS),
// each command's effect and its completion, reports by state, place and length, and the status of
// everything that is wrong. How: a host without a wire, over a real pool in memory.
#include "transport/zns_commands.h"

#include <gtest/gtest.h>

#include "tests/engine/block/disk.h"
#include "tests/engine/zoned/zones.h"
#include "tests/transport/served_pool.h"
#include "transport/nvme_reservation.h"

namespace furrow::test {
namespace {

namespace zns = nv::zns;

TEST(ZnsStatus, SaysWhatAFailureIs) {
  using enum ZonedOp::Kind;
  const auto of = [](ZonedOp::Kind kind, const Status& status) {
    ZonedOp op;
    op.kind = kind;
    op.status = status;
    return transport::ZnsCommands::status_of(op);
  };
  const auto by_code = [&](ZonedOp::Kind kind, Code code) {
    return of(kind, Status(code, Origin::engine));
  };
  EXPECT_EQ(of(write, Status()), sc::kSuccess);
  for (const Code code : {Code::zone_state, Code::io_error}) {
    const Status said(code, Origin::zone, "", 0, nvme_status::kZoneReadOnly);
    EXPECT_EQ(of(write, said), nvme_status::kZoneReadOnly) << "what a drive says itself";
  }
  EXPECT_EQ(by_code(read, Code::io_error), sc::kUnrecoveredRead);
  for (const ZonedOp::Kind kind : {write, append, reset, finish, flush}) {
    EXPECT_EQ(by_code(kind, Code::io_error), sc::kWriteFault);
  }
  EXPECT_EQ(by_code(write, Code::invalid_argument), sc::kInvalidField);
  EXPECT_EQ(by_code(read, Code::not_found), sc::kInvalidNamespaceOrFormat);
  EXPECT_EQ(by_code(write, Code::permission), sc::kWriteProtected);
  EXPECT_EQ(by_code(write, Code::no_space), sc::kCapacityExceeded);
  EXPECT_EQ(by_code(write, Code::aborted), sc::kAbortedSqDeletion);
  EXPECT_EQ(by_code(write, Code::foreign), sc::kInternalError);
}

constexpr std::uint32_t kKvNsid = 1, kBlockNsid = 2, kZonesNsid = 3;
constexpr std::uint32_t kZoneCount = 5, kLba = 4096;
constexpr std::uint64_t kZoneLbas = 512, kCapacityLbas = 400;

class ZonedHost : public ServedPool {
 public:
  explicit ZonedHost(std::uint32_t css = nv::kCssAll)
      : ServedPool("mem:64MiB?zone_size=2MiB&zone_capacity=1600KiB&mor=14&mar=14") {
    VolumeOptions disk = testing::block_options(4 << 20, 512);
    disk.quota_bytes = 8 << 20;
    EXPECT_TRUE(rig().pool->create_volume(disk).ok());
    EXPECT_TRUE(rig().pool->create_volume(testing::zoned_options(kZoneCount, 2, 3)).ok());
    serve(css);
  }

  static nv::Sqe command(std::uint8_t opcode, std::uint64_t lba, std::uint32_t count = 1) {
    nv::Sqe out = sqe(opcode, kZonesNsid);
    out.cdw10 = static_cast<std::uint32_t>(lba);
    out.cdw11 = static_cast<std::uint32_t>(lba >> 32);
    out.cdw12 = count - 1;
    return out;
  }
  static Bytes data(std::uint64_t tag, std::uint32_t count) {
    return testing::content(tag, 1, std::size_t{count} * kLba);
  }
  CommandPtr send(std::uint8_t opcode, std::uint64_t lba, const Bytes& bytes) {
    return call(*io, command(opcode, lba, static_cast<std::uint32_t>(bytes.size() / kLba)), bytes,
                static_cast<std::uint32_t>(bytes.size()));
  }
  std::uint16_t write(std::uint64_t lba, const Bytes& bytes) {
    return send(nv::nvm::kWrite, lba, bytes)->status();
  }
  CommandPtr read(std::uint64_t lba, std::uint32_t count) {
    return call(*io, command(nv::nvm::kRead, lba, count), {}, count * kLba);
  }
  std::uint16_t manage(std::uint64_t lba, std::uint32_t cdw13) {
    nv::Sqe out = command(zns::kManagementSend, lba);
    out.cdw13 = cdw13;
    return call(*io, out)->status();
  }
  CommandPtr report(std::uint64_t lba, std::uint32_t bytes, std::uint32_t cdw13 = 0) {
    nv::Sqe out = command(zns::kManagementReceive, lba);
    out.cdw12 = bytes / 4 - 1;
    out.cdw13 = cdw13;
    return call(*io, out, {}, bytes);
  }
};

nv::ZoneDescriptor zone_of(const CommandPtr& report, std::size_t i) {
  return read<nv::ZoneDescriptor>(report->in, 64 + i * 64);
}
std::uint64_t zones_of(const CommandPtr& report) { return read<std::uint64_t>(report->in, 0); }
std::uint8_t state_of(const nv::ZoneDescriptor& zone) { return zone.state >> 4; }

// More zones than a reset of all has with the device at a time.
struct AllZones : ServedPool {
  static constexpr std::uint32_t kZones = 64, kLbas = 256;
  AllZones() : ServedPool("mem:96MiB?zone_size=1MiB&mor=80&mar=80") {
    EXPECT_TRUE(rig().pool->create_volume(testing::zoned_options(kZones, kZones, kZones)).ok());
    serve(nv::kCssAll);
  }
  std::uint16_t write(std::uint64_t lba, std::uint64_t tag) {
    nv::Sqe out = sqe(nv::nvm::kWrite, 2);
    out.cdw10 = static_cast<std::uint32_t>(lba);
    return call(*io, out, testing::content(tag, 1, kLba), kLba)->status();
  }
  Bytes read(std::uint64_t lba) {
    nv::Sqe out = sqe(nv::nvm::kRead, 2);
    out.cdw10 = static_cast<std::uint32_t>(lba);
    return call(*io, out, {}, kLba)->in;
  }
};

// What a host that is back writes is not of the zones that it had wanted to be empty before.
TEST(ZnsCommands, OfAHostThatIsGoneNoMoreZonesAreReset) {
  constexpr std::uint64_t kLast = (AllZones::kZones - 1) * AllZones::kLbas;
  AllZones host;
  for (std::uint64_t lba = 0; lba <= kLast; lba += AllZones::kLbas) {
    ASSERT_EQ(host.write(lba, lba), sc::kSuccess);
  }
  FakeConnection& gone = host.join(7);
  nv::Sqe reset = sqe(zns::kManagementSend, 2);
  reset.cdw13 = zns::kActionReset | zns::kSelectAll;
  gone.send(reset, {}, 0, false);
  gone.disconnect();
  ASSERT_EQ(host.write(kLast + 1, 1), sc::kSuccess);
  while (!gone.finished()) host.idle_turn();
  EXPECT_TRUE(host.read(kLast + 1) == testing::content(1, 1, kLba));
  EXPECT_EQ(host.read(0), Bytes(kLba)) << "it was at work";
}

TEST(ZnsCommands, ForceUnitAccessMakesDurableWhatIsRead) {
  ZonedHost host;
  const Bytes data = ZonedHost::data(1, 3);
  const auto get = [&](std::uint32_t flags) {
    nv::Sqe out = ZonedHost::command(nv::nvm::kRead, 1, 2);
    out.cdw12 |= flags;
    const auto done = host.call(*host.io, out, {}, 2 * kLba);
    EXPECT_TRUE(done->status() != sc::kSuccess ||
                done->in == Bytes(data.begin() + kLba, data.end()));
    return done->status();
  };
  ASSERT_EQ(host.write(0, data), sc::kSuccess);
  EXPECT_EQ(get(0), sc::kSuccess);
  EXPECT_GT(host.device->unflushed_bytes(), 0u);
  host.device->fail_flushes(1);
  EXPECT_EQ(get(nv::nvm::kForceUnitAccess), sc::kUnrecoveredRead);
  EXPECT_EQ(get(nv::nvm::kForceUnitAccess), sc::kSuccess);
  EXPECT_EQ(host.device->unflushed_bytes(), 0u);
}

TEST(ZnsCommands, AHostIsToldOfTheZones) {
  ZonedHost host;
  EXPECT_EQ(read<std::uint64_t>(host.identify(0x1C, 0)->in, 0), 7u);
  const auto listed = host.identify(0x07, 0, nv::csi::kZoned);
  EXPECT_EQ(read<std::uint32_t>(listed->in, 0), kZonesNsid);
  EXPECT_EQ(read<std::uint32_t>(listed->in, 4), 0u);
  const auto descriptors = host.identify(0x03, kZonesNsid);
  EXPECT_EQ(read<std::uint8_t>(descriptors->in, 44), nv::csi::kZoned);
  const auto base = host.identify(0x00, kZonesNsid);
  EXPECT_EQ(read<std::uint64_t>(base->in, 0), kZoneCount * kZoneLbas) << "NSZE";
  EXPECT_EQ(read<std::uint64_t>(base->in, 8), kZoneCount * kCapacityLbas) << "NCAP";
  EXPECT_EQ(read<std::uint8_t>(base->in, 30), 1u) << "NMIC: shared";
  EXPECT_EQ((read<Uuid>(base->in, 104)), (read<Uuid>(descriptors->in, 4))) << "NGUID";
  EXPECT_EQ(read<std::uint8_t>(base->in, 130), 12u) << "LBADS";
  const auto zoned = host.identify(0x05, kZonesNsid, nv::csi::kZoned);
  ASSERT_EQ(zoned->status(), sc::kSuccess);
  EXPECT_EQ(read<std::uint16_t>(zoned->in, 0), 0u) << "ZOC";
  EXPECT_EQ(read<std::uint32_t>(zoned->in, 4), 2u) << "MAR, 0's-based";
  EXPECT_EQ(read<std::uint32_t>(zoned->in, 8), 1u) << "MOR, 0's-based";
  EXPECT_EQ(read<std::uint64_t>(zoned->in, 2816), kZoneLbas) << "ZSZE";
  EXPECT_EQ(read<std::uint8_t>(zoned->in, 2824), 0u) << "ZDES";
  EXPECT_EQ(host.identify(0x05, kBlockNsid, nv::csi::kZoned)->status(), sc::kInvalidIoCommandSet);
  EXPECT_EQ(host.identify(0x05, kZonesNsid, nv::csi::kKv)->status(), sc::kInvalidIoCommandSet);
  const auto controller = host.identify(0x06, 0, nv::csi::kZoned);
  ASSERT_EQ(controller->status(), sc::kSuccess);
  EXPECT_EQ(controller->in, Bytes(4096)) << "ZASL 0: as long as any transfer";
  EXPECT_EQ(read<std::uint8_t>(host.identify(0x08, kZonesNsid)->in, 14), 1u) << "NRDY";
  nv::Sqe effects = sqe(nv::admin::kGetLogPage, nv::kNsidAll);
  effects.cdw10 = nv::lid::kEffects | 1023u << 16;
  effects.cdw14 = std::uint32_t{nv::csi::kZoned} << 24;
  const auto log = host.call(*host.admin, effects, {}, 4096);
  ASSERT_EQ(log->status(), sc::kSuccess);
  const auto effect = [&](std::uint8_t opcode) {
    return read<std::uint32_t>(log->in, 1024 + opcode * 4);
  };
  EXPECT_EQ(effect(zns::kAppend), 3u) << "or Linux takes the namespace for read-only";
  EXPECT_EQ(effect(zns::kManagementSend), 3u);
  EXPECT_EQ(effect(zns::kManagementReceive), 1u);
  EXPECT_EQ(effect(nv::nvm::kDatasetManagement), 0u);
}

TEST(ZnsCommands, AHostOfOneCommandSetDoesNotSeeThem) {
  ZonedHost host(nv::kCssNvm);
  const auto listed = host.identify(0x02, 0);
  EXPECT_EQ(read<std::uint32_t>(listed->in, 0), kBlockNsid);
  EXPECT_EQ(read<std::uint32_t>(listed->in, 4), 0u);
  EXPECT_EQ(host.read(0, 1)->status(), sc::kInvalidNamespaceOrFormat);
}

TEST(ZnsCommands, WritesAppendsAndReads) {
  ZonedHost host;
  const Bytes first = host.data(1, 3), second = host.data(2, 5);
  EXPECT_EQ(host.write(kZoneLbas, first), sc::kSuccess);
  const auto appended = host.send(zns::kAppend, kZoneLbas, second);
  ASSERT_EQ(appended->status(), sc::kSuccess);
  EXPECT_EQ(appended->cqe.dw0, kZoneLbas + 3) << "ALBA";
  EXPECT_EQ(appended->cqe.dw1, 0u);
  EXPECT_EQ(host.read(kZoneLbas, 3)->in, first);
  EXPECT_EQ(host.read(kZoneLbas + 3, 5)->in, second);
  EXPECT_EQ(host.read(kZoneLbas + 8, 2)->in, Bytes(2 * kLba));
  EXPECT_EQ(host.call(*host.io, sqe(nv::nvm::kFlush, kZonesNsid))->status(), sc::kSuccess);
  EXPECT_EQ(host.manage(kZoneLbas, zns::kActionReset), sc::kSuccess);
  EXPECT_EQ(host.read(kZoneLbas, 3)->in, Bytes(3 * kLba));
}

TEST(ZnsCommands, AWriteWhoseDataCameWithTheWriteCacheOffIsDurable) {
  ZonedHost host;
  host.io->hold_pulls = true;
  const auto write =
      host.io->send(ZonedHost::command(nv::nvm::kWrite, 0), ZonedHost::data(1, 1), kLba, false);
  nv::Sqe off = sqe(nv::admin::kSetFeatures, 0);
  off.cdw10 = nv::fid::kVolatileWriteCache;
  ASSERT_EQ(host.call(*host.admin, off)->status(), sc::kSuccess);
  ASSERT_FALSE(write->done);
  host.io->release_pulls();
  while (!write->done) host.idle_turn();
  EXPECT_EQ(write->status(), sc::kSuccess);
  EXPECT_EQ(host.device->unflushed_bytes(), 0u);
}

TEST(ZnsCommands, ReportsZones) {
  ZonedHost host;
  EXPECT_EQ(host.write(0, host.data(1, 7)), sc::kSuccess);
  EXPECT_EQ(host.manage(kZoneLbas, zns::kActionOpen), sc::kSuccess);
  EXPECT_EQ(host.manage(2 * kZoneLbas, zns::kActionFinish), sc::kSuccess);
  const auto all = host.report(0, 4096);
  ASSERT_EQ(all->status(), sc::kSuccess);
  ASSERT_EQ(zones_of(all), kZoneCount);
  const std::uint8_t states[] = {0x2, 0x3, 0xE, 0x1, 0x1};
  for (std::size_t i = 0; i < kZoneCount; ++i) {
    const auto zone = zone_of(all, i);
    EXPECT_EQ(zone.type, 2u);
    EXPECT_EQ(state_of(zone), states[i]) << i;
    EXPECT_EQ(zone.zcap, kCapacityLbas);
    EXPECT_EQ(zone.zslba, i * kZoneLbas);
    const std::uint64_t wp = i == 2 ? ~std::uint64_t{0} : zone.zslba + (i == 0 ? 7 : 0);
    EXPECT_EQ(zone.wp, wp) << i;
  }
  EXPECT_EQ(zone_of(all, kZoneCount).type, 0u) << "zeroes behind the last";
  // From the zone that an LBA is in.
  const auto later = host.report(3 * kZoneLbas + 17, 4096);
  EXPECT_EQ(zones_of(later), 2u);
  EXPECT_EQ(zone_of(later, 0).zslba, 3 * kZoneLbas);
  // By state.
  const auto empty = host.report(0, 4096, 1u << 8);
  EXPECT_EQ(zones_of(empty), 2u);
  EXPECT_EQ(zone_of(empty, 0).zslba, 3 * kZoneLbas);
  for (const std::uint32_t options : {2u, 3u, 5u}) {
    EXPECT_EQ(zones_of(host.report(0, 4096, options << 8)), 1u) << options;
  }
  EXPECT_EQ(zones_of(host.report(0, 4096, 4u << 8)), 0u);
  // As many as fit; how many there are, or are here.
  const auto some = host.report(0, 64 + 2 * 64 + 60);
  EXPECT_EQ(zones_of(some), kZoneCount);
  EXPECT_EQ(zone_of(some, 1).zslba, kZoneLbas);
  EXPECT_EQ(read<std::uint32_t>(some->in, 64 + 128), 0u);
  EXPECT_EQ(zones_of(host.report(0, 64 + 2 * 64 + 60, zns::kPartialReport)), 2u);
  EXPECT_EQ(zones_of(host.report(0, 64, zns::kPartialReport)), 0u);
  EXPECT_EQ(host.report(0, 4)->status(), sc::kSuccess);
}

TEST(ZnsCommands, ManagesOneZoneOrAll) {
  ZonedHost host;
  for (std::uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(host.write(i * kZoneLbas, host.data(i, 1)), sc::kSuccess);
  }
  EXPECT_EQ(host.write(3 * kZoneLbas, host.data(3, 1)), nvme_status::kTooManyActive);
  EXPECT_EQ(host.manage(0, zns::kActionClose | zns::kSelectAll), sc::kSuccess);
  EXPECT_EQ(zones_of(host.report(0, 64, 4u << 8)), 3u);
  EXPECT_EQ(host.manage(0, zns::kActionOpen | zns::kSelectAll), nvme_status::kTooManyOpen);
  EXPECT_EQ(host.manage(0, zns::kActionFinish), sc::kSuccess);
  EXPECT_EQ(host.manage(0, zns::kActionOpen), nvme_status::kInvalidTransition);
  EXPECT_EQ(host.manage(12345, zns::kActionOpen | zns::kSelectAll), sc::kSuccess);
  EXPECT_EQ(zones_of(host.report(0, 64, 3u << 8)), 2u);
  EXPECT_EQ(host.manage(0, zns::kActionReset | zns::kSelectAll), sc::kSuccess);
  EXPECT_EQ(zones_of(host.report(0, 64, 1u << 8)), kZoneCount);
}

TEST(ZnsCommands, AnotherHostsReservation) {
  ZonedHost host;
  FakeConnection& other = host.join(9);
  const Bytes keys(16);
  nv::Sqe reserve = sqe(nv::reservation::kRegister, kZonesNsid);
  ASSERT_EQ(host.call(other, reserve, keys, 16)->status(), sc::kSuccess);
  reserve = sqe(nv::reservation::kAcquire, kZonesNsid);
  reserve.cdw10 = 1u << 8;  // Write Exclusive
  ASSERT_EQ(host.call(other, reserve, keys, 16)->status(), sc::kSuccess);
  const Bytes data = ZonedHost::data(1, 1);
  const auto check = [&](std::uint16_t reads) {
    EXPECT_EQ(host.write(0, data), sc::kReservationConflict);
    EXPECT_EQ(host.send(zns::kAppend, 0, data)->status(), sc::kReservationConflict);
    EXPECT_EQ(host.manage(0, zns::kActionOpen), sc::kReservationConflict);
    EXPECT_EQ(host.manage(0, zns::kActionReset | zns::kSelectAll), sc::kReservationConflict);
    EXPECT_EQ(host.call(*host.io, sqe(nv::nvm::kFlush, kZonesNsid))->status(),
              sc::kReservationConflict);
    EXPECT_EQ(host.read(0, 1)->status(), reads);
    EXPECT_EQ(host.report(0, 4096)->status(), reads);
  };
  check(sc::kSuccess);
  reserve.cdw10 = 2u << 8 | 1;  // preempts itself: Exclusive Access
  ASSERT_EQ(host.call(other, reserve, keys, 16)->status(), sc::kSuccess);
  check(sc::kReservationConflict);
  EXPECT_EQ(host.call(other, ZonedHost::command(nv::nvm::kWrite, 0), data, kLba)->status(),
            sc::kSuccess);
}

TEST(ZnsCommands, StatusOfEverythingThatIsWrong) {
  ZonedHost host;
  const std::uint64_t end = kZoneCount * kZoneLbas;
  const Bytes one = host.data(1, 1);
  EXPECT_EQ(host.write(1, one), nvme_status::kZoneInvalidWrite);
  EXPECT_EQ(host.send(zns::kAppend, 1, one)->status(), sc::kInvalidField);
  EXPECT_EQ(host.write(end, one), sc::kLbaOutOfRange);
  EXPECT_EQ(host.send(zns::kAppend, end, one)->status(), sc::kLbaOutOfRange);
  EXPECT_EQ(host.read(end - 1, 2)->status(), sc::kLbaOutOfRange);
  EXPECT_EQ(host.read(~std::uint64_t{0}, 1)->status(), sc::kLbaOutOfRange);
  EXPECT_EQ(host.read(kZoneLbas - 1, 2)->status(), nvme_status::kZoneBoundary);
  EXPECT_EQ(host.manage(1, zns::kActionReset), sc::kInvalidField);
  EXPECT_EQ(host.manage(end, zns::kActionReset), sc::kLbaOutOfRange);
  for (const std::uint32_t action : {0x00u, 0x06u, 0x10u, 0x11u, 0xFFu}) {
    EXPECT_EQ(host.manage(0, action), sc::kInvalidField) << action;
  }
  EXPECT_EQ(host.manage(0, zns::kActionOpen | zns::kSendOptions), sc::kInvalidField);
  EXPECT_EQ(host.report(end, 4096)->status(), sc::kLbaOutOfRange);
  EXPECT_EQ(host.report(0, 4096, 1)->status(), sc::kInvalidField) << "extended";
  EXPECT_EQ(host.report(0, 4096, 8u << 8)->status(), sc::kInvalidField);
  nv::Sqe large = host.command(zns::kManagementReceive, 0);
  large.cdw12 = 0xFFFFFFFF;
  EXPECT_EQ(host.call(*host.io, large, {}, 4096)->status(), sc::kInvalidField);
  large.cdw12 = 4096 / 4;
  EXPECT_EQ(host.call(*host.io, large, {}, 4096)->status(), sc::kDataSglLengthInvalid);
  EXPECT_EQ(host.call(*host.io, host.command(nv::nvm::kWrite, 0, 2), one, kLba)->status(),
            sc::kDataSglLengthInvalid);
  EXPECT_EQ(host.call(*host.io, host.command(nv::nvm::kWrite, 0, 400), one, kLba)->status(),
            sc::kInvalidField)
      << "more than MDTS";
  for (const std::uint8_t opcode :
       {nv::nvm::kCompare, nv::nvm::kWriteZeroes, nv::nvm::kDatasetManagement, nv::kv::kExist}) {
    EXPECT_EQ(host.call(*host.io, host.command(opcode, 0))->status(), sc::kInvalidOpcode);
  }
  EXPECT_EQ(zones_of(host.report(0, 64, 1u << 8)), kZoneCount) << "nothing was changed";
  nv::Sqe other = host.command(zns::kManagementSend, 0);
  other.nsid = kBlockNsid;
  EXPECT_EQ(host.call(*host.io, other)->status(), sc::kInvalidOpcode);
  // Filled to its capacity.
  for (std::uint64_t at = 0; at < kCapacityLbas; at += 200) {
    EXPECT_EQ(host.write(at, host.data(at, 200)), sc::kSuccess);
  }
  EXPECT_EQ(host.send(zns::kAppend, 0, one)->status(), nvme_status::kZoneFull);
  EXPECT_EQ(host.write(kZoneLbas, host.data(9, 200)), sc::kSuccess);
  EXPECT_EQ(host.write(kZoneLbas + 200, host.data(9, 201)), nvme_status::kZoneBoundary);
}

TEST(ZnsCommands, ZonesThatTheDeviceTakesAway) {
  ZonedHost host;
  const Bytes bytes = host.data(4, 2);
  for (std::uint64_t i = 0; i < 2; ++i) EXPECT_EQ(host.write(i * kZoneLbas, bytes), sc::kSuccess);
  EXPECT_EQ(host.call(*host.io, sqe(nv::nvm::kFlush, kZonesNsid))->status(), sc::kSuccess);
  std::vector<ZoneId> lent;
  for (const ZoneInfo& info : *host.rig().device->report()) {
    if (info.zone.value >= 2 && info.written_lbas == 2) lent.push_back(info.zone);
  }
  ASSERT_EQ(lent.size(), 2u);
  host.device->degrade(lent[0], ZoneState::read_only);
  host.device->degrade(lent[1], ZoneState::offline);
  EXPECT_EQ(host.write(2, bytes), nvme_status::kZoneReadOnly);
  EXPECT_EQ(host.read(0, 2)->in, bytes);
  EXPECT_EQ(host.read(kZoneLbas, 2)->status(), nvme_status::kZoneOffline);
  EXPECT_EQ(zone_of(host.report(0, 4096, 6u << 8), 0).zslba, 0u);
  EXPECT_EQ(zone_of(host.report(0, 4096, 7u << 8), 0).zslba, kZoneLbas);
  EXPECT_EQ(host.manage(0, zns::kActionReset), nvme_status::kInvalidTransition);
  host.device->fail_writes(
      Lba{host.rig().device->geometry().zone_start(ZoneId{lent[1].value + 1}).value}, 1);
  EXPECT_EQ(host.write(2 * kZoneLbas, bytes), sc::kWriteFault);
}

// Nobody has used them.
TEST(ZnsCommands, AnIdleHostIsToldOfZonesThatTheDeviceTakesAway) {
  ZonedHost host;
  nv::Sqe config = sqe(nv::admin::kSetFeatures);
  config.cdw10 = nv::fid::kAsyncEvent;
  config.cdw11 = 1u << 27;
  ASSERT_EQ(host.call(*host.admin, config)->status(), sc::kSuccess);
  EXPECT_EQ(host.write(kZoneLbas, host.data(4, 1)), sc::kSuccess);
  const CommandPtr event = host.admin->send(sqe(nv::admin::kAsyncEvent), {}, 0, false);
  for (const ZoneInfo& info : *host.rig().device->report()) {
    if (info.zone.value < 2 || info.written_lbas != 1) continue;
    host.device->degrade(info.zone, ZoneState::read_only);
  }
  while (!event->done) host.idle_turn();
  EXPECT_EQ(event->cqe.dw0, 2u | 0xEFu << 8 | 0xBFu << 16);
  EXPECT_EQ(event->cqe.dw1, kZonesNsid);
  EXPECT_EQ(zone_of(host.report(0, 4096, 6u << 8), 0).zslba, kZoneLbas);
}

TEST(ZnsCommands, AHostIsToldOfZonesThatChange) {
  ZonedHost host;
  const auto changed = [&](std::uint32_t nsid, bool retain = false) {
    nv::Sqe out = sqe(nv::admin::kGetLogPage, nsid);
    out.cdw10 = nv::lid::kChangedZones | 1023u << 16 | (retain ? 1u << 15 : 0);
    return host.call(*host.admin, out, {}, 4096);
  };
  nv::Sqe config = sqe(nv::admin::kSetFeatures);
  config.cdw10 = nv::fid::kAsyncEvent;
  config.cdw11 = 1u << 27;
  ASSERT_EQ(host.call(*host.admin, config)->status(), sc::kSuccess);
  const CommandPtr event = host.admin->send(sqe(nv::admin::kAsyncEvent), {}, 0, false);
  const Bytes bytes = host.data(4, 1);
  for (std::uint64_t i = 0; i < 2; ++i) EXPECT_EQ(host.write(i * kZoneLbas, bytes), sc::kSuccess);
  EXPECT_EQ(host.write(7, bytes), nvme_status::kZoneInvalidWrite);  // not the device's doing
  EXPECT_EQ(changed(kZonesNsid)->in, Bytes(4096));
  EXPECT_FALSE(event->done);
  std::vector<ZoneId> lent;
  for (const ZoneInfo& info : *host.rig().device->report()) {
    if (info.zone.value >= 2 && info.written_lbas == 1) lent.push_back(info.zone);
  }
  ASSERT_EQ(lent.size(), 2u);
  for (const ZoneId zone : lent) host.device->degrade(zone, ZoneState::read_only);
  EXPECT_EQ(host.write(1, bytes), nvme_status::kZoneReadOnly);
  while (!event->done) host.report(0, 64);
  EXPECT_EQ(event->status(), sc::kSuccess);
  EXPECT_EQ(event->cqe.dw0, 2u | 0xEFu << 8 | 0xBFu << 16);
  EXPECT_EQ(event->cqe.dw1, kZonesNsid);
  const CommandPtr next = host.admin->send(sqe(nv::admin::kAsyncEvent), {}, 0, false);
  EXPECT_EQ(host.write(kZoneLbas + 1, bytes), nvme_status::kZoneReadOnly);
  for (int turn = 0; turn < 5; ++turn) host.report(0, 64);
  EXPECT_FALSE(next->done) << "the first one was not acknowledged";
  const auto log = changed(kZonesNsid, true);
  EXPECT_EQ(read<std::uint16_t>(log->in, 0), 2u);
  EXPECT_EQ(read<std::uint64_t>(log->in, 8), 0u);
  EXPECT_EQ(read<std::uint64_t>(log->in, 16), kZoneLbas);
  EXPECT_EQ(changed(kZonesNsid)->in, log->in) << "it was retained";
  EXPECT_EQ(changed(kZonesNsid)->in, Bytes(4096));
  EXPECT_EQ(changed(kBlockNsid)->status(), sc::kInvalidNamespaceOrFormat);
  EXPECT_EQ(changed(nv::kNsidAll)->status(), sc::kInvalidNamespaceOrFormat);
}

// Its host cannot read of them any more.
TEST(ZnsCommands, ANamespaceThatGoesWithZonesUnreadKeepsNoEventBack) {
  ZonedHost host;
  VolumeOptions more = testing::zoned_options(2, 1, 1);
  more.name = "more";
  const auto made = host.rig().pool->create_volume(more);
  ASSERT_TRUE(made.ok()) << made.status().describe();
  host.subsystem().namespaces_changed();
  const std::uint32_t more_nsid = (*made)->info().options.nsid;
  nv::Sqe config = sqe(nv::admin::kSetFeatures);
  config.cdw10 = nv::fid::kAsyncEvent;
  config.cdw11 = 1u << 27;
  ASSERT_EQ(host.call(*host.admin, config)->status(), sc::kSuccess);
  const auto take_away_a_zone_of = [&](std::uint32_t nsid) {
    nv::Sqe write = host.command(nv::nvm::kWrite, 0);
    write.nsid = nsid;
    ASSERT_EQ(host.call(*host.io, write, host.data(nsid, 1), kLba)->status(), sc::kSuccess);
    for (const ZoneInfo& info : *host.rig().device->report()) {
      const bool its = info.zone.value >= 2 && info.written_lbas == 1;
      if (its && is_active(info.state)) host.device->degrade(info.zone, ZoneState::read_only);
    }
  };
  const CommandPtr first = host.admin->send(sqe(nv::admin::kAsyncEvent), {}, 0, false);
  take_away_a_zone_of(kZonesNsid);
  while (!first->done) host.idle_turn();
  EXPECT_EQ(first->cqe.dw1, kZonesNsid);
  bool idle = false;
  host.subsystem().withdraw_namespace(kZonesNsid, [&] { idle = true; });
  while (!idle) host.idle_turn();
  const CommandPtr second = host.admin->send(sqe(nv::admin::kAsyncEvent), {}, 0, false);
  for (int turn = 0; turn < 5; ++turn) host.idle_turn();
  EXPECT_FALSE(second->done);
  take_away_a_zone_of(more_nsid);
  while (!second->done) host.idle_turn();
  EXPECT_EQ(second->cqe.dw1, more_nsid);
}

}  // namespace
}  // namespace furrow::test
