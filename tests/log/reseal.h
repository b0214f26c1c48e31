// Makes the checksums of a structure right again after its bytes were changed, so that a test or a
// fuzzer gets behind them. Any bytes are taken; lengths that do not fit are left alone.
#pragma once

#include <cstddef>
#include <span>

#include "log/structure.h"

namespace furrow {

constexpr std::size_t kVersionAt = 4, kCrcAt = 8, kCoveredAt = 12;
constexpr std::size_t kBatchBodyCrcAt = kPrefixBytes + kStampBytes + 6 * 4;
constexpr std::size_t kBatchTotalAt = kBatchBodyCrcAt - 4;
constexpr std::size_t kFooterBytes = 96, kFooterBodyCrcAt = kFooterBytes - 4;

inline void reseal(std::span<std::byte> bytes) {
  if (bytes.size() < kPrefixBytes) return;
  const auto covered = load_le<std::uint32_t>(bytes.data() + kCoveredAt);
  if (covered < kPrefixBytes || covered > bytes.size()) return;
  const auto structure = bytes.first(covered);
  store_le(bytes.data() + kCrcAt,
           crc32c(structure.subspan(kCoveredAt), crc32c(structure.first(kCrcAt))));
}

// As a program of that version would have written the fixed part of the structure.
inline void set_version(std::span<std::byte> bytes, std::uint32_t version) {
  store_le(bytes.data() + kVersionAt, version);
  reseal(bytes);
}

inline void reseal_batch(std::span<std::byte> bytes) {
  if (bytes.size() < kBatchHeaderBytes) return;
  const auto total = load_le<std::uint32_t>(bytes.data() + kBatchTotalAt);
  if (total >= kBatchHeaderBytes && total <= bytes.size()) {
    store_le(bytes.data() + kBatchBodyCrcAt, crc32c(bytes.first(total).subspan(kBatchHeaderBytes)));
  }
  reseal(bytes);
}

inline void reseal_summary(std::span<std::byte> bytes) {
  if (bytes.size() < kFooterBytes) return;
  const auto footer = bytes.last(kFooterBytes);
  store_le(footer.data() + kFooterBodyCrcAt, crc32c(bytes.first(bytes.size() - kFooterBytes)));
  reseal(footer);
}

}  // namespace furrow
