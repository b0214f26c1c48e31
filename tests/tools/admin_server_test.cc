// Establishes what the admin listener answers: /ready as it was told, at the start, while it serves
// and while it drains; /metrics with what it is given, or 503 when that is nothing; and nothing
// else.
#include "tools/admin_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

namespace furrow::tools {
namespace {

// The first line of the answer to a GET, then its last line.
std::string get(std::uint16_t port, const std::string& path) {
  const int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  if (connect(connection, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0) {
    const std::string request = "GET " + path + " HTTP/1.0\r\n\r\n";
    EXPECT_EQ(send(connection, request.data(), request.size(), 0),
              static_cast<ssize_t>(request.size()));
    char piece[4096];
    for (ssize_t got; (got = recv(connection, piece, sizeof piece, 0)) > 0;) {
      answer.append(piece, static_cast<std::size_t>(got));
    }
  }
  close(connection);
  const std::size_t body = answer.find("\r\n\r\n");
  return answer.substr(9, 3) + ' ' + answer.substr(body == std::string::npos ? 0 : body + 4);
}

class AdminServerTest : public testing::Test {
 protected:
  void SetUp() override {
    auto started = AdminServer::start(
        "127.0.0.1", 0,
        {.metrics = [this] { return metrics_; }, .stopped = [this] { stopped_ = true; }});
    ASSERT_TRUE(started.ok()) << started.status().describe();
    admin_ = std::move(*started);
  }

  std::optional<std::string> metrics_;  // set before it is asked for
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
  metrics_ = "furrow_up 1\n";
  EXPECT_EQ(get(admin_->port(), "/metrics"), "200 furrow_up 1\n");
  EXPECT_EQ(get(admin_->port(), "/other").substr(0, 3), "404");
}

TEST_F(AdminServerTest, SaysWhenItHasStopped) {
  EXPECT_FALSE(stopped_);
  admin_.reset();
  EXPECT_TRUE(stopped_);
}

TEST_F(AdminServerTest, RefusesAPortInUse) {
  const auto second =
      AdminServer::start("127.0.0.1", admin_->port(), {.metrics = {}, .stopped = [] {}});
  EXPECT_EQ(second.status().code(), Code::in_use);
}

}  // namespace
}  // namespace furrow::tools
