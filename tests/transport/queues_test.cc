// Establishes that the transport's small lists keep their order and lose nothing: OpQueue (page
// operations that wait), SlotQueue (a connection's commands), and Mailbox's delivery, also when it
// is destroyed from one of its own messages. How: each alone; OpQueue beside a deque.
// (Mailbox between threads: handover_test.)
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "tests/transport/fake_engine.h"
#include "transport/mailbox.h"
#include "transport/op_queue.h"
#include "transport/tcp_slot.h"

namespace furrow::transport {
namespace {

TEST(OpQueue, AgreesWithADeque) {
  std::mt19937 random(20261121);
  std::vector<PageOp> ops(64);
  std::vector<PageOp*> idle;
  for (PageOp& op : ops) idle.push_back(&op);
  OpQueue queue, other;
  std::deque<PageOp*> expected, expected_other;
  const auto take_idle = [&] {
    PageOp* op = idle.back();
    idle.pop_back();
    return op;
  };
  for (int i = 0; i < 20000; ++i) {
    switch (random() % 6) {
      case 0:
        if (idle.empty()) break;
        expected.push_back(take_idle());
        queue.push(*expected.back());
        break;
      case 1:
        if (idle.empty()) break;
        expected.push_front(take_idle());
        queue.push_front(*expected.front());
        break;
      case 2:
        if (idle.empty()) break;
        expected_other.push_back(take_idle());
        other.push(*expected_other.back());
        break;
      case 3:
        if (random() % 8 != 0) break;
        queue.push_front_all(other);
        expected.insert(expected.begin(), expected_other.begin(), expected_other.end());
        expected_other.clear();
        ASSERT_TRUE(other.empty());
        break;
      default:
        ASSERT_EQ(queue.empty(), expected.empty());
        if (expected.empty()) break;
        ASSERT_EQ(&queue.pop(), expected.front());
        idle.push_back(expected.front());
        expected.pop_front();
    }
  }
}

TEST(OpQueue, WhatIsPutInFrontOfNothingIsTheEndAsWell) {
  OpQueue queue, none, some;
  PageOp first, second, third;
  queue.push_front_all(none);
  EXPECT_TRUE(queue.empty());
  some.push(first);
  queue.push_front_all(some);
  queue.push(second);
  queue.push_front(third);
  EXPECT_EQ(&queue.pop(), &third);
  EXPECT_EQ(&queue.pop(), &first);
  EXPECT_EQ(&queue.pop(), &second);
  EXPECT_TRUE(queue.empty());
}

TEST(SlotQueue, FirstInFirstOut) {
  std::vector<CommandSlot> slots(3);
  SlotQueue queue;
  EXPECT_TRUE(queue.empty());
  for (int round = 0; round < 2; ++round) {
    for (CommandSlot& slot : slots) queue.push(slot);
    for (CommandSlot& slot : slots) {
      EXPECT_EQ(queue.front(), &slot);
      EXPECT_EQ(&queue.pop(), &slot);
    }
    EXPECT_TRUE(queue.empty());
  }
}

class MailboxTest : public ::testing::Test {
 protected:
  void run() {
    while (executor_.run_once()) {
    }
  }
  std::uint64_t clock_ns_ = 0;
  test::FakeExecutor executor_{clock_ns_};
  std::unique_ptr<Mailbox> mailbox_ = std::make_unique<Mailbox>(executor_);
  std::vector<int> got_;
};

TEST_F(MailboxTest, DeliversInOrderInALaterTurn) {
  EXPECT_TRUE(mailbox_->empty());
  for (int i = 0; i < 3; ++i) mailbox_->send([this, i] { got_.push_back(i); });
  EXPECT_TRUE(got_.empty());
  EXPECT_FALSE(mailbox_->empty());
  run();
  EXPECT_EQ(got_, (std::vector<int>{0, 1, 2}));
  EXPECT_TRUE(mailbox_->empty());
}

TEST_F(MailboxTest, AMessageMaySendAnother) {
  mailbox_->send([this] { mailbox_->send([this] { got_.push_back(1); }); });
  EXPECT_TRUE(executor_.run_once());
  EXPECT_TRUE(got_.empty()) << "in a later turn";
  run();
  EXPECT_EQ(got_, std::vector<int>{1});
}

TEST_F(MailboxTest, WhatWasNotDeliveredIsDroppedWithIt) {
  const auto held = std::make_shared<int>(7);
  mailbox_->send([this, held] { got_.push_back(*held); });
  mailbox_.reset();
  EXPECT_EQ(held.use_count(), 1) << "with what it held";
  run();
  EXPECT_TRUE(got_.empty());
}

TEST_F(MailboxTest, AMessageMayDestroyIt) {
  mailbox_->send([this] { mailbox_.reset(); });
  mailbox_->send([this] { got_.push_back(1); });
  run();
  EXPECT_EQ(mailbox_, nullptr);
  EXPECT_TRUE(got_.empty()) << "its owner is gone";
}

}  // namespace
}  // namespace furrow::transport
