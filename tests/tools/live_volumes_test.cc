// Establishes what LiveVolumes answers: what the pool and its zones are, volumes made, listed,
// resized and deleted while their pool is served, each refusal with its HTTP status and what is
// wrong in JSON, and that hosts are told and commands of a volume that goes have all been answered;
// also while the server ends, and where hosts are silent or a deletion fails. How: a pool in memory
// or in a file, a target with two reactors, and hosts.
#include "tools/live_volumes.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <future>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/transport/fake_engine.h"
#include "tests/transport/raw_host.h"
#include "tests/transport/served.h"
#include "tools/make_pool.h"

namespace furrow::tools {
namespace {

using nlohmann::json;
using transport::RawHost;

class LiveVolumesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    PoolRecipe recipe;
    recipe.uri = "mem:64MiB?zone_size=1MiB";
    serve(std::move(recipe));
  }
  void serve(PoolRecipe recipe) {
    recipe.name = "live";
    auto made = create_pool(recipe, home_);
    ASSERT_TRUE(made.ok()) << made.status().describe();
    pool_ = std::move(*made);
    transport::TargetOptions options;
    options.listen_port = 0;
    options.cores = 2;
    auto started = transport::Target::start(*pool_, home_, options);
    ASSERT_TRUE(started.ok()) << started.status().describe();
    target_ = std::move(*started);
    wait_at_most({.idle = minutes(10), .asked_again = minutes(10)});
    thread_ = std::thread([this] { home_.run(); });
  }
  using minutes = std::chrono::minutes;
  using milliseconds = std::chrono::milliseconds;
  void wait_at_most(const LiveWaits& waits) {
    live_.emplace(*pool_, pool_.device(), *target_, home_, waits);
  }
  void TearDown() override {
    if (!ended_) end(1000);
    home_.stop_running();
    thread_.join();
    target_.reset();
    pool_.close();
  }
  // As the server does it; until the target has stopped.
  void end(std::uint32_t drain_ms) {
    struct End : Task {
      LiveVolumesTest* self = nullptr;
      std::uint32_t drain_ms = 0;
      std::shared_ptr<std::promise<void>> stopped = std::make_shared<std::promise<void>>();
    } end;
    end.self = this;
    end.drain_ms = drain_ms;
    end.run = [](Task& task) {
      const auto& its = static_cast<End&>(task);
      its.self->live_->end();
      its.self->target_->stop(its.drain_ms, [stopped = its.stopped] { stopped->set_value(); });
    };
    home_.post(end);
    end.stopped->get_future().wait();
    ended_ = true;
  }

  AdminAnswer create(const std::string& name, const std::string& more = "") {
    return live_->create(R"({"name": ")" + name +
                         R"(", "mode": "store", "quota_bytes": 8388608, "value_bytes_max": 65536)" +
                         more + "}");
  }
  void expect_refused(const AdminAnswer& answer, int status, const std::string& code) {
    EXPECT_EQ(answer.status, status) << answer.json;
    EXPECT_EQ(json::parse(answer.json).value("code", ""), code) << answer.json;
    EXPECT_FALSE(json::parse(answer.json).value("error", "").empty());
  }
  std::vector<std::string> names() {
    const AdminAnswer answer = live_->list();
    EXPECT_EQ(answer.status, 200);
    std::vector<std::string> found;
    for (const auto& volume : json::parse(answer.json)) found.push_back(volume.at("name"));
    return found;
  }
  static bool goes_on(const AdminAnswer& answer) {
    return json::parse(answer.json).value("goes_on", false);
  }
  // Where a moment is all that it is waited for.
  AdminAnswer remove_at_last(const std::string& name) {
    for (;;) {
      AdminAnswer answer = live_->remove(name);
      if (!goes_on(answer)) return answer;
    }
  }
  // A host with one I/O queue.
  struct LiveHost {
    explicit LiveHost(const transport::Target& target) : admin(target.port()), io(target.port()) {
      const std::uint16_t cntlid = transport::enable_controller(admin, target.subsystem_nqn());
      io.init();
      io.send(transport::connect_capsule(io, target.subsystem_nqn(), 1, cntlid, 32));
      EXPECT_EQ(io.expect_response(0).sct_sc(), 0);
    }
    std::uint16_t store(std::uint32_t nsid) {
      nvme::Sqe sqe;
      sqe.opc = nvme::kv::kStore;
      sqe.nsid = nsid;
      sqe.cdw2 = 7;
      sqe.cdw10 = 4096;
      sqe.cdw11 = 4;
      io.send(io.capsule(sqe, std::vector<std::byte>(4096, std::byte{1})));
      return io.expect_response(0).sct_sc();
    }
    void identify(std::uint32_t nsid) {
      nvme::Sqe sqe;
      sqe.opc = nvme::admin::kIdentify;
      sqe.nsid = nsid;
      sqe.cdw10 = 0x05;  // a namespace of a command set
      sqe.cdw11 = std::uint32_t{nvme::csi::kKv} << 24;
      admin.send(admin.capsule(sqe, {}, 4096));
      EXPECT_TRUE(admin.receive());  // data, or why not
    }
    // A command that waits for data.
    void get_stuck(std::uint32_t nsid) {
      nvme::Sqe sqe;
      sqe.opc = nvme::kv::kStore;
      sqe.cid = 5;
      sqe.nsid = nsid;
      sqe.cdw2 = 7;
      sqe.cdw10 = 65536;
      sqe.cdw11 = 4;
      io.send(io.capsule(sqe, {}, 65536));
      const auto r2t = io.receive();
      ASSERT_TRUE(r2t && r2t->type == transport::PduType::r2t);
      ttag = r2t->as<transport::R2t>().ttag;
    }
    std::uint16_t send_data() {
      io.send(io.h2c_data(5, ttag, 0, std::vector<std::byte>(65536, std::byte{2}), true));
      return io.expect_response(5).sct_sc();
    }
    RawHost admin, io;
    std::uint16_t ttag = 0;
  };

  EventLoop home_;
  OpenPool pool_;
  std::unique_ptr<transport::Target> target_;
  std::optional<LiveVolumes> live_;
  std::thread thread_;
  bool ended_ = false;
};

TEST_F(LiveVolumesTest, WhatIsMadeIsListedAndServedAtOnce) {
  EXPECT_TRUE(names().empty());
  LiveHost host(*target_);
  EXPECT_NE(host.store(1), nvme::sc::kSuccess) << "there is no such namespace yet";
  const AdminAnswer made = create("one");
  EXPECT_EQ(made.status, 201) << made.json;
  const json volume = json::parse(made.json);
  EXPECT_EQ(volume.at("name"), "one");
  EXPECT_EQ(volume.at("nsid"), 1);
  EXPECT_EQ(create("two", R"(, "nsid": 9)").status, 201);
  EXPECT_EQ(names(), (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(host.store(1), nvme::sc::kSuccess);
  EXPECT_EQ(host.store(9), nvme::sc::kSuccess);
}

TEST_F(LiveVolumesTest, ThePoolAndItsZonesAreTold) {
  const json empty = json::parse(live_->pool().json);
  EXPECT_EQ(empty.at("name"), "live");
  EXPECT_EQ(empty.at("zones"), 64);
  EXPECT_EQ(empty.at("volumes"), 0);
  LiveHost host(*target_);
  ASSERT_EQ(create("one").status, 201);
  ASSERT_EQ(host.store(1), nvme::sc::kSuccess);
  const AdminAnswer pool = live_->pool(), report = live_->zones();
  EXPECT_EQ(pool.status, 200);
  EXPECT_EQ(json::parse(pool.json).at("volumes"), 1);
  EXPECT_EQ(report.status, 200);
  const json zones = json::parse(report.json);
  ASSERT_EQ(zones.size(), 64u);
  std::size_t written = 0;
  for (std::size_t i = 0; i < zones.size(); ++i) {
    EXPECT_EQ(zones[i].at("zone"), i);
    EXPECT_EQ(zones[i].at("start_lba"), i * 256);
    EXPECT_EQ(zones[i].at("capacity_lbas"), 256);
    const bool is_written = zones[i].at("written_lbas") != 0;
    EXPECT_EQ(is_written, zones[i].at("state") != "empty") << i;
    written += is_written ? 1 : 0;
  }
  EXPECT_GE(written, 2u) << "a metadata zone and the page's";
}

TEST_F(LiveVolumesTest, ARefusalSaysWhy) {
  ASSERT_EQ(create("one").status, 201);
  expect_refused(live_->create("no json"), 400, "invalid argument");
  expect_refused(create("a/b"), 400, "invalid argument");
  expect_refused(create("one"), 409, "exists");
  expect_refused(create("two", R"(, "nsid": 1)"), 409, "exists");
  expect_refused(create("large", R"(, "quota_bytes": 1099511627776)"), 507, "no space");
  expect_refused(live_->remove("none"), 404, "not found");
  expect_refused(live_->resize("none", R"({"quota_bytes": 4194304})"), 404, "not found");
  expect_refused(live_->resize("one", "[]"), 400, "invalid argument");
  expect_refused(live_->resize("one", R"({"quota_bytes": 1048576})"), 400, "invalid argument");
  EXPECT_EQ(names(), (std::vector<std::string>{"one"}));
}

TEST_F(LiveVolumesTest, WhatItCannotDoIsNotImplemented) {
  const auto made =
      live_->create(R"({"name": "disk", "kind": "block", "mode": "store", "size_bytes": 8388608,)"
                    R"( "lba_bytes": 4096, "quota_bytes": 8388608, "value_bytes_max": 4096})");
  ASSERT_EQ(made.status, 201) << made.json;
  expect_refused(live_->resize("disk", R"({"size_bytes": 4194304})"), 501, "unsupported");
  const auto zones =
      live_->create(R"({"name": "zones", "kind": "zoned", "mode": "store", "zones": 4})");
  ASSERT_EQ(zones.status, 201) << zones.json;
  expect_refused(live_->resize("zones", R"({"quota_bytes": 8388608})"), 501, "unsupported");
  expect_refused(live_->resize("disk", R"({"size_bytes": 1})"), 400, "invalid argument");
}

TEST_F(LiveVolumesTest, AResizedVolumeIsServedOn) {
  ASSERT_EQ(create("one").status, 201);
  LiveHost host(*target_);
  EXPECT_EQ(host.store(1), nvme::sc::kSuccess);
  for (const std::uint64_t quota : {16u << 20, 4u << 20}) {
    const AdminAnswer answer =
        live_->resize("one", R"({"quota_bytes": )" + std::to_string(quota) + "}");
    EXPECT_EQ(answer.status, 200) << answer.json;
    EXPECT_EQ(json::parse(answer.json).at("quota_zones"), quota >> 20) << answer.json;
    EXPECT_EQ(json::parse(answer.json).at("quota_bytes"), quota) << answer.json;
    EXPECT_EQ(host.store(1), nvme::sc::kSuccess);
  }
  const json refused = json::parse(live_->resize("one", R"({"quota_bytes": 1073741824})").json);
  EXPECT_EQ(refused.at("code"), "no space");
  EXPECT_NE(refused.at("error").get<std::string>().find("now it can be"), std::string::npos);
}

// Its user had no more zones than the quota that was wanted.
TEST_F(LiveVolumesTest, AResizeThatNobodyAsksForAnyMoreIsCalledOff) {
  wait_at_most({.freeing = milliseconds(0), .asked_again = milliseconds(50)});
  const AdminAnswer made = live_->create(
      R"({"name": "one", "mode": "cache", "quota_bytes": 12582912, "value_bytes_max": 65536})");
  ASSERT_EQ(made.status, 201) << made.json;
  LiveHost host(*target_);
  const auto zones = [this] { return json::parse(live_->list().json)[0].at("zones").get<int>(); };
  const auto comes_to = [&](int wanted) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (zones() < wanted && std::chrono::steady_clock::now() < until) {
      for (int i = 0; i < 256; ++i) EXPECT_EQ(host.store(1), nvme::sc::kSuccess);
    }
    return zones() >= wanted;
  };
  ASSERT_TRUE(comes_to(10));
  const AdminAnswer answer = live_->resize("one", R"({"quota_bytes": 4194304})");
  expect_refused(answer, 409, "busy");
  EXPECT_TRUE(json::parse(answer.json).contains("zones_to_free"));
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_TRUE(comes_to(10));
}

TEST_F(LiveVolumesTest, ADeletedOneIsGoneForHostsAndItsRoomIsFree) {
  ASSERT_EQ(create("one").status, 201);
  ASSERT_EQ(create("two").status, 201);
  LiveHost host(*target_);
  EXPECT_EQ(host.store(1), nvme::sc::kSuccess);
  const AdminAnswer answer = live_->remove("one");
  EXPECT_EQ(answer.status, 200) << answer.json;
  EXPECT_EQ(json::parse(answer.json), (json{{"deleted", "one"}}));
  EXPECT_EQ(names(), (std::vector<std::string>{"two"}));
  EXPECT_NE(host.store(1), nvme::sc::kSuccess);
  EXPECT_EQ(host.store(2), nvme::sc::kSuccess);
}

// What a host that has not heard yet sends to the volume that it knows.
TEST_F(LiveVolumesTest, ANewOneHasNoNamespaceThatHostsMayStillUse) {
  ASSERT_EQ(create("one").status, 201);
  ASSERT_EQ(create("two").status, 201);
  LiveHost host(*target_);
  ASSERT_EQ(live_->remove("two").status, 200);
  const auto nsid = [this](const std::string& name, const std::string& more = "") {
    return json::parse(create(name, more).json).value("nsid", 0u);
  };
  EXPECT_EQ(nsid("three"), 3u);
  EXPECT_EQ(host.store(2), nvme::sc::kInvalidNamespaceOrFormat);
  ASSERT_EQ(live_->remove("one").status, 200);
  EXPECT_EQ(nsid("four"), 4u);
  EXPECT_EQ(host.store(1), nvme::sc::kInvalidNamespaceOrFormat);
  // Until there is none above.
  EXPECT_EQ(nsid("last", R"(, "nsid": 1024)"), 1024u);
  ASSERT_EQ(live_->remove("last").status, 200);
  EXPECT_EQ(nsid("first"), 1u);
}

TEST_F(LiveVolumesTest, VolumesComeAndGoForAsLongAsItServes) {
  ASSERT_EQ(create("stays").status, 201);
  LiveHost host(*target_), other(*target_);  // on either reactor
  std::atomic<bool> ends{false};
  const auto use = [&](LiveHost& its) {
    while (!ends) {
      EXPECT_EQ(its.store(1), nvme::sc::kSuccess);
      (void)its.store(2);
      its.identify(2);
    }
  };
  auto uses = std::async(std::launch::async, [&] { use(host); });
  auto others = std::async(std::launch::async, [&] { use(other); });
  const std::string disk = R"({"name": "passes", "nsid": 2, "kind": "block",
                               "size_bytes": 16777216, "lba_bytes": 4096, "quota_bytes": 8388608})";
  const std::string zones = R"({"name": "passes", "nsid": 2, "kind": "zoned", "zones": 4})";
  for (unsigned i = 0; i < 150; ++i) {
    const AdminAnswer made = i % 3 == 0   ? create("passes", R"(, "nsid": 2)")
                             : i % 3 == 1 ? live_->create(disk)
                                          : live_->create(zones);
    ASSERT_EQ(made.status, 201) << i << ": " << made.json;
    const AdminAnswer removed = remove_at_last("passes");
    ASSERT_EQ(removed.status, 200) << i << ": " << removed.json;
  }
  ends = true;
  uses.get(), others.get();
  EXPECT_EQ(names(), (std::vector<std::string>{"stays"}));
}

// A Store that was accepted and waits for its data keeps its volume until it has been answered.
TEST_F(LiveVolumesTest, WhatWasAcceptedIsAnsweredBeforeItsVolumeGoes) {
  ASSERT_EQ(create("one").status, 201);
  LiveHost host(*target_);
  ASSERT_NO_FATAL_FAILURE(host.get_stuck(1));
  auto removed = std::async(std::launch::async, [&] { return live_->remove("one"); });
  EXPECT_EQ(removed.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
  EXPECT_EQ(host.send_data(), nvme::sc::kSuccess);
  EXPECT_EQ(removed.get().status, 200);
}

TEST_F(LiveVolumesTest, ASilentHostDelaysNoAnswer) {
  wait_at_most({.idle = milliseconds(20), .asked_again = minutes(10)});
  ASSERT_EQ(create("one").status, 201);
  LiveHost host(*target_), other(*target_);
  ASSERT_NO_FATAL_FAILURE(host.get_stuck(1));
  for (int i = 0; i < 2; ++i) {
    const AdminAnswer answer = live_->remove("one");
    expect_refused(answer, 409, "busy");
    EXPECT_TRUE(goes_on(answer)) << answer.json;
  }
  expect_refused(create("one"), 409, "exists");
  EXPECT_EQ(create("two").status, 201);
  EXPECT_EQ(other.store(2), nvme::sc::kSuccess);
  EXPECT_EQ(other.store(1), nvme::sc::kInvalidNamespaceOrFormat) << "it is withdrawn";
  EXPECT_EQ(names(), (std::vector<std::string>{"one", "two"}));
  const json volumes = json::parse(live_->list().json);
  EXPECT_TRUE(volumes[0].value("withdrawn", false));
  EXPECT_FALSE(volumes[1].contains("withdrawn"));
  EXPECT_EQ(host.send_data(), nvme::sc::kSuccess) << "it was accepted";
  EXPECT_EQ(remove_at_last("one").status, 200);
  EXPECT_EQ(names(), (std::vector<std::string>{"two"}));
  expect_refused(live_->remove("one"), 404, "not found");
}

// What is under way on what a volume was before it was resized is no matter of others.
TEST_F(LiveVolumesTest, ASilentHostOfAResizedVolumeDelaysNoOther) {
  ASSERT_EQ(create("one").status, 201);
  ASSERT_EQ(create("two").status, 201);
  LiveHost host(*target_);
  ASSERT_NO_FATAL_FAILURE(host.get_stuck(1));
  EXPECT_EQ(live_->resize("one", R"({"quota_bytes": 12582912})").status, 200);
  EXPECT_EQ(create("three").status, 201);
  EXPECT_EQ(live_->remove("two").status, 200);
  EXPECT_EQ(host.send_data(), nvme::sc::kSuccess) << "it was silent for all of that";
}

TEST_F(LiveVolumesTest, ADeletionThatNobodyAsksForAnyMoreIsGivenUp) {
  wait_at_most({.idle = milliseconds(1), .asked_again = milliseconds(50)});
  ASSERT_EQ(create("one").status, 201);
  LiveHost host(*target_), other(*target_);
  ASSERT_NO_FATAL_FAILURE(host.get_stuck(1));
  EXPECT_TRUE(goes_on(live_->remove("one")));
  while (other.store(1) != nvme::sc::kSuccess) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(host.send_data(), nvme::sc::kSuccess);
  EXPECT_EQ(other.store(1), nvme::sc::kSuccess);
  EXPECT_EQ(remove_at_last("one").status, 200);
}

TEST_F(LiveVolumesTest, OfTwoDeletionsOneFindsIt) {
  ASSERT_EQ(create("one").status, 201);
  LiveHost host(*target_);
  ASSERT_NO_FATAL_FAILURE(host.get_stuck(1));
  const auto remove = [&] { return live_->remove("one").status; };
  auto first = std::async(std::launch::async, remove);
  auto second = std::async(std::launch::async, remove);
  EXPECT_EQ(second.wait_for(milliseconds(50)), std::future_status::timeout);
  EXPECT_EQ(host.send_data(), nvme::sc::kSuccess);
  EXPECT_EQ(std::minmax({first.get(), second.get()}), (std::pair{200, 404}));
}

// Reactors that have ended would never say that they know of it.
TEST_F(LiveVolumesTest, NothingIsChangedAfterTheEnd) {
  ASSERT_EQ(create("one").status, 201);
  end(1000);
  expect_refused(create("two"), 503, "aborted");
  expect_refused(live_->resize("one", R"({"quota_bytes": 4194304})"), 503, "aborted");
  expect_refused(live_->remove("one"), 503, "aborted");
  expect_refused(live_->remove("two"), 404, "not found");
  EXPECT_EQ(names(), (std::vector<std::string>{"one"}));
}

TEST_F(LiveVolumesTest, ADeletionThatTheEndMeetsIsAnsweredAndNotDone) {
  ASSERT_EQ(create("one").status, 201);
  LiveHost host(*target_);
  ASSERT_NO_FATAL_FAILURE(host.get_stuck(1));
  auto removed = std::async(std::launch::async, [&] { return live_->remove("one"); });
  EXPECT_EQ(removed.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
  end(100);  // then the host is cut
  expect_refused(removed.get(), 503, "aborted");
  EXPECT_EQ(names(), (std::vector<std::string>{"one"}));
}

class LiveFileTest : public LiveVolumesTest {
 protected:
  void SetUp() override {
    signal(SIGXFSZ, SIG_IGN);
    PoolRecipe recipe;
    recipe.uri = "emu:" + path_.string() + "?direct=0";
    recipe.shape.size_bytes = 64 << 20;
    recipe.shape.zone_size_bytes = 1 << 20;
    serve(std::move(recipe));
  }
  void TearDown() override {
    LiveVolumesTest::TearDown();
    std::filesystem::remove(path_);
  }
  // What it writes from there on fails.
  static void limit_files(rlim_t bytes) {
    rlimit limit{};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = std::min(bytes, limit.rlim_max);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }

  const std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("furrow-live-" + std::to_string(getpid()));
};

TEST_F(LiveFileTest, ADeletionThatFailsGivesTheNamespaceBack) {
  ASSERT_EQ(create("one").status, 201);
  LiveHost host(*target_);
  ASSERT_EQ(host.store(1), nvme::sc::kSuccess);
  ASSERT_NO_FATAL_FAILURE(limit_files(8192));
  const AdminAnswer answer = live_->remove("one");
  ASSERT_NO_FATAL_FAILURE(limit_files(RLIM_INFINITY));
  EXPECT_EQ(answer.status / 100, 5) << answer.json;
  EXPECT_EQ(names(), (std::vector<std::string>{"one"}));
  EXPECT_EQ(host.store(1), nvme::sc::kSuccess);
  EXPECT_EQ(live_->remove("one").status, 200);
  EXPECT_NE(host.store(1), nvme::sc::kSuccess);
}

TEST_F(LiveVolumesTest, ChangesComeOneAfterTheOther) {
  std::vector<std::thread> threads;
  std::atomic<int> made{0}, exist{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      const int status = create("volume-" + std::to_string(i % 4)).status;
      if (status == 201) ++made;
      if (status == 409) ++exist;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(made, 4);
  EXPECT_EQ(exist, 4);
  EXPECT_EQ(names().size(), 4u);
}

}  // namespace
}  // namespace furrow::tools
