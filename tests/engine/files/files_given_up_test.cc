// Establishes what becomes of files of which the record was given up: a mount that is asked to
// names them by their inodes, with all that is left of them, for good; any other leaves them alone.
// How: records, and a part of a file, are taken out of the volume's pages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/engine/files/files_rig.h"

namespace furrow::testing {
namespace {

using ::testing::ElementsAre;

class FilesGivenUpTest : public ::testing::Test, public FilesRig {
 protected:
  static constexpr std::size_t kChunkBytes = 64 << 10;

  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(mount());
    text_.resize(300'000);
    std::iota(text_.begin(), text_.end(), 0);
    ASSERT_TRUE(files().make_directory("/db").ok());
    write("/db/lost", text_);
    text_.replace(70'000, 8, "replaced");
    ASSERT_TRUE((*files().open_file("/db/lost"))->write_at(70'000, bytes_of("replaced")).ok());
    write("/db/kept", "kept");
    inode_ = files().stat("/db/lost")->inode;
    unmount();
    take_pages();
  }
  // Of the file: its record; and chunks from these offsets on.
  void take_pages(const std::vector<std::uint64_t>& chunks = {}) {
    auto pool = EmbeddedPool::open(uri());
    ASSERT_TRUE(pool.ok()) << pool.status().describe();
    auto store = (*pool)->store("files");
    for (std::uint32_t slot = 0; slot < 16; ++slot) {
      const auto page = store->get(slot_key(slot));
      if (!page.ok() || decode_file_record(*page)->inode != inode_) continue;
      ASSERT_TRUE(store->remove(slot_key(slot)).ok());
    }
    for (const std::uint64_t offset : chunks) {
      ASSERT_TRUE(store->remove(chunk_key(inode_, 0, offset)).ok());
    }
  }
  void mount_taking_in() {
    std::shared_ptr<EmbeddedPool> pool = *EmbeddedPool::open(uri());
    PageStore& store = **FileVolume::find(pool->pool(), "");
    auto mounted = FileVolume::mount(std::move(pool), store, FileVolume::Strays::take_in);
    ASSERT_TRUE(mounted.ok()) << mounted.status().describe();
    volume() = std::move(*mounted);
  }
  std::string found() const { return "/lost+found." + std::to_string(inode_); }
  // Of no file.
  std::uint64_t pages_over() {
    const FilesUsage usage = files().usage();
    return files().store().usage().pages - usage.files - usage.directories - usage.chunks - 1;
  }

  std::string text_;
  std::uint64_t inode_ = 0;
};

TEST_F(FilesGivenUpTest, AFileWithoutARecordIsNamedByItsInode) {
  ASSERT_NO_FATAL_FAILURE(mount());
  EXPECT_THAT(names("/"), ElementsAre("db"));
  EXPECT_EQ(pages_over(), 5u);
  unmount();
  ASSERT_NO_FATAL_FAILURE(mount_taking_in());
  ASSERT_EQ(files().losses().size(), 1u);
  EXPECT_EQ(files().losses()[0].what, found());
  EXPECT_GT(files().stat(found())->modified_s, 0u);
  EXPECT_TRUE(read(found()) == text_);
  EXPECT_THAT(names("/db"), ElementsAre("kept"));
  EXPECT_EQ(read("/db/kept"), "kept");
  EXPECT_EQ(pages_over(), 0u);
  unmount();
  ASSERT_NO_FATAL_FAILURE(mount());
  EXPECT_TRUE(read(found()) == text_);
  ASSERT_TRUE(files().rename(found(), "/db/again").ok());
  ASSERT_TRUE((*files().open_file("/db/again"))->append(bytes_of("more")).ok());
  unmount();
  ASSERT_NO_FATAL_FAILURE(mount_taking_in());
  EXPECT_TRUE(files().losses().empty());
  EXPECT_TRUE(read("/db/again") == text_ + "more");
  ASSERT_TRUE(files().remove("/db/again").ok());
  EXPECT_EQ(pages_over(), 0u);
}

TEST_F(FilesGivenUpTest, WhatIsLeftOfItStaysWhereItWas) {
  ASSERT_NO_FATAL_FAILURE(take_pages({2 * kChunkBytes}));
  ASSERT_NO_FATAL_FAILURE(mount_taking_in());
  for (unsigned mounts = 0; mounts < 2; ++mounts) {
    auto file = files().open_file(found());
    ASSERT_TRUE(file.ok()) << file.status().describe();
    EXPECT_EQ((*file)->content().size(), text_.size());
    std::string part(kChunkBytes, '\0');
    for (std::size_t at = 0; at < text_.size(); at += kChunkBytes) {
      const auto got = (*file)->read(at, std::as_writable_bytes(std::span(part)));
      EXPECT_EQ(got.status().code(), at == 2 * kChunkBytes ? Code::corrupt : Code::ok) << at;
      if (got.ok()) {
        EXPECT_TRUE(part.substr(0, *got) == text_.substr(at, kChunkBytes)) << at;
      }
    }
    file->reset();
    unmount();
    ASSERT_NO_FATAL_FAILURE(mount());
  }
  ASSERT_TRUE(files().remove(found()).ok());
  EXPECT_EQ(pages_over(), 0u);
}

}  // namespace
}  // namespace furrow::testing
