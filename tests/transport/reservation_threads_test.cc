// Establishes that what a reservation promises holds between reactors on threads of their own:
// hosts on both fight for one by Acquire and by Preempt and Abort, while others that are not
// registered write to the same key without pause. Whoever has it, and has waited for what was under
// way, reads what it wrote, for as long as it has it. Meant to run under TSan too. How: the Server
// of lanes.h.
#include <gtest/gtest.h>

#include <random>

#include "tests/transport/lanes.h"
#include "transport/nvme_reservation.h"

namespace furrow::test {
namespace {

namespace resv = nv::reservation;

constexpr std::uint32_t kExclusiveAccess = 2u << 8, kAbort = 2;
constexpr std::uint32_t kValueBytes = 512, kKey = 77;

nv::Sqe on_the_key(std::uint8_t opcode) {
  nv::Sqe command = sqe(opcode, 1);
  command.cdw2 = kKey;
  command.cdw11 = 4;
  command.cdw10 = kValueBytes;
  return command;
}
Bytes value_of(unsigned who) { return Bytes(kValueBytes, static_cast<std::byte>(who)); }

// Stores and deletes, as far as it may.
class Intruder final : public LaneWorker {
 public:
  using LaneWorker::LaneWorker;
  void step() override {
    for (CommandPtr& command : in_flight_) {
      if (command != nullptr && !command->done) continue;
      if (command != nullptr) {
        ++answered;
        refused += command->status() == sc::kReservationConflict ? 1 : 0;
      }
      if (connection_.close_asked) continue;
      const bool store = ++sent_ % 4 != 0;
      const nv::Sqe next = on_the_key(store ? nv::kv::kStore : nv::kv::kDelete);
      command = store ? connection_.send(next, value_of(0xEE), kValueBytes, sent_ % 2 == 0)
                      : connection_.send(next, {}, 0, false);
    }
  }
  std::uint64_t refused = 0;

 private:
  std::array<CommandPtr, 4> in_flight_;
  unsigned sent_ = 0;
};

// One of two hosts that want the namespace for themselves, one command after another.
class Rival final : public LaneWorker {
 public:
  Rival(FakeConnection& connection, unsigned number)
      : LaneWorker(connection), number_(number), random_(number) {}

  void step() override {
    if (command_ != nullptr && !command_->done) return;
    if (command_ != nullptr) {
      ++answered;
      next(command_->status());
    }
    command_ = connection_.close_asked ? nullptr : send();
  }
  std::uint64_t terms = 0, lost = 0;  // times that it had it; that it was taken away within one

 private:
  enum class Stage { enrol, acquire, preempt, confirm, settle, store, read, release };

  // Another host may preempt this one at any time: then it begins anew.
  void next(std::uint16_t status) {
    if (status != sc::kSuccess && status != sc::kKeyNotFound) {
      EXPECT_EQ(status, sc::kReservationConflict) << static_cast<int>(stage_);
      const bool may_preempt = stage_ == Stage::acquire && random_() % 2 == 0;
      if (stage_ > Stage::preempt) ++lost;
      stage_ = may_preempt ? Stage::preempt : Stage::enrol;
      return;
    }
    if (stage_ == Stage::read) {
      its_own_ &= status == sc::kSuccess && command_->in == value_of(number_);
      if (--reads_ != 0) return;
    }
    if (stage_ == Stage::store) {
      reads_ = 3;
      its_own_ = true;
    }
    // Only a host that is still registered may release, and this one registers in no other stage:
    // it had it all the time. (Between two of its commands it may have been preempted and the other
    // one have released: then everybody may read and write, and this one is not told.)
    if (stage_ == Stage::release) {
      EXPECT_TRUE(its_own_) << "somebody else wrote";
      ++terms;
    }
    stage_ = after(stage_);
  }
  // Who has preempted another one has waited for it already; who has acquired what was free waits
  // for what others had begun by preempting itself. If the other one had released in the meantime,
  // preempting has ended its registration, and nobody has anything.
  Stage after(Stage stage) const {
    switch (stage) {
      case Stage::acquire:
        return Stage::settle;
      case Stage::confirm:
        return holds() ? Stage::store : Stage::enrol;
      case Stage::release:
        return Stage::enrol;
      default:
        return static_cast<Stage>(static_cast<int>(stage) + 1);
    }
  }
  // By the report that has come.
  bool holds() const {
    resv::RegisteredController entry;
    for (std::size_t at = sizeof(resv::StatusHeader); at + sizeof entry <= command_->in.size();
         at += sizeof entry) {
      std::memcpy(&entry, command_->in.data() + at, sizeof entry);
      if (entry.rkey == number_) return (entry.rcsts & 1) != 0;
    }
    return false;
  }
  CommandPtr send() {
    switch (stage_) {
      case Stage::enrol:
        return reserve(resv::kRegister, 2 | resv::kIgnoreExistingKey | persist(), 0, number_);
      case Stage::acquire:
        return reserve(resv::kAcquire, kExclusiveAccess, number_, 0);
      case Stage::preempt:
        return reserve(resv::kAcquire, kExclusiveAccess | kAbort, number_, 3 - number_);
      case Stage::confirm:
        return report();
      case Stage::settle:
        return reserve(resv::kAcquire, kExclusiveAccess | kAbort, number_, number_);
      case Stage::store:
        return connection_.send(on_the_key(nv::kv::kStore), value_of(number_), kValueBytes, true);
      case Stage::read:
        return connection_.send(on_the_key(nv::kv::kRetrieve), {}, kValueBytes, false);
      default:
        return reserve(resv::kRelease, kExclusiveAccess, number_, 0);
    }
  }
  CommandPtr report() {
    constexpr std::uint32_t kBytes =
        sizeof(resv::StatusHeader) + 2 * sizeof(resv::RegisteredController);
    nv::Sqe command = sqe(resv::kReport, 1);
    command.cdw10 = kBytes / 4 - 1;
    command.cdw11 = resv::kExtended;
    return connection_.send(command, {}, kBytes, false);
  }
  // Now and then all of it is to persist, or no more: then the pool's home has a word in it.
  std::uint32_t persist() {
    constexpr std::uint32_t kAny[] = {resv::kPersistKeep, resv::kPersistOff, resv::kPersistOn};
    return kAny[random_() % 3] << resv::kPersistShift;
  }
  CommandPtr reserve(std::uint8_t opcode, std::uint32_t how, std::uint64_t first,
                     std::uint64_t second) {
    nv::Sqe command = sqe(opcode, 1);
    command.cdw10 = how;
    Bytes keys(16);
    std::memcpy(keys.data(), &first, 8);
    std::memcpy(keys.data() + 8, &second, 8);
    return connection_.send(command, keys, 16, false);
  }

  const unsigned number_;  // also its key, and what it writes: 1 or 2
  std::mt19937 random_;
  Stage stage_ = Stage::enrol;
  unsigned reads_ = 0;
  bool its_own_ = true;  // what it has read since it stored
  CommandPtr command_;
};

// The I/O queue of a host of its own.
FakeConnection& join(Server& server, unsigned lane, std::uint8_t hostid) {
  ConnectOptions options;
  options.hostid = hostid;
  options.kato_ms = 0;
  FakeConnection *admin = nullptr, *io = nullptr;
  server.on(lane, [&](Lane& its) { admin = &its.open(); });
  const std::uint16_t cntlid = connect(server, lane, *admin, nv::kCntlidDynamic, 0, options);
  call(server, lane, *admin, set_cc(World::kCcOn));
  server.on(lane, [&](Lane& its) { io = &its.open(); });
  connect(server, lane, *io, cntlid, 1, options);
  return *io;
}

TEST(ReservationThreads, OnlyTheHolderWrites) {
  Server server;
  std::array<Rival*, 2> rivals{};
  std::array<Intruder*, 2> intruders{};
  for (unsigned lane = 0; lane < 2; ++lane) {
    FakeConnection& its = join(server, lane, static_cast<std::uint8_t>(lane + 1));
    FakeConnection& strange = join(server, lane, static_cast<std::uint8_t>(lane + 11));
    server.on(lane, [&](Lane& here) {
      auto rival = std::make_unique<Rival>(its, lane + 1);
      auto intruder = std::make_unique<Intruder>(strange);
      rivals[lane] = rival.get();
      intruders[lane] = intruder.get();
      here.workers.push_back(std::move(rival));
      here.workers.push_back(std::move(intruder));
    });
  }
  // Until each has had it, lost it, and been in the others' way, often enough.
  const auto enough = [&] {
    bool all = true;
    for (unsigned lane = 0; lane < 2; ++lane) {
      server.on(lane, [&](Lane&) {
        all &=
            rivals[lane]->terms >= 15 && rivals[lane]->lost >= 3 && intruders[lane]->refused >= 50;
      });
    }
    return all;
  };
  while (!enough() && !::testing::Test::HasFailure()) server.turn(100);
  for (unsigned lane = 0; lane < 2; ++lane) {
    server.on(lane, [&](Lane&) {
      std::printf("host %u had it %llu times and lost it %llu times\n", lane + 1,
                  static_cast<unsigned long long>(rivals[lane]->terms),
                  static_cast<unsigned long long>(rivals[lane]->lost));
    });
  }
}

}  // namespace
}  // namespace furrow::test
