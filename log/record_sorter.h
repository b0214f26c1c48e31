// RecordSorter: sorts the records of one partition, by hash, the newest first of those that are
// equal. Private to log/recovery.cc. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "log/recovered_pages.h"

namespace furrow {

class RecordSorter {
 public:
  void clear() { piles_.clear(); }
  void add(const RecordPile& pile) { piles_.push_back(&pile); }  // borrowed until sort() returns
  // All records of the piles, which must be of one partition. Valid until the next sort().
  std::span<const RecoveredRecord> sort();

 private:
  std::vector<const RecordPile*> piles_;
  std::vector<RecoveredRecord> sorted_;
  std::vector<std::uint32_t> ends_;  // of each bin, in sorted_
};

}  // namespace furrow
