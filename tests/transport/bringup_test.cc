// Establishes that a controller comes up and works as the Linux host drives it: Connect,
// properties, the order of Identify, logs and features, I/O queues on another reactor, and every
// way in which Connect is refused. (How it goes down again: shutdown_test.) How: a host without a
// wire (fake_host.h) sends the commands and checks each answer.
#include <gtest/gtest.h>

#include "fake_host.h"

namespace furrow::test {
namespace {

TEST(BringUp, AsTheLinuxHostDoesIt) {
  World world;
  FakeConnection& admin = world.open(0);
  const auto connected = world.connect(admin, {});
  ASSERT_EQ(connected->status(), sc::kSuccess);
  const auto cntlid = static_cast<std::uint16_t>(connected->cqe.dw0);
  EXPECT_NE(cntlid, 0);
  EXPECT_EQ(connected->cqe.dw0 >> 16, 0u) << "no authentication is asked for";
  EXPECT_EQ(admin.entries, 32u);
  EXPECT_TRUE(admin.flow_control_disabled);

  const std::uint64_t cap = world.property(admin, nv::property::kCap);
  EXPECT_EQ(cap & 0xffff, 1023u) << "MQES";
  EXPECT_EQ(cap >> 16 & 1, 1u) << "CQR";
  EXPECT_GE(cap >> 24 & 0xff, 20u) << "TO covers the quiesce time-out";
  EXPECT_EQ(cap >> 37 & 0xff, 0x41u) << "CSS: bit 6, and NVM";
  EXPECT_EQ(cap >> 48 & 0xff, 0u) << "MPSMIN, MPSMAX";
  EXPECT_EQ(cap >> 59 & 3, 1u) << "CRMS";
  EXPECT_EQ(world.set_cc(admin, World::kCcOn & ~1u)->status(), sc::kSuccess);
  EXPECT_EQ(world.property(admin, nv::property::kCrto), cap >> 24 & 0xff);
  EXPECT_EQ(world.property(admin, nv::property::kCsts), 0u);
  ASSERT_EQ(world.set_cc(admin, World::kCcOn)->status(), sc::kSuccess);
  EXPECT_EQ(world.property(admin, nv::property::kCsts), nv::kCstsReady);
  EXPECT_EQ(world.property(admin, nv::property::kCc), World::kCcOn);
  EXPECT_EQ(world.property(admin, nv::property::kVs), 0x00020000u);

  const auto identify = world.identify(admin, 0x01);
  ASSERT_EQ(identify->status(), sc::kSuccess);
  EXPECT_EQ(read<std::uint16_t>(identify->in, 78), cntlid);
  EXPECT_EQ(world.log(admin, nv::lid::kEffects, 4096)->status(), sc::kSuccess);
  EXPECT_EQ(world.identify(admin, 0x06, 0, 0)->status(), sc::kSuccess);

  nv::Sqe behavior = sqe(nv::admin::kSetFeatures);
  behavior.cdw10 = nv::fid::kHostBehavior;
  Bytes acre(512);
  acre[0] = std::byte{1};
  EXPECT_EQ(world.call(admin, behavior, acre, 512)->status(), sc::kSuccess);
  EXPECT_EQ(world.call(admin, sqe(nv::admin::kKeepAlive))->status(), sc::kSuccess);
  const auto queues = world.set_feature(admin, nv::fid::kQueues, 3u << 16 | 3u);
  ASSERT_EQ(queues->status(), sc::kSuccess);
  EXPECT_EQ(queues->cqe.dw0, 3u << 16 | 3u);
  for (std::uint16_t qid = 1; qid <= 4; ++qid) world.io(cntlid, qid, qid % 2);
  EXPECT_EQ(world.set_feature(admin, nv::fid::kAsyncEvent, 1u << 8)->status(), sc::kSuccess);
  const auto event = world.call(admin, sqe(nv::admin::kAsyncEvent));
  EXPECT_FALSE(event->done);

  const auto active = world.identify(admin, 0x02);
  ASSERT_EQ(active->status(), sc::kSuccess);
  EXPECT_EQ(read<std::uint32_t>(active->in, 0), 1u);
  EXPECT_EQ(read<std::uint32_t>(active->in, 4), 0u);
  EXPECT_EQ(world.identify(admin, 0x03, 1)->status(), sc::kSuccess);
  EXPECT_EQ(world.identify(admin, 0x08, 1)->status(), sc::kSuccess);
  EXPECT_EQ(world.identify(admin, 0x05, 1, 1)->status(), sc::kSuccess);
  EXPECT_EQ(world.log(admin, nv::lid::kEffects, 4096, 0, 1)->status(), sc::kSuccess);
}

// Connect.

constexpr std::uint32_t kInData = 1u << 16;

void expect_invalid_parameter(const CommandPtr& connect, std::uint32_t where) {
  EXPECT_EQ(connect->status(), sc::kConnectInvalidParameters);
  EXPECT_EQ(connect->cqe.dw0, where);
}

TEST(Connect, WrongSubsystemNqnTellsWhereTheMistakeIs) {
  World world;
  ConnectOptions options;
  options.subnqn = "nqn.2026-11.io.furrow:other";
  const auto refused = world.connect(world.open(), options);
  expect_invalid_parameter(refused, kInData | 256);
  EXPECT_TRUE(refused->cqe.dnr());
  EXPECT_EQ(world.subsystem->stats().connects_refused, 1u);
}

TEST(Connect, OnlyAllowedHostsComeIn) {
  transport::SubsystemOptions subsystem = World::small_buffers();
  subsystem.allowed_hosts = {"nqn.2014-08.org.example:friend"};
  World world(subsystem);
  const auto refused = world.connect(world.open(), {});
  EXPECT_EQ(refused->status(), sc::kConnectInvalidHost);
  EXPECT_TRUE(refused->cqe.dnr());
  ConnectOptions options;
  options.hostnqn = "nqn.2014-08.org.example:friend";
  EXPECT_EQ(world.connect(world.open(), options)->status(), sc::kSuccess);
}

TEST(Connect, RefusesBadParameters) {
  World world;
  ConnectOptions options;
  options.recfmt = 1;
  EXPECT_EQ(world.connect(world.open(), options)->status(), sc::kIncompatibleFormat);
  options = {};
  options.cntlid = 1;  // the static controller model
  expect_invalid_parameter(world.connect(world.open(), options), kInData | 16);
  options = {};
  options.hostnqn = "";
  expect_invalid_parameter(world.connect(world.open(), options), kInData | 512);
  options.hostnqn = "foo";  // no NQN
  expect_invalid_parameter(world.connect(world.open(), options), kInData | 512);
  options.hostnqn = std::string(256, 'x');  // not terminated
  expect_invalid_parameter(world.connect(world.open(), options), kInData | 512);
  options = {};
  options.subnqn = std::string(256, 'x');
  expect_invalid_parameter(world.connect(world.open(), options), kInData | 256);
  options = {};
  options.sqsize = 0;
  expect_invalid_parameter(world.connect(world.open(), options), 44);
  options.sqsize = 1024;
  expect_invalid_parameter(world.connect(world.open(), options), 44);
}

TEST(Connect, NeedsAllOfItsData) {
  World world;
  nv::Sqe command = fabrics(nv::fabrics::kConnect);
  command.sgl_type = nv::kSglInCapsule;
  command.cdw11 = 31;
  EXPECT_EQ(world.call(world.open(), command, Bytes(1000), 1000, true)->status(),
            sc::kDataSglLengthInvalid);
  EXPECT_EQ(world.call(world.open(), command, Bytes(1000), 1u << 20, true)->status(),
            sc::kInvalidField);
  command.sgl_address = 8;
  EXPECT_EQ(world.call(world.open(), command, Bytes(1024), 1024, true)->status(),
            sc::kSglOffsetInvalid);
}

TEST(Connect, LostDataIsTransientAndMayBeTriedAgain) {
  World world;
  FakeConnection& admin = world.open();
  admin.pull_status = Status(Code::corrupt, Origin::transport, "data digest");
  const auto failed = world.connect(admin, {});
  EXPECT_EQ(failed->status(), sc::kTransientTransportError);
  EXPECT_FALSE(failed->cqe.dnr());
  EXPECT_EQ(world.connect(admin, {})->status(), sc::kSuccess) << "on the same connection";
}

TEST(Connect, IsTheFirstCommandOfAQueueAndNeverTwice) {
  World world;
  FakeConnection& early = world.open();
  EXPECT_EQ(early.send(sqe(nv::admin::kIdentify), {}, 4096, false)->status(),
            sc::kCommandSequenceError);
  EXPECT_TRUE(early.close_asked);
  world.run();
  FakeConnection& admin = world.admin();
  EXPECT_EQ(world.connect(admin, {})->status(), sc::kCommandSequenceError);
  FakeConnection& io = world.io(world.last_cntlid);
  EXPECT_EQ(world.connect(io, {})->status(), sc::kCommandSequenceError);
}

TEST(Connect, IoQueuesJoinTheirOwnHostsController) {
  World world;
  world.admin();
  const std::uint16_t cntlid = world.last_cntlid;
  ConnectOptions options;
  options.qid = 1;
  options.cntlid = static_cast<std::uint16_t>(cntlid + 1);
  const auto unknown = world.connect(world.open(1), options);
  expect_invalid_parameter(unknown, kInData | 16);
  EXPECT_FALSE(unknown->cqe.dnr()) << "its controller may just have ended: the host starts over";
  options.cntlid = cntlid;
  options.hostnqn = "nqn.2014-08.org.example:other";
  expect_invalid_parameter(world.connect(world.open(1), options), kInData | 512);
  options = {};
  options.qid = 1;
  options.cntlid = cntlid;
  options.subnqn = std::string(nv::kDiscoveryNqn);  // the controller is none of that subsystem
  expect_invalid_parameter(world.connect(world.open(1), options), kInData | 16);
  options.subnqn = ConnectOptions().subnqn;
  options.hostid = 8;
  expect_invalid_parameter(world.connect(world.open(1), options), kInData | 0);
  options.hostid = 7;
  options.qid = 65;  // 64 were granted
  expect_invalid_parameter(world.connect(world.open(1), options), 42);
  options.qid = 64;
  const auto joined = world.connect(world.open(1), options);
  EXPECT_EQ(joined->status(), sc::kSuccess);
  EXPECT_EQ(joined->cqe.dw0, cntlid);
}

TEST(Connect, AQueueIdInUseIsRetryable) {
  World world;
  world.admin();
  FakeConnection& first = world.io(world.last_cntlid, 1);
  ConnectOptions options;
  options.qid = 1;
  options.cntlid = world.last_cntlid;
  const auto busy = world.connect(world.open(0), options);
  EXPECT_EQ(busy->status(), sc::kControllerBusy);
  EXPECT_FALSE(busy->cqe.dnr());
  first.disconnect();
  world.run();
  EXPECT_EQ(world.connect(world.open(0), options)->status(), sc::kSuccess);
}

TEST(Connect, IoQueueBeforeTheControllerIsReady) {
  World world;
  FakeConnection& admin = world.open();
  ConnectOptions options;
  options.cntlid = static_cast<std::uint16_t>(world.connect(admin, {})->cqe.dw0);
  options.qid = 1;
  const auto early = world.connect(world.open(1), options);
  EXPECT_EQ(early->status(), sc::kCommandSequenceError);
  EXPECT_FALSE(early->cqe.dnr());
}

TEST(Connect, ControllersAreBoundedAndComeBack) {
  transport::SubsystemOptions subsystem = World::small_buffers();
  subsystem.controllers_max = subsystem.controllers_per_host_max = 2;
  World world(subsystem);
  FakeConnection& first = world.admin();
  world.admin();
  const auto busy = world.connect(world.open(), {});
  EXPECT_EQ(busy->status(), sc::kControllerBusy);
  EXPECT_FALSE(busy->cqe.dnr());
  first.disconnect();
  world.run();
  EXPECT_EQ(world.connect(world.open(), {})->status(), sc::kSuccess);
}

// FFF0h and above are no controllers': by some of them Connect asks for any.
TEST(Connect, IdentifiersOfControllersGoRound) {
  World world;
  std::uint32_t last = 0;
  for (;;) {
    FakeConnection& admin = world.open();
    const auto connected = world.connect(admin, {});
    ASSERT_EQ(connected->status(), sc::kSuccess);
    if (connected->cqe.dw0 <= last) break;
    last = connected->cqe.dw0;
    admin.disconnect();
    world.run();
  }
  EXPECT_EQ(last, 0xFFEFu);
}

TEST(Connect, IsRefusedWhileTheServerStops) {
  World world;
  world.subsystem->refuse_connects();
  const auto busy = world.connect(world.open(), {});
  EXPECT_EQ(busy->status(), sc::kControllerBusy);
  EXPECT_FALSE(busy->cqe.dnr());
}

// Properties, reset, shutdown.

TEST(Properties, RefusesWhatIsNotThere) {
  World world;
  FakeConnection& admin = world.admin();
  nv::Sqe get = fabrics(nv::fabrics::kPropertyGet);
  get.cdw11 = 0x30;  // AQA
  EXPECT_EQ(world.call(admin, get)->status(), sc::kInvalidField);
  get.cdw11 = nv::property::kCap;  // CAP has 8 bytes
  EXPECT_EQ(world.call(admin, get)->status(), sc::kInvalidField);
  get.cdw10 = 1;
  get.cdw11 = nv::property::kCsts;
  EXPECT_EQ(world.call(admin, get)->status(), sc::kInvalidField);
  nv::Sqe set = fabrics(nv::fabrics::kPropertySet);
  set.cdw11 = nv::property::kCsts;
  EXPECT_EQ(world.call(admin, set)->status(), sc::kInvalidField);
  EXPECT_EQ(world.call(admin, fabrics(0x33))->status(), sc::kInvalidOpcode);
  EXPECT_EQ(world.call(admin, fabrics(nv::fabrics::kAuthSend))->status(), sc::kInvalidOpcode);
}

TEST(Properties, EnablesOnlyWhatCapOffers) {
  World world;
  FakeConnection& admin = world.open();
  ASSERT_EQ(world.connect(admin, {})->status(), sc::kSuccess);
  const std::uint32_t bad[] = {World::kCcOn | 1u << nv::kCcMpsShift,
                               World::kCcOn | 1u << nv::kCcAmsShift, 1 | 1u << nv::kCcCssShift,
                               1 | nv::kCssAll << nv::kCcCssShift | 7u << nv::kCcIosqesShift,
                               1 | nv::kCssAll << nv::kCcCssShift | 5u << nv::kCcIocqesShift};
  for (const std::uint32_t cc : bad) {
    EXPECT_EQ(world.set_cc(admin, cc)->status(), sc::kInvalidField) << std::hex << cc;
    EXPECT_EQ(world.property(admin, nv::property::kCsts), 0u);
  }
  EXPECT_EQ(world.identify(admin, 0x01)->status(), sc::kCommandSequenceError);
  EXPECT_EQ(world.call(admin, sqe(nv::admin::kKeepAlive))->status(), sc::kSuccess);
}

TEST(Properties, KvNamespacesNeedTheirCommandSetEnabled) {
  World world;
  FakeConnection& admin = world.open();
  const auto cntlid = static_cast<std::uint16_t>(world.connect(admin, {})->cqe.dw0);
  ASSERT_EQ(world.set_cc(admin, 1 | nv::kCssNvm << nv::kCcCssShift)->status(), sc::kSuccess);
  EXPECT_EQ(read<std::uint32_t>(world.identify(admin, 0x02)->in, 0), 0u);
  FakeConnection& io = world.io(cntlid);
  nv::Sqe exist = sqe(nv::kv::kExist, 1);
  exist.cdw11 = 1;
  EXPECT_EQ(world.call(io, exist)->status(), sc::kInvalidNamespaceOrFormat);
}

TEST(TwoHosts, DoNotDisturbEachOther) {
  World world;
  ConnectOptions other;
  other.hostnqn = "nqn.2014-08.org.example:other";
  other.hostid = 9;
  FakeConnection& first = world.admin();
  const std::uint16_t first_id = world.last_cntlid;
  FakeConnection& second = world.admin(other, 1);
  const std::uint16_t second_id = world.last_cntlid;
  EXPECT_NE(first_id, second_id);
  for (std::uint16_t qid = 1; qid <= 3; ++qid) {
    world.io(first_id, qid, qid % 2);
    world.io(second_id, qid, (qid + 1) % 2, other);
  }
  first.disconnect();
  world.run();
  EXPECT_EQ(world.subsystem->stats().controllers, 1u);
  EXPECT_EQ(world.call(second, sqe(nv::admin::kKeepAlive))->status(), sc::kSuccess);
  EXPECT_EQ(world.property(second, nv::property::kCsts), nv::kCstsReady);
}

TEST(SubsystemOptions, ImpossibleOnesAreRefusedWithAHint) {
  FakePool pool;
  std::uint64_t clock_ns = 0;
  FakeExecutor executor(clock_ns);
  const auto refused = [&](auto change) {
    transport::SubsystemOptions options;
    change(options);
    const auto made = transport::Subsystem::create(pool, executor, options);
    EXPECT_FALSE(made.ok());
    EXPECT_EQ(made.status().code(), Code::invalid_argument);
    EXPECT_STRNE(made.status().hint(), "");
  };
  refused([](auto& options) { options.nqn = "pages"; });
  refused([](auto& options) { options.nqn = "nqn." + std::string(220, 'x'); });
  refused([](auto& options) { options.nqn = nv::kDiscoveryNqn; });
  refused([](auto& options) { options.allowed_hosts = {"somebody"}; });
  refused([](auto& options) { options.transfer_bytes_max = 5000; });
  refused([](auto& options) { options.in_capsule_bytes = 100; });
  refused([](auto& options) { options.io_queue_entries_max = 8; });
  refused([](auto& options) { options.io_queues_max = 0; });
  refused([](auto& options) { options.controllers_max = 0; });
}

// What hosts may have of the subsystem.

TEST(Bounds, ControllersOfOneHost) {
  transport::SubsystemOptions subsystem = World::small_buffers();
  subsystem.controllers_per_host_max = 2;
  World world(subsystem);
  FakeConnection& first = world.admin();
  world.admin();
  const auto refused = world.connect(world.open(), {});
  EXPECT_EQ(refused->status(), sc::kControllerBusy);
  EXPECT_FALSE(refused->cqe.dnr()) << "it may try again";
  EXPECT_EQ(world.subsystem->stats().hosts_refused, 1u);
  ConnectOptions another;
  another.hostnqn = "nqn.2026-11.test:another";
  world.admin(another);
  first.disconnect();
  world.run();
  world.admin();
}

TEST(Bounds, EntriesOfAllQueues) {
  transport::SubsystemOptions subsystem = World::small_buffers();
  subsystem.io_queue_entries_max = 128;
  subsystem.queue_entries_total_max = 32 + 128 + 32;
  World world(subsystem);
  FakeConnection& admin = world.admin();             // 32
  FakeConnection& io = world.io(world.last_cntlid);  // 128
  ConnectOptions options;
  options.cntlid = world.last_cntlid;
  options.qid = 2;
  options.sqsize = 32;  // 33 entries
  const auto refused = world.connect(world.open(), options);
  EXPECT_EQ(refused->status(), sc::kControllerBusy);
  EXPECT_EQ(world.subsystem->stats().full_refused, 1u);
  options.sqsize = 31;
  EXPECT_EQ(world.connect(world.open(), options)->status(), sc::kSuccess);
  io.disconnect();
  world.run();
  world.io(world.last_cntlid, 3);
  EXPECT_TRUE(world.alive(admin));
}

TEST(Bounds, EntriesOfAnAdminQueue) {
  World world;
  ConnectOptions options;
  options.sqsize = nv::kAdminEntriesMax;
  const auto refused = world.connect(world.open(), options);
  EXPECT_EQ(refused->status(), sc::kConnectInvalidParameters);
  EXPECT_EQ(refused->cqe.dw0, 44u);
  options.sqsize = nv::kAdminEntriesMax - 1;
  EXPECT_EQ(world.connect(world.open(), options)->status(), sc::kSuccess);
}

TEST(Bounds, ImpossibleOnesAreRefused) {
  FakePool pool;
  std::uint64_t clock_ns = 0;
  FakeExecutor executor(clock_ns);
  transport::SubsystemOptions options = World::small_buffers();
  for (const std::uint32_t beyond : {0u, 257u, 65536u + 64u}) {  // there are 256 controllers
    options.controllers_per_host_max = beyond;
    EXPECT_EQ(transport::Subsystem::create(pool, executor, options).status().code(),
              Code::invalid_argument);
  }
  options.controllers_per_host_max = 256;
  EXPECT_TRUE(transport::Subsystem::create(pool, executor, options).ok());
  options = World::small_buffers();
  options.queue_entries_total_max = options.io_queue_entries_max - 1;
  EXPECT_EQ(transport::Subsystem::create(pool, executor, options).status().code(),
            Code::invalid_argument);
}

}  // namespace
}  // namespace furrow::test
