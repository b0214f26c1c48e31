// Establishes the NVM command set over volumes of kind block, beside Key Value in one subsystem:
// what a host is told of both (lists, descriptors, structures, logs, by CC.CSS), each command's
// effect beside a plain array of bytes, and the status of everything that is wrong. How: a host
// without a wire, over a real pool in memory.
#include "transport/nvm_commands.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/engine/block/disk.h"
#include "tests/transport/served_pool.h"
#include "transport/nvme_reservation.h"

namespace furrow::test {
namespace {

TEST(NvmStatus, SaysWhatAFailureIs) {
  namespace is = nvme::sc;
  using enum BlockOp::Kind;
  const auto of = [](BlockOp::Kind kind, Code code, bool equal = true) {
    BlockOp op;
    op.kind = kind;
    op.status = Status(code, Origin::engine);
    op.equal = equal;
    return transport::NvmCommands::status_of(op);
  };
  EXPECT_EQ(of(compare, Code::ok), is::kSuccess);
  EXPECT_EQ(of(compare, Code::ok, false), is::kCompareFailure);
  for (const BlockOp::Kind kind : {read, compare}) {
    EXPECT_EQ(of(kind, Code::io_error), is::kUnrecoveredRead);
  }
  EXPECT_EQ(of(compare_and_write, Code::io_error, false), is::kUnrecoveredRead);
  EXPECT_EQ(of(compare_and_write, Code::io_error), is::kWriteFault);
  for (const BlockOp::Kind kind : {write, discard, write_zeroes, flush}) {
    EXPECT_EQ(of(kind, Code::io_error), is::kWriteFault);
  }
  EXPECT_EQ(of(read, Code::corrupt), is::kUnrecoveredRead);
  EXPECT_EQ(of(write, Code::permission), is::kWriteProtected);
  EXPECT_EQ(of(write, Code::no_space), is::kCapacityExceeded);
  EXPECT_EQ(of(read, Code::invalid_argument), is::kLbaOutOfRange);
  for (const Code code : {Code::busy, Code::late}) {
    EXPECT_EQ(of(write, code), is::kNamespaceNotReady);
  }
  EXPECT_EQ(of(write, Code::aborted), is::kAbortedSqDeletion);
  EXPECT_EQ(of(write, Code::foreign), is::kInternalError);
}

constexpr std::uint32_t kPagesNsid = 1, kDiskNsid = 2, kLargeNsid = 3;
constexpr std::uint64_t kDiskBytes = 4 << 20, kLargeBytes = 1ull << 40;

class Disks : public ServedPool {
 public:
  explicit Disks(std::uint32_t css = nv::kCssAll) : ServedPool("mem:64MiB?zone_size=2MiB") {
    VolumeOptions disk = testing::block_options(kDiskBytes, 512);
    disk.quota_bytes = 16 << 20;
    EXPECT_TRUE(rig().pool->create_volume(disk).ok());
    VolumeOptions large = testing::block_options(kLargeBytes, 4096);
    large.name = "large";
    EXPECT_TRUE(rig().pool->create_volume(large).ok());
    serve(css);
  }

  static nv::Sqe command(std::uint8_t opcode, std::uint64_t lba, std::uint32_t count,
                         std::uint32_t nsid = kDiskNsid) {
    nv::Sqe out = sqe(opcode, nsid);
    out.cdw10 = static_cast<std::uint32_t>(lba);
    out.cdw11 = static_cast<std::uint32_t>(lba >> 32);
    out.cdw12 = count - 1;
    return out;
  }
  std::uint16_t write(std::uint64_t lba, const Bytes& data, std::uint32_t flags = 0) {
    nv::Sqe out = command(nv::nvm::kWrite, lba, static_cast<std::uint32_t>(data.size() / 512));
    out.cdw12 |= flags;
    return call(*io, out, data, static_cast<std::uint32_t>(data.size()))->status();
  }
  Bytes read(std::uint64_t lba, std::uint32_t count) {
    const auto done = call(*io, command(nv::nvm::kRead, lba, count), {}, count * 512);
    EXPECT_EQ(done->status(), sc::kSuccess);
    return done->in;
  }
  CommandPtr manage(const std::vector<nv::DatasetRange>& ranges, bool deallocate,
                    std::uint32_t nsid = kDiskNsid) {
    nv::Sqe out = sqe(nv::nvm::kDatasetManagement, nsid);
    out.cdw10 = static_cast<std::uint32_t>(ranges.size() - 1);
    out.cdw11 = deallocate ? nv::nvm::kDeallocate : 0;
    const auto* begin = reinterpret_cast<const std::byte*>(ranges.data());
    const Bytes bytes(begin, begin + ranges.size() * sizeof(nv::DatasetRange));
    return call(*io, out, bytes, static_cast<std::uint32_t>(bytes.size()));
  }
  std::vector<std::uint32_t> listed(std::uint8_t cns, std::uint8_t csi = 0) {
    const auto done = identify(cns, 0, csi);
    EXPECT_EQ(done->status(), sc::kSuccess);
    std::vector<std::uint32_t> nsids;
    for (std::size_t at = 0; at < 4096; at += 4) {
      const auto nsid = test::read<std::uint32_t>(done->in, at);
      if (nsid != 0) nsids.push_back(nsid);
    }
    return nsids;
  }
};

Bytes random_bytes(std::size_t bytes, std::uint64_t seed) {
  return testing::content(seed, 1, bytes);
}

// A host that is back has all of its commands done again: what is left of the first ones must not
// undo what it does then.
TEST(Nvm, OfAHostThatIsGoneNoMoreIsZeroed) {
  constexpr std::uint32_t kLbas = kDiskBytes / 512;
  Disks disks;
  const Bytes before = random_bytes(1 << 20, 1), after = random_bytes(4096, 2);
  for (std::uint32_t lba = 0; lba < kLbas; lba += 2048) {
    ASSERT_EQ(disks.write(lba, before), sc::kSuccess);
  }
  FakeConnection& gone = disks.join(7);
  const nv::DatasetRange ranges[] = {{0, kLbas / 2, 0}, {0, kLbas / 2, kLbas / 2}};
  nv::Sqe discard = sqe(nv::nvm::kDatasetManagement, kDiskNsid);
  discard.cdw10 = 1;
  discard.cdw11 = nv::nvm::kDeallocate;
  const auto* begin = reinterpret_cast<const std::byte*>(ranges);
  gone.send(discard, Bytes(begin, begin + sizeof ranges), sizeof ranges, true);
  disks.idle_turn();  // the ranges are there, and the first one is at work
  gone.disconnect();
  ASSERT_EQ(disks.write(kLbas - 8, after), sc::kSuccess);
  while (!gone.finished()) disks.idle_turn();
  EXPECT_TRUE(disks.read(kLbas - 8, 8) == after);
  EXPECT_TRUE(disks.read(kLbas - 16, 8) == Bytes(before.end() - 8192, before.end() - 4096));
  EXPECT_EQ(disks.read(0, 8), Bytes(4096)) << "it was at work";
}

// Its answers may still reach it, which say what it was that ended its commands.
TEST(Nvm, AHostThatEndsItsQueueIsToldSo) {
  constexpr std::uint32_t kLbas = kDiskBytes / 512;
  Disks disks;
  for (std::uint32_t lba = 0; lba < kLbas; lba += 2048) {
    ASSERT_EQ(disks.write(lba, random_bytes(1 << 20, 1)), sc::kSuccess);
  }
  FakeConnection& parting = disks.join(7);
  parting.stuck = true;
  const CommandPtr zeroes =
      parting.send(Disks::command(nv::nvm::kWriteZeroes, 0, kLbas), {}, 0, false);
  const CommandPtr end = parting.send(fabrics(nv::fabrics::kDisconnect), {}, 0, false);
  while (!zeroes->done || !end->done) disks.idle_turn();
  EXPECT_EQ(end->status(), sc::kSuccess);
  EXPECT_EQ(zeroes->status(), sc::kAbortedSqDeletion);
  parting.stuck = false;
}

using Nsids = std::vector<std::uint32_t>;

TEST(Nvm, AHostSeesBothKindsOfNamespaces) {
  Disks disks;
  EXPECT_EQ(disks.listed(0x02), (Nsids{kPagesNsid, kDiskNsid, kLargeNsid}));
  EXPECT_EQ(disks.listed(0x07, nv::csi::kNvm), (Nsids{kDiskNsid, kLargeNsid}));
  EXPECT_EQ(disks.listed(0x07, nv::csi::kKv), (Nsids{kPagesNsid}));
  const auto sets = disks.identify(0x1C, 0);
  EXPECT_EQ(read<std::uint64_t>(sets->in, 0), 7u);
  for (const std::uint32_t nsid : {kPagesNsid, kDiskNsid}) {
    const auto descriptors = disks.identify(0x03, nsid);
    ASSERT_EQ(descriptors->status(), sc::kSuccess);
    std::size_t at = 0;  // the last of three
    while (read<std::uint8_t>(descriptors->in, at) != nv::kNidtCsi) {
      at += 4u + read<std::uint8_t>(descriptors->in, at + 1);
    }
    EXPECT_EQ(read<std::uint8_t>(descriptors->in, at + 4), nsid == kPagesNsid ? 1 : 0);
    const auto independent = disks.identify(0x08, nsid);
    EXPECT_EQ(read<std::uint8_t>(independent->in, 14), 1) << "NRDY";
  }
  EXPECT_EQ(disks.identify(0x05, kDiskNsid, nv::csi::kNvm)->status(), sc::kSuccess);
  EXPECT_EQ(disks.identify(0x05, kDiskNsid, nv::csi::kKv)->status(), sc::kInvalidIoCommandSet);
  EXPECT_EQ(disks.identify(0x05, kPagesNsid, nv::csi::kNvm)->status(), sc::kInvalidIoCommandSet);
  const auto limits = disks.identify(0x06, 0, nv::csi::kNvm);
  ASSERT_EQ(limits->status(), sc::kSuccess);
  EXPECT_EQ(read<std::uint32_t>(limits->in, 4), 1u << 20) << "DMRSL";
  const auto controller = disks.identify(0x01, 0);
  EXPECT_EQ(read<std::uint16_t>(controller->in, offsetof(nv::IdentifyController, oncs)), 0x2d);
  EXPECT_EQ(read<std::uint16_t>(controller->in, offsetof(nv::IdentifyController, fuses)), 1);
}

// Which tells a Linux host the size, that it may discard, and that 4 KiB are best.
TEST(Nvm, WhatADiskIs) {
  Disks disks;
  const auto small = disks.identify(0x00, kDiskNsid), large = disks.identify(0x00, kLargeNsid);
  EXPECT_EQ(read<std::uint64_t>(small->in, 0), kDiskBytes / 512);
  EXPECT_EQ(read<std::uint64_t>(large->in, 0), kLargeBytes / 4096);
  EXPECT_EQ(read<std::uint64_t>(small->in, 8), kDiskBytes / 512) << "NCAP";
  EXPECT_LT(read<std::uint64_t>(large->in, 8), (64ull << 20) / 4096) << "it is thin";
  EXPECT_EQ(read<std::uint64_t>(small->in, 16), 0u) << "NUSE";
  EXPECT_EQ(disks.write(0, random_bytes(8192, 1)), sc::kSuccess);
  EXPECT_EQ(read<std::uint64_t>(disks.identify(0x00, kDiskNsid)->in, 16), 16u);
  EXPECT_EQ(read<std::uint8_t>(small->in, 24), 0x13) << "NSFEAT";
  EXPECT_EQ(read<std::uint8_t>(small->in, 33), 0x09) << "DLFEAT: zeroes";
  for (const std::size_t field : {34, 36, 38, 40, 44, 64, 66, 68, 70}) {
    EXPECT_EQ(read<std::uint16_t>(small->in, field), 7) << field;
    EXPECT_EQ(read<std::uint16_t>(large->in, field), 0) << field;
  }
  EXPECT_EQ(read<std::uint8_t>(small->in, 130), 9) << "LBADS";
  EXPECT_EQ(read<std::uint8_t>(large->in, 130), 12);
  nv::Sqe log = sqe(nv::admin::kGetLogPage);
  log.cdw10 = nv::lid::kEffects | 1023u << 16;
  const auto effects = disks.call(*disks.admin, log, {}, 4096);
  for (const unsigned opcode : {0, 1, 2, 5, 8, 9}) {
    EXPECT_NE(read<std::uint32_t>(effects->in, 1024 + 4 * opcode), 0u) << opcode;
  }
  EXPECT_EQ(read<std::uint32_t>(effects->in, 1024 + 4 * 4), 0u) << "Write Uncorrectable";
}

TEST(Nvm, AHostWithoutOtherCommandSetsSeesDisksAlone) {
  Disks disks(nv::kCssNvm);
  EXPECT_EQ(disks.listed(0x02), (Nsids{kDiskNsid, kLargeNsid}));
  EXPECT_EQ(disks.write(0, random_bytes(512, 1)), sc::kSuccess);
  nv::Sqe exist = sqe(nv::kv::kExist, kPagesNsid);
  exist.cdw11 = 4;
  EXPECT_EQ(disks.call(*disks.io, exist)->status(), sc::kInvalidNamespaceOrFormat);
}

TEST(Nvm, IsAsAnArrayOfBytes) {
  Disks disks;
  std::mt19937_64 random(5);
  Bytes model(256 << 10);
  const auto lbas = static_cast<std::uint32_t>(model.size() / 512);
  for (unsigned step = 0; step < 1500; ++step) {
    const auto lba = static_cast<std::uint32_t>(random() % lbas);
    const auto count =
        1 + static_cast<std::uint32_t>(random() % std::min<std::uint64_t>(lbas - lba, 64));
    const std::span there(model.data() + lba * 512, count * 512);
    switch (random() % 6) {
      case 0:
      case 1: {
        const Bytes data = random_bytes(there.size(), step);
        ASSERT_EQ(disks.write(lba, data, random() % 4 == 0 ? nv::nvm::kForceUnitAccess : 0),
                  sc::kSuccess);
        std::ranges::copy(data, there.begin());
        break;
      }
      case 2:
        ASSERT_EQ(
            disks.call(*disks.io, Disks::command(nv::nvm::kWriteZeroes, lba, count))->status(),
            sc::kSuccess);
        std::ranges::fill(there, std::byte{0});
        break;
      case 3:
        ASSERT_EQ(
            disks
                .manage({{0, count / 2, lba}, {0, 0, 3}, {0, count - count / 2, lba + count / 2}},
                        true)
                ->status(),
            sc::kSuccess);
        std::ranges::fill(there, std::byte{0});
        break;
      case 4: {
        Bytes data(there.begin(), there.end());
        const bool same = random() % 2 == 0;
        if (!same) data[random() % data.size()] ^= std::byte{1};
        const auto compared = disks.call(*disks.io, Disks::command(nv::nvm::kCompare, lba, count),
                                         data, static_cast<std::uint32_t>(data.size()));
        ASSERT_EQ(compared->status(), same ? sc::kSuccess : sc::kCompareFailure);
        break;
      }
      default:
        ASSERT_EQ(disks.read(lba, count), Bytes(there.begin(), there.end())) << "LBA " << lba;
    }
  }
}

TEST(Nvm, TheLongestTransferAndOneMore) {
  Disks disks;
  const Bytes data = random_bytes(1 << 20, 1);
  ASSERT_EQ(disks.write(3, data), sc::kSuccess);
  EXPECT_EQ(disks.read(3, 2048), data);
  EXPECT_EQ(
      disks.call(*disks.io, Disks::command(nv::nvm::kRead, 3, 2049), {}, 2049 * 512)->status(),
      sc::kInvalidField);
}

TEST(Nvm, ForceUnitAccessAndFlushAreDurable) {
  Disks disks;
  ASSERT_EQ(disks.write(0, random_bytes(4096, 1)), sc::kSuccess);
  EXPECT_GT(disks.device->unflushed_bytes(), 0u);
  ASSERT_EQ(disks.write(8, random_bytes(4096, 2), nv::nvm::kForceUnitAccess), sc::kSuccess);
  EXPECT_EQ(disks.device->unflushed_bytes(), 0u);
  ASSERT_EQ(disks.write(0, random_bytes(4096, 3)), sc::kSuccess);
  EXPECT_GT(disks.device->unflushed_bytes(), 0u);
  ASSERT_EQ(disks.call(*disks.io, sqe(nv::nvm::kFlush, kDiskNsid))->status(), sc::kSuccess);
  EXPECT_EQ(disks.device->unflushed_bytes(), 0u);
}

// NVM Command Set specification, 3.2.4: what it has read is on the medium.
TEST(Nvm, ForceUnitAccessMakesDurableWhatIsRead) {
  for (const std::uint8_t opcode : {nv::nvm::kRead, nv::nvm::kCompare}) {
    Disks disks;
    const Bytes data = random_bytes(16384, 1);
    const auto get = [&](std::uint32_t flags) {
      nv::Sqe out = Disks::command(opcode, 4, 24);
      out.cdw12 |= flags;
      const bool reads = opcode == nv::nvm::kRead;
      const Bytes part(data.begin() + 2048, data.begin() + 2048 + 24 * 512);
      const auto done = disks.call(*disks.io, out, reads ? Bytes() : part, 24 * 512);
      EXPECT_TRUE(!reads || done->status() != sc::kSuccess || done->in == part);
      return done->status();
    };
    ASSERT_EQ(disks.write(0, data), sc::kSuccess);
    EXPECT_EQ(get(0), sc::kSuccess);
    EXPECT_GT(disks.device->unflushed_bytes(), 0u);
    disks.device->fail_flushes(1);
    EXPECT_EQ(get(nv::nvm::kForceUnitAccess), sc::kUnrecoveredRead);
    EXPECT_EQ(get(nv::nvm::kForceUnitAccess), sc::kSuccess);
    EXPECT_EQ(disks.device->unflushed_bytes(), 0u);
  }
}

TEST(Nvm, NothingIsLeftToBeFlushedWhenTheWriteCacheIsOff) {
  Disks disks;
  nv::Sqe off = sqe(nv::admin::kSetFeatures, 0);
  off.cdw10 = nv::fid::kVolatileWriteCache;
  ASSERT_EQ(disks.write(0, random_bytes(4096, 1)), sc::kSuccess);
  ASSERT_GT(disks.device->unflushed_bytes(), 0u);
  disks.device->fail_flushes(1);
  EXPECT_EQ(disks.call(*disks.admin, off)->status(), sc::kInternalError) << "it stays on";
  ASSERT_EQ(disks.write(8, random_bytes(4096, 2)), sc::kSuccess);
  EXPECT_GT(disks.device->unflushed_bytes(), 0u);
  EXPECT_EQ(disks.call(*disks.admin, off)->status(), sc::kSuccess);
  EXPECT_EQ(disks.device->unflushed_bytes(), 0u);
  ASSERT_EQ(disks.write(16, random_bytes(4096, 3)), sc::kSuccess);
  EXPECT_EQ(disks.device->unflushed_bytes(), 0u);
}

TEST(Nvm, WhatWasUnderWayWhenTheWriteCacheWentOffIsDurableWhenItIsAnswered) {
  Disks disks;
  nv::Sqe off = sqe(nv::admin::kSetFeatures, 0);
  off.cdw10 = nv::fid::kVolatileWriteCache;
  disks.io->hold_pulls = true;
  const Bytes data = random_bytes(4096, 1);
  const CommandPtr write = disks.io->send(Disks::command(nv::nvm::kWrite, 0, 8), data, 4096, false);
  disks.idle_turn();
  EXPECT_FALSE(write->done);
  EXPECT_EQ(disks.call(*disks.admin, off)->status(), sc::kSuccess);
  disks.io->release_pulls();
  while (!write->done) disks.idle_turn();
  EXPECT_EQ(write->status(), sc::kSuccess);
  EXPECT_EQ(disks.device->unflushed_bytes(), 0u);
}

TEST(Nvm, RangesShareAFlushWhenTheWriteCacheIsOff) {
  Disks disks;
  nv::Sqe off = sqe(nv::admin::kSetFeatures, 0);
  off.cdw10 = nv::fid::kVolatileWriteCache;
  ASSERT_EQ(disks.call(*disks.admin, off)->status(), sc::kSuccess);
  ASSERT_EQ(disks.write(0, random_bytes(16384, 1)), sc::kSuccess);
  const PageStore& disk = *disks.rig().pool->find_nsid(kDiskNsid);
  const std::uint64_t before = disk.stats().flushes;
  EXPECT_EQ(disks.manage({{0, 8, 0}, {0, 0, 4}, {0, 4, 10}, {0, 8, 24}}, true)->status(),
            sc::kSuccess);
  EXPECT_EQ(disk.stats().flushes, before + 1);
  EXPECT_EQ(disks.device->unflushed_bytes(), 0u);
  disks.device->fail_flushes(1);
  EXPECT_EQ(disks.manage({{0, 8, 16}}, true)->status(), sc::kInternalError);
}

TEST(Nvm, WhoTurnsTheWriteCacheOffASecondTimeWaitsAsWell) {
  Disks disks;
  nv::Sqe off = sqe(nv::admin::kSetFeatures, 0);
  off.cdw10 = nv::fid::kVolatileWriteCache;
  ASSERT_EQ(disks.write(0, random_bytes(4096, 1)), sc::kSuccess);
  const CommandPtr first = disks.admin->send(off, {}, 0, false);
  const CommandPtr second = disks.admin->send(off, {}, 0, false);
  while (!second->done) disks.idle_turn();
  EXPECT_EQ(second->status(), sc::kSuccess);
  EXPECT_EQ(disks.device->unflushed_bytes(), 0u);
  while (!first->done) disks.idle_turn();
  EXPECT_EQ(first->status(), sc::kSuccess);
}

TEST(Nvm, WhatIsWrongHasItsStatus) {
  Disks disks;
  const auto status = [&](const nv::Sqe& command, std::uint32_t bytes) {
    return disks.call(*disks.io, command, {}, bytes)->status();
  };
  constexpr std::uint64_t kLbas = kDiskBytes / 512;
  for (const std::uint8_t opcode : {nv::nvm::kRead, nv::nvm::kWrite, nv::nvm::kCompare}) {
    EXPECT_EQ(status(Disks::command(opcode, kLbas - 1, 1), 512), sc::kSuccess);
    EXPECT_EQ(status(Disks::command(opcode, kLbas, 1), 512), sc::kLbaOutOfRange);
    EXPECT_EQ(status(Disks::command(opcode, kLbas - 1, 2), 1024), sc::kLbaOutOfRange);
    EXPECT_EQ(status(Disks::command(opcode, ~0ull, 2), 1024), sc::kLbaOutOfRange);
    EXPECT_EQ(status(Disks::command(opcode, 0, 8), 4095), sc::kDataSglLengthInvalid);
    EXPECT_EQ(status(Disks::command(opcode, 0, 8, 9), 4096), sc::kInvalidNamespaceOrFormat);
    EXPECT_EQ(status(Disks::command(opcode, 0, 1), 2 << 20), sc::kInvalidField) << "over MDTS";
  }
  EXPECT_EQ(status(Disks::command(nv::nvm::kWriteZeroes, kLbas, 1), 0), sc::kLbaOutOfRange);
  for (const std::uint8_t opcode : {0x04, 0x0c, 0x0f, 0x19, 0x7d, 0x10, 0x14}) {
    EXPECT_EQ(status(Disks::command(opcode, 0, 1), 0), sc::kInvalidOpcode) << unsigned{opcode};
  }
  // A command of another set is one of this set, or none.
  EXPECT_EQ(status(sqe(nv::kv::kExist, kDiskNsid), 0), sc::kInvalidOpcode);
  EXPECT_EQ(status(Disks::command(nv::nvm::kWriteZeroes, 0, 1, kPagesNsid), 0), sc::kInvalidOpcode);
}

TEST(Nvm, RangesAreLookedAtBeforeAnyIsDeallocated) {
  Disks disks;
  const Bytes data = random_bytes(8192, 1);
  ASSERT_EQ(disks.write(0, data), sc::kSuccess);
  constexpr std::uint64_t kLbas = kDiskBytes / 512;
  EXPECT_EQ(disks.manage({{0, 8, 0}, {0, 1, kLbas}}, true)->status(), sc::kLbaOutOfRange);
  EXPECT_EQ(disks.manage({{0, 8, 0}, {0, ~0u, kLbas - 1}}, true)->status(), sc::kLbaOutOfRange);
  EXPECT_EQ(disks.manage({{0, 8, 0}}, false)->status(), sc::kSuccess) << "a hint";
  nv::Sqe two = sqe(nv::nvm::kDatasetManagement, kDiskNsid);
  two.cdw10 = 1;
  two.cdw11 = nv::nvm::kDeallocate;
  EXPECT_EQ(disks.call(*disks.io, two, Bytes(16), 16)->status(), sc::kDataSglLengthInvalid);
  EXPECT_EQ(disks.read(0, 16), data);
  EXPECT_EQ(disks.manage({{0, 8, 0}}, true)->status(), sc::kSuccess);
  Bytes rest(data);
  std::fill_n(rest.begin(), 4096, std::byte{0});
  EXPECT_EQ(disks.read(0, 16), rest);
}

TEST(Nvm, AllOfAThinDiskIsDeallocatedAtOnce) {
  Disks disks;
  std::vector<nv::DatasetRange> ranges;  // as mkfs does: 256 ranges of nearly 4 GiB each
  constexpr std::uint64_t kStep = kLargeBytes / 4096 / 256;
  for (std::uint64_t i = 0; i < 256; ++i) {
    ranges.push_back({0, static_cast<std::uint32_t>(kStep), i * kStep});
  }
  EXPECT_EQ(disks.manage(ranges, true, kLargeNsid)->status(), sc::kSuccess);
}

TEST(Nvm, ADamagedBlockIsNotServed) {
  Disks disks;
  ASSERT_EQ(disks.write(0, random_bytes(4096, 1)), sc::kSuccess);
  ASSERT_EQ(disks.write(8, random_bytes(4096, 2)), sc::kSuccess);
  const Geometry& geometry = disks.rig().device->geometry();
  disks.device->fail_reads(Lba{0}, geometry.zone_size_lbas * geometry.zone_count);
  EXPECT_EQ(disks.call(*disks.io, Disks::command(nv::nvm::kRead, 0, 16), {}, 8192)->status(),
            sc::kUnrecoveredRead);
  disks.device->heal();
  EXPECT_EQ(disks.read(8, 8), random_bytes(4096, 2));
}

TEST(Nvm, WhatTheDeviceDoesNotWriteIsAWriteFault) {
  Disks disks;
  ASSERT_EQ(disks.write(0, random_bytes(4096, 1)), sc::kSuccess);
  const Geometry& geometry = disks.rig().device->geometry();
  disks.device->fail_writes(Lba{0}, geometry.zone_size_lbas * geometry.zone_count);
  const Bytes data = random_bytes(4096, 2);
  const auto done = disks.call(*disks.io, Disks::command(nv::nvm::kWrite, 0, 8), data, 4096);
  EXPECT_EQ(done->status(), sc::kWriteFault);
  EXPECT_FALSE(done->cqe.dnr()) << "it may be written when it is sent again";
  disks.device->heal();
  EXPECT_EQ(disks.read(0, 8), random_bytes(4096, 1));
  EXPECT_EQ(disks.write(0, data), sc::kSuccess);
  EXPECT_EQ(disks.read(0, 8), data);
}

// What a Compare or a Read is to a reservation, and what all the others are.
TEST(Nvm, AnotherHostsReservation) {
  Disks disks;
  FakeConnection& other = disks.join(9);
  nv::Sqe enrol = sqe(nv::reservation::kRegister, kDiskNsid);
  Bytes keys(16);
  ASSERT_EQ(disks.call(other, enrol, keys, 16)->status(), sc::kSuccess);
  const Bytes zeroes(512);
  nv::Sqe manage = sqe(nv::nvm::kDatasetManagement, kDiskNsid);
  manage.cdw11 = nv::nvm::kDeallocate;
  const auto check = [&](std::uint16_t reads, std::uint16_t writes) {
    for (const std::uint8_t opcode : {nv::nvm::kRead, nv::nvm::kCompare}) {
      const auto done = disks.call(*disks.io, Disks::command(opcode, 8, 1), zeroes, 512);
      EXPECT_EQ(done->status(), reads) << unsigned{opcode};
    }
    EXPECT_EQ(disks.write(0, zeroes), writes);
    const nv::Sqe write_zeroes = Disks::command(nv::nvm::kWriteZeroes, 0, 1);
    EXPECT_EQ(disks.call(*disks.io, write_zeroes)->status(), writes);
    EXPECT_EQ(disks.call(*disks.io, manage, Bytes(16), 16)->status(), writes);
    EXPECT_EQ(disks.call(*disks.io, sqe(nv::nvm::kFlush, kDiskNsid))->status(), writes);
    EXPECT_EQ(disks.call(*disks.io, sqe(0x0C, kDiskNsid))->status(), sc::kInvalidOpcode);
  };
  const auto acquire = [&](std::uint32_t how) {
    nv::Sqe command = sqe(nv::reservation::kAcquire, kDiskNsid);
    command.cdw10 = how;
    ASSERT_EQ(disks.call(other, command, keys, 16)->status(), sc::kSuccess);
  };
  check(sc::kSuccess, sc::kSuccess);
  acquire(1u << 8);
  check(sc::kSuccess, sc::kReservationConflict);
  acquire(2u << 8 | 1);  // preempts itself: Exclusive Access
  check(sc::kReservationConflict, sc::kReservationConflict);
  EXPECT_EQ(disks.call(other, Disks::command(nv::nvm::kWrite, 0, 1), zeroes, 512)->status(),
            sc::kSuccess);
}

// While commands are under way: they end as they were begun, the next ones are of the new size.
TEST(NvmCommands, AHostIsToldOfADiskThatGrew) {
  Disks disks;
  nv::Sqe enable = sqe(nv::admin::kSetFeatures);
  enable.cdw10 = nv::fid::kAsyncEvent;
  enable.cdw11 = 1u << 8;
  ASSERT_EQ(disks.call(*disks.admin, enable)->status(), sc::kSuccess);
  const auto event = disks.admin->send(sqe(nv::admin::kAsyncEvent), {}, 0, false);
  constexpr std::uint64_t kLbas = kDiskBytes / 512, kMoreBytes = kDiskBytes + (3 << 20);
  const Bytes data(4096, std::byte{7});
  EXPECT_EQ(disks.write(kLbas, data), sc::kLbaOutOfRange);
  nv::Sqe running = Disks::command(nv::nvm::kWrite, kLbas - 8, 8);
  const auto under_way = disks.io->send(running, data, 4096, false);
  const auto answer =
      disks.rig().pool->resize_volume("disk", {.quota_bytes = 18 << 20, .block_bytes = kMoreBytes});
  ASSERT_EQ(answer.status.code(), Code::no_space) << "`large` has all the rest";
  const std::uint64_t quota = answer.quota_bytes_max;
  ASSERT_TRUE(disks.rig().pool->resize_volume("disk", {.block_bytes = kMoreBytes}).status.ok());
  disks.subsystem().namespaces_changed();
  Bytes identified = disks.identify(0, kDiskNsid)->in;
  EXPECT_EQ(read<std::uint64_t>(identified, 0), kMoreBytes / 512) << "NSZE";
  EXPECT_EQ(read<std::uint64_t>(identified, 8), kMoreBytes / 512) << "NCAP";
  ASSERT_TRUE(event->done);
  EXPECT_EQ(event->cqe.dw0, 2u | 0x04u << 16) << "namespace attribute changed";
  nv::Sqe log = sqe(nv::admin::kGetLogPage, nv::kNsidAll);
  log.cdw10 = nv::lid::kChangedNamespaces | 1023u << 16;
  const Bytes changed = disks.call(*disks.admin, log, {}, 4096)->in;
  EXPECT_EQ(read<std::uint32_t>(changed, 0), kDiskNsid);
  EXPECT_EQ(read<std::uint32_t>(changed, 4), 0u) << "no other";
  EXPECT_EQ(disks.write(kLbas, data), sc::kSuccess);
  EXPECT_EQ(disks.write(kMoreBytes / 512 - 8, data), sc::kSuccess);
  EXPECT_EQ(disks.write(kMoreBytes / 512 - 7, data), sc::kLbaOutOfRange);
  EXPECT_EQ(under_way->status(), sc::kSuccess);
  EXPECT_EQ(disks.read(kLbas - 8, 8), data);
  EXPECT_EQ(disks.read(kLbas, 8), data);
  // Of another quota a thin disk's capacity speaks.
  ASSERT_LT(quota, std::uint64_t{18} << 20);
  ASSERT_TRUE(disks.rig().pool->resize_volume("disk", {.quota_bytes = 6 << 20}).status.ok());
  disks.subsystem().namespaces_changed();
  identified = disks.identify(0, kDiskNsid)->in;
  EXPECT_EQ(read<std::uint64_t>(identified, 0), kMoreBytes / 512) << "NSZE";
  EXPECT_EQ(read<std::uint64_t>(identified, 8), (6u << 20) / 512) << "NCAP";
}

}  // namespace
}  // namespace furrow::test
