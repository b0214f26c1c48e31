// Reclaimer: gives the space of an emulated device's reset zones back to the file system, on a
// thread of its own, late and in small pieces, so that no read waits for it (a punch holds the
// file's lock: 256 MiB at once was seen to stall reads for 45 ms).
//
// Order for each zone: it stays empty for a while (lazy), the reset in the zone table is synced,
// then pieces of 1 MiB are punched from the zone's end to its start, with pauses. A zone that is
// opened again stops it; a write that meets the very piece waits for it (ZoneTable::hold_if_empty).
// When the device is closed, what is left is given back at once: nobody reads any more.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>

#include "zone/device_uri.h"
#include "zone/emu_layout.h"

namespace furrow::emu {

class Reclaimer {
 public:
  // All outlive it. `sync` makes the zone table durable.
  Reclaimer(int fd, const Superblock& superblock, ZoneTable& table, Status (*sync)(void*),
            void* sync_context, Reclaim when);
  virtual ~Reclaimer() { stop(); }

  // Its thread, unless nothing is ever to be given back: before add(), which may be called by one
  // that is bound to a processor. Errors: io_error.
  Status start();
  void stop();    // after the piece in progress, for good; from then on nothing is done to the file
  void finish();  // likewise, when all that was added is given back; nothing else uses the file
  void add(ZoneId zone);  // was reset; any thread
  // All zones that are empty and have room in the file, as after a kill: looked for by its thread.
  void add_left();

  // For tests: waits until nothing is left to give back.
  void drain();

 protected:
  using Clock = std::chrono::steady_clock;
  // What it does to the file and the time that it takes for it, for a test to count and to make
  // pass. Called by its thread; now() by add()'s as well, under mutex_. Whoever overrides them
  // calls stop() in its destructor.
  //
  // Gives a range of the file back to the file system. 0, or an errno.
  virtual int punch(std::uint64_t offset, std::uint64_t bytes);
  virtual Clock::time_point now() { return Clock::now(); }
  // Returns then, or when something has changed. `lock`, of mutex_, is given up meanwhile.
  virtual void sleep_until(Clock::time_point due, std::unique_lock<std::mutex>& lock) {
    changed_.wait_until(lock, due);
  }

 private:
  struct Pending {
    ZoneId zone;
    Clock::time_point due;
  };
  void run();
  void find_left(std::unique_lock<std::mutex>& lock);
  void punch_zone(ZoneId zone, std::unique_lock<std::mutex>& lock);
  bool punch_piece(ZoneId zone, std::uint32_t life, std::uint64_t offset, std::uint64_t bytes);

  const int fd_;
  const Superblock& superblock_;
  ZoneTable& table_;
  Status (*const sync_)(void*);
  void* const sync_context_;
  const Reclaim when_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Pending> pending_;  // under mutex_; by due
  bool stop_ = false;            // under mutex_
  bool finishing_ = false;       // under mutex_
  bool look_ = false;            // under mutex_; add_left()
  bool all_synced_ = false;      // its thread's; while finishing_
  bool working_ = false;         // under mutex_
  bool unsupported_ = false;     // under mutex_; the file system cannot punch
  std::thread thread_;           // last: uses all of the above
};

}  // namespace furrow::emu
