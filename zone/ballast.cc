#include "zone/ballast.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "zone/emu_file.h"

namespace furrow::emu {

namespace {

constexpr auto kRefillEvery = std::chrono::milliseconds(100);

}  // namespace

Ballast::Ballast(int fd, std::uint64_t offset, std::uint64_t pieces)
    : fd_(fd), offset_(offset), pieces_(std::min(pieces, kPiecesMax)) {
  struct stat file {};
  // Inside the file: behind its end ext4 does not punch.
  const auto end = static_cast<off_t>(offset_ + pieces_ * kPieceBytes);
  if (pieces_ == 0 || fstat(fd_, &file) != 0) pieces_ = 0;
  if (pieces_ != 0 && file.st_size < end && ftruncate(fd_, end) != 0) pieces_ = 0;
  const std::lock_guard lock(mutex_);
  refill_locked();
  // Where there is less, what is stored in blocks that the file has is stored all the same.
  pieces_ = kept_;
  missing_.store(false);
}

// Pieces that are there already cost nothing, so that this also finds out which are.
void Ballast::refill_locked() {
  while (kept_ < pieces_ && allocate(fd_, offset_ + kept_ * kPieceBytes, kPieceBytes) == 0) ++kept_;
  missing_.store(kept_ < pieces_);
}

bool Ballast::move(std::uint64_t offset, std::uint64_t bytes, std::uint64_t end) {
  const std::uint64_t wanted = std::min(std::max(bytes, kPieceBytes), end - offset);
  // One more, for what the file system itself has to note.
  const std::uint64_t count = (wanted + kPieceBytes - 1) / kPieceBytes + 1;
  const std::lock_guard lock(mutex_);
  if (bytes > kWriteBytesMax || kept_ < count) return false;
  kept_ -= count;
  missing_.store(true);
  const int rc = fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                           static_cast<off_t>(offset_ + kept_ * kPieceBytes),
                           static_cast<off_t>(count * kPieceBytes));
  return rc == 0 && allocate(fd_, offset, wanted) == 0;
}

bool Ballast::whole() {
  if (!missing_.load(std::memory_order_relaxed)) return true;
  const std::lock_guard lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  if (now >= next_try_) {
    refill_locked();
    next_try_ = std::chrono::steady_clock::now() + kRefillEvery;
  }
  return !missing_.load();
}

}  // namespace furrow::emu
