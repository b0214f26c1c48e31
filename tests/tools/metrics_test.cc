// Establishes that /metrics is Prometheus text with a value for each counter of the snapshot, in
// the units that the names promise, and one sample for each volume and each reactor.
#include "tools/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace furrow::tools {
namespace {

using testing::HasSubstr;

ServerSnapshot two_volumes() {
  ServerSnapshot snapshot;
  snapshot.pool.recovery_us = 1'500'000;
  snapshot.pool.zones_free = 7;
  snapshot.target.commands = 42;
  snapshot.target.reactors = {{3, 1}, {4, 2}};
  for (const char* name : {"pages", "other"}) {
    VolumeSnapshot volume;
    volume.info.options.name = name;
    snapshot.volumes.push_back(volume);
  }
  snapshot.volumes[0].stats.gets = 5;
  snapshot.volumes[0].stats.failed_reads = 2;
  snapshot.volumes[1].usage.pages = 9;
  snapshot.volumes[1].usage.free_bytes = 4096;
  snapshot.volumes[1].usage.incomplete = true;
  snapshot.pool.device_full = true;
  snapshot.pool.flush_failed = true;
  snapshot.pool.device_gone = true;
  snapshot.pool.failed_writes = 6;
  snapshot.pool.misplaced_writes = 3;
  snapshot.pool.interruptions = 8;
  snapshot.target.commands_failed = 7;
  return snapshot;
}

TEST(Metrics, HasEachVolumesCounters) {
  const std::string text = metrics_text(two_volumes());
  EXPECT_THAT(text, HasSubstr("# TYPE furrow_volume_gets_total counter\n"));
  EXPECT_THAT(text, HasSubstr("furrow_volume_gets_total{volume=\"pages\"} 5\n"));
  EXPECT_THAT(text, HasSubstr("furrow_volume_gets_total{volume=\"other\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("furrow_volume_failed_reads_total{volume=\"pages\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE furrow_volume_pages gauge\n"));
  EXPECT_THAT(text, HasSubstr("furrow_volume_pages{volume=\"other\"} 9\n"));
  EXPECT_THAT(text, HasSubstr("furrow_volume_free_bytes{volume=\"other\"} 4096\n"));
  EXPECT_THAT(text, HasSubstr("furrow_volume_incomplete{volume=\"pages\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("furrow_volume_incomplete{volume=\"other\"} 1\n"));
}

TEST(Metrics, HasThePoolAndTheTarget) {
  const std::string text = metrics_text(two_volumes());
  EXPECT_THAT(text, HasSubstr("furrow_build_info{version=\"" FURROW_VERSION "\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("furrow_pool_recovery_seconds 1.5\n"));
  EXPECT_THAT(text, HasSubstr("furrow_pool_zones_free 7\n"));
  EXPECT_THAT(text, HasSubstr("furrow_pool_device_full 1\n"));
  EXPECT_THAT(text, HasSubstr("furrow_pool_flush_failed 1\n"));
  EXPECT_THAT(text, HasSubstr("furrow_pool_device_gone 1\n"));
  EXPECT_THAT(text, HasSubstr("furrow_pool_failed_writes_total 6\n"));
  EXPECT_THAT(text, HasSubstr("furrow_pool_misplaced_writes_total 3\n"));
  EXPECT_THAT(text, HasSubstr("furrow_pool_interruptions_total 8\n"));
  EXPECT_THAT(text, HasSubstr("furrow_target_commands_total 42\n"));
  EXPECT_THAT(text, HasSubstr("furrow_target_commands_failed_total 7\n"));
  EXPECT_THAT(text, HasSubstr("furrow_target_reactor_connections{reactor=\"0\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("furrow_target_reactor_io_queues{reactor=\"1\"} 2\n"));
}

TEST(Metrics, EveryLineIsACommentOrASample) {
  const std::string text = metrics_text(two_volumes());
  std::size_t samples = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    ASSERT_NE(end, std::string::npos);
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    if (line.starts_with("# ")) continue;
    EXPECT_TRUE(line.starts_with("furrow_")) << line;
    EXPECT_NE(line.find(' '), std::string::npos) << line;
    ++samples;
  }
  EXPECT_GT(samples, 50u);
}

}  // namespace
}  // namespace furrow::tools
