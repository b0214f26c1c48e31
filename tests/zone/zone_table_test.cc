// Establishes what ZoneTable promises to a back end: writes are admitted in order and acknowledged
// in order, a failure reaches those behind it and no others, a record is saved before an
// acknowledgement, and counts of open and active zones stay right when several threads work at
// once. (What a queue makes of it: table_queue_test.)
#include "zone/zone_table.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/zone/device_test_util.h"

namespace furrow {
namespace {

using test::End;
using test::end_write;

Geometry small_table() {
  Geometry made;
  made.lba_bytes = 512;
  made.zone_count = 8;
  made.zone_size_lbas = 64;
  made.zone_capacity_lbas = 64;
  made.open_zones_max = 2;
  made.active_zones_max = 4;
  made.append_lbas_max = 8;
  return made;
}

struct Saved : ZoneStore {
  Status save(ZoneId zone, const ZoneRecord& record) override {
    if (full) return zone_failure(Code::no_space, "no room for it", ENOSPC);
    last[zone.value] = record;
    return {};
  }
  bool full = false;
  ZoneRecord last[8];
};

Io append(std::uint32_t zone, std::uint32_t lbas) {
  Io io;
  io.op = Io::Op::append;
  io.zone = ZoneId{zone};
  io.lba_count = lbas;
  return io;
}

TEST(ZoneTable, AcknowledgesInOrderOfAdmission) {
  Saved saved;
  ZoneTable table(small_table(), &saved);
  const Lba a = table.admit(append(1, 4)).lba, b = table.admit(append(1, 2)).lba;
  EXPECT_EQ(a.value, 64u);
  EXPECT_EQ(b.value, 68u);
  EXPECT_EQ(end_write(table, ZoneId{1}, b, 2), End::wait);
  EXPECT_EQ(table.written_lbas(ZoneId{1}), 0u);
  EXPECT_EQ(table.manage(Io::Op::reset, ZoneId{1}).code(), Code::busy);
  EXPECT_EQ(table.manage(Io::Op::finish, ZoneId{1}).code(), Code::busy);
  EXPECT_EQ(end_write(table, ZoneId{1}, a, 4), End::done);
  EXPECT_EQ(saved.last[1].written_lbas, 4u);
  EXPECT_EQ(end_write(table, ZoneId{1}, b, 2), End::done);
  EXPECT_EQ(saved.last[1].written_lbas, 6u);
  EXPECT_TRUE(table.manage(Io::Op::reset, ZoneId{1}).ok());
  EXPECT_EQ(saved.last[1].generation, 1u);
  EXPECT_EQ(saved.last[1].written_lbas, 0u);
}

TEST(ZoneTable, AFailureSealsBehindWhatCameBefore) {
  Saved saved;
  ZoneTable table(small_table(), &saved);
  Lba at[4];
  for (Lba& each : at) each = table.admit(append(0, 4)).lba;
  table.fail_write(ZoneId{0}, at[1], "broken");
  EXPECT_EQ(table.info(ZoneId{0}).state, ZoneState::full);
  EXPECT_STREQ(table.info(ZoneId{0}).reason, "broken");
  EXPECT_EQ(table.admit(append(0, 1)).status, nvme_status::kZoneFull);
  EXPECT_EQ(end_write(table, ZoneId{0}, at[2], 4), End::failed);
  EXPECT_EQ(end_write(table, ZoneId{0}, at[0], 4), End::done);  // it was before the failure
  EXPECT_EQ(saved.last[0].kind, ZoneRecord::Class::full);
  EXPECT_EQ(saved.last[0].written_lbas, 4u);
  EXPECT_EQ(table.manage(Io::Op::reset, ZoneId{0}).code(), Code::busy);
  EXPECT_EQ(end_write(table, ZoneId{0}, at[3], 4), End::failed);
  EXPECT_TRUE(table.manage(Io::Op::reset, ZoneId{0}).ok());
  const Lba again = table.admit(append(0, 4)).lba;
  EXPECT_EQ(again, at[0]);
  EXPECT_EQ(end_write(table, ZoneId{0}, again, 4), End::done);
  EXPECT_EQ(saved.last[0].kind, ZoneRecord::Class::writable);
}

// Else what lies between the two would wait for the first for good.
TEST(ZoneTable, AFailureFurtherBackChangesNothing) {
  ZoneTable table(small_table(), nullptr);
  const ZoneId zone{0};
  Lba at[3];
  for (Lba& each : at) each = table.admit(append(0, 4)).lba;
  table.fail_write(zone, at[0], "the first");
  table.fail_write(zone, at[2], "the last");
  EXPECT_STREQ(table.info(zone).reason, "the first");
  EXPECT_EQ(end_write(table, zone, at[1], 4), End::failed);
  EXPECT_TRUE(table.manage(Io::Op::reset, zone).ok());
  EXPECT_STREQ(table.info(zone).reason, "") << "it is over";
}

// What is in flight in it included.
TEST(ZoneTable, AZoneThatTheDeviceTakesAwayTakesNoMore) {
  ZoneTable table(small_table(), nullptr);
  const ZoneId zone{1};
  const Lba a = table.admit(append(1, 4)).lba, b = table.admit(append(1, 4)).lba;
  ASSERT_EQ(end_write(table, zone, a, 4), End::done);
  table.degrade(zone, ZoneState::read_only, "worn out");
  EXPECT_EQ(end_write(table, zone, b, 4), End::failed);
  EXPECT_EQ(table.written_lbas(zone), 4u);
  EXPECT_STREQ(table.info(zone).reason, "worn out");
}

// Nothing of it was written, and still it must be recorded that it is not full any more.
TEST(ZoneTable, TheResetOfAZoneThatWasFinishedEmptyIsRecorded) {
  Saved saved;
  const ZoneId zone{3};
  ZoneTable table(small_table(), &saved);
  ASSERT_TRUE(table.manage(Io::Op::finish, zone).ok());
  const ZoneRecord finished = saved.last[3];
  EXPECT_EQ(finished.kind, ZoneRecord::Class::full);
  ASSERT_TRUE(table.manage(Io::Op::reset, zone).ok());
  EXPECT_EQ(saved.last[3].kind, ZoneRecord::Class::writable);

  Saved saved_later;
  ZoneTable loaded(small_table(), &saved_later);
  loaded.load(zone, finished, "");
  EXPECT_EQ(loaded.info(zone).state, ZoneState::full);
  ASSERT_TRUE(loaded.manage(Io::Op::reset, zone).ok());
  EXPECT_EQ(saved_later.last[3].kind, ZoneRecord::Class::writable);
  EXPECT_EQ(saved_later.last[3].generation, finished.generation + 1);
}

TEST(ZoneTable, WhatTheDataTellsIsNotRecordedUnlessTheZoneIsSealed) {
  Saved saved;
  ZoneTable table(small_table(), &saved);
  const ZoneId zone{0};
  Lba at[4];
  for (Lba& each : at) each = table.admit(append(0, 4)).lba;
  EXPECT_EQ(end_write(table, zone, at[0], 4), End::done);
  EXPECT_EQ(saved.last[0].written_lbas, 4u);
  EXPECT_TRUE(table.end_write(zone, at[1], 4, true)->ok());
  EXPECT_EQ(saved.last[0].written_lbas, 4u);
  EXPECT_EQ(table.written_lbas(zone), 8u);
  table.fail_write(zone, at[3], "broken");
  EXPECT_TRUE(table.end_write(zone, at[2], 4, true)->ok());
  EXPECT_EQ(saved.last[0].kind, ZoneRecord::Class::full);
  EXPECT_EQ(saved.last[0].written_lbas, 12u);
}

TEST(ZoneTable, WhatCannotBeRecordedIsNotDone) {
  Saved saved;
  ZoneTable table(small_table(), &saved);
  const ZoneId zone{2};
  const Lba a = table.admit(append(2, 4)).lba;
  EXPECT_EQ(end_write(table, zone, a, 4), End::done);
  saved.full = true;
  for (const Io::Op op : {Io::Op::finish, Io::Op::reset}) {
    EXPECT_EQ(table.manage(op, zone).code(), Code::no_space);
    EXPECT_EQ(table.info(zone).state, ZoneState::implicitly_open);
    EXPECT_EQ(table.written_lbas(zone), 4u);
    EXPECT_EQ(table.admitted_lbas(zone), 4u);
  }
  const Lba b = table.admit(append(2, 4)).lba, c = table.admit(append(2, 4)).lba;
  EXPECT_EQ(table.end_write(zone, b, 4)->code(), Code::no_space);
  EXPECT_EQ(end_write(table, zone, c, 4), End::failed);
  EXPECT_EQ(table.info(zone).state, ZoneState::full);
  EXPECT_EQ(table.written_lbas(zone), 4u);
  EXPECT_EQ(saved.last[2].written_lbas, 4u);
  saved.full = false;
  EXPECT_TRUE(table.manage(Io::Op::reset, zone).ok());
  EXPECT_EQ(saved.last[2].generation, 1u);
  // The refused ones have taken no slots, nor given any back.
  for (std::uint32_t z = 0; z < 4; ++z) {
    EXPECT_EQ(table.admit(append(z, 1)).status, nvme_status::kSuccess) << z;
  }
  EXPECT_EQ(table.admit(append(4, 1)).status, nvme_status::kTooManyActive);
}

TEST(ZoneTable, ASealedZoneHoldsNoResources) {
  ZoneTable table(small_table(), nullptr);
  for (std::uint32_t z = 0; z < 8; ++z) {
    const ZoneTable::Admission admitted = table.admit(append(z, 1));
    ASSERT_EQ(admitted.status, nvme_status::kSuccess) << z;
    table.fail_write(ZoneId{z}, admitted.lba, "broken");
  }
}

// Hands out transfers and ends them when told to.
// Four threads open, fill, finish and reset zones. Afterwards exactly MOR zones can be open.
TEST(ZoneTable, CountsStayRightAcrossThreads) {
  ZoneTable table(small_table(), nullptr);
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::uint64_t random = t + 1;
      for (int i = 0; i < 20'000; ++i) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const std::uint32_t zone = t * 2 + (random >> 33) % 2;  // of this thread alone
        switch ((random >> 40) % 6) {
          case 0:
            (void)table.manage(Io::Op::reset, ZoneId{zone});
            break;
          case 1:
            (void)table.manage(Io::Op::open, ZoneId{zone});
            break;
          case 2:
            (void)table.manage(Io::Op::close, ZoneId{zone});
            break;
          case 3:
            (void)table.manage(Io::Op::finish, ZoneId{zone});
            break;
          default:
            const ZoneTable::Admission admitted = table.admit(append(zone, 7));
            if (admitted.status == nvme_status::kSuccess) {
              ASSERT_EQ(end_write(table, ZoneId{zone}, admitted.lba, 7), End::done);
            }
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::uint32_t z = 0; z < 8; ++z) ASSERT_TRUE(table.manage(Io::Op::reset, ZoneId{z}).ok());
  EXPECT_TRUE(table.manage(Io::Op::open, ZoneId{0}).ok());
  EXPECT_TRUE(table.manage(Io::Op::open, ZoneId{1}).ok());
  EXPECT_EQ(table.manage(Io::Op::open, ZoneId{2}).nvme(), nvme_status::kTooManyOpen);
  EXPECT_TRUE(table.manage(Io::Op::close, ZoneId{0}).ok());
  EXPECT_TRUE(table.manage(Io::Op::open, ZoneId{2}).ok());
  EXPECT_TRUE(table.manage(Io::Op::close, ZoneId{1}).ok());
  EXPECT_TRUE(table.manage(Io::Op::open, ZoneId{3}).ok());
  EXPECT_EQ(table.manage(Io::Op::open, ZoneId{4}).nvme(), nvme_status::kTooManyActive);
}

// A zone that a drive is resetting takes no write until the drive has answered, and what the reset
// will give back is waited for rather than refused.
TEST(ZoneTable, ATakenZoneIsLeftAlone) {
  ZoneTable table(small_table(), nullptr);
  for (const std::uint32_t zone : {0u, 1u, 2u, 3u}) {
    const ZoneTable::Admission admitted = table.admit(append(zone, 4));
    ASSERT_EQ(admitted.status, nvme_status::kSuccess);
    EXPECT_FALSE(admitted.later);
    EXPECT_EQ(table.take(Io::Op::reset, ZoneId{zone})->code(), Code::busy);
    ASSERT_EQ(end_write(table, ZoneId{zone}, admitted.lba, 4), End::done);
  }
  EXPECT_EQ(table.admit(append(4, 1)).status, nvme_status::kTooManyActive);
  EXPECT_EQ(table.take(Io::Op::open, ZoneId{4})->code(), Code::too_many_zones);
  EXPECT_EQ(table.take(Io::Op::close, ZoneId{4})->code(), Code::zone_state);

  ASSERT_TRUE(table.take(Io::Op::reset, ZoneId{3})->ok());
  EXPECT_TRUE(table.admit(append(3, 1)).later);
  EXPECT_FALSE(table.take(Io::Op::open, ZoneId{3}).has_value());
  EXPECT_TRUE(table.admit(append(4, 1)).later) << "the reset gives an active zone back";
  EXPECT_FALSE(table.take(Io::Op::open, ZoneId{4}).has_value());
  EXPECT_EQ(table.admit(append(2, 1)).lba.value, 2 * 64 + 4u) << "others go on";
  EXPECT_EQ(table.written_lbas(ZoneId{3}), 4u) << "nothing has happened to it yet";

  ASSERT_TRUE(table.manage(Io::Op::reset, ZoneId{3}).ok());
  table.leave(Io::Op::reset, ZoneId{3});
  EXPECT_EQ(table.admit(append(3, 1)).lba.value, 3 * 64u);
  EXPECT_EQ(table.admit(append(4, 1)).status, nvme_status::kTooManyActive);
  ASSERT_TRUE(table.take(Io::Op::finish, ZoneId{1})->ok());
  EXPECT_TRUE(table.admit(append(4, 1)).later) << "so does a finish";
  table.leave(Io::Op::finish, ZoneId{1});
  EXPECT_EQ(table.admit(append(4, 1)).status, nvme_status::kTooManyActive) << "this one has not";
}

// A drive that fails the reset: all is as it was.
TEST(ZoneTable, HoldsWhatComesBehindALoneWrite) {
  ZoneTable table(small_table(), nullptr);
  const ZoneId zone{1};
  EXPECT_FALSE(table.hold_behind(zone, 0)) << "an empty zone";
  const Lba a = table.admit(append(1, 4)).lba;
  EXPECT_FALSE(table.hold_behind(zone, 3));
  EXPECT_TRUE(table.hold_behind(zone, 4));
  EXPECT_FALSE(table.hold_behind(zone, 4)) << "held already";
  const ZoneTable::Admission b = table.admit(append(1, 2));
  EXPECT_TRUE(b.held);
  EXPECT_EQ(end_write(table, zone, a, 4), End::done);
  EXPECT_TRUE(table.held(zone));
  table.release(zone);
  EXPECT_FALSE(table.held(zone));
  const Lba c = table.admit(append(1, 2)).lba;
  EXPECT_FALSE(table.hold_behind(zone, 8)) << "two are in flight";
  EXPECT_EQ(end_write(table, zone, b.lba, 2), End::done);
  EXPECT_TRUE(table.hold_behind(zone, 8));
  table.release(zone);
  EXPECT_EQ(end_write(table, zone, c, 2), End::done);
  EXPECT_TRUE(table.manage(Io::Op::reset, zone).ok());
}

TEST(ZoneTable, AZoneIsLeftAsItWas) {
  ZoneTable table(small_table(), nullptr);
  const Lba at = table.admit(append(1, 4)).lba;
  ASSERT_EQ(end_write(table, ZoneId{1}, at, 4), End::done);
  ASSERT_TRUE(table.take(Io::Op::reset, ZoneId{1})->ok());
  table.leave(Io::Op::reset, ZoneId{1});
  EXPECT_EQ(table.info(ZoneId{1}).state, ZoneState::implicitly_open);
  EXPECT_EQ(table.admit(append(1, 1)).lba.value, at.value + 4);
}

TEST(ZoneTable, TellsWhichWritesWillFail) {
  ZoneTable table(small_table(), nullptr);
  const Lba a = table.admit(append(1, 4)).lba, b = table.admit(append(1, 2)).lba;
  EXPECT_FALSE(table.fails(ZoneId{1}, b));
  table.fail_write(ZoneId{1}, b, "");
  EXPECT_FALSE(table.fails(ZoneId{1}, a));
  EXPECT_TRUE(table.fails(ZoneId{1}, b));
}

}  // namespace
}  // namespace furrow
