// Establishes what connections rely on in SocketRing: each operation is done once, with its bytes
// or an error; a receive may be cancelled before and after the kernel has it; deferred work runs
// once, in the next poll, in order; a turn's sends and receives cost one system call; more
// operations than the ring has entries are taken. How: socket pairs, and a listener on loopback.
#include "transport/socket_ring.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

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
  void run_until_idle() {
    for (int turns = 0; ring_->busy() && turns < 1'000'000; ++turns) ring_->poll();
    ASSERT_FALSE(ring_->busy()) << "an operation does not end";
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
  ring_->receive(op, ends_[0], some, false);
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
  ring_->receive(op, ends_[0], &message, false);
  run_until_idle();
  EXPECT_EQ(op.result, 2);
  EXPECT_EQ(std::memcmp(rest.data(), "lo", 2), 0);
}

TEST_F(SocketRingTest, WaitsForWhatIsNotThereYet) {
  std::array<std::byte, 8> into;
  Counted op;
  ring_->receive(op, ends_[0], into, true);
  for (int i = 0; i < 100; ++i) ring_->poll();
  EXPECT_EQ(op.done_count, 0);
  EXPECT_TRUE(ring_->busy());
  say("x");
  run_until_idle();
  EXPECT_EQ(op.result, 1);
  close(ends_[1]);
  ring_->receive(op, ends_[0], into, true);
  run_until_idle();
  EXPECT_EQ(op.result, 0) << "the end of the stream";
  ends_[1] = -1;
}

TEST_F(SocketRingTest, AnErrorIsAResult) {
  std::array<std::byte, 8> into;
  Counted op;
  ring_->receive(op, 100000, into, false);
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
    ring_->receive(op, ends_[0], into, true);
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
    ring_->receive(receives[i], pairs[i][1], into[i], false);
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
    ring_->receive(ops[i], ends_[0], {&into[i], 1}, false);
  }
  say(std::string(ops.size(), 'z'));
  run_until_idle();
  for (const Counted& op : ops) {
    ASSERT_EQ(op.done_count, 1);
    ASSERT_EQ(op.result, 1);
  }
}

TEST_F(SocketRingTest, AcceptsAndConnects) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  auto* const name = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(bind(listener, name, bytes), 0);
  ASSERT_EQ(listen(listener, 5), 0);
  ASSERT_EQ(getsockname(listener, name, &bytes), 0);
  Counted accepted, connected, refused;
  ring_->accept(accepted, listener);
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ring_->connect(connected, client, name, bytes);
  run_until_idle();
  EXPECT_EQ(connected.result, 0);
  EXPECT_GE(accepted.result, 0);
  close(accepted.result);
  close(listener);
  const int late = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ring_->connect(refused, late, name, bytes);
  run_until_idle();
  EXPECT_EQ(refused.result, -ECONNREFUSED);
  close(client);
  close(late);
}

}  // namespace
}  // namespace furrow::transport
