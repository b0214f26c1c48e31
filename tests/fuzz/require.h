// What all fuzz targets are written with.
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace furrow::fuzz {

using Bytes = std::vector<std::byte>;

// A promise that does not hold: libFuzzer reports the abort with its input.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

}  // namespace furrow::fuzz
