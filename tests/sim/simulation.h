// Simulation: a pool on a simulated device, its clients, and the power that fails, all from one
// seed. The engine is the production code, unmodified, on one thread.
//
//   Simulation simulation({.seed = 7, .steps = 2000, .scenario = "mixed"});
//   simulation.run();  // failure() is empty when all went well
//
// A step is one operation started, or one turn of the executor; stops (power cuts, kills, orderly
// closes) come in between. Not thread-safe; one at a time in a process, as libsodium's source of
// randomness is set.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/pool.h"
#include "tests/sim/sim_device.h"
#include "tests/sim/sim_disk.h"
#include "tests/sim/sim_files.h"
#include "tests/sim/sim_reservations.h"
#include "tests/sim/sim_volume.h"
#include "tests/sim/sim_zones.h"
#include "tests/sim/swarm.h"

namespace furrow::sim {

struct SimulationOptions {
  std::uint64_t seed = 1;
  std::uint64_t steps = 2000;
  std::string scenario = "mixed";
  bool verbose = false;                           // says on standard error what happens
  std::uint64_t watched_key = ~std::uint64_t{0};  // of all volumes: each answer on it
};

class Simulation {
 public:
  explicit Simulation(const SimulationOptions& options);
  ~Simulation();

  bool run();
  const std::string& failure() const { return world_.failure; }
  std::string describe() const { return sim::describe(swarm_); }

  struct Summary {
    std::uint64_t trace = 0, events = 0, answered = 0, stops = 0, recoveries = 0, closes = 0;
    std::uint64_t puts_refused = 0, removes_refused = 0;
    std::uint64_t summaries_rotted = 0, pages_rotted = 0, records_rotted = 0, spoiled = 0,
                  faults = 0, zones_lost = 0, repairs = 0, longest_turns = 0, scrub_findings = 0;
    std::uint64_t spells = 0;  // in which LBAs cannot be read, or the device is full
    // Of collection and eviction, and the bytes of pages that were copied for them.
    std::uint64_t zones_reset = 0, relocated_bytes = 0;
    std::uint64_t resized = 0;  // volumes
    std::uint64_t clock_set = 0;
    std::uint64_t hosts_zones_reset = 0, reservations_kept = 0;
    std::uint64_t disks_deleted = 0;   // while something ran on them
    std::uint64_t mounts = 0;          // of files, verified
    std::uint64_t mounts_refused = 0;  // for what could not be read or was damaged
  };
  Summary summary() const;

 private:
  // Nothing that a correct engine does takes as long as this without an answer.
  static constexpr std::uint64_t kQuietTurnsMax = 100'000;

  void power_on();
  void write_after_losses();
  void verify_healed();
  void refill_all();
  void refill(SimVolume& volume);
  void come_to_rest();
  bool make_pool();
  bool open_pool();
  void step();
  void change_volumes();
  void resize_some();
  void resize(SimVolume& volume);
  void create(SimVolume& volume);
  void remove(SimVolume& volume);
  void forget_ended();
  bool attach_volumes();
  void create_files();
  bool mount_files();
  void step_files();
  void empty_files();
  void create_disks();
  bool create_disk(DiskShape shape);
  bool attach_disks();
  void cut_disks(bool process_only);
  void change_disks();
  void come_or_go();
  void remove(SimDisk& disk);
  void resize(SimDisk& disk);
  void verify(SimDisk& disk);
  void refill(SimDisk& disk);
  SimDisk& any_disk();
  void rest_disks();  // and deleted ones are forgotten
  void create_zones();
  bool attach_zones();
  void cut_zones(bool all_kept);
  void change_zones();
  void remove_zones();
  void verify_zones();
  void refill_zones();
  void turn_beside_files();
  void set_clock();
  void start_some();
  void stop();
  void rot();
  void strike_page();
  void note_struck_pages();
  SimVolume* volume_of(const StruckPage& page);
  std::vector<std::uint32_t> zones_to_give_up() const;
  void note_given_up(const std::vector<std::uint32_t>& zones);
  void check_all(const char* when);
  void end_pool(bool orderly);
  void recover();
  void cut(bool process_only = false);
  bool repair(ZoneId struck);
  std::optional<ZoneId> strike();
  bool hide();
  Result<CheckReport> inspect();
  void look_at();
  void see_damage(ZoneId zone);
  bool check(const char* when);
  void verify();
  // Turns until nothing runs any more.
  bool pump(const char* why);
  void turn();
  void check_structure();
  void check_usage();
  void count_collection();
  void note_lost_zones();
  unsigned running() const;
  void abandon();
  void say(const std::string& text) const;

  const SimulationOptions options_;
  World world_;
  Swarm swarm_;
  SimMedium medium_;
  std::unique_ptr<SimExecutor> executor_;
  std::unique_ptr<SimDevice> device_;
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<PageSession> session_;
  std::vector<std::unique_ptr<SimVolume>> volumes_;
  std::vector<std::unique_ptr<SimVolume>> ended_;  // deleted, and not all is answered
  std::unique_ptr<SimFiles> files_;
  std::vector<std::unique_ptr<SimDisk>> disks_;
  std::vector<std::unique_ptr<SimDisk>> ended_disks_;  // deleted
  SimReservations reservations_{world_};
  std::unique_ptr<SimZones> zones_;  // null, also: there is none just now
  bool over_ = false;                // files cannot be mounted any more, as README says
  bool in_step_ = false;             // others may start something while files are waited for
  struct Resizing {
    std::string name;  // empty: none is
    std::uint64_t zones = 0;
  } resizing_;
  std::uint64_t steps_ = 0;
  std::size_t lost_zones_seen_ = 0;
  std::uint64_t shrunk_zones_seen_ = 0;
  bool end_flushed_ = false;  // no flush failed while the pool was last closed
  std::vector<StruckPage> struck_;
  std::vector<StruckPage> unreadable_;  // until their zones are reset
  bool inspects_ = false;               // the pool is open to be looked at
  bool repairable_ = true;              // the pool is as whole as a repair can make it
  std::uint64_t quiet_turns_ = 0;       // without an answer while operations run
  std::uint64_t answered_seen_ = 0;
  std::uint64_t names_ = 0;
  Summary summary_;
};

}  // namespace furrow::sim
