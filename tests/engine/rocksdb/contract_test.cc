// Establishes that the FileSystem does what RocksDB's own for POSIX does: the same random calls go
// to both, on names in a few directories, and answers, contents and listings are compared; now and
// then the volume is mounted anew. FURROW_TEST_SEED replays. What RocksDB does in one way only, as
// with direct I/O, both are asked for in that way.
#include <unistd.h>

#include <algorithm>
#include <map>

#include "tests/engine/rocksdb/contract_rig.h"
#include "tests/rounds.h"

namespace furrow::testing {
namespace {

constexpr auto kSteps = static_cast<unsigned>(rounds(6000, 1500));

class ContractTest : public ContractRig {
 protected:
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

}  // namespace
}  // namespace furrow::testing
