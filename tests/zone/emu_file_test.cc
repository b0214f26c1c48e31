// Establishes how the file under an emulated device is opened: created only when asked, its size
// known, locked for one process at a time and waited for only while the kernel still cleans up
// after a dead one, readable beside that for inspection; each failure with its own code. And that
// Fd closes exactly what it owns. How: files in a scratch directory; a child process that dies.
#include "zone/emu_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <fstream>
#include <optional>
#include <thread>

#include "tests/zone/device_test_util.h"
#include "tests/zone/forbidden_call.h"

namespace furrow::emu {
namespace {

class EmuFileTest : public ::testing::Test {
 protected:
  Code code(const OpenMode& mode) { return open_file(path_, mode).status().code(); }
  void make(std::size_t bytes) {
    std::ofstream(path_, std::ios::binary) << std::string(bytes, 'x');
  }
  static constexpr OpenMode kBuffered{Access::exclusive, false, false};
  test::TempDir dir_;
  std::string path_ = dir_.file("device.img");
};

bool is_open(int fd) { return fcntl(fd, F_GETFD) != -1 || errno != EBADF; }

TEST(Fd, ClosesWhatItOwns) {
  int first = -1, second = -1;
  {
    Fd owner(open("/dev/null", O_RDONLY));
    first = owner.get();
    Fd moved(std::move(owner));
    EXPECT_EQ(moved.get(), first);
    EXPECT_EQ(owner.get(), -1);  // NOLINT: what a move leaves
    Fd other(open("/dev/null", O_RDONLY));
    second = other.get();
    moved = std::move(other);
    EXPECT_EQ(moved.get(), second);
    EXPECT_TRUE(is_open(second));
  }
  EXPECT_FALSE(is_open(first));
  EXPECT_FALSE(is_open(second));
}

TEST_F(EmuFileTest, IsCreatedOnlyWhenAsked) {
  EXPECT_EQ(code(kBuffered), Code::not_found);
  {
    const auto made = open_file(path_, {Access::exclusive, true, false});
    ASSERT_TRUE(made.ok()) << made.status().describe();
    EXPECT_TRUE(made->created);
    EXPECT_FALSE(made->block_device);
    EXPECT_EQ(made->size_bytes, 0u);
  }
  const auto again = open_file(path_, {Access::exclusive, true, false});
  ASSERT_TRUE(again.ok()) << again.status().describe();
  EXPECT_FALSE(again->created) << "it was there";
}

TEST_F(EmuFileTest, KnowsItsSize) {
  make(12345);
  const auto file = open_file(path_, kBuffered);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->size_bytes, 12345u);
}

TEST_F(EmuFileTest, ADirectoryAndAPipeAreRefused) {
  path_ = dir_.file("");
  EXPECT_EQ(code({Access::inspect, false, false}), Code::unsupported);
  path_ = dir_.file("pipe");
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(code(kBuffered), Code::unsupported);
}

// Both look first whether it is there.
TEST_F(EmuFileTest, OfTwoThatMakeItAtOnceOneHasItAndTheOtherIsToldSo) {
  for (unsigned round = 0; round < 100; ++round) {
    path_ = dir_.file("device" + std::to_string(round));
    std::atomic<unsigned> ready{0};
    std::array<Status, 2> statuses;
    const auto make_it = [&](Status& status) {
      for (++ready; ready != 2;) {
      }
      status = open_file(path_, {Access::exclusive, true, false}).status();
    };
    {
      const std::jthread other([&] { make_it(statuses[1]); });
      make_it(statuses[0]);
    }
    for (const Status& status : statuses) {
      ASSERT_TRUE(status.ok() || status.code() == Code::in_use) << status.describe();
    }
  }
}

TEST_F(EmuFileTest, SaysWhetherTheFileOrItsDirectoryIsMissing) {
  const auto says = [&](const OpenMode& mode) {
    const auto file = open_file(path_, mode);
    EXPECT_EQ(file.status().code(), Code::not_found);
    return file.status().describe();
  };
  const auto is_in = [](const char* part, const std::string& text) {
    return text.find(part) != std::string::npos;
  };
  const std::string no_file = says(kBuffered);
  EXPECT_TRUE(is_in("pool create", no_file) && !is_in("its directory", no_file)) << no_file;
  std::filesystem::create_symlink("elsewhere", path_);
  const std::string no_target = says({Access::exclusive, true, false});
  EXPECT_TRUE(is_in("symbolic link", no_target)) << no_target;
  path_ = dir_.file("missing/device.img");
  const std::string no_directory = says({Access::exclusive, true, false});
  EXPECT_TRUE(is_in("its directory", no_directory) && !is_in("pool create", no_directory))
      << no_directory;
}

TEST_F(EmuFileTest, OneAtATimeButAnybodyMayInspect) {
  make(4096);
  const auto held = open_file(path_, kBuffered);
  ASSERT_TRUE(held.ok());
  EXPECT_EQ(code(kBuffered), Code::in_use);
  EXPECT_EQ(code({Access::inspect, false, false}), Code::ok);
  const std::string holder = lock_holder(path_);
  EXPECT_NE(holder.find("process " + std::to_string(getpid())), std::string::npos) << holder;
  unlock(held->fd.get());
  EXPECT_EQ(code(kBuffered), Code::ok);
  EXPECT_TRUE(lock_holder(path_).empty());
  EXPECT_TRUE(lock_holder(dir_.file("none")).empty());
}

// The lock of a process that was killed is free as soon as that is gone.
TEST_F(EmuFileTest, ADeadProcessHoldsNothing) {
  make(4096);
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const int fd = open(path_.c_str(), O_RDWR);
    if (flock(fd, LOCK_EX) != 0 || write(ready[1], "x", 1) != 1) _exit(1);
    pause();
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_EQ(code(kBuffered), Code::in_use);
  EXPECT_NE(lock_holder(path_).find("process " + std::to_string(child)), std::string::npos);
  kill(child, SIGKILL);
  siginfo_t ended{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(code(kBuffered), Code::ok) << "also before its parent has asked for its end";
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  for (const int fd : ready) close(fd);
}

// From the kill on, although it takes the kernel its time to end a process.
TEST_F(EmuFileTest, AProcessThatWasKilledIsWaitedForFromThenOn) {
  constexpr std::size_t kBytes = 64 << 20;  // to be given back before its files are
  make(4096);
  for (int round = 0; round < 4; ++round) {
    std::array<int, 2> ready{};
    ASSERT_EQ(pipe(ready.data()), 0);
    const pid_t child = fork();
    if (child == 0) {
      const int fd = open(path_.c_str(), O_RDWR | O_CLOEXEC);
      void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
      if (memory == MAP_FAILED || flock(fd, LOCK_EX) != 0 || write(ready[1], "x", 1) != 1) _exit(1);
      for (;;) pause();
    }
    char byte = 0;
    ASSERT_EQ(read(ready[0], &byte, 1), 1);
    EXPECT_EQ(code(kBuffered), Code::in_use);
    kill(child, SIGKILL);
    EXPECT_EQ(code(kBuffered), Code::ok) << round;
    EXPECT_EQ(waitpid(child, nullptr, 0), child);
    for (const int fd : ready) close(fd);
  }
}

// As udevd does, to look at a device that was closed: for a moment.
TEST_F(EmuFileTest, ASharedLockIsWaitedFor) {
  std::ofstream(path_) << "x";
  const int fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(flock(fd, LOCK_SH), 0);
  std::thread other([fd] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ::close(fd);
  });
  const auto file = open_file(path_, {.direct = false});
  other.join();
  EXPECT_TRUE(file.ok()) << file.status().describe();
}

// As who makes a device in another container does, whose lock tells nobody here whose it is.
TEST_F(EmuFileTest, IsAsLargeAsWhoHadTheLockBeforeLeavesIt) {
  make(0);
  const int fd = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(flock(fd, LOCK_SH), 0);
  std::thread other([fd] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(ftruncate(fd, 12345), 0);
    ::close(fd);
  });
  const auto file = open_file(path_, kBuffered);
  other.join();
  ASSERT_TRUE(file.ok()) << file.status().describe();
  EXPECT_EQ(file->size_bytes, 12345u);
}

// All flags there are would be O_APPEND as well, with which each write goes to the file's end.
TEST_F(EmuFileTest, OneWhoseFlagsCannotBeHadKeepsThem) {
  make(4096);
  std::optional<Result<EmuFile>> file;
  std::thread([&] {
    ASSERT_TRUE(forbid_call(__NR_fcntl, EPERM, F_GETFL));
    file.emplace(open_file(path_, kBuffered));
  }).join();
  ASSERT_TRUE(file.has_value() && file->ok());
  EXPECT_EQ(fcntl((*file)->fd.get(), F_GETFL) & (O_APPEND | O_NONBLOCK), 0);
}

TEST_F(EmuFileTest, DirectIoTakesWholeSectorsOnly) {
  make(1 << 20);
  const auto file = open_file(path_, {});
  if (file.status().code() == Code::unsupported) GTEST_SKIP() << "no direct I/O here";
  ASSERT_TRUE(file.ok()) << file.status().describe();
  EXPECT_TRUE(direct_io_accepts(file->fd.get(), 4096));
  EXPECT_FALSE(direct_io_accepts(file->fd.get(), 100));
  const auto buffered = open_file(path_, {Access::inspect, false, false});
  ASSERT_TRUE(buffered.ok());
  EXPECT_TRUE(direct_io_accepts(buffered->fd.get(), 100));
}

}  // namespace
}  // namespace furrow::emu
