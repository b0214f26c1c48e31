// Establishes that a Flusher answers a request by a flush that was submitted after it, never by one
// that runs already; that requests of one turn share a flush, and those that come while it runs
// share the next one; that each is told its
// flush's status; and that who is answered may ask again at once. How: on a TapDevice that holds
// flushes back.
#include "log/flusher.h"

#include "tests/log/log_rig.h"

namespace furrow {
namespace {

class FlusherTest : public LogRig {
 protected:
  struct Waiter : FlushWaiter {
    unsigned answers = 0;
    Flusher* again = nullptr;  // asks once more from within its answer
  };
  void SetUp() override { make({}); }
  Waiter& request() {
    waiters_.push_back(std::make_unique<Waiter>());
    Waiter& waiter = *waiters_.back();
    waiter.on_flushed = [](FlushWaiter& done) {
      auto& its = static_cast<Waiter&>(done);
      ++its.answers;
      if (Flusher* flusher = std::exchange(its.again, nullptr)) flusher->request(its);
    };
    pool_->flusher.request(waiter);
    return waiter;
  }
  std::vector<std::unique_ptr<Waiter>> waiters_;
};

TEST_F(FlusherTest, OneRequestIsOneFlush) {
  EXPECT_FALSE(pool_->flusher.busy());
  Waiter& waiter = request();
  EXPECT_TRUE(pool_->flusher.busy());
  EXPECT_EQ(waiter.answers, 0u) << "never from within";
  EXPECT_TRUE(run());
  EXPECT_EQ(waiter.answers, 1u);
  EXPECT_TRUE(waiter.status.ok());
  EXPECT_EQ(device_->count(Io::Op::flush), 1u);
  EXPECT_FALSE(pool_->flusher.busy());
}

TEST_F(FlusherTest, RequestsOfOneTurnShareAFlush) {
  for (unsigned i = 0; i < 5; ++i) request();
  EXPECT_TRUE(run());
  for (const auto& waiter : waiters_) EXPECT_EQ(waiter->answers, 1u);
  EXPECT_EQ(device_->count(Io::Op::flush), 1u);
}

TEST_F(FlusherTest, AFlushThatRunsCoversNothingThatComesLater) {
  device_->hold(Io::Op::flush);
  Waiter& first = request();
  EXPECT_TRUE(run());
  Waiter& second = request();
  Waiter& third = request();
  EXPECT_TRUE(run());
  EXPECT_EQ(device_->count(Io::Op::flush), 1u);
  device_->let_one_go(Io::Op::flush, 0);
  EXPECT_TRUE(run());
  EXPECT_EQ(first.answers, 1u);
  EXPECT_EQ(second.answers + third.answers, 0u);
  EXPECT_EQ(device_->count(Io::Op::flush), 2u) << "one for both of them";
  device_->let_go(Io::Op::flush);
  EXPECT_TRUE(run());
  EXPECT_EQ(second.answers, 1u);
  EXPECT_EQ(third.answers, 1u);
  EXPECT_EQ(device_->count(Io::Op::flush), 2u);
}

TEST_F(FlusherTest, EachIsToldTheStatusOfItsOwnFlush) {
  device_->hold(Io::Op::flush);
  Waiter& good = request();
  EXPECT_TRUE(run());
  device_->fail(Io::Op::flush, {Code::io_error, Origin::zone});
  Waiter& bad = request();
  device_->let_go(Io::Op::flush);
  EXPECT_TRUE(run());
  EXPECT_TRUE(good.status.ok());
  EXPECT_EQ(bad.status.code(), Code::io_error);
  EXPECT_EQ(bad.answers, 1u);
  Waiter& later = request();
  EXPECT_TRUE(run());
  EXPECT_TRUE(later.status.ok());
}

TEST_F(FlusherTest, WhoIsAnsweredMayAskAgain) {
  Waiter& waiter = request();
  waiter.again = &pool_->flusher;
  Waiter& other = request();
  EXPECT_TRUE(run());
  EXPECT_EQ(waiter.answers, 2u);
  EXPECT_EQ(other.answers, 1u);
  EXPECT_GE(device_->count(Io::Op::flush), 2u);
}

}  // namespace
}  // namespace furrow
