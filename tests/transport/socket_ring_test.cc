// Establishes what connections rely on in SocketRing: each operation is done once, with its bytes
// or an error; a receive may be cancelled before and after the kernel has it; deferred work runs
// once, in the next poll, in order; a turn's sends and receives cost one system call; more
// operations than the ring has entries are taken; what is expected soon is looked for by each poll,
// until the thread sleeps, which it is woken from; and that a kernel that takes nothing is no wait
// without end. How: socket pairs, a listener on loopback, and seccomp filters.
#include "transport/socket_ring.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/transport/loopback_listener.h"
#include "tests/zone/forbidden_call.h"

namespace furrow::transport {
namespace {

struct Counted : SocketRing::Op {
  int done_count = 0;
  int result = 0;
  bool has_more = false;
  Counted() {
    done = [](SocketRing::Op& op, int op_result, bool more) {
      auto& self = static_cast<Counted&>(op);
      ++self.done_count;
      self.result = op_result;
      self.has_more = more;
    };
  }
};

class SocketRingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = SocketRing::create();
    ASSERT_TRUE(made.ok()) << made.status().describe();
    ring_ = std::move(*made);
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_), 0);
  }
  void TearDown() override {
    for (const int fd : ends_) close(fd);
  }
  void run_until(const std::function<bool()>& done) {
    for (int turns = 0; !done() && turns < 1'000'000; ++turns) ring_->poll();
    ASSERT_TRUE(done()) << "an operation does not end";
  }
  void run_until_idle() {
    run_until([this] { return !ring_->busy(); });
  }
  void say(std::string_view text) {
    ASSERT_EQ(write(ends_[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }

  std::unique_ptr<SocketRing> ring_;
  int ends_[2] = {-1, -1};
};

TEST_F(SocketRingTest, ReceivesWhatIsThereAndSaysThatThereIsMore) {
  say("hello");
  std::array<std::byte, 3> some;
  Counted op;
  ring_->receive(op, ends_[0], some, SocketRing::Input::now);
  EXPECT_TRUE(op.in_flight);
  EXPECT_EQ(op.done_count, 0) << "never from within the call";
  run_until_idle();
  EXPECT_EQ(op.done_count, 1);
  EXPECT_EQ(op.result, 3);
  EXPECT_FALSE(op.in_flight);
  EXPECT_EQ(std::memcmp(some.data(), "hel", 3), 0);
  std::array<std::byte, 10> rest;
  iovec pieces[] = {{rest.data(), 1}, {rest.data() + 1, 9}};
  msghdr message{};
  message.msg_iov = pieces;
  message.msg_iovlen = 2;
  ring_->receive(op, ends_[0], &message, SocketRing::Input::now);
  run_until_idle();
  EXPECT_EQ(op.result, 2);
  EXPECT_EQ(std::memcmp(rest.data(), "lo", 2), 0);
}

TEST_F(SocketRingTest, WaitsForWhatIsNotThereYet) {
  std::array<std::byte, 8> into;
  Counted op;
  ring_->receive(op, ends_[0], into, SocketRing::Input::later);
  for (int i = 0; i < 100; ++i) ring_->poll();
  EXPECT_EQ(op.done_count, 0);
  EXPECT_TRUE(ring_->busy());
  say("x");
  run_until_idle();
  EXPECT_EQ(op.result, 1);
  close(ends_[1]);
  ring_->receive(op, ends_[0], into, SocketRing::Input::later);
  run_until_idle();
  EXPECT_EQ(op.result, 0) << "the end of the stream";
  ends_[1] = -1;
}

// --- looking for what comes soon ---

class LookingTest : public SocketRingTest {
 protected:
  void expect(Counted& op, SocketRing::Input when) { ring_->receive(op, ends_[0], into_, when); }
  // Of one poll().
  std::uint64_t calls() {
    const std::uint64_t before = ring_->system_calls();
    ring_->poll();
    return ring_->system_calls() - before;
  }
  bool readable() {
    pollfd wake{ring_->wake_fd(), POLLIN, 0};
    return poll(&wake, 1, 0) == 1;
  }

  std::array<std::byte, 8> into_{};
};

TEST_F(LookingTest, EachPollLooksAndTheKernelIsToldNothing) {
  Counted op;
  expect(op, SocketRing::Input::soon);
  EXPECT_EQ(calls(), 1u);
  EXPECT_EQ(calls(), 1u);
  EXPECT_EQ(op.done_count, 0);
  say("abc");
  EXPECT_FALSE(readable());
  EXPECT_EQ(ring_->poll(), 1u);
  EXPECT_EQ(op.done_count, 1);
  EXPECT_EQ(op.result, 3);
  EXPECT_FALSE(op.has_more);
  EXPECT_EQ(std::memcmp(into_.data(), "abc", 3), 0);
  EXPECT_FALSE(ring_->busy());
  EXPECT_EQ(calls(), 0u);
}

TEST_F(LookingTest, AFullReadSaysThatThereMayBeMore) {
  say("0123456789");
  Counted op;
  iovec pieces[] = {{into_.data(), 3}, {into_.data() + 3, 5}};
  msghdr message{};
  message.msg_iov = pieces;
  message.msg_iovlen = 2;
  ring_->receive(op, ends_[0], &message, SocketRing::Input::soon);
  ring_->poll();
  EXPECT_EQ(op.result, 8);
  EXPECT_TRUE(op.has_more);
  EXPECT_EQ(std::memcmp(into_.data(), "01234567", 8), 0);
}

TEST_F(LookingTest, EndAndErrorAreResults) {
  Counted op;
  close(std::exchange(ends_[1], -1));
  expect(op, SocketRing::Input::soon);
  ring_->poll();
  EXPECT_EQ(op.done_count, 1);
  EXPECT_EQ(op.result, 0) << "the end of the stream";
  ring_->receive(op, 100000, into_, SocketRing::Input::soon);
  ring_->poll();
  EXPECT_EQ(op.result, -EBADF);
}

TEST_F(LookingTest, BeforeASleepTheKernelIsTold) {
  Counted op;
  expect(op, SocketRing::Input::soon);
  ring_->poll();
  ring_->before_sleep();
  EXPECT_FALSE(readable());
  say("x");
  EXPECT_TRUE(readable());
  EXPECT_EQ(op.done_count, 0);
  run_until_idle();
  EXPECT_EQ(op.done_count, 1);
  EXPECT_EQ(op.result, 1);
}

// Also where it came between the last look and the sleep.
TEST_F(LookingTest, WhatCameBeforeTheSleepWakes) {
  Counted op;
  expect(op, SocketRing::Input::soon);
  ring_->poll();
  say("x");
  ring_->before_sleep();
  EXPECT_TRUE(readable());
  run_until_idle();
  EXPECT_EQ(op.result, 1);
}

TEST_F(LookingTest, AfterASleepItDoesNotLookUntilInputComesWithoutOne) {
  Counted op;
  expect(op, SocketRing::Input::soon);
  ring_->poll();
  for (int slept = 0; slept < 3; ++slept) {
    ring_->before_sleep();
    say("x");
    run_until_idle();
    expect(op, SocketRing::Input::soon);
    EXPECT_EQ(calls(), 1u) << "the kernel is told";
    EXPECT_EQ(calls(), 0u);
  }
  say("x");
  run_until_idle();
  expect(op, SocketRing::Input::soon);
  EXPECT_EQ(calls(), 1u);
  EXPECT_EQ(calls(), 1u) << "it looks again";
  ring_->cancel(op);
  run_until_idle();
}

// As several sockets are busy then.
TEST_F(LookingTest, OfTwoNeitherIsLookedFor) {
  int others[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, others), 0);
  std::array<std::byte, 8> into{};
  Counted first, second;
  expect(first, SocketRing::Input::soon);
  ring_->poll();
  ring_->receive(second, others[0], into, SocketRing::Input::soon);
  EXPECT_EQ(calls(), 1u) << "the kernel is told of both";
  EXPECT_EQ(calls(), 0u);
  say("1");
  EXPECT_TRUE(readable());
  run_until([&] { return first.done_count == 1; });
  expect(first, SocketRing::Input::soon);
  EXPECT_EQ(calls(), 1u);
  EXPECT_EQ(calls(), 1u) << "for the one that is busy";
  ASSERT_EQ(write(others[1], "22", 2), 2);
  run_until([&] { return second.done_count == 1; });
  EXPECT_EQ(second.result, 2);
  ring_->cancel(first);
  run_until_idle();
  for (const int fd : others) close(fd);
}

// One that has fallen silent is not looked for beside others without end.
TEST_F(LookingTest, ItEndsWhenItIsInVainForLong) {
  Counted op;
  expect(op, SocketRing::Input::soon);
  unsigned looks = 0;
  while (calls() != 0 && looks < 10'000) ++looks;
  EXPECT_EQ(looks, 1000u + 1) << "and one call that tells the kernel";
  say("x");
  EXPECT_TRUE(readable());
  run_until_idle();
  EXPECT_EQ(op.result, 1);
}

TEST_F(LookingTest, ItIsCancelled) {
  Counted op;
  expect(op, SocketRing::Input::soon);
  ring_->poll();
  ring_->cancel(op);
  run_until_idle();
  EXPECT_EQ(op.done_count, 1);
  EXPECT_EQ(op.result, -ECANCELED);
}

TEST_F(SocketRingTest, ASendAtOnceSaysHowMuchWentOut) {
  std::vector<std::byte> page(4 << 20, std::byte{0x5A});
  iovec piece{page.data(), page.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  const int sent = ring_->send_now(ends_[0], &message);
  EXPECT_GT(sent, 0);
  EXPECT_LT(sent, static_cast<int>(page.size()));
  EXPECT_EQ(ring_->send_now(ends_[0], &message), -EAGAIN);
  close(std::exchange(ends_[1], -1));
  EXPECT_EQ(ring_->send_now(ends_[0], &message), -EPIPE) << "and no signal";
  EXPECT_EQ(ring_->system_calls(), 3u);
}

// Two connections' output and a receive: one system call, as without.
TEST_F(SocketRingTest, ASendAtOnceWaitsWhereThereIsMoreForTheKernel) {
  struct Sender : SocketRing::Deferred {
    SocketRing* ring;
    int fd, result = 0;
  };
  std::array<std::byte, 8> into{};
  std::array<Sender, 2> senders{};
  const auto poll_with = [&](unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
      senders[i].ring = ring_.get();
      senders[i].fd = ends_[0];
      senders[i].run = [](SocketRing::Deferred& work) {
        auto& self = static_cast<Sender&>(work);
        char text[] = "text";
        iovec piece{text, 4};
        msghdr message{};
        message.msg_iov = &piece;
        message.msg_iovlen = 1;
        self.result = self.ring->send_now(self.fd, &message);
      };
      ring_->defer(senders[i]);
    }
    ring_->poll();
  };
  poll_with(1);
  EXPECT_EQ(senders[0].result, 4);
  poll_with(2);
  EXPECT_EQ(senders[0].result, -EAGAIN) << "another one is behind it";
  Counted op;
  ring_->receive(op, ends_[0], into, SocketRing::Input::later);
  poll_with(1);
  EXPECT_EQ(senders[0].result, -EAGAIN) << "a receive is due";
  poll_with(1);
  EXPECT_EQ(senders[0].result, 4);
  ring_->cancel(op);
  run_until_idle();
}

TEST_F(SocketRingTest, AnErrorIsAResult) {
  std::array<std::byte, 8> into;
  Counted op;
  ring_->receive(op, 100000, into, SocketRing::Input::now);
  run_until_idle();
  EXPECT_EQ(op.result, -EBADF);
  close(std::exchange(ends_[1], -1));
  iovec piece{into.data(), into.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  ring_->send(op, ends_[0], &message);
  run_until_idle();
  EXPECT_EQ(op.result, -EPIPE) << "and no signal";
}

// Larger than both sockets' buffers: the kernel goes on by itself while the other side reads.
TEST_F(SocketRingTest, ASendIsWhole) {
  std::vector<std::byte> page(4 << 20, std::byte{0x5A});
  iovec piece{page.data(), page.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  Counted op;
  ring_->send(op, ends_[0], &message);
  ASSERT_EQ(fcntl(ends_[1], F_SETFL, O_NONBLOCK), 0);
  std::vector<std::byte> got(page.size());
  std::size_t bytes = 0;
  for (int turns = 0; bytes < page.size() && turns < 10'000'000; ++turns) {
    ring_->poll();
    const ssize_t count = read(ends_[1], got.data() + bytes, got.size() - bytes);
    if (count > 0) bytes += static_cast<std::size_t>(count);
  }
  run_until_idle();
  EXPECT_EQ(op.result, static_cast<int>(page.size()));
  EXPECT_EQ(got, page);
}

TEST_F(SocketRingTest, AReceiveIsCancelledWhetherTheKernelHasItOrNot) {
  for (const bool seen : {false, true}) {
    std::array<std::byte, 8> into;
    Counted op;
    ring_->receive(op, ends_[0], into, SocketRing::Input::later);
    if (seen) ring_->poll();
    ring_->cancel(op);
    run_until_idle();
    EXPECT_EQ(op.done_count, 1);
    EXPECT_EQ(op.result, -ECANCELED);
    ring_->cancel(op);  // not in flight: nothing happens
    EXPECT_FALSE(ring_->busy());
  }
}

TEST_F(SocketRingTest, DeferredWorkRunsOnceInTheNextPollAndInOrder) {
  struct Work : SocketRing::Deferred {
    std::vector<int>* order;
    int name;
    SocketRing* again = nullptr;
  };
  std::vector<int> order;
  std::array<Work, 3> works{};
  for (int i = 0; i < 3; ++i) {
    Work& work = works[static_cast<std::size_t>(i)];
    work.order = &order;
    work.name = i;
    work.run = [](SocketRing::Deferred& deferred) {
      auto& self = static_cast<Work&>(deferred);
      self.order->push_back(self.name);
      if (self.again != nullptr) std::exchange(self.again, nullptr)->defer(self);
    };
    ring_->defer(work);
    ring_->defer(work);  // is in already
  }
  works[0].again = ring_.get();
  EXPECT_TRUE(order.empty());
  EXPECT_GT(ring_->poll(), 0u);
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
  EXPECT_GT(ring_->poll(), 0u) << "what was deferred meanwhile comes in the next";
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 0}));
  EXPECT_EQ(ring_->poll(), 0u);
}

TEST_F(SocketRingTest, ATurnIsOneSystemCall) {
  constexpr std::size_t kPairs = 20;
  std::array<std::array<int, 2>, kPairs> pairs;
  std::array<Counted, kPairs> sends, receives;
  std::array<std::array<std::byte, 4>, kPairs> into;
  std::byte out[4]{};
  iovec piece{out, sizeof out};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  const std::uint64_t before = ring_->system_calls();
  for (std::size_t i = 0; i < kPairs; ++i) {
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pairs[i].data()), 0);
    ring_->receive(receives[i], pairs[i][1], into[i], SocketRing::Input::now);
    ring_->send(sends[i], pairs[i][0], &message);
  }
  EXPECT_EQ(ring_->system_calls(), before);
  ring_->poll();
  EXPECT_EQ(ring_->system_calls(), before + 1);
  run_until_idle();
  for (std::size_t i = 0; i < kPairs; ++i) {
    EXPECT_EQ(receives[i].result, 4) << "received in the turn in which it was sent";
    for (const int fd : pairs[i]) close(fd);
  }
}

TEST_F(SocketRingTest, TakesMoreThanTheRingHolds) {
  std::vector<Counted> ops(1500);
  std::vector<std::byte> into(ops.size());
  for (std::size_t i = 0; i < ops.size(); ++i) {
    ring_->receive(ops[i], ends_[0], {&into[i], 1}, SocketRing::Input::now);
  }
  say(std::string(ops.size(), 'z'));
  run_until_idle();
  for (const Counted& op : ops) {
    ASSERT_EQ(op.done_count, 1);
    ASSERT_EQ(op.result, 1);
  }
}

TEST_F(SocketRingTest, AcceptsAndConnects) {
  auto listener = std::make_unique<LoopbackListener>();
  const sockaddr_in address = listener->address();
  const auto* const name = reinterpret_cast<const sockaddr*>(&address);
  Counted accepted, connected, refused;
  ring_->accept(accepted, listener->fd());
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ring_->connect(connected, client, name, sizeof address);
  run_until_idle();
  EXPECT_EQ(connected.result, 0);
  EXPECT_GE(accepted.result, 0);
  close(accepted.result);
  listener.reset();
  const int late = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ring_->connect(refused, late, name, sizeof address);
  run_until_idle();
  EXPECT_EQ(refused.result, -ECONNREFUSED);
  close(client);
  close(late);
}

TEST(SocketRingUnderSeccomp, IsRefusedWhereItCannotBeEntered) {
  Status made;
  std::thread([&made] {
    ASSERT_TRUE(forbid_call(__NR_io_uring_enter, ENOSYS));
    made = SocketRing::create().status();
  }).join();
  EXPECT_EQ(made.code(), Code::unsupported);
}

TEST_F(SocketRingTest, EndsTheProcessWhenTheKernelTakesNoMore) {
  const auto receive = [this] {
    if (!forbid_call(__NR_io_uring_enter, EPERM)) _exit(100);
    std::byte byte{};
    Counted op;
    ring_->receive(op, ends_[0], {&byte, 1}, SocketRing::Input::now);
    for (int turns = 0; turns < 100; ++turns) ring_->poll();
    _exit(101);
  };
  EXPECT_EXIT(receive(), testing::KilledBySignal(SIGABRT), "io_uring_enter: .* no more I/O");
}

}  // namespace
}  // namespace furrow::transport
