#include "tests/sim/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "zone/check.h"

namespace furrow::sim {

namespace {

std::uint64_t first_word(std::uint64_t key, std::uint64_t version, std::size_t bytes) {
  return key * 0x9E3779B97F4A7C15u + version * 0xC2B2AE3D27D4EB4Fu + bytes;
}
std::uint64_t next_word(std::uint64_t word) {
  return word * 6364136223846793005u + 1442695040888963407u;
}

bool expired(const State& state, std::uint64_t wall_s) {
  return state.expires_s != 0 && state.expires_s <= wall_s;
}

// By a clock that was set back since, too: what that has taken out may be gone until the next
// opening, or for good.
bool may_have_expired(const State& state, const Window& window) {
  return expired(state, std::max(window.to_s, state.shown_s));
}

}  // namespace

void fill_content(std::uint64_t key, std::uint64_t version, std::span<std::byte> page) {
  std::uint64_t word = first_word(key, version, page.size());
  for (std::size_t at = 0; at < page.size(); at += 8) {
    word = next_word(word);
    std::memcpy(page.data() + at, &word, std::min<std::size_t>(8, page.size() - at));
  }
}

bool all_zero(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte each) { return each == std::byte{}; });
}

std::uint64_t content_hash(std::span<const std::byte> bytes) {
  std::uint64_t hash = bytes.size();
  for (std::size_t at = 0; at < bytes.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min<std::size_t>(8, bytes.size() - at));
    hash = next_word(hash ^ word);
  }
  return hash | 1;
}

bool has_content(std::uint64_t key, std::uint64_t version, std::span<const std::byte> page) {
  return has_part(key, version, static_cast<std::uint32_t>(page.size()), 0, page);
}

bool has_part(std::uint64_t key, std::uint64_t version, std::uint32_t page_bytes,
              std::uint32_t offset, std::span<const std::byte> part) {
  std::uint64_t word = first_word(key, version, page_bytes);
  const std::size_t end = offset + part.size();
  for (std::size_t at = 0; at < end; at += 8) {
    word = next_word(word);
    std::byte bytes[8];
    std::memcpy(bytes, &word, sizeof bytes);
    const std::size_t from = std::max<std::size_t>(at, offset), to = std::min(at + 8, end);
    if (from < to &&
        std::memcmp(part.data() + (from - offset), bytes + (from - at), to - from) != 0) {
      return false;
    }
  }
  return true;
}

State& History::add(const State& state) {
  states_.push_back(state);
  return states_.back();
}

State* History::find(std::uint64_t serial) {
  const auto found = std::ranges::find(states_, serial, &State::serial);
  return found == states_.end() ? nullptr : &*found;
}

void History::drop(std::uint64_t serial) {
  const auto found = std::ranges::find(states_, serial, &State::serial);
  FURROW_CHECK(found != states_.end() && found != states_.begin());
  const auto at = static_cast<std::size_t>(found - states_.begin());
  FURROW_CHECK(at != durable_);
  if (at < durable_) --durable_;
  states_.erase(found);
}

void History::acknowledge(std::uint64_t serial, std::uint64_t tick) {
  for (State& state : states_) {
    if (state.serial == serial) {
      state.acked = tick;
      return;
    }
    state.dead = std::min(state.dead, tick);
  }
}

void History::flushed(std::uint64_t tick) {
  for (std::size_t i = states_.size(); i-- > durable_;) {
    if (states_[i].acked == 0 || states_[i].acked > tick) continue;
    durable_ = i;
    return;
  }
}

void History::durable(std::uint64_t serial) {
  for (std::size_t i = durable_; i < states_.size(); ++i) {
    if (states_[i].serial == serial) durable_ = i;
  }
}

void History::cut(bool process_only) {
  if (process_only) flushed(State::kAlive);
  states_.erase(states_.begin(), states_.begin() + static_cast<std::ptrdiff_t>(durable_));
  durable_ = 0;
  for (State& state : states_) {
    state.dead = State::kAlive;
    if (!process_only) state.pinned_from = State::kAlive;
  }
  // What was acknowledged may be gone: only the first is certain.
  for (std::size_t i = 1; i < states_.size(); ++i) states_[i].acked = 0;
  states_[0].acked = 1;
  running = 0;
}

void History::seen(std::uint64_t serial, std::uint64_t era, std::uint64_t tick) {
  State* const state = find(serial);
  if (state == nullptr) return;
  acknowledge(serial, tick);
  if (state->era < era) {
    // Recovery has made it durable, and whatever else there was before the cut is void.
    const State kept = *state;
    std::erase_if(states_, [&](const State& each) { return each.era < era; });
    states_.insert(states_.begin(), kept);
    durable_ = 0;
    return;
  }
  // Visible now, so nothing that was submitted later has come about.
  for (std::size_t i = states_.size(); i-- > 0 && states_[i].serial != serial;) {
    states_[i].dead = std::min(states_[i].dead, tick);
  }
}

void History::clock_shown(std::uint64_t wall_s) {
  for (State& state : states_) state.shown_s = std::max(state.shown_s, wall_s);
}

void History::forget_invisible() {
  if (running != 0 || durable_ == 0) return;
  states_.erase(states_.begin(), states_.begin() + static_cast<std::ptrdiff_t>(durable_));
  durable_ = 0;
}

bool History::strike(std::uint64_t key, std::span<const std::byte> page) {
  bool struck = false;
  for (State& state : states_) {
    if (state.version == 0 || state.bytes != page.size()) continue;
    if (!has_content(key, state.version, page)) continue;
    struck = state.rotten = true;
  }
  return struck;
}

bool History::may_hold(std::uint64_t key, std::span<const std::byte> page) const {
  return std::ranges::any_of(states_, [&](const State& state) {
    return state.version != 0 && state.bytes == page.size() &&
           has_content(key, state.version, page);
  });
}

bool History::may_be_rotten(const Window& window) const {
  return std::ranges::any_of(
      states_, [&](const State& state) { return visible(state, window) && state.rotten; });
}

void History::unpin() {
  for (State& state : states_) {
    state.pinned = false;
    state.pinned_from = State::kAlive;
  }
}

void History::pin_for_now(const Window& window, std::uint64_t tick) {
  const auto seen = [&](const State& state) { return visible(state, window); };
  if (std::ranges::count_if(states_, seen) == 1) {
    std::uint64_t& from = std::ranges::find_if(states_, seen)->pinned_from;
    from = std::min(from, tick);
  }
}

bool History::may_be_absent(const Window& window) const {
  return std::ranges::any_of(states_, [&](const State& state) {
    return visible(state, window) && (state.version == 0 || may_have_expired(state, window));
  });
}

bool History::may_be_present(const Window& window) const {
  return std::ranges::any_of(states_, [&](const State& state) {
    return visible(state, window) && state.version != 0 && !expired(state, window.from_s);
  });
}

bool History::may_have_record(const Window& window, std::uint32_t page_bytes, std::uint64_t group,
                              std::uint32_t ttl_s) const {
  return std::ranges::any_of(states_, [&](const State& state) {
    const bool same = visible(state, window) && state.version != 0 && state.bytes == page_bytes &&
                      state.group == group && (state.expires_s == 0) == (ttl_s == 0);
    if (!same || ttl_s == 0) return same;
    const std::uint64_t latest_s = std::max(window.to_s, state.shown_s);
    const std::uint64_t least = state.expires_s > latest_s ? state.expires_s - latest_s : 1;
    return ttl_s >= least && ttl_s <= std::max(least, state.expires_s - window.from_s);
  });
}

bool History::may_be_evicted(const Window& window, std::uint64_t evictions) const {
  return std::ranges::any_of(states_, [&](const State& state) {
    return visible(state, window) && !state.pinned && state.pinned_from > window.from &&
           state.evictions_survived <= evictions;
  });
}

const State* History::present(std::uint64_t key, const Window& window, std::uint32_t page_bytes,
                              std::span<const std::byte> beginning) const {
  const auto found = std::ranges::find_if(
      states_, [&](const State& state) { return is(state, key, window, page_bytes, beginning); });
  return found == states_.end() ? nullptr : &*found;
}

std::size_t History::count(std::uint64_t key, const Window& window, std::uint32_t page_bytes,
                           std::span<const std::byte> beginning) const {
  return static_cast<std::size_t>(std::ranges::count_if(
      states_, [&](const State& state) { return is(state, key, window, page_bytes, beginning); }));
}

bool History::is(const State& state, std::uint64_t key, const Window& window,
                 std::uint32_t page_bytes, std::span<const std::byte> beginning) const {
  if (state.version == 0 || state.bytes != page_bytes || !visible(state, window)) return false;
  return !expired(state, window.from_s) && has_part(key, state.version, page_bytes, 0, beginning);
}

bool History::must_be(std::uint64_t version, const Window& window) const {
  return std::ranges::all_of(states_, [&](const State& state) {
    return !visible(state, window) ||
           (state.version == version && !may_have_expired(state, window));
  });
}

std::string describe(const History& history) {
  std::string text;
  for (const State& state : history.states()) {
    text += fmt::format("{}v{} {}B era {}{}{}{}{}{}", text.empty() ? "" : ", ", state.version,
                        state.bytes, state.era, state.acked != 0 ? " acked" : "",
                        state.dead != State::kAlive ? " dead" : "",
                        state.expires_s != 0 ? fmt::format(" until {}", state.expires_s) : "",
                        state.rotten ? " rotten" : "",
                        state.pinned || state.pinned_from != State::kAlive ? " pinned" : "");
  }
  return text;
}

}  // namespace furrow::sim
