// Establishes that a page's path allocates nothing in steady state: gets not once, puts only what
// a zone or a segment costs, however many pages it holds. Counts every operator new, malloc,
// aligned_alloc of the process by interposing malloc's family.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>

#include "tests/engine/block/disk.h"
#include "tests/engine/pool_file.h"

namespace {
std::atomic<std::uint64_t> allocations{0};
}

// operator new comes down to malloc, and AlignedBuffer to posix_memalign.
extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
void* malloc(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  *memory = __libc_memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
}

namespace furrow::testing {
namespace {

constexpr std::uint64_t kKeys = 2000;
constexpr std::uint32_t kBytes = 4096;

// In memory, or on a file as by default: with direct I/O, and a thread that gives space back.
enum class Place { memory, file };

class AllocationTest : public ::testing::TestWithParam<Place> {
 protected:
  // A device of that size, in memory or on that file.
  static std::string device(const PoolFile& file, std::uint64_t mib, std::uint64_t zone_mib) {
    if (GetParam() == Place::memory) {
      return "mem:" + std::to_string(mib) + "MiB?zone_size=" + std::to_string(zone_mib) + "MiB";
    }
    file.make_device(mib << 20, zone_mib << 20);
    return file.uri();
  }
  struct Slot {
    PageOp op;
    AlignedBuffer page{kBytes};
  };

  void run(PageOp::Kind kind, std::uint64_t first, std::uint64_t count) {
    for (std::uint64_t at = first; at < first + count;) {
      for (Slot& slot : slots_) {
        slot.op.kind = kind;
        slot.op.key = key_of(at++ % kKeys);
        slot.op.data = slot.page.data();
        slot.op.length = slot.op.capacity = kBytes;
        rig_.submit(slot.op);
      }
      rig_.wait();
      for (const Slot& slot : slots_) ASSERT_TRUE(slot.op.status.ok());
    }
  }

  PoolFile file_;
  Rig rig_{device(file_, 24, 2)};
  std::array<Slot, 50> slots_;
};

TEST_P(AllocationTest, CountsWhatItShould) {
  const std::uint64_t before = allocations;
  AlignedBuffer some(4096);
  const auto other = std::make_unique<std::uint64_t>();
  EXPECT_GE(allocations - before, 2u);
}

TEST_P(AllocationTest, NothingOnAPagesPath) {
  VolumeOptions options;
  options.name = "pages";
  options.value_bytes_max = 64 << 10;
  ASSERT_NO_FATAL_FAILURE(rig_.make(options));
  run(PageOp::Kind::put, 0, 4 * kKeys);  // the cache has turned over
  run(PageOp::Kind::get, 0, kKeys);
  std::uint64_t before = allocations;
  run(PageOp::Kind::get, 0, 2 * kKeys);
  EXPECT_EQ(allocations - before, 0u) << "in " << 2 * kKeys << " gets";

  const std::uint64_t zones = rig_.store->stats().zones_reset;
  before = allocations;
  run(PageOp::Kind::put, 0, 4 * kKeys);
  const std::uint64_t turned = rig_.store->stats().zones_reset - zones;
  EXPECT_GT(turned, 10u);
  // A zone's batch table, and its eviction's list of records, grow by doubling.
  EXPECT_LE(allocations - before, turned * 60) << "in " << 4 * kKeys << " puts";
}

TEST_P(AllocationTest, NorOnABlocks) {
  const PoolFile file;
  Disk disk(device(file, 16, 1));
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
    std::uint64_t before = allocations;
    pass(BlockOp::Kind::read, lbas);
    EXPECT_EQ(allocations - before, 0u) << "reads of " << lbas;
    const std::uint64_t zones = disk.rig.store->stats().zones_reset;
    before = allocations;
    pass(BlockOp::Kind::write, lbas);
    pass(BlockOp::Kind::write, lbas);
    const std::uint64_t turned = disk.rig.store->stats().zones_reset - zones;
    EXPECT_GT(turned, 5u);
    EXPECT_LE(allocations - before, turned * 200) << "writes of " << lbas;
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, AllocationTest, ::testing::Values(Place::memory, Place::file),
                         [](const auto& test) {
                           return std::string(test.param == Place::memory ? "mem" : "emu");
                         });

}  // namespace
}  // namespace furrow::testing
