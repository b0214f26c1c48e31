// Establishes that memory which cannot be had while a queue is set up ends that connection and
// nothing else (CVE-2024-46737, where the failing allocation of a queue's commands took the target
// along). How: each single allocation that the target makes from accept to Connect's answer fails
// once, in turn, for an admin and for an I/O queue; a bystander goes on, all that the host was
// given comes back, and the host gets in when it tries again, also while the refused connection is
// still on its way out. And that the data of a command for which there is none costs that command.
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <thread>

#include "tests/failing_allocations.h"
#include "tests/transport/fake_engine.h"
#include "tests/transport/fake_host.h"
#include "tests/transport/fake_target.h"
#include "tests/transport/raw_host.h"
#include "tests/transport/served.h"
#include "transport/sync_initiator.h"
#include "transport/target.h"
#include "zone/event_loop.h"

namespace furrow::transport {
namespace {

class SetupMemory : public testing::TestWithParam<unsigned> {
 protected:
  SetupMemory() {
    allocations_spared = true;  // this thread's
    VolumeOptions volume;
    volume.name = "pages";
    volume.nsid = 1;
    EXPECT_TRUE(pool_.create_volume(volume).ok());
    TargetOptions options;
    options.listen_port = 0;
    options.cores = GetParam();
    options.buffer_bytes_max = 4 << 20;
    auto started = Target::start(pool_, loop_, options);
    EXPECT_TRUE(started.ok());
    target_ = std::move(*started);
    thread_ = std::thread([this] { loop_.run(); });
    admin_ = std::make_unique<RawHost>(port());
    cntlid_ = enable_controller(*admin_, nqn());
    bystander_ = std::make_unique<RawHost>(port());
    EXPECT_TRUE(set_up(*bystander_, 1));
  }
  ~SetupMemory() override {
    struct Stop : Task {
      SetupMemory* self;
    } stop;
    stop.self = this;
    stop.run = [](Task& task) {
      SetupMemory& self = *static_cast<Stop&>(task).self;
      self.target_->stop(0, [&self] { self.loop_.stop_running(); });
    };
    loop_.post(stop);
    thread_.join();
  }

  std::uint16_t port() const { return target_->port(); }
  const std::string& nqn() const { return target_->subsystem_nqn(); }
  // Whether Connect of the queue was accepted. The target may end the connection at any moment.
  bool set_up(RawHost& host, std::uint16_t qid) {
    std::byte icreq[kFrontBytesMax];
    host.send({icreq, PduEncoder::icreq(icreq, 0, false, false, 0)});
    const auto icresp = host.receive();
    if (!icresp || icresp->type != PduType::icresp) return false;
    host.initialized(*icresp);
    host.send(connect_capsule(host, nqn(), qid, cntlid_, 64));
    const auto answer = host.receive();
    if (!answer) return false;
    EXPECT_EQ(answer->type, PduType::capsule_resp);
    const nvme::Cqe cqe = answer->as<CapsuleResp>().cqe;
    if (cqe.sct_sc() == nvme::sc::kSuccess) return true;
    EXPECT_EQ(cqe.sct_sc(), nvme::sc::kControllerBusy);
    EXPECT_FALSE(cqe.dnr()) << "it may try again";
    host.expect_closed();
    return false;
  }
  void expect_bystander_served() {
    nvme::Sqe exist;
    exist.opc = nvme::kv::kExist;
    exist.nsid = 1;
    exist.cdw2 = 7;
    exist.cdw11 = 4;
    bystander_->send(bystander_->capsule(exist));
    EXPECT_EQ(bystander_->expect_response(0).sct_sc(), nvme::sc::kKeyNotFound);
  }
  void expect_connections(std::uint64_t count) {
    for (int i = 0; i < 30'000 && target_->stats().connections != count; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(target_->stats().connections, count);
  }
  // Returns how many allocations failed, one in each attempt, until there was none left to fail.
  unsigned fail_each(std::uint16_t qid) {
    for (unsigned failed = 0;; ++failed) {
      SCOPED_TRACE(failed);
      allocations_until_failure = failed;
      auto host = std::make_unique<RawHost>(port());
      const bool got_in = set_up(*host, qid);
      const bool none_failed = allocations_until_failure.exchange(-1) >= 0;
      EXPECT_TRUE(got_in || !none_failed);
      host.reset();
      expect_connections(2);
      expect_bystander_served();
      RawHost again(port());
      EXPECT_TRUE(set_up(again, qid));
      again.disconnect();
      expect_connections(2);
      if (none_failed || HasFailure()) return failed;
    }
  }

  test::FakePool pool_;
  EventLoop loop_;
  std::unique_ptr<Target> target_;
  std::thread thread_;
  std::unique_ptr<RawHost> admin_, bystander_;
  std::uint16_t cntlid_ = 0;
};

TEST_P(SetupMemory, OfAnAdminQueue) { EXPECT_GE(fail_each(0), 8u); }

TEST_P(SetupMemory, OfAnIoQueue) { EXPECT_GE(fail_each(2), 6u); }

// Each allocation that answering one of these makes fails once: whoever asked may ask again.
TEST_P(SetupMemory, OfAnAdminCommandsData) {
  const auto identify = [](std::uint8_t cns) {
    nvme::Sqe sqe;
    sqe.opc = nvme::admin::kIdentify;
    sqe.nsid = 1;
    sqe.cdw10 = cns;
    return sqe;
  };
  const auto log = [](std::uint8_t id) {
    nvme::Sqe sqe;
    sqe.opc = nvme::admin::kGetLogPage;
    sqe.cdw10 = id | 1023u << 16;
    return sqe;
  };
  unsigned failures = 0;
  for (nvme::Sqe sqe :
       {identify(0), identify(1), identify(2), identify(3), log(0), log(1), log(2), log(5)}) {
    for (unsigned failed = 0;; ++failed) {
      SCOPED_TRACE(std::to_string(sqe.opc) + " " + std::to_string(sqe.cdw10 & 0xff));
      sqe.cid = static_cast<std::uint16_t>(failed);
      allocations_until_failure = failed;
      admin_->send(admin_->capsule(sqe, {}, 4096));
      const auto answer = admin_->receive();
      const bool none_failed = allocations_until_failure.exchange(-1) >= 0;
      ASSERT_TRUE(answer.has_value());
      if (none_failed) {
        ASSERT_EQ(answer->type, PduType::c2h_data);
        const std::uint8_t flags = answer->as<PduCommon>().flags;
        if ((flags & kFlagSuccess) == 0) admin_->expect_response(sqe.cid);
        break;
      }
      ++failures;
      ASSERT_EQ(answer->type, PduType::capsule_resp);
      EXPECT_EQ(answer->as<CapsuleResp>().cqe.sct_sc(), nvme::sc::kCommandInterrupted);
      EXPECT_FALSE(answer->as<CapsuleResp>().cqe.dnr());
      expect_bystander_served();
    }
  }
  EXPECT_GE(failures, 16u);
}

// Of a host: an operation's own memory is its caller's, but of a list.
TEST_P(SetupMemory, OfAHostsList) {
  InitiatorOptions options;
  options.port = port();
  const auto host = SyncInitiator::connect(options);
  ASSERT_TRUE(host.ok()) << host.status().describe();
  const std::vector<std::byte> page = patterned(1, 100);
  ASSERT_TRUE((*host)->put(Key::from("k"), page).ok());
  Key keys[4];
  const auto list = [&] {
    PageOp op;
    op.kind = PageOp::Kind::list;
    op.keys = keys;
    op.keys_max = 4;
    (*host)->run({&op, 1});
    EXPECT_EQ(op.keys_count, op.status.ok() ? 1u : 0u);
    return op.status;
  };
  allocations_until_failure = 0;
  EXPECT_EQ(list().code(), Code::busy);
  EXPECT_EQ(allocations_until_failure, -1);
  EXPECT_TRUE(list().ok());
  EXPECT_TRUE((*host)->get(Key::from("k")).ok());
}

TEST(CommandMemory, OfDataThatNobodyHasAskedForYet) {
  allocations_spared = true;
  FakeTarget target;
  RawHost host(target.port());
  host.init();
  host.connect_queue(1, 32);
  target.on_reactor([&] { target.handler.on_late_ = [] { allocations_until_failure = 0; }; });
  const auto send = [&](std::uint16_t cid) {
    nvme::Sqe sqe;
    sqe.opc = fake::kLateWrite;
    sqe.cid = cid;
    sqe.cdw12 = cid;
    host.send(host.capsule(sqe, patterned(cid, 8192)));
  };
  send(0);
  target.eventually([&] { return target.reactor->stats().stashes_refused == 1; });
  target.on_reactor([&] { target.handler.on_late_ = nullptr; });
  send(1);
  target.eventually([&] { return target.reactor->stats().stash_bytes == 8192; });
  target.on_reactor([&] { target.handler.go_on(); });
  EXPECT_EQ(host.expect_response(0).sct_sc(), nvme::sc::kTransientTransportError);
  EXPECT_EQ(host.expect_response(1).sct_sc(), 0);
  EXPECT_EQ(target.reactor->stats().stash_bytes, 0u);
}

// A queue that could not be registered takes nothing along when it goes at last: neither the one
// that has its id by then, nor memory.
TEST(SetupMemoryOfOneQueue, ARefusedOneLeavesTheNextAlone) {
  test::World world;
  world.admin();
  test::ConnectOptions options;
  options.cntlid = world.last_cntlid;
  options.qid = 1;
  std::uint64_t bytes_before = 0;
  unsigned refused = 0, followed = 0;
  allocations_spared = false;
  for (std::int64_t failing = 0;; ++failing) {
    SCOPED_TRACE(failing);
    test::FakeConnection& first = world.open(1);
    first.stuck = true;
    const auto [command, data] = test::connect_command(options);
    const auto answer = first.send(command, data, static_cast<std::uint32_t>(data.size()), true);
    allocations_until_failure = failing;
    try {
      first.run_once();
    } catch (const std::bad_alloc&) {  // the fake's own, which has done nothing yet
    }
    const bool none_failed = allocations_until_failure.exchange(-1) >= 0;
    world.run();
    ASSERT_TRUE(answer->done);
    refused += answer->status() != nvme::sc::kSuccess;
    test::FakeConnection& second = world.open(1);
    const bool follows = world.connect(second, options)->status() == nvme::sc::kSuccess;
    followed += follows;
    first.disconnect();
    world.run();
    if (follows) {
      test::FakeConnection& third = world.open(1);
      EXPECT_EQ(world.connect(third, options)->status(), nvme::sc::kControllerBusy);
      third.disconnect();
    }
    second.disconnect();
    world.run();
    if (failing == 0) bytes_before = allocated_bytes;
    EXPECT_EQ(allocated_bytes, bytes_before);
    if (none_failed || HasFailure()) break;
  }
  EXPECT_GE(refused, 4u);
  EXPECT_GE(followed, 2u);
}

// The host's address has an entry of its own, which nobody holds when its connection came to
// nothing.
TEST(SetupMemoryOfOneQueue, AnUnopenedConnectionLeavesNothing) {
  test::World world;
  unsigned failed = 0;
  allocations_spared = false;
  std::uint64_t bytes_before = 0;
  for (std::int64_t failing = -1;; ++failing) {
    SCOPED_TRACE(failing);
    allocations_until_failure = failing;
    std::unique_ptr<test::FakeConnection> connection;
    try {
      connection = std::make_unique<test::FakeConnection>(*world.reactors[0], world.executors[0],
                                                          0x7F000001);
    } catch (const std::bad_alloc&) {
      ++failed;
    }
    const bool none_failed = allocations_until_failure.exchange(-1) >= 0;
    if (connection != nullptr) {
      connection->disconnect();
      world.run();
      connection.reset();
    }
    if (failing == -1) bytes_before = allocated_bytes;  // what one that came in leaves
    EXPECT_EQ(allocated_bytes, bytes_before);
    if (none_failed || HasFailure()) break;
  }
  EXPECT_GE(failed, 4u) << "the connection, its queue, an entry of each and of its address";
}

INSTANTIATE_TEST_SUITE_P(Cores, SetupMemory, testing::Values(1, 2));

}  // namespace
}  // namespace furrow::transport
