// Ballast: room that an emulated device keeps in the file system under it, as blocks of its
// file behind the zones, so that what must be written goes on for a while when that is full:
// deletes, the metadata, copies that free zones. A write that finds no room gets some of it, in its
// zone.
//
// Nothing new should be stored until it is whole again (ZonedDevice::short_of_room()).
//
// Threads: any.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>

namespace furrow::emu {

class Ballast {
 public:
  static constexpr std::uint64_t kPieceBytes = 128 << 10;
  static constexpr std::uint64_t kPiecesMax = 64;             // 8 MiB
  static constexpr std::uint64_t kWriteBytesMax = 256 << 10;  // a larger write gets nothing

  // Of an open file, which outlives it: at `offset`, behind all else (the file grows); `pieces` 0:
  // none is kept. Where there is room for fewer, so many are.
  Ballast(int fd, std::uint64_t offset, std::uint64_t pieces);

  // A part of the file that begins at `offset` and is written, `bytes` of it now, up to `end`, has
  // room now. false: it has not, there is not enough left.
  bool move(std::uint64_t offset, std::uint64_t bytes, std::uint64_t end);

  std::uint64_t whole_bytes() const { return pieces_ * kPieceBytes; }
  // Is it all there? What is missing is taken back before, as far as there is room, though not more
  // often than every 100 ms.
  bool whole();

 private:
  void refill_locked();

  const int fd_;
  const std::uint64_t offset_;
  std::uint64_t pieces_;              // wanted: those that there was room for at the beginning
  std::uint64_t kept_ = 0;            // under mutex_; the first of them
  std::atomic<bool> missing_{false};  // kept_ < pieces_
  std::mutex mutex_;
  std::chrono::steady_clock::time_point next_try_{};  // under mutex_
};

}  // namespace furrow::emu
