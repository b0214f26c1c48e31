// ZonedVolume: the zones of a volume of kind zoned, one to one on zones of the device.
//
// Logical zone i is the i-th of the physical zones that were lent to the volume, in ascending
// order. By ZoneStateMachine it answers every operation before the device does: the rules of the
// Zoned Namespace command set, with the volume's share of open and active zones (MOR, MAR). Writes,
// appends, finish and reset go to the device; open, close and the implicit closing of a zone are of
// the volume alone, as they only count against its share: the device opens what is written. What
// the device says counts when the pool is opened and when an operation has failed.
//
// Of one zone, operations begin in the order in which they came. Many writes are in flight in it;
// finish and reset wait for those before them, and what follows waits for these. Zone Appends go to
// the device as such, but for those that are too large for it, which are writes at the write
// pointer. What gives an open or active zone back does so when the device has
// done it, so the device never has to refuse for its own limits.
//
// Threads: the pool's home executor, but for what is said to be any thread's. Nothing is allocated
// for an operation.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "alloc/zone_allocator.h"
#include "engine/zoned/zoned_op.h"
#include "log/pool_context.h"
#include "zone/device.h"
#include "zone/zone_state_machine.h"

namespace furrow {

class ZonedVolume {
 public:
  // `zones` ascend; `durability` is the least that a write or append has. Before anything else
  // load(), once.
  ZonedVolume(PoolContext& pool, ZonedDevice& device, std::vector<ZoneId> zones, ZoneShare share,
              Durability durability);

  // From a report of the device's zones. What was open is closed, or empty if nothing was written.
  void load(const std::vector<ZoneInfo>& report);

  // --- any thread ---
  // As the volume's user sees it: its zones, its share; appends as long as a zone.
  const Geometry& geometry() const { return geometry_; }
  ZoneInfo zone(std::uint32_t zone) const;  // zone < geometry().zone_count
  // Of a read that it is: what the state machine says.
  std::uint16_t check_read(std::uint64_t lba, std::uint64_t count) const;
  Lba device_lba(std::uint64_t lba) const;  // of one within the volume
  const std::vector<ZoneId>& zones() const { return zones_; }
  struct Stats {  // since the pool was opened
    std::atomic<std::uint64_t> writes{0}, bytes_written{0}, resets{0}, flushes{0};
  };
  const Stats& stats() const { return stats_; }

  // Has the device itself taken zones to another state that take_changed() has not told yet?
  bool any_changed() const { return any_changed_.load(std::memory_order_relaxed); }

  // --- home executor ---
  // Those zones, each once.
  std::vector<std::uint32_t> take_changed();
  // Anything, of a read that what it has read is made durable; answered on the executor of its
  // session.
  void submit(ZonedOp& op);
  // The device failed a read of the zone, or says that it is taken: is it still there?
  void doubt(std::uint32_t zone);
  // Has the device found that it has taken zones away, with no operation that failed for it?
  void look_for_taken();
  bool idle() const { return running_ == 0; }
  // Of one that is idle, as the pool is closed: has what was written to it been flushed, or could
  // it not be? Asked until it is true.
  bool close();
  ZoneUsage usage() const { return usage_; }

 private:
  static constexpr unsigned kStepsMax = 16;  // zones that an operation on all has with the device

  struct Slot {
    std::atomic<std::uint64_t> word{0};  // state (4 bits) | LBAs written
    std::uint32_t in_flight = 0;         // writes and appends
    bool appends = false;                // those in flight are the device's appends
    bool managed = false;                // finished or reset just now
    // A write failed, or the zone is in doubt: look again when the device has nothing of it.
    bool unsure = false;
    bool changed = false;   // is in changed_
    bool selected = false;  // by the operation on all zones that has its turn
    // Counted in usage_ though the zone is full, until the write that fills it has ended.
    bool open_held = false, active_held = false;
    ZonedStep* first = nullptr;  // waiting
    ZonedStep* last = nullptr;
  };

  static ZoneAction action_of(const ZonedOp& op);
  static std::uint64_t pack(ZoneState state, std::uint64_t written);
  ZoneView view(std::uint32_t zone) const;
  Lba zone_start(std::uint32_t zone) const { return pool_.geometry.zone_start(zones_[zone]); }
  bool as_append(const ZonedOp& op) const;
  bool must_wait(const Slot& slot, const ZonedOp& op) const;
  void enter(ZonedStep& step);
  void begin(ZonedStep& step);
  void write(ZonedStep& step, const ZoneDecision& decision);
  void written(ZonedStep& step);
  void manage(ZonedStep& step);
  void managed(ZonedStep& step);
  void settle(std::uint32_t zone);  // nothing is in flight in it any more
  void go_on(std::uint32_t zone);
  void end(ZonedStep& step, const Status& status);
  void finish(ZonedOp& op);
  void answer(ZonedOp& op);

  struct CloseFlush : FlushWaiter {
    bool busy = false;
  };

  void begin_all(ZonedOp& op);
  void go_on_all();
  void end_of_all(ZonedStep& step);

  void apply(std::uint32_t zone, const ZoneDecision& decision);
  void set(std::uint32_t zone, ZoneState state, std::uint64_t written);
  void close_one(std::uint32_t except);
  void release_held(Slot& slot);
  void look_again(std::uint32_t zone);  // nothing of it is with the device

  PoolContext& pool_;
  ZonedDevice& device_;
  const std::vector<ZoneId> zones_;
  const Geometry geometry_;
  const Durability durability_;
  const ZoneStateMachine machine_;
  const std::unique_ptr<Slot[]> slots_;
  ZoneUsage usage_;
  std::vector<std::uint32_t> implicitly_open_;  // oldest first; where there is a limit
  std::array<ZonedStep, kStepsMax> steps_;
  ZonedStep* free_step_ = nullptr;
  ZonedOp* first_all_ = nullptr;  // operations on all zones, the first of which has its turn
  ZonedOp* last_all_ = nullptr;
  bool going_on_all_ = false;
  std::uint64_t running_ = 0;
  bool wrote_ = false;
  CloseFlush close_flush_;
  std::uint64_t zones_taken_ = 0;  // ZonedDevice::zones_taken() when it was looked at
  std::vector<std::uint32_t> changed_;
  std::atomic<bool> any_changed_{false};
  Stats stats_;
};

}  // namespace furrow
