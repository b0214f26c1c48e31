// Establishes that a volume holds many files, and files far larger than a zone, also where three
// zones may be open: all are found again, and mounting takes a bounded time a file. How: as many
// files as FURROW_TEST_FILES says (100000 for the figures of bench/RESULTS.md), and one that takes
// most of a pool and is overwritten and cut; a volume whose first page says what a longer life
// would have left there.
#include <gtest/gtest.h>
#include <malloc.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <iostream>
#include <utility>

#include "engine/files/file_format.h"
#include "tests/engine/files/files_rig.h"

namespace furrow::testing {
namespace {

using std::chrono::steady_clock;

class FilesLimitsTest : public ::testing::Test, public FilesRig {
 protected:
  static std::string name(unsigned i) {
    return "/d" + std::to_string(i % 10) + "/" + std::to_string(i) + ".sst";
  }
  static double seconds_since(steady_clock::time_point begin) {
    return std::chrono::duration<double>(steady_clock::now() - begin).count();
  }
  static std::uint64_t resident_kib() {
    std::ifstream status("/proc/self/status");
    std::string word;
    std::uint64_t kib = 0;
    while (status >> word && word != "VmRSS:") {
    }
    status >> kib;
    return kib;
  }
  // Of what is mounted next, its first page.
  void change_super(const std::function<void(FilesSuper&)>& change) {
    auto pool = EmbeddedPool::open(uri());
    ASSERT_TRUE(pool.ok()) << pool.status().describe();
    auto pages = (*pool)->store("files");
    const auto page = pages->get(super_key());
    ASSERT_TRUE(page.ok()) << page.status().describe();
    FilesSuper super = *decode_files_super(*page);
    change(super);
    ASSERT_TRUE(pages->put(super_key(), encode(super)).ok());
  }
};

TEST_F(FilesLimitsTest, ManyFiles) {
  const char* const given = std::getenv("FURROW_TEST_FILES");
  const unsigned count = given != nullptr ? static_cast<unsigned>(std::atoi(given)) : 2000;
  ASSERT_NO_FATAL_FAILURE(mount((64ull << 20) + std::uint64_t{count} * (32 << 10)));
  for (unsigned i = 0; i < 10; ++i)
    ASSERT_TRUE(files().make_directory("/d" + std::to_string(i)).ok());
  auto begin = steady_clock::now();
  const std::string text(8192, 'x');
  for (unsigned i = 0; i < count; ++i) {
    auto file = files().create(name(i), FileVolume::Existing::refuse);
    ASSERT_TRUE(file.ok() && (*file)->append(bytes_of(text)).ok()) << file.status().describe();
    if (i % 2 == 0) {
      ASSERT_TRUE((*file)->sync().ok());
    }
    ASSERT_TRUE((*file)->close().ok());
  }
  const double made_s = seconds_since(begin);
  unmount();
  std::shared_ptr<EmbeddedPool> pool;
  auto opened = EmbeddedPool::open(uri());
  ASSERT_TRUE(opened.ok());
  pool = std::move(*opened);
  malloc_trim(0);
  const std::uint64_t before_kib = resident_kib();
  begin = steady_clock::now();
  ASSERT_NO_FATAL_FAILURE(mount(std::move(pool)));
  const double mounted_s = seconds_since(begin);
  const std::uint64_t mounted_kib = resident_kib() - before_kib;
  EXPECT_EQ(files().usage().files, count);
  EXPECT_EQ(files().list("/d3")->size(), count / 10);
  for (unsigned i = 0; i < count; i += 97) EXPECT_TRUE(read(name(i)) == text) << name(i);
  begin = steady_clock::now();
  for (unsigned i = 0; i < count; ++i) ASSERT_TRUE(files().remove(name(i)).ok());
  if (given == nullptr) return;
  std::cout << count << " files: " << count / made_s
            << " made/s (every other one synced), mounted in " << mounted_s << " s, "
            << mounted_kib * 1024.0 / count << " bytes of memory each, "
            << count / seconds_since(begin) << " removed/s\n";
}

// As many as it had files at a time, its first page says, which is never less.
TEST_F(FilesLimitsTest, AVolumeThatHadManyFilesGetsSmaller) {
  ASSERT_NO_FATAL_FAILURE(mount(256 << 20));
  write("/file", "text");
  unmount();
  ASSERT_NO_FATAL_FAILURE(change_super([](FilesSuper& super) { super.slots = 40'960; }));
  {
    auto pool = EmbeddedPool::open(uri());
    ASSERT_TRUE(pool.ok()) << pool.status().describe();
    ResizeOptions smaller;
    smaller.quota_bytes = 64 << 20;
    const ResizeAnswer answer = (*pool)->resize_volume("files", smaller);
    ASSERT_TRUE(answer.status.ok()) << answer.status.describe();
  }
  ASSERT_NO_FATAL_FAILURE(mount());
  EXPECT_EQ(read("/file"), "text");
}

// Inodes begin with the mount's number, in 24 bits.
TEST_F(FilesLimitsTest, MountsEndBeforeInodesComeAgain) {
  ASSERT_NO_FATAL_FAILURE(mount());
  write("/file", "text");
  unmount();
  ASSERT_NO_FATAL_FAILURE(change_super([](FilesSuper& super) { super.mount = (1 << 24) - 2; }));
  ASSERT_NO_FATAL_FAILURE(mount());
  write("/last", "more");
  EXPECT_EQ(files().stat("/last")->inode >> 40, (1u << 24) - 1);
  unmount();
  auto opened = EmbeddedPool::open(uri());
  ASSERT_TRUE(opened.ok()) << opened.status().describe();
  const std::shared_ptr<EmbeddedPool> pool = std::move(*opened);
  const auto store = FileVolume::find(pool->pool(), "");
  ASSERT_TRUE(store.ok()) << store.status().describe();
  EXPECT_EQ(FileVolume::mount(pool, **store).status().code(), Code::unsupported);
  const auto left = FileVolume::salvage(pool, **store);
  ASSERT_TRUE(left.ok()) << left.status().describe();
  EXPECT_TRUE((*left)->losses().empty());
  EXPECT_EQ((*left)->stat("/file")->bytes, 4u);
  EXPECT_EQ((*left)->stat("/last")->bytes, 4u);
}

TEST_F(FilesLimitsTest, AFileIsMuchLargerThanAZone) {
  ASSERT_NO_FATAL_FAILURE(make_device(48 << 20, 1 << 20, 3));
  ASSERT_NO_FATAL_FAILURE(mount());
  std::string all(20 << 20, '\0');
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<char>(i * 31 + i / 4099);
  auto file = make("/large");
  ASSERT_TRUE(file->append(bytes_of(all)).ok());
  ASSERT_TRUE(file->sync().ok());
  for (unsigned i = 0; i < 10; ++i) {
    const std::size_t at = (i * 7'654'321) % (all.size() - 300'000);
    const std::string text(300'000, static_cast<char>('a' + i));
    ASSERT_TRUE(file->write_at(at, bytes_of(text)).ok());
    all.replace(at, text.size(), text);
  }
  EXPECT_TRUE(read(*file) == all);
  ASSERT_TRUE(file->truncate(9'999'999).ok());
  all.resize(9'999'999);
  file.reset();
  unmount();
  ASSERT_NO_FATAL_FAILURE(mount());
  EXPECT_TRUE(read("/large") == all);
}

// A record lists 6500 parts here, and leaves out only what is found without it: what stands there
// is neither replaced nor cut. That is refused, and the file stays what it was, to be used as any
// other.
TEST_F(FilesLimitsTest, AFileOfMorePartsThanItsRecordListsIsNotChangedInTheMiddle) {
  constexpr std::uint64_t kPart = FileContent::kSealBytes, kParts = 6800;
  ASSERT_NO_FATAL_FAILURE(mount(256 << 20));
  std::string all(kPart * kParts, '\0');
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<char>(i * 31 + i / 4099);
  auto file = make("/log");
  for (std::uint64_t i = 0; i < kParts; ++i) {
    ASSERT_TRUE(file->append(bytes_of(std::string_view(all).substr(i * kPart, kPart))).ok());
    ASSERT_TRUE(file->content().write_out().ok());
  }
  ASSERT_TRUE(file->close().ok());
  ASSERT_TRUE(files().link("/log", "/one").ok());
  std::uint64_t pages = files().store().usage().pages;
  const auto expect_refusals = [&] {
    EXPECT_EQ(file->truncate(all.size() - 5000).code(), Code::too_large);
    EXPECT_EQ(file->write_at(all.size() - 5000, bytes_of("x")).code(), Code::too_large);
    EXPECT_EQ(files().store().usage().pages, pages) << "what was refused is gone";
  };
  const auto expect_use = [&] {
    EXPECT_TRUE(file->close().ok());
    EXPECT_TRUE(read(*file) == all);
    file.reset();
    EXPECT_TRUE(files().rename("/log", "/other").ok());
    EXPECT_TRUE(files().rename("/other", "/log").ok());
    unmount();
    ASSERT_NO_FATAL_FAILURE(mount());
    file = *files().open_file("/log");
    EXPECT_TRUE(read(*file) == all);
  };
  expect_refusals();
  all[5000] ^= 1;
  EXPECT_TRUE(file->write_at(5000, bytes_of(all.substr(5000, 1))).ok());
  all.append("added");
  EXPECT_TRUE(file->append(bytes_of("added")).ok());
  EXPECT_TRUE(file->sync().ok());
  ++pages;
  ASSERT_NO_FATAL_FAILURE(expect_use());
  // From the next mount on it is as if a kill had found it open.
  for (unsigned i = 0; i < 2; ++i) {
    expect_refusals();
    EXPECT_EQ(file->append(bytes_of("x")).code(), Code::too_large);
    ASSERT_NO_FATAL_FAILURE(expect_use());
  }
  file.reset();
  EXPECT_TRUE(files().remove("/one").ok());
  EXPECT_TRUE(files().remove("/log").ok());
  EXPECT_EQ(files().store().usage().pages, 2u);
}

// What a zone has left behind its last chunk is little, and chunks are none the less large.
TEST_F(FilesLimitsTest, ChunksSuitTheZones) {
  for (const auto& [zone_kib, chunk_kib] : {std::pair(64u, 16u),
                                            {128u, 32u},
                                            {256u, 64u},
                                            {4096u, 64u},
                                            {8192u, 128u},
                                            {65536u, 256u}}) {
    SCOPED_TRACE(zone_kib);
    DeviceShape shape;
    shape.size_bytes = std::uint64_t{zone_kib} << 15;
    shape.zone_size_bytes = zone_kib << 10;
    shape.lba_bytes = 512;
    ASSERT_TRUE(create_device(uri(), shape).ok());
    EmbeddedPool::CreateOptions make;
    make.size_bytes = 1;  // the pool and its volume are made
    make.volume.name = "files";
    make.volume.kind = VolumeKind::fs;
    make.volume.mode = VolumeMode::store;
    make.volume.value_bytes_max = 0;
    auto pool = EmbeddedPool::open(uri(), make);
    ASSERT_TRUE(pool.ok()) << pool.status().describe();
    ASSERT_NO_FATAL_FAILURE(mount(std::move(*pool)));
    EXPECT_EQ(files().info().options.value_bytes_max, chunk_kib << 10);
    unmount();
    std::filesystem::remove(path());
  }
}

}  // namespace
}  // namespace furrow::testing
