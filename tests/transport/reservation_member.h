// A host without a wire that takes part in reservations.
#pragma once

#include <gtest/gtest.h>

#include "tests/transport/fake_host.h"
#include "transport/nvme_reservation.h"

namespace furrow::test {

namespace resv = nv::reservation;

inline constexpr std::uint32_t kWriteExclusive = 1, kExclusiveAccess = 2,
                               kWriteExclusiveRegistrants = 3;
inline constexpr std::uint32_t kAcquire = 0, kPreempt = 1, kPreemptAndAbort = 2;

inline Bytes keys_of(std::uint64_t first, std::uint64_t second) {
  Bytes out(16);
  std::memcpy(out.data(), &first, 8);
  std::memcpy(out.data() + 8, &second, 8);
  return out;
}

// A host with an admin queue on reactor 0 and an I/O queue on the one that is named.
struct Member {
  Member(World& in, std::uint8_t its_id, unsigned its_reactor)
      : world(in), id(its_id), reactor(its_reactor) {
    connect();
  }
  void connect() {
    ConnectOptions options;
    options.hostid = id;
    options.hostnqn += std::to_string(id);
    options.kato_ms = 0;
    admin = &world.admin(options);
    cntlid = world.last_cntlid;
    io = &world.io(cntlid, 1, reactor, options);
  }
  CommandPtr send(std::uint8_t opcode, std::uint32_t how, std::uint64_t first = 0,
                  std::uint64_t second = 0) {
    nv::Sqe command = sqe(opcode, nsid);
    command.cdw10 = how;
    return io->send(command, keys_of(first, second), 16, false);
  }
  std::uint16_t status(std::uint8_t opcode, std::uint32_t how, std::uint64_t first = 0,
                       std::uint64_t second = 0) {
    const CommandPtr sent = send(opcode, how, first, second);
    world.run();
    return sent->status();
  }
  std::uint16_t enrol(std::uint64_t key) { return status(resv::kRegister, 0, 0, key); }
  std::uint16_t acquire(std::uint32_t type, std::uint64_t key, std::uint32_t action = kAcquire,
                        std::uint64_t preempted = 0) {
    return status(resv::kAcquire, action | type << 8, key, preempted);
  }
  std::uint16_t release(std::uint32_t type, std::uint64_t key) {
    return status(resv::kRelease, type << 8, key);
  }
  std::uint16_t clear(std::uint64_t key) { return status(resv::kRelease, 1, key); }
  CommandPtr report(std::uint32_t bytes = 4096, std::uint32_t extended = 1) {
    nv::Sqe command = sqe(resv::kReport, nsid);
    command.cdw10 = bytes / 4 - 1;
    command.cdw11 = extended;
    return world.call(*io, command, {}, bytes);
  }
  CommandPtr send_store() {
    nv::Sqe command = sqe(nv::kv::kStore, nsid);
    command.cdw2 = 1;
    command.cdw11 = 4;
    command.cdw10 = 100;
    return io->send(command, Bytes(100, std::byte{5}), 100, false);
  }
  std::uint16_t store() {
    const CommandPtr sent = send_store();
    world.run();
    return sent->status();
  }
  std::uint16_t retrieve() {
    nv::Sqe command = sqe(nv::kv::kRetrieve, nsid);
    command.cdw2 = 1;
    command.cdw11 = 4;
    command.cdw10 = 100;
    return world.call(*io, command, {}, 100)->status();
  }
  resv::NotificationLog notification(bool retain = false) {
    return read<resv::NotificationLog>(
        world.log(*admin, nv::lid::kReservations, 64, 0, 0, retain)->in, 0);
  }
  CommandPtr wait_for_event() { return admin->send(sqe(nv::admin::kAsyncEvent), {}, 0, false); }

  World& world;
  const std::uint8_t id;
  const unsigned reactor;
  FakeConnection *admin = nullptr, *io = nullptr;
  std::uint16_t cntlid = 0;
  std::uint32_t nsid = 1;
};

}  // namespace furrow::test
