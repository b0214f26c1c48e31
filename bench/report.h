// The pieces that the reports of furrow-bench's commands have in common.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "bench/histogram.h"
#include "bench/server_metrics.h"

namespace furrow::bench {

using Json = nlohmann::ordered_json;

double rounded(double value, int digits);
double ratio(double part, double whole);  // 0 when there is no whole
// NAME_p50_us, p99, p99.9, p99.99, max, mean; nothing when nothing was recorded.
void add_latencies(Json& report, const std::string& name, const Histogram& histogram);
// Write amplification, DRAM per page, turnovers, recovery.
void add_engine(Json& report, const EngineFigures& figures);

}  // namespace furrow::bench
