// furrowd: the page server. Parses flags and runs a tools::Server.

#include <fmt/format.h>
#include <gflags/gflags.h>

#include <algorithm>
#include <string_view>

#include "tools/command.h"
#include "tools/command_line.h"
#include "tools/device_flags.h"
#include "tools/server.h"
#include "tools/tell.h"
#include "tools/token_file.h"
#include "zone/device_uri.h"

DEFINE_string(pool, "", "device URI of the pool, as in emu:/var/lib/furrow/pool.img");
DEFINE_string(listen, "127.0.0.1:4420", "where to serve NVMe/TCP; port 0: any free one");
DEFINE_string(admin, "127.0.0.1:4421",
              "where to answer HTTP: /ready, /metrics, /volumes; empty: nowhere");
DEFINE_string(admin_token_file, "",
              "its first line is the token of who may make and delete volumes by --admin; empty: "
              "nobody may");
DEFINE_bool(create, false, "make what is missing: device, pool, volume");
DEFINE_string(name, "furrow", "the pool's name, 1 to 63 bytes");
DEFINE_string(volume, "pages", "a volume that must be there; with --create it is made");
DEFINE_string(nqn, "", "subsystem NQN; empty: nqn.2026-11.io.furrow:POOLNAME");
DEFINE_string(allowed_hosts, "",
              "host NQNs that may connect, comma-separated; not given: every host");
DEFINE_uint32(cores, 1, "reactors, a thread each");
DEFINE_string(cpus, "",
              "processors that each get a reactor which stays there, as in 0-3,8; empty: --cores "
              "reactors, anywhere");
DEFINE_string(poll, "adaptive", "adaptive: poll 50 us, then sleep; always; sleep: at once");
DEFINE_uint32(connections_max, 1024, "connections, all hosts together");
DEFINE_uint32(connections_per_address_max, 256,
              "connections of an IPv4 address or IPv6 /64 network");
DEFINE_uint32(controllers_per_host_max, 64, "associations of one host NQN, of 256 in all");
DEFINE_uint32(queue_entries_total_max, 64 << 10, "entries of all queues together, 5 KiB each");
DEFINE_uint32(setup_timeout_ms, 10000, "from accept to ICReq, and from there to Connect");
DEFINE_uint32(data_timeout_ms, 15000, "for a host to send a command's data, or to read its answer");
DEFINE_uint32(idle_ms, 120000,
              "a controller without I/O queues and keep-alive ends after this; 0: never");
DEFINE_string(scrub_rate, "1MiB",
              "verify stored data in the background, so much a second; 0: do not");
DEFINE_uint32(drain_ms, 5000, "on SIGTERM: how long accepted commands may take");

namespace furrow::tools {
namespace {

constexpr unsigned kCoresMax = 256;

constexpr const char* kFlags[] = {"pool",
                                  "listen",
                                  "admin",
                                  "admin_token_file",
                                  "create",
                                  "volume",
                                  "name",
                                  "size",
                                  "mode",
                                  "quota",
                                  "nsid",
                                  "value_bytes_max",
                                  "durability",
                                  "zone_size",
                                  "zone_capacity",
                                  "lba",
                                  "mor",
                                  "mar",
                                  "preallocate",
                                  "force",
                                  "victim_policy",
                                  "io_mode",
                                  "nqn",
                                  "allowed_hosts",
                                  "cores",
                                  "cpus",
                                  "poll",
                                  "connections_max",
                                  "connections_per_address_max",
                                  "controllers_per_host_max",
                                  "queue_entries_total_max",
                                  "setup_timeout_ms",
                                  "data_timeout_ms",
                                  "idle_ms",
                                  "scrub_rate",
                                  "drain_ms",
                                  "json"};

int usage() {
  return print_text(
      fmt::format("usage: furrowd --pool=DEVICE-URI [flags]\n"
                  "Serves the volumes of a pool over NVMe/TCP until SIGTERM, SIGINT or SIGHUP, "
                  "then drains.\n\n{}"
                  "\nExit status: 0 ended by a signal, 1 failed, 2 wrong usage. See furrowd(8).\n",
                  flags_help(kFlags)));
}

int wrong_flag(const char* name, const Status& status) {
  return report_usage(fmt::format("--{}: {}", name, status.describe()));
}

// adaptive, always or sleep; false: none of them.
bool take_poll(std::uint64_t& spin_us) {
  if (FLAGS_poll == "adaptive")
    spin_us = 50;
  else if (FLAGS_poll == "always")
    spin_us = ~std::uint64_t{0};
  else if (FLAGS_poll == "sleep")
    spin_us = 0;
  else
    return false;
  return true;
}

// What hosts can cost.
void take_bounds(transport::TargetOptions& target) {
  target.connections_max = FLAGS_connections_max;
  target.connections_per_address_max = FLAGS_connections_per_address_max;
  target.controllers_per_host_max = FLAGS_controllers_per_host_max;
  target.queue_entries_total_max = FLAGS_queue_entries_total_max;
  target.setup_timeout_ms = FLAGS_setup_timeout_ms;
  target.data_timeout_ms = FLAGS_data_timeout_ms;
  target.idle_ms = FLAGS_idle_ms;
  target.log = [](const std::string& line) { tell("furrowd: {}\n", line); };
}

int take_cpus(transport::TargetOptions& target) {
  if (FLAGS_cpus.empty()) return kExitDone;
  const Result<std::vector<unsigned>> cpus = parse_cpus(FLAGS_cpus);
  if (!cpus) return wrong_flag("cpus", cpus.status());
  if (flag_given("cores") && FLAGS_cores != cpus->size()) {
    return report_usage("--cores and --cpus: one of them, or the same number");
  }
  target.cpus = *cpus;
  target.cores = static_cast<unsigned>(cpus->size());
  return kExitDone;
}

// One that is given and names nobody, as where a variable was not set, is no list of everybody.
int take_allowed_hosts(transport::TargetOptions& target) {
  if (!flag_given("allowed_hosts")) return kExitDone;
  const std::string list = "," + FLAGS_allowed_hosts + ",";
  if (list.find(",,") != std::string::npos) {
    return report_usage(
        "--allowed_hosts: it names a host that is empty; without the flag every host may connect");
  }
  target.allowed_hosts = split(FLAGS_allowed_hosts, ',');
  return kExitDone;
}

int take_target(transport::TargetOptions& target) {
  const Result<Endpoint> listen = parse_endpoint(FLAGS_listen);
  if (!listen) return wrong_flag("listen", listen.status());
  target.listen_host = listen->host;
  target.listen_port = listen->port;
  target.subsystem_nqn = FLAGS_nqn;
  if (const int status = take_allowed_hosts(target); status != kExitDone) return status;
  if (FLAGS_cores == 0 || FLAGS_cores > kCoresMax) {
    return report_usage(fmt::format("--cores: 1 to {}", kCoresMax));
  }
  target.cores = FLAGS_cores;
  if (const int status = take_cpus(target); status != kExitDone) return status;
  if (!take_poll(target.spin_us)) return report_usage("--poll: adaptive, always or sleep");
  take_bounds(target);
  const transport::OptionsCheck checked = transport::check(target);
  if (checked.status.ok()) return kExitDone;
  return wrong_flag(checked.option, checked.status);  // these flags are named after the options
}

// A file's name may have commas: another URI does not begin like that.
bool names_several(std::string_view pool) {
  constexpr std::string_view kSchemes[] = {"emu:", "mem:", "nvme:", "zbd:"};
  for (std::size_t at = pool.find(','); at != pool.npos; at = pool.find(',', at + 1)) {
    const std::string_view next = pool.substr(at + 1);
    if (std::ranges::any_of(kSchemes, [&](auto scheme) { return next.starts_with(scheme); })) {
      return true;
    }
  }
  return false;
}

int take_pool(ServerOptions& options) {
  if (FLAGS_pool.empty()) return report_usage("--pool is needed");
  if (names_several(FLAGS_pool)) {
    return report_usage("--pool: one device; several are not supported yet");
  }
  Status named = check_new_name(FLAGS_name);
  if (!named.ok()) return wrong_flag("name", named);
  named = check_new_name(FLAGS_volume);
  if (!named.ok()) return wrong_flag("volume", named);
  const ShapeFlags shape = device_shape_from_flags();
  if (!shape.status.ok()) return wrong_flag(shape.wrong_flag, shape.status);
  const VolumeFlags volume = volume_options_from_flags(FLAGS_volume);
  if (!volume.status.ok()) return wrong_flag(volume.wrong_flag, volume.status);
  const Result<VictimPolicy> victim_policy = victim_policy_from_flags();
  if (!victim_policy) return wrong_flag("victim_policy", victim_policy.status());
  options.opening.victim_policy = *victim_policy;
  const Result<std::string> uri = with_io_mode_from_flags(FLAGS_pool);
  if (!uri) return wrong_flag("io_mode", uri.status());
  options.pool = {*uri, shape.shape, shape.asked, FLAGS_name, flag_given("name")};
  options.create = FLAGS_create;
  options.volume = volume.options;
  options.pool.first_volume = volume.options;
  options.volume_asked = volume.asked;
  options.volume_asked.name = flag_given("volume");
  if (FLAGS_scrub_rate == "0") return kExitDone;
  const Result<std::uint64_t> rate = parse_size(FLAGS_scrub_rate);
  if (!rate || *rate == 0) return report_usage("--scrub_rate: a size, as in 4MiB, or 0");
  options.opening.scrub_bytes_per_s = *rate;
  return kExitDone;
}

int take_token(std::string& token) {
  if (FLAGS_admin_token_file.empty()) return kExitDone;
  if (FLAGS_admin.empty()) return report_usage("--admin_token_file: there is no --admin");
  Result<std::string> read = read_token(FLAGS_admin_token_file);
  if (!read.ok()) return report("cannot use " + FLAGS_admin_token_file, read.status());
  token = std::move(*read);
  return kExitDone;
}

int main_of_furrowd(int argc, char** argv) {
  const std::vector<std::string> arguments = parse_flags(argc, argv);
  if (help_asked()) return usage();
  if (version_asked()) {
    return print_text(fmt::format("furrowd {}\n", FURROW_VERSION));
  }
  if (!arguments.empty()) return report_usage("unexpected argument " + arguments.front());
  const std::string refused = flags_not_accepted(kFlags);
  if (!refused.empty()) return report_usage("it does not take " + refused);
  ServerOptions options;
  if (const int status = take_pool(options); status != kExitDone) return status;
  if (const int status = take_target(options.target); status != kExitDone) return status;
  if (!FLAGS_admin.empty()) {
    const Result<Endpoint> admin = parse_endpoint(FLAGS_admin);
    if (!admin) return wrong_flag("admin", admin.status());
    options.admin = *admin;
    if (admin->port != 0 && admin->port == options.target.listen_port &&
        admin->host == options.target.listen_host) {
      return report_usage("--listen and --admin are the same address: give each a port of its own");
    }
  }
  if (const int status = take_token(options.admin_token); status != kExitDone) return status;
  options.drain_ms = FLAGS_drain_ms;
  return Server(std::move(options)).run();
}

}  // namespace
}  // namespace furrow::tools

int main(int argc, char** argv) { return furrow::tools::main_of_furrowd(argc, argv); }
