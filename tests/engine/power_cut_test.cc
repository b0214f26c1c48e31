// Establishes that after a power cut at any LBA everything that was acknowledged as flushed, or
// before an acknowledged flush, is there and whole, and that nothing older or wrong is served.
//
// Random puts, overwrites, deletes and flushes run on the fault device, which cuts the power after
// a random number of written LBAs, in both crash models; the pool is opened again on what survived,
// every key is compared with what it may be, and the next round goes on from there.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "tests/engine/power_cuts.h"
#include "tests/rounds.h"

namespace furrow::testing {
namespace {

// What a key may be after a cut: its durable state, or any later attempt.
struct History {
  struct State {
    std::uint64_t version = 0;  // 0: absent
    std::size_t bytes = 0;
    bool acknowledged = false;
  };
  std::vector<State> states{State{0, 0, true}};  // [0] is durable

  void durable(std::size_t state) {
    states.erase(states.begin(), states.begin() + static_cast<std::ptrdiff_t>(state));
  }
};

class PowerCut {
 public:
  // `keys`: 120 leave room; 1000 do not fit, a store says no_space to every other put.
  PowerCut(std::uint64_t seed, CrashModel model, VolumeMode mode, std::uint64_t keys = 120)
      : random_(seed), cache_(mode == VolumeMode::cache), keys_max_(keys), cuts_(rig_, model) {
    VolumeOptions options;
    options.name = "pages";
    options.mode = mode;
    options.value_bytes_max = 64 << 10;
    cuts_.start(seed);
    rig_.make(options);
  }

  void round(std::uint64_t seed) {
    cuts_.cut_after(1 + random_() % 1500);
    for (unsigned step = 0; step < 2000 && !cuts_.dead(); ++step) {
      ASSERT_NO_FATAL_FAILURE(act());
    }
    ASSERT_NO_FATAL_FAILURE(cuts_.cut());
    rig_.close();
    cuts_.restore(seed);
    ASSERT_NO_FATAL_FAILURE(rig_.open()) << "seed " << seed;
    ASSERT_NE(rig_.store, nullptr);
    for (auto& [key, history] : keys_) ASSERT_NO_FATAL_FAILURE(check(key, history));
  }
  // Deleting works, and makes room.
  void make_room() {
    for (std::uint64_t key = 0; key < keys_max_; key += 3) {
      PageOp op;
      op.kind = PageOp::Kind::remove;
      op.key = key_of(key);
      rig_.submit(op);
      ASSERT_NO_FATAL_FAILURE(wait());
      ASSERT_TRUE(op.status.ok() || op.status.code() == Code::not_found) << op.status.describe();
      keys_[key].states.push_back({0, 0, true});
    }
    flush();
    for (std::uint64_t key = 0; key < 30; key += 3) {
      const Status status = rig_.put(key, ++version_, 5000);
      ASSERT_TRUE(status.ok()) << status.describe();
      keys_[key].states.push_back({version_, 5000, true});
    }
  }
  std::uint64_t flushed_puts() const { return flushed_puts_; }
  std::uint64_t found() const { return found_; }
  Rig& rig() { return rig_; }

 private:
  static constexpr std::uint64_t kTurnsMax = 3'000'000;  // an operation that needs more is stuck

  void wait() {
    for (std::uint64_t turns = 0; !rig_.idle(); ++turns) {
      ASSERT_LT(turns, kTurnsMax) << "operations do not end";
      rig_.loop.run_once();
    }
  }

  // A few operations at once, on different keys.
  void act() {
    struct Running {
      PageOp op;
      AlignedBuffer page;
      std::uint64_t key = 0;
      std::size_t state = 0;
    };
    std::vector<std::unique_ptr<Running>> running;
    std::map<std::uint64_t, bool> used;
    for (std::uint64_t n = 1 + random_() % 12; n != 0; --n) {
      auto one = std::make_unique<Running>();
      one->key = random_() % keys_max_;
      if (used[one->key]) continue;
      used[one->key] = true;
      History& history = keys_[one->key];
      one->op.key = key_of(one->key);
      one->op.durability = random_() % 3 == 0 ? Durability::flushed : Durability::none;
      History::State state;
      if (random_() % 6 == 0) {
        one->op.kind = PageOp::Kind::remove;
      } else {
        state.version = ++version_;
        state.bytes = 1 + random_() % (random_() % 8 == 0 ? 65536 : 9000);
        one->op.kind = PageOp::Kind::put;
        one->page = AlignedBuffer((state.bytes + 4095) / 4096 * 4096);
        const auto bytes = content(one->key, state.version, state.bytes);
        std::memcpy(one->page.data(), bytes.data(), bytes.size());
        one->op.data = one->page.data();
        one->op.length = static_cast<std::uint32_t>(state.bytes);
        one->op.capacity = static_cast<std::uint32_t>(one->page.size());
      }
      history.states.push_back(state);
      one->state = history.states.size() - 1;
      running.push_back(std::move(one));
    }
    for (const auto& one : running) rig_.submit(one->op);
    ASSERT_NO_FATAL_FAILURE(wait());
    for (const auto& one : running) {
      History& history = keys_[one->key];
      const Code code = one->op.status.code();
      if (code == Code::ok || code == Code::not_found) {
        history.states[one->state].acknowledged = true;
        // not_found says what is in memory, and makes nothing durable.
        if (code == Code::not_found) history.states.pop_back();
        if (code == Code::ok && one->op.durability == Durability::flushed) {
          history.durable(one->state);
          ++flushed_puts_;
        }
      } else if (code == Code::no_space && !cuts_.dead()) {  // else it may have been tried before
        history.states.pop_back();
      }
    }
    if (random_() % 8 == 0) flush();
  }

  void flush() {
    PageOp op;
    op.kind = PageOp::Kind::flush;
    if (!rig_.run(op).ok()) return;
    for (auto& [key, history] : keys_) {
      for (std::size_t i = history.states.size(); i-- > 0;) {
        if (!history.states[i].acknowledged) continue;
        history.durable(i);
        break;
      }
    }
  }

  void check(std::uint64_t key, History& history) {
    const auto page = rig_.get(key);
    if (!page.ok()) {
      ASSERT_EQ(page.status().code(), Code::not_found) << page.status().describe();
    }
    // Evicted or deleted. Until its zone is reset a cut may bring it back, but nothing older.
    if (cache_ && !page.ok()) return;
    for (std::size_t i = 0; i < history.states.size(); ++i) {
      const History::State& state = history.states[i];
      const bool same = state.version == 0
                            ? !page.ok()
                            : page.ok() && *page == content(key, state.version, state.bytes);
      if (!same) continue;
      found_ += page.ok();
      History::State now = state;
      now.acknowledged = true;
      history.states = {now};  // recovery flushed what it found
      return;
    }
    FAIL() << "key " << key << " is " << (page.ok() ? "something else" : "lost")
           << "; its durable version is " << history.states[0].version << ", "
           << history.states.size() - 1 << " later attempts";
  }

  std::mt19937_64 random_;
  const bool cache_;
  const std::uint64_t keys_max_;
  Rig rig_{"mem:24MiB?zone_size=2MiB&zone_capacity=1MiB&mor=5&mar=5"};
  PowerCuts cuts_;
  std::map<std::uint64_t, History> keys_;
  std::uint64_t version_ = 0;
  std::uint64_t flushed_puts_ = 0, found_ = 0;
};

constexpr std::uint64_t kSeeds = rounds(12, 2);

struct Case {
  CrashModel model;
  VolumeMode mode;
};

class PowerCutTest : public ::testing::TestWithParam<Case> {};

TEST_P(PowerCutTest, KeepsWhatWasFlushed) {
  const char* env = std::getenv("FURROW_SEED");
  const std::uint64_t first = env != nullptr ? std::strtoull(env, nullptr, 0) : 1000;
  const std::uint64_t seeds = env != nullptr ? 1 : kSeeds;
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    SCOPED_TRACE("FURROW_SEED=" + std::to_string(seed));
    PowerCut cut(seed, GetParam().model, GetParam().mode);
    for (std::uint64_t round = 1; round <= 6; ++round) {
      ASSERT_NO_FATAL_FAILURE(cut.round(seed * 1000 + round));
    }
    EXPECT_GT(cut.flushed_puts(), 50u);
    EXPECT_GT(cut.found(), 100u);
  }
}

// Cuts fall into collection, and leave it little room to go on.
TEST_P(PowerCutTest, AFullVolumeGoesOn) {
  const char* env = std::getenv("FURROW_SEED");
  const std::uint64_t first = env != nullptr ? std::strtoull(env, nullptr, 0) : 1;
  const std::uint64_t seeds = env != nullptr ? 1 : kSeeds;
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    SCOPED_TRACE("FURROW_SEED=" + std::to_string(seed));
    PowerCut cut(seed, GetParam().model, GetParam().mode, 1000);
    for (std::uint64_t round = 1; round <= 6; ++round) {
      ASSERT_NO_FATAL_FAILURE(cut.round(seed * 1000 + round));
      if (round % 2 == 0) {
        ASSERT_NO_FATAL_FAILURE(cut.make_room());
      }
    }
  }
}

// They may be another volume's at once. One that came back with what it had would look written to,
// where it has no more than a header.
// What is not there any more may come back: its removal is not durable yet.
TEST(RemovedTwiceTest, TheSecondTimeDurably) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    Rig rig("mem:16MiB?zone_size=1MiB");
    PowerCuts cuts(rig, CrashModel::drive);
    cuts.start(seed);
    VolumeOptions options;
    options.name = "pages";
    options.mode = VolumeMode::store;
    options.value_bytes_max = 64 << 10;
    ASSERT_NO_FATAL_FAILURE(rig.make(options));
    ASSERT_TRUE(rig.put(1, 1, 5000).ok());
    PageOp op;
    op.kind = PageOp::Kind::flush;
    ASSERT_TRUE(rig.run(op).ok());
    op.kind = PageOp::Kind::remove;
    op.key = key_of(1);
    ASSERT_TRUE(rig.run(op).ok());
    op.durability = Durability::flushed;
    ASSERT_EQ(rig.run(op).code(), Code::not_found);
    ASSERT_NO_FATAL_FAILURE(cuts.cut());
    rig.close();
    cuts.restore(seed);
    ASSERT_NO_FATAL_FAILURE(rig.open());
    EXPECT_EQ(rig.get(1).status().code(), Code::not_found) << "seed " << seed;
  }
}

TEST(DeletedVolumeTest, ItsZonesAreEmptyForGood) {
  for (const CrashModel model : {CrashModel::drive, CrashModel::emu}) {
    for (std::uint64_t seed = 1; seed <= 16; ++seed) {
      Rig rig("mem:24MiB?zone_size=1MiB");
      PowerCuts cuts(rig, model);
      cuts.start(seed);
      VolumeOptions options;
      options.name = "pages";
      options.value_bytes_max = 64 << 10;
      ASSERT_NO_FATAL_FAILURE(rig.make(options));
      for (std::uint64_t key = 0; key < 60; ++key) ASSERT_TRUE(rig.put(key, 1, 40'000).ok());
      Status deleted;
      while ((deleted = rig.pool->delete_volume("pages")).code() == Code::busy) rig.turns(1);
      ASSERT_TRUE(deleted.ok()) << deleted.describe();
      rig.return_zones();
      ASSERT_NO_FATAL_FAILURE(cuts.cut());
      rig.close();
      cuts.restore(seed);
      const auto zones = rig.device->report();
      ASSERT_TRUE(zones.ok());
      for (const ZoneInfo& zone : std::span(*zones).subspan(2)) {
        EXPECT_EQ(zone.written_lbas, 0u) << "seed " << seed << ", zone " << zone.zone.value;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, PowerCutTest,
                         ::testing::Values(Case{CrashModel::drive, VolumeMode::store},
                                           Case{CrashModel::emu, VolumeMode::store},
                                           Case{CrashModel::drive, VolumeMode::cache},
                                           Case{CrashModel::emu, VolumeMode::cache}),
                         [](const auto& each) {
                           return std::string(each.param.model == CrashModel::drive ? "drive"
                                                                                    : "emu") +
                                  (each.param.mode == VolumeMode::cache ? "_cache" : "_store");
                         });

}  // namespace
}  // namespace furrow::testing
