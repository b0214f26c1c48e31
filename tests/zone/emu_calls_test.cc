// Establishes how an emulated device uses its file: a write costs no system call beside those of
// its batch, that is, none for the zone table; a queue says of no fewer than it makes; the file is
// opened for direct I/O unless that is declined, and reads do not touch its time; and the zone
// table is written again by an opening, so that the next flush covers what an earlier one may have
// lost. How: the calls are counted by ptrace(), the rest is what the kernel says of the file.
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/vfs.h>

#include "tests/rounds.h"
#include "tests/zone/emu_fixture.h"
#include "tests/zone/traced_calls.h"

namespace furrow::test {
namespace {

class EmuCallsTest : public EmuDeviceTest {
 protected:
  void SetUp() override { create(); }
  // Else each store into the zone table is a pwrite(), by design.
  bool table_is_mapped() const {
    struct statfs info {};
    EXPECT_EQ(statfs(path_.c_str(), &info), 0);
    return info.f_type == EXT4_SUPER_MAGIC || info.f_type == TMPFS_MAGIC;
  }
  // Is the file open here with this flag, by any of its descriptors?
  bool is_open_with(int flag) const {
    bool open = false, found = false;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      if (std::filesystem::read_symlink(entry.path(), gone) != path_ || gone) continue;
      open = true;
      const int fd = std::stoi(entry.path().filename());
      found = found || (fcntl(fd, F_GETFL) & flag) != 0;
    }
    EXPECT_TRUE(open);
    return found;
  }

  static constexpr std::uint32_t kBatch = 64, kBatches = 6;
  // Appends `kBatches` times as many pages as the queue is deep, between two marks.
  void append_pages(const char* parameters) {
    auto device = open(parameters);
    Client client(*device, kBatch);
    ASSERT_TRUE(client.write(1, 0, 1, 1).ok());
    AlignedBuffer data(std::size_t{kBatch} * 4096);
    std::vector<Io> ios(kBatch);
    mark(client.queue->system_calls());
    for (std::uint32_t batch = 0; batch < kBatches; ++batch) {
      for (std::uint32_t i = 0; i < kBatch; ++i) {
        ios[i] = Io{};
        ios[i].op = Io::Op::append;
        ios[i].zone = ZoneId{0};
        ios[i].set_data(data.data() + std::size_t{i} * 4096, 1, 4096);
      }
      ASSERT_TRUE(run_blocking(*client.queue, ios).ok());
    }
    mark(client.queue->system_calls());
    ASSERT_EQ((*device->report())[0].written_lbas, kBatches * kBatch);
  }
};

TEST_F(EmuCallsTest, AWriteCostsNoneBesideItsBatchs) {
  if (!table_is_mapped()) GTEST_SKIP() << "the file system may copy what is written";
  for (const char* parameters : {"", "?direct=0"}) {
    const auto marks = trace_calls([&] { append_pages(parameters); });
    if (!marks) GTEST_SKIP() << "ptrace() is not permitted";
    ASSERT_EQ(marks->size(), 2u);
    const std::uint64_t made = (*marks)[1].calls_before - (*marks)[0].calls_before;
    // A wait that finds a completion is counted, and makes no call. A sanitizer makes some itself.
    EXPECT_LE(made, (*marks)[1].value - (*marks)[0].value + rounds(0, kBatch))
        << "the queue counts all, " << parameters;
    EXPECT_GE(made, kBatches);
    std::filesystem::remove(path_);
    create();
  }
}

TEST_F(EmuCallsTest, TheFileIsOpenForDirectIoUnlessThatIsDeclined) {
  if (emu::Fd(::open(path_.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC)).get() < 0) {
    GTEST_SKIP() << "no direct I/O on this file system";
  }
  for (const Access access : {Access::exclusive, Access::check, Access::inspect}) {
    {
      const auto device = open("", access);
      EXPECT_TRUE(is_open_with(O_DIRECT)) << static_cast<int>(access);
    }
    const auto device = open("?direct=0", access);
    EXPECT_FALSE(is_open_with(O_DIRECT)) << static_cast<int>(access);
  }
}

TEST_F(EmuCallsTest, ReadsDoNotTouchTheFilesTime) {
  for (const Access access : {Access::exclusive, Access::check, Access::inspect}) {
    const auto device = open("", access);
    EXPECT_TRUE(is_open_with(O_NOATIME)) << static_cast<int>(access);
  }
}

// After a sync that failed the kernel takes for written what is not. So an opening makes all of the
// table's pages dirty, for the next flush to write.
TEST_F(EmuCallsTest, AnOpeningWritesTheZoneTableAgain) {
  if (!table_is_mapped()) GTEST_SKIP() << "there only if the medium has another one";
  {
    auto device = open();
    Client client(*device);
    ASSERT_TRUE(client.write(0, 0, 1, 1).ok());
    if (dirty_table_kib() == 0) GTEST_SKIP() << "the kernel does not tell";
    ASSERT_TRUE(client.flush().ok());
  }
  {
    auto device = open("", Access::check);
    EXPECT_EQ(dirty_table_kib(), 0) << "a check writes nothing";
  }
  std::unique_ptr<ZonedDevice> device;
  long dirty_kib = 0;
  for (int i = 0; i < 5 && dirty_kib == 0; ++i) {  // another process may have called sync()
    device.reset();
    device = open();
    dirty_kib = dirty_table_kib();
  }
  EXPECT_EQ(dirty_kib, 2 * 4) << "two copies of a page each";
  ASSERT_TRUE(Client(*device).flush().ok());
  EXPECT_EQ(dirty_table_kib(), 0);
}

}  // namespace
}  // namespace furrow::test
