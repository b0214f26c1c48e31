// ZoneSurvey: everything that a data zone's structures say, summaries and batch headers both, and
// where they are damaged: for checking a pool and for rebuilding a zone. (Recovery reads a summary
// or batch headers, as SegmentScan does, and is fast; this reads all.)
//
// Blocking; one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "log/format.h"

namespace furrow {

// The bytes of LBAs of the zone, valid until the next call.
using ZoneRead =
    std::function<Result<std::span<const std::byte>>(std::uint64_t lba, std::uint32_t lbas)>;

// Does a record of a zone count that is void from `end_lba` on, and at `torn` (ZoneDirectory)?
bool record_counts(const PageRecord& record, std::uint64_t end_lba,
                   std::span<const std::uint32_t> torn);

struct SurveyedBatch {
  BatchHeader header;
  bool intact = true;  // else it is as the segment's summary tells
  std::vector<PageRecord> records;
};

struct SurveyedSegment {
  enum class Closing : std::uint8_t { open, intact, damaged };  // its summary
  std::uint64_t begin_lba = 0, end_lba = 0;                     // zone-relative
  Closing closing = Closing::open;
  std::uint64_t data_end_lba = 0;      // where the batches end
  std::vector<SurveyedBatch> batches;  // ascending
  // Where a batch header should be, and nothing tells what it described; ascending.
  std::vector<std::uint64_t> gaps;
  bool contradicts = false;  // the summary names other records than the batch headers
  Status version;            // as the zone's
};

struct ZoneSurvey {
  bool header_intact = false;
  std::uint64_t previous_opened = 0;  // as in the header, where that is
  // unsupported: an intact structure is of a newer version, so that what is missing may be there.
  Status version;
  std::vector<SurveyedSegment> segments;
};

struct SurveyedZone {
  ZoneStamp stamp;
  std::uint64_t written_lbas = 0;  // zone-relative; of a full zone its capacity
  std::uint64_t end_lba = 0;       // from here on all is void, and need not be whole
  std::uint64_t capacity_lbas = 0, segment_lbas = 0;
  std::uint32_t lba_bytes = 0;
  std::vector<std::uint32_t> torn{};  // void as well, before end_lba: as in ZoneDirectory
};

ZoneSurvey survey(const SurveyedZone& zone, const ZoneRead& read);

}  // namespace furrow
