// Fixed randomness for a pool of a fuzz target: its secret and UUIDs are the same each time, so
// that an input that fails does so again.
#pragma once

#include <sodium.h>

#include <cstdint>

#include "tests/fuzz/require.h"

namespace furrow::fuzz {

// From the beginning, each time it is called. Threads: one.
inline void use_fixed_randomness() {
  static std::uint64_t word;
  static randombytes_implementation implementation = {
      [] { return "fixed"; },
      [] { return static_cast<std::uint32_t>(word += 0x9E3779B9); },
      nullptr,
      nullptr,
      [](void* const buffer, const std::size_t size) {
        auto* to = static_cast<unsigned char*>(buffer);
        for (std::size_t i = 0; i < size; ++i) to[i] = static_cast<unsigned char>(++word * 37);
      },
      nullptr};
  word = 1;
  require(randombytes_set_implementation(&implementation) == 0, "fixed randomness");
  require(sodium_init() >= 0, "sodium");
}

}  // namespace furrow::fuzz
