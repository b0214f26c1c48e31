// Establishes what becomes of a volume of which records cannot be read: it is not mounted, the
// error says what to do, and a rescue reads all that is left without writing a byte, names what is
// lost, and finds files without a record by what they hold. Nor is one mounted while it may have
// more than can be read. How: bits of records, of the first page and of chunks are flipped in the
// pool's file, or pages taken away; a device does not give some of what it has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/files/files_rig.h"

namespace furrow::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FilesRescueTest : public ::testing::Test, public FilesRig {
 protected:
  using Rescued = std::shared_ptr<const FileVolume>;

  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(mount());
    ASSERT_TRUE(files().make_directory("/db").ok());
    write("/db/one-file", some(200'000, 1));
    write("/db/two-file", some(300'000, 2));
    write("/kept", "kept");
    inode_ = files().stat("/db/two-file")->inode;
  }
  static std::string some(std::size_t bytes, unsigned seed) {
    std::string made(bytes, '\0');
    std::uint32_t random = seed;
    for (char& byte : made) {
      random = random * 1664525 + 1013904223;
      byte = static_cast<char>(random >> 24);
    }
    return made;
  }
  std::string found() const { return "/lost+found." + std::to_string(inode_); }
  // Wherever it stands in the file.
  void damage_all(std::string_view text) {
    const std::vector<std::size_t> all = places(read_file(), text);
    ASSERT_FALSE(all.empty());
    for (const std::size_t at : all) damage(at);
  }
  Status try_mount() {
    std::shared_ptr<EmbeddedPool> pool = *EmbeddedPool::open(uri());
    return FileVolume::mount(pool, **FileVolume::find(pool->pool(), "")).status();
  }
  Rescued rescue() {
    auto pool = EmbeddedPool::open_to_read(uri());
    EXPECT_TRUE(pool.ok()) << pool.status().describe();
    PageStore& store = **FileVolume::find((*pool)->pool(), "");
    auto rescued = FileVolume::salvage(std::move(*pool), store);
    EXPECT_TRUE(rescued.ok()) << rescued.status().describe();
    return std::move(*rescued);
  }
  static std::vector<std::string> names(const FileVolume& volume, std::string_view path) {
    std::vector<std::string> all;
    const auto list = volume.list(path);
    if (!list.ok()) return {"<" + std::string(to_string(list.status().code())) + ">"};
    for (const FileInfo& info : *list) all.push_back(info.name);
    return all;
  }
  static std::string text_in(const FileVolume& volume, std::string_view path) {
    const auto content = volume.content(path);
    if (!content.ok()) return "<" + std::string(to_string(content.status().code())) + ">";
    std::string text((*content)->size(), '\0');
    const auto bytes = (*content)->read(0, std::as_writable_bytes(std::span(text)));
    return bytes.ok() ? text : "<read: " + std::string(to_string(bytes.status().code())) + ">";
  }
  static std::vector<std::string> lost(const FileVolume& volume) {
    std::vector<std::string> all;
    for (const FileLoss& loss : volume.losses()) all.push_back(loss.what);
    return all;
  }

  std::uint64_t inode_ = 0;
};

TEST_F(FilesRescueTest, NothingIsLostOfAVolumeThatIsWhole) {
  unmount();
  const Rescued rescued = rescue();
  EXPECT_THAT(lost(*rescued), ElementsAre());
  EXPECT_THAT(names(*rescued, "/"), ElementsAre("db", "kept"));
  EXPECT_TRUE(text_in(*rescued, "/db/one-file") == some(200'000, 1));
}

TEST_F(FilesRescueTest, AFileThatLostItsRecordIsFoundByItsParts) {
  unmount();
  ASSERT_NO_FATAL_FAILURE(damage_all("two-file"));
  const Status refused = try_mount();
  EXPECT_EQ(refused.code(), Code::corrupt);
  EXPECT_THAT(refused.describe(), HasSubstr("furrowctl fs export --rescue"));
  const FileImage before = read_file();
  {
    const Rescued rescued = rescue();
    EXPECT_THAT(names(*rescued, "/"), ElementsAre("db", "kept", found().substr(1)));
    EXPECT_THAT(names(*rescued, "/db"), ElementsAre("one-file"));
    EXPECT_TRUE(text_in(*rescued, "/db/one-file") == some(200'000, 1));
    EXPECT_TRUE(text_in(*rescued, found()) == some(300'000, 2));
    EXPECT_EQ(text_in(*rescued, "/kept"), "kept");
    EXPECT_EQ(lost(*rescued).size(), 2u);
    EXPECT_THAT(lost(*rescued), Contains(found()));
    EXPECT_THAT(lost(*rescued), Contains(HasSubstr("record number")));
  }
  EXPECT_TRUE(read_file() == before) << "a rescue writes nothing";
}

TEST_F(FilesRescueTest, WhatIsLeftOfAFileWithoutARecordStaysWhereItWas) {
  {
    auto file = files().open_file("/db/two-file");
    ASSERT_TRUE((*file)->write_at(70'000, bytes_of("replaced")).ok());
  }
  unmount();
  {
    auto pool = EmbeddedPool::open(uri());
    auto store = (*pool)->store("files");
    ASSERT_TRUE(store->remove(chunk_key(inode_, 0, 0)).ok());
  }
  ASSERT_NO_FATAL_FAILURE(damage_all("two-file"));
  std::string text = some(300'000, 2);
  text.replace(70'000, 8, "replaced");
  const Rescued rescued = rescue();
  const auto content = rescued->content(found());
  ASSERT_TRUE(content.ok());
  EXPECT_EQ((*content)->size(), text.size());
  EXPECT_EQ((*content)->part_end(0), 64u << 10);
  std::string rest(text.size() - (64 << 10), '\0');
  const auto memory = std::as_writable_bytes(std::span(rest));
  EXPECT_EQ((*content)->read(0, memory).status().code(), Code::corrupt);
  ASSERT_TRUE((*content)->read(64 << 10, memory).ok());
  EXPECT_TRUE(rest == text.substr(64 << 10));
}

TEST_F(FilesRescueTest, WithoutItsFirstPageAllIsThere) {
  unmount();
  ASSERT_NO_FATAL_FAILURE(damage_all("FRRWFSUS"));
  EXPECT_EQ(try_mount().code(), Code::corrupt);
  const Rescued rescued = rescue();
  EXPECT_EQ(lost(*rescued).size(), 1u);
  EXPECT_THAT(names(*rescued, "/"), ElementsAre("db", "kept"));
  EXPECT_TRUE(text_in(*rescued, "/db/two-file") == some(300'000, 2));
}

// Nor is a volume that has lost it taken for a new one.
TEST_F(FilesRescueTest, AFirstPageThatIsNotThereIsLost) {
  unmount();
  {
    auto pool = EmbeddedPool::open(uri());
    ASSERT_TRUE((*pool)->store("files")->remove(super_key()).ok());
  }
  EXPECT_EQ(try_mount().code(), Code::corrupt);
  EXPECT_TRUE(text_in(*rescue(), "/db/two-file") == some(300'000, 2));
}

TEST_F(FilesRescueTest, WithoutADirectoryItsFilesAreInTheRoot) {
  const std::string one = "lost+found." + std::to_string(files().stat("/db/one-file")->inode);
  unmount();
  // The name of the directory, in its record, behind the two bytes of the length.
  ASSERT_NO_FATAL_FAILURE(damage_all(std::string_view("\2\0db", 4)));
  EXPECT_EQ(try_mount().code(), Code::corrupt);
  const Rescued rescued = rescue();
  EXPECT_THAT(names(*rescued, "/"), ElementsAre("kept", one, found().substr(1)));
  EXPECT_TRUE(text_in(*rescued, found()) == some(300'000, 2));
}

TEST_F(FilesRescueTest, WhatWasStagedIsSeenAndStays) {
  auto file = make("/log-file");
  ASSERT_TRUE(file->append(bytes_of("synced")).ok());
  ASSERT_TRUE(file->sync().ok());
  ASSERT_TRUE(file->append(bytes_of(", staged")).ok());
  volume()->abandon();
  file.reset();
  kill();
  const FileImage whole = read_file();
  ASSERT_NO_FATAL_FAILURE(damage_all("two-file"));
  EXPECT_EQ(try_mount().code(), Code::corrupt);
  for (unsigned i = 0; i < 2; ++i) EXPECT_EQ(text_in(*rescue(), "/log-file"), "synced, staged");
  write_file(whole);
  ASSERT_NO_FATAL_FAILURE(mount());
  EXPECT_EQ(read("/log-file"), "synced, staged");
}

// Who goes through all directories would never end.
TEST_F(FilesRescueTest, ARootThatIsInItselfIsNone) {
  const std::uint64_t directory = files().stat("/db")->inode;
  unmount();
  {
    auto pool = EmbeddedPool::open(uri());
    auto store = (*pool)->store("files");
    for (std::uint32_t slot = 0; slot < 10; ++slot) {
      const auto page = store->get(slot_key(slot));
      if (!page.ok()) continue;
      auto record = *decode_file_record(*page);
      if (record.inode != kRootInode) continue;
      record.links.push_back({directory, 1, "root"});
      ASSERT_TRUE(store->put(slot_key(slot), *encode(record, 4096)).ok());
    }
  }
  EXPECT_EQ(try_mount().code(), Code::corrupt);
  const Rescued rescued = rescue();
  EXPECT_EQ(lost(*rescued).size(), 1u);
  EXPECT_THAT(names(*rescued, "/"), ElementsAre("db", "kept"));
  EXPECT_THAT(names(*rescued, "/db"), ElementsAre("one-file", "two-file"));
}

// Of a file that was durable: it is not taken for what a power cut took.
TEST_F(FilesRescueTest, APartThatIsLostIsSaidToBeCorrupt) {
  {
    auto file = files().open_file("/db/two-file");
    ASSERT_TRUE((*file)->append(bytes_of("and on")).ok() && (*file)->sync().ok());
  }
  unmount();
  std::string text = some(300'000, 2);
  ASSERT_NO_FATAL_FAILURE(damage_all(std::string_view(text).substr(100'000, 64)));
  ASSERT_NO_FATAL_FAILURE(mount());
  EXPECT_EQ(read("/db/two-file"), "<read: corrupt>");
  EXPECT_TRUE(read("/db/one-file") == some(200'000, 1));
  unmount();
  {
    auto pool = EmbeddedPool::open(uri());
    auto store = (*pool)->store("files");
    ASSERT_TRUE(store->remove(chunk_key(inode_, 0, 3 << 16)).ok());
  }
  ASSERT_NO_FATAL_FAILURE(mount());
  auto file = files().open_file("/db/two-file");
  ASSERT_TRUE(file.ok());
  std::string part(64 << 10, '\0');
  const auto memory = std::as_writable_bytes(std::span(part));
  const std::array<Code, 4> said{Code::ok, Code::corrupt, Code::ok, Code::corrupt};
  for (std::size_t i = 0; i < said.size(); ++i) {
    const Result<std::size_t> got = (*file)->read(i << 16, memory);
    EXPECT_EQ(got.status().code(), said[i]) << i << ": " << got.status().describe();
    if (got.ok()) {
      EXPECT_TRUE(part == text.substr(i << 16, part.size())) << i;
    }
  }
}

// What stays of it is put anew, and would be right by its checksum then.
TEST_F(FilesRescueTest, ACutThroughADamagedPartIsRefused) {
  unmount();
  const std::string text = some(300'000, 2);
  ASSERT_NO_FATAL_FAILURE(damage_all(std::string_view(text).substr(100'000, 64)));
  ASSERT_NO_FATAL_FAILURE(mount());
  auto file = files().open_file("/db/two-file");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->truncate(120'000).code(), Code::corrupt);
  EXPECT_EQ(files().stat("/db/two-file")->bytes, text.size());
  EXPECT_EQ(read("/db/two-file"), "<read: corrupt>");
  EXPECT_TRUE((*file)->truncate(2 << 16).ok()) << "behind it";
  EXPECT_EQ(read("/db/two-file"), "<read: corrupt>");
  EXPECT_TRUE((*file)->truncate(50'000).ok()) << "before it";
  EXPECT_TRUE(read("/db/two-file") == text.substr(0, 50'000));
}

// A zone may be readable again the next time: what is in it stays, and nothing takes its place.
TEST_F(FilesRescueTest, AZoneThatCannotBeReadForAWhileTakesNothing) {
  const ZoneLives zones = zone_lives();
  write("/later", some(9 << 20, 3));  // in others, too
  unmount();
  for (const bool lost : {true, false}) {
    auto inner = open_device(uri(), Access::exclusive);
    ASSERT_TRUE(inner.ok()) << inner.status().describe();
    auto fault = std::make_unique<FaultDevice>(std::move(*inner), FaultOptions());
    const Geometry shape = fault->geometry();
    for (const auto& [zone, generation] : zones) {
      if (lost) fault->degrade(ZoneId{zone}, ZoneState::offline);
      fault->fail_reads(shape.zone_start(ZoneId{zone}), shape.zone_size_lbas);
    }
    auto opened = EmbeddedPool::open(std::move(fault), {});
    ASSERT_TRUE(opened.ok()) << opened.status().describe();
    const std::shared_ptr<EmbeddedPool> pool = std::move(*opened);
    PageStore& store = **FileVolume::find(pool->pool(), "");
    const Status refused = FileVolume::mount(pool, store).status();
    EXPECT_EQ(refused.code(), Code::io_error);
    EXPECT_THAT(refused.describe(), HasSubstr("furrowctl fs export --rescue"));
    const auto rescued = FileVolume::salvage(pool, store);
    ASSERT_TRUE(rescued.ok()) << rescued.status().describe();
    EXPECT_FALSE((*rescued)->losses().empty());
  }
  ASSERT_NO_FATAL_FAILURE(mount());
  EXPECT_THAT(FilesRig::names("/"), ElementsAre("db", "kept", "later"));
  EXPECT_TRUE(read("/db/two-file") == some(300'000, 2));
}

// Chunks behind those that the record of an open file lists are found by their batch headers.
TEST_F(FilesRescueTest, TheEndOfAFileThatCannotBeReadIsNoEnd) {
  auto file = make("/log-file");
  ASSERT_TRUE(file->append(bytes_of(some(100'000, 4))).ok());
  ASSERT_TRUE(file->sync().ok());
  volume()->abandon();
  file.reset();
  kill();
  auto inner = open_device(uri(), Access::exclusive);
  ASSERT_TRUE(inner.ok()) << inner.status().describe();
  auto made = std::make_unique<FaultDevice>(std::move(*inner), FaultOptions());
  FaultDevice& fault = *made;
  auto opened = EmbeddedPool::open(std::move(made), {});
  ASSERT_TRUE(opened.ok()) << opened.status().describe();
  const std::shared_ptr<EmbeddedPool> pool = std::move(*opened);
  PageStore& store = **FileVolume::find(pool->pool(), "");
  const auto found = places(read_file(), some(64, 4));
  ASSERT_EQ(found.size(), 1u);
  const std::uint64_t header = (found[0] - kDataAt) / kLba - 1;
  const std::uint64_t zone_lbas = pool->geometry().zone_size_lbas;
  fault.fail_reads(Lba{header}, zone_lbas - header % zone_lbas);
  const Status refused = FileVolume::mount(pool, store).status();
  EXPECT_EQ(refused.code(), Code::io_error);
  EXPECT_THAT(refused.describe(), HasSubstr("furrowctl fs export --rescue"));
}

// What a power cut may have torn, and nobody can read, may not be part of its file the next time.
TEST_F(FilesRescueTest, AnEndThatMayBeTornKeepsTheVolumeClosedUntilItIsGivenUp) {
  const std::string text = some(1'500'000, 4);
  auto file = make("/log-file");
  ASSERT_TRUE(file->append(bytes_of(text)).ok());
  const FileImage on_device = read_file();
  volume()->abandon();
  file.reset();
  kill();
  write_file(on_device);              // as it was, without what closing has flushed
  std::size_t at = text.size() - 64;  // of the last part that is in a zone
  std::vector<std::size_t> found;
  for (; found.empty() && at > 100'000; at -= 50'000) {
    found = places(on_device, std::string_view(text).substr(at, 64));
  }
  ASSERT_EQ(found.size(), 1u) << "it is not in a zone";
  const Lba torn{(found[0] - kDataAt) / kLba};
  for (const bool given_up : {false, true}) {
    for (const bool gives_up : {true, false}) {
      if (gives_up && !given_up) continue;
      SCOPED_TRACE(gives_up ? "gives up" : given_up ? "given up" : "cannot be read");
      auto inner = open_device(uri(), Access::exclusive);
      ASSERT_TRUE(inner.ok()) << inner.status().describe();
      auto fault = std::make_unique<FaultDevice>(std::move(*inner), FaultOptions());
      fault->fail_reads(torn, 1);
      const auto zone = static_cast<std::uint32_t>(torn.value / fault->geometry().zone_size_lbas);
      EmbeddedPool::CreateOptions with;
      if (gives_up) with.opening.give_up = {zone};
      auto opened = EmbeddedPool::open(std::move(fault), with);
      ASSERT_TRUE(opened.ok()) << opened.status().describe();
      const std::shared_ptr<EmbeddedPool> pool = std::move(*opened);
      if (gives_up) {
        Status done{Code::busy, Origin::engine};
        while (done.code() == Code::busy) {
          pool->call([&](Pool& its) { done = its.given_up().at(0).status; });
        }
        ASSERT_TRUE(done.ok()) << done.describe();
        continue;
      }
      auto mounted = FileVolume::mount(pool, **FileVolume::find(pool->pool(), ""));
      ASSERT_EQ(mounted.ok(), given_up) << mounted.status().describe();
      if (!given_up) {
        EXPECT_THAT(mounted.status().describe(), HasSubstr("furrowctl fs export --rescue"));
        continue;
      }
      const auto info = (*mounted)->stat("/log-file");
      ASSERT_TRUE(info.ok()) << info.status().describe();
      EXPECT_LE(info->bytes, at + 50'000);
    }
  }
}

// Where a record does not say that all of it was durable, a mount takes what is missing, and what
// is behind that, for what a power cut took.
TEST_F(FilesRescueTest, WhatIsBehindALostPartIsRescued) {
  unmount();
  {
    auto pool = EmbeddedPool::open(uri());
    auto store = (*pool)->store("files");
    for (const std::uint64_t chunk : {1, 4}) {  // of five
      ASSERT_TRUE(store->remove(chunk_key(inode_, 0, chunk << 16)).ok());
    }
  }
  {
    const Rescued rescued = rescue();
    const auto content = rescued->content("/db/two-file");
    ASSERT_TRUE(content.ok());
    ASSERT_EQ((*content)->size(), 4u << 16);
    std::string part(64 << 10, '\0');
    const auto memory = std::as_writable_bytes(std::span(part));
    for (std::size_t i = 0; i < 4; ++i) {
      const Result<std::size_t> got = (*content)->read(i << 16, memory);
      EXPECT_EQ(got.status().code(), i == 1 ? Code::corrupt : Code::ok) << i;
      if (got.ok()) {
        EXPECT_TRUE(part == some(300'000, 2).substr(i << 16, part.size())) << i;
      }
    }
  }
  ASSERT_NO_FATAL_FAILURE(mount());
  EXPECT_TRUE(read("/db/two-file") == some(300'000, 2).substr(0, 64 << 10));
}

}  // namespace
}  // namespace furrow::testing
