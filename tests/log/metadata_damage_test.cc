// Establishes that no single damage and no power cut loses an acknowledged record of the metadata
// ring: a cut after each LBA that a run of records and rolls writes, in both crash models; each LBA
// of each ring zone damaged in turn; both together, the cut falling into the repair; media errors
// and failing writes. What is damaged beyond repair is refused, and still there to be inspected.
#include "log/structure.h"
#include "tests/log/ring_fixture.h"
#include "tests/log/tap_device.h"
#include "zone/fault_device.h"

namespace furrow {
namespace {

using Images = std::vector<std::vector<std::byte>>;

class MetadataDamageTest : public testing::Test {
 protected:
  // A pool whose ring has rolled some times; `state_` is what was acknowledged.
  void make(unsigned records, std::uint32_t metadata_zones = 2) {
    device_ = small_device();
    state_ = PoolState();
    ASSERT_TRUE(MetadataRing::format(*device_,
                                     small_superblock(device_->geometry(), metadata_zones), state_)
                    .ok());
    Result<MetadataRing> ring = MetadataRing::open(*device_, false);
    ASSERT_TRUE(ring.ok());
    for (unsigned i = 0; i < records; ++i) {
      ASSERT_TRUE(ring->append(changes_.next(state_)).ok());
      state_ = ring->state();
    }
  }
  void save() {
    infos_ = *device_->report();
    images_.clear();
    for (std::uint32_t zone = 0; zone < 3; ++zone) {
      images_.push_back(read_zone(*device_, ZoneId{zone}));
    }
  }
  void restore() {
    for (std::uint32_t zone = 0; zone < 3; ++zone) {
      const bool full = infos_[zone].state == ZoneState::full;
      rewrite_zone(*device_, ZoneId{zone}, images_[zone],
                   full ? kRingCapacityLbas : infos_[zone].written_lbas, full);
    }
  }
  // Hands the device to a FaultDevice, runs, cuts the power, and takes back what survived.
  void with_faults(std::uint64_t seed, const std::function<void(FaultDevice&)>& run,
                   CrashModel model) {
    FaultOptions options;
    options.seed = seed;
    FaultDevice faulty(std::move(device_), options);
    run(faulty);
    ASSERT_TRUE(faulty.power_cut(model).ok());
    device_ = faulty.take_inner();
  }
  // Appends until an error; `acknowledged` is the state then, `attempted` the one of the record
  // that failed.
  void append_until_error(ZonedDevice& device, unsigned records) {
    acknowledged_ = attempted_ = state_;
    Result<MetadataRing> ring = MetadataRing::open(device, false);
    if (!ring.ok()) return;
    ASSERT_EQ(ring->state(), state_);
    for (unsigned i = 0; i < records; ++i) {
      const JournalRecord record =
          i == 0 ? opening_of(acknowledged_) : changes_.next(acknowledged_);
      attempted_ = acknowledged_;
      ASSERT_TRUE(apply(attempted_, record).ok());
      if (!ring->append(record).ok()) {
        ASSERT_EQ(ring->state(), acknowledged_);
        return;
      }
      acknowledged_ = attempted_;
    }
  }
  // What a pool that was opened writes first.
  static JournalRecord opening_of(const PoolState& state) {
    JournalRecord opened;
    opened.open_count = state.open_count + 1;
    return opened;
  }
  // A power cut tears, which is no damage: not before the next opening, and not after it.
  void expect_no_damage(const std::string& what) {
    const Result<MetadataRing> inspected = MetadataRing::open(*device_, true);
    ASSERT_TRUE(inspected.ok()) << what << ": " << inspected.status().describe();
    for (const std::string& text : inspected->damage()) FAIL() << what << ": " << text;
  }
  void expect_survived(const std::string& what) {
    Result<MetadataRing> ring = MetadataRing::open(*device_, false);
    ASSERT_TRUE(ring.ok()) << what << ": " << ring.status().describe();
    ASSERT_TRUE(ring->state() == acknowledged_ || ring->state() == attempted_) << what;
    for (int i = 0; i < 3; ++i) {
      const Status status =
          ring->append(i == 0 ? opening_of(ring->state()) : changes_.next(ring->state()));
      ASSERT_TRUE(status.ok()) << what << ": " << status.describe();
    }
    const Result<MetadataRing> again = MetadataRing::open(*device_, false);
    ASSERT_TRUE(again.ok()) << what << ": " << again.status().describe();
    ASSERT_EQ(again->state(), ring->state()) << what;
  }
  // The zone that the journal is in, of the saved images.
  std::uint32_t newest_zone() const {
    const auto number = [&](std::uint32_t zone) {
      return decode_superblock(std::span(images_[zone]).first(kRingLbaBytes))->checkpoint;
    };
    return number(0) > number(1) ? 0 : 1;
  }

  static void damage(ZonedDevice& device, ZoneId zone, std::uint64_t lba, bool zeroed) {
    if (!zeroed) return flip_bit(device, zone, lba);
    change_lba(device, zone, lba,
               [](std::span<std::byte> bytes) { std::ranges::fill(bytes, std::byte{}); });
  }
  void damage(ZoneId zone, std::uint64_t lba, bool zeroed) { damage(*device_, zone, lba, zeroed); }
  JournalRecord::Kind newest_began_with() const {
    const std::uint32_t zone = newest_zone();
    Uuid pool;
    pool.fill(7);
    const auto lba =
        std::span(images_[zone]).subspan(record_0(zone) * kRingLbaBytes, kRingLbaBytes);
    return decode_journal(lba, pool)->record.kind;
  }
  // Damages an LBA of the saved images that was written.
  void expect_named(std::uint32_t zone, std::uint64_t lba, bool zeroed, const std::string& made) {
    const std::string what =
        made + ", zone " + std::to_string(zone) + " LBA " + std::to_string(lba);
    restore();
    damage(ZoneId{zone}, lba, zeroed);
    const Result<MetadataRing> inspected = MetadataRing::open(*device_, true);
    ASSERT_TRUE(inspected.ok()) << what;
    ASSERT_EQ(inspected->state(), state_) << what;
    ASSERT_TRUE(inspected->repairable()) << what;
    const bool newest = zone == newest_zone();
    const std::uint64_t end = end_of_zone(zone);
    const bool rolled = end == record_0(zone) + 3;
    const bool last = lba + 2 >= end || rolled;
    using enum JournalRecord::Kind;
    const JournalRecord::Kind kind = newest_began_with();
    const bool left_orderly = kind != opened && kind != zone_trimmed;
    const bool formatted_it = rolled && kind == formatted;
    const bool may_be_torn = last && !formatted_it && (newest || !left_orderly);
    const bool noted = may_be_torn && (newest || rolled);
    ASSERT_EQ(!inspected->notes().empty(), noted) << what;
    ASSERT_EQ(inspected->damage().empty(), may_be_torn) << what;
    Result<MetadataRing> ring = MetadataRing::open(*device_, false);
    ASSERT_TRUE(ring.ok()) << what << ": " << ring.status().describe();
    ASSERT_EQ(ring->state(), state_) << what;
    if (!newest) {
      ASSERT_TRUE(ring->repair().ok()) << what;
      expect_no_damage(what + ", repaired");
      return;
    }
    // The next record makes it whole.
    ASSERT_TRUE(ring->append(changes_.next(ring->state())).ok()) << what;
    const Result<MetadataRing> again = MetadataRing::open(*device_, true);
    ASSERT_TRUE(again.ok() && again->state() == ring->state()) << what;
    flip_bit(*device_, ZoneId{zone}, lba);
    const Result<MetadataRing> fallback = MetadataRing::open(*device_, true);
    ASSERT_TRUE(fallback.ok() && fallback->state() == ring->state()) << what;
  }

  std::uint64_t record_0(std::uint32_t zone) const {
    std::uint64_t lba = 0;
    while (!has_magic(std::span(images_[zone]).subspan(lba * kRingLbaBytes), Magic::journal)) ++lba;
    return lba;
  }
  // Behind the last LBA of a zone that is not all zeroes, in the saved images.
  std::uint64_t end_of_zone(std::uint32_t zone) const {
    const auto used = [](std::byte byte) { return byte != std::byte{0}; };
    const auto last = std::find_if(images_[zone].rbegin(), images_[zone].rend(), used);
    return static_cast<std::uint64_t>(images_[zone].rend() - last + kRingLbaBytes - 1) /
           kRingLbaBytes;
  }

  std::unique_ptr<ZonedDevice> device_;
  RandomChanges changes_{test_seed()};
  PoolState state_, acknowledged_, attempted_;
  std::vector<ZoneInfo> infos_;
  Images images_;
};

TEST_F(MetadataDamageTest, PowerCutAfterEachLba) {
  for (const CrashModel model : {CrashModel::drive, CrashModel::emu}) {
    // 30 records roll at least once; each record is one LBA, a roll a few more.
    for (std::uint64_t cut = 1; cut < 40; ++cut) {
      for (std::uint64_t seed = 1; seed <= 4; ++seed) {
        make(static_cast<unsigned>(13 + seed * 5));
        with_faults(
            seed * 1000 + cut,
            [&](FaultDevice& faulty) {
              faulty.cut_after(cut, model);
              append_until_error(faulty, 30);
            },
            model);
        const std::string what = "cut " + std::to_string(cut) + " seed " + std::to_string(seed);
        expect_no_damage(what);
        expect_survived(what);
        expect_no_damage(what + ", opened");
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Formatting, cut: either not yet a pool, or the whole of it.
TEST_F(MetadataDamageTest, PowerCutWhileFormatting) {
  for (std::uint64_t cut = 1; cut <= 6; ++cut) {
    device_ = small_device();
    with_faults(
        cut,
        [&](FaultDevice& faulty) {
          faulty.cut_after(cut, CrashModel::drive);
          const Status status =
              MetadataRing::format(faulty, small_superblock(faulty.geometry()), PoolState());
          EXPECT_EQ(status.ok(), cut > 6);
        },
        CrashModel::drive);
    const Result<MetadataRing> ring = MetadataRing::open(*device_, true);
    if (ring.ok()) {
      EXPECT_EQ(ring->state(), PoolState());
    }
    ASSERT_TRUE(
        MetadataRing::format(*device_, small_superblock(device_->geometry()), PoolState()).ok());
  }
}

// Any LBA of any ring zone, damaged, the last one too: the state is exactly what was acknowledged,
// and what is damaged is named, in the zone that the ring has left as well. Of the last record, and
// of a roll that no record follows, any LBA may also have been torn, which is told as a note.
TEST_F(MetadataDamageTest, EachLbaDamaged) {
  for (const unsigned records : {0u, 5u, 21u, 50u}) {
    for (const bool zeroed : {false, true}) {
      make(records);
      save();
      for (std::uint32_t zone = 0; zone < 2; ++zone) {
        for (std::uint64_t lba = 0; lba < end_of_zone(zone); ++lba) {
          expect_named(zone, lba, zeroed, std::to_string(records) + " records");
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Superblock, checkpoint and first record of the newest section, with no record behind them: a
// power cut in a roll leaves any of them, and the next opening makes it whole.
TEST_F(MetadataDamageTest, ATornRollIsNoDamage) {
  unsigned rolls = 0;
  for (unsigned records = 1; records < 60; ++records) {
    make(records);
    save();
    const std::uint32_t zone = newest_zone();
    const std::uint64_t end = record_0(zone) + 3;
    if (infos_[zone].written_lbas != end) continue;
    ++rolls;
    for (std::uint64_t torn = 1; torn < std::uint64_t{1} << end; ++torn) {
      const std::string what = std::to_string(records) + " records, LBAs " + std::to_string(torn);
      restore();
      for (std::uint64_t lba = 0; lba < end; ++lba) {
        if ((torn >> lba & 1) != 0) damage(ZoneId{zone}, lba, true);
      }
      expect_no_damage(what);
      Result<MetadataRing> ring = MetadataRing::open(*device_, false);
      ASSERT_TRUE(ring.ok()) << what << ": " << ring.status().describe();
      ASSERT_TRUE(ring->append(opening_of(ring->state())).ok()) << what;
      expect_no_damage(what + ", opened");
      if (HasFatalFailure()) return;
    }
    if (rolls == 2) break;
  }
  EXPECT_EQ(rolls, 2u);
}

// Under a torn roll what the zone held before may show: it is superseded, not damaged.
TEST_F(MetadataDamageTest, WhatATornRollShowsOfAnEarlierLifeIsNoDamage) {
  unsigned records = 0;
  do {
    make(++records);
    save();
  } while (newest_zone() != 0);
  ASSERT_EQ(infos_[0].written_lbas, record_0(0) + 3) << "just rolled, over section 1";
  for (const std::uint64_t lba : {0u, 1u}) damage(ZoneId{0}, lba, false);
  change_lba(*device_, ZoneId{0}, record_0(0) + 1, [&](std::span<std::byte> bytes) {
    JournalEntry stale;
    stale.pool.fill(7);
    stale.checkpoint = 1;
    stale.copy = 1;
    stale.record.kind = JournalRecord::Kind::formatted;
    encode(stale, bytes);
  });
  expect_no_damage("torn");
}

// .. also where that is as long as what was torn, with the record that it ended with.
TEST_F(MetadataDamageTest, ATornRollOverOneThatNoRecordFollowsIsNoDamage) {
  unsigned records = 0;
  do {
    make(++records);
  } while (state_.volumes.empty());
  Result<MetadataRing> ring = MetadataRing::open(*device_, false);
  ASSERT_TRUE(ring.ok());
  JournalRecord resized;
  resized.kind = JournalRecord::Kind::volume_resized;
  resized.volume.id = state_.volumes.front().id;
  resized.volume.quota_zones = state_.volumes.front().quota_zones;
  for (int rolls = 0; rolls < 2; ++rolls) {
    ++resized.volume.quota_zones;
    ASSERT_TRUE(ring->append(resized).ok());
  }
  save();
  const std::uint32_t left = 1 - newest_zone();
  const std::uint64_t end = record_0(left) + 3;
  ASSERT_EQ(end_of_zone(left), end) << "no record follows";
  for (std::uint64_t torn = 0; torn < std::uint64_t{1} << end; ++torn) {
    restore();
    rewrite_zone(*device_, ZoneId{left}, images_[left], end, false);
    for (std::uint64_t lba = 0; lba < end; ++lba) {
      if ((torn >> lba & 1) != 0) damage(ZoneId{left}, lba, true);
    }
    expect_no_damage("LBAs " + std::to_string(torn));
    if (HasFatalFailure()) return;
  }
}

// .. and where its zone cannot be reset, the ring goes on where it is.
TEST_F(MetadataDamageTest, ATornRollWhoseZoneCannotBeReset) {
  unsigned rolls = 0;
  for (unsigned records = 1; records < 60 && rolls < 2; ++records) {
    make(records);
    save();
    const std::uint32_t zone = newest_zone();
    const std::uint64_t end = record_0(zone) + 3;
    if (infos_[zone].written_lbas != end) continue;
    ++rolls;
    restore();
    for (std::uint64_t lba = 0; lba < end; ++lba) damage(ZoneId{zone}, lba, true);
    const std::uint32_t left = 1 - zone;  // whose finish the power cut has undone
    rewrite_zone(*device_, ZoneId{left}, images_[left], end_of_zone(left), false);
    TapDevice tap(std::move(device_));
    Result<MetadataRing> ring = MetadataRing::open(tap, false);
    ASSERT_TRUE(ring.ok()) << ring.status().describe();
    tap.fail(Io::Op::reset, {Code::io_error, Origin::zone}, 100);
    const Status appended = ring->append(opening_of(ring->state()));
    EXPECT_TRUE(appended.ok()) << appended.describe();
    const Result<MetadataRing> again = MetadataRing::open(tap, true);
    ASSERT_TRUE(again.ok()) << again.status().describe();
    EXPECT_EQ(again->state(), ring->state());
  }
  EXPECT_EQ(rolls, 2u);
}

// The zone that the ring has left stands in for the newest checkpoint: with nothing whole in it
// there is nothing to fall back on.
TEST_F(MetadataDamageTest, NothingToFallBackOn) {
  for (const bool zeroed : {false, true}) {
    make(30);
    save();
    const std::uint32_t left = 1 - newest_zone();
    for (std::uint64_t lba = 0; lba < kRingCapacityLbas; ++lba) {
      damage(ZoneId{left}, lba, zeroed);
    }
    Result<MetadataRing> inspected = MetadataRing::open(*device_, true);
    ASSERT_TRUE(inspected.ok());
    EXPECT_EQ(inspected->damage().size(), 1u);
    Result<MetadataRing> ring = MetadataRing::open(*device_, false);
    ASSERT_TRUE(ring.ok() && ring->repair().ok());
    expect_no_damage("repaired");
  }
}

// Both copies of a record: refused where others follow. Of the last one they cannot be told from a
// tear, and that is said.
TEST_F(MetadataDamageTest, BothCopiesDamaged) {
  for (const unsigned records : {5u, 21u, 50u}) {
    make(records);
    save();
    const std::uint32_t zone = newest_zone();
    const std::uint64_t end = infos_[zone].written_lbas;
    for (std::uint64_t lba = record_0(zone) + 3; lba < end; lba += 2) {
      restore();
      flip_bit(*device_, ZoneId{zone}, lba);
      flip_bit(*device_, ZoneId{zone}, lba + 1);
      const Result<MetadataRing> inspected = MetadataRing::open(*device_, true);
      ASSERT_TRUE(inspected.ok());
      const Result<MetadataRing> ring = MetadataRing::open(*device_, false);
      if (lba + 2 < end) {
        ASSERT_EQ(ring.status().code(), Code::corrupt) << lba;
        ASSERT_FALSE(inspected->damage().empty() || inspected->repairable()) << lba;
      } else {
        ASSERT_TRUE(ring.ok()) << ring.status().describe();
        ASSERT_EQ(inspected->notes().size(), 1u);
        ASSERT_TRUE(inspected->damage().empty());
      }
    }
  }
}

// Damage is repaired by the next record, and a cut after each LBA of that repair loses nothing.
TEST_F(MetadataDamageTest, PowerCutDuringTheRepair) {
  for (const CrashModel model : {CrashModel::drive, CrashModel::emu}) {
    for (const unsigned records : {3u, 30u}) {
      make(records);
      save();
      for (std::uint32_t zone = 0; zone < 2; ++zone) {
        for (std::uint64_t lba = 0; lba < 3; ++lba) {
          for (std::uint64_t cut = 1; cut < 14; ++cut) {
            const std::string what = std::to_string(records) + " records, zone " +
                                     std::to_string(zone) + " LBA " + std::to_string(lba) +
                                     " cut " + std::to_string(cut);
            restore();
            flip_bit(*device_, ZoneId{zone}, lba);
            with_faults(
                cut + lba * 100,
                [&](FaultDevice& faulty) {
                  faulty.cut_after(cut, model);
                  append_until_error(faulty, 5);
                },
                model);
            expect_survived(what);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

// The ring rolls because a copy of its only record has rotted: it has reset the other zone and
// finished this one, and the power fails. A file then has what an earlier life of the other zone
// left behind, under the write pointer of what was to come.
TEST_F(MetadataDamageTest, WhatAResetZoneHadBeforeDoesNotComeBackForASealedOne) {
  unsigned rolled = 0;
  for (unsigned records = 1; records < 60; ++records) {
    make(records);
    save();
    const std::uint32_t newest = newest_zone(), other = 1 - newest;
    const std::uint64_t end = record_0(newest) + 3;
    if (infos_[newest].written_lbas != end) continue;
    ++rolled;
    for (std::uint64_t copy = end - 3; copy < end - 1; ++copy) {
      for (std::uint64_t written = 1; written <= end; ++written) {
        restore();
        rewrite_zone(*device_, ZoneId{other}, images_[other], written, false);
        rewrite_zone(*device_, ZoneId{newest}, images_[newest], end, true);
        flip_bit(*device_, ZoneId{newest}, copy);
        const Result<MetadataRing> ring = MetadataRing::open(*device_, false);
        ASSERT_TRUE(ring.ok()) << ring.status().describe();
        ASSERT_EQ(ring->state(), state_) << records << " records, LBA " << copy << ", " << written;
      }
    }
  }
  EXPECT_GT(rolled, 1u);
}

TEST_F(MetadataDamageTest, RepairIsComplete) {
  make(30);
  save();
  for (std::uint32_t zone = 0; zone < 2; ++zone) {
    for (std::uint64_t lba = 0; lba < 3; ++lba) {
      restore();
      flip_bit(*device_, ZoneId{zone}, lba);
      Result<MetadataRing> ring = MetadataRing::open(*device_, false);
      ASSERT_TRUE(ring.ok());
      for (int i = 0; i < 60; ++i) ASSERT_TRUE(ring->append(changes_.next(ring->state())).ok());
      const Result<MetadataRing> again = MetadataRing::open(*device_, false);
      ASSERT_TRUE(again.ok());
      EXPECT_EQ(again->state(), ring->state());
      EXPECT_TRUE(again->damage().empty());
    }
  }
}

// A checkpoint with the highest number that there is: readable, and nothing can come after it.
TEST_F(MetadataDamageTest, NumbersUsedUp) {
  make(30);
  Superblock superblock = MetadataRing::open(*device_, true)->superblock();
  const PoolState state = MetadataRing::open(*device_, true)->state();
  superblock.checkpoint = ~std::uint64_t{0};
  const std::size_t checkpoint_lbas = (checkpoint_bytes(state) + kRingLbaBytes - 1) / kRingLbaBytes;
  AlignedBuffer section((checkpoint_lbas + 4) * kRingLbaBytes);
  const auto lbas = [&](std::size_t at, std::size_t count) {
    return section.span().subspan(at * kRingLbaBytes, count * kRingLbaBytes);
  };
  encode(superblock, lbas(0, 1));
  encode(Checkpoint{superblock.pool, superblock.checkpoint, state}, lbas(1, checkpoint_lbas));
  JournalEntry first{superblock.pool, superblock.checkpoint, 0, 1, 0, {}};
  first.record.kind = JournalRecord::Kind::formatted;
  for (first.copy = 0; first.copy < kJournalCopies; ++first.copy) {
    encode(first, lbas(checkpoint_lbas + 1 + first.copy, 1));
  }
  encode(superblock, lbas(checkpoint_lbas + 3, 1));
  for (std::uint32_t zone = 0; zone < 2; ++zone) {
    rewrite_zone(*device_, ZoneId{zone}, section.span(), checkpoint_lbas + 4, false);
  }
  Result<MetadataRing> ring = MetadataRing::open(*device_, false);
  ASSERT_TRUE(ring.ok()) << ring.status().describe();
  EXPECT_EQ(ring->state(), state);
  Status status;
  for (int i = 0; i < 60 && status.ok(); ++i) status = ring->append(changes_.next(ring->state()));
  EXPECT_EQ(status.code(), Code::corrupt) << status.describe();
}

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
