// Establishes that Preempt and Abort is answered when nothing that was begun before is still worked
// on, whatever comes meanwhile, and whether somebody waits for it or not. How: hosts without a wire
// over a pool of plain maps that holds their commands.
#include <gtest/gtest.h>

#include "tests/transport/reservation_member.h"

namespace furrow::test {
namespace {

// From here on the pool answers nothing.
FakeStore& hold(World& world) {
  auto& store = *static_cast<FakeStore*>(world.pool.stores().front());
  store.hold = true;
  return store;
}

CommandPtr begin_store(World& world, Member& by) {
  CommandPtr working = by.send_store();
  world.run();
  return working;
}

// What a preempted host has under way: nothing of it happens once Preempt and Abort is answered.
TEST(ReservationAbort, WaitsForWhatIsUnderWay) {
  for (const bool aborts : {false, true}) {
    World world;
    Member a(world, 1, 0), b(world, 2, 1);
    ASSERT_EQ(a.enrol(11), sc::kSuccess);
    ASSERT_EQ(b.enrol(22), sc::kSuccess);
    ASSERT_EQ(b.acquire(kExclusiveAccess, 22), sc::kSuccess);
    FakeStore& store = hold(world);
    const CommandPtr working = begin_store(world, b);
    b.io->hold_pulls = true;
    const CommandPtr sending = b.send_store();  // its data does not come
    world.run();
    const CommandPtr preempt = a.send(
        resv::kAcquire, (aborts ? kPreemptAndAbort : kPreempt) | kExclusiveAccess << 8, 11, 22);
    world.run();
    EXPECT_EQ(preempt->done, !aborts);
    b.io->release_pulls();
    world.run();
    EXPECT_EQ(sending->status(), sc::kReservationConflict) << "it comes too late";
    EXPECT_EQ(b.store(), sc::kReservationConflict);
    EXPECT_EQ(preempt->done, !aborts);
    EXPECT_FALSE(working->done);
    store.hold = false;
    world.run();
    EXPECT_EQ(working->status(), sc::kSuccess);
    EXPECT_EQ(preempt->status(), sc::kSuccess);
  }
}

// What is begun afterwards and needs nothing of the pool is done before that.
TEST(ReservationAbort, WaitsForNoLessWhereNewCommandsAreDone) {
  World world;
  Member a(world, 1, 1), b(world, 2, 1);
  ASSERT_EQ(a.enrol(11), sc::kSuccess);
  ASSERT_EQ(b.enrol(22), sc::kSuccess);
  FakeStore& store = hold(world);
  const CommandPtr working = begin_store(world, b);
  const CommandPtr preempt =
      a.send(resv::kAcquire, kPreemptAndAbort | kExclusiveAccess << 8, 11, 22);
  world.run();
  EXPECT_EQ(world.call(*a.io, sqe(nv::kv::kExist, 1))->status(), sc::kInvalidKeySize);
  EXPECT_FALSE(preempt->done);
  EXPECT_FALSE(working->done);
  store.hold = false;
  world.run();
  EXPECT_EQ(working->status(), sc::kSuccess);
  EXPECT_EQ(preempt->status(), sc::kSuccess);
}

// And two at once wait each for its own, others' new commands do not hold them up.
TEST(ReservationAbort, OfSeveral) {
  World world;
  Member a(world, 1, 0), b(world, 2, 1), c(world, 3, 1);
  for (Member* one : {&a, &b, &c}) ASSERT_EQ(one->enrol(7), sc::kSuccess);
  constexpr std::uint32_t kAll = 5;  // Write Exclusive - All Registrants
  ASSERT_EQ(a.acquire(kAll, 7), sc::kSuccess);
  FakeStore& store = hold(world);
  const CommandPtr first = begin_store(world, c);
  const auto abort = [&](Member& by) {
    return by.send(resv::kAcquire, kPreemptAndAbort | kAll << 8, 7, 0);
  };
  const CommandPtr one = abort(a);
  world.run();
  const CommandPtr own = a.send_store();
  world.run();
  const CommandPtr two = abort(a);
  world.run();
  EXPECT_FALSE(one->done || two->done);
  store.hold = false;
  world.run();
  EXPECT_EQ(first->status(), sc::kSuccess);
  EXPECT_EQ(own->status(), sc::kSuccess);
  EXPECT_EQ(one->status(), sc::kSuccess);
  EXPECT_EQ(two->status(), sc::kSuccess);
  EXPECT_EQ(b.store(), sc::kReservationConflict);
}

// The host that asked is gone meanwhile.
TEST(ReservationAbort, NobodyWaitsForItAnyLonger) {
  World world;
  Member a(world, 1, 0), b(world, 2, 1);
  ASSERT_EQ(a.enrol(11), sc::kSuccess);
  ASSERT_EQ(b.enrol(22), sc::kSuccess);
  FakeStore& store = hold(world);
  const CommandPtr working = begin_store(world, b);
  const CommandPtr preempt =
      a.send(resv::kAcquire, kPreemptAndAbort | kWriteExclusive << 8, 11, 22);
  world.run();
  a.io->disconnect();
  a.admin->disconnect();
  world.run();
  store.hold = false;
  world.run();
  EXPECT_EQ(working->status(), sc::kSuccess);
  EXPECT_FALSE(preempt->done);
  EXPECT_EQ(b.acquire(kWriteExclusive, 22), sc::kReservationConflict) << "preempted all the same";
}

// Preempt and Abort waits for both: the pool, and what is under way.
TEST(ReservationAbort, OneThatPersists) {
  World world;
  Member a(world, 1, 0), b(world, 2, 1);
  ASSERT_EQ(a.status(resv::kRegister, 3u << 30, 0, 11), sc::kSuccess);
  ASSERT_EQ(b.enrol(22), sc::kSuccess);
  ASSERT_EQ(b.acquire(kExclusiveAccess, 22), sc::kSuccess);
  FakeStore& store = hold(world);
  const CommandPtr working = begin_store(world, b);
  const CommandPtr preempt =
      a.send(resv::kAcquire, kPreemptAndAbort | kExclusiveAccess << 8, 11, 22);
  world.run();
  EXPECT_FALSE(preempt->done);
  EXPECT_EQ(world.pool.kept[1].registrants.size(), 1u);
  store.hold = false;
  world.run();
  EXPECT_EQ(working->status(), sc::kSuccess);
  EXPECT_EQ(preempt->status(), sc::kSuccess);
  EXPECT_EQ(b.notification().type, 1) << "registration preempted";
}

}  // namespace
}  // namespace furrow::test
