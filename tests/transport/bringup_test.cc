// Establishes that a controller comes up, works and goes down as the Linux host drives it: Connect,
// properties, the order of Identify, logs and features, I/O queues on another reactor, reset and
// shutdown that wait for the I/O queues, and every way in which Connect is refused. How: a host
// without a wire (fake_host.h) sends the commands and checks each answer.
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
  EXPECT_EQ(cap >> 37 & 0xff, 0x40u) << "CSS: bit 6 alone";
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

}  // namespace
}  // namespace furrow::test
