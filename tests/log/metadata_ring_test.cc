// Establishes that the metadata ring keeps the pool's state: through thousands of records that roll
// through tiny zones, beside a plain PoolState, some of them begun and not waited for; refuses what
// it has no place for, with a state as before; and refuses media that are not a pool, too new, or
// cut otherwise. Damage and power cuts: metadata_damage_test.cc.
#include "log/metadata_ring.h"

#include "log/reservation_state.h"
#include "log/structure.h"
#include "tests/log/ring_fixture.h"
#include "tests/log/tap_device.h"
#include "zone/fault_device.h"

namespace furrow {
namespace {

class MetadataRingTest : public testing::Test {
 protected:
  void format(std::uint32_t metadata_zones = 2) {
    const Status status = MetadataRing::format(
        *device_, small_superblock(device_->geometry(), metadata_zones), PoolState());
    ASSERT_TRUE(status.ok()) << status.describe();
  }
  MetadataRing open(bool read_only = false) {
    Result<MetadataRing> ring = MetadataRing::open(*device_, read_only);
    EXPECT_TRUE(ring.ok()) << ring.status().describe();
    return std::move(*ring);
  }
  Code open_code(bool read_only = false) {
    return MetadataRing::open(*device_, read_only).status().code();
  }
  unsigned active_zones() {
    const auto report = device_->report();
    return static_cast<unsigned>(std::ranges::count_if(*report, [](const ZoneInfo& info) {
      return info.state != ZoneState::empty && info.state != ZoneState::full;
    }));
  }

  std::unique_ptr<ZonedDevice> device_ = small_device();
  RandomChanges changes_{test_seed()};
};

TEST_F(MetadataRingTest, FormatAndOpen) {
  format();
  EXPECT_LE(active_zones(), 1u);
  const MetadataRing ring = open();
  Superblock expected = small_superblock(device_->geometry());
  expected.checkpoint = ring.superblock().checkpoint;
  EXPECT_EQ(ring.superblock(), expected);
  EXPECT_EQ(ring.state(), PoolState());
  EXPECT_TRUE(ring.damage().empty());
}

TEST_F(MetadataRingTest, FormatKeepsTheStateItIsGiven) {
  PoolState state;
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(apply(state, changes_.next(state)).ok());
  ASSERT_TRUE(MetadataRing::format(*device_, small_superblock(device_->geometry()), state).ok());
  EXPECT_EQ(open().state(), state);
}

TEST_F(MetadataRingTest, ThousandsOfRecordsThroughTinyZones) {
  for (const std::uint32_t metadata_zones : {2u, 3u}) {
    format(metadata_zones);
    PoolState expected;
    auto ring = std::make_unique<MetadataRing>(open());
    for (int i = 0; i < 5000; ++i) {
      const JournalRecord record = changes_.next(expected);
      const Status status = ring->append(record);
      ASSERT_TRUE(status.ok()) << status.describe();
      ASSERT_TRUE(apply(expected, record).ok());
      ASSERT_EQ(ring->state(), expected);
      ASSERT_LE(active_zones(), 1u);
      if (i % 7 != 0) continue;
      ring.reset();
      ring = std::make_unique<MetadataRing>(open());
      ASSERT_EQ(ring->state(), expected) << "after record " << i;
      ASSERT_TRUE(ring->damage().empty());
    }
  }
}

// In zones that have room for more than anybody wants to read when the pool is opened.
TEST_F(MetadataRingTest, AJournalIsOfThousandsOfRecordsAtMost) {
  device_ = *open_device("mem:256MiB?zone_size=64MiB&lba=512", Access::exclusive);
  format();
  auto ring = std::make_unique<MetadataRing>(open());
  const std::uint64_t before = ring->superblock().checkpoint;
  JournalRecord opened;
  for (opened.open_count = 1; ring->superblock().checkpoint == before; ++opened.open_count) {
    ASSERT_LT(opened.open_count, 20'000u);
    ASSERT_TRUE(ring->append(opened).ok());
  }
  EXPECT_EQ(ring->superblock().checkpoint, before + 1);
  EXPECT_GT(opened.open_count, 10'000u) << "a roll takes longer than a record";
  ring.reset();
  EXPECT_EQ(open().state().open_count, opened.open_count - 1);
}

// An older program must not come to see a record of a volume that it would take for another kind.
TEST_F(MetadataRingTest, TheSuperblockSpeaksOfBlockVolumesBeforeAnyRecordDoes) {
  format();
  MetadataRing ring = open();
  JournalRecord record;
  record.kind = JournalRecord::Kind::volume_created;
  record.volume.id = 1;
  record.volume.name = "pages";
  ASSERT_TRUE(ring.append(record).ok());
  EXPECT_EQ(ring.superblock().features, Features());
  const std::uint64_t before = ring.superblock().checkpoint;
  record.volume.id = 2;
  record.volume.name = "disk";
  record.volume.kind = kKindBlock;
  record.volume.value_bytes_max = kBlockPageBytes;
  record.volume.lba_shift = 9;
  record.volume.size_mib = kSizeMibMax;
  ASSERT_TRUE(ring.append(record).ok());
  EXPECT_EQ(ring.superblock().features, (Features{0, 0, kFeatureBlockVolumes}));
  EXPECT_GT(ring.superblock().checkpoint, before) << "in a section of its own";
  const MetadataRing again = open();
  EXPECT_EQ(again.superblock().features, (Features{0, 0, kFeatureBlockVolumes}));
  EXPECT_EQ(again.state().volumes[1], record.volume);
  EXPECT_TRUE(again.damage().empty());
}

TEST_F(MetadataRingTest, TheSuperblockSpeaksOfReservationsBeforeAnyRecordDoes) {
  format();
  MetadataRing ring = open();
  JournalRecord record;
  record.kind = JournalRecord::Kind::volume_created;
  record.volume.id = 1;
  record.volume.name = "pages";
  ASSERT_TRUE(ring.append(record).ok());
  ReservationRecord wanted;
  wanted.volume = 1;
  wanted.persists = true;
  for (std::uint8_t host = 1; host <= 9; ++host) {
    wanted.registrants.push_back({{host}, host * 11u});
    wanted.type = 1;
    wanted.holder = {host};
    ++wanted.generation;
    const auto& now = ring.state().reservations;
    const auto changes = reservation_changes(now.empty() ? nullptr : &now.front(), wanted);
    ASSERT_EQ(changes.size(), 1u);
    ASSERT_TRUE(ring.append(changes.front()).ok());
    EXPECT_EQ(ring.superblock().features, (Features{0, 0, kFeatureReservations}));
    const MetadataRing again =
        open();  // from the journal or, when the ring has rolled, a checkpoint
    EXPECT_EQ(again.superblock().features, (Features{0, 0, kFeatureReservations}));
    EXPECT_EQ(again.state().reservations, std::vector{wanted});
    EXPECT_TRUE(again.damage().empty());
  }
}

// An older program must refuse a pool with a record that it would take for a torn one, and may have
// one without; and no damage to one place may undo a resize.
TEST_F(MetadataRingTest, TheSuperblockSpeaksOfResizesBeforeAnyRecordDoes) {
  format();
  MetadataRing ring = open();
  JournalRecord record;
  record.kind = JournalRecord::Kind::volume_created;
  record.volume.id = 1;
  record.volume.name = "pages";
  record.volume.quota_zones = 4;
  ASSERT_TRUE(ring.append(record).ok());
  EXPECT_EQ(ring.superblock().features, Features());
  JournalRecord resized;
  resized.kind = JournalRecord::Kind::volume_resized;
  resized.volume.id = 1;
  std::uint64_t before = ring.superblock().checkpoint;
  for (const std::uint64_t zones : {9, 3}) {
    resized.volume.quota_zones = zones;
    ASSERT_TRUE(ring.append(resized).ok());
    EXPECT_EQ(ring.superblock().features, (Features{0, 0, kFeatureResizedVolumes}));
    EXPECT_GT(ring.superblock().checkpoint, before) << "in a section of its own";
    before = ring.superblock().checkpoint;
    const MetadataRing again = open();
    EXPECT_EQ(again.superblock().features, (Features{0, 0, kFeatureResizedVolumes}));
    EXPECT_EQ(again.state().volumes[0].quota_zones, zones);
    EXPECT_EQ(again.state().volumes[0].name, "pages");
    EXPECT_TRUE(again.damage().empty());
  }
  resized.volume.id = 2;
  EXPECT_EQ(ring.append(resized).code(), Code::invalid_argument) << "there is none";
  EXPECT_EQ(ring.state().volumes.size(), 1u);
}

// Also where it was not durable when it was first asked for.
TEST_F(MetadataRingTest, TheSuperblockSpeaksOfWhatIsNeeded) {
  device_ = std::make_unique<TapDevice>(std::move(device_));
  auto& tap = static_cast<TapDevice&>(*device_);
  format();
  std::optional<MetadataRing> ring = open();
  tap.fail(Io::Op::reset, {Code::io_error, Origin::zone}, 100);
  tap.fail(Io::Op::write, {Code::io_error, Origin::zone}, 100);
  EXPECT_EQ(ring->need(kFeatureDamagedPages).code(), Code::io_error);
  tap.fail(Io::Op::reset, Status(), 0);
  tap.fail(Io::Op::write, Status(), 0);
  EXPECT_TRUE(ring->need(kFeatureDamagedPages).ok());
  const std::uint64_t checkpoint = ring->superblock().checkpoint;
  EXPECT_TRUE(ring->need(kFeatureDamagedPages).ok());
  EXPECT_EQ(ring->superblock().checkpoint, checkpoint) << "it says so already";
  tap.fail(Io::Op::reset, {Code::io_error, Origin::zone}, 100);
  tap.fail(Io::Op::write, {Code::io_error, Origin::zone}, 100);
  EXPECT_FALSE(ring->append(changes_.next(ring->state())).ok());
  EXPECT_TRUE(ring->need(kFeatureDamagedPages).ok()) << "whatever else is to be written";
  tap.fail(Io::Op::reset, Status(), 0);
  tap.fail(Io::Op::write, Status(), 0);
  ASSERT_TRUE(ring->settle().ok());
  const PoolState state = ring->state();
  ring.reset();
  const MetadataRing again = open();
  EXPECT_EQ(again.superblock().features, (Features{0, 0, kFeatureDamagedPages}));
  EXPECT_EQ(again.state(), state);
}

struct Begun : MetadataRing::Pending {
  explicit Begun(const JournalRecord& its_record) {
    record = its_record;
    on_done = [](MetadataRing::Pending& pending) { static_cast<Begun&>(pending).done = true; };
  }
  bool done = false;
};

TEST_F(MetadataRingTest, ThousandsOfRecordsNotWaitedFor) {
  format();
  PoolState expected;
  auto ring = std::make_unique<MetadataRing>(open());
  unsigned begun_only = 0;
  for (int i = 0; i < 3000; ++i) {
    Begun begun(changes_.next(expected));
    const PoolState before = expected;
    ASSERT_TRUE(apply(expected, begun.record).ok());
    ring->begin(begun);
    if (!begun.done) {
      ++begun_only;
      ASSERT_EQ(ring->state(), before) << "it is not durable yet";
    }
    if (i % 3 == 0) {  // comes behind it
      const JournalRecord next = changes_.next(expected);
      ASSERT_TRUE(apply(expected, next).ok());
      ASSERT_TRUE(ring->append(next).ok());
      ASSERT_TRUE(begun.done);
    }
    while (!begun.done) ring->poller().poll();
    ASSERT_TRUE(begun.status.ok()) << begun.status.describe();
    ASSERT_EQ(ring->state(), expected);
    if (i % 7 != 0) continue;
    ring.reset();
    ring = std::make_unique<MetadataRing>(open());
    ASSERT_EQ(ring->state(), expected) << "after record " << i;
    ASSERT_TRUE(ring->damage().empty());
  }
  EXPECT_GT(begun_only, 1500u);
}

// The state stays as it was, and the next record goes to another section.
TEST_F(MetadataRingTest, ABegunRecordThatFails) {
  device_ = std::make_unique<TapDevice>(std::move(device_));
  auto& tap = static_cast<TapDevice&>(*device_);
  for (const Io::Op op : {Io::Op::write, Io::Op::flush}) {
    format();
    MetadataRing ring = open();
    const PoolState before = ring.state();
    Begun begun(changes_.next(before));
    tap.fail(op, {Code::io_error, Origin::zone});
    ring.begin(begun);
    while (!begun.done) ring.poller().poll();
    EXPECT_EQ(begun.status.code(), Code::io_error);
    EXPECT_EQ(ring.state(), before);
    const std::uint64_t checkpoint = ring.superblock().checkpoint;
    Begun again(begun.record);
    ring.begin(again);
    EXPECT_TRUE(again.done && again.status.ok()) << "the ring has rolled";
    EXPECT_EQ(ring.superblock().checkpoint, checkpoint + 1);
    EXPECT_EQ(open().state(), ring.state());
  }
}

// The write of a record fails, and that of the roll; the device ends both zones, as it may.
TEST_F(MetadataRingTest, WhatAFailedRecordLeavesIsSettled) {
  device_ = std::make_unique<TapDevice>(std::move(device_));
  auto& tap = static_cast<TapDevice&>(*device_);
  for (const bool settles : {false, true}) {
    format();
    std::optional<MetadataRing> ring = open();
    EXPECT_TRUE(ring->settle().ok());
    EXPECT_EQ(ring->superblock().checkpoint, 2u) << "there was nothing to settle";
    tap.fail(Io::Op::write, {Code::io_error, Origin::zone}, 2);
    EXPECT_EQ(ring->append(changes_.next(ring->state())).code(), Code::io_error);
    {
      auto queue = device_->create_queue(1);
      ASSERT_TRUE(manage_blocking(**queue, Io::Op::finish, ZoneId{0}).ok());
    }
    if (settles) {
      EXPECT_TRUE(ring->settle().ok());
    }
    const PoolState state = ring->state();
    ring.reset();
    const MetadataRing again = open(true);
    EXPECT_EQ(again.state(), state);
    EXPECT_EQ(again.damage().empty(), settles) << "the older checkpoint is gone";
  }
}

// Its flush fails, and the roll that would take it back does not begin.
TEST_F(MetadataRingTest, ARecordThatIsThereThoughItFailedIsSettled) {
  device_ = std::make_unique<TapDevice>(std::move(device_));
  auto& tap = static_cast<TapDevice&>(*device_);
  format();
  std::optional<MetadataRing> ring = open();
  tap.fail(Io::Op::flush, {Code::io_error, Origin::zone});
  tap.fail(Io::Op::reset, {Code::io_error, Origin::zone}, 100);
  EXPECT_EQ(ring->append(changes_.next(ring->state())).code(), Code::io_error);
  tap.fail(Io::Op::reset, Status(), 0);
  EXPECT_TRUE(ring->settle().ok());
  const PoolState state = ring->state();
  ring.reset();
  EXPECT_EQ(open(true).state(), state);
}

// It is built upon from then on: zones of a volume that was deleted are reset.
TEST_F(MetadataRingTest, AnOpeningMakesDurableWhatAKillHasLeft) {
  format();
  auto faulty = std::make_unique<FaultDevice>(std::move(device_), FaultOptions());
  const FaultDevice& faults = *faulty;
  device_ = std::move(faulty);
  {
    AlignedBuffer lba(kRingLbaBytes);
    Io io;
    io.op = Io::Op::write;
    io.zone = ZoneId{4};
    io.lba = device_->geometry().zone_start(io.zone);
    io.set_data(lba.data(), 1, kRingLbaBytes);
    auto queue = device_->create_queue(1);
    ASSERT_TRUE(run_blocking(**queue, io).ok());
  }
  (void)open(true);
  EXPECT_EQ(faults.unflushed_bytes(), kRingLbaBytes);
  (void)open();
  EXPECT_EQ(faults.unflushed_bytes(), 0u);
}

TEST_F(MetadataRingTest, ABegunRecordThatIsRefused) {
  format();
  MetadataRing ring = open();
  Begun begun{JournalRecord()};  // opening 0
  ring.begin(begun);
  EXPECT_TRUE(begun.done);
  EXPECT_EQ(begun.status.code(), Code::invalid_argument);
}

TEST_F(MetadataRingTest, InspectionWritesNothing) {
  format();
  const auto before = read_zone(*device_, ZoneId{1});
  MetadataRing ring = open(true);
  EXPECT_EQ(ring.append(changes_.next(ring.state())).code(), Code::permission);
  EXPECT_EQ(read_zone(*device_, ZoneId{1}), before);
}

TEST_F(MetadataRingTest, RefusesRecordsThatDoNotFit) {
  format();
  MetadataRing ring = open();
  JournalRecord record;
  record.kind = JournalRecord::Kind::volume_created;
  record.volume.id = 1;
  for (const std::string& name : {std::string(), std::string(64, 'x'), std::string("a b"),
                                  std::string("a/b"), std::string("\n")}) {
    record.volume.name = name;
    EXPECT_EQ(ring.append(record).code(), Code::invalid_argument) << name;
  }
  EXPECT_EQ(ring.state(), PoolState());
  record.volume.name = std::string(63, 'x');
  EXPECT_TRUE(ring.append(record).ok());
  EXPECT_EQ(ring.append(record).code(), Code::invalid_argument);  // the id was used
  record.volume.id = 2;
  EXPECT_EQ(ring.append(record).code(), Code::invalid_argument);  // the name is taken
  record = JournalRecord();
  EXPECT_EQ(ring.append(record).code(), Code::invalid_argument);  // opening 0
  record.kind = JournalRecord::Kind::volume_deleted;
  record.volume.id = 9;
  EXPECT_EQ(ring.append(record).code(), Code::invalid_argument);  // unknown
  EXPECT_EQ(open().state().volumes.size(), 1u);
}

TEST_F(MetadataRingTest, SaysWhenTheVolumesDoNotFit) {
  format();
  MetadataRing ring = open();
  JournalRecord record;
  record.kind = JournalRecord::Kind::volume_created;
  Status status;
  for (record.volume.id = 1; status.ok() && record.volume.id < 1000; ++record.volume.id) {
    record.volume.name = "v" + std::to_string(record.volume.id);
    status = ring.append(record);
  }
  EXPECT_EQ(status.code(), Code::no_space);
  const PoolState full = ring.state();
  EXPECT_EQ(full.volumes.size(), 13u);  // 3 of 30 LBAs, 112 bytes each
  EXPECT_EQ(open().state(), full);
  record.kind = JournalRecord::Kind::volume_deleted;
  record.volume.id = 1;
  EXPECT_TRUE(ring.append(record).ok());
}

TEST_F(MetadataRingTest, RefusesBadPools) {
  const Geometry& geometry = device_->geometry();
  const auto code = [&](const std::function<void(Superblock&)>& change) {
    Superblock superblock = small_superblock(geometry);
    change(superblock);
    return MetadataRing::format(*device_, superblock, PoolState()).code();
  };
  EXPECT_EQ(code([](auto& s) { s.name = ""; }), Code::invalid_argument);
  EXPECT_EQ(code([](auto& s) { s.name = std::string(64, 'x'); }), Code::invalid_argument);
  EXPECT_EQ(code([](auto& s) { s.name = "sp ace"; }), Code::invalid_argument);
  EXPECT_EQ(code([](auto& s) { s.metadata_zones = 1; }), Code::invalid_argument);
  EXPECT_EQ(code([](auto& s) { s.metadata_zones = 17; }), Code::invalid_argument);
  EXPECT_EQ(code([](auto& s) { s.segment_lbas = 0; }), Code::invalid_argument);
  EXPECT_EQ(code([](auto& s) { s.zone_count = 1000; }), Code::invalid_argument);
  EXPECT_EQ(code([](auto& s) { s.zone_capacity_lbas = kRingCapacityLbas - 1; }),
            Code::invalid_argument);
  EXPECT_EQ(code([](auto&) {}), Code::ok);
}

TEST_F(MetadataRingTest, ForeignMedia) {
  EXPECT_EQ(open_code(), Code::foreign);  // empty
  const std::vector<std::byte> noise(kRingCapacityLbas * kRingLbaBytes, std::byte{0x3c});
  for (const std::uint32_t zone : {0u, 1u}) rewrite_zone(*device_, ZoneId{zone}, noise, 4, false);
  EXPECT_EQ(open_code(), Code::foreign);
}

TEST_F(MetadataRingTest, EverySuperblockDamaged) {
  format();
  constexpr std::uint64_t kSecond = 4;  // behind a checkpoint of one LBA and record 0, twice
  for (const std::uint64_t lba : {std::uint64_t{0}, kSecond}) {
    EXPECT_EQ(open_code(), Code::ok);
    flip_bit(*device_, ZoneId{0}, lba);
    flip_bit(*device_, ZoneId{1}, lba);
  }
  EXPECT_EQ(open_code(), Code::corrupt);
  EXPECT_EQ(open_code(true), Code::corrupt);
}

TEST_F(MetadataRingTest, NewerVersionOfAnyStructure) {
  constexpr Magic kStructures[] = {Magic::superblock, Magic::checkpoint, Magic::journal};
  for (const std::uint32_t zone : {0u, 1u}) {
    for (std::uint64_t lba = 0; lba < 3; ++lba) {
      format();
      const auto raise = [&](std::span<std::byte> bytes) {
        ASSERT_TRUE(has_magic(bytes, kStructures[lba]));
        seal(bytes, kStructures[lba], kFormatVersion + 1);
      };
      change_lba(*device_, ZoneId{zone}, lba, raise);
      EXPECT_EQ(open_code(), Code::unsupported) << "zone " << zone << " LBA " << lba;
      EXPECT_EQ(open_code(true), Code::unsupported);
    }
  }
}

TEST_F(MetadataRingTest, UnknownFeatures) {
  const auto with = [&](Features features) {
    Superblock superblock = small_superblock(device_->geometry());
    superblock.features = features;
    ASSERT_TRUE(MetadataRing::format(*device_, superblock, PoolState()).ok());
  };
  with({.compatible = ~std::uint64_t{0}, .read_only = 0, .incompatible = 0});
  EXPECT_EQ(open_code(), Code::ok);
  with({.compatible = 0, .read_only = 4, .incompatible = 0});
  EXPECT_EQ(open_code(), Code::unsupported);
  EXPECT_EQ(open_code(true), Code::ok);
  with({.compatible = 0, .read_only = 0, .incompatible = std::uint64_t{1} << 63});
  EXPECT_EQ(open_code(), Code::unsupported);
  EXPECT_EQ(open_code(true), Code::unsupported);
}

TEST_F(MetadataRingTest, AnotherGeometry) {
  format();
  const auto shrink = [](std::span<std::byte> bytes) {
    Superblock superblock = *decode_superblock(bytes);
    superblock.zone_count = 9;
    encode(superblock, bytes);
  };
  change_lba(*device_, ZoneId{0}, 0, shrink);
  change_lba(*device_, ZoneId{1}, 0, shrink);
  EXPECT_EQ(open_code(), Code::corrupt);
}

// What a user of a zoned volume wrote must not pass for the pool's superblock.
TEST_F(MetadataRingTest, SuperblockBehindTheRingIsIgnored) {
  format();
  Superblock fake = small_superblock(device_->geometry(), 8);
  fake.pool.fill(1);
  fake.checkpoint = 1'000'000;
  std::vector<std::byte> contents(kRingCapacityLbas * kRingLbaBytes);
  encode(fake, std::span(contents).first(kRingLbaBytes));
  rewrite_zone(*device_, ZoneId{2}, contents, 1, false);
  EXPECT_EQ(open().superblock().pool, small_superblock(device_->geometry()).pool);
  flip_bit(*device_, ZoneId{0}, 0);
  EXPECT_EQ(open().superblock().pool, small_superblock(device_->geometry()).pool);
}

}  // namespace
}  // namespace furrow
