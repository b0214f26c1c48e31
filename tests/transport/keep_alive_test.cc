// Establishes that a silent host's controller ends after its keep-alive time-out and not before,
// that any traffic on any queue counts, and that a reactor that was held up itself does not blame
// the host. How: the fake executor's clock is moved by the test.
#include <gtest/gtest.h>

#include "fake_host.h"

namespace furrow::test {
namespace {

TEST(KeepAlive, ASilentHostIsCutWithAllItsQueues) {
  World world;
  FakeConnection& admin = world.admin();  // KATO 5000 ms
  FakeConnection& io = world.io(world.last_cntlid);
  for (int i = 0; i < 3; ++i) world.advance_ms(1250);
  EXPECT_TRUE(world.alive(admin));
  for (int i = 0; i < 2; ++i) world.advance_ms(1250);
  EXPECT_FALSE(world.alive(admin));
  EXPECT_FALSE(world.alive(io));
  EXPECT_EQ(world.subsystem->stats().keep_alive_expired, 1u);
  EXPECT_EQ(world.subsystem->stats().controllers, 0u);
}

TEST(KeepAlive, TheCommandKeepsItAlive) {
  World world;
  FakeConnection& admin = world.admin();
  for (int i = 0; i < 20; ++i) {
    world.advance_ms(2500);
    ASSERT_TRUE(world.alive(admin));
    EXPECT_EQ(world.call(admin, sqe(nv::admin::kKeepAlive))->status(), sc::kSuccess);
  }
}

TEST(KeepAlive, TrafficOnAnIoQueueOfAnotherReactorCounts) {
  World world;
  FakeConnection& admin = world.admin();
  FakeConnection& io = world.io(world.last_cntlid);
  nv::Sqe exist = sqe(nv::kv::kExist, 1);
  exist.cdw11 = 1;
  for (int i = 0; i < 20; ++i) {
    world.advance_ms(1250);
    world.advance_ms(1250);
    ASSERT_TRUE(world.alive(admin));
    world.call(io, exist);
  }
  EXPECT_EQ(world.subsystem->stats().keep_alive_expired, 0u);
}

TEST(KeepAlive, AReactorThatWasHeldUpDoesNotBlameTheHost) {
  World world;
  FakeConnection& admin = world.admin();
  world.advance_ms(60'000);  // one late tick, not four
  ASSERT_TRUE(world.alive(admin));
  EXPECT_EQ(world.call(admin, sqe(nv::admin::kKeepAlive))->status(), sc::kSuccess);
}

TEST(KeepAlive, ZeroTurnsItOffForAHostThatHasIoQueues) {
  World world;
  ConnectOptions options;
  options.kato_ms = 0;
  FakeConnection& admin = world.admin(options);
  FakeConnection& io = world.io(world.last_cntlid);
  for (int i = 0; i < 100; ++i) world.advance_ms(10'000);
  EXPECT_TRUE(world.alive(admin));
  EXPECT_TRUE(world.alive(io));
  io.disconnect();  // from now on it is idle
  for (int i = 0; i < 20; ++i) world.advance_ms(10'000);
  EXPECT_FALSE(world.alive(admin));
}

// Without I/O queues an association serves nothing but holds a controller.
TEST(KeepAlive, ZeroWithoutIoQueuesEndsAfterTheIdleTime) {
  World world;
  ConnectOptions options;
  options.kato_ms = 0;
  FakeConnection& idle = world.admin(options);
  FakeConnection& busy = world.admin(options);
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(world.alive(idle)) << i;
    world.advance_ms(30'000);
    if (i < 4) world.call(busy, sqe(nv::admin::kKeepAlive));
  }
  EXPECT_FALSE(world.alive(idle));
  EXPECT_TRUE(world.alive(busy));
  EXPECT_EQ(world.subsystem->stats().idle_expired, 1u);
  EXPECT_EQ(world.subsystem->stats().keep_alive_expired, 0u);
}

TEST(KeepAlive, TheIdleTimeCanBeSwitchedOff) {
  transport::SubsystemOptions subsystem = World::small_buffers();
  subsystem.idle_ms = 0;
  World world(subsystem);
  ConnectOptions options;
  options.kato_ms = 0;
  FakeConnection& admin = world.admin(options);
  for (int i = 0; i < 100; ++i) world.advance_ms(10'000);
  EXPECT_TRUE(world.alive(admin));
}

TEST(KeepAlive, IsAFeatureInWholeSeconds) {
  World world;
  ConnectOptions options;
  options.kato_ms = 0;
  FakeConnection& admin = world.admin(options);
  EXPECT_EQ(world.get_feature(admin, nv::fid::kKeepAlive)->cqe.dw0, 0u);
  EXPECT_EQ(world.set_feature(admin, nv::fid::kKeepAlive, 1500)->status(), sc::kSuccess);
  EXPECT_EQ(world.get_feature(admin, nv::fid::kKeepAlive)->cqe.dw0, 2000u);
  EXPECT_EQ(world.set_feature(admin, nv::fid::kKeepAlive, 0xFFFFFFFF)->status(),
            sc::kKeepAliveInvalid);
  for (int i = 0; i < 8; ++i) world.advance_ms(250);  // ends with the last command's own tick
  EXPECT_TRUE(world.alive(admin));
  for (int i = 0; i < 4; ++i) world.advance_ms(250);
  EXPECT_FALSE(world.alive(admin));
}

TEST(KeepAlive, AConnectTooLongForTheTimerIsRefused) {
  World world;
  ConnectOptions options;
  options.kato_ms = 0xFFFFFFFF;
  const auto refused = world.connect(world.open(), options);
  EXPECT_EQ(refused->status(), sc::kConnectInvalidParameters);
  EXPECT_EQ(refused->cqe.dw0, 48u);
}

TEST(KeepAlive, OperationsInFlightEndBeforeTheControllerIsForgotten) {
  World world;
  world.admin();
  FakeConnection& io = world.io(world.last_cntlid);
  world.pool.store(1).hold = true;
  nv::Sqe exist = sqe(nv::kv::kExist, 1);
  exist.cdw11 = 1;
  world.call(io, exist);
  for (int i = 0; i < 6; ++i) world.advance_ms(1250);
  EXPECT_EQ(world.subsystem->stats().keep_alive_expired, 1u);
  EXPECT_EQ(world.subsystem->stats().controllers, 1u);
  world.pool.store(1).hold = false;
  world.run();
  EXPECT_EQ(world.subsystem->stats().controllers, 0u);
}

}  // namespace
}  // namespace furrow::test
