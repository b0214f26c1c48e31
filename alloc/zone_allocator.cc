#include "alloc/zone_allocator.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "zone/canary.h"
#include "zone/check.h"

namespace furrow {

namespace {
constexpr unsigned kNoLimit = std::numeric_limits<unsigned>::max();
constexpr std::uint64_t kVoid = ~std::uint64_t{0};  // of a zone: nothing in it counts

unsigned slots(std::uint32_t zones_max) {
  if (zones_max == 0 || canary(Canary::zone_limits_ignored)) return kNoLimit;
  return zones_max - 1;  // one is the metadata ring's
}

void take(unsigned& left, unsigned count) {
  if (left != kNoLimit) left -= count;
}
void give(unsigned& left, unsigned count) {
  if (left != kNoLimit) left += count;
}
// Of a limit that there is, a share must be some.
bool fits(unsigned left, unsigned count) {
  return left == kNoLimit || (count != 0 && count <= left);
}

}  // namespace

const char* to_string(ZoneUse use) {
  switch (use) {
    case ZoneUse::free:
      return "free";
    case ZoneUse::metadata:
      return "metadata";
    case ZoneUse::open:
      return "open";
    case ZoneUse::sealed:
      return "sealed";
    case ZoneUse::draining:
      return "draining";
    case ZoneUse::resetting:
      return "resetting";
    case ZoneUse::lent:
      return "lent";
    case ZoneUse::bad:
      return "bad";
  }
  return "unknown";
}

ZoneAllocator::ZoneAllocator(const Geometry& geometry, std::uint32_t metadata_zones)
    : zone_capacity_lbas_(geometry.zone_capacity_lbas),
      data_zones_(geometry.zone_count - metadata_zones),
      zones_(geometry.zone_count),
      open_left_(slots(geometry.open_zones_max)),
      active_left_(slots(geometry.active_zones_max)) {
  FURROW_CHECK(metadata_zones <= geometry.zone_count);
  for (std::uint32_t i = 0; i < metadata_zones; ++i) zones_[i].use = ZoneUse::metadata;
  usable_ = data_zones_;
}

bool ZoneAllocator::is_usable(const Zone& zone) {
  const bool lost = zone.use == ZoneUse::bad || zone.use == ZoneUse::resetting;
  return zone.use != ZoneUse::metadata && (!lost || zone.owner != 0);
}

void ZoneAllocator::change(ZoneId zone, const Zone& state) {
  if (is_usable(at(zone))) --usable_;
  at(zone) = state;
  if (is_usable(at(zone))) ++usable_;
}

void ZoneAllocator::opens_none() { open_left_ = active_left_ = kNoLimit; }

Status ZoneAllocator::admit(std::uint64_t owner, std::uint64_t quota, unsigned streams) {
  FURROW_CHECK(!owners_.contains(owner));
  if (quota > unpromised()) {
    return {
        Code::no_space, Origin::alloc,
        "the quota is larger than the zones that no other volume was promised; zones_unpromised of "
        "`furrowctl pool info` tells how many there are"};
  }
  if (streams > std::min(open_left_, active_left_)) {
    const auto has_more = [](const auto& each) { return each.second.streams > 1; };
    return {Code::too_many_zones, Origin::alloc,
            std::ranges::any_of(owners_, has_more)
                ? "the device's open and active zone limits (MOR, MAR) leave no zone to write to "
                  "for one more volume: where there is one to spare a store takes two, as files "
                  "do, the second for its copies; make such a one last"
                : "the device's open and active zone limits (MOR, MAR) leave no zone to write to "
                  "for one more volume: there is one of the metadata, one of each volume, and what "
                  "volumes of kind zoned were given"};
  }
  take_share({streams, streams});
  owners_[owner] = {quota, quota, 0, streams, {}};
  return {};
}

Status ZoneAllocator::may_lend(std::uint64_t zones, const ZoneShare& share) const {
  if (zones > unpromised()) {
    return {Code::no_space, Origin::alloc,
            "there are fewer zones than that which no other volume was promised; see "
            "zones_unpromised of `furrowctl pool info`"};
  }
  if (!fits(open_left_, share.open) || !fits(active_left_, share.active)) {
    return {
        Code::too_many_zones, Origin::alloc,
        "the device's open and active zone limits (MOR, MAR) leave the volume no such share: "
        "the metadata has one, each other volume one, and a store, or files, for which there was "
        "one to spare, has two"};
  }
  return {};
}

Status ZoneAllocator::lend(std::uint64_t owner, std::span<const ZoneId> zones,
                           const ZoneShare& share) {
  FURROW_CHECK(!owners_.contains(owner));
  const Status may = may_lend(zones.size(), share);
  if (!may.ok()) return may;
  take_share(share);
  owners_[owner] = {zones.size(), zones.size(), zones.size(), 0, share};
  for (const ZoneId zone : zones) {
    FURROW_CHECK(at(zone).use == ZoneUse::free);
    change(zone, {.use = ZoneUse::lent, .owner = owner});
  }
  return {};
}

ZoneShare ZoneAllocator::share_left() const {
  static_assert(kNoLimit == ~std::uint32_t{0});
  return {open_left_, active_left_};
}

void ZoneAllocator::take_share(const ZoneShare& share) {
  furrow::take(open_left_, share.open);
  furrow::take(active_left_, share.active);
}

void ZoneAllocator::give_share(const ZoneShare& share) {
  give(open_left_, share.open);
  give(active_left_, share.active);
}

bool ZoneAllocator::try_add_stream(std::uint64_t owner, unsigned kept) {
  if (std::min(open_left_, active_left_) <= kept) return false;
  take_share({1, 1});
  ++owners_.at(owner).streams;
  return true;
}

void ZoneAllocator::set_quota(std::uint64_t owner, std::uint64_t quota) {
  Owner& its = owners_.at(owner);
  FURROW_CHECK(its.streams != 0);
  FURROW_CHECK(quota < its.quota ? quota >= its.held : quota <= quota_max(owner));
  if (quota != its.quota) its.owed = 0;
  its.held_max = quota < its.quota ? quota : std::max(quota, its.held_max);
  its.quota = quota;
}

std::vector<ZoneId> ZoneAllocator::vacate(std::uint64_t owner) {
  Owner& its = owners_.at(owner);
  its.quota = its.held_max = its.held = its.owed = 0;
  std::vector<ZoneId> zones;
  for (std::uint32_t i = 0; i < zones_.size(); ++i) {
    if (zones_[i].owner != owner) continue;
    change(ZoneId{i}, {.use = ZoneUse::resetting});
    zones.push_back(ZoneId{i});
  }
  return zones;
}

void ZoneAllocator::dismiss(std::uint64_t owner, unsigned still_active) {
  const auto found = owners_.find(owner);
  FURROW_CHECK(found != owners_.end());
  const auto left = [still_active](unsigned had) { return had - std::min(had, still_active); };
  const Owner& its = found->second;
  give_share({left(its.streams + its.share.open), left(its.streams + its.share.active)});
  owners_.erase(found);
  // Its bad zones were part of its quota; nobody else is promised them.
  for (std::uint32_t i = 0; i < zones_.size(); ++i) {
    if (zones_[i].owner == owner && zones_[i].use == ZoneUse::bad) disown(ZoneId{i});
  }
}

Result<ZoneId> ZoneAllocator::take(std::uint64_t owner, std::uint8_t stream,
                                   std::uint64_t generation, std::uint64_t sequence) {
  Owner& taker = owners_.at(owner);
  if (taker.held >= taker.held_max) {
    return Status(Code::no_space, Origin::alloc, "the volume's quota is used up");
  }
  for (std::size_t tried = 0; tried < zones_.size(); ++tried) {
    const ZoneId id{next_free_};
    next_free_ = (next_free_ + 1) % static_cast<std::uint32_t>(zones_.size());
    if (at(id).use != ZoneUse::free) continue;
    change(id, {ZoneUse::open, stream, owner, generation, sequence});
    ++taker.held;
    return id;
  }
  return Status(Code::no_space, Origin::alloc, "no zone is free (some have gone bad)");
}

void ZoneAllocator::adopt(ZoneId zone, const Zone& state) {
  FURROW_CHECK(at(zone).use == ZoneUse::free);
  change(zone, state);
  if (state.owner != 0) ++owners_.at(state.owner).held;
  if (state.opened_sequence < adopted_sequence_) return;
  adopted_sequence_ = state.opened_sequence;
  next_free_ = (zone.value + 1) % static_cast<std::uint32_t>(zones_.size());
}

void ZoneAllocator::set_use(ZoneId zone, ZoneUse use) {
  Zone state = at(zone);
  state.use = use;
  change(zone, state);
}

void ZoneAllocator::disown(ZoneId zone) {
  Zone state = at(zone);
  state.owner = 0;
  change(zone, state);
}

void ZoneAllocator::release(ZoneId zone) {
  const auto owner = owners_.find(at(zone).owner);
  if (owner != owners_.end()) --owner->second.held;
  change(zone, Zone());
}

void ZoneAllocator::retire(ZoneId zone) {
  set_use(zone, ZoneUse::bad);
  at(zone).live_lbas = 0;
}

void ZoneAllocator::make_void(ZoneId zone) {
  FURROW_CHECK(at(zone).use == ZoneUse::bad);
  at(zone).opened_sequence = at(zone).stray_sequence = at(zone).min_sequence = kVoid;
  const auto owner = owners_.find(at(zone).owner);
  if (owner == owners_.end() || unpromised() == 0) return;
  --owner->second.held;
  disown(zone);
}

void ZoneAllocator::add_live(ZoneId zone, std::uint64_t lbas, std::uint64_t sequence) {
  at(zone).live_lbas += lbas;
  note_sequence(zone, sequence);
}

void ZoneAllocator::note_sequence(ZoneId zone, std::uint64_t sequence) {
  at(zone).min_sequence = std::min(at(zone).min_sequence, sequence);
}

void ZoneAllocator::note_stray(ZoneId zone, std::uint64_t sequence) {
  at(zone).stray_sequence = std::min(at(zone).stray_sequence, sequence);
}

void ZoneAllocator::remove_live(ZoneId zone, std::uint64_t lbas) {
  FURROW_CHECK(at(zone).live_lbas >= lbas);
  at(zone).live_lbas -= lbas;
}

std::optional<ZoneId> ZoneAllocator::victim(std::uint64_t owner, VictimPolicy policy) const {
  return victim(owner, policy, [this](ZoneId id) { return std::optional(zone(id).live_lbas); });
}

std::optional<ZoneId> ZoneAllocator::victim(std::uint64_t owner, VictimPolicy policy,
                                            const CopiedLbas& copied_lbas) const {
  std::vector<std::uint64_t> opened;
  if (policy == VictimPolicy::cost_benefit) opened = opened_sequences(owner);
  const auto age_of = [&](const Zone& zone) {
    return static_cast<double>(opened.end() -
                               std::ranges::lower_bound(opened, zone.opened_sequence));
  };
  // Higher is the better victim.
  const auto score = [&](const Zone& zone, std::uint64_t copied) -> double {
    switch (policy) {
      case VictimPolicy::fifo:  // sequences are more than a double can tell apart
        return 0;
      case VictimPolicy::greedy:
        return -static_cast<double>(copied);
      case VictimPolicy::cost_benefit: {
        const double u = static_cast<double>(std::min(copied, zone_capacity_lbas_)) /
                         static_cast<double>(zone_capacity_lbas_);
        return (1 - u) * age_of(zone) / (1 + u);
      }
    }
    return 0;
  };
  std::optional<ZoneId> best;
  double best_score = 0;
  for (std::uint32_t i = 0; i < zones_.size(); ++i) {
    if (zones_[i].owner != owner || zones_[i].use != ZoneUse::sealed) continue;
    const std::optional<std::uint64_t> copied = copied_lbas(ZoneId{i});
    if (!copied) continue;
    const double its_score = score(zones_[i], *copied);
    const bool better = policy == VictimPolicy::fifo
                            ? best && zones_[i].opened_sequence < zone(*best).opened_sequence
                            : its_score > best_score;
    if (best && !better) continue;
    best = ZoneId{i};
    best_score = its_score;
  }
  return best;
}

std::vector<std::uint64_t> ZoneAllocator::opened_sequences(std::uint64_t owner) const {
  std::vector<std::uint64_t> opened;
  for (const Zone& zone : zones_) {
    if (zone.owner == owner) opened.push_back(zone.opened_sequence);
  }
  std::ranges::sort(opened);
  return opened;
}

std::uint64_t ZoneAllocator::min_sequence(std::uint64_t owner, ZoneId except) const {
  std::uint64_t lowest = ~std::uint64_t{0};
  for (std::uint32_t i = 0; i < zones_.size(); ++i) {
    if (zones_[i].may_be_of(owner)) return 0;
    if (zones_[i].owner != owner || i == except.value) continue;
    lowest = std::min(lowest, zones_[i].min_sequence);
  }
  return lowest;
}

std::uint64_t ZoneAllocator::min_opened(std::uint64_t owner, ZoneId except) const {
  std::uint64_t lowest = ~std::uint64_t{0};
  for (std::uint32_t i = 0; i < zones_.size(); ++i) {
    if (zones_[i].may_be_of(owner)) return 0;
    if (zones_[i].owner != owner || i == except.value) continue;
    lowest = std::min(lowest, zones_[i].oldest());
  }
  return lowest;
}

std::optional<ZoneId> ZoneAllocator::opened_last(std::uint64_t owner, ZoneId except) const {
  std::optional<ZoneId> last;
  for (std::uint32_t i = 0; i < zones_.size(); ++i) {
    const Zone& zone = zones_[i];
    if (zone.may_be_of(owner)) return {};
    if (zone.owner != owner || i == except.value || zone.opened_sequence == kVoid) continue;
    if (!last || zone.opened_sequence > zones_[last->value].opened_sequence) last = ZoneId{i};
  }
  return last;
}

std::uint64_t ZoneAllocator::held(std::uint64_t owner) const { return owners_.at(owner).held; }
std::uint64_t ZoneAllocator::quota(std::uint64_t owner) const { return owners_.at(owner).quota; }
std::uint64_t ZoneAllocator::held_max(std::uint64_t owner) const {
  return owners_.at(owner).held_max;
}
std::uint64_t ZoneAllocator::quota_max(std::uint64_t owner) const {
  return std::max(quota(owner), left_by([owner](std::uint64_t other) { return other != owner; }));
}

template <class Which>
std::uint64_t ZoneAllocator::left_by(const Which& which) const {
  std::uint64_t now = 0, later = 0;
  for (const auto& [id, owner] : owners_) {
    if (!which(id)) continue;
    now += owner.held_max;
    later += owner.quota + owner.owed;
  }
  return std::min(usable_ - std::min(usable_, now), data_zones_ - std::min(data_zones_, later));
}

std::uint64_t ZoneAllocator::promised() const {
  std::uint64_t sum = 0;
  for (const auto& [id, owner] : owners_) sum += owner.held_max;
  return sum;
}

std::uint64_t ZoneAllocator::unpromised() const {
  return left_by([](std::uint64_t) { return true; });
}

std::uint64_t ZoneAllocator::missing() const {
  const std::uint64_t given = promised();
  return given > usable_ ? given - usable_ : 0;
}

void ZoneAllocator::take_back(std::uint64_t owner) {
  Owner& its = owners_.at(owner);
  its.held_max = std::max(its.held_max, its.held);
}

void ZoneAllocator::allow(std::uint64_t owner, std::uint64_t zones) {
  Owner& its = owners_.at(owner);
  const std::uint64_t left = usable_ - std::min(usable_, promised());
  its.held_max = std::max(its.held_max, std::min(zones, its.held_max + left));
}

void ZoneAllocator::allow_from(std::uint64_t from, std::uint64_t owner) {
  Owner& giver = owners_.at(from);
  FURROW_CHECK(giver.held < giver.quota && giver.quota == giver.held_max);
  giver.held_max = --giver.quota;
  ++giver.owed;
  ++owners_.at(owner).held_max;
}

void ZoneAllocator::allow_no_more(std::uint64_t owner, std::uint64_t zones) {
  Owner& its = owners_.at(owner);
  its.held_max = std::min(its.held_max, std::max({its.quota, its.held, zones}));
}

std::uint64_t ZoneAllocator::shrink_quotas() {
  const std::uint64_t taken = missing();
  for (std::uint64_t i = 0; i < taken; ++i) {
    const auto most = std::ranges::max_element(owners_, {}, [](const auto& entry) {
      // Some quota is larger than what is held of it: one whose zones are lent is not.
      const Owner& owner = entry.second;
      return std::pair(owner.held_max - std::min(owner.held_max, owner.held), owner.quota);
    });
    Owner& owner = most->second;
    --owner.held_max;
    if (owner.quota <= owner.held_max) continue;
    --owner.quota;
    ++owner.owed;
  }
  return taken;
}

std::uint64_t ZoneAllocator::bad(std::uint64_t owner) const {
  return static_cast<std::uint64_t>(std::ranges::count_if(zones_, [owner](const Zone& zone) {
    return zone.owner == owner && zone.use == ZoneUse::bad;
  }));
}

std::uint64_t ZoneAllocator::count(ZoneUse use) const {
  return static_cast<std::uint64_t>(
      std::ranges::count_if(zones_, [use](const Zone& zone) { return zone.use == use; }));
}

}  // namespace furrow
