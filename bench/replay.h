// The jobs of `furrow-bench replay` and `verify`. One thread.
//
// ReplayJob plays a trace's references in order, some in flight at a time: a page that is there is
// fetched and every byte checked, one that is not there is stored. When the backend had to
// reconnect (the server was killed), it lets what is in flight end, then checks every page that was
// ever acknowledged before it goes on.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "bench/driver.h"
#include "bench/histogram.h"
#include "bench/journal.h"
#include "bench/trace.h"

namespace furrow::bench {

struct PageShape {
  std::uint32_t page_bytes = 16384;
  std::uint64_t salt = 1;
};

// What checking pages found.
struct Verified {
  std::uint64_t intact = 0;
  std::uint64_t missing = 0;  // acknowledged, and not there
  std::uint64_t wrong = 0;    // other bytes than were stored
  std::uint64_t failed = 0;   // could not be fetched; `failure` is the first such error
  Status failure;
};

struct ReplayResult {
  std::uint64_t references = 0;  // pages asked for
  std::uint64_t hits = 0;
  std::uint64_t best_hits = 0;  // of a cache that never evicts
  std::uint64_t stored = 0;
  std::uint64_t restarts = 0;   // lost connections that came back
  std::uint64_t verify_ns = 0;  // spent checking after restarts
  Verified served;              // hits, as they were fetched (`missing` stays 0)
  Verified after_restart;
  Status put_failure;
  Histogram hit, miss, put;
};

class ReplayJob final : public Job {
 public:
  struct Options {
    PageShape shape;
    std::uint32_t pages_per_block = 1;
    std::uint32_t loops = 1;  // plays of the trace; each has blocks of its own
  };
  // `journal` may be null. All outlive the job.
  ReplayJob(const Trace& trace, const Backend& backend, const Options& options,
            AckJournal* journal);
  Next next(Slot& slot, std::uint64_t now_ns) override;
  bool done(Slot& slot) override;
  const ReplayResult& result() const { return result_; }

 private:
  enum class Phase : std::uint8_t { replaying, draining, verifying };
  enum State : std::uint32_t { kFetching, kStoring, kVerifying };

  Next next_reference(Slot& slot);
  Next next_verification(Slot& slot, std::uint64_t now_ns);
  bool fetched(Slot& slot);
  bool stored(Slot& slot);
  bool exhausted() const { return loop_ == options_.loops; }
  bool failed() const;
  std::uint64_t page_here() const;
  void advance();

  const Trace& trace_;
  const Backend& backend_;
  Options options_;
  AckJournal* journal_;
  Phase phase_ = Phase::replaying;
  std::uint32_t loop_ = 0, reference_ = 0, page_of_block_ = 0;
  std::uint64_t in_flight_ = 0;
  std::uint64_t reconnects_ = 0;
  std::vector<bool> seen_, busy_, acknowledged_;   // by page number
  std::vector<std::uint64_t> acknowledged_pages_;  // in order
  std::size_t verified_ = 0;
  std::uint64_t verify_started_ns_ = 0;
  ReplayResult result_;
};

// Fetches and checks every page of a list.
class VerifyJob final : public Job {
 public:
  VerifyJob(const std::vector<std::uint64_t>& pages, const PageShape& shape)
      : pages_(pages), shape_(shape) {}
  Next next(Slot& slot, std::uint64_t now_ns) override;
  bool done(Slot& slot) override;
  const Verified& result() const { return result_; }

 private:
  const std::vector<std::uint64_t>& pages_;
  PageShape shape_;
  std::size_t at_ = 0;
  Verified result_;
};

}  // namespace furrow::bench
