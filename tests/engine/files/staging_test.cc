// Establishes that staging memory lies in huge pages where the kernel gives them, shared or not,
// that what was left in it is found again, also where signals interrupt its making, that it is not
// passed over where it cannot be had, and that none is taken where there is too little. How:
// posix_fallocate() is the test's own.
#include "engine/files/staging.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fstream>
#include <string>

namespace {
std::atomic<int> failures{0}, failure{EINTR}, successes{0};
}  // namespace

// The first calls fail, as if by signals; `successes` that do not come before.
extern "C" int posix_fallocate(int fd, off_t offset, off_t bytes) {
  if (successes > 0) {
    --successes;
  } else if (failures > 0) {
    return --failures, failure.load();
  }
  return fallocate(fd, 0, offset, bytes) == 0 ? 0 : errno;
}

namespace furrow {
namespace {

constexpr std::uint32_t kSlotBytes = 256 << 10;
constexpr int kCollapse = 25;  // MADV_COLLAPSE

std::string name() { return "/furrow-staging-test-" + std::to_string(getpid()); }

// Of the mapping of that file, in huge pages, as the kernel says.
std::uint64_t huge_kib() {
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool ours = false;
  std::uint64_t kib = 0;
  while (std::getline(maps, line)) {
    if (line.find('-') < line.find(' ')) ours = line.ends_with("/dev/shm" + name());
    if (ours && line.starts_with("ShmemPmdMapped:")) kib += std::stoull(line.substr(15));
  }
  return kib;
}

bool kernel_gives_huge_pages() {
  constexpr std::size_t kBytes = 4 << 20;
  const std::string other = name() + "-other";
  const int fd = shm_open(other.c_str(), O_RDWR | O_CREAT, 0600);
  shm_unlink(other.c_str());
  if (fd < 0 || posix_fallocate(fd, 0, kBytes) != 0) return false;
  void* const reserved = mmap(nullptr, 2 * kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto at = (reinterpret_cast<std::uintptr_t>(reserved) + kBytes - 1) / kBytes * kBytes;
  void* const memory = mmap(reinterpret_cast<void*>(at), kBytes, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_FIXED, fd, 0);
  const bool gives = memory != MAP_FAILED && madvise(memory, kBytes, kCollapse) == 0;
  munmap(reserved, 2 * kBytes);
  close(fd);
  return gives;
}

TEST(StagingTest, LiesInHugePages) {
  if (!kernel_gives_huge_pages()) GTEST_SKIP() << "the kernel gives none";
  Staging staging(name(), kSlotBytes, 1);
  ASSERT_TRUE(staging.survives_kill());
  EXPECT_GE(huge_kib() << 10, std::uint64_t{Staging::kSlots - 8} * kSlotBytes);
}

TEST(StagingTest, WhatWasLeftIsFoundWhereverItIsMapped) {
  for (const std::uint32_t slot_bytes : {64u << 10, kSlotBytes}) {
    {
      Staging staging(name(), slot_bytes, 1);
      ASSERT_TRUE(staging.survives_kill());
      staging.begin(1);
      for (std::uint64_t i = 0; i < Staging::kSlots; ++i) {
        Staging::Slot* const slot = staging.take(nullptr, 10 + i, 1, 4096 * i);
        ASSERT_NE(slot, nullptr);
        std::fill_n(slot->data, slot_bytes, static_cast<std::byte>(i));
        staging.publish(*slot, slot_bytes);
      }
      EXPECT_EQ(staging.take(nullptr, 1, 1, 0), nullptr);
      staging.leave_behind();
    }
    Staging staging(name(), slot_bytes, 1);
    const auto left = staging.left();
    ASSERT_EQ(left.size(), Staging::kSlots);
    for (std::uint64_t i = 0; i < Staging::kSlots; ++i) {
      EXPECT_EQ(left[i].inode, 10 + i);
      EXPECT_EQ(left[i].offset, 4096 * i);
      ASSERT_EQ(left[i].bytes.size(), slot_bytes);
      EXPECT_EQ(std::ranges::count(left[i].bytes, static_cast<std::byte>(i)), slot_bytes);
    }
  }
}

void leave(std::uint64_t inode) {
  Staging staging(name(), kSlotBytes, 1);
  ASSERT_TRUE(staging.survives_kill());
  staging.begin(1);
  Staging::Slot* const slot = staging.take(nullptr, inode, 1, 0);
  ASSERT_NE(slot, nullptr);
  staging.publish(*slot, 1);
  staging.leave_behind();
}

TEST(StagingTest, SignalsDoNotTakeWhatWasLeft) {
  leave(10);
  failures = 3;
  Staging staging(name(), kSlotBytes, 1);
  EXPECT_EQ(failures.exchange(0), 0);
  EXPECT_TRUE(staging.survives_kill());
  ASSERT_EQ(staging.left().size(), 1u);
  EXPECT_EQ(staging.left()[0].inode, 10u);
}

TEST(StagingTest, WhatWasLeftAndCannotBeHadIsNotPassedOver) {
  leave(11);
  failure = ENOMEM;
  failures = 1;
  {
    Staging staging(name(), kSlotBytes, 1);
    EXPECT_EQ(staging.refusal().code(), Code::io_error);
    EXPECT_FALSE(staging.survives_kill());
  }
  failure = EINTR;
  failures = 0;
  Staging staging(name(), kSlotBytes, 1);
  EXPECT_TRUE(staging.refusal().ok());
  ASSERT_EQ(staging.left().size(), 1u);
  EXPECT_EQ(staging.left()[0].inode, 11u);
}

bool is_there() { return access(("/dev/shm" + name()).c_str(), F_OK) == 0; }

TEST(StagingTest, WhereThereIsTooLittleMemoryNoneIsTaken) {
  failure = ENOSPC;
  successes = 5;
  failures = 1;
  {
    Staging staging(name(), kSlotBytes, 1);
    EXPECT_TRUE(staging.refusal().ok()) << staging.refusal().describe();
    EXPECT_FALSE(staging.survives_kill());
    EXPECT_FALSE(is_there()) << "five MiB that nobody uses, and others may need";
  }
  failure = EINTR;
  failures = 0;
  Staging staging(name(), kSlotBytes, 1);
  EXPECT_TRUE(staging.survives_kill());
}

// The kernel's answer would be a signal, which ends the process.
TEST(StagingTest, AProcessWhoseFilesMayNotBeThatLargeGoesOn) {
  leave(12);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit now{1 << 20, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &now), 0);
  {
    Staging staging(name(), kSlotBytes, 1);
    EXPECT_EQ(staging.left().size(), 1u) << "it is there already";
  }
  Staging staging(name(), kSlotBytes, 1);
  EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_TRUE(staging.refusal().ok()) << staging.refusal().describe();
  EXPECT_FALSE(staging.survives_kill());
  EXPECT_FALSE(is_there());
}

}  // namespace
}  // namespace furrow
