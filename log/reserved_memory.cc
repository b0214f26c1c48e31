#include "log/reserved_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "zone/check.h"

namespace furrow {

namespace {

void* map(std::uint64_t bytes) {
  return mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

// Null where so much address space is refused. Not accessible before it is unlocked: a program that
// has locked its memory (mlockall(2)) would get all of it at once, touched or not. EAGAIN: it may
// not lock so much; one page that it unlocks may grow, as nothing of that is locked any more.
void* reserve(std::uint64_t bytes) {
  void* mapped = map(bytes);
  if (mapped == MAP_FAILED && errno == EAGAIN) {
    const std::uint64_t page = ReservedMemory::page_bytes();
    void* const seed = map(page);
    if (seed == MAP_FAILED) return nullptr;
    static_cast<void>(munlock(seed, page));
    mapped = mremap(seed, page, bytes, MREMAP_MAYMOVE);
    if (mapped == MAP_FAILED) munmap(seed, page);
  }
  if (mapped == MAP_FAILED) return nullptr;
  static_cast<void>(munlock(mapped, bytes));
  if (mprotect(mapped, bytes, PROT_READ | PROT_WRITE) == 0) return mapped;
  munmap(mapped, bytes);
  return nullptr;
}

}  // namespace

ReservedMemory::ReservedMemory(std::uint64_t bytes, std::uint64_t bytes_min) {
  bytes_ = round_to_pages(std::max(bytes, bytes_min));
  for (;;) {
    words_ = static_cast<std::uint64_t*>(reserve(bytes_));
    if (words_ != nullptr) break;
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
  if (madvise(reinterpret_cast<char*>(words_) + from, to - from, MADV_DONTNEED) == 0) return;
  // Memory that was locked since then is not given back. What was never touched is not touched now.
  for (std::uint64_t i = from / 8; i < to / 8; ++i) {
    if (load_word(words_[i]) != 0) store_word(words_[i], 0);
  }
}

std::uint64_t ReservedMemory::page_bytes() {
  static const auto bytes = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace furrow
