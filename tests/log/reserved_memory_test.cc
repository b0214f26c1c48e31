// Establishes that ReservedMemory is zeroed, costs only what is touched, gives pages back exactly,
// and takes less, down to the least, when that much address space is refused. How: by mincore(),
// and with a limit on the address space in a child process.
#include "log/reserved_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

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
