// Establishes what the simulation's model allows and what it does not, case by case: an oracle that
// allowed everything would find nothing.
#include <gtest/gtest.h>

#include <vector>

#include "tests/sim/model.h"

namespace furrow::sim {
namespace {

constexpr std::uint64_t kKey = 7;
constexpr Window kNow{100, 1000, 1000};

State page(std::uint64_t version, std::uint64_t serial, std::uint64_t era = 0) {
  State state;
  state.version = version;
  state.bytes = 24;
  state.serial = serial;
  state.era = era;
  return state;
}
State absent(std::uint64_t serial, std::uint64_t era = 0) {
  State state;
  state.serial = serial;
  state.era = era;
  return state;
}

bool allows(const History& history, std::uint64_t version) {
  std::vector<std::byte> bytes(24);
  fill_content(kKey, version, bytes);
  return history.present(kKey, kNow, 24, bytes) != nullptr;
}

TEST(ModelTest, AnAcknowledgedPageIsThereAndTheOneBeforeIsNot) {
  History history;
  history.add(page(1, 1));
  EXPECT_TRUE(history.may_be_absent(kNow) && allows(history, 1));
  history.acknowledge(1, 10);
  EXPECT_FALSE(history.may_be_absent(kNow));
  history.add(page(2, 2));
  EXPECT_TRUE(allows(history, 1) && allows(history, 2));
  history.acknowledge(2, 20);
  EXPECT_FALSE(allows(history, 1));
  EXPECT_FALSE(allows(history, 3));
}

TEST(ModelTest, ACacheKeepsWhatIsPinnedAndWhatIsYoung) {
  History history;
  State pinned = page(1, 1), young = page(2, 2);
  pinned.pinned = true;
  young.evictions_survived = 5;
  history.add(pinned);
  EXPECT_TRUE(history.may_be_evicted(kNow, 0)) << "it may not be there yet";
  history.acknowledge(1, 10);
  EXPECT_FALSE(history.may_be_evicted(kNow, 100));
  history.add(young);
  history.acknowledge(2, 20);
  EXPECT_FALSE(history.may_be_evicted(kNow, 4));
  EXPECT_TRUE(history.may_be_evicted(kNow, 5));
  history.pin_for_now(kNow, kNow.from + 1);
  EXPECT_TRUE(history.may_be_evicted(kNow, 5)) << "a moment before";
  history.pin_for_now(kNow, kNow.from);
  EXPECT_FALSE(history.may_be_evicted(kNow, 5));
  history.flushed(20);
  history.cut(true);
  EXPECT_FALSE(history.may_be_evicted(kNow, 5));
  history.cut(false);
  EXPECT_TRUE(history.may_be_evicted(kNow, 5));
}

TEST(ModelTest, WhatIsUnpinnedMayGo) {
  History history;
  State pinned = page(1, 1);
  pinned.pinned = true;
  history.add(pinned);
  history.acknowledge(1, 10);
  history.unpin();
  EXPECT_TRUE(history.may_be_evicted(kNow, 0));
}

TEST(ModelTest, AfterACutNothingBeforeTheFlushComesBack) {
  History history;
  for (std::uint64_t i = 1; i <= 3; ++i) {
    history.add(page(i, i));
    history.acknowledge(i, i * 10);
  }
  history.flushed(25);
  history.cut(false);
  EXPECT_TRUE(allows(history, 2) && allows(history, 3));
  EXPECT_FALSE(allows(history, 1) || history.may_be_absent(kNow));
}

TEST(ModelTest, AKillLosesNothingAcknowledged) {
  History history;
  history.add(page(1, 1));
  history.acknowledge(1, 10);
  history.add(page(2, 2));
  history.cut(true);
  EXPECT_TRUE(allows(history, 1) && allows(history, 2));
  EXPECT_FALSE(history.may_be_absent(kNow));
}

TEST(ModelTest, WhatWasSeenAfterACutStays) {
  History history;
  history.add(page(1, 1));
  history.add(absent(2));
  history.add(page(3, 3));
  history.cut(false);
  history.seen(2, 1, 50);
  history.cut(false);
  EXPECT_TRUE(history.may_be_absent(kNow));
  EXPECT_FALSE(allows(history, 1) || allows(history, 3));
}

TEST(ModelTest, ADeletedKeyDoesNotComeBack) {
  History history;
  history.add(page(1, 1));
  history.acknowledge(1, 10);
  history.add(absent(2));
  history.acknowledge(2, 20);
  history.durable(2);
  history.cut(false);
  EXPECT_FALSE(history.may_be_present(kNow) || allows(history, 1));
}

TEST(ModelTest, APageExpires) {
  History history;
  State state = page(1, 1);
  state.expires_s = 1000;
  history.add(state);
  history.acknowledge(1, 10);
  EXPECT_TRUE(history.may_be_absent(kNow));
  EXPECT_FALSE(allows(history, 1));
  const Window before{100, 999, 999};
  EXPECT_FALSE(history.may_be_absent(before));
}

TEST(ModelTest, APartIsOfItsPlaceInItsPage) {
  std::vector<std::byte> bytes(50);
  fill_content(kKey, 3, bytes);
  const std::span<const std::byte> page(bytes);
  for (std::uint32_t offset = 0; offset < 40; ++offset) {
    EXPECT_TRUE(has_part(kKey, 3, 50, offset, page.subspan(offset, 9))) << offset;
    EXPECT_FALSE(has_part(kKey, 3, 50, offset, page.subspan(offset + 1, 9))) << offset;
    EXPECT_FALSE(has_part(kKey, 3, 51, offset, page.subspan(offset, 9))) << offset;
  }
}

TEST(ModelTest, APageMustBeThereWhereNoOtherMayBe) {
  History history;
  history.add(page(1, 1));
  EXPECT_FALSE(history.must_be(1, kNow));
  history.acknowledge(1, 10);
  EXPECT_TRUE(history.must_be(1, kNow));
  history.add(page(2, 2));
  EXPECT_FALSE(history.must_be(1, kNow));
  history.acknowledge(2, 20);
  EXPECT_FALSE(history.must_be(1, kNow)) << "the other one must";
}

// What has expired by a clock that was ahead is there or not, and nothing else.
TEST(ModelTest, AClockThatIsSetBackLeavesWhatHasExpiredInDoubt) {
  History history;
  State brief = page(1, 1);
  brief.expires_s = kNow.to_s + 10;
  history.add(brief);
  history.acknowledge(1, 10);
  history.clock_shown(kNow.to_s + 9);
  EXPECT_FALSE(history.may_be_absent(kNow));
  history.clock_shown(kNow.to_s + 10);
  history.clock_shown(kNow.to_s);
  EXPECT_TRUE(history.may_be_absent(kNow) && history.may_be_present(kNow) && allows(history, 1));
  history.add(page(2, 2));
  history.acknowledge(2, 20);
  EXPECT_FALSE(history.may_be_absent(kNow) || allows(history, 1)) << "it has another one's place";
  history.clock_shown(kNow.to_s + 1'000'000);
  EXPECT_FALSE(history.may_be_absent(kNow)) << "this one never expires";
}

}  // namespace
}  // namespace furrow::sim
