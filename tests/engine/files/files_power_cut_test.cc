// Establishes that a change in the middle of a file is whole or not at all after a power cut, and
// that what was cut off stays off: the old or the new bytes, the old or the new size, and from the
// call's return on the new. How: the power goes at one write after another (both crash models), and
// with it the staging memory. FURROW_TEST_SEED replays. FilesLife has all the rest.
#include <gtest/gtest.h>

#include <random>

#include "tests/engine/files/files_rig.h"
#include "tests/log/test_seed.h"

namespace furrow::testing {
namespace {

class FilesPowerCutTest : public ::testing::Test, public FilesRig {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(mount(128 << 20));  // with zones for short-lived files
    unmount();
  }

  std::mt19937_64 random_{test_seed()};
};

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
    ASSERT_NO_FATAL_FAILURE(mount_until_cut(
        75 + round / 4, round % 2 == 0 ? CrashModel::drive : CrashModel::emu, random_()));
    if (volume() == nullptr) continue;
    const std::string shortened = changed.substr(0, random_() % 2 == 0 ? 2 * 65'536 : 30'000);
    const std::string at = "/" + std::to_string(round);
    unsigned done = 0;
    if (auto file = files().create(at, FileVolume::Existing::refuse); file.ok()) {
      (*file)->content().set_short_lived(round % 4 < 2);  // its parts are then in different zones
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

}  // namespace
}  // namespace furrow::testing
