// Establishes that the host's side understands another target than ours, that of the Linux kernel
// (nvmet over TCP): a discovery controller that keep-alives hold up, and ends without them; the
// queues of a controller; what goes into capsules, what is asked for by R2T and what comes back,
// of any length and at depth, with and without digests, byte by byte; and the status of what is
// refused. How: tests/vm/nvmet_test sets the target up in a guest and says by FURROW_NVMET at which
// port of 127.0.0.1 it is: one subsystem, `nqn.furrow-peer`, that any host may use, whose namespace
// 1 is a disk of 16 MiB or more, with LBAs of 4 KiB, that may be overwritten.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <vector>

#include "tests/transport/loopback_listener.h"
#include "transport/host_controller.h"
#include "zone/event_loop.h"

namespace furrow::transport {
namespace {

constexpr std::string_view kPeerNqn = "nqn.furrow-peer", kPeerHost = "nqn.furrow-test-host";
constexpr std::uint32_t kPeerLbaBytes = 4096;
constexpr std::chrono::seconds kPatience(120);  // the guest is slow

class KernelTarget : public testing::Test {
 protected:
  void SetUp() override {
    const char* port = std::getenv("FURROW_NVMET");
    if (port == nullptr) GTEST_SKIP() << "FURROW_NVMET names no port of a kernel's target";
    const sockaddr_in at = loopback_address(static_cast<std::uint16_t>(std::atoi(port)));
    std::memcpy(&address_, &at, sizeof at);
    auto made = SocketRing::create();
    ASSERT_TRUE(made.ok());
    ring_ = std::move(*made);
  }
  // False, with a failure: not in time.
  bool turn_until(const std::function<bool()>& done) {
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (!done()) {
      if (ring_->poll() == 0) {
        pollfd wake{ring_->wake_fd(), POLLIN, 0};
        if (ring_->before_sleep()) (void)poll(&wake, 1, 1);
      }
      if (std::chrono::steady_clock::now() < until) continue;
      ADD_FAILURE() << "nothing happens any more";
      return false;
    }
    return true;
  }

  sockaddr_storage address_{};
  std::unique_ptr<SocketRing> ring_;
};

// --- a discovery controller, as the initiator uses it ---

class KernelDiscovery : public KernelTarget, protected HostController::Owner {
 protected:
  void on_up() override { up_ = true; }
  void on_down(Status why) override { down_ = why; }
  void on_room() override {}
  void on_gone() override { gone_ = true; }

  EventLoop loop_;
  bool up_ = false, gone_ = false;
  std::optional<Status> down_;
};

TEST_F(KernelDiscovery, KeepAlivesHoldItUp) {
  HostControllerOptions options;
  options.address = address_;
  options.address_bytes = sizeof(sockaddr_in);
  options.subsystem_nqn = nvme::kDiscoveryNqn;
  options.host_nqn = kPeerHost;
  options.host_id[0] = 1;
  options.keep_alive_ms = 1000;
  options.discovery = true;
  HostController::Owner& owner = *this;
  HostController controller(*ring_, loop_, owner, options);
  loop_.add(*ring_);
  controller.start();
  const auto turn_while = [&](const auto& wanted) {
    while (wanted()) {
      if (loop_.run_once() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  };
  turn_while([&] { return !up_ && !down_; });
  EXPECT_EQ(controller.facts().subsystems, std::vector<std::string>{std::string(kPeerNqn)});
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(6);
  turn_while([&] { return !down_ && std::chrono::steady_clock::now() < until; });
  EXPECT_FALSE(down_.has_value()) << down_->describe();
  controller.end();
  turn_while([&] { return !gone_; });
  loop_.remove(*ring_);
}

// --- a controller with one I/O queue, by its queues themselves ---

struct PeerAnswer {
  Status status;
  nvme::Cqe cqe;
  std::uint32_t received_bytes = 0;
  bool done = false;
};

class KernelController : public KernelTarget, protected HostQueue::Owner {
 protected:
  using Direction = HostCommand::Direction;

  void TearDown() override {
    if (admin_ != nullptr) admin_->end();
    if (io_ != nullptr) io_->end();
    if (ring_ != nullptr) turn_until([&] { return admin_ == nullptr && io_ == nullptr; });
  }
  void on_ready(HostQueue&) override {}
  void on_down(HostQueue& queue, Status why) override {
    down_ = why;
    HostQueue* other = &queue == io_.get() ? admin_.get() : io_.get();
    if (other != nullptr) other->end();
  }
  void on_room(HostQueue&) override {}
  void on_gone(HostQueue& queue) override { (&queue == io_.get() ? io_ : admin_).reset(); }

  void open(std::unique_ptr<HostQueue>& queue, const HostQueueOptions& options) {
    HostQueue::Owner& owner = *this;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    queue = std::make_unique<HostQueue>(*ring_, owner, fd, options);
    queue->start(address_, sizeof(sockaddr_in));
    turn_until([&] { return queue == nullptr || queue->ready(); });
    ASSERT_NE(queue, nullptr) << (down_ ? down_->describe() : "");
  }
  static void submit(HostQueue& queue, const nvme::Sqe& sqe, Direction direction,
                     std::span<std::byte> data, PeerAnswer& answer) {
    HostCommand* command = queue.take();
    ASSERT_NE(command, nullptr);
    const std::uint16_t cid = command->sqe.cid;
    command->sqe = sqe;
    command->sqe.cid = cid;
    command->direction = direction;
    command->data = data.data();
    command->data_bytes = static_cast<std::uint32_t>(data.size());
    command->context = &answer;
    command->done = [](HostCommand& done, Status status) {
      *static_cast<PeerAnswer*>(done.context) = {status, done.cqe, done.received_bytes, true};
    };
    queue.submit(*command);
  }
  // The answer's status, SCT and SC; an answer that does not come is a failure.
  std::uint16_t run(std::unique_ptr<HostQueue>& queue, const nvme::Sqe& sqe,
                    Direction direction = Direction::none, std::span<std::byte> data = {}) {
    answer_ = PeerAnswer();
    if (queue == nullptr) {
      ADD_FAILURE() << "the connection is gone: " << down_.value_or(Status()).describe();
      return nvme::sc::kTransientTransportError;
    }
    submit(*queue, sqe, direction, data, answer_);
    turn_until([&] { return answer_.done; });
    EXPECT_TRUE(answer_.status.ok()) << answer_.status.describe();
    return answer_.cqe.sct_sc();
  }

  void connect(std::unique_ptr<HostQueue>& queue, std::uint16_t qid, std::uint32_t entries,
               std::uint32_t keep_alive_ms) {
    nvme::ConnectData connect;
    connect.hostid[0] = 2;
    connect.cntlid = qid == 0 ? nvme::kCntlidDynamic : cntlid_;
    kPeerNqn.copy(connect.subnqn, kPeerNqn.size());
    kPeerHost.copy(connect.hostnqn, kPeerHost.size());
    nvme::Sqe sqe;
    sqe.opc = nvme::opcode::kFabrics;
    sqe.nsid = nvme::fabrics::kConnect;
    sqe.cdw10 = std::uint32_t{qid} << 16;
    sqe.cdw11 = (entries - 1) | std::uint32_t{nvme::kCattrNoFlowControl} << 16;
    sqe.cdw12 = keep_alive_ms;
    const auto data = std::as_writable_bytes(std::span(&connect, 1));
    ASSERT_EQ(run(queue, sqe, Direction::to_target, data), nvme::sc::kSuccess);
    if (qid == 0) cntlid_ = static_cast<std::uint16_t>(answer_.cqe.dw0);
  }
  void open_admin(bool header_digest, bool data_digest, std::uint32_t keep_alive_ms) {
    HostQueueOptions options;
    options.header_digest = header_digest;
    options.data_digest = data_digest;
    ASSERT_NO_FATAL_FAILURE(open(admin_, options));
    ASSERT_NO_FATAL_FAILURE(connect(admin_, 0, options.entries, keep_alive_ms));
    nvme::Sqe enable;
    enable.opc = nvme::opcode::kFabrics;
    enable.nsid = nvme::fabrics::kPropertySet;
    enable.cdw11 = nvme::property::kCc;
    enable.cdw12 =
        nvme::kCcEnable | 6u << nvme::kCcIosqesShift | 4u << nvme::kCcIocqesShift;  // NVM alone
    ASSERT_EQ(run(admin_, enable), nvme::sc::kSuccess);
    nvme::Sqe csts;
    csts.opc = nvme::opcode::kFabrics;
    csts.nsid = nvme::fabrics::kPropertyGet;
    csts.cdw11 = nvme::property::kCsts;
    ASSERT_EQ(run(admin_, csts), nvme::sc::kSuccess);
    ASSERT_EQ(answer_.cqe.dw0 & nvme::kCstsReady, nvme::kCstsReady);
  }
  void bring_up(bool header_digest, bool data_digest) {
    ASSERT_NO_FATAL_FAILURE(open_admin(header_digest, data_digest, 0));
    nvme::IdentifyController identify;
    nvme::Sqe sqe;
    sqe.opc = nvme::admin::kIdentify;
    sqe.cdw10 = 0x01;
    const auto data = std::as_writable_bytes(std::span(&identify, 1));
    ASSERT_EQ(run(admin_, sqe, Direction::from_target, data), nvme::sc::kSuccess);
    ASSERT_EQ(answer_.received_bytes, sizeof identify);
    ASSERT_EQ(kPeerNqn, identify.subnqn);
    ASSERT_GT(identify.ioccsz, 4u);
    nvme::Sqe queues;
    queues.opc = nvme::admin::kSetFeatures;
    queues.cdw10 = nvme::fid::kQueues;
    ASSERT_EQ(run(admin_, queues), nvme::sc::kSuccess);
    HostQueueOptions options;
    options.entries = kDepth;
    options.in_capsule_bytes = identify.ioccsz * 16 - sizeof(nvme::Sqe);
    options.receive_bytes = 65536;
    options.header_digest = header_digest;
    options.data_digest = data_digest;
    ASSERT_NO_FATAL_FAILURE(open(io_, options));
    ASSERT_NO_FATAL_FAILURE(connect(io_, 1, kDepth, 0));
  }

  static nvme::Sqe transfer(std::uint8_t opcode, std::uint64_t lba, std::size_t bytes) {
    nvme::Sqe sqe;
    sqe.opc = opcode;
    sqe.nsid = 1;
    sqe.cdw10 = static_cast<std::uint32_t>(lba);
    sqe.cdw11 = static_cast<std::uint32_t>(lba >> 32);
    sqe.cdw12 = static_cast<std::uint32_t>(bytes / kPeerLbaBytes - 1);
    return sqe;
  }

  static constexpr std::uint32_t kDepth = 64;
  std::unique_ptr<HostQueue> admin_, io_;
  std::uint16_t cntlid_ = 0;
  PeerAnswer answer_;
  std::optional<Status> down_;
};

TEST_F(KernelController, WithoutKeepAlivesItIsEnded) {
  ASSERT_NO_FATAL_FAILURE(open_admin(false, false, 1000));
  turn_until([&] { return down_.has_value(); });
}

TEST_F(KernelController, WhatItRefuses) {
  ASSERT_NO_FATAL_FAILURE(bring_up(false, false));
  std::vector<std::byte> data(kPeerLbaBytes);
  // (What the block layer refuses, an LBA out of range too, it calls an internal error.)
  const auto far = transfer(nvme::nvm::kRead, 1ull << 40, data.size());
  EXPECT_EQ(run(io_, far, Direction::from_target, data), nvme::sc::kInternalError);
  EXPECT_TRUE(answer_.cqe.dnr());
  auto absent = transfer(nvme::nvm::kRead, 0, data.size());
  absent.nsid = 77;
  EXPECT_EQ(run(io_, absent, Direction::from_target, data), nvme::sc::kInvalidNamespaceOrFormat);
  EXPECT_EQ(run(io_, transfer(0xC1, 0, data.size())), nvme::sc::kInvalidOpcode);
  // A refused write whose data it has not asked for yet, and one whose data was in the capsule.
  for (const std::size_t bytes : {std::size_t{256} << 10, std::size_t{kPeerLbaBytes}}) {
    data.resize(bytes);
    EXPECT_EQ(run(io_, transfer(nvme::nvm::kWrite, 1ull << 40, bytes), Direction::to_target, data),
              nvme::sc::kInternalError);
  }
  // The queue is as good as before.
  EXPECT_EQ(run(io_, transfer(nvme::nvm::kRead, 0, data.size()), Direction::from_target, data),
            nvme::sc::kSuccess);
  EXPECT_EQ(answer_.received_bytes, data.size());
}

class KernelData : public KernelController,
                   public testing::WithParamInterface<std::tuple<bool, bool>> {};
INSTANTIATE_TEST_SUITE_P(Digests, KernelData, testing::Combine(testing::Bool(), testing::Bool()));

TEST_P(KernelData, ComesBackAsItWasWritten) {
  ASSERT_NO_FATAL_FAILURE(bring_up(std::get<0>(GetParam()), std::get<1>(GetParam())));
  std::mt19937_64 random(20261122);
  std::vector<std::byte> disk(16u << 20);
  for (std::size_t i = 0; i < disk.size(); i += 8) {
    const std::uint64_t word = random();
    std::memcpy(disk.data() + i, &word, 8);
  }
  // Pieces of many lengths that cover the disk, as many in flight as the queue holds.
  struct Piece {
    std::size_t at, bytes;
    std::vector<std::byte> back;
    PeerAnswer answer;
  };
  std::vector<Piece> pieces;
  for (std::size_t at = 0; at < disk.size();) {
    constexpr std::array<std::size_t, 7> kLbas{1, 2, 4, 5, 16, 33, 256};
    const std::size_t lbas = kLbas[random() % kLbas.size()];
    const std::size_t bytes = std::min(lbas * kPeerLbaBytes, disk.size() - at);
    pieces.push_back({at, bytes, {}, {}});
    at += bytes;
  }
  const auto all = [&](Direction direction) {
    std::size_t begun = 0;
    const auto done = [](const Piece& piece) { return piece.answer.done; };
    turn_until([&] {
      if (down_) return true;
      for (; begun < pieces.size() && io_->in_flight() < kDepth; ++begun) {
        Piece& piece = pieces[begun];
        const bool write = direction == Direction::to_target;
        if (!write) piece.back.assign(piece.bytes, std::byte{0xAB});
        const auto from = std::span(disk).subspan(piece.at, piece.bytes);
        submit(*io_,
               transfer(write ? nvme::nvm::kWrite : nvme::nvm::kRead, piece.at / kPeerLbaBytes,
                        piece.bytes),
               direction, write ? from : std::span(piece.back), piece.answer);
      }
      return begun == pieces.size() && std::all_of(pieces.begin(), pieces.end(), done);
    });
    ASSERT_FALSE(down_.has_value()) << down_->describe();
    for (Piece& piece : pieces) {
      ASSERT_TRUE(piece.answer.status.ok()) << piece.answer.status.describe();
      ASSERT_EQ(piece.answer.cqe.sct_sc(), nvme::sc::kSuccess) << piece.bytes << " bytes";
      piece.answer.done = false;
    }
  };
  std::shuffle(pieces.begin(), pieces.end(), random);
  ASSERT_NO_FATAL_FAILURE(all(Direction::to_target));
  nvme::Sqe flush;
  flush.opc = nvme::nvm::kFlush;
  flush.nsid = 1;
  EXPECT_EQ(run(io_, flush), nvme::sc::kSuccess);
  std::shuffle(pieces.begin(), pieces.end(), random);
  ASSERT_NO_FATAL_FAILURE(all(Direction::from_target));
  for (const Piece& piece : pieces) {
    ASSERT_EQ(piece.answer.received_bytes, piece.bytes);
    ASSERT_EQ(std::memcmp(piece.back.data(), disk.data() + piece.at, piece.bytes), 0)
        << piece.bytes << " bytes at " << piece.at;
  }
}

}  // namespace
}  // namespace furrow::transport
