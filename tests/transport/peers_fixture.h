// PeersTest: a base of tests whose host and targets, FuzzPeers that are honest but for what the
// test takes over, live on one thread, so that things happen in the order that the test needs.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tests/transport/fake_engine.h"
#include "tests/transport/fuzz_peer.h"
#include "tests/transport/unix_listener.h"
#include "transport/socket_ring.h"

namespace furrow::transport {

class PeersTest : public ::testing::Test {
 protected:
  PeersTest() : ring_(*SocketRing::create()) {}
  ~PeersTest() override { EXPECT_EQ(executor_.timers(), 0u); }

  // Says whether anything happened.
  bool turn() {
    bool any = executor_.run_once();
    any |= ring_->poll() != 0;
    for (int fd; (fd = listener_.take()) >= 0; any = true) {
      peers_.push_back(std::make_unique<fuzz::FuzzPeer>(fd, honest_));
      peers_.back()->take_over = [this](fuzz::FuzzPeer& peer, const nvme::Sqe& sqe) {
        return answers(peer, sqe);
      };
    }
    for (auto& peer : peers_) any |= peer->turn();
    return any;
  }
  // The clock goes on while nothing happens.
  void run_until(const std::function<bool()>& holds) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!holds()) {
      ASSERT_LT(std::chrono::steady_clock::now(), until) << "nothing happens any more";
      if (turn()) continue;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      clock_ns_ += 100'000;
    }
  }
  // A command came to a peer: true when the test has answered it.
  virtual bool answers(fuzz::FuzzPeer& peer, const nvme::Sqe& sqe) = 0;

  std::uint64_t clock_ns_ = 1'000'000'000;
  test::FakeExecutor executor_{clock_ns_};
  const std::unique_ptr<SocketRing> ring_;
  fuzz::UnixListener listener_;
  fuzz::ScriptReader honest_{nullptr, 0};
  std::vector<std::unique_ptr<fuzz::FuzzPeer>> peers_;
};

}  // namespace furrow::transport
