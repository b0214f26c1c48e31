// ZoneReturns: the zones of volumes that were deleted, on their way back.
//
// A deletion counts once it is in the metadata journal. Its zones are reset afterwards, when all
// gets that were on their way have ended, one at a time beside all else that the pool does, and are
// free when a flush has made that durable. Until then they are nobody's and promised to nobody.
// Where a flush fails they are reset and flushed again, a few times. What a stop leaves of them,
// the next opening finds by its headers, or in what the journal says is lent, and has returned
// likewise.
//
// Threads: the pool's home executor.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "log/pool_context.h"

namespace furrow {

class ZoneReturns {
 public:
  // Whose zones they were. Asked in the executor's turns.
  class Owner {
   public:
    virtual ~Owner() = default;
    // Those of the volume that the device counts against its limits are reset, all but so many.
    virtual void on_limits_returned(std::uint64_t volume, unsigned still_active) = 0;
    // Lent zones were all reset, durably, but those that are kept: may they be anybody's now?
    virtual Status note_returned(std::uint64_t volume, const std::vector<ZoneId>& kept) = 0;
    // It could not be reset, and is bad: what it holds must not count.
    virtual void on_kept(ZoneId zone) = 0;
  };
  struct Volume {
    std::uint64_t id = 0;       // 0: any that were deleted
    std::vector<ZoneId> zones;  // in ZoneUse::resetting
    bool lent = false;          // they say nothing themselves, and are told apart by the journal
    bool admitted = true;       // its limits are to be returned
  };

  ZoneReturns(PoolContext& pool, Owner& owner);  // both outlive it
  ~ZoneReturns();                                // idle
  ZoneReturns(const ZoneReturns&) = delete;
  ZoneReturns& operator=(const ZoneReturns&) = delete;

  void add(Volume volume);
  std::uint64_t zones() const;  // that are on their way
  bool limits() const;          // some of the device's that are to be returned are not yet
  void stop();                  // begins nothing more
  bool idle() const { return !busy_; }

 private:
  struct Flush : FlushWaiter {
    ZoneReturns* returns = nullptr;
  };
  struct Retry : Timer {
    ZoneReturns* returns = nullptr;
  };
  struct Returning : Volume {        // its zones are those that were not reset yet
    std::vector<ZoneId> reset = {};  // not known to be durable
    std::vector<ZoneId> kept = {};
    bool limits_returned = false;
    bool in_grace = false, unread = false;  // by gets
  };
  // More than one zone for a flush, and of lent ones all.
  static constexpr std::size_t kFlushedAtOnce = 64;

  void go_on();
  bool readers_have_left();
  void choose();
  void return_limits();
  void reset_done();
  void flushed();
  void try_again();

  PoolContext& pool_;
  Owner& owner_;
  std::deque<Returning> volumes_;  // the first is the one that is worked on
  unsigned flushes_failed_ = 0;    // one after another; from the limit on none is waited for
  bool busy_ = false, stopping_ = false;
  bool own_grace_ = false;
  Io io_;
  Flush flush_;
  Retry retry_;
};

}  // namespace furrow
