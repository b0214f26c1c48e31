// Establishes what zoned volumes may have of a device: shares of its open and active zones that add
// up, zones that are promised to nobody else, and as many volumes as the metadata has room for; and
// refusals that say why.
#include "tests/engine/zoned/zoned_pool_rig.h"

namespace furrow::testing {
namespace {

TEST_F(ZonedPoolTest, SharesAddUp) {
  // 10 open and active zones, of which the ring has one.
  ASSERT_NO_FATAL_FAILURE(zones_.rig.make(pages_options(4)));  // and a second for collection
  EXPECT_EQ(create(zoned_options(4, 8, 8)).status().code(), Code::too_many_zones);
  EXPECT_EQ(create(zoned_options(4, 3, 2)).status().code(), Code::invalid_argument);
  EXPECT_EQ(create(zoned_options(4, 10, 10)).status().code(), Code::invalid_argument);
  ASSERT_TRUE(create(zoned_options(4, 4, 7)).ok());
  VolumeOptions another = zoned_options(1, 1, 1);
  another.name = "another";
  EXPECT_EQ(create(another).status().code(), Code::too_many_zones);
  EXPECT_EQ(create(pages_options(4, "more")).status().code(), Code::too_many_zones);
  ASSERT_NO_FATAL_FAILURE(zones_.reopen());
  EXPECT_EQ(create(another).status().code(), Code::too_many_zones);
  zones_.session.reset();
  ASSERT_TRUE(zones_.rig.pool->delete_volume("zones").ok());
  zones_.rig.return_zones();
  // Of what is left by default one half.
  ASSERT_TRUE(create(zoned_options(20)).ok());
  EXPECT_EQ(zones_.geometry().active_zones_max, 4u);
  EXPECT_EQ(zones_.geometry().open_zones_max, 4u);
  ASSERT_TRUE(create(another).ok());
  ASSERT_TRUE(create(pages_options(4, "more")).ok());
}

// One open zone for the ring, one for each volume of pages, and what the zoned one was given.
TEST_F(ZonedPoolTest, ADeviceThatAllowsFewerZonesThanItsVolumesNeedIsRefused) {
  ASSERT_NO_FATAL_FAILURE(zones_.rig.make(pages_options(4)));
  ASSERT_TRUE(create(pages_options(4, "more")).ok());
  ASSERT_TRUE(create(zoned_options(4, 2, 3)).ok());
  zones_.close();
  Pool::OpenOptions options;
  const auto open = [&](std::uint32_t open_max, std::uint32_t active_max) {
    Narrower device(*zones_.rig.device, open_max, active_max);
    const auto pool = Pool::open(device, zones_.rig.loop, options);
    while (pool.ok() && !(*pool)->quiesce()) zones_.rig.loop.run_once();
    return pool.status();
  };
  EXPECT_TRUE(open(5, 6).ok());
  for (const auto& [open_max, active_max] :
       {std::pair{4u, 6u}, std::pair{5u, 5u}, std::pair{2u, 2u}}) {
    const Status status = open(open_max, active_max);
    EXPECT_EQ(status.code(), Code::too_many_zones) << open_max << ", " << active_max;
    EXPECT_NE(status.describe().find("than the pool's volumes need"), std::string::npos)
        << status.describe();
  }
  options.read_only = true;  // it opens none
  EXPECT_TRUE(open(2, 2).ok());
  ASSERT_NO_FATAL_FAILURE(zones_.open());
}

// Answers so many more reports of its zones.
class Reticent final : public ZonedDevice {
 public:
  explicit Reticent(std::unique_ptr<ZonedDevice> inner)
      : ZonedDevice(inner->geometry(), inner->uri()), inner_(std::move(inner)) {}
  Result<std::unique_ptr<IoQueue>> create_queue(unsigned depth) override {
    return inner_->create_queue(depth);
  }
  Result<std::vector<ZoneInfo>> report() override {
    if (answers == 0) return Status(Code::io_error, Origin::zone, "no report");
    --answers;
    return inner_->report();
  }
  ZoneInfo zone(ZoneId zone) const override { return inner_->zone(zone); }

  unsigned answers = 1000;

 private:
  std::unique_ptr<ZonedDevice> inner_;
};

// And is there after the next opening only if it was made.
TEST_F(ZonedPoolTest, IsMadeOrNotWhereTheDeviceDoesNotSayItsZones) {
  bool made = false;
  for (unsigned answers = 0; !made; ++answers) {
    Zones zones("unused");
    auto inner = open_device(kPoolDevice, Access::exclusive);
    ASSERT_TRUE(inner.ok());
    auto device = std::make_unique<Reticent>(std::move(*inner));
    Reticent& reticent = *device;
    zones.rig.device = std::move(device);
    ASSERT_NO_FATAL_FAILURE(zones.rig.make(pages_options(8)));
    reticent.answers = answers;
    made = zones.rig.pool->create_volume(zoned_options(6)).ok();
    reticent.answers = 1000;
    zones.close();
    ASSERT_NO_FATAL_FAILURE(zones.rig.open());
    EXPECT_EQ(zones.rig.pool->find("zones") != nullptr, made) << answers;
    EXPECT_EQ(zones.rig.pool->info().zones_bad, 0u);
  }
}

TEST_F(ZonedPoolTest, OthersAreNotPromisedItsZones) {
  ASSERT_NO_FATAL_FAILURE(zones_.rig.make(pages_options(8)));
  EXPECT_EQ(create(zoned_options(kDeviceZones - kRing - 7)).status().code(), Code::no_space);
  ASSERT_TRUE(create(zoned_options(kDeviceZones - kRing - 8 - 3)).ok());
  EXPECT_EQ(create(pages_options(4, "more")).status().code(), Code::no_space);
  ASSERT_TRUE(create(pages_options(3, "more")).ok());
  ASSERT_NO_FATAL_FAILURE(zones_.reopen());
  // What the pages were promised is theirs.
  std::uint64_t stored = 0;
  while (put(stored, 1).ok()) ++stored;
  EXPECT_GT(stored * 12288, 4 * kPoolZoneLbas * 4096);
  EXPECT_EQ(zones_.rig.pool->info().zones_bad, 0u);
  for (std::uint32_t i = 0; i < zones_.geometry().zone_count; ++i) {
    ASSERT_EQ(zones_.zone(i).written_lbas, 0u);
  }
}

TEST_F(ZonedPoolTest, RefusesWhatIsNotOne) {
  ASSERT_NO_FATAL_FAILURE(zones_.rig.make(pages_options(8)));
  const auto refused = [&](auto change) {
    VolumeOptions options = zoned_options(4);
    change(options);
    return create(options).status().code() == Code::invalid_argument;
  };
  EXPECT_TRUE(refused([](VolumeOptions& options) { options.zones = 0; }));
  EXPECT_TRUE(refused([](VolumeOptions& options) { options.mode = VolumeMode::cache; }));
  EXPECT_TRUE(refused([](VolumeOptions& options) { options.quota_bytes = 1 << 20; }));
  EXPECT_TRUE(refused([](VolumeOptions& options) { options.block_lba_bytes = 512; }));
  EXPECT_TRUE(refused([](VolumeOptions& options) { options.kind = VolumeKind::kv; }));
  ASSERT_TRUE(create(zoned_options(4)).ok());
  EXPECT_EQ(create(zoned_options(4)).status().code(), Code::exists);
}

// Of a device with gaps, by volumes that come and go, what it gets is in order all the same.
TEST_F(ZonedPoolTest, ItsZonesNeedNotBeNeighbours) {
  ASSERT_NO_FATAL_FAILURE(zones_.rig.make(pages_options(3)));
  for (unsigned i = 0; i < 7; ++i) {
    VolumeOptions options = zoned_options(3, 1, 1);
    options.name = "part" + std::to_string(i);
    ASSERT_TRUE(create(options).ok()) << i;
  }
  for (const char* name : {"part0", "part2", "part4", "part6"}) {
    ASSERT_TRUE(zones_.rig.pool->delete_volume(name).ok());
  }
  zones_.rig.return_zones();
  ASSERT_TRUE(create(zoned_options(12, 2, 2)).ok());
  zones_.rig.store = zones_.rig.pool->find("zones");
  for (std::uint32_t i = 0; i < 12; ++i) {
    ASSERT_TRUE(zones_.write(zones_.start(i), kPoolZoneLbas, 5).ok());
  }
  ASSERT_NO_FATAL_FAILURE(zones_.reopen());
  for (std::uint32_t i = 0; i < 12; ++i)
    ASSERT_TRUE(zones_.holds(zones_.start(i), kPoolZoneLbas, 5)) << i;
}

// Many of one zone each are more than a third of the zones: what there is room for in the metadata,
// with a trim of each zone that is not theirs, is all that there can be, as no store could go on
// without those.
TEST_F(ZonedPoolTest, AsManyAsTheMetadataHasRoomFor) {
  Rig rig("mem:7008KiB?zone_size=96KiB&lba=4096&mor=0&mar=0");
  VolumeOptions store = pages_options(0, "pages");
  store.quota_bytes = 6 * (96 << 10);
  store.value_bytes_max = 4096;
  ASSERT_NO_FATAL_FAILURE(rig.make(store));
  const Geometry& geometry = rig.device->geometry();
  Status status;
  while (status.ok()) {
    VolumeOptions options = zoned_options(1, 0, 0);
    options.name = "part" + std::to_string(rig.pool->stores().size());
    status = rig.pool->create_volume(options).status();
  }
  EXPECT_EQ(status.code(), Code::no_space) << status.describe();
  EXPECT_GE(rig.pool->stores().size(), (geometry.zone_count - kRing) / 3);
  EXPECT_TRUE(MetadataRing::has_room_for(geometry, rig.pool->stores().size(), {}))
      << rig.pool->stores().size();
}

}  // namespace
}  // namespace furrow::testing
