// Establishes that reads which lie one right behind the other are one request of the kernel's,
// each into its own memory, and which are not; that one that fails is told so and none beside it;
// and that what the kernel does in parts, or later, is whole in the end.
#include "tests/zone/ring_queue_fixture.h"

namespace furrow::test {
namespace {

class MergedReadsTest : public RingQueueTest {
 protected:
  // What the kernel is given once all that was submitted is.
  static Lbas requests(FileQueue& queue) {
    Lbas lbas;
    for (const std::uint64_t bytes : queue.requests) lbas.push_back(bytes / kRingLba);
    queue.requests.clear();
    return lbas;
  }
  void expect_all() {
    for (const auto& op : ops_) expect_content(*op);
    ops_.clear();
  }
};

TEST_F(MergedReadsTest, OneBehindTheOther) {
  auto& queue = make(medium());
  for (std::uint64_t at = 3; at < 9; ++at) read(1, at, {1});
  read(1, 9, {2, 3});
  run();
  EXPECT_EQ(requests(queue), Lbas{11});
  EXPECT_EQ(queue.ends, std::vector<int>(7, 0)) << "each is told";
  expect_all();
}

TEST_F(MergedReadsTest, NotTheseThatDoNot) {
  auto& queue = make(medium());
  read(1, 3, {1});
  read(1, 5, {1});  // a gap
  read(1, 4, {1});  // before it
  read(1, 4, {1});  // the same
  run();
  EXPECT_EQ(requests(queue), (Lbas{1, 1, 1, 1}));
  expect_all();
  table_.load(ZoneId{0}, {ZoneRecord::Class::full, 0, kZoneLbas});
  read(0, kZoneLbas - 1, {1});
  read(1, 0, {1});  // another zone's
  run();
  EXPECT_EQ(requests(queue), (Lbas{1, 1}));
  expect_all();
  read(1, kZoneLbas / 2 - 3, {1});
  Op& tail = read(1, kZoneLbas / 2 - 2, {4});  // two are written
  run();
  EXPECT_EQ(requests(queue), (Lbas{1, 2}));
  EXPECT_TRUE(tail.status.ok());
  // Nor what is no read.
  read(2, kZoneLbas / 2 - 1, {1});
  submit(Io::Op::write, 2, kZoneLbas / 2, {1});
  submit(Io::Op::flush, 0, 0, {});
  run();
  EXPECT_EQ(requests(queue), (Lbas{1, 1}));
}

TEST_F(MergedReadsTest, AsLongAsARequestMayBe) {
  FileQueue::Medium limited = medium();
  limited.read = {.bytes = 8 * kRingLba, .pieces = 5};
  auto& queue = make(limited);
  for (std::uint64_t at = 0; at < 12; at += 3) read(1, at, {3});
  run();
  EXPECT_EQ(requests(queue), (Lbas{6, 6})) << "bytes";
  for (std::uint64_t at = 0; at < 7; ++at) read(1, at, {1});
  run();
  EXPECT_EQ(requests(queue), (Lbas{5, 2})) << "pieces";
  expect_all();
  auto& wide = make(medium());
  for (std::uint64_t at = 0; at < MergedReads::kPiecesMax + 2; ++at) read(1, at, {1});
  run();
  EXPECT_EQ(requests(wide), (Lbas{MergedReads::kPiecesMax, 2}));
  expect_all();
}

TEST_F(MergedReadsTest, MoreThanThereIsRoomForGoByThemselves) {
  auto& queue = make(medium(), 256);
  constexpr std::uint64_t kMore = 3;
  for (std::uint64_t i = 0; i < MergedReads::kCount + kMore; ++i) {
    read(1, 3 * i, {1});
    read(1, 3 * i + 1, {1});
  }
  run();
  Lbas expected(MergedReads::kCount, 2);
  expected.insert(expected.end(), 2 * kMore, 1);
  EXPECT_EQ(requests(queue), expected);
  expect_all();
  for (int round = 0; round < 3; ++round) {  // and once these have ended, there is
    read(1, 7, {1});
    read(1, 8, {1});
    run();
    EXPECT_EQ(requests(queue), Lbas{2});
    expect_all();
  }
}

TEST_F(MergedReadsTest, OneThatFailsFailsAlone) {
  auto& queue = make<ChangedQueue>(medium());
  // The third LBA cannot be read.
  queue.change = [](const Io& io, int result) {
    return io.lba.value <= kZoneLbas + 6 && io.lba.value + io.lba_count > kZoneLbas + 6 ? -EIO
                                                                                        : result;
  };
  for (std::uint64_t at = 4; at < 9; ++at) read(1, at, {1});
  run();
  EXPECT_EQ(requests(queue), (Lbas{5, 1, 1, 1, 1, 1})) << "these are not merged again";
  for (const auto& op : ops_) {
    if (op->lba == Lba{kZoneLbas + 6}) {
      EXPECT_EQ(op->done, 1u);
      EXPECT_EQ(op->status.sys_errno(), EIO);
    } else {
      expect_content(*op);
    }
  }
  ops_.clear();
  queue.change = [](const Io&, int result) { return result; };
  for (std::uint64_t at = 4; at < 9; ++at) read(1, at, {1});
  run();
  EXPECT_EQ(requests(queue), Lbas{5}) << "the next ones are";
  expect_all();
}

TEST_F(MergedReadsTest, InPartsAndLater) {
  auto& queue = make<ChangedQueue>(medium());
  std::mt19937_64 random(2);
  queue.change = [&](const Io&, int result) {
    if (random() % 4 == 0) return -EAGAIN;
    return result > 1 && random() % 2 != 0 ? 1 + static_cast<int>(random() % result) : result;
  };
  for (unsigned round = 0; round < 50; ++round) {
    std::uint64_t at = random() % 8;
    for (unsigned i = 0; i < 6; ++i) {
      const auto lbas = static_cast<std::uint32_t>(1 + random() % 3);
      read(1, at, {lbas});
      at += lbas;
    }
    run();
    expect_all();
  }
  EXPECT_GT(queue.requests.size(), 100u);
}

TEST_F(MergedReadsTest, WhatIsLeftOfManyMayBeACallThatBlocks) {
  FileQueue::Medium calls = medium();
  calls.calls = true;
  auto& queue = make(calls);
  queue_->may_block();
  const std::uint64_t before = queue_->system_calls();
  for (std::uint64_t at = 3; at < 9; ++at) read(1, at, {1});
  EXPECT_EQ(queue_->poll(), 1u);
  EXPECT_EQ(queue_->system_calls(), before + 1);
  EXPECT_EQ(requests(queue), Lbas{6});
  expect_all();
}

}  // namespace
}  // namespace furrow::test
