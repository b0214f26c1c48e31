// MetadataRing: checkpoints, each followed by its journal, in the first zones of a pool.
//
// A ring zone holds, in order: superblock (1 LBA), checkpoint, journal records (2 LBAs each, either
// of which is the record: so rot is told from a tear, which takes both). When the active zone has
// no room for a record, or has many, the ring rolls: another zone is reset and the active one
// finished, both durably; then superblock, checkpoint (with the record applied) and the record
// itself are written there and flushed; until that is done the old zone stays valid. Opening takes
// the newest readable checkpoint and its journal; if the newest is damaged, the older checkpoint,
// its journal and then the newest zone's journal, whose record 0 is why the ring rolled. A torn
// tail of the journal is cut off (the ring rolls before the next record, as it does when a copy of
// one is damaged). When every zone is needed to read the state back, the roll goes into the rest of
// the active zone, so that no single damage and no power cut loses anything.
//
// Blocking, but for begin(); one thread at a time. Errors: no_space when a state does not fit a
// third of a zone (or 64 MiB: never on a device that suits()), invalid_argument (a record or a pool
// that the format has no place for; names are 1-63 of [A-Za-z0-9._-]), io_error (also when what
// cannot be read may be newer than what can), corrupt, foreign (no superblock anywhere),
// unsupported (newer version, unknown incompatible bit; unknown read-only bit unless opened so),
// permission (append when opened read-only).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "log/format.h"
#include "zone/aligned_buffer.h"
#include "zone/device.h"

namespace furrow {

class MetadataRing {
 public:
  // Does a zone have room for the largest checkpoint, twice over: so many volumes, each zone
  // trimmed?
  // invalid_argument: no.
  static Status suits(const Geometry& geometry, std::size_t volumes);
  // And for these reservations beside it?
  static bool has_room_for(const Geometry& geometry, std::size_t volumes,
                           const std::vector<ReservationRecord>& reservations);
  // Writes a first checkpoint, twice. Zones [0, superblock.metadata_zones) must be empty or are
  // reset.
  static Status format(ZonedDevice& device, const Superblock& superblock, const PoolState& state);
  // corrupt: acknowledged records are lost; read_only gives what is left, and damage() says so.
  // `lost_too`: also a pool of which no checkpoint is whole, for assume() and rebuild().
  static Result<MetadataRing> open(ZonedDevice& device, bool read_only, bool lost_too = false);

  MetadataRing(MetadataRing&&) noexcept;
  MetadataRing& operator=(MetadataRing&&) noexcept;
  ~MetadataRing();

  const Superblock& superblock() const { return superblock_; }
  const PoolState& state() const { return state_; }
  // Applies the record and makes it durable (write, flush). On an error the state is as before.
  Status append(const JournalRecord& record);
  // The same, without waiting for the device unless the ring has to roll. Intrusive: the caller's
  // again at on_done, which comes from poller()'s poll(), from within begin(), or from within an
  // append(), which waits for what was begun before it. One at a time. After an error a power cut
  // may bring the record to light all the same.
  struct Pending {
    JournalRecord record;
    Status status;
    void (*on_done)(Pending&) = nullptr;
    void* context = nullptr;  // the caller's
  };
  void begin(Pending& pending);
  Poller& poller() { return *queue_; }  // while something that was begun is not done
  // What a record that failed leaves behind, if none has followed it: a journal whose end nobody
  // knows, and perhaps a zone that was emptied for a roll and ended by the device, so that there is
  // no older checkpoint any more. Rolls then; for who appends no more.
  Status settle();
  // Superblocks say so durably (see Features::incompatible) when it returns; at an error another
  // call tries again.
  Status need(std::uint64_t features);
  // Writes the state anew into one zone of the ring after the other, so that nothing damaged is
  // left. At each moment the state can be read back.
  Status repair();
  bool repairable() const { return !incomplete_; }
  // No checkpoint is left; state() is what the journals tell, and append() is refused (corrupt).
  bool lost() const { return lost_; }
  // Of a lost ring: the state is this one from now on, in memory alone; or on the medium as well,
  // as repair() writes it. Before it is durable nothing goes that tells as much, if any zone of the
  // ring has room for it; else one zone with a superblock stays. no_space, invalid_argument.
  Status assume(PoolState state);
  Status rebuild(PoolState state);
  // What was found damaged and got around at open, one line each (for `pool check`).
  const std::vector<std::string>& damage() const { return damage_; }
  // What is none: a torn end of the journal.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  MetadataRing();
  Status check_record(const JournalRecord& record, PoolState& state) const;
  bool has_room(const PoolState& changed) const;
  bool needs_roll(const JournalRecord& record, const PoolState& changed) const;
  AlignedBuffer next_record(const JournalRecord& record) const;
  Status write_record(const JournalRecord& record);
  void record_written();
  void begun_written();
  void begun_flushed();
  void end_begun(const Status& status);
  Status roll(const PoolState& state, const JournalRecord& record);
  Status roll_somewhere(const PoolState& state, const JournalRecord& record);
  Status roll_into(ZoneId zone, const PoolState& state, const JournalRecord& record);
  Status write_section(ZoneId zone, std::uint64_t at_lba, const PoolState& state,
                       const JournalRecord& record);
  Status finish_if_active(ZoneId zone);
  void finish_others();
  void end_torn();
  bool is_needed(ZoneId zone) const;

  // A record that is being written, and the state with it.
  struct Begun {
    Pending* pending = nullptr;
    PoolState changed;
    AlignedBuffer lbas;
    Io io;
  };

  ZonedDevice* device_ = nullptr;
  std::unique_ptr<IoQueue> queue_;
  Superblock superblock_;
  std::uint64_t said_ = 0;  // incompatible features, durably
  PoolState state_;
  std::vector<std::string> damage_, notes_;
  bool read_only_ = false;
  bool incomplete_ = false;  // records that were acknowledged are lost, or cannot be read
  bool must_roll_ = false;   // nothing may be written behind the journal as it is
  bool lost_ = false;
  ZoneId active_zone_;
  std::uint64_t written_lbas_ = 0;  // in the active zone
  std::uint64_t last_index_ = 0;    // of the journal
  std::uint64_t next_number_ = 0;   // of the next checkpoint
  std::vector<ZoneId> needed_;      // zones without which state_ cannot be read back
  std::vector<ZoneId> torn_;        // with what a power cut left of a roll, or one that failed
  std::unique_ptr<Begun> begun_;    // null: nothing was begun. The ring stays where it is meanwhile
};

}  // namespace furrow
