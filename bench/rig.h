// Rig: the volume that a command of furrow-bench works on, of --pool or of --target, whichever was
// given. One thread.
#pragma once

#include <memory>

#include "bench/backend.h"
#include "bench/bench_command.h"
#include "bench/driver.h"
#include "zone/event_loop.h"

namespace furrow::bench {

struct Rig {
  Rig();
  EventLoop loop;
  LocalVolume local;  // with --pool
  std::unique_ptr<Backend> backend;
};

// Reports what is wrong on stderr.
int set_up(Rig& rig);
// Runs the job to its end, FLAGS_depth operations at a time, each with a buffer of `page_bytes`; in
// seconds.
Result<double> play(Rig& rig, Job& job, std::uint32_t page_bytes, const char* what);

}  // namespace furrow::bench
