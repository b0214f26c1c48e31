// Establishes what TableQueue does for the back ends of emulated devices: each operation is decided
// at submission and completed once, in a poll; writes are acknowledged in their order whatever the
// order of their transfers, a failed one takes those behind it along; what lies behind the write
// pointer reads as zeroes without a transfer; a zone whose space is being given back is not
// written. How: a queue whose transfers end when the test says so.
#include "zone/table_queue.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "zone/aligned_buffer.h"

namespace furrow {
namespace {

Geometry small() {
  Geometry made;
  made.lba_bytes = 512;
  made.zone_count = 8;
  made.zone_size_lbas = made.zone_capacity_lbas = 64;
  made.open_zones_max = 2;
  made.active_zones_max = 4;
  made.append_lbas_max = 8;
  return made;
}

class FakeQueue final : public TableQueue {
 public:
  FakeQueue(ZoneTable& table, bool read_only) : TableQueue(small(), table, read_only) {}
  Status register_buffers(std::span<const iovec> buffers) override {
    set_registered(buffers.size());
    return {};
  }
  std::uint64_t system_calls() const override { return 0; }
  int wake_fd() const override { return -1; }
  void end(std::size_t transfer, Status status = {}) { ending_.push_back({transfer, status}); }
  void abort_all() { aborting_ = true; }
  bool something_waits() const { return waits(); }
  static std::uint64_t bytes(Io& io) { return transfer_bytes(io); }

  std::vector<Io*> started;
  std::vector<std::uint32_t> reset;

 private:
  void start_transfer(Io& io) override { started.push_back(&io); }
  void start_flush(Io& io) override { started.push_back(&io); }
  void zone_was_reset(ZoneId zone) override { reset.push_back(zone.value); }
  unsigned do_poll() override {
    if (aborting_) return abort_lists(Status(Code::aborted, Origin::zone, "all"));
    unsigned count = settle();
    for (const auto& [transfer, status] : std::exchange(ending_, {})) {
      count += end_transfer(*started[transfer], status);
    }
    return count;
  }
  unsigned do_wait(std::uint64_t) override { return do_poll(); }

  std::vector<std::pair<std::size_t, Status>> ending_;
  bool aborting_ = false;
};

class TableQueueTest : public ::testing::Test {
 protected:
  struct Op : Io {
    int done = 0;
  };
  Op& submit(Io::Op what, std::uint32_t zone, std::uint32_t lbas = 1, std::uint64_t offset = 0) {
    ops_.push_back(std::make_unique<Op>());
    Op& op = *ops_.back();
    op.op = what;
    op.zone = ZoneId{zone};
    op.lba = Lba{zone * 64 + offset};
    op.set_data(data_.data(), lbas, 512);
    op.on_complete = [](Io& io) { ++static_cast<Op&>(io).done; };
    queue_.submit(op);
    EXPECT_EQ(op.done, 0) << "never from within submit()";
    return op;
  }
  void expect(Op& op, Code code) {
    queue_.poll();
    EXPECT_EQ(op.done, 1);
    EXPECT_EQ(op.status.code(), code) << op.status.describe();
  }

  AlignedBuffer data_{512 * 64};
  ZoneTable table_{small(), nullptr};
  FakeQueue queue_{table_, false};
  std::vector<std::unique_ptr<Op>> ops_;
};

TEST_F(TableQueueTest, WritesAreAcknowledgedInTheirOrder) {
  Op& first = submit(Io::Op::append, 1, 4);
  Op& second = submit(Io::Op::append, 1, 2);
  Op& other = submit(Io::Op::append, 2, 1);
  EXPECT_EQ(first.appended_at.value, 64u);
  EXPECT_EQ(second.appended_at.value, 68u);
  queue_.end(1);
  queue_.end(2);
  EXPECT_EQ(queue_.poll(), 1u);
  EXPECT_EQ(second.done, 0) << "it waits for the one before";
  EXPECT_EQ(other.done, 1) << "another zone does not";
  EXPECT_TRUE(queue_.something_waits());
  queue_.end(0);
  EXPECT_EQ(queue_.poll(), 2u);
  EXPECT_TRUE(first.status.ok() && second.status.ok());
  EXPECT_EQ(second.done, 1);
  EXPECT_FALSE(queue_.busy());
  EXPECT_EQ(table_.written_lbas(ZoneId{1}), 6u);
}

TEST_F(TableQueueTest, AFailedWriteTakesThoseBehindItAlong) {
  Op& good = submit(Io::Op::append, 1);
  Op& bad = submit(Io::Op::append, 1);
  Op& behind = submit(Io::Op::append, 1);
  queue_.end(2);
  queue_.end(1, Status(Code::io_error, Origin::zone, "medium"));
  queue_.end(0);
  while (queue_.poll() != 0) {
  }
  EXPECT_TRUE(good.status.ok());
  EXPECT_EQ(bad.status.code(), Code::io_error);
  EXPECT_EQ(behind.status.code(), Code::io_error);
  EXPECT_EQ(good.done + bad.done + behind.done, 3);
  EXPECT_EQ(table_.written_lbas(ZoneId{1}), 1u);
}

TEST_F(TableQueueTest, WhatLiesBehindTheWritePointerIsZeroes) {
  submit(Io::Op::append, 1, 4);
  queue_.end(0);
  queue_.poll();
  std::memset(data_.data(), 0xEE, data_.size());
  Op& all_behind = submit(Io::Op::read, 1, 3, 4);
  EXPECT_EQ(queue_.started.size(), 1u) << "no transfer";
  expect(all_behind, Code::ok);
  EXPECT_EQ(data_.span()[0], std::byte{0});
  EXPECT_EQ(data_.span()[3 * 512 - 1], std::byte{0});
  EXPECT_EQ(data_.span()[3 * 512], std::byte{0xEE}) << "and no more than was asked for";
  std::memset(data_.data(), 0xEE, data_.size());
  Op& half = submit(Io::Op::read, 1, 4, 2);
  ASSERT_EQ(queue_.started.size(), 2u);
  EXPECT_EQ(FakeQueue::bytes(half), 2 * 512u);
  EXPECT_EQ(data_.span()[2 * 512 - 1], std::byte{0xEE}) << "the transfer's part";
  EXPECT_EQ(data_.span()[2 * 512], std::byte{0});
  queue_.end(1);
  expect(half, Code::ok);
}

TEST_F(TableQueueTest, ManagementNeedsNoTransferAndIsRefusedInAPoll) {
  expect(submit(Io::Op::open, 1), Code::ok);
  expect(submit(Io::Op::open, 2), Code::ok);
  expect(submit(Io::Op::open, 3), Code::too_many_zones);
  expect(submit(Io::Op::reset, 1), Code::ok);
  EXPECT_EQ(queue_.reset, std::vector<std::uint32_t>{1});
  EXPECT_TRUE(queue_.started.empty());
}

TEST_F(TableQueueTest, AnUnregisteredBufferIsRefused) {
  const iovec slab{data_.data(), data_.size()};
  ASSERT_TRUE(queue_.register_buffers({&slab, 1}).ok());
  for (const std::int32_t index : {0, 1}) {
    ops_.push_back(std::make_unique<Op>());
    Op& op = *ops_.back();
    op.op = Io::Op::append;
    op.set_data(data_.data(), 1, 512, index);
    op.on_complete = [](Io& io) { ++static_cast<Op&>(io).done; };
    queue_.submit(op);
  }
  queue_.end(0);
  while (queue_.poll() != 0) {
  }
  EXPECT_TRUE(ops_[0]->status.ok());
  EXPECT_EQ(ops_[1]->status.code(), Code::invalid_argument);
}

TEST(TableQueueInspecting, ChangesNothing) {
  ZoneTable table(small(), nullptr);
  FakeQueue queue(table, true);
  AlignedBuffer data(512);
  for (const Io::Op what : {Io::Op::write, Io::Op::append, Io::Op::reset, Io::Op::finish,
                            Io::Op::open, Io::Op::close, Io::Op::flush}) {
    Io io;
    io.op = what;
    io.on_complete = [](Io&) {};
    io.set_data(data.data(), 1, 512);
    queue.submit(io);
    queue.poll();
    EXPECT_EQ(io.status.code(), Code::permission) << static_cast<int>(what);
  }
  EXPECT_TRUE(queue.started.empty());
  EXPECT_EQ(table.info(ZoneId{0}).state, ZoneState::empty);
}

TEST_F(TableQueueTest, WritesWaitWhileSpaceIsGivenBack) {
  ASSERT_TRUE(table_.hold_if_empty(ZoneId{2}));
  EXPECT_FALSE(table_.hold_if_empty(ZoneId{2}));
  submit(Io::Op::append, 2);
  submit(Io::Op::append, 2);  // for which the zone is open already
  queue_.poll();
  EXPECT_TRUE(queue_.started.empty());
  EXPECT_TRUE(queue_.something_waits());
  table_.release(ZoneId{2});
  EXPECT_FALSE(table_.hold_if_empty(ZoneId{2})) << "it is in use";
  queue_.poll();
  EXPECT_EQ(queue_.started.size(), 2u);
  queue_.end(0);
  queue_.end(1);
  while (queue_.poll() != 0) {
  }
  for (const auto& op : ops_) EXPECT_TRUE(op->done == 1 && op->status.ok());
}

TEST_F(TableQueueTest, AllThatIsHeldHereCanBeAborted) {
  ASSERT_TRUE(table_.hold_if_empty(ZoneId{2}));
  Op& held = submit(Io::Op::append, 2);
  Op& decided = submit(Io::Op::open, 1);
  submit(Io::Op::append, 3);
  Op& waiting = submit(Io::Op::append, 3);
  queue_.end(1);
  queue_.poll();
  Op& late = submit(Io::Op::read, 1);
  queue_.abort_all();
  EXPECT_EQ(queue_.poll(), 3u);
  EXPECT_EQ(held.status.code(), Code::aborted);
  EXPECT_EQ(waiting.status.code(), Code::aborted);
  EXPECT_EQ(late.status.code(), Code::aborted);
  EXPECT_EQ(decided.status.code(), Code::ok) << "it was done before";
}

// Somebody else resets the zone: what comes for it waits, in its order; the rest does not.
TEST_F(TableQueueTest, WhatATakenZoneIsSentWaitsInOrder) {
  ASSERT_TRUE(table_.take(Io::Op::reset, ZoneId{2})->ok());
  Op& first = submit(Io::Op::append, 2);
  Op& close = submit(Io::Op::close, 2);
  Op& second = submit(Io::Op::append, 2);
  Op& other = submit(Io::Op::append, 1);
  while (queue_.poll() != 0) {
  }
  EXPECT_TRUE(queue_.something_waits());
  ASSERT_EQ(queue_.started.size(), 1u);
  EXPECT_EQ(queue_.started[0], &other);
  table_.leave(Io::Op::reset, ZoneId{2});
  while (queue_.poll() != 0) {
  }
  EXPECT_TRUE(close.done == 1 && close.status.ok()) << "the first write had opened the zone";
  ASSERT_EQ(queue_.started.size(), 3u);
  EXPECT_EQ(queue_.started[1], &first);
  EXPECT_EQ(queue_.started[2], &second);
  EXPECT_EQ(first.appended_at.value, 2 * 64u);
  EXPECT_EQ(second.appended_at.value, 2 * 64u + 1);
  for (const std::size_t transfer : {0, 1, 2}) queue_.end(transfer);
  while (queue_.poll() != 0) {
  }
  EXPECT_FALSE(queue_.something_waits());
}

}  // namespace
}  // namespace furrow
