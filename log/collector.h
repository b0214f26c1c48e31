// Collector: makes free zones out of full ones.
//
// cache: the zone that was opened first; pages that were read since they were written, and pinned
// ones, are written again (bounded), the others are evicted. store: the zone whose copies take the
// least room (or an older one that takes little more: PageLogOptions::victim_policy), and less than
// a zone; every live page is written again, and so is a tombstone that an
// older version somewhere may still need (an expired page leaves one, too). When tombstones take a
// good part of the quota the zone opened first goes instead, one after another: once all zones
// older than a tombstone are gone, it is not needed any more. A zone that is still written to, but
// seldom, is ended for that. Where no zone is sure to gain room
// and a deletion waits, which will: it is written where copies go, and where that is full any zone
// goes whose copies leave room for it there.
//
// One zone at a time: scan its summaries, move or drop its records, have the journal say that the
// zone before it in its stream is durable where that would become the newest (DurableNote), flush
// (which covers the copies and everything that made its pages dead), see that no zone that has
// copies went offline meanwhile (then they are made again), wait until no reader can be in it,
// reset, flush (so that the zone's old life does not come back over what its next one has
// overwritten).
//
// Where the last zone of a store's quota fails while copies are written to it, and nothing is left
// to write to, it is freed instead of the zone that was to be emptied: what it holds is still there
// as well (collector_undo.cc).
//
// Threads: the home executor.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "log/copy_pace.h"
#include "log/index.h"
#include "log/key_lock.h"
#include "log/pool_context.h"
#include "log/recovered_pages.h"
#include "log/segment_scan.h"
#include "log/stream.h"
#include "zone/aligned_buffer.h"

namespace furrow {

class PageLog;

class Collector {
 public:
  explicit Collector(PageLog& log);
  ~Collector();
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;

  void kick();  // looks whether a zone is to be freed
  // A user's record has been written, or may be now.
  void note_progress() {
    freed_in_vain_ = 0;
    least_held_ = ~std::uint64_t{0};
    circles_ns_ = 0;
    circles_ = zones_failed_ = 0;
    zones_ns_ = 0;
    device_fails_ = false;
  }
  // A zone has failed before it held anything.
  void note_failed_zone(const Status& why);
  void note_outlived(const Outlived& page);
  void users_wrote() {
    if (paused_ && !ahead_of_users()) post_turn();
  }
  // Somebody waits for what it does, or was refused for lack of what it frees.
  void hurry() {
    hurried_ = true;
    if (paused_) post_turn();
    if (device_fails_) kick();  // it may be well again
  }
  // Tombstones keep a put out: the zone opened first goes, although none is wanted. Once.
  void clear_tombstones() {
    clears_tombstones_ = true;
    kick();
  }
  void stop() {
    stopping_ = true;
    hurry();
  }
  void resume() {
    stopping_ = false;
    kick();
  }
  // A store's sealed zone is to be collected although no room is needed. Forgotten where there is
  // none for its copies.
  void request(ZoneId zone);
  bool collects(ZoneId zone) const;
  Status not_collected(ZoneId zone) const;  // ok: nothing is known that kept it
  bool idle() const { return step_ == Step::idle && !turn_.posted; }
  // Pages have been evicted since the pool was opened.
  bool evicted() const { return evicted_; }
  // How often a zone could not be emptied, and why the last time.
  std::uint64_t attempts_failed() const { return attempts_failed_; }
  const Status& last_failure() const { return copy_error_; }
  // The last look for a zone to free found none.
  bool found_nothing() const { return found_nothing_; }
  // .. and there are zones that could not be emptied, as something in them cannot be read.
  bool exhausted() const { return exhausted_; }
  // One of them was found to be so over a long time: it may be for good.
  bool unreadable_for_long() const;
  // There are, be it that others can.
  bool leaves_some_alone() const;
  // Deletions leave enough of the zones that copies may go to for one zone's copies, be it one that
  // cannot be read now.
  bool room_beside_copies() const;

  // Of the deletions that a zone has, those that stand elsewhere as well since it is being emptied.
  struct Deletions {
    std::uint64_t keys = 0, groups = 0;
  };
  Deletions copied_of(ZoneId zone) const;

  // Copies are written in groups, each of them one batch or nearly so: a page that had a batch to
  // itself would take more room than in the zone that is to be emptied. While one group is
  // written the next is read.
  static constexpr unsigned kGroups = 2;
  static constexpr unsigned kGroupRecords = 64;
  static constexpr std::uint64_t kGroupBytes = 1 << 20;  // unless one page is larger

 private:
  enum class Step : std::uint8_t {
    idle,
    probe,
    scan,
    move,
    cover,
    cover_all,
    drain,
    purge,
    note,
    flush,
    verify,
    grace,
    reset,
    settle
  };
  static constexpr unsigned kRecordsPerTurn = 256;  // looked at before others have a turn

  // A page (or tombstone) on its way to another zone.
  struct Group;
  struct Lane {
    Collector* collector = nullptr;
    Group* group = nullptr;
    bool busy = false;
    bool waiting = false;  // for its lock
    bool to_read = false;  // its group waits for it
    bool ready = false;    // to be written with its group
    PageRecord record;
    KeyHash hash;
    IndexEntry entry;
    bool again = false;   // read a second time: the first did not give the page
    bool failed = false;  // a read did
    // The page is, and a tombstone goes in its place; or its copy is, and is undone.
    bool damaged = false;
    bool deletion = false;  // the zone has it as one
    Io io;
    std::byte* page = nullptr;  // in the group's memory
    struct Lock : KeyLockHolder {
      Lane* lane = nullptr;
    } lock;
    struct Write : Append {
      Lane* lane = nullptr;
    } write;
  };
  struct Group {
    std::array<Lane, kGroupRecords> lanes;
    AlignedBuffer pages;
    std::uint64_t used_bytes = 0;
    unsigned taken = 0;    // lanes, since it was empty
    unsigned busy = 0;     // of these
    unsigned to_read = 0;  // of these
    bool closed = false;   // takes no more; written when all is read
  };
  struct Turn : Task {
    Collector* collector = nullptr;
    bool posted = false;
  };
  struct OwnTimer : Timer {
    Collector* collector = nullptr;
  };
  struct Flush : FlushWaiter {
    Collector* collector = nullptr;
  };
  struct Note : DurableNote {
    Collector* collector = nullptr;
  };

  struct ZoneLife {
    ZoneId zone;
    std::uint64_t generation = 0;
    auto operator<=>(const ZoneLife&) const = default;
  };

  struct Tombstone {
    Key key;
    std::uint64_t group = 0, sequence = 0;
    const PageRecord* record = nullptr;
    bool same(const Tombstone& other) const { return key == other.key && group == other.group; }
  };
  static Tombstone deletion_of(const PageRecord& record);

  // Of all zones, which are looked at for it once in a turn, and only where somebody asks.
  struct Others {
    std::uint64_t opened = 0, sequence = 0;  // the lowest, but for the victim's
    bool groups_deleted = false;             // group tombstones are on the medium
  };

  bool wanted() const;
  bool goes_in_circles();
  void note_freed();
  bool wanted_for_quota() const;
  std::optional<ZoneId> choose() const;
  std::optional<ZoneId> zone_with_nothing() const;
  std::optional<ZoneId> choose_from_store() const;
  Stream* stream_to_end() const;
  std::optional<ZoneId> choose_for_waiting() const;
  std::optional<ZoneId> choose_with_room(VictimPolicy policy, std::uint64_t most) const;
  std::optional<ZoneId> choose_within(VictimPolicy policy, std::uint64_t most, bool twice) const;
  std::optional<ZoneId> choose_requested();
  bool choosable(ZoneId zone) const;
  bool has_room_for(ZoneId zone, bool twice) const;
  struct Stuck;
  void nothing_to_free(bool handed);
  void leave_alone();
  void put_off(Stuck& stuck) const;
  bool probe();
  void probed();
  void start();
  void post_turn();
  void turn();
  void next_segment();
  void begin_scan();
  void read_on();
  std::optional<std::uint32_t> missed_batch() const;
  bool is_damaged() const;
  void scan_fed();
  void look_at_records();
  Lane* free_lane(std::uint64_t bytes);
  void cover(Step step);
  void covered();
  void close(Group& group);
  void lane_read(Lane& lane);
  void write_if_complete(Group& group);
  bool look_at(const PageRecord& record);
  bool copy_is_gone(const PageRecord& record, const IndexEntry& copy);
  bool must_move(const PageRecord& record, const IndexEntry& entry) const;
  bool any_group_deleted() const;
  const Others& others();
  bool has_room(const PageRecord& record) const;
  bool holds_nothing(ZoneId zone, bool groups_deleted) const;
  static PageRecord tombstone_of(const PageRecord& page);
  bool is_outlived(const PageRecord& record) const;
  bool may_outlive(const PageRecord& deletion) const;
  void forget_outlived();
  bool tombstone_needed(const PageRecord& record);
  void find_newest_tombstones();
  void find_groups_elsewhere();
  bool may_have_any_group(ZoneId zone) const;
  bool said_by_another(const PageRecord& record) const;
  void drop(const PageRecord& record, const KeyHash& hash, const IndexEntry& entry);
  static bool locks(const PageRecord& record);
  void move(Lane& lane);
  void overtake_waiting();
  bool held_up() const;
  bool urgent() const;
  bool ahead_of_users() const;
  bool pause();
  void locked(Lane& lane);
  void page_read(Lane& lane);
  bool may_say_damaged(const PageRecord& record);
  void write_tombstone(Lane& lane);
  void moved(Lane& lane);
  void give_up(const PageRecord& record, const Status& status);
  void release(Lane& lane);
  void drained();
  void purge();
  void emptied();
  bool must_stay() const;
  bool leaves_no_trace(ZoneId victim) const;
  void copies_failed();
  bool note_undo();
  bool begin_undo();
  bool undo_look_at(const PageRecord& record);
  bool restore(const PageRecord& copy);
  void restored(Lane& lane);
  void undo_drained();
  void undo_missed();
  void end_undo();
  void failed(const Status& status);
  void attempt_failed(const Status& status);
  bool zones_fail() const;
  void flush_when_noted();
  std::optional<ZoneId> to_be_noted() const;
  void noted();
  void flush();
  void flushed();
  void note_copies_in(ZoneId zone);
  bool gone(ZoneId zone) const;
  void verify_copies();
  void copies_verified();
  void wait_for_grace();
  void reset_done();
  void settled();

  PageLog& log_;
  PoolContext& pool_;
  Step step_ = Step::idle;
  bool stopping_ = false;
  ZoneId victim_;
  std::uint64_t written_lba_ = 0;
  std::uint64_t segment_ = 0;
  std::uint64_t readmitted_lbas_ = 0;   // of the victim's: written again because they were read
  std::uint64_t unsure_deletions_ = 0;  // of the victim's: written for what may be hidden
  std::optional<Others> others_;        // as of this turn
  std::uint64_t now_s_ = 0;             // when the record was looked at: its clock
  // A cache's groups, and keys, of which what deletes pages must be copied, and the opening of the
  // last zone with such a page.
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> outlived_;
  Deletions copied_;  // of copied_from_'s
  ZoneLife copied_from_;
  bool covered_ = false;          // the victim is durable
  bool empty_ = false;            // it has no batch: it failed before
  bool copied_late_ = false;      // of the victim: its tombstones may have been looked at before
  bool deletion_stays_ = false;   // of the victim: one that is needed stands nowhere else
  std::uint64_t purge_from_ = 0;  // the hash up to which the index was purged
  bool found_nothing_ = false;
  bool exhausted_ = false;
  bool evicted_ = false;
  Status copy_error_;           // of the victim's: it could not be emptied
  Status failure_;              // the device's, last
  unsigned failures_ = 0;       // one after another
  std::uint64_t retry_ns_ = 0;  // no attempt before
  std::uint64_t attempts_failed_ = 0;
  unsigned resets_failed_ = 0;  // one after another
  unsigned zones_failed_ = 0;   // likewise, before they held anything
  std::uint64_t zones_ns_ = 0;  // none of these is freed before, nor one that needs copies
  bool device_fails_ = false;   // when it was asked last
  // Since note_progress(), of the volume's zones; and how many were freed since there were so few.
  std::uint64_t least_held_ = ~std::uint64_t{0}, freed_in_vain_ = 0;
  std::uint64_t circles_ns_ = 0;  // that is too many; none before
  unsigned circles_ = 0;          // how often it was, one after another
  // A zone of copies that takes no more, and the zone that they were made from.
  enum class Undo : std::uint8_t { none, gather, restore };  // its step
  Undo undoing_ = Undo::none;
  ZoneLife undo_copies_, undo_originals_;  // generation 0: there is nothing to undo
  std::vector<PageRecord> originals_;      // by sequence
  bool undo_failed_ = false;
  unsigned undone_ = 0;        // one after another
  std::uint64_t undo_ns_ = 0;  // not before
  struct Unreadable {
    std::uint64_t lba = 0;  // pool-wide
    std::uint32_t lbas = 0;
  };
  // A zone of a store that could not be emptied.
  struct Stuck {
    ZoneId zone;
    std::uint64_t generation = 0;
    std::vector<Unreadable> what;  // one after another is asked whether it can be read now
    bool records = false;   // records among it: the zone must stay though no page in it is live
    bool readable = false;  // all of it could since
    std::uint64_t readable_ns = 0;
    std::uint64_t since_ns = 0;   // it cannot be read, but for a moment
    std::uint64_t failed_ns = 0;  // that was found so last: nobody knows of later
    unsigned misses = 0;          // attempts, one after another, at which a batch was not there
    unsigned probes = 0;
    std::uint64_t probe_ns = 0;  // none before
  };
  bool left_alone(const Stuck& stuck) const;
  std::vector<Stuck> stuck_;
  std::set<ZoneLife> requested_;
  std::vector<ZoneLife> copies_in_;     // of a store's victim, and not yet seen to be online still
  std::vector<ZoneLife> gone_;          // offline, with copies
  bool copies_gone_ = false;            // of the victim's, since it was scanned
  std::vector<Unreadable> unreadable_;  // of the victim's
  std::optional<SegmentScan> scan_;
  bool scan_again_ = false;      // this read has failed before
  bool scanned_again_ = false;   // this segment has been scanned before
  bool records_unread_ = false;  // some of the victim's records could not be read
  bool missed_ = false;          // a batch is not there, though all that was asked for was read
  std::size_t next_record_ = 0;
  // Of the segment: pages of which no more is known than that they are not there any more. They are
  // looked at again when what may have taken their places is durable.
  std::vector<const PageRecord*> replaced_;
  bool looking_again_ = false;                // next_record_ counts those
  std::vector<Tombstone> newest_tombstones_;  // of the segment, one a key or group, in that order
  std::vector<std::uint64_t> groups_elsewhere_;  // ascending: of these, that other zones have too
  std::uint64_t unfinished_removal_ = 0;  // the lowest sequence of a group's deletion that goes on
  AlignedBuffer scan_buffer_;
  Io io_;
  template <class Test>
  bool any_lane(Test test) const {
    return std::ranges::any_of(groups_, [&](const Group& group) {
      return group.busy != 0 && std::ranges::any_of(group.lanes, test);
    });
  }

  std::array<Group, kGroups> groups_;
  unsigned filling_ = 0;  // of groups_
  unsigned busy_lanes_ = 0;
  CopyPace pace_;
  bool paused_ = false;   // no group is begun, as copies are ahead of users
  bool hurried_ = false;  // since the victim was chosen
  bool clears_tombstones_ = false;
  Turn turn_;
  OwnTimer grace_timer_, pace_timer_;
  Flush flush_;
  Note note_;
  std::uint64_t note_failed_ = 0;  // generation of a zone: others first
  bool own_grace_ = false;
};

}  // namespace furrow
