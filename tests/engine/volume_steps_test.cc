// Establishes that volumes are made, resized and deleted as a whole, whatever becomes of any one
// operation of the device that it takes: where the process is killed or the power is cut there, the
// next opening has the old state or the new one, and can do all again; where that operation alone
// fails, who asks is told, and what is there then, and after a kill behind a flush that was
// acknowledged, is what they were told. A store beside it loses nothing, and no zone is lost.
#include <gtest/gtest.h>

#include <optional>

#include "tests/engine/block/disk.h"
#include "tests/engine/kill_device.h"
#include "tests/rounds.h"
#include "zone/blocking.h"
#include "zone/fault_device.h"
#include "zone/zone_state_machine.h"

namespace furrow::testing::volume_steps_test {
namespace {

constexpr const char* kUri = "mem:20MiB?zone_size=512KiB&mor=10&mar=10";
constexpr std::uint64_t kZone = 512 << 10;
constexpr std::uint64_t kKeys = 12;
constexpr std::uint64_t kStep = rounds(1, 7);  // from one operation to the next that is tried

VolumeOptions pages(const char* name, std::uint64_t zones, VolumeMode mode = VolumeMode::store) {
  VolumeOptions options;
  options.name = name;
  options.mode = mode;
  options.quota_bytes = zones * kZone;
  options.value_bytes_max = 32 << 10;
  return options;
}

VolumeOptions disk() {
  VolumeOptions options = block_options(1 << 20, 4096);
  options.name = "changed";
  options.quota_bytes = 5 * kZone;
  return options;
}

VolumeOptions zones() {
  VolumeOptions options;
  options.name = "changed";
  options.kind = VolumeKind::zoned;
  options.mode = VolumeMode::store;
  options.zones = 6;
  return options;
}

// What is done to the volume `changed`.
struct Change {
  const char* what;
  std::optional<VolumeOptions> before;  // the volume; none: there is no such one
  bool deletes = false;
  std::optional<VolumeOptions> creates{};
  ResizeOptions resizes{};
};

std::vector<Change> changes() {
  VolumeOptions files = pages("changed", 5);
  files.kind = VolumeKind::fs;
  ResizeOptions larger, smaller, disk_larger;
  larger.quota_bytes = 8 * kZone;
  smaller.quota_bytes = 3 * kZone;
  disk_larger.block_bytes = 3 << 20;
  disk_larger.quota_bytes = 7 * kZone;
  return {
      {"create pages", {}, false, pages("changed", 5)},
      {"create a cache", {}, false, pages("changed", 5, VolumeMode::cache)},
      {"create files", {}, false, files},
      {"create a disk", {}, false, disk()},
      {"create zones", {}, false, zones()},
      {"delete pages", pages("changed", 5), true},
      {"delete a cache", pages("changed", 5, VolumeMode::cache), true},
      {"delete a disk", disk(), true},
      {"delete zones", zones(), true},
      {"a larger quota", pages("changed", 5), false, {}, larger},
      {"a smaller quota", pages("changed", 6), false, {}, smaller},
      {"a smaller cache", pages("changed", 6, VolumeMode::cache), false, {}, smaller},
      {"a larger disk", disk(), false, {}, disk_larger},
  };
}

class Steps {
 public:
  Steps(const Change& change, std::uint64_t seed) : change_(change), rig_("unused") {
    auto inner = open_device(kUri, Access::exclusive);
    EXPECT_TRUE(inner.ok());
    wrap(std::move(*inner), seed);
    rig_.make(pages("beside", 6));
    for (std::uint64_t key = 0; key < kKeys; ++key) EXPECT_TRUE(rig_.put(key, 1, 9000).ok());
    EXPECT_TRUE(rig_.simple(PageOp::Kind::flush, 0).ok());
    if (!change.before) return;
    EXPECT_TRUE(rig_.pool->create_volume(*change.before).ok());
    fill();
  }

  // The n-th operation is the last, or fails alone.
  void kill_at(std::uint64_t n) { kill_->kill_after(n); }
  void fail_at(std::uint64_t n) { kill_->fail_one(n); }
  bool hit() const { return kill_->dead() || kill_->failed(); }

  Status change() {
    if (change_.creates) return rig_.pool->create_volume(*change_.creates).status();
    for (unsigned tries = 0;; ++tries) {
      const Status status = change_.deletes
                                ? rig_.pool->delete_volume("changed")
                                : rig_.pool->resize_volume("changed", change_.resizes).status;
      if (status.ok()) rig_.return_zones();
      if (status.code() != Code::busy || tries == 3000) return status;
      rig_.loop.run_once();
    }
  }

  // Until it is done: after a failure, collection has a pause.
  Status change_again() {
    const std::uint64_t until_ns = rig_.loop.now_ns() + 5'000'000'000;
    for (;;) {
      const Status status = change();
      if (status.ok() || rig_.loop.now_ns() > until_ns) return status;
      rig_.loop.run_once();
    }
  }

  // The process is gone, and with it, where there is a model, the power.
  void end(const CrashModel* model, std::uint64_t seed) {
    if (model != nullptr) {
      ASSERT_TRUE(fault_->power_cut(*model).ok());
    }
    kill_->kill_after(1);
    rig_.close();
    if (model == nullptr) {
      ASSERT_TRUE(flush_inner().ok());
    }
    auto inner = fault_->take_inner();
    rig_.device.reset();
    wrap(std::move(inner), seed);
    ASSERT_NO_FATAL_FAILURE(rig_.open());
  }

  enum class Is { old, changed, neither };
  Is is() const {
    const PageStore* const store = rig_.pool->find("changed");
    const bool was_there = change_.before.has_value();
    if (store == nullptr) return change_.deletes ? Is::changed : was_there ? Is::neither : Is::old;
    if (change_.creates) return Is::changed;
    if (change_.deletes) return Is::old;
    const VolumeOptions& now = store->info().options;
    const auto same = [&](std::uint64_t quota, std::uint64_t bytes) {
      return now.quota_bytes == quota && now.block_bytes == bytes;
    };
    const VolumeOptions& before = *change_.before;
    if (same(before.quota_bytes, before.block_bytes)) return Is::old;
    const ResizeOptions& to = change_.resizes;
    const std::uint64_t bytes = to.block_bytes != 0 ? to.block_bytes : before.block_bytes;
    return same(to.quota_bytes, bytes) ? Is::changed : Is::neither;
  }

  void expect_the_rest() {
    rig_.store = rig_.pool->find("beside");
    ASSERT_NE(rig_.store, nullptr);
    for (std::uint64_t key = 0; key < kKeys; ++key) {
      const auto page = rig_.get(key);
      ASSERT_TRUE(page.ok()) << key << ": " << page.status().describe();
      ASSERT_EQ(*page, content(key, 1, 9000)) << key;
    }
  }

  // With the volume gone, all zones but those of the store beside it are a new one's.
  void expect_all_zones() {
    if (rig_.pool->find("changed") != nullptr) {
      Status deleted = rig_.pool->delete_volume("changed");
      for (; deleted.code() == Code::busy; deleted = rig_.pool->delete_volume("changed")) {
        rig_.loop.run_once();
      }
      ASSERT_TRUE(deleted.ok()) << deleted.describe();
    }
    rig_.return_zones();
    const PoolInfo info = rig_.pool->info();
    EXPECT_EQ(info.zones_bad, 0u);
    EXPECT_EQ(info.zones_unpromised, info.geometry.zone_count - 2 - 6);
    const auto made = rig_.pool->create_volume(pages("all", info.zones_unpromised));
    ASSERT_TRUE(made.ok()) << made.status().describe();
    rig_.store = *made;
    std::uint64_t stored = 0;
    while (rig_.put(stored, 1, 30000).ok()) ++stored;
    EXPECT_GT(stored * 32768, (info.zones_unpromised - 4) * kZone * 3 / 4);
    Pool::OpenOptions inspect;
    inspect.read_only = true;
    rig_.close();
    const auto pool = Pool::open(*rig_.device, rig_.loop, inspect);
    ASSERT_TRUE(pool.ok()) << pool.status().describe();
    const auto report = (*pool)->check({});
    ASSERT_TRUE(report.ok());
    EXPECT_TRUE(report->damage.empty()) << report->damage.front().text;
  }

  bool flushed() {
    rig_.store = rig_.pool->find("beside");
    return rig_.put(100, 1, 100).ok() && rig_.simple(PageOp::Kind::flush, 0).ok();
  }
  Rig& rig() { return rig_; }

 private:
  void wrap(std::unique_ptr<ZonedDevice> inner, std::uint64_t seed) {
    FaultOptions options;
    options.seed = seed;
    auto fault = std::make_unique<FaultDevice>(std::move(inner), options);
    fault_ = fault.get();
    auto kill = std::make_unique<KillDevice>(std::move(fault));
    kill_ = kill.get();
    rig_.device = std::move(kill);
  }
  // What the device was given survives the process.
  Status flush_inner() {
    auto queue = fault_->create_queue(1);
    return flush_blocking(**queue);
  }
  // Some zones' worth, most of it overwritten.
  void fill() {
    PageStore* const store = rig_.pool->find("changed");
    rig_.store = store;
    if (store->info().options.kind == VolumeKind::kv) {
      for (std::uint64_t i = 0; i < 60; ++i) EXPECT_TRUE(rig_.put(i % 20, i, 20000).ok());
    } else if (store->info().options.kind == VolumeKind::block) {
      BlockSession blocks(*rig_.session, *rig_.executor);
      auto data = content(1, 1, 1 << 20);
      bool done = false;
      for (unsigned i = 0; i < 2; ++i) {
        BlockOp op;
        op.kind = BlockOp::Kind::write;
        op.count = 256;
        op.data = data.data();
        op.context = &done;
        op.on_done = [](BlockOp& its) { *static_cast<bool*>(its.context) = true; };
        done = false;
        blocks.submit(*store, op);
        while (!done || !blocks.idle()) rig_.loop.run_once();
        EXPECT_TRUE(op.status.ok());
      }
    }
  }

  const Change& change_;
  Rig rig_;
  FaultDevice* fault_ = nullptr;
  KillDevice* kill_ = nullptr;  // the rig's device
};

TEST(VolumeStepsTest, TheLastOperationIsAnyOfThem) {
  const CrashModel drive = CrashModel::drive, emu = CrashModel::emu;
  for (const Change& change : changes()) {
    for (const CrashModel* model : {static_cast<const CrashModel*>(nullptr), &drive, &emu}) {
      unsigned old = 0, changed = 0;
      bool hit = true;
      for (std::uint64_t n = 1; hit; n += kStep) {
        SCOPED_TRACE(std::string(change.what) + ", operation " + std::to_string(n) +
                     (model == nullptr  ? ", killed"
                      : model == &drive ? ", drive"
                                        : ", emu"));
        Steps steps(change, n);
        steps.kill_at(n);
        const bool told = steps.change().ok();
        hit = steps.hit();
        ASSERT_NO_FATAL_FAILURE(steps.end(model, n + 1000));
        ASSERT_NE(steps.is(), Steps::Is::neither);
        ASSERT_TRUE(!told || steps.is() == Steps::Is::changed);
        ++(steps.is() == Steps::Is::old ? old : changed);
        ASSERT_NO_FATAL_FAILURE(steps.expect_the_rest());
        if (steps.is() == Steps::Is::old) {
          const Status again = steps.change();
          ASSERT_TRUE(again.ok()) << again.describe();
          ASSERT_EQ(steps.is(), Steps::Is::changed);
        }
        ASSERT_NO_FATAL_FAILURE(steps.expect_all_zones());
      }
      EXPECT_GT(old, 0u) << change.what;
      EXPECT_GT(changed, 0u) << change.what;
    }
  }
}

TEST(VolumeStepsTest, OneOperationFails) {
  const CrashModel model = CrashModel::drive;
  for (const Change& change : changes()) {
    bool hit = true;
    for (std::uint64_t n = 1; hit; n += kStep) {
      bool failed = true;
      for (const bool again : {false, true}) {
        if (!failed) break;
        SCOPED_TRACE(std::string(change.what) + ", operation " + std::to_string(n) +
                     (again ? ", again" : ""));
        Steps steps(change, n);
        steps.fail_at(n);
        Status told = steps.change();
        hit = steps.hit();
        failed = !told.ok();
        steps.fail_at(0);
        ASSERT_EQ(steps.is(), failed ? Steps::Is::old : Steps::Is::changed) << told.describe();
        if (again) {
          told = steps.change_again();
          ASSERT_TRUE(told.ok()) << told.describe();
        }
        ASSERT_NO_FATAL_FAILURE(steps.expect_the_rest());
        ASSERT_TRUE(steps.flushed());
        ASSERT_NO_FATAL_FAILURE(steps.end(&model, n + 1000));
        ASSERT_EQ(steps.is(), told.ok() ? Steps::Is::changed : Steps::Is::old) << told.describe();
        ASSERT_NO_FATAL_FAILURE(steps.expect_the_rest());
        ASSERT_NO_FATAL_FAILURE(steps.expect_all_zones());
      }
    }
  }
}

// The device counts it among its active zones all the same.
TEST(VolumeStepsTest, AZoneThatCouldNotBeResetIsStillActive) {
  unsigned found = 0;
  bool hit = true;
  for (std::uint64_t n = 1; hit; ++n) {
    Rig rig("unused");
    auto inner = open_device("mem:20MiB?zone_size=512KiB&mor=3&mar=3", Access::exclusive);
    ASSERT_TRUE(inner.ok());
    auto device = std::make_unique<KillDevice>(std::move(*inner));
    KillDevice& fails = *device;
    rig.device = std::move(device);
    ASSERT_NO_FATAL_FAILURE(rig.make(pages("beside", 6, VolumeMode::cache)));
    const auto made = rig.pool->create_volume(pages("changed", 5, VolumeMode::cache));
    ASSERT_TRUE(made.ok()) << made.status().describe();
    rig.store = *made;
    ASSERT_TRUE(rig.put(1, 1, 100).ok());
    fails.fail_one(n);
    const Status deleted = rig.pool->delete_volume("changed");
    rig.return_zones();
    hit = fails.failed();
    const auto report = *rig.device->report();
    const bool active = std::ranges::count_if(report, [](const ZoneInfo& zone) {
                          return zone.zone.value >= 2 && is_active(zone.state);
                        }) != 0;
    if (!deleted.ok() || !active) continue;
    ++found;
    const auto another = rig.pool->create_volume(pages("another", 5, VolumeMode::cache));
    EXPECT_EQ(another.status().code(), Code::too_many_zones) << another.status().describe();
    ASSERT_NO_FATAL_FAILURE(rig.reopen());
    EXPECT_TRUE(rig.pool->create_volume(pages("another", 5, VolumeMode::cache)).ok());
  }
  EXPECT_EQ(found, 1u);
}

}  // namespace
}  // namespace furrow::testing::volume_steps_test
