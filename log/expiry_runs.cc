#include "log/expiry_runs.h"

#include <algorithm>
#include <bit>
#include <new>

#include "zone/check.h"

namespace furrow {

namespace {

constexpr std::uint64_t kReservedMin = 1 << 20;

std::uint64_t pack(std::uint32_t lba, std::uint32_t value) {
  return std::uint64_t{value} << 32 | lba;
}
std::uint32_t lba_of(std::uint64_t word) { return static_cast<std::uint32_t>(word); }
std::uint32_t value_of(std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); }

// How many of `count` words, which ascend by LBA, begin at `lba` or before.
template <class Word>
std::uint32_t begun_at(std::uint32_t count, std::uint32_t lba, const Word& word) {
  std::uint32_t low = 0;
  for (std::uint32_t high = count; low < high;) {
    const std::uint32_t middle = low + (high - low) / 2;
    if (lba_of(word(middle)) <= lba) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace

ExpiryRuns::ExpiryRuns(const Geometry& geometry)
    : counts_(geometry.zone_count),
      directory_(
          lines_for(chunks_for(geometry.zone_capacity_lbas)) * geometry.zone_count * kLineBytes,
          lines_for(chunks_for(geometry.zone_capacity_lbas)) * geometry.zone_count * kLineBytes),
      // They are taken by whole groups.
      chunks_(std::min(chunks_for(geometry.zone_capacity_lbas) * geometry.zone_count + kGroupChunks,
                       std::uint64_t{1} << 32) *
                  kChunkBytes,
              kReservedMin) {}

std::uint64_t& ExpiryRuns::run(ZoneId zone, std::uint32_t number) const {
  return chunk(value_of(load_word(entry(zone, number / kChunkRuns))))[number % kChunkRuns];
}

void ExpiryRuns::add(ZoneId zone, std::uint32_t lba, std::uint32_t expires_s) {
  FURROW_CHECK(expires_s != 0);
  const std::uint32_t count = counts_[zone.value].load(std::memory_order_relaxed);
  if (count != 0) {
    const std::uint64_t last = load_word(run(zone, count - 1));
    if (value_of(last) == expires_s || lba <= lba_of(last)) return;
  }
  if (count % kChunkRuns == 0) {
    store_word(entry(zone, count / kChunkRuns), pack(lba, take_chunk()));
  }
  store_word(run(zone, count), pack(lba, expires_s));
  counts_[zone.value].store(count + 1, std::memory_order_release);
}

std::uint32_t ExpiryRuns::find(ZoneId zone, std::uint32_t lba) const {
  const std::uint32_t count = counts_[zone.value].load(std::memory_order_acquire);
  const std::uint32_t chunks =
      begun_at(static_cast<std::uint32_t>(chunks_for(count)), lba,
               [&](std::uint32_t number) { return load_word(entry(zone, number)); });
  if (chunks == 0) return 0;
  const std::uint32_t number = chunks - 1;
  const std::uint64_t* runs = chunk(value_of(load_word(entry(zone, number))));
  const std::uint32_t its_runs = begun_at(std::min(count - number * kChunkRuns, kChunkRuns), lba,
                                          [&](std::uint32_t i) { return load_word(runs[i]); });
  return its_runs == 0 ? 0 : value_of(load_word(runs[its_runs - 1]));
}

std::uint64_t ExpiryRuns::bytes(ZoneId zone) const {
  const std::uint64_t chunks = chunks_for(counts_[zone.value].load(std::memory_order_relaxed));
  return chunks * kChunkBytes + lines_for(chunks) * kLineBytes;
}

void ExpiryRuns::drop(ZoneId zone) {
  const std::uint32_t count = counts_[zone.value].exchange(0, std::memory_order_relaxed);
  if (count == 0) return;
  const std::lock_guard lock(mutex_);
  for (std::uint32_t number = 0; number < chunks_for(count); ++number) {
    const std::uint32_t freed = value_of(load_word(entry(zone, number)));
    used_[freed / kGroupChunks] &= ~(std::uint64_t{1} << freed % kGroupChunks);
    full_ = std::min<std::size_t>(full_, freed / kGroupChunks);
  }
  trim();
}

// The first one that is free, so that those at the end become so.
std::uint32_t ExpiryRuns::take_chunk() {
  const std::lock_guard lock(mutex_);
  while (full_ != used_.size() && used_[full_] == ~std::uint64_t{0}) ++full_;
  if (full_ == used_.size()) {
    if ((used_.size() + 1) * kGroupBytes > chunks_.bytes()) throw std::bad_alloc();
    used_.push_back(0);
    touched_bytes_ = std::max(touched_bytes_, used_.size() * kGroupBytes);
  }
  const auto bit = static_cast<unsigned>(std::countr_one(used_[full_]));
  used_[full_] |= std::uint64_t{1} << bit;
  return static_cast<std::uint32_t>(full_ * kGroupChunks + bit);
}

void ExpiryRuns::trim() {
  while (!used_.empty() && used_.back() == 0) used_.pop_back();
  full_ = std::min(full_, used_.size());
  const std::uint64_t kept = ReservedMemory::round_to_pages(used_.size() * kGroupBytes);
  if (kept >= touched_bytes_) return;
  chunks_.release(kept, ReservedMemory::round_to_pages(touched_bytes_));
  touched_bytes_ = kept;
}

}  // namespace furrow
