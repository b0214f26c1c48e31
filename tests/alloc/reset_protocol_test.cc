// Establishes that no zone is reset under a reader, in any order in which the steps of readers and
// of the one that resets can fall, and that readers and resets do not wait for each other for ever.
// How: alloc/epoch.h as it is, but for atomics whose accesses are scheduled (interleavings.h), with
// the index of log/ and a memory device; readers do what PageSession does (enter, look up, read,
// leave), the resetter what Collector does (out of the index, grace, reset) and then writes the
// zone again. Each protocol with two of its steps exchanged is caught.
#include <gtest/gtest.h>

#include <cstring>

#include "alloc/epoch.h"
#include "log/index.h"
#include "tests/alloc/interleavings.h"
#include "zone/aligned_buffer.h"
#include "zone/blocking.h"

namespace furrow::testing {
namespace {

constexpr std::uint64_t kOrder = 0x123456789ABCDEF0;

// What is done in the wrong order, or not at all.
enum class Planted : std::uint8_t {
  nothing,
  look_up_before_entering,
  leave_before_the_read,
  grace_before_unpublishing,
  reset_without_waiting,
};

class ResetProtocol {
 public:
  explicit ResetProtocol(Planted planted) : planted_(planted) {
    auto opened = open_device("mem:1MiB?zone_size=64KiB", Access::exclusive);
    EXPECT_TRUE(opened.ok()) << opened.status().describe();
    device_ = std::move(*opened);
    queue_ = *device_->create_queue(8);
  }

  // `reads` of each reader, `resets` in all. How many orders there were; 0: they wait for ever.
  std::uint64_t explore(unsigned readers, unsigned reads, unsigned resets) {
    std::vector<std::function<void()>> threads;
    for (unsigned i = 0; i < readers; ++i) {
      threads.push_back([this, i, reads] {
        for (unsigned n = 0; n < reads; ++n) read_page(*epoch_readers_[i], *queues_[i]);
      });
      queues_.push_back(*device_->create_queue(8));
    }
    threads.push_back([this, resets] {
      for (unsigned n = 0; n < resets; ++n) reset_zone();
    });
    return Interleavings().run_all([this, readers] { prepare(readers); }, threads,
                                   [this] { return wrong_ != 0; });
  }
  std::uint64_t wrong() const { return wrong_; }
  std::uint64_t found() const { return found_; }
  std::uint64_t missed() const { return missed_; }

 private:
  using SteppedEpoch = BasicEpoch<StepAtomic>;

  void prepare(unsigned readers) {
    epoch_ = std::make_unique<SteppedEpoch>();
    epoch_readers_.clear();
    for (unsigned i = 0; i < readers; ++i) epoch_readers_.push_back(&epoch_->add());
    if (published_) index_.erase(kOrder, 0);
    manage(Io::Op::reset);
    generation_ = 1;
    write_and_publish();
  }

  // --- a reader ---

  void read_page(SteppedEpoch::Reader& reader, IoQueue& queue) {
    IndexEntry entry;
    bool there = false;
    if (planted_ == Planted::look_up_before_entering) there = look_up(entry);
    const unsigned side = reader.enter();
    if (planted_ != Planted::look_up_before_entering) there = look_up(entry);
    if (planted_ == Planted::leave_before_the_read) reader.leave(side);
    if (there) {
      read(queue, entry);
    } else {
      ++missed_;
    }
    if (planted_ != Planted::leave_before_the_read) reader.leave(side);
  }
  bool look_up(IndexEntry& entry) {
    Interleavings::step(&index_, false);
    return index_.find(kOrder, 0, {&entry, 1}) != 0;
  }
  void read(IoQueue& queue, const IndexEntry& entry) {
    AlignedBuffer page(4096);
    Io io;
    io.op = Io::Op::read;
    io.lba = Lba{entry.lba};
    io.set_data(page.data(), 1, 4096);
    bool done = false;
    io.context = &done;
    io.on_complete = [](Io& completed) { *static_cast<bool*>(completed.context) = true; };
    Interleavings::step(&device_, false);
    queue.submit(io);
    while (!done) {
      Interleavings::step(&device_, false);
      queue.poll();
    }
    std::uint32_t generation = 0;
    std::memcpy(&generation, page.data(), sizeof generation);
    wrong_ += !io.status.ok() || generation != entry.checksum;
    ++found_;
  }

  // --- the one that resets ---

  void reset_zone() {
    if (planted_ == Planted::grace_before_unpublishing) epoch_->begin_grace();
    unpublish();
    if (planted_ != Planted::grace_before_unpublishing) epoch_->begin_grace();
    while (!epoch_->grace_over() && planted_ != Planted::reset_without_waiting) {
      Interleavings::await_write();
    }
    Interleavings::step(&device_, true);
    manage(Io::Op::reset);
    ++generation_;
    write_and_publish();
  }
  void unpublish() {
    Interleavings::step(&index_, true);
    EXPECT_TRUE(index_.erase(kOrder, 0));
    published_ = false;
  }
  void manage(Io::Op op) {
    Io io;
    io.op = op;
    const Status status = run_blocking(*queue_, io);
    EXPECT_TRUE(status.ok()) << status.describe();
  }
  void write_and_publish() {
    AlignedBuffer page(4096);
    std::memcpy(page.data(), &generation_, sizeof generation_);
    Io io;
    io.op = Io::Op::write;
    io.set_data(page.data(), 1, 4096);
    Interleavings::step(&device_, true);
    const Status status = run_blocking(*queue_, io);
    EXPECT_TRUE(status.ok()) << status.describe();
    Interleavings::step(&index_, true);
    index_.insert(kOrder, {0, 4, generation_});
    published_ = true;
  }

  const Planted planted_;
  std::unique_ptr<ZonedDevice> device_;
  std::unique_ptr<IoQueue> queue_;                // the resetter's
  std::vector<std::unique_ptr<IoQueue>> queues_;  // the readers'
  Index index_{1000};
  bool published_ = false;
  std::uint32_t generation_ = 0;
  std::unique_ptr<SteppedEpoch> epoch_;
  std::vector<SteppedEpoch::Reader*> epoch_readers_;
  std::uint64_t wrong_ = 0, found_ = 0, missed_ = 0;
};

void expect_safe(unsigned readers, unsigned reads, unsigned resets) {
  ResetProtocol protocol(Planted::nothing);
  const std::uint64_t orders = protocol.explore(readers, reads, resets);
  std::printf("%u readers, %u reads each, %u resets: %lu orders, %lu pages read, %lu absent\n",
              readers, reads, resets, orders, protocol.found(), protocol.missed());
  EXPECT_GT(orders, 10u) << "0: readers and the reset wait for each other";
  EXPECT_EQ(protocol.wrong(), 0u);
  EXPECT_GT(protocol.found(), 0u);
  EXPECT_GT(protocol.missed(), 0u);
}

TEST(ResetProtocol, OneReaderAndOneReset) { expect_safe(1, 1, 1); }
TEST(ResetProtocol, OneReaderReadsAgainWhileSidesChange) { expect_safe(1, 2, 2); }
TEST(ResetProtocol, AReaderMeetsTheSameSideAgain) { expect_safe(1, 1, 3); }
TEST(ResetProtocol, TwoReaders) { expect_safe(2, 1, 1); }

class PlantedTest : public ::testing::TestWithParam<Planted> {};
INSTANTIATE_TEST_SUITE_P(Orders, PlantedTest,
                         ::testing::Values(Planted::look_up_before_entering,
                                           Planted::leave_before_the_read,
                                           Planted::grace_before_unpublishing,
                                           Planted::reset_without_waiting));

TEST_P(PlantedTest, IsCaught) {
  ResetProtocol protocol(GetParam());
  const std::uint64_t orders = protocol.explore(1, 1, 1);
  EXPECT_GT(protocol.wrong(), 0u) << orders << " orders";
}

// The explorer itself: it runs every order that makes a difference, and no other.
TEST(Interleavings, TwoLostUpdates) {
  StepAtomic<int> counter;
  std::vector<int> results(3);
  const auto add = [&] { counter.store(counter.load() + 1); };
  const std::uint64_t runs = Interleavings().run_all(
      [&] {
        if (counter.load() != 0) ++results[static_cast<std::size_t>(counter.load())];
        counter.store(0);
      },
      {add, add}, [] { return false; });
  ++results[static_cast<std::size_t>(counter.load())];
  EXPECT_EQ(runs, static_cast<std::uint64_t>(results[1] + results[2]));
  EXPECT_GE(results[1], 1) << "one update is lost";
  EXPECT_GE(results[2], 2) << "either before the other";
}

TEST(Interleavings, WhatIsIndependentIsRunInOneOrder) {
  StepAtomic<int> one, other;
  const std::uint64_t runs = Interleavings().run_all(
      [] {}, {[&] { one.store(1), one.store(2); }, [&] { other.store(1), other.store(2); }},
      [] { return false; });
  EXPECT_LE(runs, 5u) << "of six orders, and all but one are given up on their way";
}

TEST(Interleavings, WaitingForEachOtherIsSeen) {
  StepAtomic<int> value;
  const auto wait = [&] {
    while (value.load() == 0) Interleavings::await_write();
  };
  EXPECT_EQ(Interleavings().run_all([] {}, {wait, wait}, [] { return false; }), 0u);
}

}  // namespace
}  // namespace furrow::testing
