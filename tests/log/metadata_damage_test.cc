// Establishes that no single damage and no power cut loses an acknowledged record of the metadata
// ring: a cut after each LBA that a run of records and rolls writes, in both crash models; each LBA
// of each ring zone damaged in turn; both together, the cut falling into the repair. What is
// damaged beyond repair is refused, and still there to be inspected. (Media errors and failing
// writes: metadata_errors_test.)
#include "tests/log/metadata_damage_rig.h"
#include "tests/log/tap_device.h"

namespace furrow {
namespace {

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

// A roll that a power cut takes back as a whole leaves bytes of its section behind the write
// pointer. No record may follow in the zone that it came from: the next roll has the same number,
// and what it shows of the one before, where it is torn, would count without that record.
TEST_F(MetadataDamageTest, NoRecordFollowsWhereARollHasBegun) {
  for (const CrashModel model : {CrashModel::drive, CrashModel::emu}) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      make(0);
      save();
      const std::uint32_t left = newest_zone();
      JournalRecord counts_again;  // which rolls, whatever room there is
      counts_again.kind = JournalRecord::Kind::zone_trimmed;
      counts_again.trim = {5, ZoneTrimRecord::kNothing, ZoneTrimRecord::kAnyLife};
      with_faults(
          seed,
          [&](FaultDevice& faulty) {
            Result<MetadataRing> ring = MetadataRing::open(faulty, false);
            ASSERT_TRUE(ring.ok());
            faulty.cut_after(1 + seed % 5, model);
            ASSERT_FALSE(ring->append(counts_again).ok());
          },
          model);
      EXPECT_EQ((*device_->report())[left].state, ZoneState::full) << "seed " << seed;
    }
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
  for (int rolls = 0; rolls < 2; ++rolls) {
    ASSERT_TRUE(ring->append(resize_of(ring->state())).ok());
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

// .. and finishes that one: what was torn there stays no damage until the ring rolls again,
// whatever shows of what the zone held before.
TEST_F(MetadataDamageTest, ATornRollWhoseZoneIsFinishedIsNoDamage) {
  unsigned records = 0;
  do {
    make(++records);
  } while (state_.volumes.empty());
  auto* const tap = new TapDevice(std::move(device_));
  device_.reset(tap);
  Images before;
  Result<MetadataRing> rolling = MetadataRing::open(*device_, false);
  ASSERT_TRUE(rolling.ok());
  for (int rolls = 0; rolls < 3; ++rolls) {  // with room for more in the zone that is left
    save();
    before = images_;
    ASSERT_TRUE(rolling->append(resize_of(rolling->state())).ok());
  }
  save();
  const std::uint32_t zone = newest_zone(), left = 1 - zone;
  const std::uint64_t end = record_0(zone) + 3;
  for (std::uint64_t shown = 0; shown < std::uint64_t{1} << end; ++shown) {
    std::vector<std::byte> torn(images_[zone].size());
    for (std::uint64_t lba = 0; lba < end; ++lba) {
      const std::size_t at = lba * kRingLbaBytes;
      if ((shown >> lba & 1) != 0) std::copy_n(&before[zone][at], kRingLbaBytes, &torn[at]);
    }
    const std::string what = "LBAs " + std::to_string(shown);
    restore();
    rewrite_zone(*device_, ZoneId{zone}, torn, end, false);
    rewrite_zone(*device_, ZoneId{left}, images_[left], end_of_zone(left), false);
    Result<MetadataRing> ring = MetadataRing::open(*device_, false);
    ASSERT_TRUE(ring.ok()) << what << ": " << ring.status().describe();
    tap->fail(Io::Op::reset, {Code::io_error, Origin::zone});
    const Status appended = ring->append(opening_of(ring->state()));
    ASSERT_TRUE(appended.ok()) << what << ": " << appended.describe();
    ASSERT_EQ(device_->zone(ZoneId{zone}).state, ZoneState::full) << what;
    expect_no_damage(what);
    const Result<MetadataRing> again = MetadataRing::open(*device_, false);
    ASSERT_TRUE(again.ok() && again->state() == ring->state()) << what;
    if (HasFatalFailure()) return;
  }
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

// .. also where one of its superblocks is. No roll was torn there.
TEST_F(MetadataDamageTest, ASuperblockIsNothingToFallBackOn) {
  make(30);
  save();
  const std::uint32_t left = 1 - newest_zone();
  const std::uint64_t second = record_0(left) + 2;
  for (const std::uint64_t kept : {std::uint64_t{0}, second}) {
    restore();
    for (std::uint64_t lba = 0; lba < kRingCapacityLbas; ++lba) {
      if (lba != kept) damage(ZoneId{left}, lba, true);
    }
    const Result<MetadataRing> inspected = MetadataRing::open(*device_, true);
    ASSERT_TRUE(inspected.ok());
    EXPECT_EQ(inspected->damage().size(), 1u) << kept;
    for (const std::string& note : inspected->notes()) ADD_FAILURE() << kept << ": " << note;
    Result<MetadataRing> ring = MetadataRing::open(*device_, false);
    ASSERT_TRUE(ring.ok() && ring->repair().ok()) << kept;
    expect_no_damage("repaired");
  }
}

// So it is when a write of a roll has failed, and the device has ended the zone, which was reset
// for it: the next opening rolls into that one first.
TEST_F(MetadataDamageTest, AnOpeningMakesUpForARollThatFailed) {
  make(5);
  save();
  const std::uint32_t left = 1 - newest_zone();
  rewrite_zone(*device_, ZoneId{left}, {}, 0, true);
  Result<MetadataRing> inspected = MetadataRing::open(*device_, true);
  ASSERT_TRUE(inspected.ok());
  EXPECT_EQ(inspected->damage().size(), 1u);
  Result<MetadataRing> ring = MetadataRing::open(*device_, false);
  ASSERT_TRUE(ring.ok() && ring->append(opening_of(ring->state())).ok());
  expect_no_damage("opened");
}

// A roll failed, which sealed its zone, and a power cut left no checkpoint of it: the other zone,
// which was not reset, stands for itself. Together they could be read, and never written again.
TEST_F(MetadataDamageTest, ARollThatFailedAndSealedItsZoneIsNotBuiltUpon) {
  unsigned rolls = 0;
  for (unsigned records = 1; records < 60 && rolls < 3; ++records) {
    make(records);
    acknowledged_ = state_;
    Result<MetadataRing> ring = MetadataRing::open(*device_, false);
    ASSERT_TRUE(ring.ok() && ring->append(opening_of(state_)).ok());
    attempted_ = ring->state();
    save();
    const std::uint32_t zone = newest_zone();
    const std::uint64_t end = record_0(zone) + 3;
    if (infos_[zone].written_lbas != end) continue;
    ++rolls;
    for (std::uint64_t kept = 0; kept < std::uint64_t{1} << end; ++kept) {
      const auto is_kept = [&](std::uint64_t lba) { return (kept >> lba & 1) != 0; };
      bool whole = true;  // the checkpoint
      for (std::uint64_t lba = 1; lba < record_0(zone); ++lba) whole &= is_kept(lba);
      if (whole) continue;
      std::vector<std::byte> left = images_[zone];
      for (std::uint64_t lba = 0; lba < end; ++lba) {
        if (!is_kept(lba)) std::fill_n(&left[lba * kRingLbaBytes], kRingLbaBytes, std::byte{});
      }
      restore();
      rewrite_zone(*device_, ZoneId{zone}, left, end, true);
      expect_survived("kept LBAs " + std::to_string(kept));
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_EQ(rolls, 3u);
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

// Where every checkpoint is lost, journals tell where zones end; but not that one is void: that is
// said of a zone that a repair was writing to, and the record that it is whole may be lost.
TEST_F(MetadataDamageTest, WithoutACheckpointNoZoneIsTakenForVoid) {
  make(0);
  Result<MetadataRing> ring = MetadataRing::open(*device_, false);
  ASSERT_TRUE(ring.ok());
  for (const std::uint32_t end_lba : {0u, 9u}) {
    JournalRecord trimmed;
    trimmed.kind = JournalRecord::Kind::zone_trimmed;
    trimmed.trim = {.zone = 4 + end_lba / 9, .end_lba = end_lba, .generation = 7};
    ASSERT_TRUE(ring->append(trimmed).ok());
  }
  ASSERT_EQ(ring->state().trims.size(), 2u);
  save();
  for (std::uint32_t zone = 0; zone < 2; ++zone) {
    for (std::uint64_t lba = 0; lba < end_of_zone(zone); ++lba) {
      const auto bytes = std::span(images_[zone]).subspan(lba * kRingLbaBytes, kRingLbaBytes);
      if (has_magic(bytes, Magic::checkpoint)) flip_bit(*device_, ZoneId{zone}, lba);
    }
  }
  const Result<MetadataRing> lost = MetadataRing::open(*device_, true, true);
  ASSERT_TRUE(lost.ok()) << lost.status().describe();
  ASSERT_EQ(lost->state().trims.size(), 1u);
  EXPECT_EQ(lost->state().trims.front().zone, 5u);
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

}  // namespace
}  // namespace furrow
