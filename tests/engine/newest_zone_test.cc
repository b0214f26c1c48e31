// Establishes that a zone which has become the newest of its stream, because all that were opened
// after it were collected, is not taken for one that a power cut may have torn: a rotten page in it
// costs itself alone, after a kill and after another one. How: a store on a file; the newest zone
// is made to end, then collected; a page of the one before it is damaged in the file of the killed
// process.
#include <gtest/gtest.h>

#include "engine/page_store_impl.h"
#include "tests/engine/pool_file.h"

namespace furrow::testing::newest_zone_test {
namespace {

constexpr std::size_t kBytes = 60000;

class NewestZoneTest : public PoolFileTest {
 protected:
  void SetUp() override { ASSERT_NO_FATAL_FAILURE(make_pool(64 << 20, VolumeMode::store)); }

  PageLog& log() { return static_cast<PageStoreImpl*>(rig_->store)->log(); }
  std::uint32_t zone_of(std::uint64_t key) {
    std::array<IndexEntry, KeyOp::kCandidatesMax> found;
    EXPECT_EQ(log().lookup(log().hash(key_of(key)), found), 1u) << key;
    return static_cast<std::uint32_t>(found[0].lba / rig_->device->geometry().zone_size_lbas);
  }
  std::uint64_t written_lbas(std::uint32_t zone) {
    return (*rig_->device->report())[zone].written_lbas;
  }
  // The process is killed; a page is damaged; the pool is opened again.
  void kill_and_damage(std::uint64_t key) {
    const FileImage killed = read_file();
    close_device();
    write_file(killed);
    const auto at = places(killed, text_of(content(key, 1, kBytes)));
    ASSERT_FALSE(at.empty());
    damage(at.front() + 100);
    ASSERT_NO_FATAL_FAILURE(rig_->open_device());
    ASSERT_NO_FATAL_FAILURE(rig_->open());
  }
};

TEST_F(NewestZoneTest, ARottenPageOfTheZoneBeforeACollectedOneCostsItselfAlone) {
  std::uint64_t last = 0;
  ASSERT_TRUE(rig_->put(last, 1, kBytes).ok());
  const std::uint32_t first_zone = zone_of(0);
  while (zone_of(last) == first_zone) ASSERT_TRUE(rig_->put(++last, 1, kBytes).ok());
  ASSERT_TRUE(rig_->put(++last, 1, kBytes).ok());
  const std::uint32_t newest = zone_of(last);
  // Its torn end is where it ends, for good.
  ASSERT_NO_FATAL_FAILURE(kill_and_damage(last));
  ASSERT_EQ(rig_->get(last).status().code(), Code::not_found);
  ASSERT_EQ(zone_of(last - 1), newest);
  log().collect(ZoneId{newest});
  for (unsigned i = 0; written_lbas(newest) != 0; ++i) {
    ASSERT_LT(i, 1000u) << "it is not collected";
    rig_->settle();
  }
  rig_->settle();
  constexpr std::uint64_t kRotten = 3;
  ASSERT_NO_FATAL_FAILURE(kill_and_damage(kRotten));
  for (unsigned opening = 0; opening < 2; ++opening) {
    for (std::uint64_t key = 0; key < last; ++key) {
      const auto page = rig_->get(key);
      if (key == kRotten) {
        EXPECT_EQ(page.status().code(), Code::corrupt);
      } else {
        ASSERT_TRUE(page.ok()) << key << ": " << page.status().describe();
        EXPECT_EQ(*page, content(key, 1, kBytes)) << key;
      }
    }
    ASSERT_NO_FATAL_FAILURE(rig_->reopen());
  }
}

}  // namespace
}  // namespace furrow::testing::newest_zone_test
