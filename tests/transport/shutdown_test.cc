// Establishes that a controller goes down as the Linux host drives it: reset and shutdown that wait
// for the I/O queues and for what these have stored, and the end of connections. How: a host
// without a wire (fake_host.h) sends the commands and checks each answer.
#include <gtest/gtest.h>

#include "fake_host.h"

namespace furrow::test {
namespace {

// Puts one operation in flight that the pool holds, on an I/O queue of the other reactor.
CommandPtr hold_a_store(World& world, FakeConnection& io) {
  world.pool.store(1).hold = true;
  nv::Sqe store = sqe(nv::kv::kStore, 1);
  store.cdw10 = 4;
  store.cdw11 = 1;
  store.cdw2 = 'k';
  return world.call(io, store, bytes_of("page"), 4);
}

TEST(Reset, RdyFallsOnlyWhenTheIoQueuesAreGone) {
  World world;
  FakeConnection& admin = world.admin();
  FakeConnection& io = world.io(world.last_cntlid);
  hold_a_store(world, io);
  EXPECT_EQ(io.in_flight(), 1u);
  EXPECT_EQ(world.set_cc(admin, World::kCcOn & ~1u)->status(), sc::kSuccess);
  EXPECT_TRUE(io.close_asked);
  EXPECT_EQ(world.property(admin, nv::property::kCsts), nv::kCstsReady);
  EXPECT_EQ(world.set_cc(admin, World::kCcOn)->status(), sc::kCommandSequenceError);
  world.pool.store(1).hold = false;
  world.run();
  EXPECT_FALSE(world.alive(io));
  EXPECT_EQ(world.property(admin, nv::property::kCsts), 0u);
  // And up again.
  EXPECT_EQ(world.set_cc(admin, World::kCcOn)->status(), sc::kSuccess);
  EXPECT_EQ(world.property(admin, nv::property::kCsts), nv::kCstsReady);
  world.io(world.last_cntlid);
}

TEST(Reset, NoIoQueueJoinsAfterwards) {
  for (const bool reset : {true, false}) {
    World world;
    FakeConnection& admin = world.admin();
    ConnectOptions options;
    options.cntlid = world.last_cntlid;
    options.qid = 1;
    world.set_cc(admin, reset ? World::kCcOn & ~1u : World::kCcOn | 1u << nv::kCcShnShift);
    const auto refused = world.connect(world.open(1), options);
    EXPECT_EQ(refused->status(), sc::kCommandSequenceError) << reset;
    EXPECT_FALSE(refused->cqe.dnr());
  }
}

TEST(Reset, TakesFeaturesAndEventRequestsBack) {
  World world;
  FakeConnection& admin = world.admin();
  const auto event = world.call(admin, sqe(nv::admin::kAsyncEvent));
  world.set_feature(admin, nv::fid::kVolatileWriteCache, 0);
  world.set_cc(admin, World::kCcOn & ~1u);
  EXPECT_EQ(event->status(), sc::kAbortedSqDeletion);
  world.set_cc(admin, World::kCcOn);
  EXPECT_EQ(world.get_feature(admin, nv::fid::kVolatileWriteCache)->cqe.dw0, 1u);
}

TEST(Shutdown, ShstSaysCompleteOnlyWhenTheIoQueuesAreGone) {
  World world;
  FakeConnection& admin = world.admin();
  FakeConnection& io = world.io(world.last_cntlid);
  hold_a_store(world, io);
  world.set_cc(admin, World::kCcOn | 1u << nv::kCcShnShift);
  EXPECT_EQ(world.property(admin, nv::property::kCsts), nv::kCstsReady | 1u << nv::kCstsShstShift);
  world.pool.store(1).hold = false;
  world.run();
  EXPECT_EQ(world.property(admin, nv::property::kCsts), nv::kCstsReady | 2u << nv::kCstsShstShift);
  ConnectOptions options;
  options.cntlid = world.last_cntlid;
  options.qid = 1;
  EXPECT_EQ(world.connect(world.open(1), options)->status(), sc::kCommandSequenceError);
  // A controller that was shut down starts again after a reset.
  world.set_cc(admin, 0);
  EXPECT_EQ(world.property(admin, nv::property::kCsts), 0u);
  world.set_cc(admin, World::kCcOn);
  EXPECT_EQ(world.property(admin, nv::property::kCsts), nv::kCstsReady);
}

TEST(Shutdown, FlushesEveryNamespaceBeforeItSaysComplete) {
  World world;
  VolumeOptions second;
  second.name = "second";
  second.nsid = 2;
  ASSERT_TRUE(world.pool.create_volume(second).ok());
  world.subsystem->namespaces_changed();
  world.run();
  FakeConnection& admin = world.admin();
  world.pool.store(2).hold = true;
  world.set_cc(admin, World::kCcOn | nv::kShutdownNormal << nv::kCcShnShift);
  EXPECT_EQ(world.property(admin, nv::property::kCsts), nv::kCstsReady | 1u << nv::kCstsShstShift);
  EXPECT_EQ(world.pool.store(1).flushes, 1u);
  EXPECT_FALSE(world.reactors[0]->idle()) << "a target that stops waits for the flush";
  world.pool.store(2).hold = false;
  world.run();
  EXPECT_EQ(world.pool.store(2).flushes, 1u);
  EXPECT_EQ(world.property(admin, nv::property::kCsts), nv::kCstsReady | 2u << nv::kCstsShstShift);
}

TEST(Shutdown, AFailedFlushFailsTheController) {
  World world;
  FakeConnection& admin = world.admin();
  world.pool.store(1).next_failure = Status(Code::io_error, Origin::zone, "fake");
  world.set_cc(admin, World::kCcOn | nv::kShutdownNormal << nv::kCcShnShift);
  EXPECT_EQ(world.property(admin, nv::property::kCsts),
            nv::kCstsReady | nv::kCstsFatal | 1u << nv::kCstsShstShift);
}

TEST(Shutdown, AFlushThatDoesNotEndFailsTheController) {
  World world;
  FakeConnection& admin = world.admin();  // without I/O queues
  world.pool.store(1).hold = true;
  world.set_cc(admin, World::kCcOn | nv::kShutdownNormal << nv::kCcShnShift);
  for (int second = 0; second < 11; ++second) {
    world.advance_ms(1000);
    EXPECT_EQ(world.property(admin, nv::property::kCsts) & nv::kCstsFatal, 0u);
  }
  world.advance_ms(2000);
  EXPECT_EQ(world.property(admin, nv::property::kCsts) & nv::kCstsFatal, nv::kCstsFatal);
  world.pool.store(1).hold = false;
  world.run();
  EXPECT_EQ(world.property(admin, nv::property::kCsts) & nv::kCstsFatal, nv::kCstsFatal);
}

TEST(Shutdown, AnAbruptOneDoesNotFlush) {
  World world;
  FakeConnection& admin = world.admin();
  world.set_cc(admin, World::kCcOn | nv::kShutdownAbrupt << nv::kCcShnShift);
  EXPECT_EQ(world.property(admin, nv::property::kCsts), nv::kCstsReady | 2u << nv::kCstsShstShift);
  EXPECT_EQ(world.pool.store(1).flushes, 0u);
}

TEST(Shutdown, AFlushOutlivesItsHost) {
  World world;
  FakeConnection& admin = world.admin();
  world.pool.store(1).hold = true;
  world.set_cc(admin, World::kCcOn | nv::kShutdownNormal << nv::kCcShnShift);
  admin.disconnect();
  world.run();
  world.pool.store(1).hold = false;
  world.run();
  EXPECT_EQ(world.pool.store(1).flushes, 1u);
  EXPECT_EQ(world.subsystem->stats().controllers, 0u);
}

TEST(Shutdown, MayComeTogetherWithDisable) {
  World world;
  FakeConnection& admin = world.admin();
  world.io(world.last_cntlid);
  world.set_cc(admin, 1u << nv::kCcShnShift);
  EXPECT_EQ(world.property(admin, nv::property::kCsts), 2u << nv::kCstsShstShift);
}

// Who disables the controller before it has said that it is shut down is told so afterwards.
TEST(Shutdown, IsOrderlyAlsoWhenADisableComesBehindIt) {
  World world;
  FakeConnection& admin = world.admin();
  FakeConnection& io = world.io(world.last_cntlid);
  io.stuck = true;
  world.set_cc(admin, World::kCcOn | nv::kShutdownNormal << nv::kCcShnShift);
  world.set_cc(admin, 0);
  EXPECT_EQ(world.property(admin, nv::property::kCsts), nv::kCstsReady | 1u << nv::kCstsShstShift);
  io.stuck = false;
  world.run();
  EXPECT_EQ(world.property(admin, nv::property::kCsts), 2u << nv::kCstsShstShift);
  EXPECT_EQ(world.pool.store(1).flushes, 1u) << "the power may be gone now";
}

TEST(Shutdown, AQueueThatDoesNotGoFailsTheController) {
  World world;
  FakeConnection& admin = world.admin();
  FakeConnection& io = world.io(world.last_cntlid);
  io.stuck = true;
  world.set_cc(admin, World::kCcOn | 1u << nv::kCcShnShift);
  // The host polls CSTS meanwhile, which is traffic.
  for (int second = 0; second < 11; ++second) {
    world.advance_ms(1000);
    EXPECT_EQ(world.property(admin, nv::property::kCsts) & nv::kCstsFatal, 0u);
  }
  world.advance_ms(2000);
  EXPECT_EQ(world.property(admin, nv::property::kCsts) & nv::kCstsFatal, nv::kCstsFatal);
}

TEST(Teardown, LosingTheAdminQueueEndsTheIoQueues) {
  World world;
  FakeConnection& admin = world.admin();
  FakeConnection& io = world.io(world.last_cntlid, 1, 1);
  FakeConnection& io2 = world.io(world.last_cntlid, 2, 0);
  world.call(admin, sqe(nv::admin::kAsyncEvent));
  hold_a_store(world, io);
  admin.disconnect();
  world.run();
  EXPECT_TRUE(io.close_asked);
  EXPECT_FALSE(world.alive(io2));
  EXPECT_FALSE(world.alive(admin)) << "outstanding event requests must not hold it";
  EXPECT_EQ(world.subsystem->stats().controllers, 1u) << "until its last command is done";
  world.pool.store(1).hold = false;
  world.run();
  EXPECT_EQ(world.subsystem->stats().controllers, 0u);
}

TEST(Teardown, DisconnectEndsAnIoQueueOnly) {
  World world;
  FakeConnection& admin = world.admin();
  FakeConnection& io = world.io(world.last_cntlid);
  EXPECT_EQ(world.call(admin, fabrics(nv::fabrics::kDisconnect))->status(), sc::kInvalidQueueType);
  EXPECT_EQ(world.call(io, fabrics(nv::fabrics::kPropertyGet))->status(), sc::kInvalidField);
  const auto gone = world.call(io, fabrics(nv::fabrics::kDisconnect));
  EXPECT_EQ(gone->status(), sc::kSuccess);
  EXPECT_FALSE(world.alive(io));
  world.io(world.last_cntlid);  // its id is free again
  EXPECT_EQ(world.call(admin, sqe(nv::admin::kKeepAlive))->status(), sc::kSuccess);
}

}  // namespace
}  // namespace furrow::test
