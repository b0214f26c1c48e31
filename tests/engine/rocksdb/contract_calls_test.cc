// Establishes that locks, times, loggers, paths and reads given up are as in RocksDB's own
// FileSystem for POSIX, or, where that has none, as RocksDB says.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <sstream>
#include <thread>

#include "tests/engine/rocksdb/contract_rig.h"

namespace furrow::testing {
namespace {

using ContractCallsTest = ContractRig;

// Begun together, waited for or given up in any order.
TEST_F(ContractCallsTest, ReadsThatAreGivenUpAreAnsweredOnce) {
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

TEST_F(ContractCallsTest, LocksAreHeldOnce) {
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
TEST_F(ContractCallsTest, LocksAreOfNames) {
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
TEST_F(ContractCallsTest, TimesAreThoseOfTheLastWrite) {
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

TEST_F(ContractCallsTest, LoggersWriteTheSameLines) {
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

TEST_F(ContractCallsTest, PathsIdsAndRoom) {
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

TEST_F(ContractCallsTest, APoolThatSomebodyElseHasIsNotSupported) {
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
