// Establishes that ZoneReader gives each LBA of a zone as it is on the medium, as far as the zone
// may have been written; that LBAs one behind another cost a read for 256 KiB of them; that an LBA
// which cannot be read hides no other one, and a read that fails in passing none at all; that a run
// of LBAs longer than the window is given whole or not at all; and what of a full zone was not
// used. How: on a zone of two windows with every LBA's number in it, behind a FaultDevice for LBAs
// that are bad and a TapDevice that lists the reads.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "log/metadata_scan.h"
#include "tests/log/tap_device.h"
#include "zone/blocking.h"
#include "zone/fault_device.h"

namespace furrow {
namespace {

constexpr ZoneId kReadZone{2};
constexpr std::uint64_t kReadCapacity = 1000, kWindowLbas = 512;  // LBAs of 512 bytes

class ZoneReaderTest : public testing::Test {
 protected:
  void SetUp() override {
    auto device = open_device("mem:2MiB?zone_size=512KiB&zone_capacity=500KiB&lba=512&mor=3&mar=3",
                              Access::exclusive);
    ASSERT_TRUE(device.ok()) << device.status().describe();
    auto faulty = std::make_unique<FaultDevice>(std::move(*device), FaultOptions());
    faults_ = faulty.get();
    device_ = std::make_unique<TapDevice>(std::move(faulty));
    ASSERT_EQ(device_->geometry().zone_capacity_lbas, kReadCapacity);
    auto queue = device_->create_queue(4);
    ASSERT_TRUE(queue.ok());
    queue_ = std::move(*queue);
  }

  // No LBA is all zeroes.
  static std::byte byte_of(std::uint64_t lba) { return static_cast<std::byte>(lba % 251 + 1); }
  static std::vector<std::byte> content(std::uint64_t at, std::uint64_t count) {
    std::vector<std::byte> bytes;
    for (std::uint64_t lba = at; lba < at + count; ++lba) {
      bytes.insert(bytes.end(), 512, byte_of(lba));
      std::memcpy(bytes.data() + bytes.size() - 8, &lba, 8);
    }
    return bytes;
  }
  static std::vector<std::byte> copy(std::span<const std::byte> bytes) {
    return {bytes.begin(), bytes.end()};
  }
  void write(std::uint64_t at, std::vector<std::byte> bytes) {
    AlignedBuffer buffer(bytes.size());
    std::memcpy(buffer.data(), bytes.data(), bytes.size());
    Io io;
    io.op = Io::Op::write;
    io.zone = kReadZone;
    io.lba = medium_lba(at);
    io.set_data(buffer.data(), static_cast<std::uint32_t>(bytes.size() / 512), 512);
    const Status status = run_blocking(*queue_, io);
    ASSERT_TRUE(status.ok()) << status.describe();
  }
  void write(std::uint64_t count) { write(0, content(0, count)); }
  void finish() { ASSERT_TRUE(manage_blocking(*queue_, Io::Op::finish, kReadZone).ok()); }
  Lba medium_lba(std::uint64_t at) const {
    return Lba{device_->geometry().zone_start(kReadZone).value + at};
  }
  ZoneInfo info() { return (*device_->report())[kReadZone.value]; }
  ZoneReader reader() { return reader(info()); }
  ZoneReader reader(const ZoneInfo& info) {
    device_->forget_events();
    return {*queue_, device_->geometry(), info};
  }
  // The reads since the last call: where, and how long.
  std::vector<std::pair<std::uint64_t, std::uint32_t>> reads() {
    std::vector<std::pair<std::uint64_t, std::uint32_t>> all;
    for (const TapDevice::Event& event : device_->events(true)) {
      if (!event.answered) all.push_back({event.lba, event.lbas});
    }
    device_->forget_events();
    return all;
  }
  using Reads = std::vector<std::pair<std::uint64_t, std::uint32_t>>;
  static constexpr Status kFailure{Code::io_error, Origin::zone};

  FaultDevice* faults_ = nullptr;
  std::unique_ptr<TapDevice> device_;
  std::unique_ptr<IoQueue> queue_;
};

TEST_F(ZoneReaderTest, HowFarItMayHaveBeenWritten) {
  EXPECT_EQ(reader().written_lbas(), 0u);
  write(7);
  EXPECT_EQ(reader().written_lbas(), 7u);
  ASSERT_TRUE(manage_blocking(*queue_, Io::Op::close, kReadZone).ok());
  EXPECT_EQ(reader().written_lbas(), 7u);
  faults_->degrade(kReadZone, ZoneState::read_only);
  EXPECT_EQ(reader().written_lbas(), kReadCapacity) << "nobody knows";
  faults_->degrade(kReadZone, ZoneState::offline);
  EXPECT_EQ(reader().written_lbas(), 0u) << "nothing can be read";
  ZoneInfo strange{kReadZone, ZoneState::closed, kReadCapacity + 1};
  EXPECT_EQ(reader(strange).written_lbas(), kReadCapacity);
}

TEST_F(ZoneReaderTest, AFullZoneMayHaveBeenWrittenToItsCapacity) {
  write(7);
  finish();
  EXPECT_EQ(reader().written_lbas(), kReadCapacity);
}

TEST_F(ZoneReaderTest, LbasOneBehindAnotherShareARead) {
  write(kReadCapacity);
  ZoneReader zone = reader();
  for (std::uint64_t lba = 0; lba < kReadCapacity; ++lba) {
    ASSERT_EQ(copy(zone.lba(lba)), content(lba, 1)) << lba;
  }
  EXPECT_EQ(reads(), (Reads{{0, kWindowLbas}, {kWindowLbas, kReadCapacity - kWindowLbas}}));
  EXPECT_EQ(copy(zone.lba(kWindowLbas)), content(kWindowLbas, 1));
  EXPECT_EQ(reads(), Reads()) << "it is in the window";
  EXPECT_EQ(copy(zone.lba(kWindowLbas - 1)), content(kWindowLbas - 1, 1));
  EXPECT_EQ(reads(), (Reads{{kWindowLbas - 1, kReadCapacity - kWindowLbas + 1}}))
      << "to the end of what was written";
}

TEST_F(ZoneReaderTest, NothingIsReadBehindWhatWasWritten) {
  write(5);
  ZoneReader zone = reader();
  EXPECT_EQ(copy(zone.lba(3)), content(3, 1));
  EXPECT_EQ(copy(zone.lba(4)), content(4, 1));
  EXPECT_EQ(copy(zone.lba(0)), content(0, 1));
  EXPECT_EQ(reads(), (Reads{{3, 2}, {0, 5}}));
}

TEST_F(ZoneReaderTest, ABadLbaHidesNoOther) {
  write(kReadCapacity);
  for (const std::uint64_t bad : {std::uint64_t{3}, std::uint64_t{700}}) {
    faults_->fail_reads(medium_lba(bad), 1);
  }
  ZoneReader zone = reader();
  for (std::uint64_t lba = 0; lba < kReadCapacity; ++lba) {
    const bool bad = lba == 3 || lba == 700;
    ASSERT_EQ(copy(zone.lba(lba)), bad ? std::vector<std::byte>() : content(lba, 1)) << lba;
  }
  faults_->heal();
  EXPECT_EQ(copy(zone.lba(700)), content(700, 1)) << "it is asked for again";
}

TEST_F(ZoneReaderTest, WhatFailsInPassingIsReadAgain) {
  write(kReadCapacity);
  {
    ZoneReader zone = reader();
    device_->fail(Io::Op::read, kFailure, 3);  // of the window, and twice of the one LBA
    EXPECT_EQ(copy(zone.lba(9)), content(9, 1));
    EXPECT_EQ(reads(), (Reads{{9, kWindowLbas}, {9, 1}, {9, 1}, {9, 1}}));
    EXPECT_EQ(copy(zone.lba(10)), content(10, 1));
    EXPECT_EQ(reads(), (Reads{{10, kWindowLbas}})) << "a window again";
  }
  ZoneReader zone = reader();
  device_->fail(Io::Op::read, kFailure, 4);
  EXPECT_TRUE(zone.lba(9).empty());
  EXPECT_EQ(reads().size(), 4u) << "not for ever";
  EXPECT_EQ(copy(zone.lba(9)), content(9, 1));
}

TEST_F(ZoneReaderTest, ARunLongerThanTheWindow) {
  write(kReadCapacity);
  ZoneReader zone = reader();
  EXPECT_EQ(copy(zone.lbas(1, kReadCapacity - 1)), content(1, kReadCapacity - 1));
  EXPECT_EQ(reads(), (Reads{{1, kWindowLbas}, {1 + kWindowLbas, kReadCapacity - 1 - kWindowLbas}}));
  EXPECT_EQ(copy(zone.lbas(998, 2)), content(998, 2));
  EXPECT_EQ(reads(), (Reads{{998, 2}}));
}

TEST_F(ZoneReaderTest, ARunThatCannotBeReadWholeIsNotGiven) {
  write(kReadCapacity);
  ZoneReader zone = reader();
  device_->fail(Io::Op::read, kFailure, 2);
  EXPECT_EQ(copy(zone.lbas(0, 600)), content(0, 600)) << "in passing";
  faults_->fail_reads(medium_lba(599), 1);
  EXPECT_TRUE(zone.lbas(0, 600).empty());
  EXPECT_EQ(copy(zone.lbas(0, 599)), content(0, 599));
}

// Of 300 LBAs, and one in the other window.
TEST_F(ZoneReaderTest, WhatOfAFullZoneWasNotUsed) {
  std::vector<std::byte> bytes = content(0, 300);
  bytes.resize(900 * 512);
  bytes.back() = std::byte{1};
  write(0, std::move(bytes));
  {
    ZoneReader open = reader();
    EXPECT_FALSE(open.is_unused_from(300)) << "all below its write pointer was written";
  }
  finish();
  const auto check = [&] {
    ZoneReader zone = reader();
    EXPECT_FALSE(zone.is_unused_from(0));
    EXPECT_FALSE(zone.is_unused_from(299));
    EXPECT_TRUE(zone.is_unused_from(300));
    EXPECT_TRUE(zone.is_unused_from(400));
    EXPECT_EQ(reads(), (Reads{{0, kWindowLbas}})) << "one window answers all of it";
    EXPECT_FALSE(zone.is_unused_from(kWindowLbas));
    EXPECT_FALSE(zone.is_unused_from(899));
    EXPECT_TRUE(zone.is_unused_from(900));
    EXPECT_TRUE(zone.is_unused_from(kReadCapacity - 1));
  };
  check();
  faults_->degrade(kReadZone, ZoneState::read_only);
  check();
  faults_->fail_reads(medium_lba(300), 1);
  ZoneReader zone = reader();
  EXPECT_FALSE(zone.is_unused_from(300)) << "nobody knows";
}

TEST(IsZero, EveryByteCounts) {
  std::vector<std::byte> bytes(512);
  EXPECT_TRUE(is_zero(bytes));
  EXPECT_TRUE(is_zero({}));
  for (const std::size_t at : {0u, 255u, 511u}) {
    bytes[at] = std::byte{0x80};
    EXPECT_FALSE(is_zero(bytes)) << at;
    bytes[at] = std::byte{0};
  }
}

}  // namespace
}  // namespace furrow
