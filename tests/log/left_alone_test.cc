// Establishes what a store does beside zones that it cannot empty: deletes may use what is kept for
// copies, and leave enough of it for the store to go on once those zones can be read; and a store
// that meets a full device answers what waits, whatever the journal says.
#include <gtest/gtest.h>

#include <array>

#include "log/collector.h"
#include "tests/log/page_log_rig.h"

namespace furrow {
namespace {

class LeftAloneTest : public PageLogRig {
 protected:
  // Stores pages until no more fit; the numbers from 1 on.
  std::uint64_t fill(std::uint32_t bytes) {
    std::uint64_t next = 1;
    while (next < 5000 && put(next, 0, bytes).ok()) ++next;
    run();
    return next - 1;
  }
  // Of each zone the first page.
  std::vector<std::uint64_t> one_of_each_zone(std::uint64_t stored) {
    std::vector<std::uint64_t> numbers;
    std::vector<ZoneId> seen;
    for (std::uint64_t number = 1; number <= stored; ++number) {
      const ZoneId zone = zone_of(number);
      if (std::ranges::find(seen, zone) != seen.end()) continue;
      seen.push_back(zone);
      numbers.push_back(number);
    }
    return numbers;
  }
  // `between_ns`: two deletes.
  void goes_on(const Shape& shape, std::uint32_t bytes, bool shuffled,
               std::uint64_t between_ns = 5'000'000) {
    remake(shape, false);
    refused_ = 0;
    const std::uint64_t stored = fill(bytes);
    ASSERT_GE(stored, 2 * shape.quota);
    const std::vector<std::uint64_t> unreadable = one_of_each_zone(stored);
    for (const std::uint64_t number : unreadable) {
      faults_->fail_reads(Lba{entry(number).lba}, 1);
    }
    std::vector<std::uint64_t> left = unreadable, order;
    for (std::uint64_t number = stored; number >= 1; --number) {
      if (std::ranges::find(unreadable, number) == unreadable.end()) order.push_back(number);
    }
    std::mt19937_64 random(1);
    if (shuffled) std::ranges::shuffle(order, random);
    for (const std::uint64_t number : order) {
      clock_.now_ns += between_ns;
      if (!remove(number).ok()) {
        left.push_back(number);
        ++refused_;
      }
      if (put(100'000 + number, 0, bytes).ok()) left.push_back(100'000 + number);
    }
    faults_->heal();
    clock_.now_ns += 100'000'000'000;
    for (const std::uint64_t number : left) {
      clock_.now_ns += 2'000'000'000;
      const Status status = remove(number);
      ASSERT_TRUE(status.ok()) << number << ": " << status.describe();
    }
    EXPECT_TRUE(put(900'000, 0, bytes).ok());
  }
  unsigned refused_ = 0;  // deletes
};

// Of each zone the first page cannot be read for a while. Meanwhile the others are deleted, some
// from the end and some in any order, and new ones stored.
TEST_F(LeftAloneTest, AStoreThatCouldNotReadForAWhileGoesOn) {
  for (const unsigned segment_lbas : {96u, 48u, 32u}) {
    for (const unsigned quota : {3u, 4u, 5u, 6u, 7u, 8u}) {
      for (const std::uint32_t bytes : {400u, 1000u, 2000u, 4000u}) {
        for (const bool shuffled : {false, true}) {
          SCOPED_TRACE(testing::Message()
                       << "segments of " << segment_lbas << ", quota " << quota << ", pages of "
                       << bytes << (shuffled ? ", shuffled" : ""));
          Shape shape;
          shape.faults = true;
          shape.quota = quota;
          shape.segment_lbas = segment_lbas;
          ASSERT_NO_FATAL_FAILURE(goes_on(shape, bytes, shuffled));
        }
      }
    }
  }
}

// .. and when it has been so for long deletes may use more, but not all that is kept for copies.
TEST_F(LeftAloneTest, AStoreThatCannotReadForLongTakesMoreDeletes) {
  for (const unsigned quota : {3u, 4u}) {
    unsigned refused[2] = {};
    for (const bool is_long : {false, true}) {
      Shape shape;
      shape.faults = true;
      shape.quota = quota;
      shape.segment_lbas = 96;
      ASSERT_NO_FATAL_FAILURE(goes_on(shape, 400, true, is_long ? 1'000'000'000 : 1'000'000));
      refused[is_long ? 1 : 0] = refused_;
    }
    // Three zones have none that could take more.
    if (quota == 4) {
      EXPECT_LT(refused[1], refused[0]);
    }
  }
}

// A page that stays unreadable must not keep deletes out, nor those of the pages behind it in its
// batch, whose header stands before it.
TEST_F(LeftAloneTest, DeletesUseTheZoneOfCopiesBesideAPageThatCannotBeRead) {
  Shape shape;
  shape.faults = true;
  shape.quota = 5;
  shape.segment_lbas = 96;
  make_log(shape, false);
  const std::uint64_t stored = fill(2000);
  faults_->fail_reads(Lba{entry(2).lba}, 1);
  for (std::uint64_t number = 3; number <= stored; number += 2) {
    const Status status = remove(number);
    EXPECT_TRUE(status.ok()) << number << ": " << status.describe();
  }
  EXPECT_TRUE(put(900'000, 0, 2000).ok()) << "they made room";
}

// A zone that could be read in between is in a new trouble, however old the first one is.
TEST_F(LeftAloneTest, WhatCouldBeReadInBetweenHasNotBeenUnreadableForLong) {
  Shape shape;
  shape.faults = true;
  shape.quota = 7;
  make_log(shape, false);
  std::uint64_t next = 1;
  while (pool_->allocator.held(kVolume) < 4) ASSERT_TRUE(put(next++, 0, 2000).ok());
  const ZoneId zone = zone_of(2);
  const std::vector<std::uint64_t> of_each = one_of_each_zone(next - 1);
  ASSERT_GE(of_each.size(), 2u);
  const ZoneId other = zone_of(of_each[1]);
  const Lba unreadable{entry(2).lba};
  faults_->fail_reads(unreadable, 1);
  log_->collect(zone);
  run();
  ASSERT_TRUE(log_->leaves_zones_alone());
  faults_->heal();
  clock_.now_ns += 1'000'000'000;
  log_->collect(other);  // which asks first
  run();
  ASSERT_FALSE(log_->leaves_zones_alone());
  ASSERT_EQ(zone_of(2), zone) << "and it is not emptied";
  faults_->fail_reads(unreadable, 1);
  clock_.now_ns += 3'600'000'000'000;
  log_->collect(zone);
  run();
  ASSERT_TRUE(log_->leaves_zones_alone());
  EXPECT_FALSE(log_->unreadable_for_long());
  clock_.now_ns += 16'000'000'000;
  EXPECT_FALSE(log_->unreadable_for_long()) << "nobody has asked since";
  log_->collect(other);
  run();
  EXPECT_TRUE(log_->unreadable_for_long());
}

// Two zones hold nothing, each the newest of its stream, and neither can be noted.
TEST_F(LeftAloneTest, AJournalThatIsFullTooIsNotAskedForEver) {
  struct Answer : Task {
    DurableNote* note = nullptr;
  } answer;
  unsigned notes = 0;
  Shape shape;
  shape.streams = 3;
  shape.quota = 5;
  shape.segment_lbas = 96;
  make_log(shape, false);
  Put plain, brief;
  brief.expires_s = static_cast<std::uint32_t>(executor_.wall_s() + 1'000'000);
  std::uint64_t next = 1;
  ASSERT_TRUE(put(next++, 0, 400, plain).ok());
  ASSERT_TRUE(put(next++, 0, 400, brief).ok());
  pool_->note_durable = [&](DurableNote& note) {
    ++notes;
    answer.note = &note;
    answer.run = [](Task& task) {
      DurableNote& asked = *static_cast<Answer&>(task).note;
      asked.status = {Code::no_space, Origin::log};
      asked.on_noted(asked);
    };
    executor_.post(answer);
  };
  for (const Put& how : {plain, brief}) {
    // Until one begins a new zone, whose first batch then meets a full device.
    for (bool failed = false; !failed;) {
      ASSERT_LT(next, 5000u);
      const std::size_t before = device_->count(Io::Op::write);
      Op& op = start_put(next++, 0, 400, how);
      ASSERT_TRUE(
          run([&] { return op.answers != 0 || device_->count(Io::Op::write) == before + 2; }));
      failed = op.answers == 0;
      if (failed) device_->fail(Io::Op::write, {Code::no_space, Origin::zone}, 1);
      ASSERT_TRUE(run([&] { return op.answers != 0; }));
    }
  }
  Op& op = start_put(next++, 0, 400, plain);
  EXPECT_TRUE(run([&] { return op.answers != 0; }));
  EXPECT_LT(notes, 20u);
}

// What is kept for copies while no zone counts for which there is room is not any more when the one
// that was to be freed, and had nothing left to copy, is not reset after all.
TEST_F(LeftAloneTest, WhatWasKeptWaitingGoesOnWhenAResetFails) {
  constexpr std::uint32_t kBytes = 4000;
  Shape shape;
  shape.faults = true;
  shape.quota = 6;
  shape.segment_lbas = 96;
  make_log(shape, false);
  ASSERT_EQ(fill(kBytes), 38u);
  for (const std::uint64_t number : {18, 20, 25}) {
    faults_->fail_reads(Lba{entry(number).lba}, 1);
  }
  device_->fail(Io::Op::reset, {Code::io_error, Origin::zone}, 1);
  struct Step {
    std::uint64_t removed;
    bool put_after;
  };
  constexpr std::array<Step, 10> kSteps = {{{34, false},
                                            {13, true},
                                            {31, false},
                                            {16, false},
                                            {19, true},
                                            {5, false},
                                            {37, true},
                                            {32, false},
                                            {21, true},
                                            {6, false}}};
  for (const Step& step : kSteps) {
    clock_.now_ns += 5'000'000;
    EXPECT_TRUE(remove(step.removed).ok()) << step.removed;
    if (step.put_after) (void)put(100'000 + step.removed, 0, kBytes);  // is answered
  }
  EXPECT_EQ(device_->count(Io::Op::reset), 1u);
}

}  // namespace
}  // namespace furrow
