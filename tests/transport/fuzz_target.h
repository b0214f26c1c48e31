// FuzzTarget: a whole target, from its connections to a pool in memory, on socket pairs and a clock
// that the input moves; for target_fuzz. The pool has pages, a disk and zones, so that every
// command set is served; its device may be held, and answers nothing then.
//
// Threads: one; nothing blocks.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/pool.h"
#include "tests/fuzz/fixed_randomness.h"
#include "tests/transport/fake_engine.h"
#include "tests/transport/fuzz_host.h"
#include "tests/transport/fuzz_ring.h"
#include "transport/subsystem.h"
#include "transport/tcp_connection.h"

namespace furrow::fuzz {

constexpr std::uint32_t kPages = 1, kDisk = 2, kZones = 3;  // namespaces
constexpr std::uint32_t kDiskLbaBytes = 512;

class FuzzTarget {
 public:
  FuzzTarget() {
    make_pool();
    auto subsystem = transport::Subsystem::create(*pool_, executor_, small_options());
    require(subsystem.ok(), "a subsystem can be made");
    subsystem_ = std::move(*subsystem);
    auto reactor = subsystem_->create_reactor(executor_);
    require(reactor.ok(), "a reactor can be made");
    reactor_ = std::move(*reactor);
    subsystem_->add_port("127.0.0.1", 4420);
    limits_.h2c_data_bytes = subsystem_->options().transfer_bytes_max;
    limits_.stash_bytes_max = 256 << 10;
  }
  ~FuzzTarget() {
    hold(false);
    for (auto& connection : connections_) connection->cut();
    wait_for([this] { return connections_.empty(); }, [this] { settle(); },
             "every connection ends");
    require(reactor_->idle(), "every request and buffer came back");
    require(subsystem_->stats().controllers == 0, "every controller ends");
    require(stats_.stash_bytes == 0, "every stash is dropped");
    reactor_.reset();
    subsystem_.reset();
    for (int turns = 0; !pool_->quiesce(); ++turns) {
      require(turns < kTurnsMax, "the pool comes to rest");
      (void)executor_.run_once();
    }
    pool_.reset();
    require(executor_.timers() == 0, "no timer is left");
  }
  FuzzTarget(const FuzzTarget&) = delete;
  FuzzTarget& operator=(const FuzzTarget&) = delete;

  std::unique_ptr<FuzzHost> connect() {
    int ends[2];
    require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "sockets can be made");
    transport::TcpConnection::Environment environment{ring(), executor_, *reactor_, limits_,
                                                      stats_};
    environment.context = this;
    environment.on_gone = [](transport::TcpConnection& gone) {
      std::erase_if(static_cast<FuzzTarget*>(gone.context())->connections_,
                    [&](const auto& held) { return held.get() == &gone; });
    };
    connections_.push_back(
        std::make_unique<transport::TcpConnection>(environment, ends[0], "fuzz"));
    connections_.back()->start();
    return std::make_unique<FuzzHost>(ends[1]);
  }
  // Until nothing moves any more, or for long enough while the device is held.
  void settle() {
    const int turns_max = held() ? 40 : kTurnsMax;
    for (int quiet = 0, turns = 0; quiet < 2; ++turns) {
      if (turns == turns_max) return require(held(), "the target comes to rest");
      bool any = executor_.run_once();
      any |= ring().poll() != 0;
      quiet = any ? 0 : quiet + 1;
    }
  }
  // What a thread of the kernel's completes for a socket may come after all is quiet.
  template <class Holds, class Settle>
  static void wait_for(Holds&& holds, Settle&& settle, const char* what) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    for (settle(); !holds(); settle()) {
      require(std::chrono::steady_clock::now() < end, what);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  void advance_ms(std::uint64_t ms) { clock_ns_ += ms * 1'000'000; }
  void hold(bool held) { executor_.hold_pollers = held; }
  bool held() const { return executor_.hold_pollers; }
  const std::string& nqn() const { return subsystem_->nqn(); }

 private:
  static constexpr int kTurnsMax = 100000;  // far more than anything here needs

  static transport::SubsystemOptions small_options() {
    transport::SubsystemOptions options;
    // Of each size enough that no number of hosts here can have the last.
    options.buffer_bytes_max = 1 << 20;
    options.transfer_bytes_max = 64 << 10;
    return options;
  }
  void make_pool() {
    use_fixed_randomness();
    auto device = open_device("mem:2560KiB?zone_size=128KiB&lba=512&mor=0&mar=0&reclaim=never",
                              Access::exclusive);
    require(device.ok(), "mem: opens");
    device_ = std::move(*device);
    require(Pool::format(*device_, "unit", executor_).ok(), "a pool can be made");
    Pool::OpenOptions options;
    options.recovery_threads = Pool::OpenOptions::kCallingThread;
    auto pool = Pool::open(*device_, executor_, options);
    require(pool.ok(), "a pool opens");
    pool_ = std::move(*pool);
    VolumeOptions pages;
    pages.name = "pages";  // a cache: whatever is stored, there is room
    pages.nsid = kPages;
    pages.quota_bytes = 512 << 10;
    pages.value_bytes_max = 32 << 10;
    VolumeOptions disk;
    disk.name = "disk";
    disk.kind = VolumeKind::block;
    disk.mode = VolumeMode::store;
    disk.nsid = kDisk;
    disk.quota_bytes = 512 << 10;
    disk.value_bytes_max = kBlockPageBytes;
    disk.block_bytes = 1 << 20;
    disk.block_lba_bytes = kDiskLbaBytes;
    VolumeOptions zones;
    zones.name = "zones";
    zones.kind = VolumeKind::zoned;
    zones.mode = VolumeMode::store;
    zones.nsid = kZones;
    zones.zones = 3;
    for (const VolumeOptions& volume : {pages, disk, zones}) {
      require(pool_->create_volume(volume).ok(), "a volume can be made");
    }
  }

  std::uint64_t clock_ns_ = 1'000'000'000;
  test::FakeExecutor executor_{clock_ns_};
  std::unique_ptr<ZonedDevice> device_;
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<transport::Subsystem> subsystem_;
  std::unique_ptr<transport::SubsystemReactor> reactor_;
  transport::TcpLimits limits_;
  transport::TcpStats stats_;
  std::vector<std::unique_ptr<transport::TcpConnection>> connections_;
};

}  // namespace furrow::fuzz
