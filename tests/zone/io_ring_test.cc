// Establishes what IoRing asks of its user in each mode: how many entries it takes, what a turn
// gives to the kernel and what that costs in system calls, whether there is something to sleep on,
// that a wait ends with a completion or its time; that a ring which cannot be says why, and that
// the process ends, and says why, when the kernel takes nothing from one any more. How: no-ops, a
// pipe, for the mode that polls, reads of a file with direct I/O, where it can have one, and
// seccomp filters.
#include "zone/io_ring.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <thread>

#include "tests/zone/forbidden_call.h"
#include "zone/new_ring.h"

namespace furrow {
namespace {

using RingClock = std::chrono::steady_clock;

unsigned reap_all(IoRing& ring) {
  io_uring_cqe* cqe = nullptr;
  unsigned count = 0, head = 0;
  io_uring_for_each_cqe(&ring.get(), head, cqe)++ count;
  io_uring_cq_advance(&ring.get(), count);
  return count;
}

bool add_nop(IoRing& ring) {
  io_uring_sqe* const entry = ring.next_entry();
  if (entry != nullptr) io_uring_prep_nop(entry);
  return entry != nullptr;
}

TEST(IoRing, TakesAsManyEntriesAsItWasMadeFor) {
  IoRing ring;
  EXPECT_FALSE(ring.made());
  ASSERT_TRUE(ring.init(8, IoMode::regular, 0).ok());
  EXPECT_TRUE(ring.made());
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(add_nop(ring)) << i;
  EXPECT_FALSE(add_nop(ring));
  EXPECT_EQ(ring.system_calls(), 0u) << "nothing was given to the kernel yet";
  EXPECT_TRUE(ring.turn(false));
  EXPECT_EQ(ring.system_calls(), 1u) << "all of them by one";
  EXPECT_EQ(ring.ready(), 8u);
  EXPECT_EQ(reap_all(ring), 8u);
  EXPECT_TRUE(add_nop(ring));
}

TEST(IoRing, ATurnWithNothingToDoIsNoSystemCall) {
  IoRing ring;
  ASSERT_TRUE(ring.init(8, IoMode::regular, 0).ok());
  EXPECT_FALSE(ring.polled());
  EXPECT_EQ(ring.wake_fd(), ring.get().ring_fd);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(ring.turn(true));
  EXPECT_EQ(ring.system_calls(), 0u);
}

// A read of a pipe that is empty yet, for `wake_fd` and `wait`.
class RingPipe : public testing::TestWithParam<IoMode> {
 protected:
  void SetUp() override {
    ASSERT_EQ(pipe(ends_.data()), 0);
    const Status made = ring_.init(8, GetParam(), 0);
    ASSERT_TRUE(made.ok()) << made.describe();
  }
  void TearDown() override {
    close(ends_[1]);
    if (reading_) ring_.wait(1'000'000);  // it ends with the pipe
    close(ends_[0]);
  }
  void read() {
    io_uring_sqe* const entry = ring_.next_entry();
    ASSERT_NE(entry, nullptr);
    io_uring_prep_read(entry, ends_[0], &byte_, 1, 0);
    ring_.turn(false);
    reading_ = true;
  }
  void expect_read() {
    io_uring_cqe* cqe = nullptr;
    ASSERT_EQ(io_uring_peek_cqe(&ring_.get(), &cqe), 0);
    EXPECT_EQ(cqe->res, 1);
    EXPECT_EQ(byte_, 'x');
    io_uring_cqe_seen(&ring_.get(), cqe);
    reading_ = false;
  }
  bool readable(int timeout_ms) const {
    pollfd look{ring_.wake_fd(), POLLIN, 0};
    return poll(&look, 1, timeout_ms) == 1;
  }

  std::array<int, 2> ends_{};
  IoRing ring_;
  char byte_ = 0;
  bool reading_ = false;
};

TEST_P(RingPipe, ACompletionWakesWhoSleepsOnIt) {
  read();
  EXPECT_FALSE(readable(0));
  ASSERT_EQ(write(ends_[1], "x", 1), 1);
  EXPECT_TRUE(readable(30'000));
  while (ring_.ready() == 0) ring_.turn(true);
  expect_read();
}

TEST_P(RingPipe, AWaitEndsWithItsTimeOrACompletion) {
  read();
  const std::uint64_t calls = ring_.system_calls();
  const auto start = RingClock::now();
  ring_.wait(20'000);
  EXPECT_GE(RingClock::now() - start, std::chrono::milliseconds(20));
  EXPECT_EQ(ring_.ready(), 0u);
  EXPECT_GT(ring_.system_calls(), calls);
  ASSERT_EQ(write(ends_[1], "x", 1), 1);
  while (ring_.ready() == 0) ring_.wait(~std::uint64_t{0});  // an hour at most, and no overflow
  expect_read();
}

INSTANTIATE_TEST_SUITE_P(Modes, RingPipe, testing::Values(IoMode::regular, IoMode::sqpoll),
                         [](const auto& mode) { return to_string(mode.param); });

// While the kernel's thread is awake, what is prepared needs no system call.
TEST(IoRing, TheKernelsThreadTakesSubmissions) {
  IoRing ring;
  const Status made = ring.init(8, IoMode::sqpoll, 0);
  ASSERT_TRUE(made.ok()) << made.describe();
  std::uint64_t done = 0;
  for (int round = 0; round < 40; ++round) {
    ASSERT_TRUE(add_nop(ring));
    while (ring.ready() == 0) ring.turn(true);
    done += reap_all(ring);
  }
  EXPECT_EQ(done, 40u);
  EXPECT_LT(ring.system_calls(), 40u) << "it had to be woken for each";
}

TEST(IoRing, APolledOneHasNothingToSleepOn) {
  IoRing ring;
  ASSERT_TRUE(ring.init(8, IoMode::iopoll, 0).ok());
  EXPECT_TRUE(ring.polled());
  EXPECT_EQ(ring.wake_fd(), -1);
  EXPECT_TRUE(ring.turn(false));
  EXPECT_EQ(ring.system_calls(), 0u);
  EXPECT_TRUE(ring.turn(true)) << "something is in the kernel: it is looked for there";
  EXPECT_EQ(ring.system_calls(), 1u);
}

TEST(IoRing, WhatCannotBeSaysWhy) {
  IoRing ring;
  const Status none = ring.init(0, IoMode::regular, 0);
  EXPECT_EQ(none.code(), Code::io_error);
  EXPECT_EQ(none.sys_errno(), EINVAL);
  EXPECT_FALSE(ring.made());
  EXPECT_EQ(ring_refused(ENOSYS, Origin::zone).code(), Code::unsupported);
  EXPECT_EQ(ring_refused(EPERM, Origin::zone).code(), Code::unsupported);
  EXPECT_NE(ring_refused(ENOMEM, Origin::zone).describe().find("ulimit -l"), std::string::npos);
}

// A profile that has two of an io_uring's three calls on its list.
TEST(IoRing, OneThatCannotBeEnteredIsRefused) {
  Status made;
  std::thread([&made] {
    ASSERT_TRUE(forbid_call(__NR_io_uring_enter, EPERM));
    IoRing ring;
    made = ring.init(8, IoMode::regular, 0);
  }).join();
  EXPECT_EQ(made.code(), Code::unsupported);
  EXPECT_NE(made.describe().find("seccomp"), std::string::npos);
}

// Else whoever waits for what it has given to the ring waits for good.
class RingLost : public testing::TestWithParam<void (*)(IoRing&)> {};

TEST_P(RingLost, EndsTheProcess) {
  const auto use = [](int error) {
    IoRing ring;
    if (!ring.init(8, IoMode::regular, 0).ok()) _exit(100);
    if (!forbid_call(__NR_io_uring_enter, static_cast<unsigned>(error))) _exit(101);
    add_nop(ring);
    GetParam()(ring);
    _exit(102);
  };
  for (const int error : {EPERM, ENOSYS, EINVAL}) {
    EXPECT_EXIT(use(error), testing::KilledBySignal(SIGABRT), "io_uring_enter: .* no more I/O");
  }
  for (const int error : {EAGAIN, EBUSY, EINTR, ENOMEM}) {
    EXPECT_EXIT(use(error), testing::ExitedWithCode(102), "") << "such an error passes";
  }
}

INSTANTIATE_TEST_SUITE_P(Uses, RingLost,
                         testing::Values([](IoRing& ring) { ring.turn(true); },
                                         [](IoRing& ring) { ring.wait(1000); }),
                         [](const auto& use) { return use.index == 0 ? "Turn" : "Wait"; });

}  // namespace
}  // namespace furrow
