#include "bench/histogram.h"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <memory>

namespace furrow::bench {

void Histogram::merge(const Histogram& other) {
  for (std::size_t i = 0; i < kBuckets; ++i) counts_[i] += other.counts_[i];
  count_ += other.count_;
  sum_ns_ += other.sum_ns_;
  max_ns_ = std::max(max_ns_, other.max_ns_);
}

std::uint64_t Histogram::quantile_ns(double fraction) const {
  const auto rank = static_cast<std::uint64_t>(std::ceil(fraction * static_cast<double>(count_)));
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < kBuckets; ++i) {
    below += counts_[i];
    if (below >= std::max<std::uint64_t>(rank, 1)) return std::min(bucket_to(i), max_ns_);
  }
  return max_ns_;
}

namespace {

Status cannot_write() {
  return {Code::io_error, Origin::tool, "cannot write the histogram file", errno};
}

}  // namespace

Result<Histogram::File> Histogram::create(const std::string& path) {
  File file(std::fopen(path.c_str(), "we"), std::fclose);
  if (!file) return cannot_write();
  return file;
}

Status Histogram::write(std::FILE& file) const {
  std::string text = "# from_ns to_ns count\n";
  for (std::size_t i = 0; i < kBuckets; ++i) {
    if (counts_[i] == 0) continue;
    text += fmt::format("{} {} {}\n", bucket_from(i), bucket_to(i), counts_[i]);
  }
  const bool written =
      std::fwrite(text.data(), 1, text.size(), &file) == text.size() && std::fflush(&file) == 0;
  return written ? Status() : cannot_write();
}

}  // namespace furrow::bench
