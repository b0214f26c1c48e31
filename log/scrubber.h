// Scrubber: reads what nobody asks for, so that damage is found while something can be done about
// it. Zone after zone that is not written any more: its summaries, its batch headers and the pages
// that the index points to, one read in flight at a time, no faster than it may.
//
// A page that does not read whole is read again at once. If that helps, the page is written anew to
// another zone. If not, a cache lets go of it (a miss is right) and a store keeps it, reports it
// and goes on answering `corrupt`. A store's zone with a damaged summary or batch header is
// collected, so that its records stand in two places again.
//
// A device that is gone says nothing of its pages, and does not come back: that is the end of it.
//
// A zone is read only while it is sealed or being emptied, within the epoch: its reset waits.
//
// Threads: the home executor.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "log/key_op.h"
#include "log/pool_context.h"
#include "log/segment_scan.h"
#include "zone/aligned_buffer.h"

namespace furrow {

class PageLog;

// Since the pool was opened. Sizes in bytes.
struct ScrubStats {
  std::uint64_t bytes_read = 0, pages = 0, zones = 0, passes = 0;
  std::uint64_t pages_rewritten = 0;     // that had to be read twice
  std::uint64_t pages_lost = 0;          // that did not read whole at all
  std::uint64_t structures_damaged = 0;  // summaries and batch headers
  std::uint64_t last_pass_wall_s = 0;    // when the last full pass ended, Unix time; 0: none did
};

struct ScrubFinding {
  enum class Kind : std::uint8_t {
    page_damaged,     // its checksum is wrong
    page_unreadable,  // the device fails the read
    page_read_twice,  // it was whole the second time, and is written anew if it can be
    summary_damaged,
    batch_header_damaged,
  };
  Kind kind = Kind::page_damaged;
  std::uint64_t volume = 0;  // its id
  ZoneId zone;
  std::uint64_t lba = 0;  // zone-relative
  Key key;                // of a page
  bool dropped = false;   // from a cache
};
// "zone 7, LBA 123: the page of key 0x6b6579 is damaged (checksum); it stays, and reads as corrupt"
std::string describe(const ScrubFinding& finding);

class Scrubber {
 public:
  struct Options {
    std::uint64_t bytes_per_s = 0;  // at most, but for a tenth of a second's at once; more than 0
    std::uint64_t pause_s = 0;      // from the end of one pass to the begin of the next
    std::function<PageLog*(std::uint64_t volume)> log_of;  // null: it does not exist (any more)
    std::function<void(const ScrubFinding&)> on_finding;   // may be empty
  };
  Scrubber(PoolContext& pool, Options options);
  ~Scrubber();  // when idle()
  Scrubber(const Scrubber&) = delete;
  Scrubber& operator=(const Scrubber&) = delete;

  void start();
  void stop();  // for good; idle() when what is in flight has come back
  bool idle() const { return !reading_ && !rewriting_ && !turn_.posted; }
  bool reading() const { return reading_; }
  const ScrubStats& stats() const { return stats_; }

 private:
  enum class Step : std::uint8_t { zone, scan, headers, pages };
  struct Turn : Task {
    Scrubber* scrubber = nullptr;
    bool posted = false;
  };
  struct Wait : Timer {
    Scrubber* scrubber = nullptr;
  };
  static constexpr unsigned kRecordsPerTurn = 256;  // looked at before others have a turn

  void post();
  void turn();
  void next_zone();
  void begin_segment();
  void next_of_scan();
  void next_header();
  void next_page();
  bool find_live(const PageRecord& record);
  void read(std::uint64_t lba, std::uint64_t lbas);
  void completed();
  void header_read();
  void page_read();
  void page_lost();
  void rewrite();
  void rewritten();
  void structure_damaged(ScrubFinding::Kind kind, std::uint64_t lba);
  void report(ScrubFinding finding);
  void go_on();  // when the rate allows
  bool still_there() const;
  PageLog* log() const { return options_.log_of(volume_); }
  std::span<const std::byte> bytes_read() const { return {buffer_.data(), io_.one.iov_len}; }

  PoolContext& pool_;
  const Options options_;
  Epoch::Reader& epoch_;
  unsigned epoch_side_ = 0;
  ScrubStats stats_;
  bool stopped_ = false, reading_ = false, rewriting_ = false;
  std::uint64_t due_ns_ = 0;  // no read before
  Step step_ = Step::zone;
  std::uint32_t at_zone_ = 0, zones_left_ = 0;  // of the pass, which begins anywhere
  ZoneId zone_;
  std::uint64_t generation_ = 0, volume_ = 0;
  std::uint64_t segment_ = 0;
  std::optional<SegmentScan> scan_;
  std::size_t next_ = 0;           // header or record of the segment
  std::uint32_t header_lbas_ = 1;  // of the header, as far as is known
  PageRecord record_;
  KeyHash hash_;
  IndexEntry entry_;
  bool second_try_ = false;
  AlignedBuffer buffer_;
  Io io_;
  struct Rewrite : KeyOp {
    Scrubber* scrubber = nullptr;
  } rewrite_;
  Turn turn_;
  Wait wait_;
};

}  // namespace furrow
