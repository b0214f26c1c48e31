#include "tests/sim/sim_device.h"

#include <algorithm>
#include <utility>

#include "zone/zone_state_machine.h"

namespace furrow::sim {

namespace {

constexpr std::uint32_t kMetadataZones = 2;
// The engine takes what it cannot read for 15 s for lost.
constexpr std::uint64_t kUnreadableNsMax = 5'000'000'000, kBetweenSpellsNs = 20'000'000'000;
constexpr std::uint64_t kFullNsMax = 10'000'000'000;
constexpr Status kNoRoom(Code::no_space, Origin::zone, "the file system has no room for it");
constexpr Status kPowerCut(Code::aborted, Origin::zone, "the power was cut");

bool is_write(const Io& io) { return io.op == Io::Op::write || io.op == Io::Op::append; }

}  // namespace

SimDevice::SimDevice(SimMedium& medium, SimClock& clock, Trace& trace, const SimLatency& latency,
                     SimRandom random)
    : ZonedDevice(medium.geometry(), "sim:"),
      medium_(medium),
      clock_(clock),
      trace_(trace),
      latency_(latency),
      random_(random),
      table_(geometry_, this) {
  for (std::uint32_t i = 0; i < geometry_.zone_count; ++i) {
    table_.load(ZoneId{i}, medium.record(ZoneId{i}));
  }
}

Result<std::unique_ptr<IoQueue>> SimDevice::create_queue(unsigned) {
  if (dead_) return kPowerCut;
  return std::unique_ptr<IoQueue>(std::make_unique<SimQueue>(*this));
}

Result<std::vector<ZoneInfo>> SimDevice::report() {
  if (!event(1)) return kPowerCut;
  return table_.report();
}

std::uint64_t SimDevice::due() const {
  std::uint64_t due = SimExecutor::kNever;
  for (const SimQueue* queue : queues_) due = std::min(due, queue->due());
  return due;
}

bool SimDevice::event(std::uint64_t what) {
  if (dead_) return false;
  trace_.add(what);
  if (events_left_ != 0 && --events_left_ == 0) {
    dead_ = true;
    if (on_death_) on_death_();
  }
  return !dead_;
}

bool SimDevice::fails(std::uint64_t one_in) {
  if (one_in == 0 || !random_.one_in(one_in)) return false;
  ++faults_injected_;
  return true;
}

bool SimDevice::unreadable(std::uint64_t lba, std::uint64_t lbas) {
  const bool may_begin =
      unreadable_.empty() || clock_.now_ns >= unreadable_until_ns_ + kBetweenSpellsNs;
  if (may_begin && fails(faults_.unreadable_spells)) {
    ++spells_;
    unreadable_.clear();
    for (std::uint64_t count = random_.between(1, 3); count != 0; --count) {
      unreadable_.push_back(lba + random_.below(lbas));
    }
    unreadable_until_ns_ = clock_.now_ns + random_.log_between(100'000, kUnreadableNsMax);
  }
  return clock_.now_ns < unreadable_until_ns_ &&
         std::ranges::any_of(unreadable_,
                             [&](std::uint64_t each) { return each >= lba && each < lba + lbas; });
}

bool SimDevice::is_full() {
  if (fails(faults_.full_spells)) {
    ++spells_;
    full_until_ns_ = clock_.now_ns + random_.log_between(100'000, kFullNsMax);
  }
  const bool full = full_until_ns_ > clock_.now_ns && random_.one_in(2);
  found_no_room_ += full ? 1 : 0;
  return full;
}

std::uint64_t SimDevice::latency_ns() {
  const std::uint64_t ns = random_.between(latency_.ns_min, latency_.ns_max);
  return latency_.slow_one_in != 0 && random_.one_in(latency_.slow_one_in) ? ns * 20 : ns;
}

void SimDevice::lose(ZoneId zone) {
  const ZoneState state = table_.info(zone).state;
  if (state == ZoneState::offline || state == ZoneState::read_only) return;
  table_.degrade(zone, faults_.offline ? ZoneState::offline : ZoneState::read_only, "");
  medium_.lose_zone(zone,
                    faults_.offline ? ZoneRecord::Class::offline : ZoneRecord::Class::read_only);
  lost_zones_.push_back(zone);
}

// The one that is written to, or any other; the metadata ring's two would be the end of the pool.
void SimDevice::lose_some_zone(const Io& io) {
  const bool this_one = random_.one_in(2) && io.zone.value >= kMetadataZones;
  lose(this_one ? io.zone
                : ZoneId{static_cast<std::uint32_t>(
                      random_.between(kMetadataZones, geometry_.zone_count - 1))});
}

// One that is still whole; of the metadata ring each zone has a size that it needs.
void SimDevice::shrink(ZoneId zone) {
  const std::uint64_t whole = geometry_.zone_capacity_lbas;
  if (zone.value < kMetadataZones || medium_.capacity(zone) != whole) return;
  medium_.shrink(zone, random_.between(whole / 2, whole - 1));
}

// What the device has just decided about an operation that it was given.
void SimDevice::watch_submission(const Io& io) {
  if (!violation_.empty()) return;
  const std::string zone = std::to_string(io.zone.value);
  const bool is_hosts = is_hosts_ && is_hosts_(io.zone);
  switch (io.status.nvme()) {
    case nvme_status::kTooManyActive:
      if (may_exceed_limits_) break;
      violation_ = "more active zones than MAR, with zone " + zone;
      break;
    case nvme_status::kTooManyOpen:
      if (may_exceed_limits_) break;
      violation_ = "more open zones than MOR, with zone " + zone;
      break;
    case nvme_status::kZoneInvalidWrite:
      if (std::ranges::count(cut_short_, io.zone) != 0) break;  // the one before it had no place
      if (is_hosts && faults_.any()) break;  // or failed: a host need not have waited for it
      violation_ = "a write that is not at the write pointer of zone " + zone;
      break;
    case nvme_status::kZoneBoundary:
    case nvme_status::kLbaOutOfRange:
      violation_ = "an operation that leaves zone " + zone;
      break;
    default:
      break;
  }
  if (io.op == Io::Op::reset && io.status.ok() && !is_hosts) {
    for (const SimQueue* queue : queues_) {
      if (queue->reads(io.zone)) violation_ = "a reset of zone " + zone + " under a read";
    }
  }
  if (io.status.code() == Code::busy) violation_ = "a reset or finish under a write, zone " + zone;
}

SimQueue::SimQueue(SimDevice& device)
    : TableQueue(device.geometry(), device.table_, false), device_(device) {
  device.queues_.push_back(this);
}

SimQueue::~SimQueue() { std::erase(device_.queues_, this); }

Status SimQueue::register_buffers(std::span<const iovec> buffers) {
  set_registered(buffers.size());
  return {};
}

std::uint64_t SimQueue::due() const {
  if (!settled() || !appends_.empty() || (device_.dead_ && busy())) return device_.clock_.now_ns;
  std::uint64_t due = SimExecutor::kNever;
  for (const Pending& each : pending_) due = std::min(due, each.due_ns);
  return due;
}

bool SimQueue::reads(ZoneId zone) const {
  return std::ranges::any_of(pending_, [&](const Pending& each) {
    return each.io->op == Io::Op::read && geometry().zone_of(each.io->lba) == zone;
  });
}

void SimQueue::do_submit(Io& io) {
  if (moving_) return TableQueue::do_submit(io);
  if (!device_.event(static_cast<std::uint64_t>(io.op) + 16 + io.lba.value * 64 +
                     std::uint64_t{io.zone.value} * 64)) {
    return decide(io, kPowerCut);
  }
  if (refused(io)) return;
  if (io.op == Io::Op::append) return appends_.push_back(&io);
  TableQueue::do_submit(io);
  device_.watch_submission(io);
}

// Some of them, or all.
void SimQueue::give_appends() {
  if (appends_.empty()) return;
  device_.random_.shuffle(appends_);
  const bool all = device_.random_.one_in(2);
  std::vector<Io*> given;
  given.swap(appends_);
  for (Io* const io : given) {
    if (!all && device_.random_.one_in(3)) {
      appends_.push_back(io);
      continue;
    }
    TableQueue::do_submit(*io);
    device_.watch_submission(*io);
  }
}

// True: a fault has taken care of it.
bool SimQueue::refused(Io& io) {
  const SimFaults& faults = device_.faults_;
  if (io.op == Io::Op::reset && device_.fails(faults.reset_losses)) {
    device_.lose_some_zone(io);
    decide(io, {Code::io_error, Origin::zone, "the reset took the zone away"});
    return true;
  }
  if (io.op == Io::Op::reset && device_.fails(faults.capacity_losses)) device_.shrink(io.zone);
  const std::uint64_t errors = io.op == Io::Op::reset    ? faults.reset_errors
                               : io.op == Io::Op::finish ? faults.finish_errors
                                                         : 0;
  if (device_.fails(errors)) {
    decide(io, {Code::io_error, Origin::zone, "the zone management command failed"});
    return true;
  }
  if ((io.op == Io::Op::reset || io.op == Io::Op::finish) && device_.is_full()) {
    decide(io, kNoRoom);
    return true;
  }
  if (!is_write(io)) return false;
  if (device_.fails(faults.zone_losses)) device_.lose_some_zone(io);
  const bool first = device_.table_.info(io.zone).state == ZoneState::empty;
  if (first && device_.fails(faults.limit_errors)) {
    decide(io, zone_status(device_.random_.one_in(2) ? nvme_status::kTooManyActive
                                                     : nvme_status::kTooManyOpen));
    return true;
  }
  if (device_.table_.info(io.zone).written_lbas + io.lba_count >
      device_.medium_.capacity(io.zone)) {
    device_.cut_short_.push_back(io.zone);
    decide(io, zone_status(nvme_status::kZoneBoundary));
    return true;
  }
  if (!device_.fails(faults.write_moves)) return false;
  move_write(io);
  return true;
}

struct SimQueue::MovedWrite {
  Io io;
  Io* original = nullptr;
  SimQueue* queue = nullptr;
  bool garbled = false;
};

void SimQueue::move_write(Io& io) {
  moved_.push_back(std::make_unique<MovedWrite>());
  MovedWrite& moved = *moved_.back();
  moved.io = io;
  moved.original = &io;
  moved.queue = this;
  moved.garbled = device_.random_.one_in(2);
  moved.io.context = &moved;
  moved.io.on_complete = [](Io& done) {
    const auto* const its = static_cast<MovedWrite*>(done.context);
    SimQueue& queue = *its->queue;
    Io& original = *its->original;
    const Status status = done.status;
    std::erase_if(queue.moved_, [&](const auto& each) { return each.get() == its; });
    queue.complete(original, status.ok() ? Status(Code::io_error, Origin::zone,
                                                  "the write failed, having moved the pointer")
                                         : status);
  };
  moving_ = true;
  submit(moved.io);
  moving_ = false;
  device_.watch_submission(moved.io);
}

// The one in flight that ends where this one begins. Null: there is none.
SimQueue::Pending* SimQueue::write_before(const Io& io) {
  const auto before = std::ranges::find_if(pending_, [&](const Pending& each) {
    return is_write(*each.io) && each.io->zone == io.zone && !each.misplaced &&
           first_lba(*each.io).value + each.io->lba_count == first_lba(io).value;
  });
  return before == pending_.end() ? nullptr : &*before;
}

// To `lba`, of the device.
void SimQueue::hand_over(const Io& io, std::uint64_t lba) {
  const std::uint64_t at = lba - geometry().zone_start(io.zone).value;
  std::uint64_t byte = 0;
  for (std::uint32_t i = 0; i < io.iov_count; ++i) {
    const std::span data(static_cast<const std::byte*>(io.iov[i].iov_base), io.iov[i].iov_len);
    device_.medium_.hand_over(io.zone, at, byte, data);
    byte += data.size();
  }
}

// The device has a write's data from here on; it may survive a power cut before its completion.
void SimQueue::start_transfer(Io& io) {
  bool misplaced = false;
  if (is_write(io)) {
    Pending* const before = write_before(io);
    misplaced =
        before != nullptr && !device_.misplaced_ && device_.fails(device_.faults_.misplaced_writes);
    std::uint64_t lba = first_lba(io).value;
    if (misplaced) {
      device_.misplaced_ = true;
      before->misplaced = true;
      lba = first_lba(*before->io).value;
      hand_over(*before->io, lba + io.lba_count);
    }
    hand_over(io, lba);
    const std::uint64_t at = lba - geometry().zone_start(io.zone).value;
    const bool garbled = std::ranges::any_of(
        moved_, [&](const auto& each) { return &each->io == &io && each->garbled; });
    if (garbled) device_.medium_.garble(io.zone, at, io.lba_count, device_.random_);
  }
  pending_.push_back({&io, device_.clock_.now_ns + device_.latency_ns(), {}, misplaced});
}

void SimQueue::start_flush(Io& io) {
  pending_.push_back(
      {&io, device_.clock_.now_ns + device_.latency_ns(), device_.medium_.mark(), false});
}

unsigned SimQueue::abort_everything() {
  unsigned count = abort_lists(kPowerCut);
  for (Io* const io : std::exchange(appends_, {})) {
    complete(*io, kPowerCut);
    ++count;
  }
  std::vector<Pending> pending;
  pending.swap(pending_);
  for (const Pending& each : pending) {
    complete(*each.io, kPowerCut);
    ++count;
  }
  return count;
}

unsigned SimQueue::do_poll() {
  if (device_.dead_) return abort_everything();
  give_appends();
  const std::vector<ZoneId> told = device_.cut_short_;
  unsigned count = settle();
  for (const ZoneId zone : told) std::erase(device_.cut_short_, zone);
  std::vector<Pending> due;
  std::erase_if(pending_, [&](Pending& each) {
    if (each.due_ns > device_.clock_.now_ns) return false;
    due.push_back(std::move(each));
    return true;
  });
  std::ranges::stable_sort(due, {}, &Pending::due_ns);
  for (Pending& each : due) {
    if (device_.event(static_cast<std::uint64_t>(each.io->op) + 32)) {
      count += end_transfer(*each.io, perform(each));
    } else {
      complete(*each.io, kPowerCut);
      ++count;
    }
  }
  return count;
}

Status SimQueue::perform(Pending& done) {
  Io& io = *done.io;
  if (io.op == Io::Op::flush) {
    if (device_.fails(device_.faults_.flush_errors)) {
      ++device_.flushes_failed_;
      return {Code::io_error, Origin::zone, "the flush failed"};
    }
    device_.medium_.commit(done.marks);
  } else if (io.op == Io::Op::read) {
    return read(io, transfer_bytes(io));
  } else if (done.misplaced) {
    return {Code::io_error, Origin::zone, "the write was placed elsewhere"};
  } else if (device_.is_full()) {
    return kNoRoom;
  } else if (device_.fails(device_.faults_.write_errors)) {
    return {Code::io_error, Origin::zone, "the medium cannot be written here"};
  }
  return {};
}

Status SimQueue::read(const Io& io, std::uint64_t bytes) {
  constexpr Status kUnreadable(Code::io_error, Origin::zone, "the medium cannot be read here");
  SimRandom& random = device_.random_;
  ZoneId zone = geometry().zone_of(io.lba);
  std::uint64_t at = io.lba.value - geometry().zone_start(zone).value;
  const std::uint64_t lbas = bytes / geometry().lba_bytes;
  const bool spoiled = std::ranges::any_of(device_.medium_.spoiled(zone), [&](std::uint64_t lba) {
    return lba >= at && lba < at + lbas;
  });
  const bool hidden = std::ranges::any_of(device_.hidden_, [&](std::uint64_t lba) {
    return lba >= io.lba.value && lba < io.lba.value + lbas;
  });
  if (spoiled || hidden || device_.unreadable(io.lba.value, lbas) ||
      device_.fails(device_.faults_.read_errors)) {
    read_from(io, zone, at, random.below(lbas + 1) * geometry().lba_bytes);
    return kUnreadable;
  }
  const bool again = std::ranges::find(device_.misread_, io.lba) != device_.misread_.end();
  if (!again && device_.fails(device_.faults_.misdirected_reads)) {
    device_.misread_.push_back(io.lba);
    zone = ZoneId{static_cast<std::uint32_t>(random.below(geometry().zone_count))};
    at = random.below(geometry().zone_capacity_lbas);
  }
  read_from(io, zone, at, bytes);
  return {};
}

void SimQueue::read_from(const Io& io, ZoneId zone, std::uint64_t at, std::uint64_t bytes) {
  for (std::uint32_t i = 0; i < io.iov_count && bytes != 0; ++i) {
    const std::uint64_t length = std::min<std::uint64_t>(bytes, io.iov[i].iov_len);
    device_.medium_.read(zone, at, {static_cast<std::byte*>(io.iov[i].iov_base), length});
    at += length / geometry().lba_bytes;
    bytes -= length;
  }
}

unsigned SimQueue::do_wait(std::uint64_t) {
  for (;;) {
    const unsigned count = do_poll();
    if (count != 0 || in_flight() == 0) return count;
    device_.clock_.now_ns = std::max(device_.clock_.now_ns, due());
  }
}

}  // namespace furrow::sim
