// Establishes which asynchronous events a host gets, and when, and what it sees of namespaces that
// come, go and get larger. How: a host without a wire, logs that are read whole, in pieces or not,
// volumes that come and go.
#include <gtest/gtest.h>

#include "fake_host.h"

namespace furrow::test {
namespace {

void add_volume(World& world, std::uint32_t nsid) {
  VolumeOptions options;
  options.name = "v" + std::to_string(nsid);
  options.nsid = nsid;
  ASSERT_TRUE(world.pool.create_volume(options).ok());
  world.subsystem->namespaces_changed();
  world.run();
}

constexpr std::uint32_t kNamespaceNotice = 2u | 0x04u << 16;

TEST(AsyncEvent, NamespaceChangesAreTold) {
  World world;
  FakeConnection& admin = world.admin();
  FakeConnection& deaf = world.admin({}, 1);  // never enabled the notice
  const auto unasked = world.call(deaf, sqe(nv::admin::kAsyncEvent));
  world.set_feature(admin, nv::fid::kAsyncEvent, 1u << 8);
  const auto first = world.call(admin, sqe(nv::admin::kAsyncEvent));
  const auto second = world.call(admin, sqe(nv::admin::kAsyncEvent));
  add_volume(world, 9);
  ASSERT_TRUE(first->done);
  EXPECT_EQ(first->cqe.dw0, kNamespaceNotice);
  add_volume(world, 4);
  EXPECT_FALSE(second->done) << "masked until the log was read";
  const Bytes retained = world.log(admin, nv::lid::kChangedNamespaces, 4096, 0, 0, true)->in;
  EXPECT_EQ(read<std::uint32_t>(retained, 0), 4u);
  EXPECT_EQ(read<std::uint32_t>(retained, 4), 9u);
  EXPECT_EQ(read<std::uint32_t>(retained, 8), 0u);
  nv::Sqe no_room = sqe(nv::admin::kGetLogPage, nv::kNsidAll);
  no_room.cdw10 = nv::lid::kChangedNamespaces | 1023u << 16;
  EXPECT_EQ(world.call(admin, no_room, {}, 4092)->status(), sc::kDataSglLengthInvalid);
  EXPECT_FALSE(second->done);
  EXPECT_EQ(world.log(admin, nv::lid::kChangedNamespaces, 4096)->in, retained)
      << "what failed has read nothing";
  EXPECT_EQ(world.log(admin, nv::lid::kChangedNamespaces, 4096)->in, Bytes(4096)) << "cleared";
  const auto third = world.call(admin, sqe(nv::admin::kAsyncEvent));
  EXPECT_FALSE(second->done || third->done) << "the log told of what came meanwhile, too";
  add_volume(world, 5);
  ASSERT_TRUE(second->done);
  EXPECT_EQ(second->cqe.dw0, kNamespaceNotice);
  EXPECT_FALSE(unasked->done);
  EXPECT_EQ(read<std::uint32_t>(world.log(deaf, nv::lid::kChangedNamespaces, 4096)->in, 0), 4u);
}

// What comes between two pieces of the log is not read with the second one.
TEST(AsyncEvent, ALogThatIsReadInPiecesLosesNoChange) {
  World world;
  FakeConnection& admin = world.admin();
  world.set_feature(admin, nv::fid::kAsyncEvent, 1u << 8);
  const auto first = world.call(admin, sqe(nv::admin::kAsyncEvent));
  const auto second = world.call(admin, sqe(nv::admin::kAsyncEvent));
  add_volume(world, 5);
  add_volume(world, 9);
  ASSERT_TRUE(first->done);
  EXPECT_EQ(
      read<std::uint32_t>(world.log(admin, nv::lid::kChangedNamespaces, 4, 0, 0, true)->in, 0), 5u);
  add_volume(world, 3);
  EXPECT_EQ(
      read<std::uint32_t>(world.log(admin, nv::lid::kChangedNamespaces, 4, 4, 0, true)->in, 0), 9u)
      << "the page is what it was";
  EXPECT_FALSE(second->done);
  EXPECT_EQ(world.log(admin, nv::lid::kChangedNamespaces, 4088, 8)->in, Bytes(4088));
  EXPECT_TRUE(second->done) << "there is more";
  EXPECT_EQ(second->cqe.dw0, kNamespaceNotice);
  const Bytes rest = world.log(admin, nv::lid::kChangedNamespaces, 4096)->in;
  EXPECT_EQ(read<std::uint32_t>(rest, 0), 3u);
  EXPECT_EQ(read<std::uint32_t>(rest, 4), 0u);
}

// Hosts hardly ask for it again, and would hear of nothing any more.
TEST(AsyncEvent, ALogThatThereWasNoMemoryForSilencesNoEvent) {
  World world;
  FakeConnection& admin = world.admin();
  world.set_feature(admin, nv::fid::kAsyncEvent, 1u << 8);
  const auto first = world.call(admin, sqe(nv::admin::kAsyncEvent));
  const auto second = world.call(admin, sqe(nv::admin::kAsyncEvent));
  add_volume(world, 9);
  ASSERT_TRUE(first->done);
  admin.hold_answers = true;  // until its share of the memory for data is used up
  while (world.log(admin, nv::lid::kError, 1u << 20)->status() == sc::kSuccess) {
  }
  const auto missed = world.log(admin, nv::lid::kChangedNamespaces, 4096);
  EXPECT_EQ(missed->status(), sc::kCommandInterrupted);
  EXPECT_FALSE(missed->cqe.dnr());
  EXPECT_FALSE(second->done) << "nothing has come since";
  admin.release_answers();
  world.run();
  add_volume(world, 4);
  ASSERT_TRUE(second->done);
  EXPECT_EQ(second->cqe.dw0, kNamespaceNotice);
  const Bytes log = world.log(admin, nv::lid::kChangedNamespaces, 4096)->in;
  EXPECT_EQ(read<std::uint32_t>(log, 0), 4u);
  EXPECT_EQ(read<std::uint32_t>(log, 4), 9u);
}

TEST(AsyncEvent, AnEventWaitsForARequest) {
  World world;
  FakeConnection& admin = world.admin();
  world.set_feature(admin, nv::fid::kAsyncEvent, 1u << 8);
  add_volume(world, 2);
  const auto late = world.call(admin, sqe(nv::admin::kAsyncEvent));
  ASSERT_TRUE(late->done);
  EXPECT_EQ(late->cqe.dw0, kNamespaceNotice);
}

// Also of one that waited for a request.
TEST(AsyncEvent, AHostIsNotToldOfWhatItDoesNotAskForAnyMore) {
  World world;
  FakeConnection& admin = world.admin();
  const auto is_told = [&](std::uint32_t asked) {
    world.set_feature(admin, nv::fid::kAsyncEvent, asked);
    const auto event = world.call(admin, sqe(nv::admin::kAsyncEvent));
    const bool told = event->done;
    world.set_cc(admin, World::kCcOn & ~1u);
    world.set_cc(admin, World::kCcOn);
    return told;
  };
  world.set_feature(admin, nv::fid::kAsyncEvent, 1u << 8);
  add_volume(world, 2);
  EXPECT_FALSE(is_told(0));
  world.pool.zones_bad = 19;  // spare low, and read only
  world.clock_ns += 2'000'000'000;
  world.run();
  world.set_feature(admin, nv::fid::kAsyncEvent, 1u);
  EXPECT_FALSE(is_told(1u << 2));
  world.set_feature(admin, nv::fid::kAsyncEvent, 1u | 1u << 3);
  EXPECT_TRUE(is_told(1u << 3));
}

TEST(AsyncEvent, AResetForgetsTheOneThatWaited) {
  World world;
  FakeConnection& admin = world.admin();
  world.set_feature(admin, nv::fid::kAsyncEvent, 1u << 8);
  add_volume(world, 2);
  world.set_cc(admin, World::kCcOn & ~1u);
  world.set_cc(admin, World::kCcOn);
  world.set_feature(admin, nv::fid::kAsyncEvent, 1u << 8);
  const auto event = world.call(admin, sqe(nv::admin::kAsyncEvent));
  EXPECT_FALSE(event->done);
  add_volume(world, 3);
  EXPECT_TRUE(event->done);
}

// Of what it asked for, once, until it has read the log; of what is so already when it asks, too.
TEST(AsyncEvent, AHostIsToldOfWhatTheHealthLogWarnsOf) {
  constexpr std::uint32_t kSpare = 1u | 2u << 8 | 2u << 16, kReliability = 1u | 2u << 16;
  World world;
  FakeConnection& admin = world.admin();
  FakeConnection& deaf = world.admin({}, 1);
  const auto unasked = world.call(deaf, sqe(nv::admin::kAsyncEvent));
  const auto pass = [&] {
    world.clock_ns += 2'000'000'000;
    world.run();
  };
  const auto read_log = [&] {
    return read<std::uint8_t>(world.log(admin, nv::lid::kSmart, 512)->in, 0);
  };
  world.set_feature(admin, nv::fid::kAsyncEvent, 1u | 1u << 2);
  const auto first = world.call(admin, sqe(nv::admin::kAsyncEvent));
  const auto second = world.call(admin, sqe(nv::admin::kAsyncEvent));
  world.pool.zones_bad = 18;  // of 20: read only, which it did not ask for
  pass();
  EXPECT_FALSE(first->done);
  world.pool.zones_bad = 19;
  pass();
  ASSERT_TRUE(first->done);
  EXPECT_EQ(first->cqe.dw0, kSpare);
  EXPECT_EQ(world.log(admin, nv::lid::kSmart, 512, 0, 0, true)->status(), sc::kSuccess);
  world.pool.flush_failed = true;
  pass();
  EXPECT_FALSE(second->done) << "masked until the log was read";
  EXPECT_EQ(read_log(), 1u | 4u | 8u);
  pass();
  EXPECT_FALSE(second->done) << "the log has told of both";
  world.pool.flush_failed = false;
  pass();
  EXPECT_FALSE(second->done) << "one that goes is none";
  world.pool.flush_failed = true;
  pass();
  ASSERT_TRUE(second->done);
  EXPECT_EQ(second->cqe.dw0, kReliability);
  EXPECT_EQ(read_log(), 1u | 4u | 8u);
  const auto third = world.call(admin, sqe(nv::admin::kAsyncEvent));
  world.set_feature(admin, nv::fid::kAsyncEvent, 1u | 1u << 2);
  EXPECT_FALSE(third->done) << "as it was set before";
  world.set_feature(admin, nv::fid::kAsyncEvent, 1u | 1u << 2 | 1u << 3);
  ASSERT_TRUE(third->done);
  EXPECT_EQ(third->cqe.dw0, kReliability);
  EXPECT_FALSE(unasked->done);
  world.set_cc(admin, World::kCcOn & ~1u);
  world.set_cc(admin, World::kCcOn);
  world.set_feature(admin, nv::fid::kAsyncEvent, 1u);
  const auto fourth = world.call(admin, sqe(nv::admin::kAsyncEvent));
  ASSERT_TRUE(fourth->done) << "a reset forgets what the host was told";
  EXPECT_EQ(fourth->cqe.dw0, kSpare);
}

TEST(AsyncEvent, RequestsAreLimited) {
  World world;
  FakeConnection& admin = world.admin();
  for (int i = 0; i < 4; ++i) {
    EXPECT_FALSE(world.call(admin, sqe(nv::admin::kAsyncEvent))->done);
  }
  EXPECT_EQ(world.call(admin, sqe(nv::admin::kAsyncEvent))->status(), sc::kAsyncEventLimit);
}

TEST(Namespaces, AWithdrawnOneIsIdleBeforeItIsDeleted) {
  World world;
  FakeConnection& admin = world.admin();
  FakeConnection& io = world.io(world.last_cntlid);
  world.set_feature(admin, nv::fid::kAsyncEvent, 1u << 8);
  const auto event = world.call(admin, sqe(nv::admin::kAsyncEvent));
  nv::Sqe exist = sqe(nv::kv::kExist, 1);
  exist.cdw11 = 1;
  world.pool.store(1).hold = true;
  const auto slow = world.call(io, exist);
  bool idle = false;
  world.subsystem->withdraw_namespace(1, [&] { idle = true; });
  world.run();
  EXPECT_FALSE(idle);
  EXPECT_TRUE(event->done);
  EXPECT_EQ(world.call(io, exist)->status(), sc::kInvalidNamespaceOrFormat);
  EXPECT_EQ(read<std::uint32_t>(world.identify(admin, 0x02)->in, 0), 0u);
  world.pool.store(1).hold = false;
  world.run();
  EXPECT_TRUE(idle);
  EXPECT_EQ(slow->status(), sc::kKeyNotFound);
  EXPECT_TRUE(world.pool.delete_volume("pages").ok());
}

// A command that was begun before goes on, and what a host has set stays.
TEST(Namespaces, AResizedOneIsTheSameToItsHosts) {
  World world;
  FakeConnection& admin = world.admin();
  FakeConnection& io = world.io(world.last_cntlid);
  EXPECT_EQ(world.set_feature(admin, nv::fid::kKvConfig, 1, 1)->status(), sc::kSuccess);
  world.set_feature(admin, nv::fid::kAsyncEvent, 1u << 8);
  const auto event = world.call(admin, sqe(nv::admin::kAsyncEvent));
  nv::Sqe exist = sqe(nv::kv::kExist, 1);
  exist.cdw11 = 1;
  world.pool.store(1).hold = true;
  const auto slow = world.call(io, exist);
  world.subsystem->namespaces_changed();
  world.run();
  EXPECT_FALSE(event->done) << "nothing has changed";
  ASSERT_TRUE(
      world.pool.resize_volume("pages", {.quota_bytes = 9 * FakePool::kZoneBytes}).status.ok());
  world.subsystem->namespaces_changed();
  world.run();
  ASSERT_TRUE(event->done);
  EXPECT_EQ(event->cqe.dw0, kNamespaceNotice);
  EXPECT_EQ(read<std::uint32_t>(world.log(admin, nv::lid::kChangedNamespaces, 4096)->in, 0), 1u);
  EXPECT_EQ(read<std::uint64_t>(world.identify(admin, 0x05, 1, nv::csi::kKv)->in, 0),
            9 * FakePool::kZoneBytes)
      << "NSZE";
  EXPECT_EQ(world.get_feature(admin, nv::fid::kKvConfig, 1)->cqe.dw0, 1u);
  EXPECT_FALSE(slow->done);
  bool idle = false;
  world.subsystem->withdraw_namespace(1, [&] { idle = true; });
  world.run();
  EXPECT_FALSE(idle) << "a command of before the resize uses it";
  world.pool.store(1).hold = false;
  world.run();
  EXPECT_EQ(slow->status(), sc::kKeyNotFound);
  EXPECT_TRUE(idle);
}

}  // namespace
}  // namespace furrow::test
