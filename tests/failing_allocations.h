// The bytes that this program's calls of operator new have out, and one of those calls made to
// fail.
#pragma once

#include <atomic>
#include <cstdint>

namespace furrow {
extern std::atomic<std::uint64_t> allocated_bytes;
// The call after so many more, by threads that are not spared, throws std::bad_alloc; -1: none
// does.
extern std::atomic<std::int64_t> allocations_until_failure;
extern thread_local bool allocations_spared;
}  // namespace furrow
