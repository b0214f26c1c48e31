// Establishes the admin commands of a ready controller: log pages with their bounds and real
// content, features, Abort, and the checks that every command goes through.
// How: a host without a wire, and commands that fail on purpose.
#include <gtest/gtest.h>

#include "fake_host.h"

namespace furrow::test {
namespace {

TEST(Checks, FusedPsdtSglAndOpcode) {
  World world;
  FakeConnection& admin = world.admin();
  nv::Sqe command = sqe(nv::admin::kIdentify);
  command.cdw10 = 1;
  command.flags = nv::kPsdtSgl | 1;
  EXPECT_EQ(world.call(admin, command, {}, 4096)->status(), sc::kInvalidField);
  command.flags = 0;  // PRPs
  EXPECT_EQ(world.call(admin, command, {}, 4096)->status(), sc::kInvalidField);
  command.flags = nv::kPsdtSgl;
  command.sgl_type = 0x40;  // keyed: RDMA only
  EXPECT_EQ(world.call(admin, command, {}, 4096)->status(), sc::kSglTypeInvalid);
  command.sgl_type = nv::kSglInCapsule;
  EXPECT_EQ(world.call(admin, command, {}, 4096)->status(), sc::kSglTypeInvalid) << "a read";
  command.sgl_type = nv::kSglTransport;
  EXPECT_EQ(world.call(admin, command, {}, 2u << 20)->status(), sc::kInvalidField) << "MDTS";
  EXPECT_EQ(world.call(admin, command, {}, 1u << 20)->status(), sc::kSuccess);
  const auto unknown = world.call(admin, sqe(0x81));
  EXPECT_EQ(unknown->status(), sc::kInvalidOpcode);
  EXPECT_TRUE(unknown->cqe.dnr());
  EXPECT_EQ(world.call(admin, sqe(0x00))->status(), sc::kInvalidOpcode) << "Delete I/O SQ";
}

TEST(LogPage, OffsetsAndLengthsAreBounded) {
  World world;
  FakeConnection& admin = world.admin();
  EXPECT_EQ(world.log(admin, nv::lid::kSmart, 512)->in.size(), 512u);
  EXPECT_EQ(world.log(admin, nv::lid::kSmart, 8, 508)->in.size(), 8u) << "zeroes behind the end";
  EXPECT_EQ(world.log(admin, nv::lid::kSmart, 8, 512)->status(), sc::kSuccess);
  EXPECT_EQ(world.log(admin, nv::lid::kSmart, 8, 516)->status(), sc::kInvalidField);
  EXPECT_EQ(world.log(admin, nv::lid::kSmart, 8, ~3ull)->status(), sc::kInvalidField);
  EXPECT_EQ(world.log(admin, nv::lid::kSmart, 8, 2)->status(), sc::kInvalidField);
  EXPECT_EQ(world.log(admin, nv::lid::kSmart, 2u << 20)->status(), sc::kInvalidField);
  EXPECT_EQ(world.log(admin, 0x0C, 64)->status(), sc::kInvalidLogPage) << "ANA is off";
  EXPECT_EQ(world.log(admin, nv::lid::kDiscovery, 64)->status(), sc::kInvalidLogPage);
  nv::Sqe command = sqe(nv::admin::kGetLogPage);
  command.cdw10 = nv::lid::kSmart | 127u << 16;
  EXPECT_EQ(world.call(admin, command, {}, 256)->status(), sc::kDataSglLengthInvalid);
  command.cdw14 = 1u << 23;  // an index, not an offset
  EXPECT_EQ(world.call(admin, command, {}, 512)->status(), sc::kInvalidField);
  command.cdw14 = 0;
  command.cdw10 = nv::lid::kSmart | 0xFFFFu << 16;
  command.cdw11 = 0xFFFF;  // 16 GiB
  EXPECT_EQ(world.call(admin, command, {}, 512)->status(), sc::kInvalidField);
}

TEST(LogPage, PartsMakeTheWhole) {
  World world;
  FakeConnection& admin = world.admin();
  const Bytes whole = world.log(admin, nv::lid::kEffects, 4096, 0, 1)->in;
  Bytes parts;
  for (std::uint64_t offset = 0; offset < 4096; offset += 512) {
    const Bytes part = world.log(admin, nv::lid::kEffects, 512, offset, 1)->in;
    parts.insert(parts.end(), part.begin(), part.end());
  }
  EXPECT_EQ(parts, whole);
}

TEST(LogPage, EffectsForEachCommandSet) {
  World world;
  FakeConnection& admin = world.admin();
  const Bytes kv = world.log(admin, nv::lid::kEffects, 4096, 0, 1)->in;
  for (const unsigned opcode : {0x02, 0x06, 0x08, 0x09, 0x0A, 0x0C, 0x18}) {
    EXPECT_EQ(read<std::uint32_t>(kv, opcode * 4), 1u) << opcode;
  }
  for (const unsigned opcode : {0x00, 0x02, 0x06, 0x14}) {
    EXPECT_EQ(read<std::uint32_t>(kv, 1024 + opcode * 4), 1u) << opcode;
  }
  for (const unsigned opcode : {0x01, 0x10}) {
    EXPECT_EQ(read<std::uint32_t>(kv, 1024 + opcode * 4), 3u) << opcode;
  }
  for (const unsigned opcode : {0x0D, 0x0E, 0x11, 0x15}) {
    EXPECT_EQ(read<std::uint32_t>(kv, 1024 + opcode * 4), 1u) << "reservations";
  }
  const Bytes nvm = world.log(admin, nv::lid::kEffects, 4096, 0, 0)->in;
  EXPECT_EQ(read<std::uint32_t>(nvm, 0x06 * 4), 1u);
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    const bool reserves = opcode == 0x0D || opcode == 0x0E || opcode == 0x11 || opcode == 0x15;
    const bool reads = opcode == 0x00 || opcode == 0x02 || opcode == 0x05 || reserves;
    const bool writes = opcode == 0x01 || opcode == 0x08 || opcode == 0x09;
    EXPECT_EQ(read<std::uint32_t>(nvm, 1024 + opcode * 4), reads ? 1u : writes ? 3u : 0u) << opcode;
  }
  EXPECT_EQ(world.log(admin, nv::lid::kEffects, 4096, 0, 3)->status(), sc::kInvalidField);
}

TEST(LogPage, SupportedAndFirmware) {
  World world;
  FakeConnection& admin = world.admin();
  const Bytes supported = world.log(admin, nv::lid::kSupported, 1024)->in;
  for (unsigned id = 0; id < 256; ++id) {
    const bool is_known = id <= 5 || id == 0x12 || id == 0x80 || id == 0xBF;
    EXPECT_EQ(read<std::uint32_t>(supported, id * 4), is_known ? 1u : 0u) << id;
  }
  const Bytes firmware = world.log(admin, nv::lid::kFirmware, 512)->in;
  EXPECT_EQ(read<std::uint8_t>(firmware, 0), 1u);
  EXPECT_EQ(std::memcmp(firmware.data() + 8, "0.1     ", 8), 0);
}

// What it does not name Get Features refuses, and the other way round.
TEST(LogPage, FeaturesAreThoseThatThereAre) {
  World world;
  FakeConnection& admin = world.admin();
  const Bytes features = world.log(admin, nv::lid::kFeatures, 1024)->in;
  for (unsigned id = 0; id < 256; ++id) {
    nv::Sqe get = sqe(nv::admin::kGetFeatures, 1);
    get.cdw10 = id;
    if (id == 0x81) get.cdw11 = 1;  // of 128 bits
    const bool there = world.call(admin, get, {}, 4096)->status() == sc::kSuccess;
    const bool of_namespace = id == 0x20 || id == 0x82 || id == 0x83;
    const std::uint32_t scope = of_namespace ? 1u << 20 : 1u << 21;
    EXPECT_EQ(read<std::uint32_t>(features, id * 4), there ? 1u | scope : 0u) << id;
  }
}

TEST(LogPage, SmartCountsWhatHappened) {
  World world;
  FakeConnection& admin = world.admin();
  FakeConnection& io = world.io(world.last_cntlid);
  nv::Sqe store = sqe(nv::kv::kStore, 1);
  store.cdw10 = 600'000;
  store.cdw11 = 1;
  ASSERT_EQ(world.call(io, store, Bytes(600'000), 600'000)->status(), sc::kSuccess);
  nv::Sqe retrieve = sqe(nv::kv::kRetrieve, 1);
  retrieve.cdw10 = 4096;
  retrieve.cdw11 = 1;
  for (int i = 0; i < 3; ++i) world.call(io, retrieve, {}, 4096);
  world.pool.media_errors = 2;
  world.clock_ns += 2ull * 3600 * 1'000'000'000;
  world.run();  // the pool is looked at now and then
  const Bytes smart = world.log(admin, nv::lid::kSmart, 512)->in;
  EXPECT_EQ(read<std::uint8_t>(smart, 0), 0u) << "critical warning";
  EXPECT_EQ(read<std::uint16_t>(smart, 1), 298u) << "no sensor, and not 0 K";
  EXPECT_EQ(read<std::uint8_t>(smart, 3), 95u) << "spare: 1 of 20 zones is bad";
  EXPECT_EQ(read<std::uint8_t>(smart, 4), 10u);
  EXPECT_EQ(read<std::uint64_t>(smart, 32), 1u) << "units of 512000 B read, rounded up";
  EXPECT_EQ(read<std::uint64_t>(smart, 48), 2u) << "and written";
  EXPECT_EQ(read<std::uint64_t>(smart, 64), 3u) << "Retrieves";
  EXPECT_EQ(read<std::uint64_t>(smart, 80), 1u) << "Stores";
  EXPECT_EQ(read<std::uint64_t>(smart, 128), 2u) << "hours";
  EXPECT_EQ(read<std::uint64_t>(smart, 160), 2u) << "media errors";
  EXPECT_EQ(read<std::uint64_t>(smart, 176), 0u) << "error log entries";
}

TEST(LogPage, SmartWarnsOfWhatTheDeviceIs) {
  World world;
  FakeConnection& admin = world.admin();
  const auto warning = [&] {
    world.clock_ns += 2'000'000'000;
    world.run();
    return read<std::uint8_t>(world.log(admin, nv::lid::kSmart, 512)->in, 0);
  };
  EXPECT_EQ(warning(), 0u);
  world.pool.zones_bad = 18;  // of 20
  EXPECT_EQ(warning(), 8u) << "the last two are the metadata's";
  world.pool.zones_bad = 19;
  EXPECT_EQ(warning(), 1u | 8u);
  world.pool.zones_bad = 17;
  EXPECT_EQ(warning(), 0u);
  world.pool.flush_failed = true;
  EXPECT_EQ(warning(), 4u);
  world.pool.flush_failed = false;
  world.pool.device_gone = true;
  EXPECT_EQ(warning(), 4u);
}

TEST(LogPage, ErrorsTellTheNewestFirst) {
  World world;
  FakeConnection& admin = world.admin();
  FakeConnection& io = world.io(world.last_cntlid, 5);
  world.call(admin, sqe(0x81));
  nv::Sqe exist = sqe(nv::kv::kExist, 1);
  exist.cdw11 = 17;
  const auto failed = world.call(io, exist);
  ASSERT_EQ(failed->status(), sc::kInvalidKeySize);
  exist.cdw11 = 3;
  ASSERT_EQ(world.call(io, exist)->status(), sc::kKeyNotFound) << "a miss is no error";
  const Bytes log = world.log(admin, nv::lid::kError, 64 * 64)->in;
  EXPECT_EQ(read<std::uint64_t>(log, 0), 2u) << "error count";
  EXPECT_EQ(read<std::uint16_t>(log, 8), 5u) << "SQID";
  EXPECT_EQ(read<std::uint16_t>(log, 10), failed->sqe.cid);
  EXPECT_EQ(read<std::uint16_t>(log, 12), failed->cqe.status);
  EXPECT_EQ(read<std::uint32_t>(log, 24), 1u) << "NSID";
  EXPECT_EQ(read<std::uint8_t>(log, 29), 3u) << "TRTYPE: TCP";
  EXPECT_EQ(read<std::uint64_t>(log, 64), 1u);
  EXPECT_EQ(read<std::uint16_t>(log, 64 + 8), 0u);
  EXPECT_EQ(read<std::uint64_t>(log, 128), 0u) << "no third";
  for (int i = 0; i < 100; ++i) world.call(admin, sqe(0x81));
  const Bytes full = world.log(admin, nv::lid::kError, 64 * 64)->in;
  EXPECT_EQ(read<std::uint64_t>(full, 0), 102u);
  EXPECT_EQ(read<std::uint64_t>(full, 63 * 64), 39u);
  EXPECT_EQ(read<std::uint64_t>(world.log(admin, nv::lid::kSmart, 512)->in, 176), 102u);
}

TEST(Features, ValuesAreKeptAndChecked) {
  World world;
  FakeConnection& admin = world.admin();
  EXPECT_EQ(world.set_feature(admin, nv::fid::kArbitration, 0x01020304)->status(), sc::kSuccess);
  EXPECT_EQ(world.get_feature(admin, nv::fid::kArbitration)->cqe.dw0, 0x01020304u);
  EXPECT_EQ(world.set_feature(admin, nv::fid::kErrorRecovery, 20)->status(), sc::kSuccess);
  EXPECT_EQ(world.get_feature(admin, nv::fid::kErrorRecovery)->cqe.dw0, 20u);
  EXPECT_EQ(world.set_feature(admin, nv::fid::kErrorRecovery, 1u << 16)->status(),
            sc::kInvalidField)
      << "DULBE";
  EXPECT_EQ(world.set_feature(admin, nv::fid::kWriteAtomicity, 1)->status(), sc::kSuccess);
  EXPECT_EQ(world.get_feature(admin, nv::fid::kWriteAtomicity)->cqe.dw0, 1u);
  EXPECT_EQ(world.set_feature(admin, nv::fid::kPowerManagement, 0)->status(), sc::kSuccess);
  EXPECT_EQ(world.set_feature(admin, nv::fid::kPowerManagement, 1)->status(), sc::kInvalidField);
  EXPECT_EQ(world.get_feature(admin, nv::fid::kTemperature)->cqe.dw0, 0xFFFFu);
  EXPECT_EQ(world.set_feature(admin, nv::fid::kTemperature, 350)->status(), sc::kSuccess);
  EXPECT_EQ(world.set_feature(admin, nv::fid::kTemperature, 1u << 20 | 250)->status(),
            sc::kSuccess);
  EXPECT_EQ(world.get_feature(admin, nv::fid::kTemperature)->cqe.dw0, 350u);
  EXPECT_EQ(world.get_feature(admin, nv::fid::kTemperature, 0, 1u << 20)->cqe.dw0, 250u);
  EXPECT_EQ(world.set_feature(admin, nv::fid::kTemperature, 1u << 16)->status(), sc::kInvalidField);
  EXPECT_EQ(world.get_feature(admin, nv::fid::kTemperature, 0, 3u << 20)->status(),
            sc::kInvalidField);
  EXPECT_EQ(world.set_feature(admin, nv::fid::kCommandSetProfile, 0)->status(), sc::kSuccess);
  EXPECT_EQ(world.get_feature(admin, nv::fid::kCommandSetProfile)->cqe.dw0, 0u);
  EXPECT_EQ(world.set_feature(admin, nv::fid::kCommandSetProfile, 1)->status(),
            sc::kCommandSetCombinationRejected);
  EXPECT_EQ(world.get_feature(admin, 0x7E)->status(), sc::kInvalidField);
  EXPECT_EQ(world.set_feature(admin, 0x0E, 0)->status(), sc::kInvalidField) << "timestamp";
}

TEST(Features, NothingCanBeSavedOrSelected) {
  World world;
  FakeConnection& admin = world.admin();
  nv::Sqe set = sqe(nv::admin::kSetFeatures);
  set.cdw10 = nv::fid::kArbitration | 1u << 31;
  EXPECT_EQ(world.call(admin, set)->status(), sc::kFeatureNotSaveable);
  nv::Sqe get = sqe(nv::admin::kGetFeatures);
  get.cdw10 = nv::fid::kArbitration | 1u << 8;
  EXPECT_EQ(world.call(admin, get)->status(), sc::kInvalidField);
}

TEST(Features, HostBehaviorIsReadBack) {
  World world;
  FakeConnection& admin = world.admin();
  nv::Sqe set = sqe(nv::admin::kSetFeatures);
  set.cdw10 = nv::fid::kHostBehavior;
  Bytes data(512);
  data[0] = data[2] = std::byte{1};
  EXPECT_EQ(world.call(admin, set, data, 512)->status(), sc::kSuccess);
  EXPECT_EQ(world.get_feature(admin, nv::fid::kHostBehavior, 0, 0, 512)->in, data);
  EXPECT_EQ(world.call(admin, set, data, 256)->status(), sc::kDataSglLengthInvalid);
  EXPECT_EQ(world.get_feature(admin, nv::fid::kHostBehavior, 0, 0, 8)->status(),
            sc::kDataSglLengthInvalid);
}

// Linux gives a command up that is refused six times running, which takes no time without a delay.
TEST(Features, AHostThatHeedsRetryDelaysIsToldToWait) {
  World world;
  FakeConnection& admin = world.admin();
  const auto crd_of = [&](std::uint8_t opcode, std::uint16_t status, const Status& pulled) {
    FakeConnection& io = world.io(world.last_cntlid);
    nv::Sqe command = sqe(opcode, 1);
    command.cdw10 = 4;
    command.cdw11 = 1;
    io.pull_status = pulled;
    const auto done = world.call(io, command, bytes_of("page"), 4);
    io.disconnect();
    world.run();
    EXPECT_EQ(done->status(), status);
    return done->cqe.status >> 12 & 3;
  };
  const Status full(Code::busy, Origin::transport, "no memory to keep the data in");
  const auto crd_of_refused = [&] {
    return crd_of(nv::kv::kStore, sc::kTransientTransportError, full);
  };
  EXPECT_EQ(crd_of_refused(), 0) << "it has not said that it knows what that is";
  nv::Sqe set = sqe(nv::admin::kSetFeatures);
  set.cdw10 = nv::fid::kHostBehavior;
  Bytes data(512);
  data[0] = std::byte{1};
  ASSERT_EQ(world.call(admin, set, data, 512)->status(), sc::kSuccess);
  EXPECT_EQ(crd_of_refused(), 1);
  EXPECT_EQ(crd_of(nv::kv::kStore, sc::kSuccess, Status()), 0);
  EXPECT_EQ(crd_of(0x79, sc::kInvalidOpcode, Status()), 0) << "which is no matter of time";
  world.set_cc(admin, World::kCcOn & ~1u);
  world.set_cc(admin, World::kCcOn);
  EXPECT_EQ(crd_of_refused(), 0);
}

TEST(Features, NumberOfQueues) {
  transport::SubsystemOptions options = World::small_buffers();
  options.io_queues_max = 4;
  World world(options);
  FakeConnection& admin = world.admin();
  EXPECT_EQ(world.get_feature(admin, nv::fid::kQueues)->cqe.dw0, 3u << 16 | 3u);
  EXPECT_EQ(world.set_feature(admin, nv::fid::kQueues, 99u << 16 | 99u)->cqe.dw0, 3u << 16 | 3u);
  EXPECT_EQ(world.set_feature(admin, nv::fid::kQueues, 1u << 16 | 9u)->cqe.dw0, 1u << 16 | 1u);
  EXPECT_EQ(world.set_feature(admin, nv::fid::kQueues, 0xFFFF)->status(), sc::kInvalidField);
  EXPECT_EQ(world.set_feature(admin, nv::fid::kQueues, 0xFFFF << 16)->status(), sc::kInvalidField);
  world.io(world.last_cntlid, 2);
  EXPECT_EQ(world.set_feature(admin, nv::fid::kQueues, 0)->status(), sc::kCommandSequenceError);
  ConnectOptions third;
  third.cntlid = world.last_cntlid;
  third.qid = 3;
  EXPECT_EQ(world.connect(world.open(1), third)->status(), sc::kConnectInvalidParameters);
}

TEST(Features, KeyValueConfigurationIsTheNamespaces) {
  World world;
  FakeConnection& admin = world.admin();
  FakeConnection& other = world.admin();
  EXPECT_EQ(world.get_feature(admin, nv::fid::kKvConfig, 1)->cqe.dw0, 0u);
  EXPECT_EQ(world.set_feature(admin, nv::fid::kKvConfig, 1, 1)->status(), sc::kSuccess);
  EXPECT_EQ(world.get_feature(other, nv::fid::kKvConfig, 1)->cqe.dw0, 1u);
  EXPECT_EQ(world.set_feature(admin, nv::fid::kKvConfig, 0, nv::kNsidAll)->status(), sc::kSuccess);
  EXPECT_EQ(world.get_feature(other, nv::fid::kKvConfig, 1)->cqe.dw0, 0u);
  EXPECT_EQ(world.set_feature(admin, nv::fid::kKvConfig, 1, 2)->status(),
            sc::kInvalidNamespaceOrFormat);
  EXPECT_EQ(world.get_feature(admin, nv::fid::kKvConfig, nv::kNsidAll)->status(),
            sc::kInvalidNamespaceOrFormat);
}

nv::Sqe abort_of(std::uint16_t sqid, std::uint16_t cid) {
  nv::Sqe out = sqe(nv::admin::kAbort);
  out.cdw10 = std::uint32_t{cid} << 16 | sqid;
  return out;
}

TEST(Abort, AnEventRequest) {
  World world;
  FakeConnection& admin = world.admin();
  const auto first = world.call(admin, sqe(nv::admin::kAsyncEvent));
  const auto second = world.call(admin, sqe(nv::admin::kAsyncEvent));
  const auto abort = world.call(admin, abort_of(0, first->sqe.cid));
  EXPECT_EQ(abort->status(), sc::kSuccess);
  EXPECT_EQ(abort->cqe.dw0, 0u);
  EXPECT_EQ(first->status(), sc::kAbortRequested);
  EXPECT_FALSE(second->done);
  EXPECT_EQ(world.call(admin, abort_of(0, first->sqe.cid))->cqe.dw0, 1u) << "gone already";
  EXPECT_EQ(world.call(admin, abort_of(9, 0))->cqe.dw0, 1u) << "no such queue";
}

TEST(Abort, WhatThePoolWorksOnFinishesByItself) {
  World world;
  FakeConnection& admin = world.admin();
  FakeConnection& io = world.io(world.last_cntlid);
  world.pool.store(1).hold = true;
  nv::Sqe exist = sqe(nv::kv::kExist, 1);
  exist.cdw11 = 1;
  const auto slow = world.call(io, exist);
  const auto abort = world.call(admin, abort_of(1, slow->sqe.cid));
  EXPECT_EQ(abort->status(), sc::kSuccess);
  EXPECT_EQ(abort->cqe.dw0, 1u);
  world.pool.store(1).hold = false;
  world.run();
  EXPECT_EQ(slow->status(), sc::kKeyNotFound);
}

// ACL: so many at a time, and as many again when they are answered.
TEST(Abort, AreLimited) {
  World world;
  FakeConnection& admin = world.admin();
  world.io(world.last_cntlid);
  for (int round = 0; round < 2; ++round) {
    std::vector<CommandPtr> aborts;
    for (int i = 0; i < 5; ++i) aborts.push_back(admin.send(abort_of(1, 99), {}, 0, false));
    world.run();
    for (int i = 0; i < 4; ++i) EXPECT_EQ(aborts[i]->status(), sc::kSuccess) << i;
    EXPECT_EQ(aborts[4]->status(), sc::kAbortLimit);
  }
}

TEST(Abort, ACommandThatWaitsForABuffer) {
  transport::SubsystemOptions options = World::small_buffers();  // four of each size
  World world(options);
  FakeConnection& admin = world.admin();
  FakeConnection& io = world.io(world.last_cntlid);
  world.pool.store(1).hold = true;
  nv::Sqe retrieve = sqe(nv::kv::kRetrieve, 1);
  retrieve.cdw10 = 1u << 20;
  retrieve.cdw11 = 1;
  std::vector<CommandPtr> commands;
  for (int i = 0; i < 7; ++i) commands.push_back(world.call(io, retrieve, {}, 1u << 20));
  EXPECT_EQ(world.subsystem->stats().buffer_waits, 5u) << "its share is half";
  EXPECT_EQ(world.call(admin, abort_of(1, commands[6]->sqe.cid))->cqe.dw0, 0u);
  EXPECT_EQ(commands[6]->status(), sc::kAbortRequested);
  EXPECT_FALSE(commands[6]->cqe.dnr());
  EXPECT_EQ(world.call(admin, abort_of(1, commands[0]->sqe.cid))->cqe.dw0, 1u);
  world.pool.store(1).hold = false;
  world.run();
  for (int i = 0; i < 6; ++i) EXPECT_EQ(commands[i]->status(), sc::kKeyNotFound) << i;
}

// What a host sends takes from its share as long as it is under way, and no longer.
TEST(AdminMemory, WhatWasSentIsGivenBack) {
  World world;
  FakeConnection& admin = world.admin();
  nv::Sqe set = sqe(nv::admin::kSetFeatures);
  set.cdw10 = nv::fid::kHostBehavior;
  for (int i = 0; i < 2100; ++i) {  // more than 16 MiB in all
    ASSERT_EQ(world.call(admin, set, Bytes(8192), 8192)->status(), sc::kSuccess) << i;
  }
}

// Hosts that do not read their answers use the memory for them up, each its share, and another one
// can still connect.
TEST(AdminMemory, StuckHostsDoNotKeepAnotherOut) {
  World world;
  std::vector<FakeConnection*> stuck;
  std::vector<CommandPtr> answers;
  for (int host = 0; host < 4; ++host) {
    FakeConnection& admin = world.admin();
    admin.hold_answers = true;
    for (int i = 0; i < 20; ++i) {
      answers.push_back(world.log(admin, nv::lid::kSmart, 1u << 20));
    }
    stuck.push_back(&admin);
  }
  EXPECT_GE(world.subsystem->stats().payloads_refused, 80u - 16u);
  FakeConnection& good = world.admin();
  EXPECT_EQ(world.log(good, nv::lid::kSmart, 512)->status(), sc::kSuccess);
  for (FakeConnection* admin : stuck) admin->release_answers();
  world.run();
  const auto interrupted = std::count_if(answers.begin(), answers.end(), [](const auto& answer) {
    return answer->status() == sc::kCommandInterrupted;
  });
  EXPECT_EQ(interrupted, static_cast<long>(world.subsystem->stats().payloads_refused));
}

}  // namespace
}  // namespace furrow::test
