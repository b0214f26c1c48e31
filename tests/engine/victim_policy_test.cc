// Establishes that an opening's victim policy reaches its stores and nothing else: with cold pages
// among hot ones, greedy and cost_benefit choose differently, cost_benefit copies less, and both
// keep every page, also when one goes on where the other ended; fifo is no policy of a store; a
// cache is not concerned. How: the same writes, from one seed, to pools that differ in it alone.
#include <map>

#include "tests/engine/rig.h"

namespace furrow {
namespace {

using testing::content;
using testing::Rig;

class VictimPolicyTest : public ::testing::Test {
 protected:
  static constexpr const char* kDevice =
      "mem:2MiB?zone_size=64KiB&zone_capacity=64KiB&lba=512&mor=6&mar=6";
  static constexpr std::uint64_t kPages = 1900;

  static void make(Rig& rig, VolumeMode mode) {
    VolumeOptions options;
    options.name = "pages";
    options.mode = mode;
    options.value_bytes_max = 4096;
    rig.make(options);
  }
  // Nine of ten writes go to a tenth of the pages.
  void write(Rig& rig, std::uint64_t from, std::uint64_t count) {
    std::mt19937_64 random(from + 20261121);
    for (std::uint64_t i = from; i < from + count; ++i) {
      const std::uint64_t hot = kPages / 10;
      const std::uint64_t page = i < kPages           ? i
                                 : random() % 10 != 0 ? random() % hot
                                                      : hot + random() % (kPages - hot);
      const Status status = rig.put(page, i, 500);
      ASSERT_TRUE(status.ok()) << i << ": " << status.describe();
      versions_[page] = i;
    }
  }
  void expect_all(Rig& rig) {
    for (const auto& [page, version] : versions_) {
      const auto found = rig.get(page, 512);
      ASSERT_TRUE(found.ok()) << page << ": " << found.status().describe();
      ASSERT_TRUE(*found == content(page, version, 500)) << page;
    }
  }
  std::map<std::uint64_t, std::uint64_t> versions_;
};

TEST_F(VictimPolicyTest, StoresCollectByIt) {
  std::map<VictimPolicy, std::uint64_t> copied;
  for (const VictimPolicy policy : {VictimPolicy::greedy, VictimPolicy::cost_benefit}) {
    versions_.clear();
    Rig rig(kDevice);
    rig.open_options.victim_policy = policy;
    ASSERT_NO_FATAL_FAILURE(make(rig, VolumeMode::store));
    ASSERT_NO_FATAL_FAILURE(write(rig, 0, 12'000));
    rig.settle();
    copied[policy] = rig.store->stats().relocated_bytes;
    ASSERT_NO_FATAL_FAILURE(expect_all(rig));
    // The next opening may choose the other one.
    rig.open_options.victim_policy =
        policy == VictimPolicy::greedy ? VictimPolicy::cost_benefit : VictimPolicy::greedy;
    ASSERT_NO_FATAL_FAILURE(rig.reopen());
    ASSERT_NO_FATAL_FAILURE(write(rig, 12'000, 3000));
    ASSERT_NO_FATAL_FAILURE(expect_all(rig));
  }
  EXPECT_GT(copied[VictimPolicy::greedy], 0u);
  EXPECT_LT(copied[VictimPolicy::cost_benefit], copied[VictimPolicy::greedy]);
  std::printf("copied: greedy %llu B, cost_benefit %llu B\n",
              static_cast<unsigned long long>(copied[VictimPolicy::greedy]),
              static_cast<unsigned long long>(copied[VictimPolicy::cost_benefit]));
}

TEST_F(VictimPolicyTest, CachesDoNot) {
  std::uint64_t evicted = 0;
  for (const VictimPolicy policy : {VictimPolicy::greedy, VictimPolicy::cost_benefit}) {
    Rig rig(kDevice);
    rig.open_options.victim_policy = policy;
    ASSERT_NO_FATAL_FAILURE(make(rig, VolumeMode::cache));
    ASSERT_NO_FATAL_FAILURE(write(rig, 0, 6000));
    rig.settle();
    EXPECT_GT(rig.store->stats().evicted_zones, 0u);
    if (policy == VictimPolicy::greedy) evicted = rig.store->stats().evicted_pages;
    EXPECT_EQ(rig.store->stats().evicted_pages, evicted);
  }
}

TEST_F(VictimPolicyTest, FifoIsRefused) {
  Rig rig(kDevice);
  ASSERT_NO_FATAL_FAILURE(make(rig, VolumeMode::store));
  rig.close();
  Pool::OpenOptions options;
  options.victim_policy = VictimPolicy::fifo;
  const auto opened = Pool::open(*rig.device, rig.loop, options);
  EXPECT_EQ(opened.status().code(), Code::invalid_argument);
}

}  // namespace
}  // namespace furrow
