// Establishes that a device, while it is made and when it is open, has no descriptor of a standard
// file that the process was started without. How: a child process closes them, makes a device and
// opens it, and then prints; what it prints must go nowhere. And what is said where the process may
// have no more descriptors.
#include "zone/descriptors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <system_error>

#include "tests/zone/device_test_util.h"
#include "zone/event_loop.h"

namespace furrow::test {
namespace {

constexpr int kStandard[] = {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO};

// In a process without the standard files of `closed`, a bit each: opens the device, after making
// it if that is asked for, and prints. Was that refused, as it is where a file is closed, and is no
// directory of that time left open?
bool prints_nowhere(unsigned closed, bool makes, const std::string& uri) {
  const pid_t child = fork();
  if (child != 0) {
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  for (const int fd : kStandard) {
    if ((closed >> fd & 1) != 0) close(fd);
  }
  DeviceShape shape;
  shape.size_bytes = 16 * kMiB;
  shape.zone_size_bytes = 2 * kMiB;
  bool ok = !makes || create_device(uri, shape).ok();
  const auto device = open_device(uri, Access::exclusive);
  ok = ok && device.ok();
  for (const int fd : kStandard) {
    if ((closed >> fd & 1) == 0) continue;
    struct stat taken {};
    ok = fstat(fd, &taken) == 0 && !S_ISDIR(taken.st_mode) && ok;
    ok = write(fd, "printed\n", 8) < 0 && errno == EBADF && ok;
  }
  _exit(ok ? 0 : 1);
}

// What is printed begins where the file does.
bool has_printed(const std::string& path) {
  std::string start(64 << 10, '\0');
  std::ifstream(path, std::ios::binary).read(start.data(), static_cast<long>(start.size()));
  return start.find("printed") != std::string::npos;
}

TEST(StandardFiles, NoDeviceTakesTheirPlace) {
  const TempDir dir;
  for (const char* parameters : {"?direct=0", ""}) {
    const std::string path = dir.file("device.img"), uri = "emu:" + path + parameters;
    std::filesystem::remove(path);
    EXPECT_TRUE(prints_nowhere(7, true, uri)) << uri;
    for (const unsigned closed : {1u, 2u, 4u, 7u}) {
      EXPECT_TRUE(prints_nowhere(closed, false, uri)) << uri << ' ' << closed;
    }
    EXPECT_FALSE(has_printed(path)) << uri;
  }
}

TEST(StandardFiles, ThoseThatAreOpenStay) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const int was = dup(STDOUT_FILENO);
  dup2(ends[1], STDOUT_FILENO);
  fill_standard_files();
  const bool written = write(STDOUT_FILENO, "kept", 4) == 4;
  dup2(was, STDOUT_FILENO);
  char got[4] = {};
  EXPECT_TRUE(written && read(ends[0], got, 4) == 4);
  EXPECT_EQ(std::string_view(got, 4), "kept");
  for (const int fd : {was, ends[0], ends[1]}) close(fd);
}

TEST(Descriptors, WhereThereAreNoMoreTheLimitIsNamed) {
#if defined(FURROW_SANITIZED)
  GTEST_SKIP() << "the sanitizers need descriptors of their own to look at a virtual call";
#endif
  const TempDir dir;
  rlimit was{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &was), 0);
  const rlimit none{0, was.rlim_max};
  DeviceShape shape;
  shape.size_bytes = 16 * kMiB;
  const int next = dup(STDERR_FILENO);
  ASSERT_GE(next, 0);
  close(next);
  const rlimit one{static_cast<rlim_t>(next) + 1, was.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &one), 0);
  const Status half_made = create_device("emu:" + dir.file("device.img"), shape);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const Status loop = EventLoop::make({}).status();
  const Status made = create_device("emu:" + dir.file("device.img"), shape);
  std::string thrown;
  try {
    EventLoop needed;
  } catch (const std::system_error& error) {
    thrown = error.what();
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &was), 0);
  for (const std::string& said : {loop.describe(), made.describe(), half_made.describe(), thrown}) {
    EXPECT_NE(said.find("ulimit -n"), std::string::npos) << said;
    EXPECT_NE(said.find("Too many open files"), std::string::npos) << said;
  }
}

}  // namespace
}  // namespace furrow::test
