// Establishes that a pool that has lost every checkpoint is refused, changed by nothing but a
// repair, and whole after that: volumes that a journal still tells of are what they were, others
// come back as stores named by their ids, every page is there, what was deleted or torn stays
// gone, and a power cut at any moment of the repair costs nothing. Without a superblock nothing can
// be done, which is said. LBAs of the metadata zones of a pool in memory are changed.
#include <map>

#include "engine/page_store_impl.h"
#include "log/metadata_ring.h"
#include "log/structure.h"
#include "tests/engine/rig.h"
#include "zone/blocking.h"
#include "zone/fault_device.h"

namespace furrow::testing::lost_checkpoints_test {
namespace {

constexpr std::uint32_t kLbaBytes = 4096;
constexpr std::uint64_t kKeys = 120;
constexpr std::size_t kPageBytes = 8000;
constexpr std::uint32_t kRingZones = 2;

VolumeOptions volume_named(const char* name, VolumeMode mode) {
  VolumeOptions options;
  options.name = name;
  options.mode = mode;
  options.quota_bytes = 10 << 20;
  options.value_bytes_max = 64 << 10;
  return options;
}

class LostCheckpointsTest : public ::testing::Test {
 protected:
  // A store and a cache, with the same keys in both.
  void make() {
    ASSERT_NO_FATAL_FAILURE(rig_.make(volume_named("pages", VolumeMode::store)));
    ASSERT_TRUE(rig_.pool->create_volume(volume_named("cached", VolumeMode::cache)).ok());
    for (std::uint64_t version = 1; version <= 2; ++version) {
      for (PageStore* const store : rig_.pool->stores()) {
        rig_.store = store;
        for (std::uint64_t key = 0; key < kKeys; ++key) {
          ASSERT_TRUE(rig_.put(key, version, kPageBytes).ok());
        }
      }
    }
    rig_.store = rig_.pool->stores().front();
    for (std::uint64_t key = 0; key < 10; ++key) {
      ASSERT_TRUE(rig_.simple(PageOp::Kind::remove, key).ok());
    }
    rig_.close();
  }
  void expect_all(const std::string& store, const std::string& cache) {
    for (const std::string& name : {store, cache}) {
      rig_.store = rig_.pool->find(name);
      ASSERT_NE(rig_.store, nullptr) << name;
      for (std::uint64_t key = 0; key < kKeys; ++key) {
        const auto page = rig_.get(key);
        if (name == store && key < 10) {
          ASSERT_EQ(page.status().code(), Code::not_found) << key;
          continue;
        }
        ASSERT_TRUE(page.ok()) << name << ' ' << key << ": " << page.status().describe();
        ASSERT_EQ(*page, content(key, 2, kPageBytes)) << key;
      }
    }
  }
  // Flips a bit of each structure of the ring that has one of `wanted`. How many.
  unsigned rot(std::initializer_list<Magic> wanted) {
    unsigned rotten = 0;
    for (std::uint32_t i = 0; i < kRingZones; ++i) rotten += rot(ZoneId{i}, wanted);
    return rotten;
  }
  unsigned rot(ZoneId zone, std::initializer_list<Magic> wanted, std::uint64_t lbas_max = ~0ul) {
    const Geometry& geometry = rig_.device->geometry();
    const ZoneInfo info = (*rig_.device->report())[zone.value];
    auto queue = rig_.device->create_queue(4);
    AlignedBuffer all(info.written_lbas * kLbaBytes);
    const auto transfer = [&](Io::Op op) {
      Io io;
      io.op = op;
      io.zone = zone;
      io.lba = geometry.zone_start(zone);
      io.set_data(all.data(), static_cast<std::uint32_t>(info.written_lbas), kLbaBytes);
      EXPECT_TRUE(run_blocking(**queue, io).ok());
    };
    if (info.written_lbas == 0) return 0;
    transfer(Io::Op::read);
    unsigned rotten = 0;
    for (std::uint64_t at = 0; at < std::min(lbas_max, info.written_lbas); ++at) {
      const auto lba = all.span().subspan(at * kLbaBytes, kLbaBytes);
      const auto is = [&](Magic magic) { return has_magic(lba, magic); };
      if (std::ranges::none_of(wanted, is)) continue;
      lba[60] ^= std::byte{1};
      ++rotten;
    }
    EXPECT_TRUE(manage_blocking(**queue, Io::Op::reset, zone).ok());
    transfer(Io::Op::write);
    return rotten;
  }
  // All checkpoints, and the journal up to the record that has `name`. The records are the
  // opening's and the volumes', two copies each.
  void rot_all_before(std::string_view name) {
    rot({Magic::checkpoint});
    const Geometry& geometry = rig_.device->geometry();
    auto queue = rig_.device->create_queue(4);
    const ZoneId active{1};
    AlignedBuffer lba(kLbaBytes);
    std::uint64_t before = 0;
    for (std::uint64_t at = 0; at < (*rig_.device->report())[active.value].written_lbas; ++at) {
      const auto bytes =
          read_blocking(**queue, Lba{geometry.zone_start(active).value + at}, 1, kLbaBytes, lba);
      ASSERT_TRUE(bytes.ok());
      const std::string text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
      if (text.find(name) != text.npos) break;
      before = at;
    }
    queue->reset();
    ASSERT_NE(before, 0u);
    rot(active, {Magic::journal}, before + 1);
  }
  CheckReport check() {
    Pool::OpenOptions inspect;
    inspect.read_only = inspect.as_repaired = true;
    const auto pool = Pool::open(*rig_.device, rig_.loop, inspect);
    EXPECT_TRUE(pool.ok()) << pool.status().describe();
    const auto report = pool.ok() ? (*pool)->check({}) : Result<CheckReport>(pool.status());
    return report.ok() ? *report : CheckReport();
  }
  void repair() {
    const auto repaired = Pool::repair(*rig_.device, rig_.loop, Pool::OpenOptions::kCallingThread);
    ASSERT_TRUE(repaired.ok()) << repaired.status().describe();
    for (const std::string& line : repaired->failed) ADD_FAILURE() << line;
  }
  void expect_refused(const char* hint) {
    Pool::OpenOptions options;
    for (const bool read_only : {false, true}) {
      options.read_only = read_only;
      const Status status = Pool::open(*rig_.device, rig_.loop, options).status();
      EXPECT_EQ(status.code(), Code::corrupt);
      EXPECT_NE(status.describe().find(hint), std::string::npos) << status.describe();
    }
    const Result<bool> blank = Pool::is_blank(*rig_.device);
    ASSERT_TRUE(blank.ok());
    EXPECT_FALSE(*blank) << "a server would make it a new pool";
  }
  // The device as it is now, and as it is after `change`.
  std::vector<std::uint64_t> written() {
    std::vector<std::uint64_t> lbas;
    for (const ZoneInfo& zone : *rig_.device->report()) lbas.push_back(zone.written_lbas);
    return lbas;
  }
  void finish_ring() {
    auto queue = rig_.device->create_queue(4);
    for (std::uint32_t i = 0; i < kRingZones; ++i) {
      ASSERT_TRUE(manage_blocking(**queue, Io::Op::finish, ZoneId{i}).ok());
    }
  }
  // Repairs with the power cut after each number of events, until one is not cut.
  void repair_through_cuts() {
    for (std::uint64_t events = 1;; ++events) {
      auto fault = std::make_unique<FaultDevice>(std::move(rig_.device), FaultOptions());
      FaultDevice* const faulty = fault.get();
      rig_.device = std::move(fault);
      faulty->cut_after(events, CrashModel::drive);
      const bool done =
          Pool::repair(*rig_.device, rig_.loop, Pool::OpenOptions::kCallingThread).ok();
      const bool cut = faulty->dead();
      rig_.device = faulty->take_inner();
      if (done && !cut) {
        EXPECT_GT(events, 3u) << "nothing was cut";
        return;
      }
      ASSERT_TRUE(cut) << "the repair fails by itself, at event " << events;
      ASSERT_LT(events, 5000u);
    }
  }

  Rig rig_{"mem:40MiB?zone_size=2MiB"};
};

TEST_F(LostCheckpointsTest, VolumesThatAJournalTellsOfAreWhatTheyWere) {
  ASSERT_NO_FATAL_FAILURE(make());
  EXPECT_GE(rot({Magic::checkpoint}), 2u);
  const auto before = written();
  ASSERT_NO_FATAL_FAILURE(expect_refused("--repair"));
  const CheckReport found = check();
  EXPECT_FALSE(found.clean());
  EXPECT_NE(found.pages, 0u) << "pages are checked as well";
  EXPECT_EQ(repair_plan(found).size(), 1u) << "the metadata zones";
  EXPECT_EQ(written(), before) << "nothing was changed";
  ASSERT_NO_FATAL_FAILURE(repair());
  EXPECT_TRUE(check().clean());
  ASSERT_NO_FATAL_FAILURE(rig_.open());
  ASSERT_NO_FATAL_FAILURE(expect_all("pages", "cached"));
  EXPECT_EQ(rig_.store->info().options.mode, VolumeMode::cache);
  ASSERT_TRUE(rig_.put(1000, 1, kPageBytes).ok());
  ASSERT_NO_FATAL_FAILURE(rig_.reopen());
  ASSERT_NO_FATAL_FAILURE(expect_all("pages", "cached"));
}

// A journal tells how they changed, and not of what.
TEST_F(LostCheckpointsTest, ReservationsAreForgottenAndThatIsSaid) {
  ASSERT_NO_FATAL_FAILURE(make());
  ASSERT_NO_FATAL_FAILURE(rig_.open());
  ReservationRecord record;
  record.volume = rig_.pool->find("pages")->info().id;
  record.persists = true;
  record.registrants.push_back({{1}, 11});
  ASSERT_TRUE(rig_.keep_reservations(record).ok());
  rig_.close();
  EXPECT_GE(rot({Magic::checkpoint}), 2u);
  const CheckReport found = check();
  const auto is_said = [](const std::string& note) {
    return note.find("reserved, is forgotten") != std::string::npos;
  };
  EXPECT_TRUE(std::ranges::any_of(found.notes, is_said));
  ASSERT_NO_FATAL_FAILURE(repair());
  EXPECT_TRUE(check().clean());
  ASSERT_NO_FATAL_FAILURE(rig_.open());
  EXPECT_FALSE(rig_.pool->reservations(record.volume).persists);
  EXPECT_TRUE(rig_.keep_reservations(record).ok());
  ASSERT_NO_FATAL_FAILURE(rig_.reopen());
  EXPECT_EQ(rig_.pool->reservations(record.volume), record);
}

TEST_F(LostCheckpointsTest, OthersComeBackAsStoresNamedByTheirIds) {
  ASSERT_NO_FATAL_FAILURE(make());
  rot({Magic::checkpoint, Magic::journal});
  ASSERT_NO_FATAL_FAILURE(expect_refused("--repair"));
  const CheckReport found = check();
  const std::vector<std::string> plan = repair_plan(found);
  ASSERT_EQ(plan.size(), 3u);
  EXPECT_NE(plan[1].find("'recovered-1'"), std::string::npos) << plan[1];
  EXPECT_NE(plan[2].find("'recovered-2'"), std::string::npos) << plan[2];
  ASSERT_NO_FATAL_FAILURE(repair());
  EXPECT_TRUE(check().clean());
  ASSERT_NO_FATAL_FAILURE(rig_.open());
  ASSERT_NO_FATAL_FAILURE(expect_all("recovered-1", "recovered-2"));
  EXPECT_EQ(rig_.store->info().options.mode, VolumeMode::store);
  EXPECT_EQ(rig_.pool->find("recovered-1")->info().options.nsid, 1u);
  EXPECT_EQ(rig_.store->info().options.nsid, 2u);
  const auto made = rig_.pool->create_volume(volume_named("more", VolumeMode::store));
  ASSERT_TRUE(made.ok()) << made.status().describe();
  EXPECT_EQ((*made)->info().id, 3u) << "an id is used once";
  ASSERT_TRUE(rig_.put(1000, 1, kPageBytes).ok());
  ASSERT_NO_FATAL_FAILURE(rig_.reopen());
  ASSERT_NO_FATAL_FAILURE(expect_all("recovered-1", "recovered-2"));
}

// One of two volumes stands in a journal.
TEST_F(LostCheckpointsTest, AVolumeBesideOneThatIsKnown) {
  ASSERT_NO_FATAL_FAILURE(make());
  ASSERT_NO_FATAL_FAILURE(rot_all_before("cached"));
  ASSERT_NO_FATAL_FAILURE(repair());
  EXPECT_TRUE(check().clean());
  ASSERT_NO_FATAL_FAILURE(rig_.open());
  ASSERT_NO_FATAL_FAILURE(expect_all("recovered-1", "cached"));
  EXPECT_NE(rig_.pool->find("recovered-1")->info().options.nsid, rig_.store->info().options.nsid);
}

// And has the namespace that would be the first free one; it has no zone yet.
TEST_F(LostCheckpointsTest, AVolumeBesideAnEmptyOneThatIsKnown) {
  VolumeOptions options = volume_named("pages", VolumeMode::store);
  options.nsid = 5;
  ASSERT_NO_FATAL_FAILURE(rig_.make(options));
  ASSERT_TRUE(rig_.pool->create_volume(volume_named("empty", VolumeMode::store)).ok());
  ASSERT_TRUE(rig_.put(1, 1, kPageBytes).ok());
  rig_.close();
  ASSERT_NO_FATAL_FAILURE(rot_all_before("empty"));
  ASSERT_NO_FATAL_FAILURE(repair());
  EXPECT_TRUE(check().clean());
  ASSERT_NO_FATAL_FAILURE(rig_.open());
  ASSERT_NE(rig_.pool->find("empty"), nullptr);
  EXPECT_EQ(rig_.pool->find("empty")->info().options.nsid, 1u);
  rig_.store = rig_.pool->find("recovered-1");
  ASSERT_NE(rig_.store, nullptr);
  EXPECT_TRUE(rig_.get(1).ok());
}

TEST_F(LostCheckpointsTest, ThePowerFailsDuringTheRepair) {
  for (const bool journals : {true, false}) {
    ASSERT_NO_FATAL_FAILURE(make());
    if (journals) {
      rot({Magic::checkpoint});
    } else {
      rot({Magic::checkpoint, Magic::journal});
    }
    ASSERT_NO_FATAL_FAILURE(repair_through_cuts());
    EXPECT_TRUE(check().clean());
    ASSERT_NO_FATAL_FAILURE(rig_.open());
    ASSERT_NO_FATAL_FAILURE(journals ? expect_all("pages", "cached")
                                     : expect_all("recovered-1", "recovered-2"));
    rig_.close();
  }
}

// No room for a section behind what there is.
TEST_F(LostCheckpointsTest, BothMetadataZonesAreFull) {
  ASSERT_NO_FATAL_FAILURE(make());
  rot({Magic::checkpoint});
  ASSERT_NO_FATAL_FAILURE(finish_ring());
  ASSERT_NO_FATAL_FAILURE(repair_through_cuts());
  EXPECT_TRUE(check().clean());
  ASSERT_NO_FATAL_FAILURE(rig_.open());
  ASSERT_NO_FATAL_FAILURE(expect_all("pages", "cached"));
}

// The only whole superblock is in a full zone, and that zone must stay.
TEST_F(LostCheckpointsTest, OneSuperblockIsLeft) {
  for (std::uint32_t left = 0; left < kRingZones; ++left) {
    ASSERT_NO_FATAL_FAILURE(make());
    rot({Magic::checkpoint});
    rot(ZoneId{1 - left}, {Magic::superblock, Magic::journal});
    ASSERT_NO_FATAL_FAILURE(finish_ring());
    ASSERT_NO_FATAL_FAILURE(repair_through_cuts());
    EXPECT_TRUE(check().clean());
    ASSERT_NO_FATAL_FAILURE(rig_.open());
    ASSERT_NO_FATAL_FAILURE(left == 1 ? expect_all("pages", "cached")
                                      : expect_all("recovered-1", "recovered-2"));
    rig_.close();
  }
}

TEST_F(LostCheckpointsTest, WithoutASuperblockItIsSaidWhatCannotBeDone) {
  ASSERT_NO_FATAL_FAILURE(make());
  rot({Magic::superblock});
  const auto before = written();
  ASSERT_NO_FATAL_FAILURE(expect_refused("secret"));
  const auto repaired = Pool::repair(*rig_.device, rig_.loop);
  EXPECT_EQ(repaired.status().code(), Code::corrupt);
  EXPECT_NE(repaired.status().describe().find("secret"), std::string::npos);
  EXPECT_EQ(written(), before);
}

// A zone's damage is found, and mended, in the same run.
TEST_F(LostCheckpointsTest, AZoneIsDamagedAsWell) {
  ASSERT_NO_FATAL_FAILURE(make());
  rot({Magic::checkpoint, Magic::journal});
  std::uint32_t zone = kRingZones;
  while (rot(ZoneId{zone}, {Magic::zone_header}) == 0) ++zone;
  const CheckReport found = check();
  EXPECT_EQ(repair_plan(found).size(), 4u);
  ASSERT_NO_FATAL_FAILURE(repair());
  EXPECT_TRUE(check().clean());
  ASSERT_NO_FATAL_FAILURE(rig_.open());
  ASSERT_NO_FATAL_FAILURE(expect_all("recovered-1", "recovered-2"));
}

// Power cuts tear zones' ends; where, only the journal said. What was torn, or deleted since, does
// not come back with it gone, and nothing else goes.
TEST_F(LostCheckpointsTest, TornEndsStayVoid) {
  unsigned compared = 0;
  for (std::uint64_t round = 1; round <= 30; ++round) {
    ASSERT_NO_FATAL_FAILURE(rig_.make(volume_named("pages", VolumeMode::store)));
    std::map<std::uint64_t, std::optional<std::vector<std::byte>>> pages;
    for (unsigned cuts = 0; cuts < 3; ++cuts) {
      rig_.close();
      FaultOptions options;
      options.seed = round * 10 + cuts;
      auto fault = std::make_unique<FaultDevice>(std::move(rig_.device), options);
      FaultDevice* const faulty = fault.get();
      rig_.device = std::move(fault);
      ASSERT_NO_FATAL_FAILURE(rig_.open());
      faulty->cut_after(100 + options.seed * 37 % 300, CrashModel::drive);
      for (std::uint64_t i = 0; !faulty->dead(); ++i) {
        (void)rig_.put((i * 7 + cuts) % 40, options.seed, 3000 + i % 5 * 1000);
        if (i % 9 == 0) (void)rig_.simple(PageOp::Kind::remove, i % 40);
      }
      rig_.close();
      rig_.device = faulty->take_inner();
      ASSERT_NO_FATAL_FAILURE(rig_.open());
      for (std::uint64_t key = 0; key < 40; key += 3) {
        (void)rig_.simple(PageOp::Kind::remove, key);  // no tombstone where there is none
      }
    }
    for (std::uint64_t key = 0; key < 40; ++key) {
      auto page = rig_.get(key);
      pages[key] = page.ok() ? std::optional(std::move(*page)) : std::nullopt;
    }
    rig_.close();
    rot({Magic::checkpoint, Magic::journal});
    ASSERT_NO_FATAL_FAILURE(repair());
    EXPECT_TRUE(check().clean());
    ASSERT_NO_FATAL_FAILURE(rig_.open());
    if (rig_.store == nullptr) {  // there was no page at all
      for (const auto& [key, page] : pages) ASSERT_FALSE(page.has_value()) << key;
      rig_.close();
      continue;
    }
    ++compared;
    for (const auto& [key, page] : pages) {
      const auto got = rig_.get(key);
      ASSERT_EQ(got.ok(), page.has_value()) << "round " << round << " key " << key;
      if (page) {
        ASSERT_EQ(*got, *page) << "round " << round << " key " << key;
      }
    }
    rig_.close();
  }
  EXPECT_GT(compared, 20u);
}

// Where a journal still says what of a zone does not count, as its write failed, that is gone for
// good: it looks as whole as what does.
TEST_F(LostCheckpointsTest, WhatTheJournalSaysOfAZonesEndCounts) {
  ASSERT_NO_FATAL_FAILURE(rig_.make(volume_named("pages", VolumeMode::store)));
  const std::uint32_t zone = kRingZones;
  for (std::uint64_t key = 0; key < 5; ++key) ASSERT_TRUE(rig_.put(key, 1, kPageBytes).ok());
  const std::uint64_t end = (*rig_.device->report())[zone].written_lbas;
  for (std::uint64_t key = 5; key < 10; ++key) ASSERT_TRUE(rig_.put(key, 1, kPageBytes).ok());
  const std::uint64_t generation =
      static_cast<PageStoreImpl&>(*rig_.store).context().allocator.zone(ZoneId{zone}).generation;
  rig_.close();
  {
    Result<MetadataRing> ring = MetadataRing::open(*rig_.device, false);
    ASSERT_TRUE(ring.ok());
    JournalRecord trimmed;
    trimmed.kind = JournalRecord::Kind::zone_trimmed;
    trimmed.trim = {zone, static_cast<std::uint32_t>(end), generation};
    ASSERT_TRUE(ring->append(trimmed).ok());
  }
  EXPECT_GE(rot({Magic::checkpoint}), 2u);
  ASSERT_NO_FATAL_FAILURE(repair());
  ASSERT_NO_FATAL_FAILURE(rig_.open());
  for (std::uint64_t key = 0; key < 10; ++key) EXPECT_EQ(rig_.get(key).ok(), key < 5) << key;
}

// The zone that the journal is in has room for the repair's sections alone, and its superblocks are
// damaged.
TEST_F(LostCheckpointsTest, ASuperblockOfAZoneWithLittleRoom) {
  for (const bool both : {false, true}) {
    ASSERT_NO_FATAL_FAILURE(make());
    const ZoneId active{1};
    const auto left = [&] {
      return rig_.device->geometry().zone_capacity_lbas -
             (*rig_.device->report())[active.value].written_lbas;
    };
    {
      Result<MetadataRing> ring = MetadataRing::open(*rig_.device, false);
      ASSERT_TRUE(ring.ok());
      JournalRecord opened;
      opened.open_count = ring->state().open_count;
      while (left() > 13) {  // of sections of 5 LBAs two
        ++opened.open_count;
        ASSERT_TRUE(ring->append(opened).ok());
      }
    }
    ASSERT_GE(left(), 10u) << "the ring has rolled";
    ASSERT_GE(rot(active, {Magic::superblock}, both ? ~0ul : 1), 1u);
    const CheckReport found = check();
    EXPECT_FALSE(found.clean());
    EXPECT_FALSE(repair_plan(found).empty());
    ASSERT_NO_FATAL_FAILURE(repair_through_cuts());
    EXPECT_TRUE(check().clean());
    ASSERT_NO_FATAL_FAILURE(rig_.open());
    ASSERT_NO_FATAL_FAILURE(expect_all("pages", "cached"));
    rig_.close();
  }
}

}  // namespace
}  // namespace furrow::testing::lost_checkpoints_test
