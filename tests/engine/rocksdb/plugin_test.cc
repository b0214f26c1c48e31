// Establishes what furrow:// URIs promise within a process: several FileSystems of a volume are one
// mount, which goes with the last of them; several databases are open in it at once; volumes are
// told apart by name; RocksDB makes FileSystem and Env of one, once it is registered; and what does
// not say enough, or too much, is refused in words that tell what to do.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <rocksdb/convenience.h>
#include <rocksdb/iostats_context.h>
#include <rocksdb/perf_level.h>
#include <rocksdb/utilities/object_registry.h>
#include <sys/file.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "engine/embedded_pool.h"
#include "tests/engine/rocksdb/db_rig.h"
#include "zone/emu_file.h"

namespace furrow::testing {
namespace {

class PluginTest : public ::testing::Test, public PoolFile {
 protected:
  std::string fs_uri() const { return "furrow://" + uri(); }
  static std::unique_ptr<rocksdb::Env> env_of(const std::string& uri) {
    std::unique_ptr<rocksdb::FileSystem> files;
    const rocksdb::Status status = open_file_system(uri, &files);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return status.ok() ? rocksdb::NewCompositeEnv(std::move(files)) : nullptr;
  }
  static std::unique_ptr<rocksdb::DB> open(rocksdb::Env* env, const std::string& name) {
    rocksdb::DB* db = nullptr;
    const rocksdb::Status status = rocksdb::DB::Open(small_options(env), name, &db);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return std::unique_ptr<rocksdb::DB>(db);
  }
  static void put(rocksdb::DB& db, unsigned version) {
    for (unsigned i = 0; i < 300; ++i) {
      ASSERT_TRUE(db.Put({}, db_key(i), db_value(i, version)).ok());
    }
  }
  static void expect_version(rocksdb::DB& db, int version) {
    std::string value;
    for (unsigned i = 0; i < 300; ++i) {
      ASSERT_TRUE(db.Get({}, db_key(i), &value).ok()) << i;
      EXPECT_EQ(db_version(i, value), version);
    }
  }
  static std::string refusal(const std::string& uri) {
    std::unique_ptr<rocksdb::FileSystem> files;
    return open_file_system(uri, &files).ToString();
  }
  bool is_free() const { return open_device(uri(), Access::exclusive).ok(); }
};

TEST_F(PluginTest, SeveralFileSystemsAreOneMount) {
  std::unique_ptr<rocksdb::Env> first = env_of(fs_uri() + "?create=128MiB");
  ASSERT_NE(first, nullptr);
  std::unique_ptr<rocksdb::Env> second = env_of(fs_uri());
  ASSERT_NE(second, nullptr);
  // What one does the other sees, open files included.
  auto one = open(first.get(), "/one"), two = open(second.get(), "/two");
  ASSERT_TRUE(one && two);
  put(*one, 1);
  put(*two, 2);
  EXPECT_TRUE(second->FileExists("/one/CURRENT").ok());
  EXPECT_TRUE(first->FileExists("/two/CURRENT").ok());
  rocksdb::DB* again = nullptr;
  const rocksdb::Status locked = rocksdb::DB::Open(small_options(second.get()), "/one", &again);
  EXPECT_TRUE(locked.IsIOError()) << locked.ToString() << ": its LOCK is held by the other";
  // The mount is the last one's.
  one.reset();
  first.reset();
  expect_version(*two, 2);
  put(*two, 3);
  EXPECT_FALSE(is_free());
  one = open(second.get(), "/one");
  ASSERT_NE(one, nullptr);
  expect_version(*one, 1);
  one.reset();
  two.reset();
  second.reset();
  EXPECT_TRUE(is_free());
  first = env_of(fs_uri());
  ASSERT_NE(first, nullptr);
  two = open(first.get(), "/two");
  ASSERT_NE(two, nullptr);
  expect_version(*two, 3);
}

// Made by one spelling, and opened by others while it is being made.
TEST_F(PluginTest, OnePoolIsOneMountHoweverItIsSpelt) {
  const std::filesystem::path file = path(), in = file.parent_path();
  std::filesystem::create_directory(in / "sub");
  std::filesystem::create_directory_symlink(in, in / "link");
  const std::string spellings[] = {
      "furrow://emu:" + in.string() + "//sub/../pool.img?create=128MiB",
      "furrow://emu:" + in.string() + "/link/pool.img?create=128MiB",
      fs_uri() + "?volume=files&create=128MiB",
      fs_uri() + "?create=128MiB&direct=1",
      fs_uri() + "?direct=1&create=128MiB",
  };
  const std::unique_ptr<rocksdb::Env> first = env_of(fs_uri() + "?direct=1&create=128MiB");
  ASSERT_NE(first, nullptr);
  ASSERT_TRUE(rocksdb::WriteStringToFile(first.get(), "of all", "/name").ok());
  for (const std::string& each : spellings) {
    SCOPED_TRACE(each);
    const std::unique_ptr<rocksdb::Env> again = env_of(each);
    ASSERT_NE(again, nullptr);
    EXPECT_TRUE(again->FileExists("/name").ok());
  }
  std::filesystem::create_hard_link(file, in / "hard");
  EXPECT_NE(env_of("furrow://emu:" + (in / "hard").string()), nullptr);
  // What they say of the device is said to be different where it is.
  for (const std::string other : {"direct=0", "reclaim=never", "io_mode=sqpoll"}) {
    std::unique_ptr<rocksdb::FileSystem> files;
    const rocksdb::Status status = open_file_system(fs_uri() + "?" + other, &files);
    EXPECT_TRUE(status.IsInvalidArgument()) << status.ToString();
    const std::string name = other.substr(0, other.find('=') + 1);
    EXPECT_NE(status.ToString().find("another " + name), std::string::npos) << status.ToString();
  }
}

TEST_F(PluginTest, AFileThatIsMadeMayHaveAllItsBlocks) {
  EXPECT_NE(refusal(fs_uri() + "?preallocate=1").find("create="), std::string::npos);
  EXPECT_NE(refusal(fs_uri() + "?create=64MiB&preallocate=yes").find("0 or 1"), std::string::npos);
  for (const bool all : {true, false}) {
    ASSERT_NE(env_of(fs_uri() + "?create=64MiB&preallocate=" + (all ? "1" : "0")), nullptr);
    EXPECT_EQ((*open_device("emu:" + path(), Access::inspect))->preallocated(), all);
    std::filesystem::remove(path());
  }
}

// A pool whose lock nobody knows to hold is waited for, for some seconds.
TEST_F(PluginTest, OpeningOneWaitsForNoOther) {
  ASSERT_NE(env_of(fs_uri() + "?create=128MiB"), nullptr);
  const emu::Fd held(::open(path().c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(flock(held.get(), LOCK_SH), 0);
  std::atomic<bool> slow_begun{false}, slow_done{false};
  std::thread slow([&] {
    slow_begun = true;
    EXPECT_NE(refusal(fs_uri()).find("in use"), std::string::npos);
    slow_done = true;
  });
  while (!slow_begun) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_NE(env_of("furrow://mem:128MiB"), nullptr);
  EXPECT_FALSE(slow_done) << "the other one was waited for";
  slow.join();
}

TEST_F(PluginTest, VolumesAreToldApartByName) {
  {
    EmbeddedPool::CreateOptions make;
    make.size_bytes = 128 << 20;
    make.volume.name = "a";
    make.volume.kind = VolumeKind::fs;
    make.volume.mode = VolumeMode::store;
    make.volume.value_bytes_max = 64 << 10;
    make.volume.quota_bytes = 32 << 20;
    auto pool = EmbeddedPool::open(uri(), make);
    ASSERT_TRUE(pool.ok()) << pool.status().describe();
    (*pool)->call([&make](Pool& its) {
      make.volume.name = "b";
      const auto made = its.create_volume(make.volume);
      EXPECT_TRUE(made.ok()) << made.status().describe();
    });
  }
  EXPECT_NE(refusal(fs_uri()).find("say which"), std::string::npos) << refusal(fs_uri());
  EXPECT_NE(refusal(fs_uri() + "?volume=none").find("no such volume"), std::string::npos);
  const std::unique_ptr<rocksdb::Env> first = env_of(fs_uri() + "?volume=a");
  const std::unique_ptr<rocksdb::Env> second = env_of(fs_uri() + "?volume=b");
  ASSERT_TRUE(first && second);
  ASSERT_TRUE(rocksdb::WriteStringToFile(first.get(), "of a", "/name").ok());
  EXPECT_TRUE(second->FileExists("/name").IsNotFound());
  ASSERT_TRUE(rocksdb::WriteStringToFile(second.get(), "of b", "/name").ok());
  std::string name;
  ASSERT_TRUE(rocksdb::ReadFileToString(first.get(), "/name", &name).ok());
  EXPECT_EQ(name, "of a");
}

TEST_F(PluginTest, RocksDbMakesBothKindsOfObjects) {
  EXPECT_EQ(register_furrow(*rocksdb::ObjectLibrary::Default(), ""), 2);
  const rocksdb::ConfigOptions config;
  {
    std::shared_ptr<rocksdb::FileSystem> files;
    const rocksdb::Status status =
        rocksdb::FileSystem::CreateFromString(config, fs_uri() + "?create=128MiB", &files);
    ASSERT_TRUE(status.ok()) << status.ToString();
    const std::unique_ptr<rocksdb::Env> env = rocksdb::NewCompositeEnv(files);
    const auto db = open(env.get(), "/db");
    ASSERT_NE(db, nullptr);
    put(*db, 7);
  }
  for (const bool as_env : {true, false}) {
    rocksdb::Env* env = nullptr;
    std::shared_ptr<rocksdb::Env> guard;
    const rocksdb::Status status = rocksdb::Env::CreateFromUri(
        config, as_env ? fs_uri() : "", as_env ? "" : fs_uri(), &env, &guard);
    ASSERT_TRUE(status.ok()) << status.ToString();
    const auto db = open(env, "/db");
    ASSERT_NE(db, nullptr);
    expect_version(*db, 7);
  }
}

TEST_F(PluginTest, UsageIsToldToWhoAsks) {
  std::unique_ptr<rocksdb::FileSystem> files;
  ASSERT_TRUE(open_file_system(fs_uri() + "?create=128MiB", &files).ok());
  const std::shared_ptr<rocksdb::FileSystem> shared = std::move(files);
  const std::unique_ptr<rocksdb::Env> env = rocksdb::NewCompositeEnv(shared);
  const auto before = usage_of(*env->GetFileSystem());
  ASSERT_TRUE(before);
  rocksdb::SetPerfLevel(rocksdb::kEnableTime);
  rocksdb::get_iostats_context()->Reset();
  ASSERT_TRUE(rocksdb::WriteStringToFile(env.get(), std::string(5 << 20, 'x'), "/file").ok());
  EXPECT_GT(rocksdb::get_iostats_context()->open_nanos, 0u);
  rocksdb::SetPerfLevel(rocksdb::kDisable);
  const auto after = usage_of(*shared);
  ASSERT_TRUE(after);
  EXPECT_EQ(after->appended - before->appended, 5u << 20);
  EXPECT_GT(after->device - before->device, 5u << 20);
  EXPECT_EQ(after->relocated, 0u);
  EXPECT_GE(before->free - after->free, 5u << 20);
  std::uint64_t free = 0;
  ASSERT_TRUE(env->GetFreeSpace("/", &free).ok());
  EXPECT_EQ(free, after->free);
  EXPECT_FALSE(usage_of(*rocksdb::FileSystem::Default()));
}

TEST_F(PluginTest, WhatIsWrongIsSaid) {
  EXPECT_NE(refusal("furrow://").find("DEVICE-URI"), std::string::npos);
  EXPECT_NE(refusal(fs_uri() + "?create=much").find("create=SIZE"), std::string::npos);
  const std::string missing = refusal(fs_uri());
  EXPECT_NE(missing.find("not found"), std::string::npos) << missing;
  EXPECT_NE(missing.find("create=SIZE"), std::string::npos) << missing;
  const std::string nowhere = refusal("furrow://emu:" + path() + ".missing/pool.img?create=128MiB");
  EXPECT_NE(nowhere.find("its directory"), std::string::npos) << nowhere;
  EXPECT_EQ(nowhere.find("create=SIZE"), std::string::npos) << nowhere;
  // RocksDB's programs crash at a scheme that is nobody's.
  std::shared_ptr<rocksdb::FileSystem> files;
  const auto empty = rocksdb::FileSystem::CreateFromString({}, "furrow://", &files);
  EXPECT_NE(empty.ToString().find("DEVICE-URI"), std::string::npos) << empty.ToString();
}

}  // namespace
}  // namespace furrow::testing
