// Rot: a bit of what was durable is not what was written any more, and the device does not know; or
// an LBA cannot be read any more, until its zone is reset. Struck are places whose loss the engine
// can make good or must confine:
//
// summary: all records that it holds stand in batch headers too, so nothing may be missed;
// batch header, of a segment with a summary, which holds its records as well; only made unreadable;
// page: of a zone that is full and not the newest of its stream, often the one before that; that
//   page alone may be lost (its reads say corrupt or io_error, its collection drops it if it is
//   corrupt), no other, and no older version may come back, also where the zones behind it go and
//   it becomes the newest.
//
// journal: one copy of a record of the metadata ring, the last one as well: it stands twice.
//
// Pure functions of the medium. For use while nothing runs on it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "log/format.h"
#include "tests/sim/sim_medium.h"
#include "tests/sim/sim_random.h"

namespace furrow::sim {

enum class Rot : std::uint8_t { flip, unreadable };

// False: none was found where a few random looks went.
bool rot_summary(SimMedium& medium, Rot how, SimRandom& random);
bool spoil_batch_header(SimMedium& medium, SimRandom& random);
// A structure that a repair can write anew, of a zone that is whole: its header, a batch header or
// the summary, of a zone like those of rot_page(); or the superblock of one of two metadata zones.
// `trims`: of the pool's metadata. The zone; it must not be struck again before it is repaired.
std::optional<ZoneId> rot_structure(SimMedium& medium, std::span<const ZoneTrimRecord> trims,
                                    SimRandom& random);
// A page as it was, of a key of a volume; key.length 0: no record is of what was struck.
struct StruckPage {
  std::uint64_t volume = 0;
  Key key;
  std::vector<std::byte> bytes;
  // Where it was struck, in bytes of the zone, and by Rot::flip what that LBA was and is.
  ZoneId zone{};
  std::size_t at = 0;
  std::vector<std::byte> lba_before = {}, lba_after = {};
};
// Nothing: as above.
std::optional<StruckPage> rot_page(SimMedium& medium, Rot how, SimRandom& random);
// As it was, if it still lies there.
void mend(SimMedium& medium, const StruckPage& page);
bool rot_journal(SimMedium& medium, SimRandom& random);
// What cannot be read during one opening, whatever it is, of data zones: LBAs of the device, of
// some zones all. None: nothing was found.
std::vector<std::uint64_t> hidden_lbas(const SimMedium& medium, SimRandom& random);
// Likewise, of pages alone, of which an opening reads few.
// Of the last LBAs of zones: those that a power cut may have torn among them.
std::vector<std::uint64_t> hidden_ends(const SimMedium& medium, SimRandom& random);
std::vector<std::uint64_t> hidden_pages(const SimMedium& medium, SimRandom& random);

}  // namespace furrow::sim
