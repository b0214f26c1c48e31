// Establishes that the FileSystem does what RocksDB's own for POSIX does: the same random calls go
// to both, on names in a few directories, and answers, contents and listings are compared; now and
// then the volume is mounted anew. FURROW_TEST_SEED replays.
#include <gtest/gtest.h>
#include <rocksdb/file_system.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include "engine/rocksdb/file_system.h"
#include "tests/engine/files/files_rig.h"
#include "tests/log/test_seed.h"
#include "tests/rounds.h"

namespace furrow::testing {
namespace {

using rocksdb::FileOptions;
using rocksdb::FSReadRequest;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

constexpr auto kSteps = static_cast<unsigned>(rounds(6000, 1500));

// What callers tell apart.
std::string kind_of(const IOStatus& status) {
  if (status.ok()) return "ok";
  if (status.IsPathNotFound() || status.IsNotFound()) return "not found";
  return "error";
}

// One of the two, with what is open in it.
struct Side {
  std::shared_ptr<rocksdb::FileSystem> fs;
  std::string root;
  std::unique_ptr<rocksdb::FSWritableFile> writer;
  std::unique_ptr<rocksdb::FSRandomRWFile> changer;
  std::string path(const std::string& name) const { return root + name; }
};

class ContractTest : public ::testing::Test, public FilesRig {
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
    ours_.fs.reset();
  }
  void close() {
    for (Side* side : {&ours_, &posix_}) {
      side->writer.reset();
      side->changer.reset();
    }
  }
  void remount() {
    ours_.fs.reset();
    unmount();
    ASSERT_NO_FATAL_FAILURE(mount());
    ours_.fs = make_file_system(volume(), "furrow://test");
  }

  std::string directory() {
    static const std::string kDirectories[] = {"/", "/a", "/b", "/a/c"};
    return kDirectories[random_() % 4];
  }
  std::string name() {
    const std::string in = directory();
    return (in == "/" ? "" : in) + "/" + std::string(1, static_cast<char>('p' + random_() % 4));
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

  void change_names();
  void look();
  void begin_writing();
  void write();
  void write_anywhere();
  void change();
  void read();
  IOStatus read_randomly(Side& side, const std::string& at, std::uint64_t seed,
                         std::vector<std::string>& pieces);

  const IOOptions options_;
  std::mt19937_64 random_{test_seed()};
  Side ours_, posix_;
  bool anywhere_ = false;  // the writers get positions, as with direct I/O
};

void ContractTest::change_names() {
  const std::string one = name(), other = name(), in = directory();
  switch (random_() % 8) {
    case 0:
      both("CreateDir", [&](Side& s) { return s.fs->CreateDir(s.path(in), options_, nullptr); });
      break;
    case 1:
      if (in == "/a/c") break;  // ours makes /a as well
      both("CreateDirIfMissing",
           [&](Side& s) { return s.fs->CreateDirIfMissing(s.path(in), options_, nullptr); });
      break;
    case 2:
      if (in == "/") break;
      both("DeleteDir", [&](Side& s) { return s.fs->DeleteDir(s.path(in), options_, nullptr); });
      break;
    case 3:
    case 4:
      both("DeleteFile", [&](Side& s) { return s.fs->DeleteFile(s.path(one), options_, nullptr); });
      break;
    case 5:
      both("RenameFile", [&](Side& s) {
        return s.fs->RenameFile(s.path(one), s.path(other), options_, nullptr);
      });
      break;
    case 6:
      both("LinkFile",
           [&](Side& s) { return s.fs->LinkFile(s.path(one), s.path(other), options_, nullptr); });
      break;
    default:
      const std::size_t size = random_() % (random_() % 2 == 0 ? 3000 : 400'000);
      close();  // a writer would go on where it was
      both("Truncate", [&](Side& s) {
        if (&s == &ours_) return s.fs->Truncate(s.path(one), size, options_, nullptr);
        if (::truncate(s.path(one).c_str(), static_cast<off_t>(size)) == 0) return IOStatus::OK();
        return errno == ENOENT ? IOStatus::PathNotFound() : IOStatus::IOError();
      });
  }
}

void ContractTest::look() {
  const std::string one = name(), other = name(), in = directory();
  both("FileExists", [&](Side& s) { return s.fs->FileExists(s.path(one), options_, nullptr); });
  both_give<std::uint64_t>("GetFileSize", [&](Side& s, std::uint64_t& size) {
    bool directory = false;
    const IOStatus status = s.fs->IsDirectory(s.path(one), options_, &directory, nullptr);
    return directory ? status : s.fs->GetFileSize(s.path(one), options_, &size, nullptr);
  });
  both_give<std::uint64_t>("NumFileLinks", [&](Side& s, std::uint64_t& count) {
    return s.fs->NumFileLinks(s.path(one), options_, &count, nullptr);
  });
  both_give<bool>("AreFilesSame", [&](Side& s, bool& same) {
    return s.fs->AreFilesSame(s.path(one), s.path(other), options_, &same, nullptr);
  });
  both_give<bool>("IsDirectory", [&](Side& s, bool& is) {
    return s.fs->IsDirectory(s.path(in), options_, &is, nullptr);
  });
  both_give<std::vector<std::string>>("GetChildren", [&](Side& s, std::vector<std::string>& all) {
    const IOStatus status = s.fs->GetChildren(s.path(in), options_, &all, nullptr);
    std::sort(all.begin(), all.end());
    return status;
  });
}

void ContractTest::begin_writing() {
  const std::string at = name();
  const bool again = random_() % 2 == 0;  // POSIX adds to the end then, wherever it is told to
  anywhere_ = !again && random_() % 3 == 0;
  close();
  if (again && !posix_.fs->FileExists(posix_.path(at), options_, nullptr).ok()) return;
  const bool opened = both("NewWritableFile", [&](Side& s) {
    return again ? s.fs->ReopenWritableFile(s.path(at), FileOptions(), &s.writer, nullptr)
                 : s.fs->NewWritableFile(s.path(at), FileOptions(), &s.writer, nullptr);
  });
  if (!opened) ours_.writer.reset();
}

void ContractTest::write_anywhere() {
  const std::string bytes = text();
  const std::uint64_t at = random_() % (random_() % 4 == 0 ? 300'000 : 5000);
  const std::uint64_t size = posix_.writer->GetFileSize(options_, nullptr);
  switch (random_() % 4) {
    case 0:
      both("Truncate", [&](Side& s) { return s.writer->Truncate(at, options_, nullptr); });
      break;
    case 1:
      both("PositionedAppend",
           [&](Side& s) { return s.writer->PositionedAppend(bytes, size, options_, nullptr); });
      break;
    default:
      both("PositionedAppend",
           [&](Side& s) { return s.writer->PositionedAppend(bytes, at, options_, nullptr); });
  }
}

// A file that is there, read and written anywhere.
void ContractTest::change() {
  if (!posix_.changer || !ours_.changer) {
    const std::string at = name();
    close();
    const bool opened = both("NewRandomRWFile", [&](Side& s) {
      return s.fs->NewRandomRWFile(s.path(at), FileOptions(), &s.changer, nullptr);
    });
    if (!opened) close();
    return;
  }
  const std::string bytes = text();
  const std::uint64_t at = random_() % (random_() % 4 == 0 ? 300'000 : 5000);
  switch (random_() % 8) {
    case 0:
      both("Sync", [&](Side& s) { return s.changer->Sync(options_, nullptr); });
      break;
    case 1:
      both("Close", [&](Side& s) {
        const IOStatus status = s.changer->Close(options_, nullptr);
        s.changer.reset();
        return status;
      });
      break;
    case 2:
    case 3:
      both_give<std::string>("Read", [&](Side& s, std::string& got) {
        std::vector<char> memory(100'000);
        Slice result;
        const IOStatus status =
            s.changer->Read(at, memory.size(), options_, &result, memory.data(), nullptr);
        got = result.ToString();
        return status;
      });
      break;
    default:
      both("Write", [&](Side& s) { return s.changer->Write(at, bytes, options_, nullptr); });
  }
}

void ContractTest::write() {
  if (!posix_.writer || !ours_.writer) return begin_writing();
  const std::string bytes = text();
  switch (random_() % 6) {
    case 0:
      both("Sync", [&](Side& s) { return s.writer->Sync(options_, nullptr); });
      break;
    case 1:
      both("Flush", [&](Side& s) { return s.writer->Flush(options_, nullptr); });
      break;
    case 2:
      both("Close", [&](Side& s) {
        const IOStatus status = s.writer->Close(options_, nullptr);
        s.writer.reset();
        return status;
      });
      break;
    default:
      if (anywhere_) return write_anywhere();
      both("Append", [&](Side& s) { return s.writer->Append(bytes, options_, nullptr); });
  }
}

IOStatus ContractTest::read_randomly(Side& side, const std::string& at, std::uint64_t seed,
                                     std::vector<std::string>& pieces) {
  std::mt19937_64 random(seed);
  std::unique_ptr<rocksdb::FSRandomAccessFile> file;
  IOStatus status = side.fs->NewRandomAccessFile(side.path(at), FileOptions(), &file, nullptr);
  if (!status.ok()) return status;
  std::vector<FSReadRequest> requests(1 + random() % 40);
  std::vector<std::vector<char>> memory(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].offset = random() % 120'000;
    requests[i].len = 1 + random() % 9000;
    memory[i].resize(requests[i].len);
    requests[i].scratch = memory[i].data();
  }
  const bool async = random() % 2 == 0 && &side == &ours_;  // POSIX has none in this build
  if (!async) {
    status = file->MultiRead(requests.data(), requests.size(), options_, nullptr);
  } else {
    std::vector<void*> handles;
    for (FSReadRequest& request : requests) {
      void* handle = nullptr;
      rocksdb::IOHandleDeleter deleter;
      status = file->ReadAsync(
          request, options_,
          [](const FSReadRequest& done, void* to) { *static_cast<FSReadRequest*>(to) = done; },
          &request, &handle, &deleter, nullptr);
      std::vector<void*> one{handle};
      if (handle != nullptr) status = side.fs->Poll(one, 1);
      if (deleter) deleter(handle);
    }
  }
  for (const FSReadRequest& request : requests) {
    pieces.push_back(kind_of(request.status) + ":" + request.result.ToString());
  }
  return status;
}

void ContractTest::read() {
  const std::string at = name();
  bool directory = false;
  if (posix_.fs->IsDirectory(posix_.path(at), options_, &directory, nullptr).ok() && directory) {
    return;
  }
  const std::uint64_t seed = random_();
  both_give<std::vector<std::string>>("RandomAccessFile",
                                      [&](Side& s, std::vector<std::string>& pieces) {
                                        return read_randomly(s, at, seed, pieces);
                                      });
  both_give<std::string>("SequentialFile", [&](Side& s, std::string& all) {
    std::mt19937_64 random(seed);
    std::unique_ptr<rocksdb::FSSequentialFile> file;
    IOStatus status = s.fs->NewSequentialFile(s.path(at), FileOptions(), &file, nullptr);
    for (bool more = status.ok(); more;) {
      std::vector<char> memory(1 + random() % 20'000);
      Slice got;
      status = file->Read(memory.size(), options_, &got, memory.data(), nullptr);
      all.append(got.data(), got.size());
      more = status.ok() && got.size() == memory.size();
      if (more && random() % 4 == 0) (void)file->Skip(random() % 100);
    }
    return status;
  });
}

TEST_F(ContractTest, DoesWhatPosixDoes) {
  for (unsigned step = 0; step < kSteps && !HasFailure(); ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    switch (random_() % 12) {
      case 0:
      case 1:
        change_names();
        break;
      case 2:
        look();
        break;
      case 3:
        read();
        break;
      case 4:
      case 5:
      case 6:
        change();
        break;
      default:
        write();
    }
    if (step % 500 == 499) {
      close();
      ASSERT_NO_FATAL_FAILURE(remount());
    }
  }
}

TEST_F(ContractTest, LocksAreHeldOnce) {
  rocksdb::FileLock* lock = nullptr;
  ASSERT_TRUE(ours_.fs->LockFile("/LOCK", options_, &lock, nullptr).ok());
  EXPECT_TRUE(ours_.fs->FileExists("/LOCK", options_, nullptr).ok());
  rocksdb::FileLock* again = nullptr;
  EXPECT_TRUE(ours_.fs->LockFile("/LOCK", options_, &again, nullptr).IsIOError());
  EXPECT_EQ(again, nullptr);
  EXPECT_TRUE(ours_.fs->UnlockFile(lock, options_, nullptr).ok());
  ASSERT_TRUE(ours_.fs->LockFile("/LOCK", options_, &lock, nullptr).ok());
  EXPECT_TRUE(ours_.fs->UnlockFile(lock, options_, nullptr).ok());
}

TEST_F(ContractTest, PathsIdsAndRoom) {
  std::string text;
  EXPECT_TRUE(ours_.fs->GetAbsolutePath("a/./b/../c", options_, &text, nullptr).ok());
  EXPECT_EQ(text, "/a/c");
  EXPECT_TRUE(ours_.fs->GetTestDirectory(options_, &text, nullptr).ok());
  bool directory = false;
  EXPECT_TRUE(ours_.fs->IsDirectory(text, options_, &directory, nullptr).ok());
  EXPECT_TRUE(directory);
  std::uint64_t before = 0, after = 0;
  ASSERT_TRUE(ours_.fs->GetFreeSpace("/", options_, &before, nullptr).ok());
  EXPECT_GT(before, 100u << 20);
  EXPECT_LT(before, 256u << 20);
  std::unique_ptr<rocksdb::FSWritableFile> file;
  ASSERT_TRUE(ours_.fs->NewWritableFile("/f", FileOptions(), &file, nullptr).ok());
  ASSERT_TRUE(file->Append(std::string(10 << 20, 'x'), options_, nullptr).ok());
  ASSERT_TRUE(file->Close(options_, nullptr).ok());
  ASSERT_TRUE(ours_.fs->GetFreeSpace("/", options_, &after, nullptr).ok());
  EXPECT_GE(before - after, 10u << 20);
  EXPECT_LE(before - after, 11u << 20);
  char one[64], other[64];
  std::unique_ptr<rocksdb::FSRandomAccessFile> reader;
  ASSERT_TRUE(ours_.fs->NewRandomAccessFile("/f", FileOptions(), &reader, nullptr).ok());
  const std::size_t bytes = reader->GetUniqueId(one, sizeof one);
  EXPECT_GT(bytes, 0u);
  EXPECT_EQ(file->GetUniqueId(other, sizeof other), bytes);
  EXPECT_EQ(std::string(one, bytes), std::string(other, bytes));
  EXPECT_EQ(reader->GetUniqueId(one, bytes - 1), 0u);
  EXPECT_TRUE(reader->Prefetch(0, 1, options_, nullptr).IsNotSupported());
}

TEST_F(ContractTest, APoolThatSomebodyElseHasIsNotSupported) {
  std::unique_ptr<rocksdb::FileSystem> another;
  const rocksdb::Status status = open_file_system("furrow://" + uri(), &another);
  EXPECT_TRUE(status.IsNotSupported()) << status.ToString();
  EXPECT_NE(status.ToString().find("in use by process " + std::to_string(getpid())),
            std::string::npos)
      << status.ToString();
  EXPECT_EQ(another, nullptr);
  EXPECT_TRUE(open_file_system("furrow://", &another).IsInvalidArgument());
  EXPECT_TRUE(open_file_system("furrow://emu:/nowhere/pool.img", &another).IsIOError());
}

}  // namespace
}  // namespace furrow::testing
