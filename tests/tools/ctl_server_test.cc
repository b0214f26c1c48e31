// Establishes what furrowctl makes of the answers of a server that it asks to change something: a
// deletion that hosts delay goes on until it is done, which it shows on a terminal; where no answer
// comes to what was asked, it says that it may have been done. What it is answered is made safe to
// show. How: the built program against the built furrowd and a raw host, and against a listener of
// another kind.
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "tests/tools/furrowd_process.h"
#include "tests/transport/fake_engine.h"
#include "tests/transport/loopback_listener.h"
#include "tests/transport/raw_host.h"
#include "tests/transport/served.h"

namespace furrow::tools {
namespace {

using transport::RawHost;

class CtlServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ofstream(token_) << "0123456789abcdef\n";
    std::filesystem::permissions(token_, std::filesystem::perms::owner_read);
  }
  void TearDown() override { std::filesystem::remove(token_); }
  // Its exit status, and what it says.
  struct Ended {
    int status = -1;
    std::string said;
  };
  // `on_terminal`, if there is one: told what it has said so far, on a terminal.
  using OnTerminal = std::function<void(const std::string& said)>;
  static Ended furrowctl(const std::string& arguments, std::uint16_t port,
                         const OnTerminal& on_terminal = {}) {
    std::string command = std::string(FURROWCTL) + " volume " + arguments +
                          " --server=127.0.0.1:" + std::to_string(port) + " 2>&1";
    if (on_terminal) command = "script -qec '" + command + "' /dev/null </dev/null";
    FILE* const its = popen(command.c_str(), "r");
    Ended ended;
    char piece[256];
    for (ssize_t bytes; (bytes = read(fileno(its), piece, sizeof piece)) > 0;) {
      ended.said.append(piece, static_cast<std::size_t>(bytes));
      if (on_terminal) on_terminal(ended.said);
    }
    const int status = pclose(its);
    ended.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return ended;
  }

  std::string with_token(const std::string& arguments) const {
    return arguments + " --token_file=" + token_.string();
  }

  const std::filesystem::path token_ =
      std::filesystem::temp_directory_path() / ("furrow-ctl-server-" + std::to_string(getpid()));
};

TEST_F(CtlServerTest, ADeletionGoesOnUntilHostsCommandsAreDone) {
  FurrowdProcess furrowd({"--admin_token_file=" + token_.string()});
  RawHost admin(furrowd.port), io(furrowd.port);
  const std::uint16_t cntlid = transport::enable_controller(admin, furrowd.nqn);
  io.init();
  io.send(transport::connect_capsule(io, furrowd.nqn, 1, cntlid, 32));
  ASSERT_EQ(io.expect_response(0).sct_sc(), 0);
  nvme::Sqe store;
  store.opc = nvme::kv::kStore;
  store.cid = 1;
  store.nsid = 1;
  store.cdw10 = 65536;
  store.cdw11 = 4;
  io.send(io.capsule(store, {}, 65536));
  const auto r2t = io.receive();
  ASSERT_TRUE(r2t && r2t->type == transport::PduType::r2t);
  Ended ended;
  std::atomic<bool> shown{false};
  std::thread asks([&] {
    ended = furrowctl(with_token("delete pages"), furrowd.admin_port, [&](const std::string& said) {
      if (said.find("deleting pages: ") != std::string::npos) shown = true;
    });
  });
  for (unsigned tries = 0; !shown && tries < 1000; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(shown);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // an answer takes one second
  io.send(io.h2c_data(1, r2t->as<transport::R2t>().ttag, 0,
                      std::vector<std::byte>(65536, std::byte{7}), true));
  EXPECT_EQ(io.expect_response(1).sct_sc(), 0);
  asks.join();
  EXPECT_EQ(ended.status, 0) << ended.said;
  EXPECT_NE(ended.said.find("deleted"), std::string::npos) << ended.said;
}

// Takes a request, answers with this, and hangs up; any number of times.
class OtherServer {
 public:
  explicit OtherServer(std::string answer) : answer_(std::move(answer)) {
    thread_ = std::thread([this] {
      for (int peer; (peer = accept(listener_.fd(), nullptr, nullptr)) >= 0; close(peer)) {
        char request[4096];
        (void)recv(peer, request, sizeof request, 0);
        (void)send(peer, answer_.data(), answer_.size(), MSG_NOSIGNAL);
      }
    });
  }
  ~OtherServer() {
    shutdown(listener_.fd(), SHUT_RDWR);
    thread_.join();
  }

  std::uint16_t port() const { return listener_.port(); }

 private:
  const std::string answer_;
  const LoopbackListener listener_;
  std::thread thread_;
};

TEST_F(CtlServerTest, WhereNoAnswerComesItMayHaveBeenDone) {
  const OtherServer other("");
  for (const char* change : {"create more", "resize pages --quota=1GiB", "delete pages"}) {
    const Ended ended = furrowctl(with_token(change), other.port());
    EXPECT_EQ(ended.status, 1) << ended.said;
    EXPECT_NE(ended.said.find("may be done all the same"), std::string::npos) << ended.said;
  }
  const Ended looks = furrowctl("list", other.port());
  EXPECT_EQ(looks.status, 1);
  EXPECT_NE(looks.said.find("is furrowd running there"), std::string::npos) << looks.said;
}

// Names of members included.
TEST_F(CtlServerTest, WhatAServerSaysCommandsNoTerminal) {
  const std::string member = R"({"na\u001b[2Jme\n": "va\u001b[2Jlue\n"})";
  for (const std::string& body : {member, '[' + member + ']'}) {
    const OtherServer other("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) +
                            "\r\nConnection: close\r\n\r\n" + body);
    const Ended looks = furrowctl("list", other.port());
    EXPECT_EQ(looks.status, 0) << looks.said;
    EXPECT_EQ(looks.said.find('\x1b'), std::string::npos) << looks.said;
    EXPECT_NE(looks.said.find(R"(na\x1b[2Jme\x0a)"), std::string::npos) << looks.said;
    EXPECT_NE(looks.said.find(R"(va\x1b[2Jlue\x0a)"), std::string::npos) << looks.said;
  }
}

}  // namespace
}  // namespace furrow::tools
