// Swarm: what one seed's simulation is like. Each feature, fault and shape is switched on or off at
// random, since a run that does everything at once reaches less than many that each do a few things
// often.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/pool.h"
#include "tests/sim/sim_device.h"

namespace furrow::sim {

// How often each operation is drawn, relative to the others; 0: never.
struct Mix {
  unsigned put = 10, get = 4, remove = 2, exist = 1, list = 0, flush = 1, remove_group = 0, pin = 0,
           unpin = 0;
};

struct VolumeShape {
  VolumeOptions options;
  Mix mix;
  std::uint64_t keys = 100;
  unsigned depth = 8;              // operations in flight
  unsigned flushed_percent = 20;   // of puts and removes
  unsigned condition_percent = 0;  // of puts
  unsigned ttl_percent = 0;
  unsigned group_percent = 0;
  unsigned pinned_percent = 0;
  unsigned groups = 4;
  bool wide = false;                                       // calls that are not drawn otherwise
  std::uint32_t value_bytes_min = 1, value_bytes_max = 1;  // drawn
};

struct DiskShape {
  VolumeOptions options;
  unsigned depth = 8;             // operations in flight
  unsigned flushed_percent = 20;  // of those that change something
  std::uint64_t blocks_max = 1;   // of an operation, but for those that empty a mebibyte
  bool overlaps = false;          // changes of an LBA run at once
  std::uint64_t block_cost = 0;   // bytes that a block takes of its zone
};

struct ZonesShape {
  VolumeOptions options;
  unsigned depth = 1;             // operations in flight
  unsigned flushed_percent = 20;  // of writes and appends
  std::uint64_t lbas_max = 1;     // of an operation
  bool loses_zones = false;       // the device takes some away
};

struct Swarm {
  Geometry geometry;
  std::vector<VolumeShape> volumes;
  std::optional<VolumeOptions> files;  // a volume of files beside them
  std::vector<DiskShape> disks;        // disks beside them
  std::optional<ZonesShape> zones;     // a volume of kind zoned beside them
  bool files_by_rocksdb = false;       // its FileSystem is what calls it
  bool wide = false;                   // what is not drawn otherwise, so that old seeds stay so
  bool emu = false;                    // the crash model
  VictimPolicy victim_policy = VictimPolicy::greedy;
  std::uint64_t lifetime_zones = 32;  // as in Pool::OpenOptions
  unsigned kill_percent = 0;          // of stops: the process alone
  std::uint64_t cut_events_max = 1000;
  unsigned recovery_cut_percent = 20;
  unsigned verify_percent = 50;       // of recoveries: every key is read at once
  unsigned close_percent = 0;         // of stops: an orderly close
  unsigned volume_change_one_in = 0;  // steps
  unsigned zones_change_one_in = 0;   // steps: the volume of kind zoned comes and goes
  unsigned disks_change_one_in = 0;   // steps: a disk comes or goes
  unsigned reserve_one_in = 0;        // steps: hosts' reservations of a volume change
  unsigned resize_one_in = 0;         // steps
  unsigned clock_jump_one_in = 0;     // steps
  unsigned clock_set_one_in = 0;      // steps: the wall clock, back as well; and at openings
  unsigned summary_rot_percent = 0, page_rot_percent = 0, journal_rot_percent = 0;  // of stops
  unsigned repair_percent = 0;          // of stops: a structure is damaged, and the pool repaired
  unsigned inspect_percent = 0;         // of stops: the pool is looked at before it is opened
  unsigned spoil_percent = 0;           // of stops: LBAs that cannot be read
  unsigned hide_percent = 0;            // of openings: LBAs that cannot be read until the next one
  bool hides_ends = false;              // these are near the ends of zones: what may be torn
  std::uint64_t scrub_bytes_per_s = 0;  // 0: none
  SimLatency latency;
  SimFaults faults;
};

// Scenarios: see kScenarios. Empty: no such scenario.
inline constexpr std::string_view kScenarios[] = {
    "mixed", "store",   "cache",     "full",    "volumes", "metadata", "faults",
    "worn",  "offline", "rot",       "repair",  "large",   "calm",     "shrunk",
    "tight", "flaky",   "misplaced", "resized", "hidden",  "files",    "rocksdb",
    "disk",  "wide",    "clock",     "thin",    "zoned",   "shared",   "unread"};
bool is_scenario(std::string_view name);
Swarm draw_swarm(std::string_view scenario, SimRandom& random);
std::string describe(const Swarm& swarm);

}  // namespace furrow::sim
