#include "log/index_chunks.h"

#include <algorithm>
#include <new>

#include "zone/check.h"

namespace furrow {

namespace {
constexpr std::uint64_t kExtentWords = ChunkStore::kExtentBytes / 8;
// Every class may hold one extent that is hardly used.
constexpr std::uint64_t kOpenExtentsBytes = 512 * ChunkStore::kExtentBytes;

unsigned unit_shift_for(std::uint64_t bytes) {
  unsigned shift = 0;
  while ((bytes / 8 >> shift) > UINT32_MAX) ++shift;
  return shift;
}
}  // namespace

ChunkStore::ChunkStore(std::uint64_t bytes_max, std::uint64_t same)
    : same_(same),
      unit_shift_(unit_shift_for(bytes_max + kOpenExtentsBytes)),
      memory_(bytes_max + kOpenExtentsBytes, kOpenExtentsBytes) {}

ChunkStore::Ref ChunkStore::slot_ref(unsigned k, std::uint64_t slot) const {
  const std::uint64_t in_extent = slots_per_extent(k);
  const std::uint64_t word =
      classes_[k].extents[slot / in_extent] * kExtentWords + slot % in_extent * slot_words(k);
  return static_cast<Ref>(word >> unit_shift_);
}

std::uint32_t ChunkStore::take_extent() {
  if (!free_extents_.empty()) {
    const std::uint32_t extent = free_extents_.back();
    free_extents_.pop_back();
    return extent;
  }
  if ((std::uint64_t{extents_used_} + 1) * kExtentBytes > memory_.bytes()) throw std::bad_alloc();
  return extents_used_++;
}

std::uint64_t ChunkStore::touched_bytes(unsigned k, std::uint64_t slots) const {
  const std::uint64_t in_extent = slots_per_extent(k), slot_bytes = slot_words(k) * 8;
  return slots / in_extent * ReservedMemory::round_to_pages(in_extent * slot_bytes) +
         ReservedMemory::round_to_pages(slots % in_extent * slot_bytes);
}

void ChunkStore::count_touched(Class& of_size, unsigned k) {
  const std::uint64_t now = touched_bytes(k, of_size.slots_touched);
  if (now == of_size.bytes) return;
  touched_bytes_ += now - of_size.bytes;
  of_size.bytes = now;
  std::uint64_t tables = sizeof *this + classes_.capacity() * sizeof(Class) +
                         free_extents_.capacity() * sizeof(std::uint32_t);
  for (const Class& each : classes_) tables += each.extents.capacity() * sizeof(std::uint32_t);
  bytes_.store(touched_bytes_ + tables, std::memory_order_relaxed);
}

ChunkStore::Ref ChunkStore::allocate(unsigned k) {
  FURROW_CHECK(k >= 1 && k <= kClassMax);
  if (k >= classes_.size()) classes_.resize(k + 1);
  Class& of_size = classes_[k];
  if (of_size.slots == of_size.extents.size() * slots_per_extent(k)) {
    of_size.extents.push_back(take_extent());
  }
  const std::uint64_t slot = of_size.slots++;
  if (of_size.slots > of_size.slots_touched) {
    of_size.slots_touched = of_size.slots;
    count_touched(of_size, k);
  }
  return slot_ref(k, slot);
}

std::optional<ChunkStore::Moved> ChunkStore::free(unsigned k, Ref ref) {
  Class& of_size = classes_[k];
  const Ref last = slot_ref(k, --of_size.slots);
  if (last == ref) return std::nullopt;
  std::uint64_t* to = memory_.words() + (std::uint64_t{ref} << unit_shift_);
  const std::uint64_t* from = memory_.words() + (std::uint64_t{last} << unit_shift_);
  Chunk::copy(to, from, Chunk::words(k, same_ != 0));
  return Moved{chunk(ref, k).bucket(), ref};
}

void ChunkStore::clear() {
  memory_.release(0, extents_used_ * kExtentBytes);
  classes_ = {};
  free_extents_ = {};
  touched_bytes_ = 0;
  bytes_.store(sizeof *this, std::memory_order_relaxed);
}

// Slack of about a page a class, so that a class that breathes does not ask the kernel each time.
void ChunkStore::trim(unsigned k) {
  Class& of_size = classes_[k];
  const std::uint64_t slot_bytes = slot_words(k) * 8;
  const std::uint64_t slack = ReservedMemory::page_bytes() / slot_bytes + of_size.slots / 256;
  if (of_size.slots_touched - of_size.slots <= slack) return;
  const std::uint64_t in_extent = slots_per_extent(k);
  const std::uint64_t kept = (of_size.slots + in_extent - 1) / in_extent;
  while (of_size.extents.size() > kept) {
    const std::uint64_t start = of_size.extents.back() * kExtentBytes;
    memory_.release(start, start + kExtentBytes);
    free_extents_.push_back(of_size.extents.back());
    of_size.extents.pop_back();
  }
  if (of_size.slots % in_extent != 0) {
    const std::uint64_t start = of_size.extents.back() * kExtentBytes;
    const std::uint64_t used =
        ReservedMemory::round_to_pages(of_size.slots % in_extent * slot_bytes);
    memory_.release(start + used, start + kExtentBytes);
  }
  of_size.slots_touched = of_size.slots;
  count_touched(of_size, k);
}

}  // namespace furrow
