// index_bench: what the index costs by itself, with generated keys. Reports CPU time an insert
// and a look-up (one thread; keys that are there, keys that are not), bytes of DRAM an entry, and
// the time of a bulk load of the same entries.

#include <gflags/gflags.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "log/index.h"
#include "zone/check.h"

DEFINE_uint64(entries, 10'000'000, "entries in the index");
DEFINE_uint64(finds, 10'000'000, "look-ups to time");
DEFINE_uint64(seed, 1, "of the generated keys");
DEFINE_uint32(same_length, 0, "all pages have this length, as a block volume's; 0: they differ");
DEFINE_bool(load, true, "also time a bulk load (32 more bytes of memory an entry)");

namespace furrow {
namespace {

// Order of key number i, spread as the keyed hash would: a bijection, so that keys differ.
std::uint64_t order_of(std::uint64_t i) {
  std::uint64_t x = i + FLAGS_seed * 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

IndexEntry entry_of(std::uint64_t i) {
  const std::uint32_t length =
      FLAGS_same_length != 0 ? FLAGS_same_length : static_cast<std::uint32_t>(i % 65536) + 1;
  return {i, length, static_cast<std::uint32_t>(i * 7), false, false};
}

// CPU time of the thread: what the neighbours on a shared machine take does not count.
class Stopwatch {
 public:
  double ns_each(std::uint64_t times) const {
    return static_cast<double>(now_ns() - start_ns_) /
           static_cast<double>(std::max<std::uint64_t>(times, 1));
  }

 private:
  static std::uint64_t now_ns() {
    timespec now{};
    FURROW_CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
           static_cast<std::uint64_t>(now.tv_nsec);
  }
  std::uint64_t start_ns_ = now_ns();
};

// `first`: number of the first key asked for. Returns how many candidates came.
std::uint64_t time_finds(const Index& index, std::uint64_t first, const char* what) {
  std::uint64_t candidates = 0;
  IndexEntry found[4];
  const Stopwatch watch;
  for (std::uint64_t i = 0; i < FLAGS_finds; ++i) {
    // A large prime step: neighbours in time are strangers in memory.
    const std::uint64_t key = first + i * 2'654'435'761u % FLAGS_entries;
    candidates += index.find(order_of(key), 0, found);
  }
  std::printf("%-28s %8.1f ns, %.4f candidates each\n", what, watch.ns_each(FLAGS_finds),
              static_cast<double>(candidates) / static_cast<double>(FLAGS_finds));
  return candidates;
}

void report_bytes(const Index& index, const char* what) {
  std::printf("%-28s %8.3f bytes an entry\n", what,
              static_cast<double>(index.bytes()) / static_cast<double>(index.size()));
}

void time_inserts() {
  Index index(FLAGS_entries, {FLAGS_same_length, 0});
  const Stopwatch watch;
  for (std::uint64_t i = 0; i < FLAGS_entries; ++i) index.insert(order_of(i), entry_of(i));
  std::printf("%-28s %8.1f ns\n", "insert", watch.ns_each(FLAGS_entries));
  report_bytes(index, "after inserts");
  time_finds(index, 0, "find, present");
  time_finds(index, FLAGS_entries, "find, absent");
}

void time_load() {
  std::vector<Index::Loaded> records(FLAGS_entries);
  for (std::uint64_t i = 0; i < FLAGS_entries; ++i) records[i] = {order_of(i), entry_of(i)};
  std::ranges::sort(records, {}, &Index::Loaded::order);
  Index index(FLAGS_entries, {FLAGS_same_length, 0});
  const Stopwatch watch;
  index.load(records);
  std::printf("%-28s %8.1f ns, %.2f s\n", "bulk load, sorted before", watch.ns_each(FLAGS_entries),
              watch.ns_each(1) / 1e9);
  report_bytes(index, "after bulk load");
}

}  // namespace
}  // namespace furrow

int main(int argc, char** argv) {
  gflags::SetUsageMessage("[--entries=N] [--finds=N]: what the index costs by itself");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  if (FLAGS_entries == 0 || argc > 1) {
    std::fprintf(stderr, "index_bench: --entries must not be 0, and there are no arguments\n");
    return 2;
  }
  std::printf("%lu entries\n", FLAGS_entries);
  furrow::time_inserts();
  if (FLAGS_load) furrow::time_load();
  return 0;
}
