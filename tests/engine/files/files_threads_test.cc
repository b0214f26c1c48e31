// Establishes that many threads may use one volume: each file keeps what its writer appended,
// readers find it while others write, names change without a trace, staging memory that is short is
// shared, and nothing races (run under TSan). How: writers, readers and one that renames, on more
// files than staging has slots.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/engine/files/files_rig.h"
#include "tests/rounds.h"

namespace furrow::testing {
namespace {

constexpr auto kAppends = static_cast<unsigned>(rounds(600, 150));
constexpr unsigned kWriters = 4, kFilesEach = 10;

// The byte of a file at an offset.
char at(unsigned file, std::uint64_t offset) {
  return static_cast<char>(file * 17 + offset * 31 + offset / 255);
}

class FilesThreadsTest : public ::testing::Test, public FilesRig {
 protected:
  void SetUp() override { ASSERT_NO_FATAL_FAILURE(mount(256 << 20)); }

  static std::string name(unsigned file) { return "/f" + std::to_string(file); }
  void fail() { failed_ = true; }

  void write_files(unsigned writer) {
    std::vector<std::unique_ptr<OpenFile>> open;
    std::vector<std::uint64_t> sizes(kFilesEach);
    for (unsigned i = 0; i < kFilesEach; ++i) open.push_back(make(name(writer * kFilesEach + i)));
    for (unsigned i = 0; i < kAppends; ++i) {
      const unsigned which = i % kFilesEach, file = writer * kFilesEach + which;
      std::string text(1 + i * 313 % 7000, '\0');
      for (char& c : text) c = at(file, sizes[which]++);
      if (!open[which]->append(bytes_of(text)).ok()) return fail();
      if (i % 40 == 0 && !open[which]->sync().ok()) return fail();
    }
    for (auto& file : open) {
      if (!file->close().ok()) return fail();
    }
    ++done_;
  }
  void check(unsigned file) {
    auto open = files().open_file(name(file));
    if (!open.ok()) return;  // not made yet
    const std::string text = FilesRig::read(**open);
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] != at(file, i)) return fail();
    }
  }
  void rename_often() {
    for (unsigned i = 0; done_ != kWriters && !failed_; ++i) {
      const std::string from = "/t" + std::to_string(i % 5);
      auto file = files().create(from, FileVolume::Existing::truncate);
      if (!file.ok() || !(*file)->append(bytes_of("current")).ok() || !(*file)->close().ok() ||
          !files().rename(from, "/CURRENT").ok() || !files().list("/").ok()) {
        return fail();
      }
    }
  }

  std::atomic<bool> failed_{false};
  std::atomic<unsigned> done_{0};
};

// A file that is replaced while others open and close it goes once: its place is not given twice.
TEST_F(FilesThreadsTest, ReplacedFilesGoOnce) {
  std::atomic<bool> stop{false};
  {
    std::vector<std::jthread> readers;
    for (unsigned i = 0; i < 2; ++i) {
      readers.emplace_back([&] {
        while (!stop) {
          (void)files().open_file("/CURRENT");
          std::this_thread::sleep_for(std::chrono::microseconds(20));
        }
      });
    }
    for (unsigned i = 0; i < kAppends && !failed_; ++i) {
      auto file = files().create("/t", FileVolume::Existing::truncate);
      if (!file.ok() || !(*file)->append(bytes_of("current")).ok() ||
          !files().rename("/t", "/CURRENT").ok()) {
        fail();
      }
    }
    stop = true;
  }
  ASSERT_FALSE(failed_);
  for (unsigned i = 0; i < 100; ++i) write(name(i), name(i));
  unmount();
  ASSERT_NO_FATAL_FAILURE(mount());
  for (unsigned i = 0; i < 100; ++i) EXPECT_EQ(read(name(i)), name(i));
  EXPECT_EQ(files().usage().files, 101u);
}

// Of a directory that one takes away and another puts a file into, one of the two has its way.
TEST_F(FilesThreadsTest, DirectoriesGoWhileFilesComeAndGoInThem) {
  ASSERT_TRUE(files().make_directory("/d").ok());
  std::atomic<bool> stop{false};
  {
    const std::jthread remover([&] {
      while (!stop) {
        const Status gone = files().remove_directory("/d");
        if (gone.ok() && !files().make_directory("/d").ok()) return fail();
        if (!gone.ok() && gone.code() != Code::invalid_argument) return fail();
      }
    });
    for (unsigned i = 0; i < kAppends && !failed_; ++i) {
      auto file = files().create("/d/f", FileVolume::Existing::refuse);
      if (!file.ok() && file.status().code() == Code::not_found) continue;  // the directory is
      if (!file.ok() || !files().stat("/d/f").ok() || !files().remove("/d/f").ok()) fail();
    }
    stop = true;
  }
  ASSERT_FALSE(failed_);
  unmount();
  ASSERT_NO_FATAL_FAILURE(mount());
  EXPECT_TRUE(names("/d").empty());
  EXPECT_EQ(files().usage().files, 0u);
}

TEST_F(FilesThreadsTest, EachFindsWhatItWrote) {
  {
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < kWriters; ++i) threads.emplace_back([this, i] { write_files(i); });
    threads.emplace_back([this] { rename_often(); });
    for (unsigned i = 0; i < 2; ++i) {
      threads.emplace_back([this, i] {
        for (unsigned n = i; done_ != kWriters && !failed_; ++n) check(n % (kWriters * kFilesEach));
      });
    }
  }
  ASSERT_FALSE(failed_);
  unmount();
  ASSERT_NO_FATAL_FAILURE(mount());
  for (unsigned file = 0; file < kWriters * kFilesEach; ++file) {
    EXPECT_GT(files().stat(name(file))->bytes, 1000u);
    check(file);
  }
  EXPECT_FALSE(failed_);
  EXPECT_EQ(read("/CURRENT"), "current");
}

// Chunks that are full wait for each other, and for a sync; several of those, and who needs their
// memory, come at any time.
TEST_F(FilesThreadsTest, ASyncCoversWhatWasAppendedBeforeIt) {
  std::string all(900'000, '\0');
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<char>(i / 1009 + i % 241);
  for (unsigned round = 0; round < rounds(60, 15) && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    auto file = make("/log");
    std::atomic<std::size_t> appended{0}, synced{0};
    {
      std::vector<std::jthread> threads;
      for (unsigned i = 0; i < 3; ++i) {
        threads.emplace_back([&, i] {
          while (appended != all.size() && !failed_) {
            const std::size_t before = appended;
            const bool sync = i != 2;
            const Status status = sync ? file->sync() : file->content().give_up_tail();
            if (!status.ok()) return fail();
            for (std::size_t known = synced; sync && known < before;) {
              if (synced.compare_exchange_weak(known, before)) break;
            }
          }
        });
      }
      for (std::size_t at = 0, n = round; at != all.size(); ++n) {
        const std::size_t bytes = std::min(all.size() - at, 1 + n * 7919 % 60'000);
        if (!file->append(bytes_of(std::string_view(all).substr(at, bytes))).ok()) fail();
        at += bytes;
        appended = at;
      }
    }
    ASSERT_FALSE(failed_);
    EXPECT_TRUE(read(*file) == all);
    volume()->abandon();
    file.reset();
    kill();
    forget_staged();
    ASSERT_NO_FATAL_FAILURE(mount());
    const std::string left = read("/log");
    EXPECT_GE(left.size(), synced);
    EXPECT_TRUE(left == all.substr(0, left.size()));
    ASSERT_TRUE(files().remove("/log").ok());
  }
}

// Who reads meanwhile finds what was there before or after, never nothing.
TEST_F(FilesThreadsTest, AFileIsReadWhileItIsChanged) {
  constexpr std::size_t kBytes = 200'000;
  write("/file", std::string(kBytes, 'a'));
  std::atomic<bool> stop{false};
  {
    std::vector<std::jthread> readers;
    for (unsigned i = 0; i < 3; ++i) {
      readers.emplace_back([&, i] {
        auto file = files().open_file("/file");
        std::string text(5000, '\0');
        for (unsigned n = i; !stop; ++n) {
          const std::uint64_t from = n * 7919 % (kBytes - text.size());
          const auto got = (*file)->read(from, std::as_writable_bytes(std::span(text)));
          if (!got.ok() || *got != text.size()) return fail();
          for (const char c : text) {
            if (c < 'a' || c > 'z') return fail();
          }
        }
      });
    }
    auto file = files().open_file("/file");
    for (unsigned i = 0; i < kAppends / 2 && !failed_; ++i) {
      const std::string text(1 + i * 977 % 90'000, static_cast<char>('a' + i % 26));
      if (!(*file)->write_at(i * 4099 % (kBytes - 90'000), bytes_of(text)).ok()) fail();
      if (!(*file)->append(bytes_of("z")).ok()) fail();
      if (!(*file)->truncate(kBytes).ok()) fail();
    }
    stop = true;
  }
  EXPECT_FALSE(failed_);
}

}  // namespace
}  // namespace furrow::testing
