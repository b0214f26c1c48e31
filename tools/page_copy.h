// PageCopy: all pages of a volume, copied into another pool's: keys, bytes, groups, times to live,
// pins. Of kind kv or block.
//
// Blocking; one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/blocking_pool.h"
#include "zone/aligned_buffer.h"

namespace furrow::tools {

class PageCopy {
 public:
  struct Volume {
    BlockingPool& pool;
    PageStore& store;
  };
  struct Options {
    // Called for each page that cannot be read, which is left out then; none: the copy ends there.
    std::function<void(const Key&, const Status&)> on_lost;
    std::function<void(std::uint64_t pages)> on_progress;
  };
  // Nobody changes `from` meanwhile, and nothing is in `to`.
  PageCopy(Volume from, Volume to, Options options);

  // What is there when this says so survives a power cut. Errors: those of both sides; failed_at().
  Status run();
  std::uint64_t pages() const { return pages_; }
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t lost() const { return lost_; }
  const Key& failed_at() const { return failed_at_; }  // length 0: at none

 private:
  Status list(const Key& after, std::vector<Key>& keys);
  Status look_up(const std::vector<Key>& keys);
  Status copy_all();
  Status read(std::span<const PageOp> pages);
  Status write(std::span<const PageOp> pages);
  Status take_lost(const PageOp& op);

  Volume from_, to_;
  const Options options_;
  AlignedBuffer memory_;
  std::vector<PageOp> found_, gets_, puts_;
  std::uint64_t pages_ = 0, bytes_ = 0, lost_ = 0;
  Key failed_at_;
};

}  // namespace furrow::tools
