// BlockingPool: a pool for code that blocks. What it submits is answered on a thread of the pool's
// (EmbeddedPool), or on the caller's own, which gives the turns while it waits (a simulation).
//
// Threads: any but the pool's own; each call blocks its caller only.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>

#include "engine/pool.h"
#include "zone/event_loop.h"

namespace furrow {

class BlockingPool {
 public:
  virtual ~BlockingPool() = default;

  // For create_session(), which any thread may use; for all else see call().
  virtual Pool& pool() = 0;
  virtual const Geometry& geometry() const = 0;
  virtual std::string identity() const = 0;  // of the device: device_identity()
  // As of ZonedDevice; all that there is while the medium is short of room.
  virtual std::uint64_t missing_bytes() const { return 0; }
  virtual std::uint64_t random() = 0;        // 64 random bits, of the pool's executor
  virtual std::uint64_t wall_s() const = 0;  // seconds since the Unix epoch
  virtual bool has_thread() const { return true; }
  // Runs `what` where all functions of a Pool may be used, and waits for it; nothing else of the
  // pool is done meanwhile.
  virtual void call(const std::function<void(Pool&)>& what) = 0;
  // Does not block. The op's events come on the pool's thread, which is its own or one that took
  // the turns, and not before this returns where there is none. All are released before the pool is
  // destroyed. What one thread submits is begun in that order.
  virtual void submit(PageStore& store, PageOp& op) = 0;
  // Submits all and waits until they are released.
  virtual void run(PageStore& store, std::span<PageOp> ops) = 0;
  // As of EventLoop: for who submits and then waits.
  virtual EventLoop::Turns take_turns() { return {}; }

  // As changed.wait(lock, done), for what an answer brings about.
  template <class Done>
  void wait(std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
            const Done& done) {
    if (has_thread()) return changed.wait(lock, done);
    while (!done()) {
      lock.unlock();
      turn();
      lock.lock();
    }
  }

 protected:
  virtual void turn() {}  // of a pool without a thread
};

}  // namespace furrow
