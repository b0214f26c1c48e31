// Blocking I/O on a queue, for formatting, recovery and tools: not for an executor that serves.
#pragma once

#include <atomic>
#include <span>

#include "zone/aligned_buffer.h"
#include "zone/device.h"
#include "zone/executor.h"

namespace furrow {

// Submits all, waits for all; returns the first error. Each Io's status is set. Uses on_complete
// and context of the Ios.
Status run_blocking(IoQueue& queue, std::span<Io> ios);
inline Status run_blocking(IoQueue& queue, Io& io) { return run_blocking(queue, {&io, 1}); }

// `op`: reset, finish, open or close of the zone.
Status manage_blocking(IoQueue& queue, Io::Op op, ZoneId zone);
Status flush_blocking(IoQueue& queue);

// Reads `lbas` of `lba_bytes` each from `first` on into `buffer`, which grows as needed; the result
// is valid until the buffer's next use.
Result<std::span<const std::byte>> read_blocking(IoQueue& queue, Lba first, std::uint32_t lbas,
                                                 std::uint32_t lba_bytes, AlignedBuffer& buffer);

// read_patiently(): what fails as an I/O error is read again, at once, and after a pause as long as
// `patience` allows; a device's trouble may be of a moment, and an error ought to cost no zone.
struct Patience {
  explicit Patience(Executor& executor) : time(executor) {}
  bool pause();  // false: none is left

  static constexpr std::uint64_t kPauseNs = 20 * kNsPerMs;
  Executor& time;
  std::atomic<int> pauses{10};  // any thread takes them
};
Result<std::span<const std::byte>> read_patiently(IoQueue& queue, Lba first, std::uint32_t lbas,
                                                  std::uint32_t lba_bytes, AlignedBuffer& buffer,
                                                  Patience& patience);

}  // namespace furrow
