#include "bench/rig.h"

#include <fmt/format.h>
#include <gflags/gflags.h>

#include "tools/device_flags.h"
#include "tools/progress.h"

DECLARE_string(pool);
DECLARE_string(target);
DECLARE_uint32(depth);
DECLARE_bool(sleep);

namespace furrow::bench {

using tools::kExitDone;
using tools::report;
using tools::report_usage;

namespace {

// What says something of the pool that is replayed on, and nothing of a server.
constexpr const char* kPoolFlags[] = {
    "volume",     "create",      "size",          "zone_size", "zone_capacity", "lba",
    "mor",        "mar",         "force",         "mode",      "quota",         "value_bytes_max",
    "durability", "preallocate", "victim_policy", "io_mode"};

// And the other way round.
constexpr const char* kServerFlags[] = {"target",        "nqn",         "connections",
                                        "header_digest", "data_digest", "admin"};

int refuse(std::span<const char* const> flags, const char* whose) {
  for (const char* flag : flags) {
    if (tools::flag_given(flag)) return report_usage(fmt::format("--{}: of a {}", flag, whose));
  }
  return kExitDone;
}

}  // namespace

Rig::Rig() : loop({.spin_us = FLAGS_sleep ? 50 : ~std::uint64_t{0}}) {}

int set_up(Rig& rig) {
  if (!FLAGS_pool.empty()) {
    if (const int status = refuse(kServerFlags, "--target"); status != kExitDone) return status;
    if (const int status = open_local_volume(rig.loop, rig.local); status != kExitDone) {
      return status;
    }
    auto backend = local_backend(*rig.local.open, *rig.local.store, rig.loop, FLAGS_depth, true);
    if (!backend) return report("cannot use the pool", backend.status());
    rig.backend = std::move(*backend);
    return kExitDone;
  }
  if (const int status = refuse(kPoolFlags, "--pool"); status != kExitDone) return status;
  transport::InitiatorOptions options;
  if (const int status = take_initiator_options(options); status != kExitDone) return status;
  auto backend = remote_backend(rig.loop, options);
  if (!backend) return report("cannot connect to " + FLAGS_target, backend.status());
  rig.backend = std::move(*backend);
  return kExitDone;
}

// Runs the job to its end; in seconds.
Result<double> play(Rig& rig, Job& job, std::uint32_t page_bytes, const char* what) {
  const tools::Progress progress(what);
  const auto driver =
      Driver::make(rig.loop, *rig.backend, {.depth = FLAGS_depth, .page_bytes = page_bytes});
  if (!driver) return driver.status();
  const std::uint64_t start_ns = rig.loop.now_ns();
  (*driver)->start(job, [&rig] { rig.loop.stop_running(); });
  rig.loop.run();
  return static_cast<double>(rig.loop.now_ns() - start_ns) / 1e9;
}

}  // namespace furrow::bench
