// Establishes that a store filled up to what it admits goes on: overwrites are stored, deletes make
// room, and collection gains room with what it copies instead of going in circles. Pages of one LBA
// and of much more, small LBAs and large ones, with and without a zone of collection's own; the
// device completes in random order, so that pages to copy come back one at a time.
#include <gtest/gtest.h>

#include <random>

#include "tests/engine/rig.h"
#include "zone/fault_device.h"

namespace furrow::testing {
namespace {

struct Case {
  const char* name;
  const char* device;
  std::size_t page_bytes_min, page_bytes_max;
};

class FullStoreTest : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr std::uint64_t kTurnsMax = 500'000;  // an operation that needs more is stuck

  void SetUp() override {
    auto inner = open_device(GetParam().device, Access::exclusive);
    ASSERT_TRUE(inner.ok()) << inner.status().describe();
    FaultOptions options;
    options.seed = 7;
    options.delay_polls_max = 5;
    rig_.device = std::make_unique<FaultDevice>(std::move(*inner), options);
    VolumeOptions volume;
    volume.name = "pages";
    volume.mode = VolumeMode::store;
    volume.value_bytes_max = static_cast<std::uint32_t>(GetParam().page_bytes_max);
    ASSERT_NO_FATAL_FAILURE(rig_.make(volume));
  }

  Status act(PageOp::Kind kind, std::uint64_t key) {
    const Case& param = GetParam();
    const std::size_t bytes =
        param.page_bytes_min + random_() % (param.page_bytes_max - param.page_bytes_min + 1);
    PageOp op;
    op.kind = kind;
    op.key = key_of(key);
    const auto page = content(key, 1, bytes);
    AlignedBuffer buffer((bytes + 4095) / 4096 * 4096);
    std::memcpy(buffer.data(), page.data(), bytes);
    if (kind == PageOp::Kind::put) {
      op.data = buffer.data();
      op.length = static_cast<std::uint32_t>(bytes);
      op.capacity = static_cast<std::uint32_t>(buffer.size());
    }
    rig_.submit(op);
    for (std::uint64_t turns = 0; !rig_.idle(); ++turns) {
      if (turns == kTurnsMax) {
        ADD_FAILURE() << "an operation does not end";
        std::abort();  // it is the stack's, and the pool's as well
      }
      rig_.loop.run_once();
    }
    return op.status;
  }

  std::mt19937_64 random_{7};
  Rig rig_{""};
};

TEST_P(FullStoreTest, GoesOn) {
  std::uint64_t keys = 0;
  while (act(PageOp::Kind::put, keys).ok()) ++keys;
  ASSERT_GT(keys, 10u);
  const std::uint64_t written = rig_.store->stats().device_bytes_written;
  std::vector<bool> present(keys, true);
  const bool one_size = GetParam().page_bytes_min == GetParam().page_bytes_max;
  std::uint64_t stored = 0;
  for (std::uint64_t i = 0; i < 4 * keys; ++i) {
    const std::uint64_t key = random_() % keys;
    if (random_() % 8 == 0) {
      const Status status = act(PageOp::Kind::remove, key);
      ASSERT_EQ(status.code(), present[key] ? Code::ok : Code::not_found) << status.describe();
      present[key] = false;
      continue;
    }
    // What is larger than the page it replaces may be refused.
    const Status status = act(PageOp::Kind::put, key);
    if (one_size && present[key]) {
      ASSERT_TRUE(status.ok()) << i << ": " << status.describe();
    }
    present[key] = present[key] || status.ok();
    stored += status.ok() ? 1 : 0;
  }
  EXPECT_GT(stored, 2 * keys);
  const std::uint64_t again = rig_.store->stats().device_bytes_written - written;
  EXPECT_LT(again, 2 * 40 * written) << "collection goes in circles";
  ASSERT_NO_FATAL_FAILURE(rig_.reopen());
  for (std::uint64_t key = 0; key < keys; ++key) {
    const auto page = rig_.get(key, 256 << 10);
    ASSERT_EQ(page.status().code(), present[key] ? Code::ok : Code::not_found);
    if (!page.ok()) continue;
    ASSERT_EQ(*page, content(key, 1, page->size()));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, FullStoreTest,
    ::testing::Values(
        Case{"small_lbas", "mem:2MiB?zone_size=128KiB&lba=512", 512, 512},
        Case{"one_lba", "mem:4MiB?zone_size=256KiB", 4096, 4096},
        Case{"one_lba_shared", "mem:4MiB?zone_size=256KiB&mor=2&mar=2", 4096, 4096},
        Case{"of_all_sizes", "mem:8MiB?zone_size=512KiB", 1, 65536},
        Case{"of_all_sizes_shared", "mem:8MiB?zone_size=512KiB&mor=2&mar=2", 1, 65536},
        Case{"large", "mem:8MiB?zone_size=512KiB", 200'000, 200'000},
        Case{"large_shared", "mem:8MiB?zone_size=512KiB&mor=2&mar=2", 200'000, 200'000},
        Case{"few_zones", "mem:2560KiB?zone_size=512KiB", 4096, 12288}),
    [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace furrow::testing
