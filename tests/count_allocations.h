// How often the program that this is linked with asked for memory, by any thread: each member of
// malloc's family counts, and what comes down to them (operator new of any alignment, strdup, ..).
#pragma once

#include <cstdint>

namespace furrow::testing {
std::uint64_t allocations();
}  // namespace furrow::testing
