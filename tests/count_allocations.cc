#include "tests/count_allocations.h"

#include <malloc.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>

namespace {
std::atomic<std::uint64_t> count{0};
void add() { count.fetch_add(1, std::memory_order_relaxed); }
}  // namespace

namespace furrow::testing {
std::uint64_t allocations() { return count; }
}  // namespace furrow::testing

#if defined(FURROW_SANITIZED)
// The sanitizers have a malloc of their own, which tells (sanitizer/allocator_interface.h, which
// GCC does not bring).
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void*,
                                                                           std::size_t),
                                                         void (*on_free)(const volatile void*));
namespace {
[[maybe_unused]] const int installed = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void*, std::size_t) { add(); }, [](const volatile void*) {});
}
#else
extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);

void* malloc(std::size_t bytes) noexcept {
  add();
  return __libc_malloc(bytes);
}
void* calloc(std::size_t members, std::size_t bytes) noexcept {
  add();
  return __libc_calloc(members, bytes);
}
void* realloc(void* memory, std::size_t bytes) noexcept {
  add();
  return __libc_realloc(memory, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) noexcept {
  add();
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  add();
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) noexcept {
  add();
  *memory = __libc_memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
}
#endif
