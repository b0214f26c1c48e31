// Establishes that a check of a pool in use tells of what was answered only: what is still with the
// device is neither whole nor damaged. And that the pool tells what its device counts.
#include <gtest/gtest.h>

#include "tests/engine/pool_file.h"
#include "tests/log/tap_device.h"

namespace furrow::testing {
namespace {

class CheckLiveTest : public PoolFileTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(make_device(64 << 20, 4 << 20));
    rig_ = std::make_unique<Rig>(uri());
    ASSERT_NO_FATAL_FAILURE(rig_->open_device());
    auto tap = std::make_unique<TapDevice>(std::move(rig_->device));
    tap_ = tap.get();
    rig_->device = std::move(tap);
    VolumeOptions options;
    options.name = "pages";
    options.mode = VolumeMode::store;
    options.value_bytes_max = 64 << 10;
    ASSERT_NO_FATAL_FAILURE(rig_->make(options));
  }
  void TearDown() override {
    tap_->let_go(Io::Op::write);
    rig_->wait();
  }
  // In the file, and not answered.
  void begin_put(std::uint64_t number) {
    page_ = content(number, 1, 9000);
    op_ = PageOp();
    op_.kind = PageOp::Kind::put;
    op_.key = key_of(number);
    op_.data = page_.data();
    op_.length = static_cast<std::uint32_t>(page_.size());
    tap_->hold(Io::Op::write);
    rig_->submit(op_);
    const std::uint64_t late_ns = rig_->loop.now_ns() + 30'000'000'000;
    while (tap_->held(Io::Op::write) == 0 && rig_->loop.now_ns() < late_ns) rig_->turns(1);
    ASSERT_EQ(tap_->held(Io::Op::write), 1u);
  }
  std::size_t damage_found() {
    const Result<CheckReport> found = rig_->pool->check({});
    EXPECT_TRUE(found.ok());
    return found.ok() ? found->damage.size() : ~std::size_t{0};
  }

  TapDevice* tap_ = nullptr;
  PageOp op_;
  std::vector<std::byte> page_;
};

TEST_F(CheckLiveTest, ABatchThatIsBeingWritten) {
  ASSERT_TRUE(rig_->put(0, 1, 9000).ok());
  ASSERT_NO_FATAL_FAILURE(begin_put(1));
  const std::vector<std::size_t> at = places(read_file(), text_of(page_));
  ASSERT_EQ(at.size(), 1u);
  damage(at[0] - kLba + 40);  // its header
  EXPECT_EQ(damage_found(), 0u);
  tap_->let_go(Io::Op::write);
  rig_->wait();
  ASSERT_TRUE(op_.status.ok());
  EXPECT_EQ(damage_found(), 1u) << "answered: what is not whole now is damaged";
}

TEST_F(CheckLiveTest, AZoneThatIsBeingBegun) {
  const std::vector<std::size_t> before = offsets_of("FUZH");
  ASSERT_NO_FATAL_FAILURE(begin_put(1));
  std::vector<std::size_t> begun = offsets_of("FUZH");
  std::erase_if(begun, [&](std::size_t at) { return std::ranges::count(before, at) != 0; });
  ASSERT_EQ(begun.size(), 1u);
  damage(begun[0] + 40);
  EXPECT_EQ(damage_found(), 0u);
  tap_->let_go(Io::Op::write);
  rig_->wait();
  ASSERT_TRUE(op_.status.ok());
  EXPECT_EQ(damage_found(), 1u);
}

// What its device counts the pool tells.
TEST_F(CheckLiveTest, WritesThatTheDriveMisplaced) {
  EXPECT_EQ(rig_->pool->info().misplaced_writes, 0u);
  tap_->set_misplaced_writes(5);
  EXPECT_EQ(rig_->pool->info().misplaced_writes, 5u);
}

}  // namespace
}  // namespace furrow::testing
