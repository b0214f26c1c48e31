// Establishes what is kept of when files were written: each change says it, a mount keeps it, and
// one after a kill says no later than itself.
#include <gtest/gtest.h>

#include "tests/engine/files/files_rig.h"

namespace furrow::testing {
namespace {

class FilesTimesTest : public ::testing::Test, public FilesRig {
 protected:
  static constexpr std::uint64_t kLongAgo = 1'000'000;

  void SetUp() override { ASSERT_NO_FATAL_FAILURE(mount()); }
  std::uint64_t modified(std::string_view path) { return files().stat(path)->modified_s; }
};

TEST_F(FilesTimesTest, EachChangeIsTheLatest) {
  using Change = Status (*)(OpenFile&);
  constexpr std::pair<const char*, Change> kChanges[] = {
      {"none", [](OpenFile&) { return Status(); }},
      {"append", [](OpenFile& file) { return file.append(bytes_of("more")); }},
      {"write", [](OpenFile& file) { return file.write_at(1, bytes_of("X")); }},
      {"cut", [](OpenFile& file) { return file.truncate(2); }},
      {"extend", [](OpenFile& file) { return file.truncate(9); }}};
  for (const auto& [name, change] : kChanges) {
    SCOPED_TRACE(name);
    write("/file", "text");
    {
      auto file = files().open_file("/file");
      ASSERT_TRUE(file.ok());
      (*file)->set_modified(kLongAgo);
      ASSERT_TRUE((*file)->close().ok());
      EXPECT_EQ(modified("/file"), kLongAgo);
      ASSERT_TRUE(change(**file).ok());
    }
    const std::uint64_t now = modified("/file");
    EXPECT_EQ(now == kLongAgo, std::string_view(name) == "none");
    unmount();
    ASSERT_NO_FATAL_FAILURE(mount());
    EXPECT_EQ(modified("/file"), now);
  }
}

// Its record says when it was made, or last given a name.
TEST_F(FilesTimesTest, AKillKeepsWhenAFileWasWritten) {
  for (const bool synced : {false, true}) {
    SCOPED_TRACE(synced);
    for (const char* const path : {"/log", "/idle"}) {
      auto file = make(path);
      ASSERT_TRUE(file->append(bytes_of("begun")).ok());
      file->set_modified(kLongAgo);
      ASSERT_TRUE(file->close().ok());
    }
    auto file = files().create("/log", FileVolume::Existing::keep);
    ASSERT_TRUE(file.ok() && (*file)->append(bytes_of("x")).ok());
    (*file)->set_modified(kLongAgo);
    ASSERT_TRUE(files().link("/log", "/link").ok());
    ASSERT_TRUE((*file)->append(bytes_of("later")).ok());
    if (synced) {
      ASSERT_TRUE((*file)->sync().ok());
    }
    const std::uint64_t written = modified("/log");
    ASSERT_GT(written, kLongAgo);
    volume()->abandon();
    file->reset();
    kill();
    if (synced) forget_staged();
    ASSERT_NO_FATAL_FAILURE(mount());
    EXPECT_EQ(read("/log"), "begunxlater");
    EXPECT_EQ(modified("/idle"), kLongAgo);
    const std::uint64_t found = modified("/log");
    EXPECT_GE(found, written);
    unmount();
    ASSERT_NO_FATAL_FAILURE(mount());
    EXPECT_EQ(modified("/log"), found);
    ASSERT_TRUE(files().remove("/link").ok());
  }
}

}  // namespace
}  // namespace furrow::testing
