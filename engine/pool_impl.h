// Pool, as it is. See engine/pool.h.
#pragma once

#include <bitset>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "engine/page_store_impl.h"
#include "engine/pool.h"
#include "engine/pool_rebuild.h"
#include "engine/zone_returns.h"
#include "log/durable_notes.h"
#include "log/journal_queue.h"
#include "log/metadata_ring.h"
#include "log/pool_context.h"
#include "log/recovery.h"
#include "log/zone_survey.h"

namespace furrow {

class PageSessionImpl;
struct RepairRoom;
struct ZoneWork;

constexpr std::uint32_t kMetadataZones = 2;
constexpr std::uint64_t kVolumeZonesMin = 3;
constexpr std::uint64_t kDiskUnitBytes = 1 << 20;  // of the size of a volume of kind block
constexpr const char* kNameHint = "a name has 1 to 63 of the characters A-Z a-z 0-9 . _ -";

// A segment must hold at least one page of the largest size, its headers and its summary.
bool value_fits(const Geometry& geometry, std::uint64_t segment_lbas, std::uint32_t bytes);

// Of a pool on such a device.
std::size_t volumes_max(const Geometry& geometry);

// Of a pool that is made on such a device. Equal segments: a short one at the zone's end could be
// too small for a page.
std::uint64_t segment_lbas_of(const Geometry& geometry);

VolumeInfo info_of(const VolumeRecord& record, const Geometry& geometry);

Uuid random_uuid(Executor& executor);  // RFC 4122, version 4

// A volume is not made, nor gets a larger quota, yet.
inline constexpr Status kShedding{Code::busy, Origin::engine,
                                  "a volume holds more zones than its quota, as some are back that "
                                  "could not be read, and they are being freed; try again"};

class PoolImpl final : public Pool, private ZoneReturns::Owner {
 public:
  PoolImpl(ZonedDevice& device, Executor& home, MetadataRing ring, std::unique_ptr<IoQueue> queue,
           const OpenOptions& options);
  ~PoolImpl() override;

  Status open_volumes();  // recovery; once
  // Before: of a pool that has lost every checkpoint, what it is taken for.
  Status assume(AssumedPool assumed);
  bool lost() const { return ring_.lost(); }
  const MetadataRing& ring() const { return ring_; }
  PoolState assumed_state() const;  // with what recovery found

  bool quiesce() override;
  PoolInfo info() const override;
  std::uint64_t zones_returning() const override { return returns_.zones(); }
  std::vector<PoolZone> zones() const override;
  std::vector<std::string> opening_damage() const override;
  Result<PageStore*> create_volume(const VolumeOptions& options) override;
  Status delete_volume(std::string_view name) override;
  void forget_deleted() override;
  ResizeAnswer resize_volume(std::string_view name, const ResizeOptions& options) override;
  ReservationRecord reservations(std::uint64_t volume) const override;
  void keep_reservations(const ReservationRecord& wanted,
                         std::function<void(const Status&)> kept) override;
  std::vector<PageStore*> stores() const override;
  PageStore* find(std::string_view name) const override;
  PageStore* find_nsid(std::uint32_t nsid) const override;
  Result<std::unique_ptr<PageSession>> create_session(Executor& executor, unsigned depth) override;
  Result<CheckReport> check(const CheckOptions& options) override;

  std::vector<ZoneGivenUp> given_up() const override;

  bool metadata_damaged() const { return !damage_.empty(); }
  Result<std::vector<ZoneWork>> zones_to_rebuild();
  Result<RepairRoom> room_for_repair();
  const std::map<std::uint64_t, std::vector<ZoneId>>& unknown_volumes() const { return unknown_; }
  std::uint64_t open_count() const { return open_count_; }

  Executor& home() { return context_.home; }
  const PoolContext& context() const { return context_; }  // for who looks and changes nothing
  bool read_only() const { return options_.read_only; }
  ZonedDevice& device() { return device_; }

  // Sessions announce themselves, so that what they count can be summed. Any thread.
  void attach(PageSessionImpl& session);
  void detach(PageSessionImpl& session);
  void reset_counters(std::size_t ordinal);  // nobody counts there meanwhile
  void sum_gets(std::size_t ordinal, GetCounters& sum) const;
  // Gets that began and have not ended; none begins meanwhile.
  bool gets_in_flight(std::size_t ordinal) const;

  static constexpr std::size_t kVolumesMax = 64;
  static constexpr std::uint32_t kNsidMax = 1024;

 private:
  struct GivingUp {
    ZoneId zone;
    std::uint64_t generation = 0, volume = 0;  // as the pool was opened; 0: nobody's
  };
  void begin_giving_up();
  Status given_up(const GivingUp& each) const;
  void start_scrubber();
  Status check_reservations(const ReservationRecord& wanted) const;
  void begin_keeping();
  void go_on_keeping(const Status& so_far);
  PageLog* log_of(std::uint64_t volume) const;  // null: no such volume
  Status admit_volumes(RecoveryOptions& options);
  Status count_opening(std::uint64_t highest_sequence);
  void count_drawn();
  Status journal(const JournalRecord& record);   // of a change of the volumes
  Status settle();                               // see there
  Status note_trim(const ZoneTrimRecord& trim);  // durable when it returns; not when read-only
  Status drop_trims();
  Status drop_asides();
  std::map<std::uint64_t, StreamSet> share_streams(const RecoveryResult& recovered);
  bool grant_lifetime(std::uint64_t volume, std::uint8_t stream);
  Status end_zone(const Stream::Resume& resume);
  void add_blocks(const VolumeRecord& record);  // before its recovery
  void add_store(const VolumeRecord& record, StreamSet streams);
  // Resizing (pool_resize.cc).
  Status check_resize(const PageStoreImpl* store, const ResizeOptions& options) const;
  ResizeAnswer bounds_of(PageStoreImpl& store) const;
  Status check_quota(PageStoreImpl& store, std::uint64_t quota, const ResizeAnswer& bounds) const;
  std::uint64_t free_zones(PageStoreImpl& store, std::uint64_t quota, ResizeAnswer& answer);
  void spare_for_copies();
  bool sheds_zones() const;
  Status journal_sizes(PageStoreImpl& store, std::uint64_t quota_zones, std::uint64_t block_bytes);
  // Of kind zoned (pool_zoned.cc).
  Status take_lent_zones();
  std::vector<ZoneId> lent_to(std::uint64_t volume) const;
  // `report`: of the device's zones.
  void add_zoned(const VolumeRecord& record, const std::vector<ZoneInfo>& report);
  void return_orphans();
  Result<std::vector<ZoneId>> choose_zones(std::uint64_t count,
                                           const std::vector<ZoneInfo>& report) const;
  Result<ZoneShare> share_of(const VolumeOptions& options) const;
  Status journal_lent(std::uint64_t volume, const std::vector<ZoneId>& zones);
  Result<PageStore*> create_zoned(VolumeRecord record, const VolumeOptions& options);
  Status delete_zoned(PageStoreImpl& store);
  Status load(const RecoveryResult& recovered);
  Status note_cuts();
  SurveyedZone surveyed(const ZoneInfo& info) const;
  ZoneSurvey survey_zone(const ZoneInfo& info, const CheckOptions& options, CheckReport& report);
  void check_page(ZoneId zone, const PageRecord& record, PageLog& log, const ZoneRead& read,
                  CheckReport& report) const;
  std::uint32_t free_nsid() const;
  std::uint64_t unused_id() const;  // of a volume to come
  Status check_new_volume(const VolumeOptions& options) const;
  std::size_t take_ordinal();
  Result<PageStore*> make_volume(const VolumeOptions& options);
  // Zones of volumes that were deleted.
  void on_limits_returned(std::uint64_t volume, unsigned still_active) override;
  Status note_returned(std::uint64_t volume, const std::vector<ZoneId>& kept) override;
  void on_kept(ZoneId zone) override;
  void set_aside(PageStoreImpl& store);  // it was deleted
  std::uint64_t media_errors() const;

  ZonedDevice& device_;
  MetadataRing ring_;
  std::unique_ptr<IoQueue> queue_;
  PoolContext context_;
  JournalQueue journal_queue_;
  DurableNotes durable_notes_;
  ZoneReturns returns_;
  // Reservations that are to be kept, one after another.
  struct Keeping {
    ReservationRecord wanted;
    std::function<void(const Status&)> kept;
    std::deque<JournalRecord> records = {};  // of the first: that are not written yet
  };
  std::deque<Keeping> keepings_;
  JournalQueue::Entry keeping_;  // of the first
  // Of these volumes a change is being written, or failed, and may be what the next opening finds.
  std::set<std::uint64_t> unsure_reservations_;
  const OpenOptions options_;
  std::vector<std::unique_ptr<PageStoreImpl>> stores_;
  std::vector<std::unique_ptr<PageStoreImpl>> deleted_;  // who has them may use them
  std::unique_ptr<Scrubber> scrubber_;                   // null: none
  std::bitset<kVolumesMax> ordinals_;                    // that stores have
  std::uint32_t nsid_from_ = 1;                          // where free_nsid() begins
  std::vector<std::string> damage_;                      // of the metadata, and zones that are lost
  std::vector<std::string> notes_;
  std::vector<std::string> gaps_;  // what check() finds again by itself
  std::vector<RecoveryResult::Lost> lost_;
  std::vector<GivingUp> giving_up_;
  std::map<std::uint64_t, std::vector<ZoneId>> unknown_;  // volumes' zones; read-only
  std::uint64_t open_count_ = 0;                          // of this opening; read-only: the next
  std::vector<ZoneTrimRecord> cuts_;                      // to be noted in the journal
  std::uint64_t recovery_us_ = 0;
  std::uint64_t recovered_pages_ = 0;
  std::uint64_t media_errors_forgotten_ = 0;  // of stores that are gone
  mutable std::mutex sessions_mutex_;         // of the list and of ended_, never on a page's path
  std::vector<PageSessionImpl*> sessions_;
  std::unique_ptr<GetCounters[]> ended_;  // what sessions that are gone had counted
};

}  // namespace furrow
