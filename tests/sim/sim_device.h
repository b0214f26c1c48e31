// SimDevice: a zoned device in simulated time, from power-on to power-off. Its zone states follow
// ZoneTable, as those of the emulated devices do; what it stores outlives it in a SimMedium.
//
// Every operation is an event when it is given and when it completes; the power may fail at any of
// them, before or after. Completions come in random order. From the cut on every operation, those
// in flight included, fails with `aborted`.
//
// It also watches its user: what no correct user does is a violation, see violation().
// Not thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/sim/sim_executor.h"
#include "tests/sim/sim_faults.h"
#include "tests/sim/sim_medium.h"
#include "tests/sim/sim_random.h"
#include "zone/table_queue.h"

namespace furrow::sim {

struct SimLatency {
  std::uint64_t ns_min = 1000;
  std::uint64_t ns_max = 20'000;
  std::uint64_t slow_one_in = 0;  // 0: none; a slow operation takes 20 times as long
};

class SimQueue;

class SimDevice final : public ZonedDevice, private ZoneStore {
 public:
  SimDevice(SimMedium& medium, SimClock& clock, Trace& trace, const SimLatency& latency,
            SimRandom random);

  Result<std::unique_ptr<IoQueue>> create_queue(unsigned depth) override;
  Result<std::vector<ZoneInfo>> report() override;
  ZoneInfo zone(ZoneId zone) const override { return table_.info(zone); }

  // After so many more events (at least one) the power fails; 0: it does not.
  void cut_after(std::uint64_t events) { events_left_ = events; }
  void cut_now() { dead_ = true; }
  // Called at such an event, before anybody is told: what is in memory then is what a killed
  // process leaves.
  void when_cut(std::function<void()> on_death) { on_death_ = std::move(on_death); }
  bool dead() const { return dead_; }
  // Which zones are a host's now: it may reset what it reads itself.
  void hosts_zones(std::function<bool(ZoneId)> is_hosts) { is_hosts_ = std::move(is_hosts); }
  // Nobody can read these LBAs of the device any more.
  void hide(std::vector<std::uint64_t> lbas) { hidden_ = std::move(lbas); }
  bool hides() const { return !hidden_.empty(); }
  void set_faults(const SimFaults& faults) {
    faults_ = faults;
    may_exceed_limits_ |= faults.may_exceed_limits();
  }
  std::uint64_t faults_injected() const { return faults_injected_; }
  // A data zone goes, as it would by a fault.
  void lose_one(bool offline) {
    faults_.offline = offline;
    lose_some_zone(Io());
  }
  // Zones that it has lost since it was powered on.
  std::span<const ZoneId> lost_zones() const { return lost_zones_; }

  std::uint64_t due() const;  // when something completes next; SimExecutor::kNever: nothing will
  // The first thing that its user did wrong; empty: nothing.
  const std::string& violation() const { return violation_; }
  // In which LBAs could not be read, or the device was full, since power-on.
  std::uint64_t spells() const { return spells_; }
  // Operations that found no room since power-on.
  std::uint64_t found_no_room() const { return found_no_room_; }
  std::uint64_t flushes_failed() const { return flushes_failed_; }
  const ZoneTable& zones() const { return table_; }

 private:
  friend class SimQueue;

  Status save(ZoneId zone, const ZoneRecord& record) override {
    medium_.set_record(zone, record);
    return {};
  }
  bool event(std::uint64_t what);  // false: the power is gone
  void watch_submission(const Io& io);
  bool fails(std::uint64_t one_in);
  bool unreadable(std::uint64_t lba, std::uint64_t lbas);
  bool is_full();
  void lose(ZoneId zone);
  void lose_some_zone(const Io& io);
  void shrink(ZoneId zone);
  std::uint64_t latency_ns();

  SimMedium& medium_;
  SimClock& clock_;
  Trace& trace_;
  const SimLatency latency_;
  SimFaults faults_;
  SimRandom random_;
  ZoneTable table_;
  std::vector<SimQueue*> queues_;
  std::uint64_t events_left_ = 0;
  std::function<void()> on_death_;
  std::function<bool(ZoneId)> is_hosts_;
  std::uint64_t faults_injected_ = 0;
  std::vector<ZoneId> lost_zones_;
  std::vector<Lba> misread_;               // were read from elsewhere; from then on they are right
  std::vector<std::uint64_t> hidden_;      // LBAs
  std::vector<std::uint64_t> unreadable_;  // LBAs
  std::uint64_t unreadable_until_ns_ = 0;
  std::uint64_t full_until_ns_ = 0, found_no_room_ = 0, spells_ = 0;
  std::vector<ZoneId>
      cut_short_;  // refused a write for its lost capacity, of which nobody knows yet
  bool dead_ = false;
  bool misplaced_ = false;          // writes, since power-on
  bool may_exceed_limits_ = false;  // a zone that could not be finished stays active
  std::uint64_t flushes_failed_ = 0;
  std::string violation_;
};

class SimQueue final : public TableQueue {
 public:
  explicit SimQueue(SimDevice& device);
  ~SimQueue() override;
  Status register_buffers(std::span<const iovec> buffers) override;
  std::uint64_t system_calls() const override { return 0; }
  int wake_fd() const override { return -1; }
  std::uint64_t due() const;
  bool reads(ZoneId zone) const;

 private:
  struct Pending {
    Io* io = nullptr;
    std::uint64_t due_ns = 0;
    std::vector<SimMedium::Mark> marks;  // of a flush
    bool misplaced = false;
  };
  // A write that is carried out, wholly or in part, and said to have failed.
  struct MovedWrite;
  void do_submit(Io& io) override;
  bool refused(Io& io);
  void move_write(Io& io);
  Pending* write_before(const Io& io);
  void hand_over(const Io& io, std::uint64_t lba);
  void start_transfer(Io& io) override;
  void start_flush(Io& io) override;
  void zone_was_reset(ZoneId) override {}
  unsigned do_poll() override;
  unsigned do_wait(std::uint64_t timeout_us) override;
  unsigned abort_everything();
  void give_appends();
  Status perform(Pending& done);
  Status read(const Io& io, std::uint64_t bytes);
  void read_from(const Io& io, ZoneId zone, std::uint64_t at, std::uint64_t bytes);

  SimDevice& device_;
  std::vector<Pending> pending_;
  std::vector<Io*> appends_;  // which a drive places in any order
  std::vector<std::unique_ptr<MovedWrite>> moved_;
  bool moving_ = false;
};

}  // namespace furrow::sim
