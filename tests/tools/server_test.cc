// Establishes how a Server lives and ends (tools::Server): the ready line and what is served then,
// an orderly end by SIGTERM, SIGINT and SIGHUP, in which no volume is made, a second signal that
// ends it at once, a signal in the start-up, and each start that fails: its exit status, and
// nothing made. How: in a child process, as signals and the exit status are the process's.
#include "tools/server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>

#include "tests/transport/fake_engine.h"
#include "tests/transport/loopback_listener.h"
#include "tests/transport/raw_host.h"
#include "tests/transport/served.h"
#include "transport/tcp_listener.h"

namespace furrow::tools {
namespace {

using transport::RawHost;

class ServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.pool.uri = "mem:64MiB?zone_size=4MiB";
    options_.pool.name = "server";
    options_.create = true;
    options_.volume.name = "pages";
    options_.pool.first_volume = options_.volume;
    options_.target.listen_port = 0;
    options_.admin = Endpoint{"127.0.0.1", 0};
  }
  void TearDown() override {
    if (pid_ > 0) kill(pid_, SIGKILL), end();
    std::filesystem::remove(path_);
  }
  // In a child; its stdout and stderr can be read here.
  void run() {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(stdout_ >= 0 ? stdout_ : ends[1], STDOUT_FILENO);
      dup2(ends[1], STDERR_FILENO);
      close(ends[0]);
      int status = 0;
      {
        Server server(options_);
        status = server.run();
      }
      std::fflush(nullptr);
      _exit(status);
    }
    close(ends[1]);
    said_ = ends[0];
  }
  // Up to a line that has `text`, or the end.
  std::string wait_for(const std::string& text) {
    std::string all;
    for (char byte; all.find(text) == std::string::npos || all.back() != '\n';) {
      if (read(said_, &byte, 1) != 1) break;
      all += byte;
    }
    return all;
  }
  void run_until_ready() {
    ASSERT_NO_FATAL_FAILURE(run());
    const std::string line = wait_for("furrowd ready");
    const auto number = [&](const char* name) {
      const std::size_t at = line.find(':', line.find(name));
      return static_cast<std::uint16_t>(std::strtoul(line.c_str() + at + 1, nullptr, 10));
    };
    ASSERT_NE(line.find("nqn=nqn.2026-11.io.furrow:server\n"), std::string::npos) << line;
    port_ = number("listen=");
    admin_port_ = number("admin=");
  }
  // The exit status; a signal as its negative number.
  int end() {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  void expect_fails(int status, const std::string& says) {
    ASSERT_NO_FATAL_FAILURE(run());
    const std::string said = wait_for("ready listen");
    const bool serves = said.find("ready listen") != std::string::npos;
    EXPECT_FALSE(serves);
    if (serves) kill(pid_, SIGKILL);
    EXPECT_EQ(end(), status) << said;
    EXPECT_NE(said.find(says), std::string::npos) << said;
  }
  // A Store that never gets its data: it holds up an orderly end.
  void get_stuck(RawHost& admin, RawHost& io) {
    const std::string nqn = "nqn.2026-11.io.furrow:server";
    const std::uint16_t cntlid = transport::enable_controller(admin, nqn);
    io.init();
    io.send(transport::connect_capsule(io, nqn, 1, cntlid, 32));
    EXPECT_EQ(io.expect_response(0).sct_sc(), 0);
    nvme::Sqe sqe;
    sqe.opc = nvme::kv::kStore;
    sqe.nsid = 1;
    sqe.cdw10 = 65536;
    sqe.cdw11 = 4;
    io.send(io.capsule(sqe, {}, 65536));
    EXPECT_TRUE(io.receive().has_value());
  }
  // What the admin listener answers; its first bytes.
  std::string ask(const std::string& request) const {
    const int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in to = loopback_address(admin_port_);
    char answer[64] = {};
    if (connect(connection, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0) {
      (void)send(connection, request.data(), request.size(), MSG_NOSIGNAL);
      (void)recv(connection, answer, sizeof answer - 1, MSG_WAITALL);
    }
    close(connection);
    return answer;
  }
  // /ready says that it drains, by when a second signal is no longer held back.
  void wait_for_drain() const {
    const auto draining = [&] {
      return ask("GET /ready HTTP/1.0\r\n\r\n").find(" 503 ") != std::string::npos;
    };
    for (int i = 0; i < 6000 && !draining(); ++i) usleep(5000);
    EXPECT_TRUE(draining()) << "it has ended, although a command is under way";
  }

  const std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("furrow-server-" + std::to_string(getpid()));
  ServerOptions options_;
  pid_t pid_ = -1;
  int said_ = -1;
  int stdout_ = -1;  // of the child, where it is not to be read
  std::uint16_t port_ = 0, admin_port_ = 0;
};

TEST_F(ServerTest, ServesAndEndsInOrderByAnySignal) {
  options_.pool.uri = "emu:" + path_.string() + "?direct=0";
  options_.pool.shape.size_bytes = 64 << 20;
  options_.pool.shape.zone_size_bytes = 4 << 20;
  for (const int signal_number : {SIGTERM, SIGINT, SIGHUP}) {  // the second time the pool is there
    ASSERT_NO_FATAL_FAILURE(run_until_ready());
    EXPECT_NE(port_, 0);
    EXPECT_NE(admin_port_, 0);
    RawHost host(port_);
    transport::enable_controller(host, "nqn.2026-11.io.furrow:server");
    host.disconnect();
    kill(pid_, signal_number);
    EXPECT_EQ(end(), kExitDone);
  }
}

// As under nohup(1), or in the background of a script.
TEST_F(ServerTest, WhatItWasStartedToIgnoreItIgnores) {
  for (const int number : {SIGHUP, SIGINT}) signal(number, SIG_IGN);
  ASSERT_NO_FATAL_FAILURE(run_until_ready());
  for (const int number : {SIGHUP, SIGINT}) signal(number, SIG_DFL);
  for (const int number : {SIGHUP, SIGINT}) kill(pid_, number);
  RawHost host(port_);
  transport::enable_controller(host, "nqn.2026-11.io.furrow:server");
  EXPECT_NE(ask("GET /ready HTTP/1.0\r\n\r\n").find(" 200 "), std::string::npos);
  host.disconnect();
  kill(pid_, SIGTERM);
  EXPECT_EQ(end(), kExitDone);
}

TEST_F(ServerTest, WithoutAnAdminListener) {
  options_.admin.reset();
  ASSERT_NO_FATAL_FAILURE(run());
  const std::string line = wait_for("furrowd ready");
  EXPECT_EQ(line.find("admin="), std::string::npos) << line;
  kill(pid_, SIGTERM);
  EXPECT_EQ(end(), kExitDone);
}

TEST_F(ServerTest, AnEndWaitsForTheDrainAndASecondSignalDoesNot) {
  options_.drain_ms = 3'600'000;
  ASSERT_NO_FATAL_FAILURE(run_until_ready());
  RawHost admin(port_), io(port_);
  get_stuck(admin, io);
  kill(pid_, SIGTERM);
  wait_for_drain();
  kill(pid_, SIGTERM);
  EXPECT_EQ(end(), -SIGTERM);
}

// A shell that loses its terminal says so to what it runs, and the kernel says it again.
TEST_F(ServerTest, ATerminalThatGoesIsToldOfTwice) {
  options_.drain_ms = 3'600'000;
  ASSERT_NO_FATAL_FAILURE(run_until_ready());
  RawHost admin(port_), io(port_);
  get_stuck(admin, io);
  kill(pid_, SIGHUP);
  wait_for_drain();
  kill(pid_, SIGHUP);
  io.disconnect();
  admin.disconnect();
  EXPECT_EQ(end(), kExitDone);
}

TEST_F(ServerTest, NoVolumeIsMadeWhileItDrains) {
  options_.admin_token = "0123456789abcdef";
  options_.volume.quota_bytes = 16 << 20;
  options_.target.cores = 2;
  options_.drain_ms = 3'600'000;
  ASSERT_NO_FATAL_FAILURE(run_until_ready());
  RawHost admin(port_), io(port_);
  get_stuck(admin, io);
  const auto make = [&](const std::string& name) {
    const std::string body =
        R"({"name": ")" + name + R"(", "mode": "store", "quota_bytes": 16777216})";
    return ask(
        "POST /volumes HTTP/1.0\r\nAuthorization: Bearer 0123456789abcdef\r\n"
        "Content-Length: " +
        std::to_string(body.size()) + "\r\n\r\n" + body);
  };
  EXPECT_NE(make("before").find(" 201 "), std::string::npos);
  kill(pid_, SIGTERM);
  wait_for_drain();
  EXPECT_NE(make("while").find(" 503 "), std::string::npos);
  io.disconnect();
  admin.disconnect();
  EXPECT_EQ(end(), kExitDone);
}

TEST_F(ServerTest, SaysWhyItEndsWhereNobodyReadsThatItServes) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  stdout_ = ends[1];
  expect_fails(kExitFailed, "nobody was told that it serves");
  close(ends[1]);
}

TEST_F(ServerTest, AStartThatFailsSaysWhatAndMakesNothing) {
  auto taken = transport::TcpListener::open("127.0.0.1", 0);
  ASSERT_TRUE(taken.ok());
  options_.pool.uri = "emu:" + path_.string();
  options_.pool.shape.size_bytes = 64 << 20;
  ServerOptions good = options_;
  options_.target.listen_port = (*taken)->port();
  expect_fails(kExitFailed, "cannot listen on 127.0.0.1:");
  EXPECT_FALSE(std::filesystem::exists(path_));
  options_ = good;
  options_.admin->port = (*taken)->port();
  expect_fails(kExitFailed, "cannot listen on 127.0.0.1:");
  EXPECT_FALSE(std::filesystem::exists(path_));
  options_ = good;
  options_.create = false;
  expect_fails(kExitFailed, "cannot open pool emu:");
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(ServerTest, AVolumeThatWasAskedForMustBeThere) {
  options_.pool.uri = "emu:" + path_.string() + "?direct=0";
  options_.pool.shape.size_bytes = 64 << 20;
  options_.pool.shape.zone_size_bytes = 4 << 20;
  ASSERT_NO_FATAL_FAILURE(run_until_ready());
  kill(pid_, SIGTERM);
  EXPECT_EQ(end(), kExitDone);
  options_.create = false;
  options_.volume.name = "other";
  options_.volume_asked.name = true;
  expect_fails(kExitFailed, "there is no volume other; the pool has: pages");
}

// What keeps it starting is a lock on the device that a process has left behind: such a one is
// waited for.
TEST_F(ServerTest, ASignalInTheStartUpEndsItAtOnce) {
  options_.pool.uri = "emu:" + path_.string() + "?direct=0";
  options_.pool.shape.size_bytes = 64 << 20;
  options_.pool.shape.zone_size_bytes = 4 << 20;
  ASSERT_NO_FATAL_FAILURE(run_until_ready());
  kill(pid_, SIGTERM);
  ASSERT_EQ(end(), kExitDone);
  const int device = open(path_.c_str(), O_RDWR | O_CLOEXEC);
  pid_ = fork();
  if (pid_ == 0) _exit(flock(device, LOCK_EX | LOCK_NB) == 0 ? 0 : 1);
  ASSERT_EQ(end(), 0);
  ASSERT_NO_FATAL_FAILURE(run());
  const auto takes_signals = [&] {  // by a thread of its own: the main one holds SIGTERM back
    std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("SigBlk:"))
        return (std::stoull(line.substr(7), nullptr, 16) >> (SIGTERM - 1) & 1) != 0;
    }
    return false;
  };
  for (int i = 0; i < 6000 && !takes_signals(); ++i) usleep(5000);
  usleep(50'000);
  kill(pid_, SIGTERM);
  const std::string said = wait_for("no line has this");
  EXPECT_NE(said.find("ended by a signal while it started"), std::string::npos) << said;
  EXPECT_EQ(end(), -SIGTERM);
  close(device);
}

}  // namespace
}  // namespace furrow::tools
