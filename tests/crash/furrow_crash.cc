// furrow-crash: kills furrowd and embedded writers for real, and looks whether anything is lost.
//
//   furrow-crash --programs=build/release/tools --rounds=1000 --seed=1
//
// Every 25 rounds there is a new pool, with the next seed; a failure names its seed, and leaves the
// pool as it is. See tests/crash/crash_run.h for what is established.
//
// SIGINT, SIGTERM and SIGHUP end it after the round that it is in, with its figures; a second one
// at once.
//
// Exit status: 0 nothing was lost, 1 something was, or did not work, 2 wrong usage; 128 + N:
// nothing was lost until signal N ended it.
#include <fmt/format.h>
#include <gflags/gflags.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <filesystem>

#include "tests/crash/crash_run.h"

DEFINE_uint64(seed, 1, "of the first pool, 0: from the clock; a writer's own");
DEFINE_uint64(rounds, 50, "kills and checks, at least one kill each");
DEFINE_string(programs, "", "folder of furrowd and furrowctl");
DEFINE_string(directory, "", "where the pools are made; empty: a temporary folder");
DEFINE_string(device, "", "URI of a zoned drive for the pools, which is overwritten; empty: files");
DEFINE_uint32(pace, 1, "how many times as long as on a fast machine to wait before each kill");
DEFINE_bool(verbose, false, "print each round");
DEFINE_string(role, "", "writer: what the rounds start; not for use by hand");
DEFINE_string(ledger, "", "of a writer");
DEFINE_string(pool, "", "of a writer");
DEFINE_uint32(port, 0, "of a writer");
DEFINE_uint64(keys, 0, "of a writer");
DEFINE_bool(flushes, true, "of a writer");

namespace furrow::crash {
namespace {

constexpr unsigned kRoundsOfAPool = 25;

volatile std::sig_atomic_t stop_signal = 0;

void note_signal(int number) {
  stop_signal = number;
  constexpr char kSaid[] =
      "furrow-crash: ending after this round; a second signal ends it at once\n";
  if (write(STDERR_FILENO, kSaid, sizeof kSaid - 1) < 0) return;  // nobody looks
}

// Once each: the next one of its kind does what it always does.
void end_after_round_on_signals() {
  struct sigaction action {};
  action.sa_handler = note_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaction(number, &action, nullptr);
}

int writer() {
  Ledger ledger = Ledger::open(FLAGS_ledger);
  return run_writer(
      {FLAGS_pool, static_cast<std::uint16_t>(FLAGS_port), FLAGS_seed, FLAGS_keys, FLAGS_flushes},
      ledger);
}

int rounds(const std::filesystem::path& directory) {
  Totals totals;
  const auto started = std::chrono::steady_clock::now();
  std::uint64_t seed = FLAGS_seed;
  for (std::uint64_t left = FLAGS_rounds; left != 0 && stop_signal == 0; ++seed) {
    const auto own = directory / fmt::format("seed-{}", seed);
    std::filesystem::create_directories(own);
    CrashRun::Options options;
    options.programs = FLAGS_programs;
    options.directory = own.string();
    options.device = FLAGS_device;
    options.pace = FLAGS_pace;
    options.seed = seed;
    options.rounds = static_cast<unsigned>(std::min<std::uint64_t>(left, kRoundsOfAPool));
    options.verbose = FLAGS_verbose;
    options.stop = &stop_signal;
    CrashRun run(options);
    const bool held = run.run();
    totals.add(run.totals());
    if (!held) {
      fmt::print(
          "seed {}: {}\nFAILED; the pool is in {}; again with: furrow-crash --seed={} "
          "--rounds={} --programs={}\n",
          seed, run.failure(), own.string(), seed, options.rounds, FLAGS_programs);
      return 1;
    }
    std::filesystem::remove_all(own);
    left -= options.rounds;
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  fmt::print(
      "{}{} rounds (seeds {} to {}): {} kills under load, {} at start-up, {} SIGTERM; {} with "
      "furrowd, {} with a full disk; {} operations acknowledged, {} refused as full, {} "
      "unanswered, {} pages verified; nothing lost; {:.1f} s\n",
      stop_signal == 0 ? "" : fmt::format("ended by signal {} after ", int{stop_signal}),
      totals.rounds, FLAGS_seed, seed - 1, totals.kills, totals.early_kills, totals.terms,
      totals.server_rounds, totals.full, totals.acknowledged, totals.refused, totals.unanswered,
      totals.pages_verified, seconds);
  return 0;
}

int run_in_folder() {
  if (!FLAGS_directory.empty()) return rounds(FLAGS_directory);
  std::string name = (std::filesystem::temp_directory_path() / "furrow-crash.XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) {
    fmt::print(stderr, "furrow-crash: cannot make a temporary folder\n");
    return 2;
  }
  const int status = rounds(name);
  if (status == 0) std::filesystem::remove_all(name);
  return status;
}

int run() {
  end_after_round_on_signals();
  const int status = run_in_folder();
  if (status != 0 || stop_signal == 0) return status;
  return raise(stop_signal);  // so that a shell that called it stops as well
}

}  // namespace
}  // namespace furrow::crash

int main(int argc, char** argv) {
  gflags::SetUsageMessage("kills writers of Furrow pools and looks whether anything is lost");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  if (FLAGS_role == "writer") return furrow::crash::writer();
  if (FLAGS_programs.empty() || FLAGS_rounds == 0) {
    fmt::print(stderr, "furrow-crash: --programs and --rounds are needed\n");
    return 2;
  }
  if (FLAGS_seed == 0) FLAGS_seed = static_cast<std::uint64_t>(std::time(nullptr)) % 1'000'000 + 1;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // what was said stays, however it ends
  fmt::print("furrow-crash --seed={} --rounds={}\n", FLAGS_seed, FLAGS_rounds);
  return furrow::crash::run();
}
