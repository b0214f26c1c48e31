// furrow-bench local|remote: gets and puts of random pages.

#include <fmt/format.h>
#include <gflags/gflags.h>

#include <chrono>
#include <mutex>
#include <optional>

#include "bench/bench_command.h"
#include "bench/crew.h"
#include "bench/load.h"
#include "bench/report.h"
#include "tools/device_flags.h"
#include "tools/file_limit.h"
#include "tools/progress.h"
#include "tools/tell.h"
#include "zone/device_uri.h"

DEFINE_uint64(pages, 100'000, "pages that gets and puts pick from");
DEFINE_bool(warm, true, "store these pages first; --nowarm: they are there already");
DEFINE_uint32(get_percent, 100, "share of gets; the rest are puts");
DEFINE_bool(put_new, false, "puts store new pages, else they replace");
DEFINE_uint32(ttl, 0, "seconds that the stored pages live (local); 0: for ever");
DEFINE_uint32(within_us, 0, "microseconds after which a get or put is late; 0: never");
DEFINE_bool(verify, false, "derive all content and check every byte of every get");
DEFINE_uint32(threads, 1, "threads");
DEFINE_string(memory, "0",
              "memory of each thread that pages come from and go to, used in turn; at least a page "
              "for each operation in flight");
DEFINE_double(seconds, 10, "how long to measure");
DEFINE_string(histogram, "", "file for the latency histogram of the gets (or puts, without gets)");
DEFINE_uint64(salt, 1, "keeps the pages of different runs apart");
DECLARE_uint32(depth);
DECLARE_bool(sleep);
DECLARE_string(target);

namespace furrow::bench {

namespace {

using tools::kExitDone;
using tools::kExitFailed;
using tools::report;
using tools::report_usage;

constexpr unsigned kThreadsMax = 256;
constexpr double kSecondsMax = 1e9;  // in nanoseconds that is a number of 64 bits
constexpr std::uint64_t kMemoryMax = std::uint64_t{1} << 40;

// What a member makes its backend with; called on each member's thread.
using MakeBackend = std::function<Result<std::unique_ptr<Backend>>(EventLoop&)>;

class LoadRun {
 public:
  LoadRun(const LoadOptions& options, EventLoop* home, MakeBackend make)
      : options_(options), home_(home), make_(std::move(make)), crew_(FLAGS_threads, home) {}

  Status run() {
    std::vector<std::thread> others;
    for (unsigned i = 1; i < FLAGS_threads; ++i) others.emplace_back([this, i] { member(i); });
    member(0);
    for (std::thread& other : others) other.join();
    return status_;
  }
  const LoadResult& result() const { return result_; }
  double seconds() const { return seconds_; }
  std::uint64_t system_calls() const { return system_calls_; }

 private:
  void member(unsigned index);
  void measure(unsigned index, EventLoop& loop, const Backend& backend, Driver& driver);
  bool all_ready(const Status& status);

  const LoadOptions& options_;
  EventLoop* home_;
  const MakeBackend make_;
  Crew crew_;
  std::mutex mutex_;  // of what follows
  Status status_;
  LoadResult result_;
  double seconds_ = 0;
  std::uint64_t system_calls_ = 0;
};

// The members go on together or not at all: only when all have a backend and their buffers, and
// have stored their pages.
bool LoadRun::all_ready(const Status& status) {
  if (!status.ok()) {
    const std::lock_guard lock(mutex_);
    if (status_.ok()) status_ = status;
  }
  crew_.meet();
  return status_.ok();
}

void LoadRun::member(unsigned index) {
  EventLoop own({.spin_us = FLAGS_sleep ? 50 : ~std::uint64_t{0}});
  EventLoop& loop = index == 0 && home_ != nullptr ? *home_ : own;
  const Result<std::unique_ptr<Backend>> backend = make_(loop);
  const Driver::Options options{FLAGS_depth, options_.page_bytes, options_.memory_bytes};
  const auto driver = backend ? Driver::make(loop, **backend, options) : backend.status();
  if (all_ready(driver.status())) measure(index, loop, **backend, **driver);
}

void LoadRun::measure(unsigned index, EventLoop& loop, const Backend& backend, Driver& driver) {
  std::optional<tools::Progress> progress;  // of one member, for all
  if (index == 0) progress.emplace(FLAGS_warm ? "storing pages" : "measuring");
  FillJob fill(options_, index, FLAGS_threads);
  if (FLAGS_warm) crew_.run(loop, driver, fill);
  if (!all_ready(fill.result().failure)) return;

  progress.reset();
  if (index == 0) progress.emplace("measuring");
  LoadJob load(options_, index, FLAGS_threads);
  const std::uint64_t system_calls = backend.system_calls();
  const std::uint64_t start_ns = loop.now_ns();
  crew_.run(loop, driver, load);
  const double seconds = static_cast<double>(loop.now_ns() - start_ns) / 1e9;

  const std::lock_guard lock(mutex_);
  seconds_ = std::max(seconds_, seconds);
  system_calls_ += backend.system_calls() - system_calls;
  result_.merge(load.result());
}

int take_options(LoadOptions& options) {
  if (const int status = take_page_bytes(options.page_bytes); status != kExitDone) return status;
  if (FLAGS_get_percent > 100) return report_usage("--get_percent: 0 to 100");
  if (FLAGS_threads == 0 || FLAGS_threads > kThreadsMax) {
    return report_usage(fmt::format("--threads: 1 to {}", kThreadsMax));
  }
  if (!(FLAGS_seconds > 0 && FLAGS_seconds <= kSecondsMax)) {  // nor is it a NaN
    return report_usage(fmt::format("--seconds: more than 0, at most {}", kSecondsMax));
  }
  if (FLAGS_pages == 0 && (FLAGS_get_percent != 0 || !FLAGS_put_new)) {
    return report_usage("--pages: 0 is for --get_percent=0 --put_new only");
  }
  const Result<std::uint64_t> memory = parse_size(FLAGS_memory);
  if (!memory) return report_usage("--memory: " + memory.status().describe());
  if (*memory > kMemoryMax) return report_usage("--memory: at most 1TiB");
  options.memory_bytes = *memory;
  Driver::Options buffers{.page_bytes = options.page_bytes, .memory_bytes = *memory};
  if (const int status = take_buffers(buffers, FLAGS_threads); status != kExitDone) return status;
  options.pages = FLAGS_pages;
  options.get_percent = FLAGS_get_percent;
  options.put_new = FLAGS_put_new;
  options.verify = FLAGS_verify;
  options.salt = FLAGS_salt;
  options.ttl_s = FLAGS_ttl;
  options.within_us = FLAGS_within_us;
  options.duration_ns = static_cast<std::uint64_t>(FLAGS_seconds * 1e9);
  return kExitDone;
}

// Open files: of each thread an event loop's, a queue's, and those of connections.
int take_files(unsigned connections) {
  constexpr std::uint64_t kOwn = 64, kOfEach = 6;
  const std::uint64_t wanted = kOwn + std::uint64_t{FLAGS_threads} * (kOfEach + connections);
  const Result<std::uint64_t> limit = tools::raise_file_limit(wanted);
  if (!limit || *limit >= wanted) return kExitDone;
  return report_usage(fmt::format(
      "that may take {} open files, and the limit is {}: raise it (`ulimit -Hn {}`), or lower "
      "--threads or --connections",
      wanted, *limit, wanted));
}

Json load_report(const LoadOptions& options, const LoadRun& run) {
  const LoadResult& result = run.result();
  // What was moved: a miss moves nothing, and what is late is of no use.
  const double pages = static_cast<double>(result.gets - result.misses + result.puts - result.late);
  const double per_s = ratio(pages, run.seconds());
  Json json{
      {"page_bytes", options.page_bytes},
      {"threads", FLAGS_threads},
      {"depth", FLAGS_depth},
      {"seconds", rounded(run.seconds(), 3)},
      {"gets", result.gets},
      {"puts", result.puts},
      {"misses", result.misses},
      {"wrong", result.wrong},
      {"failed", result.failed},
      {"late", result.late},
      {"pages_per_s", rounded(per_s, 0)},
      {"GB_per_s", rounded(per_s * options.page_bytes / 1e9, 3)},
      {"system_calls_per_page", rounded(ratio(static_cast<double>(run.system_calls()), pages), 4)}};
  add_latencies(json, "get", result.get);
  add_latencies(json, "put", result.put);
  return json;
}

// Before anything is measured in vain. Null: none was asked for.
int take_histogram(Histogram::File& file) {
  if (FLAGS_histogram.empty()) return kExitDone;
  Result<Histogram::File> made = Histogram::create(FLAGS_histogram);
  if (!made.ok()) return report(FLAGS_histogram, made.status());
  file = std::move(*made);
  return kExitDone;
}

// Prints the report and says with the exit status whether all pages were as they should be.
int finish(const LoadRun& run, const Json& json, const Histogram::File& histogram) {
  const LoadResult& result = run.result();
  const int printed = tools::print(json);
  if (printed != kExitDone) return printed;
  if (histogram) {
    const Status written = (result.get.count() != 0 ? result.get : result.put).write(*histogram);
    if (!written.ok()) return report(FLAGS_histogram, written);
  }
  if (result.misses != 0) {
    tools::tell("furrow-bench: {} of {} gets found no page and count for nothing\n", result.misses,
                result.gets);
  }
  if (result.failed != 0) {
    return report(fmt::format("{} operations failed", result.failed), result.failure);
  }
  return result.wrong == 0 ? kExitDone : kExitFailed;
}

int local(const tools::Arguments&) {
  LoadOptions options;
  if (const int status = take_options(options); status != kExitDone) return status;
  if (const int status = take_files(0); status != kExitDone) return status;
  Histogram::File histogram(nullptr, std::fclose);
  if (const int status = take_histogram(histogram); status != kExitDone) return status;
  EventLoop home({.spin_us = FLAGS_sleep ? 50 : ~std::uint64_t{0}});
  LocalVolume volume;
  if (const int status = open_local_volume(home, volume); status != kExitDone) return status;
  LoadRun run(options, &home, [&](EventLoop& loop) {
    return local_backend(*volume.open, *volume.store, loop, FLAGS_depth, &loop == &home);
  });
  const Status status = run.run();
  if (!status.ok()) return report("cannot measure", status);
  Json json = load_report(options, run);
  add_engine(json, engine_figures(*volume.open, *volume.store));
  return finish(run, json, histogram);
}

int remote(const tools::Arguments&) {
  LoadOptions options;
  transport::InitiatorOptions initiator;
  if (const int status = take_options(options); status != kExitDone) return status;
  if (const int status = take_initiator_options(initiator); status != kExitDone) return status;
  if (const int status = take_files(initiator.io_queues); status != kExitDone) return status;
  Histogram::File histogram(nullptr, std::fclose);
  if (const int status = take_histogram(histogram); status != kExitDone) return status;
  LoadRun run(options, nullptr,
              [&initiator](EventLoop& loop) { return remote_backend(loop, initiator); });
  const Status status = run.run();
  if (!status.ok()) return report("cannot measure " + FLAGS_target, status);
  return finish(run, load_report(options, run), histogram);
}

constexpr const char* kLocalFlags[] = {
    "pool",          "volume",     "create",   "size",   "zone_size",
    "zone_capacity", "lba",        "mor",      "mar",    "preallocate",
    "force",         "mode",       "quota",    "nsid",   "value_bytes_max",
    "durability",    "page_bytes", "pages",    "warm",   "get_percent",
    "put_new",       "verify",     "threads",  "depth",  "seconds",
    "histogram",     "salt",       "sleep",    "memory", "victim_policy",
    "io_mode",       "ttl",        "within_us"};
constexpr const char* kRemoteFlags[] = {
    "target",        "nqn",         tools::kClientNsid, "connections",
    "header_digest", "data_digest", "page_bytes",       "pages",
    "warm",          "get_percent", "put_new",          "verify",
    "threads",       "depth",       "seconds",          "histogram",
    "salt",          "sleep",       "memory",           "within_us"};

}  // namespace

std::span<const tools::Command> load_commands() {
  static constexpr tools::Command kCommands[] = {
      {"local", "", 0, "gets and puts on a pool of this process", kLocalFlags, local},
      {"remote", "", 0, "gets and puts on a server, over NVMe/TCP", kRemoteFlags, remote},
  };
  return kCommands;
}

}  // namespace furrow::bench
