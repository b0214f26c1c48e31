// Establishes what a pool owes to its zoned volumes: zones that nobody else writes, reads for
// structure or resets, whatever is in them, until the volume is deleted and they are free again,
// also when that was cut off; and that checking, repairing and rebuilding the pool go around them.
// (What they may have of the device: zoned_limits_test.)
#include "tests/engine/zoned/zoned_pool_rig.h"

namespace furrow::testing {
namespace {

TEST_F(ZonedPoolTest, NothingThatIsWrittenInItsZonesMattersToThePool) {
  ASSERT_NO_FATAL_FAILURE(make_all());
  for (unsigned round = 0; round < 3; ++round) {
    if (round == 1) {
      zones_.drop();
      ASSERT_NO_FATAL_FAILURE(zones_.open());
    } else {
      ASSERT_NO_FATAL_FAILURE(zones_.reopen());
    }
    ASSERT_NO_FATAL_FAILURE(expect_pages(1));
    ASSERT_NO_FATAL_FAILURE(expect_pool_structures());
  }
  // Collection and scrub go their rounds.
  zones_.close();
  zones_.rig.open_options.scrub_bytes_per_s = 1 << 30;
  zones_.rig.open_options.scrub_pause_s = 0;
  ASSERT_NO_FATAL_FAILURE(zones_.open());
  for (std::uint64_t version = 2; version < 30; ++version) {
    for (std::uint64_t key = 0; key < kKeys; ++key) ASSERT_TRUE(put(key, version).ok());
  }
  ASSERT_NO_FATAL_FAILURE(expect_pages(29));
  ASSERT_NO_FATAL_FAILURE(expect_pool_structures());
  zones_.close();
  zones_.rig.open_options = {};
  const CheckReport report = check();
  EXPECT_TRUE(report.damage.empty()) << report.damage.front().text;
  ASSERT_NO_FATAL_FAILURE(zones_.open());
  ASSERT_NO_FATAL_FAILURE(expect_pool_structures());
}

TEST_F(ZonedPoolTest, RepairGoesAroundItsZones) {
  ASSERT_NO_FATAL_FAILURE(make_all());
  zones_.close();
  ASSERT_NO_FATAL_FAILURE(damage_pages());
  EXPECT_FALSE(check().damage.empty());
  ASSERT_NO_FATAL_FAILURE(repair());
  EXPECT_TRUE(check().damage.empty());
  ASSERT_NO_FATAL_FAILURE(zones_.open());
  ASSERT_NO_FATAL_FAILURE(expect_pages(1));
  ASSERT_NO_FATAL_FAILURE(expect_pool_structures());
}

// The zones of the volume that are empty are no room for a repair either.
TEST_F(ZonedPoolTest, RepairTakesNoZoneOfIt) {
  ASSERT_NO_FATAL_FAILURE(make_pages());
  ASSERT_TRUE(create(zoned_options(kDeviceZones - kRing - 8, 2, 2)).ok());
  zones_.close();
  ASSERT_NO_FATAL_FAILURE(damage_pages());
  ASSERT_NO_FATAL_FAILURE(repair());
  ASSERT_NO_FATAL_FAILURE(zones_.open());
  for (std::uint32_t i = 0; i < zones_.geometry().zone_count; ++i) {
    ASSERT_EQ(zones_.zone(i).state, ZoneState::empty) << i;
  }
  ASSERT_NO_FATAL_FAILURE(expect_pages(1));
}

TEST_F(ZonedPoolTest, DeletionGivesItsZonesBack) {
  ASSERT_NO_FATAL_FAILURE(make_all());
  const std::uint64_t free = zones_.rig.pool->info().zones_free;
  zones_.session.reset();
  ASSERT_TRUE(zones_.rig.pool->delete_volume("zones").ok());
  EXPECT_EQ(zones_.rig.pool->find("zones"), nullptr);
  zones_.rig.return_zones();
  EXPECT_EQ(zones_.rig.pool->info().zones_free, free + 6);
  for (std::uint32_t i = first_; i < first_ + 6; ++i) {
    EXPECT_EQ((*zones_.rig.device->report())[i].state, ZoneState::empty) << i;
  }
  // They are anybody's: the share of open zones as well.
  ASSERT_TRUE(create(pages_options(10, "more")).ok());
  ASSERT_TRUE(create(zoned_options(10, 5, 5)).ok());
  ASSERT_NO_FATAL_FAILURE(zones_.reopen());
  ASSERT_NO_FATAL_FAILURE(expect_pages(1));
  ASSERT_TRUE(zones_.write(0, 1).ok());
}

TEST_F(ZonedPoolTest, IsNotDeletedWhileItIsInUse) {
  ASSERT_NO_FATAL_FAILURE(make_all());
  AlignedBuffer data = zones_.data(0, 9, 1);
  for (const Kind kind : {Kind::append, Kind::read}) {
    ZonedOp op;
    op.kind = kind;
    op.lba = kind == Kind::append ? zones_.start(5) : 0;
    op.count = 1;
    op.data = data.data();
    zones_.submit(op);
    EXPECT_EQ(zones_.rig.pool->delete_volume("zones").code(), Code::busy);
    zones_.wait();
    EXPECT_TRUE(op.status.ok()) << op.status.describe();
  }
  PageStore* const store = zones_.rig.store;
  ASSERT_TRUE(zones_.rig.pool->delete_volume("zones").ok());
  for (const Kind kind : {Kind::append, Kind::read, Kind::reset}) {
    ZonedOp op;
    op.kind = kind;
    op.count = 1;
    op.data = data.data();
    zones_.rig.store = store;
    EXPECT_EQ(zones_.run(op).code(), Code::not_found);
  }
}

// A power cut after each LBA that a creation and a deletion write, the ring's among them.
TEST_F(ZonedPoolTest, CreationAndDeletionAreWholeAtAPowerCut) {
  unsigned there = 0, gone = 0;
  for (std::uint64_t lbas = 1; lbas < 30; ++lbas) {
    Zones zones("unused");
    auto inner = open_device(kPoolDevice, Access::exclusive);
    ASSERT_TRUE(inner.ok());
    FaultOptions options;
    options.seed = lbas;
    auto fault = std::make_unique<FaultDevice>(std::move(*inner), options);
    FaultDevice* device = fault.get();
    zones.rig.device = std::move(fault);
    ASSERT_NO_FATAL_FAILURE(zones.rig.make(pages_options(8)));
    const bool deletes = lbas % 2 == 0;
    if (deletes) {
      ASSERT_TRUE(zones.rig.pool->create_volume(zoned_options(6)).ok());
      zones.rig.store = zones.rig.pool->find("zones");
      zones.connect();
      for (std::uint32_t i = 0; i < 3; ++i) {
        ASSERT_TRUE(zones.write(zones.start(i), 5, 1, Durability::flushed).ok());
      }
    }
    device->cut_after(lbas, CrashModel::drive);
    if (deletes) {
      (void)zones.rig.pool->delete_volume("zones").ok();
      zones.rig.return_zones();
    } else {
      (void)zones.rig.pool->create_volume(zoned_options(6)).ok();
    }
    ASSERT_TRUE(device->power_cut(CrashModel::drive).ok());
    zones.close();
    std::unique_ptr<ZonedDevice> left = device->take_inner();
    zones.rig.device = std::move(left);
    ASSERT_NO_FATAL_FAILURE(zones.rig.open());
    const bool is_there = zones.rig.pool->find("zones") != nullptr;
    (is_there ? there : gone) += 1;
    if (is_there) {
      zones.rig.store = zones.rig.pool->find("zones");
      zones.connect();
      ASSERT_EQ(zones.geometry().zone_count, 6u);
      ASSERT_TRUE(!deletes || zones.holds(0, 5, 1));
      zones.session.reset();
      ASSERT_TRUE(zones.rig.pool->delete_volume("zones").ok());
    }
    zones.rig.return_zones();
    // Whatever it was, all zones but the ring's and the pages' are free and empty.
    const PoolInfo info = zones.rig.pool->info();
    EXPECT_EQ(info.zones_bad, 0u) << lbas;
    std::uint64_t empty = 0;
    for (const ZoneInfo& zone : *zones.rig.device->report()) {
      empty += zone.state == ZoneState::empty ? 1 : 0;
    }
    EXPECT_GE(empty, info.zones_free) << lbas;
    ASSERT_TRUE(zones.rig.pool->create_volume(zoned_options(kDeviceZones - kRing - 8)).ok());
  }
  EXPECT_GT(there, 3u);
  EXPECT_GT(gone, 3u);
}

// What a creation that was cut off has left is on its way back while another volume is made.
TEST_F(ZonedPoolTest, ACreationThatWasCutOffTakesNothingFromTheNextOne) {
  unsigned left = 0;
  for (const bool zoned : {true, false}) {
    for (std::uint64_t lbas = 1; lbas < 20; ++lbas) {
      SCOPED_TRACE(std::to_string(lbas) + (zoned ? ", zones" : ", pages"));
      Zones zones("unused");
      auto inner = open_device(kPoolDevice, Access::exclusive);
      ASSERT_TRUE(inner.ok());
      auto fault = std::make_unique<FaultDevice>(std::move(*inner), FaultOptions());
      FaultDevice* device = fault.get();
      zones.rig.device = std::move(fault);
      ASSERT_NO_FATAL_FAILURE(zones.rig.make(pages_options(8)));
      device->cut_after(lbas, CrashModel::drive);
      (void)zones.rig.pool->create_volume(zoned_options(6)).ok();
      ASSERT_TRUE(device->power_cut(CrashModel::drive).ok());
      zones.close();
      std::unique_ptr<ZonedDevice> its = device->take_inner();
      zones.rig.device = std::move(its);
      ASSERT_NO_FATAL_FAILURE(zones.rig.open());
      if (zones.rig.pool->find("zones") != nullptr) continue;
      left += zones.rig.pool->info().zones_returning != 0 ? 1 : 0;
      const auto made =
          zones.rig.pool->create_volume(zoned ? zoned_options(6) : pages_options(6, "zones"));
      ASSERT_TRUE(made.ok()) << made.status().describe();
      zones.rig.return_zones();
      EXPECT_EQ(zones.rig.pool->info().zones_bad, 0u);
      EXPECT_EQ(zones.rig.pool->info().zones_unpromised, kDeviceZones - kRing - 8 - 6);
      ASSERT_NO_FATAL_FAILURE(zones.rig.reopen());
      EXPECT_NE(zones.rig.pool->find("zones"), nullptr);
      EXPECT_EQ(zones.rig.pool->info().zones_returning, 0u);
    }
  }
  EXPECT_GT(left, 1u);
}

class LostRingTest : public ZonedPoolTest {
 protected:
  // Flips a bit of each structure of the ring that has one of `wanted`.
  void rot(std::initializer_list<Magic> wanted) {
    auto& device = *zones_.rig.device;
    for (std::uint32_t zone = 0; zone < kRing; ++zone) {
      const std::uint64_t written = (*device.report())[zone].state == ZoneState::full
                                        ? kPoolZoneLbas
                                        : (*device.report())[zone].written_lbas;
      AlignedBuffer bytes = bytes_of(zone, written);
      for (std::uint64_t at = 0; at < written; ++at) {
        const auto lba = bytes.span().subspan(at * 4096, 4096);
        const auto is = [&](Magic magic) { return has_magic(lba, magic); };
        if (std::ranges::any_of(wanted, is)) lba[60] ^= std::byte{1};
      }
      auto queue = device.create_queue(4);
      ASSERT_TRUE(manage_blocking(**queue, Io::Op::reset, ZoneId{zone}).ok());
      Io io;
      io.op = Io::Op::write;
      io.zone = ZoneId{zone};
      io.lba = device.geometry().zone_start(ZoneId{zone});
      io.set_data(bytes.data(), static_cast<std::uint32_t>(written), 4096);
      ASSERT_TRUE(run_blocking(**queue, io).ok());
    }
  }
};

// Its zones come back as a volume of all that is nobody's; nothing in them is reset.
TEST_F(LostRingTest, WithoutAnyCheckpointNothingOfItIsReset) {
  ASSERT_NO_FATAL_FAILURE(make_pages());
  ASSERT_TRUE(create(zoned_options(6, 2, 4)).ok());
  for (std::uint32_t i = 0; i < 4; ++i) ASSERT_TRUE(zones_.write(zones_.start(i), 7, i + 1).ok());
  zones_.close();
  ASSERT_NO_FATAL_FAILURE(rot({Magic::checkpoint, Magic::journal}));
  ASSERT_NO_FATAL_FAILURE(repair());
  ASSERT_NO_FATAL_FAILURE(zones_.rig.open());
  zones_.rig.store = zones_.rig.pool->find("recovered-zones");
  ASSERT_NE(zones_.rig.store, nullptr);
  zones_.connect();
  std::uint32_t found = 0;
  for (std::uint32_t i = 0; i < zones_.geometry().zone_count && found < 4; ++i) {
    // Contents go by the LBA that they had.
    AlignedBuffer there;
    ASSERT_TRUE(zones_.read(zones_.start(i), 7, there).ok());
    if (equal(there.span(), zones_.data(zones_.start(found), found + 1, 7).span())) ++found;
  }
  EXPECT_EQ(found, 4u);
  zones_.rig.store = zones_.rig.pool->find("recovered-1");
  for (std::uint64_t key = 0; key < kKeys; ++key) ASSERT_TRUE(zones_.rig.get(key).ok()) << key;
  zones_.session.reset();
  ASSERT_TRUE(zones_.rig.pool->delete_volume("recovered-zones").ok());
}

// The ring and the pages have all that such a device allows to be active, and a volume of the zones
// would have no limit: nothing is changed until the pool is on one that allows more.
TEST_F(LostRingTest, WithoutAnActiveZoneForThemNothingIsRebuilt) {
  ASSERT_NO_FATAL_FAILURE(make_pages());
  ASSERT_TRUE(create(zoned_options(6, 2, 4)).ok());
  ASSERT_TRUE(zones_.write(0, 7).ok());
  zones_.close();
  ASSERT_NO_FATAL_FAILURE(rot({Magic::checkpoint, Magic::journal}));
  const auto written = [this] {
    std::vector<std::uint64_t> lbas;
    for (const ZoneInfo& zone : *zones_.rig.device->report()) lbas.push_back(zone.written_lbas);
    return lbas;
  };
  const auto before = written();
  for (const std::uint32_t open_max : {2u, 10u}) {
    Narrower device(*zones_.rig.device, open_max, 2);
    const auto repaired = Pool::repair(device, zones_.rig.loop, Pool::OpenOptions::kCallingThread);
    EXPECT_EQ(repaired.status().code(), Code::too_many_zones) << open_max;
    EXPECT_EQ(written(), before) << open_max;
  }
  Narrower device(*zones_.rig.device, 3, 3);
  EXPECT_TRUE(Pool::repair(device, zones_.rig.loop, Pool::OpenOptions::kCallingThread).ok());
}

// One damaged checkpoint is nothing: the roll that lends zones leaves two ways to know.
TEST_F(LostRingTest, OneOfTheRingsZonesIsEnough) {
  for (const std::uint32_t lost : {0u, 1u}) {
    Zones zones(kPoolDevice);
    ASSERT_NO_FATAL_FAILURE(zones.rig.make(pages_options(8)));
    ASSERT_TRUE(zones.rig.pool->create_volume(zoned_options(6, 2, 4)).ok());
    zones.rig.store = zones.rig.pool->find("zones");
    zones.connect();
    ASSERT_TRUE(zones.write(0, 7).ok());
    zones.close();
    auto& device = *zones.rig.device;
    {
      const ZoneInfo info = (*device.report())[lost];
      const std::uint64_t written = std::min(info.written_lbas, kPoolZoneLbas);
      auto queue = device.create_queue(4);
      AlignedBuffer garbage(written * 4096);
      std::memset(garbage.data(), 0x5a, garbage.size());
      ASSERT_TRUE(manage_blocking(**queue, Io::Op::reset, ZoneId{lost}).ok());
      Io io;
      io.op = Io::Op::write;
      io.zone = ZoneId{lost};
      io.lba = device.geometry().zone_start(ZoneId{lost});
      io.set_data(garbage.data(), static_cast<std::uint32_t>(written), 4096);
      ASSERT_TRUE(run_blocking(**queue, io).ok());
    }
    const Result<MetadataRing> ring = MetadataRing::open(device, true);
    ASSERT_TRUE(ring.ok()) << ring.status().describe();
    std::uint64_t lent = 0;
    for (const LentZones& run : ring->state().lent) lent += run.count;
    EXPECT_EQ(lent, 6u) << "without zone " << lost;
  }
}

}  // namespace
}  // namespace furrow::testing
