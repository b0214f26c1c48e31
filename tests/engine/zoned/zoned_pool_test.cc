// Establishes what a pool owes to its zoned volumes: zones that nobody else writes, reads for
// structure or resets, whatever is in them, until the volume is deleted and they are free again,
// also when that was cut off; shares of the device's open and active zones that add up; refusals
// that say why; and that checking, repairing and rebuilding the pool go around them.
#include "log/metadata_ring.h"
#include "log/structure.h"
#include "tests/engine/zoned/zones.h"
#include "zone/blocking.h"
#include "zone/fault_device.h"

namespace furrow::testing {
namespace {

using Kind = ZonedOp::Kind;

constexpr std::uint64_t kPoolZoneLbas = 64;  // LBAs of a zone
constexpr std::uint32_t kDeviceZones = 32, kRing = 2;
constexpr const char* kPoolDevice = "mem:8MiB?zone_size=256KiB&mor=10&mar=10";

VolumeOptions pages_options(std::uint64_t zones, const char* name = "pages") {
  VolumeOptions options;
  options.name = name;
  options.mode = VolumeMode::store;
  options.quota_bytes = zones * kPoolZoneLbas * 4096;
  options.value_bytes_max = 16 << 10;
  return options;
}

class ZonedPoolTest : public ::testing::Test {
 protected:
  void make_pages() {
    ASSERT_NO_FATAL_FAILURE(zones_.rig.make(pages_options(8)));
    for (std::uint64_t key = 0; key < kKeys; ++key) ASSERT_TRUE(put(key, 1).ok());
  }
  Result<PageStore*> create(const VolumeOptions& options) {
    const Result<PageStore*> made = zones_.rig.pool->create_volume(options);
    if (made.ok() && (*made)->info().options.kind == VolumeKind::zoned) {
      zones_.rig.store = *made;
      zones_.connect();
    }
    return made;
  }
  Status put(std::uint64_t key, std::uint64_t version) {
    zones_.rig.store = zones_.rig.pool->find("pages");
    const Status status = zones_.rig.put(key, version, 9000);
    zones_.rig.store = zones_.rig.pool->find("zones");
    return status;
  }
  void expect_pages(std::uint64_t version) {
    zones_.rig.store = zones_.rig.pool->find("pages");
    ASSERT_NE(zones_.rig.store, nullptr);
    for (std::uint64_t key = 0; key < kKeys; ++key) {
      const auto page = zones_.rig.get(key);
      ASSERT_TRUE(page.ok()) << key << ": " << page.status().describe();
      ASSERT_EQ(*page, content(key, version, 9000));
    }
    zones_.rig.store = zones_.rig.pool->find("zones");
  }
  // What lies in a zone of the device, from its start on.
  AlignedBuffer bytes_of(std::uint32_t zone, std::uint64_t lbas) {
    AlignedBuffer bytes;
    auto queue = zones_.rig.device->create_queue(4);
    const Lba first = zones_.rig.device->geometry().zone_start(ZoneId{zone});
    EXPECT_TRUE(read_blocking(**queue, first, static_cast<std::uint32_t>(lbas), 4096, bytes).ok());
    return bytes;
  }
  void write_bytes(std::uint64_t lba, AlignedBuffer& bytes) {
    ZonedOp op;
    op.kind = Kind::write;
    op.lba = lba;
    op.count = bytes.size() / 4096;
    op.data = bytes.data();
    ASSERT_TRUE(zones_.run(op).ok());
  }
  // Into the volume's first zones: what the pool's own zones hold, the ring and the pages.
  void write_pool_structures() {
    const auto report = *zones_.rig.device->report();
    std::uint32_t to = 0;
    for (std::uint32_t from = 0; from < kDeviceZones && to < 5; ++from) {
      const bool its = from >= first_zone() && from < first_zone() + 6;
      if (report[from].written_lbas == 0 || its) continue;
      AlignedBuffer bytes = bytes_of(from, report[from].written_lbas);
      // The pages' own zones name their number: these are forged to name where they stand.
      if (from >= kRing) forge(bytes, first_zone() + to);
      ASSERT_NO_FATAL_FAILURE(write_bytes(zones_.start(to), bytes));
      copies_.push_back(std::move(bytes));
      ++to;
    }
    ASSERT_GE(to, 4u);
    // And a superblock of a version to come, which would refuse the pool.
    AlignedBuffer newer = bytes_of(0, 1);
    seal(newer.span(), Magic::superblock, kFormatVersion + 1);
    ASSERT_NO_FATAL_FAILURE(write_bytes(zones_.start(5), newer));
    ASSERT_EQ(zones_.status_of(Kind::close, zones_.start(5)), 0);
  }
  static void forge(AlignedBuffer& bytes, std::uint32_t zone) {
    auto header = bytes.span().first(4096);
    if (!has_magic(header, Magic::zone_header)) return;
    Uuid pool;
    std::memcpy(pool.data(), header.data() + kPrefixBytes, pool.size());
    ByteReader reader(header.subspan(kPrefixBytes + pool.size()));
    const ZoneId from{reader.take<std::uint32_t>()};
    ZoneHeader forged = *decode_zone_header(header, pool, from);
    forged.stamp.zone = ZoneId{zone};
    forged.stamp.generation += 1000;  // newer than the pool's own
    forged.opened_sequence += 1000;
    encode(forged, header);
  }
  void expect_pool_structures() {
    for (std::uint32_t i = 0; i < copies_.size(); ++i) {
      AlignedBuffer there;
      ASSERT_TRUE(zones_.read(zones_.start(i), copies_[i].size() / 4096, there).ok());
      ASSERT_TRUE(equal(there.span(), copies_[i].span())) << i;
    }
  }
  // While the pool is closed: a batch header of a zone of the pages, in a segment that is closed.
  void damage_pages() {
    auto& device = *zones_.rig.device;
    const auto report = *device.report();
    const auto damaged = std::ranges::find_if(report, [this](const ZoneInfo& info) {
      const std::uint32_t zone = info.zone.value;
      const bool its = !copies_.empty() && zone >= first_ && zone < first_ + 6;
      return zone >= kRing && !its && info.state == ZoneState::full;
    });
    ASSERT_NE(damaged, report.end());
    AlignedBuffer bytes = bytes_of(damaged->zone.value, kPoolZoneLbas);
    bytes.data()[60] ^= std::byte{1};
    auto queue = device.create_queue(4);
    ASSERT_TRUE(manage_blocking(**queue, Io::Op::reset, damaged->zone).ok());
    Io io;
    io.op = Io::Op::write;
    io.zone = damaged->zone;
    io.lba = device.geometry().zone_start(io.zone);
    io.set_data(bytes.data(), kPoolZoneLbas, 4096);
    ASSERT_TRUE(run_blocking(**queue, io).ok());
  }
  std::uint32_t first_zone() const { return first_; }
  CheckReport check() {
    Pool::OpenOptions inspect;
    inspect.read_only = inspect.as_repaired = true;
    const auto pool = Pool::open(*zones_.rig.device, zones_.rig.loop, inspect);
    EXPECT_TRUE(pool.ok()) << pool.status().describe();
    const auto report = pool.ok() ? (*pool)->check({}) : Result<CheckReport>(pool.status());
    return report.ok() ? *report : CheckReport();
  }
  void repair() {
    const auto repaired =
        Pool::repair(*zones_.rig.device, zones_.rig.loop, Pool::OpenOptions::kCallingThread);
    ASSERT_TRUE(repaired.ok()) << repaired.status().describe();
    for (const std::string& line : repaired->failed) ADD_FAILURE() << line;
  }
  // A pool of pages with zones beside it that hold what the pool's hold.
  void make_all() {
    ASSERT_NO_FATAL_FAILURE(make_pages());
    const auto free = *zones_.rig.device->report();
    ASSERT_TRUE(create(zoned_options(6, 6, 6)).ok());
    // The longest run of empty zones is behind the pages.
    first_ = kRing;
    for (std::uint32_t i = kRing; i < kDeviceZones; ++i) {
      if (free[i].written_lbas != 0) first_ = i + 1;
    }
    ASSERT_NO_FATAL_FAILURE(write_pool_structures());
    ASSERT_NO_FATAL_FAILURE(expect_pages(1));
  }

  static constexpr std::uint64_t kKeys = 30;
  Zones zones_{kPoolDevice};
  std::vector<AlignedBuffer> copies_;
  std::uint32_t first_ = 0;
};

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

// A device's zones on one that allows fewer of them to be open and active.
class Narrower final : public ZonedDevice {
 public:
  Narrower(ZonedDevice& inner, std::uint32_t open, std::uint32_t active)
      : ZonedDevice(inner.geometry(), inner.uri()), inner_(inner) {
    geometry_.open_zones_max = open;
    geometry_.active_zones_max = active;
  }
  Result<std::unique_ptr<IoQueue>> create_queue(unsigned depth) override {
    return inner_.create_queue(depth);
  }
  Result<std::vector<ZoneInfo>> report() override { return inner_.report(); }
  ZoneInfo zone(ZoneId zone) const override { return inner_.zone(zone); }

 private:
  ZonedDevice& inner_;
};

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
