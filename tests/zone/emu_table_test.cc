// Establishes that the zone table's slots are where zone/FORMAT.md says, each by itself, seen by
// whoever opens the file next; that stores which find no room say so, and end no process; and that
// a copy of the file with holes gets its blocks when it is opened. How: files on a tmpfs, where
// slots are stored into a mapping, and on a ramfs, where they are written; mounting takes root.
#include "zone/emu_table.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/zone/small_file_system.h"

namespace furrow::emu {
namespace {

class EmuTableTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!system_.mounted()) GTEST_SKIP() << "mounting a file system takes root";
    geometry_.zone_count = 1000;
    geometry_.zone_size_lbas = geometry_.zone_capacity_lbas = 256;
    superblock_ = make_superblock(geometry_, {});
    make();
  }
  void make() {
    OpenMode mode;
    mode.create = true;
    mode.direct = false;
    Result<EmuFile> opened = open_file(path_, mode);
    ASSERT_TRUE(opened.ok()) << opened.status().describe();
    file_ = std::move(*opened);
    if (file_.created) {
      ASSERT_EQ(ftruncate(file_.fd.get(), static_cast<off_t>(superblock_.data_offset)), 0);
    }
  }
  // As the file has it, by itself.
  std::uint64_t in_file(unsigned copy, std::uint32_t zone) const {
    std::uint64_t slot = 0;
    EXPECT_EQ(pread(file_.fd.get(), &slot, 8,
                    static_cast<off_t>(superblock_.table_offset[copy] + zone * 8)),
              8);
    return slot;
  }

  Geometry geometry_;
  Superblock superblock_;
  test::SmallFileSystem system_{GetParam(), "size=1m"};
  std::string path_ = system_.file("device.img");
  EmuFile file_;
};
INSTANTIATE_TEST_SUITE_P(On, EmuTableTest, testing::Values("tmpfs", "ramfs"));

TEST_P(EmuTableTest, SlotsAreWhereTheFormatSays) {
  constexpr std::uint32_t kZones[] = {0, 1, 511, 512, 999};
  {
    EmuTable table;
    ASSERT_TRUE(table.open(file_, superblock_, true).ok());
    for (const std::uint32_t zone : kZones) {
      for (unsigned copy = 0; copy < 2; ++copy) {
        EXPECT_EQ(table.load(copy, ZoneId{zone}), 0u);
        ASSERT_TRUE(table.store(copy, ZoneId{zone}, 1000 * zone + copy + 1).ok());
        EXPECT_EQ(table.load(copy, ZoneId{zone}), 1000 * zone + copy + 1);
        EXPECT_EQ(in_file(copy, zone), 1000 * zone + copy + 1);
      }
    }
    EXPECT_EQ(table.load(0, ZoneId{2}), 0u);
    EXPECT_EQ(table.load(1, ZoneId{998}), 0u);
    ASSERT_TRUE(table.store_again().ok());
    EXPECT_TRUE(table.sync().ok());
  }
  EmuTable table;
  ASSERT_TRUE(table.open(file_, superblock_, false).ok());
  for (const std::uint32_t zone : kZones) {
    EXPECT_EQ(table.load(0, ZoneId{zone}), 1000 * zone + 1);
    EXPECT_EQ(table.load(1, ZoneId{zone}), 1000 * zone + 2);
  }
}

TEST_P(EmuTableTest, StoringAgainChangesNothing) {
  EmuTable table;
  ASSERT_TRUE(table.open(file_, superblock_, true).ok());
  for (std::uint32_t zone = 0; zone < 1000; ++zone) {
    ASSERT_TRUE(table.store(zone % 2, ZoneId{zone}, ~std::uint64_t{zone}).ok());
  }
  ASSERT_TRUE(table.store_again().ok());
  for (std::uint32_t zone = 0; zone < 1000; ++zone) {
    EXPECT_EQ(in_file(zone % 2, zone), ~std::uint64_t{zone});
    EXPECT_EQ(in_file(1 - zone % 2, zone), 0u);
  }
}

TEST_P(EmuTableTest, WhereThereIsNoRoomForItItIsNotOpened) {
  if (std::string_view(GetParam()) != "tmpfs") GTEST_SKIP() << "a ramfs is never full";
  ASSERT_NO_FATAL_FAILURE(system_.fill_up("junk"));
  {
    EmuTable table;
    const Status status = table.open(file_, superblock_, true);
    EXPECT_EQ(status.code(), Code::no_space) << status.describe();
    EXPECT_NE(std::string_view(status.hint()).find("room"), std::string_view::npos);
  }
  {
    EmuTable table;
    EXPECT_TRUE(table.open(file_, superblock_, false).ok()) << "it is only looked at";
    EXPECT_EQ(table.load(0, ZoneId{7}), 0u);
  }
  std::filesystem::remove(system_.file("junk"));
  EmuTable table;
  ASSERT_TRUE(table.open(file_, superblock_, true).ok());
  // Its blocks are its own from here on.
  ASSERT_NO_FATAL_FAILURE(system_.fill_up("junk"));
  for (std::uint32_t zone = 0; zone < 1000; ++zone) {
    ASSERT_TRUE(table.store(zone % 2, ZoneId{zone}, zone + 1).ok());
  }
  EXPECT_EQ(in_file(1, 999), 1000u);
}

}  // namespace
}  // namespace furrow::emu
