// Establishes that damage of one slot of the emulated device's zone table loses nothing: each slot
// of each zone is damaged in turn, in the file of a pool that was killed, and of one that was
// closed; the pool is opened, every page is read, and pages are written.
#include <gtest/gtest.h>

#include "tests/engine/pool_file.h"

namespace furrow::testing::zone_table_damage_test {
namespace {

constexpr std::uint64_t kKeys = 60, kZones = 10;
constexpr std::size_t kTableAt = 8192, kTableBytes = 4096;  // of one copy

class ZoneTableDamageTest : public ::testing::TestWithParam<bool>, public PoolFile {
 protected:
  void SetUp() override { ASSERT_NO_FATAL_FAILURE(make_device(kZones << 20, 1 << 20)); }
  static std::size_t bytes_of(std::uint64_t key) { return 1000 + key * 7919 % 60000; }

  // The file of a pool with all pages, killed or closed.
  FileImage fill() {
    Rig rig(uri());
    VolumeOptions options;
    options.name = "pages";
    options.mode = VolumeMode::store;
    options.value_bytes_max = 64 << 10;
    rig.make(options);
    for (std::uint64_t i = 0; i < kKeys; ++i) EXPECT_TRUE(rig.put(i, 1, bytes_of(i)).ok());
    const FileImage killed = read_file();
    rig.close();
    rig.device.reset();
    return GetParam() ? killed : read_file();
  }
};

INSTANTIATE_TEST_SUITE_P(Ends, ZoneTableDamageTest, ::testing::Bool(),
                         [](const auto& each) { return each.param ? "killed" : "closed"; });

TEST_P(ZoneTableDamageTest, OneSlotLosesNothing) {
  const FileImage whole = fill();
  for (std::size_t zone = 0; zone < kZones; ++zone) {
    for (const std::size_t copy : {0u, 1u}) {
      SCOPED_TRACE("zone " + std::to_string(zone) + ", copy " + std::to_string(copy));
      FileImage damaged = whole;
      char& byte = damaged[kTableAt + copy * kTableBytes + zone * 8];
      byte = static_cast<char>(byte ^ 4);
      write_file(damaged);
      Rig rig(uri());
      ASSERT_NO_FATAL_FAILURE(rig.open_device());
      ASSERT_NO_FATAL_FAILURE(rig.open());
      for (int round = 0; round < 2; ++round) {
        ASSERT_NE(rig.store, nullptr);
        for (std::uint64_t i = 0; i < kKeys; ++i) {
          const auto page = rig.get(i);
          ASSERT_TRUE(page.ok()) << i << ": " << page.status().describe();
          ASSERT_TRUE(equal(*page, content(i, 1, bytes_of(i)))) << i;
        }
        ASSERT_TRUE(rig.put(1000 + static_cast<std::uint64_t>(round), 1, 60000).ok());
        EXPECT_EQ(rig.pool->info().zones_bad, 0u);
        ASSERT_NO_FATAL_FAILURE(rig.reopen());
      }
    }
  }
}

}  // namespace
}  // namespace furrow::testing::zone_table_damage_test
