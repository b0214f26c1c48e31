// Giving up what cannot be read: of zones of which nobody can tell whose they are, and of a
// store's.
#include <fmt/format.h>

#include <algorithm>

#include "engine/pool_impl.h"

namespace furrow {

namespace {
using GiveUp = Finding::GiveUp;
}

// Recovery has reset those that are nobody's; what is left of a store's is copied from here on.
void PoolImpl::begin_giving_up() {
  for (const std::uint32_t number : options_.give_up) {
    if (number >= context_.geometry.zone_count) continue;
    const ZoneAllocator::Zone& zone = context_.allocator.zone(ZoneId{number});
    giving_up_.push_back({ZoneId{number}, zone.generation, zone.owner});
    PageLog* const log = zone.owner == 0 ? nullptr : log_of(zone.owner);
    if (log != nullptr) log->collect(ZoneId{number});
  }
}

std::vector<ZoneGivenUp> PoolImpl::given_up() const {
  std::vector<ZoneGivenUp> all;
  for (const GivingUp& each : giving_up_) all.push_back({each.zone.value, given_up(each)});
  return all;
}

Status PoolImpl::given_up(const GivingUp& each) const {
  const ZoneAllocator::Zone& zone = context_.allocator.zone(each.zone);
  if (device_.zone(each.zone).state == ZoneState::offline) return {};
  if (zone.use == ZoneUse::bad && zone.owner == 0) {
    return {Code::zone_state, Origin::engine, "it cannot be reset, and is not used any more"};
  }
  if (each.volume == 0 || zone.owner != each.volume || zone.generation != each.generation) {
    return {};
  }
  const PageLog* const log = log_of(each.volume);
  if (log == nullptr) return {};
  if (log->collects(each.zone)) return {Code::busy, Origin::engine, "it is being emptied"};
  const Status failure = log->not_collected(each.zone);
  if (!failure.ok()) return failure;
  return {Code::no_space, Origin::engine,
          "its volume has no room for what is left of it; delete pages, or make its quota larger"};
}

std::vector<std::uint32_t> zones_to_give_up(const CheckReport& report) {
  std::vector<std::uint32_t> zones;
  for (const Finding& finding : report.damage) {
    if (finding.give_up != GiveUp::nothing) zones.push_back(finding.zone.value());
  }
  std::ranges::sort(zones);
  zones.erase(std::unique(zones.begin(), zones.end()), zones.end());
  return zones;
}

std::vector<std::string> give_up_plan(const CheckReport& report) {
  std::vector<std::string> plan;
  for (const std::uint32_t zone : zones_to_give_up(report)) {
    const bool all = std::ranges::any_of(report.damage, [&](const Finding& finding) {
      return finding.zone == zone && finding.give_up == GiveUp::all;
    });
    plan.push_back(
        all ? fmt::format("zone {}: give up all that it may hold, of whatever volume", zone)
            : fmt::format("zone {}: write what can be read of it to other zones, and "
                          "reset it, with what cannot",
                          zone));
  }
  return plan;
}

}  // namespace furrow
