// Model: what a volume must hold, as a plain map from keys to the states that each may be in.
//
// A state is a version of a key's page, or its absence. Operations on one key are decided in the
// order in which they were submitted; so a key's states stand in that order. Each state is
// - visible, as long as a get may return it: from its submission until a later one is acknowledged;
// - durable, when it was acknowledged at that level, or before a flush that was acknowledged: then
//   no earlier state may come back after a power cut.
// Where the outcome is not known (an operation failed or was cut off, a group was deleted while a
// put ran) the model allows each of the possible ones until a get tells.
//
// Time is counted in ticks, one an event. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "zone/status.h"

namespace furrow::sim {

struct State {
  static constexpr std::uint64_t kAlive = ~std::uint64_t{0};

  std::uint64_t version = 0;  // 0: absent
  std::uint32_t bytes = 0;
  std::uint64_t group = 0;
  std::uint64_t expires_s = 0;  // 0: never
  std::uint64_t shown_s = 0;    // the latest time that the clock has shown before it was set back
  // A cache does not evict it: for as long as that is so, or until it has evicted so many zones.
  bool pinned = false;
  std::uint64_t pinned_from = kAlive;  // tick; a power cut may undo it
  std::uint64_t evictions_survived = 0;
  bool rotten = false;  // a bit of it was flipped
  bool stored = false;  // and `checksum` is what the answer said
  std::uint32_t checksum = 0;
  std::uint64_t serial = 0;     // names it
  std::uint64_t era = 0;        // the number of power cuts before it was submitted
  std::uint64_t acked = 0;      // tick; 0: not, or its outcome is not certain
  std::uint64_t dead = kAlive;  // tick from which it was not visible any more
};

// When something was seen: between two ticks and two seconds of the wall clock.
struct Window {
  std::uint64_t from = 0;
  std::uint64_t from_s = 0, to_s = 0;
};

// Fills `page` with the bytes of a version of a key.
void fill_content(std::uint64_t key, std::uint64_t version, std::span<std::byte> page);
bool all_zero(std::span<const std::byte> bytes);
// Of any bytes; never 0.
std::uint64_t content_hash(std::span<const std::byte> bytes);
bool has_content(std::uint64_t key, std::uint64_t version, std::span<const std::byte> page);
// A part of it, which has so many bytes, from `offset` on.
bool has_part(std::uint64_t key, std::uint64_t version, std::uint32_t page_bytes,
              std::uint32_t offset, std::span<const std::byte> part);

class History {
 public:
  History() : states_(1) { states_[0].acked = 1; }

  State& add(const State& state);
  State* find(std::uint64_t serial);
  void drop(std::uint64_t serial);  // it had no effect
  // Its operation was acknowledged: nothing earlier is visible from here on.
  void acknowledge(std::uint64_t serial, std::uint64_t tick);
  // Nothing earlier than the last state acknowledged until then comes back after a power cut.
  void flushed(std::uint64_t tick);
  void durable(std::uint64_t serial);
  // After a power cut: anything from the durable state on.
  void cut(bool process_only);
  // A get saw this state while nothing else ran on the key. `era`: the present one.
  void seen(std::uint64_t serial, std::uint64_t era, std::uint64_t tick);
  // By the clock, which is set to another time now.
  void clock_shown(std::uint64_t wall_s);
  void forget_invisible();  // when no operation runs on the key
  // A bit of this page is flipped: of one that may be there? Reads of it say so from now on.
  bool strike(std::uint64_t key, std::span<const std::byte> page);
  bool may_be_rotten(const Window& window) const;
  bool may_hold(std::uint64_t key, std::span<const std::byte> page) const;
  void unpin();
  // From now on until the power fails, if that has one state that is visible.
  void pin_for_now(const Window& window, std::uint64_t tick);

  bool may_be_absent(const Window& window) const;
  bool may_be_present(const Window& window) const;
  // Of a page of so many bytes, of that group, with so many seconds to live (0: for ever).
  bool may_have_record(const Window& window, std::uint32_t page_bytes, std::uint64_t group,
                       std::uint32_t ttl_s) const;
  // `evictions`: of zones of the cache so far.
  bool may_be_evicted(const Window& window, std::uint64_t evictions) const;
  // `beginning`: of a page of so many bytes.
  const State* present(std::uint64_t key, const Window& window, std::uint32_t page_bytes,
                       std::span<const std::byte> beginning) const;
  // How many states it may be of.
  std::size_t count(std::uint64_t key, const Window& window, std::uint32_t page_bytes,
                    std::span<const std::byte> beginning) const;
  // That page, and no other state, must be there.
  bool must_be(std::uint64_t version, const Window& window) const;
  const State& last() const { return states_.back(); }
  std::span<const State> states() const { return states_; }
  unsigned running = 0;  // operations on the key

 private:
  bool is(const State& state, std::uint64_t key, const Window& window, std::uint32_t page_bytes,
          std::span<const std::byte> beginning) const;
  static bool visible(const State& state, const Window& window) { return state.dead > window.from; }
  std::vector<State> states_;  // the first is the durable one
  std::size_t durable_ = 0;
};

std::string describe(const History& history);

}  // namespace furrow::sim
