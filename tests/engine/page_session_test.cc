// Establishes what a session on a thread of its own does beside the pool's home (PageSession,
// HomeOps): events come on the session's thread and never from within submit(), first the result,
// then the release; what is refused is refused without travelling; operations that travel keep
// their order; more gets than there are bounce buffers are all answered; counts outlive sessions,
// and not stores that are forgotten, of which there may be any number; an intact page is never
// called corrupt, however many other keys' pages were read first, and also where one read went
// wrong; a page that was replaced before it expired is not taken for absent; and what is late is
// told so by its time, and released when it ends.
// How: a pool whose home the test turns, and a session on a second loop that the test turns, too;
// keys that the index cannot tell apart; a device that holds answers back, so that the test can
// change what was read.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>

#include "engine/pool_impl.h"
#include "tests/engine/rig.h"
#include "tests/log/tap_device.h"

namespace furrow::testing {
namespace {

class PageSessionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(rig_.open_device());
    auto tap = std::make_unique<TapDevice>(std::move(rig_.device));
    tap_ = tap.get();
    rig_.device = std::move(tap);
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
    op.within_us = within_us_;
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

  void turn_until(const std::function<bool()>& holds) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!holds()) {
      ASSERT_LT(std::chrono::steady_clock::now(), until) << "nothing happens any more";
      turn_both(1);
    }
  }

  // So many keys that the index takes for one: their hashes begin with the same bits.
  std::vector<std::uint64_t> keys_like_one(std::size_t count) const {
    constexpr unsigned kBitsTold = 6 + 16;  // of the first buckets of the smallest index, and a tag
    constexpr std::uint64_t kNumbers = 4'000'000;
    const PageLog& log = static_cast<PageStoreImpl*>(rig_.store)->log();
    std::vector<std::uint8_t> seen(std::size_t{1} << kBitsTold);
    const auto bits_of = [&](std::uint64_t number) {
      return log.hash(key_of(number)).order >> (64 - kBitsTold);
    };
    std::uint64_t bits = 0, number = 0;
    for (; number < kNumbers; ++number) {
      bits = bits_of(number);
      if (++seen[bits] == count) break;
    }
    std::vector<std::uint64_t> alike;
    for (std::uint64_t i = 0; i <= number; ++i) {
      if (bits_of(i) == bits) alike.push_back(i);
    }
    return alike;
  }

  std::uint32_t within_us_ = 0;  // of what is submitted
  TapDevice* tap_ = nullptr;
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

TEST_F(PageSessionTest, AWholeRecordIsToldByExistAlone) {
  ASSERT_TRUE(rig_.put(1, 1, 300).ok());
  const KnownPage known{key_of(1), 300, 0};
  for (const bool by_get : {false, true}) {
    PageOp op;
    op.kind = by_get ? PageOp::Kind::get : PageOp::Kind::exist;
    op.key = key_of(1);
    op.whole_record = true;
    EXPECT_EQ(rig_.run(op).code(), by_get ? Code::invalid_argument : Code::ok);
    op.known = &known;
    EXPECT_EQ(rig_.run(op).code(), Code::invalid_argument);
  }
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

// A store that is forgotten leaves its place to another, whose counts begin at nothing.
TEST_F(PageSessionTest, VolumesComeAndGoWithoutEnd) {
  ASSERT_TRUE(rig_.pool->resize_volume("pages", {.quota_bytes = 8 << 20}).status.ok());
  PageStore* const stays = rig_.store;
  VolumeOptions options;
  options.name = "passes";
  options.value_bytes_max = 64 << 10;
  options.quota_bytes = 3 << 20;
  for (unsigned i = 0; i < 150; ++i) {
    const Result<PageStore*> made = rig_.pool->create_volume(options);
    ASSERT_TRUE(made.ok()) << i << ": " << made.status().describe();
    rig_.store = *made;
    ASSERT_TRUE(rig_.put(1, i, 5000).ok());
    for (unsigned get = 0; get < 2; ++get) submit(PageOp::Kind::get, get);
    turn_both();
    const VolumeStats stats = (*made)->stats();
    EXPECT_EQ(stats.gets, 2u);
    EXPECT_EQ(stats.get_hits, 1u);
    EXPECT_EQ(stats.get_bytes, 5000u);
    rig_.settle();
    ASSERT_TRUE(rig_.pool->delete_volume("passes").ok());
    rig_.return_zones();
    if (i % 3 == 2) rig_.pool->forget_deleted();
  }
  rig_.store = stays;
}

// What it reads is there for as long as it does.
TEST_F(PageSessionTest, AVolumeIsDeletedUnderAGet) {
  ASSERT_TRUE(rig_.put(1, 1, 5000).ok());
  rig_.settle();
  tap_->hold(Io::Op::read);
  Op& get = submit(PageOp::Kind::get, 1);
  ASSERT_TRUE(rig_.pool->delete_volume("pages").ok());
  const std::uint64_t zones = rig_.pool->zones_returning();
  EXPECT_GT(zones, 0u);
  turn_both(2000);
  rig_.settle();
  EXPECT_EQ(rig_.pool->zones_returning(), zones);
  tap_->let_go(Io::Op::read);
  turn_until([&] { return get.releases == 1 && rig_.pool->zones_returning() == 0; });
  expect_done(get, Code::ok);
  EXPECT_EQ(std::memcmp(get.data, content(1, 1, 5000).data(), 5000), 0);
}

// .. and a pool that is closed waits for it.
TEST_F(PageSessionTest, APoolIsClosedWithAVolumeDeletedUnderAGet) {
  ASSERT_TRUE(rig_.put(1, 1, 5000).ok());
  rig_.settle();
  tap_->hold(Io::Op::read);
  Op& get = submit(PageOp::Kind::get, 1);
  ASSERT_TRUE(rig_.pool->delete_volume("pages").ok());
  turn_both(200);
  (void)rig_.pool->quiesce();
  tap_->let_go(Io::Op::read);
  turn_until([&] { return get.releases == 1; });
  session_.reset();
  turn_until([&] { return rig_.pool->quiesce(); });
}

// Deleted ones that stay count as long as they do.
TEST_F(PageSessionTest, DeletedVolumesThatStayAreBounded) {
  ASSERT_TRUE(rig_.pool->resize_volume("pages", {.quota_bytes = 8 << 20}).status.ok());
  VolumeOptions options;
  options.name = "passes";
  options.value_bytes_max = 64 << 10;
  options.quota_bytes = 3 << 20;
  for (unsigned i = 0; i < 63; ++i) {
    ASSERT_TRUE(rig_.pool->create_volume(options).ok()) << i;
    rig_.settle();
    ASSERT_TRUE(rig_.pool->delete_volume("passes").ok());
  }
  EXPECT_EQ(rig_.pool->create_volume(options).status().code(), Code::no_space);
  rig_.pool->forget_deleted();
  EXPECT_TRUE(rig_.pool->create_volume(options).ok());
}

// The result comes by its time, the release when the device is done with the memory.
TEST_F(PageSessionTest, AGetIsLateWhileTheDeviceReads) {
  ASSERT_TRUE(rig_.put(1, 1, 5000).ok());
  tap_->hold(Io::Op::read);
  within_us_ = 1000;
  Op& late = submit(PageOp::Kind::get, 1);
  within_us_ = 3'600'000'000;
  Op& patient = submit(PageOp::Kind::get, 1);
  turn_until([&] { return late.results == 1; });
  EXPECT_EQ(late.status.code(), Code::late) << late.status.describe();
  EXPECT_EQ(late.releases, 0);
  EXPECT_EQ(patient.results, 0);
  tap_->let_go(Io::Op::read);
  turn_until([&] { return late.releases == 1 && patient.releases == 1; });
  for (const Op* op : {&late, &patient}) {
    expect_done(*op, Code::ok);
    EXPECT_EQ(std::memcmp(op->data, content(1, 1, 5000).data(), 5000), 0);
  }
}

TEST_F(PageSessionTest, APutThatIsLateIsDoneAllTheSame) {
  tap_->hold(Io::Op::write);
  within_us_ = 1000;
  Op& late = submit(PageOp::Kind::put, 1);
  turn_until([&] { return late.results == 1; });
  EXPECT_EQ(late.status.code(), Code::late) << late.status.describe();
  tap_->let_go(Io::Op::write);
  turn_until([&] { return late.releases == 1; });
  expect_done(late, Code::ok);
  within_us_ = 0;
  Op& get = submit(PageOp::Kind::get, 1);
  turn_until([&] { return get.releases == 1; });
  expect_done(get, Code::ok);
}

TEST_F(PageSessionTest, ATimeLimitNeedsARelease) {
  PageOp op;
  op.key = key_of(1);
  op.within_us = 1;
  int results = 0;
  op.context = &results;
  op.on_result = [](PageOp& done) { ++*static_cast<int*>(done.context); };
  session_->submit(*rig_.store, op);
  turn_until([&] { return results == 1; });
  EXPECT_EQ(op.status.code(), Code::invalid_argument) << op.status.describe();
}

// A get reads the pages of other keys that look like its own; its own is stored meanwhile.
TEST_F(PageSessionTest, APageStoredWhileOthersWereReadIsNotCorrupt) {
  const std::vector<std::uint64_t> alike = keys_like_one(6);
  ASSERT_EQ(alike.size(), 6u);
  const std::uint64_t own = alike.back();
  for (const std::uint64_t key : alike) {
    if (key == own) continue;
    ASSERT_TRUE(rig_.put(key, 1, 5000).ok());
  }
  tap_->forget_events();
  Op& get = submit(PageOp::Kind::get, own);
  Op& put = submit(PageOp::Kind::put, own);  // home has it before the get's question
  turn_both();
  expect_done(put, Code::ok);
  expect_done(get, Code::ok);
  EXPECT_EQ(std::memcmp(get.data, content(own, 1, 5000).data(), 5000), 0);
  const auto events = tap_->events(true);
  const auto pages_read = std::ranges::count_if(events, [](const TapDevice::Event& event) {
    return event.op == Io::Op::read && event.answered && event.lbas == 2;  // headers have one
  });
  EXPECT_GT(pages_read, 5) << "of the others, and its own in the end";
  EXPECT_EQ(rig_.store->stats().corrupt_pages, 0u);
}

// Whoever asks for the time lets something happen before it is told.
class SlowClock final : public Executor {
 public:
  explicit SlowClock(EventLoop& loop) : loop_(loop) {}
  std::function<std::uint64_t()> tell;

  void post(Task& task) override { loop_.post(task); }
  bool is_current() const override { return loop_.is_current(); }
  void start(Timer& timer, std::uint64_t delay_ns) override { loop_.start(timer, delay_ns); }
  void stop(Timer& timer) override { loop_.stop(timer); }
  void add(Poller& poller) override { loop_.add(poller); }
  void remove(Poller& poller) override { loop_.remove(poller); }
  std::uint64_t now_ns() const override { return loop_.now_ns(); }
  std::uint64_t wall_s() const override { return tell(); }
  std::uint64_t random() override { return loop_.random(); }

 private:
  EventLoop& loop_;
};

// Between what the index says and the look at the clock home stores a version that never expires,
// and the time of the one before comes. At no moment there was no page.
TEST_F(PageSessionTest, APageThatWasReplacedBeforeItExpiredIsThere) {
  PageOp first;
  const std::vector<std::byte> its = content(1, 1, 4096);
  first.kind = PageOp::Kind::put;
  first.key = key_of(1);
  first.data = const_cast<std::byte*>(its.data());
  first.length = 4096;
  first.ttl_s = 100;
  ASSERT_TRUE(rig_.run(first).ok());
  SlowClock clock(loop_);
  unsigned told = 0;
  clock.tell = [&] {
    if (told++ == 0) {
      EXPECT_TRUE(rig_.put(1, 2, 4096).ok());
    }
    return rig_.loop.wall_s() + 100;
  };
  auto made = rig_.pool->create_session(clock, 8);
  ASSERT_TRUE(made.ok()) << made.status().describe();
  session_ = std::move(*made);
  Op& get = submit(PageOp::Kind::get, 1, 4096);
  turn_until([&] { return get.releases != 0; });
  session_.reset();
  EXPECT_EQ(told, 1u);
  expect_done(get, Code::ok);
  EXPECT_TRUE(equal({get.data, get.length}, content(1, 2, 4096)));
}

TEST_F(PageSessionTest, APageThatWasReadWrongOnceIsNotCorrupt) {
  for (const int wrong : {1, 2}) {  // times
    SCOPED_TRACE(wrong);
    ASSERT_TRUE(rig_.put(1, 1, 4096).ok());
    AlignedBuffer page(4096);
    Op get;
    get.kind = PageOp::Kind::get;
    get.key = key_of(1);
    get.data = page.data();
    get.capacity = 4096;
    get.on_result = [](PageOp& done) { ++static_cast<Op&>(done).results; };
    get.on_released = [](PageOp& done) { ++static_cast<Op&>(done).releases; };
    tap_->hold(Io::Op::read);
    session_->submit(*rig_.store, get);
    for (int number = 0; get.results == 0; ++number) {  // the page, its batch header, ...
      turn_both(20);
      ASSERT_EQ(tap_->held(Io::Op::read), 1u);
      if (number % 2 == 0 && number / 2 < wrong) page.data()[0] ^= std::byte{1};
      tap_->let_one_go(Io::Op::read, 0);
      turn_both(20);
    }
    tap_->let_go(Io::Op::read);
    expect_done(get, wrong == 1 ? Code::ok : Code::corrupt);
    EXPECT_EQ(rig_.store->stats().corrupt_pages, wrong == 1 ? 0u : 1u);
    EXPECT_EQ(equal(page.span(), content(1, 1, 4096)), wrong == 1);
  }
}

}  // namespace
}  // namespace furrow::testing
