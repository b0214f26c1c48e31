#include "zone/drive_device.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "zone/drive_queue.h"
#include "zone/threads.h"

namespace furrow {

namespace {
constexpr auto kLookEvery = std::chrono::seconds(1);
constexpr std::uint32_t kLookMax = 512;  // zones of a report
constexpr unsigned kTriesMax = 8;        // of a finish that is interrupted
constexpr Status kGone(Code::io_error, Origin::zone,
                       "the drive does not answer: it was removed, or has failed", ENODEV);
constexpr Status kInterfered(Code::io_error, Origin::zone,
                             "another program wrote to the zone or reset it; nothing but Furrow "
                             "may use the drive");
constexpr Status kInterrupted(
    Code::io_error, Origin::zone,
    "the drive was reset with writes to the zone in flight; it is sealed");
constexpr Status kLost(Code::io_error, Origin::zone,
                       "the drive has lost what was written to it: its power failed, or another "
                       "program reset a zone");

bool is_transfer(Io::Op op) {
  return op == Io::Op::read || op == Io::Op::write || op == Io::Op::append;
}

// Taken away by the drive, in part or altogether.
bool is_taken(const ZoneInfo& zone) {
  return zone.state == ZoneState::read_only || zone.state == ZoneState::offline;
}
}  // namespace

DriveDevice::DriveDevice(const Drive& drive, Access access, std::string uri)
    : ZonedDevice(drive.geometry(), std::move(uri)),
      drive_(drive),
      access_(access),
      table_(drive.geometry(), nullptr),
      may_be_empty_(drive.geometry().zone_count, false) {}

Status DriveDevice::start() {
  if (access_ == Access::exclusive) take_changed();
  changed_zones_.clear();  // what changed until now the report has
  Status status = load_zones();
  // (Also when nothing may be written: it says of a read that failed why it did.)
  if (status.ok()) status = start_thread(thread_, [this] { run(); });
  return status;
}

DriveDevice::~DriveDevice() { FURROW_CHECK(!thread_.joinable()); }

void DriveDevice::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wakes_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Result<std::vector<ZoneInfo>> DriveDevice::report() {
  Result<std::vector<ZoneInfo>> zones = drive_.report();
  if (!zones) return zones;
  for (ZoneInfo& zone : *zones) {  // why a zone was sealed the drive does not know
    if (const ZoneInfo ours = table_.info(zone.zone); *ours.reason != '\0') {
      zone.reason = ours.reason;
    }
  }
  return zones;
}

Status DriveDevice::load_zones() {
  const Result<std::vector<ZoneInfo>> zones = drive_.report();
  if (!zones) return zones.status();
  for (const ZoneInfo& zone : *zones) load_zone(zone);
  return {};
}

// A zone that was left open, or active without data, would hold a resource that nobody knows of.
void DriveDevice::load_zone(const ZoneInfo& info) {
  using Class = ZoneRecord::Class;
  const auto load = [&](Class kind, const char* reason) {
    table_.load(info.zone, {kind, 0, info.written_lbas}, reason);
  };
  if (info.state == ZoneState::offline) return load(Class::offline, info.reason);
  if (info.state == ZoneState::read_only) return load(Class::read_only, info.reason);
  if (info.state == ZoneState::full) return load(Class::full, "");
  const bool unaligned = *info.reason != '\0';
  Status status;
  if (access_ == Access::exclusive && is_active(info.state)) {
    if (unaligned) {
      status = drive_.manage(Io::Op::finish, info.zone);
    } else if (info.written_lbas == 0) {
      status = drive_.manage(Io::Op::reset, info.zone);
    } else if (is_open(info.state)) {
      status = drive_.manage(Io::Op::close, info.zone);
    }
  }
  if (!status.ok()) return load(Class::read_only, "the drive does not close the zone");
  load(unaligned ? Class::full : Class::writable, info.reason);
}

// --- the device's thread ---

void DriveDevice::take(Io& io, DriveQueue& queue) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back({&io, &queue});
  }
  wakes_.notify_all();
}

// Of what the drive says to have changed a part is looked at at a time, so that jobs need not wait.
void DriveDevice::run() {
  const auto wanted = [this] { return stop_ || !jobs_.empty(); };
  auto next_look = std::chrono::steady_clock::now() + kLookEvery;
  bool go_on = false;
  std::unique_lock lock(mutex_);
  for (;;) {
    if (!go_on) wakes_.wait_until(lock, next_look, wanted);
    if (stop_ && jobs_.empty()) return;
    const std::vector<Job> jobs = std::exchange(jobs_, {});
    lock.unlock();
    for (const Job& job : jobs) answer(job);
    if (std::chrono::steady_clock::now() >= next_look) {
      if (!drive_.present()) gone_.store(true, std::memory_order_relaxed);
      if (keeps_list_) take_changed();
      next_look = std::chrono::steady_clock::now() + kLookEvery;
      go_on = true;
    }
    if (go_on) go_on = examine_changed();
    lock.lock();
  }
}

void DriveDevice::answer(const Job& job) {
  Io& io = *job.io;
  if (io.op == Io::Op::flush) {
    io.status = examine_flush(io.status);
  } else {
    io.status = is_transfer(io.op) ? examine(io) : manage(io.op, io.zone);
  }
  job.queue->answer(io);
}

void DriveDevice::take_changed() {
  const Status status = drive_.take_changed(changed_zones_);
  keeps_list_ = status.code() != Code::unsupported;
  if (!status.ok() && keeps_list_) (void)does_not_answer(status);
  std::ranges::sort(changed_zones_);  // (some may be there from before)
  changed_zones_.erase(std::unique(changed_zones_.begin(), changed_zones_.end()),
                       changed_zones_.end());
}

// Some zones of the list that are neighbours. Are there more? None that can be seen to now where
// the drive does not report: they stay.
bool DriveDevice::examine_changed() {
  if (changed_zones_.empty()) return false;
  const ZoneId first = changed_zones_.front();
  std::uint32_t count = 1;
  while (count < changed_zones_.size() && count < kLookMax &&
         changed_zones_[count].value == first.value + count) {
    ++count;
  }
  const Result<std::vector<ZoneInfo>> now = ask(first, count);
  if (!now) return false;
  for (const ZoneInfo& info : *now) {
    if (is_taken(info)) degrade(info);
  }
  changed_zones_.erase(changed_zones_.begin(), changed_zones_.begin() + count);
  return !changed_zones_.empty();
}

void DriveDevice::degrade(const ZoneInfo& info) {
  if (table_.info(info.zone).state == info.state) return;
  table_.degrade(info.zone, info.state, info.reason);
  zones_taken_.fetch_add(1);
}

// The zone is taken (ZoneTable::take). What an operation takes is entered before the drive does it,
// what it gives back after, so that the table never promises what the drive does not have.
Status DriveDevice::manage(Io::Op op, ZoneId zone) {
  const ZoneState before = table_.info(zone).state;
  Status status = op == Io::Op::open ? table_.manage(op, zone) : Status();
  const bool reset = op == Io::Op::reset;
  if (reset) may_be_empty_[zone.value] = true;
  if (status.ok()) status = op == Io::Op::finish ? finish(zone) : drive_.manage(op, zone);
  if (status.ok() && op != Io::Op::open) {
    if (reset) was_reset(zone);
    status = table_.manage(op, zone);
    if (reset) may_be_empty_[zone.value] = false;
  } else if (!status.ok()) {
    const Result<std::vector<ZoneInfo>> now = ask(zone, 1);
    if (!now.ok()) {
      status = now.status();
    } else if (is_taken((*now)[0])) {
      degrade((*now)[0]);
      status = zone_status(nvme_status::kInvalidTransition);
    } else if (op == Io::Op::open && !is_open(before)) {
      const Status undone =
          table_.manage(before == ZoneState::empty ? Io::Op::reset : Io::Op::close, zone);
      FURROW_CHECK(undone.ok());
    }
    if (reset && now) may_be_empty_[zone.value] = (*now)[0].state == ZoneState::empty;
  }
  table_.leave(op, zone);
  return status;
}

// `why`: what the drive's report has failed with; it may have failed for once.
Status DriveDevice::does_not_answer(const Status& why) {
  if (why.sys_errno() == ENODEV) gone_.store(true, std::memory_order_relaxed);
  return kGone;
}

// How much the drive has lost of a zone it does not tell any more when that is full: where it may
// have lost something that is looked at before.
Status DriveDevice::finish(ZoneId zone) {
  for (unsigned tries = 1;; ++tries) {
    const Result<std::vector<ZoneInfo>> now =
        in_doubt() ? ask(zone, 1) : Result(std::vector<ZoneInfo>());
    if (!now) return now.status();
    const std::uint64_t before = drive_.interruptions();
    const Status status = drive_.manage(Io::Op::finish, zone);
    if (status.ok() || drive_.interruptions() == before || tries == kTriesMax) return status;
  }
}

// Where zones stand by the drive's word. One that ends before its acknowledged data has lost some.
Result<std::vector<ZoneInfo>> DriveDevice::ask(ZoneId first, std::uint32_t count) {
  std::vector<std::uint64_t> written(count);  // before the report, so no more than it
  for (std::uint32_t i = 0; i < count; ++i) {
    written[i] = table_.written_lbas(ZoneId{first.value + i});
  }
  const Result<std::vector<ZoneInfo>> now = drive_.report(first, count);
  if (!now) return does_not_answer(now.status());
  for (std::uint32_t i = 0; i < count; ++i) {
    const ZoneInfo& zone = (*now)[i];
    const bool tells = zone.state == ZoneState::empty || is_active(zone.state);
    if (tells && zone.written_lbas < written[i] && !may_be_empty_[first.value + i]) {
      lost_.store(true);
    }
  }
  return now;
}

// Why did the transfer fail? The drive is asked where its zone stands.
Status DriveDevice::examine(Io& io) {
  const ZoneId zone = io.op == Io::Op::read ? geometry_.zone_of(io.lba) : io.zone;
  const Result<std::vector<ZoneInfo>> now = ask(zone, 1);
  if (!now) return now.status();
  const ZoneInfo& info = (*now)[0];
  const bool read = io.op == Io::Op::read;
  if (is_taken(info)) {
    degrade(info);
    if (info.state == ZoneState::offline) return zone_status(nvme_status::kZoneOffline);
    if (!read) return zone_status(nvme_status::kZoneReadOnly);
  }
  return read ? io.status : examine_write(io, info);
}

// The zone is finished, unless nothing of what was interrupted is in it: the table is about to seal
// it, and does not count it as active from then on.
Status DriveDevice::examine_write(Io& io, const ZoneInfo& now) {
  const bool interrupted = io.status.ok();
  const std::uint64_t data = table_.written_lbas(io.zone);
  const std::uint64_t done = bytes_done(io) / geometry_.lba_bytes;
  const bool clean = *now.reason == '\0';
  const bool can_be_written = now.state == ZoneState::empty || is_active(now.state);
  if (interrupted && can_be_written && clean && now.written_lbas == data + done) return {};
  // All that lies behind the data, up to what this or others in flight may have written, is ours.
  const bool many = drive_.appends();
  const std::uint64_t end = many ? table_.admitted_lbas(io.zone) : data + io.lba_count;
  const bool ours = now.written_lbas >= data &&
                    (now.written_lbas <= end || now.state == ZoneState::full) && clean;
  // Another append in flight would open an empty one. If this fails too the zone's reset will tell.
  const bool may_open = many && now.state == ZoneState::empty;
  if (is_active(now.state) || may_open) (void)finish(io.zone);
  if (!ours) return kInterfered;
  return interrupted ? kInterrupted : io.status;
}

// One that was interrupted, or done while something else was, is sent again: it covers what was
// written before it, if that is there.
Status DriveDevice::examine_flush(const Status& failure) {
  const std::uint64_t seen = drive_.interruptions();
  const Result<std::vector<ZoneInfo>> now = ask(ZoneId{0}, geometry_.zone_count);
  if (now) looked_at_.store(seen);
  const Status status = now ? failure : now.status();
  if (status.ok()) return flushed();
  flush_failed_.store(true);
  return status;
}

Status DriveDevice::flushed() const {
  if (lost_.load()) return kLost;
  return flush_failed_.load() ? zone_failure(Code::io_error, kFlushFailed) : Status();
}

}  // namespace furrow
