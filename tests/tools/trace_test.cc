// Establishes that Mooncake traces are read as they are and refused with the line that is wrong,
// and that the generated trace has the published shape: best hit rate, gaps until reuse, chain
// lengths.
#include "bench/trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <numeric>
#include <set>

namespace furrow::bench {
namespace {

Result<Trace> read_text(const std::string& text, std::uint64_t* line) {
  const std::string path = testing::TempDir() + "trace_test.jsonl";
  std::ofstream(path) << text;
  Result<Trace> trace = read_trace(path, line);
  std::remove(path.c_str());
  return trace;
}

TEST(ReadTrace, NumbersBlocksDenselyAndKeepsTheirOrder) {
  std::uint64_t line = 0;
  const auto trace = read_text(
      "{\"timestamp\": 0, \"input_length\": 9, \"output_length\": 1, \"hash_ids\": [100, 7]}\n"
      "\n"
      "{\"timestamp\": 27000, \"hash_ids\": [100, 18446744073709551615]}\n",
      &line);
  ASSERT_TRUE(trace.ok()) << trace.status().describe();
  EXPECT_EQ(trace->blocks, (std::vector<std::uint32_t>{0, 1, 0, 2}));
  ASSERT_EQ(trace->requests.size(), 2u);
  EXPECT_EQ(trace->requests[1].arrived_ms, 27000u);
  EXPECT_EQ(trace->requests[1].first, 2u);
  EXPECT_EQ(trace->requests[1].count, 2u);
  EXPECT_EQ(trace->distinct, 3u);
  EXPECT_DOUBLE_EQ(trace->best_hit_rate(), 0.25);
}

TEST(ReadTrace, SaysWhichLineIsWrong) {
  const std::string good = "{\"timestamp\": 0, \"hash_ids\": [1]}\n";
  for (const char* bad :
       {"x", "[]", "{}", "{\"timestamp\": 0}", "{\"hash_ids\": [1]}",
        "{\"timestamp\": -1, \"hash_ids\": [1]}", "{\"timestamp\": 0, \"hash_ids\": [\"a\"]}",
        "{\"timestamp\": 0, \"hash_ids\": 3}", "{\"timestamp\": 0, \"hash_ids\": [1]"}) {
    std::uint64_t line = 0;
    const auto trace = read_text(good + bad + "\n", &line);
    EXPECT_EQ(trace.status().code(), Code::invalid_argument) << bad;
    EXPECT_EQ(line, 2u) << bad;
  }
}

TEST(ReadTrace, RefusesAnEmptyAndAMissingFile) {
  std::uint64_t line = 0;
  EXPECT_EQ(read_text("", &line).status().code(), Code::invalid_argument);
  EXPECT_EQ(line, 0u) << "no line is wrong";
  line = 9;
  EXPECT_EQ(read_trace("/no/such/file", &line).status().code(), Code::not_found);
  EXPECT_EQ(line, 0u);
}

TEST(GenerateTrace, HasThePublishedShape) {
  const Trace trace = generate_trace(12'000, 1);
  ASSERT_EQ(trace.requests.size(), 12'000u);
  EXPECT_EQ(trace.distinct, std::set(trace.blocks.begin(), trace.blocks.end()).size());
  EXPECT_NEAR(trace.best_hit_rate(), 0.37, 0.02);
  EXPECT_NEAR(static_cast<double>(trace.blocks.size()) / 12'000, 24, 2);

  // Gaps until reuse, of all blocks but the one that every request has.
  std::map<std::uint32_t, std::uint64_t> last_ms;
  std::vector<double> gaps_s;
  for (const Trace::Request& request : trace.requests) {
    for (std::uint32_t i = 1; i < request.count; ++i) {
      const std::uint32_t block = trace.blocks[request.first + i];
      const auto [found, first] = last_ms.try_emplace(block, request.arrived_ms);
      if (!first) gaps_s.push_back(static_cast<double>(request.arrived_ms - found->second) / 1000);
      found->second = request.arrived_ms;
    }
  }
  std::sort(gaps_s.begin(), gaps_s.end());
  EXPECT_NEAR(gaps_s[gaps_s.size() / 2], 114, 20);
  EXPECT_NEAR(gaps_s[gaps_s.size() * 9 / 10], 519, 110);
}

TEST(GenerateTrace, EqualSeedsGiveEqualTraces) {
  EXPECT_EQ(generate_trace(100, 5).blocks, generate_trace(100, 5).blocks);
  EXPECT_NE(generate_trace(100, 5).blocks, generate_trace(100, 6).blocks);
}

}  // namespace
}  // namespace furrow::bench
