// What stands in the zones of the metadata ring, and what of it is damage.
// Private to log/metadata_scan.cc. Plain data; one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "log/metadata_format.h"
#include "log/metadata_scan.h"

namespace furrow {

struct RingFound {
  static constexpr unsigned kAllCopies = (1u << kJournalCopies) - 1;

  struct Item {  // where a checkpoint or record was found
    ZoneId zone;
    std::uint64_t end_lba = 0;  // behind it, zone-relative
  };
  struct FoundCheckpoint : Item {
    std::uint64_t lba = 0;  // its first
    Checkpoint checkpoint;
  };
  struct FoundEntry : Item {
    JournalEntry entry;
    unsigned copies = 0;  // a bit for each that is whole
  };
  struct BadLba {  // of a zone: not what it should be, or nothing
    std::uint64_t lba = 0;
    bool unreadable = false;
  };
  using Journal = std::map<std::uint64_t, FoundEntry>;  // by index

  std::vector<ZoneInfo> zones;                      // of the device
  std::map<std::uint32_t, Superblock> superblocks;  // by zone
  std::map<std::uint64_t, FoundCheckpoint> checkpoints;
  std::map<std::uint64_t, Journal> journals;         // by their checkpoint's number
  std::map<std::uint32_t, std::vector<BadLba>> bad;  // by zone, ascending
  std::map<std::uint32_t, std::uint64_t> end_lba;    // of what was looked at, by zone

  const Journal& journal(std::uint64_t number) const;
  // The highest number that a zone's structures speak of.
  std::optional<std::uint64_t> newest_in(ZoneId zone) const;
};

// Sees that all is whole which the state was read from, and which it could be read from if that was
// damaged: adds to contents.damage what is not, to contents.notes what a power cut may have torn,
// to contents.torn the zones in which it did so, or a roll has failed.
void judge_ring(const RingFound& found, RingContents& contents);

}  // namespace furrow
