// Establishes that a zoned volume answers as a zoned namespace does: each operation in each state
// with the status of the specification, its share of open and active zones, whatever the device has
// beside, what a malformed operation gets, and what becomes of zones that the device takes away.
#include <array>

#include "tests/engine/zoned/zones.h"
#include "tests/zone/fake_drive.h"
#include "zone/fault_device.h"
#include "zone/zone_state_machine.h"

namespace furrow::testing::zoned_rules_test {
namespace {

using Kind = ZonedOp::Kind;
namespace status = nvme_status;

constexpr std::uint64_t kSize = 256, kCapacity = 192;  // LBAs of a zone
constexpr const char* kDevice = "mem:24MiB?zone_size=1MiB&zone_capacity=768KiB&mor=8&mar=8";

class ZonedRulesTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_NO_FATAL_FAILURE(zones_.make(zoned_options(6, 2, 3))); }
  void expect(std::uint32_t zone, ZoneState state, std::uint64_t written) {
    EXPECT_EQ(zones_.zone(zone).state, state) << to_string(zones_.zone(zone).state);
    EXPECT_EQ(zones_.zone(zone).written_lbas, written);
  }
  Zones zones_{kDevice};
};

TEST_F(ZonedRulesTest, LooksLikeItsShareOfTheDevice) {
  const Geometry geometry = zones_.geometry();
  EXPECT_EQ(geometry.zone_count, 6u);
  EXPECT_EQ(geometry.zone_size_lbas, kSize);
  EXPECT_EQ(geometry.zone_capacity_lbas, kCapacity);
  EXPECT_EQ(geometry.open_zones_max, 2u);
  EXPECT_EQ(geometry.active_zones_max, 3u);
  const VolumeInfo& info = zones_.rig.store->info();
  EXPECT_EQ(info.options.kind, VolumeKind::zoned);
  EXPECT_EQ(info.options.zones, 6u);
  EXPECT_EQ(zones_.rig.store->usage().zones, 6u);
  EXPECT_EQ(zones_.rig.store->usage().free_bytes, 6 * kCapacity * 4096);
  for (std::uint32_t i = 0; i < 6; ++i) expect(i, ZoneState::empty, 0);
}

TEST_F(ZonedRulesTest, WritesAtTheWritePointerAndReadsThemBack) {
  EXPECT_TRUE(zones_.write(kSize, 3).ok());
  expect(1, ZoneState::implicitly_open, 3);
  EXPECT_EQ(zones_.write(kSize, 1).nvme(), status::kZoneInvalidWrite);
  EXPECT_EQ(zones_.write(kSize + 4, 1).nvme(), status::kZoneInvalidWrite);
  EXPECT_TRUE(zones_.write(kSize + 3, 5, 1, Durability::flushed).ok());
  EXPECT_TRUE(zones_.holds(kSize, 8, 1));
  EXPECT_TRUE(zones_.is_zero(kSize + 8, 248));  // behind the write pointer, and behind the capacity
  EXPECT_EQ(zones_.write(kSize + 8, kCapacity - 7).nvme(), status::kZoneBoundary);
  EXPECT_TRUE(zones_.write(kSize + 8, kCapacity - 8).ok());
  expect(1, ZoneState::full, kCapacity);
  EXPECT_EQ(zones_.write(kSize + kCapacity, 1).nvme(), status::kZoneFull);
  EXPECT_TRUE(zones_.holds(kSize, kCapacity, 1));
}

TEST_F(ZonedRulesTest, AppendsSayWhereTheirDataIs) {
  AlignedBuffer bytes = zones_.data(77, 7, 4);
  const auto first = zones_.append(2 * kSize, 4, bytes.data());
  const auto second = zones_.append(2 * kSize, 2, bytes.data());
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(*first, 2 * kSize);
  EXPECT_EQ(*second, 2 * kSize + 4);
  EXPECT_EQ(zones_.append(2 * kSize + 1, 1, bytes.data()).status().nvme(), status::kInvalidField);
  AlignedBuffer there;
  ASSERT_TRUE(zones_.read(2 * kSize, 4, there).ok());
  EXPECT_TRUE(equal(there.span(), bytes.span()));
}

TEST_F(ZonedRulesTest, ManyAppendsInFlightFillAZoneWithoutAGap) {
  constexpr std::uint32_t kAppends = kCapacity / 4;
  std::vector<AlignedBuffer> data;
  std::vector<ZonedOp> ops(kAppends + 1);
  for (std::uint32_t i = 0; i <= kAppends; ++i) {
    data.push_back(zones_.data(1000 + 4 * i, 3, 4));
    ops[i].kind = Kind::append;
    ops[i].count = 4;
    ops[i].data = data[i].data();
    zones_.submit(ops[i]);
  }
  zones_.wait();
  std::vector<bool> taken(kCapacity);
  for (std::uint32_t i = 0; i < kAppends; ++i) {
    ASSERT_TRUE(ops[i].status.ok()) << ops[i].status.describe();
    ASSERT_LT(ops[i].appended_at, kCapacity);
    EXPECT_FALSE(taken[ops[i].appended_at]);
    taken[ops[i].appended_at] = true;
    AlignedBuffer there;
    ASSERT_TRUE(zones_.read(ops[i].appended_at, 4, there).ok());
    EXPECT_TRUE(equal(there.span(), data[i].span()));
  }
  EXPECT_EQ(ops[kAppends].status.nvme(), status::kZoneFull);
  expect(0, ZoneState::full, kCapacity);
}

// Also where a drive puts an append that it was sent later before another one.
TEST(ZonedRules, AppendsSayWhereTheDriveHasPutThem) {
  test::FakeDrive drive(true, 24);
  Zones zones("unused");
  zones.rig.device = std::make_unique<test::FakeDevice>(drive);
  ASSERT_NO_FATAL_FAILURE(zones.make(zoned_options(6, 2, 3)));
  const std::uint64_t zone_lba = zones.start(2);
  drive.next({test::FakeDrive::Fate::lost, test::FakeDrive::Fate::done});
  std::array<ZonedOp, 2> ops;
  std::vector<AlignedBuffer> data;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    data.push_back(zones.data(100 + i, 1, 1));
    ops[i].kind = Kind::append;
    ops[i].lba = zone_lba;
    ops[i].count = 1;
    ops[i].data = data[i].data();
    zones.submit(ops[i]);
  }
  zones.wait();
  for (std::size_t i = 0; i < ops.size(); ++i) {
    ASSERT_TRUE(ops[i].status.ok()) << ops[i].status.describe();
    EXPECT_EQ(ops[i].appended_at, zone_lba + 1 - i);
  }
}

TEST_F(ZonedRulesTest, OpensWithinItsShareAndClosesWhatIsImplicitlyOpen) {
  EXPECT_EQ(zones_.status_of(Kind::open, 0), 0);
  EXPECT_TRUE(zones_.write(kSize, 1).ok());
  EXPECT_TRUE(zones_.write(2 * kSize, 1).ok());  // closes zone 1
  expect(0, ZoneState::explicitly_open, 0);
  expect(1, ZoneState::closed, 1);
  expect(2, ZoneState::implicitly_open, 1);
  EXPECT_EQ(zones_.write(3 * kSize, 1).nvme(), status::kTooManyActive);
  EXPECT_EQ(zones_.status_of(Kind::open, 3 * kSize), status::kTooManyActive);
  EXPECT_EQ(zones_.status_of(Kind::open, 2 * kSize), 0);
  EXPECT_EQ(zones_.write(kSize + 1, 1).nvme(), status::kTooManyOpen);
  EXPECT_EQ(zones_.status_of(Kind::open, kSize), status::kTooManyOpen);
  EXPECT_EQ(zones_.status_of(Kind::close, 0), 0);
  expect(0, ZoneState::closed, 0);
  EXPECT_TRUE(zones_.write(kSize + 1, 1).ok());
  EXPECT_EQ(zones_.status_of(Kind::finish, 2 * kSize), 0);
  expect(2, ZoneState::full, kCapacity);
  EXPECT_TRUE(zones_.holds(2 * kSize, 1, 1));
  EXPECT_TRUE(zones_.write(3 * kSize, 1).ok());
  EXPECT_EQ(zones_.status_of(Kind::reset, 2 * kSize), 0);
  expect(2, ZoneState::empty, 0);
  EXPECT_TRUE(zones_.is_zero(2 * kSize, 1));
}

// One that was read into registered memory before, as a server's command slots are.
TEST_F(ZonedRulesTest, AnOperationCanBeAnyOtherAfterwards) {
  AlignedBuffer memory(4096);
  const iovec registered{memory.data(), memory.size()};
  ASSERT_TRUE(zones_.rig.session->register_buffers({&registered, 1}).ok());
  ASSERT_TRUE(zones_.write(0, 1).ok());
  ZonedOp op;
  const auto again = [&](Kind kind, std::uint64_t count) {
    op.kind = kind;
    op.count = count;
    op.data = memory.data();
    op.buffer_index = count != 0 ? 0 : -1;
    EXPECT_TRUE(zones_.run(op).ok()) << op.status.describe();
  };
  again(Kind::read, 1);
  EXPECT_TRUE(equal(memory.span(), zones_.data(0, 1, 1).span()));
  again(Kind::reset, 0);
  again(Kind::append, 1);
  again(Kind::read, 1);
  again(Kind::finish, 0);
  again(Kind::read, 1);
  again(Kind::flush, 0);
  expect(0, ZoneState::full, kCapacity);
}

// The drive must not be asked for one more active zone while it still has the last write of another
// before it.
TEST_F(ZonedRulesTest, AnActiveZoneIsGivenBackWhenTheDeviceHasFilledOrResetIt) {
  for (std::uint32_t i = 0; i < 3; ++i) ASSERT_TRUE(zones_.write(i * kSize, 1).ok());
  for (const Kind kind : {Kind::write, Kind::reset}) {
    AlignedBuffer data = zones_.data(0, 1, kCapacity);
    ZonedOp frees, takes;
    frees.kind = kind;
    frees.lba = kind == Kind::write ? 1 : kSize;
    frees.count = kind == Kind::write ? kCapacity - 1 : 0;
    frees.data = data.data();
    takes.kind = Kind::write;
    takes.lba = kind == Kind::write ? 3 * kSize : 4 * kSize;
    takes.count = 1;
    takes.data = data.data();
    zones_.submit(frees);
    zones_.submit(takes);
    zones_.wait();
    EXPECT_TRUE(frees.status.ok());
    EXPECT_EQ(takes.status.nvme(), status::kTooManyActive);
    EXPECT_TRUE(zones_.run(takes).ok());
  }
}

TEST_F(ZonedRulesTest, RefusesTransitionsThatThereAreNot) {
  EXPECT_EQ(zones_.status_of(Kind::close, 0), status::kInvalidTransition);
  EXPECT_EQ(zones_.status_of(Kind::reset, 0), 0);
  EXPECT_EQ(zones_.status_of(Kind::finish, 0), 0);
  EXPECT_EQ(zones_.status_of(Kind::finish, 0), 0);
  EXPECT_EQ(zones_.status_of(Kind::open, 0), status::kInvalidTransition);
  EXPECT_EQ(zones_.status_of(Kind::close, 0), status::kInvalidTransition);
  EXPECT_EQ(zones_.status_of(Kind::set_offline, 0), status::kInvalidTransition);
}

TEST_F(ZonedRulesTest, ActsOnAllZonesThatAreSelected) {
  for (std::uint32_t i = 0; i < 3; ++i) ASSERT_TRUE(zones_.write(i * kSize, 2).ok());
  EXPECT_EQ(zones_.status_of(Kind::open, 0, true), 0);  // the one that was closed
  expect(0, ZoneState::explicitly_open, 2);
  EXPECT_EQ(zones_.status_of(Kind::close, 0, true), 0);
  for (std::uint32_t i = 0; i < 3; ++i) expect(i, ZoneState::closed, 2);
  EXPECT_EQ(zones_.status_of(Kind::open, 0, true), status::kTooManyOpen);  // all or none
  for (std::uint32_t i = 0; i < 3; ++i) expect(i, ZoneState::closed, 2);
  EXPECT_EQ(zones_.status_of(Kind::finish, 0, true), 0);
  for (std::uint32_t i = 0; i < 3; ++i) expect(i, ZoneState::full, kCapacity);
  expect(3, ZoneState::empty, 0);
  EXPECT_EQ(zones_.status_of(Kind::reset, 123, true), 0);  // the LBA does not count
  for (std::uint32_t i = 0; i < 6; ++i) expect(i, ZoneState::empty, 0);
  EXPECT_EQ(zones_.status_of(Kind::set_offline, 0, true), 0);
  ASSERT_TRUE(zones_.write(0, 1).ok());
}

TEST_F(ZonedRulesTest, AnswersMalformedOperations) {
  AlignedBuffer there;
  const std::uint64_t end = 6 * kSize;
  EXPECT_EQ(zones_.read(end, 1, there).nvme(), status::kLbaOutOfRange);
  EXPECT_EQ(zones_.read(end - 1, 2, there).nvme(), status::kLbaOutOfRange);
  EXPECT_EQ(zones_.read(kSize - 1, 2, there).nvme(), status::kZoneBoundary);
  EXPECT_EQ(zones_.write(end, 1).nvme(), status::kLbaOutOfRange);
  EXPECT_EQ(zones_.status_of(Kind::reset, kSize + 1), status::kInvalidField);
  EXPECT_EQ(zones_.status_of(Kind::open, end), status::kLbaOutOfRange);
  EXPECT_EQ(zones_.status_of(Kind::finish, ~std::uint64_t{0} / kSize * kSize),
            status::kLbaOutOfRange);
  ZonedOp op;
  op.kind = Kind::write;
  op.lba = 0;
  AlignedBuffer data(8192);
  op.data = data.data();
  EXPECT_EQ(zones_.run(op).code(), Code::invalid_argument);  // of nothing
  op.count = 1;
  op.data = data.data() + 512;
  EXPECT_EQ(zones_.run(op).code(), Code::invalid_argument);
  op.data = nullptr;
  EXPECT_EQ(zones_.run(op).code(), Code::invalid_argument);
  op.data = data.data();
  op.count = ~std::uint64_t{0};
  EXPECT_EQ(zones_.run(op).nvme(), status::kLbaOutOfRange);
  for (std::uint32_t i = 0; i < 6; ++i) expect(i, ZoneState::empty, 0);
  PageOp page;
  page.kind = PageOp::Kind::exist;
  page.key = key_of(1);
  EXPECT_EQ(zones_.rig.run(page).code(), Code::invalid_argument);
  EXPECT_EQ(zones_.rig.put(1, 1, 100).code(), Code::invalid_argument);
  page.kind = PageOp::Kind::flush;
  EXPECT_TRUE(zones_.rig.run(page).ok());
}

TEST_F(ZonedRulesTest, IsClosedByARestartAndKeepsWhatWasWritten) {
  ASSERT_TRUE(zones_.write(0, 3).ok());
  ASSERT_EQ(zones_.status_of(Kind::open, kSize), 0);
  ASSERT_EQ(zones_.status_of(Kind::finish, 2 * kSize), 0);
  for (const bool killed : {false, true}) {
    if (killed) {
      zones_.drop();
      ASSERT_NO_FATAL_FAILURE(zones_.open());
    } else {
      ASSERT_NO_FATAL_FAILURE(zones_.reopen());
    }
    expect(0, ZoneState::closed, 3);
    expect(1, ZoneState::empty, 0);
    expect(2, ZoneState::full, kCapacity);
    EXPECT_TRUE(zones_.holds(0, 3, 1));
  }
  EXPECT_EQ(zones_.geometry().active_zones_max, 3u);
  // One active zone is left from before.
  EXPECT_EQ(zones_.status_of(Kind::open, 3 * kSize), 0);
  EXPECT_EQ(zones_.status_of(Kind::open, 4 * kSize), 0);
  EXPECT_EQ(zones_.status_of(Kind::open, 5 * kSize), status::kTooManyActive);
}

class FailingZonesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto inner = open_device(kDevice, Access::exclusive);
    ASSERT_TRUE(inner.ok());
    auto fault = std::make_unique<FaultDevice>(std::move(*inner), FaultOptions());
    fault_ = fault.get();
    zones_.rig.device = std::move(fault);
    ASSERT_NO_FATAL_FAILURE(zones_.make(zoned_options(6, 2, 3)));
    // The pool's ring takes the first two zones, and the volume the next.
    for (std::uint32_t i = 0; i < 3; ++i) ASSERT_TRUE(zones_.write(i * kSize, 2).ok());
    ASSERT_TRUE(zones_.manage(Kind::flush, 0).ok());
  }
  static constexpr std::uint32_t kFirst = 2;
  Zones zones_{"unused"};
  FaultDevice* fault_ = nullptr;
};

TEST_F(FailingZonesTest, AreWhatTheDeviceSaysAfterwards) {
  fault_->degrade(ZoneId{kFirst + 0}, ZoneState::read_only);
  fault_->degrade(ZoneId{kFirst + 1}, ZoneState::offline);
  EXPECT_EQ(zones_.write(2, 1).nvme(), status::kZoneReadOnly);
  EXPECT_EQ(zones_.zone(0).state, ZoneState::read_only);
  EXPECT_TRUE(zones_.holds(0, 2, 1));
  AlignedBuffer there;
  EXPECT_EQ(zones_.rig.store->stats().failed_reads, 0u);
  EXPECT_EQ(zones_.read(kSize, 1, there).nvme(), status::kZoneOffline);
  EXPECT_EQ(zones_.rig.store->stats().failed_reads, 1u);
  EXPECT_EQ(zones_.zone(1).state, ZoneState::offline);
  EXPECT_EQ(zones_.status_of(Kind::reset, kSize), status::kInvalidTransition);
  EXPECT_EQ(zones_.status_of(Kind::set_offline, 0), 0);
  EXPECT_EQ(zones_.read(0, 1, there).nvme(), status::kZoneOffline);
  // Neither is active any more.
  EXPECT_EQ(zones_.status_of(Kind::open, 3 * kSize), 0);
  EXPECT_EQ(zones_.status_of(Kind::open, 4 * kSize), 0);
  EXPECT_EQ(zones_.status_of(Kind::open, 5 * kSize), status::kTooManyActive);
}

TEST_F(FailingZonesTest, AreFoundWithoutAnOperationThatFails) {
  EXPECT_EQ(zones_.status_of(Kind::open, 2 * kSize), 0);
  fault_->degrade(ZoneId{kFirst + 0}, ZoneState::read_only);
  fault_->degrade(ZoneId{kFirst + 1}, ZoneState::offline);
  EXPECT_FALSE(zones_changed(*zones_.rig.store));
  look_for_taken_zones(*zones_.rig.store);
  EXPECT_TRUE(zones_changed(*zones_.rig.store));
  EXPECT_EQ(take_changed_zones(*zones_.rig.store), (std::vector<std::uint32_t>{0, 1}));
  EXPECT_EQ(zones_.zone(0).state, ZoneState::read_only);
  EXPECT_EQ(zones_.zone(1).state, ZoneState::offline);
  EXPECT_EQ(zones_.zone(2).state, ZoneState::explicitly_open);
  EXPECT_EQ(zones_.status_of(Kind::set_offline, 0), 0);
  fault_->degrade(ZoneId{kFirst + 3}, ZoneState::read_only);
  look_for_taken_zones(*zones_.rig.store);
  EXPECT_EQ(take_changed_zones(*zones_.rig.store), std::vector<std::uint32_t>{3});
  EXPECT_EQ(zones_.zone(0).state, ZoneState::offline) << "a host has given it up";
}

// Also where a read that had begun before fails, and the zone is looked at again.
TEST_F(FailingZonesTest, StayOfflineWhereAHostHasSetThemSo) {
  fault_->degrade(ZoneId{kFirst}, ZoneState::read_only);
  look_for_taken_zones(*zones_.rig.store);
  (void)take_changed_zones(*zones_.rig.store);
  fault_->fail_reads(Lba{kFirst * kSize}, 1);
  AlignedBuffer there(4096);
  ZonedOp read;
  read.lba = 0;
  read.count = 1;
  read.data = there.data();
  zones_.submit(read);
  ZonedOp offline;
  offline.kind = Kind::set_offline;
  zones_.submit(offline);
  zones_.wait();
  EXPECT_TRUE(offline.status.ok()) << offline.status.describe();
  EXPECT_EQ(read.status.code(), Code::io_error);
  EXPECT_EQ(zones_.zone(0).state, ZoneState::offline);
  EXPECT_FALSE(zones_changed(*zones_.rig.store));
}

// The device takes the zone when it has done what it was asked, and before that is known.
TEST_F(FailingZonesTest, AreFoundBehindAResetThatSucceeds) {
  for (const Kind kind : {Kind::reset, Kind::finish}) {
    const std::uint32_t zone = kind == Kind::reset ? 0 : 1;
    ZonedOp op;
    op.kind = kind;
    op.lba = zone * kSize;
    zones_.submit(op);
    fault_->degrade(ZoneId{kFirst + zone}, ZoneState::read_only);
    look_for_taken_zones(*zones_.rig.store);
    zones_.wait();
    EXPECT_TRUE(op.status.ok()) << op.status.describe();
    EXPECT_EQ(zones_.zone(zone).state, ZoneState::read_only);
    EXPECT_EQ(take_changed_zones(*zones_.rig.store), std::vector<std::uint32_t>{zone});
    EXPECT_EQ(zones_.write(zone * kSize, 1).nvme(), status::kZoneReadOnly);
  }
  // Neither is active any more.
  EXPECT_EQ(zones_.status_of(Kind::open, 3 * kSize), 0);
  EXPECT_EQ(zones_.status_of(Kind::open, 4 * kSize), 0);
  EXPECT_EQ(zones_.status_of(Kind::open, 5 * kSize), status::kTooManyActive);
}

TEST_F(FailingZonesTest, AreSealedByAWriteThatFails) {
  fault_->fail_writes(Lba{(kFirst + 2) * kSize + 2}, 1);
  EXPECT_EQ(zones_.write(2 * kSize + 2, 1).code(), Code::io_error);
  EXPECT_EQ(zones_.zone(2).state, ZoneState::full);
  EXPECT_TRUE(zones_.holds(2 * kSize, 2, 1));
  EXPECT_EQ(zones_.write(2 * kSize + 2, 1).nvme(), status::kZoneFull);
  fault_->heal();
  EXPECT_EQ(zones_.status_of(Kind::reset, 2 * kSize), 0);
  EXPECT_TRUE(zones_.write(2 * kSize, 3, 2).ok());
  EXPECT_TRUE(zones_.holds(2 * kSize, 3, 2));
}

// A volume's own durability is as if each write had FUA.
TEST_F(FailingZonesTest, FlushEveryWriteWhereTheVolumeSaysSo) {
  fault_->fail_flushes(1);
  EXPECT_TRUE(zones_.write(2, 1).ok());
  EXPECT_EQ(zones_.manage(Kind::flush, 0).code(), Code::io_error);
  zones_.session.reset();
  ASSERT_TRUE(zones_.rig.pool->delete_volume("zones").ok());
  zones_.rig.return_zones();
  VolumeOptions options = zoned_options(6, 2, 3);
  options.durability = Durability::flushed;
  zones_.rig.store = *zones_.rig.pool->create_volume(options);
  zones_.connect();
  fault_->fail_flushes(1);
  EXPECT_EQ(zones_.write(0, 1).code(), Code::io_error);
  EXPECT_TRUE(zones_.write(1, 1).ok());
}

TEST_F(FailingZonesTest, TellWhoFlushesThatItFailed) {
  fault_->fail_flushes(1);
  EXPECT_EQ(zones_.manage(Kind::flush, 0).code(), Code::io_error);
  fault_->fail_flushes(1);
  EXPECT_EQ(zones_.write(2, 1, 1, Durability::flushed).code(), Code::io_error);
  fault_->fail_reads(Lba{kFirst * kSize}, 1);
  AlignedBuffer there;
  EXPECT_EQ(zones_.read(0, 1, there).code(), Code::io_error);
  EXPECT_EQ(zones_.zone(0).state, ZoneState::implicitly_open);
}

// Its record may be in the journal, and a kill leave it there, until a flush puts that in order.
TEST_F(FailingZonesTest, FlushWhatIsWrittenBehindADeletionThatFailed) {
  fault_->fail_flushes(1000);
  Status deleted;
  while ((deleted = zones_.rig.pool->delete_volume("zones")).code() == Code::busy) {
    zones_.rig.turns(1);
  }
  ASSERT_EQ(deleted.code(), Code::io_error) << deleted.describe();
  fault_->fail_flushes(0);
  fault_->fail_writes(Lba{0}, kFirst * kSize);  // the ring's
  EXPECT_EQ(zones_.write(2, 1).code(), Code::io_error);
  fault_->heal();
  EXPECT_TRUE(zones_.write(3, 1).ok());
}

}  // namespace
}  // namespace furrow::testing::zoned_rules_test
