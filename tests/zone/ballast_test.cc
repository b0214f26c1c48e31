// Establishes that ballast takes the room that it is told to, or what there is; that a write on a
// full file system gets some of it where it is to go, and no more than is there; and that it is
// whole again when there is room. How: a file, and a file system of 2 MiB, which takes root.
#include "zone/ballast.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <thread>

#include "tests/zone/small_file_system.h"

namespace furrow::emu {
namespace {

constexpr std::uint64_t kPiece = Ballast::kPieceBytes;
constexpr std::uint64_t kAt = 1 << 20;  // where the ballast begins

class BallastTest : public ::testing::Test {
 protected:
  void make(const std::string& path) {
    fd_ = Fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    ASSERT_GE(fd_.get(), 0);
  }
  // Blocks of data, and a few that the file system has to note where they are.
  void expect_used(std::uint64_t bytes, const char* why = "") const {
    struct stat info {};
    EXPECT_EQ(fstat(fd_.get(), &info), 0);
    const std::uint64_t used = static_cast<std::uint64_t>(info.st_blocks) * 512;
    EXPECT_GE(used, bytes) << why;
    EXPECT_LE(used, bytes + 16384) << why;
  }
  std::uint64_t size() const {
    struct stat info {};
    EXPECT_EQ(fstat(fd_.get(), &info), 0);
    return static_cast<std::uint64_t>(info.st_size);
  }
  // Can so many bytes be written there?
  bool writes(std::uint64_t offset, std::uint64_t bytes) const {
    const std::string data(bytes, 'd');
    return pwrite(fd_.get(), data.data(), bytes, static_cast<off_t>(offset)) ==
           static_cast<ssize_t>(bytes);
  }

  // It looks every 100 ms.
  static bool becomes_whole(Ballast& ballast) {
    for (int i = 0; i < 1000; ++i) {
      if (ballast.whole()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  test::TempDir dir_;
  Fd fd_;
};

TEST_F(BallastTest, TakesWhatItIsTold) {
  ASSERT_NO_FATAL_FAILURE(make(dir_.file("file")));
  {
    Ballast none(fd_.get(), kAt, 0);
    EXPECT_EQ(size(), 0u);
    EXPECT_TRUE(none.whole());
    EXPECT_FALSE(none.move(0, 4096, kPiece));
  }
  {
    Ballast four(fd_.get(), kAt, 4);
    EXPECT_EQ(size(), kAt + 4 * kPiece);
    expect_used(4 * kPiece);
    EXPECT_TRUE(four.whole());
  }
  Ballast four(fd_.get(), kAt, 4);  // what is there already is not taken twice
  expect_used(4 * kPiece);
  Ballast most(fd_.get(), kAt, 1000);
  expect_used(Ballast::kPiecesMax * kPiece);
}

TEST_F(BallastTest, GivesAWriteRoomWhereItGoes) {
  ASSERT_NO_FATAL_FAILURE(make(dir_.file("file")));
  Ballast ballast(fd_.get(), kAt, 8);
  ASSERT_TRUE(ballast.move(0, 4096, 4 * kPiece));
  // A piece where the write goes; another is free, for the file system.
  expect_used(7 * kPiece);
  ASSERT_TRUE(writes(0, kPiece));
  expect_used(7 * kPiece, "the room was elsewhere");
  // Not beyond where the part of the file ends, and all that the write has.
  ASSERT_TRUE(ballast.move(4 * kPiece, 4096, 4 * kPiece + 8192));
  expect_used(5 * kPiece + 8192);
  ASSERT_TRUE(ballast.move(2 * kPiece, 2 * kPiece, 4 * kPiece));
  expect_used(4 * kPiece + 8192);
  EXPECT_FALSE(ballast.move(5 * kPiece, 4096, 8 * kPiece)) << "one of its pieces is left";
  expect_used(4 * kPiece + 8192);
  EXPECT_TRUE(ballast.whole()) << "there is room to take it all back";
  expect_used(11 * kPiece + 8192);
  EXPECT_FALSE(ballast.move(6 * kPiece, Ballast::kWriteBytesMax + 1, 8 * kPiece));
}

TEST_F(BallastTest, IsWholeAgainWhenThereIsRoom) {
  const test::SmallFileSystem small("tmpfs", "size=2m");
  if (!small.mounted()) GTEST_SKIP() << "mounting a file system takes root";
  ASSERT_NO_FATAL_FAILURE(make(small.file("file")));
  {
    // More than there is: what there is counts as all of it.
    const Fd other(::open(small.file("other").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    Ballast less(other.get(), kAt, 32);
    EXPECT_TRUE(less.whole());
    ASSERT_TRUE(less.move(0, 4096, kPiece));
    ASSERT_EQ(fallocate(other.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kPiece), 0);
    EXPECT_TRUE(becomes_whole(less));
    std::filesystem::remove(small.file("other"));
  }
  Ballast ballast(fd_.get(), kAt, 4);
  ASSERT_TRUE(writes(0, 4096));
  ASSERT_NO_FATAL_FAILURE(small.fill_up("junk"));
  ASSERT_FALSE(writes(4096, 4096));
  ASSERT_TRUE(ballast.move(4096, 4096, kPiece));
  EXPECT_TRUE(writes(4096, kPiece - 4096));
  EXPECT_TRUE(ballast.move(kPiece, 4096, 2 * kPiece));
  EXPECT_TRUE(writes(kPiece, kPiece));
  ASSERT_NO_FATAL_FAILURE(small.fill_up("more"));
  EXPECT_FALSE(ballast.whole());
  EXPECT_FALSE(ballast.move(2 * kPiece, 4096, 3 * kPiece));
  std::filesystem::remove(small.file("junk"));
  EXPECT_TRUE(becomes_whole(ballast));
  EXPECT_TRUE(ballast.move(2 * kPiece, 4096, 3 * kPiece));
}

}  // namespace
}  // namespace furrow::emu
