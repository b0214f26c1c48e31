// Trace: the block references of a KV cache, in order. From a file in the Mooncake format or from a
// generator with the published shape. Blocks are numbered densely from 0. Pure but for reading.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "zone/status.h"

namespace furrow::bench {

struct Trace {
  struct Request {
    std::uint64_t arrived_ms = 0;
    std::uint32_t first = 0, count = 0;  // its references in `blocks`
  };
  std::vector<Request> requests;
  std::vector<std::uint32_t> blocks;  // of all requests, prefix chains one after another
  std::uint32_t distinct = 0;         // blocks are 0 .. distinct - 1

  // What an infinite cache would reach over the whole trace.
  double best_hit_rate() const {
    if (blocks.empty()) return 0;
    return 1.0 - static_cast<double>(distinct) / static_cast<double>(blocks.size());
  }
};

// One JSON object a line with "timestamp" (ms) and "hash_ids". Errors: not_found, io_error,
// invalid_argument (a line is not of that form; `line` says which, and 0 when
// it is about no line).
Result<Trace> read_trace(const std::string& path, std::uint64_t* line);

// Conversations whose requests repeat all earlier blocks and add some. 37% of references hit an
// infinite cache; the time to a conversation's next request is log-normal with p50 114 s and p90
// 519 s; one block (the system prompt) is common to all. Mean 24 blocks a request, one request each
// 300 ms.
Trace generate_trace(std::uint32_t requests, std::uint64_t seed);

}  // namespace furrow::bench
