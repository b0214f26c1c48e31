// Recovery: from what the zones hold to the index, after any stop.
//
// Zones are read in parallel: summaries where a segment has one, batch headers elsewhere. Only the
// newest zone of each stream can hold what was not flushed; behind its last flush point every page
// is verified, and at the first thing that is not whole the zone ends: what follows is void, for
// ever (it is noted in the metadata journal). A zone of which the journal says that it is durable
// is not verified, also where those opened after it are gone. Of each key the record with the
// highest sequence wins.
//
// A volume that was cut off while it emptied a zone into the last one of its quota gets that one
// back: what it holds are copies, whose originals are still there. So collection always begins with
// a zone to write to, however often the power fails.
//
// Blocking; the threads that it starts are its own.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "log/format.h"
#include "log/pool_context.h"
#include "log/recovered_pages.h"
#include "log/stream.h"
#include "zone/device.h"

namespace furrow {

struct RecoveredVolume {
  RecoveredPages pages;
  std::uint64_t live_bytes = 0, pinned_lbas = 0, cost_bytes = 0;
  std::uint32_t largest_bytes = 0;                   // page
  std::uint32_t first_expiry_s = ~std::uint32_t{0};  // of its pages
  bool expired = false;                              // pages that have expired were left out
  bool hidden = false;   // what cannot be read now may be its, and count at the next opening
  bool lost = false;     // what a zone that is offline held may have been its
  bool damaged = false;  // records say of pages that they are
  std::map<unsigned, Stream::Resume> resumes;  // by stream
  std::vector<Outlived> outlived;              // one may stand there more than once
};

struct ZoneTrim {
  ZoneId zone;
  std::uint64_t generation = 0;
  std::uint32_t end_lba = 0;
  bool durable = false, aside = false;  // as in ZoneTrimRecord
};

struct RecoveryOptions {
  unsigned threads = 1;                // 1, with one scanner: the calling thread alone
  unsigned scanners_per_thread = 3;    // that read zones: they wait for the device most of the time
  bool read_only = false;              // nothing is finished or reset
  std::vector<std::uint64_t> volumes;  // ids that exist; zones of others are vacated
  std::uint64_t next_volume_id = ~std::uint64_t{0};  // but for those from this one on
  bool had_others = false;  // that were deleted, and whose zones may not have been reset yet
  std::vector<std::uint64_t> stores;  // of these, those that drop nothing
  std::vector<std::uint64_t> caches;  // and those that evict
  std::vector<ZoneTrim> trims;        // from the journal
  // Of these what cannot be read counts as lost, for good: one of which nobody can tell whose it is
  // is reset, one of a store can be collected.
  std::vector<ZoneId> give_up;
  // There may have been more: zones that are not full are verified like the newest one.
  bool trims_lost = false;
  // Puts a trim into the journal, before a zone is reset that stood for what it says, or finished,
  // so that it does not say it any more; durable when it returns. None: that is left out.
  std::function<Status(const ZoneTrim&)> note_trim;
};

struct RecoveryResult {
  std::vector<std::unique_ptr<PieceMemory>> memory;  // of the volumes' pages
  std::map<std::uint64_t, RecoveredVolume> volumes;
  std::vector<ZoneTrim> new_trims;  // to be journaled before anything is written
  struct Lost {
    ZoneId zone;
    std::string why;
    // What can be given up: what cannot be read of it, or all, as nobody can tell whose it is.
    enum class Missing : std::uint8_t { nothing, some, all } missing = Missing::nothing;
  };
  // Of volumes that were deleted, and not reset yet: adopted as being reset, by whoever recovers.
  // Of those that count against the device's limits there is none.
  std::vector<ZoneId> vacated;
  std::vector<Lost> lost;  // zones that cannot be used as they should, and are gone around
  // Batch headers that are damaged, with nothing that repeats them: the pages they named are not
  // there, and what stood under their keys before may be.
  struct Gap {
    ZoneId zone;
    std::uint64_t lba = 0;  // zone-relative
  };
  std::vector<Gap> gaps;
  // Zones of volumes that no metadata speaks of yet: it is older than they are. Read-only; a
  // recovery that writes is refused then.
  std::map<std::uint64_t, std::vector<ZoneId>> unknown;
  std::uint64_t highest_sequence = 0;  // of all sequences and generations that were seen
};

// Fills pool.allocator (zones adopted; owners must be admitted) and pool.tables as well. Zones that
// are lent there by then are not looked at, nor are they `lost`, whatever has become of them.
// corrupt: metadata is older than the zones (RecoveryResult::unknown); unsupported: a structure
// that counts is of a newer version. Nothing was changed then.
Result<RecoveryResult> recover(ZonedDevice& device, PoolContext& pool,
                               const RecoveryOptions& options);

}  // namespace furrow
