// The seed of a test's randomness: FURROW_TEST_SEED, or a fixed one; printed once.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <iostream>

namespace furrow {

inline std::uint64_t test_seed() {
  static const std::uint64_t seed = [] {
    const char* text = std::getenv("FURROW_TEST_SEED");
    const std::uint64_t value = text != nullptr ? std::strtoull(text, nullptr, 10) : 20261121;
    std::cout << "FURROW_TEST_SEED=" << value << std::endl;
    return value;
  }();
  return seed;
}

}  // namespace furrow
