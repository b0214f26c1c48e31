// Establishes that a zone of which something cannot be read, and never will be, is no dead end: a
// check names it, and an opening that gives it up brings the store back to where deletions take no
// room for its sake, with every page that can be read, and without any that was deleted, also when
// the zone turns out to be readable after all.
#include <gtest/gtest.h>

#include "tests/engine/rig.h"
#include "zone/blocking.h"
#include "zone/fault_device.h"
#include "zone/zone_state_machine.h"

namespace furrow::testing::give_up_test {
namespace {

constexpr std::size_t kPageBytes = 4000;
constexpr std::uint64_t kZone = 2, kZoneLbas = 64, kKeys = 60;  // the first data zone

constexpr unsigned kMany = 7'000;  // deletions than the store has room for

class GiveUpTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_NO_FATAL_FAILURE(make_pool()); }
  void wrap(std::unique_ptr<ZonedDevice> inner) {
    rig_.device = std::make_unique<FaultDevice>(std::move(inner), FaultOptions{.seed = ++seed_});
  }
  void make_pool() {
    rig_.close();
    wrap(open_device("mem:1792KiB?zone_size=256KiB", Access::exclusive).value());
    VolumeOptions options;
    options.name = "pages";
    options.mode = VolumeMode::store;
    options.value_bytes_max = 16 << 10;
    ASSERT_NO_FATAL_FAILURE(rig_.make(options));
    for (std::uint64_t i = 0; i < kKeys; ++i) ASSERT_TRUE(rig_.put(i, 1, kPageBytes).ok());
    ASSERT_EQ(zone().state, ZoneState::full);
  }
  FaultDevice& faults() { return static_cast<FaultDevice&>(*rig_.device); }
  ZoneInfo zone() { return (*rig_.device->report())[kZone]; }
  void fail_reads(std::uint64_t first, std::uint64_t lbas) {
    faults().fail_reads(Lba{kZone * kZoneLbas + first}, lbas);
  }
  Status put_and_remove() {
    const Status status = rig_.put(++other_, 1, 100);
    return status.ok() ? rig_.simple(PageOp::Kind::remove, other_) : status;
  }
  Status put_and_remove(unsigned times) {
    Status status;
    for (unsigned i = 0; i < times && status.ok(); ++i) status = put_and_remove();
    return status;
  }
  // In one batch. False: the store is full.
  static constexpr std::uint64_t kBatch = 40;
  bool put_many(std::uint64_t first) {
    AlignedBuffer page(4096);
    std::vector<PageOp> ops(kBatch);
    for (PageOp& op : ops) {
      op.kind = PageOp::Kind::put;
      op.key = key_of(first++);
      op.data = page.data();
      op.length = op.capacity = static_cast<std::uint32_t>(page.size());
      rig_.submit(op);
    }
    rig_.wait();
    return std::ranges::all_of(ops, [](const PageOp& op) { return op.status.ok(); });
  }
  CheckReport check() {
    rig_.close();
    rig_.open(true);
    auto report = rig_.pool->check({});
    EXPECT_TRUE(report.ok()) << report.status().describe();
    rig_.close();
    return report.ok() ? *report : CheckReport();
  }
  // Opens the pool and gives up what a check says can be; the answer for the only zone.
  Status give_up() {
    const CheckReport report = check();
    const std::vector<std::uint32_t> zones = zones_to_give_up(report);
    EXPECT_EQ(zones, std::vector<std::uint32_t>{kZone});
    EXPECT_EQ(give_up_plan(report).size(), 1u);
    EXPECT_TRUE(repair_plan(report).empty());
    return give_up(zones);
  }
  Status give_up(const std::vector<std::uint32_t>& zones) {
    rig_.close();
    rig_.open_options.give_up = zones;
    rig_.open();
    rig_.open_options.give_up.clear();
    while (rig_.pool->given_up().at(0).status.code() == Code::busy) rig_.loop.run_once();
    return rig_.pool->given_up().at(0).status;
  }
  // Two LBAs, of the metadata zone that was written last.
  void rot_end_of_journal() {
    const std::vector<ZoneInfo> zones = rig_.device->report().value();
    const ZoneId ring{is_active(zones[0].state) ? 0u : 1u};
    const std::uint64_t written = zones[ring.value].written_lbas;
    auto queue = rig_.device->create_queue(4);
    ASSERT_TRUE(queue.ok() && is_active(zones[ring.value].state));
    const std::uint32_t lba_bytes = rig_.device->geometry().lba_bytes;
    AlignedBuffer all(written * lba_bytes);
    Io io;
    io.lba = rig_.device->geometry().zone_start(ring);
    io.zone = ring;
    io.op = Io::Op::read;
    io.set_data(all.data(), static_cast<std::uint32_t>(written), lba_bytes);
    ASSERT_TRUE(run_blocking(**queue, io).ok());
    for (std::uint64_t lba = written - 2; lba < written; ++lba) {
      all.data()[lba * lba_bytes + 60] ^= std::byte{1};
    }
    ASSERT_TRUE(manage_blocking(**queue, Io::Op::reset, ring).ok());
    io.op = Io::Op::write;
    io.lba = rig_.device->geometry().zone_start(ring);
    io.set_data(all.data(), static_cast<std::uint32_t>(written), lba_bytes);
    ASSERT_TRUE(run_blocking(**queue, io).ok());
  }
  bool absent(std::uint64_t key) { return rig_.get(key).status().code() == Code::not_found; }
  // Those of the first zone are left out.
  void expect_others() {
    for (std::uint64_t i = kKeys - 5; i < kKeys; ++i) {
      const auto page = rig_.get(i);
      ASSERT_TRUE(page.ok()) << i << ": " << page.status().describe();
      EXPECT_EQ(*page, content(i, 1, kPageBytes));
    }
  }

  Rig rig_{""};
  std::uint64_t seed_ = 0;
  std::uint64_t other_ = 1'000'000;  // keys that are put and removed
};

TEST_F(GiveUpTest, AZoneOfNobodyKnowsWhom) {
  fail_reads(0, kZoneLbas);
  rig_.reopen();
  EXPECT_TRUE(absent(1));
  EXPECT_EQ(put_and_remove(kMany).code(), Code::no_space) << "deletions stay for its sake";
  EXPECT_TRUE(give_up().ok());
  EXPECT_EQ(zone().state, ZoneState::empty);
  EXPECT_TRUE(put_and_remove(kMany).ok());
  expect_others();
  rig_.reopen();
  EXPECT_TRUE(check().clean());
}

// That its life is over stood in the journal, and that this counts no more stands there, too.
TEST_F(GiveUpTest, ItsNextLifeCountsThoughTheJournalsEndIsDamaged) {
  fail_reads(0, kZoneLbas);
  rig_.reopen();
  EXPECT_TRUE(give_up().ok());
  faults().heal();
  constexpr std::uint64_t kNew = 5000;
  std::uint64_t last = kNew;
  while (zone().state != ZoneState::full) {
    ASSERT_TRUE(rig_.put(last++, 1, kPageBytes).ok());
    if (last - kNew > 60) {
      for (std::uint64_t i = kNew; i < last; ++i) {
        ASSERT_TRUE(rig_.simple(PageOp::Kind::remove, i).ok());
      }
      last = kNew;
    }
  }
  rig_.close();
  ASSERT_NO_FATAL_FAILURE(rot_end_of_journal());
  rig_.open();
  for (std::uint64_t i = kNew; i < last; ++i) EXPECT_TRUE(rig_.get(i).ok()) << i;
  expect_others();
}

TEST_F(GiveUpTest, OneThatCannotBeResetEither) {
  ASSERT_TRUE(rig_.simple(PageOp::Kind::remove, 2).ok());
  fail_reads(0, kZoneLbas);
  faults().degrade(ZoneId{kZone}, ZoneState::read_only);
  rig_.reopen();
  EXPECT_EQ(give_up().code(), Code::zone_state);
  for (int round = 0; round < 2; ++round) {
    EXPECT_TRUE(put_and_remove(kMany).ok()) << round;
    EXPECT_TRUE(absent(1));
    expect_others();
    rig_.reopen();
  }
  faults().heal();
  rig_.reopen();
  EXPECT_TRUE(absent(1)) << "it may be older than a deletion that is gone";
  EXPECT_TRUE(absent(2));
  expect_others();
  EXPECT_TRUE(put_and_remove(kMany).ok());
}

// Of a store: batch headers that nothing repeats, and pages.
TEST_F(GiveUpTest, PartsOfAStoresZone) {
  ASSERT_TRUE(rig_.simple(PageOp::Kind::remove, 40).ok());
  constexpr std::uint64_t kHalf = kZoneLbas / 2;
  fail_reads(10, kHalf);
  fail_reads(kZoneLbas - 1, 1);  // the summary
  rig_.reopen();
  ASSERT_EQ(put_and_remove(kMany).code(), Code::no_space);
  const Status given_up = give_up();
  EXPECT_TRUE(given_up.ok()) << given_up.describe();
  EXPECT_EQ(zone().state, ZoneState::empty);
  EXPECT_TRUE(put_and_remove(kMany).ok());
  EXPECT_TRUE(rig_.get(0).ok()) << "before what cannot be read";
  EXPECT_TRUE(absent(10));
  EXPECT_TRUE(absent(40));
  unsigned found = 0;
  for (std::uint64_t i = 0; i < kKeys; ++i) found += rig_.get(i).ok() ? 1 : 0;
  EXPECT_GT(found, kKeys - 20) << "what lies behind it is there as well";
  EXPECT_LT(found, kKeys - 10);
  expect_others();
  EXPECT_TRUE(check().clean());
}

// Who has too few zones left is told what helps: where some cannot be read that can be given up,
// and where they are gone for good.
TEST_F(GiveUpTest, AStoreWithTooFewZonesIsToldWhatHelps) {
  for (const bool gone : {false, true}) {
    SCOPED_TRACE(gone);
    make_pool();
    for (std::uint64_t i = kKeys; i < kKeys + 10; ++i) {
      ASSERT_TRUE(rig_.put(i, 1, kPageBytes).ok());
    }
    rig_.close();
    for (const std::uint32_t number : {2u, 3u, 4u}) {
      if (gone) faults().degrade(ZoneId{number}, ZoneState::offline);
      if (!gone) faults().fail_reads(Lba{number * kZoneLbas}, kZoneLbas);
    }
    rig_.open();
    const Status refused = rig_.put(1, 2, kPageBytes);
    EXPECT_EQ(refused.code(), Code::no_space);
    const std::string told = refused.describe();
    EXPECT_EQ(told.find("--give_up") != told.npos, !gone) << told;
    EXPECT_EQ(told.find("too many zones have gone bad") != told.npos, gone) << told;
    if (gone) continue;
    EXPECT_TRUE(give_up({2, 3, 4}).ok());
    EXPECT_TRUE(rig_.put(1, 2, kPageBytes).ok());
  }
}

// All that names it can be read.
TEST_F(GiveUpTest, APageAlone) {
  fail_reads(20, 1);
  std::uint64_t lost = kKeys;
  for (std::uint64_t i = 0; i < kKeys; ++i) {
    if (rig_.get(i).status().code() == Code::io_error) lost = i;
  }
  ASSERT_LT(lost, kKeys);
  const Status given_up = give_up();
  EXPECT_TRUE(given_up.ok()) << given_up.describe();
  for (std::uint64_t i = 0; i < kKeys; ++i) EXPECT_EQ(absent(i), i == lost) << i;
  EXPECT_TRUE(check().clean());
}

// Whole zones, of which nothing is lost.
TEST_F(GiveUpTest, AStoreWithoutRoomForTheRestIsTold) {
  for (std::uint64_t i = 0; i < kKeys; ++i) {
    ASSERT_TRUE(rig_.simple(PageOp::Kind::remove, i).ok());
  }
  std::uint64_t key = kKeys;
  while (put_many(key)) key += kBatch;
  const std::vector<PoolZone> zones = rig_.pool->zones();
  const auto fullest = std::ranges::max_element(zones, {}, &PoolZone::live_bytes);
  const auto number = static_cast<std::uint32_t>(fullest - zones.begin());
  EXPECT_EQ(give_up({number}).code(), Code::no_space);
  EXPECT_EQ(rig_.pool->zones()[number].live_bytes, fullest->live_bytes);
  for (std::uint64_t i = kKeys; i < key; i += 2) {
    ASSERT_TRUE(rig_.simple(PageOp::Kind::remove, i).ok()) << i;
  }
  EXPECT_TRUE(give_up({number}).ok());
  for (std::uint64_t i = kKeys; i < key; ++i) {
    EXPECT_EQ(absent(i), i % 2 == kKeys % 2) << i;
  }
}

// After each cut the zone can be read again: it counts, as what says that its pages were deleted is
// there still, or it is void. Then stores are to be as good as new.
TEST_F(GiveUpTest, PowerCutsOnTheWay) {
  constexpr std::uint64_t kRemoved = 10;
  unsigned counted = 0, given_up = 0;
  for (unsigned round = 0; round < 40; ++round) {
    SCOPED_TRACE(round);
    ASSERT_NO_FATAL_FAILURE(make_pool());
    for (std::uint64_t i = 0; i < kRemoved; ++i) {
      ASSERT_TRUE(rig_.simple(PageOp::Kind::remove, i).ok());
    }
    rig_.close();
    const bool parts = round % 2 == 1;
    fail_reads(parts ? 10 : 0, parts ? kZoneLbas / 2 : kZoneLbas);
    if (parts) fail_reads(kZoneLbas - 1, 1);
    faults().cut_after(1 + round / 4 * 2, round % 4 < 2 ? CrashModel::drive : CrashModel::emu);
    Pool::OpenOptions options;
    options.recovery_threads = Pool::OpenOptions::kCallingThread;
    options.give_up = {kZone};
    auto opened = Pool::open(*rig_.device, rig_.loop, options);
    if (opened.ok()) {
      const auto busy = [&] { return (*opened)->given_up().at(0).status.code() == Code::busy; };
      while (busy() && !faults().dead()) rig_.loop.run_once();
      given_up += (*opened)->given_up().at(0).status.ok() ? 1 : 0;
      ASSERT_TRUE(faults().power_cut(CrashModel::drive).ok());
      while (!(*opened)->quiesce()) rig_.loop.run_once();
      opened->reset();
    }
    wrap(faults().take_inner());
    for (int opening = 0; opening < 2; ++opening) {
      rig_.open();
      for (std::uint64_t i = 0; i < kRemoved; ++i) EXPECT_TRUE(absent(i)) << i;
      expect_others();
      counted += rig_.get(kRemoved + 5).ok() ? 1 : 0;
      EXPECT_TRUE(put_and_remove(60).ok());
      rig_.close();
    }
    EXPECT_TRUE(check().clean());
  }
  EXPECT_GT(counted, 5u);
  EXPECT_GT(given_up, 5u);
}

}  // namespace
}  // namespace furrow::testing::give_up_test
