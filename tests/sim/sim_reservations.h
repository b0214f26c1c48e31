// SimReservations: what hosts have reserved of the volumes of a simulated pool, as far as it is to
// outlive the process: changes that are asked for one after another, several of them in flight, and
// what each volume's may be. It outlives power cuts. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "engine/pool.h"
#include "tests/sim/sim_volume.h"

namespace furrow::sim {

class SimReservations {
 public:
  explicit SimReservations(World& world) : world_(world) {}

  unsigned running() const { return running_; }
  std::uint64_t kept() const { return kept_; }
  // Of one of its volumes.
  void start_any(Pool& pool);
  // Each volume's is what it may be, and that of one that nobody has asked for is nothing.
  void check(const Pool& pool) const;
  // The pool was opened anew: what there is now is what there is.
  void attach(const Pool& pool);

 private:
  struct Entry {
    std::vector<ReservationRecord> may_be;  // the first was acknowledged, or seen after a power cut
    std::deque<ReservationRecord> running;  // as asked for
  };

  Entry& entry_of(std::uint64_t volume);
  ReservationRecord draw(const ReservationRecord& before);
  void answered(std::uint64_t volume, const Status& status);
  static bool may_be(const Entry& entry, const ReservationRecord& is);

  World& world_;
  const Pool* pool_ = nullptr;
  std::map<std::uint64_t, Entry> entries_;  // by volume
  unsigned running_ = 0;
  std::uint64_t kept_ = 0;
};

}  // namespace furrow::sim
