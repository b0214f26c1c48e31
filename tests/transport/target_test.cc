// Establishes what a target makes of its options, its volumes and its machine: transfers as large
// as the volumes' values; that a host that connects changes nothing for the others; that every
// reactor gets its share of the I/O queues; that it says when it cannot accept, and goes on; and
// where a host reached it.
// How: a Target over a pool of plain maps on a thread of its own; initiators and raw hosts.
#include "transport/target.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/transport/loopback_listener.h"
#include "tests/transport/served.h"
#include "transport/initiator.h"
#include "transport/refusal_log.h"
#include "transport/tcp_listener.h"
#include "zone/event_loop.h"

namespace furrow::transport {
namespace {

// An initiator whose executor the test turns.
class Client {
 public:
  explicit Client(const Served& served, InitiatorOptions options = {}) {
    options.port = served.target->port();
    auto connected = Initiator::connect(loop_, options);
    EXPECT_TRUE(connected.ok()) << connected.status().describe();
    if (connected.ok()) initiator = std::move(*connected);
  }
  void run(std::span<PageOp> ops) {
    std::size_t released = 0;
    for (PageOp& op : ops) {
      op.context = &released;
      op.on_result = [](PageOp&) {};
      op.on_released = [](PageOp& done) { ++*static_cast<std::size_t*>(done.context); };
      initiator->submit(op);
    }
    while (released != ops.size()) loop_.run_once();
  }

 private:
  EventLoop loop_;

 public:
  std::unique_ptr<Initiator> initiator;
};

// More of them at once than there are buffers of that size, and all of them come through.
TEST(Target, TransfersAsLargeAsTheVolumesValues) {
  constexpr std::uint32_t kBytes = 3 << 20;  // no power of two: transfers go up to 4 MiB
  Served served({}, kBytes);
  Client client(served);
  ASSERT_NE(client.initiator, nullptr);
  ASSERT_EQ(client.initiator->value_bytes_max(), kBytes);
  constexpr std::size_t kValues = 24;
  std::vector<std::vector<std::byte>> values(kValues), read(kValues);
  std::vector<PageOp> puts(kValues), gets(kValues);
  for (std::size_t i = 0; i < kValues; ++i) {
    values[i].resize(kBytes - i, static_cast<std::byte>('a' + i));
    read[i].resize(kBytes);
    puts[i].kind = PageOp::Kind::put;
    gets[i].kind = PageOp::Kind::get;
    puts[i].key = gets[i].key = Key::from("value " + std::to_string(i));
    puts[i].data = values[i].data();
    puts[i].length = puts[i].capacity = static_cast<std::uint32_t>(values[i].size());
    gets[i].data = read[i].data();
    gets[i].capacity = kBytes;
  }
  client.run(puts);
  for (const PageOp& op : puts) ASSERT_TRUE(op.status.ok()) << op.status.describe();
  client.run(gets);
  for (std::size_t i = 0; i < kValues; ++i) {
    ASSERT_TRUE(gets[i].status.ok()) << gets[i].status.describe();
    ASSERT_EQ(gets[i].length, values[i].size());
    read[i].resize(values[i].size());
    EXPECT_TRUE(read[i] == values[i]);
  }
  EXPECT_GT(served.target->stats().buffer_waits, 0u);
}

TEST(Target, MemoryCountsTheBuffersOfLargeTransfers) {
  TargetOptions options;
  const std::uint64_t usual = memory_bytes_max(options);
  options.transfer_bytes_max = 4 << 20;
  // 32 buffers instead of 64 MiB.
  EXPECT_EQ(memory_bytes_max(options) - usual, 32 * ((4ull << 20) + (64 << 10)) - (64ull << 20));
}

// furrowd(8), "What hosts may cost", says what the parts are, and what they are in all.
TEST(Target, MemoryIsWhatTheManPageSays) {
  constexpr std::uint64_t kKiB = 1024, kMiB = 1024 * kKiB;
  const TargetOptions options;
  const std::uint64_t usual = memory_bytes_max(options);
  EXPECT_GT(usual, 651 * kMiB);
  EXPECT_LE(usual, 652 * kMiB);
  TargetOptions more = options;
  more.cores = 2;
  EXPECT_GT(memory_bytes_max(more) - usual, (64 + 64 + 25) * kMiB);
  EXPECT_LE(memory_bytes_max(more) - usual, (64 + 64 + 26) * kMiB);
  more = options;
  ++more.connections_max;
  EXPECT_EQ(memory_bytes_max(more) - usual, 160 * kKiB);
  more = options;
  ++more.queue_entries_total_max;
  EXPECT_EQ(memory_bytes_max(more) - usual, 5 * kKiB);
}

// Feature 20h is the namespace's: what one host sets, all get.
TEST(Target, AnInitiatorLeavesDeleteAsItIsForOtherHosts) {
  Served served;
  RawHost other(served.target->port());
  enable_controller(other, served.target->subsystem_nqn(), "nqn.2026-11.test:other");
  Client client(served);
  ASSERT_NE(client.initiator, nullptr);
  nvme::Sqe feature;
  feature.nsid = 1;
  feature.cdw10 = nvme::fid::kKvConfig;
  feature.opc = nvme::admin::kGetFeatures;
  other.send(other.capsule(feature));
  EXPECT_EQ(other.expect_response(0).dw0, 0u) << "EDNEK";
  PageOp op;
  op.kind = PageOp::Kind::remove;
  op.key = Key::from("none");
  client.run({&op, 1});
  EXPECT_TRUE(op.status.ok()) << op.status.describe();
  feature.opc = nvme::admin::kSetFeatures;
  feature.cdw11 = 1;
  other.send(other.capsule(feature));
  EXPECT_EQ(other.expect_response(0).sct_sc(), 0);
  client.run({&op, 1});
  EXPECT_EQ(op.status.code(), Code::not_found);
}

// Each host comes with an admin queue and one I/O queue, and one of them with more.
TEST(Target, ReactorsShareTheIoQueues) {
  TargetOptions options;
  options.cores = 2;
  Served served(options);
  InitiatorOptions host;
  host.subsystem_nqn = served.target->subsystem_nqn();
  host.keep_alive_ms = 60'000;  // nobody turns their loops meanwhile
  std::vector<std::unique_ptr<Client>> clients;
  const auto queues = [&served] {
    const TargetStats stats = served.target->stats();
    EXPECT_EQ(stats.reactors.size(), 2u);
    return std::pair(stats.reactors[0].io_queues, stats.reactors[1].io_queues);
  };
  for (std::uint64_t i = 1; i <= 4; ++i) {
    clients.push_back(std::make_unique<Client>(served, host));
    const auto [first, second] = queues();
    EXPECT_EQ(first + second, i);
    EXPECT_LE(first > second ? first - second : second - first, 1u) << first << " " << second;
  }
  host.io_queues = 6;
  clients.push_back(std::make_unique<Client>(served, host));
  EXPECT_EQ(queues(), std::pair(std::uint64_t{5}, std::uint64_t{5}));
  clients.clear();
  served.eventually([](const TargetStats& stats) {
    return stats.reactors[0].connections + stats.reactors[1].connections == 0;
  });
  EXPECT_EQ(queues(), std::pair(std::uint64_t{0}, std::uint64_t{0}));
}

// The socket of an accept that fails stays in the backlog: it is said, and served when there is
// room.
TEST(Target, OutOfDescriptorsIsToldAndPasses) {
  Served served;
  RawHost(served.target->port()).init();  // it has all descriptors that it needs for itself
  served.eventually([](const TargetStats& stats) {
    return stats.connections_accepted == 1 && stats.connections == 0;
  });
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  // Room for three: a host, its connection at the target, and another host. (An accept that waits
  // in the kernel may have taken note of the limit before.)
  std::array<int, 3> free_ones{};
  for (int& fd : free_ones) ASSERT_GE(fd = dup(0), 0);
  const rlimit tight{static_cast<rlim_t>(free_ones.back()) + 1, before.rlim_max};
  for (const int fd : free_ones) close(fd);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
  RawHost first(served.target->port());
  first.init();
  RawHost second(served.target->port());
  served.eventually([](const TargetStats& stats) { return stats.accept_errors > 1; });
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  second.init();
  ASSERT_FALSE(served.lines().empty());
  EXPECT_NE(served.lines()[0].find("cannot accept a connection (Too many open files)"),
            std::string::npos)
      << served.lines()[0];
}

// However far it came with those that there were.
TEST(Target, IsNotStartedWithoutDescriptorsForItsReactors) {
  test::FakePool pool;
  EventLoop home;
  TargetOptions options;
  options.listen_port = 0;
  options.cores = 3;
  options.buffer_bytes_max = 0;  // the least, which takes no time
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  std::size_t room = 0;
  std::unique_ptr<Target> target;
  for (; target == nullptr && room < 100; ++room) {
    std::vector<int> free_ones(room + 1);
    for (int& fd : free_ones) ASSERT_GE(fd = dup(0), 0);
    const rlimit tight{static_cast<rlim_t>(free_ones.back()), before.rlim_max};
    for (const int fd : free_ones) close(fd);
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
    auto started = Target::start(pool, home, options);
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    if (started) {
      target = std::move(*started);
    } else {
      EXPECT_EQ(started.status().sys_errno(), EMFILE) << room;
    }
  }
  ASSERT_NE(target, nullptr);
  target->stop(0, [&home] { home.stop_running(); });
  home.run();
}

TEST(Target, DescriptorsForAllConnections) {
  TargetOptions options;
  options.connections_max = 5000;
  EXPECT_GT(descriptors_max(options), 5000u);
}

// Base specification 2.0, "SGL Offset Invalid": the command fails, the queue goes on.
TEST(Target, AnOffsetIntoTheCapsuleFailsItsCommandAlone) {
  for (const bool digests : {false, true}) {
    Served served;
    RawHost host(served.target->port());
    host.init(digests, digests);
    host.send(connect_capsule(host, served.target->subsystem_nqn(), 0, 0, 32));
    host.expect_response(0);
    nvme::Sqe enable;
    enable.opc = nvme::opcode::kFabrics;
    enable.nsid = nvme::fabrics::kPropertySet;
    enable.cdw11 = nvme::property::kCc;
    enable.cdw12 = nvme::kCcEnable | nvme::kCssAll << nvme::kCcCssShift;
    host.send(host.capsule(enable));
    EXPECT_EQ(host.expect_response(0).sct_sc(), 0);
    nvme::Sqe behavior;
    behavior.opc = nvme::admin::kSetFeatures;
    behavior.cdw10 = nvme::fid::kHostBehavior;
    const std::vector<std::byte> data(512);
    for (const std::uint64_t offset : {4u, 0u, 512u, 0u}) {
      behavior.sgl_address = offset;
      host.send(host.capsule(behavior, data));
      EXPECT_EQ(host.expect_response(0).sct_sc(),
                offset == 0 ? nvme::sc::kSuccess : nvme::sc::kSglOffsetInvalid);
    }
    nvme::Sqe keep_alive;  // it says that it has data, and has none
    keep_alive.opc = nvme::admin::kKeepAlive;
    std::vector<std::byte> capsule = host.capsule(keep_alive);
    auto& sqe = *reinterpret_cast<CapsuleCmd*>(capsule.data());
    sqe.sqe.sgl_type = nvme::kSglInCapsule;
    sqe.sqe.sgl_length = 8;
    sqe.sqe.sgl_address = 4;
    if (digests) continue;  // its header digest is wrong now
    host.send(capsule);
    EXPECT_EQ(host.expect_response(0).sct_sc(), nvme::sc::kSglOffsetInvalid);
  }
}

TEST(LocalName, IsHowThePeerReachedThisEnd) {
  Served served;
  EXPECT_EQ(local_name(0), "") << "no socket";
  for (const int family : {AF_INET, AF_INET6}) {
    // What connects is its own peer's peer: both ends are at the same address.
    const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;  // a machine without IPv6
    const sockaddr_in ipv4 = loopback_address(served.target->port());
    sockaddr_in6 mapped{};
    mapped.sin6_family = AF_INET6;
    mapped.sin6_port = ipv4.sin_port;
    ASSERT_EQ(inet_pton(AF_INET6, "::ffff:127.0.0.1", &mapped.sin6_addr), 1);
    const bool is_ipv4 = family == AF_INET;
    const auto* address = is_ipv4 ? reinterpret_cast<const sockaddr*>(&ipv4)
                                  : reinterpret_cast<const sockaddr*>(&mapped);
    const socklen_t bytes = is_ipv4 ? sizeof ipv4 : sizeof mapped;
    if (connect(fd, address, bytes) == 0) {
      EXPECT_EQ(local_name(fd), "127.0.0.1") << family;
    }
    close(fd);
  }
}

// The clock is the test's: what comes within a second of a line is counted, and told at its end.
TEST(RefusalLogger, TellsTheFirstAtOnceAndTheRestLater) {
  using Verdict = ConnectionBudget::Verdict;
  std::uint64_t clock_ns = 1;
  test::FakeExecutor executor(clock_ns);
  std::vector<std::string> lines;
  const auto pass_ms = [&](std::uint64_t ms) {
    clock_ns += ms * 1'000'000;
    executor.run_once();
    return std::exchange(lines, {});
  };
  RefusalLogger log(executor, [&](const std::string& line) { lines.push_back(line); });
  log.refused(Verdict::target_full, "one");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(lines[0].starts_with("refused a connection from one: ")) << lines[0];
  EXPECT_NE(lines[0].find("connections_max"), std::string::npos) << lines[0];
  EXPECT_TRUE(pass_ms(999).size() == 1 && lines.empty());
  for (int i = 0; i < 3; ++i) log.refused(Verdict::target_full, "two");
  log.refused(Verdict::address_full, "three");  // another reason
  EXPECT_EQ(lines.size(), 1u);
  lines.clear();
  const auto rest = pass_ms(1);
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_TRUE(rest[0].starts_with("3 more connections were refused: ")) << rest[0];
  log.refused(Verdict::target_full, "four");
  EXPECT_TRUE(lines.empty()) << "a second after that line as well";
  log.tell_rest();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(lines[0].starts_with("1 more connections")) << lines[0];
  EXPECT_EQ(pass_ms(3000).size(), 1u) << "nothing is left";
  log.cannot_accept(EMFILE);
  EXPECT_EQ(pass_ms(1000).size(), 1u);
}

TEST(RefusalLogger, SaysOfEachErrorOfAcceptWhatItWas) {
  std::uint64_t clock_ns = 1;
  test::FakeExecutor executor(clock_ns);
  std::vector<std::string> lines;
  RefusalLogger log(executor, [&](const std::string& line) { lines.push_back(line); });
  for (const int error : {EMFILE, ENFILE, ENOBUFS, ENOMEM, EPERM, EPROTO, ENETDOWN}) {
    log.cannot_accept(error);
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_NE(lines[0].find(std::strerror(error)), std::string::npos) << lines[0];
    const bool files = lines[0].find("no more open files") != std::string::npos;
    EXPECT_EQ(files, error == EMFILE || error == ENFILE) << lines[0];
    EXPECT_EQ(lines[0].find("they wait") != std::string::npos,
              error != EPERM && error != EPROTO && error != ENETDOWN)
        << lines[0];
    log.tell_rest();
    clock_ns += 1'000'000'000;
    executor.run_once();
    lines.clear();
  }
}

}  // namespace
}  // namespace furrow::transport
