// The parts of a PageRecord that batch headers and summaries pack alike. Private to log/. Pure.
#pragma once

#include <cstdint>

#include "log/format.h"

namespace furrow {

// {length - 1: 22 bits, key length: 5, kind: 2, pinned: 1, damaged: 1, zero: 1}. Of a tombstone the
// 22 bits and the last two are zero.
std::uint32_t pack_shape(const PageRecord& record);
// Sets kind, pinned, damaged, length and key.length; any `shape` is taken, valid_record() judges.
void unpack_shape(std::uint32_t shape, PageRecord& record);

// The bounds of a structure, zone-relative, in which its records must lie.
struct RecordBounds {
  std::uint32_t lba_bytes = 0;
  std::uint32_t pages_lba = 0;                                 // no page starts before this
  std::uint32_t end_lba = 0;                                   // no page reaches beyond this
  std::uint32_t tombstone_lba_min = 0, tombstone_lba_max = 0;  // batch headers lie in here
};
bool valid_record(const PageRecord& record, const RecordBounds& bounds);

}  // namespace furrow
