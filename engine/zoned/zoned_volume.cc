// The zones of a volume: their states, and the way of an operation on one of them. zoned_all.cc has
// operations on all.
#include "engine/zoned/zoned_volume.h"

#include <algorithm>
#include <utility>

#include "engine/zoned/zoned_session.h"
#include "zone/canary.h"
#include "zone/check.h"

namespace furrow {

namespace {

constexpr unsigned kStateShift = 60;
constexpr std::uint64_t kWrittenMask = (std::uint64_t{1} << kStateShift) - 1;

Geometry geometry_of_volume(const Geometry& device, std::size_t zones, const ZoneShare& share) {
  Geometry geometry = device;
  geometry.zone_count = static_cast<std::uint32_t>(zones);
  geometry.open_zones_max = share.open;
  geometry.active_zones_max = share.active;
  geometry.append_lbas_max = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(device.zone_capacity_lbas, ~std::uint32_t{0}));
  return geometry;
}

ZonedStep& step_of(Io& io) { return *static_cast<ZonedStep*>(io.context); }

}  // namespace

ZonedVolume::ZonedVolume(PoolContext& pool, ZonedDevice& device, std::vector<ZoneId> zones,
                         ZoneShare share, Durability durability)
    : pool_(pool),
      device_(device),
      zones_(std::move(zones)),
      geometry_(geometry_of_volume(pool.geometry, zones_.size(), share)),
      durability_(durability),
      machine_(geometry_),
      slots_(std::make_unique<Slot[]>(zones_.size())) {
  implicitly_open_.reserve(share.open);
  for (ZonedStep& step : steps_) step.next = std::exchange(free_step_, &step);
}

void ZonedVolume::load(const std::vector<ZoneInfo>& report) {
  for (std::uint32_t i = 0; i < geometry_.zone_count; ++i) {
    const ZoneInfo& info = report[zones_[i].value];
    ZoneState state = info.state;
    if (is_active(state)) state = info.written_lbas == 0 ? ZoneState::empty : ZoneState::closed;
    if (state == ZoneState::closed) ++usage_.active;
    slots_[i].word.store(pack(state, info.written_lbas));
  }
}

// --- states ---

std::uint64_t ZonedVolume::pack(ZoneState state, std::uint64_t written) {
  return static_cast<std::uint64_t>(state) << kStateShift | written;
}

ZoneView ZonedVolume::view(std::uint32_t zone) const {
  const std::uint64_t word = slots_[zone].word.load(std::memory_order_relaxed);
  return {ZoneId{zone}, static_cast<ZoneState>(word >> kStateShift), word & kWrittenMask};
}

ZoneInfo ZonedVolume::zone(std::uint32_t zone) const {
  const ZoneView now = view(zone);
  return {now.zone, now.state, now.written_lbas};
}

std::uint16_t ZonedVolume::check_read(std::uint64_t lba, std::uint64_t count) const {
  const std::uint64_t zone = lba / geometry_.zone_size_lbas;
  if (zone >= geometry_.zone_count) return nvme_status::kLbaOutOfRange;
  const ZoneRequest request{ZoneAction::read, Lba{lba}, count};
  return machine_.decide(view(static_cast<std::uint32_t>(zone)), {}, request).status;
}

Lba ZonedVolume::device_lba(std::uint64_t lba) const {
  const auto zone = static_cast<std::uint32_t>(lba / geometry_.zone_size_lbas);
  return Lba{zone_start(zone).value + lba % geometry_.zone_size_lbas};
}

void ZonedVolume::set(std::uint32_t zone, ZoneState state, std::uint64_t written) {
  const bool was = view(zone).state == ZoneState::implicitly_open;
  const bool is = state == ZoneState::implicitly_open;
  slots_[zone].word.store(pack(state, written), std::memory_order_relaxed);
  if (was == is) return;
  usage_.implicitly_open += is ? 1 : -1;
  if (geometry_.open_zones_max == 0) return;
  if (is) {
    implicitly_open_.push_back(zone);
  } else {
    std::erase(implicitly_open_, zone);
  }
}

// What a write gives back by filling its zone is given back when it has ended: settle().
void ZonedVolume::apply(std::uint32_t zone, const ZoneDecision& decision) {
  Slot& slot = slots_[zone];
  const bool hold = slot.in_flight != 0 && decision.state == ZoneState::full;
  if (hold && decision.open_delta < 0) {
    slot.open_held = true;
  } else {
    usage_.open += static_cast<std::uint32_t>(decision.open_delta);
  }
  if (hold && decision.active_delta < 0) {
    slot.active_held = true;
  } else {
    usage_.active += static_cast<std::uint32_t>(decision.active_delta);
  }
  set(zone, decision.state, decision.written_lbas);
}

void ZonedVolume::release_held(Slot& slot) {
  if (std::exchange(slot.open_held, false)) --usage_.open;
  if (std::exchange(slot.active_held, false)) --usage_.active;
}

void ZonedVolume::close_one(std::uint32_t except) {
  const auto oldest = std::ranges::find_if(implicitly_open_,
                                           [except](std::uint32_t zone) { return zone != except; });
  FURROW_CHECK(oldest != implicitly_open_.end());
  const std::uint32_t zone = *oldest;
  set(zone, ZoneState::closed, view(zone).written_lbas);
  --usage_.open;
}

void ZonedVolume::look_for_taken() {
  const std::uint64_t taken = device_.zones_taken();
  if (taken == std::exchange(zones_taken_, taken)) return;
  for (std::uint32_t i = 0; i < geometry_.zone_count; ++i) {
    const ZoneState state = device_.zone(zones_[i]).state;
    const ZoneState known = view(i).state;
    const bool is_taken = state == ZoneState::read_only || state == ZoneState::offline;
    if (is_taken && state != known) doubt(i);
  }
}

void ZonedVolume::doubt(std::uint32_t zone) {
  Slot& slot = slots_[zone];
  if (slot.managed || slot.in_flight != 0) {
    slot.unsure = true;
  } else {
    look_again(zone);
  }
}

// Where both say that the zone can be written, whether it is open is for the volume to say. One
// that is offline stays that: a host may have set it so.
void ZonedVolume::look_again(std::uint32_t zone) {
  const ZoneInfo info = device_.zone(zones_[zone]);
  const ZoneView before = view(zone);
  release_held(slots_[zone]);
  if (before.state == ZoneState::offline) return;
  ZoneState state = info.state;
  if (is_active(state) || state == ZoneState::empty) {
    const bool keep = is_active(before.state);
    state = keep ? before.state : info.written_lbas == 0 ? ZoneState::empty : ZoneState::closed;
  }
  if (is_open(before.state) && !is_open(state)) --usage_.open;
  if (is_active(before.state) && !is_active(state)) --usage_.active;
  if (!is_active(before.state) && is_active(state)) ++usage_.active;
  set(zone, state, info.written_lbas);
  if (state == before.state || std::exchange(slots_[zone].changed, true)) return;
  changed_.push_back(zone);
  any_changed_.store(true, std::memory_order_relaxed);
}

std::vector<std::uint32_t> ZonedVolume::take_changed() {
  any_changed_.store(false, std::memory_order_relaxed);
  for (const std::uint32_t zone : changed_) slots_[zone].changed = false;
  return std::exchange(changed_, {});
}

bool ZonedVolume::close() {
  if (std::exchange(wrote_, false)) {
    close_flush_.busy = true;
    close_flush_.on_flushed = [](FlushWaiter& waiter) {
      static_cast<CloseFlush&>(waiter).busy = false;
    };
    pool_.flusher.request(close_flush_);
  }
  return !close_flush_.busy;
}

// --- an operation's way ---

ZoneAction ZonedVolume::action_of(const ZonedOp& op) {
  switch (op.kind) {
    case ZonedOp::Kind::write:
      return ZoneAction::write;
    case ZonedOp::Kind::append:
      return ZoneAction::append;
    case ZonedOp::Kind::open:
      return ZoneAction::open;
    case ZonedOp::Kind::close:
      return ZoneAction::close;
    case ZonedOp::Kind::finish:
      return ZoneAction::finish;
    case ZonedOp::Kind::reset:
      return ZoneAction::reset;
    case ZonedOp::Kind::set_offline:
      return ZoneAction::set_offline;
    case ZonedOp::Kind::read:
    case ZonedOp::Kind::flush:
      break;
  }
  return ZoneAction::read;
}

void ZonedVolume::submit(ZonedOp& op) {
  ++running_;
  op.status = Status();
  op.internal.step.volume = this;
  op.internal.flush.op = &op;
  op.internal.flush.on_flushed = [](FlushWaiter& waiter) {
    ZonedOp& its_op = *static_cast<ZonedOp::Internal::Flush&>(waiter).op;
    its_op.status = waiter.status;
    its_op.internal.step.volume->answer(its_op);
  };
  if (op.kind == ZonedOp::Kind::flush) ++stats_.flushes;
  if (op.kind == ZonedOp::Kind::flush || op.kind == ZonedOp::Kind::read) {
    return pool_.flusher.request(op.internal.flush);
  }
  if (op.all) return begin_all(op);
  ZonedStep& step = op.internal.step;
  step.op = &op;
  step.zone = static_cast<std::uint32_t>(op.lba / geometry_.zone_size_lbas);
  enter(step);
}

bool ZonedVolume::as_append(const ZonedOp& op) const {
  return op.kind == ZonedOp::Kind::append && op.count <= pool_.geometry.append_lbas_max;
}

bool ZonedVolume::must_wait(const Slot& slot, const ZonedOp& op) const {
  if (slot.managed || slot.unsure) return true;
  if (slot.in_flight == 0) return false;
  using enum ZonedOp::Kind;
  if (op.kind == finish || op.kind == reset) return true;
  return (op.kind == write || op.kind == append) && slot.appends != as_append(op);
}

void ZonedVolume::enter(ZonedStep& step) {
  Slot& slot = slots_[step.zone];
  if (slot.first == nullptr && !must_wait(slot, *step.op)) return begin(step);
  step.next = nullptr;
  (slot.first == nullptr ? slot.first : slot.last->next) = &step;
  slot.last = &step;
}

void ZonedVolume::go_on(std::uint32_t zone) {
  Slot& slot = slots_[zone];
  while (slot.first != nullptr && !must_wait(slot, *slot.first->op)) {
    ZonedStep& step = *slot.first;
    slot.first = step.next;
    begin(step);
  }
}

void ZonedVolume::begin(ZonedStep& step) {
  const ZonedOp& op = *step.op;
  const ZoneAction action = action_of(op);
  const ZoneView now = view(step.zone);
  if (op.all && !ZoneStateMachine::selected_by_all(action, now.state)) return end(step, {});
  const ZoneDecision decision = machine_.decide(now, usage_, {action, Lba{op.lba}, op.count});
  if (decision.status != nvme_status::kSuccess) return end(step, zone_status(decision.status));
  if (decision.close_one_first) close_one(step.zone);
  if (action == ZoneAction::write || action == ZoneAction::append) return write(step, decision);
  const bool changes = decision.state != now.state;
  if (changes && (action == ZoneAction::finish || action == ZoneAction::reset)) return manage(step);
  apply(step.zone, decision);
  end(step, {});
}

void ZonedVolume::write(ZonedStep& step, const ZoneDecision& decision) {
  ZonedOp& op = *step.op;
  Slot& slot = slots_[step.zone];
  slot.appends = as_append(op);
  ++slot.in_flight;
  apply(step.zone, decision);
  op.appended_at = geometry_.zone_start(ZoneId{step.zone}).value + decision.written_at;
  Io& io = step.io;
  io.op = slot.appends ? Io::Op::append : Io::Op::write;
  io.zone = zones_[step.zone];
  io.lba = Lba{zone_start(step.zone).value + decision.written_at};
  io.set_data(op.data, static_cast<std::uint32_t>(op.count), geometry_.lba_bytes, -1);
  io.context = &step;
  io.on_complete = [](Io& done) { step_of(done).volume->written(step_of(done)); };
  pool_.queue.submit(io);
}

void ZonedVolume::written(ZonedStep& step) {
  ZonedOp& op = *step.op;
  const std::uint32_t zone = step.zone;
  Slot& slot = slots_[zone];
  if (!step.io.status.ok()) {
    slot.unsure = true;
  } else {
    wrote_ = true;
    ++stats_.writes;
    stats_.bytes_written += op.count * geometry_.lba_bytes;
    if (slot.appends) {
      const std::uint64_t offset = step.io.appended_at.value - zone_start(zone).value;
      op.appended_at = geometry_.zone_start(ZoneId{zone}).value + offset;
    }
  }
  if (--slot.in_flight == 0) settle(zone);
  end(step, step.io.status);
  go_on(zone);
}

void ZonedVolume::settle(std::uint32_t zone) {
  Slot& slot = slots_[zone];
  release_held(slot);
  if (std::exchange(slot.unsure, false)) look_again(zone);
}

// Finish or reset.
void ZonedVolume::manage(ZonedStep& step) {
  slots_[step.zone].managed = true;
  Io& io = step.io;
  io.op = step.op->kind == ZonedOp::Kind::finish ? Io::Op::finish : Io::Op::reset;
  io.zone = zones_[step.zone];
  io.lba_count = 0;
  io.iov_count = 0;
  io.buffer_index = -1;
  io.context = &step;
  io.on_complete = [](Io& done) { step_of(done).volume->managed(step_of(done)); };
  pool_.queue.submit(io);
}

void ZonedVolume::managed(ZonedStep& step) {
  const std::uint32_t zone = step.zone;
  slots_[zone].managed = false;
  if (step.io.status.ok()) {
    const ZoneAction action = action_of(*step.op);
    if (action == ZoneAction::reset) ++stats_.resets;
    apply(zone,
          machine_.decide(view(zone), usage_, {action, geometry_.zone_start(ZoneId{zone}), 0}));
  }
  if (std::exchange(slots_[zone].unsure, false) || !step.io.status.ok()) look_again(zone);
  end(step, step.io.status);
  go_on(zone);
}

void ZonedVolume::end(ZonedStep& step, const Status& status) {
  ZonedOp& op = *step.op;
  if (!status.ok() && op.status.ok()) op.status = status;
  if (op.all) return end_of_all(step);
  finish(op);
}

void ZonedVolume::finish(ZonedOp& op) {
  using enum ZonedOp::Kind;
  const bool data = op.kind == write || op.kind == append;
  const bool flushed =
      op.durability == Durability::flushed || durability_ == Durability::flushed || pool_.unsettled;
  const bool managed = op.kind == ZonedOp::Kind::finish || op.kind == reset;
  const bool durable = data ? flushed : managed && !canary(Canary::zones_not_flushed);
  if (op.status.ok() && durable) return pool_.flusher.request(op.internal.flush);
  answer(op);
}

void ZonedVolume::answer(ZonedOp& op) {
  --running_;
  ZonedSession::answer(op);
}

}  // namespace furrow
