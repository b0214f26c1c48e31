// PageLog: the pages of one volume. Everything that changes a key, on the pool's home executor;
// readers on other threads use lookup() alone.
//
// A put: lock the key, confirm what is there (a tag match in the index is only a candidate: its
// batch header has the full key), append to a stream, and when the batch is on the device publish
// the new position in the index. A page is visible only whole. ARCHITECTURE.md tells the story.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "log/collector.h"
#include "log/expiry_sweep.h"
#include "log/header_reader.h"
#include "log/index.h"
#include "log/key_lock.h"
#include "log/key_op.h"
#include "log/pool_context.h"
#include "log/recovered_pages.h"
#include "log/stream.h"

namespace furrow {

struct PageLogOptions {
  std::uint64_t volume = 0;
  bool cache = true;  // evicts; else relocates and says no_space when full
  std::uint32_t value_bytes_max = 1 << 20;
  // That it has from the beginning beside the user's: one for copies, and by lifetime.
  StreamSet streams{};
  // Asked when a store gets the first page of a lifetime that has none; true: it has one from now
  // on. `room`: pages take so little that zones which are partly written cost nothing. Null: no.
  std::function<bool(std::uint8_t stream, bool room)> grant_stream{};
  VictimPolicy victim_policy = VictimPolicy::greedy;  // of a store: greedy or cost_benefit
};

// Written by the home executor, read by any thread.
struct PageLogStats {
  std::atomic<std::uint64_t> puts{0}, put_bytes{0}, removes{0}, exists{0}, lists{0}, flushes{0};
  std::atomic<std::uint64_t> corrupt_pages{0}, relocated_bytes{0};
  std::atomic<std::uint64_t> evicted_pages{0}, evicted_zones{0}, zones_reset{0};
  std::atomic<std::uint64_t> pages{0}, live_bytes{0}, zones{0};
  std::atomic<std::uint64_t> cost_bytes{0}, usable_bytes{0};  // of a store, see admit()
  std::atomic<std::uint64_t> device_bytes_written{0}, header_reads{0}, table_bytes{0};
};

// Asks for the keys behind `after` in listing order.
struct ListOp {
  Key after;  // length 0: from the beginning
  Key* keys = nullptr;
  std::uint32_t keys_max = 0;
  std::uint32_t keys_count = 0;
  Status status;
  void (*on_done)(ListOp&) = nullptr;
  PageOp* page_op = nullptr;  // the caller's
};

struct RemoveGroupOp {
  std::uint64_t group = 0;
  bool flushed = false;
  bool own_keys = false;             // as in PageOp
  std::span<const KnownPage> known;  // all pages of the group; none: they are found by headers
  Status status;
  void (*on_done)(RemoveGroupOp&) = nullptr;
  PageOp* page_op = nullptr;  // the caller's
};

struct FlushOp : FlushWaiter {  // on_flushed is the caller's
  struct Marker : Append {
    FlushOp* op = nullptr;
  } marker;
  class PageLog* log = nullptr;
  unsigned next_stream = 0;   // for the marker, which goes behind what each of the users' was given
  PageOp* page_op = nullptr;  // the caller's
};

class PageLog final : public StreamOwner {
 public:
  PageLog(PoolContext& pool, const PageLogOptions& options);
  ~PageLog() override;  // when idle()

  static bool is_known(const IndexEntry& entry, const KnownPage& known) {
    return entry.length == known.length && entry.checksum == known.checksum;
  }
  // Any thread: the candidates for a hash, and whether one has expired.
  unsigned lookup(const KeyHash& hash, std::span<IndexEntry> out) const {
    return index_.find(hash.order, 0, out);
  }
  bool expired(const IndexEntry& entry, std::uint64_t wall_s) const;
  // Of one that expires: Unix time. Of an entry that was looked up in an epoch that goes on.
  std::uint32_t expiry(const IndexEntry& entry) const { return pool_.expiry(entry.lba); }
  // Is the page there still the newest of its key?
  bool in_index(const KeyHash& hash, std::uint64_t lba) const;
  KeyHash hash(const Key& key) const {
    const KeyHash hash = key_hash(pool_.hash_key, options_.volume, key);
    return blocks_ == nullptr ? hash : blocks_->order.hash(key, hash);
  }

  // Home executor. Each answers by its on_done, which may come from within the call.
  void submit(KeyOp& op);
  void list(ListOp& op);
  void remove_group(RemoveGroupOp& op);
  // All that was answered before is durable when on_flushed comes.
  void flush(FlushOp& op);
  bool idle() const;
  bool operating() const { return running_ != 0; }  // somebody waits for an answer
  void stop_background();                           // no new collection; what runs comes to its end
  // After stop_background(), for good: what waits for a zone that only collection could free is
  // answered with aborted. Again until idle().
  void fail_stranded();
  void start_background();  // after stop_background(), when the volume goes on after all
  bool close();             // when idle(): see Stream::close()
  // When idle(), for good: its volume is gone, nothing is found any more. Whose zones go as well:
  // what the allocator says of them stays.
  void clear();

  // Recovery's: before anything else runs.
  struct Recovered {
    const RecoveredPages& pages;
    std::uint64_t live_bytes = 0, pinned_lbas = 0, cost_bytes = 0;
    std::uint32_t largest_bytes = 0;
    std::uint32_t first_expiry_s = ~std::uint32_t{0};
    bool expired = false;  // pages that have expired were left out
    bool hidden = false;   // there may be more at the next opening
    bool lost = false;     // or have been more, in a zone that is offline
    std::span<const Outlived> outlived;
    bool damaged = false;  // as in RecoveredVolume
  };
  void load(const Recovered& recovered);
  void resume(unsigned stream, Stream::Resume&& zone);
  void start();  // background work may begin

  // Another quota. What it could be now: not less than what the live data need to be collected with
  // gain (of a cache: what is pinned), nor more than what the index was made for.
  std::uint64_t quota_min() const;
  std::uint64_t quota_max() const { return quota_max_; }
  // Zones are freed in the background until fewer than `zones` are held, which is not less than
  // quota_min(); users wait meanwhile. Until resized(), or end_shrinking(), or the
  // background work is stopped.
  void shrink(std::uint64_t zones);
  bool shrinking() const { return shrinks_to_.has_value(); }
  bool freeing() const;  // as many are held still, or more
  // How many those are; the quota, or zones_needed(): none are freed for that.
  std::uint64_t zones_max() const;
  void end_shrinking(const Status& why = Status());
  // Why it was ended, where zones could not be freed; asked once.
  Status take_shrinking_failure() { return std::exchange(shrinking_failed_, Status()); }
  void resized();  // the allocator has another quota
  // It holds all that it may: there is no zone to empty another one into.
  bool at_quota() const;
  // That its quota could be smaller, at once, and the volume go on as before.
  std::uint64_t zones_to_spare() const;
  // It may hold more than its quota, and zones are being freed until it does not, which is hurried.
  bool sheds_zones();

  const PageLogOptions& options() const { return options_; }
  const PageLogStats& stats() const { return stats_; }
  // Something is missing, perhaps, that was stored, for now or for good. Any thread.
  bool incomplete() const { return hidden_ || lost_; }
  // Zones cannot be emptied, as something in them cannot be read: of a store that is full deletions
  // may be refused. When that has been so for long, it is taken to be for good: what is kept for
  // copies takes deletions.
  bool leaves_zones_alone() const;
  bool unreadable_for_long() const;
  const Index& index() const { return index_; }
  // Any thread: the page was read, which an eviction wants to know.
  void note_hit(const IndexEntry& entry) {
    if (options_.cache) pool_.hits.set(entry.lba);
  }
  std::uint64_t index_bytes() const { return index_.bytes(); }
  // A cache's page that cannot be read: it leaves the index.
  void let_go(const KeyHash& hash, const IndexEntry& entry);
  // A store's sealed zone is written anew elsewhere, if there is room.
  void collect(ZoneId zone);
  // Is it going to be, or being, collected? Else: why it was not, if that is known.
  bool collects(ZoneId zone) const { return collector_->collects(zone); }
  Status not_collected(ZoneId zone) const { return collector_->not_collected(zone); }
  // Zone-relative: what lies behind is still on its way to the medium.
  std::uint64_t written_lba(ZoneId zone) const;
  HitMap& hits() { return pool_.hits; }
  void count_corrupt() { ++stats_.corrupt_pages; }
  // There may be copies of pages that were damaged: no part of a page is served unverified from now
  // on. Any thread asks.
  void note_damaged_copy() { damaged_copies_ = true; }
  bool has_damaged_copies() const { return damaged_copies_; }

  // The smallest quota with which a volume with values of that size can go on writing. In a store
  // pages of more than half a zone find no other beside them there, and tombstones little room.
  static std::uint64_t zones_min(const Geometry& geometry, bool cache,
                                 std::uint32_t value_bytes_max) {
    const bool large = std::uint64_t{value_bytes_max} * 2 > geometry.zone_capacity_bytes();
    return large && !cache ? kZonesMinLarge : kZonesMin;
  }

  // The cost of a page on the medium, headers and summary included.
  static std::uint64_t cost_bytes(const PoolContext& pool, std::uint32_t length);

  bool may_open_zone(bool relocation) override;
  bool may_write_user(const Stream& stream) override;
  bool may_write_note(const Stream&) override { return !at_quota(); }
  // The last zone is for copies alone: of a zone that was written before there was a limit they may
  // be more.
  std::uint64_t segment_pins_max() const override {
    return at_quota() ? ~std::uint64_t{0} : segment_pins_max_;
  }
  void on_zone_opened(ZoneId zone) override;
  void on_zone_begun() override { collector_->kick(); }
  void on_zone_abandoned(ZoneId zone, const Status& why) override {
    const bool failed = why.origin() != Origin::log;
    if (failed && pool_.tables[zone.value].end_lba <= 1) collector_->note_failed_zone(why);
    zones_changed();
    collector_->kick();
  }
  void on_write(const Stream& stream, std::uint64_t bytes) override;
  // How many streams the user's pages have: each may have a zone that is partly written.
  std::uint64_t users_streams() const;
  // Folded or not; and what is usable with all of them, of which nothing is refused.
  std::uint64_t users_streams_made() const;
  std::uint64_t usable_apart_bytes() const;

 private:
  friend class Collector;
  friend class ExpirySweep;
  friend class GroupRemoval;
  friend class Listing;

  // Of a record, in its batch header and in the summary (wide, with group and expiry).
  static constexpr std::uint64_t kRecordBytes = kBatchRecordBytes + 48;
  // Collecting a zone gains such a part of one at least.
  static constexpr std::uint64_t kGainShare = 128;
  static constexpr std::uint64_t kZonesMin = 3;  // that a volume can go on writing with
  static constexpr std::uint64_t kZonesMinLarge = 6;

  // Steps of a KeyOp.
  void locked(KeyOp& op);
  void confirm_next(KeyOp& op);
  void header_read(KeyOp& op, const Result<BatchView>& view);
  void confirmed(KeyOp& op);
  void confirmed_put(KeyOp& op);
  void confirmed_pin(KeyOp& op);
  void confirmed_rewrite(KeyOp& op);
  void read_page(KeyOp& op, const IndexEntry& entry, void (*on_complete)(Io&));
  void page_read_for_confirm(KeyOp& op);
  void page_read_for_pin(KeyOp& op);
  void append(KeyOp& op, RecordKind kind);
  void written(KeyOp& op);
  bool flushes(const KeyOp& op) const;                   // before it is answered
  void finish_durably(KeyOp& op, const Status& status);  // if it is to be
  void leave_epoch(KeyOp& op);
  void count_pending(const KeyOp& op, bool begins);
  void finish(KeyOp& op, Status status);
  // Lets `waiter` have its lock if the operation that holds it waits for a zone; that operation
  // begins anew afterwards.
  void overtake(KeyLockHolder& waiter);

  // The index and all that is counted with it.
  void publish(const KeyHash& hash, const IndexEntry* old, const IndexEntry& entry,
               std::uint32_t expires_s, std::uint64_t sequence);
  bool unpublish(const KeyHash& hash, const IndexEntry& entry);
  void forget(const IndexEntry& entry);
  void replaces_no_more(KeyLockHolder& holder);
  void collect_dead();
  void collect_torn();
  void collect_if_dead(ZoneId id);
  void zone_died(ZoneId zone);
  // May a key that the index does not have come back: evicted, and a power cut undoes the reset of
  // its zone, expired by a clock that was ahead, let go, or moved away from as its group is being
  // deleted, which nothing on the medium says yet?
  bool may_come_back() const {
    return left_out_ || hidden_ || !removing_.empty() || collector_->evicted();
  }
  // Of op.old. What was stored since the pool was opened is the newest.
  bool newer_may_be_hidden(const KeyOp& op) const {
    return hidden_ && op.old_sequence < first_sequence_;
  }
  // Of a cache's zone that was there when the pool was opened: what could not be read then may be
  // in zones that were opened after it, and older than what it holds.
  bool older_may_be_hidden(ZoneId zone) const {
    return options_.cache && hidden_ &&
           pool_.allocator.zone(zone).opened_sequence < first_sequence_;
  }
  // Takes what `goes` names out of the index, some buckets from `from` on; the hash to go on from,
  // 0 at the end.
  std::uint64_t unpublish_some(std::uint64_t from,
                               const std::function<bool(const IndexEntry&)>& goes);
  Status admit(std::uint32_t length, const IndexEntry* replaced, bool pinned);
  Status admit_pinned(std::uint32_t length, const IndexEntry* replaced) const;
  // LBAs more that are pinned when such a page has taken the place of that one.
  std::uint64_t pins_added(std::uint32_t length, const IndexEntry* replaced) const;
  // At most: what a store's zone takes of others when its records are copied there, and how many.
  std::uint64_t copied_lbas(ZoneId zone) const;
  std::uint64_t copied_records(ZoneId zone) const;
  std::uint64_t copied_batches(ZoneId zone) const;  // but for those that a segment's end divides
  std::uint64_t copied_page_lbas(ZoneId zone) const;
  // Of which a zone holds this much for certain, and a little more, so that copying gains room;
  // with pages of up to `largest_bytes`, as one may not fit into what is left of a segment.
  std::uint64_t copied_lbas_max(std::uint32_t largest_bytes) const;
  // At most: what the copies of one zone may take for a fresh zone to have room for them and for a
  // deletion.
  std::uint64_t copied_lbas_whole() const;
  bool fits_a_zone(std::uint64_t page_lbas) const;
  bool all_fits_a_zone() const;
  static std::uint64_t record_cost_bytes(const PoolContext& pool);
  // What the pages of a store, those on their way and its tombstones cost.
  std::uint64_t used_bytes() const;
  void note_used();
  // What the pages of a store may cost altogether, so that a zone can always be emptied with gain.
  std::uint64_t usable_bytes(std::uint32_t largest_bytes) const;
  std::uint64_t usable_bytes(std::uint32_t largest_bytes, std::uint64_t quota) const;
  std::uint64_t usable_in_zones(std::uint32_t largest_bytes, std::uint64_t zones) const;
  std::uint64_t pinned_lbas_max(std::uint32_t largest_bytes, std::uint64_t quota) const;
  // So much may be pinned for a pinned page to be written anew; with such of up to that size.
  std::uint64_t overwritten_pins_max(std::uint32_t largest_bytes) const;
  std::uint64_t pins_of_a_zone(std::uint32_t largest_bytes) const;
  static std::uint64_t pins_of_a_segment(const PoolContext& pool);
  void find_largest_pinned();
  std::uint64_t zones_needed() const;
  void allow_zones();
  void allow_fewer_zones();
  Stream& user_stream() const { return *streams_[kUserStream]; }
  Stream* collection_stream() const { return streams_[kCollectionStream].get(); }
  // Users' streams, by lifetime: all but collection's.
  Stream* users_stream(unsigned number) const {
    return number != kCollectionStream ? streams_[number].get() : nullptr;
  }
  void make_stream(std::uint8_t number);
  bool grant_stream(std::uint8_t number);
  bool room_for_streams() const;
  bool is_put_away(unsigned number) const;
  bool unfold(std::uint8_t number);
  void fold_streams();
  void pass_marker(FlushOp& op);
  Stream& stream_of(const PageRecord& record, Lifetime lifetime);
  Stream& fallback() const;
  bool any_stream(bool (*test)(const Stream&)) const;
  bool filled_unflushed() const;
  void flush_filled();
  Stream& relocation_stream();
  // Copies wait in a stream that will get no zone.
  bool relocations_stranded() const;
  void reroute_relocations();
  // Waits for a zone. Null: none does.
  const PageRecord* waiting_deletion() const;
  // What waits goes to collection's zone, if that has room: true. Not to the last zone of the
  // quota, which has nothing but copies until it is not the last any more, while that may help.
  bool hand_deletions_to_collection();
  // LBAs for the copies of a zone's pages; ~0: whatever one zone may hold.
  std::uint64_t relocation_room() const;
  // There is room for what is copied of a zone. `twice`: also where pages of it cannot be read at
  // first, and all but those that were copied has to be written again.
  bool has_room_for(ZoneId zone, bool twice) const;
  bool fits(ZoneId zone, bool twice, const std::function<bool(const Stream&)>& counts) const;
  Index::Shape index_shape() const;
  Status too_few_zones() const;
  // Is the group of this record being deleted right now? `logged`: and is that on the medium, so
  // that it will not be refused?
  bool removing(const PageRecord& record, bool logged = false) const;
  // Is there a record of the group, be it dead, in a zone or on its way to one?
  bool knows_group(std::uint64_t group) const;
  // Do tombstones take so much of the quota that zones are to be collected in turn?
  bool many_tombstones() const;
  // May a tombstone in the zone say that a page in another zone is an older version?
  bool tombstones_needed(ZoneId zone) const;
  // The quota is reached and collection has no zone of its own to write to.
  bool without_reserve() const;
  bool kept_for_copies() const;
  bool kept_from_deletions() const;
  bool left_for_deletions() const;
  bool kept_from_users(const Stream& stream) const;
  bool frees_for_quota() const;
  bool stuck(const Stream& stream) const;
  void kick();
  void choose_granule(ZoneId zone);
  void zones_changed();
  void fail_waiting(Status status, bool keep_deletions = true);

  PoolContext& pool_;
  const PageLogOptions options_;
  const std::uint64_t quota_max_;
  std::optional<std::uint64_t> shrinks_to_;  // zones
  Status shrinking_failed_;
  const PoolContext::Blocks* const blocks_;  // of a block volume, else null: its keys are all
                                             // blocks, and its pages of kBlockPageBytes
  Index index_;
  KeyLocks locks_;
  HeaderReader headers_;
  Epoch::Reader& epoch_;  // entered while what the index said is read from the medium
  std::array<std::unique_ptr<Stream>, kStreamMax + 1> streams_;  // null: the user's serves for it
  StreamSet folded_;  // of those, the user's serves for as long as room is short
  std::unique_ptr<Collector> collector_;
  std::unique_ptr<ExpirySweep> sweep_;
  // As of the zone opened last, or the last look for one to free:
  std::uint64_t tombstones_ = 0, group_tombstones_ = 0;
  struct Oldest {  // zone of all that the volume has, by its opening
    ZoneId zone;
    std::uint64_t opened = ~std::uint64_t{0}, next_opened = ~std::uint64_t{0};
  } oldest_;
  std::uint64_t cost_bytes_ = 0;     // of the pages present
  std::uint32_t largest_bytes_ = 0;  // page since the pool was opened
  bool left_out_ = false;            // of the index: pages that the medium has
  bool short_of_room_ = false;       // the device, when a zone died last
  bool lost_ = false;                // likewise, for good
  std::atomic<bool> damaged_copies_ = false;
  bool hidden_ = false;                   // records that nobody can read until the next opening
  std::uint64_t first_sequence_ = 0;      // of this opening
  const std::uint64_t segment_pins_max_;  // StreamOwner
  std::uint64_t pinned_lbas_ = 0;
  std::uint32_t largest_pinned_bytes_ = 0;  // page since the pool was opened
  std::uint64_t pending_pinned_lbas_ = 0;
  std::uint64_t pending_cost_bytes_ = 0;   // of puts admitted and not yet published
  std::uint64_t running_ = 0;              // operations
  std::uint64_t users_bytes_written_ = 0;  // by streams that are not collection's
  struct Removing {
    std::uint64_t group;
    std::uint64_t sequence;
    bool logged = false;  // its tombstone is on the medium
  };
  std::vector<Removing> removing_;  // group deletions that run, or have not found all
  PageLogStats stats_;
};

}  // namespace furrow
