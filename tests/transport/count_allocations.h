// How often operator new was called in this program, by any thread.
#pragma once

#include <atomic>
#include <cstdint>

namespace furrow::transport {
extern std::atomic<std::uint64_t> allocations;
}
