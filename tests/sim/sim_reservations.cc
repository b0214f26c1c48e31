#include "tests/sim/sim_reservations.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace furrow::sim {

namespace {

constexpr std::size_t kAtOnce = 10;  // new registrants, of which a crash leaves all or none

ReservationRecord nothing(std::uint64_t volume) {
  ReservationRecord record;
  record.volume = volume;
  return record;
}

bool has(const Pool& pool, std::uint64_t volume) {
  return std::ranges::any_of(pool.stores(),
                             [&](const PageStore* each) { return each->info().id == volume; });
}

}  // namespace

SimReservations::Entry& SimReservations::entry_of(std::uint64_t volume) {
  const auto [found, added] = entries_.try_emplace(volume);
  if (added) found->second.may_be = {nothing(volume)};
  return found->second;
}

void SimReservations::start_any(Pool& pool) {
  const std::vector<PageStore*> stores = pool.stores();
  if (stores.empty()) return;
  const std::uint64_t volume = stores[world_.random.below(stores.size())]->info().id;
  Entry& entry = entry_of(volume);
  entry.running.push_back(
      draw(entry.running.empty() ? entry.may_be.front() : entry.running.back()));
  ++running_;
  pool_ = &pool;
  world_.trace.add(volume * 1000003 + entry.running.back().registrants.size());
  pool.keep_reservations(ReservationRecord(entry.running.back()),
                         [this, volume](const Status& status) { answered(volume, status); });
}

// As a command changes it, mostly.
ReservationRecord SimReservations::draw(const ReservationRecord& before) {
  SimRandom& random = world_.random;
  if (random.one_in(16)) return nothing(before.volume);
  ReservationRecord wanted = before;
  auto& all = wanted.registrants;
  wanted.persists = true;
  ++wanted.generation;
  if (random.one_in(16)) all.clear();
  const std::uint64_t comes = random.one_in(16) ? random.below(40) : 1;
  std::uint8_t host = 0;
  for (std::uint64_t i = 0; i < comes; ++i) {
    host = static_cast<std::uint8_t>(random.between(1, comes == 1 ? 12 : 200));
    std::erase_if(all, [&](const auto& one) { return one.host[0] == host || random.one_in(9); });
    all.push_back({{host}, random.next()});
  }
  std::ranges::sort(all, {}, &ReservationRecord::Registrant::host);
  wanted.type = 0;
  wanted.holder = {};
  if (host == 0) return wanted;
  wanted.type = static_cast<std::uint8_t>(random.below(ReservationRecord::kTypeMax + 1));
  const bool of_one = wanted.type != 0 && wanted.type <= ReservationRecord::kTypeOfOneMax;
  if (of_one) wanted.holder = {host};
  return wanted;
}

void SimReservations::answered(std::uint64_t volume, const Status& status) {
  ++world_.answered;
  world_.trace.add(static_cast<std::uint64_t>(status.code()) + 77);
  --running_;
  Entry& entry = entries_.at(volume);
  const ReservationRecord wanted = std::move(entry.running.front());
  entry.running.pop_front();
  if (status.ok()) {
    ++kept_;
    entry.may_be = {wanted};
    return;
  }
  const bool deleted = status.code() == Code::not_found && !has(*pool_, volume);
  const bool full = status.code() == Code::no_space && status.origin() == Origin::engine;
  if (deleted || full) return;
  if (!world_.device->dead() && !world_.faults) {
    return world_.fail("keep_reservations: " + status.describe());
  }
  entry.may_be.push_back(wanted);
  if (wanted.registrants.size() > kAtOnce) entry.may_be.push_back(nothing(volume));
}

bool SimReservations::may_be(const Entry& entry, const ReservationRecord& is) {
  const auto matches = [&](const ReservationRecord& each) {
    return each == is || (!is.persists && each.registrants.size() > kAtOnce);
  };
  return std::ranges::find(entry.may_be, is) != entry.may_be.end() ||
         std::ranges::any_of(entry.running, matches);
}

void SimReservations::check(const Pool& pool) const {
  for (const PageStore* const store : pool.stores()) {
    const std::uint64_t volume = store->info().id;
    const ReservationRecord is = pool.reservations(volume);
    const auto entry = entries_.find(volume);
    if (entry == entries_.end() ? is == nothing(volume) : may_be(entry->second, is)) continue;
    world_.fail(
        fmt::format("reservations of volume {}, of {} hosts, generation {}, type {}: "
                    "nobody has asked for them",
                    store->info().options.name, is.registrants.size(), is.generation, is.type));
  }
}

void SimReservations::attach(const Pool& pool) {
  check(pool);
  std::erase_if(entries_, [&](const auto& each) { return !has(pool, each.first); });
  for (auto& [volume, entry] : entries_) entry.may_be = {pool.reservations(volume)};
}

}  // namespace furrow::sim
