// Establishes that what is done for one zone of very many takes about as long for each of them, not
// for each pair: the zone to collect is chosen, tombstones are judged, and zones are recognized at
// an opening by looking at all zones some times, not once more for each zone or record; and a group
// of very many is deleted without looking at all of them. How: by the processor time of one thread,
// which is compared with what making the zones took it, so that neither the machine nor a sanitizer
// counts: it would be many times as much otherwise.
#include <time.h>

#include <chrono>

#include "tests/log/page_log_rig.h"

namespace furrow {
namespace {

std::chrono::nanoseconds cpu_time() {
  timespec now{};
  EXPECT_EQ(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now), 0);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

class ManyZonesTest : public PageLogRig {
 protected:
  void start_log(bool hidden = false) {
    options_.volume = kVolume;
    options_.cache = false;
    log_ = std::make_unique<PageLog>(*pool_, options_);
    const RecoveredPages none;
    log_->load({.pages = none, .hidden = hidden, .outlived = {}});
    log_->start();
  }
  // What was done since `before`, when all had been made, took less than so many times as long.
  void expect_quick_since(std::chrono::nanoseconds before, double times = 10) {
    EXPECT_LT(cpu_time() - before, times * (before - began_));
  }
  void expect_quick(const std::function<bool()>& done) {
    const auto before = cpu_time();
    EXPECT_TRUE(run(done));
    expect_quick_since(before);
  }

 private:
  const std::chrono::nanoseconds began_ = cpu_time();
};

// All that they held was deleted with its group, which the zone opened last says.
TEST_F(ManyZonesTest, AZoneIsChosenAmongDeadOnes) {
  constexpr std::uint32_t kZones = 60'000;
  make({.zones = kZones,
        .zone_size_lbas = 8,
        .zone_capacity_lbas = 8,
        .segment_lbas = 8,
        .quota = kZones - 10,
        .streams = 1});
  const std::uint32_t last = kMetadataZones + kZones - 12;
  for (std::uint32_t i = kMetadataZones; i <= last; ++i) {
    pool_->allocator.adopt(ZoneId{i}, {.use = ZoneUse::sealed,
                                       .owner = kVolume,
                                       .generation = i,
                                       .opened_sequence = i,
                                       .min_sequence = i});
    pool_->tables[i].add_group(i, 2);
    pool_->tables[i].records = 1;
  }
  pool_->tables[last].group_tombstones = 1;
  start_log();
  expect_quick([this] { return log_->stats().zones_reset == 1; });
}

TEST_F(ManyZonesTest, TombstonesAreJudgedTogether) {
  constexpr std::uint64_t kTombstones = 20'000;
  make({.zones = 150'000,
        .zone_size_lbas = 4096,
        .zone_capacity_lbas = 4096,
        .segment_lbas = 4096,
        .quota = 12,
        .streams = 1});
  start_log(true);  // so that a key that is not there leaves one as well
  ASSERT_TRUE(put(1, 1, 700).ok());
  while (pool_->allocator.held(kVolume) == 1) ASSERT_TRUE(put(2, 1, 8192).ok());
  const auto is_open = [](const ZoneAllocator::Zone& zone) { return zone.use == ZoneUse::open; };
  const auto open = std::ranges::find_if(pool_->allocator.zones(), is_open);
  const ZoneId zone{static_cast<std::uint32_t>(open - pool_->allocator.zones().begin())};
  while (pool_->tables[zone.value].tombstones < kTombstones) {
    for (std::uint64_t n = 0; n < 200; ++n) start(KeyOp::Kind::remove, 100 + n);
    run();
    ops_.clear();
  }
  while (pool_->allocator.zone(zone).use == ZoneUse::open) ASSERT_TRUE(put(2, 1, 8192).ok());
  log_->collect(zone);
  expect_quick([this] { return log_->stats().zones_reset == 1; });
  expect_page(1, 1, 700);
}

TEST_F(ManyZonesTest, ZonesAreRecognizedAtAnOpening) {
  constexpr std::uint32_t kZones = 50'000;
  make({.zones = kZones,
        .zone_size_lbas = 8,
        .zone_capacity_lbas = 8,
        .segment_lbas = 8,
        .quota = kZones - 2,
        .streams = 1});
  RecoveryOptions options;
  options.scanners_per_thread = 1;
  options.volumes = options.stores = {kVolume};
  AlignedBuffer lbas(2 * kLbaBytes);
  for (std::uint32_t i = kMetadataZones; i < kZones - 10; ++i) {
    const ZoneHeader header{{superblock_.pool, ZoneId{i}, i}, kVolume, i, kUserStream};
    encode(header, lbas.span().first(kLbaBytes));
    Io io;
    io.op = Io::Op::write;
    io.zone = ZoneId{i};
    io.lba = pool_->geometry.zone_start(io.zone);
    io.set_data(lbas.data(), 2, kLbaBytes);
    ASSERT_TRUE(run_blocking(*queue_, io).ok());
    ASSERT_TRUE(direct(Io::Op::finish, io.zone).ok());
    options.trims.push_back({ZoneId{i}, i, 2, true});
  }
  drop_pool();
  make_pool();
  const auto before = cpu_time();
  const Result<RecoveryResult> found = recover(*device_, *pool_, options);
  expect_quick_since(before);
  ASSERT_TRUE(found.ok()) << found.status().describe();
  EXPECT_EQ(pool_->allocator.held(kVolume), kZones - 12);
}

// As a server does that makes room in a file system that is full.
TEST_F(ManyZonesTest, ZonesDieWhileTheDeviceIsShortOfRoom) {
  constexpr std::uint64_t kZones = 10'000;
  make({.zones = kZones,
        .zone_size_lbas = 8,
        .zone_capacity_lbas = 8,
        .segment_lbas = 8,
        .quota = kZones - 10,
        .streams = 1});
  PieceMemory memory;
  auto records = std::make_unique<RecordPartitions>();
  const auto entry_of = [](std::uint64_t zone) {
    return IndexEntry{.lba = 8 * zone + 2, .length = 512};
  };
  const auto hash_of = [](std::uint64_t zone) {
    return KeyHash{zone * (~std::uint64_t{0} / kZones), zone};
  };
  const std::uint64_t end = kZones - 20;
  for (std::uint64_t zone = kMetadataZones; zone < end; ++zone) {
    const ZoneId id{static_cast<std::uint32_t>(zone)};
    pool_->allocator.adopt(id, {.use = ZoneUse::sealed, .owner = kVolume, .generation = zone});
    pool_->allocator.add_live(id, 1, zone);
    const KeyHash at = hash_of(zone);
    (*records)[at.order >> (64 - kPartitionBits)].add(
        {at, zone, {entry_of(zone).lba, 512}, RecoveredRecord::Kind::page, false}, memory);
  }
  options_.volume = kVolume;
  options_.cache = false;
  log_ = std::make_unique<PageLog>(*pool_, options_);
  log_->load({.pages = {std::move(records), 1}, .outlived = {}});
  const ZoneId early{kMetadataZones}, late{kMetadataZones + 1};
  log_->let_go(hash_of(early.value), entry_of(early.value));
  EXPECT_FALSE(log_->collects(early));
  device_->set_short_of_room(true);
  const auto before = cpu_time();
  for (std::uint64_t zone = late.value; zone < end; ++zone) {
    log_->let_go(hash_of(zone), entry_of(zone));
  }
  expect_quick_since(before);
  EXPECT_EQ(log_->stats().pages, 0u);
  for (const ZoneId zone : {early, late, ZoneId{static_cast<std::uint32_t>(end - 1)}}) {
    EXPECT_TRUE(log_->collects(zone)) << zone.value;
  }
}

// Of millions one is found without a look at all.
TEST_F(ManyZonesTest, GroupsAreDeletedOneAfterAnother) {
  constexpr std::uint32_t kZones = 500, kRuns = 4000, kDeleted = 3000;
  make({.zones = kZones,
        .zone_size_lbas = 16384,
        .zone_capacity_lbas = 16384,
        .segment_lbas = 16384,
        .quota = kZones - 4,
        .streams = 1});
  const std::uint32_t end = kZones - 10;
  const auto group_of = [](std::uint32_t zone, std::uint32_t run) {
    return std::uint64_t{zone} * kRuns + run + 1;
  };
  for (std::uint32_t i = kMetadataZones; i < end; ++i) {
    pool_->allocator.adopt(ZoneId{i}, {.use = ZoneUse::sealed,
                                       .owner = kVolume,
                                       .generation = i,
                                       .opened_sequence = i,
                                       .min_sequence = i});
    for (std::uint32_t run = 0; run < kRuns; ++run) {
      pool_->tables[i].add_group(group_of(i, run), 2 + 4 * run);
    }
    pool_->tables[i].records = kRuns;
    pool_->tables[i].compact();
  }
  start_log();
  struct Removal : RemoveGroupOp {
    unsigned* done = nullptr;
  };
  std::vector<Removal> ops(kDeleted);
  unsigned done = 0;
  for (std::uint32_t n = 0; n < kDeleted; ++n) {  // half of them are not there
    const std::uint32_t zone = n % 2 == 0 ? kMetadataZones + n * 7919 % 480 : kZones + n;
    ops[n].group = group_of(zone, n % kRuns);
    ops[n].done = &done;
    ops[n].on_done = [](RemoveGroupOp& op) { ++*static_cast<Removal&>(op).done; };
  }
  const auto before = cpu_time();
  for (Removal& op : ops) log_->remove_group(op);
  EXPECT_TRUE(run([&] { return done == kDeleted; }));
  expect_quick_since(before);
}

// So that a server does not stand still when one of its volumes is deleted.
TEST_F(ManyZonesTest, AllPagesGoAtOnce) {
  constexpr std::uint64_t kPages = 3'000'000;
  make({.zones = 400,
        .zone_size_lbas = 8192,
        .zone_capacity_lbas = 8192,
        .segment_lbas = 8192,
        .quota = 390,
        .streams = 1});
  PieceMemory memory;
  auto records = std::make_unique<RecordPartitions>();
  for (std::uint64_t n = 0; n < kPages; ++n) {
    const KeyHash at = {n * (~std::uint64_t{0} / kPages), n};
    const ZoneId zone = pool_->geometry.zone_of(Lba{(2 << 13) + n});
    if (pool_->allocator.zone(zone).use == ZoneUse::free) {
      pool_->allocator.adopt(zone, {.use = ZoneUse::sealed, .owner = kVolume});
    }
    pool_->allocator.add_live(zone, 1, n);
    (*records)[at.order >> (64 - kPartitionBits)].add(
        {at, n, {(2 << 13) + n, 512}, RecoveredRecord::Kind::page, false}, memory);
  }
  options_.volume = kVolume;
  options_.cache = false;
  log_ = std::make_unique<PageLog>(*pool_, options_);
  log_->load({.pages = {std::move(records), 1}, .outlived = {}});
  ASSERT_EQ(log_->stats().pages, kPages);
  const auto before = cpu_time();
  log_->clear();
  expect_quick_since(before, 0.05);
  EXPECT_EQ(log_->index().size(), 0u);
}

}  // namespace
}  // namespace furrow
