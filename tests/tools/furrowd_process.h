// FurrowdProcess: the built furrowd as a child process, over a pool in memory, for tests that speak
// to it as a host and look at its metrics. FURROW_TEST_TIMEOUT_SCALE gives it more time.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/transport/loopback_listener.h"

namespace furrow::tools {

using TestClock = std::chrono::steady_clock;

inline std::chrono::seconds scaled(unsigned seconds) {
  const char* const scale = std::getenv("FURROW_TEST_TIMEOUT_SCALE");
  return std::chrono::seconds(seconds * (scale == nullptr ? 1u : std::max(1, std::atoi(scale))));
}

class FurrowdProcess {
 public:
  explicit FurrowdProcess(std::vector<std::string> flags) {
    flags.insert(flags.begin(), {FURROWD, "--json", "--listen=127.0.0.1:0", "--admin=127.0.0.1:0",
                                 "--pool=mem:64MiB?zone_size=4MiB", "--create"});
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    std::vector<char*> arguments;
    for (std::string& flag : flags) arguments.push_back(flag.data());
    arguments.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(ends[1], STDOUT_FILENO);
      execv(arguments[0], arguments.data());
      _exit(127);
    }
    close(ends[1]);
    std::string line;
    for (char byte = 0; byte != '\n';) {
      const ssize_t got = read(ends[0], &byte, 1);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) break;
      line += byte;
    }
    close(ends[0]);
    const auto ready = nlohmann::json::parse(line, nullptr, false);
    if (ready.is_discarded()) {
      ADD_FAILURE() << "furrowd said: " << line;
      return;
    }
    port = port_of(ready.at("listen"));
    admin_port = port_of(ready.at("admin"));
    nqn = ready.at("nqn");
  }
  ~FurrowdProcess() {
    if (pid_ > 0) kill(pid_, SIGKILL), wait_for_end();
  }
  FurrowdProcess(const FurrowdProcess&) = delete;
  FurrowdProcess& operator=(const FurrowdProcess&) = delete;

  pid_t pid() const { return pid_; }
  void terminate() const { kill(pid_, SIGTERM); }
  // Its exit status.
  int wait_for_end() {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  bool runs() const {
    siginfo_t ended{};
    return waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           ended.si_pid == 0;
  }

  // The values of a metric, by line.
  std::vector<std::uint64_t> metrics(const std::string& name) const {
    std::istringstream text(page("/metrics"));
    std::vector<std::uint64_t> values;
    for (std::string line; std::getline(text, line);) {
      const std::size_t end = line.find_first_of("{ ");
      if (line.substr(0, end) != name) continue;
      values.push_back(
          static_cast<std::uint64_t>(std::strtod(line.c_str() + line.rfind(' '), nullptr)));
    }
    return values;
  }
  std::uint64_t metric(const std::string& name) const {
    const auto values = metrics(name);
    EXPECT_EQ(values.size(), 1u) << name;
    return values.empty() ? 0 : values[0];
  }

  static bool eventually(const std::function<bool()>& holds) {
    const auto until = TestClock::now() + scaled(60);
    while (!holds()) {
      if (TestClock::now() > until) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }

  std::uint16_t port = 0, admin_port = 0;
  std::string nqn;

 private:
  static std::uint16_t port_of(const std::string& endpoint) {
    return static_cast<std::uint16_t>(std::stoul(endpoint.substr(endpoint.rfind(':') + 1)));
  }
  std::string page(const std::string& path) const {
    const int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in to = loopback_address(admin_port);
    std::string answer;
    const std::string request = "GET " + path + " HTTP/1.0\r\n\r\n";
    if (connect(connection, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0 &&
        send(connection, request.data(), request.size(), MSG_NOSIGNAL) > 0) {
      char piece[4096];
      for (ssize_t got; (got = recv(connection, piece, sizeof piece, 0)) > 0;) {
        answer.append(piece, static_cast<std::size_t>(got));
      }
    }
    close(connection);
    return answer;
  }

  pid_t pid_ = -1;
};

}  // namespace furrow::tools
