// Establishes the fused operation Compare and Write: it writes if it finds what it expects and else
// does not, both commands are answered with the status that says which of them failed, and whatever
// is no such pair (one without the other, others between, other opcodes, LBAs, namespaces, queues,
// lengths, data that does not come, aborts, reservations, connections that end) writes nothing and
// leaves the queue as it was. How: hosts without a wire, over a real pool in memory.
#include <gtest/gtest.h>

#include "tests/engine/block/disk.h"
#include "tests/transport/served_pool.h"
#include "transport/nvme_reservation.h"

namespace furrow::test {
namespace {

constexpr std::uint32_t kDisk = 2;
constexpr std::uint32_t kBytesOfLba = 512;
using Pair = std::pair<CommandPtr, CommandPtr>;
using Statuses = std::pair<std::uint16_t, std::uint16_t>;

class FusedDisk : public ServedPool {
 public:
  FusedDisk() : ServedPool("mem:64MiB?zone_size=2MiB") {
    VolumeOptions disk = testing::block_options(4 << 20, kBytesOfLba);
    disk.quota_bytes = 16 << 20;
    EXPECT_TRUE(rig().pool->create_volume(disk).ok());
    serve(nv::kCssAll);
    EXPECT_EQ(write(0, old), sc::kSuccess);
  }

  static nv::Sqe command(std::uint8_t opcode, std::uint8_t fuse, std::uint64_t lba = 2,
                         std::uint32_t lbas = 2) {
    nv::Sqe out = sqe(opcode, kDisk);
    out.flags |= fuse;
    out.cdw10 = static_cast<std::uint32_t>(lba);
    out.cdw12 = lbas - 1;
    return out;
  }
  static nv::Sqe compare(std::uint64_t lba = 2, std::uint32_t lbas = 2) {
    return command(nv::nvm::kCompare, nv::kFuseFirst, lba, lbas);
  }
  static nv::Sqe second(std::uint64_t lba = 2, std::uint32_t lbas = 2) {
    return command(nv::nvm::kWrite, nv::kFuseSecond, lba, lbas);
  }
  CommandPtr send(const nv::Sqe& sqe, const Bytes& data) { return send(*io, sqe, data); }
  CommandPtr send(FakeConnection& queue, const nv::Sqe& sqe, const Bytes& data) {
    return queue.send(sqe, data, static_cast<std::uint32_t>(data.size()), false);
  }
  Pair send_pair(const Bytes& expected, const Bytes& wanted) {
    Pair pair;
    pair.first = send(compare(), expected);
    pair.second = send(second(), wanted);
    return pair;
  }
  Statuses wait(const Pair& pair) {
    settle();
    return {pair.first->status(), pair.second->status()};
  }
  // As soon as both are answered: what was durable then is noted, and that note is not, a little
  // later.
  Statuses wait_no_longer(const Pair& pair) {
    while (!pair.first->done || !pair.second->done) idle_turn();
    return {pair.first->status(), pair.second->status()};
  }
  // Long enough for everything that goes on by itself: some commands are answered meanwhile.
  void settle() {
    for (int i = 0; i < 3; ++i) identify(0x01, 0);
    for (int i = 0; i < 50; ++i) idle_turn();
  }
  std::uint16_t write(std::uint64_t lba, const Bytes& data) {
    const auto lbas = static_cast<std::uint32_t>(data.size() / kBytesOfLba);
    return call(*io, command(nv::nvm::kWrite, 0, lba, lbas), data,
                static_cast<std::uint32_t>(data.size()))
        ->status();
  }
  Bytes read_all() {
    const auto done = call(*io, command(nv::nvm::kRead, 0, 0, 16), {}, 8192);
    EXPECT_EQ(done->status(), sc::kSuccess);
    return done->in;
  }
  void expect_unchanged() { EXPECT_EQ(read_all(), old); }
  void expect_written() {
    Bytes now = old;
    std::copy(next.begin(), next.end(), now.begin() + 2 * kBytesOfLba);
    EXPECT_EQ(read_all(), now);
  }
  std::uint16_t abort(const CommandPtr& command, std::uint16_t queue = 1) {
    nv::Sqe out = sqe(nv::admin::kAbort);
    out.cdw10 = queue | std::uint32_t{command->sqe.cid} << 16;
    const auto done = call(*admin, out);
    EXPECT_EQ(done->status(), sc::kSuccess);
    return static_cast<std::uint16_t>(done->cqe.dw0);  // 1: not aborted
  }

  const Bytes old = testing::content(1, 1, 8192);
  const Bytes there{old.begin() + 2 * kBytesOfLba, old.begin() + 4 * kBytesOfLba};
  const Bytes next = testing::content(2, 1, 2 * kBytesOfLba);
};

TEST(Fused, WritesWhatItFindsAsExpected) {
  FusedDisk disk;
  EXPECT_EQ(disk.wait(disk.send_pair(disk.there, disk.next)), (Statuses{0, 0}));
  disk.expect_written();
  EXPECT_EQ(disk.wait(disk.send_pair(disk.there, disk.old)),
            (Statuses{sc::kCompareFailure, sc::kFailedFused}));
  disk.expect_written();
  EXPECT_EQ(disk.wait(disk.send_pair(disk.next, disk.next)), (Statuses{0, 0}));
  disk.expect_written();
}

TEST(Fused, ManyAtOnceAreDecidedOneByOne) {
  FusedDisk disk;
  std::vector<Pair> pairs;
  std::vector<Bytes> values{disk.there};
  for (unsigned i = 0; i < 12; ++i) values.push_back(testing::content(10 + i, 1, 1024));
  for (unsigned i = 0; i < 12; ++i) pairs.push_back(disk.send_pair(disk.there, values[i + 1]));
  unsigned written = 0;
  for (unsigned i = 0; i < 12; ++i) {
    const Statuses statuses = disk.wait(pairs[i]);
    if (statuses == Statuses{0, 0}) {
      ++written;
      Bytes now = disk.read_all();
      EXPECT_TRUE(std::equal(values[i + 1].begin(), values[i + 1].end(), now.begin() + 1024));
    } else {
      EXPECT_EQ(statuses, (Statuses{sc::kCompareFailure, sc::kFailedFused}));
    }
  }
  EXPECT_EQ(written, 1u) << "of all that expect the same, one";
}

TEST(Fused, IsDurableIfTheWriteIsToBe) {
  FusedDisk disk;
  EXPECT_GT(disk.device->unflushed_bytes(), 0u);
  Pair pair;
  pair.first = disk.send(FusedDisk::compare(), disk.there);
  nv::Sqe write = FusedDisk::second();
  write.cdw12 |= nv::nvm::kForceUnitAccess;
  pair.second = disk.send(write, disk.next);
  EXPECT_EQ(disk.wait_no_longer(pair), (Statuses{0, 0}));
  EXPECT_EQ(disk.device->unflushed_bytes(), 0u);
}

// Likewise if the Compare is: what it has found is, or what was written in its place.
TEST(Fused, WhatWasComparedIsDurableIfItIsToBe) {
  for (const bool equal : {true, false}) {
    SCOPED_TRACE(equal);
    FusedDisk disk;
    const auto try_pair = [&] {
      Pair pair;
      nv::Sqe compare = FusedDisk::compare();
      compare.cdw12 |= nv::nvm::kForceUnitAccess;
      pair.first = disk.send(compare, equal ? disk.there : disk.next);
      pair.second = disk.send(FusedDisk::second(), disk.there);
      return disk.wait_no_longer(pair);
    };
    ASSERT_GT(disk.device->unflushed_bytes(), 0u);
    disk.device->fail_flushes(1);
    const Statuses failed = equal ? Statuses{sc::kFailedFused, sc::kWriteFault}
                                  : Statuses{sc::kUnrecoveredRead, sc::kFailedFused};
    EXPECT_EQ(try_pair(), failed);
    const Statuses done = equal ? Statuses{0, 0} : Statuses{sc::kCompareFailure, sc::kFailedFused};
    EXPECT_EQ(try_pair(), done);
    EXPECT_EQ(disk.device->unflushed_bytes(), 0u);
    disk.expect_unchanged();
  }
}

TEST(Fused, OneWithoutTheOther) {
  FusedDisk disk;
  const CommandPtr alone = disk.send(FusedDisk::second(), disk.next);
  const CommandPtr first = disk.send(FusedDisk::compare(), disk.there);
  disk.settle();
  EXPECT_EQ(alone->status(), sc::kMissingFused);
  EXPECT_FALSE(first->done) << "the second one may yet come";
  // Anything else that comes: a command that is none of it, and which is done.
  const CommandPtr between = disk.io->send(FusedDisk::command(nv::nvm::kRead, 0), {}, 1024, false);
  const CommandPtr late = disk.send(FusedDisk::second(), disk.next);
  disk.settle();
  EXPECT_EQ(first->status(), sc::kMissingFused);
  EXPECT_EQ(between->status(), sc::kSuccess);
  EXPECT_EQ(between->in, disk.there);
  EXPECT_EQ(late->status(), sc::kMissingFused);
  // A first one after a first one, of which the later one has a second.
  const CommandPtr twice = disk.send(FusedDisk::compare(), disk.there);
  const Pair pair = disk.send_pair(disk.there, disk.next);
  EXPECT_EQ(disk.wait(pair), (Statuses{0, 0}));
  EXPECT_EQ(twice->status(), sc::kMissingFused);
  disk.expect_written();
}

TEST(Fused, WhatIsNoPair) {
  FusedDisk disk;
  const auto try_pair = [&](const nv::Sqe& first, const nv::Sqe& second) {
    Pair pair;
    pair.first = disk.send(first, disk.there);
    pair.second = disk.send(second, disk.next);
    const Statuses statuses = disk.wait(pair);
    disk.expect_unchanged();
    return statuses;
  };
  const nv::Sqe compare = FusedDisk::compare(), write = FusedDisk::second();
  const Statuses invalid{sc::kInvalidField, sc::kInvalidField};
  const Statuses unknown_first{sc::kInvalidField, sc::kFailedFused};
  const Statuses unknown_second{sc::kFailedFused, sc::kInvalidField};
  for (const std::uint8_t opcode : {nv::nvm::kRead, nv::nvm::kWrite, nv::nvm::kFlush}) {
    EXPECT_EQ(try_pair(FusedDisk::command(opcode, nv::kFuseFirst), write), unknown_first);
  }
  for (const std::uint8_t opcode : {nv::nvm::kRead, nv::nvm::kCompare, nv::nvm::kWriteZeroes}) {
    EXPECT_EQ(try_pair(compare, FusedDisk::command(opcode, nv::kFuseSecond)), unknown_second);
  }
  EXPECT_EQ(try_pair(compare, FusedDisk::command(nv::nvm::kWrite, 3)),
            (Statuses{sc::kMissingFused, sc::kInvalidField}));
  EXPECT_EQ(try_pair(compare, FusedDisk::second(3)), invalid) << "other LBAs";
  EXPECT_EQ(try_pair(compare, FusedDisk::second(2, 1)), invalid) << "fewer";
  nv::Sqe far = write;
  far.cdw11 = 1;
  EXPECT_EQ(try_pair(compare, far), invalid);
  nv::Sqe elsewhere = write;
  elsewhere.nsid = 9;
  EXPECT_EQ(try_pair(compare, elsewhere),
            (Statuses{sc::kFailedFused, sc::kInvalidNamespaceOrFormat}));
  elsewhere.nsid = 1;  // pages
  EXPECT_EQ(try_pair(compare, elsewhere), unknown_second);
  nv::Sqe prp = compare;
  prp.flags = nv::kFuseFirst;
  EXPECT_EQ(try_pair(prp, write), unknown_first);
  nv::Sqe nowhere = compare;
  nowhere.nsid = 9;
  EXPECT_EQ(try_pair(nowhere, write), (Statuses{sc::kInvalidNamespaceOrFormat, sc::kFailedFused}));
}

// Only what follows a refused first command at once fails with it.
TEST(Fused, OneFailsForOneOnly) {
  FusedDisk disk;
  const nv::Sqe wrong = FusedDisk::command(nv::nvm::kRead, nv::kFuseFirst);
  const Pair pair{disk.send(wrong, disk.there), disk.send(FusedDisk::second(), disk.next)};
  const CommandPtr another = disk.send(FusedDisk::second(), disk.next);
  disk.send(wrong, disk.there);
  const CommandPtr between = disk.io->send(FusedDisk::command(nv::nvm::kRead, 0), {}, 1024, false);
  const CommandPtr late = disk.send(FusedDisk::second(), disk.next);
  disk.send(wrong, disk.there);
  const Pair good = disk.send_pair(disk.there, disk.next);
  const CommandPtr alone = disk.send(FusedDisk::second(), disk.old);
  EXPECT_EQ(disk.wait(pair), (Statuses{sc::kInvalidField, sc::kFailedFused}));
  EXPECT_EQ(another->status(), sc::kMissingFused);
  EXPECT_EQ(between->status(), sc::kSuccess);
  EXPECT_EQ(late->status(), sc::kMissingFused);
  EXPECT_EQ(disk.wait(good), (Statuses{0, 0}));
  EXPECT_EQ(alone->status(), sc::kMissingFused);
  disk.expect_written();
}

TEST(Fused, RangesAndLengths) {
  FusedDisk disk;
  constexpr std::uint64_t kLbas = (4 << 20) / kBytesOfLba;
  const auto try_pair = [&](std::uint64_t lba, std::uint32_t lbas, std::uint32_t first_bytes,
                            std::uint32_t second_bytes) {
    Pair pair;
    pair.first = disk.send(FusedDisk::compare(lba, lbas), Bytes(first_bytes));
    pair.second = disk.send(FusedDisk::second(lba, lbas), Bytes(second_bytes));
    const Statuses statuses = disk.wait(pair);
    disk.expect_unchanged();
    return statuses;
  };
  EXPECT_EQ(try_pair(kLbas, 1, 512, 512), (Statuses{sc::kLbaOutOfRange, sc::kFailedFused}));
  EXPECT_EQ(try_pair(kLbas - 1, 2, 1024, 1024), (Statuses{sc::kLbaOutOfRange, sc::kFailedFused}));
  const Statuses too_long{sc::kAtomicWriteUnitExceeded, sc::kFailedFused};
  EXPECT_EQ(try_pair(0, 9, 4608, 4608), too_long);
  EXPECT_EQ(try_pair(7, 2, 1024, 1024), too_long) << "of two blocks of 4 KiB";
  EXPECT_EQ(try_pair(0, 2, 1023, 1024), (Statuses{sc::kDataSglLengthInvalid, sc::kFailedFused}));
  EXPECT_EQ(try_pair(0, 2, 1024, 512), (Statuses{sc::kFailedFused, sc::kDataSglLengthInvalid}));
  EXPECT_EQ(try_pair(0, 2, 512, 512),
            (Statuses{sc::kDataSglLengthInvalid, sc::kDataSglLengthInvalid}));
  EXPECT_EQ(try_pair(0, 2, 32769, 1024), (Statuses{sc::kInvalidField, sc::kFailedFused}));
  EXPECT_EQ(try_pair(kLbas - 8, 8, 32768, 32768), (Statuses{0, 0})) << "more data than needed";
}

// Whatever it waits for, a host that sends no second command does not keep a volume from going.
TEST(Fused, TheNamespaceGoesMeanwhile) {
  FusedDisk disk;
  const Pair before = disk.send_pair(disk.there, disk.next);
  EXPECT_EQ(disk.wait(before), (Statuses{0, 0}));
  const CommandPtr first = disk.send(FusedDisk::compare(), disk.next);
  bool idle = false;
  disk.subsystem().withdraw_namespace(kDisk, [&] { idle = true; });
  disk.settle();
  EXPECT_TRUE(idle);
  EXPECT_FALSE(first->done);
  const Pair gone{first, disk.send(FusedDisk::second(), disk.old)};
  EXPECT_EQ(disk.wait(gone),
            (Statuses{sc::kInvalidNamespaceOrFormat, sc::kInvalidNamespaceOrFormat}));
  // Back in time, it is as if it had always been there.
  disk.subsystem().give_back_namespace(kDisk);
  disk.settle();
  const CommandPtr next = disk.send(FusedDisk::compare(), disk.next);
  disk.subsystem().withdraw_namespace(kDisk, [] {});
  disk.settle();
  disk.subsystem().give_back_namespace(kDisk);
  disk.settle();
  const Pair back{next, disk.send(FusedDisk::second(), disk.next)};
  EXPECT_EQ(disk.wait(back), (Statuses{0, 0}));
  disk.expect_written();
  // A pair under way is waited for, both commands of it.
  disk.io->hold_pulls = true;
  const Pair last = disk.send_pair(disk.next, disk.next);
  idle = false;
  disk.subsystem().withdraw_namespace(kDisk, [&] { idle = true; });
  disk.settle();
  EXPECT_FALSE(idle);
  disk.io->release_pulls();
  EXPECT_EQ(disk.wait(last), (Statuses{0, 0}));
  EXPECT_TRUE(idle);
}

TEST(Fused, AnotherQueueIsAnotherMatter) {
  FusedDisk disk;
  FakeConnection& other = disk.join(9);
  const CommandPtr first = disk.send(FusedDisk::compare(), disk.there);
  const CommandPtr foreign = disk.send(other, FusedDisk::second(), disk.old);
  disk.settle();
  EXPECT_EQ(foreign->status(), sc::kMissingFused);
  EXPECT_FALSE(first->done);
  const Pair pair{first, disk.send(FusedDisk::second(), disk.next)};
  EXPECT_EQ(disk.wait(pair), (Statuses{0, 0}));
  disk.expect_written();
}

TEST(Fused, Aborts) {
  FusedDisk disk;
  const CommandPtr first = disk.send(FusedDisk::compare(), disk.there);
  EXPECT_EQ(disk.abort(first), 0);
  EXPECT_EQ(first->status(), sc::kAbortRequested);
  EXPECT_EQ(disk.abort(first), 1) << "it is no more";
  const CommandPtr alone = disk.send(FusedDisk::second(), disk.next);
  disk.settle();
  EXPECT_EQ(alone->status(), sc::kMissingFused);
  // While all buffers are in use, which is when a pair waits.
  disk.io->hold_pulls = true;
  std::vector<CommandPtr> writes;
  for (int i = 0; i < 16; ++i) {
    writes.push_back(disk.send(FusedDisk::command(nv::nvm::kWrite, 0, 64, 2), disk.there));
  }
  const Pair one = disk.send_pair(disk.there, disk.next);
  const Pair two = disk.send_pair(disk.there, disk.next);
  EXPECT_EQ(disk.abort(one.first), 0);
  EXPECT_EQ(disk.abort(two.second), 0);
  disk.io->release_pulls();
  EXPECT_EQ(disk.wait(one), (Statuses{sc::kAbortRequested, sc::kFailedFused}));
  EXPECT_EQ(disk.wait(two), (Statuses{sc::kFailedFused, sc::kAbortRequested}));
  for (const CommandPtr& write : writes) EXPECT_EQ(write->status(), sc::kSuccess);
  disk.expect_unchanged();
}

TEST(Fused, DataThatDoesNotCome) {
  FusedDisk disk;
  const Status damaged(Code::protocol, Origin::transport, "digest");
  disk.io->pull_status = damaged;
  EXPECT_EQ(disk.wait(disk.send_pair(disk.there, disk.next)),
            (Statuses{sc::kTransientTransportError, sc::kFailedFused}));
  disk.io->hold_pulls = true;
  const Pair pair = disk.send_pair(disk.there, disk.next);
  disk.settle();
  disk.io->release_pulls();  // of the first alone: the second's has not been asked for
  disk.io->run_once();
  disk.io->pull_status = damaged;
  EXPECT_EQ(disk.wait(pair), (Statuses{sc::kFailedFused, sc::kTransientTransportError}));
  disk.expect_unchanged();
}

// At each moment of a pair: with the first command alone, while either's data is on its way.
TEST(Fused, ConnectionsThatEnd) {
  FusedDisk disk;
  for (int moment = 0; moment < 4; ++moment) {
    FakeConnection& other = disk.join(static_cast<std::uint8_t>(10 + moment));
    other.hold_pulls = moment > 0;
    disk.send(other, FusedDisk::compare(), disk.there);
    if (moment > 0) disk.send(other, FusedDisk::second(), disk.next);
    disk.settle();
    if (moment == 2) {
      other.release_pulls();
      other.hold_pulls = true;
      other.run_once();  // now the second's
      EXPECT_EQ(other.in_flight(), 2u);
    }
    moment == 3 ? other.close() : other.disconnect();
    disk.settle();
    if (moment == 3) other.disconnect();
    disk.settle();
    EXPECT_EQ(other.in_flight(), 0u) << moment;
    disk.expect_unchanged();
  }
}

// A target that stops waits for what it has accepted, but not for what it will not accept.
TEST(Fused, NothingMoreComes) {
  FusedDisk disk;
  const CommandPtr first = disk.send(FusedDisk::compare(), disk.there);
  disk.reactor().on_last_request(*disk.io);
  disk.settle();
  EXPECT_EQ(first->status(), sc::kAbortedSqDeletion);
  EXPECT_FALSE(first->cqe.dnr());
}

TEST(Fused, AnotherHostsReservation) {
  FusedDisk disk;
  FakeConnection& other = disk.join(9);
  const Bytes keys(16);
  nv::Sqe reserve = sqe(nv::reservation::kRegister, kDisk);
  ASSERT_EQ(disk.call(other, reserve, keys, 16)->status(), sc::kSuccess);
  reserve = sqe(nv::reservation::kAcquire, kDisk);
  reserve.cdw10 = 1u << 8;  // Write Exclusive: what it compares it could read
  disk.io->hold_pulls = true;
  const Pair under_way = disk.send_pair(disk.there, disk.next);
  ASSERT_EQ(disk.call(other, reserve, keys, 16)->status(), sc::kSuccess);
  disk.io->release_pulls();
  const Statuses conflict{sc::kReservationConflict, sc::kFailedFused};
  EXPECT_EQ(disk.wait(under_way), conflict);
  EXPECT_EQ(disk.wait(disk.send_pair(disk.there, disk.next)), conflict);
  disk.expect_unchanged();
}

// While the data of the second command is on its way, the pair having had its turn.
TEST(Fused, WhatHappensWhileTheSecondsDataIsOnItsWay) {
  FusedDisk disk;
  const auto pull_the_seconds = [&](FakeConnection& queue) {
    queue.hold_pulls = true;
    const Pair pair{disk.send(queue, FusedDisk::compare(), disk.there),
                    disk.send(queue, FusedDisk::second(), disk.next)};
    disk.settle();
    queue.release_pulls();
    queue.hold_pulls = true;
    queue.run_once();
    return pair;
  };
  FakeConnection& other = disk.join(9);
  const Bytes keys(16);
  nv::Sqe reserve = sqe(nv::reservation::kRegister, kDisk);
  ASSERT_EQ(disk.call(other, reserve, keys, 16)->status(), sc::kSuccess);
  reserve = sqe(nv::reservation::kAcquire, kDisk);
  reserve.cdw10 = 1u << 8;
  const Pair kept_out = pull_the_seconds(*disk.io);
  ASSERT_EQ(disk.call(other, reserve, keys, 16)->status(), sc::kSuccess);
  disk.io->release_pulls();
  EXPECT_EQ(disk.wait(kept_out), (Statuses{sc::kReservationConflict, sc::kFailedFused}));
  disk.expect_unchanged();
  reserve = sqe(nv::reservation::kRelease, kDisk);
  reserve.cdw10 = 1u << 8;
  ASSERT_EQ(disk.call(other, reserve, Bytes(8), 8)->status(), sc::kSuccess);
  const Pair deleted = pull_the_seconds(*disk.io);
  nv::Sqe disable = fabrics(nv::fabrics::kPropertySet);
  disable.cdw11 = nv::property::kCc;
  disk.io->stuck = true;
  EXPECT_EQ(disk.call(*disk.admin, disable)->status(), sc::kSuccess);
  disk.io->release_pulls();
  EXPECT_EQ(disk.wait(deleted), (Statuses{sc::kAbortedSqDeletion, sc::kAbortedSqDeletion}));
  disk.io->stuck = false;
  EXPECT_EQ(disk.call(other, FusedDisk::command(nv::nvm::kRead, 0, 0, 16), {}, 8192)->in, disk.old);
}

TEST(Fused, MediaErrors) {
  FusedDisk disk;
  const Geometry& geometry = disk.rig().device->geometry();
  disk.device->fail_reads(Lba{0}, geometry.zone_size_lbas * geometry.zone_count);
  EXPECT_EQ(disk.wait(disk.send_pair(disk.there, disk.next)),
            (Statuses{sc::kUnrecoveredRead, sc::kFailedFused}))
      << "it could not be compared";
  disk.device->heal();
  disk.expect_unchanged();
  disk.device->fail_writes(Lba{0}, geometry.zone_size_lbas * geometry.zone_count);
  EXPECT_EQ(disk.wait(disk.send_pair(disk.there, disk.next)),
            (Statuses{sc::kFailedFused, sc::kWriteFault}))
      << "it could not be written";
  disk.device->heal();
  disk.expect_unchanged();
}

}  // namespace
}  // namespace furrow::test
