// FakeTarget: a listener, a reactor and a handler of a few made-up commands, on a thread of its
// own. It shows what the transport hands to controller logic, without any controller logic.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "transport/tcp_listener.h"
#include "transport/tcp_reactor.h"
#include "zone/event_loop.h"

namespace furrow::transport {

// The value that byte `i` of a generated page has.
inline std::byte pattern(std::uint32_t seed, std::size_t i) {
  return static_cast<std::byte>(seed * 31 + i * 7 + (i >> 8));
}
inline std::vector<std::byte> patterned(std::uint32_t seed, std::size_t bytes) {
  std::vector<std::byte> page(bytes);
  for (std::size_t i = 0; i < bytes; ++i) page[i] = pattern(seed, i);
  return page;
}

namespace fake {
// Opcodes. CDW12 is the pattern's seed.
inline constexpr std::uint8_t kWrite = 0x01;       // pulls at once; status 1 if the bytes are wrong
inline constexpr std::uint8_t kRead = 0x02;        // pushes data_bytes of pattern; DW0 = CDW13
inline constexpr std::uint8_t kLateWrite = 0x05;   // pulls when told
inline constexpr std::uint8_t kHold = 0x09;        // answers when told
inline constexpr std::uint8_t kRefuse = 0x0D;      // status 2 without pulling
inline constexpr std::uint8_t kLateRefuse = 0x11;  // status 2 when told, without pulling
inline constexpr std::uint8_t kAbortedWrite = 0x15;  // pulls, and completes (status 7) at once
inline constexpr std::uint8_t kClose = 0x19;         // completes, then closes the connection
}  // namespace fake

class FakeHandler : public ConnectionHandler {
 public:
  void on_open(Connection&) override { ++opened; }
  void on_last_request(Connection&) override {}
  void on_close(Connection& connection) override {
    ++closed;
    if (on_close_) on_close_(connection);
  }
  void on_request(Request& request) override {
    ++requests;
    if (request.command.opc == nvme::opcode::kFabrics) return connect(request);
    if (lenient && request.data_bytes > kDataBytesMax) {
      request.completion.set_status(nvme::sc::kInvalidField);
      return request.connection->complete(request);
    }
    request.on_done = [](Request& done) { self(done).give_back(done); };
    request.context = this;
    buffers_[&request].resize(request.data_bytes);
    ++outstanding;
    switch (request.command.opc) {
      case fake::kWrite:
      case fake::kAbortedWrite:
        return pull(request);
      case fake::kRead:
        return push(request);
      case fake::kLateWrite:
      case fake::kLateRefuse:
      case fake::kHold:
        late_.push_back(&request);
        if (on_late_) on_late_();
        return;
      case fake::kRefuse:
        request.completion.set_status(nvme::sc::kInvalidField);
        return request.connection->complete(request);
      case fake::kClose: {
        Connection* connection = request.connection;
        connection->complete(request);
        return connection->close();
      }
      default:
        EXPECT_TRUE(lenient) << "opcode " << int{request.command.opc};
        request.completion.set_status(nvme::sc::kInvalidOpcode);
        request.connection->complete(request);
    }
  }
  // Reactor thread: does what the late commands wait for.
  void go_on() {
    for (Request* request : std::exchange(late_, {})) {
      if (request->command.opc == fake::kLateWrite) {
        pull(*request);
      } else {
        if (request->command.opc == fake::kLateRefuse) {
          request->completion.set_status(nvme::sc::kInvalidField);
        }
        request->connection->complete(*request);
      }
    }
  }

  std::atomic<int> opened{0}, closed{0}, requests{0}, outstanding{0}, aborted_pulls{0};
  std::function<void(Connection&)> on_close_;
  std::function<void()> on_late_;    // such a command waits
  std::atomic<bool> lenient{false};  // refuses what it does not know, which else fails the test

 private:
  static constexpr std::uint32_t kDataBytesMax = 1 << 20;

  static FakeHandler& self(Request& request) { return *static_cast<FakeHandler*>(request.context); }

  void connect(Request& request) {
    request.context = this;
    request.on_pulled = [](Request& pulled) {
      const nvme::Sqe& sqe = pulled.command;
      pulled.connection->set_queue((sqe.cdw11 & 0xffff) + 1u,
                                   (sqe.cdw11 >> 16 & nvme::kCattrNoFlowControl) != 0);
      pulled.connection->complete(pulled);
    };
    connect_data_.resize(request.data_bytes);
    request.connection->pull(request, connect_data_.data());
  }

  void pull(Request& request) {
    request.on_pulled = [](Request& pulled) {
      auto& page = self(pulled).buffers_[&pulled];
      if (!pulled.pull_status.ok()) {
        ++self(pulled).aborted_pulls;
        pulled.completion.set_status(pulled.pull_status.nvme());
      } else if (page != transport::patterned(pulled.command.cdw12, page.size())) {
        pulled.completion.set_status(nvme::sc::kInvalidOpcode);
      }
      pulled.connection->complete(pulled);
    };
    request.connection->pull(request, buffers_[&request].data());
    if (request.command.opc == fake::kAbortedWrite) {
      request.completion.set_status(nvme::sc::kAbortRequested);
      request.connection->complete(request);
    }
  }

  void push(Request& request) {
    auto& page = buffers_[&request];
    page = transport::patterned(request.command.cdw12, page.size());
    request.completion.dw0 = request.command.cdw13;
    request.connection->push(request, page.data(), static_cast<std::uint32_t>(page.size()));
  }

  void give_back(Request& request) {
    buffers_.erase(&request);
    --outstanding;
  }

  std::map<Request*, std::vector<std::byte>> buffers_;
  std::vector<std::byte> connect_data_;
  std::vector<Request*> late_;
};

class FakeTarget {
 public:
  explicit FakeTarget(TcpLimits tcp_limits = {}, std::uint32_t connections_max = 64,
                      std::uint32_t setting_up_max = 64, std::uint32_t per_address_max = 64)
      : limits(tcp_limits) {
    budget.set_limits({connections_max, per_address_max, setting_up_max});
    auto made = TcpReactor::create(loop, handler, limits, budget);
    EXPECT_TRUE(made.ok()) << made.status().describe();
    reactor = std::move(*made);
    auto opened = TcpListener::open("127.0.0.1", 0);
    EXPECT_TRUE(opened.ok()) << opened.status().describe();
    listener = std::move(*opened);
    listener->start(reactor->ring(), loop, [this](int fd, std::string peer) {
      const AddressKey address = address_key(fd);
      if (budget.take(address) == ConnectionBudget::Verdict::taken) {
        reactor->adopt(fd, std::move(peer), address);
      } else {
        ::close(fd);
        ++refused;
      }
    });
    thread_ = std::thread([this] { loop.run(); });
  }
  ~FakeTarget() {
    if (!stopped_) stop();
  }

  std::uint16_t port() const { return listener->port(); }

  // Runs `function` on the reactor's thread and waits for it.
  void on_reactor(std::function<void()> function) {
    struct Call : Task {
      std::function<void()> function;
      std::promise<void> done;
    } call;
    call.function = std::move(function);
    call.run = [](Task& task) {
      auto& self = static_cast<Call&>(task);
      self.function();
      self.done.set_value();
    };
    std::future<void> done = call.done.get_future();
    loop.post(call);
    done.get();
  }

  // Waits until `condition` holds on the reactor's thread.
  void eventually(std::function<bool()> condition) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    bool holds = false;
    while (!holds && std::chrono::steady_clock::now() < until) {
      on_reactor([&] { holds = condition(); });
      if (!holds) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(holds) << "waited 30 s in vain";
  }

  // Drains, then cuts after `cut` if that is asked for. Leaves no thread behind.
  void stop(bool cut = true) {
    std::promise<void> accepted, empty;
    on_reactor([&] {
      listener->stop([&] { accepted.set_value(); });
      reactor->drain([&] { empty.set_value(); });
      if (cut) reactor->cut();
      handler.go_on();
    });
    accepted.get_future().get();
    empty.get_future().get();
    loop.stop_running();
    thread_.join();
    stopped_ = true;
    EXPECT_EQ(handler.outstanding, 0) << "a request was never given back";
    EXPECT_EQ(handler.opened, handler.closed);
    EXPECT_EQ(budget.connections(), 0u);
    EXPECT_EQ(budget.setting_up(), 0u);
    listener.reset();
    reactor.reset();
  }

  TcpLimits limits;
  ConnectionBudget budget;
  EventLoop loop;
  FakeHandler handler;
  std::unique_ptr<TcpReactor> reactor;
  std::unique_ptr<TcpListener> listener;
  std::atomic<int> refused{0};

 private:
  std::thread thread_;
  bool stopped_ = false;
};

}  // namespace furrow::transport
