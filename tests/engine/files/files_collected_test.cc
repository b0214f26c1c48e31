// Establishes that collection moves what lives of any kind of file, one that is open and written to
// included, that what is read afterwards, before and behind a kill, is what was written, and that
// what it cost is counted over mounts; and that it moves next to nothing where files go in the
// order in which they came. How: files that stay and files that go, written in turn on a small
// volume until the zones that they were in have been collected.
#include <gtest/gtest.h>

#include "engine/files/file_volume.h"
#include "tests/engine/files/files_rig.h"

namespace furrow::testing {
namespace {

class FilesCollectedTest : public ::testing::Test, public FilesRig {
 protected:
  static constexpr unsigned kStay = 12;

  void SetUp() override { ASSERT_NO_FATAL_FAILURE(mount()); }
  static std::string text(std::size_t bytes, unsigned seed) {
    std::string made(bytes, '\0');
    for (std::size_t i = 0; i < bytes; ++i) made[i] = static_cast<char>(i * 31 + i / 251 + seed);
    return made;
  }
  static std::string name(unsigned i) { return "/stays" + std::to_string(i); }
  FilesWritten written() { return files().usage().written; }
  // Most of what each zone holds goes.
  void fill() {
    for (unsigned i = 0; i < kStay; ++i) {
      write(name(i), text(300'000, i));
      write("/goes" + std::to_string(i), text(3'000'000, i));
    }
    for (unsigned i = 0; i < kStay; ++i) {
      ASSERT_TRUE(files().remove("/goes" + std::to_string(i)).ok());
    }
  }
  void expect_all() {
    for (unsigned i = 0; i < kStay; ++i) EXPECT_EQ(read(name(i)), text(300'000, i)) << i;
  }
};

TEST_F(FilesCollectedTest, WhatStaysIsMovedAndCounted) {
  auto log = make("/log");
  log->content().set_lifetime(Lifetime::short_term);
  std::string logged;
  const auto append = [&](unsigned seed) {
    const std::string line = text(5000, seed);
    ASSERT_TRUE(log->append(bytes_of(line)).ok());
    ASSERT_TRUE(log->sync().ok());
    logged += line;
  };
  ASSERT_NO_FATAL_FAILURE(append(0));
  const ZoneLives first = zone_lives();
  fill();
  ASSERT_NO_FATAL_FAILURE(append(1));
  ASSERT_NO_FATAL_FAILURE(collect(first));
  EXPECT_GT(written().relocated_bytes, 300'000u);
  ASSERT_NO_FATAL_FAILURE(append(2));
  expect_all();
  EXPECT_EQ(read(*log), logged);
  const FilesWritten before = written();
  EXPECT_GE(before.device_bytes, before.appended_bytes);
  EXPECT_GE(before.device_bytes - before.relocated_bytes, before.appended_bytes);
  EXPECT_LT(before.device_bytes - before.relocated_bytes, before.appended_bytes * 11 / 10);
  log.reset();
  unmount();
  ASSERT_NO_FATAL_FAILURE(mount());
  expect_all();
  EXPECT_EQ(read("/log"), logged);
  EXPECT_EQ(written().appended_bytes, before.appended_bytes);
  EXPECT_GE(written().device_bytes, before.device_bytes);
  EXPECT_GE(written().relocated_bytes, before.relocated_bytes);

  // And goes on, a kill in between; what the killed process wrote last is not counted.
  ASSERT_NO_FATAL_FAILURE(collect(zone_lives()));
  EXPECT_GT(written().relocated_bytes, before.relocated_bytes + 300'000);
  kill();
  ASSERT_NO_FATAL_FAILURE(mount());
  expect_all();
  EXPECT_EQ(read("/log"), logged);
  EXPECT_GE(written().appended_bytes, before.appended_bytes);
}

// What a part of it holds nobody can tell, then, so none is given out.
TEST_F(FilesCollectedTest, ADamagedPartStaysAnErrorWhenItIsMoved) {
  std::string text(60'000, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 2654435761u >> 20);
  write("/rots", text);
  write("/stays", text);
  fill();
  const ZoneLives first = zone_lives();
  unmount();
  const auto found = places(read_file(), text.substr(20'000, 20'000));
  ASSERT_EQ(found.size(), 2u);
  damage(found[0]);  // what was written first
  ASSERT_NO_FATAL_FAILURE(mount());
  ASSERT_NO_FATAL_FAILURE(collect(first));
  for (int mounted = 0; mounted < 2; ++mounted) {
    for (const std::uint64_t offset : {0u, 20'000u, 55'000u}) {
      std::string part(100, '\0');
      const auto file = files().open_file("/rots");
      ASSERT_TRUE(file.ok());
      const auto bytes = (*file)->content().read(offset, std::as_writable_bytes(std::span(part)));
      EXPECT_EQ(bytes.status().code(), Code::corrupt) << offset;
      const auto other = files().open_file("/stays");
      ASSERT_TRUE(other.ok());
      ASSERT_TRUE((*other)->content().read(offset, std::as_writable_bytes(std::span(part))).ok());
      EXPECT_EQ(part, text.substr(offset, 100));
    }
    kill();
    ASSERT_NO_FATAL_FAILURE(mount());
  }
}

// A pool that stays open counts on. What is written while it is not mounted is nobody's.
TEST_F(FilesCollectedTest, AMountCountsWhatWasWrittenSinceTheLastOne) {
  unmount();
  auto opened = EmbeddedPool::open(uri(), {});
  ASSERT_TRUE(opened.ok()) << opened.status().describe();
  const std::shared_ptr<EmbeddedPool> pool = std::move(*opened);
  ASSERT_NO_FATAL_FAILURE(FilesRig::mount(pool));
  const std::uint64_t before = written().appended_bytes;
  write("/file", text(3'000'000, 1));
  EXPECT_EQ(written().appended_bytes, before + 3'000'000);
  for (unsigned mounted = 1; mounted < 4; ++mounted) {
    SCOPED_TRACE(mounted);
    auto file = files().open_file("/file");
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->write_at(10, bytes_of(text(500'000, mounted))).ok());
    file->reset();
    const FilesWritten counted = written();
    EXPECT_EQ(counted.appended_bytes, before + 3'000'000 + mounted * 500'000);
    const VolumeStats so_far = files().store().stats();
    unmount();
    ASSERT_NO_FATAL_FAILURE(FilesRig::mount(pool));
    const FilesWritten now = written();
    const VolumeStats all = files().store().stats();
    EXPECT_EQ(now.appended_bytes, counted.appended_bytes);
    EXPECT_GE(now.device_bytes, counted.device_bytes);
    EXPECT_LE(now.device_bytes - counted.device_bytes,
              all.device_bytes_written - so_far.device_bytes_written);
    EXPECT_EQ(now.relocated_bytes, 0u);
  }
  unmount();
}

TEST_F(FilesCollectedTest, AKillTakesLittleOfWhatIsCounted) {
  const std::string text(2'000'000, 'x');
  for (unsigned i = 0; i < 100; ++i) write("/file", text);
  const FilesWritten before = written();
  ASSERT_GT(before.appended_bytes, 190u << 20);
  kill();
  ASSERT_NO_FATAL_FAILURE(mount());
  EXPECT_LE(written().appended_bytes, before.appended_bytes);
  EXPECT_GT(written().appended_bytes + (70u << 20), before.appended_bytes);
  EXPECT_GT(written().device_bytes + (70u << 20), before.device_bytes);
}

// A good ten times what the volume holds.
TEST_F(FilesCollectedTest, FilesThatGoInTheirOrderAreNotMoved) {
  constexpr unsigned kFiles = 400, kHeld = 10;
  const std::string text(2'000'000, 'x');
  for (unsigned i = 0; i < kFiles; ++i) {
    write("/" + std::to_string(i), text);
    const bool old = i >= kHeld;
    ASSERT_TRUE(!old || files().remove("/" + std::to_string(i - kHeld)).ok());
  }
  const FilesWritten all = written();
  EXPECT_GT(all.device_bytes, std::uint64_t{kFiles} * text.size());
  EXPECT_LT(all.relocated_bytes, all.device_bytes / 1000) << "records of files, at most";
}

}  // namespace
}  // namespace furrow::testing
