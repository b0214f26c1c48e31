// Establishes that the reclaimer gives back the space of a reset zone, and of no other, only after
// the reset is durable, and never of a zone that is in use again; that it does so in small pieces
// with pauses, in which the zone may be written; that it stops when it is told to; and that `lazy`
// gives back what stays empty for a while, and `never` nothing. How: a file of its own, whose zones
// are full of data, a sync that the test watches, and for what takes time a reclaimer whose clock
// moves when it sleeps, and which notes each of its punches and pauses.
#include "zone/reclaimer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <functional>
#include <vector>

#include "tests/zone/device_test_util.h"
#include "zone/emu_file.h"

namespace furrow::emu {
namespace {

using test::End;
using test::end_write;

class ReclaimerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    geometry_.zone_count = 4;
    geometry_.zone_size_lbas = geometry_.zone_capacity_lbas = 3 * test::kMiB / 4096;
    geometry_.open_zones_max = geometry_.active_zones_max = 4;
    geometry_.append_lbas_max = 8;
    superblock_ = make_superblock(geometry_, {});
    table_ = std::make_unique<ZoneTable>(geometry_, nullptr);
    fd_ = Fd(open(dir_.file("device.img").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    ASSERT_GE(fd_.get(), 0);
    const std::string zone(superblock_.stride_bytes, 'x');
    for (std::uint32_t i = 0; i < geometry_.zone_count; ++i) {
      ASSERT_EQ(pwrite(fd_.get(), zone.data(), zone.size(),
                       static_cast<off_t>(superblock_.offset_of(ZoneId{i}, 0))),
                static_cast<ssize_t>(zone.size()));
      use(i);
    }
    ASSERT_EQ(fsync(fd_.get()), 0);
    before_ = used_bytes();
  }
  void use(std::uint32_t zone) {
    Io io;
    io.op = Io::Op::append;
    io.zone = ZoneId{zone};
    io.lba_count = 1;
    const auto admitted = table_->admit(io);
    ASSERT_EQ(admitted.status, nvme_status::kSuccess);
    ASSERT_EQ(end_write(*table_, io.zone, admitted.lba, 1), End::done);
  }
  void reset(std::uint32_t zone) { ASSERT_TRUE(table_->manage(Io::Op::reset, ZoneId{zone}).ok()); }
  template <class Kind = Reclaimer>
  std::unique_ptr<Kind> start(Reclaim when) {
    auto reclaimer =
        std::make_unique<Kind>(fd_.get(), superblock_, *table_, &ReclaimerTest::sync, this, when);
    EXPECT_TRUE(reclaimer->start().ok());
    return reclaimer;
  }
  static Status sync(void* context) {
    auto& self = *static_cast<ReclaimerTest*>(context);
    ++self.syncs_;
    return self.sync_fails_ ? Status(Code::io_error, Origin::zone, "fake") : Status();
  }
  std::uint64_t used_bytes() const {
    struct stat info {};
    EXPECT_EQ(fstat(fd_.get(), &info), 0);
    return static_cast<std::uint64_t>(info.st_blocks) * 512;
  }
  std::uint64_t given_back() const { return before_ - used_bytes(); }
  bool is_hole(std::uint32_t zone) const {
    std::string bytes(superblock_.stride_bytes, '?');
    EXPECT_EQ(pread(fd_.get(), bytes.data(), bytes.size(),
                    static_cast<off_t>(superblock_.offset_of(ZoneId{zone}, 0))),
              static_cast<ssize_t>(bytes.size()));
    const bool zeroes = bytes.find_first_not_of('\0') == std::string::npos;
    EXPECT_TRUE(zeroes || bytes.find_first_not_of('x') == std::string::npos) << "a part of it";
    return zeroes;
  }

  test::TempDir dir_;
  Geometry geometry_;
  Superblock superblock_;
  std::unique_ptr<ZoneTable> table_;
  Fd fd_;
  std::uint64_t before_ = 0;
  std::atomic<int> syncs_{0};
  std::atomic<bool> sync_fails_{false};
};

TEST_F(ReclaimerTest, GivesBackAResetZoneAndNoOther) {
  reset(1);
  auto reclaimer = start(Reclaim::now);
  reclaimer->add(ZoneId{1});
  reclaimer->drain();
  EXPECT_EQ(given_back(), superblock_.stride_bytes);
  EXPECT_TRUE(is_hole(1));
  for (const std::uint32_t zone : {0u, 2u, 3u}) EXPECT_FALSE(is_hole(zone)) << zone;
  EXPECT_GE(syncs_, 1);
  use(1);  // and it may be written
}

// Nobody reads any more.
TEST_F(ReclaimerTest, GivesBackAllThatIsLeftWhenTheDeviceIsClosed) {
  for (const std::uint32_t zone : {0u, 1u, 3u}) reset(zone);
  auto reclaimer = start(Reclaim::lazy);
  for (const std::uint32_t zone : {0u, 1u, 3u}) reclaimer->add(ZoneId{zone});
  use(3);
  reclaimer->finish();
  EXPECT_EQ(given_back(), 2 * superblock_.stride_bytes);
  for (std::uint32_t zone = 0; zone < 4; ++zone) EXPECT_EQ(is_hole(zone), zone < 2) << zone;
  EXPECT_EQ(syncs_, 1) << "for all of them";
}

TEST_F(ReclaimerTest, AResetThatIsNotDurableKeepsItsSpaceAtTheEndToo) {
  reset(1);
  sync_fails_ = true;
  auto reclaimer = start(Reclaim::lazy);
  reclaimer->add(ZoneId{1});
  reclaimer->finish();
  EXPECT_EQ(given_back(), 0u);
}

// As after a kill.
TEST_F(ReclaimerTest, FindsWhatEmptyZonesHave) {
  for (const Reclaim when : {Reclaim::never, Reclaim::now, Reclaim::lazy}) {
    const std::uint64_t before = given_back();
    reset(when == Reclaim::lazy ? 3 : 1);
    auto reclaimer = start(when);
    reclaimer->add_left();
    when == Reclaim::lazy ? reclaimer->finish() : reclaimer->drain();
    const bool any = when != Reclaim::never;
    EXPECT_EQ(given_back() - before, any ? superblock_.stride_bytes : 0u);
  }
  for (std::uint32_t zone = 0; zone < 4; ++zone) EXPECT_EQ(is_hole(zone), zone % 2 == 1) << zone;
}

TEST_F(ReclaimerTest, AZoneInUseKeepsItsSpace) {
  reset(1);
  use(1);
  auto reclaimer = start(Reclaim::now);
  reclaimer->add(ZoneId{1});
  reclaimer->drain();
  EXPECT_EQ(given_back(), 0u);
  EXPECT_FALSE(is_hole(1));
}

TEST_F(ReclaimerTest, NotBeforeTheResetIsDurable) {
  reset(1);
  sync_fails_ = true;
  auto reclaimer = start(Reclaim::now);
  reclaimer->add(ZoneId{1});
  reclaimer->drain();
  EXPECT_EQ(syncs_, 1);
  EXPECT_FALSE(is_hole(1));
  sync_fails_ = false;
  reclaimer->add(ZoneId{1});
  reclaimer->drain();
  EXPECT_TRUE(is_hole(1));
}

TEST_F(ReclaimerTest, LazyWaitsAndNeverDoesNothing) {
  for (const Reclaim when : {Reclaim::lazy, Reclaim::never}) {
    reset(1);
    auto reclaimer = start(when);
    reclaimer->add(ZoneId{1});
    reclaimer.reset();  // does not wait for what it would do later
    EXPECT_EQ(given_back(), 0u);
    EXPECT_EQ(syncs_, 0);
  }
}

// Its time passes only while it sleeps. To be looked at when it is drained.
class WatchedReclaimer final : public Reclaimer {
 public:
  using Reclaimer::Reclaimer;
  ~WatchedReclaimer() override { stop(); }

  struct Step {
    std::uint64_t offset = 0, bytes = 0;  // a punch; 0 bytes: a sleep
    Clock::duration slept{};
  };
  std::vector<Step> steps;
  std::function<void()> before_sleep = [] {};  // without the reclaimer's lock

 private:
  int punch(std::uint64_t offset, std::uint64_t bytes) override {
    steps.push_back({offset, bytes, {}});
    return Reclaimer::punch(offset, bytes);
  }
  Clock::time_point now() override { return now_; }
  void sleep_until(Clock::time_point due, std::unique_lock<std::mutex>& lock) override {
    steps.push_back({0, 0, due - now_});
    now_ = due;
    lock.unlock();
    before_sleep();
    lock.lock();
  }

  Clock::time_point now_{};
};

// A punch holds the file's lock, for which reads and writes wait: hence its size, and the pauses.
TEST_F(ReclaimerTest, GivesBackInSmallPiecesWithPauses) {
  reset(1);
  auto reclaimer = start<WatchedReclaimer>(Reclaim::now);
  reclaimer->before_sleep = [this] { EXPECT_FALSE(table_->held(ZoneId{1})); };
  reclaimer->add(ZoneId{1});
  reclaimer->drain();
  std::uint64_t end = superblock_.offset_of(ZoneId{1}, 0) + superblock_.stride_bytes;
  const std::vector<WatchedReclaimer::Step>& steps = reclaimer->steps;
  ASSERT_GE(steps.size(), 5u);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (i % 2 != 0) {
      EXPECT_EQ(steps[i].bytes, 0u) << "two punches in a row";
      EXPECT_GE(steps[i].slept, std::chrono::milliseconds(1));
      EXPECT_LE(steps[i].slept, std::chrono::milliseconds(10)) << "16384 pieces are 16 GiB";
    } else {
      EXPECT_GT(steps[i].bytes, 0u);
      EXPECT_LE(steps[i].bytes, test::kMiB);
      end -= steps[i].bytes;
      EXPECT_EQ(steps[i].offset, end) << "from the zone's end on, without a gap";
    }
  }
  EXPECT_EQ(end, superblock_.offset_of(ZoneId{1}, 0));
  EXPECT_TRUE(is_hole(1));
}

// And so does one that was reset again by then: that reset is not durable yet.
TEST_F(ReclaimerTest, AZoneThatIsWrittenInAPauseKeepsTheRest) {
  for (const bool reset_again : {false, true}) {
    const std::uint32_t zone = reset_again ? 2 : 1;
    const std::uint64_t before = given_back();
    reset(zone);
    auto reclaimer = start<WatchedReclaimer>(Reclaim::now);
    reclaimer->before_sleep = [&] {
      use(zone);
      if (reset_again) reset(zone);
    };
    reclaimer->add(ZoneId{zone});
    reclaimer->drain();
    EXPECT_EQ(given_back() - before, test::kMiB);
    ASSERT_EQ(reclaimer->steps.size(), 2u) << "a punch and a pause";
  }
}

TEST_F(ReclaimerTest, LazyGivesBackWhatStaysEmptyForAWhile) {
  reset(1);
  auto reclaimer = start<WatchedReclaimer>(Reclaim::lazy);
  reclaimer->add(ZoneId{1});
  reclaimer->drain();
  ASSERT_GE(reclaimer->steps.size(), 2u);
  EXPECT_EQ(reclaimer->steps[0].bytes, 0u) << "at once";
  EXPECT_GE(reclaimer->steps[0].slept, std::chrono::seconds(1));
  EXPECT_LE(reclaimer->steps[0].slept, std::chrono::seconds(10));
  EXPECT_EQ(given_back(), superblock_.stride_bytes);
  EXPECT_TRUE(is_hole(1));
}

TEST_F(ReclaimerTest, LazyKeepsWhatIsWrittenAgainMeanwhile) {
  reset(1);
  auto reclaimer = start<WatchedReclaimer>(Reclaim::lazy);
  reclaimer->before_sleep = [this] { use(1); };
  reclaimer->add(ZoneId{1});
  reclaimer->drain();
  EXPECT_EQ(reclaimer->steps.size(), 1u) << "it slept, and that is all";
  EXPECT_FALSE(is_hole(1));
  EXPECT_EQ(syncs_, 0);
}

// Written and reset again while its time runs: it runs anew.
TEST_F(ReclaimerTest, LazyCountsFromTheLastReset) {
  reset(1);
  reset(2);
  auto reclaimer = start<WatchedReclaimer>(Reclaim::lazy);
  int sleeps = 0;
  reclaimer->before_sleep = [&] {
    if (++sleeps != 1) return;
    use(1);
    reset(1);
    reclaimer->add(ZoneId{1});
    reclaimer->add(ZoneId{2});
  };
  reclaimer->add(ZoneId{1});
  reclaimer->drain();
  ASSERT_GE(reclaimer->steps.size(), 3u);
  EXPECT_EQ(reclaimer->steps[1].bytes, 0u) << "before its time";
  EXPECT_EQ(reclaimer->steps[1].slept, reclaimer->steps[0].slept);
  EXPECT_TRUE(is_hole(1));
  EXPECT_TRUE(is_hole(2));
}

TEST_F(ReclaimerTest, StopsInTheMiddle) {
  for (std::uint32_t zone = 0; zone < 4; ++zone) reset(zone);
  auto reclaimer = start(Reclaim::now);
  for (std::uint32_t zone = 0; zone < 4; ++zone) reclaimer->add(ZoneId{zone});
  reclaimer.reset();
  for (std::uint32_t zone = 0; zone < 4; ++zone) EXPECT_FALSE(table_->held(ZoneId{zone})) << zone;
}

TEST_F(ReclaimerTest, AZoneThatIsResetAgainIsDoneOnce) {
  reset(2);
  auto reclaimer = start(Reclaim::now);
  for (int i = 0; i < 5; ++i) reclaimer->add(ZoneId{2});
  reclaimer->drain();
  EXPECT_EQ(given_back(), superblock_.stride_bytes);
}

}  // namespace
}  // namespace furrow::emu
