// Establishes that holders of one key's lock come one after the other, in the order in which they
// asked, other keys' beside them; that however many wait, the stack stays small; and that a waiter
// may take the holder's place, whichever it is, with the others behind both.
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

TEST_F(KeyLocksTest, AWaiterOvertakesTheHolder) {
  for (int waiter = 1; waiter < 4; ++waiter) {
    order_.clear();
    Holder holders[5];
    for (int i = 0; i < 4; ++i) set_up(holders[i], 7, i, true);
    set_up(holders[4], 7 + 4096, 4, true);  // another key of the same slot
    for (Holder& holder : holders) locks_.lock(holder);
    locks_.overtake(holders[0], holders[waiter]);
    std::vector<int> expected{0, 4, waiter, 0};  // told anew, and then those that waited
    for (int i = 1; i < 4; ++i) {
      if (i != waiter) expected.push_back(i);
    }
    EXPECT_EQ(locks_.holder(holders[0].hash), &holders[waiter]);
    for (std::size_t turn = 2; turn < 6; ++turn) {
      const auto so_far = expected.begin() + static_cast<std::ptrdiff_t>(turn) + 1;
      ASSERT_EQ(order_, std::vector(expected.begin(), so_far)) << waiter;
      locks_.unlock(holders[expected[turn]]);
    }
    EXPECT_EQ(order_, expected);
    EXPECT_EQ(locks_.holder(holders[0].hash), nullptr);
    locks_.unlock(holders[4]);
  }
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
