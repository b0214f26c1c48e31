// Establishes how furrowd and furrowctl come to a pool: one is made where nothing is, opened where
// one is, never made over data unless that is asked for, and refused, with its own code, where the
// device is too small, foreign, in use or of another shape than was asked for; and that OpenPool
// closes in order. How: mem: and files in a scratch directory.
#include "tools/make_pool.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/zone/loop_device.h"

namespace furrow::tools::make_pool_test {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

class MakePoolTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(directory_);
    recipe_.uri = "emu:" + path_;
    recipe_.name = "unit";
    recipe_.shape.size_bytes = 64 * kMiB;
    recipe_.shape.zone_size_bytes = 4 * kMiB;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  Code create_code() { return create_pool(recipe_, loop_).status().code(); }
  Code open_or_create_code() { return open_or_create_pool(recipe_, loop_).status().code(); }
  void add_volume(const char* name) {
    auto pool = open_pool(recipe_.uri, loop_, Opening::use);
    ASSERT_TRUE(pool.ok()) << pool.status().describe();
    VolumeOptions volume;
    volume.name = name;
    ASSERT_TRUE((**pool).create_volume(volume).ok());
  }
  bool has_volume(const char* name) {
    auto pool = open_pool(recipe_.uri, loop_, Opening::inspect);
    return pool.ok() && (**pool).find(name) != nullptr;
  }

  const std::filesystem::path directory_ =
      std::filesystem::temp_directory_path() / ("furrow-make-pool-" + std::to_string(getpid()));
  const std::string path_ = (directory_ / "pool.img").string();
  EventLoop loop_;
  PoolRecipe recipe_;
};

TEST_F(MakePoolTest, MadeWhereNothingIsAndNotTwice) {
  EXPECT_EQ(open_pool(recipe_.uri, loop_, Opening::use).status().code(), Code::not_found);
  EXPECT_EQ(create_code(), Code::ok);
  add_volume("kept");
  EXPECT_EQ(create_code(), Code::exists);
  EXPECT_TRUE(has_volume("kept"));
  recipe_.shape.force = true;
  recipe_.shape.size_bytes = 32 * kMiB;
  EXPECT_EQ(create_code(), Code::ok);
  EXPECT_FALSE(has_volume("kept"));
  EXPECT_LT(std::filesystem::file_size(path_), 40 * kMiB) << "as large as it is asked for now";
}

// As a kill leaves it, before the device's superblocks are written.
TEST_F(MakePoolTest, AMakingThatWasCutOffIsRepeated) {
  for (const bool or_create : {false, true}) {
    EXPECT_EQ(create_device(recipe_.uri, recipe_.shape).code(), Code::ok);
    for (const std::streamoff superblock : {0, 4096}) {
      std::string page(4096, '\0');
      page.replace(0, 19, "FurrowZD unfinished");
      std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
      ASSERT_TRUE(file.seekp(superblock) << page);
    }
    EXPECT_EQ(open_pool(recipe_.uri, loop_, Opening::use).status().code(), Code::foreign);
    EXPECT_EQ(or_create ? open_or_create_code() : create_code(), Code::ok);
    EXPECT_TRUE(open_pool(recipe_.uri, loop_, Opening::use).ok());
    std::filesystem::remove(path_);
  }
}

// Both copies of it: the zones are offline then, and what they hold is there.
TEST_F(MakePoolTest, ADeviceWithoutItsZoneTableIsNotMadeAnew) {
  ASSERT_EQ(create_code(), Code::ok);
  add_volume("kept");
  const auto bytes = [this] {
    std::string all(std::filesystem::file_size(path_), '\0');
    std::ifstream(path_, std::ios::binary)
        .read(all.data(), static_cast<std::streamsize>(all.size()));
    return all;
  };
  const std::string whole = bytes();
  {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    ASSERT_TRUE(file.seekp(8192) << std::string(2 * 4096, 'x'));
  }
  const std::string damaged = bytes();
  EXPECT_EQ(open_pool(recipe_.uri, loop_, Opening::use).status().code(), Code::corrupt);
  EXPECT_EQ(create_code(), Code::exists);
  EXPECT_EQ(open_or_create_code(), Code::corrupt);
  EXPECT_TRUE(bytes() == damaged);
  { std::ofstream(path_, std::ios::binary) << whole; }
  EXPECT_TRUE(has_volume("kept"));
}

// A loop device over a file, where the machine lets us make one.
TEST_F(MakePoolTest, ABlockDeviceIsTakenAsAWhole) {
  const test::LoopDevice loop(path_, 64 * kMiB);
  if (!loop.there()) GTEST_SKIP() << "no loop device";
  recipe_.uri = "emu:" + loop.name();
  const auto zones = [this](bool or_create) {
    auto pool = or_create ? open_or_create_pool(recipe_, loop_, {}) : create_pool(recipe_, loop_);
    EXPECT_TRUE(pool.ok()) << pool.status().describe();
    return pool.ok() ? (*pool)->info().geometry.zone_count : 0;
  };
  recipe_.shape.size_bytes = 0;
  EXPECT_EQ(zones(true), 15u) << "and the emulated device's own structures";
  recipe_.shape.size_bytes = 64 * kMiB;
  recipe_.shape.force = recipe_.asked.size = true;
  EXPECT_EQ(zones(false), 15u);
  EXPECT_EQ(zones(true), 15u) << "as it was made";
  recipe_.shape.size_bytes = 65 * kMiB;
  EXPECT_EQ(create_code(), Code::invalid_argument);
  recipe_.shape.size_bytes = 60 * kMiB;
  EXPECT_EQ(zones(false), 15u);
}

TEST_F(MakePoolTest, ADamagedDeviceIsMadeAnewIfThatIsForced) {
  ASSERT_EQ(create_code(), Code::ok);
  std::filesystem::resize_file(path_, 32 * kMiB);
  EXPECT_EQ(create_code(), Code::corrupt);
  EXPECT_EQ(std::filesystem::file_size(path_), 32 * kMiB) << "it was touched";
  recipe_.shape.force = true;
  EXPECT_EQ(open_or_create_code(), Code::corrupt) << "that forces nothing of Furrow's";
  EXPECT_EQ(create_code(), Code::ok);
  EXPECT_TRUE(open_pool(recipe_.uri, loop_, Opening::use).ok());
}

TEST_F(MakePoolTest, OpenOrCreateKeepsWhatIsThere) {
  EXPECT_EQ(open_or_create_code(), Code::ok);
  add_volume("kept");
  EXPECT_EQ(open_or_create_code(), Code::ok);
  EXPECT_TRUE(has_volume("kept"));
  recipe_.asked.zone_size = true;
  EXPECT_EQ(open_or_create_code(), Code::ok) << "it has the zone size that is asked for";
  recipe_.shape.zone_size_bytes = 8 * kMiB;
  EXPECT_EQ(open_or_create_code(), Code::exists);
  EXPECT_TRUE(has_volume("kept"));
}

TEST_F(MakePoolTest, AnEmptyDeviceOfAnotherShapeIsMadeAnew) {
  DeviceShape shape;
  shape.size_bytes = 16 * kMiB;
  shape.zone_size_bytes = kMiB;
  ASSERT_TRUE(create_device(recipe_.uri, shape).ok());
  EXPECT_EQ(create_code(), Code::ok);
  EXPECT_EQ(open_pool(recipe_.uri, loop_, Opening::use)->operator->()->info().geometry.zone_count,
            16u);
}

TEST_F(MakePoolTest, PreallocatedIsOneThatWasMadeSo) {
  recipe_.asked.preallocate = recipe_.shape.preallocate = true;
  EXPECT_EQ(open_or_create_code(), Code::ok);
  EXPECT_TRUE(open_device(recipe_.uri, Access::inspect).value()->preallocated());
  EXPECT_TRUE(open_pool(recipe_.uri, loop_, Opening::inspect)->operator->()->info().preallocated);
  EXPECT_EQ(open_or_create_code(), Code::ok);
  std::filesystem::remove(path_);
  recipe_.asked.preallocate = recipe_.shape.preallocate = false;
  EXPECT_EQ(open_or_create_code(), Code::ok);
  EXPECT_FALSE(open_device(recipe_.uri, Access::inspect).value()->preallocated());
  recipe_.asked.preallocate = recipe_.shape.preallocate = true;
  EXPECT_EQ(open_or_create_code(), Code::exists);
}

TEST_F(MakePoolTest, NothingIsLeftOfOneThatCannotBe) {
  recipe_.shape.size_bytes = 8 * kMiB;  // two zones
  EXPECT_EQ(create_code(), Code::invalid_argument);
  EXPECT_FALSE(std::filesystem::exists(path_));
  recipe_.shape.size_bytes = 0;
  EXPECT_EQ(create_code(), Code::invalid_argument);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(MakePoolTest, NoPoolIsMadeForAVolumeThatCannotBe) {
  const auto refused = [&](auto&& change, Code code) {
    recipe_.first_volume.emplace();
    recipe_.first_volume->name = "first";
    change(*recipe_.first_volume);
    EXPECT_EQ(open_or_create_code(), code);
    EXPECT_FALSE(std::filesystem::exists(path_));
    ASSERT_TRUE(create_device(recipe_.uri, recipe_.shape).ok());
    EXPECT_EQ(open_or_create_code(), code) << "on a device that is there";
    EXPECT_TRUE(*Pool::is_blank(**open_device(recipe_.uri, Access::exclusive)));
    std::filesystem::remove(path_);
  };
  refused([](VolumeOptions& first) { first.quota_bytes = 11 * kMiB; }, Code::invalid_argument);
  refused([](VolumeOptions& first) { first.quota_bytes = 60 * kMiB; }, Code::no_space);
  refused([](VolumeOptions& first) { first.value_bytes_max = 4 * kMiB; }, Code::invalid_argument);
  refused([](VolumeOptions& first) { first.nsid = 1025; }, Code::invalid_argument);
  for (const std::uint64_t quota : {std::uint64_t{0}, 12 * kMiB, 56 * kMiB}) {
    recipe_.first_volume = VolumeOptions();
    recipe_.first_volume->name = "first";
    recipe_.first_volume->quota_bytes = quota;
    EXPECT_EQ(open_or_create_code(), Code::ok) << quota;
    auto pool = open_pool(recipe_.uri, loop_, Opening::use);
    ASSERT_TRUE(pool.ok());
    EXPECT_TRUE((**pool).create_volume(*recipe_.first_volume).ok()) << "it was said to fit";
    pool->close();
    std::filesystem::remove(path_);
  }
}

// A store that has no room begins to collect as soon as it is opened, for nobody.
TEST_F(MakePoolTest, AFullStoreIsDeleted) {
  recipe_.shape.size_bytes = 16 * kMiB;
  recipe_.shape.zone_size_bytes = kMiB;
  ASSERT_EQ(create_code(), Code::ok);
  {
    const auto pool = EmbeddedPool::open(recipe_.uri);
    ASSERT_TRUE(pool.ok()) << pool.status().describe();
    VolumeOptions volume;
    volume.name = "full";
    volume.mode = VolumeMode::store;
    volume.quota_bytes = 3 * kMiB;
    volume.value_bytes_max = 4096;
    auto store = (*pool)->create_volume(volume);
    ASSERT_TRUE(store.ok()) << store.status().describe();
    const std::vector<std::byte> page(500);
    Status stored;
    for (unsigned key = 0; stored.ok(); ++key) {
      stored = store->put(Key::from(std::to_string(key)), page);
    }
    ASSERT_EQ(stored.code(), Code::no_space);
  }
  auto pool = open_pool(recipe_.uri, loop_, Opening::use);
  ASSERT_TRUE(pool.ok()) << pool.status().describe();
  const Status deleted = pool->delete_volume("full");
  EXPECT_TRUE(deleted.ok()) << deleted.describe();
  EXPECT_EQ((**pool).find("full"), nullptr);
}

TEST_F(MakePoolTest, ForeignDataIsKept) {
  { std::ofstream(path_) << std::string(2 * kMiB, 'x'); }
  EXPECT_EQ(create_code(), Code::foreign);
  EXPECT_EQ(open_or_create_code(), Code::foreign);
  EXPECT_EQ(std::filesystem::file_size(path_), 2 * kMiB);
}

TEST_F(MakePoolTest, AGeometryForMemoryStandsInItsUri) {
  recipe_.uri = "mem:64MiB?zone_size=4MiB";
  EXPECT_EQ(create_code(), Code::ok);
  recipe_.asked.zone_size = true;
  EXPECT_EQ(create_code(), Code::invalid_argument);
}

TEST_F(MakePoolTest, InUseByOneButInspectedByAny) {
  ASSERT_EQ(create_code(), Code::ok);
  auto held = open_pool(recipe_.uri, loop_, Opening::use);
  ASSERT_TRUE(held.ok());
  EXPECT_EQ(open_pool(recipe_.uri, loop_, Opening::check).status().code(), Code::in_use);
  EXPECT_TRUE(open_pool(recipe_.uri, loop_, Opening::inspect).ok());
  held->close();
  EXPECT_TRUE(open_pool(recipe_.uri, loop_, Opening::check).ok());
}

TEST_F(MakePoolTest, AnOpenPoolMovesAndClosesWhatItHad) {
  ASSERT_EQ(create_code(), Code::ok);
  auto first = open_pool(recipe_.uri, loop_, Opening::use);
  ASSERT_TRUE(first.ok());
  OpenPool pool = std::move(*first);
  EXPECT_EQ(pool->info().name, "unit");
  pool = OpenPool();
  EXPECT_TRUE(open_pool(recipe_.uri, loop_, Opening::use).ok()) << "the device is free again";
}

}  // namespace
}  // namespace furrow::tools::make_pool_test
