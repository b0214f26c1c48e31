// Establishes what an emulated device's queue does beyond the conformance suite: a flush covers the
// zone table, a batch is one system call, an event loop that sleeps is woken, and where the kernel
// gives no ring the user is told what to do.
#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/zone/emu_fixture.h"
#include "zone/event_loop.h"
#include "zone/new_ring.h"

namespace furrow::test {
namespace {

// The pages of the zone table's mapping are written back by the flush: the kernel says that none
// is dirty any more.
TEST_F(EmuDeviceTest, AFlushCoversTheMappedZoneTable) {
  create();
  auto device = open();
  Client client(*device);
  ASSERT_TRUE(client.write(0, 0, 1, 1).ok());
  ASSERT_TRUE(client.write(0, 1, 1, 1).ok());
  if (dirty_table_kib() == 0) GTEST_SKIP() << "the kernel does not tell";
  ASSERT_TRUE(client.flush().ok());
  EXPECT_EQ(dirty_table_kib(), 0);
}

TEST_F(EmuDeviceTest, PushesManySubmissionsByOneSystemCall) {
  create();
  auto device = open("?direct=0");
  Client client(*device, 64);
  ASSERT_TRUE(client.write(0, 0, 64, 1).ok());
  std::vector<AlignedBuffer> data;
  std::vector<Io> ios(64);
  for (std::size_t i = 0; i < ios.size(); ++i) {
    data.emplace_back(4096);
    ios[i].lba = client.at(0, i);
    ios[i].set_data(data[i].data(), 1, 4096);
  }
  const std::uint64_t before = client.queue->system_calls();
  ASSERT_TRUE(run_blocking(*client.queue, ios).ok());
  EXPECT_EQ(client.queue->system_calls() - before, 1u);
  // Past the write pointer there is no I/O at all.
  const std::uint64_t after = client.queue->system_calls();
  client.expect_zeroes(0, 64, 64);
  EXPECT_EQ(client.queue->system_calls(), after);
}

// A new device, through the page cache or not, by the ring or by calls that may block.
class EmuQueueTest : public EmuDeviceTest,
                     public testing::WithParamInterface<std::tuple<bool, bool>> {
 protected:
  void SetUp() override {
    const auto [direct, may_block] = GetParam();
    create();
    device_ = open(direct ? "?reclaim=never" : "?reclaim=never&direct=0");
    ASSERT_NE(device_, nullptr);
    client_ = std::make_unique<Client>(*device_);
    if (may_block) client_->queue->may_block();
  }
  std::unique_ptr<ZonedDevice> device_;
  std::unique_ptr<Client> client_;
};
INSTANTIATE_TEST_SUITE_P(Ways, EmuQueueTest, testing::Combine(testing::Bool(), testing::Bool()));

// A write across the end that the process's files may have, which need not be one of a block's: the
// file system is as good as full. Elsewhere it is not.
TEST_P(EmuQueueTest, AWriteAcrossTheLimitOfFilesFindsThemFull) {
  Client& client = *client_;
  for (std::uint64_t at = 0; at < 384; at += 32) ASSERT_TRUE(client.write(0, at, 32, 1).ok());
  ASSERT_TRUE(client.manage(Io::Op::reset, 0).ok());
  ASSERT_TRUE(client.write(0, 0, 4, 2).ok());
  {
    const FileSizeLimit limit(superblock().offset_of(ZoneId{0}, 6) + 100);
    const Status status = client.write(0, 4, 4, 3);
    EXPECT_EQ(status.code(), Code::no_space) << status.describe();
    EXPECT_EQ(status.sys_errno(), EFBIG);
  }
  client.expect_data(0, 0, 4, 2);
  ASSERT_TRUE(client.write(1, 0, 4, 4).ok());
  client.expect_data(1, 0, 4, 4);
}

// Wherever the file ends now, in an LBA too: what lies before is read, all else is an error that
// says so, and never a success.
TEST_P(EmuQueueTest, AFileThatIsTruncatedWhileItIsOpenGivesErrors) {
  Client& client = *client_;
  ASSERT_TRUE(client.write(1, 0, 16, 7).ok());
  ASSERT_TRUE(client.flush().ok());
  const std::uint64_t begin = superblock().offset_of(ZoneId{1}, 0);
  const std::uint32_t lba_bytes = device_->geometry().lba_bytes;
  ASSERT_EQ(truncate(path_.c_str(), static_cast<off_t>(begin + 5 * lba_bytes + 100)), 0);
  client.expect_data(1, 0, 5, 7);
  AlignedBuffer page;
  for (const auto& [at, lbas] : {std::pair{0u, 16u}, {4u, 2u}, {5u, 1u}, {6u, 1u}, {8u, 8u}}) {
    const Status status = client.read(client.at(1, at), lbas, page);
    EXPECT_EQ(status.code(), Code::io_error) << at << ": " << status.describe();
  }
  client.expect_data(1, 0, 5, 7);
}

// A read finds what another has written through the page cache, and the disk does not have yet:
// that one waits, and those after it are a system call each again.
TEST_P(EmuQueueTest, AReadFindsWhatIsDirtyInThePageCache) {
  Client& client = *client_;
  ASSERT_TRUE(client.write(1, 0, 3, 7).ok());
  ASSERT_TRUE(client.write(1, 3, 1, 8).ok());
  const std::uint64_t offset = superblock().offset_of(ZoneId{1}, 2);
  AlignedBuffer page;
  for (std::uint64_t value = 1; value <= 5; ++value) {
    poke(offset, &value, sizeof value);
    ASSERT_TRUE(client.read(client.at(1, 2), 1, page).ok());
    EXPECT_EQ(std::memcmp(page.data(), &value, sizeof value), 0) << value;
    client.expect_data(1, 3, 1, 8);
  }
  bool by_one = false;
  for (int i = 0; i < 5 && !by_one; ++i) {  // the disk may be too busy for one of them
    const std::uint64_t before = client.queue->system_calls();
    ASSERT_TRUE(client.read(client.at(1, 2), 1, page).ok());
    by_one = client.queue->system_calls() - before == 1;
  }
  EXPECT_TRUE(by_one || !std::get<1>(GetParam()));
}

// A thread may have a queue that moves on, and end: what it submitted is done all the same, also
// where a read has to wait for the page cache, which the kernel leaves to the thread itself.
TEST_P(EmuQueueTest, WhatAThreadThatHasEndedSubmittedIsDone) {
  Client& client = *client_;
  for (std::uint64_t at = 0; at < 384; at += 32) ASSERT_TRUE(client.write(1, at, 32, 1).ok());
  ASSERT_TRUE(client.flush().ok());
  std::vector<AlignedBuffer> data;
  for (unsigned i = 0; i < 24; ++i) data.emplace_back(4096);
  AlignedBuffer page;
  for (int round = 0; round < 5; ++round) {
    const int fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    close(fd);
    std::vector<Io> ios(data.size());
    std::thread([&] {
      for (std::size_t i = 0; i < ios.size(); ++i) {
        ios[i].lba = client.at(1, (i * 16 + 383) % 384);
        ios[i].on_complete = [](Io&) {};
        ios[i].set_data(data[i].data(), 1, 4096);
        client.queue->submit(ios[i]);
      }
      (void)client.queue->poll();
    }).join();
    while (client.queue->in_flight() != 0) client.queue->wait(1000);
    for (std::size_t i = 0; i < ios.size(); ++i) {
      ASSERT_TRUE(ios[i].status.ok()) << ios[i].status.describe();
      ASSERT_TRUE(client.read(ios[i].lba, 1, page).ok());
      ASSERT_EQ(std::memcmp(page.data(), data[i].data(), 4096), 0) << i;
    }
  }
}

// The queue wakes an event loop that sleeps on its descriptor.
TEST_F(EmuDeviceTest, WakesASleepingEventLoop) {
  create();
  auto device = open();
  Client client(*device);
  ASSERT_TRUE(client.write(0, 0, 8, 1).ok());
  EventLoop::Options options;
  options.spin_us = 0;
  EventLoop loop(options);
  struct State {
    EventLoop* loop;
    IoQueue* queue;
    unsigned left = 200;
  } state{&loop, client.queue.get()};
  AlignedBuffer data(4096);
  Io io;
  io.lba = client.at(0, 3);
  io.set_data(data.data(), 1, 4096);
  io.context = &state;
  io.on_complete = [](Io& done) {
    State& self = *static_cast<State*>(done.context);
    if (--self.left == 0) return self.loop->stop_running();
    self.queue->submit(done);
  };
  loop.add(*client.queue);
  client.queue->submit(io);
  loop.run();
  loop.remove(*client.queue);
  EXPECT_EQ(state.left, 0u);
}

TEST(RingRefused, SaysWhatToDo) {
  const auto hint = [](int error) { return std::string(ring_refused(error, Origin::zone).hint()); };
  EXPECT_NE(hint(ENOMEM).find("ulimit -l"), std::string::npos);
  EXPECT_NE(hint(EPERM).find("kernel.io_uring_disabled"), std::string::npos);
  EXPECT_EQ(ring_refused(ENOSYS, Origin::zone).code(), Code::unsupported);
  EXPECT_NE(hint(EMFILE).find("ulimit -n"), std::string::npos);
  EXPECT_EQ(ring_refused(ENFILE, Origin::transport).sys_errno(), ENFILE);
}

}  // namespace
}  // namespace furrow::test
