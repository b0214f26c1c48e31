// Establishes what users of a full volume rely on: it can be mounted, also when a kill left bytes
// that there is no room for, nothing of these is lost, and it goes on by itself when something is
// deleted, whoever holds the staging memory. How: a small pool filled to the brim in several ways,
// then killed or unmounted, mounted and relieved.
#include <gtest/gtest.h>

#include "tests/engine/files/files_rig.h"

namespace furrow::testing {
namespace {

class FilesFullTest : public ::testing::Test, public FilesRig {
 protected:
  void SetUp() override { ASSERT_NO_FATAL_FAILURE(mount(32 << 20)); }

  static std::string text_of(std::size_t bytes, unsigned seed) {
    std::string made(bytes, '\0');
    for (std::size_t i = 0; i < bytes; ++i) made[i] = static_cast<char>(i * 13 + i / 241 + seed);
    return made;
  }
  void expect_text(std::string_view path, const std::string& text) {
    const std::string now = read(path);
    EXPECT_TRUE(now == text) << path << " has " << now.size() << " bytes of " << text.size() << ": "
                             << now.substr(0, 20);
  }
  // Appends until there is no room; what was appended.
  std::string fill(OpenFile& file, std::size_t part_bytes) {
    const std::string part = text_of(part_bytes, 7);
    Status status;
    while (status.ok()) status = file.append(bytes_of(part));
    EXPECT_EQ(status.code(), Code::no_space) << status.describe();
    return read(file);
  }
  void fill_with_files() {
    for (unsigned i = 0; i < 100'000; ++i) {
      auto file = files().create("/small" + std::to_string(i), FileVolume::Existing::refuse);
      if (!file.ok()) return;
    }
    FAIL() << "the volume is never full";
  }
};

// Bytes that a killed process left, and that there is no room for, are the file's all the same, as
// often as it is mounted, and reach the device when there is room.
TEST_F(FilesFullTest, WhatAKillLeftIsKeptUntilThereIsRoom) {
  write("/ballast", text_of(2 << 20, 1));
  auto big = make("/big");
  const std::string all = fill(*big, 10'000);
  volume()->abandon();
  big.reset();
  kill();
  for (unsigned round = 0; round < 3; ++round) {
    SCOPED_TRACE(round);
    ASSERT_NO_FATAL_FAILURE(mount());
    expect_text("/big", all);
    expect_text("/ballast", text_of(2 << 20, 1));
    if (round == 0) {
      unmount();
    } else if (round == 1) {
      auto file = files().create("/big", FileVolume::Existing::keep);
      ASSERT_TRUE(file.ok());
      EXPECT_EQ((*file)->append(bytes_of("more")).code(), Code::no_space);
      volume()->abandon();
      file->reset();
      kill();
    }
  }
  ASSERT_TRUE(files().remove("/ballast").ok());
  auto file = files().create("/big", FileVolume::Existing::keep);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->append(bytes_of("and on")).ok());
  ASSERT_TRUE((*file)->sync().ok());
  volume()->abandon();
  file->reset();
  kill();
  forget_staged();
  ASSERT_NO_FATAL_FAILURE(mount());
  expect_text("/big", all + "and on");
}

// However it was filled, and twice as it may take the room that mounting needs.
TEST_F(FilesFullTest, AFullVolumeIsMountedAndRelieved) {
  for (unsigned how = 0; how < 3; ++how) {
    SCOPED_TRACE(how);
    auto big = make("/big");
    if (how != 2) (void)fill(*big, how == 0 ? 64 << 10 : 700);
    ASSERT_NO_FATAL_FAILURE(fill_with_files());
    big.reset();
    for (unsigned round = 0; round < 2; ++round) {
      unmount();
      ASSERT_NO_FATAL_FAILURE(mount());
    }
    for (const std::string& name : names("/")) ASSERT_TRUE(files().remove("/" + name).ok()) << name;
    write("/again", text_of(6 << 20, 3));
    unmount();
    ASSERT_NO_FATAL_FAILURE(mount());
    expect_text("/again", text_of(6 << 20, 3));
    ASSERT_TRUE(files().remove("/again").ok());
  }
}

// Files that were given up while the volume was full hold all of the staging memory.
TEST_F(FilesFullTest, StagingMemoryComesBackWithTheRoom) {
  write("/ballast", text_of(9 << 20, 1));
  std::vector<std::unique_ptr<OpenFile>> open;
  for (unsigned i = 0; i < Staging::kSlots; ++i) open.push_back(make("/f" + std::to_string(i)));
  const std::string part = text_of(64 << 10, 2);
  std::size_t refused = 0;
  for (unsigned round = 0; round < 1000 && refused < open.size(); ++round) {
    refused = 0;
    for (auto& file : open) refused += file->append(bytes_of(part)).ok() ? 0 : 1;
  }
  ASSERT_EQ(refused, open.size());
  std::vector<std::string> all;
  for (const auto& file : open) all.push_back(read(*file));
  open.clear();  // nobody asks for them again
  ASSERT_TRUE(files().remove("/ballast").ok());
  write("/again", text_of(1 << 20, 3));
  for (unsigned i = 0; i < all.size(); ++i) expect_text("/f" + std::to_string(i), all[i]);
  unmount();
  ASSERT_NO_FATAL_FAILURE(mount());
  expect_text("/again", text_of(1 << 20, 3));
  for (unsigned i = 0; i < all.size(); ++i) expect_text("/f" + std::to_string(i), all[i]);
}

}  // namespace
}  // namespace furrow::testing
