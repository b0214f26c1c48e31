#include "log/reserved_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "zone/check.h"

namespace furrow {

ReservedMemory::ReservedMemory(std::uint64_t bytes, std::uint64_t bytes_min) {
  bytes_ = round_to_pages(std::max(bytes, bytes_min));
  for (;;) {
    void* mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped != MAP_FAILED) {
      words_ = static_cast<std::uint64_t*>(mapped);
      break;
    }
    if (bytes_ / 2 < bytes_min) throw std::bad_alloc();
    bytes_ = round_to_pages(bytes_ / 2);
  }
  // Huge pages would take memory that was never touched; a kernel without them refuses, and needs
  // no telling.
  static_cast<void>(madvise(words_, bytes_, MADV_NOHUGEPAGE));
}

ReservedMemory::~ReservedMemory() { munmap(words_, bytes_); }

void ReservedMemory::release(std::uint64_t from, std::uint64_t to) {
  if (from >= to) return;
  FURROW_CHECK(to <= bytes_);
  const int failed = madvise(reinterpret_cast<char*>(words_) + from, to - from, MADV_DONTNEED);
  FURROW_CHECK(failed == 0);
}

std::uint64_t ReservedMemory::page_bytes() {
  static const auto bytes = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace furrow
