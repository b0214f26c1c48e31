// Establishes that Compare and Write works over TCP, with data in the capsules and asked for by
// R2T; that a host whose data does not come is cut and nothing is written; and that a first command
// whose second does not come keeps neither its queue nor the end of the target. How: a Target over
// a real pool in memory, on a thread of its own; raw hosts.
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "engine/pool.h"
#include "tests/transport/raw_host.h"
#include "tests/transport/served.h"
#include "transport/target.h"
#include "zone/device_uri.h"
#include "zone/event_loop.h"

namespace furrow::transport {
namespace {

namespace sc = nvme::sc;
constexpr std::uint32_t kBlockBytes = 4096;

// A pool with one disk and its target, opened, run and closed on one thread.
class ServedDisk {
 public:
  explicit ServedDisk(std::uint32_t data_timeout_ms) {
    std::promise<void> ready;
    thread_ = std::thread([&, data_timeout_ms] { serve(data_timeout_ms, ready); });
    ready.get_future().wait();
  }
  ~ServedDisk() { stop(); }
  void stop() {  // in order: what was accepted is answered, for a minute if need be
    if (!thread_.joinable()) return;
    stop_.self = this;
    stop_.run = [](Task& task) {
      ServedDisk& self = *static_cast<StopTask&>(task).self;
      self.target->stop(60'000, [&self] { self.loop_.stop_running(); });
    };
    loop_.post(stop_);
    thread_.join();
  }
  std::unique_ptr<Target> target;

 private:
  struct StopTask : Task {
    ServedDisk* self = nullptr;
  };
  void serve(std::uint32_t data_timeout_ms, std::promise<void>& ready) {
    auto device = open_device("mem:64MiB?zone_size=2MiB", Access::exclusive);
    ASSERT_TRUE(device.ok() && Pool::format(**device, "fused", loop_).ok());
    auto pool = Pool::open(**device, loop_, {});
    ASSERT_TRUE(pool.ok());
    VolumeOptions disk;
    disk.name = "disk";
    disk.kind = VolumeKind::block;
    disk.mode = VolumeMode::store;
    disk.value_bytes_max = kBlockBytes;
    disk.block_bytes = 4 << 20;
    disk.block_lba_bytes = kBlockBytes;
    ASSERT_TRUE((*pool)->create_volume(disk).ok());
    TargetOptions options;
    options.listen_port = 0;
    options.data_timeout_ms = data_timeout_ms;
    auto started = Target::start(**pool, loop_, options);
    ASSERT_TRUE(started.ok());
    target = std::move(*started);
    ready.set_value();
    loop_.run();
    target.reset();
    while (!(*pool)->quiesce()) loop_.run_once();
  }

  EventLoop loop_;
  StopTask stop_;
  std::thread thread_;
};

// A host with an I/O queue.
class DiskHost {
 public:
  explicit DiskHost(const ServedDisk& disk) : admin_(disk.target->port()), io(disk.target->port()) {
    const std::string& nqn = disk.target->subsystem_nqn();
    const std::uint16_t cntlid = enable_controller(admin_, nqn);
    io.init(true, true);
    io.send(connect_capsule(io, nqn, 1, cntlid, 32));
    EXPECT_EQ(io.expect_response(0).sct_sc(), 0);
  }
  static nvme::Sqe command(std::uint8_t opcode, std::uint8_t fuse, std::uint16_t cid) {
    nvme::Sqe out;
    out.opc = opcode;
    out.flags = fuse;
    out.cid = cid;
    out.nsid = 1;
    out.cdw10 = 5;  // of one LBA
    return out;
  }
  static nvme::Sqe compare(std::uint16_t cid) {
    return command(nvme::nvm::kCompare, nvme::kFuseFirst, cid);
  }
  static nvme::Sqe second(std::uint16_t cid) {
    return command(nvme::nvm::kWrite, nvme::kFuseSecond, cid);
  }
  std::uint16_t status_of(std::uint16_t cid) { return io.expect_response(cid).sct_sc(); }
  void write(const std::vector<std::byte>& data) {
    io.send(io.capsule(command(nvme::nvm::kWrite, 0, 90), data));
    EXPECT_EQ(status_of(90), sc::kSuccess);
  }
  std::vector<std::byte> read() {
    io.send(io.capsule(command(nvme::nvm::kRead, 0, 91), {}, kBlockBytes));
    const auto pdu = io.receive();
    EXPECT_TRUE(pdu && pdu->type == PduType::c2h_data);
    return pdu ? pdu->data : std::vector<std::byte>();
  }
  // Of the command that it is expected to be for.
  std::uint16_t expect_r2t(std::uint16_t cid) {
    const auto pdu = io.receive();
    EXPECT_TRUE(pdu && pdu->type == PduType::r2t && pdu->as<R2t>().cccid == cid);
    return pdu ? pdu->as<R2t>().ttag : std::uint16_t{0xffff};
  }

 private:
  RawHost admin_;

 public:
  RawHost io;
};

std::vector<std::byte> block(char fill) {
  return std::vector<std::byte>(kBlockBytes, static_cast<std::byte>(fill));
}

TEST(FusedWire, DataInCapsulesOrByR2t) {
  ServedDisk disk(15'000);
  DiskHost host(disk);
  host.write(block('a'));
  // Both capsules at once, and other commands right behind them.
  auto bytes = host.io.capsule(DiskHost::compare(1), block('a'));
  const auto write = host.io.capsule(DiskHost::second(2), block('b'));
  bytes.insert(bytes.end(), write.begin(), write.end());
  host.io.send(bytes);
  EXPECT_EQ(host.status_of(1), sc::kSuccess);
  EXPECT_EQ(host.status_of(2), sc::kSuccess);
  EXPECT_EQ(host.read(), block('b'));
  // The data of both by R2T, of which the second is sent when the first is there.
  host.io.send(host.io.capsule(DiskHost::compare(3), {}, kBlockBytes));
  host.io.send(host.io.capsule(DiskHost::second(4), {}, kBlockBytes));
  host.io.send(host.io.h2c_data(3, host.expect_r2t(3), 0, block('b'), true));
  host.io.send(host.io.h2c_data(4, host.expect_r2t(4), 0, block('c'), true));
  EXPECT_EQ(host.status_of(3), sc::kSuccess);
  EXPECT_EQ(host.status_of(4), sc::kSuccess);
  EXPECT_EQ(host.read(), block('c'));
  // One each, and what is there is something else.
  host.io.send(host.io.capsule(DiskHost::compare(5), block('x')));
  host.io.send(host.io.capsule(DiskHost::second(6), {}, kBlockBytes));
  host.io.send(host.io.h2c_data(6, host.expect_r2t(6), 0, block('d'), true));
  EXPECT_EQ(host.status_of(5), sc::kCompareFailure);
  EXPECT_EQ(host.status_of(6), sc::kFailedFused);
  EXPECT_EQ(host.read(), block('c'));
  // Data of a command that fails before it is asked for goes by.
  host.io.send(host.io.capsule(DiskHost::second(7), block('e')));
  EXPECT_EQ(host.status_of(7), sc::kMissingFused);
  host.io.send(host.io.capsule(DiskHost::compare(8), block('c')));
  host.io.send(host.io.capsule(DiskHost::command(nvme::nvm::kFlush, 0, 9)));
  EXPECT_EQ(host.status_of(8), sc::kMissingFused);
  EXPECT_EQ(host.status_of(9), sc::kSuccess);
  EXPECT_EQ(host.read(), block('c'));
}

TEST(FusedWire, DataThatNeverComes) {
  ServedDisk disk(400);
  DiskHost patient(disk);
  patient.write(block('a'));
  for (const bool first_comes : {false, true}) {
    DiskHost host(disk);
    host.io.send(host.io.capsule(DiskHost::compare(1), {}, kBlockBytes));
    host.io.send(host.io.capsule(DiskHost::second(2), {}, kBlockBytes));
    const std::uint16_t tag = host.expect_r2t(1);
    if (first_comes) {
      host.io.send(host.io.h2c_data(1, tag, 0, block('a'), true));
      host.expect_r2t(2);
    }
    host.io.expect_term(Fes::sequence);
  }
  EXPECT_EQ(patient.read(), block('a'));
  // A first command may wait: it costs nobody anything.
  patient.io.send(patient.io.capsule(DiskHost::compare(1), {}, kBlockBytes));
  std::this_thread::sleep_for(std::chrono::milliseconds(900));
  patient.io.send(patient.io.capsule(DiskHost::second(2), block('b')));
  patient.io.send(patient.io.h2c_data(1, patient.expect_r2t(1), 0, block('a'), true));
  EXPECT_EQ(patient.status_of(1), sc::kSuccess);
  EXPECT_EQ(patient.status_of(2), sc::kSuccess);
}

TEST(FusedWire, HostsThatGoAndATargetThatEnds) {
  ServedDisk disk(15'000);
  DiskHost host(disk);
  host.write(block('a'));
  for (int moment = 0; moment < 6; ++moment) {
    DiskHost other(disk);
    other.io.send(other.io.capsule(DiskHost::compare(1), {}, kBlockBytes));
    if (moment % 3 > 0) {
      other.io.send(other.io.capsule(DiskHost::second(2), {}, kBlockBytes));
      const std::uint16_t tag = other.expect_r2t(1);
      if (moment % 3 > 1) {
        other.io.send(other.io.h2c_data(1, tag, 0, block('a'), true));
        other.expect_r2t(2);
      }
    }
    moment < 3 ? other.io.disconnect() : other.io.reset();
  }
  EXPECT_EQ(host.read(), block('a'));
  host.io.send(host.io.capsule(DiskHost::compare(4), block('a')));
  const auto began = std::chrono::steady_clock::now();
  disk.stop();
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(30));
}

}  // namespace
}  // namespace furrow::transport
