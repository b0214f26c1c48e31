// Establishes reservations as hosts see them: the four commands from capsule to answer, what they
// do to the commands of other hosts on both reactors, also to those under way, what is told of
// them in Identify, logs, events and features, and the status of everything that is wrong. How:
// hosts without a wire over a pool of plain maps; what a reservation means is reservations_test's.
#include <gtest/gtest.h>

#include "tests/transport/reservation_member.h"
#include "transport/reservation_log.h"
#include "transport/reservations.h"

namespace furrow::test {
namespace {

TEST(ReservationCommands, WhatIsSaidOfThem) {
  World world;
  Member a(world, 1, 0);
  const auto controller = world.identify(*a.admin, 0x01);
  EXPECT_NE(read<std::uint16_t>(controller->in, offsetof(nv::IdentifyController, oncs)) & 1 << 5,
            0);
  EXPECT_NE(read<std::uint8_t>(controller->in, offsetof(nv::IdentifyController, cmic)) & 1 << 1, 0);
  struct Place {
    std::uint8_t cns, csi;
    std::size_t nmic, rescap;
  };
  for (const Place& place : {Place{0x00, 0, 30, 31}, {0x05, 1, 26, 27}, {0x08, 0, 1, 2}}) {
    const auto page = world.identify(*a.admin, place.cns, 1, place.csi);
    EXPECT_EQ(read<std::uint8_t>(page->in, place.nmic), 1) << unsigned{place.cns};
    EXPECT_EQ(read<std::uint8_t>(page->in, place.rescap), 0xFF) << unsigned{place.cns};
  }
}

TEST(ReservationCommands, AHostKeepsAnotherOneOut) {
  World world;
  Member a(world, 1, 0), b(world, 2, 1);
  EXPECT_EQ(a.acquire(kWriteExclusive, 11), sc::kReservationConflict) << "not registered";
  ASSERT_EQ(a.enrol(11), sc::kSuccess);
  EXPECT_EQ(a.acquire(kWriteExclusive, 12), sc::kReservationConflict) << "another key";
  EXPECT_EQ(b.store(), sc::kSuccess) << "registrants alone forbid nothing";
  ASSERT_EQ(a.acquire(kWriteExclusive, 11), sc::kSuccess);
  EXPECT_EQ(a.store(), sc::kSuccess);
  const CommandPtr refused = b.send_store();
  world.run();
  EXPECT_EQ(refused->status(), sc::kReservationConflict);
  EXPECT_TRUE(refused->cqe.dnr());
  EXPECT_EQ(b.retrieve(), sc::kSuccess);
  nv::Sqe flush = sqe(nv::kv::kFlush, 1);
  EXPECT_EQ(world.call(*b.io, flush)->status(), sc::kReservationConflict);
  EXPECT_EQ(a.release(kExclusiveAccess, 11), sc::kInvalidField);
  ASSERT_EQ(a.release(kWriteExclusive, 11), sc::kSuccess);
  EXPECT_EQ(b.store(), sc::kSuccess);
  ASSERT_EQ(a.acquire(kExclusiveAccess, 11), sc::kSuccess);
  EXPECT_EQ(b.retrieve(), sc::kReservationConflict);
  // Once it has registered it may, of the type that is for registrants.
  ASSERT_EQ(a.acquire(kWriteExclusiveRegistrants, 11, kPreempt, 11), sc::kSuccess);
  EXPECT_EQ(b.store(), sc::kReservationConflict);
  ASSERT_EQ(b.enrol(22), sc::kSuccess);
  EXPECT_EQ(b.store(), sc::kSuccess);
  EXPECT_EQ(b.clear(22), sc::kSuccess);
  EXPECT_EQ(a.acquire(kWriteExclusive, 11), sc::kReservationConflict) << "cleared";
}

TEST(ReservationCommands, TheReport) {
  World world;
  Member a(world, 1, 0), b(world, 2, 1), watcher(world, 3, 1);
  ASSERT_EQ(b.enrol(0x2222222222222222), sc::kSuccess);
  ASSERT_EQ(a.enrol(0x1111111111111111), sc::kSuccess);
  ASSERT_EQ(b.acquire(kWriteExclusive, 0x2222222222222222), sc::kSuccess);
  const Bytes page = watcher.report()->in;
  ASSERT_EQ(page.size(), 4096u);
  const auto header = read<resv::StatusHeader>(page, 0);
  EXPECT_EQ(header.gen, 2u);
  EXPECT_EQ(header.rtype, kWriteExclusive);
  EXPECT_EQ(header.regctl[0], 2);
  EXPECT_EQ(header.regctl[1], 0);
  EXPECT_EQ(header.ptpls, 0);
  for (unsigned i = 0; i < 2; ++i) {
    const auto entry = read<resv::RegisteredController>(page, 64 + 64 * i);
    EXPECT_EQ(entry.cntlid, 0xFFFF);
    EXPECT_EQ(entry.rcsts, i);
    EXPECT_EQ(entry.rkey, i == 0 ? 0x1111111111111111 : 0x2222222222222222);
    EXPECT_EQ(entry.hostid[0], i + 1);
    EXPECT_EQ(entry.hostid[15], i + 1);
  }
  EXPECT_EQ(read<std::uint64_t>(page, 192), 0u) << "nothing after them";
  EXPECT_EQ(watcher.report(100)->in, Bytes(page.begin(), page.begin() + 100)) << "cut";
  EXPECT_EQ(watcher.report(4)->in.size(), 4u);
  EXPECT_EQ(watcher.report(4096, 0)->status(), sc::kHostIdInconsistent);
  EXPECT_EQ(watcher.report(2 << 20)->status(), sc::kInvalidField) << "over MDTS";
}

TEST(ReservationCommands, WhatIsWrongHasItsStatus) {
  World world;
  Member a(world, 1, 0);
  ASSERT_EQ(a.enrol(1), sc::kSuccess);
  constexpr std::uint32_t kIekey = 1u << 3;
  for (const std::uint32_t how : {3u, 7u, 1u << 30}) {
    EXPECT_EQ(a.status(resv::kRegister, how, 1, 1), sc::kInvalidField) << how;
  }
  EXPECT_EQ(a.status(resv::kRegister, 2u << 30, 0, 1), sc::kSuccess) << "it does not persist";
  for (const std::uint32_t how : {1u << 8 | 3, 1u << 8 | kIekey, 0u, 7u << 8, 255u << 8}) {
    EXPECT_EQ(a.status(resv::kAcquire, how, 1), sc::kInvalidField) << how;
  }
  for (const std::uint32_t how : {1u << 8 | 2, 1u << 8 | kIekey}) {
    EXPECT_EQ(a.status(resv::kRelease, how, 1), sc::kInvalidField) << how;
  }
  for (const auto& [opcode, bytes] :
       {std::pair(resv::kRegister, 15u), {resv::kAcquire, 15u}, {resv::kRelease, 7u}}) {
    nv::Sqe command = sqe(opcode, 1);
    command.cdw10 = opcode == resv::kRegister ? 0 : 1u << 8;
    EXPECT_EQ(world.call(*a.io, command, {}, bytes)->status(), sc::kDataSglLengthInvalid);
    EXPECT_EQ(world.call(*a.io, command, {}, 8196)->status(), sc::kInvalidField);
    command.nsid = 2;
    EXPECT_EQ(world.call(*a.io, command, {}, 16)->status(), sc::kInvalidNamespaceOrFormat);
    command.nsid = 1;
    command.sgl_type = 0x40;
    EXPECT_EQ(world.call(*a.io, command, {}, 16)->status(), sc::kSglTypeInvalid);
    command.sgl_type = nv::kSglTransport;
    a.io->pull_status = Status(Code::protocol, Origin::transport, "digest");
    EXPECT_EQ(world.call(*a.io, command, {}, 16)->status(), sc::kTransientTransportError);
  }
  const auto report = a.report();
  EXPECT_EQ(read<std::uint32_t>(report->in, 0), 2u) << "two registrations, no more";
  EXPECT_EQ(read<std::uint8_t>(report->in, 4), 0) << "nothing is held";
  Member nobody(world, 0, 1);  // its host identifier is zero
  EXPECT_EQ(nobody.enrol(1), sc::kCommandSequenceError);
  EXPECT_EQ(nobody.acquire(kWriteExclusive, 1), sc::kCommandSequenceError);
  EXPECT_EQ(nobody.clear(1), sc::kCommandSequenceError);
  EXPECT_EQ(nobody.report()->status(), sc::kSuccess);
}

TEST(ReservationCommands, ItIsTheHostsAndNotItsControllers) {
  World world;
  Member a(world, 1, 0), b(world, 2, 1);
  ASSERT_EQ(a.enrol(11), sc::kSuccess);
  ASSERT_EQ(a.acquire(kExclusiveAccess, 11), sc::kSuccess);
  Member again(world, 1, 1);
  EXPECT_EQ(again.store(), sc::kSuccess);
  a.io->disconnect();
  a.admin->disconnect();
  again.io->disconnect();
  again.admin->disconnect();
  world.run();
  EXPECT_EQ(b.store(), sc::kReservationConflict) << "it stays when the host is gone";
  Member back(world, 1, 1);
  EXPECT_EQ(back.store(), sc::kSuccess);
  EXPECT_EQ(back.enrol(11), sc::kSuccess);
  EXPECT_EQ(back.status(resv::kRegister, 1, 11), sc::kSuccess) << "unregister";
  EXPECT_EQ(b.store(), sc::kSuccess);
}

TEST(ReservationCommands, ANamespaceThatIsDeletedForgetsAndOneThatIsResizedDoesNot) {
  World world;
  Member a(world, 1, 0), b(world, 2, 1);
  VolumeOptions second;
  second.name = "second";
  second.nsid = 2;
  second.quota_bytes = kFakeZoneBytes * 3;
  ASSERT_TRUE(world.pool.create_volume(second).ok());
  world.subsystem->namespaces_changed();
  world.run();
  a.nsid = b.nsid = 2;
  ASSERT_EQ(a.enrol(11), sc::kSuccess);
  ASSERT_EQ(a.acquire(kWriteExclusive, 11), sc::kSuccess);
  ASSERT_TRUE(world.pool.resize_volume("second", {.quota_bytes = kFakeZoneBytes * 4}).status.ok());
  world.subsystem->namespaces_changed();
  world.run();
  EXPECT_EQ(b.store(), sc::kReservationConflict);
  EXPECT_EQ(a.store(), sc::kSuccess);
  b.nsid = 1;
  EXPECT_EQ(b.store(), sc::kSuccess) << "of another namespace";
  world.subsystem->withdraw_namespace(2, [] {});
  world.run();
  ASSERT_TRUE(world.pool.delete_volume("second").ok());
  ASSERT_TRUE(world.pool.create_volume(second).ok());
  world.subsystem->namespaces_changed();
  world.run();
  b.nsid = 2;
  EXPECT_EQ(b.store(), sc::kSuccess);
  EXPECT_EQ(read<std::uint32_t>(a.report()->in, 0), 0u) << "GEN";
}

// A deletion that fails: what hosts have set was not theirs to lose.
TEST(ReservationCommands, ANamespaceThatIsGivenBackHasForgottenNothing) {
  World world;
  Member a(world, 1, 0), b(world, 2, 1);
  ASSERT_EQ(a.enrol(11), sc::kSuccess);
  ASSERT_EQ(a.acquire(kExclusiveAccess, 11), sc::kSuccess);
  ASSERT_EQ(world.set_feature(*a.admin, nv::fid::kKvConfig, 1, 1)->status(), sc::kSuccess);
  EXPECT_EQ(world.pool.keeps, 0u) << "nor is it to outlive the power";
  world.subsystem->withdraw_namespace(1, [] {});
  world.run();
  world.subsystem->namespaces_changed();
  world.run();
  EXPECT_EQ(b.store(), sc::kInvalidNamespaceOrFormat) << "another change does not bring it back";
  ASSERT_TRUE(world.pool.resize_volume("pages", {.quota_bytes = kFakeZoneBytes * 4}).status.ok());
  world.subsystem->namespaces_changed();
  world.run();
  EXPECT_EQ(b.store(), sc::kInvalidNamespaceOrFormat) << "nor does a resize";
  world.subsystem->give_back_namespace(1);
  world.run();
  EXPECT_EQ(b.store(), sc::kReservationConflict);
  EXPECT_EQ(a.store(), sc::kSuccess);
  const auto header = read<resv::StatusHeader>(a.report()->in, 0);
  EXPECT_EQ(header.gen, 1u);
  EXPECT_EQ(header.regctl[0], 1);
  EXPECT_EQ(world.get_feature(*a.admin, nv::fid::kKvConfig, 1)->cqe.dw0, 1u);
  EXPECT_EQ(read<std::uint64_t>(world.identify(*a.admin, 0x05, 1, nv::csi::kKv)->in, 0),
            kFakeZoneBytes * 4)
      << "NSZE";
}

TEST(ReservationCommands, HostsAreNotified) {
  World world;
  Member a(world, 1, 0), b(world, 2, 1);
  EXPECT_EQ(b.notification().count, 0u);
  EXPECT_EQ(b.notification().type, 0);
  ASSERT_EQ(a.enrol(11), sc::kSuccess);
  ASSERT_EQ(b.enrol(22), sc::kSuccess);
  ASSERT_EQ(b.acquire(kWriteExclusiveRegistrants, 22), sc::kSuccess);
  const CommandPtr event = b.wait_for_event(), second = b.wait_for_event();
  ASSERT_EQ(a.acquire(kWriteExclusiveRegistrants, 11, kPreempt, 22), sc::kSuccess);
  ASSERT_TRUE(event->done);
  EXPECT_EQ(event->cqe.dw0, 0x80'00'06u);
  ASSERT_EQ(b.enrol(22), sc::kSuccess);
  ASSERT_EQ(a.release(kWriteExclusiveRegistrants, 11), sc::kSuccess);
  ASSERT_EQ(a.clear(11), sc::kSuccess);
  EXPECT_FALSE(second->done) << "the first one has not been looked at";
  const auto kept = b.notification(true);
  EXPECT_EQ(kept.more, 2);
  for (std::uint8_t i = 1; i <= 3; ++i) {
    const auto page = b.notification();
    EXPECT_EQ(page.count, i);
    EXPECT_EQ(page.type, i) << "registration preempted, reservation released, and preempted";
    EXPECT_EQ(page.more, 3 - i);
    EXPECT_EQ(page.nsid, 1u);
    EXPECT_TRUE(second->done) << "there was more";
  }
  EXPECT_EQ(b.notification().count, 0u);
  EXPECT_FALSE(b.wait_for_event()->done) << "all of it was read";
  EXPECT_EQ(a.notification().count, 0u) << "who does it is not told";
}

TEST(ReservationCommands, NotificationsAreMaskedAndBounded) {
  World world;
  Member a(world, 1, 0), b(world, 2, 1);
  const auto preempt = [&] {  // of b's registration
    ASSERT_EQ(a.enrol(11), sc::kSuccess);
    ASSERT_EQ(b.enrol(22), sc::kSuccess);
    ASSERT_EQ(a.acquire(kWriteExclusive, 11, kPreempt, 22), sc::kSuccess);
  };
  ASSERT_EQ(world.set_feature(*b.admin, nv::fid::kReservationMask, 1u << 1, 1)->status(), 0);
  EXPECT_EQ(world.get_feature(*b.admin, nv::fid::kReservationMask, 1)->cqe.dw0, 1u << 1);
  preempt();
  EXPECT_EQ(b.notification().count, 0u);
  ASSERT_EQ(world.set_feature(*b.admin, nv::fid::kReservationMask, ~0u, nv::kNsidAll)->status(), 0);
  EXPECT_EQ(world.get_feature(*b.admin, nv::fid::kReservationMask, 1)->cqe.dw0, 0x0eu);
  ASSERT_EQ(world.set_feature(*b.admin, nv::fid::kReservationMask, 0, 1)->status(), 0);
  constexpr auto kMax = static_cast<unsigned>(transport::ReservationLog::kPagesMax);
  for (unsigned i = 0; i < kMax + 3; ++i) preempt();
  EXPECT_EQ(b.notification().more, kMax - 1);
  for (unsigned i = 1; i < kMax; ++i) EXPECT_EQ(b.notification().count, i + 1);
  EXPECT_EQ(b.notification().count, 0u);
  preempt();
  EXPECT_EQ(b.notification().count, kMax + 4) << "three were lost, and the host sees that";
  preempt();
  b.io->disconnect();
  world.run();
  ASSERT_EQ(world.set_cc(*b.admin, 0)->status(), sc::kSuccess);
  ASSERT_EQ(world.set_cc(*b.admin, World::kCcOn)->status(), sc::kSuccess);
  EXPECT_EQ(b.notification().count, 0u) << "a reset forgets them";
}

// A deletion that is called off leaves the namespace as it was; another volume's is another one.
TEST(ReservationCommands, TheMaskGoesWithTheVolume) {
  World world;
  Member a(world, 1, 0);
  const auto mask = [&] {
    return world.get_feature(*a.admin, nv::fid::kReservationMask, 1)->cqe.dw0;
  };
  constexpr std::uint32_t kMask = 1u << 2;
  ASSERT_EQ(world.set_feature(*a.admin, nv::fid::kReservationMask, kMask, 1)->status(), 0);
  world.subsystem->withdraw_namespace(1, [] {});
  world.run();
  EXPECT_EQ(world.get_feature(*a.admin, nv::fid::kReservationMask, 1)->status(),
            sc::kInvalidNamespaceOrFormat);
  world.subsystem->give_back_namespace(1);
  world.run();
  EXPECT_EQ(mask(), kMask);
  ASSERT_TRUE(world.pool.delete_volume("pages").ok());
  world.subsystem->namespaces_changed();
  VolumeOptions other;
  other.name = "other";
  other.nsid = 1;
  ASSERT_TRUE(world.pool.create_volume(other).ok());
  world.subsystem->namespaces_changed();  // before the host's controller has heard of the first
  world.run();
  EXPECT_EQ(mask(), 0u);
}

TEST(ReservationCommands, Features) {
  World world;
  Member a(world, 9, 0);
  const auto id = world.get_feature(*a.admin, nv::fid::kHostId, 0, 1, 16);
  EXPECT_EQ(id->status(), sc::kSuccess);
  EXPECT_EQ(id->cqe.dw0, 1u);
  EXPECT_EQ(id->in, Bytes(16, std::byte{9}));
  EXPECT_EQ(world.get_feature(*a.admin, nv::fid::kHostId, 0, 0, 16)->status(), sc::kInvalidField);
  EXPECT_EQ(world.set_feature(*a.admin, nv::fid::kHostId, 1)->status(), sc::kCommandSequenceError);
  for (const std::uint8_t feature : {nv::fid::kReservationMask, nv::fid::kReservationPersistence}) {
    EXPECT_EQ(world.get_feature(*a.admin, feature, 1)->status(), sc::kSuccess);
    EXPECT_EQ(world.get_feature(*a.admin, feature, 1)->cqe.dw0, 0u);
    EXPECT_EQ(world.get_feature(*a.admin, feature, nv::kNsidAll)->status(), sc::kInvalidField);
    EXPECT_EQ(world.get_feature(*a.admin, feature, 5)->status(), sc::kInvalidNamespaceOrFormat);
    EXPECT_EQ(world.set_feature(*a.admin, feature, 0, 5)->status(), sc::kInvalidNamespaceOrFormat);
    EXPECT_EQ(world.set_feature(*a.admin, feature, 0, nv::kNsidAll)->status(), sc::kSuccess);
  }
}

TEST(ReservationCommands, TheFeatureReservationPersistence) {
  World world;
  Member a(world, 1, 0), b(world, 2, 1);
  VolumeOptions second;
  second.name = "second";
  second.nsid = 2;
  ASSERT_TRUE(world.pool.create_volume(second).ok());
  world.subsystem->namespaces_changed();
  world.run();
  ASSERT_EQ(a.enrol(11), sc::kSuccess);
  EXPECT_EQ(world.pool.keeps, 0u);
  const auto set = [&](std::uint32_t value, std::uint32_t nsid) {
    return world.set_feature(*a.admin, nv::fid::kReservationPersistence, value, nsid)->status();
  };
  const auto get = [&](std::uint32_t nsid) {
    return world.get_feature(*b.admin, nv::fid::kReservationPersistence, nsid)->cqe.dw0;
  };
  EXPECT_EQ(set(1, 1), sc::kSuccess);
  EXPECT_EQ(get(1), 1u);
  EXPECT_EQ(get(2), 0u);
  EXPECT_EQ(read<resv::StatusHeader>(a.report()->in, 0).ptpls, 1);
  ASSERT_EQ(world.pool.kept.size(), 1u);
  EXPECT_EQ(world.pool.kept[1].registrants.size(), 1u) << "who was there before";
  EXPECT_EQ(set(1, 1), sc::kSuccess);
  EXPECT_EQ(world.pool.keeps, 1u) << "it was so";
  EXPECT_EQ(set(1, nv::kNsidAll), sc::kSuccess);
  EXPECT_EQ(get(2), 1u);
  EXPECT_TRUE(world.pool.kept[2].persists);
  world.pool.keep_failure = Status(Code::io_error, Origin::engine, "fake");
  EXPECT_EQ(set(0, nv::kNsidAll), sc::kInternalError);
  EXPECT_EQ(get(1), 1u) << "it stays as it was";
  world.pool.keep_failure = Status();
  EXPECT_EQ(set(0, 1), sc::kSuccess);
  EXPECT_EQ(get(1), 0u);
  EXPECT_EQ(world.pool.kept[1], transport::Reservations().record(1));
  EXPECT_EQ(read<resv::StatusHeader>(a.report()->in, 0).regctl[0], 1) << "it is forgotten later";
}

TEST(ReservationCommands, WhatIsToPersistIsKeptBeforeItIsAnswered) {
  World world;
  Member a(world, 1, 0), b(world, 2, 1);
  constexpr std::uint32_t kPersist = 3u << 30, kForget = 2u << 30;
  ASSERT_EQ(a.status(resv::kRegister, kPersist, 0, 11), sc::kSuccess);
  ASSERT_EQ(world.pool.kept.size(), 1u);
  ReservationRecord& kept = world.pool.kept[1];
  EXPECT_TRUE(kept.persists);
  EXPECT_EQ(kept.generation, 1u);
  EXPECT_EQ(kept.type, 0);
  ASSERT_EQ(kept.registrants.size(), 1u);
  EXPECT_EQ(kept.registrants[0].key, 11u);
  EXPECT_EQ(kept.registrants[0].host[0], 1);
  // The pool's answer comes later than the next command.
  const CommandPtr acquire = a.send(resv::kAcquire, kExclusiveAccess << 8, 11);
  const CommandPtr enrol = b.send(resv::kRegister, 0, 0, 22);
  const CommandPtr taken = b.send(resv::kAcquire, kExclusiveAccess << 8, 22);
  world.run();
  EXPECT_EQ(acquire->status(), sc::kSuccess);
  EXPECT_EQ(enrol->status(), sc::kSuccess);
  EXPECT_EQ(taken->status(), sc::kReservationConflict);
  EXPECT_EQ(world.pool.keeps, 3u) << "a refusal changes nothing";
  EXPECT_EQ(kept.type, kExclusiveAccess);
  EXPECT_EQ(kept.holder, kept.registrants[0].host);
  EXPECT_EQ(kept.registrants.size(), 2u);

  world.pool.keep_failure = Status(Code::no_space, Origin::engine, "fake");
  const ReservationRecord before = kept;
  EXPECT_EQ(a.release(kExclusiveAccess, 11), sc::kInternalError);
  EXPECT_EQ(b.store(), sc::kReservationConflict) << "nothing has changed";
  EXPECT_EQ(a.acquire(kExclusiveAccess, 11), sc::kSuccess) << "nor would this change anything";
  EXPECT_EQ(b.status(resv::kRegister, kPersist | 1, 23), sc::kReservationConflict);
  world.pool.keep_failure = Status(Code::not_found, Origin::engine, "deleted meanwhile");
  EXPECT_EQ(a.clear(11), sc::kInvalidNamespaceOrFormat);
  EXPECT_EQ(kept, before);
  world.pool.keep_failure = Status();

  // What was kept comes back, whoever else knew of it.
  const auto restart = [&] {
    world.restart();
    a.connect();
    b.connect();
  };
  restart();
  EXPECT_EQ(b.store(), sc::kReservationConflict);
  EXPECT_EQ(a.store(), sc::kSuccess);
  const auto header = read<resv::StatusHeader>(b.report()->in, 0);
  EXPECT_EQ(header.gen, 2u);
  EXPECT_EQ(header.regctl[0], 2);
  EXPECT_EQ(header.ptpls, 1);

  ASSERT_EQ(b.status(resv::kRegister, kForget | 2, 22, 23), sc::kSuccess);
  EXPECT_EQ(kept, transport::Reservations().record(1));
  EXPECT_EQ(b.store(), sc::kReservationConflict) << "until the power is lost";
  restart();
  EXPECT_EQ(b.store(), sc::kSuccess);
  EXPECT_EQ(read<resv::StatusHeader>(b.report()->in, 0).gen, 0u);
}

}  // namespace
}  // namespace furrow::test
