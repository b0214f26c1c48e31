// How often tests repeat what they draw. Sanitizers make all of it some ten times as slow.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace furrow {

// `plain` times, `sanitized` times under a sanitizer.
constexpr std::uint64_t rounds([[maybe_unused]] std::uint64_t plain,
                               [[maybe_unused]] std::uint64_t sanitized) {
#if defined(FURROW_SANITIZED)
  return sanitized;
#else
  return plain;
#endif
}

// With tools/test --full: what is too much for every run.
inline bool all_rounds() { return std::getenv("FURROW_TEST_FULL") != nullptr; }

}  // namespace furrow
