// The counters of a running server as Prometheus text. Pure: from a snapshot to text; any thread.
#pragma once

#include <string>
#include <vector>

#include "engine/pool.h"
#include "transport/target.h"

namespace furrow::tools {

struct VolumeSnapshot {
  VolumeInfo info;
  VolumeUsage usage;
  VolumeStats stats;
};

struct ServerSnapshot {
  PoolInfo pool;
  std::vector<VolumeSnapshot> volumes;
  transport::TargetStats target;
};

// Text exposition format 0.0.4. Times in seconds, sizes in bytes, as Prometheus wants them.
std::string metrics_text(const ServerSnapshot& snapshot);

}  // namespace furrow::tools
