// Establishes that PageWindow gives each page's own bytes, reads many small ones at once and none
// behind the end it is given, goes back when it is asked to, and tells an unreadable page apart
// from the others in its window. How: a zone whose LBAs all differ, reads counted and failed.
#include "log/page_window.h"

#include "tests/log/log_rig.h"

namespace furrow {
namespace {

class PageWindowTest : public LogRig {
 protected:
  static constexpr std::uint64_t kLbas = 4096;  // 2 MiB
  void SetUp() override {
    Shape shape;
    shape.zone_size_lbas = shape.zone_capacity_lbas = kLbas;
    make(shape);
    AlignedBuffer bytes(kLbas * kLbaBytes);
    for (std::uint64_t lba = 0; lba < kLbas; ++lba) {
      std::memset(bytes.data() + lba * kLbaBytes, static_cast<int>(lba % 251), kLbaBytes);
    }
    first_ = device_->geometry().zone_start(ZoneId{3}).value;
    Io io;
    io.op = Io::Op::write;
    io.zone = ZoneId{3};
    io.lba = Lba{first_};
    io.set_data(bytes.data(), kLbas, kLbaBytes, -1);
    ASSERT_TRUE(run_blocking(*queue_, io).ok());
    device_->forget_events();
  }
  void expect_page(PageWindow& window, std::uint64_t lba, std::uint64_t lbas) {
    const auto got = window.read(first_ + lba, lbas, first_ + kLbas);
    ASSERT_TRUE(got.ok()) << got.status().describe();
    ASSERT_EQ(got->size(), lbas * kLbaBytes);
    for (std::uint64_t i = 0; i < lbas; ++i) {
      ASSERT_EQ((*got)[i * kLbaBytes], static_cast<std::byte>((lba + i) % 251)) << lba + i;
      ASSERT_EQ((*got)[(i + 1) * kLbaBytes - 1], static_cast<std::byte>((lba + i) % 251));
    }
  }
  std::uint64_t first_ = 0;
};

TEST_F(PageWindowTest, SmallPagesShareARead) {
  PageWindow window(*queue_, device_->geometry());
  for (std::uint64_t lba = 0; lba + 3 <= kLbas; lba += 3) expect_page(window, lba, 3);
  EXPECT_LE(device_->count(Io::Op::read), 3u) << "2 MiB by windows of 1 MiB";
}

TEST_F(PageWindowTest, LargePagesAndThoseBeforeComeToo) {
  PageWindow window(*queue_, device_->geometry());
  expect_page(window, 5, 3000);  // more than a window
  expect_page(window, 4, 1);
  expect_page(window, 4000, 96);
  expect_page(window, 4095, 1);  // the last: no window reaches behind it
  expect_page(window, 0, kLbas);
}

TEST_F(PageWindowTest, AnErrorIsOfItsPageAlone) {
  PageWindow window(*queue_, device_->geometry());
  // The window fails, and the page by itself.
  device_->fail(Io::Op::read, {Code::io_error, Origin::zone}, 2);
  EXPECT_EQ(window.read(first_ + 10, 2, first_ + kLbas).status().code(), Code::io_error);
  expect_page(window, 12, 2);
  // The window alone fails.
  device_->forget_events();
  device_->fail(Io::Op::read, {Code::io_error, Origin::zone}, 1);
  expect_page(window, 3000, 2);
  EXPECT_EQ(device_->count(Io::Op::read), 2u);
}

}  // namespace
}  // namespace furrow
