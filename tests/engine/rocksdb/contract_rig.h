// ContractRig: the FileSystem on a volume, and RocksDB's own for POSIX in a directory beside it.
// The same calls go to both, and their answers are compared.
#pragma once

#include <gtest/gtest.h>
#include <rocksdb/env.h>
#include <rocksdb/file_system.h>

#include <memory>
#include <random>
#include <string>

#include "engine/rocksdb/file_system.h"
#include "tests/engine/files/files_rig.h"
#include "tests/log/test_seed.h"

namespace furrow::testing {

using rocksdb::FileOptions;
using rocksdb::FSReadRequest;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

// What callers tell apart: a code and what it says more closely. (A file that is not there is
// either of two of these.)
inline std::string kind_of(const IOStatus& status) {
  if (status.ok()) return "ok";
  if (status.IsPathNotFound() || status.IsNotFound()) return "not found";
  const std::string text = status.ToString();
  return text.substr(0, text.find(':')) + ' ' + std::to_string(status.subcode());
}

// One of the two, with what is open in it.
struct Side {
  std::shared_ptr<rocksdb::FileSystem> fs;
  std::string root;
  std::unique_ptr<rocksdb::FSWritableFile> writer;
  std::unique_ptr<rocksdb::FSRandomRWFile> changer;
  std::unique_ptr<rocksdb::FSRandomAccessFile> reader;  // also while others change what it reads
  std::string path(const std::string& name) const { return root + name; }
};

class ContractRig : public ::testing::Test, public FilesRig {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(mount(256 << 20));
    ours_.fs = make_file_system(volume(), "furrow://test");
    ours_.root = "";
    posix_.fs = rocksdb::FileSystem::Default();
    posix_.root = path() + ".posix";
    ASSERT_TRUE(posix_.fs->CreateDir(posix_.root, options_, nullptr).ok());
  }
  void TearDown() override {
    close();
    close_readers();
    ours_.fs.reset();
  }
  void close() {
    for (Side* side : {&ours_, &posix_}) {
      side->writer.reset();
      side->changer.reset();
    }
  }
  void close_readers() {
    ours_.reader.reset();
    posix_.reader.reset();
  }
  void remount() {
    ours_.fs.reset();
    unmount();
    ASSERT_NO_FATAL_FAILURE(mount());
    ours_.fs = make_file_system(volume(), "furrow://test");
  }

  std::string text() {
    std::string made(random_() % (random_() % 5 == 0 ? 100'000 : 2000), '\0');
    for (char& c : made) c = static_cast<char>(random_());
    return made;
  }

  // The same call to both; the same kind of answer is expected.
  template <class Call>
  bool both(const char* what, const Call& call) {
    const IOStatus theirs = call(posix_), ours = call(ours_);
    EXPECT_EQ(kind_of(ours), kind_of(theirs))
        << what << ": " << ours.ToString() << " instead of " << theirs.ToString();
    return theirs.ok();
  }
  // And the same result.
  template <class T, class Call>
  void both_give(const char* what, const Call& call) {
    T theirs{}, ours{};
    const IOStatus status = call(posix_, theirs), our_status = call(ours_, ours);
    EXPECT_EQ(kind_of(our_status), kind_of(status))
        << what << ": " << our_status.ToString() << " instead of " << status.ToString();
    EXPECT_TRUE(!status.ok() || ours == theirs) << what;
  }

  const IOOptions options_;
  std::mt19937_64 random_{test_seed()};
  Side ours_, posix_;
};

}  // namespace furrow::testing
