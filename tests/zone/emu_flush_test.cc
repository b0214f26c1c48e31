// Establishes what a failed flush of an emulated device means: no later one is acknowledged, on any
// queue, until the device is opened again, as the kernel may have dropped what it could not write
// and tells of that once; and the space of a zone whose reset may not be durable is kept. How: a
// queue that takes a flush of the kernel's for failed, once.
#include <utility>

#include "tests/zone/emu_fixture.h"
#include "zone/emu_queue.h"

namespace furrow::test {
namespace {

class FlushFailsOnce final : public emu::EmuQueue {
 public:
  static std::unique_ptr<FlushFailsOnce> make(ZonedDevice& device) {
    std::unique_ptr<FlushFailsOnce> made(
        new FlushFailsOnce(dynamic_cast<emu::EmuDevice&>(device), 8));
    const Status status = made->init_ring();
    EXPECT_TRUE(status.ok()) << status.describe();
    return made;
  }
  Status flush() {
    Io io;
    io.op = Io::Op::flush;
    return run_blocking(*this, io);
  }

 private:
  FlushFailsOnce(emu::EmuDevice& device, unsigned depth) : EmuQueue(device, depth) {}
  void transferred(Io& io, int error) override {
    if (io.op == Io::Op::flush && !std::exchange(failed_, true)) error = EIO;
    EmuQueue::transferred(io, error);
  }

  bool failed_ = false;
};

class EmuFlushTest : public EmuDeviceTest {
 protected:
  // By a ring, or by the thread itself.
  void no_flush_after_a_failed_one(bool by_ring) {
    create();
    {
      auto device = open();
      Client client(*device);
      ASSERT_TRUE(client.write(0, 0, 4, 1).ok());
      ASSERT_TRUE(client.flush().ok());
      ASSERT_TRUE(client.write(0, 4, 4, 2).ok());
      auto queue = FlushFailsOnce::make(*device);
      if (!by_ring) queue->may_block();
      const Status failed = queue->flush();
      EXPECT_EQ(failed.code(), Code::io_error);
      EXPECT_EQ(failed.sys_errno(), EIO);
      for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(queue->flush().code(), Code::io_error);
        EXPECT_EQ(client.flush().code(), Code::io_error) << "another queue";
      }
      EXPECT_EQ(Client(*device).flush().code(), Code::io_error) << "a new queue";
      EXPECT_TRUE(client.write(0, 8, 4, 3).ok()) << "which promises nothing about a power cut";
      client.expect_data(0, 4, 4, 2);
      EXPECT_FALSE(client.flush().ok());
    }
    auto device = open();
    Client client(*device);
    EXPECT_TRUE(client.flush().ok());
    client.expect_data(0, 0, 4, 1);
    client.expect_data(0, 4, 4, 2);
    client.expect_data(0, 8, 4, 3);
  }
};

TEST_F(EmuFlushTest, NoneIsAcknowledgedAfterAFailedOne) { no_flush_after_a_failed_one(true); }

TEST_F(EmuFlushTest, NorByAThreadThatMayBlock) { no_flush_after_a_failed_one(false); }

TEST_F(EmuFlushTest, AfterAFailedOneNoSpaceIsGivenBack) {
  create();
  {
    auto device = open("?reclaim=now");
    Client client(*device);
    ASSERT_TRUE(client.write(0, 0, 384, 1).ok());
    const std::uint64_t before = used_bytes(path_);
    auto queue = FlushFailsOnce::make(*device);
    EXPECT_FALSE(queue->flush().ok());
    ASSERT_TRUE(client.manage(Io::Op::reset, 0).ok());
    dynamic_cast<emu::EmuDevice&>(*device).drain_reclaim();
    EXPECT_EQ(used_bytes(path_), before) << "a power cut may undo the reset";
  }
  auto device = open("?reclaim=now");
  Client client(*device);
  ASSERT_TRUE(client.write(0, 0, 384, 2).ok());
  const std::uint64_t before = used_bytes(path_);
  ASSERT_TRUE(client.manage(Io::Op::reset, 0).ok());
  dynamic_cast<emu::EmuDevice&>(*device).drain_reclaim();
  EXPECT_EQ(before - used_bytes(path_), kMiB + kMiB / 2);
}

}  // namespace
}  // namespace furrow::test
