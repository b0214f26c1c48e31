// Executor: the thread that a state machine lives on. Everything above zone/ that waits does so by
// a Task, a Timer or an Io completion on an executor that was passed in, so that a server's
// reactor, an embedded thread and a single-threaded simulation can all run it.
#pragma once

#include <cstdint>

#include "zone/poller.h"

namespace furrow {

inline constexpr std::uint64_t kNsPerMs = 1'000'000;

// Work to run once. Intrusive: owned by whoever posts it, in place until it has run.
struct Task {
  void (*run)(Task&) = nullptr;
  Task* next = nullptr;  // the executor's, while posted
};

struct Timer {
  void (*fire)(Timer&) = nullptr;
  std::uint64_t at_ns = 0;      // the executor's
  std::int32_t heap_slot = -1;  // the executor's; -1: not started
};

class Executor {
 public:
  virtual ~Executor() = default;
  // Any thread. Tasks from one thread run in the order they were posted.
  virtual void post(Task& task) = 0;
  virtual bool is_current() const = 0;  // is the caller on this executor's thread?
  // Any thread: blocks the caller for so long. For openings, before anything is served.
  virtual void block_for(std::uint64_t ns);

  // The rest: on the executor's thread only.
  virtual void start(Timer& timer, std::uint64_t delay_ns) = 0;  // restarts one that is started
  virtual void stop(Timer& timer) = 0;                           // no-op when not started
  virtual void add(Poller& poller) = 0;  // polled on each turn until removed
  virtual void remove(Poller& poller) = 0;
  virtual std::uint64_t now_ns() const = 0;  // monotonic
  virtual std::uint64_t wall_s() const = 0;  // seconds since the Unix epoch
  virtual std::uint64_t random() = 0;        // 64 random bits
};

}  // namespace furrow
