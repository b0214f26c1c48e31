// Establishes the discovery subsystem: who may connect, what its controller says of itself, the
// discovery log page with partial reads and a changing generation, its event, and its keep alive.
// How: a host without a wire reads the raw bytes.
#include <gtest/gtest.h>

#include "fake_host.h"

namespace furrow::test {
namespace {

ConnectOptions discovery_options() {
  ConnectOptions options;
  options.subnqn = std::string(nv::kDiscoveryNqn);
  options.kato_ms = 0;
  return options;
}

FakeConnection& discovery(World& world, ConnectOptions options = discovery_options()) {
  FakeConnection& connection = world.open(1);
  const auto connected = world.connect(connection, options);
  EXPECT_EQ(connected->status(), sc::kSuccess);
  world.last_cntlid = static_cast<std::uint16_t>(connected->cqe.dw0);
  // CC.CSS as the Linux host sets it here: 000b.
  EXPECT_EQ(world.set_cc(connection, 1 | 6u << 16 | 4u << 20)->status(), sc::kSuccess);
  return connection;
}

std::string padded(const std::string& text, std::size_t length) {
  return text + std::string(length - text.size(), ' ');
}

TEST(Discovery, ItsController) {
  World world;
  FakeConnection& admin = discovery(world);
  EXPECT_EQ(world.property(admin, nv::property::kCap) >> 37 & 0xff, 0x80u) << "no I/O sets";
  EXPECT_EQ(world.property(admin, nv::property::kCsts), nv::kCstsReady);
  const Bytes page = world.identify(admin, 0x01)->in;
  ASSERT_EQ(page.size(), 4096u);
  EXPECT_EQ(read<std::uint16_t>(page, 78), world.last_cntlid);
  EXPECT_EQ(read<std::uint32_t>(page, 92), 1u << 31) << "OAES";
  EXPECT_EQ(read<std::uint8_t>(page, 111), 2u) << "CNTRLTYPE";
  EXPECT_EQ(read<std::uint16_t>(page, 320), 10u) << "KAS";
  EXPECT_EQ(read<std::uint32_t>(page, 516), 0u) << "NN";
  EXPECT_NE(read<std::uint32_t>(page, 536) & 3, 0u) << "SGLS";
  EXPECT_EQ(std::memcmp(page.data() + 768, nv::kDiscoveryNqn.data(), nv::kDiscoveryNqn.size() + 1),
            0);
  EXPECT_EQ(world.identify(admin, 0x02)->status(), sc::kInvalidField);
  EXPECT_EQ(world.identify(admin, 0x1C)->status(), sc::kInvalidField);
  EXPECT_EQ(world.call(admin, sqe(nv::admin::kAbort))->status(), sc::kInvalidOpcode);
  EXPECT_EQ(world.call(admin, sqe(nv::admin::kKeepAlive))->status(), sc::kSuccess);
  EXPECT_EQ(world.set_feature(admin, nv::fid::kQueues, 0)->status(), sc::kInvalidField);
  EXPECT_EQ(world.log(admin, nv::lid::kSmart, 512)->status(), sc::kInvalidLogPage);
  const Bytes supported = world.log(admin, nv::lid::kSupported, 1024)->in;
  EXPECT_EQ(read<std::uint32_t>(supported, 0x70 * 4), 1u);
  EXPECT_EQ(read<std::uint32_t>(supported, 0x02 * 4), 0u);
}

// It has stored nothing, and may be anybody's.
TEST(Discovery, AShutdownFlushesNoVolume) {
  World world;
  FakeConnection& admin = discovery(world);
  const std::uint32_t normal = nv::kShutdownNormal << nv::kCcShnShift;
  EXPECT_EQ(world.set_cc(admin, 1 | 6u << 16 | 4u << 20 | normal)->status(), sc::kSuccess);
  EXPECT_EQ(world.property(admin, nv::property::kCsts), nv::kCstsReady | 2u << nv::kCstsShstShift);
  EXPECT_EQ(world.pool.store(1).flushes, 0u);
}

TEST(Discovery, HasNoIoQueuesAndIsNotListed) {
  World world;
  discovery(world);
  ConnectOptions io = discovery_options();
  io.cntlid = world.last_cntlid;
  io.qid = 1;
  EXPECT_EQ(world.connect(world.open(), io)->status(), sc::kConnectInvalidParameters);
  FakeConnection& admin = world.admin();
  EXPECT_EQ(read<std::uint16_t>(world.identify(admin, 0x13)->in, 0), 1u);
}

// "Any address" is none to connect to.
TEST(Discovery, AWildcardIsToldAsTheAddressThatTheHostReached) {
  World world;
  world.subsystem->add_port("0.0.0.0", 4420);
  world.subsystem->add_port("::", 4421);
  world.subsystem->add_port("127.0.0.2", 4422);
  FakeConnection& admin = discovery(world);
  const auto addresses = [&](const std::string& local) {
    admin.local = local;
    const Bytes log = world.log(admin, nv::lid::kDiscovery, 4096)->in;
    std::vector<std::string> out;
    for (std::size_t at = 1024; at < log.size(); at += 1024) {
      const char* text = reinterpret_cast<const char*>(log.data()) + at + 512;
      const std::string address(text, std::string(text, 256).find(' '));
      EXPECT_EQ(read<std::uint8_t>(log, at + 1), address.find(':') == std::string::npos ? 1u : 2u);
      out.push_back(address);
    }
    return out;
  };
  using Addresses = std::vector<std::string>;
  EXPECT_EQ(addresses("10.0.0.7"), (Addresses{"10.0.0.7", "10.0.0.7", "127.0.0.2"}));
  EXPECT_EQ(addresses("fd00::7"), (Addresses{"fd00::7", "fd00::7", "127.0.0.2"}));
  EXPECT_EQ(addresses(""), (Addresses{"0.0.0.0", "::", "127.0.0.2"})) << "of no address at all";
}

TEST(Discovery, LogHasAnEntryForEachPort) {
  World world;
  world.subsystem->add_port("127.0.0.1", 4420);
  world.subsystem->add_port("::1", 4421);
  FakeConnection& admin = discovery(world);
  const Bytes log = world.log(admin, nv::lid::kDiscovery, 3072)->in;
  EXPECT_EQ(read<std::uint64_t>(log, 0), 3u) << "GENCTR";
  EXPECT_EQ(read<std::uint64_t>(log, 8), 2u) << "NUMREC";
  EXPECT_EQ(read<std::uint16_t>(log, 16), 0u) << "RECFMT";
  const auto field = [&](std::size_t offset, std::size_t length) {
    return std::string(reinterpret_cast<const char*>(log.data()) + offset, length);
  };
  EXPECT_EQ(read<std::uint8_t>(log, 1024), 3u) << "TRTYPE: TCP";
  EXPECT_EQ(read<std::uint8_t>(log, 1025), 1u) << "ADRFAM: IPv4";
  EXPECT_EQ(read<std::uint8_t>(log, 1026), 2u) << "SUBTYPE: NVM subsystem";
  EXPECT_EQ(read<std::uint8_t>(log, 1027), 4u) << "TREQ";
  EXPECT_EQ(read<std::uint16_t>(log, 1028), 1u) << "PORTID";
  EXPECT_EQ(read<std::uint16_t>(log, 1030), 0xFFFFu) << "CNTLID: dynamic";
  EXPECT_EQ(read<std::uint16_t>(log, 1032), std::uint32_t{nv::kAdminEntriesMax}) << "ASQSZ";
  EXPECT_EQ(field(1024 + 32, 32), padded("4420", 32));
  EXPECT_EQ(field(1024 + 256, 27), "nqn.2026-11.io.furrow:unit" + std::string(1, '\0'));
  EXPECT_EQ(field(1024 + 512, 256), padded("127.0.0.1", 256));
  EXPECT_EQ(read<std::uint8_t>(log, 1024 + 768), 0u) << "TSAS: no TLS";
  EXPECT_EQ(read<std::uint8_t>(log, 2049), 2u) << "ADRFAM: IPv6";
  EXPECT_EQ(field(2048 + 512, 3), "::1");
  // As hosts read it: the header, then entry by entry.
  Bytes parts = world.log(admin, nv::lid::kDiscovery, 1024)->in;
  for (std::uint64_t offset = 1024; offset < 3072; offset += 256) {
    const Bytes part = world.log(admin, nv::lid::kDiscovery, 256, offset)->in;
    parts.insert(parts.end(), part.begin(), part.end());
  }
  EXPECT_EQ(parts, log);
  EXPECT_EQ(world.log(admin, nv::lid::kDiscovery, 4, 3076)->status(), sc::kInvalidField);
}

TEST(Discovery, ChangesAreToldAndCounted) {
  World world;
  world.subsystem->add_port("127.0.0.1", 4420);
  FakeConnection& admin = discovery(world);
  world.set_feature(admin, nv::fid::kAsyncEvent, 1u << 31);
  const auto event = world.call(admin, sqe(nv::admin::kAsyncEvent));
  EXPECT_FALSE(event->done);
  world.subsystem->remove_port("127.0.0.1", 4420);
  world.run();
  ASSERT_TRUE(event->done);
  EXPECT_EQ(event->cqe.dw0, 0x70F002u);
  const Bytes log = world.log(admin, nv::lid::kDiscovery, 1024)->in;
  EXPECT_EQ(read<std::uint64_t>(log, 0), 3u);
  EXPECT_EQ(read<std::uint64_t>(log, 8), 0u);
  world.subsystem->remove_port("127.0.0.1", 4420);  // unknown: no change
  EXPECT_EQ(read<std::uint64_t>(world.log(admin, nv::lid::kDiscovery, 1024)->in, 0), 3u);
}

TEST(Discovery, AnswersEveryHostButTellsOnlyThoseAllowed) {
  transport::SubsystemOptions options = World::small_buffers();
  options.allowed_hosts = {"nqn.2014-08.org.example:friend"};
  World world(options);
  world.subsystem->add_port("127.0.0.1", 4420);
  FakeConnection& stranger = discovery(world);
  EXPECT_EQ(read<std::uint64_t>(world.log(stranger, nv::lid::kDiscovery, 1024)->in, 8), 0u);
  ConnectOptions connect = discovery_options();
  connect.hostnqn = options.allowed_hosts[0];
  FakeConnection& ally = discovery(world, connect);
  EXPECT_EQ(read<std::uint64_t>(world.log(ally, nv::lid::kDiscovery, 1024)->in, 8), 1u);
}

TEST(Discovery, WithoutAKeepAliveTimeTwoMinutesOfSilenceAreTheLimit) {
  World world;
  FakeConnection& forgotten = discovery(world);
  ConnectOptions options = discovery_options();
  options.kato_ms = 30'000;
  FakeConnection& kept = discovery(world, options);
  for (int i = 0; i < 6; ++i) {
    EXPECT_TRUE(world.alive(forgotten));
    world.advance_ms(15'000);
    world.call(kept, sqe(nv::admin::kKeepAlive));
  }
  for (int i = 0; i < 6; ++i) {
    world.advance_ms(15'000);
    world.call(kept, sqe(nv::admin::kKeepAlive));
  }
  EXPECT_FALSE(world.alive(forgotten));
  EXPECT_TRUE(world.alive(kept));
}

}  // namespace
}  // namespace furrow::test
