#include "log/recovered_pages.h"

#include <sys/mman.h>

#include <atomic>
#include <new>

#include "zone/threads.h"

namespace furrow {

namespace {
constexpr std::size_t kBlockBytes = std::size_t{4} << 20, kHugePageBytes = std::size_t{2} << 20;
constexpr std::size_t kPiecesPerBlock = kBlockBytes / sizeof(RecordPiece);
}  // namespace

PieceMemory::~PieceMemory() {
  for (void* block : blocks_) munmap(block, kBlockBytes);
}

RecordPiece* PieceMemory::take() {
  if (blocks_.empty() || used_ == kPiecesPerBlock) {
    // Cut out of something larger, so that it begins where a huge page can.
    const std::size_t mapped = kBlockBytes + kHugePageBytes;
    void* map = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) throw std::bad_alloc();
    auto* begin = static_cast<std::byte*>(map);
    const std::size_t skip =
        (kHugePageBytes - reinterpret_cast<std::uintptr_t>(begin) % kHugePageBytes) %
        kHugePageBytes;
    if (skip != 0) munmap(begin, skip);
    if (skip != kHugePageBytes) munmap(begin + skip + kBlockBytes, kHugePageBytes - skip);
    blocks_.push_back(begin + skip);
    static_cast<void>(madvise(blocks_.back(), kBlockBytes, MADV_HUGEPAGE));  // where there are any
    used_ = 0;
  }
  return static_cast<RecordPiece*>(blocks_.back()) + used_++;
}

RecoveredPages::RecoveredPages(std::unique_ptr<RecordPartitions> partitions, unsigned threads)
    : partitions_(std::move(partitions)), threads_(threads) {
  for (const RecordPile& partition : *partitions_) size_ += partition.size();
}

void RecoveredPages::load_into(Index& index) const {
  if (size_ == 0) return;
  static_assert(kPartitionBits >= Index::kLoadRangeBits);
  constexpr unsigned kRanges = 1 << Index::kLoadRangeBits, kEach = kPartitions / kRanges;
  index.begin_load(size_);
  std::atomic<unsigned> next{0};
  run_on_threads(threads_, [&](unsigned) {
    for (unsigned range = next++; range < kRanges; range = next++) {
      Index::Loader loader(index);
      for (unsigned i = range * kEach; i < (range + 1) * kEach; ++i) {
        (*partitions_)[i].for_each([&](const RecoveredRecord& record) {
          loader.add({record.order, record.entry()});
        });
      }
      loader.finish();
    }
  });
}

}  // namespace furrow
