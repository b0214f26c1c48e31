// Establishes that holders of one key's lock come one after the other, in the order in which they
// asked, other keys' beside them; and that however many wait, the stack stays small.
#include "log/key_lock.h"

#include <gtest/gtest.h>

#include <vector>

namespace furrow {
namespace {

struct Holder : KeyLockHolder {
  KeyLocks* locks = nullptr;
  std::vector<int>* order = nullptr;
  int number = 0;
  bool keeps = false;  // until the test unlocks
};

class KeyLocksTest : public ::testing::Test {
 protected:
  void set_up(Holder& holder, std::uint64_t key, int number, bool keeps) {
    holder.hash = {key, 1};
    holder.locks = &locks_;
    holder.order = &order_;
    holder.number = number;
    holder.keeps = keeps;
    holder.on_locked = [](KeyLockHolder& locked) {
      auto& self = static_cast<Holder&>(locked);
      self.order->push_back(self.number);
      if (!self.keeps) self.locks->unlock(self);
    };
  }
  KeyLocks locks_;
  std::vector<int> order_;
};

TEST_F(KeyLocksTest, InOrderAndByKey) {
  Holder holders[4];
  set_up(holders[0], 7, 0, true);
  set_up(holders[1], 7, 1, true);
  set_up(holders[2], 7 + 4096, 2, true);  // another key of the same slot
  set_up(holders[3], 7, 3, true);
  for (Holder& holder : holders) locks_.lock(holder);
  EXPECT_EQ(order_, (std::vector{0, 2}));
  locks_.unlock(holders[2]);
  locks_.unlock(holders[0]);
  EXPECT_EQ(order_, (std::vector{0, 2, 1}));
  locks_.unlock(holders[1]);
  EXPECT_EQ(order_, (std::vector{0, 2, 1, 3}));
  locks_.lock(holders[0]);
  EXPECT_EQ(order_.size(), 4u);
  locks_.unlock(holders[3]);
  EXPECT_EQ(order_.back(), 0);
  locks_.unlock(holders[0]);
}

// Each unlocks from within its own on_locked, as an operation does that needs nothing of the
// device.
TEST_F(KeyLocksTest, ManyWaitersDoNotDeepenTheStack) {
  constexpr int kWaiters = 1'000'000;
  std::vector<Holder> holders(kWaiters + 1);
  set_up(holders[0], 7, 0, true);
  locks_.lock(holders[0]);
  for (int i = 1; i <= kWaiters; ++i) {
    set_up(holders[static_cast<std::size_t>(i)], 7, i, false);
    locks_.lock(holders[static_cast<std::size_t>(i)]);
  }
  locks_.unlock(holders[0]);
  ASSERT_EQ(order_.size(), holders.size());
  for (int i = 0; i <= kWaiters; ++i) ASSERT_EQ(order_[static_cast<std::size_t>(i)], i);
}

}  // namespace
}  // namespace furrow
