// Establishes that count_allocations sees each way to ask for memory once, also under sanitizers.
#include "tests/count_allocations.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace furrow::testing {
namespace {

template <class Ask, class Free>
std::uint64_t counted(Ask&& ask, Free&& give_back) {
  const std::uint64_t before = allocations();
  void* volatile memory = ask();
  const std::uint64_t count = allocations() - before;
  EXPECT_NE(memory, nullptr);
  give_back(memory);
  return count;
}
[[maybe_unused]] void* aligned() {
  void* memory = nullptr;
  return posix_memalign(&memory, 64, 64) == 0 ? memory : nullptr;
}

TEST(CountAllocations, EachWayToAskForMemory) {
  EXPECT_EQ(counted([] { return std::malloc(10); }, std::free), 1u);
  EXPECT_EQ(counted([] { return std::calloc(10, 10); }, std::free), 1u);
  EXPECT_EQ(counted([] { return std::realloc(nullptr, 10); }, std::free), 1u);
  EXPECT_EQ(counted([] { return strdup("text"); }, std::free), 1u);
  EXPECT_EQ(counted([] { return operator new(10); }, [](void* it) { operator delete(it); }), 1u);
}

#if !defined(__SANITIZE_THREAD__)  // whose malloc does not tell of these
TEST(CountAllocations, AlignedMemory) {
  constexpr std::align_val_t kAlignment{64};
  EXPECT_EQ(counted([] { return std::aligned_alloc(64, 64); }, std::free), 1u);
  EXPECT_EQ(counted([] { return memalign(64, 64); }, std::free), 1u);
  EXPECT_EQ(counted(aligned, std::free), 1u);
  EXPECT_EQ(counted([] { return operator new(64, kAlignment); },
                    [](void* it) { operator delete(it, kAlignment); }),
            1u);
}
#endif

}  // namespace
}  // namespace furrow::testing
