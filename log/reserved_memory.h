// ReservedMemory: address space of which only the touched pages take memory. Private to log/.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace furrow {

// Of words that others read, or write, at the same time.
inline std::uint64_t load_word(const std::uint64_t& word) {
  return std::atomic_ref<std::uint64_t>(const_cast<std::uint64_t&>(word))
      .load(std::memory_order_acquire);
}
inline void store_word(std::uint64_t& word, std::uint64_t value) {
  std::atomic_ref<std::uint64_t>(word).store(value, std::memory_order_release);
}

class ReservedMemory {
 public:
  // At least `bytes_min`, if it can be had `bytes`. Throws std::bad_alloc when even that little
  // address space is refused (ulimit -v).
  ReservedMemory(std::uint64_t bytes, std::uint64_t bytes_min);
  ~ReservedMemory();
  ReservedMemory(const ReservedMemory&) = delete;
  ReservedMemory& operator=(const ReservedMemory&) = delete;

  std::uint64_t* words() const { return words_; }
  std::uint64_t bytes() const { return bytes_; }
  // Gives the pages of [from, to) back, unless the program has locked them (mlockall(MCL_CURRENT)
  // makes memory of all that is reserved); both page-aligned offsets in bytes. They read as zero
  // then.
  void release(std::uint64_t from, std::uint64_t to);
  static std::uint64_t page_bytes();
  static std::uint64_t round_to_pages(std::uint64_t bytes) {
    return (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
  }

 private:
  std::uint64_t* words_ = nullptr;
  std::uint64_t bytes_ = 0;
};

}  // namespace furrow
