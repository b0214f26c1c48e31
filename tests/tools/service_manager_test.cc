// Establishes that a service manager is told by its socket what sd_notify(3) would tell it, that
// nothing is said where nobody asked, and that furrowd says when it serves and when it ends, and
// not before. How: a socket of the test's in NOTIFY_SOCKET.
#include "tools/service_manager.h"

#include <poll.h>
#include <sys/un.h>

#include "tests/tools/furrowd_process.h"
#include "tests/zone/device_test_util.h"

namespace furrow::tools {
namespace {

class ServiceManagerTest : public ::testing::Test {
 protected:
  ~ServiceManagerTest() override {
    unsetenv("NOTIFY_SOCKET");
    if (socket_ >= 0) close(socket_);
  }

  // Listens there, and says so to what comes after.
  void listen(const std::string& name) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    ASSERT_LT(name.size(), sizeof address.sun_path);
    name.copy(address.sun_path, name.size());
    if (name[0] == '@') address.sun_path[0] = 0;
    socket_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(bind(socket_, reinterpret_cast<const sockaddr*>(&address),
                   static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size())),
              0);
    setenv("NOTIFY_SOCKET", name.c_str(), 1);
  }
  bool is_told() const {
    pollfd waiting{socket_, POLLIN, 0};
    return poll(&waiting, 1, 0) == 1;
  }
  std::string told() const {
    char text[512];
    const ssize_t got = recv(socket_, text, sizeof text, 0);
    return got < 0 ? std::string("nothing") : std::string(text, static_cast<std::size_t>(got));
  }

  test::TempDir dir_;

 private:
  int socket_ = -1;
};

TEST_F(ServiceManagerTest, IsToldByASocketInTheFileSystem) {
  listen(dir_.file("notify"));
  EXPECT_TRUE(tell_service_manager("READY=1\nSTATUS=serves").ok());
  EXPECT_EQ(told(), "READY=1\nSTATUS=serves");
}

TEST_F(ServiceManagerTest, IsToldByAnAbstractSocket) {
  listen("@furrow-service-manager-test-" + std::to_string(getpid()));
  EXPECT_TRUE(tell_service_manager("STOPPING=1").ok());
  EXPECT_EQ(told(), "STOPPING=1");
}

TEST_F(ServiceManagerTest, IsNotToldWhereThereIsNone) {
  EXPECT_TRUE(tell_service_manager("READY=1").ok());
}

TEST_F(ServiceManagerTest, ThatItCannotBeToldIsAnError) {
  setenv("NOTIFY_SOCKET", dir_.file("nobody").c_str(), 1);
  const Status nobody = tell_service_manager("READY=1");
  EXPECT_EQ(nobody.code(), Code::io_error);
  EXPECT_EQ(nobody.sys_errno(), ENOENT);
  for (const std::string& name : {std::string("relative"), std::string("/"), std::string(),
                                  '/' + std::string(sizeof(sockaddr_un), 'n')}) {
    setenv("NOTIFY_SOCKET", name.c_str(), 1);
    EXPECT_EQ(tell_service_manager("READY=1").code(), Code::invalid_argument) << name;
  }
}

TEST_F(ServiceManagerTest, FurrowdSaysThatItServesAndThatItEnds) {
  listen(dir_.file("notify"));
  FurrowdProcess furrowd({});
  EXPECT_EQ(told(), "READY=1\nSTATUS=serves on 127.0.0.1:" + std::to_string(furrowd.port));
  EXPECT_FALSE(is_told());
  furrowd.terminate();
  EXPECT_EQ(told(), "STOPPING=1\nSTATUS=ends what it accepted");
  EXPECT_EQ(furrowd.wait_for_end(), 0);
}

TEST_F(ServiceManagerTest, FurrowdServesWhereItCannotBeTold) {
  setenv("NOTIFY_SOCKET", dir_.file("nobody").c_str(), 1);
  FurrowdProcess furrowd({});
  EXPECT_NE(furrowd.port, 0);
  EXPECT_TRUE(furrowd.runs());
}

TEST_F(ServiceManagerTest, FurrowdThatFailsToStartSaysNothing) {
  listen(dir_.file("notify"));
  const pid_t pid = fork();
  if (pid == 0) {
    const std::string pool = "--pool=emu:" + dir_.file("none");
    execl(FURROWD, FURROWD, pool.c_str(), "--listen=127.0.0.1:0", "--admin=", nullptr);
    _exit(127);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_FALSE(is_told());
}

}  // namespace
}  // namespace furrow::tools
