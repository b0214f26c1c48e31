// ZonedSession: a thread's way into the pool's volumes of kind zoned.
//
// Reads go to the device from the session's own queue; everything else is passed to the pool's home
// executor, where the volume's zones are (ZonedVolume), and comes back by a task. No memory is
// allocated, no data copied.
//
// Threads: one, that of the executor and of the page session that it is made for, as it itself.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/pool.h"
#include "engine/zoned/zoned_op.h"

namespace furrow {

struct GetCounters;

class ZonedSession {
 public:
  // Both outlive it.
  ZonedSession(PageSession& pages, Executor& executor);
  ~ZonedSession();  // nothing may be in flight
  ZonedSession(const ZonedSession&) = delete;
  ZonedSession& operator=(const ZonedSession&) = delete;

  void submit(PageStore& volume, ZonedOp& op);
  bool idle() const { return in_flight_ == 0; }

  // The volume's: passes the operation's answer to the thread that asked. Any thread.
  static void answer(ZonedOp& op);

 private:
  static Status refusal(const PageStoreImpl& store, const ZonedOp& op, bool read_only);
  void read(ZonedOp& op);
  void was_read(ZonedOp& op);
  void count(ZonedOp& op, bool ok);
  GetCounters& counters_of(const ZonedOp& op);
  static void run_at_home(Task& task);
  static void look_again_at_home(Task& task);
  void send_home(ZonedOp& op, void (*run)(Task&));
  void done(ZonedOp& op);

  PageSession& pages_;
  Executor& executor_;
  std::uint64_t in_flight_ = 0;
};

// Of a volume of kind zoned, as its user sees it. Any thread.
Geometry zoned_geometry(const PageStore& volume);
// Zone `zone` of it now, all that was answered included. Any thread.
ZoneInfo zoned_zone(const PageStore& volume, std::uint32_t zone);
// Asks the device whether it has taken zones away by itself, for zones_changed(): of those that an
// operation failed for it is known. Cheap. Home executor.
void look_for_taken_zones(PageStore& volume);
// Has the device itself taken zones of it to another state (read-only, offline, full), that were
// not asked for since? Any thread.
bool zones_changed(const PageStore& volume);
// Which, each once. Home executor.
std::vector<std::uint32_t> take_changed_zones(PageStore& volume);

}  // namespace furrow
