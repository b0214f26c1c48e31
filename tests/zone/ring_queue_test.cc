// Establishes what RingQueue does for the back ends that have a file or a block device: transfers
// go where the zones lie in it, in requests as long as the medium takes them, and on until they are
// whole; many submissions are one system call, made in poll(), and more than the ring takes wait;
// registered buffers are used; what fails is told with its errno, and tried again where that can
// help; and a thread that sleeps on wake_fd() is woken. How: a queue on a file in memory, whose
// results the test can change, and on a pipe, which answers when the test says so.
#include "tests/zone/ring_queue_fixture.h"

namespace furrow::test {
namespace {

TEST_F(RingQueueTest, ADepthIsOneTo4096) {
  for (const unsigned depth : {0u, 4097u}) {
    EXPECT_EQ(FileQueue(table_, medium(), depth).init_ring().code(), Code::invalid_argument);
  }
  for (const unsigned depth : {1u, 4096u}) {
    make(medium(), depth);
    expect_content((read(1, 3, {2}), run(), *ops_.back()));
  }
}

TEST_F(RingQueueTest, TransfersGoWhereTheZonesLie) {
  make(medium());
  for (std::uint32_t zone = 0; zone < 3; ++zone) read(zone, 7 + zone, {5});
  run();
  for (const auto& op : ops_) expect_content(*op);
  Op& write = prepare(Io::Op::write, 2, kZoneLbas / 2, {3});
  std::memset(write.memory.data(), 0x77, write.memory.size());
  queue_->submit(write);
  run();
  ASSERT_TRUE(write.status.ok()) << write.status.describe();
  Op& append = prepare(Io::Op::append, 3, 0, {2});
  std::memset(append.memory.data(), 0x78, append.memory.size());
  queue_->submit(append);
  run();
  EXPECT_EQ(append.appended_at, Lba{3 * kZoneLbas});
  std::memset(content_.data() + file_offset(2, kZoneLbas / 2), 0x77, 3 * kRingLba);
  std::memset(content_.data() + file_offset(3, 0), 0x78, 2 * kRingLba);
  std::vector<std::byte> now(content_.size());
  ASSERT_EQ(pread(file_, now.data(), now.size(), 0), static_cast<ssize_t>(now.size()));
  EXPECT_EQ(now, content_) << "and nowhere else";
  EXPECT_TRUE((submit(Io::Op::flush, 0, 0, {}), run(), ops_.back()->status.ok()));
}

TEST_F(RingQueueTest, ManySubmissionsAreOneSystemCallMadeInPoll) {
  make(medium(), 64);
  const std::uint64_t before = queue_->system_calls();
  for (std::uint64_t i = 0; i < 64; ++i) read(0, i, {1});
  EXPECT_EQ(queue_->system_calls(), before);
  queue_->poll();
  EXPECT_EQ(queue_->system_calls(), before + 1);
  run();
  for (const auto& op : ops_) expect_content(*op);
  EXPECT_EQ(queue_->poll(), 0u);  // the kernel may say that there is something still
  const std::uint64_t after = queue_->system_calls();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(queue_->poll(), 0u);
  EXPECT_EQ(queue_->system_calls(), after) << "none where there is nothing to do";
}

// As long as it is awake: what it takes costs no system call.
TEST_F(RingQueueTest, AThreadOfTheKernelsTakesSubmissions) {
  FileQueue::Medium with_thread = medium();
  with_thread.mode = IoMode::sqpoll;
  make(with_thread, 64);
  constexpr std::uint64_t kReads = 20;
  std::uint64_t calls = kReads;  // each would be one without it
  for (int tries = 0; calls > kReads / 2 && tries < 200; ++tries) {
    const std::uint64_t before = queue_->system_calls();
    for (std::uint64_t i = 0; i < kReads; ++i) {
      Op& op = read(0, i, {1});
      for (std::uint64_t spins = 0; op.done == 0 && spins < 1'000'000'000; ++spins) queue_->poll();
      expect_content(op);
    }
    calls = queue_->system_calls() - before;
  }
  EXPECT_LE(calls, kReads / 2) << "in each of the tries";
  EXPECT_TRUE((submit(Io::Op::flush, 0, 0, {}), run(), ops_.back()->status.ok()));
}

TEST_F(RingQueueTest, AThreadOfTheKernelsWakesWhoSleepsOnTheDescriptor) {
  make_on_pipe(false, IoMode::sqpoll);
  const Op& op = read(1, 5, {2});
  EXPECT_EQ(queue_->poll(), 0u);
  say(2 * kRingLba);
  EXPECT_TRUE(wakes(30'000));
  run();
  EXPECT_TRUE(op.status.ok()) << op.status.describe();
}

// Of memory, as here, nobody can be asked whether a read is done.
TEST_F(RingQueueTest, PollingIsRefusedWhereItCannotBe) {
  for (const IoMode mode : {IoMode::iopoll, IoMode::sqpoll_iopoll}) {
    FileQueue::Medium polled = medium();
    polled.mode = mode;
    const Status refused = FileQueue(table_, polled, 8).init_ring();
    EXPECT_EQ(refused.code(), Code::unsupported);
    EXPECT_NE(refused.describe().find("poll_queues"), std::string::npos) << refused.describe();
  }
}

TEST_F(RingQueueTest, WhatTheDepthHasNoRoomForWaits) {
  auto& queue = make<ChangedQueue>(medium(), 4);
  std::size_t ended = 0, most = 0;
  queue.change = [&](const Io&, int result) {
    most = std::max(most, queue.requests.size() - ended);
    ++ended;
    return result;
  };
  for (std::uint64_t i = 0; i < 100; ++i) read(1, i * 5 % 128, {1});  // none behind another
  EXPECT_EQ(queue_->in_flight(), 100u);
  run();
  for (const auto& op : ops_) expect_content(*op);
  EXPECT_EQ(most, 4u);
}

TEST_F(RingQueueTest, RequestsAreAsLongAsTheMediumTakesThem) {
  FileQueue::Medium limited = medium();
  limited.read = {.bytes = 8 * kRingLba, .pieces = 3};
  auto& queue = make(limited);
  const auto requests_of = [&](const std::vector<std::uint32_t>& pieces) {
    queue.requests.clear();
    const Op& op = read(1, 2, pieces);
    run();
    expect_content(op);
    std::vector<std::uint64_t> lbas;
    for (const std::uint64_t bytes : queue.requests) lbas.push_back(bytes / kRingLba);
    return lbas;
  };
  EXPECT_EQ(requests_of({8}), Lbas{8});
  EXPECT_EQ(requests_of({1, 2, 3}), Lbas{6}) << "several pieces in one";
  EXPECT_EQ(requests_of({20}), (Lbas{8, 8, 4}));
  EXPECT_EQ(requests_of({1, 1, 1, 1, 1}), (Lbas{3, 2})) << "so many pieces";
  EXPECT_EQ(requests_of({3, 4, 5}), (Lbas{7, 5})) << "whole pieces";
  EXPECT_EQ(requests_of({2, 10, 1}), (Lbas{2, 8, 2, 1})) << "one that is too long for any";
}

TEST_F(RingQueueTest, AShortTransferGoesOn) {
  auto& queue = make<ChangedQueue>(medium());
  queue.change = [](const Io&, int result) { return std::min(result, 700); };
  const Op& op = read(0, 1, {2, 1, 3});
  run();
  EXPECT_GT(queue.requests.size(), 4u);
  expect_content(op);
  EXPECT_EQ(queue.ends, std::vector<int>{0}) << "told once";
}

// However short, and however often: what is answered with success is whole.
TEST_F(RingQueueTest, TransfersThatEndShortAnywhereAreWholeInTheEnd) {
  auto& queue = make<ChangedQueue>(medium());
  std::mt19937_64 random(1);
  queue.change = [&](const Io&, int result) {
    return result > 1 && random() % 3 != 0 ? 1 + static_cast<int>(random() % result) : result;
  };
  for (unsigned round = 0; round < 50; ++round) {
    expect_content((read(0, 1 + random() % 8, {2, 1, 3}), run(), *ops_.back()));
    Op& write = prepare(Io::Op::write, 2, kZoneLbas / 2 + 2 * round, {1, 1});
    for (std::size_t i = 0; i < write.memory.size(); ++i) {
      write.memory.data()[i] = static_cast<std::byte>(random());
    }
    queue_->submit(write);
    run();
    ASSERT_TRUE(write.status.ok()) << write.status.describe();
    std::vector<std::byte> now(2 * kRingLba);
    const auto at = static_cast<off_t>(file_offset(2, kZoneLbas / 2 + 2 * round));
    ASSERT_EQ(pread(file_, now.data(), now.size(), at), static_cast<ssize_t>(now.size()));
    EXPECT_EQ(std::memcmp(now.data(), write.memory.data(), now.size()), 0);
  }
  EXPECT_GT(queue.requests.size(), 200u);
  // Nothing at all is no success.
  queue.change = [](const Io&, int) { return -FileQueue::kEnded; };
  const Op& none = read(0, 1, {4});
  run();
  EXPECT_EQ(none.status.code(), Code::io_error);
}

// Only what lies below the write pointer is read.
TEST_F(RingQueueTest, AReadThatEndsAtTheWritePointer) {
  make(medium());
  const Op& op = read(1, kZoneLbas / 2 - 2, {1, 2, 1});
  run();
  ASSERT_TRUE(op.status.ok());
  EXPECT_EQ(std::memcmp(op.memory.data(), content_.data() + file_offset(1, kZoneLbas / 2 - 2),
                        2 * kRingLba),
            0);
  const std::vector<std::byte> zeroes(2 * kRingLba);
  EXPECT_EQ(std::memcmp(op.memory.data() + 2 * kRingLba, zeroes.data(), zeroes.size()), 0);
}

TEST_F(RingQueueTest, WhatPassesIsTriedAgain) {
  auto& queue = make<ChangedQueue>(medium());
  for (const int error : {EAGAIN, EINTR, ECANCELED}) {
    unsigned left = 3;
    queue.change = [&](const Io&, int result) { return left == 0 ? result : (--left, -error); };
    const Op& op = read(0, 1, {4});
    run();
    expect_content(op);
    EXPECT_EQ(left, 0u);
  }
  EXPECT_EQ(queue.ends, (std::vector<int>{0, 0, 0}));
}

// Nor will it have one the next time, where the process may have no more (ulimit -u).
TEST_F(RingQueueTest, WhatTheKernelHasNoThreadForIsDoneByACall) {
  FileQueue::Medium with_calls = medium();
  with_calls.calls = true;
  auto& queue = make<ChangedQueue>(with_calls);
  queue.change = [](const Io& io, int) {
    if (io.op == Io::Op::read) std::memset(io.iov[0].iov_base, 0xEE, io.iov[0].iov_len);
    return -ECANCELED;
  };
  const Op& got = read(0, 1, {4});
  submit(Io::Op::flush, 0, 0, {});
  submit(Io::Op::write, 0, kZoneLbas / 2, {1});
  run();
  expect_content(got);
  EXPECT_EQ(queue.ends, (std::vector<int>{0, 0, 0}));
}

TEST_F(RingQueueTest, SoIsAFlushOfABlockDevice) {
  auto& queue = make<ChangedQueue>(medium());
  queue.change = [](const Io&, int) { return -ECANCELED; };
  submit(Io::Op::flush, 0, 0, {});
  run();
  EXPECT_EQ(queue.ends, (std::vector<int>{0}));
}

TEST_F(RingQueueTest, AnErrorIsToldWithItsErrno) {
  auto& queue = make<ChangedQueue>(medium());
  queue.change = [](const Io&, int) { return -EIO; };
  const Op& bad_read = read(0, 1, {4});
  const Op& bad_flush = submit(Io::Op::flush, 0, 0, {});
  const Op& bad_write = submit(Io::Op::write, 0, kZoneLbas / 2, {1});
  run();
  EXPECT_EQ(queue.ends, (std::vector<int>{EIO, EIO, EIO}));
  for (const Op* op : {&bad_read, &bad_flush, &bad_write}) {
    EXPECT_EQ(op->done, 1u);
    EXPECT_EQ(op->status.sys_errno(), EIO);
  }
}

TEST_F(RingQueueTest, TheKernelsOwnErrorsAreTold) {
  auto& queue = make(medium());
  ASSERT_EQ(ftruncate(file_, static_cast<off_t>(file_offset(1, 4))), 0);
  read(1, 2, {4});  // two are there
  run();
  EXPECT_EQ(queue.ends, std::vector<int>{FileQueue::kEnded});
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  auto& bad = make({.fd = ends[1], .stride_bytes = kStrideBytes});  // not to be read from
  read(1, 2, {1});
  run();
  EXPECT_EQ(bad.ends, std::vector<int>{EBADF});
  queue_.reset();
  for (const int fd : ends) close(fd);
}

TEST_F(RingQueueTest, RegisteredBuffersAreUsed) {
  auto& queue = make(medium());
  const auto with = [&](std::byte* memory, std::int32_t index) -> Op& {
    Op& op = prepare(Io::Op::read, 1, 5, {2});
    op.pieces[0].iov_base = memory;
    op.buffer_index = index;
    queue_->submit(op);
    run();
    return op;
  };
  AlignedBuffer first(4096), second(4096);
  const std::byte* const there = content_.data() + file_offset(1, 5);
  EXPECT_EQ(with(first.data(), 0).status.code(), Code::invalid_argument) << "there is none";
  const iovec both[] = {{first.data(), first.size()}, {second.data(), second.size()}};
  ASSERT_TRUE(queue.register_buffers(both).ok());
  EXPECT_TRUE(with(second.data() + 1024, 1).status.ok());
  EXPECT_EQ(std::memcmp(second.data() + 1024, there, 2 * kRingLba), 0);
  EXPECT_EQ(with(second.data(), 0).status.sys_errno(), EFAULT) << "it is the other one's";
  EXPECT_EQ(with(first.data(), 2).status.code(), Code::invalid_argument);
  Op& running = read(1, 0, {1});
  EXPECT_EQ(queue.register_buffers(both).code(), Code::busy);
  run();
  expect_content(running);
  ASSERT_TRUE(queue.register_buffers({both + 1, 1}).ok());
  EXPECT_TRUE(with(second.data(), 0).status.ok()) << "it replaces the earlier ones";
  EXPECT_EQ(with(second.data(), 1).status.code(), Code::invalid_argument);
  ASSERT_TRUE(queue.register_buffers({}).ok());
  EXPECT_EQ(with(second.data(), 0).status.code(), Code::invalid_argument);
}

TEST_F(RingQueueTest, ACompletionWakesWhoSleepsOnTheDescriptor) {
  make_on_pipe();
  const Op& op = read(1, 0, {1});
  EXPECT_EQ(queue_->poll(), 0u);
  EXPECT_FALSE(wakes(0));
  EXPECT_EQ(queue_->wait(1000), 0u) << "for so long at most";
  EXPECT_EQ(op.done, 0u);
  say(kRingLba);
  EXPECT_TRUE(wakes(30'000));
  EXPECT_EQ(queue_->poll(), 1u);
  EXPECT_EQ(op.done, 1u);
  EXPECT_TRUE(op.status.ok());
  read(1, 0, {1});
  queue_->poll();
  say(kRingLba);
  EXPECT_EQ(queue_->wait(30'000'000), 1u);
}

// The zone's space is being given back by another thread, which no completion tells of.
TEST_F(RingQueueTest, WhatWaitsForAnotherThreadIsLookedAtAgainSoon) {
  make(medium());
  ASSERT_TRUE(table_.hold_if_empty(ZoneId{3}));
  const Op& op = submit(Io::Op::write, 3, 0, {1});
  for (int i = 0; i < 3; ++i) {
    while (queue_->poll() != 0) {
    }
    EXPECT_TRUE(wakes(30'000));
  }
  EXPECT_EQ(op.done, 0u);
  table_.release(ZoneId{3});
  run();
  EXPECT_TRUE(op.status.ok());
}

// A pipe has no offsets: preadv() fails at once where the ring waits for what comes.
TEST_F(RingQueueTest, ASmallTransferAloneMayBeACallThatBlocks) {
  auto& queue = make_on_pipe(true);
  read(1, 0, {1});
  queue_->poll();
  say(kRingLba);
  run();
  EXPECT_EQ(queue.ends, std::vector<int>{0}) << "not unless it may";
  queue_->may_block();
  const std::uint64_t before = queue_->system_calls();
  read(1, 0, {1});
  EXPECT_EQ(queue_->poll(), 1u);
  EXPECT_EQ(queue.ends.back(), ESPIPE);
  EXPECT_EQ(queue_->system_calls(), before + 1);
  read(1, 0, {1});
  EXPECT_EQ(queue_->wait(1000), 1u);
  EXPECT_EQ(queue.ends.back(), ESPIPE);
  queue.ends.clear();
  read(1, 0, {1});
  read(1, 0, {1});
  queue_->poll();
  read(1, 0, {1});  // beside these
  queue_->poll();
  EXPECT_TRUE(queue.ends.empty());
  say(3 * kRingLba);
  run();
  EXPECT_EQ(queue.ends, (std::vector<int>{0, 0, 0}));
  for (const bool calls : {true, false}) {  // too long for it, or the medium has no such calls
    if (!calls) {
      for (const int fd : pipe_) close(fd);
      make_on_pipe(false).may_block();
    }
    const std::uint32_t lbas = calls ? 129 : 128;
    table_.load(ZoneId{1}, {ZoneRecord::Class::full, 0, kZoneLbas});
    const Op& op = read(1, 0, {lbas});
    queue_->poll();
    EXPECT_EQ(op.done, 0u);
    say(std::size_t{lbas} * kRingLba / 2);
    for (int i = 0; i < 3; ++i) queue_->poll();
    say(std::size_t{lbas} * kRingLba - std::size_t{lbas} * kRingLba / 2);
    run();
    EXPECT_TRUE(op.status.ok());
  }
}

TEST_F(RingQueueTest, ACallReadsAndWritesAsTheRingDoes) {
  FileQueue::Medium calls = medium();
  calls.calls = true;
  make(calls);
  queue_->may_block();
  expect_content((read(1, 3, {1, 2}), run(), *ops_.back()));
  Op& write = prepare(Io::Op::write, 2, kZoneLbas / 2, {1, 1});
  std::memset(write.memory.data(), 0x79, write.memory.size());
  queue_->submit(write);
  run();
  ASSERT_TRUE(write.status.ok());
  std::vector<std::byte> now(2 * kRingLba);
  ASSERT_EQ(pread(file_, now.data(), now.size(), static_cast<off_t>(file_offset(2, kZoneLbas / 2))),
            static_cast<ssize_t>(now.size()));
  EXPECT_EQ(now, std::vector<std::byte>(now.size(), std::byte{0x79}));
  EXPECT_TRUE((submit(Io::Op::flush, 0, 0, {}), run(), ops_.back()->status.ok()));
  ASSERT_EQ(ftruncate(file_, static_cast<off_t>(file_offset(1, 0))), 0);
  read(1, 2, {4});
  run();
  EXPECT_EQ(queue_->ends.back(), FileQueue::kEnded);
}

}  // namespace
}  // namespace furrow::test
