// Apart from the test: the compiler would inline these and take them for a mismatch.
#include "tests/failing_allocations.h"

#include <malloc.h>

#include <cstdlib>
#include <new>

namespace furrow {
std::atomic<std::uint64_t> allocated_bytes{0};
std::atomic<std::int64_t> allocations_until_failure{-1};
thread_local bool allocations_spared = false;
}  // namespace furrow

void* operator new(std::size_t bytes) {
  using namespace furrow;
  if (!allocations_spared && allocations_until_failure >= 0 && allocations_until_failure-- == 0) {
    throw std::bad_alloc();
  }
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  furrow::allocated_bytes.fetch_add(malloc_usable_size(memory), std::memory_order_relaxed);
  return memory;
}
// A sanitizer's own would not be for the operator delete below, to which the library gives
// std::stable_sort's buffer back.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
// As the library's arrays do; a sanitizer's have memory of their own.
void* operator new[](std::size_t bytes) { return operator new(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t& none) noexcept {
  return operator new(bytes, none);
}
void operator delete(void* memory) noexcept {
  furrow::allocated_bytes.fetch_sub(malloc_usable_size(memory), std::memory_order_relaxed);
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }
void operator delete[](void* memory) noexcept { operator delete(memory); }
void operator delete[](void* memory, std::size_t) noexcept { operator delete(memory); }
