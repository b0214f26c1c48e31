// CollectorTest: a PageLog whose collection is watched: which zones are reset, and for what.
#pragma once

#include <functional>
#include <vector>

#include "log/collector.h"
#include "tests/log/page_log_rig.h"

namespace furrow {

class CollectorTest : public PageLogRig {
 protected:
  static constexpr bool kCache = true, kStore = false;

  void remake(const Shape& shape, bool cache) {
    filler_.clear();
    PageLogRig::remake(shape, cache);
  }
  // The zones that were reset, in their order.
  std::vector<ZoneId> resets() const {
    std::vector<ZoneId> zones;
    for (const TapDevice::Event& each : device_->events()) {
      if (each.op == Io::Op::reset && !each.answered) zones.push_back(each.zone);
    }
    return zones;
  }
  bool is_reset(ZoneId zone) const { return std::ranges::count(resets(), zone) != 0; }
  // Puts pages of `bytes` under numbers from `next_` on until `done`.
  void churn(std::uint32_t bytes, const std::function<bool()>& done) {
    for (unsigned i = 0; !done(); ++i) {
      ASSERT_LT(i, 5000u);
      const Status status = put(next_++, 0, bytes);
      ASSERT_TRUE(status.ok()) << status.describe();
    }
  }
  void churn_until_reset(ZoneId zone, std::uint32_t bytes) {
    churn(bytes, [&] { return is_reset(zone); });
  }
  // Puts the same keys again and again: all that they leave behind is dead.
  void overwrite(std::uint64_t first, std::uint64_t keys, std::uint32_t bytes,
                 const std::function<bool()>& done) {
    for (unsigned i = 0; !done(); ++i) {
      ASSERT_LT(i, 5000u);
      const Status status = put(first + i % keys, i, bytes);
      ASSERT_TRUE(status.ok()) << status.describe();
    }
  }
  // Pages that stay, each in a batch of its own, until the volume holds so many zones: small, so
  // that a store has room for that.
  void fill(std::uint64_t zones) {
    for (unsigned i = 0; pool_->allocator.held(kVolume) < zones; ++i) {
      ASSERT_LT(i, 5000u);
      filler_.push_back(next_++);
      const Status status = put(filler_.back(), 0, 400);
      ASSERT_TRUE(status.ok()) << status.describe();
    }
  }
  // Of a sealed zone of a store nothing stays but what the test put there: it has the least to
  // copy.
  void thin_out(ZoneId zone) {
    std::erase_if(filler_, [&](std::uint64_t number) {
      if (zone_of(number) != zone) return false;
      EXPECT_TRUE(remove(number).ok());
      return true;
    });
  }
  void collect(ZoneId zone) {
    ASSERT_EQ(pool_->allocator.zone(zone).use, ZoneUse::sealed);
    const auto before = resets().size();
    thin_out(zone);
    for (unsigned i = 0; !is_reset(zone); ++i) {
      ASSERT_LT(i, 5000u);
      filler_.push_back(next_++);
      const Status status = put(filler_.back(), 0, 400);
      ASSERT_TRUE(status.ok()) << status.describe();
    }
    ASSERT_EQ(resets().size(), before + 1) << "and no other one";
    run();
  }
  // Flips a bit on the medium; the zone is written anew for that, which is not counted.
  void damage(ZoneId zone, std::uint64_t lba) {
    const auto seen = resets().size();
    ASSERT_EQ(seen, 0u) << "they would be forgotten";
    flip_bit(*device_, zone, lba);
    device_->forget_events();
  }
  void hit(std::uint64_t number) { log_->hits().set(entry(number).lba); }
  ZoneId oldest() { return *pool_->allocator.victim(kVolume, VictimPolicy::fifo); }
  std::uint64_t next_ = 1000;
  std::vector<std::uint64_t> filler_;
};

}  // namespace furrow
