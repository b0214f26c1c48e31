// What a simulated device may do wrong. Drawn by the swarm.
#pragma once

#include <cstdint>

namespace furrow::sim {

struct SimFaults {  // one in so many operations that it can happen to; 0: never
  // Nothing of it is on the medium, and the zone is sealed, as emulated devices do it.
  std::uint64_t write_errors = 0;
  // It is said to have failed and has moved the write pointer; the data is there, or half of it.
  std::uint64_t write_moves = 0;
  // One that was given behind another in flight in its zone is placed before that: both fail, and
  // the zone is sealed, as nvme: does it. Once only, as nvme: has one in
  // flight from then on.
  std::uint64_t misplaced_writes = 0;
  // A write to an empty zone is refused, as if others had used MOR or MAR up.
  std::uint64_t limit_errors = 0;
  std::uint64_t read_errors = 0;  // once; some of the memory has been filled
  // A read gives what other LBAs hold; the next one there is right.
  std::uint64_t misdirected_reads = 0;
  // Some of the LBAs of a read cannot be read for a while, by nobody. One such spell at a time.
  std::uint64_t unreadable_spells = 0;
  // The file system under an emulated device is full for a while: some writes, resets and finishes
  // find no room.
  std::uint64_t full_spells = 0;  // one in so many writes begins one
  std::uint64_t flush_errors = 0, reset_errors = 0, finish_errors = 0;
  // A data zone becomes read-only, or offline if `offline`; at a reset it is the one that was to be
  // reset.
  std::uint64_t zone_losses = 0, reset_losses = 0;
  // A reset that leaves a data zone less capacity, half of it at least, for good.
  std::uint64_t capacity_losses = 0;
  bool offline = false;

  // Those that an operation which is tried again may pass.
  bool transient() const {
    return (write_errors | write_moves | misplaced_writes | limit_errors | read_errors |
            misdirected_reads | unreadable_spells | full_spells | flush_errors | reset_errors |
            finish_errors) != 0;
  }
  bool fails_reads() const { return (read_errors | misdirected_reads | unreadable_spells) != 0; }
  bool loses_zones() const { return (zone_losses | reset_losses) != 0; }
  bool any() const { return transient() || loses_zones() || capacity_losses != 0; }
  // A zone that could be neither finished nor reset keeps an active zone of the device's.
  bool may_exceed_limits() const {
    return (reset_errors | finish_errors | write_moves | full_spells) != 0;
  }
  SimFaults but_for_reads() const {
    SimFaults some = *this;
    some.read_errors = some.misdirected_reads = some.unreadable_spells = 0;
    return some;
  }
  // While a pool is opened: no reads, as nobody can know what an unreadable LBA was to say.
  SimFaults while_opening() const {
    SimFaults some = but_for_reads();
    some.zone_losses = some.reset_losses = some.capacity_losses = 0;
    return some;
  }
};

}  // namespace furrow::sim
