// Establishes what users of FileVolume rely on, call by call: names and their errors, what is read
// back at every stage of writing, what a kill and a clean unmount leave, that space comes back, and
// that a full volume says so and goes on when something is deleted. How: a pool in a file, mounted
// again and again; a kill is an unmount that writes nothing, with the staging memory left.
#include "engine/files/file_volume.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/engine/files/files_rig.h"

namespace furrow::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class FileVolumeTest : public ::testing::Test, public FilesRig {
 protected:
  void SetUp() override { ASSERT_NO_FATAL_FAILURE(mount()); }
  void remount() {
    unmount();
    ASSERT_NO_FATAL_FAILURE(mount());
  }
  static std::string text(std::size_t bytes, unsigned seed) {
    std::string made(bytes, '\0');
    for (std::size_t i = 0; i < bytes; ++i) made[i] = static_cast<char>(i * 31 + i / 251 + seed);
    return made;
  }
};

TEST_F(FileVolumeTest, NamesAreKeptAndRefusedAsUsersExpect) {
  EXPECT_TRUE(files().make_directory("/db").ok());
  EXPECT_EQ(files().make_directory("/db").code(), Code::exists);
  EXPECT_EQ(files().make_directory("/no/db").code(), Code::not_found);
  write("/db/one", "1");
  write("/db/./../db//two", "2");
  EXPECT_EQ(files().make_directory("/db/one/x").code(), Code::invalid_argument);
  EXPECT_EQ(files().create("/db", FileVolume::Existing::keep).status().code(),
            Code::invalid_argument);
  EXPECT_EQ(files().create("/db/one", FileVolume::Existing::refuse).status().code(), Code::exists);
  EXPECT_EQ(files().open_file("/db/three").status().code(), Code::not_found);
  EXPECT_EQ(files().remove("/db").code(), Code::invalid_argument);
  EXPECT_EQ(files().remove_directory("/db").code(), Code::invalid_argument);
  EXPECT_EQ(
      files().create("/db/" + std::string(256, 'n'), FileVolume::Existing::keep).status().code(),
      Code::invalid_argument);
  EXPECT_THAT(names("/db"), ElementsAre("one", "two"));
  remount();
  EXPECT_THAT(names("/db"), ElementsAre("one", "two"));
  EXPECT_EQ(read("/db/two"), "2");
  EXPECT_TRUE(files().remove("/db/one").ok());
  EXPECT_TRUE(files().remove("/db/two").ok());
  EXPECT_TRUE(files().remove_directory("/db").ok());
  EXPECT_EQ(files().remove_directory("/").code(), Code::invalid_argument);
  remount();
  EXPECT_THAT(names("/"), IsEmpty());
}

TEST_F(FileVolumeTest, RenameReplacesAndSurvives) {
  write("/CURRENT", "old");
  write("/tmp", "new");
  EXPECT_TRUE(files().rename("/tmp", "/CURRENT").ok());
  EXPECT_THAT(names("/"), ElementsAre("CURRENT"));
  EXPECT_EQ(read("/CURRENT"), "new");
  remount();
  EXPECT_THAT(names("/"), ElementsAre("CURRENT"));
  EXPECT_EQ(read("/CURRENT"), "new");

  EXPECT_TRUE(files().make_directory("/a").ok());
  EXPECT_TRUE(files().make_directory("/a/b").ok());
  write("/a/b/file", "deep");
  EXPECT_EQ(files().rename("/a", "/a/b/c").code(), Code::invalid_argument);
  EXPECT_EQ(files().rename("/a", "/CURRENT").code(), Code::invalid_argument);
  EXPECT_EQ(files().rename("/none", "/x").code(), Code::not_found);
  EXPECT_TRUE(files().rename("/a", "/z").ok());
  remount();
  EXPECT_EQ(read("/z/b/file"), "deep");
}

TEST_F(FileVolumeTest, AFileHasSeveralNamesAndGoesWithTheLast) {
  write("/one", "shared");
  EXPECT_TRUE(files().link("/one", "/two").ok());
  EXPECT_EQ(files().link("/one", "/two").code(), Code::exists);
  EXPECT_EQ(files().stat("/two")->links, 2u);
  EXPECT_EQ(files().stat("/one")->inode, files().stat("/two")->inode);
  EXPECT_TRUE(files().remove("/one").ok());
  remount();
  EXPECT_EQ(read("/two"), "shared");
  EXPECT_EQ(files().stat("/two")->links, 1u);
  const std::uint64_t pages = files().store().usage().pages;
  EXPECT_TRUE(files().remove("/two").ok());
  EXPECT_EQ(files().store().usage().pages, pages - 2);  // its record and its bytes
}

TEST_F(FileVolumeTest, WhatIsAppendedIsReadAtOnceAndSyncsGrowTheLastPart) {
  auto file = make("/log");
  std::string all;
  for (unsigned i = 0; i < 400; ++i) {  // over many chunks, some synced in between
    const std::string part = text(1 + i * 7 % 3000, i);
    ASSERT_TRUE(file->append(bytes_of(part)).ok());
    all += part;
    if (i % 3 == 0) {
      ASSERT_TRUE(file->sync().ok());
    }
    if (i % 50 == 0) {
      ASSERT_EQ(read(*file), all);
    }
  }
  EXPECT_EQ(file->content().size(), all.size());
  EXPECT_EQ(read(*file), all);
  std::string middle(5000, '\0');
  const auto memory = std::as_writable_bytes(std::span(middle));
  ASSERT_EQ(*file->content().read(123'457, memory), middle.size());
  EXPECT_EQ(middle, all.substr(123'457, 5000));
  EXPECT_EQ(*file->content().read(all.size() - 10, memory), 10u);
  EXPECT_EQ(*file->content().read(all.size() + 10, memory), 0u);
  ASSERT_TRUE(file->close().ok());
  file.reset();
  remount();
  EXPECT_EQ(read("/log"), all);
}

TEST_F(FileVolumeTest, AReadIntoAlignedMemoryCoversPartsAndTail) {
  auto file = make("/log");
  const std::string all = text(20'000, 9);
  for (const auto& [at, bytes] : {std::pair(0u, 5000u), {5000u, 4500u}, {9500u, 10'500u}}) {
    ASSERT_TRUE(file->append(bytes_of(std::string_view(all).substr(at, bytes))).ok());
    if (at != 9500) {
      ASSERT_TRUE(file->sync().ok());
    }
  }
  AlignedBuffer memory(24'576);
  ASSERT_EQ(*file->content().read(0, memory.span()), all.size());
  EXPECT_EQ(std::memcmp(memory.data(), all.data(), all.size()), 0);
}

TEST_F(FileVolumeTest, AKillLosesNothingThatWasAppended) {
  std::string all;
  for (unsigned round = 0; round < 6; ++round) {
    auto file = files().create("/log", FileVolume::Existing::keep);
    ASSERT_TRUE(file.ok());
    ASSERT_EQ(read(**file), all) << "round " << round;
    for (unsigned i = 0; i < 30; ++i) {
      const std::string part = text(1 + (i * 977 + round * 131) % 9000, i);
      ASSERT_TRUE((*file)->append(bytes_of(part)).ok());
      if (i % 7 == round) {
        ASSERT_TRUE((*file)->sync().ok());
      }
      all += part;
    }
    auto other = make("/empty");
    volume()->abandon();
    file->reset();
    other.reset();
    kill();
    ASSERT_NO_FATAL_FAILURE(mount());
    EXPECT_THAT(names("/"), ElementsAre("empty", "log"));
    EXPECT_EQ(files().usage().restored_bytes != 0, round != 1);  // whose last append was synced
    EXPECT_LE(files().usage().restored_bytes, 64u << 10);
    EXPECT_EQ(files().usage().bytes, all.size());
  }
  EXPECT_EQ(read("/log"), all);
  remount();
  EXPECT_EQ(files().usage().restored_bytes, 0u);
  EXPECT_EQ(files().usage().chunks, files().store().usage().pages - 4);  // three records, a head
}

TEST_F(FileVolumeTest, WithoutSharedMemoryAFlushReachesTheDevice) {
  // Another holder of the staging memory: this mount's is private.
  const std::string name = staging_name();
  unmount();
  Staging other(name, 64 << 10, 0);
  ASSERT_TRUE(other.survives_kill());
  ASSERT_NO_FATAL_FAILURE(mount());
  EXPECT_FALSE(files().survives_kill());
  auto file = make("/log");
  ASSERT_TRUE(file->append(bytes_of("told to the device")).ok());
  ASSERT_TRUE(file->flush().ok());
  ASSERT_TRUE(file->append(bytes_of(", and not")).ok());
  volume()->abandon();
  file.reset();
  kill();
  ASSERT_NO_FATAL_FAILURE(mount());
  EXPECT_EQ(read("/log"), "told to the device");
}

TEST_F(FileVolumeTest, ACopyOfThePoolLeavesTheOriginalWhatWasStaged) {
  auto file = make("/log");
  ASSERT_TRUE(file->append(bytes_of("synced")).ok());
  ASSERT_TRUE(file->sync().ok());
  ASSERT_TRUE(file->append(bytes_of(", staged")).ok());
  volume()->abandon();
  file.reset();
  kill();
  const std::string original = path() + ".original";
  std::filesystem::rename(path(), original);
  std::filesystem::copy_file(original, path());
  ASSERT_NO_FATAL_FAILURE(mount());
  EXPECT_EQ(read("/log"), "synced");
  write("/log", "the copy goes on");
  unmount();
  std::filesystem::rename(original, path());
  ASSERT_NO_FATAL_FAILURE(mount());
  EXPECT_EQ(read("/log"), "synced, staged");
}

TEST_F(FileVolumeTest, AFileIsCutAndItsEndReplaced) {
  const std::string all = text(200'000, 3);
  for (const std::size_t size : {0ul, 1ul, 4096ul, 65'536ul, 65'537ul, 199'999ul, 200'000ul}) {
    SCOPED_TRACE(size);
    write("/file", all);
    auto file = files().create("/file", FileVolume::Existing::keep);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->truncate(size).ok());
    EXPECT_EQ(read(**file), all.substr(0, size));
    ASSERT_TRUE((*file)->append(bytes_of("more")).ok());
    const std::string now = all.substr(0, size) + "more";
    EXPECT_EQ(read(**file), now);
    volume()->abandon();
    file->reset();
    kill();
    ASSERT_NO_FATAL_FAILURE(mount());
    EXPECT_EQ(read("/file"), now);
  }
  auto file = make("/file");
  ASSERT_TRUE(file->append(bytes_of("0123456789")).ok());
  ASSERT_TRUE(file->write_at(8, bytes_of("AB")).ok());
  ASSERT_TRUE(file->write_at(2, bytes_of("xy")).ok());
  ASSERT_TRUE(file->write_at(9, bytes_of("CD")).ok());
  EXPECT_EQ(read(*file), "01xy4567ACD");
  ASSERT_TRUE(file->write_at(12, bytes_of("E")).ok());
  ASSERT_TRUE(file->truncate(15).ok());
  const std::string now = std::string("01xy4567ACD") + '\0' + 'E' + std::string(2, '\0');
  EXPECT_EQ(read(*file), now);
  ASSERT_TRUE(file->close().ok());
  file.reset();
  remount();
  EXPECT_EQ(read("/file"), now);
}

TEST_F(FileVolumeTest, AnOpenFileOutlivesItsName) {
  auto file = make("/gone");
  ASSERT_TRUE(file->append(bytes_of(text(100'000, 5))).ok());
  ASSERT_TRUE(file->sync().ok());
  const std::uint64_t before = files().store().usage().pages;
  ASSERT_TRUE(files().remove("/gone").ok());
  EXPECT_THAT(names("/"), IsEmpty());
  EXPECT_EQ(read(*file), text(100'000, 5));
  EXPECT_EQ(files().store().usage().pages, before);
  file.reset();
  EXPECT_LT(files().store().usage().pages, before);
  remount();
  EXPECT_EQ(files().usage().files, 0u);

  // Nor does it come back when the process was killed in between.
  file = make("/gone");
  ASSERT_TRUE(file->append(bytes_of("x")).ok());
  ASSERT_TRUE(files().remove("/gone").ok());
  volume()->abandon();
  file.reset();
  kill();
  ASSERT_NO_FATAL_FAILURE(mount());
  EXPECT_THAT(names("/"), IsEmpty());
  EXPECT_EQ(files().usage().files, 0u);
}

TEST_F(FileVolumeTest, MoreFilesAreOpenThanStagingHasRoomFor) {
  constexpr unsigned kFiles = 3 * Staging::kSlots;
  std::vector<std::unique_ptr<OpenFile>> open;
  std::vector<std::string> all(kFiles);
  for (unsigned i = 0; i < kFiles; ++i) open.push_back(make("/f" + std::to_string(i)));
  for (unsigned round = 0; round < 4; ++round) {
    for (unsigned i = 0; i < kFiles; ++i) {
      const std::string part = text(500 + i, round);
      ASSERT_TRUE(open[i]->append(bytes_of(part)).ok());
      all[i] += part;
    }
  }
  for (unsigned i = 0; i < kFiles; ++i) EXPECT_EQ(read(*open[i]), all[i]);
  volume()->abandon();
  open.clear();
  kill();
  ASSERT_NO_FATAL_FAILURE(mount());
  for (unsigned i = 0; i < kFiles; ++i) EXPECT_EQ(read("/f" + std::to_string(i)), all[i]);
}

TEST_F(FileVolumeTest, AFullVolumeSaysSoAndGoesOnWhenSomethingIsDeleted) {
  const std::string part = text(256 << 10, 1);
  Status status;
  unsigned made = 0;
  for (; status.ok() && made < 1000; ++made) {
    auto file = files().create("/f" + std::to_string(made), FileVolume::Existing::truncate);
    status = file.ok() ? (*file)->append(bytes_of(part)) : file.status();
    if (status.ok()) status = (*file)->close();
  }
  EXPECT_EQ(status.code(), Code::no_space) << status.describe();
  EXPECT_GT(made, 100u);
  EXPECT_LT(files().usage().free_bytes, part.size() + (64 << 10));
  EXPECT_EQ(read("/f0"), part);
  for (unsigned i = 0; i < made; i += 2) ASSERT_TRUE(files().remove("/f" + std::to_string(i)).ok());
  EXPECT_GT(files().usage().free_bytes, made / 3 * part.size());
  write("/again", part);
  remount();
  EXPECT_EQ(read("/again"), part);
  EXPECT_EQ(read("/f1"), part);
}

TEST_F(FileVolumeTest, ManyFilesAreFoundAgain) {
  constexpr unsigned kFiles = 1100;  // more than the first page of the volume allows at first
  const auto name = [](unsigned i) { return "/f" + std::to_string(i); };
  for (unsigned i = 0; i < kFiles; ++i) i % 50 == 1 ? write(name(i), name(i)) : void(make(name(i)));
  for (unsigned i = 0; i < kFiles; i += 10) ASSERT_TRUE(files().remove(name(i)).ok());
  remount();
  EXPECT_EQ(files().usage().files, kFiles / 10 * 9);
  for (unsigned i = 1; i < kFiles; i += 50) EXPECT_EQ(read(name(i)), name(i));
  const std::uint64_t pages = files().store().usage().pages;
  for (unsigned i = 0; i < kFiles; i += 10) (void)make(name(i));  // into slots that are free
  EXPECT_EQ(files().store().usage().pages, pages + kFiles / 10);
}

TEST_F(FileVolumeTest, WhatThereWasNoRoomForIsPutWhenThereIs) {
  const std::string part = text(64 << 10, 1);
  write("/ballast", text(8 << 20, 3));
  auto big = make("/big");
  auto other = make("/other");
  ASSERT_TRUE(other->append(bytes_of(text(60'000, 2))).ok());
  Status status;
  std::size_t parts = 0;
  for (; status.ok(); ++parts) status = big->append(bytes_of(part));
  EXPECT_EQ(status.code(), Code::no_space);
  EXPECT_EQ(big->sync().code(), Code::no_space);
  EXPECT_EQ(big->append(bytes_of(part)).code(), Code::no_space);
  EXPECT_EQ(big->close().code(), Code::no_space);
  EXPECT_EQ(big->close().code(), Code::no_space) << "nothing has been closed";
  const std::string there = read(*big);
  EXPECT_EQ(there.size(), big->content().size());
  ASSERT_GE(there.size(), (parts - 1) * part.size());
  for (std::size_t at = 0; at < there.size(); at += part.size()) {
    ASSERT_EQ(there.substr(at, part.size()), part.substr(0, there.size() - at));
  }
  ASSERT_TRUE(files().remove("/ballast").ok());
  EXPECT_TRUE(big->append(bytes_of("and on")).ok());
  EXPECT_TRUE(big->sync().ok());
  EXPECT_EQ(read(*big), there + "and on");
  EXPECT_TRUE(big->close().ok());
  big.reset();
  other.reset();
  remount();
  EXPECT_EQ(read("/big"), there + "and on");
  EXPECT_EQ(read("/other"), text(60'000, 2));
}

// Nobody waits for ever for staging memory that holds what there is no room for.
TEST_F(FileVolumeTest, AFullVolumeRefusesEveryFile) {
  const std::string part = text(64 << 10, 1);
  std::vector<std::unique_ptr<OpenFile>> open;
  for (unsigned i = 0; i < 2 * Staging::kSlots; ++i) open.push_back(make("/f" + std::to_string(i)));
  std::size_t refused = 0;
  for (unsigned round = 0; round < 200 && refused < open.size(); ++round) {
    refused = 0;
    for (auto& file : open) refused += file->append(bytes_of(part)).ok() ? 0 : 1;
  }
  EXPECT_EQ(refused, open.size());
  open.clear();
  for (unsigned i = 0; i < Staging::kSlots; ++i) {
    ASSERT_TRUE(files().remove("/f" + std::to_string(i)).ok());
  }
  write("/again", part);
  remount();
  EXPECT_EQ(read("/again"), part);
}

TEST_F(FileVolumeTest, AFileIsChangedAnywhere) {
  std::string all = text(5 * 65'536 + 100, 7);
  write("/file", all);
  const std::uint64_t pages = files().store().usage().pages;
  const auto change = [&](OpenFile& file, std::size_t at, const std::string& bytes) {
    ASSERT_TRUE(file.write_at(at, bytes_of(bytes)).ok()) << at;
    all.replace(at, std::min(bytes.size(), all.size() - at), bytes);
  };
  for (unsigned round = 0; round < 3; ++round) {
    auto file = files().open_file("/file");
    ASSERT_TRUE(file.ok());
    change(**file, 10, text(1, round));                   // in the first chunk
    change(**file, 65'536, text(65'536, round));          // one as a whole
    change(**file, 65'535, text(2 * 65'536 + 2, round));  // four of them
    change(**file, all.size() - 50, text(2000, round));   // over the end
    EXPECT_EQ(read(**file), all);
    ASSERT_TRUE((*file)->append(bytes_of(text(3000, round))).ok());
    all += text(3000, round);
    change(**file, all.size() - 4000, text(2000, round + 1));  // also what is still staged
    EXPECT_EQ(read(**file), all);
    if (round == 1) {
      volume()->abandon();
      file->reset();
      kill();
      ASSERT_NO_FATAL_FAILURE(mount());
    } else {
      ASSERT_TRUE((*file)->close().ok());
      file->reset();
      remount();
    }
    EXPECT_EQ(read("/file"), all);
  }
  EXPECT_LE(files().store().usage().pages, pages + 15);  // what was replaced is gone
  ASSERT_TRUE(files().remove("/file").ok());
  EXPECT_EQ(files().store().usage().pages, 2u);
}

TEST_F(FileVolumeTest, WhatIsAsItWasIsNotWrittenAgain) {
  auto file = make("/file");
  const std::string all = text(10'000, 1);
  for (std::size_t end = 512; end <= all.size(); end += 512) {  // as direct I/O appends
    const std::size_t from = end / 4096 * 4096 == end ? end - 4096 : end / 4096 * 4096;
    ASSERT_TRUE(
        file->write_at(from, bytes_of(std::string_view(all).substr(from, end - from))).ok());
  }
  EXPECT_EQ(read(*file), all.substr(0, 9728));
  EXPECT_EQ(files().store().usage().pages, 3u);  // the records of file and root, and the first page
}

TEST_F(FileVolumeTest, ChangesThatAreTooLargeAreRefused) {
  auto file = make("/file");
  EXPECT_EQ(file->write_at(kFileBytesMax, bytes_of("x")).code(), Code::too_large);
  EXPECT_EQ(file->write_at(~std::uint64_t{0}, bytes_of("x")).code(), Code::too_large);
  EXPECT_EQ(file->truncate(kFileBytesMax + 1).code(), Code::too_large);
  EXPECT_EQ(file->write_at(std::uint64_t{1} << 40, bytes_of("x")).code(), Code::no_space);
  EXPECT_EQ(file->content().size(), 0u);
  EXPECT_TRUE(file->write_at(std::uint64_t{1} << 40, {}).ok());
  ASSERT_TRUE(file->write_at(3, bytes_of("x")).ok());
  EXPECT_EQ(read(*file), std::string("\0\0\0x", 4));
}

TEST_F(FileVolumeTest, AFileIsAddedToAndChangedAsOftenAsOneLikes) {
  write("/file", text(100'000, 1));
  const std::uint64_t inode = files().stat("/file")->inode;
  unmount();
  {
    auto pool = EmbeddedPool::open(uri());
    ASSERT_TRUE(pool.ok());
    auto store = (*pool)->store("files");
    for (std::uint32_t slot = 0; slot < 10; ++slot) {
      const auto page = store->get(slot_key(slot));
      if (!page.ok()) continue;
      FileRecord record = *decode_file_record(*page);
      if (record.inode != inode) continue;
      record.version = 0xfeff;  // it was cut that often
      ASSERT_TRUE(store->put(slot_key(slot), *encode(record, 4096), {.group = inode}).ok());
    }
  }
  ASSERT_NO_FATAL_FAILURE(mount());
  std::string all = text(100'000, 1);
  for (unsigned i = 0; i < 600; ++i) {
    auto file = files().open_file("/file");
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->write_at(i * 100, bytes_of(std::to_string(i))).ok());
    ASSERT_TRUE((*file)->append(bytes_of("x")).ok());
    ASSERT_TRUE((*file)->close().ok());
    all.replace(i * 100, std::to_string(i).size(), std::to_string(i));
    all += 'x';
  }
  EXPECT_EQ(read("/file"), all);
  remount();
  EXPECT_EQ(read("/file"), all);
  EXPECT_EQ((*files().open_file("/file"))->truncate(5).code(), Code::unsupported);
  EXPECT_EQ(read("/file"), all);
}

TEST_F(FileVolumeTest, AFullVolumeKeepsWhatCouldNotBeReplaced) {
  const std::string all = text(1 << 20, 1);
  write("/file", all);
  auto filler = make("/filler");
  while (filler->append(bytes_of(text(64 << 10, 2))).ok()) {
  }
  auto file = files().open_file("/file");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->write_at(5, bytes_of(text(1'000'000, 9))).code(), Code::no_space);
  EXPECT_EQ(read(**file), all);
  filler.reset();
  ASSERT_TRUE(files().remove("/filler").ok());
  EXPECT_EQ(read(**file), all);
  ASSERT_TRUE((*file)->write_at(5, bytes_of(text(1'000'000, 9))).ok());
  file->reset();
  remount();
  EXPECT_EQ(read("/file"), all.substr(0, 5) + text(1'000'000, 9) + all.substr(1'000'005));
}

// Chunks behind those that a record lists are found by a read each, and that once.
TEST_F(FileVolumeTest, AMountAfterAKillLooksForEachChunkOnce) {
  constexpr unsigned kChunks = 200;
  const auto reads = [this] { return files().store().stats().header_reads; };
  const auto bytes_in = [](const std::string& path, unsigned i) -> std::size_t {
    return path == "/regular" ? 4096 : path == "/full" ? 64 << 10 : 4096 + i * 2654435761u % 8192;
  };
  std::map<std::string, std::string> all = {{"/regular", ""}, {"/mixed", ""}, {"/full", ""}};
  std::vector<std::unique_ptr<OpenFile>> open;
  for (auto& [path, bytes] : all) {
    open.push_back(make(path));
    for (unsigned i = 0; i < kChunks; ++i) {
      const std::string more = text(bytes_in(path, i), i);
      ASSERT_TRUE(open.back()->append(bytes_of(more)).ok());
      ASSERT_TRUE(open.back()->content().write_out().ok());
      bytes += more;
    }
  }
  volume()->abandon();
  open.clear();
  kill();
  for (unsigned round = 0; round < 3; ++round) {
    SCOPED_TRACE(round);
    ASSERT_NO_FATAL_FAILURE(mount());
    EXPECT_LE(reads(), round == 0 ? 3 * kChunks * 5 / 4 : 8);
    for (const auto& [path, bytes] : all) EXPECT_TRUE(read(path) == bytes) << path;
    round == 1 ? kill() : unmount();
  }
}

TEST_F(FileVolumeTest, WhatIsInADirectoryThatIsLostStays) {
  ASSERT_TRUE(files().make_directory("/db").ok());
  for (unsigned i = 0; i < 5; ++i) write("/db/f" + std::to_string(i), "kept");
  const std::uint64_t inode = files().stat("/db")->inode;
  // A name that one of them is to get, as what was copied out of another volume may have it.
  const std::string taken = "lost+found." + std::to_string(files().stat("/db/f0")->inode);
  write("/" + taken, "kept");
  unmount();
  {
    auto pool = EmbeddedPool::open(uri());
    ASSERT_TRUE(pool.ok());
    auto store = (*pool)->store("files");
    for (std::uint32_t slot = 0; slot < 10; ++slot) {
      const auto page = store->get(slot_key(slot));
      if (!page.ok() || decode_file_record(*page)->inode != inode) continue;
      ASSERT_TRUE(store->remove(slot_key(slot)).ok());
    }
  }
  ASSERT_NO_FATAL_FAILURE(mount());
  ASSERT_EQ(names("/").size(), 6u);
  for (const std::string& name : names("/")) {
    EXPECT_TRUE(name.starts_with("lost+found.")) << name;
    EXPECT_EQ(read("/" + name), "kept");
    ASSERT_TRUE(files().rename("/" + name, "/found" + name).ok());
  }
  remount();
  EXPECT_EQ(names("/").size(), 6u);
}

TEST_F(FileVolumeTest, AReadThatNobodyWaitsForHoldsNothingUp) {
  write("/sst", text(60'000, 1));
  auto file = files().open_file("/sst");
  ASSERT_TRUE(file.ok());
  std::string bytes(60'000, '\0');
  auto waiting = std::make_unique<AsyncRead>();
  waiting->read = {0, std::as_writable_bytes(std::span(bytes)), 0, {}};
  ASSERT_TRUE((*file)->content().start(*waiting));
  for (unsigned i = 0; i < 40; ++i) write("/big", text(4 << 20, i));  // zones are reset and reused
  waiting->wait();
  EXPECT_TRUE(waiting->read.status.ok());
  EXPECT_EQ(bytes, text(60'000, 1));
}

TEST_F(FileVolumeTest, VolumesOfOtherKindsAreNotMounted) {
  auto pool = EmbeddedPool::open("mem:64MiB?zone_size=4MiB");
  ASSERT_TRUE(pool.ok());
  EXPECT_EQ(FileVolume::find((*pool)->pool(), "").status().code(), Code::not_found);
  VolumeOptions options;
  options.kind = VolumeKind::fs;
  options.name = "files";
  EXPECT_EQ((*pool)->create_volume(options).status().code(), Code::invalid_argument);
  options.mode = VolumeMode::store;
  options.nsid = 1;
  EXPECT_EQ((*pool)->create_volume(options).status().code(), Code::invalid_argument);
  options.nsid = 0;
  options.value_bytes_max = 4095;  // a part of a file would have less than an LBA
  EXPECT_EQ((*pool)->create_volume(options).status().code(), Code::invalid_argument);
  options.value_bytes_max = 4096;
  EXPECT_TRUE((*pool)->create_volume(options).ok());
}

}  // namespace
}  // namespace furrow::testing
