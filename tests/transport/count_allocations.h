// How often operator new was called in this program, by any thread, and the bytes that it has out.
#pragma once

#include <atomic>
#include <cstdint>

namespace furrow::transport {
extern std::atomic<std::uint64_t> allocations;
extern std::atomic<std::uint64_t> allocated_bytes;
}  // namespace furrow::transport
