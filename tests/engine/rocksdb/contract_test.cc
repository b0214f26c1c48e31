// Establishes that the FileSystem does what RocksDB's own for POSIX does: the same random calls go
// to both, on names in a few directories, and answers, contents and listings are compared; now and
// then the volume is mounted anew. FURROW_TEST_SEED replays. What RocksDB does in one way only, as
// with direct I/O, both are asked for in that way.
#include <gtest/gtest.h>
#include <rocksdb/env.h>
#include <rocksdb/file_system.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <random>
#include <sstream>
#include <thread>

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

// What callers tell apart: a code and what it says more closely. (A file that is not there is
// either of two of these.)
std::string kind_of(const IOStatus& status) {
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

  std::string directory() {
    static const std::string kDirectories[] = {"/", "/a", "/b", "/a/c"};
    if (random_() % 16 == 0) return name();  // of a file, as a rule
    return kDirectories[random_() % 4];
  }
  std::string name() {
    static const std::string kDirectories[] = {"/a", "/b", "/a/c"};
    if (random_() % 16 == 0) return kDirectories[random_() % 3];
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

  bool is_directory(const std::string& at) {
    bool directory = false;
    return posix_.fs->IsDirectory(posix_.path(at), options_, &directory, nullptr).ok() && directory;
  }
  void change_names();
  void look();
  void begin_writing();
  void write();
  void write_anywhere();
  void change();
  void read();
  void read_on();
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
      // Ours makes those above it as well.
      if (!posix_.fs->FileExists(posix_.path(in.substr(0, in.rfind('/'))), options_, nullptr)
               .ok()) {
        break;
      }
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
    case 6: {
      // Of two names that are wrong, which of them is told is left to either.
      const bool there = posix_.fs->FileExists(posix_.path(one), options_, nullptr).ok();
      both("LinkFile", [&](Side& s) {
        const IOStatus status = s.fs->LinkFile(s.path(one), s.path(other), options_, nullptr);
        return there || status.ok() ? status : IOStatus::PathNotFound();
      });
      break;
    }
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
    bool directory = false;  // POSIX counts those in it
    const IOStatus status = s.fs->IsDirectory(s.path(one), options_, &directory, nullptr);
    if (directory) return status;
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
  using Sizes = std::map<std::string, std::uint64_t>;
  both_give<Sizes>("GetChildrenFileAttributes", [&](Side& s, Sizes& sizes) {
    std::vector<rocksdb::Env::FileAttributes> all;
    const IOStatus status = s.fs->GetChildrenFileAttributes(s.path(in), options_, &all, nullptr);
    for (const auto& each : all) {
      bool directory = false;
      const std::string at = s.path(in == "/" ? in : in + "/") + each.name;
      EXPECT_TRUE(s.fs->IsDirectory(at, options_, &directory, nullptr).ok()) << at;
      sizes[each.name] = directory ? 0 : each.size_bytes;
    }
    return status;
  });
  if (!is_directory(in)) return;  // POSIX opens files in that way, too
  both("Directory::Fsync", [&](Side& s) {
    std::unique_ptr<rocksdb::FSDirectory> opened;
    const IOStatus status = s.fs->NewDirectory(s.path(in), options_, &opened, nullptr);
    return status.ok() ? opened->Fsync(options_, nullptr) : status;
  });
}

void ContractTest::begin_writing() {
  const std::string at = name();
  const bool again = random_() % 2 == 0;  // POSIX adds to the end then, wherever it is told to
  anywhere_ = !again && random_() % 3 == 0;
  close();
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
    case 4:
      both("Flush", [&](Side& s) { return s.changer->Flush(options_, nullptr); });
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
  switch (random_() % 10) {
    case 3:
      both("Fsync", [&](Side& s) { return s.writer->Fsync(options_, nullptr); });
      break;
    case 4:
      both("RangeSync", [&](Side& s) { return s.writer->RangeSync(0, 5000, options_, nullptr); });
      break;
    case 5:
      both("Allocate", [&](Side& s) { return s.writer->Allocate(0, 5000, options_, nullptr); });
      both("InvalidateCache", [&](Side& s) { return s.writer->InvalidateCache(0, 0); });
      break;
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
  const unsigned way = random() % 3;
  const bool async = way == 0 && &side == &ours_;  // POSIX has none in this build
  if (way == 1) {
    for (FSReadRequest& request : requests) {
      request.status = file->Read(request.offset, request.len, options_, &request.result,
                                  request.scratch, nullptr);
    }
  } else if (!async) {
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
  if (is_directory(at)) return;
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

// What was opened some steps before; it may be changed, deleted or replaced by now. (Sequential
// files are not asked: POSIX has of them what it has read ahead.)
void ContractTest::read_on() {
  if (!posix_.reader || random_() % 8 == 0) {
    close_readers();
    const std::string at = name();
    if (is_directory(at)) return;
    const bool opened = both("NewRandomAccessFile", [&](Side& s) {
      return s.fs->NewRandomAccessFile(s.path(at), FileOptions(), &s.reader, nullptr);
    });
    if (!opened) return close_readers();
  }
  const std::uint64_t at = random_() % (random_() % 4 == 0 ? 300'000 : 5000);
  std::vector<char> memory(1 + random_() % 50'000);
  both_give<std::string>("Read", [&](Side& s, std::string& got) {
    Slice result;
    const IOStatus status =
        s.reader->Read(at, memory.size(), options_, &result, memory.data(), nullptr);
    got = result.ToString();
    return status;
  });
}

TEST_F(ContractTest, DoesWhatPosixDoes) {
  for (unsigned step = 0; step < kSteps && !HasFailure(); ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    switch (random_() % 13) {
      case 12:
        read_on();
        break;
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
      close_readers();
      ASSERT_NO_FATAL_FAILURE(remount());
    }
  }
}

// How much of what it had is left behind what is written is left to either.
TEST_F(ContractTest, AFileIsUsedAgainUnderAnotherName) {
  for (const bool there : {false, true}) {
    const auto write_file = [this](Side& s, const char* at, const std::string& bytes) {
      IOStatus status = s.fs->NewWritableFile(s.path(at), FileOptions(), &s.writer, nullptr);
      if (status.ok()) status = s.writer->Append(bytes, options_, nullptr);
      return status.ok() ? s.writer->Close(options_, nullptr) : status;
    };
    EXPECT_TRUE(
        both("old", [&](Side& s) { return write_file(s, "/old", std::string(9000, 'o')); }));
    if (there) both("new", [&](Side& s) { return write_file(s, "/new", "replaced"); });
    EXPECT_TRUE(both("ReuseWritableFile", [&](Side& s) {
      IOStatus status = s.fs->ReuseWritableFile(s.path("/new"), s.path("/old"), FileOptions(),
                                                &s.writer, nullptr);
      if (status.ok()) status = s.writer->Append("what is written now", options_, nullptr);
      return status.ok() ? s.writer->Close(options_, nullptr) : status;
    }));
    close();
    both("FileExists",
         [&](Side& s) { return s.fs->FileExists(s.path("/old"), options_, nullptr); });
    both_give<std::string>("contents", [&](Side& s, std::string& all) {
      const IOStatus status = rocksdb::ReadFileToString(s.fs.get(), s.path("/new"), &all);
      all.resize(std::string_view("what is written now").size());
      return status;
    });
  }
  EXPECT_FALSE(both("ReuseWritableFile", [&](Side& s) {
    return s.fs->ReuseWritableFile(s.path("/new"), s.path("/none"), FileOptions(), &s.writer,
                                   nullptr);
  }));
}

// As RocksDB does it: whole sectors, the last of which is written again until it is full, and what
// is too much is cut off at the end; whole sectors are read.
class DirectContractTest : public ContractTest {
 protected:
  static constexpr std::size_t kSector = AlignedBuffer::kAlignment;

  static Slice slice_of(const AlignedBuffer& memory) {
    return {reinterpret_cast<const char*>(memory.data()), memory.size()};
  }
  static FileOptions direct() {
    FileOptions options;
    options.use_direct_reads = options.use_direct_writes = true;
    return options;
  }
  // Behind what is there already.
  void add(std::string& all) {
    const std::size_t at = all.size() / kSector * kSector;
    all += text();
    AlignedBuffer sectors((all.size() - at + kSector - 1) / kSector * kSector);
    std::ranges::fill(sectors.span(), std::byte{0});
    std::ranges::copy(bytes_of(std::string_view(all).substr(at)), sectors.data());
    both("PositionedAppend", [&](Side& s) {
      return s.writer->PositionedAppend(slice_of(sectors), at, options_, nullptr);
    });
  }
  template <class File>
  void read_sectors(const char* what, const std::map<Side*, std::unique_ptr<File>>& files,
                    std::size_t bytes_max, const auto& call) {
    const std::uint64_t at = random_() % (bytes_max / kSector + 2) * kSector;
    const std::size_t bytes = (1 + random_() % 9) * kSector;
    both_give<std::string>(what, [&](Side& s, std::string& got) {
      AlignedBuffer memory(bytes);
      FSReadRequest request;
      request.offset = at;
      request.len = bytes;
      request.scratch = reinterpret_cast<char*>(memory.data());
      const IOStatus status = call(*files.at(&s), request);
      got = request.result.ToString();
      return status;
    });
  }
};

TEST_F(DirectContractTest, FilesAreWrittenAndReadBySectors) {
  if (!posix_.fs->NewWritableFile(posix_.path("/f"), direct(), &posix_.writer, nullptr).ok()) {
    GTEST_SKIP() << "there is no direct I/O in " << posix_.root;
  }
  ASSERT_TRUE(ours_.fs->NewWritableFile("/f", direct(), &ours_.writer, nullptr).ok());
  std::string all;
  for (unsigned i = 0; i < 40; ++i) {
    add(all);
    if (i % 5 == 0) both("Sync", [&](Side& s) { return s.writer->Sync(options_, nullptr); });
    if (i % 5 == 2) both("Flush", [&](Side& s) { return s.writer->Flush(options_, nullptr); });
  }
  both("Truncate", [&](Side& s) { return s.writer->Truncate(all.size(), options_, nullptr); });
  both("Close", [&](Side& s) { return s.writer->Close(options_, nullptr); });
  std::map<Side*, std::unique_ptr<rocksdb::FSRandomAccessFile>> random;
  std::map<Side*, std::unique_ptr<rocksdb::FSSequentialFile>> sequential;
  ASSERT_TRUE(both("NewRandomAccessFile", [&](Side& s) {
    return s.fs->NewRandomAccessFile(s.path("/f"), direct(), &random[&s], nullptr);
  }));
  ASSERT_TRUE(both("NewSequentialFile", [&](Side& s) {
    return s.fs->NewSequentialFile(s.path("/f"), direct(), &sequential[&s], nullptr);
  }));
  EXPECT_TRUE(random[&ours_]->use_direct_io());
  for (unsigned i = 0; i < 50; ++i) {
    read_sectors("Read", random, all.size(), [&](auto& file, FSReadRequest& r) {
      return file.Read(r.offset, r.len, options_, &r.result, r.scratch, nullptr);
    });
    read_sectors("MultiRead", random, all.size(), [&](auto& file, FSReadRequest& r) {
      const IOStatus status = file.MultiRead(&r, 1, options_, nullptr);
      return status.ok() ? r.status : status;
    });
    read_sectors("PositionedRead", sequential, all.size(), [&](auto& file, FSReadRequest& r) {
      return file.PositionedRead(r.offset, r.len, options_, &r.result, r.scratch, nullptr);
    });
  }
  std::string ours;
  ASSERT_TRUE(rocksdb::ReadFileToString(ours_.fs.get(), "/f", &ours).ok());
  EXPECT_TRUE(ours == all);
}

// Begun together, waited for or given up in any order.
TEST_F(ContractTest, ReadsThatAreGivenUpAreAnsweredOnce) {
  ASSERT_TRUE(ours_.fs->NewWritableFile("/f", FileOptions(), &ours_.writer, nullptr).ok());
  std::string bytes(2 << 20, '\0');
  for (char& c : bytes) c = static_cast<char>(random_());
  ASSERT_TRUE(ours_.writer->Append(bytes, options_, nullptr).ok());
  ASSERT_TRUE(ours_.writer->Close(options_, nullptr).ok());
  std::unique_ptr<rocksdb::FSRandomAccessFile> file;
  ASSERT_TRUE(ours_.fs->NewRandomAccessFile("/f", FileOptions(), &file, nullptr).ok());
  struct Asked {
    FSReadRequest request;
    std::vector<char> memory;
    unsigned answers = 0;
    void* handle = nullptr;
    rocksdb::IOHandleDeleter deleter;
  };
  for (unsigned round = 0; round < 60; ++round) {
    std::vector<Asked> asked(1 + random_() % 12);
    for (Asked& each : asked) {
      each.request.offset = random_() % bytes.size();
      // Also of more chunks than go out at once.
      each.request.len = 1 + random_() % (random_() % 4 == 0 ? bytes.size() : 9000);
      each.memory.resize(each.request.len);
      each.request.scratch = each.memory.data();
      const IOStatus begun = file->ReadAsync(
          each.request, options_,
          [](const FSReadRequest& done, void* to) {
            auto& its = *static_cast<Asked*>(to);
            ++its.answers;
            its.request.result = done.result;
            its.request.status = done.status;
          },
          &each, &each.handle, &each.deleter, nullptr);
      ASSERT_TRUE(begun.ok()) << begun.ToString();
    }
    std::vector<void*> handles;
    for (const Asked& each : asked) {
      if (each.handle != nullptr) handles.push_back(each.handle);
    }
    std::ranges::shuffle(handles, random_);
    const bool give_up = round % 2 == 0;
    const std::size_t waited = give_up ? random_() % (handles.size() + 1) : handles.size();
    std::vector<void*> first(handles.begin(),
                             handles.begin() + static_cast<std::ptrdiff_t>(waited));
    std::vector<void*> rest(handles.begin() + static_cast<std::ptrdiff_t>(waited), handles.end());
    ASSERT_TRUE(ours_.fs->Poll(first, first.size()).ok());
    ASSERT_TRUE(ours_.fs->AbortIO(rest).ok());
    for (Asked& each : asked) {
      EXPECT_EQ(each.answers, 1u) << "round " << round;
      const bool polled =
          each.handle == nullptr || std::ranges::find(first, each.handle) != first.end();
      const IOStatus& status = each.request.status;
      EXPECT_TRUE(status.ok() || (!polled && status.IsAborted())) << status.ToString();
      std::size_t there = 0;
      if (status.ok()) there = std::min(each.request.len, bytes.size() - each.request.offset);
      EXPECT_EQ(each.request.result, Slice(bytes.data() + each.request.offset, there));
      if (each.deleter) each.deleter(each.handle);
    }
  }
}

TEST_F(ContractTest, LocksAreHeldOnce) {
  std::map<Side*, rocksdb::FileLock*> held, again;
  const auto lock = [&](const char* at, std::map<Side*, rocksdb::FileLock*>& locks) {
    return both("LockFile",
                [&](Side& s) { return s.fs->LockFile(s.path(at), options_, &locks[&s], nullptr); });
  };
  const auto unlock = [&] {
    return both("UnlockFile",
                [&](Side& s) { return s.fs->UnlockFile(held[&s], options_, nullptr); });
  };
  EXPECT_FALSE(lock("/none/LOCK", held)) << "there is no such directory";
  ASSERT_TRUE(lock("/LOCK", held));
  EXPECT_TRUE(both("FileExists",
                   [&](Side& s) { return s.fs->FileExists(s.path("/LOCK"), options_, nullptr); }));
  EXPECT_FALSE(lock("/LOCK", again));
  EXPECT_EQ(again[&ours_], nullptr);
  EXPECT_TRUE(unlock());
  ASSERT_TRUE(lock("/LOCK", held));
  EXPECT_TRUE(unlock());
}

// As DestroyDB() deletes the file after it has given its own lock back: who has the name locked by
// then keeps it.
TEST_F(ContractTest, LocksAreOfNames) {
  std::map<Side*, rocksdb::FileLock*> held, again;
  const auto lock = [&](const char* at, std::map<Side*, rocksdb::FileLock*>& locks) {
    return both("LockFile",
                [&](Side& s) { return s.fs->LockFile(s.path(at), options_, &locks[&s], nullptr); });
  };
  const auto unlock = [&](std::map<Side*, rocksdb::FileLock*>& locks) {
    return both("UnlockFile",
                [&](Side& s) { return s.fs->UnlockFile(locks[&s], options_, nullptr); });
  };
  EXPECT_FALSE(lock("/db/LOCK", held));
  ASSERT_TRUE(both("CreateDir",
                   [&](Side& s) { return s.fs->CreateDir(s.path("/db"), options_, nullptr); }));
  ASSERT_TRUE(lock("/db/LOCK", held)) << "what failed holds nothing";
  ASSERT_TRUE(both("DeleteFile", [&](Side& s) {
    return s.fs->DeleteFile(s.path("/db/LOCK"), options_, nullptr);
  }));
  EXPECT_FALSE(lock("/db/LOCK", again));
  EXPECT_FALSE(ours_.fs->LockFile("//db/./LOCK", options_, &again[&ours_], nullptr).ok())
      << "the same, spelt otherwise";
  EXPECT_TRUE(unlock(held));
  ASSERT_TRUE(lock("/db/LOCK", again));
  EXPECT_TRUE(unlock(again));
}

// RocksDB asks for the time of the last write, of files that are open too.
TEST_F(ContractTest, TimesAreThoseOfTheLastWrite) {
  std::map<Side*, std::vector<std::uint64_t>> times;
  const auto look = [&](const char* at) {
    both("GetFileModificationTime", [&](Side& s) {
      times[&s].push_back(0);
      return s.fs->GetFileModificationTime(s.path(at), options_, &times[&s].back(), nullptr);
    });
  };
  const auto later = [] { std::this_thread::sleep_for(std::chrono::milliseconds(2100)); };
  look("/file");  // there is none
  ASSERT_TRUE(both("NewWritableFile", [&](Side& s) {
    return s.fs->NewWritableFile(s.path("/file"), FileOptions(), &s.writer, nullptr);
  }));
  look("/file");
  later();
  ASSERT_TRUE(
      both("Append", [&](Side& s) { return s.writer->Append("later", options_, nullptr); }));
  look("/file");
  later();
  ASSERT_TRUE(both("Close", [&](Side& s) { return s.writer->Close(options_, nullptr); }));
  both("RenameFile", [&](Side& s) {
    return s.fs->RenameFile(s.path("/file"), s.path("/other"), options_, nullptr);
  });
  look("/other");
  close();
  ASSERT_NO_FATAL_FAILURE(remount());
  look("/other");
  both("Truncate", [&](Side& s) {
    if (&s == &ours_) return s.fs->Truncate(s.path("/other"), 2, options_, nullptr);
    return ::truncate(s.path("/other").c_str(), 2) == 0 ? IOStatus::OK() : IOStatus::IOError();
  });
  look("/other");
  const auto &ours = times[&ours_], &theirs = times[&posix_];
  EXPECT_EQ(ours[0], 0u);
  for (std::size_t i = 1; i < ours.size(); ++i) {
    EXPECT_LE(std::max(ours[i], theirs[i]) - std::min(ours[i], theirs[i]), 1u) << "look " << i;
  }
  EXPECT_GT(ours[2], ours[1]) << "while it was open";
  EXPECT_EQ(ours[3], ours[2]);
  EXPECT_EQ(ours[4], ours[3]);
  EXPECT_GT(ours[5], ours[4]);
}

TEST_F(ContractTest, LoggersWriteTheSameLines) {
  const auto log = [&](Side& s, const char* at) {
    std::shared_ptr<rocksdb::Logger> logger;
    const IOStatus status = s.fs->NewLogger(s.path(at), options_, &logger, nullptr);
    if (!status.ok()) return status;
    logger->SetInfoLogLevel(rocksdb::InfoLogLevel::INFO_LEVEL);
    rocksdb::Log(logger, "%s %d", "first", 1);
    rocksdb::Log(rocksdb::InfoLogLevel::WARN_LEVEL, logger, "second\n");
    rocksdb::Log(rocksdb::InfoLogLevel::DEBUG_LEVEL, logger, "nobody asked for this");
    logger->Flush();
    return logger->Close().ok() ? IOStatus::OK() : IOStatus::IOError();
  };
  EXPECT_FALSE(both("NewLogger", [&](Side& s) { return log(s, "/none/LOG"); }));
  ASSERT_TRUE(both("NewLogger", [&](Side& s) { return log(s, "/LOG"); }));
  both_give<std::vector<std::string>>("lines", [&](Side& s, std::vector<std::string>& lines) {
    std::string all;
    const IOStatus status = rocksdb::ReadFileToString(s.fs.get(), s.path("/LOG"), &all);
    std::istringstream text(all);
    for (std::string date, thread, line; text >> date >> thread && std::getline(text, line);) {
      if (!line.starts_with(" [furrow]")) lines.push_back(line);  // behind time and thread
    }
    EXPECT_EQ(lines.size(), 2u) << all;
    return status;
  });
}

TEST_F(ContractTest, PathsIdsAndRoom) {
  std::string text;
  EXPECT_TRUE(ours_.fs->GetAbsolutePath("a/./b/../c", options_, &text, nullptr).ok());
  EXPECT_EQ(text, "/a/c");
  for (const char* const whole : {"/", "/a", "/a/c/file"}) {
    both_give<std::string>("GetAbsolutePath", [&](Side& s, std::string& path) {
      return s.fs->GetAbsolutePath(whole, options_, &path, nullptr);
    });
  }
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
