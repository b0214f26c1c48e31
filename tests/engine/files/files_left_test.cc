// Establishes that nothing that was appended, or synced, is forgotten by those who use a file
// together, or while full chunks wait for each other, and that staging memory which is there but
// cannot be had is not passed over. How: two handles of one file, of which one is closed; files cut
// off, removed or synced with some chunks full; a process that may open no more files, or map no
// more memory. Nor is it given to a file that was written to elsewhere, nor is what one call
// appends there in part while that waits for the device. It goes with its volume, and its pool. Nor
// is what lies behind a file's end on the device taken for its own.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <fstream>
#include <thread>

#include "tests/engine/files/files_rig.h"
#include "tests/log/tap_device.h"

namespace furrow::testing {
namespace {

class FilesLeftTest : public ::testing::Test, public FilesRig {
 protected:
  void SetUp() override { ASSERT_NO_FATAL_FAILURE(mount(128 << 20)); }
};

constexpr std::size_t kChunk = 64 << 10;
std::string numbered(std::size_t bytes) {
  std::string text(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i / 1000 + i % 251);
  return text;
}

TEST_F(FilesLeftTest, FullChunksGoToTheDeviceTogetherAndSoonerWhenAsked) {
  const auto puts = [this] { return files().store().stats().puts; };
  const std::string all = numbered(9 * kChunk + 100);
  auto file = make("/log");
  const std::uint64_t before = puts();
  ASSERT_TRUE(file->append(bytes_of(std::string_view(all).substr(0, 7 * kChunk + 5))).ok());
  EXPECT_EQ(puts(), before);
  EXPECT_EQ(read(*file).size(), 7 * kChunk + 5);
  ASSERT_TRUE(file->append(bytes_of(std::string_view(all).substr(7 * kChunk + 5))).ok());
  file->content().quiesce();
  EXPECT_EQ(puts(), before + 8);
  ASSERT_TRUE(file->sync().ok());
  EXPECT_EQ(puts(), before + 10);  // the ninth, and the tail
  volume()->abandon();
  file.reset();
  kill();
  forget_staged();
  ASSERT_NO_FATAL_FAILURE(mount());
  EXPECT_TRUE(read("/log") == all);
}

TEST_F(FilesLeftTest, AKillLeavesFullChunksThatWait) {
  const std::string all = numbered(7 * kChunk + 1000);
  for (const std::size_t size : {kChunk, 3 * kChunk, 3 * kChunk + 1, all.size()}) {
    SCOPED_TRACE(size);
    auto file = make("/log");
    ASSERT_TRUE(file->append(bytes_of("begun")).ok());
    ASSERT_TRUE(file->sync().ok());
    ASSERT_TRUE(file->append(bytes_of(std::string_view(all).substr(5, size - 5))).ok());
    volume()->abandon();
    file.reset();
    kill();
    ASSERT_NO_FATAL_FAILURE(mount());
    EXPECT_GT(files().usage().restored_bytes, size - kChunk);
    EXPECT_TRUE(read("/log") == "begun" + all.substr(5, size - 5));
    ASSERT_TRUE(files().remove("/log").ok());
  }
}

// A kill while a writer waits for the device, as most do that come while one writes much.
TEST_F(FilesLeftTest, ARecordIsThereOrNot) {
  constexpr std::size_t kRecord = 1400, kRecords = 2000;
  const std::string all = numbered(kRecord * kRecords);
  unmount();
  TapDevice* const tap = mount_on<TapDevice>(128 << 20);
  ASSERT_NE(tap, nullptr);
  auto file = make("/log");
  const auto hold = [&](bool is) {
    mounted_pool().call([&](Pool&) { is ? tap->hold(Io::Op::write) : tap->let_go(Io::Op::write); });
  };
  hold(true);
  std::atomic<std::size_t> appended{0};
  std::jthread writer([&] {
    for (; appended < kRecords; ++appended) {
      const auto record = std::string_view(all).substr(appended * kRecord, kRecord);
      ASSERT_TRUE(file->append(bytes_of(record)).ok());
    }
  });
  for (std::size_t before = kRecords; before != appended;) {
    before = appended;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_LT(appended, kRecords) << "it does not wait";
  EXPECT_EQ(file->content().size(), appended * kRecord);
  hold(false);
  writer.join();
  EXPECT_TRUE(read(*file) == all);
}

// What was put behind a part that a power cut took, or was cut off and is there again, as its
// removal was not durable.
TEST_F(FilesLeftTest, PartsBehindAFilesEndStayOutOfIt) {
  const std::string all = numbered(3 * kChunk);
  for (const bool cut : {false, true}) {
    SCOPED_TRACE(cut);
    auto file = make("/log");
    ASSERT_TRUE(file->append(bytes_of(cut ? all : all.substr(0, 5))).ok());
    ASSERT_TRUE(file->sync().ok());
    const std::size_t kept = cut ? kChunk : 5;
    ASSERT_TRUE(file->truncate(kept).ok());
    auto pages = *mounted_pool().store("files");
    const std::string more = numbered(kChunk), stray(100, 's');
    for (const std::uint64_t at : {kept, kept + more.size()}) {
      if (!cut && at == kept) continue;  // that is the one that was lost
      const Key key = chunk_key(file->inode(), 0, at);
      ASSERT_TRUE(pages.put(key, bytes_of(stray), {.group = file->inode()}).ok());
    }
    std::string expected = all.substr(0, kept);
    for (unsigned round = 0; round < 2; ++round) {
      volume()->abandon();
      file.reset();
      kill();
      forget_staged();
      ASSERT_NO_FATAL_FAILURE(mount());
      EXPECT_TRUE(read("/log") == expected) << round << ": " << read("/log").size();
      file = std::move(*files().open_file("/log"));
      if (round != 0) continue;
      ASSERT_TRUE(file->append(bytes_of(more)).ok());
      ASSERT_TRUE(file->sync().ok());
      expected += more;
    }
    file.reset();
    ASSERT_TRUE(files().remove("/log").ok());
  }
}

TEST_F(FilesLeftTest, AFileGoesWithItsFullChunks) {
  const std::string all = numbered(5 * kChunk + 1000);
  const std::uint64_t before = files().store().usage().pages;
  for (unsigned i = 0; i < 2 * Staging::kSlots; ++i) {
    auto file = make("/log");
    ASSERT_TRUE(file->append(bytes_of(all)).ok());
    ASSERT_TRUE(files().remove("/log").ok());
  }
  EXPECT_EQ(files().store().usage().pages, before);
}

// A file that goes is closed before, unless that fails: what is retired then are full chunks that
// wait. One may have been put when it was shorter: that page goes, too.
TEST_F(FilesLeftTest, FullChunksThatWaitAreRetired) {
  const std::string all = numbered(3 * kChunk + 1000);
  const std::string_view begun = "begun";
  for (unsigned i = 0; i < 2 * Staging::kSlots; ++i) {  // their memory is given back
    auto file = make("/log");
    const std::uint64_t before = files().store().stats().puts;
    if (i % 2 == 0) {
      ASSERT_TRUE(file->append(bytes_of(begun)).ok());
      ASSERT_TRUE(file->sync().ok());
    }
    ASSERT_TRUE(file->append(bytes_of(all)).ok());
    ASSERT_EQ(files().store().stats().puts, before + (i % 2 == 0 ? 1 : 0)) << "none waits";
    const auto pages = file->content().retire();
    ASSERT_TRUE(pages.has_value());
    ASSERT_EQ(pages->size(), i % 2 == 0 ? 1u : 0u);
    if (i % 2 == 0) {
      EXPECT_EQ(pages->front().length, begun.size());
      EXPECT_EQ(pages->front().key, chunk_key(file->inode(), 0, 0));
    }
    EXPECT_EQ(file->content().size(), 0u);
    file->content().end_retirement(true);
    file.reset();
    ASSERT_TRUE(files().remove("/log").ok());
  }
}

TEST_F(FilesLeftTest, WhatIsAppendedAfterAHandleWasClosedIsClosedAsWell) {
  const std::string all = numbered(3 * kChunk + 1000);
  auto file = make("/log");
  ASSERT_TRUE(file->append(bytes_of(std::string_view(all).substr(0, kChunk))).ok());
  ASSERT_TRUE(file->close().ok());
  ASSERT_TRUE(file->append(bytes_of(std::string_view(all).substr(kChunk))).ok());
  ASSERT_TRUE(file->close().ok());
  ASSERT_TRUE(files().sync_names().ok());
  volume()->abandon();
  file.reset();
  kill();
  forget_staged();
  ASSERT_NO_FATAL_FAILURE(mount());
  EXPECT_TRUE(read("/log") == all);
}

// None waits when little staging memory is left: who is next would have to wait for it.
TEST_F(FilesLeftTest, FullChunksDoNotKeepOthersFromWriting) {
  constexpr unsigned kFiles = Staging::kSlots / 2;
  const std::string all = numbered(3 * kChunk + 1000);
  std::vector<std::unique_ptr<OpenFile>> open;
  for (unsigned i = 0; i < kFiles; ++i) open.push_back(make("/f" + std::to_string(i)));
  const std::uint64_t before = files().store().stats().put_bytes;
  for (const auto& file : open) {
    ASSERT_TRUE(file->append(bytes_of(all)).ok());
    file->content().quiesce();
  }
  const std::uint64_t put = files().store().stats().put_bytes - before;
  EXPECT_GE(put, 3 * kChunk * (kFiles - Staging::kSlots / 4));
  EXPECT_EQ(put % kChunk, 0u) << "a file had to give up what it was adding to";
  for (unsigned i = 0; i < kFiles; ++i) EXPECT_TRUE(read(*open[i]) == all) << i;
}

// One closes it at some time while the other adds to it.
TEST_F(FilesLeftTest, AFileThatOneClosesIsAddedToByAnother) {
  constexpr unsigned kFiles = 40;
  const std::string all(1 << 20, 'a');
  const auto name = [](unsigned i) { return "/f" + std::to_string(i); };
  for (const bool power_cut : {false, true}) {
    std::vector<std::unique_ptr<OpenFile>> open;
    for (unsigned i = 0; i < kFiles; ++i) {
      open.push_back(make(name(i)));
      std::atomic<bool> begun{false};
      const std::jthread writer([&, file = open.back().get()] {
        EXPECT_TRUE(file->append(bytes_of("a")).ok());
        begun = true;
        EXPECT_TRUE(file->append(bytes_of(std::string_view(all).substr(1))).ok());
        if (power_cut) {
          EXPECT_TRUE(file->sync().ok());
        }
      });
      while (!begun) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::microseconds(i * 40));
      auto other = files().open_file(name(i));
      ASSERT_TRUE(other.ok());
      EXPECT_TRUE((*other)->write_at(0, bytes_of("a")).ok());  // as it was
      EXPECT_TRUE((*other)->close().ok());
    }
    volume()->abandon();
    open.clear();
    kill();
    if (power_cut) forget_staged();
    ASSERT_NO_FATAL_FAILURE(mount());
    for (unsigned i = 0; i < kFiles; ++i) {
      const std::string text = read(name(i));
      EXPECT_TRUE(text == all) << i << ": " << text.size();
      EXPECT_TRUE(files().remove(name(i)).ok());
    }
  }
}

TEST_F(FilesLeftTest, StagingMemoryThatCannotBeOpenedIsNotPassedOver) {
  auto file = make("/log");
  ASSERT_TRUE(file->append(bytes_of("staged")).ok());
  volume()->abandon();
  file.reset();
  kill();
  auto pool = EmbeddedPool::open(uri());
  ASSERT_TRUE(pool.ok());
  const auto store = FileVolume::find((*pool)->pool(), "");
  ASSERT_TRUE(store.ok());
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 3;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  std::shared_ptr<EmbeddedPool> shared = std::move(*pool);
  const auto refused = FileVolume::mount(shared, **store);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(refused.status().code(), Code::io_error) << refused.status().describe();
  ASSERT_NO_FATAL_FAILURE(mount(std::move(shared)));
  EXPECT_EQ(read("/log"), "staged");
}

// What is mapped beside what the process has by now, at most.
class MemoryLimit {
 public:
  explicit MemoryLimit(std::uint64_t bytes) {
    std::uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    EXPECT_EQ(getrlimit(RLIMIT_AS, &before_), 0);
    const rlimit now{pages * static_cast<std::uint64_t>(getpagesize()) + bytes, before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_AS, &now), 0);
  }
  ~MemoryLimit() { EXPECT_EQ(setrlimit(RLIMIT_AS, &before_), 0); }

 private:
  rlimit before_{};
};

// Neither is it passed over, nor does the process end (`ulimit -v`).
TEST_F(FilesLeftTest, WithoutMemoryToMapThereIsNoMount) {
  auto file = make("/log");
  ASSERT_TRUE(file->append(bytes_of("staged")).ok());
  const std::string shm = "/dev/shm" + staging_name();
  for (const bool left : {true, false}) {
    SCOPED_TRACE(left);
    volume()->abandon();
    file.reset();
    kill();
    if (!left) forget_staged();
    auto pool = EmbeddedPool::open(uri());
    ASSERT_TRUE(pool.ok());
    const auto store = FileVolume::find((*pool)->pool(), "");
    ASSERT_TRUE(store.ok());
    std::shared_ptr<EmbeddedPool> shared = std::move(*pool);
    {
      const MemoryLimit limit(4 << 20);
      const auto refused = FileVolume::mount(shared, **store);
      EXPECT_EQ(refused.status().code(), Code::io_error) << refused.status().describe();
      EXPECT_EQ(refused.status().sys_errno(), ENOMEM);
      const auto rescued = FileVolume::salvage(shared, **store);
      ASSERT_TRUE(rescued.ok()) << rescued.status().describe();
      EXPECT_EQ((*rescued)->losses().size(), 1u);
    }
    EXPECT_EQ(std::filesystem::exists(shm), left);
    ASSERT_NO_FATAL_FAILURE(mount(std::move(shared)));
    EXPECT_EQ(read("/log"), left ? "staged" : "");
    file = make("/log");
  }
}

// As of another machine or container, which has a /dev/shm of its own, and the disk now: what a
// mount left in ours before that, or tried to, is not for what the file has become.
TEST_F(FilesLeftTest, WhatIsStagedHereIsNotForWhatAnotherMachineWroteMeanwhile) {
  const std::string shm = "/dev/shm" + staging_name();
  const auto leave = [&](std::string_view text, bool synced) {
    auto file = files().create("/log", FileVolume::Existing::keep);
    ASSERT_TRUE(file.ok() && (*file)->append(bytes_of(text)).ok());
    if (synced) {
      ASSERT_TRUE((*file)->sync().ok());
    }
    volume()->abandon();
    file->reset();
    kill();
  };
  ASSERT_NO_FATAL_FAILURE(leave("our lines, which are staged", false));
  {  // the next mount loses the disk before it is one; what was not flushed is lost
    auto inner = open_device(uri(), Access::exclusive);
    ASSERT_TRUE(inner.ok());
    auto fault = std::make_unique<FaultDevice>(std::move(*inner), FaultOptions());
    FaultDevice& device = *fault;
    auto opened = EmbeddedPool::open(std::move(fault), {});
    ASSERT_TRUE(opened.ok());
    std::shared_ptr<EmbeddedPool> pool = std::move(*opened);
    const auto store = FileVolume::find(pool->pool(), "");
    ASSERT_TRUE(store.ok());
    device.fail_flushes(1000);
    EXPECT_FALSE(FileVolume::mount(pool, **store).ok());
  }
  std::filesystem::rename(shm, shm + ".ours");
  ASSERT_NO_FATAL_FAILURE(mount());
  ASSERT_NO_FATAL_FAILURE(leave("theirs", true));
  std::filesystem::rename(shm + ".ours", shm);
  ASSERT_NO_FATAL_FAILURE(mount());
  EXPECT_EQ(read("/log"), "theirs");
}

// Of a killed process, that nobody asks for any more. What others left stays.
TEST_F(FilesLeftTest, WhatIsStagedGoesWithTheVolumeOrThePool) {
  const std::string device = device_identity(uri());
  for (const bool whole_pool : {false, true}) {
    SCOPED_TRACE(whole_pool);
    const std::string shm = "/dev/shm" + staging_name();
    const std::string others = "/dev/shm" + Staging::name(Uuid{1}, device + "0");
    volume()->abandon();
    kill();
    ASSERT_TRUE(std::filesystem::exists(shm));
    std::ofstream(others) << "of another device";
    if (whole_pool) {
      auto opened = open_device(uri(), Access::exclusive);
      ASSERT_TRUE(opened.ok()) << opened.status().describe();
      EventLoop loop;
      ASSERT_TRUE(Pool::format(**opened, "new", loop).ok());
    } else {
      auto pool = EmbeddedPool::open(uri());
      ASSERT_TRUE(pool.ok()) << pool.status().describe();
      (*pool)->call([](Pool& its) { EXPECT_TRUE(its.delete_volume("files").ok()); });
    }
    EXPECT_FALSE(std::filesystem::exists(shm));
    EXPECT_TRUE(std::filesystem::remove(others));
    ASSERT_NO_FATAL_FAILURE(mount());
  }
}

}  // namespace
}  // namespace furrow::testing
