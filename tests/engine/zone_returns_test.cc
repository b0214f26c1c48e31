// Establishes that a volume's deletion costs its caller no reset: it is durable and answered first,
// its zones are reset one at a time while others are served, and few flushes make that durable;
// that nobody is promised a zone before, and who asks for one is told to wait, and not that there
// is no room; and that the next opening goes on with what a stop has left, likewise without a
// reset for each zone before it is done.
//
// A store that fills half of the device, or a zoned volume, beside another store, on a device that
// counts what it is asked and holds answers back.
#include <gtest/gtest.h>

#include "engine/embedded_pool.h"
#include "tests/engine/zoned/zones.h"
#include "tests/log/tap_device.h"

namespace furrow::testing {
namespace {

constexpr std::uint64_t kZone = 256 << 10;
constexpr std::uint64_t kZones = 200, kRing = 2, kBeside = 6, kGone = 160, kFilled = 140;

VolumeOptions store_of(const char* name, std::uint64_t zones) {
  VolumeOptions options;
  options.name = name;
  options.mode = VolumeMode::store;
  options.quota_bytes = zones * kZone;
  options.value_bytes_max = 64 << 10;
  return options;
}

class ZoneReturnsTest : public ::testing::TestWithParam<VolumeKind> {
 protected:
  void SetUp() override {
    auto inner = open_device("mem:50MiB?zone_size=256KiB&mor=14&mar=14", Access::exclusive);
    ASSERT_TRUE(inner.ok());
    auto tap = std::make_unique<TapDevice>(std::move(*inner));
    tap_ = tap.get();
    rig_.device = std::move(tap);
    ASSERT_NO_FATAL_FAILURE(rig_.make(store_of("beside", kBeside)));
    ASSERT_NO_FATAL_FAILURE(make_gone());
    rig_.store = rig_.pool->find("beside");
    rig_.settle();
    for (const PoolZone& zone : rig_.pool->zones()) was_held_ += zone.volume == 2 ? 1 : 0;
    ASSERT_GE(was_held_, kFilled - kRing - kBeside);
    tap_->forget_events();
  }

  void make_gone() {
    VolumeOptions options = store_of("gone", kGone);
    if (GetParam() == VolumeKind::zoned) options = zoned_options(kGone, 4, 4);
    options.name = "gone";
    const auto made = rig_.pool->create_volume(options);
    ASSERT_TRUE(made.ok()) << made.status().describe();
    rig_.store = *made;
    if (GetParam() == VolumeKind::zoned) return fill_zones();
    for (std::uint64_t i = 0; used() < kFilled; ++i) {
      ASSERT_TRUE(rig_.put(i, 1, 60'000).ok());
    }
  }
  void fill_zones() {
    ZonedSession session(*rig_.session, *rig_.executor);
    const std::uint64_t lbas = tap_->geometry().zone_capacity_lbas;
    AlignedBuffer data(lbas * tap_->geometry().lba_bytes);
    std::memset(data.data(), 7, data.size());
    for (std::uint64_t i = 0; i <= kFilled; ++i) {
      bool done = false;
      ZonedOp op;
      op.kind = ZonedOp::Kind::write;
      op.lba = i * tap_->geometry().zone_size_lbas;
      op.count = i < kFilled ? static_cast<std::uint32_t>(lbas) : 1;  // one stays open
      op.data = data.data();
      op.context = &done;
      op.on_done = [](ZonedOp& its) { *static_cast<bool*>(its.context) = true; };
      session.submit(*rig_.store, op);
      while (!done) rig_.loop.run_once();
      ASSERT_TRUE(op.status.ok()) << op.status.describe();
    }
  }
  Result<PageStore*> create(const VolumeOptions& options) {  // as soon as it can be
    for (;;) {
      Result<PageStore*> made = rig_.pool->create_volume(options);
      if (made.ok() || made.status().code() != Code::busy) return made;
      rig_.loop.run_once();
    }
  }
  std::uint64_t used() const {  // zones with something in them
    const auto report = *rig_.device->report();
    return static_cast<std::uint64_t>(
        std::ranges::count_if(report, [](const ZoneInfo& zone) { return zone.written_lbas != 0; }));
  }

  std::size_t ring_resets() const {
    const auto events = tap_->events();
    return static_cast<std::size_t>(
        std::ranges::count_if(events, [](const TapDevice::Event& event) {
          return event.op == Io::Op::reset && !event.answered && event.zone.value < kRing;
        }));
  }

  TapDevice* tap_ = nullptr;
  std::uint64_t was_held_ = 0;  // zones of the volume that is to go
  Rig rig_{"unused"};
};

TEST_P(ZoneReturnsTest, TheDeletionIsAnsweredBeforeItsZonesAreReset) {
  tap_->hold(Io::Op::reset);
  ASSERT_TRUE(rig_.pool->delete_volume("gone").ok());
  EXPECT_EQ(tap_->count(Io::Op::reset) - ring_resets(), 1u);
  EXPECT_EQ(rig_.pool->find("gone"), nullptr);
  EXPECT_TRUE(rig_.put(1, 1, 9000).ok());
  EXPECT_TRUE(rig_.simple(PageOp::Kind::flush, 0).ok());
  EXPECT_TRUE(rig_.get(1).ok());
  EXPECT_EQ(tap_->held(Io::Op::reset), 1u);
  // What the volume held is nobody's yet.
  const PoolInfo info = rig_.pool->info();
  EXPECT_EQ(info.zones_returning, was_held_);
  EXPECT_EQ(info.zones_data, rig_.store->usage().zones);
  EXPECT_EQ(info.zones_unpromised, kZones - kRing - kBeside - was_held_);
  EXPECT_EQ(rig_.pool->create_volume(store_of("new", kGone)).status().code(), Code::busy);
  EXPECT_EQ(rig_.pool->create_volume(store_of("new", 0)).status().code(), Code::busy);
  const std::size_t reports = tap_->reports();  // which take a drive its time
  EXPECT_EQ(rig_.pool->create_volume(zoned_options(kGone)).status().code(), Code::busy);
  EXPECT_EQ(tap_->reports(), reports);
  EXPECT_EQ(rig_.pool->create_volume(store_of("more", kZones)).status().code(), Code::busy);
  ResizeOptions larger;
  larger.quota_bytes = (kBeside + kGone) * kZone;
  EXPECT_EQ(rig_.pool->resize_volume("beside", larger).status.code(), Code::busy);
  const std::size_t flushes = tap_->count(Io::Op::flush);
  tap_->let_go(Io::Op::reset);
  rig_.return_zones();
  EXPECT_LE(tap_->count(Io::Op::flush) - flushes, was_held_ / 64 + 6);
  EXPECT_EQ(tap_->count(Io::Op::reset) - ring_resets(), was_held_);
  EXPECT_EQ(rig_.pool->create_volume(store_of("more", kZones)).status().code(), Code::no_space);
  ASSERT_TRUE(rig_.pool->create_volume(store_of("new", kGone)).ok());
  ASSERT_TRUE(rig_.pool->resize_volume("beside", {.quota_bytes = 7 * kZone}).status.ok());
}

TEST_P(ZoneReturnsTest, WhatIsWrittenMeanwhileIsNoneOfThem) {
  ASSERT_TRUE(rig_.pool->create_volume(store_of("other", 10)).ok());
  ASSERT_TRUE(rig_.pool->delete_volume("gone").ok());
  ASSERT_TRUE(create(store_of("new", 10)).ok());
  EXPECT_GT(rig_.pool->info().zones_returning, kFilled / 2);
  for (std::uint64_t i = 0; i < 8; ++i) {
    for (PageStore* store : rig_.pool->stores()) {
      rig_.store = store;
      ASSERT_TRUE(rig_.put(i, 2, 50'000).ok());
    }
  }
  rig_.return_zones();
  ASSERT_NO_FATAL_FAILURE(rig_.reopen());
  ASSERT_EQ(rig_.pool->stores().size(), 3u);
  for (PageStore* store : rig_.pool->stores()) {
    rig_.store = store;
    for (std::uint64_t i = 0; i < 8; ++i) {
      const auto page = rig_.get(i);
      ASSERT_TRUE(page.ok()) << i << ": " << page.status().describe();
      ASSERT_EQ(*page, content(i, 2, 50'000)) << i;
    }
  }
}

// A share of the open and active zones that are left is not one of fewer, for as long as the volume
// is there, because it was made a moment too early.
TEST_P(ZoneReturnsTest, WhatIsMadeMeanwhileMayHaveAsManyZonesOpen) {
  const auto share_of_a_new_one = [this] {
    const Result<PageStore*> made = create(zoned_options(12));
    return made.ok() ? (*made)->info().options.active_zones_max : 0;
  };
  ASSERT_TRUE(rig_.pool->delete_volume("gone").ok());
  const std::uint32_t meanwhile = share_of_a_new_one();
  EXPECT_NE(meanwhile, 0u);
  EXPECT_GT(rig_.pool->info().zones_returning, kFilled / 2);
  rig_.return_zones();
  ASSERT_TRUE(rig_.pool->delete_volume("zones").ok());
  rig_.return_zones();
  EXPECT_EQ(share_of_a_new_one(), meanwhile);
}

// Nor does it wait for the many zones of one volume because another one was deleted after it.
TEST_P(ZoneReturnsTest, OneThatWasDeletedLaterGivesItsLimitsBackFirst) {
  ASSERT_TRUE(create(zoned_options(12, 1, 1)).ok());
  ASSERT_TRUE(rig_.pool->delete_volume("gone").ok());
  ASSERT_TRUE(rig_.pool->delete_volume("zones").ok());
  ASSERT_TRUE(create(zoned_options(12, 1, 1)).ok());
  EXPECT_GT(rig_.pool->info().zones_returning, kFilled / 2);
  rig_.return_zones();
  EXPECT_EQ(rig_.pool->info().zones_bad, 0u);
  EXPECT_EQ(rig_.pool->info().zones_unpromised, kZones - kRing - kBeside - 12);
}

TEST_P(ZoneReturnsTest, TheNextOpeningGoesOn) {
  ASSERT_TRUE(rig_.put(1, 1, 9000).ok());
  tap_->hold(Io::Op::reset);
  ASSERT_TRUE(rig_.pool->delete_volume("gone").ok());
  for (unsigned i = 0; i < 20; ++i) {
    while (tap_->held(Io::Op::reset) == 0) rig_.loop.run_once();
    tap_->let_one_go(Io::Op::reset, 0);
  }
  EXPECT_FALSE(rig_.pool->quiesce());
  tap_->let_go(Io::Op::reset);
  rig_.close();
  EXPECT_GE(used(), kFilled - 21);
  tap_->forget_events();
  ASSERT_NO_FATAL_FAILURE(rig_.open());
  // The ring's, and what would count against the device's limits.
  EXPECT_LE(tap_->count(Io::Op::reset), 8u);
  EXPECT_GT(rig_.pool->info().zones_returning, kFilled / 2);
  EXPECT_EQ(rig_.pool->create_volume(store_of("new", kGone)).status().code(), Code::busy);
  rig_.store = rig_.pool->find("beside");
  EXPECT_TRUE(rig_.get(1).ok());
  EXPECT_TRUE(rig_.put(2, 1, 9000).ok());
  rig_.return_zones();
  EXPECT_EQ(rig_.pool->info().zones_unpromised, kZones - kRing - kBeside);
  EXPECT_LE(used(), kRing + kBeside);
  ASSERT_TRUE(rig_.pool->create_volume(store_of("new", kGone)).ok());
}

// It is bad until then, and the others are free all the same.
TEST_P(ZoneReturnsTest, OneThatCannotBeResetIsTriedAgainAtTheNextOpening) {
  ASSERT_TRUE(rig_.pool->delete_volume("gone").ok());
  tap_->fail(Io::Op::reset, Status(Code::io_error, Origin::zone), 3);
  rig_.return_zones();
  EXPECT_EQ(rig_.pool->info().zones_bad, 3u);
  EXPECT_EQ(rig_.pool->info().zones_unpromised, kZones - kRing - kBeside - 3);
  ASSERT_NO_FATAL_FAILURE(rig_.reopen());
  rig_.return_zones();
  EXPECT_EQ(rig_.pool->info().zones_bad, 0u);
  EXPECT_EQ(rig_.pool->info().zones_unpromised, kZones - kRing - kBeside);
}

// That costs no zone.
TEST_P(ZoneReturnsTest, AFlushThatFailsIsTriedAgain) {
  ASSERT_TRUE(rig_.pool->delete_volume("gone").ok());
  while (rig_.pool->info().zones_returning == was_held_ && used() > 10) rig_.loop.run_once();
  tap_->fail(Io::Op::flush, Status(Code::io_error, Origin::zone), 3);
  rig_.return_zones();
  EXPECT_EQ(rig_.pool->info().zones_bad, 0u);
  EXPECT_EQ(rig_.pool->info().zones_unpromised, kZones - kRing - kBeside);
  ASSERT_TRUE(create(store_of("new", kGone)).ok());
}

// What the journal could not be told (of lent zones; of a store's there is nothing to tell) is only
// told again.
TEST_P(ZoneReturnsTest, AJournalThatFailsCostsNoReset) {
  ASSERT_TRUE(rig_.pool->delete_volume("gone").ok());
  while (rig_.pool->info().zones_returning != 0 && used() > 10) rig_.loop.run_once();
  const bool noted = GetParam() == VolumeKind::zoned;
  tap_->fail(Io::Op::write, Status(Code::io_error, Origin::zone), noted ? 2 : 0);
  rig_.return_zones();
  EXPECT_EQ(tap_->count(Io::Op::reset) - ring_resets(), was_held_);
  EXPECT_EQ(rig_.pool->info().zones_unpromised, kZones - kRing - kBeside);
  ASSERT_TRUE(create(store_of("new", kGone)).ok());
}

// Nor is the pool kept from being closed by one that does for long, or who waits for room.
TEST_P(ZoneReturnsTest, OneThatFailsForLongEnds) {
  ASSERT_TRUE(rig_.pool->delete_volume("gone").ok());
  tap_->fail(Io::Op::flush, Status(Code::io_error, Origin::zone), ~0u);
  for (const bool to_its_end : {false, true}) {
    const std::uint64_t until_ns = rig_.loop.now_ns() + 100'000'000;
    while (rig_.loop.now_ns() < until_ns) rig_.loop.run_once();
    if (to_its_end) rig_.return_zones();
    EXPECT_EQ(rig_.pool->info().zones_returning == 0, to_its_end);
    rig_.close();
    tap_->fail(Io::Op::flush, Status(), 0);
    ASSERT_NO_FATAL_FAILURE(rig_.open());
    tap_->fail(Io::Op::flush, Status(Code::io_error, Origin::zone), ~0u);
  }
  tap_->fail(Io::Op::flush, Status(), 0);
  rig_.return_zones();
  EXPECT_EQ(rig_.pool->info().zones_bad, 0u);
}

// Before anything else of the pool is there that could be refused.
TEST_P(ZoneReturnsTest, APoolThatCannotBeUsedAsAskedIsClosed) {
  ASSERT_TRUE(rig_.pool->delete_volume("beside").ok());
  ASSERT_TRUE(rig_.pool->delete_volume("gone").ok());
  rig_.close();
  EmbeddedPool::CreateOptions make;
  make.volume = store_of("new", kRing);
  const auto pool = EmbeddedPool::open(std::move(rig_.device), make);
  EXPECT_EQ(pool.status().code(), Code::invalid_argument) << pool.status().describe();
}

INSTANTIATE_TEST_SUITE_P(Kinds, ZoneReturnsTest,
                         ::testing::Values(VolumeKind::kv, VolumeKind::zoned),
                         [](const auto& kind) {
                           return kind.param == VolumeKind::kv ? "store" : "zoned";
                         });

}  // namespace
}  // namespace furrow::testing
