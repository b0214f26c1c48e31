// Establishes that a page's path allocates nothing in steady state: gets and exist not once; puts
// of every kind, removes, evictions and collection only what a zone costs, however many pages it
// holds: that is bounded for zones of two sizes, of which the larger one's bound is a fiftieth of
// an allocation a put. How: every member of malloc's family counts, by all threads of the process.
#include <gtest/gtest.h>

#include <memory>

#include "tests/count_allocations.h"
#include "tests/engine/block/disk.h"
#include "tests/engine/pool_file.h"

namespace furrow::testing {
namespace {

// In memory, or on a file as by default: with direct I/O, and a thread that gives space back.
enum class Place { memory, file };

// A device of so many zones, in memory or on that file.
std::string device(Place place, const PoolFile& file, std::uint64_t zones, std::uint64_t zone_mib) {
  if (place == Place::memory) {
    return "mem:" + std::to_string(zones * zone_mib) + "MiB?zone_size=" + std::to_string(zone_mib) +
           "MiB";
  }
  file.make_device(zones * zone_mib << 20, zone_mib << 20);
  return file.uri();
}

struct Load {
  const char* name;
  VolumeMode mode = VolumeMode::cache;
  Durability durability = Durability::none;
  PageOp::Condition condition = PageOp::Condition::always;
  std::uint32_t ttl_s = 0;
  bool removes = false;  // what was put before
  bool groups = false;   // of a thousand pages, which go together
};
void PrintTo(const Load& load, std::ostream* out) { *out << load.name; }

constexpr Load kLoads[] = {
    {.name = "Cache"},
    {.name = "CacheFlushed", .durability = Durability::flushed},
    {.name = "CacheIfAbsent", .condition = PageOp::Condition::if_absent},
    {.name = "CacheTtl", .ttl_s = 5},
    {.name = "CacheRemoves", .removes = true},
    {.name = "CacheGroups", .groups = true},
    {.name = "Store", .mode = VolumeMode::store},
    {.name = "StoreFlushed", .mode = VolumeMode::store, .durability = Durability::flushed},
    {.name = "StoreTtl", .mode = VolumeMode::store, .ttl_s = 5},
    {.name = "StoreRemoves", .mode = VolumeMode::store, .removes = true},
    {.name = "StoreGroups", .mode = VolumeMode::store, .groups = true},
};

class PageAllocations : public ::testing::TestWithParam<std::tuple<Load, Place>> {
 protected:
  static constexpr std::uint64_t kZones = 12;
  static constexpr std::uint32_t kBytes = 4096;
  static constexpr std::uint64_t kGroupPages = 1000, kSecondPages = 2000;

  void make(std::uint64_t zone_mib) {
    rig_.reset();
    file_ = std::make_unique<PoolFile>();
    rig_ = std::make_unique<Rig>(device(std::get<Place>(GetParam()), *file_, kZones, zone_mib));
    VolumeOptions options;
    options.name = "pages";
    options.mode = load_.mode;
    options.value_bytes_max = 64 << 10;
    ASSERT_NO_FATAL_FAILURE(rig_->make(options));
    pages_ = kZones * zone_mib * (1 << 20) / kBytes;
    // A cache sees new keys only; a store holds a third of what it could and is written over.
    keys_ = load_.mode == VolumeMode::store ? pages_ / 3 : ~std::uint64_t{0};
    put_ = 0;
  }
  void run(PageOp::Kind kind, std::uint64_t first) {
    for (Slot& slot : slots_) {
      slot.op.kind = kind;
      slot.op.key = key_of(first++ % keys_);
      slot.op.durability = load_.durability;
      slot.op.condition = load_.condition;
      slot.op.ttl_s = load_.ttl_s;
      slot.op.group = load_.groups ? 1 + put_ / kGroupPages : 0;
      slot.op.data = slot.page.data();
      slot.op.length = slot.op.capacity = kBytes;
      rig_->submit(slot.op);
    }
    rig_->wait();
    for (const Slot& slot : slots_) {
      const Code code = slot.op.status.code();
      ASSERT_TRUE(code == Code::ok || (kind != PageOp::Kind::put && code == Code::not_found))
          << slot.op.status.describe();
    }
  }
  // As many as fill the device so many times, and what the load does besides.
  void put(std::uint64_t times) {
    for (const std::uint64_t end = put_ + times * pages_; put_ < end;) {
      ASSERT_NO_FATAL_FAILURE(run(PageOp::Kind::put, put_));
      if (load_.removes) run(PageOp::Kind::remove, put_);
      put_ += slots_.size();
      if (load_.groups && put_ % kGroupPages == 0) remove_group(put_ / kGroupPages);
      if (load_.ttl_s != 0 && put_ % kSecondPages == 0) rig_->loop.advance_s(1);
    }
  }
  void remove_group(std::uint64_t group) {
    PageOp op;
    op.kind = PageOp::Kind::remove_group;
    op.group = group;
    EXPECT_TRUE(rig_->run(op).ok()) << op.status.describe();
  }

  struct Slot {
    PageOp op;
    AlignedBuffer page{kBytes};
  };
  const Load load_ = std::get<Load>(GetParam());
  std::unique_ptr<PoolFile> file_;
  std::unique_ptr<Rig> rig_;
  std::array<Slot, 50> slots_;
  std::uint64_t pages_ = 0, keys_ = 0, put_ = 0;
};

// A zone's batch table, and the lists of records of its eviction or collection, grow by doubling.
constexpr std::uint64_t kOfAZone = 24;
// A group's records are looked up, and its pages told to whoever counts them.
constexpr std::uint64_t kOfAGroup = 20;

TEST_P(PageAllocations, OnlyWhatAZoneCosts) {
  for (const std::uint64_t zone_mib : {1u, 4u}) {
    ASSERT_NO_FATAL_FAILURE(make(zone_mib));
    ASSERT_NO_FATAL_FAILURE(put(2));  // everything has turned over
    const std::uint64_t zones = rig_->store->stats().zones_reset, first = put_;
    const std::uint64_t before = allocations();
    ASSERT_NO_FATAL_FAILURE(put(2));
    const std::uint64_t made = allocations() - before, puts = put_ - first;
    const std::uint64_t turned = rig_->store->stats().zones_reset - zones;
    const std::uint64_t groups = load_.groups ? puts / kGroupPages : 0;
    EXPECT_GE(turned, kZones) << "zones of " << zone_mib << " MiB";
    EXPECT_LE(made, turned * kOfAZone + groups * kOfAGroup)
        << puts << " puts, zones of " << zone_mib << " MiB";
  }
}

TEST_P(PageAllocations, NothingForGetsAndExist) {
  ASSERT_NO_FATAL_FAILURE(make(1));
  ASSERT_NO_FATAL_FAILURE(put(2));
  // The note that a stream writes 10 ms after a flush, too.
  const std::uint64_t noted_ns = rig_->loop.now_ns() + 20'000'000;
  while (rig_->loop.now_ns() < noted_ns) rig_->loop.run_once();
  rig_->settle();
  for (const PageOp::Kind kind : {PageOp::Kind::get, PageOp::Kind::exist}) {
    ASSERT_NO_FATAL_FAILURE(run(kind, put_ - slots_.size()));
    const std::uint64_t before = allocations();
    for (std::uint64_t back = 15; back > 0; --back) {
      ASSERT_NO_FATAL_FAILURE(run(kind, put_ - back * slots_.size()));
    }
    EXPECT_EQ(allocations() - before, 0u) << (kind == PageOp::Kind::get ? "gets" : "exist");
  }
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<Load, Place>>& test) {
  return std::get<Load>(test.param).name;
}
INSTANTIATE_TEST_SUITE_P(InMemory, PageAllocations,
                         ::testing::Combine(::testing::ValuesIn(kLoads),
                                            ::testing::Values(Place::memory)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(OnAFile, PageAllocations,
                         ::testing::Combine(::testing::Values(kLoads[0], kLoads[6]),
                                            ::testing::Values(Place::file)),
                         name_of);

class BlockAllocations : public ::testing::TestWithParam<Place> {};

TEST_P(BlockAllocations, OnlyWhatAZoneCosts) {
  const PoolFile file;
  Disk disk(device(GetParam(), file, 16, 1));
  ASSERT_NO_FATAL_FAILURE(disk.make(block_options(8 << 20, 512)));
  constexpr std::uint64_t kLbas = (8 << 20) / 512;
  AlignedBuffer data(64 << 10);
  const auto pass = [&](BlockOp::Kind kind, std::uint64_t lbas) {
    for (std::uint64_t lba = 0; lba < kLbas; lba += lbas) {
      ASSERT_TRUE(disk.run(kind, lba, std::min(lbas, kLbas - lba), data.data()).ok());
    }
  };
  for (const std::uint64_t lbas : {128u, 13u}) {  // whole blocks, and parts of blocks
    pass(BlockOp::Kind::write, lbas);
    pass(BlockOp::Kind::read, lbas);
    // 10 ms after a flush a stream writes a note, and makes the memory for it the first time.
    const std::uint64_t until_ns = disk.rig.loop.now_ns() + 50'000'000;
    while (disk.rig.loop.now_ns() < until_ns) disk.rig.loop.run_once();
    std::uint64_t before = allocations();
    pass(BlockOp::Kind::read, lbas);
    EXPECT_EQ(allocations() - before, 0u) << "reads of " << lbas;
    const std::uint64_t zones = disk.rig.store->stats().zones_reset;
    before = allocations();
    pass(BlockOp::Kind::write, lbas);
    pass(BlockOp::Kind::write, lbas);
    const std::uint64_t turned = disk.rig.store->stats().zones_reset - zones;
    EXPECT_GT(turned, 5u);
    EXPECT_LE(allocations() - before, turned * 30) << "writes of " << lbas;
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, BlockAllocations, ::testing::Values(Place::memory, Place::file),
                         [](const auto& test) {
                           return std::string(test.param == Place::memory ? "mem" : "emu");
                         });

}  // namespace
}  // namespace furrow::testing
