// Establishes that the histogram's quantiles are within its promised 1.6% of the exact ones, up to
// the largest values, and that merging equals recording everything in one.
#include "bench/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <random>
#include <vector>

namespace furrow::bench {
namespace {

TEST(Histogram, IsEmptyAtFirst) {
  const Histogram histogram;
  EXPECT_EQ(histogram.count(), 0u);
  EXPECT_EQ(histogram.quantile_ns(0.5), 0u);
}

TEST(Histogram, QuantilesAreCloseToTheExactOnes) {
  constexpr std::uint64_t kSeed = 7;
  RecordProperty("seed", static_cast<int>(kSeed));
  std::mt19937_64 random(kSeed);
  std::lognormal_distribution<double> latency(10, 2);
  Histogram histogram;
  std::vector<std::uint64_t> values;
  for (int i = 0; i < 100'000; ++i) {
    values.push_back(static_cast<std::uint64_t>(latency(random)));
    histogram.record(values.back());
  }
  std::sort(values.begin(), values.end());
  for (const double fraction : {0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 0.9999, 1.0}) {
    const auto rank =
        static_cast<std::size_t>(std::ceil(fraction * static_cast<double>(values.size())));
    const std::uint64_t exact = values[rank == 0 ? 0 : rank - 1];
    const std::uint64_t found = histogram.quantile_ns(fraction);
    EXPECT_GE(found, exact) << fraction;
    EXPECT_LE(static_cast<double>(found), static_cast<double>(exact) * 1.016 + 1) << fraction;
  }
  EXPECT_EQ(histogram.quantile_ns(1.0), values.back());
  EXPECT_EQ(histogram.max_ns(), values.back());
}

TEST(Histogram, TakesTheSmallestAndTheLargest) {
  Histogram histogram;
  histogram.record(0);
  EXPECT_EQ(histogram.quantile_ns(1.0), 0u);
  histogram.record(~std::uint64_t{0});
  EXPECT_EQ(histogram.quantile_ns(0.5), 0u);
  EXPECT_EQ(histogram.quantile_ns(1.0), ~std::uint64_t{0});
}

TEST(Histogram, MergeEqualsRecordingInOne) {
  Histogram one, left, right;
  for (std::uint64_t value = 1; value < 1'000'000; value = value * 3 / 2 + 1) {
    one.record(value);
    (value % 2 == 0 ? left : right).record(value);
  }
  left.merge(right);
  EXPECT_EQ(left.count(), one.count());
  EXPECT_EQ(left.mean_ns(), one.mean_ns());
  for (const double fraction : {0.1, 0.5, 0.9, 1.0}) {
    EXPECT_EQ(left.quantile_ns(fraction), one.quantile_ns(fraction));
  }
}

TEST(Histogram, FileHoldsEveryRecord) {
  Histogram histogram;
  for (std::uint64_t value = 0; value < 10'000; value += 7) histogram.record(value);
  const std::string path = testing::TempDir() + "histogram_test.txt";
  {
    auto made = Histogram::create(path);
    ASSERT_TRUE(made.ok()) << made.status().describe();
    ASSERT_TRUE(histogram.write(**made).ok());
  }
  std::ifstream file(path);
  std::string heading;
  std::getline(file, heading);
  std::uint64_t from, to, count, sum = 0, last_to = 0;
  while (file >> from >> to >> count) {
    EXPECT_LE(from, to);
    if (sum != 0) {
      EXPECT_GT(from, last_to);
    }
    last_to = to;
    sum += count;
  }
  EXPECT_EQ(sum, histogram.count());
  std::remove(path.c_str());
}

TEST(Histogram, FileThatCannotBeWritten) {
  EXPECT_EQ(Histogram::create("/no/such/directory/file").status().code(), Code::io_error);
  Histogram histogram;
  histogram.record(1);
  auto full = Histogram::create("/dev/full");
  ASSERT_TRUE(full.ok()) << full.status().describe();
  EXPECT_EQ(histogram.write(**full).code(), Code::io_error);
}

}  // namespace
}  // namespace furrow::bench
