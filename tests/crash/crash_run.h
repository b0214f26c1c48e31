// One crash run: a pool of a shape drawn from a seed, and round after round of writers that are
// killed on it. After each round `furrowctl pool check` must say that the pool is clean, and every
// key must hold what was acknowledged last, or what was asked for since, whole.
//
// What a seed fixes: the pool, what the rounds do and what their writers draw. When a process dies
// is measured in time, so a replay comes close and no closer.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>
#include <random>
#include <string>

#include "engine/embedded_pool.h"
#include "tests/crash/ledger.h"
#include "tests/crash/process.h"
#include "tests/crash/writer.h"

namespace furrow::crash {

struct Totals {
  std::uint64_t rounds = 0, kills = 0, early_kills = 0, server_rounds = 0, terms = 0, full = 0;
  std::uint64_t acknowledged = 0, refused = 0, unanswered = 0, pages_verified = 0;
  void add(const Totals& other);
};

class CrashRun {
 public:
  struct Options {
    std::string programs;   // folder of furrowd and furrowctl
    std::string directory;  // where the pool and the ledger are made
    std::string device;     // a drive for the pool, overwritten; empty: a file of a drawn shape
    unsigned pace = 1;      // how much later to kill than on a fast machine
    std::uint64_t seed = 1;
    unsigned rounds = 25;
    bool verbose = false;
    const volatile std::sig_atomic_t* stop = nullptr;  // not 0: no further round
  };
  explicit CrashRun(const Options& options);

  // False: failure() says what was wrong. Told to stop, it ends the round that it is in.
  bool run();
  const std::string& failure() const { return failure_; }
  const Totals& totals() const { return totals_; }

 private:
  // What is done in a round, drawn at its beginning.
  struct Plan {
    bool server = false;         // furrowd and a writer; else the writer has the pool itself
    bool term = false;           // furrowd is sent SIGTERM instead
    bool early = false;          // killed at start-up, ready or not
    bool both = false;           // the writer is killed with its server
    unsigned early_kills = 0;    // that follow, before anything is verified
    std::uint64_t after_us = 0;  // the first acknowledgement (early: the start)
    std::uint64_t file_bytes_max = ~std::uint64_t{0};
    std::string describe() const;
  };
  Plan draw();
  bool make_pool();
  bool make_device();
  bool round(const Plan& plan);
  bool embedded_round(const Plan& plan);
  bool server_round(const Plan& plan);
  bool early_kill();
  bool wait_for_port(Process& server, std::uint16_t& port);
  bool wait_for_work(Process& writer);
  bool was_killed(const Ended& ended, const char* what);
  bool check();
  bool verify(bool drained);
  bool verify_volume(SyncPageStore& store, unsigned volume, bool drained);
  bool verify_key(SyncPageStore& store, unsigned volume, std::uint64_t key, bool drained,
                  std::uint64_t& present);
  Process start_server(const Plan& plan);
  Process start_writer(const Plan& plan, std::uint16_t port);
  bool fail(std::string what);
  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }
  std::string path(const char* name) const { return options_.directory + "/" + name; }
  std::string uri() const {
    return options_.device.empty() ? "emu:" + path("pool.img") : options_.device;
  }

  const Options options_;
  std::mt19937_64 random_;
  Ledger ledger_;
  std::uint64_t keys_ = 0;
  std::uint64_t pool_bytes_ = 0;
  std::string shape_;
  std::string failure_;
  Totals totals_;
};

}  // namespace furrow::crash
