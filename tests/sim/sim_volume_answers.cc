// What a volume may answer: each answer against the model, and what the model knows from then on.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "tests/sim/sim_volume.h"
#include "tests/sim/structure_check.h"
#include "zone/check.h"

namespace furrow::sim {

namespace {

std::uint64_t number_of(const Key& key) {
  return static_cast<std::uint64_t>(key.bytes[0]) | static_cast<std::uint64_t>(key.bytes[1]) << 8;
}

// Of the executor, for an operation while the device does what it should. Some hundred are common.
constexpr std::uint64_t kAnswerTurnsMax = 5000;

const char* name_of(PageOp::Kind kind) {
  constexpr const char* kNames[] = {"get",  "get_range", "put",          "remove", "exist",
                                    "list", "flush",     "remove_group", "pin",    "unpin"};
  return kNames[static_cast<unsigned>(kind)];
}

}  // namespace

void SimVolume::answered(Client& client) {
  client.window.to_s = world_.wall_s();
  if (client.op.kind == PageOp::Kind::list && goes_on(client)) return;
  ++world_.tick;
  ++world_.answered;
  const Code code = client.op.status.code();
  world_.trace.add(static_cast<std::uint64_t>(code) + 77);
  const PageOp::Kind kind = client.op.kind;
  if (!expected(client, code)) fail(client, client.op.status.describe());
  if (client.results != 1) fail(client, fmt::format("has {} results", client.results));
  if (!world_.device_dead && !world_.faults) {
    const std::uint64_t turns = world_.turns - client.turn;
    world_.longest_turns = std::max(world_.longest_turns, turns);
    if (turns > kAnswerTurnsMax) fail(client, fmt::format("answered after {} turns", turns));
  }
  if (world_.watch(client.key) ||
      (kind == PageOp::Kind::remove_group && world_.watched_key != ~0ul)) {
    fmt::print(stderr, "  tick {}-{}, {}-{} s: {} of key {} (serial {}, group {}): {}\n",
               client.window.from, world_.tick, client.window.from_s, client.window.to_s,
               name_of(kind), client.key, client.serial, client.op.group, to_string(code));
  }
  switch (kind) {
    case PageOp::Kind::put:
      put_answered(client, code);
      break;
    case PageOp::Kind::remove:
      remove_answered(client, code);
      break;
    case PageOp::Kind::get:
      get_answered(client, code);
      break;
    case PageOp::Kind::get_range:
      known_answered(client, code);
      break;
    case PageOp::Kind::exist:
      if (client.version != 0) {
        known_answered(client, code);
        break;
      }
      [[fallthrough]];
    case PageOp::Kind::pin:
    case PageOp::Kind::unpin:
      presence_answered(client, code);
      break;
    case PageOp::Kind::list:
      --lists_running_;
      if (code == Code::ok) list_answered(client);
      break;
    case PageOp::Kind::flush:
      if (code == Code::ok) flush_answered(client);
      break;
    case PageOp::Kind::remove_group:
      group_answered(client, code);
      break;
  }
  const bool keyed = kind != PageOp::Kind::list && kind != PageOp::Kind::flush &&
                     kind != PageOp::Kind::remove_group;
  if (keyed) {
    --entries_[client.key].history.running;
    entries_[client.key].started = ++started_;  // so that a group's removal meanwhile sees it
  }
  client.busy = false;
  --running_;
}

bool SimVolume::expected(const Client& client, Code code) {
  if (code == Code::ok || world_.device_dead || (world_.faults && !world_.healed)) return true;
  if (ended_ && code == Code::not_found) return true;  // (or it was done, and not answered yet)
  switch (client.op.kind) {
    case PageOp::Kind::put:
      if (code == Code::no_space) return true;  // looked at by refused()
      return client.op.condition == PageOp::Condition::if_absent   ? code == Code::exists
             : client.op.condition == PageOp::Condition::if_exists ? code == Code::not_found
                                                                   : false;
    case PageOp::Kind::pin:
    case PageOp::Kind::unpin:
      if (code == Code::corrupt) return may_be_rotten(client);
      if (code == Code::io_error) return world_.hides;
      return code == Code::not_found || code == Code::no_space;
    case PageOp::Kind::get:
    case PageOp::Kind::get_range:
      if (code == Code::corrupt) return may_be_rotten(client);
      return code == Code::not_found;
    case PageOp::Kind::exist:
      return code == Code::not_found;
    case PageOp::Kind::remove:
      if (code == Code::not_found) return true;
      [[fallthrough]];
    case PageOp::Kind::remove_group:
      return code == Code::no_space && (cache() || rotted_and_wedged());
    default:
      return false;
  }
}

void SimVolume::put_answered(Client& client, Code code) {
  History& history = entries_[client.key].history;
  if (code == Code::ok) {
    ++puts_stored_;
    using enum PageOp::Condition;
    if (client.op.condition == if_absent && !may_be_gone(client)) {
      fail(client, "stored although the key was there");
    }
    if (client.op.condition == if_exists && !history.may_be_present(client.window) &&
        !lossy(client)) {
      fail(client, "stored although the key was not there");
    }
    changed(client);
    return;
  }
  last_refusal_ = client.op.status;
  if (code != Code::exists && code != Code::not_found && code != Code::no_space) return;
  // Without its device the engine may say anything. What a failed zone did not take may be refused
  // for want of another; it was attempted, though.
  if (world_.device_dead || (code == Code::no_space && world_.faults)) return;
  history.drop(client.serial);
  if (code == Code::exists && !history.may_be_present(client.window) && !lossy(client)) {
    fail(client, "says that the key exists");
  }
  if (code == Code::not_found && !may_be_gone(client)) {
    fail(client, "says that the key does not exist");
  }
  if (code == Code::no_space && !ended_) refused(client);
}

// The key is what the client has made it.
void SimVolume::changed(const Client& client) {
  Entry& entry = entries_[client.key];
  entry.history.acknowledge(client.serial, world_.tick);
  entry.veil_end = std::min(entry.veil_end, world_.tick);
  const bool flushed = client.op.durability == Durability::flushed ||
                       shape_.options.durability == Durability::flushed;
  if (flushed) entry.history.durable(client.serial);
  if (client.op.kind != PageOp::Kind::put) return;
  State& state = *entry.history.find(client.serial);
  state.stored = true;
  state.checksum = client.op.checksum;
}

void SimVolume::remove_answered(Client& client, Code code) {
  History& history = entries_[client.key].history;
  if (code == Code::ok) return changed(client);
  if (code == Code::no_space && !world_.device_dead && !ended_) delete_refused(client);
  if (code != Code::not_found && code != Code::no_space) return;
  if (world_.device_dead || (code == Code::no_space && world_.faults)) return;
  // What was not found may be there another time: it is hidden now, or has expired.
  if (code == Code::not_found &&
      (world_.sets_clock || entries_[client.key].veil_end == State::kAlive)) {
    return changed(client);
  }
  history.drop(client.serial);
  if (code == Code::not_found && !may_be_gone(client)) {
    fail(client, "says that the key does not exist");
  }
}

void SimVolume::presence_answered(Client& client, Code code) {
  History& history = entries_[client.key].history;
  if (world_.device_dead) return;
  if (code == Code::not_found && !may_be_gone(client)) {
    fail(client, "says that the key does not exist");
  }
  if (code == Code::ok && !history.may_be_present(client.window) && !lossy(client)) {
    fail(client, "says that the key exists");
  }
  const bool told = code == Code::ok && client.op.whole_record;
  if (told && !lossy(client) &&
      !history.may_have_record(client.window, client.op.length, client.op.group, client.op.ttl_s)) {
    fail(client, "tells a record that the page does not have");
  }
  const Entry& entry = entries_[client.key];
  const bool alone =
      client.alone && entry.started == client.started && last_group_removal_ <= client.started;
  if (code == Code::ok && client.op.kind == PageOp::Kind::pin && alone) {
    history.pin_for_now(client.window, world_.tick);
  }
}

void SimVolume::get_answered(Client& client, Code code) {
  Entry& entry = entries_[client.key];
  const bool alone = client.alone && !lossy(client) && entry.started == client.started &&
                     last_group_removal_ <= client.started && lists_running_ == 0;
  if (code == Code::not_found) return get_missed(client, alone);
  if (code != Code::ok) return;
  const std::uint32_t bytes = client.op.length;
  if (bytes > shape_.options.value_bytes_max) {
    return fail(client, "a page longer than any stored");
  }
  const std::span<const std::byte> page(client.op.data, std::min(bytes, client.op.capacity));
  const State* found = entry.history.present(client.key, client.window, bytes, page);
  if (found == nullptr) {
    if (lossy(client) && is_some_version(client.key, bytes, page)) return;
    return fail(client, fmt::format("{} wrong bytes", bytes));
  }
  world_.trace.add(found->version);
  // (Two versions of a few bytes may be alike.)
  if (alone && entry.history.count(client.key, client.window, bytes, page) == 1) {
    entry.history.seen(found->serial, world_.era, world_.tick);
  }
}

// Or never have been. A cache evicts its oldest zone: neither what is pinned nor what is younger.
bool SimVolume::may_be_gone(std::uint64_t key, const Window& window) {
  const History& history = entries_[key].history;
  if (ended_ || history.may_be_absent(window) || lossy(key, window)) return true;
  if (!evicts_) return false;
  // Where it cannot read them it may let go of any.
  return world_.reads_fail || zone_lost_ || history.may_be_evicted(window, evictions());
}

// Of its zones, by what is counted: one that is being evicted is not yet.
std::uint64_t SimVolume::evictions() const { return evictions_before_ + stats().evicted_zones; }

// By what is stored now, as it goes to the last zone there is, or to a later one. Of those that it
// has one may be free again at any moment, one empty, and one is being evicted, not counted yet.
std::uint64_t SimVolume::evictions_survived() const {
  constexpr std::uint64_t kUncertain = 3;
  if (!cache() || world_.faults) return 0;
  const std::uint64_t zones = store_->usage().zones;
  return evictions() + zones - std::min(zones, kUncertain);
}

bool SimVolume::lossy(std::uint64_t key, const Window& window) const {
  return entries_[key].lossy || entries_[key].veil_end > window.from;
}

bool SimVolume::is_some_version(std::uint64_t key, std::uint32_t page_bytes,
                                std::span<const std::byte> beginning) const {
  for (std::uint64_t version = first_version_; version < next_version_; ++version) {
    if (has_part(key, version, page_bytes, 0, beginning)) return true;
  }
  return false;
}

void SimVolume::get_missed(Client& client, bool alone) {
  History& history = entries_[client.key].history;
  if (world_.device_dead) return;
  if (!may_be_gone(client)) return fail(client, "the page is lost");
  if (!alone || evicts_) return;
  const State* absent = nullptr;
  for (const State& state : history.states()) {
    if (state.dead <= client.window.from) continue;
    if (state.version != 0 && state.expires_s != 0) return;  // or has it expired?
    if (state.version != 0) continue;
    if (absent != nullptr && state.era == world_.era) return;  // which of them?
    absent = &state;
  }
  if (absent != nullptr) history.seen(absent->serial, world_.era, world_.tick);
}

void SimVolume::list_answered(Client& client) {
  std::vector<bool>& listed = client.listed;
  for (std::uint32_t i = 0; i < client.op.keys_count; ++i) {
    const std::uint64_t number = number_of(client.keys[i]);
    if (number >= entries_.size() || entries_[number].key != client.keys[i]) {
      return fail(client, "lists a key that never was");
    }
    if (listed[number]) return fail(client, fmt::format("lists key {} twice", number));
    listed[number] = true;
    if (!entries_[number].history.may_be_present(client.window) && !lossy(number, client.window)) {
      client.key = number;
      return fail(client, "lists a key that is not there");
    }
  }
  if (!client.from_start || client.op.keys_count == client.op.keys_max) return;
  for (std::uint64_t number = 0; number < entries_.size(); ++number) {
    if (listed[number] || may_be_gone(number, client.window)) continue;
    client.key = number;
    return fail(client, "does not list a key that is there");
  }
}

// More of a listing is asked for.
bool SimVolume::goes_on(Client& client) {
  const PageOp& op = client.op;
  const bool more = client.by_pages && op.status.ok() && op.keys_count == op.keys_max;
  if (!more || ended_ || world_.device_dead || world_.failed()) return false;
  list_answered(client);
  client.op.key = client.keys[op.keys_count - 1];
  client.results = 0;
  client.turn = world_.turns;
  session_->submit(*store_, client.op);
  return true;
}

void SimVolume::flush_answered(Client& client) {
  for (Entry& entry : entries_) entry.history.flushed(client.window.from);
}

void SimVolume::group_answered(Client& client, Code code) {
  --groups_running_;
  if (code == Code::no_space && !world_.device_dead && !ended_) delete_refused(client);
  for (Entry& entry : entries_) {
    if (entry.history.find(client.serial) == nullptr) continue;
    // It may have been written before its pages could not be found, or they may be out of the index
    // until the next opening finds that nothing else says so.
    if (code != Code::ok && !world_.device_dead) {
      entry.lossy = true;
      entry.lossy_serial = next_serial_;
      continue;
    }
    // With others on the key meanwhile, it may have come before them.
    const bool alone = entry.history.running == 0 && entry.started < client.started;
    // That which a lost zone left may be an older version, of another group.
    if (code != Code::ok || !alone || entry.lossy) continue;
    entry.history.acknowledge(client.serial, world_.tick);
    if (client.op.durability == Durability::flushed ||
        shape_.options.durability == Durability::flushed) {
      entry.history.durable(client.serial);
    }
  }
}

// It is an error from now on, or, of a cache, may be gone, and back after a stop: what has dropped
// it may not have been durable.
void SimVolume::strike(const StruckPage& page) {
  const std::uint64_t number = number_of(page.key);
  FURROW_CHECK(number < entries_.size() && entries_[number].key == page.key);
  if (entries_[number].history.strike(number, page.bytes) && cache()) give_up(page);
}

void SimVolume::give_up(const StruckPage& page) {
  const std::uint64_t number = number_of(page.key);
  FURROW_CHECK(number < entries_.size() && entries_[number].key == page.key);
  if (!entries_[number].history.may_hold(number, page.bytes)) return;
  State state;
  state.serial = next_serial_++;
  state.era = world_.era;
  entries_[number].history.add(state);
}

void SimVolume::veil() {
  veiled_ = true;
  for (Entry& entry : entries_) entry.veil_end = State::kAlive;
}

void SimVolume::clock_set(std::uint64_t shown_s) {
  for (Entry& entry : entries_) entry.history.clock_shown(shown_s);
  for (const auto& client : clients_) {
    client->window.from_s = std::min(client->window.from_s, world_.wall_s());
  }
}

void SimVolume::cut(bool process_only) {
  for (Entry& entry : entries_) {
    entry.history.cut(process_only);
    entry.veil_end = 0;
    if (zone_lost_) entry.lossy_serial = next_serial_;
    entry.lossy =
        zone_lost_ || (entry.lossy && entry.history.states()[0].serial < entry.lossy_serial);
  }
  zone_lost_ = false;
  evictions_before_ += std::exchange(evictions_since_, 0);
  attach(nullptr, nullptr);
  groups_running_ = lists_running_ = 0;
  next_verified_ = 0;
}

void SimVolume::fail(const Client& client, const std::string& what) {
  world_.fail(fmt::format("volume {} era {} tick {}: {} of key {}: {}; it may be [{}]", name(),
                          world_.era, world_.tick, name_of(client.op.kind), client.key, what,
                          describe(entries_[client.key].history)));
}

}  // namespace furrow::sim
