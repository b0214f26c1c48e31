// SimExecutor: the Executor of a simulation. One thread, no real time: the clock moves when a turn
// is taken and jumps to the next thing due when there is nothing to do. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tests/sim/sim_random.h"
#include "zone/executor.h"

namespace furrow::sim {

// The time of a simulated world; it survives power cuts.
struct SimClock {
  static constexpr std::uint64_t kStartWallS = 1'800'000'000;
  std::uint64_t now_ns = 1;
  std::uint64_t wall_ahead_s = 0;  // modulo 2^64: it may be behind

  std::uint64_t wall_s() const { return kStartWallS + now_ns / 1'000'000'000 + wall_ahead_s; }
};

// What happened, in order, as one number: equal for equal runs.
class Trace {
 public:
  void add(std::uint64_t word) {
    hash_ = (hash_ ^ word) * 0x9E3779B97F4A7C15u;
    hash_ ^= hash_ >> 29;
    ++events_;
  }
  std::uint64_t hash() const { return hash_; }
  std::uint64_t events() const { return events_; }

 private:
  std::uint64_t hash_ = 0x243F6A8885A308D3u;
  std::uint64_t events_ = 0;
};

class SimExecutor final : public Executor {
 public:
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  // `device_due`: when a poller has something next, or kNever.
  SimExecutor(SimClock& clock, SimRandom random, std::function<std::uint64_t()> device_due)
      : clock_(clock), random_(random), device_due_(std::move(device_due)) {}

  // One turn. False: there is nothing to do, now or later.
  bool run_once();

  void post(Task& task) override;
  bool is_current() const override { return true; }
  void block_for(std::uint64_t ns) override { clock_.now_ns += ns; }
  void start(Timer& timer, std::uint64_t delay_ns) override;
  void stop(Timer& timer) override;
  void add(Poller& poller) override { pollers_.push_back(&poller); }
  void remove(Poller& poller) override { std::erase(pollers_, &poller); }
  std::uint64_t now_ns() const override { return clock_.now_ns; }
  std::uint64_t wall_s() const override { return clock_.wall_s(); }
  std::uint64_t random() override { return random_.next(); }

 private:
  unsigned run_tasks();
  unsigned fire_timers();

  SimClock& clock_;
  SimRandom random_;
  std::function<std::uint64_t()> device_due_;
  Task* first_task_ = nullptr;
  Task* last_task_ = nullptr;
  std::vector<Timer*> timers_;  // a few
  std::vector<Poller*> pollers_;
};

}  // namespace furrow::sim
