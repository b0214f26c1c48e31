#include "bench/server_metrics.h"

#include <httplib.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

namespace furrow::bench {

namespace {

constexpr Status kNoAnswer(Code::io_error, Origin::tool,
                           "no answer at --admin; is furrowd running there?");

Result<std::string> volume_of(httplib::Client& client, std::uint32_t nsid) {
  const auto answer = client.Get("/volumes");
  if (!answer || answer->status != 200) return kNoAnswer;
  const auto volumes = nlohmann::json::parse(answer->body, nullptr, false);
  if (!volumes.is_array()) {
    return Status(Code::protocol, Origin::tool, "the answer is no list of volumes");
  }
  for (const auto& volume : volumes) {
    if (!volume.is_object() || !volume.contains("nsid") || !volume.contains("name")) continue;
    if (volume["nsid"] == nsid && volume["name"].is_string())
      return volume["name"].get<std::string>();
  }
  return Status(Code::not_found, Origin::tool, "the server at --admin has no such namespace");
}

}  // namespace

Result<Metrics> parse_metrics(std::string_view text, std::string_view volume) {
  const Status wrong(Code::protocol, Origin::tool, "the answer is not Prometheus text");
  const std::string its_label = "volume=\"" + std::string(volume) + '"';
  Metrics metrics;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return wrong;
    const std::string line(text.substr(0, end));
    text.remove_prefix(end + 1);
    if (line.empty() || line.front() == '#') continue;
    const std::size_t space = line.find_last_of(' ');
    if (space == std::string::npos) return wrong;
    char* rest = nullptr;
    const double value = std::strtod(line.c_str() + space + 1, &rest);
    if (*rest != '\0' || rest == line.c_str() + space + 1) return wrong;
    const bool another =
        line.find("volume=\"") != std::string::npos && line.find(its_label) == std::string::npos;
    if (another) continue;
    metrics[line.substr(0, line.find_first_of("{ "))] += value;
  }
  return metrics;
}

Result<Metrics> fetch_metrics(const tools::Endpoint& admin, std::uint32_t nsid) {
  httplib::Client client(admin.host, admin.port);
  const Result<std::string> volume = volume_of(client, nsid);
  if (!volume) return volume.status();
  const auto answer = client.Get("/metrics");
  if (!answer || answer->status != 200) return kNoAnswer;
  return parse_metrics(answer->body, *volume);
}

EngineFigures engine_figures(const Metrics& metrics) {
  const auto value = [&metrics](std::string_view name) {
    const auto found = metrics.find(name);
    return found == metrics.end() ? 0.0 : found->second;
  };
  return {.put_bytes = value("furrow_volume_put_bytes_total"),
          .device_bytes = value("furrow_volume_device_bytes_written_total"),
          .relocated_bytes = value("furrow_volume_relocated_bytes_total"),
          .index_bytes = value("furrow_volume_index_bytes"),
          .pages = value("furrow_volume_pages"),
          .evicted_zones = value("furrow_volume_evicted_zones_total"),
          .quota_zones = value("furrow_volume_quota_zones"),
          .recovery_s = value("furrow_pool_recovery_seconds"),
          .recovered_pages = value("furrow_pool_recovered_pages"),
          .corrupt_pages = value("furrow_volume_corrupt_pages_total"),
          .target_system_calls = value("furrow_target_system_calls_total")};
}

EngineFigures engine_figures(const Pool& pool, const PageStore& store) {
  const auto number = [](std::uint64_t value) { return static_cast<double>(value); };
  const VolumeStats stats = store.stats();
  const VolumeUsage usage = store.usage();
  const PoolInfo info = pool.info();
  return {.put_bytes = number(stats.put_bytes),
          .device_bytes = number(stats.device_bytes_written),
          .relocated_bytes = number(stats.relocated_bytes),
          .index_bytes = number(stats.index_bytes),
          .pages = number(usage.pages),
          .evicted_zones = number(stats.evicted_zones),
          .quota_zones = number(usage.quota_zones),
          .recovery_s = number(info.recovery_us) / 1e6,
          .recovered_pages = number(info.recovered_pages),
          .corrupt_pages = number(stats.corrupt_pages),
          .target_system_calls = 0};
}

}  // namespace furrow::bench
