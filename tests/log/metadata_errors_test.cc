// Establishes that what the device fails to read, write or flush loses no acknowledged record of
// the metadata ring: nothing that cannot be read is taken for a torn write, and writers are refused
// where it may be newer than what was found. How: as metadata_damage_test.
#include "tests/log/metadata_damage_rig.h"

namespace furrow {
namespace {

TEST_F(MetadataDamageTest, UnreadableLbas) {
  make(30);
  save();
  for (std::uint32_t zone = 0; zone < 2; ++zone) {
    for (std::uint64_t lba = 0; lba < end_of_zone(zone); ++lba) {
      FaultDevice faulty(std::move(device_), FaultOptions());
      faulty.fail_reads(Lba{zone * kRingZoneLbas + lba}, 1);
      const Result<MetadataRing> ring = MetadataRing::open(faulty, false);
      ASSERT_TRUE(ring.ok()) << ring.status().describe();
      EXPECT_EQ(ring->state(), state_);
      const bool is_left = zone != newest_zone() && lba + 3 >= end_of_zone(zone);
      EXPECT_TRUE(is_left || !ring->damage().empty()) << "zone " << zone << " LBA " << lba;
      device_ = faulty.take_inner();
      restore();
    }
  }
  FaultDevice faulty(std::move(device_), FaultOptions());
  faulty.fail_reads(Lba{0}, 2 * kRingZoneLbas);
  EXPECT_EQ(MetadataRing::open(faulty, false).status().code(), Code::io_error);
}

// What the device does not give is no tear: the ring must not go on without what may be there.
TEST_F(MetadataDamageTest, UnreadableRecordsAreNotTakenForATear) {
  for (const unsigned records : {1u, 5u, 30u}) {
    make(records);
    save();
    const std::uint32_t zone = newest_zone();
    for (std::uint64_t lba = record_0(zone) + 3; lba < infos_[zone].written_lbas; lba += 2) {
      FaultDevice faulty(std::move(device_), FaultOptions());
      faulty.fail_reads(Lba{zone * kRingZoneLbas + lba}, 2);
      EXPECT_EQ(MetadataRing::open(faulty, false).status().code(), Code::io_error) << lba;
      const Result<MetadataRing> inspected = MetadataRing::open(faulty, true);
      ASSERT_TRUE(inspected.ok());
      EXPECT_FALSE(inspected->damage().empty() || inspected->repairable()) << lba;
      device_ = faulty.take_inner();
    }
  }
}

// All of a zone cannot be read: the older one is not needed, the newer one may not be passed over.
TEST_F(MetadataDamageTest, AnUnreadableZone) {
  make(30);
  save();
  const std::uint32_t newer = newest_zone();
  for (std::uint32_t zone = 0; zone < 2; ++zone) {
    FaultDevice faulty(std::move(device_), FaultOptions());
    faulty.fail_reads(Lba{zone * kRingZoneLbas}, kRingZoneLbas);
    const Result<MetadataRing> ring = MetadataRing::open(faulty, false);
    if (zone == newer) {
      EXPECT_EQ(ring.status().code(), Code::io_error);
    } else {
      ASSERT_TRUE(ring.ok()) << ring.status().describe();
      EXPECT_EQ(ring->state(), state_);
    }
    device_ = faulty.take_inner();
  }
}

// Reads that fail in passing are tried again; where that does not help, nothing is made up.
TEST_F(MetadataDamageTest, ReadErrorsInPassing) {
  make(30);
  unsigned opened = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    FaultOptions options;
    options.seed = seed;
    options.read_error = seed % 2 == 0 ? 0.1 : 0.5;
    FaultDevice faulty(std::move(device_), options);
    const Result<MetadataRing> ring = MetadataRing::open(faulty, false);
    if (ring.ok()) {
      ++opened;
      ASSERT_EQ(ring->state(), state_) << "seed " << seed;
    } else {
      ASSERT_EQ(ring.status().code(), Code::io_error) << ring.status().describe();
    }
    device_ = faulty.take_inner();
  }
  EXPECT_GT(opened, 90u);
}

TEST_F(MetadataDamageTest, AZoneGoesOffline) {
  make(30);
  const auto report = device_->report();
  const std::uint32_t active = (*report)[0].state == ZoneState::full ? 1 : 0;
  FaultDevice faulty(std::move(device_), FaultOptions());
  faulty.degrade(ZoneId{1 - active}, ZoneState::offline);
  Result<MetadataRing> ring = MetadataRing::open(faulty, false);
  ASSERT_TRUE(ring.ok());
  EXPECT_EQ(ring->state(), state_);
  EXPECT_FALSE(ring->damage().empty());
  Status status;
  for (int i = 0; i < 30 && status.ok(); ++i) status = ring->append(changes_.next(ring->state()));
  EXPECT_FALSE(status.ok());  // nowhere to roll to
}

// With three zones the ring goes on without one.
TEST_F(MetadataDamageTest, AThirdZoneStandsIn) {
  make(30, 3);
  FaultDevice faulty(std::move(device_), FaultOptions());
  Result<MetadataRing> ring = MetadataRing::open(faulty, false);
  ASSERT_TRUE(ring.ok());
  const auto report = faulty.report();
  std::uint32_t victim = 0;
  while ((*report)[victim].state != ZoneState::full) ++victim;
  faulty.degrade(ZoneId{victim}, ZoneState::read_only);
  for (int i = 0; i < 100; ++i) {
    const Status status = ring->append(changes_.next(ring->state()));
    ASSERT_TRUE(status.ok()) << status.describe();
  }
  const Result<MetadataRing> again = MetadataRing::open(faulty, false);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->state(), ring->state());
}

// A write or flush that fails: either the ring found another place, or it says so and the state is
// as before; and so it is after opening again.
TEST_F(MetadataDamageTest, FailingWritesAndFlushes) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    make(10 + static_cast<unsigned>(seed % 15));
    FaultOptions options;
    options.seed = seed;
    options.write_error = seed % 2 == 0 ? 0.15 : 0;
    options.flush_error = seed % 2 == 1 ? 0.15 : 0;
    FaultDevice faulty(std::move(device_), options);
    PoolState expected = state_;
    {
      Result<MetadataRing> ring = MetadataRing::open(faulty, false);
      if (!ring.ok()) continue;  // its flush failed
      for (int i = 0; i < 40; ++i) {
        const JournalRecord record = changes_.next(expected);
        if (ring->append(record).ok()) {
          ASSERT_TRUE(apply(expected, record).ok());
        }
        ASSERT_EQ(ring->state(), expected) << "seed " << seed;
      }
      // The last one settles what the failed ones may have left on the medium.
      bool settled = false;
      for (int i = 0; i < 50 && !settled; ++i) {
        settled = ring->append(changes_.next(ring->state())).ok();
      }
      ASSERT_TRUE(settled);
      expected = ring->state();
    }
    const Result<MetadataRing> again = MetadataRing::open(faulty, true);
    ASSERT_TRUE(again.ok()) << "seed " << seed << " " << again.status().describe();
    EXPECT_EQ(again->state(), expected) << "seed " << seed;
  }
}

// A repair repeats what the superblock before it says of the pool. One that says otherwise must not
// be taken over: the ring would write it into the next zone, and the pool would never open again.
TEST_F(MetadataDamageTest, SuperblocksOfOneZoneThatContradictEachOtherAreRefused) {
  make(1);
  save();
  const std::uint32_t zone = newest_zone();
  const std::uint64_t end_lba = infos_[zone].written_lbas;
  ASSERT_LT(end_lba, kRingCapacityLbas);
  std::copy_n(images_[zone].begin(), kRingLbaBytes,
              images_[zone].begin() + end_lba * kRingLbaBytes);
  infos_[zone].written_lbas = end_lba + 1;
  restore();
  flip_bit(*device_, ZoneId{1 - zone}, 0);  // no zone's first superblock shows who is right
  ASSERT_TRUE(MetadataRing::open(*device_, true).ok()) << "the same superblock once more";
  const auto rename_pool = [&](std::span<std::byte> lba) {
    Superblock other = *decode_superblock(lba);
    other.name = "other";
    ++other.checkpoint;
    encode(other, lba);
  };
  change_lba(*device_, ZoneId{zone}, end_lba, rename_pool);
  const Result<MetadataRing> ring = MetadataRing::open(*device_, false);
  ASSERT_FALSE(ring.ok());
  EXPECT_EQ(ring.status().code(), Code::corrupt) << ring.status().describe();
}

}  // namespace
}  // namespace furrow
