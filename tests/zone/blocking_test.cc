// Establishes that run_blocking() waits for all operations that it was given, also when they take
// long or end in another order, and returns the first error in the order of the operations, with
// each one's own status left in it. How: mem: behind the fault device, which delays and fails.
#include "zone/blocking.h"

#include <gtest/gtest.h>

#include "tests/zone/device_test_util.h"
#include "zone/fault_device.h"

namespace furrow::test {
namespace {

class BlockingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto inner = open_device("mem:4MiB?zone_size=1MiB", Access::exclusive);
    ASSERT_TRUE(inner.ok()) << inner.status().describe();
    FaultOptions options;
    options.delay_polls_max = 20;
    device_ = std::make_unique<FaultDevice>(std::move(*inner), options);
    client_ = std::make_unique<Client>(*device_);
    ASSERT_TRUE(client_->write(0, 0, 64, 1).ok());
    data_ = AlignedBuffer(64 * 4096);
    ios_.resize(64);
    for (std::size_t i = 0; i < ios_.size(); ++i) {
      ios_[i].lba = client_->at(0, i);
      ios_[i].set_data(data_.data() + i * 4096, 1, 4096);
    }
  }
  std::unique_ptr<FaultDevice> device_;
  std::unique_ptr<Client> client_;
  AlignedBuffer data_;
  std::vector<Io> ios_;
};

TEST_F(BlockingTest, WaitsForAll) {
  std::memset(data_.data(), 0xEE, data_.size());
  ASSERT_TRUE(run_blocking(*client_->queue, ios_).ok());
  EXPECT_EQ(client_->queue->in_flight(), 0u);
  AlignedBuffer want(data_.size());
  fill(want.span(), 4096, 1);
  EXPECT_EQ(std::memcmp(data_.data(), want.data(), want.size()), 0);
}

TEST_F(BlockingTest, OfNothingIsDone) {
  EXPECT_TRUE(run_blocking(*client_->queue, std::span<Io>()).ok());
}

TEST_F(BlockingTest, TheFirstErrorIsReturnedAndTheOthersAreStillDone) {
  device_->fail_reads(client_->at(0, 40), 1);
  ios_[7].lba_count = 2;  // not what the data says: refused
  const Status status = run_blocking(*client_->queue, ios_);
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_EQ(client_->queue->in_flight(), 0u);
  for (std::size_t i = 0; i < ios_.size(); ++i) {
    const Code want = i == 7 ? Code::invalid_argument : i == 40 ? Code::io_error : Code::ok;
    EXPECT_EQ(ios_[i].status.code(), want) << i;
  }
  ios_.erase(ios_.begin(), ios_.begin() + 8);
  EXPECT_EQ(run_blocking(*client_->queue, ios_).code(), Code::io_error);
}

TEST_F(BlockingTest, AnIoMayBeRunAgain) {
  Io& io = ios_[0];
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(run_blocking(*client_->queue, io).ok());
}

}  // namespace
}  // namespace furrow::test
