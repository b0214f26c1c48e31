// HeaderReader: reads batch headers, a bounded number at a time. A header holds the full keys of
// its pages, which the index does not. Where it is damaged, or cannot be read, the summary of its
// segment or a note is looked for, which say the same: `corrupt`, or `io_error`, means that nothing
// does.
//
// Threads: the home executor. While a read is asked for, the zones that exist are not reset.
#pragma once

#include <array>
#include <functional>
#include <optional>

#include "log/pool_context.h"
#include "log/segment_scan.h"
#include "zone/aligned_buffer.h"

namespace furrow {

struct HeaderRead {
  std::uint64_t page_lba = 0;  // pool-wide: of a page (or tombstone's header) in the batch
  bool whole = false;  // page_lba is not known to lie behind the header: read the longest there is
  // The view, and all it gives, is valid during the call.
  void (*on_read)(HeaderRead&, const Result<BatchView>&) = nullptr;
  HeaderRead* next = nullptr;
  unsigned epoch_side = 0;
};

class HeaderReader {
 public:
  // How far a zone is written, as the PageLog knows. None: to its end.
  using WrittenLba = std::function<std::uint64_t(ZoneId)>;
  explicit HeaderReader(PoolContext& pool, WrittenLba written_lba = nullptr);
  ~HeaderReader();
  HeaderReader(const HeaderReader&) = delete;
  HeaderReader& operator=(const HeaderReader&) = delete;

  void read(HeaderRead& request);  // never answers from within
  std::uint64_t reads() const { return reads_; }

 private:
  static constexpr unsigned kLanes = 32;
  struct Lane {
    Io io;
    AlignedBuffer buffer;
    HeaderReader* reader = nullptr;
    HeaderRead* request = nullptr;
    bool again = false;  // a second time: the first did not give a header
    // When that did not either.
    Status lost;
    unsigned reads_failed = 0;
    std::optional<SegmentScan> scan;
    AlignedBuffer scan_buffer;
    std::uint32_t batch_lba = 0;  // zone-relative
  };
  void start(Lane& lane, HeaderRead& request);
  void completed(Lane& lane);
  void look_elsewhere(Lane& lane);
  void read_on(Lane& lane);
  void scan_fed(Lane& lane);
  Result<BatchView> repeated(Lane& lane) const;
  void answer(Lane& lane, const Result<BatchView>& view);

  PoolContext& pool_;
  const WrittenLba written_lba_;
  Epoch::Reader& epoch_;
  std::array<Lane, kLanes> lanes_;
  HeaderRead* waiting_head_ = nullptr;
  HeaderRead* waiting_tail_ = nullptr;
  std::uint64_t reads_ = 0;
};

}  // namespace furrow
