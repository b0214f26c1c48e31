// PageWindow: pages of a zone, read in ascending order through a window, so that small ones do not
// cost a read each. Blocking; one thread. Private to recovery.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "zone/aligned_buffer.h"
#include "zone/blocking.h"

namespace furrow {

class PageWindow {
 public:
  PageWindow(IoQueue& queue, const Geometry& geometry) : queue_(queue), geometry_(geometry) {}

  // `lbas` from `lba` (of the device) on; the window reaches no further than `end_lba`. Valid until
  // the next call. An error is this page's own: where a window has one, the page is read alone.
  Result<std::span<const std::byte>> read(std::uint64_t lba, std::uint64_t lbas,
                                          std::uint64_t end_lba) {
    const std::size_t bytes = lbas * geometry_.lba_bytes;
    if (lba < begin_ || (lba - begin_) * geometry_.lba_bytes + bytes > window_.size()) {
      const std::uint64_t ahead = std::min(kBytes / geometry_.lba_bytes, end_lba - lba);
      auto got = fetch(lba, std::max(lbas, ahead));
      if (!got.ok()) got = fetch(lba, lbas);
      if (!got.ok()) return got.status();
    }
    return window_.subspan((lba - begin_) * geometry_.lba_bytes, bytes);
  }

 private:
  static constexpr std::uint64_t kBytes = 1 << 20;

  Result<std::span<const std::byte>> fetch(std::uint64_t lba, std::uint64_t lbas) {
    window_ = {};
    auto got = read_blocking(queue_, Lba{lba}, static_cast<std::uint32_t>(lbas),
                             geometry_.lba_bytes, buffer_);
    if (!got.ok()) return got;
    begin_ = lba;
    window_ = *got;
    return got;
  }

  IoQueue& queue_;
  const Geometry& geometry_;
  AlignedBuffer buffer_;
  std::span<const std::byte> window_;
  std::uint64_t begin_ = 0;
};

}  // namespace furrow
