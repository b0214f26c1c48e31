#include "tools/metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

namespace furrow::tools {

namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

template <class Source, class Value = std::uint64_t>
struct Metric {
  const char* name;
  const char* help;
  MetricType type;
  Value Source::*member;
};

constexpr auto kCounter = MetricType::Counter;
constexpr auto kGauge = MetricType::Gauge;

constexpr Metric<VolumeUsage> kUsage[] = {
    {"furrow_volume_pages", "Pages that are present", kGauge, &VolumeUsage::pages},
    {"furrow_volume_live_bytes", "True lengths of the pages that are present", kGauge,
     &VolumeUsage::live_bytes},
    {"furrow_volume_zones", "Zones held", kGauge, &VolumeUsage::zones},
    {"furrow_volume_quota_zones", "Zones that the volume may hold", kGauge,
     &VolumeUsage::quota_zones},
    {"furrow_volume_free_bytes",
     "Of a store: room for pages, of any size up to the largest; else 0", kGauge,
     &VolumeUsage::free_bytes},
};

constexpr Metric<VolumeUsage, bool> kUsageFlags[] = {
    {"furrow_volume_incomplete",
     "1: a zone that the last open could not read, or that is offline, may hold something of it; "
     "a disk is not served then",
     kGauge, &VolumeUsage::incomplete},
};

constexpr Metric<VolumeStats> kStats[] = {
    {"furrow_volume_gets_total", "Gets", kCounter, &VolumeStats::gets},
    {"furrow_volume_get_hits_total", "Gets that found the page", kCounter, &VolumeStats::get_hits},
    {"furrow_volume_get_misses_total", "Gets that found no page", kCounter,
     &VolumeStats::get_misses},
    {"furrow_volume_get_bytes_total", "Bytes served", kCounter, &VolumeStats::get_bytes},
    {"furrow_volume_puts_total", "Puts, refused ones included", kCounter, &VolumeStats::puts},
    {"furrow_volume_put_bytes_total", "Bytes stored", kCounter, &VolumeStats::put_bytes},
    {"furrow_volume_removes_total", "Deletes", kCounter, &VolumeStats::removes},
    {"furrow_volume_exists_total", "Exist commands", kCounter, &VolumeStats::exists},
    {"furrow_volume_lists_total", "List commands", kCounter, &VolumeStats::lists},
    {"furrow_volume_flushes_total", "Flushes", kCounter, &VolumeStats::flushes},
    {"furrow_volume_corrupt_pages_total", "Reads refused because the checksum was wrong", kCounter,
     &VolumeStats::corrupt_pages},
    {"furrow_volume_failed_reads_total", "Reads for hosts that the device failed", kCounter,
     &VolumeStats::failed_reads},
    {"furrow_volume_device_bytes_written_total",
     "Bytes written to the device: pages, headers, summaries, padding, relocation", kCounter,
     &VolumeStats::device_bytes_written},
    {"furrow_volume_relocated_bytes_total", "Bytes rewritten by collection or re-admission",
     kCounter, &VolumeStats::relocated_bytes},
    {"furrow_volume_evicted_pages_total", "Pages evicted", kCounter, &VolumeStats::evicted_pages},
    {"furrow_volume_evicted_zones_total", "Zones evicted", kCounter, &VolumeStats::evicted_zones},
    {"furrow_volume_zones_reset_total", "Zones reset", kCounter, &VolumeStats::zones_reset},
    {"furrow_volume_header_reads_total", "Batch headers read to confirm a tag match", kCounter,
     &VolumeStats::header_reads},
    {"furrow_volume_index_bytes", "DRAM of the index and the per-zone tables", kGauge,
     &VolumeStats::index_bytes},
};

constexpr Metric<PoolInfo> kPool[] = {
    {"furrow_pool_zones_unpromised", "Zones that no volume has or may take", kGauge,
     &PoolInfo::zones_unpromised},
    {"furrow_pool_zones_returning", "Zones of deleted volumes that are not reset yet", kGauge,
     &PoolInfo::zones_returning},
    {"furrow_pool_zones_free", "Zones that no volume holds", kGauge, &PoolInfo::zones_free},
    {"furrow_pool_zones_metadata", "Zones of the metadata ring", kGauge, &PoolInfo::zones_metadata},
    {"furrow_pool_zones_data", "Zones that volumes hold", kGauge, &PoolInfo::zones_data},
    {"furrow_pool_zones_bad", "Zones that are read-only or offline", kGauge, &PoolInfo::zones_bad},
    {"furrow_pool_failed_writes_total",
     "Writes of pages that the device failed, but for want of room; each ends a zone, and is tried "
     "again in another",
     kCounter, &PoolInfo::failed_writes},
    {"furrow_pool_misplaced_writes_total",
     "Writes that failed because the drive placed them elsewhere; with one, a zone's writes are "
     "given to it one at a time",
     kCounter, &PoolInfo::misplaced_writes},
    {"furrow_pool_interruptions_total",
     "Transfers, and tries of commands, that a reset of the drive's controller has interrupted",
     kCounter, &PoolInfo::interruptions},
    {"furrow_pool_system_calls_total", "System calls of the device queue for all that writes",
     kCounter, &PoolInfo::system_calls},
    {"furrow_pool_recovered_pages", "Pages that the last open found", kGauge,
     &PoolInfo::recovered_pages},
    {"furrow_pool_opening_damage", "Things that the last open found damaged or lost", kGauge,
     &PoolInfo::opening_damage},
};

constexpr Metric<PoolInfo, bool> kPoolFlags[] = {
    {"furrow_pool_device_full",
     "1: the device took no more at the last write, as on a full file system", kGauge,
     &PoolInfo::device_full},
    {"furrow_pool_flush_failed",
     "1: the last flush failed: what was not flushed before may be lost", kGauge,
     &PoolInfo::flush_failed},
    {"furrow_pool_device_gone", "1: the drive was removed, or has failed as a whole", kGauge,
     &PoolInfo::device_gone},
};

constexpr Metric<ScrubStats> kScrub[] = {
    {"furrow_scrub_bytes_read_total", "Bytes read in the background to verify them", kCounter,
     &ScrubStats::bytes_read},
    {"furrow_scrub_pages_total", "Pages verified in the background", kCounter, &ScrubStats::pages},
    {"furrow_scrub_zones_total", "Zones begun to be verified", kCounter, &ScrubStats::zones},
    {"furrow_scrub_passes_total", "Passes over all zones", kCounter, &ScrubStats::passes},
    {"furrow_scrub_pages_rewritten_total", "Pages that read whole at the second try, written anew",
     kCounter, &ScrubStats::pages_rewritten},
    {"furrow_scrub_pages_lost_total", "Pages that did not read whole, once a pass", kCounter,
     &ScrubStats::pages_lost},
    {"furrow_scrub_structures_damaged_total", "Damaged summaries and batch headers, once a pass",
     kCounter, &ScrubStats::structures_damaged},
    {"furrow_scrub_last_pass_timestamp_seconds", "When the last full pass ended; 0: none did",
     kGauge, &ScrubStats::last_pass_wall_s},
};

using transport::TargetStats;
constexpr Metric<TargetStats> kTarget[] = {
    {"furrow_target_connections", "Connections now", kGauge, &TargetStats::connections},
    {"furrow_target_connections_accepted_total", "Connections accepted", kCounter,
     &TargetStats::connections_accepted},
    {"furrow_target_connections_refused_total", "Connections refused, for any of the reasons below",
     kCounter, &TargetStats::connections_refused},
    {"furrow_target_refused_full_total", "Refused: --connections_max", kCounter,
     &TargetStats::refused_full},
    {"furrow_target_refused_address_total", "Refused: --connections_per_address_max", kCounter,
     &TargetStats::refused_address},
    {"furrow_target_refused_setting_up_total", "Refused: too many that are not through Connect",
     kCounter, &TargetStats::refused_setting_up},
    {"furrow_target_accept_errors_total",
     "Tries to accept a connection that failed, as without open files or memory left for it",
     kCounter, &TargetStats::accept_errors},
    {"furrow_target_connects_refused_total", "Connect commands refused, for any reason", kCounter,
     &TargetStats::connects_refused},
    {"furrow_target_connects_refused_host_total",
     "Connect commands refused: --controllers_per_host_max", kCounter, &TargetStats::refused_host},
    {"furrow_target_connects_refused_full_total",
     "Connect commands refused: no controllers left, or --queue_entries_total_max", kCounter,
     &TargetStats::refused_controllers},
    {"furrow_target_buffer_waits_total", "Commands that waited for a page buffer", kCounter,
     &TargetStats::buffer_waits},
    {"furrow_target_stashes_refused_total",
     "Stores failed, to be tried again, for want of memory for their data", kCounter,
     &TargetStats::stashes_refused},
    {"furrow_target_payloads_refused_total",
     "Admin commands failed, to be tried again, for want of memory for their data", kCounter,
     &TargetStats::payloads_refused},
    {"furrow_target_idle_expired_total", "Controllers without I/O queues ended by --idle_ms",
     kCounter, &TargetStats::idle_expired},
    {"furrow_target_commands_total", "NVMe commands", kCounter, &TargetStats::commands},
    {"furrow_target_commands_failed_total",
     "NVMe commands answered with an error (a page that is not there, or already there, is none)",
     kCounter, &TargetStats::commands_failed},
    {"furrow_target_protocol_errors_total", "Connections ended for breaking the protocol", kCounter,
     &TargetStats::protocol_errors},
    {"furrow_target_digest_errors_total", "Commands failed for damaged data", kCounter,
     &TargetStats::digest_errors},
    {"furrow_target_timeouts_total", "Connections cut for being slow with set-up or data", kCounter,
     &TargetStats::timeouts},
    {"furrow_target_keep_alive_expired_total", "Controllers ended for silence", kCounter,
     &TargetStats::keep_alive_expired},
    {"furrow_target_system_calls_total", "System calls of the reactors", kCounter,
     &TargetStats::system_calls},
};

constexpr Metric<TargetStats::Reactor> kReactors[] = {
    {"furrow_target_reactor_connections", "Connections now, by reactor", kGauge,
     &TargetStats::Reactor::connections},
    {"furrow_target_reactor_io_queues", "I/O queues now, by reactor", kGauge,
     &TargetStats::Reactor::io_queues},
};

ClientMetric sample(MetricType type, double value, std::vector<ClientMetric::Label> labels) {
  ClientMetric metric;
  metric.label = std::move(labels);
  (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  return metric;
}

template <class Source, class Value>
MetricFamily family(const Metric<Source, Value>& metric) {
  return {metric.name, metric.help, metric.type, {}};
}

template <class Source, class Value>
void add_single(std::vector<MetricFamily>& families, const Metric<Source, Value>& metric,
                const Source& source) {
  families.push_back(family(metric));
  families.back().metric.push_back(
      sample(metric.type, static_cast<double>(source.*metric.member), {}));
}

template <class Source, class Value>
void add_volumes(std::vector<MetricFamily>& families, const Metric<Source, Value>& metric,
                 const std::vector<VolumeSnapshot>& volumes, Source VolumeSnapshot::*part) {
  families.push_back(family(metric));
  for (const VolumeSnapshot& volume : volumes) {
    families.back().metric.push_back(sample(metric.type,
                                            static_cast<double>(volume.*part.*metric.member),
                                            {{"volume", volume.info.options.name}}));
  }
}

// One sample for each reactor.
void add_reactors(std::vector<MetricFamily>& families, const Metric<TargetStats::Reactor>& metric,
                  const TargetStats& target) {
  families.push_back(family(metric));
  for (std::size_t i = 0; i < target.reactors.size(); ++i) {
    families.back().metric.push_back(sample(metric.type,
                                            static_cast<double>(target.reactors[i].*metric.member),
                                            {{"reactor", std::to_string(i)}}));
  }
}

}  // namespace

std::string metrics_text(const ServerSnapshot& snapshot) {
  std::vector<MetricFamily> families;
  for (const auto& metric : kUsage) {
    add_volumes(families, metric, snapshot.volumes, &VolumeSnapshot::usage);
  }
  for (const auto& metric : kUsageFlags) {
    add_volumes(families, metric, snapshot.volumes, &VolumeSnapshot::usage);
  }
  for (const auto& metric : kStats) {
    add_volumes(families, metric, snapshot.volumes, &VolumeSnapshot::stats);
  }
  for (const auto& metric : kPool) add_single(families, metric, snapshot.pool);
  for (const auto& metric : kPoolFlags) add_single(families, metric, snapshot.pool);
  for (const auto& metric : kScrub) add_single(families, metric, snapshot.pool.scrub);
  for (const auto& metric : kTarget) add_single(families, metric, snapshot.target);
  for (const auto& metric : kReactors) add_reactors(families, metric, snapshot.target);

  families.push_back({"furrow_build_info", "1: which version serves", kGauge, {}});
  families.back().metric.push_back(sample(kGauge, 1, {{"version", FURROW_VERSION}}));
  constexpr double kSecond_us = 1e6;
  families.push_back({"furrow_pool_recovery_seconds", "How long the last open took", kGauge, {}});
  families.back().metric.push_back(
      sample(kGauge, static_cast<double>(snapshot.pool.recovery_us) / kSecond_us, {}));
  families.push_back({"furrow_pool_zone_capacity_bytes", "Writable bytes of a zone", kGauge, {}});
  families.back().metric.push_back(
      sample(kGauge, static_cast<double>(snapshot.pool.geometry.zone_capacity_bytes()), {}));
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace furrow::tools
