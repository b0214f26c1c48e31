// Establishes that nothing is allocated on a page's whole path over the network, from the
// initiator's submit() through a target and its pool to the device and back: not for a get, not for
// exist, and for puts only what a zone costs, however many pages it takes. How: a real target over
// a real pool, in memory or on a file, on a thread of its own; all of malloc's family counts, in
// the whole process. (Of the wire alone, steady_state_test; of the engine alone,
// tests/engine/allocation_test.)
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "engine/pool.h"
#include "tests/count_allocations.h"
#include "tests/engine/pool_file.h"
#include "transport/initiator.h"
#include "transport/target.h"
#include "zone/aligned_buffer.h"
#include "zone/device_uri.h"
#include "zone/event_loop.h"

namespace furrow::transport {
namespace {

constexpr std::uint64_t kAlways = ~std::uint64_t{0};  // to sleep, a loop may allocate
constexpr std::uint32_t kDepth = 32;

// A pool with a small cache and its target, opened, run and closed on one thread.
class Server {
 public:
  explicit Server(std::string device) : device_(std::move(device)) {
    std::promise<std::uint16_t> port;
    std::future<std::uint16_t> ready = port.get_future();
    thread_ = std::thread([this, &port] { serve(port); });
    port_ = ready.get();
  }
  ~Server() {
    stop_.self = this;
    stop_.run = [](Task& task) {
      Server& self = *static_cast<StopTask&>(task).self;
      self.target_->stop(1000, [&self] { self.loop_.stop_running(); });
    };
    loop_.post(stop_);
    thread_.join();
  }
  std::uint16_t port() const { return port_; }
  std::uint64_t zones_reset() const { return store_->stats().zones_reset; }  // any thread

 private:
  struct StopTask : Task {
    Server* self = nullptr;
  };
  void serve(std::promise<std::uint16_t>& port) {
    auto device = open_device(device_, Access::exclusive);
    ASSERT_TRUE(device.ok()) << device.status().describe();
    ASSERT_TRUE(Pool::format(**device, "path", loop_).ok());
    auto pool = Pool::open(**device, loop_, {});
    ASSERT_TRUE(pool.ok());
    VolumeOptions volume;
    volume.name = "pages";
    volume.value_bytes_max = 64 << 10;
    auto store = (*pool)->create_volume(volume);
    ASSERT_TRUE(store.ok()) << store.status().describe();
    store_ = *store;
    TargetOptions options;
    options.listen_port = 0;
    auto target = Target::start(**pool, loop_, options);
    ASSERT_TRUE(target.ok()) << target.status().describe();
    target_ = std::move(*target);
    port.set_value(target_->port());
    loop_.run();
    target_.reset();
    while (!(*pool)->quiesce()) loop_.run_once();
  }

  const std::string device_;
  EventLoop loop_{{.spin_us = kAlways}};
  PageStore* store_ = nullptr;
  std::unique_ptr<Target> target_;
  StopTask stop_;
  std::thread thread_;
  std::uint16_t port_ = 0;
};

struct PathShape {
  std::uint32_t page_bytes;
  std::uint64_t zone_bytes;  // with a hundred pages and more
  bool in_memory;
};
constexpr std::uint64_t kZones = 12;

class PagePath : public ::testing::TestWithParam<PathShape> {
 protected:
  PagePath() {
    InitiatorOptions options;
    options.port = server_.port();
    options.keep_alive_ms = 600'000;
    auto connected = Initiator::connect(loop_, options);
    EXPECT_TRUE(connected.ok()) << connected.status().describe();
    if (connected.ok()) initiator_ = std::move(*connected);
  }
  void run(PageOp::Kind kind, std::uint64_t count, Durability durability = Durability::none) {
    for (std::uint64_t done = 0; done < count; done += kDepth) {
      released_ = 0;
      for (std::uint32_t i = 0; i < kDepth; ++i) {
        PageOp& op = ops_[i];
        const std::uint64_t number = (done + i) % kKeys;
        op.kind = kind;
        op.durability = durability;
        op.key = Key::from(std::as_bytes(std::span(&number, 1)));
        op.data = memory_.data() + std::size_t{i} * page_bytes_;
        op.length = op.capacity = page_bytes_;
        op.context = this;
        op.on_result = [](PageOp&) {};
        op.on_released = [](PageOp& own) { ++static_cast<PagePath*>(own.context)->released_; };
        initiator_->submit(op);
      }
      while (released_ != kDepth) {
        if (loop_.run_once() == 0) std::this_thread::yield();
      }
      for (const PageOp& op : ops_) ASSERT_TRUE(op.status.ok()) << op.status.describe();
    }
  }

  static std::string device(const testing::PoolFile& file) {
    const std::uint64_t zone_bytes = GetParam().zone_bytes, bytes = kZones * zone_bytes;
    if (GetParam().in_memory) {
      return "mem:" + std::to_string(bytes) + "?zone_size=" + std::to_string(zone_bytes);
    }
    file.make_device(bytes, zone_bytes);
    return file.uri();
  }

  static constexpr std::uint64_t kKeys = 128;  // the cache holds all of them
  const std::uint32_t page_bytes_ = GetParam().page_bytes;
  testing::PoolFile file_;
  Server server_{device(file_)};
  EventLoop loop_{{.spin_us = kAlways}};
  std::unique_ptr<Initiator> initiator_;
  AlignedBuffer memory_{std::size_t{kDepth} * page_bytes_};
  std::vector<PageOp> ops_ = std::vector<PageOp>(kDepth);
  std::uint32_t released_ = 0;
};

TEST_P(PagePath, NothingIsAllocated) {
  ASSERT_NE(initiator_, nullptr);
  // More than the device holds, which turns the cache over.
  const std::uint64_t puts = (kZones + 2) * GetParam().zone_bytes / page_bytes_;
  run(PageOp::Kind::put, puts);
  run(PageOp::Kind::get, 10 * kKeys);
  run(PageOp::Kind::exist, kKeys);
  std::uint64_t before = testing::allocations();
  run(PageOp::Kind::get, 10 * kKeys);
  EXPECT_EQ(testing::allocations() - before, 0u) << "in " << 10 * kKeys << " gets";
  before = testing::allocations();
  run(PageOp::Kind::exist, 10 * kKeys);
  EXPECT_EQ(testing::allocations() - before, 0u) << "in " << 10 * kKeys << " times exist";

  for (const Durability durability : {Durability::none, Durability::flushed}) {
    run(PageOp::Kind::put, kDepth, durability);
    const std::uint64_t zones = server_.zones_reset();
    before = testing::allocations();
    run(PageOp::Kind::put, puts, durability);
    const std::uint64_t turned = server_.zones_reset() - zones;
    EXPECT_GT(turned, 10u);
    EXPECT_LE(testing::allocations() - before, turned * 30) << "in " << puts << " puts";
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, PagePath,
                         ::testing::Values(PathShape{4096, 2 << 20, true},
                                           PathShape{16384, 4 << 20, true},
                                           PathShape{65536, 8 << 20, true},
                                           PathShape{16384, 2 << 20, false}),
                         [](const auto& test) {
                           return std::to_string(test.param.page_bytes) +
                                  (test.param.in_memory ? "InMemory" : "OnAFile");
                         });

}  // namespace
}  // namespace furrow::transport
