#include "zone/zone_table.h"

#include <algorithm>

namespace furrow {

ZoneTable::ZoneTable(const Geometry& geometry, ZoneStore* store)
    : geometry_(geometry),
      machine_(geometry),
      store_(store),
      entries_(std::make_unique<Entry[]>(geometry.zone_count)) {
  implicitly_open_.reserve(
      geometry.open_zones_max == 0 ? 0 : std::min(geometry.open_zones_max, geometry.zone_count));
}

void ZoneTable::load(ZoneId zone, const ZoneRecord& record, const char* reason) {
  Entry& to = entry(zone);
  const std::lock_guard lock(mutex_);
  ZoneState state = ZoneState::empty;
  std::uint64_t next = record.written_lbas;
  switch (record.kind) {
    case ZoneRecord::Class::writable:
      if (record.written_lbas == geometry_.zone_capacity_lbas) {
        state = ZoneState::full;
      } else if (record.written_lbas != 0) {
        state = ZoneState::closed;
        ++active_;
      }
      break;
    case ZoneRecord::Class::full:
      state = ZoneState::full;
      next = geometry_.zone_capacity_lbas;
      break;
    case ZoneRecord::Class::read_only:
      state = ZoneState::read_only;
      break;
    case ZoneRecord::Class::offline:
      state = ZoneState::offline;
      break;
  }
  to.generation = record.generation;
  to.finished = record.kind == ZoneRecord::Class::full;
  to.reason.store(reason);
  to.written.store(record.written_lbas);
  to.control.store(with(0, state, next));
}

std::optional<ZoneTable::Admission> ZoneTable::admit_open(const Io& io) {
  Entry& to = entry(io.zone);
  const Lba start = geometry_.zone_start(io.zone);
  const bool append = io.op == Io::Op::append;
  if (append && io.lba_count > geometry_.append_lbas_max) return std::nullopt;
  std::uint64_t control = to.control.load(std::memory_order_acquire);
  for (;;) {
    const std::uint64_t next = next_of(control);
    const bool plain = is_open(state_of(control)) && (control & (kHeld | kTaken)) == 0 &&
                       in_flight_of(control) < kInFlightMask &&
                       next + io.lba_count < geometry_.zone_capacity_lbas &&
                       (append || io.lba.value == start.value + next);
    if (!plain) return std::nullopt;
    const std::uint64_t after =
        with(control, state_of(control), next + io.lba_count) + kInFlightOne;
    if (to.control.compare_exchange_weak(control, after, std::memory_order_acq_rel)) {
      return Admission{.lba = Lba{start.value + next}};
    }
  }
}

ZoneTable::Admission ZoneTable::admit(const Io& io) {
  if (const std::optional<Admission> admitted = admit_open(io)) return *admitted;
  return admit_locked(io);
}

ZoneTable::Admission ZoneTable::admit_locked(const Io& io) {
  Entry& to = entry(io.zone);
  const Lba start = geometry_.zone_start(io.zone);
  const bool append = io.op == Io::Op::append;
  const ZoneRequest request{append ? ZoneAction::append : ZoneAction::write,
                            append ? start : io.lba, io.lba_count};
  constexpr Admission later{.later = true};
  const std::lock_guard lock(mutex_);
  std::uint64_t control = to.control.load(std::memory_order_acquire);
  for (;;) {  // again only when a writer in the same, open zone was faster
    if ((control & kTaken) != 0) return later;
    const ZoneView view{io.zone, state_of(control), next_of(control)};
    const ZoneDecision decision = machine_.decide(view, usage_locked(), request);
    if (may_pass_locked(decision.status)) return later;
    if (decision.status != nvme_status::kSuccess) return Admission{.status = decision.status};
    FURROW_CHECK(in_flight_of(control) < kInFlightMask);
    const std::uint64_t after = with(control, decision.state, decision.written_lbas) + kInFlightOne;
    if (!to.control.compare_exchange_weak(control, after, std::memory_order_acq_rel)) continue;
    apply_locked(view, decision);
    return Admission{.lba = Lba{start.value + decision.written_at}, .held = (control & kHeld) != 0};
  }
}

ZoneUsage ZoneTable::usage_locked() const {
  return {open_, active_, static_cast<std::uint32_t>(implicitly_open_.size())};
}

void ZoneTable::apply_locked(const ZoneView& before, const ZoneDecision& decision) {
  if (decision.close_one_first) close_one_locked(before.zone);
  open_ = static_cast<std::uint32_t>(static_cast<int>(open_) + decision.open_delta);
  active_ = static_cast<std::uint32_t>(static_cast<int>(active_) + decision.active_delta);
  if (geometry_.open_zones_max == 0 || before.state == decision.state) return;
  if (before.state == ZoneState::implicitly_open) std::erase(implicitly_open_, before.zone);
  if (decision.state == ZoneState::implicitly_open) implicitly_open_.push_back(before.zone);
}

// The oldest without writes in flight, or else the oldest: its writes were admitted and go on.
void ZoneTable::close_one_locked(ZoneId except) {
  auto victim = std::ranges::find_if(implicitly_open_, [&](ZoneId zone) {
    return zone != except && in_flight_of(entry(zone).control.load()) == 0;
  });
  if (victim == implicitly_open_.end()) victim = implicitly_open_.begin();
  FURROW_CHECK(victim != implicitly_open_.end());
  Entry& closed = entry(*victim);
  std::uint64_t control = closed.control.load(std::memory_order_acquire);
  while (!closed.control.compare_exchange_weak(
      control, with(control, ZoneState::closed, next_of(control)), std::memory_order_acq_rel)) {
  }
  implicitly_open_.erase(victim);
  --open_;
}

std::optional<Status> ZoneTable::end_write(ZoneId zone, Lba lba, std::uint64_t lba_count,
                                           bool told) {
  Entry& to = entry(zone);
  const std::uint64_t offset = lba.value - geometry_.zone_start(zone).value;
  if (offset >= to.sealed_at.load(std::memory_order_acquire)) {
    to.control.fetch_sub(kInFlightOne, std::memory_order_acq_rel);
    return Status(Code::io_error, Origin::zone,
                  "an earlier write to the zone failed; the zone is sealed");
  }
  if (to.written.load(std::memory_order_acquire) != offset) return std::nullopt;
  const bool needless = told && to.sealed_at.load(std::memory_order_acquire) == kNotSealed;
  const Status saved = needless ? Status() : save(zone, to, offset + lba_count);
  if (!saved.ok()) {
    fail_write(zone, lba, saved.hint());
    return saved;
  }
  to.written.store(offset + lba_count, std::memory_order_release);
  to.control.fetch_sub(kInFlightOne, std::memory_order_acq_rel);
  return Status();
}

void ZoneTable::fail_write(ZoneId zone, Lba lba, const char* reason) {
  Entry& to = entry(zone);
  const std::uint64_t offset = lba.value - geometry_.zone_start(zone).value;
  const std::lock_guard lock(mutex_);
  if (offset < to.sealed_at.load()) {
    to.reason.store(reason);
    to.sealed_at.store(offset, std::memory_order_release);
  }
  std::uint64_t control = to.control.load(std::memory_order_acquire);
  ZoneView view;
  ZoneDecision decision;
  do {
    view = {zone, state_of(control), next_of(control)};
    decision = machine_.decide(view, usage_locked(), {ZoneAction::finish, {}, 0});
  } while (!to.control.compare_exchange_weak(
      control, with(control, decision.state, decision.written_lbas) - kInFlightOne,
      std::memory_order_acq_rel));
  apply_locked(view, decision);
  // Otherwise the last write before this one records it. (Or nobody: see the header.)
  if (decision.state == ZoneState::full && to.written.load() == to.sealed_at.load()) {
    (void)save(zone, to, to.written.load());
  }
}

void ZoneTable::degrade(ZoneId zone, ZoneState state, const char* reason) {
  FURROW_CHECK(state == ZoneState::read_only || state == ZoneState::offline);
  Entry& to = entry(zone);
  const std::lock_guard lock(mutex_);
  to.reason.store(reason);
  to.sealed_at.store(to.written.load());
  std::uint64_t control = to.control.load(std::memory_order_acquire);
  ZoneView view;
  ZoneDecision decision;
  do {
    view = {zone, state_of(control), next_of(control)};
    decision = {};
    decision.state = state;
    decision.open_delta = is_open(view.state) ? -1 : 0;
    decision.active_delta = is_active(view.state) ? -1 : 0;
  } while (!to.control.compare_exchange_weak(control, with(control, state, view.written_lbas),
                                             std::memory_order_acq_rel));
  apply_locked(view, decision);
}

namespace {

ZoneAction action_of(Io::Op op) {
  switch (op) {
    case Io::Op::close:
      return ZoneAction::close;
    case Io::Op::finish:
      return ZoneAction::finish;
    case Io::Op::reset:
      return ZoneAction::reset;
    default:
      FURROW_CHECK(op == Io::Op::open);
      return ZoneAction::open;
  }
}

bool needs_quiet(Io::Op op) { return op == Io::Op::finish || op == Io::Op::reset; }

constexpr Status kWritesInFlight(Code::busy, Origin::zone,
                                 "writes are in flight in the zone; wait for them");

}  // namespace

Status ZoneTable::manage(Io::Op op, ZoneId zone) {
  Entry& to = entry(zone);
  const ZoneAction action = action_of(op);
  const std::lock_guard lock(mutex_);
  std::uint64_t control = to.control.load(std::memory_order_acquire);
  for (;;) {
    const ZoneView view{zone, state_of(control), next_of(control)};
    const ZoneDecision decision = machine_.decide(view, usage_locked(), {action, {}, 0});
    if (decision.status != nvme_status::kSuccess) return zone_status(decision.status);
    if (needs_quiet(op) && in_flight_of(control) != 0) return kWritesInFlight;
    const std::uint64_t after = with(control, decision.state, decision.written_lbas);
    if (!to.control.compare_exchange_weak(control, after, std::memory_order_acq_rel)) continue;
    Status saved;
    if (action == ZoneAction::reset && view.state != ZoneState::empty) {
      saved = reset_record_locked(zone, to);
    } else if (action == ZoneAction::finish && view.state != ZoneState::full) {
      saved = finish_record_locked(zone, to);
    }
    if (saved.ok()) {
      apply_locked(view, decision);
      return {};
    }
    // As it was: nobody was admitted meanwhile, nor had any write in flight.
    control = to.control.load(std::memory_order_acquire);
    while (!to.control.compare_exchange_weak(control, with(control, view.state, view.written_lbas),
                                             std::memory_order_acq_rel)) {
    }
    return saved;
  }
}

Status ZoneTable::reset_record_locked(ZoneId zone, Entry& to) {
  const bool nothing_saved =
      to.written.load() == 0 && !to.finished && to.sealed_at.load() == kNotSealed;
  if (!nothing_saved) {
    const Status saved = save_record(zone, {ZoneRecord::Class::writable, to.generation + 1, 0});
    if (!saved.ok()) return saved;
    ++to.generation;
  }
  to.finished = false;
  to.sealed_at.store(kNotSealed);
  to.reason.store("");
  to.written.store(0, std::memory_order_release);
  return {};
}

Status ZoneTable::finish_record_locked(ZoneId zone, Entry& to) {
  const Status saved =
      save_record(zone, {ZoneRecord::Class::full, to.generation, to.written.load()});
  if (saved.ok()) to.finished = true;
  return saved;
}

bool ZoneTable::may_pass_locked(std::uint16_t status) const {
  return giving_back_ != 0 &&
         (status == nvme_status::kTooManyActive || status == nvme_status::kTooManyOpen);
}

std::optional<Status> ZoneTable::take(Io::Op op, ZoneId zone) {
  Entry& to = entry(zone);
  const std::lock_guard lock(mutex_);
  std::uint64_t control = to.control.load(std::memory_order_acquire);
  do {
    if ((control & kTaken) != 0) return std::nullopt;
    const ZoneView view{zone, state_of(control), next_of(control)};
    const ZoneDecision decision = machine_.decide(view, usage_locked(), {action_of(op), {}, 0});
    if (may_pass_locked(decision.status)) return std::nullopt;
    if (decision.status != nvme_status::kSuccess) return zone_status(decision.status);
    if (needs_quiet(op) && in_flight_of(control) != 0) return kWritesInFlight;
  } while (!to.control.compare_exchange_weak(control, control | kTaken, std::memory_order_acq_rel));
  if (op != Io::Op::open) ++giving_back_;
  return Status();
}

void ZoneTable::leave(Io::Op op, ZoneId zone) {
  const std::lock_guard lock(mutex_);
  entry(zone).control.fetch_and(~kTaken, std::memory_order_acq_rel);
  if (op != Io::Op::open) --giving_back_;
}

Status ZoneTable::save(ZoneId zone, const Entry& from, std::uint64_t written_lbas) {
  const bool full = from.sealed_at.load(std::memory_order_relaxed) != kNotSealed;
  return save_record(zone, {full ? ZoneRecord::Class::full : ZoneRecord::Class::writable,
                            from.generation, written_lbas});
}

ZoneInfo ZoneTable::info(ZoneId zone) const {
  const Entry& from = entry(zone);
  const ZoneState state = state_of(from.control.load(std::memory_order_acquire));
  const std::uint64_t written = from.written.load(std::memory_order_acquire);
  return {zone, state, state == ZoneState::full ? geometry_.zone_capacity_lbas : written,
          from.reason.load()};
}

std::vector<ZoneInfo> ZoneTable::report() const {
  std::vector<ZoneInfo> zones;
  zones.reserve(geometry_.zone_count);
  for (std::uint32_t i = 0; i < geometry_.zone_count; ++i) zones.push_back(info(ZoneId{i}));
  return zones;
}

std::optional<std::uint32_t> ZoneTable::empty_life(ZoneId zone) const {
  const std::lock_guard lock(mutex_);  // a reset changes both under it
  const bool empty = state_of(entry(zone).control.load()) == ZoneState::empty;
  return empty ? std::optional(entry(zone).generation) : std::nullopt;
}

bool ZoneTable::hold_if_empty(ZoneId zone, std::optional<std::uint32_t> life) {
  const std::lock_guard lock(mutex_);
  if (life && entry(zone).generation != *life) return false;
  std::uint64_t control = entry(zone).control.load(std::memory_order_acquire);
  // An empty zone changes under the lock only.
  if (state_of(control) != ZoneState::empty || (control & kHeld) != 0) return false;
  entry(zone).control.fetch_or(kHeld, std::memory_order_acq_rel);
  return true;
}

bool ZoneTable::hold_behind(ZoneId zone, std::uint64_t end_lbas) {
  std::atomic<std::uint64_t>& at = entry(zone).control;
  std::uint64_t control = at.load(std::memory_order_acquire);
  do {
    const bool alone = is_open(state_of(control)) && (control & (kHeld | kTaken)) == 0 &&
                       in_flight_of(control) == 1 && next_of(control) == end_lbas;
    if (!alone) return false;
  } while (!at.compare_exchange_weak(control, control | kHeld, std::memory_order_acq_rel));
  return true;
}

void ZoneTable::release(ZoneId zone) {
  entry(zone).control.fetch_and(~kHeld, std::memory_order_acq_rel);
}

}  // namespace furrow
