// Establishes that ReservedMemory is zeroed, costs only what is touched, gives pages back exactly,
// takes less, down to the least, when that much address space is refused, and does without giving
// back, and costs no more, in a program that locks its memory. How: by mincore(), and in child
// processes with a limit on the address space, or that lock.
#include "log/reserved_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <new>
#include <vector>

#include "zone/check.h"

namespace furrow {
namespace {

std::uint64_t touched_pages(const ReservedMemory& memory, std::uint64_t pages) {
  std::vector<unsigned char> resident(pages);
  FURROW_CHECK(mincore(memory.words(), pages * ReservedMemory::page_bytes(), resident.data()) == 0);
  std::uint64_t count = 0;
  for (const unsigned char each : resident) count += each & 1;
  return count;
}

TEST(ReservedMemoryTest, RoundsUpToPages) {
  const std::uint64_t page = ReservedMemory::page_bytes();
  EXPECT_EQ(ReservedMemory::round_to_pages(0), 0u);
  EXPECT_EQ(ReservedMemory::round_to_pages(1), page);
  EXPECT_EQ(ReservedMemory::round_to_pages(page), page);
  EXPECT_EQ(ReservedMemory::round_to_pages(page + 1), 2 * page);
  EXPECT_EQ(ReservedMemory(1, 1).bytes(), page);
  EXPECT_EQ(ReservedMemory(page, 3 * page).bytes(), 3 * page) << "at least the least";
}

TEST(ReservedMemoryTest, CostsWhatIsTouchedAndGivesItBack) {
  const std::uint64_t page = ReservedMemory::page_bytes();
  ReservedMemory memory(std::uint64_t{1} << 40, page);  // a terabyte
  ASSERT_GE(memory.bytes(), 64 * page);
  EXPECT_EQ(touched_pages(memory, 64), 0u);
  for (std::uint64_t i = 0; i < 8; ++i) memory.words()[i * page / 8] = i + 1;
  EXPECT_EQ(touched_pages(memory, 64), 8u);
  memory.release(2 * page, 5 * page);
  EXPECT_EQ(touched_pages(memory, 64), 5u);
  for (std::uint64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(memory.words()[i * page / 8], i >= 2 && i < 5 ? 0 : i + 1);
  }
  memory.words()[3 * page / 8] = 9;
  EXPECT_EQ(memory.words()[3 * page / 8], 9u);
}

TEST(ReservedMemoryTest, WhatIsLockedReadsAsZeroWhenItIsReleased) {
  const std::uint64_t page = ReservedMemory::page_bytes();
  ReservedMemory memory(4 * page, 4 * page);
  for (std::uint64_t i = 0; i < 4 * page / 8; ++i) memory.words()[i] = i + 1;
  if (mlock(memory.words(), 4 * page) != 0) GTEST_SKIP() << "nothing may be locked here";
  memory.release(page, 3 * page);
  for (std::uint64_t i = 0; i < 4 * page / 8; ++i) {
    ASSERT_EQ(memory.words()[i], i * 8 >= page && i * 8 < 3 * page ? 0 : i + 1) << i;
  }
}

TEST(ReservedMemoryTest, CostsNoMoreInAProgramThatLocksItsMemory) {
#if defined(FURROW_SANITIZED)
  GTEST_SKIP() << "a sanitizer lets nothing be locked";
#endif
  const auto locked = [](std::uint64_t limit) {
    const std::uint64_t page = ReservedMemory::page_bytes();
    if (limit != 0) {  // which root's programs have not
      const rlimit few{limit, limit};
      if (setrlimit(RLIMIT_MEMLOCK, &few) != 0 || (geteuid() == 0 && setuid(65534) != 0)) _exit(0);
    }
    if (mlockall(MCL_FUTURE) != 0) _exit(0);  // nothing may be locked here
    const ReservedMemory memory(1024 * page, page);
    if (memory.bytes() != 1024 * page) _exit(3);
    memory.words()[0] = 1;
    _exit(touched_pages(memory, 1024) == 1 ? 0 : 2);
  };
  EXPECT_EXIT(locked(0), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(locked(1 << 20), testing::ExitedWithCode(0), "") << "a quarter of it may be locked";
}

TEST(ReservedMemoryTest, TakesLessWhereAddressSpaceIsScarce) {
#if defined(FURROW_SANITIZED)
  GTEST_SKIP() << "a sanitizer needs the address space itself";
#endif
  const auto with_limit = [] {
    rlimit limit{};
    limit.rlim_cur = limit.rlim_max = std::uint64_t{1} << 32;
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(2);
    const ReservedMemory memory(std::uint64_t{1} << 40, 1 << 20);
    if (memory.bytes() < 1 << 20 || memory.bytes() >= std::uint64_t{1} << 32) _exit(3);
    memory.words()[memory.bytes() / 8 - 1] = 1;
    try {
      const ReservedMemory none(std::uint64_t{1} << 40, std::uint64_t{3} << 30);  // not half of 4
    } catch (const std::bad_alloc&) {
      _exit(0);
    }
    _exit(4);
  };
  EXPECT_EXIT(with_limit(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace furrow
