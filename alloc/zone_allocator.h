// ZoneAllocator: which zone belongs to whom, within the device's open and active limits.
//
// Volumes are admitted with a quota of zones and a number of write streams; the sums never exceed
// what the device has, so a stream that is within its quota always gets a zone as soon as one of
// its own is reset. Free zones are handed out round robin, which spreads wear.
//
// Threads: the pool's home executor only. Pure bookkeeping: no I/O.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "zone/device.h"
#include "zone/status.h"
#include "zone/types.h"

namespace furrow {

enum class ZoneUse : std::uint8_t {
  free,       // empty, or to be found so
  metadata,   // of the metadata ring
  open,       // a stream writes to it
  sealed,     // no more writes; holds pages
  draining,   // its pages are being moved or dropped
  resetting,  // waits for its readers and the reset; nobody's: its volume was deleted
  lent,       // a zoned volume's user writes to it: nobody else writes, reads or resets it
  bad,        // read-only or offline, or its reset failed: never used again
};
const char* to_string(ZoneUse use);

enum class VictimPolicy : std::uint8_t {
  fifo,          // the zone opened first
  greedy,        // the least to copy
  cost_benefit,  // (1 - u) * age / (1 + u): see ZoneAllocator::victim()
};

// Open and active zones of the device's (MOR, MAR) that one owner may use. 0: no limit.
struct ZoneShare {
  std::uint32_t open = 0, active = 0;
  friend bool operator==(const ZoneShare&, const ZoneShare&) = default;
};

class ZoneAllocator {
 public:
  struct Zone {
    ZoneUse use = ZoneUse::free;
    std::uint8_t stream = 0;
    std::uint64_t owner = 0;  // volume id; 0: nobody
    std::uint64_t generation = 0;
    std::uint64_t opened_sequence = 0;               // age: grows from zone to zone
    std::uint64_t live_lbas = 0;                     // of pages that the index points to
    std::uint64_t min_sequence = ~std::uint64_t{0};  // of any record in it; ~0: none
    // bad: it has records of nobody knows which, or when, of the volumes with ids below this.
    std::uint64_t anyones = 0;
    bool may_be_of(std::uint64_t volume) const { return volume < anyones; }
    // Of a page that was placed after a newer version of its key; ~0: there is none.
    std::uint64_t stray_sequence = ~std::uint64_t{0};
    // What is newer than this may have older versions in the zone.
    std::uint64_t oldest() const {
      return anyones != 0 ? 0 : std::min(opened_sequence, stray_sequence);
    }
  };

  ZoneAllocator(const Geometry& geometry, std::uint32_t metadata_zones);
  // No zone will be opened, so the device's limits on open and active zones mean nothing.
  void opens_none();

  // Admits a volume: `quota` zones and `streams` open zones at a time are its own from now on.
  // no_space: fewer zones are unpromised; too_many_zones: MOR or MAR has no slot left.
  Status admit(std::uint64_t owner, std::uint64_t quota, unsigned streams);
  // Is there room for a volume that so many zones are lent to, and for its share? Else as lend().
  Status may_lend(std::uint64_t zones, const ZoneShare& share) const;
  // Admits a volume whose zones are these, all of them free, and only these: they are lent until
  // they are released. The share is what none of the pool's streams can use any more. no_space,
  // too_many_zones: as above.
  Status lend(std::uint64_t owner, std::span<const ZoneId> zones, const ZoneShare& share);
  // What a share may be at most. ~0: the device has no such limit.
  ZoneShare share_left() const;
  // Of one that was admitted: no smaller than what it holds, nor larger than quota_max().
  void set_quota(std::uint64_t owner, std::uint64_t quota);
  // It was deleted: nothing is promised to it any more, and its zones, which are returned, are
  // nobody's and being reset. They are promised to nobody before they are released. Its open and
  // active zones it keeps until it is dismissed.
  std::vector<ZoneId> vacate(std::uint64_t owner);
  // Its zones are vacated, released, or retired, before. `still_active`: as many of these as the
  // device counts against its limits all the same, since they could not be reset.
  void dismiss(std::uint64_t owner, unsigned still_active = 0);
  // One more open zone for a volume, if there is one to spare and `kept` more for volumes to come.
  bool try_add_stream(std::uint64_t owner, unsigned kept = 0);

  // A free zone for `owner`, now open. no_space: the quota is used up.
  Result<ZoneId> take(std::uint64_t owner, std::uint8_t stream, std::uint64_t generation,
                      std::uint64_t sequence);
  // Zones are back that an opening went without, and took others for: `owner` may have as many as
  // it holds, beyond its quota.
  void take_back(std::uint64_t owner);
  // It may hold so many for a while, as far as zones are promised to nobody.
  void allow(std::uint64_t owner, std::uint64_t zones);
  // One more, which comes off the quota of `from`, which does not hold all of it. Nobody else is
  // promised that one afterwards: the volume that it was taken from has it again when the pool is
  // opened, unless its quota is another one by then.
  void allow_from(std::uint64_t from, std::uint64_t owner);
  // No more than so many any longer, but for its quota and what it holds.
  void allow_no_more(std::uint64_t owner, std::uint64_t zones);
  // Zones gone bad while nobody owned them may leave fewer than were promised: by so many.
  std::uint64_t missing() const;
  // Takes these from quotas, where most of it is not in use, as allow_from() does. Returns how many
  // zones were taken.
  std::uint64_t shrink_quotas();
  // What recovery found. A zone that is not adopted is free. Behind the one opened last the search
  // for a free one goes on: else what is opened often would wear out the first zones.
  void adopt(ZoneId zone, const Zone& state);
  void set_use(ZoneId zone, ZoneUse use);
  void release(ZoneId zone);  // it was reset: free again
  void retire(ZoneId zone);   // bad; still counts against the owner's quota until dismissed
  // A bad zone whose records will never count again: it is not older than anything any more. Where
  // a zone is promised to nobody, that one takes its place in the owner's quota.
  void make_void(ZoneId zone);

  void add_live(ZoneId zone, std::uint64_t lbas, std::uint64_t sequence);
  void remove_live(ZoneId zone, std::uint64_t lbas);
  void note_sequence(ZoneId zone, std::uint64_t sequence);
  void note_stray(ZoneId zone, std::uint64_t sequence);

  // The sealed zone of `owner` to empty next. By cost_benefit, u is what there is to copy as a
  // share of a zone (1 at most), and age a zone's place among the owner's: 1 for the one opened
  // last, one more for each opened before. So it means the same after a reopening, when sequences
  // leap.
  std::optional<ZoneId> victim(std::uint64_t owner, VictimPolicy policy) const;
  // The same with another measure of what there is to copy than live LBAs. Nothing: this zone is
  // not to be chosen.
  using CopiedLbas = std::function<std::optional<std::uint64_t>(ZoneId)>;
  std::optional<ZoneId> victim(std::uint64_t owner, VictimPolicy policy,
                               const CopiedLbas& copied_lbas) const;
  // The lowest sequence in any zone that is, or may be, of `owner`, but `except`.
  std::uint64_t min_sequence(std::uint64_t owner, ZoneId except) const;
  // The lowest Zone::oldest() of such a zone.
  std::uint64_t min_opened(std::uint64_t owner, ZoneId except) const;

  // Of its zones, but `except`, the one that was opened last. Nothing: there is none, or nobody can
  // tell, as there are zones that may be its.
  std::optional<ZoneId> opened_last(std::uint64_t owner, ZoneId except) const;

  const Zone& zone(ZoneId zone) const { return zones_[zone.value]; }
  std::span<const Zone> zones() const { return zones_; }
  std::uint64_t held(std::uint64_t owner) const;
  std::uint64_t quota(std::uint64_t owner) const;
  std::uint64_t held_max(std::uint64_t owner) const;   // the quota, or more for a while
  std::uint64_t quota_max(std::uint64_t owner) const;  // that it could have
  std::uint64_t bad(std::uint64_t owner) const;        // of what it holds
  std::uint64_t unpromised() const;                    // zones that no volume has, or may take
  std::uint64_t count(ZoneUse use) const;

 private:
  struct Owner {
    std::uint64_t quota = 0;
    std::uint64_t held_max = 0;  // no less
    std::uint64_t held = 0;
    unsigned streams = 0;
    ZoneShare share{};       // of a volume that has zones lent
    std::uint64_t owed = 0;  // that came off the quota until the next opening
  };
  Zone& at(ZoneId zone) { return zones_[zone.value]; }
  static bool is_usable(const Zone& zone);  // a data zone that is not lost, or on its way back
  // What decides whether it is usable changes nowhere else.
  void change(ZoneId zone, const Zone& state);
  void disown(ZoneId zone);
  // Of the owner's zones, ascending.
  std::vector<std::uint64_t> opened_sequences(std::uint64_t owner) const;
  std::uint64_t promised() const;  // the sum of what may be held
  // Zones that are promised to none of these, now or when the pool is opened again.
  template <class Which>
  std::uint64_t left_by(const Which& which) const;
  void take_share(const ZoneShare& share);
  void give_share(const ZoneShare& share);

  const std::uint64_t zone_capacity_lbas_, data_zones_;
  std::vector<Zone> zones_;
  std::uint64_t usable_ = 0;  // of them; asked for again and again by who waits for zones
  std::map<std::uint64_t, Owner> owners_;
  std::uint32_t next_free_ = 0;         // where the search for a free zone goes on
  std::uint64_t adopted_sequence_ = 0;  // of the zone that was opened last of those adopted
  // Open and active zones that nobody was promised; ~0: no limit. A stream takes one of each.
  unsigned open_left_ = 0, active_left_ = 0;
};

}  // namespace furrow
