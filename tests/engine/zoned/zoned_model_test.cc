// Establishes that a zoned volume, whatever is done to it, does what ZoneStateMachine says of as
// many zones with its share, and holds what was written, through orderly restarts and kills; and
// that after a power cut its zones are what the device says, hold nothing but what was written in
// that order, and everything that was flushed, as an orderly close does.
//
// Random operations by seed, one after the other against a model; and several in flight at a time
// on the fault device, which cuts the power, in both crash models.
#include "tests/engine/power_cuts.h"
#include "tests/engine/zoned/zones.h"
#include "zone/zone_state_machine.h"

namespace furrow::testing {
namespace {

using Kind = ZonedOp::Kind;

constexpr std::uint32_t kZones = 7;
constexpr std::uint64_t kModelSize = 64, kModelCapacity = 48;
constexpr const char* kModelDevice = "mem:8MiB?zone_size=256KiB&zone_capacity=192KiB&mor=12&mar=12";

ZoneAction action_of(Kind kind) {
  switch (kind) {
    case Kind::open:
      return ZoneAction::open;
    case Kind::close:
      return ZoneAction::close;
    case Kind::finish:
      return ZoneAction::finish;
    case Kind::reset:
      return ZoneAction::reset;
    case Kind::write:
      return ZoneAction::write;
    case Kind::append:
      return ZoneAction::append;
    default:
      return ZoneAction::set_offline;
  }
}

// What the zones should be.
class Model {
 public:
  struct Zone {
    ZoneState state = ZoneState::empty;
    std::uint64_t written = 0;
    std::uint64_t opened = 0;             // when, of an implicitly open one
    std::vector<std::uint64_t> versions;  // of each LBA
  };

  explicit Model(const Geometry& geometry) : machine_(geometry), zones_(geometry.zone_count) {}

  std::uint16_t act(ZoneAction action, std::uint32_t zone, std::uint64_t lba, std::uint64_t count,
                    std::uint64_t version, std::uint64_t* at) {
    Zone& its = zones_[zone];
    const ZoneDecision decision =
        machine_.decide({ZoneId{zone}, its.state, its.written}, usage(), {action, Lba{lba}, count});
    if (decision.status != nvme_status::kSuccess) return decision.status;
    if (decision.close_one_first) close_oldest(zone);
    if (decision.state == ZoneState::implicitly_open && its.state != decision.state) {
      its.opened = ++clock_;
    }
    its.state = decision.state;
    if (action == ZoneAction::reset) its.versions.clear();
    if (action == ZoneAction::write || action == ZoneAction::append) {
      its.versions.resize(decision.written_at + count, version);
      *at = zone * kModelSize + decision.written_at;
    }
    its.written = decision.written_lbas;
    return nvme_status::kSuccess;
  }
  std::uint16_t act_on_all(ZoneAction action) {
    std::vector<std::uint32_t> selected;
    for (std::uint32_t i = 0; i < zones_.size(); ++i) {
      if (ZoneStateMachine::selected_by_all(action, zones_[i].state)) selected.push_back(i);
    }
    const auto count = static_cast<std::uint32_t>(selected.size());
    const std::uint16_t status = machine_.check_all(action, usage(), count);
    std::uint64_t at = 0;
    for (const std::uint32_t zone : selected) {
      if (status == nvme_status::kSuccess) (void)act(action, zone, 0, 0, 0, &at);
    }
    return status;
  }
  void restart() {
    for (Zone& zone : zones_) {
      if (is_active(zone.state)) {
        zone.state = zone.written == 0 ? ZoneState::empty : ZoneState::closed;
      }
    }
  }
  const Zone& zone(std::uint32_t zone) const { return zones_[zone]; }

 private:
  ZoneUsage usage() const {
    ZoneUsage usage;
    for (const Zone& zone : zones_) {
      usage.open += is_open(zone.state);
      usage.active += is_active(zone.state);
      usage.implicitly_open += zone.state == ZoneState::implicitly_open;
    }
    return usage;
  }
  void close_oldest(std::uint32_t except) {
    Zone* oldest = nullptr;
    for (Zone& zone : zones_) {
      if (zone.state != ZoneState::implicitly_open || &zone == &zones_[except]) continue;
      if (oldest == nullptr || zone.opened < oldest->opened) oldest = &zone;
    }
    oldest->state = ZoneState::closed;
  }

  const ZoneStateMachine machine_;
  std::vector<Zone> zones_;
  std::uint64_t clock_ = 0;
};

class ZonedModelTest : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(ZonedModelTest, DoesWhatTheStateMachineSays) {
  std::mt19937_64 random(GetParam());
  Zones zones(kModelDevice);
  ASSERT_NO_FATAL_FAILURE(zones.make(zoned_options(kZones, 3, 4)));
  Model model(zones.geometry());
  std::uint64_t version = 0;
  unsigned refused = 0, done = 0;
  for (unsigned turn = 0; turn < 3000; ++turn) {
    const auto zone = static_cast<std::uint32_t>(random() % kZones);
    const std::uint64_t start = zone * kModelSize;
    const unsigned what = static_cast<unsigned>(random() % 100);
    if (what < 1) {
      if (random() % 2 == 0) {
        ASSERT_NO_FATAL_FAILURE(zones.reopen());
      } else {
        zones.drop();
        ASSERT_NO_FATAL_FAILURE(zones.open());
      }
      model.restart();
    } else if (what < 60) {
      const bool append = random() % 2 == 0;
      const std::uint64_t written = model.zone(zone).written;
      const std::uint64_t lba =
          append ? start
                 : start + (random() % 8 == 0 ? random() % kModelSize : written % kModelSize);
      const std::uint64_t count = 1 + random() % 16;
      ++version;
      AlignedBuffer data = zones.data(version, version, count);
      ZonedOp op;
      op.kind = append ? Kind::append : Kind::write;
      op.lba = lba;
      op.count = count;
      op.data = data.data();
      op.durability = random() % 8 == 0 ? Durability::flushed : Durability::none;
      std::uint64_t at = 0;
      const std::uint16_t expected = model.act(action_of(op.kind), zone, lba, count, version, &at);
      ASSERT_EQ(zones.run(op).nvme(), expected) << "turn " << turn;
      if (expected == 0) {
        ASSERT_EQ(op.appended_at, at);
      }
      (expected == 0 ? done : refused) += 1;
    } else if (what < 95) {
      constexpr Kind kKinds[] = {Kind::open, Kind::close, Kind::finish, Kind::reset, Kind::reset};
      const Kind kind = kKinds[random() % std::size(kKinds)];
      const bool all = random() % 12 == 0;
      std::uint64_t at = 0;
      const std::uint16_t expected = all ? model.act_on_all(action_of(kind))
                                         : model.act(action_of(kind), zone, start, 0, 0, &at);
      ASSERT_EQ(zones.status_of(kind, start, all), expected) << "turn " << turn;
    }
    for (std::uint32_t i = 0; i < kZones; ++i) {
      ASSERT_EQ(zones.zone(i).state, model.zone(i).state) << "turn " << turn << " zone " << i;
      if (model.zone(i).state == ZoneState::full) continue;
      ASSERT_EQ(zones.zone(i).written_lbas, model.zone(i).written) << "turn " << turn;
    }
    const auto& versions = model.zone(zone).versions;
    if (turn % 10 != 0 || versions.empty()) continue;
    AlignedBuffer there;
    ASSERT_TRUE(zones.read(start, kModelSize, there).ok());
    for (std::uint64_t lba = 0, first = 0; lba < kModelSize; ++lba) {
      const auto bytes = there.span().subspan(lba * 4096, 4096);
      if (lba >= versions.size()) {
        ASSERT_TRUE(equal(bytes, std::vector<std::byte>(4096)));
        continue;
      }
      if (lba == 0 || versions[lba] != versions[lba - 1]) first = lba;
      ASSERT_TRUE(equal(bytes, content(versions[lba] + lba - first, versions[lba], 4096)))
          << "turn " << turn << " LBA " << lba;
    }
  }
  EXPECT_GT(done, 500u);
  EXPECT_GT(refused, 100u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, ZonedModelTest, ::testing::Values(1, 3));

// Zones that are written from their start on, LBA after LBA with the zone's life in it.
class ZonedPowerCut {
 public:
  ZonedPowerCut(std::uint64_t seed, CrashModel model) : random_(seed), cuts_(zones_.rig, model) {
    cuts_.start(seed);
    zones_.make(zoned_options(kZones, kZones, kZones));
  }
  void round(std::uint64_t seed) {
    cuts_.cut_after(1 + random_() % 300);
    for (unsigned turn = 0; turn < 200 && !cuts_.dead(); ++turn) act();
    ASSERT_NO_FATAL_FAILURE(cuts_.cut());
    zones_.close();
    cuts_.restore(seed);
    ASSERT_NO_FATAL_FAILURE(zones_.open());
    for (std::uint32_t i = 0; i < kZones; ++i) ASSERT_NO_FATAL_FAILURE(look(i));
  }
  std::uint64_t kept() const { return kept_; }
  std::uint64_t lost() const { return lost_; }

 private:
  struct Zone {
    std::uint64_t life = 1;      // of what is in it
    std::uint64_t next = 0;      // LBA
    std::uint64_t flushed = 0;   // LBAs that are durable
    bool reset_running = false;  // asked for, and nobody knows whether it was done
    bool finished = false;       // and durable
    bool finish_running = false;
  };
  struct Running {
    ZonedOp op;
    AlignedBuffer data;
    std::uint32_t zone = 0;
  };

  void act() {
    std::vector<std::unique_ptr<Running>> running;
    for (unsigned i = 0; i < 6; ++i) {
      const auto number = static_cast<std::uint32_t>(random_() % kZones);
      Zone& zone = state_[number];
      auto one = std::make_unique<Running>();
      one->zone = number;
      one->op.lba = number * kModelSize;
      const unsigned what = static_cast<unsigned>(random_() % 20);
      const bool busy =
          std::ranges::any_of(running, [&](const auto& other) { return other->zone == number; });
      const bool full = zone.finished || zone.next == kModelCapacity;
      if ((what == 0 || full) && !busy) {
        one->op.kind = Kind::reset;
        zone.reset_running = true;
      } else if (what == 1 && !busy && !full) {
        one->op.kind = Kind::finish;
        zone.finish_running = true;
      } else if (!full && !zone.reset_running && !zone.finish_running) {
        const std::uint64_t count = std::min(1 + random_() % 9, kModelCapacity - zone.next);
        one->op.kind = random_() % 2 == 0 ? Kind::append : Kind::write;
        if (one->op.kind == Kind::write) one->op.lba += zone.next;
        one->op.count = count;
        one->data = zones_.data(number * kModelSize + zone.next, zone.life, count);
        one->op.data = one->data.data();
        zone.next += count;
      } else {
        continue;
      }
      zones_.submit(one->op);
      running.push_back(std::move(one));
    }
    zones_.wait();
    for (const auto& one : running) note(*one);
    if (random_() % 3 == 0 && zones_.manage(Kind::flush, 0).ok()) {
      for (Zone& zone : state_) zone.flushed = zone.next;
    }
  }

  void note(const Running& one) {
    Zone& zone = state_[one.zone];
    const Status& status = one.op.status;
    if (cuts_.dead()) return;
    ASSERT_TRUE(status.ok()) << status.describe();
    if (one.op.kind == Kind::reset) {
      zone = Zone{.life = zone.life + 1};
    } else if (one.op.kind == Kind::finish) {
      zone.finish_running = false;
      zone.finished = true;
      zone.flushed = zone.next;  // all that was answered before
    }
  }

  // LBAs of a life that are there from the zone's start on, up to the first that is not.
  std::uint64_t there(std::uint32_t number, std::uint64_t life, std::uint64_t upto) {
    AlignedBuffer bytes;
    if (upto == 0 || !zones_.read(number * kModelSize, upto, bytes).ok()) return 0;
    for (std::uint64_t lba = 0; lba < upto; ++lba) {
      const auto expected = content(number * kModelSize + lba, life, 4096);
      if (!equal(bytes.span().subspan(lba * 4096, 4096), expected)) return lba;
    }
    return upto;
  }

  void look(std::uint32_t number) {
    Zone& zone = state_[number];
    const ZoneInfo info = zones_.zone(number);
    ASSERT_FALSE(is_open(info.state));
    const bool full = info.state == ZoneState::full;
    const std::uint64_t written = full ? kModelCapacity : info.written_lbas;
    if (info.state == ZoneState::empty) {
      ASSERT_TRUE(zone.reset_running || (zone.flushed == 0 && !zone.finished)) << number;
    }
    const std::uint64_t found = there(number, zone.life, std::min(written, zone.next));
    if (!zone.reset_running) {
      ASSERT_GE(found, zone.flushed) << number;
    }
    if (zone.finished && !zone.reset_running) {
      ASSERT_TRUE(full) << number;
    }
    // What was never flushed may be torn, and the zone's end anywhere before what was asked for.
    ASSERT_TRUE(written <= zone.next || full)
        << number << ": " << written << " of " << zone.next << ' ' << zone.reset_running;
    kept_ += found;
    lost_ += zone.next - found;
    if (info.state != ZoneState::empty) {
      ASSERT_EQ(zones_.status_of(Kind::reset, number * kModelSize), 0);
    }
    zone = Zone{.life = zone.life + 1};
  }

  std::mt19937_64 random_;
  Zones zones_{kModelDevice};
  PowerCuts cuts_;
  std::array<Zone, kZones> state_;
  std::uint64_t kept_ = 0, lost_ = 0;
};

class ZonedPowerCutTest : public ::testing::TestWithParam<CrashModel> {};

TEST_P(ZonedPowerCutTest, LeavesWhatWasFlushed) {
  ZonedPowerCut cut(11, GetParam());
  for (std::uint64_t round = 0; round < 60; ++round) {
    ASSERT_NO_FATAL_FAILURE(cut.round(1000 + round)) << round;
  }
  EXPECT_GT(cut.kept(), 1000u);
  EXPECT_GT(cut.lost(), 100u);
}

TEST_P(ZonedPowerCutTest, AnOrderlyCloseFlushes) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    Zones zones(kModelDevice);
    PowerCuts cuts(zones.rig, GetParam());
    cuts.start(seed);
    ASSERT_NO_FATAL_FAILURE(zones.make(zoned_options(kZones)));
    ASSERT_TRUE(zones.write(0, 8).ok());
    zones.close();
    ASSERT_NO_FATAL_FAILURE(cuts.cut());
    cuts.restore(seed);
    ASSERT_NO_FATAL_FAILURE(zones.open());
    EXPECT_TRUE(zones.holds(0, 8, 1)) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ZonedPowerCutTest,
                         ::testing::Values(CrashModel::drive, CrashModel::emu));

}  // namespace
}  // namespace furrow::testing
