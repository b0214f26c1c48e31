// Establishes that a store whose pages were all deleted takes a page again, of any size that the
// volume was made for: stores of three zones and more, pages from some LBAs up to nearly half a
// zone, filled until they are full, emptied and filled again, over restarts.
#include <gtest/gtest.h>

#include <random>

#include "tests/engine/rig.h"

namespace furrow::testing {
namespace {

constexpr std::uint32_t kLba = 512;

struct Shape {
  std::uint32_t zone_lbas, zones;  // of the volume
  const char* limits;
};

class EmptiedStoreTest : public ::testing::TestWithParam<Shape> {
 protected:
  // False: no volume can be made for pages of that size, which is said.
  bool make(Rig& rig, std::size_t page_bytes) {
    rig.open_device();
    EXPECT_TRUE(Pool::format(*rig.device, "test", rig.loop).ok());
    rig.open();
    VolumeOptions options;
    options.name = "pages";
    options.mode = VolumeMode::store;
    options.value_bytes_max = static_cast<std::uint32_t>(page_bytes);
    const Result<PageStore*> made = rig.pool->create_volume(options);
    if (made.ok()) rig.store = *made;
    EXPECT_TRUE(made.ok() || made.status().describe().find("value_bytes_max") != std::string::npos);
    return made.ok();
  }
  void fill_and_empty(Rig& rig, std::size_t page_bytes) {
    std::uint64_t keys = 0;
    // What hundreds of small pages leave may take the room of a large one in four zones or five.
    const bool small = GetParam().zones == 3 || GetParam().zones > 5;
    const std::uint64_t how = small ? random_() % 3 : 1 + random_() % 2;
    for (; keys < 1000; ++keys) {
      const std::size_t bytes = how == 0 ? 1 : how == 1 ? page_bytes : 1 + random_() % page_bytes;
      if (!rig.put(keys, 1, bytes).ok()) break;
    }
    for (std::uint64_t key = 0; key < keys; ++key) {
      const Status removed = rig.simple(PageOp::Kind::remove, key);
      ASSERT_TRUE(removed.ok()) << "key " << key << ": " << removed.describe();
    }
    ASSERT_EQ(rig.store->usage().pages, 0u);
  }

  std::mt19937_64 random_{11};
};

TEST_P(EmptiedStoreTest, TakesAPageOfAnySize) {
  const Shape& shape = GetParam();
  unsigned sizes = 0;
  for (std::uint32_t page_lbas = 1 + shape.zone_lbas / 8;; ++page_lbas) {
    const std::uint64_t zone_bytes = std::uint64_t{shape.zone_lbas} * kLba;
    Rig rig("mem:" + std::to_string((shape.zones + 2) * zone_bytes) +
            "?zone_size=" + std::to_string(zone_bytes) + "&lba=512" + shape.limits);
    const std::size_t page_bytes = std::size_t{page_lbas} * kLba - kLba / 2;
    if (!make(rig, page_bytes)) break;
    ++sizes;
    for (unsigned round = 0; round < 12; ++round) {
      SCOPED_TRACE("pages of " + std::to_string(page_lbas) + " LBAs, round " +
                   std::to_string(round));
      ASSERT_NO_FATAL_FAILURE(fill_and_empty(rig, page_bytes));
      if (round % 3 == 2) {
        ASSERT_NO_FATAL_FAILURE(rig.reopen());
      }
      const Status stored = rig.put(1000, 1, page_bytes);
      ASSERT_TRUE(stored.ok()) << stored.describe();
      for (unsigned again = 0; again < 4; ++again) {
        const Status overwritten = rig.put(1000, again, page_bytes);
        ASSERT_TRUE(overwritten.ok()) << overwritten.describe();
      }
      ASSERT_TRUE(rig.simple(PageOp::Kind::remove, 1000).ok());
    }
  }
  const std::uint32_t largest = shape.zone_lbas * (shape.zones < 6 ? 4 : 6) / 8;
  EXPECT_GE(sizes, largest - shape.zone_lbas / 8) << "up to half a zone, or nearly all of one";
}

INSTANTIATE_TEST_SUITE_P(Shapes, EmptiedStoreTest,
                         ::testing::Values(Shape{64, 3, ""}, Shape{64, 3, "&mor=2&mar=2"},
                                           Shape{65, 3, ""}, Shape{90, 3, ""},
                                           Shape{128, 3, "&mor=3&mar=3"}, Shape{64, 5, ""},
                                           Shape{64, 5, "&mor=2&mar=2"}, Shape{90, 5, ""},
                                           Shape{64, 4, ""}, Shape{64, 6, "&mor=2&mar=2"}),
                         [](const auto& each) {
                           return std::to_string(each.param.zone_lbas) + "lbas_" +
                                  std::to_string(each.param.zones) + "zones_" +
                                  std::to_string(each.index);
                         });

}  // namespace
}  // namespace furrow::testing
