// A model of a page store: for each key the states that it may be in, and nothing of how the engine
// does it. A state is a version of the page, or its absence. The first is durable: no earlier one
// may come back. The others stand in the order of their submission; while the store is open the
// last one is what it holds, after a power cut it is any of them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "tests/engine/rig.h"

namespace furrow::testing {

struct PageState {
  std::uint64_t version = 0;  // 0: absent
  std::uint32_t bytes = 0;
  std::uint64_t group = 0;
  std::uint64_t expires_s = 0;  // 0: never
  bool pinned = false;
  std::uint64_t answered = 0;  // the round in which it was acknowledged; 0: it was not
  bool evicted = false;        // it was not there, and counted as that

  bool alive(std::uint64_t wall_s) const {
    return version != 0 && (expires_s == 0 || expires_s > wall_s);
  }
};

class KeyModel {
 public:
  const PageState& last() const { return states_.back(); }
  std::span<const PageState> states() const { return states_; }
  bool present(std::uint64_t wall_s) const { return !missing_ && last().alive(wall_s); }
  bool stays(std::uint64_t wall_s) const { return present(wall_s) && last().pinned; }

  void attempt(const PageState& state) { states_.push_back(state); }
  void refuse() { states_.pop_back(); }
  void acknowledge(std::uint64_t round, bool durable) {
    states_.back().answered = round;
    missing_ = unknown_ = false;
    if (durable) keep_from(states_.size() - 1);
  }
  // A flush of this round was acknowledged: what was answered in the rounds before is durable.
  void flushed(std::uint64_t round) {
    for (std::size_t i = states_.size(); i-- > 0;) {
      if (states_[i].answered == 0 || states_[i].answered >= round) continue;
      return keep_from(i);
    }
  }
  // A cache has evicted it, until it is stored again. True: for the first time since, and that
  // for certain: after a cut what is missing may be what was evicted before it was stored again.
  bool set_missing() {
    const auto tried = std::span(states_).last(unknown_ ? states_.size() : 1);
    const bool first = std::ranges::none_of(tried, &PageState::evicted);
    for (PageState& each : tried) each.evicted = true;
    missing_ = true;
    return first;
  }
  bool missing() const { return missing_; }

  // A restart in order: all that was answered is durable. An evicted page may be back.
  void restarted() {
    if (!unknown_) keep_from(states_.size() - 1);
    missing_ = false;
  }
  void cut() {
    for (std::size_t i = 1; i < states_.size(); ++i) states_[i].answered = 0;  // lost, perhaps
    missing_ = false;
    unknown_ = true;
  }
  // All that was answered is there.
  void killed() {
    flushed(~std::uint64_t{0});
    cut();
  }
  // Since a cut: which of the states it is.
  bool unknown() const { return unknown_; }
  bool may_be_absent(std::uint64_t wall_s) const {
    return std::ranges::any_of(states_, [&](const PageState& each) { return !each.alive(wall_s); });
  }
  bool may_be_evicted() const {
    return std::ranges::any_of(states_, [](const PageState& each) { return !each.pinned; });
  }
  // What the first get after a cut finds is what the engine has recovered, durably; but the zone of
  // an evicted page may come back with a later cut.
  void recovered_absent() {
    states_ = {PageState()};
    states_.back().answered = 1;
    unknown_ = false;
  }
  void stay_unknown() { missing_ = true; }
  // False: that page it may not be.
  bool recovered(std::uint64_t number, std::span<const std::byte> page, std::uint64_t wall_s) {
    PageState found;
    for (const PageState& each : states_) {
      if (!each.alive(wall_s) || each.bytes != page.size()) continue;
      if (!equal(content(number, each.version, each.bytes), page)) continue;
      const bool pinned = each.pinned && (found.version == 0 || found.pinned);
      found = each;
      found.pinned = pinned;  // for certain
      found.evicted = false;
    }
    if (found.version == 0) return false;
    found.answered = 1;
    states_ = {found};
    missing_ = unknown_ = false;
    return true;
  }

 private:
  void keep_from(std::size_t state) {
    states_.erase(states_.begin(), states_.begin() + static_cast<std::ptrdiff_t>(state));
  }
  std::vector<PageState> states_{PageState{0, 0, 0, 0, false, 1}};
  bool missing_ = false;
  bool unknown_ = false;
};

// Keys of 1 to 16 bytes. Sixteen numbers give keys that differ in nothing but their length: one
// byte, and zeroes behind it.
inline Key model_key(std::uint64_t number) {
  std::array<std::byte, Key::kBytesMax> bytes{};
  bytes[0] = static_cast<std::byte>(number / Key::kBytesMax);
  return Key::from(std::span<const std::byte>(bytes).first(1 + number % Key::kBytesMax));
}
inline std::uint64_t number_of(const Key& key) {
  return static_cast<std::uint64_t>(key.bytes[0]) * Key::kBytesMax + key.length - 1;
}

}  // namespace furrow::testing
