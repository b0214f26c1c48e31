// Establishes that a pool keeps what hosts have reserved of its volumes: across openings, through
// rolls of the ring and power cuts at any LBA, in either crash model, where it is what was
// acknowledged or what was asked for last; that it is forgotten with its volume, or when it is not
// to persist; that nobody waits meanwhile, and the pool's end does; and that what does not fit is
// refused, with what was kept as before; and that what failed does not come back when it was taken
// back.
#include <gtest/gtest.h>

#include <random>

#include "tests/engine/power_cuts.h"
#include "tests/log/tap_device.h"

namespace furrow::testing {
namespace {

VolumeOptions shared_volume(const char* name) {
  VolumeOptions options;
  options.name = name;
  options.mode = VolumeMode::store;
  options.quota_bytes = 3 << 20;
  options.value_bytes_max = 16 << 10;
  return options;
}

ReservationRecord registered(std::uint64_t volume, std::size_t hosts) {
  ReservationRecord record;
  record.volume = volume;
  record.persists = true;
  record.generation = static_cast<std::uint32_t>(hosts);
  for (std::size_t i = 0; i < hosts; ++i) {
    const auto high = static_cast<std::uint8_t>(1 + i / 256), low = static_cast<std::uint8_t>(i);
    record.registrants.push_back({{high, low}, 1000 + i});
  }
  return record;
}

ReservationRecord nothing(std::uint64_t volume) {
  ReservationRecord record;
  record.volume = volume;
  return record;
}

TEST(PoolReservationsTest, TheyOutliveTheProcess) {
  Rig rig("mem:24MiB?zone_size=1MiB");
  ASSERT_NO_FATAL_FAILURE(rig.make(shared_volume("one")));
  ASSERT_TRUE(rig.pool->create_volume(shared_volume("two")).ok());
  const std::uint64_t one = rig.pool->find("one")->info().id,
                      two = rig.pool->find("two")->info().id;
  EXPECT_EQ(rig.pool->reservations(one), nothing(one));
  ReservationRecord of_one = registered(one, 256), of_two = registered(two, 0);
  of_one.type = 3;
  of_one.holder = of_one.registrants[100].host;
  for (unsigned round = 0; round < 300; ++round) {  // the ring rolls
    of_one.registrants[round % 256].key += 7;
    ++of_one.generation;
    ASSERT_TRUE(rig.keep_reservations(of_one).ok());
  }
  ASSERT_TRUE(rig.keep_reservations(of_two).ok());
  ASSERT_NO_FATAL_FAILURE(rig.reopen());
  EXPECT_EQ(rig.pool->reservations(one), of_one);
  EXPECT_EQ(rig.pool->reservations(two), of_two) << "that it persists is kept without hosts too";
  const auto report = rig.pool->check({});
  ASSERT_TRUE(report.ok());
  EXPECT_TRUE(report->clean());

  EXPECT_TRUE(rig.keep_reservations(nothing(two)).ok());
  EXPECT_EQ(rig.pool->reservations(two), nothing(two));
  EXPECT_TRUE(rig.pool->delete_volume("one").ok());
  EXPECT_EQ(rig.pool->reservations(one), nothing(one));
  EXPECT_EQ(rig.keep_reservations(of_one).code(), Code::not_found);
  ASSERT_NO_FATAL_FAILURE(rig.reopen());
  EXPECT_EQ(rig.pool->reservations(one), nothing(one));
  EXPECT_EQ(rig.pool->reservations(two), nothing(two));
  EXPECT_TRUE(rig.keep_reservations(registered(two, 1)).ok());
  rig.close();
  ASSERT_NO_FATAL_FAILURE(rig.open(true));
  EXPECT_EQ(rig.pool->reservations(two), registered(two, 1));
  EXPECT_EQ(rig.keep_reservations(registered(two, 2)).code(), Code::permission);
}

TEST(PoolReservationsTest, WhatHasNoPlaceIsRefused) {
  // A third of a metadata zone is 14 LBAs of 512 bytes, and lists of zones and volumes come first.
  Rig rig("mem:1MiB?zone_size=32KiB&lba=512");
  VolumeOptions options = shared_volume("one");
  options.quota_bytes = 0;
  options.value_bytes_max = 4096;
  ASSERT_NO_FATAL_FAILURE(rig.make(options));
  const std::uint64_t one = rig.store->info().id;
  ASSERT_TRUE(rig.keep_reservations(registered(one, 150)).ok());
  const Status full = rig.keep_reservations(registered(one, 256));
  EXPECT_EQ(full.code(), Code::no_space);
  EXPECT_NE(full.describe().find("hosts"), std::string::npos) << full.describe();
  EXPECT_EQ(rig.pool->reservations(one), registered(one, 150));
  ReservationRecord wrong = registered(one, 2);
  wrong.type = 1;
  wrong.holder = {9};
  EXPECT_EQ(rig.keep_reservations(wrong).code(), Code::invalid_argument) << "by a stranger";
  EXPECT_EQ(rig.keep_reservations(registered(one, 257)).code(), Code::invalid_argument);
  ASSERT_NO_FATAL_FAILURE(rig.reopen());
  EXPECT_EQ(rig.pool->reservations(one), registered(one, 150));
}

struct Kept {
  void ask(Pool& pool, const ReservationRecord& wanted) {
    pool.keep_reservations(wanted, [this](const Status& told) {
      status = told;
      ++answers;
    });
  }
  Status status;
  unsigned answers = 0;
};

class HeldReservationsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(rig_.open_device());
    auto tap = std::make_unique<TapDevice>(std::move(rig_.device));
    tap_ = tap.get();
    rig_.device = std::move(tap);
    ASSERT_NO_FATAL_FAILURE(rig_.make(shared_volume("one")));
    ASSERT_TRUE(rig_.pool->create_volume(shared_volume("two")).ok());
    one_ = rig_.pool->find("one")->info().id;
    two_ = rig_.pool->find("two")->info().id;
    // The first rolls the ring.
    ASSERT_TRUE(rig_.keep_reservations(registered(one_, 1)).ok());
    ASSERT_TRUE(rig_.put(0, 1, 9000).ok());  // so does the volume's first zone wait for a flush
    rig_.settle();
    tap_->hold(Io::Op::flush);
  }
  void TearDown() override { tap_->let_go(Io::Op::flush); }

  Rig rig_{"mem:24MiB?zone_size=1MiB"};
  TapDevice* tap_ = nullptr;
  std::uint64_t one_ = 0, two_ = 0;
};

TEST_F(HeldReservationsTest, OthersAreServedWhileTheyAreMadeDurable) {
  Kept kept, next;
  kept.ask(*rig_.pool, registered(one_, 2));
  next.ask(*rig_.pool, registered(two_, 30));  // three records
  ASSERT_TRUE(rig_.put(1, 1, 9000).ok());
  EXPECT_TRUE(rig_.get(1).ok());
  EXPECT_EQ(kept.answers + next.answers, 0u) << "they are not durable yet";
  EXPECT_EQ(rig_.pool->reservations(one_), registered(one_, 1));
  EXPECT_FALSE(rig_.pool->quiesce());
  tap_->let_go(Io::Op::flush);
  while (next.answers == 0) rig_.loop.run_once();
  EXPECT_EQ(kept.answers, 1u);
  EXPECT_TRUE(kept.status.ok() && next.status.ok());
  ASSERT_NO_FATAL_FAILURE(rig_.reopen());
  EXPECT_EQ(rig_.pool->reservations(one_), registered(one_, 2));
  EXPECT_EQ(rig_.pool->reservations(two_), registered(two_, 30));
}

TEST_F(HeldReservationsTest, AVolumeThatIsDeletedMeanwhileHasNone) {
  tap_->let_go(Io::Op::flush);
  for (const std::size_t hosts : {2, 30}) {
    Kept kept;
    kept.ask(*rig_.pool, registered(two_, hosts));
    ASSERT_TRUE(rig_.pool->delete_volume("two").ok());
    while (kept.answers == 0) rig_.loop.run_once();
    EXPECT_EQ(kept.status.code(), hosts == 2 ? Code::ok : Code::not_found) << "that was too late";
    EXPECT_EQ(rig_.pool->reservations(two_), nothing(two_));
    ASSERT_TRUE(rig_.pool->create_volume(shared_volume("two")).ok());
    two_ = rig_.pool->find("two")->info().id;
  }
  ASSERT_NO_FATAL_FAILURE(rig_.reopen());
  EXPECT_EQ(rig_.pool->reservations(one_), registered(one_, 1));
  EXPECT_EQ(rig_.pool->reservations(two_), nothing(two_));
}

TEST_F(HeldReservationsTest, WhatCouldNotBeMadeDurableIsTakenBackForGood) {
  tap_->let_go(Io::Op::flush);
  const ReservationRecord before[] = {registered(one_, 1), nothing(two_)};
  for (const ReservationRecord& was : before) {
    constexpr Status kFailed(Code::io_error, Origin::zone, "the flush failed");
    tap_->fail(Io::Op::flush, kFailed, 100);
    EXPECT_FALSE(rig_.keep_reservations(registered(was.volume, 3)).ok());
    tap_->fail(Io::Op::flush, Status(), 0);
    EXPECT_EQ(rig_.pool->reservations(was.volume), was);
    ASSERT_TRUE(rig_.keep_reservations(was).ok());  // as it was: that is durable now
    rig_.session.reset();
    rig_.pool.reset();
    ASSERT_NO_FATAL_FAILURE(rig_.open());
    EXPECT_EQ(rig_.pool->reservations(was.volume), was);
  }
}

TEST_F(HeldReservationsTest, OneThatIsRefusedIsAnsweredInItsTurn) {
  Kept next;
  std::vector<unsigned> before;  // answers of the next one, when the first has its own
  rig_.pool->keep_reservations(registered(one_, 2), [&](const Status& status) {
    EXPECT_TRUE(status.ok());
    before.push_back(next.answers);
  });
  next.ask(*rig_.pool, registered(two_, 257));
  tap_->let_go(Io::Op::flush);
  while (next.answers == 0 || before.empty()) rig_.loop.run_once();
  EXPECT_EQ(before, std::vector<unsigned>{0});
  EXPECT_EQ(next.status.code(), Code::invalid_argument);
}

class ReservationCuts {
 public:
  ReservationCuts(std::uint64_t seed, CrashModel model)
      : random_(seed), rig_("mem:24MiB?zone_size=1MiB"), cuts_(rig_, model) {
    cuts_.start(seed);
    rig_.make(shared_volume("shared"));
    volume_ = rig_.store->info().id;
    may_be_ = {nothing(volume_)};
  }
  void round(std::uint64_t seed) {
    cuts_.cut_after(1 + random_() % 60);
    while (!cuts_.dead()) {
      const ReservationRecord wanted = next();
      const bool many = wanted.persists && wanted.registrants.size() > 10;
      const Status status = rig_.keep_reservations(wanted);
      ASSERT_EQ(status.ok(), !cuts_.dead()) << status.describe();
      if (status.ok()) {
        may_be_ = {wanted};
        ++kept_;
      } else {
        may_be_.push_back(wanted);
        if (many) may_be_.push_back(nothing(volume_));
      }
    }
    rig_.close();
    cuts_.restore(seed);
    ASSERT_NO_FATAL_FAILURE(rig_.open());
    const ReservationRecord is = rig_.pool->reservations(volume_);
    ASSERT_NE(std::ranges::find(may_be_, is), may_be_.end())
        << is.registrants.size() << " hosts, generation " << is.generation;
    may_be_ = {is};
  }
  unsigned kept() const { return kept_; }

 private:
  // As a command changes it, mostly.
  ReservationRecord next() {
    ReservationRecord wanted = may_be_.front();
    if (random_() % 16 == 0) return nothing(volume_);
    if (random_() % 16 == 0) return registered(volume_, random_() % 60);
    wanted.persists = true;
    ++wanted.generation;
    wanted.type = 0;
    wanted.holder = {};
    const auto host = static_cast<std::uint8_t>(1 + random_() % 20);
    auto& all = wanted.registrants;
    std::erase_if(all, [&](const auto& one) { return one.host[0] == host || random_() % 9 == 0; });
    all.push_back({{host}, random_()});
    std::ranges::sort(all, {}, &ReservationRecord::Registrant::host);
    wanted.type = static_cast<std::uint8_t>(random_() % 7);
    if (wanted.type != 0 && wanted.type <= 4) wanted.holder = {host};
    return wanted;
  }

  std::mt19937_64 random_;
  Rig rig_;
  PowerCuts cuts_;
  std::uint64_t volume_ = 0;
  std::vector<ReservationRecord> may_be_;
  unsigned kept_ = 0;
};

TEST(PoolReservationsTest, APowerCutLeavesTheOldOrTheNew) {
  for (const CrashModel model : {CrashModel::drive, CrashModel::emu}) {
    unsigned kept = 0;
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      ReservationCuts cuts(seed, model);
      for (unsigned round = 0; round < 12; ++round) {
        ASSERT_NO_FATAL_FAILURE(cuts.round(seed * 100 + round)) << "seed " << seed;
      }
      kept += cuts.kept();
    }
    EXPECT_GT(kept, 500u);
  }
}

}  // namespace
}  // namespace furrow::testing
