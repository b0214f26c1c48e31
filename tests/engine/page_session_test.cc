// Establishes what a session on a thread of its own does beside the pool's home (PageSession,
// HomeOps): events come on the session's thread and never from within submit(), first the result,
// then the release; what is refused is refused without travelling; operations that travel keep
// their order; more gets than there are bounce buffers are all answered; counts outlive sessions.
// How: a pool whose home the test turns, and a session on a second loop that the test turns, too.
#include <gtest/gtest.h>

#include "tests/engine/rig.h"

namespace furrow::testing {
namespace {

class PageSessionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    VolumeOptions options;
    options.name = "pages";
    options.value_bytes_max = 64 << 10;
    ASSERT_NO_FATAL_FAILURE(rig_.make(options));
    make_session();
  }
  void TearDown() override { session_.reset(); }
  void make_session() {
    auto made = rig_.pool->create_session(loop_, 8);
    ASSERT_TRUE(made.ok()) << made.status().describe();
    session_ = std::move(*made);
  }
  struct Op : PageOp {
    std::vector<std::byte> memory;
    int results = 0, releases = 0;
  };
  Op& submit(PageOp::Kind kind, std::uint64_t number, std::uint32_t bytes = 5000) {
    ops_.push_back(std::make_unique<Op>());
    Op& op = *ops_.back();
    op.kind = kind;
    op.key = key_of(number);
    op.memory =
        kind == PageOp::Kind::put ? content(number, 1, bytes) : std::vector<std::byte>(bytes + 1);
    op.data = op.memory.data();
    if (kind == PageOp::Kind::get) ++op.data;  // not aligned: the device cannot fill it itself
    op.length = op.capacity = bytes;
    op.on_result = [](PageOp& done) {
      auto& self = static_cast<Op&>(done);
      ++self.results;
      EXPECT_EQ(self.releases, 0);
    };
    op.on_released = [](PageOp& done) { ++static_cast<Op&>(done).releases; };
    session_->submit(*rig_.store, op);
    EXPECT_EQ(op.results + op.releases, 0) << "not from within submit()";
    return op;
  }
  void expect_done(const Op& op, Code code) {
    EXPECT_EQ(op.results, 1);
    EXPECT_EQ(op.releases, 1);
    EXPECT_EQ(op.status.code(), code) << op.status.describe();
  }
  void turn_both(int turns = 200) {
    for (int i = 0; i < turns; ++i) {
      rig_.loop.run_once();
      loop_.run_once();
    }
  }

  Rig rig_{"mem:16MiB?zone_size=1MiB"};
  EventLoop loop_{EventLoop::Options{50, 1}};
  std::unique_ptr<PageSession> session_;
  std::vector<std::unique_ptr<Op>> ops_;
};

TEST_F(PageSessionTest, EventsComeInTheSessionsTurns) {
  Op& put = submit(PageOp::Kind::put, 1);
  for (int i = 0; i < 200; ++i) rig_.loop.run_once();
  EXPECT_EQ(put.results, 0) << "home is through with it, but this is not home";
  loop_.run_once();
  expect_done(put, Code::ok);
  Op& get = submit(PageOp::Kind::get, 1);
  for (int i = 0; i < 10; ++i) loop_.run_once();
  expect_done(get, Code::ok);  // without a turn of home
  EXPECT_EQ(std::memcmp(get.data, content(1, 1, 5000).data(), 5000), 0);
}

TEST_F(PageSessionTest, WhatIsRefusedDoesNotTravel) {
  Op& no_value = submit(PageOp::Kind::put, 1, 0);
  Op& too_large = submit(PageOp::Kind::put, 1, (64 << 10) + 1);
  ops_.push_back(std::make_unique<Op>());
  loop_.run_once();
  expect_done(no_value, Code::invalid_argument);
  expect_done(too_large, Code::too_large);
}

TEST_F(PageSessionTest, OperationsOnAKeyKeepTheirOrder) {
  Op& first = submit(PageOp::Kind::put, 7);
  Op& gone = submit(PageOp::Kind::remove, 7);
  Op& missing = submit(PageOp::Kind::exist, 7);
  Op& again = submit(PageOp::Kind::put, 7, 300);
  Op& there = submit(PageOp::Kind::exist, 7);
  turn_both();
  expect_done(first, Code::ok);
  expect_done(gone, Code::ok);
  expect_done(missing, Code::not_found);
  expect_done(again, Code::ok);
  expect_done(there, Code::ok);
  EXPECT_EQ(there.length, 300u);
}

TEST_F(PageSessionTest, MoreGetsThanBounceBuffers) {
  for (std::uint64_t i = 0; i < 60; ++i) ASSERT_TRUE(rig_.put(i, 1, 5000).ok());
  for (std::uint64_t i = 0; i < 60; ++i) submit(PageOp::Kind::get, i);
  submit(PageOp::Kind::get, 1000);
  turn_both();
  for (std::uint64_t i = 0; i < 60; ++i) {
    expect_done(*ops_[i], Code::ok);
    EXPECT_EQ(std::memcmp(ops_[i]->data, content(i, 1, 5000).data(), 5000), 0) << i;
  }
  expect_done(*ops_[60], Code::not_found);
}

TEST_F(PageSessionTest, CountsOutliveTheirSession) {
  ASSERT_TRUE(rig_.put(1, 1, 5000).ok());
  const VolumeStats before = rig_.store->stats();
  submit(PageOp::Kind::get, 1);
  submit(PageOp::Kind::get, 2);
  turn_both();
  session_.reset();
  make_session();
  submit(PageOp::Kind::get, 1);
  turn_both();
  const VolumeStats stats = rig_.store->stats();
  EXPECT_EQ(stats.gets - before.gets, 3u);
  EXPECT_EQ(stats.get_hits - before.get_hits, 2u);
  EXPECT_EQ(stats.get_misses - before.get_misses, 1u);
  EXPECT_EQ(stats.get_bytes - before.get_bytes, 10000u);
}

}  // namespace
}  // namespace furrow::testing
