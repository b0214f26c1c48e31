// Establishes that a listener opens what can be listened on, waits for a port that is about to be
// free, and says what else is wrong with an address; hands over each connection with its peer's
// name, IPv4 or IPv6; waits and tries again when descriptors run out; and stops at any time,
// calling back once. How: sockets on loopback, turned on the test's thread.
#include "transport/tcp_listener.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "zone/event_loop.h"

namespace furrow::transport {
namespace {

class Listener : public ::testing::Test {
 protected:
  Listener() : ring_(*SocketRing::create()) { loop_.add(*ring_); }
  ~Listener() override {
    if (listener_ != nullptr && started_) stop();
    listener_.reset();
    for (const int fd : taken_) close(fd);
    for (const int fd : clients_) close(fd);
    loop_.remove(*ring_);
  }
  void open(const char* host) {
    auto opened = TcpListener::open(host, 0);
    ASSERT_TRUE(opened.ok()) << opened.status().describe();
    listener_ = std::move(*opened);
  }
  void start() {
    started_ = true;
    listener_->start(
        *ring_, loop_,
        [this](int fd, std::string peer) {
          taken_.push_back(fd);
          peers_.push_back(std::move(peer));
        },
        [this](int error) { errors_.push_back(error); });
  }
  void stop() {
    int stopped = 0;
    listener_->stop([&] { ++stopped; });
    run_until([&] { return stopped != 0; });
    EXPECT_EQ(stopped, 1);
    started_ = false;
  }
  void run_until(const std::function<bool()>& holds) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!holds()) {
      ASSERT_LT(std::chrono::steady_clock::now(), until) << "nothing happens any more";
      loop_.run_once();
    }
  }
  // Returns the name that the listener should tell.
  std::string connect(const char* address, int family) {
    const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    clients_.push_back(fd);
    sockaddr_in6 six{};
    sockaddr_in four{};
    six.sin6_family = AF_INET6;
    four.sin_family = AF_INET;
    six.sin6_port = four.sin_port = htons(listener_->port());
    const bool is_six = family == AF_INET6;
    EXPECT_EQ(
        inet_pton(family, address, is_six ? static_cast<void*>(&six.sin6_addr) : &four.sin_addr),
        1);
    const auto* to =
        is_six ? reinterpret_cast<sockaddr*>(&six) : reinterpret_cast<sockaddr*>(&four);
    EXPECT_EQ(::connect(fd, to, is_six ? sizeof six : sizeof four), 0);
    sockaddr_storage own{};
    socklen_t bytes = sizeof own;
    getsockname(fd, reinterpret_cast<sockaddr*>(&own), &bytes);
    const std::uint16_t port = is_six ? reinterpret_cast<sockaddr_in6&>(own).sin6_port
                                      : reinterpret_cast<sockaddr_in&>(own).sin_port;
    const std::string host = is_six ? "[" + std::string(address) + "]" : address;
    return host + ":" + std::to_string(ntohs(port));
  }

  EventLoop loop_;
  std::unique_ptr<SocketRing> ring_;
  std::unique_ptr<TcpListener> listener_;
  bool started_ = false;
  std::vector<int> taken_, clients_, errors_;
  std::vector<std::string> peers_;
};

TEST_F(Listener, HandsConnectionsOver) {
  ASSERT_NO_FATAL_FAILURE(open("127.0.0.1"));
  EXPECT_EQ(listener_->address(), "127.0.0.1");
  start();
  std::vector<std::string> names;
  for (int i = 0; i < 5; ++i) names.push_back(connect("127.0.0.1", AF_INET));
  run_until([this] { return taken_.size() == 5; });
  EXPECT_EQ(peers_, names);
  EXPECT_EQ(local_name(taken_[0]), "127.0.0.1");
  EXPECT_TRUE(errors_.empty());
}

TEST_F(Listener, AnIpv6PeersNameHasBrackets) {
  auto opened = TcpListener::open("::1", 0);
  if (!opened) GTEST_SKIP() << "no IPv6: " << opened.status().describe();
  listener_ = std::move(*opened);
  EXPECT_EQ(listener_->address(), "::1");
  start();
  const std::string name = connect("::1", AF_INET6);
  run_until([this] { return taken_.size() == 1; });
  EXPECT_EQ(peers_[0], name);
  EXPECT_EQ(local_name(taken_[0]), "::1");
}

TEST_F(Listener, SaysWhatIsWrongWithAnAddress) {
  ASSERT_NO_FATAL_FAILURE(open("127.0.0.1"));
  const auto failed = [](const char* host, std::uint16_t port) {
    const auto opened = TcpListener::open(host, port);
    EXPECT_FALSE(opened.ok()) << host;
    EXPECT_STRNE(opened.status().hint(), "");
    return opened.status().code();
  };
  EXPECT_EQ(failed("127.0.0.1", listener_->port()), Code::in_use);
  EXPECT_EQ(failed("no such host", 0), Code::invalid_argument);
  EXPECT_EQ(failed("300.0.0.1", 0), Code::invalid_argument);
  EXPECT_EQ(failed("192.0.2.1", 0), Code::invalid_argument) << "not this machine's";
}

// As that of a server that was killed, until the kernel has ended what its ring was asked for.
TEST_F(Listener, APortThatIsAboutToBeFreeIsWaitedFor) {
  ASSERT_NO_FATAL_FAILURE(open("127.0.0.1"));
  const std::uint16_t port = listener_->port();
  std::jthread before([held = std::move(listener_)]() mutable {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    held.reset();
  });
  const auto opened = TcpListener::open("127.0.0.1", port);
  EXPECT_TRUE(opened.ok()) << opened.status().describe();
}

TEST_F(Listener, StopsAtAnyTime) {
  ASSERT_NO_FATAL_FAILURE(open("127.0.0.1"));
  stop();  // never started
  ASSERT_NO_FATAL_FAILURE(open("127.0.0.1"));
  start();
  stop();  // waiting for a connection
  ASSERT_NO_FATAL_FAILURE(open("127.0.0.1"));
  start();
  connect("127.0.0.1", AF_INET);
  stop();  // with one in the backlog
  EXPECT_EQ(taken_.size(), 0u) << "it was told to accept no more";
}

// And is found waiting for the time to try again.
TEST_F(Listener, TriesAgainWhenDescriptorsRanOut) {
  ASSERT_NO_FATAL_FAILURE(open("127.0.0.1"));
  start();
  const std::string name = connect("127.0.0.1", AF_INET);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{static_cast<rlim_t>(clients_[0] + 1), limit.rlim_max};
  std::vector<int> filling;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  for (int fd; (fd = dup(0)) >= 0;) filling.push_back(fd);
  run_until([this] { return errors_.size() == 2; });
  EXPECT_EQ(errors_, (std::vector<int>{EMFILE, EMFILE}));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  for (const int fd : filling) close(fd);
  run_until([this] { return taken_.size() == 1; });
  EXPECT_EQ(peers_[0], name);
  EXPECT_EQ(errors_.size(), 2u);
}

}  // namespace
}  // namespace furrow::transport
