// Histogram: counts of latencies in log-linear buckets, 64 to each power of two, so that a value is
// known to 1.6% with no allocation while recording. Debian has no C++ HDR histogram. One thread at
// a time; merge() brings threads' histograms together.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "zone/status.h"

namespace furrow::bench {

class Histogram {
 public:
  void record(std::uint64_t ns) {
    ++counts_[bucket_of(ns)];
    ++count_;
    sum_ns_ += ns;
    max_ns_ = std::max(max_ns_, ns);
  }
  void merge(const Histogram& other);

  std::uint64_t count() const { return count_; }
  std::uint64_t max_ns() const { return max_ns_; }
  double mean_ns() const {
    return count_ == 0 ? 0 : static_cast<double>(sum_ns_) / static_cast<double>(count_);
  }
  // The smallest value that at least `fraction` (0..1) of the records do not exceed, rounded up to
  // the end of its bucket (but not above max_ns()). 0 when nothing was recorded.
  std::uint64_t quantile_ns(double fraction) const;

  using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
  // A file for write(), made empty.
  static Result<File> create(const std::string& path);
  // Writes "from_ns to_ns count" lines of the buckets that have any.
  Status write(std::FILE& file) const;

 private:
  static constexpr unsigned kBits = 6;
  static constexpr std::size_t kBuckets = std::size_t{64 - kBits + 1} << kBits;

  // Below 2^kBits each value has its own bucket; above, the kBits bits behind the highest pick one.
  static constexpr std::size_t bucket_of(std::uint64_t ns) {
    if (ns < 1u << kBits) return ns;
    const unsigned shift = static_cast<unsigned>(std::bit_width(ns)) - 1 - kBits;
    return (std::size_t{shift + 1} << kBits) + ((ns >> shift) - (1u << kBits));
  }
  static constexpr std::uint64_t bucket_from(std::size_t bucket) {
    if (bucket < 1u << kBits) return bucket;
    const unsigned shift = static_cast<unsigned>(bucket >> kBits) - 1;
    return ((std::uint64_t{1} << kBits) + (bucket & ((1u << kBits) - 1))) << shift;
  }
  static constexpr std::uint64_t bucket_to(std::size_t bucket) {
    return bucket + 1 == kBuckets ? ~std::uint64_t{0} : bucket_from(bucket + 1) - 1;
  }

  std::array<std::uint64_t, kBuckets> counts_{};
  std::uint64_t count_ = 0, sum_ns_ = 0, max_ns_ = 0;
};

}  // namespace furrow::bench
