// furrow-sim: runs the deterministic simulation for one seed or many.
//
//   furrow-sim --seed=7                      one seed
//   furrow-sim --seed=1 --seeds=1000         seeds 1 to 1000
//   furrow-sim --scenario=store --steps=500
//
// Exit status: 0 all went well, 1 a seed failed (its line replays it), 2 wrong usage.
#include <fmt/format.h>
#include <gflags/gflags.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/sim/simulation.h"
#include "zone/canary.h"

DEFINE_uint64(seed, 1, "first seed");
DEFINE_uint64(seeds, 1, "how many seeds, one after another");
DEFINE_uint64(steps, 1000, "steps of each seed: operations started and turns of the executor");
DEFINE_string(scenario, "mixed", "what the seeds are drawn for; \"all\": each in turn");
DEFINE_bool(verbose, false, "say what happens");
DEFINE_uint64(key, ~0ull, "print each answer on this key (by its number)");
DEFINE_string(canary, "none", "a bug to plant (of builds with FURROW_CANARIES)");
DEFINE_bool(keep_going, false, "go on after a failure");

namespace {

using furrow::sim::Simulation;

char g_replay[256];  // for the handler

void remember(std::uint64_t seed, const std::string& scenario) {
  const std::string line =
      fmt::format("furrow-sim --seed={} --steps={} --scenario={}", seed, FLAGS_steps, scenario);
  std::snprintf(g_replay, sizeof g_replay, "FAILED, replay with: %s\n", line.c_str());
}

// A FURROW_CHECK of the engine ends the process: it is told which seed it was.
void aborted(int) {
  if (write(STDERR_FILENO, g_replay, std::strlen(g_replay)) < 0) _exit(1);
  std::signal(SIGABRT, SIG_DFL);
}

struct Totals {
  std::uint64_t seeds = 0, failed = 0, stops = 0, recoveries = 0, answered = 0, refused = 0,
                rotted = 0, repairs = 0, faults = 0, zones_lost = 0, longest_turns = 0;
};

void run_seed(std::uint64_t seed, const std::string& scenario, Totals& totals) {
  remember(seed, scenario);
  Simulation simulation({seed, FLAGS_steps, scenario, FLAGS_verbose, FLAGS_key});
  if (FLAGS_verbose) fmt::print(stderr, "{}\n", simulation.describe());
  const bool ok = simulation.run();
  const Simulation::Summary summary = simulation.summary();
  ++totals.seeds;
  totals.stops += summary.stops;
  totals.recoveries += summary.recoveries;
  totals.answered += summary.answered;
  totals.refused += summary.removes_refused;
  totals.rotted += summary.summaries_rotted + summary.pages_rotted + summary.spoiled;
  totals.repairs += summary.repairs;
  totals.faults += summary.faults;
  totals.zones_lost += summary.zones_lost;
  totals.longest_turns = std::max(totals.longest_turns, summary.longest_turns);
  if (FLAGS_verbose) {
    fmt::print(
        stderr,
        "seed {}: trace {:016x}, {} events, {} answers, {} stops, {} recoveries, {} puts refused\n",
        seed, summary.trace, summary.events, summary.answered, summary.stops, summary.recoveries,
        summary.puts_refused);
  }
  if (ok) return;
  ++totals.failed;
  fmt::print("seed {}: {}\n{}{}\n", seed, simulation.failure(), g_replay, simulation.describe());
  std::fflush(stdout);
}

// False: there is no such bug in this build.
bool plant(const std::string& name) {
#ifdef FURROW_CANARIES
  for (std::size_t i = 0; i < std::size(furrow::kCanaryNames); ++i) {
    furrow::planted_canary = static_cast<furrow::Canary>(i);
    if (furrow::kCanaryNames[i] == name) return true;
  }
#endif
  return name == "none";
}

}  // namespace

int main(int argc, char** argv) {
  gflags::SetUsageMessage("deterministic simulation of a Furrow pool under power cuts");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  if (FLAGS_scenario != "all" && !furrow::sim::is_scenario(FLAGS_scenario)) {
    fmt::print(stderr, "furrow-sim: no such scenario; there are: all");
    for (const auto name : furrow::sim::kScenarios) fmt::print(stderr, " {}", name);
    fmt::print(stderr, "\n");
    return 2;
  }
  if (!plant(FLAGS_canary)) {
    fmt::print(stderr, "furrow-sim: --canary={}: not in this build (cmake --preset canary)\n",
               FLAGS_canary);
    return 2;
  }
  std::signal(SIGABRT, aborted);
  Totals totals;
  const auto started = std::chrono::steady_clock::now();
  for (std::uint64_t seed = FLAGS_seed; seed < FLAGS_seed + FLAGS_seeds; ++seed) {
    for (const auto name : furrow::sim::kScenarios) {
      if (FLAGS_scenario != "all" && FLAGS_scenario != name) continue;
      run_seed(seed, std::string(name), totals);
      if (totals.failed != 0 && !FLAGS_keep_going) return 1;
    }
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  fmt::print(
      "{} seeds, {} failed, {} stops, {} recoveries, {} answers, {} deletes refused, {} places "
      "rotted, {} repairs, {} faults, {} zones lost, at most {} turns an answer, {:.1f} s: {:.0f} "
      "recoveries/s\n",
      totals.seeds, totals.failed, totals.stops, totals.recoveries, totals.answered, totals.refused,
      totals.rotted, totals.repairs, totals.faults, totals.zones_lost, totals.longest_turns,
      seconds, static_cast<double>(totals.recoveries) / seconds);
  return totals.failed == 0 ? 0 : 1;
}
