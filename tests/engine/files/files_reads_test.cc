// Establishes that reads wait for nobody they need not wait for: those of a file neither for what
// is done to another one, be it read, written or renamed, nor for a part of a batch that is late;
// that a large read that was begun goes on by itself, and that one whose parts are replaced, or cut
// off, meanwhile finds what there is then. How: a device whose reads, and writes,
// are held until the test lets them go.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <optional>
#include <thread>

#include "tests/engine/files/files_rig.h"
#include "tests/engine/files/gated_device.h"

namespace furrow::testing {
namespace {

class FilesReadsTest : public ::testing::Test, public FilesRig {
 protected:
  static constexpr unsigned kParts = 40;
  static_assert(kParts > FileReaders::kOpsMax);
  static constexpr unsigned kBuffers = 16;  // of a reader, for memory that the device cannot fill

  void SetUp() override {
    gate_ = mount_on<GatedDevice>(64 << 20);
    ASSERT_NE(gate_, nullptr);
    for (std::size_t i = 0; i < all_.size(); ++i) all_[i] = static_cast<char>(i * 31 + i / 4099);
    write("/a", all_);
    write("/b", all_);
  }
  void TearDown() override { unmount(); }
  static void give_others_time() { std::this_thread::sleep_for(std::chrono::milliseconds(30)); }

  GatedDevice* gate_ = nullptr;
  std::string all_ = std::string(kParts * 65'536, '\0');
};

TEST_F(FilesReadsTest, ThoseOfOneFileWaitForNothingThatIsDoneToAnother) {
  auto a = files().open_file("/a"), b = files().open_file("/b");
  ASSERT_TRUE(a.ok() && b.ok());
  gate_->close(true);
  std::atomic<unsigned> done{0};
  const auto read_a = [&] {
    std::string text(5000, '\0');
    const auto got = (*a)->read(0, std::as_writable_bytes(std::span(text)));
    EXPECT_TRUE(got.ok() && text == all_.substr(0, text.size()));
    ++done;
  };
  std::jthread reader(read_a);
  EXPECT_TRUE(gate_->wait_until_asked(1));
  std::jthread writer([&] {
    EXPECT_TRUE((*a)->append(bytes_of("more")).ok() && (*a)->sync().ok());
    ++done;
  });
  std::jthread renamer([&] {
    EXPECT_TRUE(files().rename("/a", "/c").ok());
    ++done;
  });
  give_others_time();
  for (unsigned i = 1; i <= 4; ++i) gate_->let_go(i);
  std::string text(5000, '\0');
  const auto got = (*b)->read(70'000, std::as_writable_bytes(std::span(text)));
  EXPECT_TRUE(got.ok() && text == all_.substr(70'000, text.size()));
  EXPECT_TRUE(files().stat("/b").ok());
  auto again = files().open_file("/b");
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE((*again)->read(0, std::as_writable_bytes(std::span(text))).ok());
  EXPECT_EQ(done, 0u) << "they are held";
  gate_->open();
}

TEST_F(FilesReadsTest, APartThatIsLateHoldsUpNoOther) {
  auto a = files().open_file("/a");
  ASSERT_TRUE(a.ok());
  AlignedBuffer memory(all_.size());  // or each would need a buffer, of which there are few
  gate_->close(false);
  std::jthread reader([&] {
    const auto got = (*a)->read(0, memory.span());
    EXPECT_TRUE(got.ok() && *got == all_.size());
  });
  EXPECT_TRUE(gate_->wait_until_asked(FileReaders::kOpsMax));
  give_others_time();
  EXPECT_EQ(gate_->reads(), FileReaders::kOpsMax);
  for (unsigned i = 1; i <= kParts - FileReaders::kOpsMax; ++i) gate_->let_go(i);
  EXPECT_TRUE(gate_->wait_until_asked(kParts));  // number 0 is still on its way
  gate_->open();
  reader.join();
  EXPECT_TRUE(std::ranges::equal(memory.span(), bytes_of(all_)));
}

// The parts that wait for a buffer are looked for when there is one, and are gone by then.
TEST_F(FilesReadsTest, WhatIsReplacedUnderAReadIsReadAgain) {
  constexpr std::uint64_t kLate = (FileReaders::kOpsMax - 1) * 65'536;
  const std::string other(65'536, 'x');
  using Change = std::function<Status(OpenFile&)>;
  const Change changes[] = {[&](OpenFile& file) { return file.write_at(kLate, bytes_of(other)); },
                            [&](OpenFile& file) { return file.truncate(kLate); }};
  for (const Change& change : changes) {
    auto file = files().open_file("/a"), same = files().open_file("/a");
    ASSERT_TRUE(file.ok() && same.ok());
    std::string text(all_.size(), '\0');
    std::optional<Result<std::size_t>> got;
    gate_->close(false);
    std::jthread reader(
        [&] { got = (*same)->read(0, std::as_writable_bytes(std::span(text).subspan(1))); });
    EXPECT_TRUE(gate_->wait_until_asked(kBuffers));
    give_others_time();
    EXPECT_EQ(gate_->reads(), kBuffers);
    gate_->let_go(kBuffers);  // what stands there now is compared
    EXPECT_TRUE(change(**file).ok());
    gate_->open();
    reader.join();
    ASSERT_TRUE(got->ok()) << got->status().describe();
    EXPECT_TRUE(text.substr(1, **got) == read(**file).substr(0, **got));
  }
}

TEST_F(FilesReadsTest, ALargeOneThatWasBegunGoesOnByItself) {
  auto a = files().open_file("/a");
  ASSERT_TRUE(a.ok());
  AlignedBuffer memory(all_.size());
  AsyncRead read;
  read.read.memory = memory.span();
  gate_->close(false);
  ASSERT_TRUE((*a)->content().start(read)) << "it would be waited for";
  EXPECT_TRUE(gate_->wait_until_asked(8));
  gate_->open();
  read.wait();
  EXPECT_TRUE(read.read.status.ok()) << read.read.status.describe();
  EXPECT_EQ(read.read.bytes, all_.size());
  EXPECT_TRUE(std::ranges::equal(memory.span(), bytes_of(all_)));
}

}  // namespace
}  // namespace furrow::testing
