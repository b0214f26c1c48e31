// Served: a real Target on a thread of its own, over a pool of plain maps.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/transport/fake_engine.h"
#include "transport/target.h"
#include "zone/event_loop.h"

namespace furrow::transport {

class Served {
 public:
  explicit Served(TargetOptions options) {
    options.listen_port = 0;
    options.log = [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(line);
    };
    VolumeOptions volume;
    volume.name = "pages";
    volume.nsid = 1;
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

}  // namespace furrow::transport
