// Establishes that a change in the middle of a file is whole or not at all after a power cut, and
// that what was cut off stays off: the old or the new bytes, the old or the new size, and from the
// call's return on the new; that a sync covers what is still on its way in several streams; that a
// closed file has no holes; that a place is not used again before its file's removal is durable;
// that a name that was replaced does not come back, and that what has it then is whole. How: the
// power goes at one write after another (both crash models), or at once, and with it the staging
// memory. FURROW_TEST_SEED replays. FilesLife has all the rest.
#include <gtest/gtest.h>

#include <random>

#include "tests/engine/files/files_rig.h"
#include "tests/log/test_seed.h"
#include "tests/rounds.h"

namespace furrow::testing {
namespace {

class FilesPowerCutTest : public ::testing::Test, public FilesRig {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(mount(128 << 20));  // with zones for short-lived files
    unmount();
  }

  // A file whose first chunks and whose end are in zones of different streams: nothing of it is
  // durable but its record.
  std::unique_ptr<OpenFile> make_apart(const std::string& all) {
    auto file = make("/file");
    file->content().set_lifetime(Lifetime::short_term);
    EXPECT_TRUE(file->append(bytes_of(std::string_view(all).substr(0, kApart))).ok());
    file->content().set_lifetime(Lifetime::medium_term);
    EXPECT_TRUE(file->append(bytes_of(std::string_view(all).substr(kApart))).ok());
    return file;
  }
  void mount_late() {
    ASSERT_NO_FATAL_FAILURE(mount_until_cut(0, CrashModel::drive, random_(), 50));
    ASSERT_NE(volume(), nullptr);
  }

  void mount_with_pool() {
    auto opened = EmbeddedPool::open(uri());
    ASSERT_TRUE(opened.ok()) << opened.status().describe();
    pool_ = std::move(*opened);
    ASSERT_NO_FATAL_FAILURE(mount(pool_));
  }
  // As the volume has it, after mount_with_pool(), and its number.
  std::pair<std::uint32_t, FileRecord> record_of(std::string_view path) {
    const std::uint64_t inode = files().stat(path)->inode;
    auto pages = *pool_->store("files");
    for (std::uint32_t slot = 0; slot < 2000; ++slot) {
      const auto page = pages.get(slot_key(slot));
      if (!page.ok()) continue;
      const auto record = decode_file_record(*page);
      if (record.ok() && record->inode == inode) return {slot, *record};
    }
    ADD_FAILURE() << path << " has no record";
    return {};
  }

  std::shared_ptr<EmbeddedPool> pool_;
  static constexpr std::size_t kApart = 8 * 65'536;
  std::mt19937_64 random_{test_seed()};
};

TEST_F(FilesPowerCutTest, ASyncCoversWhatIsOnItsWay) {
  const std::string all(kApart + 3000, 'x');
  for (unsigned round = 0; round < 20 && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    ASSERT_NO_FATAL_FAILURE(mount_late());
    auto file = make_apart(all);
    ASSERT_TRUE(file->sync().ok());
    volume()->abandon();
    file.reset();
    cut_power(CrashModel::drive);
    ASSERT_NO_FATAL_FAILURE(mount());
    EXPECT_EQ(read("/file").size(), all.size());
    ASSERT_TRUE(files().remove("/file").ok());
    unmount();
  }
}

// The page that the record lists and that was lost has an older one under its key.
TEST_F(FilesPowerCutTest, ATailThatGrewKeepsWhatWasSynced) {
  const std::string all(2000, 'x');
  const std::string_view synced = std::string_view(all).substr(0, 1000);
  unsigned shortened = 0;
  for (unsigned round = 0; round < 40; ++round) {
    SCOPED_TRACE(round);
    ASSERT_NO_FATAL_FAILURE(mount_until_cut(0, CrashModel::drive, random_()));
    ASSERT_NE(volume(), nullptr);
    auto file = make("/file");
    file->content().set_lifetime(Lifetime::short_term);  // its bytes and its record are apart
    ASSERT_TRUE(file->append(bytes_of(synced)).ok());
    ASSERT_TRUE(file->sync().ok());
    ASSERT_TRUE(file->append(bytes_of(std::string_view(all).substr(synced.size()))).ok());
    ASSERT_TRUE(file->close().ok());
    file.reset();
    cut_power(CrashModel::drive);
    ASSERT_NO_FATAL_FAILURE(mount());
    const std::string text = read("/file");
    EXPECT_TRUE(text == all || text == synced) << text.substr(0, 40);
    shortened += text == synced;
    ASSERT_TRUE(files().remove("/file").ok());
    unmount();
  }
  EXPECT_GT(shortened, 0u);
}

TEST_F(FilesPowerCutTest, AClosedFileHasNoHoles) {
  const std::string all(kApart + 3000, 'x');
  unsigned shortened = 0;
  for (unsigned round = 0; round < 20 && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    ASSERT_NO_FATAL_FAILURE(mount_late());
    ASSERT_TRUE(make_apart(all)->close().ok());
    cut_power(CrashModel::drive);
    ASSERT_NO_FATAL_FAILURE(mount());
    const std::string text = read("/file");
    EXPECT_TRUE(all.starts_with(text)) << text.substr(0, 20);
    if (text.size() < all.size()) ++shortened;
    ASSERT_TRUE(files().remove("/file").ok());
    EXPECT_EQ(files().store().usage().pages, 2u);
    unmount();
  }
  EXPECT_GT(shortened, 0u);
}

// Written, closed and put in the place of another one, without a sync: with a lifetime the file's
// bytes go to another stream than its names.
TEST_F(FilesPowerCutTest, ARenameOverAFileIsOneOfTheTwo) {
  const std::string before(3000, 'o'), after(20'000, 'n');
  for (unsigned round = 0; round < 12 && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    const CrashModel model = round % 2 == 0 ? CrashModel::drive : CrashModel::emu;
    const bool open = round % 4 < 2;
    ASSERT_NO_FATAL_FAILURE(mount_until_cut(0, model, random_()));
    ASSERT_NE(volume(), nullptr);
    ASSERT_NO_FATAL_FAILURE(write("/file", before));
    ASSERT_TRUE(files().sync_names().ok());
    auto file = make("/new");
    file->content().set_lifetime(Lifetime::short_term);
    ASSERT_TRUE(file->append(bytes_of(after)).ok());
    if (!open) file.reset();
    ASSERT_TRUE(files().rename("/new", "/file").ok());
    volume()->abandon();
    file.reset();
    cut_power(model);
    ASSERT_NO_FATAL_FAILURE(mount());
    const std::string text = read("/file");
    EXPECT_TRUE(text == before || text == after) << text.size() << " bytes";
    for (const std::string& name : names("/")) ASSERT_TRUE(files().remove("/" + name).ok());
    unmount();
  }
}

// A file that is replaced under one of its names says so in its record, after the one that has the
// name now. Where the power goes between the two, the name is not the first one's again when the
// other one gives it up.
TEST_F(FilesPowerCutTest, AReplacedNameStaysReplaced) {
  unsigned between[2] = {};  // the name is removed then, or renamed away
  for (unsigned i = 0; between[0] == 0 || between[1] == 0; ++i) {
    ASSERT_LT(i, 80u) << "the power never went between the two";
    const unsigned lbas = 1 + i % 5, rename_away = i % 2;
    SCOPED_TRACE(lbas);
    ASSERT_NO_FATAL_FAILURE(mount());
    ASSERT_NO_FATAL_FAILURE(write("/old", "old"));
    ASSERT_TRUE(files().link("/old", "/name").ok());
    ASSERT_NO_FATAL_FAILURE(write("/new", "new"));
    unmount();
    ASSERT_NO_FATAL_FAILURE(mount_late());
    cut_after(lbas, CrashModel::drive);
    const Status renamed = files().rename("/new", "/name");
    if (renamed.ok()) (void)files().sync_names();
    cut_power(CrashModel::drive);
    ASSERT_NO_FATAL_FAILURE(mount_with_pool());
    if (read("/name") == "new") {
      if (record_of("/old").second.links.size() == 2) ++between[rename_away];
      ASSERT_TRUE(
          (rename_away != 0 ? files().rename("/name", "/other") : files().remove("/name")).ok());
      EXPECT_EQ(read("/name"), "<not found>");
      unmount();
      ASSERT_NO_FATAL_FAILURE(mount(pool_));
      EXPECT_EQ(read("/name"), "<not found>") << "it is back";
      EXPECT_EQ(read("/old"), "old");
    }
    for (const std::string& name : names("/")) ASSERT_TRUE(files().remove("/" + name).ok());
    EXPECT_EQ(files().store().usage().pages, 2u);
    unmount();
    pool_.reset();
    ASSERT_FALSE(HasFailure());
  }
}

// Else a power cut could undo the removal and leave the new record in the old one's place: nobody
// would know of the old one's pages.
TEST_F(FilesPowerCutTest, APlaceIsUsedAgainWhenItsRemovalIsDurable) {
  ASSERT_NO_FATAL_FAILURE(mount_with_pool());
  (void)make("/a");
  const std::uint32_t place = record_of("/a").first;
  ASSERT_TRUE(files().remove("/a").ok());
  (void)make("/b");
  EXPECT_NE(record_of("/b").first, place);
  ASSERT_TRUE(files().sync_names().ok());
  (void)make("/c");
  EXPECT_EQ(record_of("/c").first, place);
}

// The power goes at one write after another of a file that is written, changed and cut.
TEST_F(FilesPowerCutTest, AChangeIsWholeOrNotAtAll) {
  const auto made = [this](std::size_t bytes) {
    std::string text(bytes, '\0');
    for (char& c : text) c = static_cast<char>(random_());
    return text;
  };
  const std::string old = made(150'000), change = made(10'000);
  const std::string changed = std::string(old).replace(60'000, change.size(), change);
  unsigned finished = 0;
  for (unsigned round = 0; finished < 4 && round < 400 && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    ASSERT_NO_FATAL_FAILURE(mount_until_cut(75 + round / rounds(4, 1),
                                            round % 2 == 0 ? CrashModel::drive : CrashModel::emu,
                                            random_()));
    if (volume() == nullptr) continue;
    const std::string shortened = changed.substr(0, random_() % 2 == 0 ? 2 * 65'536 : 30'000);
    const std::string at = "/" + std::to_string(round);
    unsigned done = 0;
    if (auto file = files().create(at, FileVolume::Existing::refuse); file.ok()) {
      (*file)->content().set_lifetime(
          round % 4 < 2 ? Lifetime::short_term
                        : Lifetime::medium_term);  // its parts are then in different zones
      if ((*file)->append(bytes_of(old)).ok() && ++done &&
          (*file)->write_at(60'000, bytes_of(change)).ok() && ++done &&
          (*file)->truncate(shortened.size()).ok()) {
        ++done;
      }
      volume()->abandon();
    }
    volume()->abandon();
    kill();
    forget_staged();
    ASSERT_NO_FATAL_FAILURE(mount());
    const std::string text = read(at);
    const bool first = done < 2 && (text == "<not found>" || old.starts_with(text));
    const bool second = (done == 1 || done == 2) && text == changed;
    EXPECT_TRUE(first || second || (done >= 2 && text == shortened))
        << done << " calls returned; " << text.size() << " bytes";
    if (done == 3) ++finished;
    (void)files().remove(at);
    unmount();
  }
  EXPECT_EQ(finished, 4u);
}

// What direct writers do whose end is not aligned: whole sectors, the last padded, which is written
// again when there is more, and cut to its length in the end. The power goes at one write after
// another.
TEST_F(FilesPowerCutTest, TheLastSectorIsWrittenAgain) {
  constexpr std::size_t kSector = 4096;
  constexpr std::size_t kLengths[] = {1000, 3 * kSector + 1, 3 * kSector + 4000, 70'000, 70'001};
  constexpr std::size_t kSteps = std::size(kLengths);
  std::string text(kLengths[kSteps - 1], '\0');
  for (char& c : text) c = static_cast<char>(1 + random_() % 255);  // padding is none of it
  unsigned finished = 0;
  for (unsigned round = 0; finished < 4 && round < 400 && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    ASSERT_NO_FATAL_FAILURE(mount_until_cut(60 + round / rounds(2, 1),
                                            round % 2 == 0 ? CrashModel::drive : CrashModel::emu,
                                            random_()));
    if (volume() == nullptr) continue;
    const std::string at = "/" + std::to_string(round);
    std::size_t done = 0;  // steps; the last is the cut to its length
    if (auto file = files().create(at, FileVolume::Existing::refuse); file.ok()) {
      std::size_t before = 0;
      for (const std::size_t length : kLengths) {
        const std::size_t from = before / kSector * kSector;
        std::string sectors = text.substr(from, length - from);
        sectors.resize((sectors.size() + kSector - 1) / kSector * kSector);
        if (!(*file)->write_at(from, bytes_of(sectors)).ok() || !(*file)->sync().ok()) break;
        before = length;
        ++done;
      }
      if (done == kSteps && (*file)->truncate(text.size()).ok()) ++done;
      volume()->abandon();
    }
    volume()->abandon();
    kill();
    forget_staged();
    ASSERT_NO_FATAL_FAILURE(mount());
    const std::string is = read(at);
    const std::size_t kept = std::min(is.find('\0'), is.size());
    EXPECT_TRUE(done == 0 || kept >= kLengths[std::min(done, kSteps) - 1])
        << done << " steps returned, and " << kept << " bytes are there";
    EXPECT_TRUE((done == 0 && is == "<not found>") || text.starts_with(is.substr(0, kept)));
    EXPECT_EQ(is.find_first_not_of('\0', kept), std::string::npos) << "padding";
    EXPECT_TRUE(done <= kSteps || is == text);
    if (done > kSteps) ++finished;
    (void)files().remove(at);
    unmount();
  }
  EXPECT_EQ(finished, 4u);
}

}  // namespace
}  // namespace furrow::testing
