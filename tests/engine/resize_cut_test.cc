// Establishes what a power cut at any LBA leaves of resizes: the size and the quota that were
// acknowledged last, or those that were asked for then, and nothing else; with it every block that
// was acknowledged as flushed, those behind a disk's old end included; and a volume never holds
// more than its quota.
//
// A disk, a cache and a store on one pool are written and resized at random on the fault device,
// which cuts the power after a random number of written LBAs, in both crash models.
#include <gtest/gtest.h>

#include "tests/engine/block/disk.h"
#include "tests/rounds.h"
#include "zone/fault_device.h"

namespace furrow::testing {
namespace {

constexpr std::uint64_t kCutZone = 1 << 20;

VolumeOptions cut_volume(const char* name, VolumeMode mode) {
  VolumeOptions options;
  options.name = name;
  options.mode = mode;
  options.quota_bytes = 6 * kCutZone;
  options.value_bytes_max = 64 << 10;
  return options;
}

class ResizeCut {
 public:
  ResizeCut(std::uint64_t seed, CrashModel model) : random_(seed), model_(model), disk_("unused") {
    auto inner = open_device("mem:34MiB?zone_size=1MiB&mor=8&mar=8", Access::exclusive);
    EXPECT_TRUE(inner.ok());
    wrap(std::move(*inner), seed);
    VolumeOptions options = block_options(1 << 20, 4096);
    options.quota_bytes = 6 * kCutZone;
    disk_.make(options);
    EXPECT_TRUE(rig().pool->create_volume(cut_volume("cache", VolumeMode::cache)).ok());
    EXPECT_TRUE(rig().pool->create_volume(cut_volume("store", VolumeMode::store)).ok());
    sizes_["disk"] = {{6, 1}};
    sizes_["cache"] = sizes_["store"] = {{6, 0}};
  }

  void round(std::uint64_t seed) {
    fault_->cut_after(1 + random_() % 900, model_);
    for (unsigned turn = 0; turn < 300 && !fault_->dead(); ++turn) ASSERT_NO_FATAL_FAILURE(act());
    if (!fault_->dead()) {
      ASSERT_TRUE(fault_->power_cut(model_).ok());
    }
    disk_.blocks.reset();
    rig().close();
    std::unique_ptr<ZonedDevice> inner = fault_->take_inner();
    rig().device.reset();
    wrap(std::move(inner), seed);
    ASSERT_NO_FATAL_FAILURE(rig().open());
    disk_.connect();
    ASSERT_NO_FATAL_FAILURE(look());
  }
  std::uint64_t resized() const { return resized_; }
  std::uint64_t cut_off() const { return cut_off_; }
  std::uint64_t behind() const { return behind_; }

 private:
  // Zones of quota, and of a disk MiB: the first is what was acknowledged, the second what was
  // asked for since.
  using Sizes = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

  Rig& rig() { return disk_.rig; }

  void wrap(std::unique_ptr<ZonedDevice> inner, std::uint64_t seed) {
    FaultOptions options;
    options.seed = seed;
    options.delay_polls_max = 3;
    auto fault = std::make_unique<FaultDevice>(std::move(inner), options);
    fault_ = fault.get();
    rig().device = std::move(fault);
  }

  void act() {
    rig().store = rig().pool->find(random_() % 2 == 0 ? "cache" : "store");
    for (unsigned i = 0; i < 6; ++i) (void)rig().put(random_() % 40, ++version_, 20000);
    rig().store = rig().pool->find("disk");
    const std::uint64_t blocks = rig().store->info().options.block_bytes / kBlockPageBytes;
    for (unsigned i = 0; i < 4; ++i) {
      // Those at the end are the ones that an older size has not.
      const std::uint64_t block = i == 0 ? blocks - 1 : random_() % blocks;
      write(block);
    }
    if (random_() % 3 == 0) resize();
  }

  void write(std::uint64_t block) {
    auto data = content(block, ++version_, kBlockPageBytes);
    BlockOp op;
    op.kind = BlockOp::Kind::write;
    op.lba = block;
    op.count = 1;
    op.data = data.data();
    op.durability = Durability::flushed;
    auto& versions = blocks_[block];
    if (versions.empty()) versions.push_back(0);
    versions.push_back(version_);
    if (disk_.run(op).ok()) versions.erase(versions.begin(), versions.end() - 1);
  }

  void resize() {
    const std::string name = std::array{"disk", "cache", "store"}[random_() % 3];
    Sizes& sizes = sizes_[name];
    ResizeOptions options;
    auto wanted = sizes[0];
    wanted.first = 4 + random_() % 9;
    options.quota_bytes = wanted.first * kCutZone;
    if (name == "disk" && wanted.second < 8) {
      wanted.second += random_() % 2;
      options.block_bytes = wanted.second << 20;
    }
    ResizeAnswer answer;
    for (unsigned tries = 0; tries < 3000; ++tries) {
      answer = rig().pool->resize_volume(name, options);
      if (answer.status.code() != Code::busy) break;
      rig().loop.run_once();
    }
    if (answer.status.ok()) {
      sizes = {wanted};
      ++resized_;
    } else if (fault_->dead()) {
      sizes.push_back(wanted);
      ++cut_off_;
    } else {
      ASSERT_TRUE(answer.status.code() == Code::no_space || answer.status.code() == Code::busy)
          << answer.status.describe();
      const auto now = rig().pool->find(name)->info().options.quota_bytes / kCutZone;
      ASSERT_EQ(now, sizes[0].first) << "a refusal changes nothing";
    }
  }

  void look() {
    for (auto& [name, sizes] : sizes_) {
      const PageStore* const store = rig().pool->find(name);
      ASSERT_NE(store, nullptr);
      const VolumeOptions& now = store->info().options;
      const std::pair is{now.quota_bytes / kCutZone, now.block_bytes >> 20};
      ASSERT_NE(std::ranges::find(sizes, is), sizes.end())
          << name << ": " << is.first << " zones, " << is.second << " MiB";
      sizes = {is};
      ASSERT_LE(store->usage().zones, is.first) << name;
    }
    rig().store = rig().pool->find("disk");
    const std::uint64_t end = sizes_["disk"][0].second * 256;
    for (auto& [block, versions] : blocks_) {
      ASSERT_LT(block, end) << "only what was acknowledged was written to";
      const auto there = disk_.read(block, 1);
      const auto is = std::ranges::find_if(versions, [&, number = block](std::uint64_t version) {
        if (version == 0) return equal(there, std::vector<std::byte>(kBlockPageBytes));
        return equal(there, content(number, version, kBlockPageBytes));
      });
      ASSERT_NE(is, versions.end()) << "block " << block;
      versions = {*is};
      behind_ += block >= 256;
    }
  }

  std::mt19937_64 random_;
  CrashModel model_;
  Disk disk_;
  FaultDevice* fault_ = nullptr;
  std::map<std::string, Sizes> sizes_;
  std::map<std::uint64_t, std::vector<std::uint64_t>> blocks_;  // versions that it may have
  std::uint64_t version_ = 0, resized_ = 0, cut_off_ = 0, behind_ = 0;
};

TEST(ResizeCutTest, OldOrNewAndNothingElse) {
  for (const CrashModel model : {CrashModel::drive, CrashModel::emu}) {
    std::uint64_t resized = 0, cut_off = 0, behind = 0;
    for (std::uint64_t seed = 1; seed <= rounds(4, 2); ++seed) {
      ResizeCut cut(seed, model);
      for (unsigned round = 0; round < 8; ++round) {
        ASSERT_NO_FATAL_FAILURE(cut.round(seed * 100 + round)) << "seed " << seed;
      }
      resized += cut.resized();
      cut_off += cut.cut_off();
      behind += cut.behind();
    }
    EXPECT_GT(resized, rounds(30, 14));
    EXPECT_GT(cut_off, rounds(5, 2));
    EXPECT_GT(behind, rounds(30, 14));
  }
}

}  // namespace
}  // namespace furrow::testing
