// Establishes that furrow-bench reads back what furrowd's /metrics says: the same numbers, of one
// volume, and that other texts are refused. Goes over a real AdminServer on loopback.
#include "bench/server_metrics.h"

#include <gtest/gtest.h>

#include <future>

#include "tools/admin_server.h"
#include "tools/metrics.h"

namespace furrow::bench {
namespace {

tools::ServerSnapshot snapshot() {
  tools::ServerSnapshot snapshot;
  snapshot.volumes.resize(2);
  snapshot.volumes[0].info.options.name = "a";
  snapshot.volumes[1].info.options.name = "b";
  snapshot.volumes[0].stats.put_bytes = 1ull << 40;
  snapshot.volumes[1].stats.put_bytes = 24;
  snapshot.pool.recovery_us = 250'000;
  snapshot.target.system_calls = 77;
  return snapshot;
}

TEST(ParseMetrics, TakesOneVolumesFigures) {
  const auto metrics = parse_metrics(tools::metrics_text(snapshot()), "a");
  ASSERT_TRUE(metrics.ok()) << metrics.status().describe();
  const EngineFigures figures = engine_figures(*metrics);
  EXPECT_EQ(figures.put_bytes, static_cast<double>(1ull << 40));
  EXPECT_EQ(figures.recovery_s, 0.25);
  EXPECT_EQ(figures.target_system_calls, 77);
}

TEST(ParseMetrics, EveryNameThatIsReadIsServed) {
  tools::ServerSnapshot full = snapshot();
  VolumeStats& stats = full.volumes[0].stats;
  stats.device_bytes_written = stats.relocated_bytes = stats.index_bytes = 1;
  stats.evicted_zones = stats.corrupt_pages = 1;
  full.volumes[0].usage.pages = full.volumes[0].usage.quota_zones = 1;
  full.pool.recovered_pages = 1;
  const EngineFigures figures = engine_figures(*parse_metrics(tools::metrics_text(full), "a"));
  for (const double value :
       {figures.put_bytes, figures.device_bytes, figures.relocated_bytes, figures.index_bytes,
        figures.pages, figures.evicted_zones, figures.quota_zones, figures.recovery_s,
        figures.recovered_pages, figures.corrupt_pages, figures.target_system_calls}) {
    EXPECT_GT(value, 0);
  }
}

TEST(ParseMetrics, RefusesOtherTexts) {
  for (const char* text : {"no end of line", "name\n", "name x\n", "name 1x\n", "name \n"}) {
    EXPECT_EQ(parse_metrics(text, "a").status().code(), Code::protocol) << text;
  }
}

TEST(AdminServer, ServesMetricsAndReadiness) {
  std::promise<void> stopped;
  auto admin = tools::AdminServer::start(
      "127.0.0.1", 0,
      {.metrics = [] { return tools::metrics_text(snapshot()); },
       .volumes =
           [] {
             return tools::AdminAnswer{200, R"([{"name":"a","nsid":3},{"name":"b","nsid":1}])"};
           },
       .stopped = [&stopped] { stopped.set_value(); }});
  ASSERT_TRUE(admin.ok()) << admin.status().describe();
  const tools::Endpoint endpoint{"127.0.0.1", (*admin)->port()};
  const auto metrics = fetch_metrics(endpoint, 1);
  ASSERT_TRUE(metrics.ok()) << metrics.status().describe();
  EXPECT_EQ(engine_figures(*metrics).target_system_calls, 77);
  EXPECT_EQ(engine_figures(*metrics).put_bytes, 24) << "of the second volume";
  EXPECT_EQ(fetch_metrics(endpoint, 2).status().code(), Code::not_found);

  // The port is taken now, and says so.
  const auto second = tools::AdminServer::start(
      "127.0.0.1", endpoint.port, {.metrics = [] { return std::string(); }, .stopped = [] {}});
  EXPECT_EQ(second.status().code(), Code::in_use);

  (*admin)->request_stop();
  stopped.get_future().get();
  admin->reset();
  EXPECT_EQ(fetch_metrics(endpoint, 1).status().code(), Code::io_error);
}

}  // namespace
}  // namespace furrow::bench
