// Establishes that JournalQueue appends the records of several users to the metadata journal one
// after another, without waiting for the device; that each is answered once, in order, from a later
// turn, also one that is refused at once; and that an error holds up no other. How: on a metadata
// ring on a TapDevice. What DurableNotes makes of it is durable_notes_test's.
#include "log/journal_queue.h"

#include <optional>

#include "tests/log/log_rig.h"

namespace furrow {
namespace {

class JournalQueueTest : public LogRig {
 protected:
  struct User : JournalQueue::Entry {
    JournalQueueTest* test = nullptr;
    unsigned number = 0;
  };

  void SetUp() override {
    make({});
    ASSERT_TRUE(MetadataRing::format(*device_, superblock_, PoolState()).ok());
    Result<MetadataRing> ring = MetadataRing::open(*device_, false);
    ASSERT_TRUE(ring.ok()) << ring.status().describe();
    ring_.emplace(std::move(*ring));
    queue_.emplace(pool_->home, *ring_);
    device_->forget_events();
  }
  // Of an opening; the counts ascend, or are refused.
  void append(User& user, std::uint64_t open_count) {
    user.test = this;
    user.record.open_count = open_count;
    user.on_done = [](JournalQueue::Entry& entry) {
      const auto& its = static_cast<User&>(entry);
      its.test->answered_.push_back(its.number);
    };
    queue_->append(user);
    EXPECT_EQ(std::ranges::count(answered_, user.number), 0) << "never from within";
  }

  std::optional<MetadataRing> ring_;
  std::optional<JournalQueue> queue_;
  std::vector<unsigned> answered_;
};

TEST_F(JournalQueueTest, OneAfterAnotherAndNobodyWaitsForTheDevice) {
  device_->hold(Io::Op::flush);
  User users[3];
  for (unsigned i = 0; i < 3; ++i) {
    users[i].number = i;
    append(users[i], i + 1);
  }
  for (std::size_t written = 1; written <= 3; ++written) {
    EXPECT_TRUE(run());
    ASSERT_EQ(device_->count(Io::Op::write), written) << "the next one waits";
    ASSERT_EQ(answered_.size(), written - 1) << "not before its record is flushed";
    device_->let_one_go(Io::Op::flush, 0);
  }
  device_->let_go(Io::Op::flush);
  EXPECT_TRUE(run());
  EXPECT_EQ(answered_, (std::vector<unsigned>{0, 1, 2}));
  EXPECT_EQ(ring_->state().open_count, 3u);
}

TEST_F(JournalQueueTest, AnErrorIsToldAndTheNextOneGoesOn) {
  User failed, refused, good;
  failed.number = 1;
  refused.number = 2;
  good.number = 3;
  device_->fail(Io::Op::flush, {Code::io_error, Origin::zone});
  append(failed, 1);
  append(refused, 0);
  append(good, 1);
  EXPECT_TRUE(run());
  EXPECT_EQ(answered_, (std::vector<unsigned>{1, 2, 3}));
  EXPECT_EQ(failed.status.code(), Code::io_error);
  EXPECT_EQ(refused.status.code(), Code::invalid_argument);
  EXPECT_TRUE(good.status.ok()) << good.status.describe();
  const Result<MetadataRing> again = MetadataRing::open(*device_, true);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->state(), ring_->state());
}

}  // namespace
}  // namespace furrow
