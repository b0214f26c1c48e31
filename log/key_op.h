// KeyOp: an operation on a page log that changes a key, or needs its full key from the medium.
// Intrusive: owned by the caller until on_done. The engine's PageOp holds one.
#pragma once

#include <array>
#include <cstdint>

#include "log/header_reader.h"
#include "log/index.h"
#include "log/key.h"
#include "log/key_lock.h"
#include "log/stream.h"
#include "zone/aligned_buffer.h"

namespace furrow {

class PageLog;
struct PageOp;  // the engine's: only passed through

// A page as an index entry tells it from others. Length 0: that there is none.
struct KnownPage {
  Key key;
  std::uint32_t length = 0;
  std::uint32_t checksum = 0;
};

// How long a page is expected to live, beside the others of its volume: those that live about as
// long are written to the same zones, which are free again when their pages are gone.
enum class Lifetime : std::uint8_t { medium_term, short_term, long_term, extreme };

struct KeyOp {
  enum class Kind : std::uint8_t {
    put,
    remove,
    exist,
    diagnose,  // a reader found no intact page: corrupt, if the key is there; else not_found
    pin,
    unpin,
    rewrite,  // the page that stands at rewritten_lba, as it is; not_found: it does not any more
  };
  enum class Condition : std::uint8_t { always, if_absent, if_exists };

  Kind kind = Kind::put;
  Condition condition = Condition::always;
  bool flushed = false;  // answer only when it would survive a power cut
  bool pinned = false;
  bool shrinks = false;       // put: as in PageOp
  bool whole_record = false;  // exist: pinned, group and expires_s are results; corrupt where the
                              // record that has them is damaged
  Lifetime lifetime = Lifetime::medium_term;  // put; one that expires is a short one
  Key key;
  std::uint64_t group = 0;
  std::uint32_t expires_s = 0;
  std::byte* data = nullptr;  // put, rewrite: the page, see Append
  std::uint32_t length = 0;
  std::uint32_t capacity = 0;
  const KnownPage* known = nullptr;        // what stands there; null: read from the medium
  std::uint64_t rewritten_lba = 0;         // pool-wide
  std::uint64_t rewritten_generation = 0;  // of that LBA's zone, when it was read
  std::uint64_t old_sequence = 0;          // rewrite: of its record

  Status status;                     // result
  std::uint32_t value_length = 0;    // exist: the page's true length
  std::uint32_t value_checksum = 0;  // put, exist
  void (*on_done)(KeyOp&) = nullptr;
  PageOp* page_op = nullptr;  // the caller's

  // From here on: the log's, while it runs.
  static constexpr unsigned kCandidatesMax = 16;
  PageLog* log = nullptr;
  struct Part {
    KeyOp* op = nullptr;
  };
  struct Lock : KeyLockHolder, Part {
  } lock;
  struct Header : HeaderRead, Part {
  } header;
  struct Write : Append, Part {
  } write;
  struct Flush : FlushWaiter, Part {
  } flush;
  std::array<IndexEntry, kCandidatesMax> candidates;
  unsigned candidate = 0, candidate_count = 0;
  unsigned epoch_side = 0;
  bool in_epoch = false;
  bool overtaken = false;  // by collection, while it waited for a zone
  bool found = false;
  bool expired = false;
  std::uint64_t failures_before = 0;  // of collection
  KeyOp* next = nullptr;              // waits for ExpirySweep
  IndexEntry old;                     // when found
  Io io;                              // pin: reads the page
  AlignedBuffer page;                 // pin: the page
};

}  // namespace furrow
