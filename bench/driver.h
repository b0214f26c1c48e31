// Driver: keeps `depth` operations of a Job in flight at a Backend and times each. Allocates only
// when it is made. One thread, the one that runs the event loop.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "bench/backend.h"
#include "zone/aligned_buffer.h"
#include "zone/event_loop.h"

namespace furrow::bench {

class Driver;

// One of the operations that may be in flight, with its buffer (op.data, op.capacity), another of
// its own for each operation in turn where there is memory for more than one.
struct Slot {
  PageOp op;
  std::uint64_t page = 0;   // the job's
  std::uint32_t state = 0;  // the job's
  std::uint64_t started_ns = 0, latency_ns = 0;
  bool late = false;         // its time was up before it was done (PageOp::within_us)
  std::uint64_t buffer = 0;  // which of its buffers
  Driver* driver = nullptr;
};

class Job {
 public:
  enum class Next : std::uint8_t {
    run,   // slot.op is set up
    wait,  // nothing to do until an operation in flight is done
    end,   // nothing more to do
  };
  virtual ~Job() = default;
  virtual Next next(Slot& slot, std::uint64_t now_ns) = 0;
  // The slot's operation took slot.latency_ns. True: slot.op was set up anew and goes out at once.
  virtual bool done(Slot& slot) = 0;
};

class Driver {
 public:
  struct Options {
    unsigned depth = 1;
    std::uint32_t page_bytes = 4096;  // of each slot's buffer
    std::uint64_t memory_bytes = 0;   // for the buffers of all slots, at least one each
  };
  // Of what its operations read into and write from, in bytes.
  static std::uint64_t memory_bytes(const Options& options);
  // no_space: there is not so much memory.
  static Result<std::unique_ptr<Driver>> make(EventLoop& loop, Backend& backend,
                                              const Options& options);

  // Starts the job; `finished` is called from the loop's turn after its last operation. Nothing may
  // be running.
  void start(Job& job, std::function<void()> finished);

 private:
  Driver(EventLoop& loop, Backend& backend, const Options& options, AlignedBuffer memory);
  void next_buffer(Slot& slot);
  void pump(std::uint64_t now_ns);
  void submit(Slot& slot, std::uint64_t now_ns);
  void released(Slot& slot);
  static void on_result(PageOp& op);
  static void on_released(PageOp& op);

  struct StartTask : Task {
    Driver* driver = nullptr;
  };

  EventLoop& loop_;
  Backend& backend_;
  const std::uint64_t buffers_each_;
  AlignedBuffer memory_;  // the slots' buffers, side by side, buffers_each_ times
  std::vector<Slot> slots_;
  std::vector<Slot*> idle_;
  Job* job_ = nullptr;
  bool ended_ = false;
  std::function<void()> finished_;
  StartTask start_task_;
};

}  // namespace furrow::bench
