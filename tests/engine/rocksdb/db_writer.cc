// usage: db_writer FURROW-URI SEED
// A database that kill_test kills, of options that the seed draws: threads put keys in turn, each
// its own, some of them with a sync, each value naming its version, and say on standard output, a
// line each, what RocksDB has acknowledged: KEY VERSION. Goes on until it is killed. Exit status 1,
// and why on standard error, if anything fails.
#include <rocksdb/db.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "tests/engine/rocksdb/db_rig.h"

namespace {

constexpr unsigned kKeys = 3000;

int fail(const char* what, const rocksdb::Status& status) {
  std::fprintf(stderr, "db_writer: %s: %s\n", what, status.ToString().c_str());
  return 1;
}

// Of the keys every `writers`th.
int write_on(const furrow::testing::Families& opened, unsigned writer, unsigned writers,
             std::uint64_t seed) {
  rocksdb::DB* const db = opened.db.get();
  std::mt19937_64 random(seed);
  const bool syncs = random() % 2 == 0;
  for (;;) {
    const unsigned key = static_cast<unsigned>(random() % (kKeys / writers)) * writers + writer;
    std::string old;
    rocksdb::Status status = db->Get({}, opened.of(key), furrow::testing::db_key(key), &old);
    const int before = status.ok() ? furrow::testing::db_version(key, old) : 0;
    if (before < 0 || (!status.ok() && !status.IsNotFound())) return fail("wrong value", status);
    const unsigned next = static_cast<unsigned>(before) + 1;
    rocksdb::WriteOptions writing;
    writing.sync = syncs && random() % 10 == 0;
    status = db->Put(writing, opened.of(key), furrow::testing::db_key(key),
                     furrow::testing::db_value(key, next));
    if (!status.ok()) return fail("put", status);
    char line[32];
    const int bytes = std::snprintf(line, sizeof line, "%u %u\n", key, next);
    if (write(STDOUT_FILENO, line, static_cast<std::size_t>(bytes)) != bytes) return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  std::unique_ptr<rocksdb::FileSystem> files;
  rocksdb::Status status = furrow::open_file_system(argv[1], &files);
  if (!status.ok()) return fail("mount", status);
  const auto env = rocksdb::NewCompositeEnv(std::move(files));
  std::mt19937_64 random(std::strtoull(argv[2], nullptr, 10));
  furrow::testing::Families opened;
  status = open_families(2, furrow::testing::drawn_options(random(), env.get()), opened);
  if (!status.ok()) return fail("open", status);
  const auto writers = static_cast<unsigned>(1 + random() % 4);
  std::vector<std::jthread> threads;
  for (unsigned writer = 0; writer < writers; ++writer) {
    threads.emplace_back(
        [&, writer, seed = random()] { std::_Exit(write_on(opened, writer, writers, seed)); });
  }
}
