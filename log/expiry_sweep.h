// ExpirySweep: takes expired pages out of a store's index when a put finds no room, or collection
// no zone to free. What they took then counts as dead, and collection gives it back.
//
// Pages that expire are otherwise dropped when their zone is collected, which in a full store may
// never come. Expiry has a resolution of a second, so there is at most one sweep in each: also
// where pages come that have expired already, as the clock was set.
//
// Threads: the home executor.
#pragma once

#include <cstdint>

#include "zone/executor.h"

namespace furrow {

class PageLog;
struct KeyOp;

class ExpirySweep {
 public:
  explicit ExpirySweep(PageLog& log);
  ~ExpirySweep();
  ExpirySweep(const ExpirySweep&) = delete;
  ExpirySweep& operator=(const ExpirySweep&) = delete;

  // A page that expires at this time has come.
  void note(std::uint32_t expires_s);
  // Collection, which is kicked when that has been seen to. True: something may have expired.
  bool begin();
  // A put that holds its key's lock found no room. True: something may have expired; it goes on, at
  // PageLog::locked(), when that has been seen to.
  bool take(KeyOp& op);
  bool idle() const { return !turn_.posted; }

 private:
  void turn();

  PageLog& log_;
  std::uint64_t now_s_ = ~std::uint64_t{0};       // of the last sweep
  std::uint64_t from_ = 0;                        // the hash up to which it has come
  std::uint32_t earliest_s_ = ~std::uint32_t{0};  // nothing expires before
  KeyOp* first_ = nullptr;
  KeyOp* last_ = nullptr;
  struct Turn : Task {
    ExpirySweep* sweep = nullptr;
    bool posted = false;
  } turn_;
};

}  // namespace furrow
