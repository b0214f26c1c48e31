// wal_beside_fill: how long the synced puts of one database take while another one, on the same
// file system, is filled: what a write-ahead log suffers from flushes and compactions beside it.
// On Furrow with --fs_uri=furrow://..., else on the host's file system; both databases are made
// anew in --dir. bench/rocksdb runs it on both.
//
// One thread puts and waits, one fills, at most --fill_rate bytes of keys and values a second.

#include <fmt/format.h>
#include <gflags/gflags.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/options.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "bench/report.h"
#include "engine/rocksdb/file_system.h"
#include "tools/command.h"

DEFINE_string(fs_uri, "", "furrow://DEVICE-URI; empty: the host's file system");
DEFINE_string(dir, "", "where the two databases are made");
DEFINE_double(seconds, 10, "how long to measure");
DEFINE_uint64(fill_rate, 48 << 20, "bytes a second that the other database takes at most; 0: none");
DEFINE_uint64(seed, 1, "of the keys");

namespace furrow::bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr unsigned kKeyBytes = 16, kValueBytes = 400;
constexpr std::uint64_t kKeys = 1'000'000;

int failed(const char* what, const rocksdb::Status& status) {
  fmt::print(stderr, "wal_beside_fill: {}: {}\n", what, status.ToString());
  return tools::kExitFailed;
}

// As bench/rocksdb has db_bench make them, but for filters and the block cache, which puts do not
// ask.
rocksdb::Options options_on(rocksdb::Env* env) {
  rocksdb::Options options;
  options.env = env;
  options.create_if_missing = true;
  options.error_if_exists = true;
  options.compression = rocksdb::kNoCompression;
  options.use_direct_reads = true;
  options.use_direct_io_for_flush_and_compaction = true;
  options.write_buffer_size = 16 << 20;
  options.target_file_size_base = 16 << 20;
  options.max_bytes_for_level_base = 64 << 20;
  options.max_background_jobs = 2;
  return options;
}

rocksdb::Status put(rocksdb::DB& db, std::uint64_t key, bool sync) {
  static const std::string value(kValueBytes, 'v');
  rocksdb::WriteOptions how;
  how.sync = sync;
  return db.Put(how, fmt::format("{:0{}}", key, kKeyBytes), value);
}

// Until `stop`: a burst each millisecond of what the rate allows by then.
rocksdb::Status fill(rocksdb::DB& db, const std::atomic<bool>& stop, std::uint64_t& bytes) {
  std::mt19937_64 random(FLAGS_seed);
  const auto start = Clock::now();
  while (!stop.load()) {
    const double due = std::chrono::duration<double>(Clock::now() - start).count() *
                       static_cast<double>(FLAGS_fill_rate);
    while (static_cast<double>(bytes) < due && !stop.load()) {
      if (auto status = put(db, random() % kKeys, false); !status.ok()) return status;
      bytes += kKeyBytes + kValueBytes;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return rocksdb::Status::OK();
}

rocksdb::Status measure(rocksdb::DB& db, Histogram& histogram) {
  const auto end = Clock::now() + std::chrono::duration<double>(FLAGS_seconds);
  std::uint64_t key = 0;
  for (auto now = Clock::now(); now < end;) {
    if (auto status = put(db, key++, true); !status.ok()) return status;
    const auto began = std::exchange(now, Clock::now());
    histogram.record(static_cast<std::uint64_t>((now - began).count()));
  }
  return rocksdb::Status::OK();
}

int run(rocksdb::Env* env) {
  if (auto status = env->CreateDirIfMissing(FLAGS_dir); !status.ok()) {
    return failed("cannot make --dir", status);
  }
  std::unique_ptr<rocksdb::DB> synced, filled;
  for (auto& [db, name] : {std::pair{&synced, "/synced"}, {&filled, "/filled"}}) {
    rocksdb::DB* made = nullptr;
    const auto status = rocksdb::DB::Open(options_on(env), FLAGS_dir + name, &made);
    if (!status.ok()) return failed("cannot make a database in --dir", status);
    db->reset(made);
  }
  std::atomic<bool> stop{false};
  std::uint64_t filled_bytes = 0;
  rocksdb::Status fill_status;
  std::thread filler([&] { fill_status = fill(*filled, stop, filled_bytes); });
  Histogram histogram;
  const auto start = Clock::now();
  const rocksdb::Status status = measure(*synced, histogram);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  stop.store(true);
  filler.join();
  if (!status.ok()) return failed("a synced put", status);
  if (!fill_status.ok()) return failed("a put of the other database", fill_status);
  Json json{{"synced_puts_per_s", rounded(static_cast<double>(histogram.count()) / seconds, 0)},
            {"filled_bytes_per_s", rounded(static_cast<double>(filled_bytes) / seconds, 0)}};
  add_latencies(json, "synced_put", histogram);
  return tools::print(json);
}

int main_of_wal_beside_fill(int argc, char** argv) {
  const auto arguments = tools::parse_flags(argc, argv);
  if (!arguments.empty()) return tools::report_usage("there are no arguments");
  if (FLAGS_dir.empty()) return tools::report_usage("--dir says where the databases are made");
  if (!(FLAGS_seconds > 0)) return tools::report_usage("--seconds must not be 0");
  if (FLAGS_fs_uri.empty()) return run(rocksdb::Env::Default());
  std::unique_ptr<rocksdb::FileSystem> files;
  if (auto status = open_file_system(FLAGS_fs_uri, &files); !status.ok()) {
    return failed("--fs_uri", status);
  }
  return run(rocksdb::NewCompositeEnv(std::move(files)).get());
}

}  // namespace
}  // namespace furrow::bench

int main(int argc, char** argv) { return furrow::bench::main_of_wal_beside_fill(argc, argv); }
