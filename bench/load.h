// The jobs of `furrow-bench local` and `remote`: storing pages to begin with, then gets and puts of
// random pages for a time. One thread each; the results of several are merged.
#pragma once

#include <cstdint>

#include "bench/driver.h"
#include "bench/histogram.h"

namespace furrow::bench {

struct LoadOptions {
  std::uint32_t page_bytes = 4096;
  std::uint64_t pages = 0;  // gets pick among these
  unsigned get_percent = 100;
  bool put_new = false;  // puts store pages that were never there, else replace
  bool verify = false;   // derive all content and check every byte of every get
  std::uint64_t salt = 1;
  std::uint32_t ttl_s = 0;      // of the pages that are stored; 0: they stay
  std::uint32_t within_us = 0;  // what is measured waits for no longer (PageOp::within_us)
  std::uint64_t duration_ns = 0;
  std::uint64_t memory_bytes = 0;  // of a thread's buffers, see Driver::Options
};

struct LoadResult {
  std::uint64_t gets = 0, misses = 0, puts = 0;
  std::uint64_t wrong = 0;   // pages whose bytes were not what was stored
  std::uint64_t failed = 0;  // operations with an error; `failure` is the first one
  std::uint64_t late = 0;    // gets and puts whose time was up; how they ended is not looked at
  Status failure;
  Histogram get, put;
  void merge(const LoadResult& other);
};

// Stores the pages first, first + step, ... below options.pages.
class FillJob final : public Job {
 public:
  FillJob(const LoadOptions& options, std::uint64_t first, std::uint64_t step)
      : options_(options), page_(first), step_(step) {}
  Next next(Slot& slot, std::uint64_t now_ns) override;
  bool done(Slot& slot) override;
  const LoadResult& result() const { return result_; }

 private:
  const LoadOptions& options_;
  std::uint64_t page_, step_;
  LoadResult result_;
};

// `worker` of `workers` keeps their random numbers and new pages apart.
class LoadJob final : public Job {
 public:
  LoadJob(const LoadOptions& options, unsigned worker, unsigned workers);
  Next next(Slot& slot, std::uint64_t now_ns) override;
  bool done(Slot& slot) override;
  const LoadResult& result() const { return result_; }

 private:
  std::uint64_t random();
  void set_up_put(Slot& slot);

  const LoadOptions& options_;
  std::uint64_t new_page_, step_;
  std::uint64_t random_state_;
  std::uint64_t end_ns_ = 0;
  LoadResult result_;
};

}  // namespace furrow::bench
