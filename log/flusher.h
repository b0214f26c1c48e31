// Flusher: device flushes, shared. A request is answered by a flush that was submitted after it, so
// everything completed before the request is durable. A flush begins on the executor's next turn,
// so that all that one batch of completions asks for is one; requests that arrive while it runs
// share the next one.
//
// Threads: the executor that polls `queue`.
#pragma once

#include <functional>
#include <utility>

#include "zone/device.h"
#include "zone/executor.h"

namespace furrow {

struct FlushWaiter {
  void (*on_flushed)(FlushWaiter&) = nullptr;
  Status status;
  FlushWaiter* next = nullptr;
};

class Flusher {
 public:
  Flusher(Executor& home, IoQueue& queue) : home_(home), queue_(queue) {
    io_.op = Io::Op::flush;
    io_.context = this;
    io_.on_complete = [](Io& io) { static_cast<Flusher*>(io.context)->flushed(); };
    turn_.flusher = this;
    turn_.run = [](Task& task) {
      auto& turn = static_cast<Turn&>(task);
      turn.posted = false;
      turn.flusher->start();
    };
  }
  Flusher(const Flusher&) = delete;
  Flusher& operator=(const Flusher&) = delete;

  // The waiter is the caller's until on_flushed.
  void request(FlushWaiter& waiter) {
    waiter.next = waiting_;
    waiting_ = &waiter;
    if (in_flight_ != nullptr || turn_.posted) return;
    turn_.posted = true;
    home_.post(turn_);
  }
  // Asked before each flush: where it fails, so does the flush. Null: nobody is.
  void ask_before(std::function<Status()> before) { before_ = std::move(before); }
  std::uint64_t begun() const { return begun_; }  // flushes
  bool last_failed() const { return last_failed_; }
  bool busy() const { return in_flight_ != nullptr || turn_.posted; }

 private:
  struct Turn : Task {
    Flusher* flusher = nullptr;
    bool posted = false;
  };

  void start() {
    ++begun_;
    in_flight_ = waiting_;
    waiting_ = nullptr;
    io_.status = before_ ? before_() : Status();
    io_.status.ok() ? queue_.submit(io_) : flushed();
  }
  void flushed() {
    FlushWaiter* answered = in_flight_;
    in_flight_ = nullptr;
    const Status status = io_.status;
    last_failed_ = !status.ok();
    if (waiting_ != nullptr) start();
    while (answered != nullptr) {
      FlushWaiter* next = answered->next;
      answered->status = status;
      answered->on_flushed(*answered);
      answered = next;
    }
  }

  Executor& home_;
  IoQueue& queue_;
  std::function<Status()> before_;
  Io io_;
  Turn turn_;
  FlushWaiter* waiting_ = nullptr;
  FlushWaiter* in_flight_ = nullptr;
  std::uint64_t begun_ = 0;
  bool last_failed_ = false;
};

}  // namespace furrow
