// Establishes that the scrubber finds, without anybody reading them, pages that have rotted, pages
// that are hard to read, and damaged summaries and batch headers; that it does with each what it
// says; that it calls nothing lost for a drive that is gone; and that it keeps its rate.
//
// Pools on files are damaged while they are closed, devices in memory fail reads; the pool is then
// open, with nothing asked of it, until a pass has ended.
#include <gtest/gtest.h>

#include "tests/engine/pool_file.h"
#include "zone/fault_device.h"

namespace furrow::testing::scrub_test {
namespace {

constexpr std::size_t kPageBytes = 20000;
constexpr std::uint64_t kKeys = 180, kZoneLbas = 256;
constexpr std::uint64_t kFast = std::uint64_t{10} << 30;
constexpr std::uint64_t kGroup = 9;
constexpr std::uint32_t kTtlS = 100'000;
using Kind = ScrubFinding::Kind;

VolumeOptions volume(VolumeMode mode) {
  VolumeOptions options;
  options.name = "pages";
  options.mode = mode;
  options.value_bytes_max = 64 << 10;
  return options;
}

void scrub(Rig& rig, std::vector<ScrubFinding>& findings) {
  rig.open_options.scrub_bytes_per_s = kFast;
  rig.open_options.scrub_pause_s = 0;
  rig.open_options.on_scrub_finding = [&](const ScrubFinding& finding) {
    findings.push_back(finding);
  };
}

void wait_for_passes(Rig& rig, std::uint64_t passes) {
  const std::uint64_t until = rig.pool->info().scrub.passes + passes;
  for (unsigned turns = 0; rig.pool->info().scrub.passes < until; ++turns) {
    ASSERT_LT(turns, 10'000'000u) << "a pass does not end";
    rig.loop.run_once();
  }
}

class ScrubFileTest : public ::testing::TestWithParam<VolumeMode>, public PoolFile {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(make_device(10 << 20, 1 << 20));
    rig_ = std::make_unique<Rig>(uri());
    ASSERT_NO_FATAL_FAILURE(rig_->make(volume(GetParam())));
    for (std::uint64_t i = 0; i < kKeys; ++i) ASSERT_TRUE(rig_->put(i, 1, kPageBytes).ok());
    rig_->close();
    rig_->device.reset();
  }
  void open() {
    scrub(*rig_, findings_);
    ASSERT_NO_FATAL_FAILURE(rig_->open_device());
    ASSERT_NO_FATAL_FAILURE(rig_->open());
  }

  std::unique_ptr<Rig> rig_;
  std::vector<ScrubFinding> findings_;
};

INSTANTIATE_TEST_SUITE_P(Modes, ScrubFileTest,
                         ::testing::Values(VolumeMode::cache, VolumeMode::store),
                         [](const auto& each) {
                           return each.param == VolumeMode::cache ? "cache" : "store";
                         });

TEST_P(ScrubFileTest, NothingIsWrong) {
  ASSERT_NO_FATAL_FAILURE(open());
  ASSERT_NO_FATAL_FAILURE(wait_for_passes(*rig_, 2));
  const ScrubStats stats = rig_->pool->info().scrub;
  EXPECT_TRUE(findings_.empty()) << describe(findings_.front());
  EXPECT_GE(stats.zones, 8u);
  EXPECT_GT(stats.pages, kKeys);  // two passes over all but the newest zone
  EXPECT_EQ(stats.pages_lost + stats.pages_rewritten + stats.structures_damaged, 0u);
  EXPECT_NE(stats.last_pass_wall_s, 0u);
}

TEST_P(ScrubFileTest, APageThatRotted) {
  const auto page = content(7, 1, kPageBytes);
  const std::size_t at = read_file().view().find(text_of(page));
  ASSERT_NE(at, std::string::npos);
  damage(at + 12345);
  ASSERT_NO_FATAL_FAILURE(open());
  ASSERT_NO_FATAL_FAILURE(wait_for_passes(*rig_, 1));
  ASSERT_EQ(findings_.size(), 1u);
  const ScrubFinding& finding = findings_.front();
  const bool cache = GetParam() == VolumeMode::cache;
  EXPECT_EQ(finding.kind, Kind::page_damaged);
  EXPECT_EQ(finding.key, key_of(7));
  EXPECT_EQ(kDataAt + (finding.zone.value * kZoneLbas + finding.lba) * kLba, at);
  EXPECT_EQ(finding.dropped, cache);
  EXPECT_NE(describe(finding).find("damaged"), std::string::npos) << describe(finding);
  EXPECT_EQ(rig_->pool->info().scrub.pages_lost, 1u);
  EXPECT_EQ(rig_->get(7).status().code(), cache ? Code::not_found : Code::corrupt);
  for (std::uint64_t i = 0; i < kKeys; ++i) {
    EXPECT_EQ(rig_->get(i).ok(), i != 7) << i;
  }
}

// In a store the zone is written anew, and nothing is wrong then.
TEST_P(ScrubFileTest, SummariesAndBatchHeaders) {
  damage(offsets_of("FUSM", kLba - 96)[0] + kLba - 50);
  damage(offsets_of("FUBH")[3] + 40);                       // of the same zone
  damage(offsets_of("FUBH")[60] + kBatchHeaderBytes + 40);  // in its record
  ASSERT_NO_FATAL_FAILURE(open());
  ASSERT_NO_FATAL_FAILURE(wait_for_passes(*rig_, 1));
  rig_->settle();
  EXPECT_GE(rig_->pool->info().scrub.structures_damaged, 2u);
  const std::size_t first = findings_.size();
  ASSERT_GE(first, 2u);
  for (const ScrubFinding& finding : findings_) {
    EXPECT_TRUE(finding.kind == Kind::summary_damaged ||
                finding.kind == Kind::batch_header_damaged);
  }
  ASSERT_NO_FATAL_FAILURE(wait_for_passes(*rig_, 2));
  if (GetParam() == VolumeMode::store) {
    EXPECT_EQ(findings_.size(), first) << describe(findings_.back());
    EXPECT_GE(rig_->store->stats().zones_reset, 2u);
  } else {
    EXPECT_GT(findings_.size(), first) << "nothing is done about it in a cache";
  }
}

class ScrubTest : public ::testing::Test {
 protected:
  void make(VolumeMode mode) {
    FaultOptions options;
    options.seed = 7;
    auto fault = std::make_unique<FaultDevice>(
        open_device("mem:10MiB?zone_size=1MiB", Access::exclusive).value(), options);
    fault_ = fault.get();
    rig_.device = std::move(fault);
    ASSERT_NO_FATAL_FAILURE(rig_.make(volume(mode)));
    for (std::uint64_t i = 0; i < kKeys; ++i) {
      ASSERT_TRUE((i == all_fields_ ? put_all_fields(i) : rig_.put(i, 1, kPageBytes)).ok());
    }
  }
  Status put_all_fields(std::uint64_t number) {
    AlignedBuffer page(5 * 4096);
    fill_content(number, 1, page.data(), kPageBytes);
    PageOp op;
    op.kind = PageOp::Kind::put;
    op.key = key_of(number);
    op.data = page.data();
    op.length = kPageBytes;
    op.capacity = static_cast<std::uint32_t>(page.size());
    op.pinned = true;
    op.group = kGroup;
    op.ttl_s = kTtlS;
    return rig_.run(op);
  }
  // Each page was put alone: a header of one LBA, then the page. The first data zone is zone 2.
  static Lba lba_of(std::uint64_t key) { return Lba{2 * kZoneLbas + 1 + key * 6 + 1}; }

  Rig rig_{""};
  FaultDevice* fault_ = nullptr;
  std::vector<ScrubFinding> findings_;
  std::uint64_t all_fields_ = kKeys;  // which of make()'s has a pin, a group and a time; none yet
};

TEST_F(ScrubTest, APageThatIsHardToReadIsWrittenAnew) {
  for (const VolumeMode mode : {VolumeMode::store, VolumeMode::cache}) {
    scrub(rig_, findings_);
    rig_.open_options.scrub_bytes_per_s = 0;
    ASSERT_NO_FATAL_FAILURE(make(mode));
    rig_.open_options.scrub_bytes_per_s = kFast;
    ASSERT_NO_FATAL_FAILURE(rig_.reopen());
    fault_->fail_read_once(lba_of(3));
    findings_.clear();
    ASSERT_NO_FATAL_FAILURE(wait_for_passes(rig_, 2));
    rig_.settle();
    ASSERT_EQ(findings_.size(), 1u);
    EXPECT_EQ(findings_.front().kind, Kind::page_read_twice);
    EXPECT_EQ(findings_.front().key, key_of(3));
    EXPECT_EQ(rig_.pool->info().scrub.pages_rewritten, 1u);
    fault_->fail_reads(lba_of(3), 5);  // where it was
    for (int round = 0; round < 2; ++round) {
      const auto page = rig_.get(3);
      ASSERT_TRUE(page.ok()) << page.status().describe();
      EXPECT_EQ(*page, content(3, 1, kPageBytes));
      EXPECT_TRUE(rig_.get(2).ok());
      ASSERT_NO_FATAL_FAILURE(rig_.reopen());
    }
    rig_.close();
    rig_.device.reset();
  }
}

// .. with what was asked for when it was stored, which lasts.
TEST_F(ScrubTest, APageThatIsWrittenAnewKeepsItsPinGroupAndTimeToLive) {
  all_fields_ = 3;
  ASSERT_NO_FATAL_FAILURE(make(VolumeMode::cache));
  scrub(rig_, findings_);
  ASSERT_NO_FATAL_FAILURE(rig_.reopen());
  fault_->fail_read_once(lba_of(3));
  ASSERT_NO_FATAL_FAILURE(wait_for_passes(rig_, 2));
  rig_.settle();
  ASSERT_EQ(rig_.pool->info().scrub.pages_rewritten, 1u);
  fault_->fail_reads(lba_of(3), 5);  // where it was
  for (int round = 0; round < 2; ++round) {
    PageOp op;
    op.kind = PageOp::Kind::exist;
    op.key = key_of(3);
    op.whole_record = true;
    ASSERT_TRUE(rig_.run(op).ok());
    EXPECT_TRUE(op.pinned);
    EXPECT_EQ(op.group, kGroup);
    EXPECT_GT(op.ttl_s, 0u);
    EXPECT_LE(op.ttl_s, kTtlS);
    ASSERT_NO_FATAL_FAILURE(rig_.reopen());
  }
  EXPECT_TRUE(rig_.get(3).ok());
  PageOp remove;
  remove.kind = PageOp::Kind::remove_group;
  remove.group = kGroup;
  ASSERT_TRUE(rig_.run(remove).ok());
  EXPECT_EQ(rig_.get(3).status().code(), Code::not_found);
}

TEST_F(ScrubTest, AHeaderThatIsReadAtTheSecondAttemptIsWhole) {
  ASSERT_NO_FATAL_FAILURE(make(VolumeMode::store));
  scrub(rig_, findings_);
  ASSERT_NO_FATAL_FAILURE(rig_.reopen());
  fault_->fail_read_once(Lba{lba_of(3).value - 1});
  ASSERT_NO_FATAL_FAILURE(wait_for_passes(rig_, 2));
  EXPECT_TRUE(findings_.empty()) << describe(findings_.front());
}

// Nor is there a summary to be missed.
TEST_F(ScrubTest, AZoneThatEndedEarlyIsNotDamaged) {
  ASSERT_NO_FATAL_FAILURE(make(VolumeMode::store));
  const std::vector<ZoneInfo> zones = *rig_.device->report();
  const auto newest = std::find_if(zones.begin() + 2, zones.end(), [](const ZoneInfo& info) {
    return info.state == ZoneState::implicitly_open;
  });
  ASSERT_NE(newest, zones.end());
  fault_->fail_writes(rig_.device->geometry().zone_start(newest->zone), kZoneLbas);
  ASSERT_TRUE(rig_.put(0, 2, kPageBytes).ok()) << "in another zone";
  scrub(rig_, findings_);
  ASSERT_NO_FATAL_FAILURE(rig_.reopen());
  ASSERT_NO_FATAL_FAILURE(wait_for_passes(rig_, 2));
  EXPECT_TRUE(findings_.empty()) << describe(findings_.front());
}

// What is written is the newest version of its key.
TEST_F(ScrubTest, APageThatMayNotBeTheNewestIsLeft) {
  ASSERT_NO_FATAL_FAILURE(make(VolumeMode::store));
  ASSERT_TRUE(rig_.put(3, 2, kPageBytes).ok());
  const std::vector<ZoneInfo> zones = *rig_.device->report();
  const auto newest = std::find_if(zones.begin() + 2, zones.end(), [](const ZoneInfo& info) {
    return info.state == ZoneState::implicitly_open;
  });
  ASSERT_NE(newest, zones.end());
  fault_->fail_reads(rig_.device->geometry().zone_start(newest->zone), kZoneLbas);
  scrub(rig_, findings_);
  ASSERT_NO_FATAL_FAILURE(rig_.reopen());
  ASSERT_EQ(*rig_.get(3), content(3, 1, kPageBytes));
  fault_->fail_read_once(lba_of(3));
  ASSERT_NO_FATAL_FAILURE(wait_for_passes(rig_, 2));
  rig_.settle();
  ASSERT_EQ(findings_.size(), 1u);
  EXPECT_EQ(findings_.front().kind, Kind::page_read_twice);
  EXPECT_EQ(rig_.pool->info().scrub.pages_rewritten, 0u);
  fault_->heal();
  ASSERT_NO_FATAL_FAILURE(rig_.reopen());
  const auto page = rig_.get(3);
  ASSERT_TRUE(page.ok()) << page.status().describe();
  EXPECT_EQ(*page, content(3, 2, kPageBytes));
}

TEST_F(ScrubTest, APageThatCannotBeRead) {
  for (const VolumeMode mode : {VolumeMode::store, VolumeMode::cache}) {
    scrub(rig_, findings_);
    ASSERT_NO_FATAL_FAILURE(make(mode));
    findings_.clear();
    fault_->fail_reads(lba_of(3), 1);
    ASSERT_NO_FATAL_FAILURE(wait_for_passes(rig_, 2));
    ASSERT_GE(findings_.size(), 1u);
    EXPECT_EQ(findings_.front().kind, Kind::page_unreadable);
    const bool cache = mode == VolumeMode::cache;
    EXPECT_EQ(rig_.get(3).status().code(), cache ? Code::not_found : Code::io_error);
    if (cache) {
      EXPECT_EQ(findings_.size(), 1u);
      // It is deleted, and the medium reads again: it stays deleted.
      EXPECT_EQ(rig_.simple(PageOp::Kind::remove, 3).code(), Code::not_found);
      fault_->heal();
      ASSERT_NO_FATAL_FAILURE(rig_.reopen());
      EXPECT_EQ(rig_.get(3).status().code(), Code::not_found);
      EXPECT_TRUE(rig_.get(2).ok());
    }
    rig_.close();
    rig_.device.reset();
  }
}

// It may be put back, with all that it has.
TEST_F(ScrubTest, ADriveThatIsGoneHasLostNothing) {
  for (const VolumeMode mode : {VolumeMode::store, VolumeMode::cache}) {
    scrub(rig_, findings_);
    ASSERT_NO_FATAL_FAILURE(make(mode));
    findings_.clear();
    fault_->pull_out();
    const std::uint64_t read = rig_.pool->info().scrub.bytes_read;
    rig_.turns(10'000);
    EXPECT_TRUE(findings_.empty()) << findings_.size() << ", " << describe(findings_.front());
    EXPECT_LE(rig_.pool->info().scrub.bytes_read, read + (2 << 20)) << "it goes on";
    EXPECT_EQ(rig_.pool->info().scrub.pages_lost, 0u);
    rig_.close();
    rig_.device.reset();
  }
}

// Time that passes when the test says so.
class FakeTime final : public Executor {
 public:
  explicit FakeTime(Executor& inner) : inner_(inner) {}
  void advance(std::uint64_t ns) {
    now_ns_ += ns;
    std::vector<Timer*> due;
    std::erase_if(timers_, [&](Timer* timer) {
      if (timer->at_ns > now_ns_) return false;
      due.push_back(timer);
      return true;
    });
    for (Timer* timer : due) timer->fire(*timer);
  }
  void post(Task& task) override { inner_.post(task); }
  bool is_current() const override { return inner_.is_current(); }
  void start(Timer& timer, std::uint64_t delay_ns) override {
    stop(timer);
    timer.at_ns = now_ns_ + delay_ns;
    timers_.push_back(&timer);
  }
  void stop(Timer& timer) override { std::erase(timers_, &timer); }
  void add(Poller& poller) override { inner_.add(poller); }
  void remove(Poller& poller) override { inner_.remove(poller); }
  std::uint64_t now_ns() const override { return now_ns_; }
  std::uint64_t wall_s() const override { return inner_.wall_s(); }
  std::uint64_t random() override { return inner_.random(); }

 private:
  Executor& inner_;
  std::uint64_t now_ns_ = 1;
  std::vector<Timer*> timers_;
};

TEST_F(ScrubTest, KeepsItsRate) {
  FakeTime time(rig_.loop);
  rig_.executor = &time;
  ASSERT_NO_FATAL_FAILURE(make(VolumeMode::store));
  constexpr std::uint64_t kRate = 1 << 20, kStepNs = 50'000'000, kLongestRead = 256 << 10;
  rig_.open_options.scrub_bytes_per_s = kRate;
  rig_.open_options.scrub_pause_s = 0;
  ASSERT_NO_FATAL_FAILURE(rig_.reopen());
  std::uint64_t passed_ns = 0, read = 0;
  for (unsigned step = 0; step < 100; ++step) {
    rig_.turns(50);  // all that it may do now
    read = rig_.pool->info().scrub.bytes_read;
    ASSERT_LE(read, passed_ns * kRate / 1'000'000'000 + kRate / 10 + kLongestRead) << step;
    time.advance(kStepNs);
    passed_ns += kStepNs;
  }
  EXPECT_GT(read, passed_ns * kRate / 1'000'000'000 / 2) << "nor is it idle";
  rig_.close();
}

// .. also behind a pause, which is no time that it has not used.
TEST_F(ScrubTest, PausesBetweenTwoPasses) {
  FakeTime time(rig_.loop);
  rig_.executor = &time;
  ASSERT_NO_FATAL_FAILURE(make(VolumeMode::store));
  constexpr std::uint64_t kRate = 4 << 20, kLongestRead = 256 << 10, kSecondNs = 1'000'000'000;
  rig_.open_options.scrub_bytes_per_s = kRate;
  rig_.open_options.scrub_pause_s = 1000;
  ASSERT_NO_FATAL_FAILURE(rig_.reopen());
  for (unsigned step = 0; rig_.pool->info().scrub.passes == 0; ++step) {
    ASSERT_LT(step, 1000u);
    rig_.turns(50);
    time.advance(kSecondNs / 20);
  }
  const std::uint64_t read = rig_.pool->info().scrub.bytes_read;
  for (unsigned step = 0; step < 9; ++step) {
    time.advance(100 * kSecondNs);
    rig_.turns(50);
  }
  EXPECT_EQ(rig_.pool->info().scrub.bytes_read, read);
  time.advance(100 * kSecondNs);
  rig_.turns(500);
  EXPECT_GT(rig_.pool->info().scrub.bytes_read, read);
  EXPECT_LE(rig_.pool->info().scrub.bytes_read, read + kRate / 10 + kLongestRead);
  rig_.close();
}

// Reads, overwrites, deletes and volumes deleted under it, with collection and eviction at work.
TEST_F(ScrubTest, BesideEverythingElse) {
  for (const VolumeMode mode : {VolumeMode::store, VolumeMode::cache}) {
    scrub(rig_, findings_);
    ASSERT_NO_FATAL_FAILURE(make(mode));
    findings_.clear();
    std::vector<std::uint64_t> versions(kKeys, 1);
    for (std::uint64_t i = 0; i < 2000; ++i) {
      const std::uint64_t key = i * 7919 % kKeys;
      ASSERT_TRUE(rig_.put(key, ++versions[key], kPageBytes).ok());
    }
    EXPECT_GT(rig_.store->stats().zones_reset, 20u);
    EXPECT_GT(rig_.pool->info().scrub.pages, 100u);
    EXPECT_TRUE(findings_.empty()) << describe(findings_.front());
    for (std::uint64_t key = 0; key < kKeys; ++key) {
      const auto page = rig_.get(key);
      if (mode == VolumeMode::cache && page.status().code() == Code::not_found) continue;
      ASSERT_TRUE(page.ok()) << page.status().describe();
      EXPECT_EQ(*page, content(key, versions[key], kPageBytes));
    }
    ASSERT_TRUE(rig_.pool->delete_volume("pages").ok());
    rig_.settle();
    rig_.close();
    rig_.device.reset();
  }
}

}  // namespace
}  // namespace furrow::testing::scrub_test
