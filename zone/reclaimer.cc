#include "zone/reclaimer.h"

#include <fcntl.h>
#include <linux/falloc.h>

#include <algorithm>
#include <cerrno>

#include "zone/threads.h"

namespace furrow::emu {

namespace {
constexpr std::uint64_t kPieceBytes = 1u << 20;
constexpr auto kDelay = std::chrono::seconds(2);       // lazy: a zone stays empty this long
constexpr auto kPause = std::chrono::milliseconds(1);  // between pieces
}  // namespace

Reclaimer::Reclaimer(int fd, const Superblock& superblock, ZoneTable& table, Status (*sync)(void*),
                     void* sync_context, Reclaim when)
    : fd_(fd),
      superblock_(superblock),
      table_(table),
      sync_(sync),
      sync_context_(sync_context),
      when_(when) {}

Status Reclaimer::start() {
  return when_ == Reclaim::never ? Status() : start_thread(thread_, [this] { run(); });
}

void Reclaimer::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Reclaimer::add(ZoneId zone) {
  if (when_ == Reclaim::never) return;
  const std::lock_guard lock(mutex_);
  if (unsupported_ || stop_) return;
  std::erase_if(pending_, [zone](const Pending& pending) { return pending.zone == zone; });
  pending_.push_back({zone, now() + (when_ == Reclaim::lazy ? kDelay : Clock::duration())});
  changed_.notify_all();
}

void Reclaimer::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return (pending_.empty() && !working_) || stop_; });
}

void Reclaimer::run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (pending_.empty()) {
      changed_.notify_all();
      changed_.wait(lock);
      continue;
    }
    const Clock::time_point due = pending_.front().due;
    if (due > now()) {
      sleep_until(due, lock);
      continue;
    }
    const ZoneId zone = pending_.front().zone;
    pending_.pop_front();
    working_ = true;
    punch_zone(zone, lock);
    working_ = false;
  }
}

void Reclaimer::punch_zone(ZoneId zone, std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  // Else a power cut could bring back the zone's old write pointer, over data that is gone.
  bool more = table_.written_lbas(zone) == 0 && sync_(sync_context_).ok();
  lock.lock();
  std::uint64_t end = superblock_.stride_bytes;
  while (more && end != 0 && !stop_ && !unsupported_) {
    const std::uint64_t bytes = std::min(end, kPieceBytes);
    end -= bytes;
    lock.unlock();
    more = punch_piece(zone, end, bytes);
    lock.lock();
    const Clock::time_point next = now() + kPause;
    while (more && end != 0 && !stop_ && now() < next) sleep_until(next, lock);
  }
}

bool Reclaimer::punch_piece(ZoneId zone, std::uint64_t offset, std::uint64_t bytes) {
  if (!table_.hold_if_empty(zone)) return false;
  const int error = punch(superblock_.offset_of(zone, 0) + offset, bytes);
  table_.release(zone);
  if (error == 0) return true;
  if (error == EOPNOTSUPP || error == ENOSYS) {
    const std::lock_guard lock(mutex_);
    unsupported_ = true;
    pending_.clear();
  }
  return false;  // the space stays with the zone: no harm, its next data overwrites it
}

int Reclaimer::punch(std::uint64_t offset, std::uint64_t bytes) {
  const int rc = fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                           static_cast<off_t>(offset), static_cast<off_t>(bytes));
  return rc == 0 ? 0 : errno;
}

}  // namespace furrow::emu
