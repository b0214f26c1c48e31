#include "bench/report.h"

#include <cmath>

namespace furrow::bench {

double rounded(double value, int digits) {
  const double scale = std::pow(10, digits);
  return std::round(value * scale) / scale;
}

double ratio(double part, double whole) { return whole == 0 ? 0 : part / whole; }

void add_latencies(Json& report, const std::string& name, const Histogram& histogram) {
  if (histogram.count() == 0) return;
  const auto us = [](double ns) { return rounded(ns / 1000, 1); };
  report[name + "_mean_us"] = us(histogram.mean_ns());
  const std::pair<const char*, double> kQuantiles[] = {
      {"_p50_us", 0.5}, {"_p99_us", 0.99}, {"_p99.9_us", 0.999}, {"_p99.99_us", 0.9999}};
  for (const auto& [suffix, fraction] : kQuantiles) {
    report[name + suffix] = us(static_cast<double>(histogram.quantile_ns(fraction)));
  }
  report[name + "_max_us"] = us(static_cast<double>(histogram.max_ns()));
}

void add_engine(Json& report, const EngineFigures& figures) {
  if (figures.put_bytes != 0) {
    report["write_amplification"] = rounded(figures.device_bytes / figures.put_bytes, 4);
    report["write_amplification_without_relocation"] =
        rounded((figures.device_bytes - figures.relocated_bytes) / figures.put_bytes, 4);
  }
  report["cache_turnovers"] = rounded(ratio(figures.evicted_zones, figures.quota_zones), 2);
  report["pages"] = static_cast<std::uint64_t>(figures.pages);
  report["dram_bytes_per_page"] = rounded(ratio(figures.index_bytes, figures.pages), 2);
  report["recovery_ms"] = rounded(figures.recovery_s * 1000, 1);
  report["recovered_pages"] = static_cast<std::uint64_t>(figures.recovered_pages);
  report["corrupt_pages"] = static_cast<std::uint64_t>(figures.corrupt_pages);
}

}  // namespace furrow::bench
