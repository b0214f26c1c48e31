// The steps of recover(). Private to log/recovery*.cc.
#pragma once

#include <algorithm>
#include <compare>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "log/recovery.h"
#include "log/recovery_scan.h"
#include "zone/aligned_buffer.h"

namespace furrow {

class Recovery {
 public:
  Recovery(ZonedDevice& device, PoolContext& pool, const RecoveryOptions& options)
      : device_(device), pool_(pool), options_(options), trims_(options.trims) {
    std::ranges::stable_sort(trims_, {}, &ZoneTrim::zone);
  }
  Result<RecoveryResult> run();

 private:
  // A page that stands in a volume's spare zone as well.
  struct Copied {
    RecoveredRecord* original;  // as it goes into the index
    std::uint64_t copy_lba;
  };
  struct CopiedPage {
    RecoveredRecord* original;
    std::uint64_t copy_lba;
    KeyHash hash;
  };
  // A store's zone that may be given back.
  struct Spare {
    ZoneId zone;
    bool needed = false;
    std::vector<Copied> copied;
  };

  using Missing = RecoveryResult::Lost::Missing;
  // A zone that was written, and what its header or, without one, its batches say.
  struct ReadZone {
    ZoneInfo info;
    Result<ZoneHeader> header;
  };

  Status find_zones();
  Result<ZoneHeader> read_header(const ZoneInfo& info, AlignedBuffer& lba);
  Status check_known(const std::vector<ReadZone>& zones);
  void take_zone(const ReadZone& read, bool evicted);
  Status reset(ZoneId zone);
  void take_offline(ZoneId zone);
  void set_aside(ZoneId zone, const char* why, bool anyones = false);
  Status note_aside(ZoneId zone);
  std::uint64_t volumes_since(ZoneId zone) const;
  Status note_offline(ZoneId zone);
  Status note_rebuilt();
  Status note_given_up();
  Status note_void(ZoneId zone);
  void finish_aside(const ZoneInfo& info);
  Status read_lba(ZoneId zone, std::uint64_t at, AlignedBuffer& into);
  Result<ZoneHeader> rebuild_header(const ZoneInfo& info);
  bool is_blank(const ZoneInfo& info, std::uint64_t begin);
  bool is_over(const ZoneStamp& stamp, const ZoneInfo& info, bool unreadable) const;
  bool is_guess(const ZoneStamp& stamp, const ZoneInfo& info, AlignedBuffer& lba);
  Result<std::uint64_t> owner_of(const ZoneInfo& info, const ZoneStamp& stamp, AlignedBuffer& lba);
  bool is_void(const ZoneStamp& stamp, std::uint64_t lba) const;
  bool given_up_now(ZoneId zone) const;
  bool holds_nothing(ZoneId zone) const;
  // What a zone that a repair wrote anew has from the old one, and its own generation.
  struct Writing {
    std::uint64_t volume, opened_sequence;
    std::uint8_t stream;
    std::uint64_t generation;
    auto operator<=>(const Writing&) const = default;
  };
  static Writing writing_of(const ZoneHeader& header);
  void find_durable(const std::vector<ReadZone>& zones);
  bool is_rebuilt(const ZoneHeader& header) const;
  bool may_wait(const ZoneInfo& info) const;
  std::span<const ZoneTrim> trims_of(ZoneId zone) const;
  bool is_store(std::uint64_t volume) const;
  bool was_aside(ZoneId zone) const;
  bool was_counted(const ZoneStamp& stamp) const;
  bool is_evicted(const ReadZone& zone, const std::vector<ReadZone>& zones) const;
  bool has_batch(const FoundZone& zone);
  void mark_newest();
  void mark_spares();
  Status scan_zones();
  Status let_go();
  Status finish_zones();
  Status note_ends();
  void keep_unreadable(ZoneId zone);
  void merge();
  void merge_volume(std::uint64_t volume, RecoveredVolume& into);
  void verify_originals();
  std::vector<CopiedPage> copied_pages(Spare& spare);
  void take_copy(const CopiedPage& page);
  Status give_back_spares();
  Status note_durable_before(ZoneId newest);
  // What one thread has counted of a volume's pages.
  struct Merged {
    std::uint64_t live_bytes = 0, cost_bytes = 0, pinned_lbas = 0;
    std::uint32_t largest_bytes = 0;
    std::vector<std::uint64_t> live_lbas;           // by zone
    std::map<std::uint32_t, std::uint64_t> strays;  // by zone: Zone::stray_sequence
    std::uint32_t first_expiry_s = ~std::uint32_t{0};
    bool expired = false;
    bool spare_needed = false;  // something stands in the volume's spare zone only
    std::vector<Copied> copied;
    std::vector<Outlived> outlived;
    // They have unverified pages, in whose places others may count.
    std::vector<ZoneId> passed_over;
  };
  void winners(std::uint64_t volume, std::span<const RecoveredRecord> sorted, RecordPile& into,
               Merged& sums);
  void find_deleted_groups();
  const RecoveredRecord& latest_copy(std::span<const RecoveredRecord> versions) const;
  bool present(std::uint64_t volume, const RecoveredRecord& record) const;
  bool is_unverified(const RecoveredRecord& record) const {
    return std::ranges::binary_search(unverified_, record.lba());
  }
  const RecoveredRecord* whole_version(std::uint64_t volume,
                                       std::span<const RecoveredRecord> versions,
                                       bool evicts) const;
  bool is_deleted(std::uint64_t volume, std::span<const RecoveredRecord> versions,
                  bool evicts) const;
  void note_passed_over(std::span<const RecoveredRecord> versions, const RecoveredRecord& winner,
                        bool stays_if_torn, std::vector<ZoneId>& into) const;
  bool expired(const RecoveredRecord& page) const {
    return page.entry().expires && pool_.expiry(page.lba()) <= pool_.home.wall_s();
  }
  const RecoveredRecord* same_without(std::uint64_t volume, ZoneId spare,
                                      std::span<const RecoveredRecord> versions) const;
  const RecoveredRecord* copy_of(const RecoveredRecord& page, ZoneId spare,
                                 std::span<const RecoveredRecord> versions) const;
  // The newest deletion of the page's group, if the page is older; null: none.
  const GroupTombstones::value_type* deletion_of(std::uint64_t volume,
                                                 const RecoveredRecord& record) const;
  void note_stray(const RecoveredRecord& older, const RecoveredRecord& newest, bool evicts,
                  Merged& sums) const;
  void note_outlived(std::uint64_t volume, std::span<const RecoveredRecord> versions,
                     std::vector<Outlived>& into) const;
  bool known(std::uint64_t volume) const {
    return std::ranges::find(options_.volumes, volume) != options_.volumes.end();
  }

  ZonedDevice& device_;
  PoolContext& pool_;
  const RecoveryOptions& options_;
  std::vector<ZoneTrim> trims_;  // options_.trims, by zone: each is asked for its own
  std::unique_ptr<IoQueue> queue_;
  Patience patience_{pool_.home};  // with reads
  Patience reset_patience_{pool_.home};
  std::vector<FoundZone> zones_;
  std::vector<ZoneId> guessed_;  // FoundZone::guessed
  std::vector<ZoneId> to_reset_;
  std::vector<Writing> durable_;           // ascending: of zones of which the journal says so
  std::vector<ZoneStamp> rebuilt_;         // of these: another zone has all of it
  std::vector<ZoneId> given_up_;           // now, and void whatever life it is
  std::vector<ZoneId> offline_;            // to be noted
  std::vector<ZoneInfo> aside_;            // to be finished
  std::map<std::uint64_t, Spare> spares_;  // by volume
  std::vector<std::unique_ptr<Scanner>> scanners_;
  std::vector<std::uint64_t> unverified_;  // Scanner::unverified, of all, ascending
  std::map<std::uint64_t, GroupTombstones> group_tombstones_;  // by volume
  std::vector<bool> deleted_in_;  // by zone: it has pages of a group that is in these
  RecoveryResult result_;
};

}  // namespace furrow
