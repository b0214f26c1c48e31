// What a furrowd says about itself, for the reports of furrow-bench. Blocking; any thread.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "engine/pool.h"
#include "tools/command_line.h"
#include "zone/status.h"

namespace furrow::bench {

// A sample's value by its metric's name; samples of several of what it counts are added up.
using Metrics = std::map<std::string, double, std::less<>>;

// GET /metrics of an admin listener; of volumes, that of the namespace. Errors: io_error (nobody
// answers), protocol (not such a text), not_found (no such namespace).
Result<Metrics> fetch_metrics(const tools::Endpoint& admin, std::uint32_t nsid);
Result<Metrics> parse_metrics(std::string_view text, std::string_view volume);

// The figures that a report gives of the engine, from a server's metrics or from a local pool.
struct EngineFigures {
  double put_bytes = 0, device_bytes = 0, relocated_bytes = 0;
  double index_bytes = 0, pages = 0;
  double evicted_zones = 0, quota_zones = 0;
  double recovery_s = 0, recovered_pages = 0;
  double corrupt_pages = 0;
  double target_system_calls = 0;
};
EngineFigures engine_figures(const Metrics& metrics);
EngineFigures engine_figures(const Pool& pool, const PageStore& store);

}  // namespace furrow::bench
