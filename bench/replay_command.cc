// furrow-bench replay|verify: a KV cache's trace, every byte checked; and the check after a kill.

#include <fmt/format.h>
#include <gflags/gflags.h>

#include <optional>

#include "bench/bench_command.h"
#include "bench/replay.h"
#include "bench/report.h"
#include "bench/rig.h"
#include "tools/device_flags.h"
#include "tools/tell.h"

DEFINE_string(trace, "", "trace in the Mooncake format; empty: a generated one");
DEFINE_uint32(requests, 12'000, "requests of the generated trace");
DEFINE_uint32(pages_per_block, 1, "pages of a block of the trace");
DEFINE_uint32(loops, 1, "plays of the trace, each with blocks of its own");
DEFINE_string(journal, "", "file of the pages that were acknowledged");
DEFINE_string(admin, "", "HOST:PORT of the server's admin listener, for its figures");
DEFINE_bool(allow_missing, false, "acknowledged pages may have been evicted");
DEFINE_uint32(expect_restarts, 0, "fail unless the server came back this often");
DEFINE_double(expect_turnovers, 0, "fail unless eviction turned the cache over this often");
DECLARE_uint64(salt);

namespace furrow::bench {

namespace {

using tools::kExitDone;
using tools::kExitFailed;
using tools::report;
using tools::report_usage;

constexpr std::uint32_t kPagesPerBlockMax = 4096, kLoopsMax = 1000, kRequestsMax = 10'000'000;
constexpr std::uint64_t kPagesMax = std::uint64_t{1} << 32;  // some bits of memory each
constexpr std::uint64_t kGeneratorSeed = 1;

int take_trace(Trace& trace) {
  if (!FLAGS_trace.empty() && tools::flag_given("requests")) {
    return report_usage("--requests: of the generated trace, not of a --trace");
  }
  if (FLAGS_trace.empty()) {
    if (FLAGS_requests == 0 || FLAGS_requests > kRequestsMax) {
      return report_usage(fmt::format("--requests: 1 to {}", kRequestsMax));
    }
    trace = generate_trace(FLAGS_requests, kGeneratorSeed);
    return kExitDone;
  }
  std::uint64_t line = 0;
  Result<Trace> read = read_trace(FLAGS_trace, &line);
  if (!read) {
    return report(line == 0 ? FLAGS_trace : fmt::format("{}:{}", FLAGS_trace, line), read.status());
  }
  trace = std::move(*read);
  return kExitDone;
}

int take_options(ReplayJob::Options& options) {
  if (const int status = take_page_bytes(options.shape.page_bytes); status != kExitDone) {
    return status;
  }
  if (FLAGS_pages_per_block == 0 || FLAGS_pages_per_block > kPagesPerBlockMax) {
    return report_usage(fmt::format("--pages_per_block: 1 to {}", kPagesPerBlockMax));
  }
  if (FLAGS_loops == 0 || FLAGS_loops > kLoopsMax) {
    return report_usage(fmt::format("--loops: 1 to {}", kLoopsMax));
  }
  if (!(FLAGS_expect_turnovers >= 0)) return report_usage("--expect_turnovers: 0 or more");
  Driver::Options buffers{.page_bytes = options.shape.page_bytes};
  if (const int status = take_buffers(buffers, 1); status != kExitDone) return status;
  options.shape.salt = FLAGS_salt;
  options.pages_per_block = FLAGS_pages_per_block;
  options.loops = FLAGS_loops;
  return kExitDone;
}

// The engine's figures, when they can be had.
int take_figures(const Rig& rig, std::optional<EngineFigures>& figures) {
  if (rig.local.store != nullptr) {
    figures = engine_figures(*rig.local.open, *rig.local.store);
  } else if (!FLAGS_admin.empty()) {
    const Result<tools::Endpoint> admin = tools::parse_endpoint(FLAGS_admin);
    if (!admin) return report_usage("--admin: " + admin.status().describe());
    const Result<std::uint32_t> nsid = tools::client_nsid_from_flags();
    if (!nsid) return report_usage("--nsid: " + nsid.status().describe());
    const Result<Metrics> metrics = fetch_metrics(*admin, *nsid);
    if (!metrics) return report("cannot get figures from " + FLAGS_admin, metrics.status());
    figures = engine_figures(*metrics);
  }
  return kExitDone;
}

Json replay_report(const Trace& trace, const ReplayJob::Options& options,
                   const ReplayResult& result, double seconds) {
  const auto number = [](std::uint64_t value) { return static_cast<double>(value); };
  const double serving_s = seconds - number(result.verify_ns) / 1e9;
  const double moved = number(result.hits + result.stored);
  Json json{{"trace", FLAGS_trace.empty() ? "generated" : FLAGS_trace},
            {"requests", trace.requests.size() * options.loops},
            {"page_bytes", options.shape.page_bytes},
            {"references", result.references},
            {"fetched", result.hits},
            {"stored", result.stored},
            {"hit_rate", rounded(ratio(number(result.hits), number(result.references)), 4)},
            {"hit_rate_best_possible",
             rounded(ratio(number(result.best_hits), number(result.references)), 4)},
            {"seconds", rounded(serving_s, 2)},
            {"pages_per_s", rounded(ratio(moved, serving_s), 0)},
            {"GB_per_s", rounded(ratio(moved * options.shape.page_bytes / 1e9, serving_s), 3)}};
  add_latencies(json, "hit", result.hit);
  add_latencies(json, "miss", result.miss);
  add_latencies(json, "store", result.put);
  json["fetched_intact"] = result.served.intact;
  json["fetched_wrong"] = result.served.wrong;
  json["restarts"] = result.restarts;
  json["after_restart_intact"] = result.after_restart.intact;
  json["after_restart_missing"] = result.after_restart.missing;
  json["after_restart_wrong"] = result.after_restart.wrong;
  return json;
}

// Says on stderr what did not hold; the exit status follows.
class Verdict {
 public:
  void failed(std::string_view what, const Status& status) {
    if (!status.ok()) report(what, status), held_ = false;
  }
  void expect(bool holds, const std::string& otherwise) {
    if (holds) return;
    tools::tell("{}: {}\n", tools::program_name(), otherwise);
    held_ = false;
  }
  int exit_status() const { return held_ ? kExitDone : kExitFailed; }

 private:
  bool held_ = true;
};

void judge(const Verified& verified, const char* which, Verdict& verdict) {
  verdict.failed(fmt::format("{} pages could not be fetched {}", verified.failed, which),
                 verified.failure);
  verdict.expect(verified.wrong == 0,
                 fmt::format("{} pages had wrong bytes {}", verified.wrong, which));
  verdict.expect(verified.missing == 0 || FLAGS_allow_missing,
                 fmt::format("{} acknowledged pages were missing {}", verified.missing, which));
}

int judge_replay(const ReplayResult& result, const std::optional<EngineFigures>& figures) {
  Verdict verdict;
  verdict.failed("a page could not be stored", result.put_failure);
  judge(result.served, "in the replay", verdict);
  judge(result.after_restart, "after a restart", verdict);
  verdict.expect(
      result.restarts >= FLAGS_expect_restarts,
      fmt::format("{} restarts seen, {} expected", result.restarts, FLAGS_expect_restarts));
  if (FLAGS_expect_turnovers > 0) {
    const double turnovers = figures ? ratio(figures->evicted_zones, figures->quota_zones) : 0;
    verdict.expect(turnovers >= FLAGS_expect_turnovers,
                   fmt::format("eviction turned the cache over {:.2f} times, {:.2f} expected",
                               turnovers, FLAGS_expect_turnovers));
  }
  return verdict.exit_status();
}

int replay(const tools::Arguments&) {
  ReplayJob::Options options;
  Trace trace;
  Rig rig;
  if (const int status = take_options(options); status != kExitDone) return status;
  if (const int status = take_trace(trace); status != kExitDone) return status;
  if (std::uint64_t{trace.distinct} * options.pages_per_block * options.loops > kPagesMax) {
    return report_usage(
        fmt::format("--pages_per_block and --loops: more than {} pages", kPagesMax));
  }
  if (const int status = set_up(rig); status != kExitDone) return status;
  std::optional<AckJournal> journal;  // that of a replay before stays until this one can begin
  if (!FLAGS_journal.empty()) {
    auto created = AckJournal::create(FLAGS_journal, {options.shape.page_bytes, FLAGS_salt});
    if (!created) return report(FLAGS_journal, created.status());
    journal.emplace(std::move(*created));
  }

  ReplayJob job(trace, *rig.backend, options, journal ? &*journal : nullptr);
  const Result<double> seconds = play(rig, job, options.shape.page_bytes, "replaying");
  if (!seconds) return report("cannot replay", seconds.status());
  const Status kept = journal ? journal->flush() : Status();
  if (!kept.ok()) return report(FLAGS_journal, kept);

  std::optional<EngineFigures> figures;
  if (const int status = take_figures(rig, figures); status != kExitDone) return status;
  Json json = replay_report(trace, options, job.result(), *seconds);
  if (figures) add_engine(json, *figures);
  const int printed = tools::print(json);
  return printed != kExitDone ? printed : judge_replay(job.result(), figures);
}

int verify(const tools::Arguments&) {
  if (FLAGS_journal.empty()) return report_usage("--journal is needed");
  const auto journal = AckJournal::read(FLAGS_journal);
  if (!journal) return report(FLAGS_journal, journal.status());
  const PageShape shape{journal->header.page_bytes, journal->header.salt};
  Driver::Options buffers{.page_bytes = shape.page_bytes};
  if (const int status = take_buffers(buffers, 1); status != kExitDone) return status;
  Rig rig;
  if (const int status = set_up(rig); status != kExitDone) return status;
  VerifyJob job(journal->pages, shape);
  const Result<double> seconds = play(rig, job, shape.page_bytes, "verifying");
  if (!seconds) return report("cannot verify", seconds.status());
  const Verified& result = job.result();
  const int printed = tools::print(Json{{"acknowledged", journal->pages.size()},
                                        {"intact", result.intact},
                                        {"missing", result.missing},
                                        {"wrong", result.wrong},
                                        {"failed", result.failed},
                                        {"seconds", rounded(*seconds, 3)}});
  if (printed != kExitDone) return printed;
  Verdict verdict;
  judge(result, "in the check", verdict);
  return verdict.exit_status();
}

constexpr const char* kReplayFlags[] = {
    "trace",
    "requests",
    "pages_per_block",
    "loops",
    "page_bytes",
    "depth",
    "journal",
    "admin",
    "allow_missing",
    "expect_restarts",
    "expect_turnovers",
    "salt",
    "sleep",
    "target",
    "nqn",
    "nsid: the server's namespace, 1 to 1024 (default 1); --create: the volume's",
    "connections",
    "header_digest",
    "data_digest",
    "pool",
    "volume",
    "create",
    "size",
    "zone_size",
    "zone_capacity",
    "lba",
    "mor",
    "mar",
    "preallocate",
    "force",
    "mode",
    "quota",
    "value_bytes_max",
    "durability",
    "victim_policy",
    "io_mode"};
constexpr const char* kVerifyFlags[] = {
    "journal",          "allow_missing", "depth",         "sleep",       "target", "nqn",
    tools::kClientNsid, "connections",   "header_digest", "data_digest", "pool",   "volume"};

}  // namespace

std::span<const tools::Command> replay_commands() {
  static constexpr tools::Command kCommands[] = {
      {"replay", "", 0, "a KV cache's trace: fetch and check hits, store misses", kReplayFlags,
       replay},
      {"verify", "", 0, "check every page that a replay's journal says was acknowledged",
       kVerifyFlags, verify},
  };
  return kCommands;
}

}  // namespace furrow::bench
