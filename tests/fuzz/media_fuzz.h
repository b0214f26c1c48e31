// What the fuzz targets of the medium's structures share. The input is a structure's bytes, their
// checksums made right by the target, so that mutation gets behind them. Now and
// then the mutator puts a random, valid structure in the input's place.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tests/fuzz/require.h"
#include "tests/log/random_structures.h"
#include "tests/log/reseal.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t size_max);

namespace furrow::fuzz {

// Aligned as a reader's buffer would be, and exactly as long: a read behind it is found.
inline Bytes copy_of(const std::uint8_t* data, std::size_t size) {
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  return {bytes, bytes + size};
}

inline ZoneStamp stamp_of(std::span<const std::byte> structure) {
  if (structure.size() < kPrefixBytes + kStampBytes) return {};
  ByteReader reader(structure.subspan(kPrefixBytes));
  return take_stamp(reader);
}

// What every reader of a record relies on, said without the decoders' own words.
inline void require_in_range(const PageRecord& record, std::uint64_t pages_lba,
                             std::uint64_t end_lba, std::uint64_t lba_bytes) {
  const bool page = record.kind == RecordKind::page;
  const bool group = record.kind == RecordKind::group_tombstone;
  require(page || group || record.kind == RecordKind::tombstone, "a record's kind is known");
  require(record.key.length <= Key::kBytesMax && (record.key.length == 0) == group,
          "a record has a key, a group's tombstone none");
  for (std::size_t i = record.key.length; i < Key::kBytesMax; ++i) {
    require(record.key.bytes[i] == std::byte{0}, "a key is zero beyond its length");
  }
  if (!page) {
    require(record.length == 0 && record.lba < end_lba, "a tombstone has no page");
    return;
  }
  require(record.length >= 1 && record.length <= kValueBytesMax, "a page has a length");
  require(record.lba >= pages_lba, "a page lies behind its header");
  require(record.lba + (record.length + lba_bytes - 1) / lba_bytes <= end_lba,
          "a page ends inside");
}

template <class MakeValid>
std::size_t mutate(std::uint8_t* data, std::size_t size, std::size_t size_max, unsigned seed,
                   MakeValid&& make_valid) {
  if (size > 64 && seed % 64 != 0) return LLVMFuzzerMutate(data, size, size_max);
  RandomStructures random(seed);
  const Bytes valid = make_valid(random);
  const std::size_t taken = std::min(valid.size(), size_max);
  std::memcpy(data, valid.data(), taken);
  return taken;
}

}  // namespace furrow::fuzz
