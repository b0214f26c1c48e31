// MetadataRing: checkpoints, each followed by its journal, in the first zones of a pool.
//
// A ring zone holds, in order: superblock (1 LBA), checkpoint, journal records (each rounded up to
// LBAs). When the active zone has no room for a record, the ring rolls: the oldest zone is reset,
// and superblock, checkpoint (with the record applied) are written there and flushed; until that is
// done the other zone stays valid. Opening takes the newest readable checkpoint and its journal; if
// the newest is damaged, the older checkpoint, its journal and then the newest zone's journal.
// A torn tail of the journal is cut off (the ring rolls before the next record).
//
// Blocking; one thread at a time. Errors: no_space when a state does not fit half a zone, io_error,
// corrupt, foreign (no superblock anywhere), unsupported (newer version, unknown incompatible bit).
#pragma once

#include <memory>
#include <vector>

#include "log/format.h"
#include "zone/device.h"

namespace furrow {

class MetadataRing {
 public:
  // Writes a first checkpoint. Zones [0, superblock.metadata_zones) must be empty or are reset.
  static Status format(ZonedDevice& device, const Superblock& superblock, const PoolState& state);
  static Result<MetadataRing> open(ZonedDevice& device, bool read_only);

  MetadataRing(MetadataRing&&) noexcept;
  MetadataRing& operator=(MetadataRing&&) noexcept;
  ~MetadataRing();

  const Superblock& superblock() const { return superblock_; }
  const PoolState& state() const { return state_; }
  // Applies the record and makes it durable (write, flush). On an error the state is as before.
  Status append(const JournalRecord& record);
  // What was found damaged and got around at open, one line each (for `pool check`).
  const std::vector<std::string>& damage() const { return damage_; }

 private:
  MetadataRing();
  ZonedDevice* device_ = nullptr;
  std::unique_ptr<IoQueue> queue_;
  Superblock superblock_;
  PoolState state_;
  std::vector<std::string> damage_;
  ZoneId active_zone_;
  std::uint64_t written_lbas_ = 0;  // in the active zone
};

}  // namespace furrow
