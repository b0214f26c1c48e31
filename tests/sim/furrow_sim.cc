// furrow-sim: runs the deterministic simulation for one seed or many.
//
//   furrow-sim --seed=7                      one seed
//   furrow-sim --seed=1 --seeds=1000         seeds 1 to 1000
//   furrow-sim --scenario=store --steps=500
//   furrow-sim --scenario=all --seconds=60   from seed 1 on, each scenario in turn, for a minute
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
#include <ctime>
#include <map>
#include <string_view>

#include "tests/sim/simulation.h"
#include "zone/canary.h"

DEFINE_uint64(seed, 1, "first seed");
DEFINE_uint64(seeds, 1, "how many seeds, one after another");
DEFINE_uint64(seconds, 0, "stop after so long; without --seeds, not before");
DEFINE_uint64(steps, 0,
              "steps of each seed: operations started and turns of the executor; 0: 1000, of one "
              "seed in 16 16000");
DEFINE_string(scenario, "mixed", "what the seeds are drawn for; \"all\": each in turn");
DEFINE_bool(verbose, false, "say what happens");
DEFINE_uint64(key, ~0ull, "print each answer on this key (by its number)");
DEFINE_string(canary, "none", "a bug to plant (of builds with FURROW_CANARIES)");
DEFINE_bool(keep_going, false, "go on after a failure");

namespace {

using furrow::sim::Simulation;

char g_replay[256];  // for the handler

// A volume that lives longer is collected more often.
std::uint64_t steps_of(std::uint64_t seed) {
  if (FLAGS_steps != 0) return FLAGS_steps;
  return seed % 16 == 0 ? 16'000 : 1000;
}

void remember(std::uint64_t seed, const std::string& scenario) {
  const std::string line =
      fmt::format("furrow-sim --seed={} --steps={} --scenario={}", seed, steps_of(seed), scenario);
  std::snprintf(g_replay, sizeof g_replay, "FAILED, replay with: %s\n", line.c_str());
}

// A FURROW_CHECK of the engine ends the process: it is told which seed it was.
void aborted(int) {
  if (write(STDERR_FILENO, g_replay, std::strlen(g_replay)) < 0) _exit(1);
  std::signal(SIGABRT, SIG_DFL);
}

struct Totals {
  std::uint64_t seeds = 0, failed = 0, stops = 0, recoveries = 0, answered = 0, refused = 0,
                rotted = 0, repairs = 0, faults = 0, zones_lost = 0, longest_turns = 0,
                scrub_findings = 0, zones_reset = 0, relocated_bytes = 0, resized = 0, mounts = 0;
  double seconds = 0;

  void add(const Simulation::Summary& summary, bool ok) {
    ++seeds;
    failed += ok ? 0 : 1;
    stops += summary.stops;
    recoveries += summary.recoveries;
    answered += summary.answered;
    refused += summary.removes_refused;
    rotted +=
        summary.summaries_rotted + summary.pages_rotted + summary.records_rotted + summary.spoiled;
    repairs += summary.repairs;
    faults += summary.faults;
    zones_lost += summary.zones_lost;
    scrub_findings += summary.scrub_findings;
    zones_reset += summary.zones_reset;
    relocated_bytes += summary.relocated_bytes;
    resized += summary.resized;
    mounts += summary.mounts;
    longest_turns = std::max(longest_turns, summary.longest_turns);
  }
  void add(const Totals& other) {
    seeds += other.seeds;
    failed += other.failed;
    stops += other.stops;
    recoveries += other.recoveries;
    answered += other.answered;
    refused += other.refused;
    rotted += other.rotted;
    repairs += other.repairs;
    faults += other.faults;
    zones_lost += other.zones_lost;
    scrub_findings += other.scrub_findings;
    zones_reset += other.zones_reset;
    relocated_bytes += other.relocated_bytes;
    resized += other.resized;
    mounts += other.mounts;
    longest_turns = std::max(longest_turns, other.longest_turns);
    seconds += other.seconds;
  }
  void print(std::string_view name) const {
    fmt::print(
        "{}: {} seeds, {} failed, {} stops, {} recoveries, {} answers, {} deletes refused, {} "
        "zones "
        "reset, {} KiB relocated, {} volumes resized, {} mounts of files, {} places rotted, {} "
        "findings of scrub, {} "
        "repairs, {} faults, "
        "{} "
        "zones lost, at most {} turns an answer, {:.1f} s: {:.0f} recoveries/s\n",
        name, seeds, failed, stops, recoveries, answered, refused, zones_reset,
        relocated_bytes / 1024, resized, mounts, rotted, scrub_findings, repairs, faults,
        zones_lost, longest_turns, seconds, static_cast<double>(recoveries) / seconds);
    std::fflush(stdout);
  }
};

// Of this process, so that what else the machine does counts as little as possible.
double cpu_seconds() {
  return static_cast<double>(std::clock()) / static_cast<double>(CLOCKS_PER_SEC);
}

void run_seed(std::uint64_t seed, const std::string& scenario, Totals& totals) {
  remember(seed, scenario);
  const double before = cpu_seconds();
  Simulation simulation({seed, steps_of(seed), scenario, FLAGS_verbose, FLAGS_key});
  if (FLAGS_verbose) fmt::print(stderr, "{}\n", simulation.describe());
  const bool ok = simulation.run();
  const Simulation::Summary summary = simulation.summary();
  totals.add(summary, ok);
  totals.seconds += cpu_seconds() - before;
  if (FLAGS_verbose) {
    fmt::print(
        stderr,
        "seed {}: trace {:016x}, {} events, {} answers, {} stops, {} recoveries, {} puts refused\n",
        seed, summary.trace, summary.events, summary.answered, summary.stops, summary.recoveries,
        summary.puts_refused);
  }
  if (ok) return;
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
  gflags::ParseCommandLineNonHelpFlags(&argc, &argv, true);
  // But for those of librocksdb, which has some.
  if (gflags::GetCommandLineFlagInfoOrDie("help").current_value == "true") {
    gflags::ShowUsageWithFlagsRestrict(argv[0], "furrow_sim");
    return 0;
  }
  gflags::HandleCommandLineHelpFlags();
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
  const auto started = std::chrono::steady_clock::now();
  const auto over = [&] {
    return FLAGS_seconds != 0 &&
           std::chrono::steady_clock::now() - started >= std::chrono::seconds(FLAGS_seconds);
  };
  const bool counted =
      FLAGS_seconds == 0 || !gflags::GetCommandLineFlagInfoOrDie("seeds").is_default;
  std::map<std::string_view, Totals> by_scenario;
  bool ok = true;
  const auto goes_on = [&] { return !over() && (ok || FLAGS_keep_going); };
  for (std::uint64_t i = 0; (!counted || i < FLAGS_seeds) && goes_on(); ++i) {
    for (const auto name : furrow::sim::kScenarios) {
      if (FLAGS_scenario != "all" && FLAGS_scenario != name) continue;
      if (!goes_on()) break;
      Totals& totals = by_scenario[name];
      run_seed(FLAGS_seed + i, std::string(name), totals);
      ok = ok && totals.failed == 0;
    }
  }
  Totals sum;
  for (const auto& [name, totals] : by_scenario) {
    totals.print(name);
    sum.add(totals);
  }
  if (by_scenario.size() > 1) sum.print("all");
  return ok ? 0 : 1;
}
