// Establishes what users of a full volume rely on: it can be mounted, also when a kill left bytes
// that there is no room for, nothing of these is lost, and it goes on by itself when something is
// deleted, whoever holds the staging memory. How: a small pool filled to the brim in several ways,
// then killed or unmounted, mounted and relieved.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/engine/files/files_rig.h"
#include "tests/log/tap_device.h"
#include "tests/log/test_seed.h"
#include "tests/rounds.h"

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

// Also where it was to be added to meanwhile, for which there was no room either.
TEST_F(FilesFullTest, WhatAKillLeftIsPutWhereTheRecordSays) {
  unmount();
  auto inner = open_device(uri(), Access::exclusive);
  ASSERT_TRUE(inner.ok()) << inner.status().describe();
  auto made = std::make_unique<TapDevice>(std::move(*inner));
  TapDevice& tap = *made;
  auto opened = EmbeddedPool::open(std::move(made), {});
  ASSERT_TRUE(opened.ok()) << opened.status().describe();
  const std::shared_ptr<EmbeddedPool> pool = std::move(*opened);
  const std::string staged = text_of(200'000, 1);
  const auto kill_and_mount = [&](std::unique_ptr<OpenFile>& file) {
    volume()->abandon();
    file.reset();
    kill();
    ASSERT_NO_FATAL_FAILURE(mount(pool));
  };
  for (const bool synced : {true, false}) {
    SCOPED_TRACE(synced);
    ASSERT_NO_FATAL_FAILURE(mount(pool));
    auto file = make("/log");
    ASSERT_TRUE(file->append(bytes_of(staged)).ok());
    tap.set_short_of_room(true);
    ASSERT_NO_FATAL_FAILURE(kill_and_mount(file));
    auto kept = files().create("/log", FileVolume::Existing::keep);
    ASSERT_TRUE(kept.ok());
    EXPECT_EQ((*kept)->append(bytes_of("more")).code(), Code::no_space);
    tap.set_short_of_room(false);
    EXPECT_TRUE((synced ? (*kept)->sync() : (*kept)->content().give_up_tail()).ok());
    ASSERT_NO_FATAL_FAILURE(kill_and_mount(*kept));
    expect_text("/log", staged);
    ASSERT_TRUE(files().remove("/log").ok());
    unmount();
  }
}

// Though there is room for the end of it, and not for what comes before.
TEST_F(FilesFullTest, WhatAKillLeftIsPutInItsTurn) {
  constexpr std::size_t kChunk = 64 << 10;
  auto file = make("/log");
  const std::string all = text_of(kChunk + 100, 1);
  ASSERT_TRUE(file->append(bytes_of(all)).ok());
  write("/ballast", text_of(kChunk / 2, 3));
  for (const std::size_t bytes : {kChunk, std::size_t{4000}}) {
    auto filler = make("/filler" + std::to_string(bytes));
    (void)fill(*filler, bytes);
  }
  ASSERT_TRUE(files().remove("/ballast").ok());
  volume()->abandon();
  file.reset();
  kill();
  ASSERT_NO_FATAL_FAILURE(mount());
  expect_text("/log", all);
  write("/small", "there is room for that");
  ASSERT_TRUE(files().remove("/filler65536").ok());
  unmount();
  ASSERT_NO_FATAL_FAILURE(mount());
  expect_text("/log", all);
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

// Files come and go, most of the room is taken, and what is gone lies anywhere: what usage() says
// is free can be written, in one file or in many, and is free again when that is removed.
TEST_F(FilesFullTest, WhatIsSaidToBeFreeCanBeWritten) {
  std::mt19937_64 random(test_seed());
  std::map<std::string, std::size_t> there;
  const auto free_bytes = [this] { return files().usage().free_bytes; };
  const auto remove_one = [&] {
    const auto which = std::next(there.begin(), static_cast<long>(random() % there.size()));
    ASSERT_TRUE(files().remove(which->first).ok());
    there.erase(which);
  };
  // Of `bytes`, in parts.
  const auto make_file = [&](const std::string& path, std::size_t bytes) {
    const std::uint64_t free_before = free_bytes();
    auto file = make(path);
    ASSERT_NE(file, nullptr);
    for (std::size_t at = 0; at < bytes;) {
      const std::size_t part = std::min(bytes - at, std::size_t{1} << (10 + random() % 9));
      const Status status = file->append(bytes_of(text_of(part, 7)));
      ASSERT_TRUE(status.ok()) << status.describe() << ": " << at << " of " << bytes;
      at += part;
    }
    Status status = file->sync();
    if (status.ok()) status = file->close();
    ASSERT_TRUE(status.ok()) << status.describe() << ": " << path << ", " << bytes << " bytes of "
                             << free_before << " free, now " << free_bytes();
    there[path] = bytes;
  };
  const std::uint64_t empty = free_bytes(), off = empty / 50;  // by so much it may be wrong
  std::uint64_t written = 0;
  unsigned number = 0;
  for (unsigned round = 0; round < rounds(6, 4) && !HasFatalFailure(); ++round) {
    SCOPED_TRACE(round);
    // Turned over, three quarters to nearly all of it taken.
    const std::uint64_t least = empty / (4 + random() % 12);
    for (const std::uint64_t until = written + empty; written < until && !HasFatalFailure();) {
      const std::size_t bytes = 1 + random() % (random() % 4 == 0 ? 900'000 : 60'000);
      if (free_bytes() < least + bytes + (256 << 10)) {
        remove_one();
        continue;
      }
      make_file("/" + std::to_string(number++), bytes);
      written += bytes;
    }
    if (HasFatalFailure()) return;
    const std::uint64_t before = free_bytes();
    if (round % 2 == 0) {
      make_file("/whole", before - off);
      if (HasFatalFailure()) return;
      EXPECT_LT(free_bytes(), before / 2 + off);
      ASSERT_TRUE(files().remove("/whole").ok());
      there.erase("/whole");
    } else {
      const unsigned first = number;
      while (free_bytes() > (128 << 10) && !HasFatalFailure()) {
        make_file("/" + std::to_string(number++), 40'000);
      }
      if (HasFatalFailure()) return;
      for (unsigned i = first; i < number; ++i) {
        ASSERT_TRUE(files().remove("/" + std::to_string(i)).ok());
        there.erase("/" + std::to_string(i));
      }
    }
    EXPECT_GE(free_bytes(), before - off) << "of " << before;
  }
  while (!there.empty() && !HasFatalFailure()) remove_one();
  EXPECT_GE(free_bytes(), empty - empty / 12) << "of " << empty << "; removals leave something";
}

// What deleted them is not kept for as long as there is anything older, as there always is.
TEST_F(FilesFullTest, AnyNumberOfFilesComesAndGoes) {
  write("/old", text_of(100'000, 1));
  for (unsigned i = 0; i < 1000; ++i) {  // as many zones are in use as ever
    write("/tmp", text_of(30'000, 2));
    ASSERT_TRUE(files().remove("/tmp").ok());
  }
  const std::uint64_t before = files().free_bytes();
  for (unsigned i = 0; i < 12'000; ++i) {
    write("/tmp", "x");
    ASSERT_TRUE(files().remove("/tmp").ok()) << i;
  }
  EXPECT_GE(files().free_bytes(), before - before / 20) << "of " << before;
}

}  // namespace
}  // namespace furrow::testing
