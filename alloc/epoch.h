// Epoch: how a zone is known to have no readers before it is reset.
//
// A reader enters before it looks a page up and leaves when its read has completed. The owner first
// makes a zone's pages unreachable (index), then starts a grace period; when it is over, every
// reader that could have seen them has left. Readers of other threads share nothing but the epoch's
// cache line, which changes once a grace period.
//
// Threads: each Reader belongs to one thread, which may add() and remove() it at any time;
// begin_grace() and grace_over() belong to the owner of the zones.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "zone/check.h"

namespace furrow {

// `Atomic` is std::atomic; a test puts in one whose accesses it orders.
template <template <class> class Atomic>
class BasicEpoch {
 public:
  class alignas(64) Reader {
   public:
    // The returned side must be given to leave().
    unsigned enter() {
      for (;;) {
        const std::uint64_t seen = epoch_->now_.load(std::memory_order_seq_cst);
        inside_[seen & 1].fetch_add(1, std::memory_order_seq_cst);
        // A grace period that began in between may have counted this side already: enter anew.
        if (epoch_->now_.load(std::memory_order_seq_cst) == seen) return seen & 1;
        inside_[seen & 1].fetch_sub(1, std::memory_order_release);
      }
    }
    void leave(unsigned side) { inside_[side].fetch_sub(1, std::memory_order_release); }

   private:
    friend class BasicEpoch;
    const BasicEpoch* epoch_ = nullptr;
    std::array<Atomic<std::uint32_t>, 2> inside_{};
  };

  Reader& add() {
    const std::lock_guard lock(mutex_);
    readers_.push_back(std::make_unique<Reader>());
    readers_.back()->epoch_ = this;
    return *readers_.back();
  }
  void remove(Reader& reader) {
    const std::lock_guard lock(mutex_);
    FURROW_CHECK(reader.inside_[0].load() == 0 && reader.inside_[1].load() == 0);
    std::erase_if(readers_, [&](const auto& held) { return held.get() == &reader; });
  }

  // One grace period at a time: begin, then ask until it is over.
  void begin_grace() {
    FURROW_CHECK(!in_grace_);
    in_grace_ = true;
    now_.fetch_add(1, std::memory_order_seq_cst);
  }
  bool in_grace() const { return in_grace_; }
  bool grace_over() {
    const std::lock_guard lock(mutex_);
    const std::uint64_t old_side = (now_.load(std::memory_order_relaxed) - 1) & 1;
    for (const auto& reader : readers_) {
      if (reader->inside_[old_side].load(std::memory_order_seq_cst) != 0) return false;
    }
    in_grace_ = false;
    return true;
  }

 private:
  Atomic<std::uint64_t> now_{0};
  bool in_grace_ = false;
  std::mutex mutex_;  // of the list; never taken to read a page
  std::vector<std::unique_ptr<Reader>> readers_;
};

using Epoch = BasicEpoch<std::atomic>;

}  // namespace furrow
