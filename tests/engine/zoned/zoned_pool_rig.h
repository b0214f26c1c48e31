// ZonedPoolTest: a pool with a store of pages, beside which zoned volumes come and go.
#pragma once

#include "log/metadata_ring.h"
#include "log/structure.h"
#include "tests/engine/zoned/zones.h"
#include "zone/blocking.h"
#include "zone/fault_device.h"

namespace furrow::testing {

constexpr std::uint64_t kPoolZoneLbas = 64;  // LBAs of a zone
constexpr std::uint32_t kDeviceZones = 32, kRing = 2;
constexpr const char* kPoolDevice = "mem:8MiB?zone_size=256KiB&mor=10&mar=10";

inline VolumeOptions pages_options(std::uint64_t zones, const char* name = "pages") {
  VolumeOptions options;
  options.name = name;
  options.mode = VolumeMode::store;
  options.quota_bytes = zones * kPoolZoneLbas * 4096;
  options.value_bytes_max = 16 << 10;
  return options;
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

class ZonedPoolTest : public ::testing::Test {
 protected:
  using Kind = ZonedOp::Kind;

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

}  // namespace furrow::testing
