#include "zone/reclaimer.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

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

void Reclaimer::finish() {
  {
    const std::lock_guard lock(mutex_);
    finishing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Reclaimer::add_left() {
  if (when_ == Reclaim::never) return;
  const std::lock_guard lock(mutex_);
  look_ = true;
  changed_.notify_all();
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
  changed_.wait(lock, [this] { return (pending_.empty() && !working_ && !look_) || stop_; });
}

void Reclaimer::run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (look_) find_left(lock);
    if (pending_.empty()) {
      if (finishing_) return;
      changed_.notify_all();
      changed_.wait(lock);
      continue;
    }
    const Clock::time_point due = pending_.front().due;
    if (due > now() && !finishing_) {
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

// From zone to zone: what is in between has no room.
void Reclaimer::find_left(std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  std::vector<ZoneId> left;
  for (std::uint32_t i = 0; i < superblock_.geometry.zone_count;) {
    const auto begin = static_cast<off_t>(superblock_.offset_of(ZoneId{i}, 0));
    const off_t data = lseek(fd_, begin, SEEK_DATA);
    if (data < 0) break;  // none behind it, or a file system that cannot say
    i = static_cast<std::uint32_t>((static_cast<std::uint64_t>(data) - superblock_.data_offset) /
                                   superblock_.stride_bytes);
    if (i < superblock_.geometry.zone_count && table_.written_lbas(ZoneId{i}) == 0) {
      left.push_back(ZoneId{i});
    }
    ++i;
  }
  lock.lock();
  look_ = false;
  const Clock::time_point due = now() + (when_ == Reclaim::lazy ? kDelay : Clock::duration());
  for (const ZoneId zone : left) pending_.push_back({zone, due});
  std::ranges::stable_sort(pending_, {}, &Pending::due);
}

void Reclaimer::punch_zone(ZoneId zone, std::unique_lock<std::mutex>& lock) {
  const bool at_once = finishing_;
  lock.unlock();
  // Else a power cut could bring back the zone's old write pointer, over data that is gone.
  const std::optional<std::uint32_t> life = table_.empty_life(zone);
  bool more = life && (all_synced_ || sync_(sync_context_).ok());
  all_synced_ = more && at_once;
  lock.lock();
  std::uint64_t end = superblock_.stride_bytes;
  while (more && end != 0 && !stop_ && !unsupported_) {
    const std::uint64_t bytes = at_once ? end : std::min(end, kPieceBytes);
    end -= bytes;
    lock.unlock();
    more = punch_piece(zone, *life, end, bytes);
    lock.lock();
    const Clock::time_point next = now() + kPause;
    while (more && end != 0 && !stop_ && !finishing_ && now() < next) sleep_until(next, lock);
  }
}

// Not of a later life either: its reset was not synced yet.
bool Reclaimer::punch_piece(ZoneId zone, std::uint32_t life, std::uint64_t offset,
                            std::uint64_t bytes) {
  if (!table_.hold_if_empty(zone, life)) return false;
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
