// Establishes that a device in memory takes memory for what is written only, gives that of a reset
// zone back from poll(), none of it with `never` and not before a while with `lazy`, and none of a
// zone that is in use again. How: what the kernel says that this process has in memory, of zones
// much larger than what the test itself takes.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "tests/zone/device_test_util.h"

namespace furrow::test {
namespace {

constexpr std::uint32_t kPiece = kMiB / 4096;  // LBAs of a write
constexpr std::uint32_t kPieces = 16;          // of a zone
constexpr std::int64_t kZoneMiB = 16, kSlackMiB = 3;

// Counted page by page: what /proc/self/statm says is an estimate. A mapping of terabytes is a
// sanitizer's shadow, which grows with what is read.
std::int64_t resident_mib() {
  constexpr std::int64_t kShadowKib = std::int64_t{1} << 30;
  std::ifstream file("/proc/self/smaps");
  std::int64_t size_kib = 0, rss_kib = 0, all_kib = 0;
  for (std::string word; file >> word;) {
    if (word == "Size:") file >> size_kib;
    if (word == "Rss:" && file >> rss_kib && size_kib < kShadowKib) all_kib += rss_kib;
  }
  EXPECT_GT(all_kib, 0) << "no Rss in /proc/self/smaps";
  return all_kib / 1024;
}

class MemDeviceTest : public ::testing::Test {
 protected:
  // Zones 0 and 1 are full, and zone 0 is reset then.
  void make(const std::string& reclaim) {
    auto opened = open_device("mem:64MiB?zone_size=16MiB&reclaim=" + reclaim, Access::exclusive);
    ASSERT_TRUE(opened.ok()) << opened.status().describe();
    device_ = std::move(*opened);
    client_.emplace(*device_);
    before_ = resident_mib();
    for (std::uint32_t i = 0; i < kPieces; ++i) {
      write(0, i, i);
      write(1, i, 100 + i);
    }
    ASSERT_NEAR(taken_mib(), 2 * kZoneMiB, kSlackMiB);
    ASSERT_TRUE(client_->manage(Io::Op::reset, 0).ok());
  }
  // From the same memory each time: a sanitizer keeps what is freed for a while.
  void write(std::uint32_t zone, std::uint32_t piece, std::uint64_t seed) {
    fill(data_.span(), 4096, seed);
    Io io;
    io.op = Io::Op::write;
    io.zone = ZoneId{zone};
    io.lba = client_->at(zone, piece * kPiece);
    io.set_data(data_.data(), kPiece, 4096);
    ASSERT_TRUE(client_->run(io).ok());
  }
  std::int64_t taken_mib() const { return resident_mib() - before_; }
  // A piece of 256 KiB goes in a millisecond at the most.
  void poll_for(unsigned ms) {
    for (unsigned i = 0; i < ms; ++i) {
      client_->queue->poll();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  void expect_zone_1() {
    for (std::uint32_t i = 0; i < kPieces; ++i) {
      client_->expect_data(1, i * kPiece, kPiece, 100 + i);
    }
  }
  // (In pieces: the C library keeps large memory that was freed once.)
  void expect_zone_0_empty() {
    for (std::uint32_t i = 0; i < kPieces; ++i) client_->expect_zeroes(0, i * kPiece, kPiece);
  }

  AlignedBuffer data_{kMiB};
  std::unique_ptr<ZonedDevice> device_;
  std::optional<Client> client_;
  std::int64_t before_ = 0;
};

TEST_F(MemDeviceTest, TheMemoryOfAResetZoneIsGivenBack) {
  make("now");
  for (int turns = 0; taken_mib() > kZoneMiB + kSlackMiB && turns < 1000; ++turns) poll_for(10);
  EXPECT_NEAR(taken_mib(), kZoneMiB, kSlackMiB);
  expect_zone_1();
  expect_zone_0_empty();
  ASSERT_TRUE(client_->write(0, 0, kPiece, 7).ok());
  client_->expect_data(0, 0, kPiece, 7);
}

TEST_F(MemDeviceTest, AZoneThatIsInUseAgainKeepsWhatItHas) {
  make("now");
  for (std::uint32_t i = 0; i < kPieces; ++i) {
    write(0, i, 50 + i);
    poll_for(8);
  }
  EXPECT_NEAR(taken_mib(), 2 * kZoneMiB, kSlackMiB);
  for (std::uint32_t i = 0; i < kPieces; ++i) client_->expect_data(0, i * kPiece, kPiece, 50 + i);
  expect_zone_1();
}

// Their last page is another zone's as well.
TEST_F(MemDeviceTest, ZonesThatEndInsideAPage) {
  auto device = open_device("mem:46080?zone_size=4608&lba=512&reclaim=now", Access::exclusive);
  ASSERT_TRUE(device.ok()) << device.status().describe();
  client_.emplace(**device);
  for (std::uint32_t zone = 0; zone < 3; ++zone) {
    ASSERT_TRUE(client_->write(zone, 0, 9, zone).ok());
  }
  ASSERT_TRUE(client_->manage(Io::Op::reset, 0).ok());
  poll_for(10);
  client_->expect_zeroes(0, 0, 9);
  client_->expect_data(1, 0, 9, 1);
  client_->expect_data(2, 0, 9, 2);
  client_.reset();
}

TEST_F(MemDeviceTest, NeverKeepsItAll) {
  make("never");
  poll_for(150);
  EXPECT_NEAR(taken_mib(), 2 * kZoneMiB, kSlackMiB);
  expect_zone_0_empty();
}

TEST_F(MemDeviceTest, LazyWaitsAndThenGivesItBack) {
  make("lazy");
  const auto start = std::chrono::steady_clock::now();
  poll_for(100);
  const std::int64_t kept = taken_mib();
  if (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(900)) {
    EXPECT_NEAR(kept, 2 * kZoneMiB, kSlackMiB);
  }
  for (int turns = 0; taken_mib() > kZoneMiB + kSlackMiB && turns < 1000; ++turns) poll_for(10);
  EXPECT_NEAR(taken_mib(), kZoneMiB, kSlackMiB);
  expect_zone_1();
}

}  // namespace
}  // namespace furrow::test
