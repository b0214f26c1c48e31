#include "log/recovery.h"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "log/recovery_steps.h"
#include "zone/blocking.h"
#include "zone/threads.h"

namespace furrow {

namespace {
constexpr unsigned kScanDepth = 64;
}

Result<RecoveryResult> Recovery::run() {
  Result<std::unique_ptr<IoQueue>> queue = device_.create_queue(kScanDepth);
  if (!queue.ok()) return queue.status();
  queue_ = std::move(*queue);
  using Step = Status (Recovery::*)();
  for (const Step step :
       {&Recovery::find_zones, &Recovery::scan_zones, &Recovery::let_go, &Recovery::finish_zones}) {
    const Status status = (this->*step)();
    if (!status.ok()) return status;
  }
  merge();
  verify_originals();
  const Status status = give_back_spares();
  if (!status.ok()) return status;
  return std::move(result_);
}

Status Recovery::reset(ZoneId zone) {
  if (options_.read_only) return {};
  Status status = manage_blocking(*queue_, Io::Op::reset, zone);
  while (status.code() == Code::io_error && reset_patience_.pause()) {
    status = manage_blocking(*queue_, Io::Op::reset, zone);
  }
  return status;
}

Status Recovery::scan_zones() {
  // A scanner waits for the device most of its time; beyond a dozen the device would only queue.
  constexpr unsigned kScannersMax = 12;
  const unsigned threads = std::max(1u, options_.threads);
  const unsigned wanted =
      std::max(threads, std::min(threads * options_.scanners_per_thread, kScannersMax));
  const auto scanners = std::max(1u, std::min(wanted, static_cast<unsigned>(zones_.size())));
  for (unsigned i = 0; i < scanners; ++i) {
    Result<std::unique_ptr<IoQueue>> queue = device_.create_queue(kScanDepth);
    if (!queue.ok()) return queue.status();
    scanners_.push_back(std::make_unique<Scanner>(pool_, std::move(*queue), patience_));
  }
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  Status first_error;
  const auto work = [&](Scanner& scanner) {
    for (std::size_t i = next++; i < zones_.size(); i = next++) {
      const Status status = scanner.scan(zones_[i]);
      const std::lock_guard lock(mutex);
      if (!status.ok() && first_error.ok()) first_error = status;
    }
  };
  run_on_threads(scanners, [&](unsigned i) { work(*scanners_[i]); });
  return first_error;
}

// A full zone does not say where its data ends: the next recovery, should this one be cut off,
// could take what the device happens to have behind that for more of it. It takes the zone before
// one with a trim for durable: what was found whole is made so first, and trims are noted in the
// order in which their zones were opened.
Status Recovery::note_ends() {
  for (const auto& scanner : scanners_) {
    std::ranges::move(scanner->trims, std::back_inserter(result_.new_trims));
  }
  std::ranges::sort(result_.new_trims, {}, [this](const ZoneTrim& trim) {
    return pool_.allocator.zone(trim.zone).opened_sequence;
  });
  if (options_.read_only || !options_.note_trim || result_.new_trims.empty()) return {};
  Status status = flush_blocking(*queue_);
  for (const ZoneTrim& trim : result_.new_trims) {
    if (status.ok()) status = options_.note_trim(trim);
  }
  return status;
}

// A zone that will not be written again must not hold one of the device's active zones.
Status Recovery::finish_zones() {
  const Status noted = note_ends();
  if (!noted.ok()) return noted;
  for (const auto& scanner : scanners_) {
    for (const ZoneId zone : scanner->to_finish) {
      if (options_.read_only) continue;
      const Status status = manage_blocking(*queue_, Io::Op::finish, zone);
      if (!status.ok()) {
        result_.lost.push_back({zone, "cannot be finished: " + status.describe()});
      }
    }
    for (auto& [volume, resumes] : scanner->resumes) {
      for (auto& [stream, resume] : resumes) {
        pool_.allocator.set_use(resume.zone, ZoneUse::open);
        result_.volumes[volume].resumes.emplace(stream, std::move(resume));
      }
    }
    std::ranges::move(scanner->gaps, std::back_inserter(result_.gaps));
    result_.highest_sequence = std::max(result_.highest_sequence, scanner->highest_sequence);
    for (const ZoneId zone : scanner->unreadable) keep_unreadable(zone);
  }
  if (options_.read_only) return {};
  // What was found whole is durable from here on.
  return flush_blocking(*queue_);
}

bool Recovery::is_store(std::uint64_t volume) const {
  return std::ranges::find(options_.stores, volume) != options_.stores.end();
}

// What a store could not read may be there at the next opening, if the zone is left alone until
// then. A cache lets go of what it cannot name.
void Recovery::keep_unreadable(ZoneId zone) {
  const std::uint64_t owner = pool_.allocator.zone(zone).owner;
  result_.volumes[owner].hidden = true;
  pool_.allocator.note_sequence(zone, 0);  // of what is not known
  const auto spare = spares_.find(owner);
  if (spare != spares_.end() && spare->second.zone == zone) spare->second.needed = true;
  if (!is_store(owner)) return;
  pool_.allocator.note_stray(zone, 0);
  if (given_up_now(zone)) return;  // deletions stay until it has been collected
  if (pool_.allocator.zone(zone).use == ZoneUse::bad) return;
  pool_.allocator.set_use(zone, ZoneUse::bad);
  result_.lost.push_back(
      {zone,
       "holds headers that cannot be read, or pages that may be torn; until the pool is opened "
       "again it is kept as it is, and not collected, unless they are given up "
       "(`furrowctl pool check --repair --give_up`)",
       Missing::some});
}

Result<RecoveryResult> recover(ZonedDevice& device, PoolContext& pool,
                               const RecoveryOptions& options) {
  return Recovery(device, pool, options).run();
}

}  // namespace furrow
