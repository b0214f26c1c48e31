// Reading the metadata ring back: what its zones hold, and the newest state that this leads to.
// Private to log/metadata_ring.cc. Blocking; one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "log/metadata_format.h"
#include "zone/aligned_buffer.h"
#include "zone/device.h"

namespace furrow {

constexpr std::uint64_t kCheckpointBytesMax = 64 << 20;
// Superblock, checkpoint, record 0 and the superblock again: the newest zone needs no other one.
constexpr std::uint64_t kSectionBesides = 2 + kJournalCopies;  // LBAs besides the checkpoint's
std::uint64_t section_lbas(const Geometry& geometry, const PoolState& state);
// A zone has room for so many: its own, one that repairs it, and one more for when the power fails
// meanwhile. The journal leaves that room.
constexpr std::uint64_t kSections = 3;
// With which that is so, and some records find place as well. 0: with none.
std::uint64_t checkpoint_lbas_max(const Geometry& geometry);

struct RingContents {
  Superblock superblock;
  PoolState state;
  std::uint64_t number = 0;        // of the checkpoint whose journal goes on
  std::uint64_t next_number = 0;   // beyond all that were ever begun
  std::uint64_t last_index = 0;    // in the journal of `number`
  ZoneId active;                   // the zone of that journal
  std::uint64_t written_lbas = 0;  // in `active`
  bool must_roll = false;          // nothing can be written behind that journal
  bool incomplete = false;         // records that were acknowledged are lost
  bool unreadable = false;         // what the device does not give may be newer than this
  // No checkpoint is left: `state` is what the journals that there are tell. `active` may be gone
  // on with if there is room, and `needed` is one zone with a superblock.
  bool lost = false;
  std::vector<ZoneId> needed;  // zones without which the state cannot be read back
  std::vector<ZoneId> torn;    // of no use: a power cut has torn a roll there, or one has failed
  std::vector<std::string> damage, notes;
};

// Errors: foreign, unsupported, corrupt (no superblock is whole), io_error.
Result<RingContents> read_ring(ZonedDevice& device, IoQueue& queue);

bool is_zero(std::span<const std::byte> bytes);

// The LBAs of one zone, read through a window; what fails is tried again.
class ZoneReader {
 public:
  ZoneReader(IoQueue& queue, const Geometry& geometry, const ZoneInfo& info);
  std::uint64_t written_lbas() const { return written_; }
  // One LBA; empty: it cannot be read. Valid until the next call.
  std::span<const std::byte> lba(std::uint64_t at);
  std::span<const std::byte> lbas(std::uint64_t at, std::uint64_t count);  // empty: cannot be read
  // Of a full zone nobody knows how far it was written: are the LBAs from `at` to the end of the
  // window zeroes?
  bool is_unused_from(std::uint64_t at);

 private:
  Status read(std::uint64_t at, std::uint64_t count, std::byte* into);
  Status read_patiently(std::uint64_t at, std::uint64_t count, std::byte* into);

  IoQueue& queue_;
  const Geometry geometry_;
  const ZoneInfo info_;
  std::uint64_t written_ = 0;
  AlignedBuffer window_;
  std::uint64_t window_at_ = 0, window_lbas_ = 0;
  AlignedBuffer large_;
};

}  // namespace furrow
