// Establishes that reactors on threads of their own and the real engine work together under the
// controller logic: hosts with queues on both reactors run Stores, Retrieves, Deletes and Lists
// while controllers are reset, cut and made anew and a namespace comes and goes; every value that
// comes back belongs to its key, and nothing is left at the end. Meant to run under TSan too.
// How: the Server of lanes.h.
#include <gtest/gtest.h>

#include <random>

#include "tests/transport/lanes.h"

namespace furrow::test {
namespace {

constexpr unsigned kDepth = 8;
constexpr unsigned kKeys = 40;

Bytes content(unsigned key, std::uint32_t bytes) {
  Bytes out(bytes);
  for (std::uint32_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(key * 31 + i * 7);
  return out;
}

// An I/O queue that keeps kDepth random commands in flight until its connection ends.
class Worker final : public LaneWorker {
 public:
  Worker(FakeConnection& connection, unsigned seed) : LaneWorker(connection), random_(seed) {}

  void step() override {
    for (auto& command : in_flight_) {
      if (command == nullptr || command->done) {
        if (command != nullptr) check(*command);
        if (!connection_.close_asked) command = send();
      }
    }
  }

 private:
  CommandPtr send() {
    const unsigned key = random_() % kKeys;
    static constexpr std::uint8_t kOpcodes[] = {nv::kv::kStore, nv::kv::kRetrieve,
                                                nv::kv::kRetrieve, nv::kv::kDelete, nv::kv::kList};
    nv::Sqe command = sqe(kOpcodes[random_() % 5], 1);
    command.cdw2 = key;
    command.cdw11 = 4;
    command.cdw10 = 16384;
    if (command.opc == nv::kv::kDelete) return connection_.send(command, {}, 0, false);
    if (command.opc != nv::kv::kStore) return connection_.send(command, {}, 16384, false);
    command.cdw10 = 1 + random_() % 16000;
    return connection_.send(command, content(key, command.cdw10), command.cdw10, true);
  }
  void check(const Command& command) {
    ++answered;
    const std::uint16_t status = command.status();
    EXPECT_TRUE(status == sc::kSuccess || status == sc::kKeyNotFound ||
                status == sc::kAbortedSqDeletion)
        << std::hex << status;
    if (command.sqe.opc != nv::kv::kRetrieve || status != sc::kSuccess) return;
    EXPECT_EQ(command.in, content(command.sqe.cdw2, command.cqe.dw0));
  }

  std::mt19937 random_;
  std::array<CommandPtr, kDepth> in_flight_;
};

TEST(Reactors, HostsComeAndGoUnderLoad) {
  const unsigned seed = 20261121;
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  std::uint64_t answered = 0;
  {
    Server server;
    for (unsigned round = 0; round < 12; ++round) {
      const unsigned lane = random() % 2;
      FakeConnection* admin = nullptr;
      server.on(lane, [&](Lane& its) { admin = &its.open(); });
      const std::uint16_t cntlid = connect(server, lane, *admin, nv::kCntlidDynamic, 0);
      call(server, lane, *admin, set_cc(World::kCcOn));
      for (std::uint16_t qid = 1; qid <= 4; ++qid) {
        const unsigned its_lane = qid % 2;
        FakeConnection* io = nullptr;
        server.on(its_lane, [&](Lane& its) { io = &its.open(); });
        connect(server, its_lane, *io, cntlid, qid);
        const unsigned worker_seed = random();
        server.on(its_lane, [&](Lane& its) {
          its.workers.push_back(std::make_unique<Worker>(*io, worker_seed));
        });
      }
      server.turn(300);
      if (round % 4 == 1) {
        VolumeOptions volume;
        volume.name = "guest";
        volume.nsid = 2;
        volume.quota_bytes = 8 << 20;
        ASSERT_TRUE(server.pool->create_volume(volume).ok());
        server.subsystem->namespaces_changed();
        server.turn(100);
        // Under the workers' commands, on both reactors.
        const std::uint64_t quota = server.pool->find("pages")->info().options.quota_bytes;
        for (const std::uint64_t bytes : {quota + (4 << 20), quota}) {
          while (server.pool->resize_volume("pages", {.quota_bytes = bytes}).status.code() ==
                 Code::busy) {
            server.turn(1);
          }
          ASSERT_EQ(server.pool->find("pages")->info().options.quota_bytes, bytes);
          server.subsystem->namespaces_changed();
          server.turn(20);
        }
        bool idle = false;
        server.subsystem->withdraw_namespace(2, [&] { idle = true; });
        while (!idle) server.turn(1);
        ASSERT_TRUE(server.pool->delete_volume("guest").ok());
      }
      if (round % 3 == 0) {  // a reset, and CSTS.RDY falls once the queues are gone
        call(server, lane, *admin, set_cc(0));
        nv::Sqe get = fabrics(nv::fabrics::kPropertyGet);
        get.cdw11 = nv::property::kCsts;
        while (call(server, lane, *admin, get)->cqe.dw0 != 0) {
        }
      }
      if (round % 3 != 2) server.on(lane, [&](Lane&) { admin->disconnect(); });
    }
    server.turn(100);
    EXPECT_GT(server.subsystem->stats().host_writes, 0u);
    EXPECT_GT(server.subsystem->stats().host_reads, 0u);
    for (unsigned i = 0; i < 2; ++i) {
      server.on(i, [&](Lane& its) {
        for (auto& worker : its.workers) answered += worker->answered;
        answered += its.answered;
      });
    }
  }
  std::printf("%llu commands answered\n", static_cast<unsigned long long>(answered));
  EXPECT_GT(answered, 1000u);
}

// An admin queue that asks for the list of namespaces and for the health log, again and again.
class Asker final : public LaneWorker {
 public:
  using LaneWorker::LaneWorker;

  void step() override {
    if (asked_ != nullptr && !asked_->done) return;
    if (asked_ != nullptr) {
      ++answered;
      EXPECT_EQ(asked_->status(), sc::kSuccess);
    }
    nv::Sqe command = sqe(nv::admin::kIdentify, 0);
    command.cdw10 = 0x02;  // active namespaces
    if (answered % 2 == 1) {
      command = sqe(nv::admin::kGetLogPage, nv::kNsidAll);
      command.cdw10 = 127u << 16 | nv::lid::kSmart;
    }
    asked_ = connection_.send(command, {}, 4096, false);
  }

 private:
  CommandPtr asked_;
};

TEST(Reactors, NamespacesAreListedWhileTheyChange) {
  Server server;
  for (std::uint32_t nsid = 2; nsid <= 6; ++nsid) {
    VolumeOptions volume;
    volume.name = "guest" + std::to_string(nsid);
    volume.nsid = nsid;
    volume.quota_bytes = 6 << 20;
    ASSERT_TRUE(server.pool->create_volume(volume).ok());
  }
  server.subsystem->namespaces_changed();
  FakeConnection* admin = nullptr;
  server.on(1, [&](Lane& its) { admin = &its.open(); });
  connect(server, 1, *admin, nv::kCntlidDynamic, 0);
  call(server, 1, *admin, set_cc(World::kCcOn));
  server.on(1, [&](Lane& its) { its.workers.push_back(std::make_unique<Asker>(*admin)); });
  std::uint64_t answered = 0;
  for (unsigned round = 0; answered < 20000; ++round) {
    for (unsigned i = 0; i < 20; ++i) {
      server.subsystem->namespaces_changed();
      server.turn(1);
    }
    server.on(1, [&](Lane& its) { answered = its.workers[0]->answered; });
  }
}

}  // namespace
}  // namespace furrow::test
