// AlignedBuffer: zeroed memory that O_DIRECT accepts, owned. A large one asks for huge pages: a
// transfer then has few segments, and a page few TLB misses.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <span>

namespace furrow {

class AlignedBuffer {
 public:
  static constexpr std::size_t kAlignment = 4096;

  AlignedBuffer() = default;
  // Without memory the process ends here, as nothing can be taken apart in order: of
  // std::bad_alloc, so that a program's terminate handler can say why.
  explicit AlignedBuffer(std::size_t bytes) noexcept {
    if (!take(bytes)) find_none();
  }
  // For sizes that a user chose. Nothing: there is not so much memory.
  static std::optional<AlignedBuffer> allocate(std::size_t bytes) {
    std::optional<AlignedBuffer> buffer(std::in_place);
    if (!buffer->take(bytes)) buffer.reset();
    return buffer;
  }

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  std::span<std::byte> span() { return {data_.get(), size_}; }
  std::span<const std::byte> span() const { return {data_.get(), size_}; }

 private:
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;
  [[noreturn]] static void find_none() { throw std::bad_alloc(); }
  bool take(std::size_t bytes) {
    size_ = bytes;
    const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (rounded == 0) return bytes == 0;
    const bool huge = rounded >= kHugePage;
    void* memory = nullptr;
    if (posix_memalign(&memory, huge ? kHugePage : kAlignment, rounded) != 0) return false;
    data_.reset(static_cast<std::byte*>(memory));
    if (huge) (void)madvise(memory, rounded, MADV_HUGEPAGE);  // where there are any
    std::memset(memory, 0, rounded);
    return true;
  }
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  std::unique_ptr<std::byte[], Free> data_;
  std::size_t size_ = 0;
};

}  // namespace furrow
