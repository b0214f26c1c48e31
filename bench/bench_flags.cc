#include <fmt/format.h>
#include <gflags/gflags.h>
#include <unistd.h>

#include <algorithm>

#include "bench/bench_command.h"
#include "log/format.h"
#include "tools/device_flags.h"
#include "zone/device_uri.h"

DEFINE_string(page_bytes, "4KiB", "size of a page");
DEFINE_uint32(depth, 64, "operations in flight of each thread");
DEFINE_string(pool, "", "local: device URI of the pool");
DEFINE_string(volume, "pages", "local: the volume");
DEFINE_bool(create, false, "local: make the pool and the volume when they are not there");
DEFINE_string(target, "127.0.0.1:4420", "remote: the server's HOST:PORT");
DEFINE_string(nqn, "", "remote: subsystem NQN; empty: the only one that discovery finds");
DEFINE_uint32(connections, 1, "remote: I/O queues of each thread");
DEFINE_bool(header_digest, false, "remote: checksum the wire's headers");
DEFINE_bool(data_digest, false, "remote: checksum the wire's data");
DEFINE_bool(sleep, false, "sleep when there is nothing to do, else poll always");

namespace furrow::bench {

using tools::kExitDone;
using tools::report;
using tools::report_usage;

namespace {
constexpr unsigned kConnectionsMax = 64, kDepthMax = 65536;
constexpr unsigned kQueueEntriesMin = 2, kQueueEntriesMax = 1024;
}  // namespace

int take_page_bytes(std::uint32_t& page_bytes) {
  const Result<std::uint64_t> size = parse_size(FLAGS_page_bytes);
  if (!size) return report_usage("--page_bytes: " + size.status().describe());
  if (*size == 0 || *size > kValueBytesMax) {
    return report_usage(fmt::format("--page_bytes: 1 to {}", kValueBytesMax));
  }
  page_bytes = static_cast<std::uint32_t>(*size);
  return kExitDone;
}

int take_buffers(Driver::Options& each, unsigned drivers) {
  if (FLAGS_depth == 0 || FLAGS_depth > kDepthMax) {
    return report_usage(fmt::format("--depth: 1 to {}", kDepthMax));
  }
  each.depth = FLAGS_depth;
  const std::uint64_t bytes = Driver::memory_bytes(each) * drivers;
  const std::uint64_t there =
      static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  if (bytes <= there) return kExitDone;
  return report_usage(
      fmt::format("the buffers would take {} MiB, and this machine has {}: lower --depth, "
                  "--page_bytes, --memory or --threads",
                  bytes >> 20, there >> 20));
}

int open_local_volume(EventLoop& home, LocalVolume& volume) {
  if (FLAGS_pool.empty()) return report_usage("--pool is needed");
  const tools::ShapeFlags shape = tools::device_shape_from_flags();
  if (!shape.status.ok()) {
    return report_usage(fmt::format("--{}: {}", shape.wrong_flag, shape.status.describe()));
  }
  const tools::VolumeFlags made = tools::volume_options_from_flags(FLAGS_volume);
  if (!made.status.ok()) {
    return report_usage(fmt::format("--{}: {}", made.wrong_flag, made.status.describe()));
  }
  const Result<VictimPolicy> policy = tools::victim_policy_from_flags();
  if (!policy) return report_usage("--victim_policy: " + policy.status().describe());
  const Result<std::string> uri = tools::with_io_mode_from_flags(FLAGS_pool);
  if (!uri) return report_usage("--io_mode: " + uri.status().describe());
  Pool::OpenOptions opening;
  opening.victim_policy = *policy;
  const tools::PoolRecipe recipe{*uri, shape.shape, shape.asked, "bench", false, made.options};
  auto opened = FLAGS_create ? tools::open_or_create_pool(recipe, home, opening)
                             : tools::open_made_pool(recipe, home, opening);
  if (!opened) return tools::report_device("cannot open pool", FLAGS_pool, opened.status());
  volume.open = std::move(*opened);
  volume.store = volume.open->find(FLAGS_volume);
  if (volume.store == nullptr && FLAGS_create) {
    const auto created = volume.open.create_volume(made.options);
    if (!created) return report("cannot create volume " + FLAGS_volume, created.status());
    volume.store = *created;
  }
  if (volume.store != nullptr) {
    const Status same = tools::check_volume(volume.store->info(), volume.open->info().geometry,
                                            made.options, made.asked);
    return same.ok() ? kExitDone : report("cannot use volume " + FLAGS_volume, same);
  }
  return report("cannot use volume " + FLAGS_volume,
                Status(Code::not_found, Origin::tool, "--create makes it"));
}

int take_initiator_options(transport::InitiatorOptions& options) {
  const Result<tools::Endpoint> endpoint = tools::parse_endpoint(FLAGS_target);
  if (!endpoint) return report_usage("--target: " + endpoint.status().describe());
  if (FLAGS_connections == 0 || FLAGS_connections > kConnectionsMax) {
    return report_usage(fmt::format("--connections: 1 to {}", kConnectionsMax));
  }
  const Result<std::uint32_t> nsid = tools::client_nsid_from_flags();
  if (!nsid) return report_usage("--nsid: " + nsid.status().describe());
  if (const Status nqn = FLAGS_nqn.empty() ? Status() : tools::check_nqn(FLAGS_nqn); !nqn.ok()) {
    return report_usage("--nqn: " + nqn.describe());
  }
  options.host = endpoint->host;
  options.port = endpoint->port;
  options.subsystem_nqn = FLAGS_nqn;
  options.nsid = *nsid;
  options.io_queues = static_cast<std::uint16_t>(FLAGS_connections);
  // One entry of a queue always stays free.
  const unsigned each = (FLAGS_depth + FLAGS_connections - 1) / FLAGS_connections + 1;
  options.queue_entries =
      static_cast<std::uint16_t>(std::clamp(each, kQueueEntriesMin, kQueueEntriesMax));
  options.header_digest = FLAGS_header_digest;
  options.data_digest = FLAGS_data_digest;
  return kExitDone;
}

}  // namespace furrow::bench
