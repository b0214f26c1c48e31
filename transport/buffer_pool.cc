#include "transport/buffer_pool.h"

#include <algorithm>

#include "transport/fair_share.h"
#include "zone/check.h"

namespace furrow::transport {

BufferPool::BufferPool(std::uint64_t bytes_max, std::uint32_t transfer_bytes_max) {
  const std::uint32_t sizes[kClasses] = {
      kSmallBytes, kMediumBytes, std::max(transfer_bytes_max, kMediumBytes) + kLargeExtraBytes};
  const std::uint64_t shares[kClasses] = {bytes_max / 4, bytes_max / 4, bytes_max / 2};
  std::size_t total = 0;
  for (unsigned i = 0; i < kClasses; ++i) {
    Class& size = classes_[i];
    size.buffer_bytes = sizes[i];
    size.count = std::max(kBuffersMin, static_cast<std::uint32_t>(shares[i] / sizes[i]));
    total += std::size_t{size.count} * size.buffer_bytes;
  }
  slab_ = AlignedBuffer(total);
  std::byte* at = slab_.data();
  for (Class& size : classes_) {
    size.begin = at;
    size.free.reserve(size.count);
    at += std::size_t{size.count} * size.buffer_bytes;
    for (std::uint32_t i = size.count; i-- > 0;) {
      size.free.push_back(size.begin + std::size_t{i} * size.buffer_bytes);
    }
  }
}

unsigned BufferPool::class_of(std::uint32_t bytes) const {
  unsigned wanted = 0;
  while (classes_[wanted].buffer_bytes < bytes) {
    ++wanted;
    FURROW_CHECK(wanted < kClasses);
  }
  return wanted;
}

bool BufferPool::may_have(const Class& size, unsigned index, const Holders& holders) {
  const Shared shared{size.count, 1};
  const std::uint64_t free = size.free.size();
  const auto leaves = [&](const Held* held, std::uint64_t part) {
    return held == nullptr || leaves_reserve(shared, (*held)[index], 1, free, part);
  };
  const Held* const connection = holders.connection;
  return free != 0 &&
         (connection == nullptr || within_share(shared, (*connection)[index], 1, free)) &&
         leaves(holders.host, kHostReserve) && leaves(holders.address, kAddressReserve);
}

BufferPool::Buffer BufferPool::take(unsigned wanted, const Holders& holders) {
  for (unsigned i = wanted; i < kClasses; ++i) {
    Class& size = classes_[i];
    if (!may_have(size, i, holders)) continue;
    for (Held* held : {holders.connection, holders.host, holders.address}) {
      if (held != nullptr) ++(*held)[i];
    }
    // Last in, first out: the most recently used memory is the one still in the caches.
    std::byte* data = size.free.back();
    size.free.pop_back();
    return {data, size.buffer_bytes};
  }
  return {};
}

void BufferPool::give(std::byte* data, const Holders& holders) {
  unsigned i = kClasses - 1;
  while (data < classes_[i].begin) {
    FURROW_CHECK(i > 0);
    --i;
  }
  FURROW_CHECK(classes_[i].free.size() < classes_[i].count);
  for (Held* held : {holders.connection, holders.host, holders.address}) {
    if (held == nullptr) continue;
    FURROW_CHECK((*held)[i] > 0);
    --(*held)[i];
  }
  classes_[i].free.push_back(data);
}

bool BufferPool::all_free() const {
  return std::all_of(classes_.begin(), classes_.end(),
                     [](const Class& size) { return size.free.size() == size.count; });
}

}  // namespace furrow::transport
