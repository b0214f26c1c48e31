// Establishes what a page costs on the wire in steady state: nothing is allocated, on either side,
// and system calls are shared by many pages. How: a HostQueue keeps a reactor with a handler that
// has its pages in memory busy; malloc's family counts, the rings count their system calls. Those
// are counted with both sides on one thread, turn by turn: how many pages share one does not depend
// on how the machine is loaded then. Prints pages/s, which no test depends on.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/count_allocations.h"
#include "tests/rounds.h"
#include "tests/transport/loopback_listener.h"
#include "transport/host_queue.h"
#include "transport/tcp_listener.h"
#include "transport/tcp_reactor.h"
#include "zone/event_loop.h"

namespace furrow::transport {
namespace {

constexpr std::uint32_t kPageBytesMax = 65536;

// Retrieve pushes a page, Store pulls one; neither allocates.
class PageHandler final : public ConnectionHandler {
 public:
  void on_open(Connection&) override {}
  void on_last_request(Connection&) override {}
  void on_close(Connection&) override {}
  void on_request(Request& request) override {
    if (request.command.opc == nvme::kv::kRetrieve) {
      request.completion.dw0 = request.data_bytes;
      return request.connection->push(request, page_.data(), request.data_bytes);
    }
    request.on_pulled = [](Request& pulled) {
      if (pulled.command.opc == nvme::opcode::kFabrics) {
        pulled.connection->set_queue((pulled.command.cdw11 & 0xffff) + 1u, true);
      }
      pulled.connection->complete(pulled);
    };
    request.connection->pull(request, into_.data());
  }

 private:
  std::vector<std::byte> page_ = std::vector<std::byte>(kPageBytesMax, std::byte{7});
  std::vector<std::byte> into_ = std::vector<std::byte>(kPageBytesMax);
};

struct Shape {
  std::uint8_t opcode;
  std::uint32_t page_bytes, depth;
  // System calls for a page. Alone, a page needs a call to send and one to receive on each side,
  // and each turn until then looks for it in vain by another. Of several, small ones share them;
  // what is larger than half of the memory that takes it comes alone, with one call, and what is
  // asked for as each of those comes is answered alone. Half as many
  // again as that are let pass, of the slower of two ways of small pages: what is there at a turn
  // is what the kernel's buffers have passed on until then, which a slow build gives another size
  // and another time.
  double host_calls_max, target_calls_max;
};

void PrintTo(const Shape& shape, std::ostream* out) {
  *out << (shape.opcode == nvme::kv::kRetrieve ? "get " : "put ") << shape.page_bytes << " depth "
       << shape.depth;
}

class SteadyState : public ::testing::TestWithParam<Shape>, private HostQueue::Owner {
 protected:
  SteadyState() : pages_(std::size_t{GetParam().depth} * kPageBytesMax) {
    auto reactor = TcpReactor::create(loop_, handler_, limits_, budget_);
    EXPECT_TRUE(reactor.ok());
    reactor_ = std::move(*reactor);
    auto listener = TcpListener::open("127.0.0.1", 0);
    EXPECT_TRUE(listener.ok());
    listener_ = std::move(*listener);
    listener_->start(reactor_->ring(), loop_, [this](int fd, std::string peer) {
      const AddressKey address = address_key(fd);
      EXPECT_EQ(budget_.take(address), ConnectionBudget::Verdict::taken);
      reactor_->adopt(fd, std::move(peer), address);
    });
    auto ring = SocketRing::create();
    EXPECT_TRUE(ring.ok());
    ring_ = std::move(*ring);
  }
  ~SteadyState() override {
    if (queue_ != nullptr) queue_->end();
    while (queue_ != nullptr) turn();
    struct Stop : Task {
      SteadyState* self;
    } stop;
    stop.self = this;
    stop.run = [](Task& task) {
      SteadyState& self = *static_cast<Stop&>(task).self;
      self.listener_->stop([&self] {
        self.reactor_->drain([&self] { self.stopped_ = true; });
        self.reactor_->cut();
      });
    };
    loop_.post(stop);
    if (server_.joinable()) server_.join();
    while (!stopped_) turn();
    listener_.reset();
    reactor_.reset();
  }

  // The target on a thread of its own from now on; else turn() turns it. Not run(): to sleep, a
  // loop allocates.
  void serve() {
    server_ = std::thread([this] {
      while (!stopped_) {
        if (loop_.run_once() == 0) std::this_thread::yield();
      }
    });
  }
  void turn() {
    const unsigned events = ring_->poll() + (server_.joinable() ? 0 : loop_.run_once());
    if (events == 0) std::this_thread::yield();
  }

  void on_ready(HostQueue&) override { ready_ = true; }
  void on_down(HostQueue&, Status why) override { ADD_FAILURE() << why.describe(); }
  void on_room(HostQueue&) override {}
  void on_gone(HostQueue&) override { queue_.reset(); }

  void connect() {
    HostQueueOptions options;
    options.entries = GetParam().depth;
    options.in_capsule_bytes = limits_.in_capsule_bytes;
    options.receive_bytes = 65536;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    HostQueue::Owner& owner = *this;
    queue_ = std::make_unique<HostQueue>(*ring_, owner, fd, options);
    sockaddr_storage address{};
    const sockaddr_in in = loopback_address(listener_->port());
    std::memcpy(&address, &in, sizeof in);
    queue_->start(address, sizeof in);
    while (!ready_) turn();
    HostCommand* command = queue_->take();
    command->sqe.opc = nvme::opcode::kFabrics;
    command->sqe.nsid = nvme::fabrics::kConnect;
    command->sqe.cdw10 = 1u << 16;
    command->sqe.cdw11 = GetParam().depth - 1;
    command->direction = HostCommand::Direction::to_target;
    command->data = pages_.data();
    command->data_bytes = 1024;
    issue(*command);
    run(1);
  }
  void issue(HostCommand& command) {
    ++in_flight_;
    command.context = this;
    command.done = [](HostCommand& done, Status status) {
      auto& self = *static_cast<SteadyState*>(done.context);
      EXPECT_TRUE(status.ok() && done.cqe.sct_sc() == 0);
      ++self.done_;
      --self.in_flight_;
    };
    queue_->submit(command);
  }
  // Until `pages` more are done, `depth` at a time.
  void run(std::uint64_t pages) {
    for (const std::uint64_t end = done_ + pages; done_ < end;) {
      while (done_ + in_flight_ < end) {
        HostCommand* command = queue_->take();
        if (command == nullptr) break;
        command->sqe.opc = GetParam().opcode;
        command->direction = GetParam().opcode == nvme::kv::kRetrieve
                                 ? HostCommand::Direction::from_target
                                 : HostCommand::Direction::to_target;
        command->data = pages_.data() + std::size_t{command->sqe.cid & 1023u} * kPageBytesMax;
        command->data_bytes = GetParam().page_bytes;
        issue(*command);
      }
      turn();
    }
  }
  // System calls of the host and of the target while it runs `pages`, for each page.
  std::pair<double, double> calls_a_page(std::uint64_t pages) {
    const std::uint64_t host = ring_->system_calls(), target = reactor_->system_calls();
    run(pages);
    const auto count = static_cast<double>(pages);
    return {static_cast<double>(ring_->system_calls() - host) / count,
            static_cast<double>(reactor_->system_calls() - target) / count};
  }

  EventLoop loop_;
  PageHandler handler_;
  TcpLimits limits_;
  ConnectionBudget budget_;
  std::unique_ptr<TcpReactor> reactor_;
  std::unique_ptr<TcpListener> listener_;
  std::thread server_;
  std::unique_ptr<SocketRing> ring_;
  std::unique_ptr<HostQueue> queue_;
  std::vector<std::byte> pages_;
  std::atomic<bool> stopped_{false};
  bool ready_ = false;
  std::uint64_t done_ = 0, in_flight_ = 0;
};

TEST_P(SteadyState, NothingIsAllocated) {
  // Alone, a page waits for both threads to have their turns: on a busy machine for some ms.
  const unsigned fewer = GetParam().depth == 1 ? 20 : 1;
  const char* scale = std::getenv("FURROW_STEADY_STATE_PAGES");
  const std::uint64_t pages =
      scale != nullptr ? std::strtoull(scale, nullptr, 10) : rounds(20000, 4000) / fewer;
  serve();
  connect();
  run(2000 / fewer);
  const std::uint64_t allocated = testing::allocations();
  const auto begin = std::chrono::steady_clock::now();
  const auto [host, target] = calls_a_page(pages);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(testing::allocations(), allocated);
  const auto count = static_cast<double>(pages);
  std::printf("%.0f pages/s, %.2f GB/s, system calls a page: host %.3f, target %.3f\n",
              count / took.count(), count * GetParam().page_bytes / took.count() / 1e9, host,
              target);
}

TEST_P(SteadyState, SystemCallsAreShared) {
  connect();
  run(2000);
  const auto [host, target] = calls_a_page(6400);
  std::printf("system calls a page: host %.4f, target %.4f\n", host, target);
  EXPECT_LT(host, GetParam().host_calls_max);
  EXPECT_LT(target, GetParam().target_calls_max);
}

INSTANTIATE_TEST_SUITE_P(Shapes, SteadyState,
                         ::testing::Values(Shape{nvme::kv::kRetrieve, 4096, 1, 4.4, 4.4},
                                           Shape{nvme::kv::kRetrieve, 4096, 64, 0.13, 0.08},
                                           Shape{nvme::kv::kRetrieve, 16384, 64, 1.5, 0.094},
                                           Shape{nvme::kv::kRetrieve, 65536, 16, 1.5, 1.9},
                                           Shape{nvme::kv::kStore, 4096, 64, 0.14, 0.14},
                                           Shape{nvme::kv::kStore, 16384, 64, 1.5, 1.5},
                                           Shape{nvme::kv::kStore, 65536, 16, 1.5, 1.5}));

}  // namespace
}  // namespace furrow::transport
