// Establishes that a change of names that fails leaves all names as they were, whatever other
// threads do with them meanwhile; that a file which is replaced, or removed while it is open, is
// gone for good, though the device fails its deletion at first; and that a file has as many names
// as its record has room for, and no more. How: records that would be too long; a device that fails
// one write, or holds writes back for as long as the other threads need to come between.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <future>

#include "engine/page_store_impl.h"
#include "tests/engine/files/files_rig.h"
#include "tests/log/tap_device.h"

namespace furrow::testing {
namespace {

class FilesNamesTest : public ::testing::Test, public FilesRig {
 protected:
  static constexpr std::size_t kUsual = 200;

  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(mount());
    unmount();
    auto inner = open_device(uri(), Access::exclusive);
    ASSERT_TRUE(inner.ok()) << inner.status().describe();
    auto tap = std::make_unique<TapDevice>(std::move(*inner));
    tap_ = tap.get();
    auto pool = EmbeddedPool::open(std::move(tap), {});
    ASSERT_TRUE(pool.ok()) << pool.status().describe();
    pool_ = std::move(*pool);
    ASSERT_NO_FATAL_FAILURE(FilesRig::mount(pool_));
  }
  void TearDown() override {
    unmount();
    pool_.reset();
  }
  static std::string name(unsigned i, std::size_t bytes) {
    std::string text = "/" + std::to_string(i) + "-";
    return text + std::string(1 + bytes - text.size(), 'n');
  }
  // A file of as many names as it can have: "/f", and name(i, kUsual). Returns how many i.
  unsigned make_full() {
    write("/f", "full");
    unsigned links = 0;
    while (files().link("/f", name(links, kUsual)).ok()) ++links;
    return links;
  }
  // On the pool's thread, whose device it is.
  void hold_writes() {
    pool_->call([this](Pool&) { tap_->hold(Io::Op::write); });
  }
  void let_writes_go() {
    pool_->call([this](Pool&) { tap_->let_go(Io::Op::write); });
  }
  void wait_until_held() {
    for (std::size_t held = 0; held == 0; std::this_thread::yield()) {
      pool_->call([&](Pool&) { held = tap_->held(Io::Op::write); });
    }
  }
  // The next write after those that are held finds no room.
  void let_writes_go_but_fail_the_next() {
    pool_->call([this](Pool&) {
      tap_->fail(Io::Op::write, {Code::no_space, Origin::zone});
      tap_->let_go(Io::Op::write);
    });
  }
  // By a batch: no note does, which would be the next thing written.
  void say_that_it_is_durable() {
    EXPECT_TRUE(files().make_directory("/batch").ok());
    EXPECT_TRUE(files().remove_directory("/batch").ok());
  }
  // Renames, while what is written next after the new name fails.
  Status rename_and_fail_the_next(const char* from, const char* to) {
    const auto file = files().open_file(from);
    EXPECT_TRUE(file.ok() ? (*file)->sync().ok() : files().sync_names().ok());
    say_that_it_is_durable();
    hold_writes();
    auto renamed = std::async(std::launch::async, [=, this] { return files().rename(from, to); });
    wait_until_held();
    let_writes_go_but_fail_the_next();
    return renamed.get();
  }
  void kill_and_mount() {
    kill();
    ASSERT_NO_FATAL_FAILURE(FilesRig::mount(pool_));
  }
  // But the first one and the root's record.
  std::uint64_t pages_of_files() { return files().store().usage().pages - 2; }
  // Another thread's change of that name is under way.
  void wait_until(std::string_view path, Code code) {
    while (files().stat(path).status().code() != code) std::this_thread::yield();
  }
  // That nothing happens cannot be waited for.
  static void give_others_time() { std::this_thread::sleep_for(std::chrono::milliseconds(30)); }

  TapDevice* tap_ = nullptr;
  std::shared_ptr<EmbeddedPool> pool_;
};

TEST_F(FilesNamesTest, AFileHasAsManyNamesAsItsRecordHasRoomFor) {
  const unsigned links = make_full();
  EXPECT_GT(links, 200u);
  EXPECT_EQ(files().link("/f", name(links, kUsual)).code(), Code::too_large);
  EXPECT_EQ(files().stat("/f")->links, links + 1);
  EXPECT_EQ(names("/").size(), links + 1);
  EXPECT_EQ(files().stat(name(links, kUsual)).status().code(), Code::not_found);
  EXPECT_TRUE(files().remove(name(0, kUsual)).ok());
  EXPECT_TRUE(files().link("/f", name(links, kUsual)).ok());
  unmount();
  ASSERT_NO_FATAL_FAILURE(FilesRig::mount(pool_));
  EXPECT_EQ(files().stat("/f")->links, links + 1);
  for (unsigned i = 1; i <= links; ++i) ASSERT_EQ(read(name(i, kUsual)), "full") << i;
}

// The name that it is to have again could belong to somebody else by then.
TEST_F(FilesNamesTest, ARenameThatFailsWhileItsNameIsTakenKeepsTheName) {
  (void)make_full();
  hold_writes();
  // Its record is being written: the rename waits for that.
  auto first = std::async(std::launch::async,
                          [&] { return files().rename(name(1, kUsual), name(9999, kUsual)); });
  wait_until_held();
  auto renamed =
      std::async(std::launch::async, [&] { return files().rename("/f", name(1, kFileNameMax)); });
  wait_until("/f", Code::not_found);
  auto made = std::async(std::launch::async, [&] {
    return files().create("/f", FileVolume::Existing::refuse).status();
  });
  give_others_time();
  let_writes_go();
  EXPECT_TRUE(first.get().ok());
  EXPECT_EQ(renamed.get().code(), Code::too_large);
  EXPECT_EQ(made.get().code(), Code::exists);
  EXPECT_EQ(read("/f"), "full");
}

// The record of the file that was to go, written meanwhile for another reason, says that it has
// lost its name.
TEST_F(FilesNamesTest, ARenameThatFailsLeavesTheOtherFileItsName) {
  write("/a", "a");
  write("/t", "t");
  ASSERT_TRUE(files().link("/t", "/u").ok());
  ASSERT_TRUE(files().sync_names().ok());
  say_that_it_is_durable();
  hold_writes();
  pool_->call([this](Pool&) { tap_->fail(Io::Op::write, {Code::no_space, Origin::zone}); });
  auto renamed = std::async(std::launch::async, [&] { return files().rename("/a", "/t"); });
  wait_until_held();
  auto linked = std::async(std::launch::async, [&] { return files().link("/u", "/v"); });
  wait_until("/v", Code::ok);
  let_writes_go();
  EXPECT_EQ(renamed.get().code(), Code::no_space);
  EXPECT_TRUE(linked.get().ok());
  kill_and_mount();
  EXPECT_EQ(read("/a"), "a");
  for (const char* path : {"/t", "/u", "/v"}) EXPECT_EQ(read(path), "t") << path;
}

// The medium has the record of a name that a file did not get, as only the flush behind it failed,
// and not the one that takes that back: nobody gets a name before it has.
TEST_F(FilesNamesTest, ANameThatTheMediumMaySayIsNobodysElseBeforeItDoesNot) {
  write("/a", "a");
  ASSERT_TRUE(files().sync_names().ok());
  say_that_it_is_durable();
  pool_->call([this](Pool&) {  // as where a change of the volumes failed: puts are behind a flush
    static_cast<PageStoreImpl&>(files().store()).context().unsettled = true;
  });
  hold_writes();
  auto renamed = std::async(std::launch::async, [&] { return files().rename("/a", "/b"); });
  wait_until_held();
  pool_->call([this](Pool&) { tap_->fail(Io::Op::flush, {Code::io_error, Origin::zone}); });
  let_writes_go_but_fail_the_next();
  EXPECT_EQ(renamed.get().code(), Code::io_error);
  write("/b", "b");
  kill_and_mount();
  EXPECT_EQ(names("/"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(read("/a"), "a");
}

// What is made in it may be there in memory alone: until that is decided, the directory stays.
TEST_F(FilesNamesTest, ADirectoryStaysWhileAFileIsMadeInIt) {
  ASSERT_TRUE(files().make_directory("/d").ok());
  hold_writes();
  auto made = std::async(std::launch::async, [&] {
    return files().create("/d/f", FileVolume::Existing::refuse).status();
  });
  wait_until_held();
  auto removed = std::async(std::launch::async, [&] { return files().remove_directory("/d"); });
  give_others_time();
  let_writes_go();
  EXPECT_TRUE(made.get().ok());
  const Status status = removed.get();
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_NE(std::string(status.hint()).find("not empty"), std::string::npos) << status.hint();
  EXPECT_EQ(names("/d"), std::vector<std::string>{"f"});
}

// It would be found under a name that it was not made under.
TEST_F(FilesNamesTest, NothingIsMadeInADirectoryUnderANameThatItDoesNotGet) {
  for (const bool fails : {true, false}) {
    SCOPED_TRACE(fails);
    ASSERT_TRUE(files().make_directory("/d").ok());
    ASSERT_TRUE(files().make_directory("/d/deep").ok());
    ASSERT_TRUE(files().sync_names().ok());
    say_that_it_is_durable();
    hold_writes();
    if (fails) {
      pool_->call([this](Pool&) { tap_->fail(Io::Op::write, {Code::no_space, Origin::zone}); });
    }
    auto renamed = std::async(std::launch::async, [&] { return files().rename("/d", "/e"); });
    wait_until_held();
    std::vector<std::future<Status>> made;
    for (const char* path : {"/e/f", "/e/deep/f"}) {
      made.push_back(std::async(std::launch::async, [this, path] {
        return files().create(path, FileVolume::Existing::refuse).status();
      }));
    }
    give_others_time();
    let_writes_go();
    EXPECT_EQ(renamed.get().code(), fails ? Code::no_space : Code::ok);
    for (auto& each : made) EXPECT_EQ(each.get().code(), fails ? Code::not_found : Code::ok);
    const std::vector<std::string> deep{"deep"}, both{"deep", "f"};
    EXPECT_EQ(names(fails ? "/d" : "/e"), fails ? deep : both);
    ASSERT_EQ(files().remove_directory("/d/deep").ok(), fails);
    ASSERT_EQ(files().remove_directory("/d").ok(), fails);
  }
}

// What was moved into it would go with it, if it cannot be made.
TEST_F(FilesNamesTest, NothingGoesIntoADirectoryBeforeItIsThere) {
  ASSERT_TRUE(files().make_directory("/a").ok());
  write("/a/f", "file");
  ASSERT_TRUE(files().sync_names().ok());
  say_that_it_is_durable();
  hold_writes();
  pool_->call([this](Pool&) { tap_->fail(Io::Op::write, {Code::no_space, Origin::zone}); });
  auto made = std::async(std::launch::async, [&] { return files().make_directory("/d"); });
  wait_until_held();
  auto moved = std::async(std::launch::async, [&] { return files().rename("/a", "/d/a"); });
  give_others_time();
  let_writes_go();
  EXPECT_EQ(made.get().code(), Code::no_space);
  EXPECT_EQ(moved.get().code(), Code::not_found);
  EXPECT_EQ(names("/"), std::vector<std::string>{"a"});
  EXPECT_EQ(read("/a/f"), "file");
}

// And as long as a name in it may come back.
TEST_F(FilesNamesTest, ADirectoryStaysWhileAFileIsMovedOutOfItAndFailsTo) {
  ASSERT_TRUE(files().make_directory("/d").ok());
  (void)make_full();
  ASSERT_TRUE(files().rename("/f", "/d/f").ok());
  hold_writes();
  auto first = std::async(std::launch::async,
                          [&] { return files().rename(name(1, kUsual), name(9999, kUsual)); });
  wait_until_held();
  auto renamed =
      std::async(std::launch::async, [&] { return files().rename("/d/f", name(1, kFileNameMax)); });
  wait_until("/d/f", Code::not_found);
  auto removed = std::async(std::launch::async, [&] { return files().remove_directory("/d"); });
  give_others_time();
  EXPECT_TRUE(files().stat("/d").ok()) << "it looked empty";
  let_writes_go();
  EXPECT_TRUE(first.get().ok());
  EXPECT_EQ(renamed.get().code(), Code::too_large);
  EXPECT_EQ(removed.get().code(), Code::invalid_argument);
  EXPECT_EQ(read("/d/f"), "full");
  unmount();
  ASSERT_NO_FATAL_FAILURE(FilesRig::mount(pool_));
  EXPECT_EQ(read("/d/f"), "full");
}

// It is empty when what is removed from it is gone.
TEST_F(FilesNamesTest, ADirectoryGoesAfterTheFileThatIsBeingRemovedFromIt) {
  ASSERT_TRUE(files().make_directory("/d").ok());
  write("/d/f", "file");
  hold_writes();
  auto file = std::async(std::launch::async, [&] { return files().remove("/d/f"); });
  wait_until_held();
  auto directory = std::async(std::launch::async, [&] { return files().remove_directory("/d"); });
  give_others_time();
  EXPECT_TRUE(files().stat("/d").ok());
  let_writes_go();
  EXPECT_TRUE(file.get().ok());
  EXPECT_TRUE(directory.get().ok());
  EXPECT_EQ(files().stat("/d").status().code(), Code::not_found);
}

// Its record still says that name, and nobody else's would once the other file has lost it.
TEST_F(FilesNamesTest, AReplacedFileStaysGoneThoughItsDeletionFailed) {
  for (const bool renamed : {false, true}) {
    SCOPED_TRACE(renamed);
    write("/a", "new");
    write("/b", "old");
    EXPECT_TRUE(rename_and_fail_the_next("/a", "/b").ok()) << "the name is the new file's";
    EXPECT_EQ(read("/b"), "new");
    EXPECT_TRUE(renamed ? files().rename("/b", "/c").ok() : files().remove("/b").ok());
    for (int round = 0; round < 2; ++round) {
      EXPECT_EQ(names("/"), renamed ? std::vector<std::string>{"c"} : std::vector<std::string>());
      EXPECT_EQ(pages_of_files(), renamed ? 2u : 0u);
      kill_and_mount();
    }
  }
}

TEST_F(FilesNamesTest, AReplacedFileThatIsOpenStaysGoneThoughItsRecordFailed) {
  for (const bool closed : {false, true}) {
    SCOPED_TRACE(closed);
    write("/a", "new");
    write("/b", "old");
    auto open = files().open_file("/b");
    ASSERT_TRUE(open.ok());
    EXPECT_TRUE(rename_and_fail_the_next("/a", "/b").ok());
    if (closed) open->reset();
    EXPECT_TRUE(files().remove("/b").ok());
    EXPECT_TRUE(closed || read(**open) == "old");
    open->reset();
    for (int round = 0; round < 2; ++round) {
      EXPECT_EQ(names("/"), std::vector<std::string>());
      EXPECT_EQ(pages_of_files(), 0u);
      kill_and_mount();
    }
  }
}

// Who takes the name away meanwhile does not take that for done.
TEST_F(FilesNamesTest, AReplacedFilesDeletionFailsWhileItsNameGoes) {
  write("/a", "new");
  write("/b", "old");
  auto open = files().open_file("/b");
  ASSERT_TRUE(open.ok());
  EXPECT_TRUE(rename_and_fail_the_next("/a", "/b").ok());
  hold_writes();
  pool_->call([this](Pool&) { tap_->fail(Io::Op::write, {Code::no_space, Origin::zone}); });
  auto closed = std::async(std::launch::async, [&] { open->reset(); });  // and deletes it
  wait_until_held();
  auto removed = std::async(std::launch::async, [&] { return files().remove("/b"); });
  give_others_time();
  let_writes_go();
  closed.get();
  EXPECT_TRUE(removed.get().ok());
  kill_and_mount();
  EXPECT_EQ(names("/"), std::vector<std::string>());
}

// What comes into the directory meanwhile would go with it, or be replaced.
TEST_F(FilesNamesTest, ADirectoryDoesNotGoWithWhatIsMadeInItWhileAReplacedOneIsDeleted) {
  for (const bool renamed : {false, true}) {
    SCOPED_TRACE(renamed);
    for (const char* path : {"/a", "/b", "/c"}) ASSERT_TRUE(files().make_directory(path).ok());
    EXPECT_TRUE(rename_and_fail_the_next("/a", "/b").ok());
    hold_writes();
    auto gone = std::async(std::launch::async, [&] {
      return renamed ? files().rename("/b", "/c") : files().remove_directory("/b");
    });
    wait_until_held();
    const std::string path = renamed ? "/c/f" : "/b/f";
    auto made = std::async(std::launch::async, [&] {
      return files().create(path, FileVolume::Existing::refuse).status();
    });
    wait_until(path, Code::ok);
    let_writes_go();
    EXPECT_EQ(gone.get().code(), Code::invalid_argument);
    EXPECT_TRUE(made.get().ok());
    EXPECT_THAT(names("/"), ::testing::ElementsAre("b", "c"));
    kill_and_mount();
    EXPECT_TRUE(files().stat(path).ok());
    EXPECT_TRUE(files().remove(path).ok());
    EXPECT_TRUE(files().remove_directory("/b").ok());
    EXPECT_TRUE(files().remove_directory("/c").ok());
  }
}

// Nor with what is still to get a number for its record.
TEST_F(FilesNamesTest, ADirectoryDoesNotGoBeforeWhatIsMadeInItHasANumber) {
  constexpr unsigned kNumbers = 1024;  // that a volume begins with
  for (unsigned i = 0; i + 4 < kNumbers; ++i) {
    ASSERT_TRUE(files().create("/" + std::to_string(i), FileVolume::Existing::refuse).ok());
  }
  for (const char* path : {"/a", "/b"}) ASSERT_TRUE(files().make_directory(path).ok());
  EXPECT_TRUE(rename_and_fail_the_next("/a", "/b").ok());
  hold_writes();
  auto gone = std::async(std::launch::async, [&] { return files().remove_directory("/b"); });
  wait_until_held();
  auto made = std::async(std::launch::async, [&] {
    return files().create("/b/f", FileVolume::Existing::refuse).status();
  });
  give_others_time();
  let_writes_go();
  EXPECT_EQ(gone.get().code(), Code::invalid_argument);
  EXPECT_TRUE(made.get().ok());
  EXPECT_TRUE(files().stat("/b/f").ok());
}

// The name is not that of a file which cannot be read any more.
TEST_F(FilesNamesTest, ARemovalThatIsNotKnownToBeDurableIsDone) {
  write("/f", "text");
  const Status refused(Code::io_error, Origin::zone);
  pool_->call([&](Pool&) {  // as where a change of the volumes failed: all is behind a flush
    static_cast<PageStoreImpl&>(files().store()).context().unsettled = true;
    tap_->fail(Io::Op::flush, refused, 100);
  });
  EXPECT_EQ(files().remove("/f").code(), Code::io_error);
  EXPECT_EQ(names("/"), std::vector<std::string>());
  pool_->call([&](Pool&) { tap_->fail(Io::Op::flush, refused, 0); });
  EXPECT_TRUE(files().sync_names().ok());
  write("/f", "new");
  EXPECT_EQ(read("/f"), "new");
  kill_and_mount();
  EXPECT_EQ(read("/f"), "new");
}

// What waits for room is in memory alone: it stays there until the device has the deletion.
TEST_F(FilesNamesTest, AKillWhileAFileIsRemovedLeavesAllOfItOrNothing) {
  auto file = make("/f");
  ASSERT_TRUE(file->append(bytes_of("staged")).ok());
  const std::uint64_t inode = file->inode();
  const auto is_staged = [&] {
    std::ifstream memory("/dev/shm" + staging_name(), std::ios::binary);
    std::string heads(16384, '\0');
    memory.read(heads.data(), static_cast<std::streamsize>(heads.size()));
    return heads.find(std::string_view(reinterpret_cast<const char*>(&inode), sizeof inode)) !=
           heads.npos;
  };
  tap_->set_short_of_room(true);
  EXPECT_EQ(file->close().code(), Code::no_space);
  file.reset();
  hold_writes();
  auto removed = std::async(std::launch::async, [this] { return files().remove("/f"); });
  wait_until_held();
  EXPECT_TRUE(is_staged());
  let_writes_go();
  EXPECT_TRUE(removed.get().ok());
  EXPECT_FALSE(is_staged());
  tap_->set_short_of_room(false);
}

// Nor does a removal that fails take anything: neither chunks that were refused, nor those that the
// device was not given yet, nor what came behind the last sync.
TEST_F(FilesNamesTest, ARemovalThatFailsLeavesWhatWaitsForRoom) {
  const auto fail_to_remove = [this] {
    const Status no_room(Code::no_space, Origin::zone);
    pool_->call([&](Pool&) { tap_->fail(Io::Op::write, no_room, 100); });  // notes, too
    EXPECT_EQ(files().remove("/f").code(), Code::no_space);
    pool_->call([&](Pool&) { tap_->fail(Io::Op::write, no_room, 0); });
  };
  for (const std::size_t bytes : {std::size_t{6}, std::size_t{300} << 10, std::size_t{900} << 10}) {
    SCOPED_TRACE(bytes);
    std::string text(bytes, '\0');
    for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i * 13 + i / 241);
    auto file = make("/f");
    EXPECT_TRUE(file->append(bytes_of("synced")).ok());
    EXPECT_TRUE(file->sync().ok());
    tap_->set_short_of_room(true);
    (void)file->append(bytes_of(text));  // as far as there is memory for it
    EXPECT_EQ(file->close().code(), Code::no_space);
    text = read(*file);
    file.reset();
    for (unsigned i = 0; i < 3; ++i) {
      fail_to_remove();
      EXPECT_TRUE(read("/f") == text);
      if (i == 1) kill_and_mount();
    }
    tap_->set_short_of_room(false);
    auto kept = files().create("/f", FileVolume::Existing::keep);
    ASSERT_TRUE(kept.ok());
    EXPECT_TRUE((*kept)->append(bytes_of("more")).ok());
    EXPECT_TRUE((*kept)->close().ok());
    kept->reset();
    EXPECT_TRUE(read("/f") == text + "more");
    kill_and_mount();
    EXPECT_TRUE(read("/f") == text + "more");
    EXPECT_TRUE(files().remove("/f").ok());
    EXPECT_EQ(pages_of_files(), 0u);
  }
}

// What is moved may have to go back to where it was.
TEST_F(FilesNamesTest, ADirectoryDoesNotGoIntoOneThatMayComeBackIntoIt) {
  ASSERT_TRUE(files().make_directory("/a").ok());
  ASSERT_TRUE(files().make_directory("/a/c").ok());
  ASSERT_TRUE(files().make_directory("/a/c/b").ok());
  write("/a/c/b/f", "file");
  pool_->call([this](Pool&) { tap_->fail(Io::Op::write, {Code::no_space, Origin::zone}); });
  hold_writes();
  auto out = std::async(std::launch::async, [&] { return files().rename("/a/c/b", "/b"); });
  wait_until_held();
  auto in = std::async(std::launch::async, [&] { return files().rename("/a", "/b/a"); });
  give_others_time();
  let_writes_go();
  EXPECT_EQ(out.get().code(), Code::no_space);
  EXPECT_EQ(in.get().code(), Code::not_found) << "nothing got the name";
  for (unsigned i = 0; i < 2; ++i) {
    EXPECT_EQ(read("/a/c/b/f"), "file");
    kill_and_mount();
  }
}

// Then deletes are all that helps.
TEST_F(FilesNamesTest, NamesGoWhereTheMediumTakesNothingNew) {
  write("/a", "new");
  write("/b", "old");
  write("/c", "two names");
  ASSERT_TRUE(files().link("/c", "/d").ok());
  write("/e", "open");
  auto open = files().open_file("/b");
  std::vector<std::unique_ptr<OpenFile>> written;  // their records say nothing of their chunks
  for (const std::string path : {"/g", "/h"}) {
    written.push_back(make(path));
    ASSERT_TRUE(files().link(path, path + "2").ok());
    ASSERT_TRUE(written.back()->append(bytes_of(std::string(600 << 10, 'g'))).ok());
    ASSERT_TRUE(written.back()->sync().ok());
  }
  auto other = files().open_file("/e");
  ASSERT_TRUE(open.ok() && other.ok());
  EXPECT_TRUE(rename_and_fail_the_next("/a", "/b").ok());
  tap_->set_short_of_room(true);
  EXPECT_EQ(files().rename("/c", "/f").code(), Code::no_space);
  for (const char* path : {"/b", "/c", "/e", "/g", "/g2", "/h"}) {
    EXPECT_TRUE(files().remove(path).ok()) << path;
  }
  open->reset();
  other->reset();
  for (const bool full : {true, false}) {  // it is mounted all the same
    files().abandon();
    written.clear();
    kill();
    tap_->set_short_of_room(full);
    ASSERT_NO_FATAL_FAILURE(FilesRig::mount(pool_));
    EXPECT_THAT(names("/"), ::testing::ElementsAre("d", "h2"));
    EXPECT_EQ(read("/d"), "two names");
    EXPECT_EQ(read("/h2"), std::string(600 << 10, 'g'));
    EXPECT_EQ(pages_of_files(), 2u + 11u);
  }
}

// Nobody is there to be told: it is tried again.
TEST_F(FilesNamesTest, WhatCouldNotBeDeletedWhenItWasClosedIsLater) {
  for (const bool synced : {false, true}) {
    SCOPED_TRACE(synced);
    auto open = make("/f");
    ASSERT_TRUE(open->append(bytes_of("bytes")).ok());
    ASSERT_TRUE(open->sync().ok());
    ASSERT_TRUE(open->close().ok());
    ASSERT_TRUE(files().remove("/f").ok());
    pool_->call([this](Pool&) { tap_->fail(Io::Op::write, {Code::no_space, Origin::zone}); });
    open.reset();
    EXPECT_EQ(pages_of_files(), 2u);
    EXPECT_EQ(files().usage().files, 1u);
    write("/other", "");
    EXPECT_TRUE(synced ? files().sync_names().ok() : files().remove("/other").ok());
    EXPECT_EQ(files().usage().files, synced ? 1u : 0u);
    EXPECT_EQ(pages_of_files(), synced ? 1u : 0u);
  }
}

}  // namespace
}  // namespace furrow::testing
