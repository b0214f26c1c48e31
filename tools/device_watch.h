// DeviceWatch: what furrowd says of its pool's device while it serves: each change once, and
// writes that fail as often as it looks.
//
// Threads: one at a time.
#pragma once

#include <string>
#include <vector>

#include "engine/pool.h"

namespace furrow::tools {

class DeviceWatch {
 public:
  // What is new since it looked last, a sentence each.
  std::vector<std::string> look(const PoolInfo& info);

 private:
  bool full_ = false;
  std::uint64_t failed_writes_ = 0;
  bool flush_failed_ = false;
  bool gone_ = false;
  bool misplaced_writes_ = false;
};

}  // namespace furrow::tools
