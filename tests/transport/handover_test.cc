// Establishes that what reactors hand to each other arrives whole: connections that the listener's
// reactor accepts and others serve, messages of the control plane between them (mailboxes), counts
// that any thread reads; while hosts come, go in the middle of everything and ask for much.
// Meant to run under TSan.
// How: a target of three reactors; threads that connect, store and read back, and leave in order or
// not; others that connect and vanish; one that reads all statistics. Mailboxes alone as well.
#include <atomic>
#include <random>

#include "tests/transport/raw_host.h"
#include "tests/transport/served.h"
#include "transport/initiator.h"
#include "transport/mailbox.h"

namespace furrow::transport {
namespace {

constexpr int kRounds = 12;

// A host with three queues, which land on different reactors.
void come_and_go(std::uint16_t port, std::uint64_t seed, std::atomic<std::uint64_t>& wrong) {
  std::mt19937_64 random(seed);
  for (int round = 0; round < kRounds; ++round) {
    std::vector<PageOp> ops(24);  // outlive the initiator, which may leave with some in flight
    std::vector<std::vector<std::byte>> pages(ops.size());
    std::size_t released = 0;
    EventLoop loop({50, seed});
    InitiatorOptions options;
    options.port = port;
    options.io_queues = 3;
    options.data_digest = round % 2 == 0;
    const auto initiator = Initiator::connect(loop, options);
    if (!initiator.ok()) {  // another reactor may not have let go of earlier connections yet
      wrong += initiator.status().code() != Code::busy;
      continue;
    }
    for (const PageOp::Kind kind : {PageOp::Kind::put, PageOp::Kind::get}) {
      released = 0;
      for (std::size_t i = 0; i < ops.size(); ++i) {
        const std::byte fill = static_cast<std::byte>(seed * 16 + i);
        ops[i] = PageOp();
        ops[i].kind = kind;
        ops[i].key = Key::from(std::to_string(seed) + "." + std::to_string(i));
        pages[i].assign(kind == PageOp::Kind::put ? 1 + random() % 40000 : 40000, fill);
        if (kind == PageOp::Kind::get) pages[i].assign(40000, std::byte{0});
        ops[i].data = pages[i].data();
        ops[i].length = ops[i].capacity = static_cast<std::uint32_t>(pages[i].size());
        ops[i].context = &released;
        ops[i].on_result = [](PageOp&) {};
        ops[i].on_released = [](PageOp& op) { ++*static_cast<std::size_t*>(op.context); };
        (*initiator)->submit(ops[i]);
      }
      // Every other time it leaves with some of them in flight.
      const std::size_t until = kind == PageOp::Kind::get && round % 2 == 1 ? 5 : ops.size();
      while (released < until) loop.run_once();
      for (std::size_t i = 0; i < ops.size() && until == ops.size(); ++i) {
        wrong += !ops[i].status.ok() ||
                 pages[i][ops[i].length - 1] != static_cast<std::byte>(seed * 16 + i);
      }
    }
  }
}

void connect_and_vanish(std::uint16_t port, const std::atomic<bool>& end) {
  for (unsigned i = 0; !end; ++i) {
    RawHost host(port);
    if (i % 3 == 0) continue;
    host.init();
    if (i % 3 == 1) host.reset();
  }
}

TEST(HandOver, ConnectionsThatComeAndGoOnThreeReactors) {
  TargetOptions options;
  options.cores = 3;
  options.buffer_bytes_max = 8 << 20;
  options.connections_per_address_max = 1024;
  Served served(options);
  const std::uint16_t port = served.target->port();
  std::atomic<std::uint64_t> wrong{0};
  std::atomic<bool> end{false};
  std::jthread vanishing([&] { connect_and_vanish(port, end); });
  std::jthread reading([&] {
    while (!end) {
      wrong += served.target->stats().protocol_errors;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  {
    std::vector<std::jthread> hosts;
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      hosts.emplace_back([&, seed] { come_and_go(port, seed, wrong); });
    }
  }
  end = true;
  vanishing.join();
  reading.join();
  EXPECT_EQ(wrong, 0u);
  served.eventually([](const TargetStats& stats) { return stats.connections == 0; });
  EXPECT_GT(served.target->stats().connections_accepted, 3u * kRounds * 3u);
  EXPECT_EQ(served.target->stats().protocol_errors, 0u);
}

// Messages from several threads: each arrives once, those of a thread in order.
TEST(HandOver, MessagesArriveOnceAndInOrder) {
  constexpr unsigned kSenders = 3, kMessages = 3000;
  EventLoop loop;
  std::jthread thread([&] { loop.run(); });
  std::array<unsigned, kSenders> last{};  // the loop's thread alone
  std::atomic<unsigned> delivered{0};
  {
    Mailbox mailbox(loop);
    std::vector<std::jthread> senders;
    for (unsigned sender = 0; sender < kSenders; ++sender) {
      senders.emplace_back([&, sender] {
        for (unsigned i = 1; i <= kMessages; ++i) {
          mailbox.send([&, sender, i] {
            EXPECT_EQ(last[sender] + 1, i);
            last[sender] = i;
            ++delivered;
          });
        }
      });
    }
    senders.clear();
    while (delivered != kSenders * kMessages) std::this_thread::yield();
    while (!mailbox.empty()) std::this_thread::yield();
    // It may only be destroyed on the loop's thread, or when that does not run.
    loop.stop_running();
    thread.join();
  }
  EXPECT_EQ(delivered, kSenders * kMessages);
}

}  // namespace
}  // namespace furrow::transport
