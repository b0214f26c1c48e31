// Establishes that a volume is mounted once at a time however its files are let go of: one that
// outlives the FileSystem it was opened by, as an info log may, keeps the mount, and who opens the
// URI while the last of them goes waits for that; what was written by each mount is there; and that
// it is the same one by whichever name of its file, also where one was not there before, or was
// another's. How: a log is closed on one thread while another one opens the URI, again and again,
// with the pool kept open by a volume beside it, or not; files get further names, or are made anew.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "engine/embedded_pool.h"
#include "engine/files/staging.h"
#include "engine/rocksdb/file_system.h"
#include "tests/engine/pool_file.h"

namespace furrow::testing {
namespace {

class MountsTest : public ::testing::Test, public PoolFile {
 protected:
  static constexpr unsigned kRounds = 20;

  void SetUp() override {
    EmbeddedPool::CreateOptions make;
    make.size_bytes = 128 << 20;
    make.volume.name = "a";
    make.volume.kind = VolumeKind::fs;
    make.volume.mode = VolumeMode::store;
    make.volume.value_bytes_max = 64 << 10;
    make.volume.quota_bytes = 48 << 20;
    auto pool = EmbeddedPool::open(uri(), make);
    ASSERT_TRUE(pool.ok()) << pool.status().describe();
    (*pool)->call([this, &make](Pool& its) {
      make.volume.name = "b";
      const auto made = its.create_volume(make.volume);
      EXPECT_TRUE(made.ok()) << made.status().describe();
      uuid_of_a_ = its.find("a")->info().uuid;
    });
  }
  std::unique_ptr<rocksdb::FileSystem> mount(const std::string& volume) {
    return open("furrow://" + uri() + "?volume=" + volume);
  }
  static std::unique_ptr<rocksdb::FileSystem> open(const std::string& uri) {
    std::unique_ptr<rocksdb::FileSystem> files;
    const rocksdb::Status status = open_file_system(uri, &files);
    EXPECT_TRUE(status.ok()) << uri << ": " << status.ToString();
    return files;
  }
  static std::shared_ptr<rocksdb::Logger> log_of(rocksdb::FileSystem& files, unsigned round) {
    std::shared_ptr<rocksdb::Logger> log;
    EXPECT_TRUE(files.NewLogger("/log" + std::to_string(round), {}, &log, nullptr).ok());
    if (log != nullptr) rocksdb::Info(log, "round %u", round);
    return log;
  }
  static void write(rocksdb::FileSystem& files, const std::string& name) {
    std::unique_ptr<rocksdb::FSWritableFile> file;
    ASSERT_TRUE(files.NewWritableFile(name, {}, &file, nullptr).ok());
    ASSERT_TRUE(file->Append(name, {}, nullptr).ok());
    ASSERT_TRUE(file->Close({}, nullptr).ok());
  }
  static std::uint64_t size(rocksdb::FileSystem& files, const std::string& name) {
    std::uint64_t bytes = 0;
    EXPECT_TRUE(files.GetFileSize(name, {}, &bytes, nullptr).ok()) << name;
    return bytes;
  }
  void reopen_while_logs_go() {
    for (unsigned round = 0; round < kRounds; ++round) {
      std::unique_ptr<rocksdb::FileSystem> files = mount("a");
      ASSERT_NE(files, nullptr);
      std::shared_ptr<rocksdb::Logger> log = log_of(*files, round);
      write(*files, "/first" + std::to_string(round));
      files.reset();
      std::atomic<bool> begun{false};
      std::thread last([&] {
        begun = true;
        log.reset();
      });
      while (!begun) std::this_thread::yield();
      files = mount("a");
      last.join();
      ASSERT_NE(files, nullptr) << round;
      write(*files, "/second" + std::to_string(round));
    }
    const std::unique_ptr<rocksdb::FileSystem> files = mount("a");
    ASSERT_NE(files, nullptr);
    for (unsigned round = 0; round < kRounds; ++round) {
      for (const std::string name : {"/first", "/second"}) {
        const std::string path = name + std::to_string(round);
        EXPECT_EQ(size(*files, path), path.size());
      }
      EXPECT_GT(size(*files, "/log" + std::to_string(round)), 0u);
    }
  }

  Uuid uuid_of_a_;
};

TEST_F(MountsTest, ALogThatGoesLastUnmounts) { reopen_while_logs_go(); }

TEST_F(MountsTest, ALogThatGoesLastUnmountsBesideAnotherVolume) {
  const std::unique_ptr<rocksdb::FileSystem> other = mount("b");
  ASSERT_NE(other, nullptr);
  reopen_while_logs_go();
}

// By then what it had staged is gone.
TEST_F(MountsTest, OtherParametersAreRefusedWhileItIsMountedAlone) {
  const std::string other = "furrow://" + uri() + "?direct=0&volume=a";
  const std::filesystem::path staged =
      "/dev/shm" + Staging::name(uuid_of_a_, device_identity(uri()));
  for (unsigned round = 0; round < kRounds; ++round) {
    std::unique_ptr<rocksdb::FileSystem> first = mount("a"), second;
    ASSERT_NE(first, nullptr);
    if (!std::filesystem::exists(staged)) GTEST_SKIP() << "it has no shared memory";
    EXPECT_TRUE(open_file_system(other, &second).IsInvalidArgument());
    write(*first, "/file");
    std::thread last([&] { first.reset(); });
    while (second == nullptr && !HasFailure()) {
      const bool mounted = std::filesystem::exists(staged);
      const rocksdb::Status status = open_file_system(other, &second);
      EXPECT_TRUE(status.ok() || (mounted && status.IsInvalidArgument())) << status.ToString();
    }
    last.join();
    ASSERT_FALSE(HasFailure()) << round;
    EXPECT_EQ(size(*second, "/file"), 5u);
  }
}

TEST_F(MountsTest, AFileThatHasGotANameIsTheSame) {
  const std::string other = path() + ".link", volume = "?volume=a";
  std::unique_ptr<rocksdb::FileSystem> files;
  ASSERT_FALSE(open_file_system("furrow://emu:" + other + volume, &files).ok()) << "no such file";
  const auto first = mount("a");
  ASSERT_NE(first, nullptr);
  std::filesystem::create_hard_link(path(), other);
  const auto second = open("furrow://emu:" + other + volume);
  ASSERT_NE(second, nullptr);
  write(*first, "/file");
  EXPECT_EQ(size(*second, "/file"), 5u);
}

// Two that make it at a time make one.
TEST_F(MountsTest, APoolIsMadeOnce) {
  const std::filesystem::path file = path() + ".made", in = file.parent_path();
  std::filesystem::create_directory_symlink(in, in / "link");
  std::unique_ptr<rocksdb::FileSystem> one, other;
  {
    const std::jthread maker(
        [&] { one = open("furrow://emu:" + file.string() + "?create=128MiB"); });
    other = open("furrow://emu:" + (in / "link" / file.filename()).string() + "?create=128MiB");
  }
  ASSERT_TRUE(one && other);
  write(*one, "/file");
  EXPECT_EQ(size(*other, "/file"), 5u);
}

TEST_F(MountsTest, WhereTheDirectoryIsGoneThereIsNoFile) {
  const std::filesystem::path before = std::filesystem::current_path(), gone = path() + ".gone";
  std::filesystem::create_directory(gone);
  std::filesystem::current_path(gone);
  std::filesystem::remove(gone);
  std::unique_ptr<rocksdb::FileSystem> files;
  EXPECT_TRUE(open_file_system("furrow://emu:pool.img", &files).IsIOError());
  std::filesystem::current_path(before);
}

// It may get the number of the one before it.
TEST_F(MountsTest, AFileThatIsMadeAnewIsMountedOnce) {
  const std::string again = "furrow://emu:" + path() + ".again?create=64MiB";
  for (unsigned round = 0; round < 3; ++round) {
    const auto first = open(again), second = open(again);
    ASSERT_TRUE(first != nullptr && second != nullptr) << round;
    write(*first, "/file");
    EXPECT_EQ(size(*second, "/file"), 5u);
    std::filesystem::remove(path() + ".again");
    if (round == 0) continue;  // by another one that is still open, or by none
    const auto third = open(again);
    ASSERT_NE(third, nullptr);
    EXPECT_TRUE(third->FileExists("/file", {}, nullptr).IsNotFound());
  }
}

// It has the same volumes, and is another pool all the same.
TEST_F(MountsTest, ACopyOfAPoolHasLocksOfItsOwn) {
  const std::string copy = path() + ".copy";
  std::filesystem::copy_file(path(), copy);
  const std::unique_ptr<rocksdb::FileSystem> files = mount("a");
  const std::unique_ptr<rocksdb::FileSystem> copied = open("furrow://emu:" + copy + "?volume=a");
  ASSERT_TRUE(files != nullptr && copied != nullptr);
  rocksdb::FileLock *lock = nullptr, *its_lock = nullptr;
  ASSERT_TRUE(files->LockFile("/LOCK", {}, &lock, nullptr).ok());
  EXPECT_TRUE(copied->LockFile("/LOCK", {}, &its_lock, nullptr).ok());
  EXPECT_TRUE(files->UnlockFile(lock, {}, nullptr).ok());
  EXPECT_TRUE(its_lock == nullptr || copied->UnlockFile(its_lock, {}, nullptr).ok());
}

}  // namespace
}  // namespace furrow::testing
