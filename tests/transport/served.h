// Served: a Target over a pool of plain maps, on a thread of its own, for tests with hosts of any
// kind; and the bring-up of a RawHost's queues there.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/transport/fake_engine.h"
#include "tests/transport/raw_host.h"
#include "transport/target.h"
#include "zone/event_loop.h"

namespace furrow::transport {

class Served {
 public:
  explicit Served(TargetOptions options = {}, std::uint32_t value_bytes_max = 1 << 20) {
    options.listen_port = 0;
    options.log = [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(line);
    };
    VolumeOptions volume;
    volume.name = "pages";
    volume.nsid = 1;
    volume.value_bytes_max = value_bytes_max;
    EXPECT_TRUE(pool_.create_volume(volume).ok());
    auto started = Target::start(pool_, loop_, options);
    EXPECT_TRUE(started.ok()) << started.status().describe();
    target = std::move(*started);
    thread_ = std::thread([this] { loop_.run(); });
  }
  ~Served() {
    struct Stop : Task {
      Served* self;
      std::promise<void> stopped;
    } stop;
    stop.self = this;
    stop.run = [](Task& task) {
      auto& now = static_cast<Stop&>(task);
      now.self->target->stop(0, [&now] { now.stopped.set_value(); });
    };
    loop_.post(stop);
    stop.stopped.get_future().get();
    loop_.stop_running();
    thread_.join();
    target.reset();
  }
  std::vector<std::string> lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  void eventually(const std::function<bool(const TargetStats&)>& holds) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!holds(target->stats()) && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(holds(target->stats())) << "waited 30 s in vain";
  }

  std::unique_ptr<Target> target;

 private:
  test::FakePool pool_;
  EventLoop loop_;
  std::thread thread_;
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

// `hostid`: the host identifier's last bytes, big-endian; the others are 0.
inline std::vector<std::byte> connect_capsule(RawHost& host, const std::string& subnqn,
                                              std::uint16_t qid, std::uint16_t cntlid,
                                              std::uint32_t entries,
                                              std::string_view hostnqn = "nqn.2026-11.test:host",
                                              std::uint64_t hostid = 0) {
  nvme::Sqe sqe;
  sqe.opc = nvme::opcode::kFabrics;
  sqe.nsid = nvme::fabrics::kConnect;
  sqe.cdw10 = std::uint32_t{qid} << 16;
  sqe.cdw11 = (entries - 1) | nvme::kCattrNoFlowControl << 16u;
  nvme::ConnectData data;
  data.cntlid = qid == 0 ? nvme::kCntlidDynamic : cntlid;
  for (unsigned i = 0; i < 8; ++i) {
    data.hostid[15 - i] = static_cast<std::uint8_t>(hostid >> 8 * i);
  }
  std::memcpy(data.subnqn, subnqn.data(), subnqn.size());
  std::memcpy(data.hostnqn, hostnqn.data(), hostnqn.size());
  return host.capsule(sqe, std::as_bytes(std::span(&data, 1)));
}

// The admin connection of a controller that is ready; returns its id.
inline std::uint16_t enable_controller(RawHost& host, const std::string& subnqn,
                                       std::string_view hostnqn = "nqn.2026-11.test:host",
                                       std::uint64_t hostid = 0) {
  host.init();
  host.send(connect_capsule(host, subnqn, 0, 0, 32, hostnqn, hostid));
  const auto cntlid = static_cast<std::uint16_t>(host.expect_response(0).dw0);
  nvme::Sqe enable;
  enable.opc = nvme::opcode::kFabrics;
  enable.nsid = nvme::fabrics::kPropertySet;
  enable.cdw11 = nvme::property::kCc;
  enable.cdw12 = nvme::kCcEnable | nvme::kCssAll << nvme::kCcCssShift;
  host.send(host.capsule(enable));
  EXPECT_EQ(host.expect_response(0).sct_sc(), 0);
  return cntlid;
}

}  // namespace furrow::transport
