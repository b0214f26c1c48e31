// Establishes that furrowd does what its flags say: --cores makes so many reactors and all of them
// serve; --cpus says where each stays; --drain_ms is how long a stuck host may hold up the end;
// --setup_timeout_ms, --data_timeout_ms and --idle_ms end who is silent; --scrub_rate is what is
// read in the background. How: the built program with small values, raw hosts that get stuck, its
// metrics. Nothing is early; that it is not as late as with the standard value is tried again where
// the machine stood still.
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "tests/tools/furrowd_process.h"
#include "tests/transport/fake_engine.h"
#include "tests/transport/raw_host.h"
#include "tests/transport/served.h"

namespace furrow::tools {
namespace {

using std::chrono::milliseconds;
using transport::RawHost;

milliseconds since(TestClock::time_point start) {
  return std::chrono::duration_cast<milliseconds>(TestClock::now() - start);
}

// A controller's admin queue and one I/O queue.
struct Host {
  explicit Host(const FurrowdProcess& furrowd) : admin(furrowd.port), io(furrowd.port) {
    const std::uint16_t cntlid = transport::enable_controller(admin, furrowd.nqn);
    io.init();
    io.send(transport::connect_capsule(io, furrowd.nqn, 1, cntlid, 32));
    EXPECT_EQ(io.expect_response(0).sct_sc(), 0);
  }
  static nvme::Sqe store(std::uint16_t cid, std::uint32_t bytes) {
    nvme::Sqe sqe;
    sqe.opc = nvme::kv::kStore;
    sqe.cid = cid;
    sqe.nsid = 1;
    sqe.cdw2 = cid;
    sqe.cdw10 = bytes;
    sqe.cdw11 = 4;  // of the key
    return sqe;
  }
  // A command that waits for data which never comes.
  void get_stuck() {
    io.send(io.capsule(store(1, 65536), {}, 65536));
    const auto r2t = io.receive();
    ASSERT_TRUE(r2t && r2t->type == transport::PduType::r2t);
  }

  RawHost admin, io;
};

// What `attempt` measures is less than `limit`, at least once in three times.
void expect_sooner(milliseconds limit, const std::function<milliseconds()>& attempt) {
  milliseconds took{};
  for (int i = 0; i < 3; ++i) {
    took = attempt();
    if (took < limit || ::testing::Test::HasFailure()) return;
  }
  ADD_FAILURE() << "took " << took.count() << " ms, and should less than " << limit.count();
}

TEST(FurrowdFlags, EachOfTheCoresServes) {
  FurrowdProcess furrowd({"--cores=3", "--poll=sleep"});
  EXPECT_EQ(furrowd.metrics("furrow_target_reactor_io_queues"),
            (std::vector<std::uint64_t>{0, 0, 0}));
  std::vector<std::unique_ptr<Host>> hosts;
  for (int i = 0; i < 6; ++i) hosts.push_back(std::make_unique<Host>(furrowd));
  const auto queues = furrowd.metrics("furrow_target_reactor_io_queues");
  EXPECT_EQ(std::accumulate(queues.begin(), queues.end(), 0u), 6u);
  EXPECT_GE(std::ranges::min(queues), 1u);
  const std::vector<std::byte> value(4096, std::byte{7});
  for (auto& host : hosts) {
    host->io.send(host->io.capsule(Host::store(1, 4096), value));
    EXPECT_EQ(host->io.expect_response(1).sct_sc(), 0);
  }
  const auto threads =
      std::filesystem::directory_iterator("/proc/" + std::to_string(furrowd.pid()) + "/task");
  EXPECT_GE(std::distance(begin(threads), end(threads)), 3);
  furrowd.terminate();
  hosts.clear();
  EXPECT_EQ(furrowd.wait_for_end(), 0);
}

// The only processor that each of the process's threads may run on, of those bound to one.
std::vector<unsigned> bound_threads(pid_t pid) {
  std::vector<unsigned> found;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
    // (The kernel has workers of its own for a thread's ring, which may run where that may.)
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name.starts_with("iou-")) continue;
    cpu_set_t its;
    const int rc = sched_getaffinity(std::stoi(task.path().filename()), sizeof its, &its);
    EXPECT_TRUE(rc == 0 || errno == ESRCH) << "other than that the thread has ended: " << errno;
    if (rc != 0 || CPU_COUNT(&its) != 1) continue;
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &its)) found.push_back(cpu);
    }
  }
  std::ranges::sort(found);
  return found;
}

// A reactor that serves is a thread that may run on its processor alone; other threads are free,
// also the one that gives back the space of zones when the first one is reset.
TEST(FurrowdFlags, EachReactorStaysOnItsProcessor) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  std::vector<unsigned> cpus;  // the last ones
  for (unsigned cpu = CPU_SETSIZE; cpu-- > 0 && cpus.size() < 2;) {
    if (CPU_ISSET(cpu, &allowed)) cpus.insert(cpus.begin(), cpu);
  }
  if (cpus.size() < 2) GTEST_SKIP() << "this needs two processors";
  const auto path = std::filesystem::temp_directory_path() /
                    ("furrowd_test-cpus." + std::to_string(getpid()) + ".img");
  std::vector<std::string> flags = {"--pool=emu:" + path.string() + "?direct=0", "--size=12MiB",
                                    "--zone_size=1MiB", "--value_bytes_max=16KiB", "--mode=cache"};
  {  // (Where a pool is made zones are reset before there are reactors.)
    FurrowdProcess maker(flags);
    maker.terminate();
    ASSERT_EQ(maker.wait_for_end(), 0);
  }
  flags.push_back("--cpus=" + std::to_string(cpus[0]) + "," + std::to_string(cpus[1]));
  flags.push_back("--poll=sleep");
  FurrowdProcess furrowd(flags);
  auto host = std::make_unique<Host>(furrowd);  // both reactors run
  EXPECT_EQ(bound_threads(furrowd.pid()), cpus);
  const std::vector<std::byte> value(16384, std::byte{7});
  for (std::uint16_t i = 1; furrowd.metric("furrow_volume_zones_reset_total") == 0; ++i) {
    ASSERT_LT(i, 2000);
    host->io.send(host->io.capsule(Host::store(i, 16384), value));
    ASSERT_EQ(host->io.expect_response(i).sct_sc(), 0);
  }
  EXPECT_EQ(bound_threads(furrowd.pid()), cpus);
  furrowd.terminate();
  host.reset();
  EXPECT_EQ(furrowd.wait_for_end(), 0);
  std::filesystem::remove(path);
}

TEST(FurrowdFlags, AStuckHostIsCutWhenTheDrainEnds) {
  expect_sooner(milliseconds(4000), [] {  // 5000 is the standard
    FurrowdProcess furrowd({"--drain_ms=300"});
    Host host(furrowd);
    host.get_stuck();
    const auto start = TestClock::now();
    furrowd.terminate();
    EXPECT_EQ(furrowd.wait_for_end(), 0);
    EXPECT_GE(since(start), milliseconds(300));
    host.io.expect_closed();
    return since(start);
  });
}

TEST(FurrowdFlags, AHostThatIsNotStuckAnyMoreEndsTheDrain) {
  FurrowdProcess furrowd({"--drain_ms=3600000", "--data_timeout_ms=3600000"});
  Host host(furrowd);
  host.get_stuck();
  furrowd.terminate();
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_TRUE(furrowd.runs()) << "what was accepted is to be answered";
  const std::vector<std::byte> value(65536, std::byte{7});
  host.io.send(host.io.h2c_data(1, 1, 0, value, true));
  EXPECT_EQ(host.io.expect_response(1).sct_sc(), 0);
  host.admin.disconnect();
  host.io.disconnect();
  EXPECT_EQ(furrowd.wait_for_end(), 0);
}

TEST(FurrowdFlags, SilenceInSetUpEnds) {
  FurrowdProcess furrowd({"--setup_timeout_ms=200"});
  for (const bool after_icreq : {false, true}) {
    expect_sooner(milliseconds(8000), [&] {  // 10000 is the standard
      RawHost host(furrowd.port);
      const auto start = TestClock::now();
      if (after_icreq) host.init();
      host.expect_closed();
      EXPECT_GE(since(start), milliseconds(190));
      return since(start);
    });
  }
  EXPECT_GE(furrowd.metric("furrow_target_timeouts_total"), 2u);
}

TEST(FurrowdFlags, DataThatDoesNotComeEndsTheConnection) {
  expect_sooner(milliseconds(12000), [] {  // 15000 is the standard
    FurrowdProcess furrowd({"--data_timeout_ms=200"});
    Host host(furrowd);
    host.get_stuck();
    const auto start = TestClock::now();
    host.io.expect_term(transport::Fes::sequence);
    EXPECT_GE(since(start), milliseconds(190));
    EXPECT_EQ(furrowd.metric("furrow_target_timeouts_total"), 1u);
    return since(start);
  });
}

TEST(FurrowdFlags, AnIdleControllerEnds) {
  expect_sooner(milliseconds(100'000), [] {  // 120000 is the standard
    FurrowdProcess furrowd({"--idle_ms=300"});
    RawHost admin(furrowd.port);
    const auto start = TestClock::now();
    transport::enable_controller(admin, furrowd.nqn);
    admin.expect_closed();
    EXPECT_GE(since(start), milliseconds(300));
    EXPECT_EQ(furrowd.metric("furrow_target_idle_expired_total"), 1u);
    return since(start);
  });
}

TEST(FurrowdFlags, IdleOfZeroIsForEver) {
  FurrowdProcess furrowd({"--idle_ms=0"});
  RawHost admin(furrowd.port);
  transport::enable_controller(admin, furrowd.nqn);
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_EQ(furrowd.metric("furrow_target_idle_expired_total"), 0u);
  EXPECT_EQ(furrowd.metric("furrow_target_connections"), 1u);
}

// A pass begins with the start, so that the pages come first.
TEST(FurrowdFlags, ScrubReadsAtItsRateAndNotAtAllAtZero) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("furrow-furrowd-test-" + std::to_string(getpid()) + ".img");
  const std::vector<std::string> pool = {"--pool=emu:" + path.string() + "?direct=0",
                                         "--size=64MiB", "--zone_size=4MiB"};
  const auto with_rate = [&](const char* rate) {
    std::vector<std::string> flags = pool;
    flags.push_back(rate);
    return std::make_unique<FurrowdProcess>(flags);
  };
  {
    const auto none = with_rate("--scrub_rate=0");
    Host host(*none);
    const std::vector<std::byte> value(16384, std::byte{7});
    for (std::uint16_t i = 1; i <= 600;
         ++i) {  // more than two zones, which are not written any more
      host.io.send(host.io.capsule(Host::store(i, 16384), value));
      ASSERT_EQ(host.io.expect_response(i).sct_sc(), 0);
    }
  }
  {
    const auto none = with_rate("--scrub_rate=0");
    std::this_thread::sleep_for(milliseconds(200));
    EXPECT_EQ(none->metric("furrow_scrub_bytes_read_total"), 0u);
  }
  {
    const auto start = TestClock::now();
    const auto some = with_rate("--scrub_rate=4MiB");
    const auto bytes = [&] { return some->metric("furrow_scrub_bytes_read_total"); };
    EXPECT_TRUE(FurrowdProcess::eventually([&] { return bytes() >= 2 << 20; })) << bytes();
    const std::uint64_t read = bytes();
    const double seconds = static_cast<double>(since(start).count()) / 1000;
    EXPECT_LE(static_cast<double>(read), (seconds + 0.25) * (4 << 20)) << seconds << " s";
    EXPECT_GT(some->metric("furrow_scrub_pages_total"), 60u);
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace furrow::tools
