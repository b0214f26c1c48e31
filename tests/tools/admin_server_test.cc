// Establishes what the admin listener answers: /ready as it was told, at the start, while it serves
// and while it drains; /metrics with what it is given, or 503 when that is nothing; and nothing
// else. Hosts that send a byte now and then hold up neither another's answer nor the end, and a
// request has a deadline.
#include "tools/admin_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/transport/loopback_listener.h"

namespace {
std::atomic<int> accept_error{0};  // of the next one
std::mutex accepting;              // one at a time, so that the next one is one that waits already
}  // namespace

// In the place of the C library's. A connection that could not be accepted waits for the next call.
extern "C" int accept(int fd, sockaddr* address, socklen_t* bytes) {
  const std::lock_guard lock(accepting);
  pollfd socket{fd, POLLIN, 0};
  (void)poll(&socket, 1, -1);
  if (const int error = accept_error.exchange(0); error != 0) {
    errno = error;
    return -1;
  }
  return static_cast<int>(syscall(SYS_accept, fd, address, bytes));
}

namespace furrow::tools {
namespace {

int connect_to(std::uint16_t port) {
  const int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in to = loopback_address(port);
  EXPECT_EQ(connect(connection, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  return connection;
}

// The status of the answer, then its body.
std::string ask(std::uint16_t port, const std::string& request) {
  const int connection = connect_to(port);
  std::string answer;
  EXPECT_EQ(send(connection, request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  char piece[4096];
  for (ssize_t got; (got = recv(connection, piece, sizeof piece, 0)) > 0;) {
    answer.append(piece, static_cast<std::size_t>(got));
  }
  close(connection);
  if (answer.size() < 12) return "nothing";
  const std::size_t body = answer.find("\r\n\r\n");
  return answer.substr(9, 3) + ' ' + answer.substr(body == std::string::npos ? 0 : body + 4);
}

std::string get(std::uint16_t port, const std::string& path) {
  return ask(port, "GET " + path + " HTTP/1.0\r\n\r\n");
}

double seconds_of(const std::function<void()>& what) {
  const auto start = std::chrono::steady_clock::now();
  what();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

class AdminServerTest : public ::testing::Test {
 protected:
  void SetUp() override { start(""); }
  void start(const std::string& token) {
    admin_.reset();
    auto started = AdminServer::start("127.0.0.1", 0,
                                      {.metrics =
                                           [this] {
                                             const std::lock_guard lock(mutex_);
                                             return metrics_;
                                           },
                                       .pool =
                                           [] {
                                             return AdminAnswer{200, "{}"};
                                           },
                                       .zones =
                                           [] {
                                             return AdminAnswer{500, "[1]"};
                                           },
                                       .volumes =
                                           [] {
                                             return AdminAnswer{200, "[]"};
                                           },
                                       .create_volume =
                                           [](const std::string& body) {
                                             return AdminAnswer{201, "made " + body};
                                           },
                                       .delete_volume =
                                           [](const std::string& name) {
                                             return AdminAnswer{200, "gone " + name};
                                           },
                                       .resize_volume =
                                           [](const std::string& name, const std::string& body) {
                                             return AdminAnswer{200, name + " is " + body};
                                           },
                                       .token = token,
                                       .stopped = [this] { stopped_ = true; }});
    ASSERT_TRUE(started.ok()) << started.status().describe();
    admin_ = std::move(*started);
  }

  void set_metrics(std::string text) {
    const std::lock_guard lock(mutex_);
    metrics_ = std::move(text);
  }

  std::mutex mutex_;
  std::optional<std::string> metrics_;
  std::atomic<bool> stopped_{false};
  std::unique_ptr<AdminServer> admin_;
};

TEST_F(AdminServerTest, SaysWhetherItIsReady) {
  EXPECT_EQ(get(admin_->port(), "/ready"), "503 not ready\n");  // it starts
  admin_->set_ready(true);
  EXPECT_EQ(get(admin_->port(), "/ready"), "200 ready\n");
  admin_->set_ready(false);  // it drains
  EXPECT_EQ(get(admin_->port(), "/ready"), "503 not ready\n");
}

TEST_F(AdminServerTest, HasNoMetricsBeforeThereAreAny) {
  EXPECT_EQ(get(admin_->port(), "/metrics"), "503 not ready\n");
  set_metrics("furrow_up 1\n");
  EXPECT_EQ(get(admin_->port(), "/metrics"), "200 furrow_up 1\n");
  EXPECT_EQ(get(admin_->port(), "/other").substr(0, 3), "404");
}

// The machine is out of descriptors or memory for a while, or the peer went away meanwhile.
TEST_F(AdminServerTest, GoesOnWhenAConnectionCouldNotBeAccepted) {
  admin_->set_ready(true);
  for (const int error : {EMFILE, ENFILE, ENOMEM, ENOBUFS, ECONNABORTED, EINTR}) {
    accept_error = error;
    EXPECT_EQ(get(admin_->port(), "/ready"), "200 ready\n") << error;
    EXPECT_EQ(accept_error, 0) << "nobody asked";
    EXPECT_FALSE(stopped_) << error;
    if (stopped_) break;
  }
}

// A request may name thousands of ranges, each of all of it: an answer would be as long as that.
TEST_F(AdminServerTest, AnswersWithTheWholeWhateverRangesAreAskedFor) {
  const std::string metrics(30000, 'x');
  set_metrics(metrics);
  std::string ranges = "bytes=0-";
  while (ranges.size() < 8000) ranges += ",0-";
  for (const std::string& asked : {std::string("bytes=0-3"), std::string("bytes=-1"), ranges}) {
    const std::string answer =
        ask(admin_->port(), "GET /metrics HTTP/1.1\r\nRange: " + asked + "\r\n\r\n");
    EXPECT_TRUE(answer == "200 " + metrics) << asked.substr(0, 20) << ": " << answer.size();
  }
}

// Also without a length, when its body would be waited for.
TEST_F(AdminServerTest, IsReadOnly) {
  admin_->set_ready(true);
  for (const char* rest :
       {"\r\n\r\n", "\r\nContent-Length: 0\r\n\r\n", "\r\nContent-Length: 100\r\n\r\n"}) {
    for (const char* method : {"POST", "PUT", "DELETE", "PATCH"}) {
      const std::string request = std::string(method) + " /ready HTTP/1.1\r\nHost: furrow" + rest;
      const auto refused = [&] {
        EXPECT_EQ(ask(admin_->port(), request).substr(0, 13), "405 read-only");
      };
      EXPECT_LT(seconds_of(refused), 2);
    }
  }
}

TEST_F(AdminServerTest, ChangesNeedTheToken) {
  start("0123456789abcdef");
  const auto with = [this](const std::string& method_and_path, const std::string& headers,
                           const std::string& body) {
    return ask(admin_->port(), method_and_path + " HTTP/1.1\r\nHost: furrow\r\n" + headers +
                                   "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
                                   body);
  };
  const std::string token = "Authorization: Bearer 0123456789abcdef\r\n";
  EXPECT_EQ(with("POST /volumes", token, "{}"), "201 made {}");
  EXPECT_EQ(with("POST /volumes", "authorization: bearer 0123456789abcdef\r\n", "{}"),
            "201 made {}");
  EXPECT_EQ(with("DELETE /volumes/a-b.c_1", token, ""), "200 gone a-b.c_1");
  EXPECT_EQ(with("DELETE /volumes/a/b", token, "").substr(0, 3), "404");
  EXPECT_EQ(with("PATCH /volumes/a-b.c_1", token, "{}"), "200 a-b.c_1 is {}");
  EXPECT_EQ(with("PATCH /volumes", token, "{}").substr(0, 3), "404");
  EXPECT_EQ(with("POST /ready", token, "{}").substr(0, 3), "404");
  EXPECT_EQ(get(admin_->port(), "/volumes"), "200 []");
  for (const char* other :
       {"", "Authorization: Bearer 0123456789abcdeg\r\n",
        "Authorization: Bearer 0123456789abcde\r\n", "Authorization: Bearer 0123456789abcdef0\r\n",
        "Authorization: Bearer \r\n", "Authorization: Bearer\r\n",
        "Authorization: 0123456789abcdef\r\n", "Authorization: Bearer0123456789abcdef\r\n"}) {
    EXPECT_EQ(with("POST /volumes", other, "{}").substr(0, 3), "401") << other;
    EXPECT_EQ(with("DELETE /volumes/a", other, "").substr(0, 3), "401") << other;
    EXPECT_EQ(with("PATCH /volumes/a", other, "{}").substr(0, 3), "401") << other;
  }
  EXPECT_EQ(ask(admin_->port(), "POST /volumes HTTP/1.1\r\nHost: furrow\r\n" + token + "\r\n")
                .substr(0, 3),
            "411")
      << "its body's end would be waited for";
  EXPECT_EQ(with("POST /volumes", token, std::string(5000, ' ')).substr(0, 3), "413");
  EXPECT_EQ(with("PATCH /volumes/a", token, std::string(5000, ' ')).substr(0, 3), "413");
}

// Whether it comes or not.
TEST_F(AdminServerTest, ABodyThatIsTooLongIsNotWaitedFor) {
  start("0123456789abcdef");
  for (const char* method : {"POST /volumes", "PATCH /volumes/a", "DELETE /volumes/a"}) {
    for (const char* bytes : {"4097", "1000000000", "99999999999999999999999"}) {
      const std::string request = std::string(method) +
                                  " HTTP/1.1\r\nHost: furrow\r\nContent-Length: " + bytes +
                                  "\r\nAuthorization: Bearer 0123456789abcdef\r\n\r\n";
      const auto refused = [&] {
        EXPECT_EQ(ask(admin_->port(), request).substr(0, 3), "413") << request;
      };
      EXPECT_LT(seconds_of(refused), 2);
    }
  }
  for (const char* token : {"0123456789abcdef", "another"}) {
    const std::string body(8 << 20, ' ');
    const std::string answer = ask(
        admin_->port(),
        "POST /volumes HTTP/1.1\r\nHost: furrow\r\nContent-Length: " + std::to_string(body.size()) +
            "\r\nAuthorization: Bearer " + token + "\r\n\r\n" + body);
    EXPECT_EQ(answer.substr(0, 3), *token == '0' ? "413" : "401");
  }
}

// Also beside a length, which is not what such a body has.
TEST_F(AdminServerTest, ABodyInChunksIsRefusedAtOnce) {
  start("0123456789abcdef");
  for (const char* method : {"POST /volumes", "PATCH /volumes/a", "DELETE /volumes/a"}) {
    for (const char* length : {"", "Content-Length: 2\r\n"}) {
      const std::string request = std::string(method) + " HTTP/1.1\r\nHost: furrow\r\n" + length +
                                  "Transfer-Encoding: chunked\r\n"
                                  "Authorization: Bearer 0123456789abcdef\r\n\r\n2\r\n{}\r\n";
      const auto refused = [&] {
        EXPECT_EQ(ask(admin_->port(), request).substr(0, 3), "411") << request;
      };
      EXPECT_LT(seconds_of(refused), 2) << request;
    }
  }
}

TEST_F(AdminServerTest, SaysWhenItHasStopped) {
  EXPECT_FALSE(stopped_);
  admin_.reset();
  EXPECT_TRUE(stopped_);
}

// Connections that send a byte of a request each few milliseconds, and never all of it.
class SlowHosts {
 public:
  SlowHosts(std::uint16_t port, unsigned count) {
    for (unsigned i = 0; i < count; ++i) sockets_.push_back(connect_to(port));
    thread_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        for (const int socket : sockets_) (void)send(socket, "G", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    });
  }
  ~SlowHosts() {
    thread_.request_stop();
    thread_.join();
    for (const int socket : sockets_) close(socket);
  }

 private:
  std::vector<int> sockets_;
  std::jthread thread_;
};

TEST_F(AdminServerTest, SlowHostsHoldUpNoAnswer) {
  const SlowHosts slow(admin_->port(), 100);
  for (unsigned i = 0; i < 20; ++i) {
    EXPECT_LT(seconds_of([&] { EXPECT_EQ(get(admin_->port(), "/ready"), "503 not ready\n"); }), 1);
  }
}

// Who has its answer and does not hang up goes before who waits for one.
TEST_F(AdminServerTest, HostsThatDoNotHangUpCutNobodyOff) {
  const int waits = connect_to(admin_->port());
  const std::string begun = "GET /ready HTTP/1.0\r\n";
  EXPECT_EQ(send(waits, begun.data(), begun.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(begun.size()));
  std::vector<int> answered;
  for (unsigned i = 0; i < 40; ++i) {
    const int socket = answered.emplace_back(connect_to(admin_->port()));
    const std::string request = begun + "\r\n";
    EXPECT_EQ(send(socket, request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
    char piece[4096];
    ssize_t all = 0;
    for (ssize_t got; (got = recv(socket, piece, sizeof piece, 0)) > 0;) all += got;
    EXPECT_GT(all, 0) << i;
  }
  EXPECT_EQ(send(waits, "\r\n", 2, MSG_NOSIGNAL), 2);
  char answer[4096];
  EXPECT_GT(recv(waits, answer, sizeof answer, 0), 0);
  close(waits);
  for (const int socket : answered) close(socket);
}

TEST_F(AdminServerTest, SlowHostsDoNotHoldUpTheEnd) {
  const SlowHosts slow(admin_->port(), 4);
  EXPECT_EQ(get(admin_->port(), "/ready"), "503 not ready\n");
  EXPECT_LT(seconds_of([&] { admin_.reset(); }), 1);
  EXPECT_TRUE(stopped_);
}

TEST_F(AdminServerTest, ARequestHasADeadline) {
  const int slow = connect_to(admin_->port());
  std::jthread sender([slow](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      (void)send(slow, "G", 1, MSG_NOSIGNAL);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
  });
  char piece[4096];
  const double waited = seconds_of([&] {
    while (recv(slow, piece, sizeof piece, 0) > 0) {
    }
  });
  EXPECT_GT(waited, 1);
  EXPECT_LT(waited, 30);
  sender.request_stop();
  sender.join();
  close(slow);
}

TEST_F(AdminServerTest, RefusesAPortInUse) {
  const auto second =
      AdminServer::start("127.0.0.1", admin_->port(), {.metrics = {}, .stopped = [] {}});
  EXPECT_EQ(second.status().code(), Code::in_use);
}

TEST_F(AdminServerTest, NamesTheLimitOfOpenFilesWhereItIsReached) {
  rlimit was{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &was), 0);
  const rlimit none{0, was.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const Status refused =
      AdminServer::start("127.0.0.1", 0, {.metrics = {}, .stopped = [] {}}).status();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &was), 0);
  EXPECT_NE(refused.describe().find("ulimit -n"), std::string::npos) << refused.describe();
}

TEST_F(AdminServerTest, RefusesAnAddressOfAnotherMachine) {
  for (const char* host : {"192.0.2.1", "no-such-host.invalid"}) {
    const auto other = AdminServer::start(host, 0, {.metrics = {}, .stopped = [] {}});
    EXPECT_EQ(other.status().code(), Code::invalid_argument) << host;
  }
}

}  // namespace
}  // namespace furrow::tools
