#include "bench/trace.h"

#include <cerrno>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <queue>
#include <random>
#include <unordered_map>

namespace furrow::bench {

namespace {

constexpr std::size_t kBlocksMax = std::numeric_limits<std::uint32_t>::max();

// One line of the file into `trace`; false: it is not of the form.
bool add_line(const std::string& text, Trace& trace,
              std::unordered_map<std::uint64_t, std::uint32_t>& numbers) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return false;
  const auto time = json.find("timestamp");
  const auto ids = json.find("hash_ids");
  if (time == json.end() || !time->is_number_unsigned()) return false;
  if (ids == json.end() || !ids->is_array()) return false;
  if (trace.blocks.size() + ids->size() > kBlocksMax) return false;

  Trace::Request request{time->get<std::uint64_t>(),
                         static_cast<std::uint32_t>(trace.blocks.size()),
                         static_cast<std::uint32_t>(ids->size())};
  for (const auto& id : *ids) {
    if (!id.is_number_unsigned()) return false;
    const auto [found, added] = numbers.try_emplace(id.get<std::uint64_t>(), trace.distinct);
    if (added) ++trace.distinct;
    trace.blocks.push_back(found->second);
  }
  trace.requests.push_back(request);
  return true;
}

struct Conversation {
  std::uint64_t due_ms = 0;
  std::vector<std::uint32_t> chain;
  bool operator>(const Conversation& other) const { return due_ms > other.due_ms; }
};

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : random_(seed) { trace_.distinct = 1; }

  Trace run(std::uint32_t requests) {
    for (std::uint32_t i = 0; i < requests; ++i) {
      const std::uint64_t now = i * kInterval_ms;
      Conversation talk;
      if (!waiting_.empty() && waiting_.top().due_ms <= now) {
        talk = waiting_.top();
        waiting_.pop();
        grow(talk.chain, kBlocksAdded);
      } else {
        talk.chain = {0};
        grow(talk.chain, kBlocksFirst);
      }
      add_request(now, talk.chain);
      if (std::bernoulli_distribution(kContinues)(random_)) {
        talk.due_ms = now + static_cast<std::uint64_t>(gap_s_(random_) * 1000);
        waiting_.push(std::move(talk));
      }
    }
    return std::move(trace_);
  }

 private:
  // With conversations that go on with probability p, a share p of all references repeats an
  // earlier one; the shared block adds its part of each new conversation's first request.
  static constexpr double kContinues = 0.36;
  static constexpr double kBlocksFirst = 20, kBlocksAdded = 5;
  static constexpr std::uint64_t kInterval_ms = 300;

  void grow(std::vector<std::uint32_t>& chain, double mean) {
    const std::uint32_t count = 1 + std::geometric_distribution<std::uint32_t>(1 / mean)(random_);
    for (std::uint32_t i = 0; i < count; ++i) chain.push_back(trace_.distinct++);
  }

  void add_request(std::uint64_t now, const std::vector<std::uint32_t>& chain) {
    trace_.requests.push_back({now, static_cast<std::uint32_t>(trace_.blocks.size()),
                               static_cast<std::uint32_t>(chain.size())});
    trace_.blocks.insert(trace_.blocks.end(), chain.begin(), chain.end());
  }

  std::mt19937_64 random_;
  std::lognormal_distribution<double> gap_s_{std::log(114.0), std::log(519.0 / 114.0) / 1.2816};
  std::priority_queue<Conversation, std::vector<Conversation>, std::greater<>> waiting_;
  Trace trace_;
};

}  // namespace

Result<Trace> read_trace(const std::string& path, std::uint64_t* line) {
  *line = 0;
  std::ifstream file(path);
  if (!file) return Status(Code::not_found, Origin::tool, "cannot open the trace", errno);
  Trace trace;
  std::unordered_map<std::uint64_t, std::uint32_t> numbers;
  std::string text;
  for (*line = 1; std::getline(file, text); ++*line) {
    if (text.empty()) continue;
    if (!add_line(text, trace, numbers)) {
      return Status(Code::invalid_argument, Origin::tool,
                    "not a line of a Mooncake trace: {\"timestamp\": MS, \"hash_ids\": [N, ...]}");
    }
  }
  *line = 0;
  if (file.bad()) return Status(Code::io_error, Origin::tool, "cannot read the trace", errno);
  if (trace.blocks.empty()) {
    return Status(Code::invalid_argument, Origin::tool, "the trace has no requests");
  }
  return trace;
}

Trace generate_trace(std::uint32_t requests, std::uint64_t seed) {
  return Generator(seed).run(requests);
}

}  // namespace furrow::bench
