// Establishes in which order a drive is sent the writes of a zone: one after another, or, where
// they are Zone Appends, together, and neither before what was submitted ahead of it. How: a drive
// that is a file, and that sees what it has at a time. (With a drive's own order:
// drive_device_test.)
#include <gtest/gtest.h>

#include <vector>

#include "tests/zone/fake_drive.h"

namespace furrow::test {
namespace {

class DriveOrder : public ::testing::Test {
 protected:
  // So many of one LBA each, submitted together to zones 0 and 1 in turn; `is_write` of which.
  template <class IsWrite>
  void submit(std::size_t count, IsWrite is_write) {
    ios_ = std::vector<Io>(count);
    for (std::size_t i = 0; i < count; ++i) {
      data_.emplace_back(4096);
      fill(data_[i].span(), 4096, i);
      Io& io = ios_[i];
      const std::uint32_t zone = i % 2;
      io.op = is_write(i / 2) ? Io::Op::write : Io::Op::append;
      io.zone = ZoneId{zone};
      io.lba = client_.at(zone, io.op == Io::Op::write ? i / 2 : 0);
      io.set_data(data_[i].data(), 1, 4096);
    }
    ASSERT_TRUE(run_blocking(*client_.queue, ios_).ok());
  }
  std::uint64_t place(std::size_t i) const {
    const Io& io = ios_[i];
    const Lba at = io.op == Io::Op::write ? io.lba : io.appended_at;
    return at.value - device_.geometry().zone_start(io.zone).value;
  }

  FakeDrive drive_{true};
  FakeDevice device_{drive_};
  Client client_{device_};
  std::vector<AlignedBuffer> data_;
  std::vector<Io> ios_;
};

TEST_F(DriveOrder, WritesComeOneAfterAnother) {
  submit(40, [](std::size_t) { return true; });
  for (std::size_t i = 0; i < ios_.size(); ++i) client_.expect_data(i % 2, i / 2, 1, i);
}

TEST_F(DriveOrder, AppendsKeepOutOfTheWayOfWrites) {
  submit(80, [](std::size_t i) { return i % 5 == 2; });
  for (std::size_t i = 0; i < ios_.size(); ++i) {
    const std::uint64_t at = place(i), number = i / 2;
    client_.expect_data(i % 2, at, 1, i);
    if (number % 5 == 2) continue;
    // Of the appends between two writes each may be anywhere there.
    const std::uint64_t first = number < 2 ? 0 : (number - 2) / 5 * 5 + 3;
    EXPECT_GE(at, first) << i;
    EXPECT_LT(at, number < 2 ? 2 : first + 4) << i;
  }
  EXPECT_EQ(drive_.zone(0).written_lbas, 40u);
  EXPECT_EQ(drive_.zone(1).written_lbas, 40u);
}

}  // namespace
}  // namespace furrow::test
