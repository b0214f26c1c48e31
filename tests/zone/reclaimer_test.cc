// Establishes that the reclaimer gives back the space of a reset zone, and of no other, only after
// the reset is durable, and never of a zone that is in use again; that it stops when it is told to;
// and that `lazy` waits while `never` does nothing. How: a file of its own, whose zones are full of
// data, and a sync that the test watches.
#include "zone/reclaimer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>

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
    zero_ahead_ = std::make_unique<ZeroAhead>(geometry_, *table_);
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
  std::unique_ptr<Reclaimer> start(Reclaim when) {
    return std::make_unique<Reclaimer>(fd_.get(), superblock_, *table_, *zero_ahead_,
                                       &ReclaimerTest::sync, this, when);
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
  std::unique_ptr<ZeroAhead> zero_ahead_;
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
