#include "log/record_sorter.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace furrow {

namespace {

// Of copies of one record (relocated, the original not yet reset) recovery chooses. A tombstone
// that stands for a page has that page's sequence, and comes before it.
bool before(const RecoveredRecord& a, const RecoveredRecord& b) {
  if (a.order != b.order) return a.order < b.order;
  if (a.identity != b.identity) return a.identity < b.identity;
  if (a.sequence != b.sequence) return a.sequence > b.sequence;
  const bool a_deletes = a.kind == RecoveredRecord::Kind::tombstone;
  const bool b_deletes = b.kind == RecoveredRecord::Kind::tombstone;
  if (a_deletes != b_deletes) return a_deletes;
  return a.lba() < b.lba();
}

void sort_bin(std::span<RecoveredRecord> bin) {
  // Keyed hashes spread evenly: bins are short, but for a key that was written many times.
  constexpr std::size_t kShort = 16;
  if (bin.size() > kShort) {
    std::ranges::sort(bin, before);
    return;
  }
  for (std::size_t i = 1; i < bin.size(); ++i) {
    if (!before(bin[i], bin[i - 1])) continue;
    const RecoveredRecord moving = bin[i];
    std::size_t at = i;
    for (; at != 0 && before(moving, bin[at - 1]); --at) bin[at] = bin[at - 1];
    bin[at] = moving;
  }
}

}  // namespace

// Into about as many bins as there are records, by the hash's bits behind the partition's: then
// what is left to sort are neighbours.
std::span<const RecoveredRecord> RecordSorter::sort() {
  std::size_t count = 0;
  for (const RecordPile* pile : piles_) count += pile->size();
  constexpr unsigned kBinBitsMax = 16;
  const unsigned bits = std::clamp(static_cast<unsigned>(std::bit_width(count)), 1u, kBinBitsMax);
  const auto bin_of = [bits](const RecoveredRecord& record) {
    return record.order << kPartitionBits >> (64 - bits);
  };
  ends_.assign(std::size_t{1} << bits, 0);
  for (const RecordPile* pile : piles_) {
    pile->for_each([&](const RecoveredRecord& record) { ++ends_[bin_of(record)]; });
  }
  std::uint32_t begin = 0;
  for (std::uint32_t& end : ends_) begin += std::exchange(end, begin);
  if (sorted_.size() < count) sorted_.resize(count);
  for (const RecordPile* pile : piles_) {
    pile->for_each(
        [&](const RecoveredRecord& record) { sorted_[ends_[bin_of(record)]++] = record; });
  }
  begin = 0;
  for (const std::uint32_t end : ends_) {
    if (end - begin > 1) sort_bin(std::span(sorted_).subspan(begin, end - begin));
    begin = end;
  }
  return std::span(sorted_).first(count);
}

}  // namespace furrow
