// Establishes that failing_allocations counts each way to ask operator new for memory, and that
// what it gives out goes back to where it came from, also under sanitizers.
#include "tests/failing_allocations.h"

#include <gtest/gtest.h>

#include <new>
#include <utility>

namespace furrow::testing {
namespace {

TEST(FailingAllocations, WithAnExceptionAndWithout) {
  const std::uint64_t before = allocated_bytes;
  void* const thrown = operator new(10);
  void* const told = operator new(10, std::nothrow);
  EXPECT_GE(allocated_bytes - before, 20u);
  operator delete(thrown);
  operator delete(told);
  EXPECT_EQ(allocated_bytes, before);
  void* const array = operator new[](10);
  void* const array_told = operator new[](10, std::nothrow);
  EXPECT_GE(allocated_bytes - before, 20u);
  operator delete[](array);
  operator delete[](array_told);
  EXPECT_EQ(allocated_bytes, before);
}

TEST(FailingAllocations, TheCallThatIsMeantFails) {
  const auto fails = [](auto ask) {
    allocations_until_failure = 0;
    bool failed = false;
    try {
      void* const memory = ask();
      failed = memory == nullptr;
      operator delete(memory);
    } catch (const std::bad_alloc&) {
      failed = true;
    }
    return failed && allocations_until_failure.exchange(-1) == -1;
  };
  const bool spared = std::exchange(allocations_spared, false);
  EXPECT_TRUE(fails([] { return operator new(10); }));
  EXPECT_TRUE(fails([] { return operator new(10, std::nothrow); }));
  allocations_spared = true;
  EXPECT_FALSE(fails([] { return operator new(10); }));
  allocations_until_failure = -1;
  allocations_spared = spared;
}

}  // namespace
}  // namespace furrow::testing
