// Establishes what a block volume promises at a power cut: what was acknowledged with FUA, or
// before an acknowledged flush, is there; any LBA is as it was or as an operation meant it to be;
// and a write within one block of 4 KiB is there as a whole or not at all. What was read with FUA
// is there as well.
//
// Random writes and discards of LBAs of 512 bytes run on the fault device, which cuts the power
// after a random number of written LBAs, in both crash models. The pool is small, so that its zones
// are collected all the while, also when the power goes.
#include <gtest/gtest.h>

#include "tests/engine/block/disk.h"
#include "tests/engine/power_cuts.h"
#include "tests/rounds.h"

namespace furrow::testing {
namespace {

constexpr std::uint64_t kCutLbas = 2048;  // 256 blocks, of the pool's 10 zones of 64

// What an LBA may be: states[0] is durable, the later ones are what was asked for since. 0: zeroes.
struct LbaHistory {
  std::vector<std::uint64_t> states{0};
};

class BlockPowerCut {
 public:
  BlockPowerCut(std::uint64_t seed, CrashModel model) : random_(seed), cuts_(disk_.rig, model) {
    cuts_.start(seed);
    disk_.make(block_options(1 << 20, 512));
  }

  void round(std::uint64_t seed) {
    cuts_.cut_after(1 + random_() % 600);
    std::uint64_t copied = 0;
    for (unsigned turn = 0; turn < 400 && !cuts_.dead(); ++turn) {
      copied = disk_.rig.store->stats().relocated_bytes;
      ASSERT_NO_FATAL_FAILURE(act());
    }
    ASSERT_NO_FATAL_FAILURE(cuts_.cut());
    const VolumeStats stats = disk_.rig.store->stats();
    zones_reset_ += stats.zones_reset;
    cut_while_copying_ += stats.relocated_bytes != copied;
    disk_.blocks.reset();
    disk_.rig.close();
    cuts_.restore(seed);
    ASSERT_NO_FATAL_FAILURE(disk_.rig.open());
    disk_.connect();
    ASSERT_NO_FATAL_FAILURE(look());
  }
  std::uint64_t kept() const { return kept_; }
  std::uint64_t undecided() const { return undecided_; }
  std::uint64_t zones_reset() const { return zones_reset_; }
  // Rounds in whose last operations collection has copied blocks.
  std::uint64_t cut_while_copying() const { return cut_while_copying_; }

 private:
  struct Running {
    BlockOp op;
    std::vector<std::byte> data;
    std::uint64_t version = 0;
  };

  static std::vector<std::byte> bytes_of(std::uint64_t lba, std::uint64_t version) {
    return version == 0 ? std::vector<std::byte>(512) : content(lba, version, 512);
  }

  void act() {
    std::vector<std::unique_ptr<Running>> running;
    for (std::uint64_t lba = random_() % 40; lba < kCutLbas; lba += random_() % 120) {
      const std::uint64_t count = std::min(1 + random_() % 20, kCutLbas - lba);
      auto one = std::make_unique<Running>();
      one->op.lba = lba;
      one->op.count = count;
      one->op.durability = random_() % 3 == 0 ? Durability::flushed : Durability::none;
      if (random_() % 5 == 0) {
        one->op.kind = BlockOp::Kind::discard;
      } else {
        one->op.kind = BlockOp::Kind::write;
        one->version = ++version_;
        for (std::uint64_t i = 0; i < count; ++i) {
          const auto bytes = bytes_of(lba + i, one->version);
          one->data.insert(one->data.end(), bytes.begin(), bytes.end());
        }
        one->op.data = one->data.data();
      }
      for (std::uint64_t i = 0; i < count; ++i) lbas_[lba + i].states.push_back(one->version);
      disk_.submit(one->op);
      running.push_back(std::move(one));
      lba += count;
    }
    disk_.wait();
    for (const auto& one : running) ASSERT_NO_FATAL_FAILURE(note(*one));
    if (random_() % 4 == 0 && disk_.run(BlockOp::Kind::flush, 0, 0).ok()) {
      for (LbaHistory& lba : lbas_) lba.states.erase(lba.states.begin(), lba.states.end() - 1);
    }
  }

  void note(const Running& one) {
    ASSERT_TRUE(one.op.status.ok() || cuts_.dead()) << one.op.status.describe();
    if (one.op.status.ok() && one.op.durability == Durability::flushed) {
      for (std::uint64_t i = 0; i < one.op.count; ++i) {
        auto& states = lbas_[one.op.lba + i].states;
        states.erase(states.begin(), states.end() - 1);  // it is the last one
      }
    }
    const std::uint64_t last = one.op.lba + one.op.count - 1;
    if (one.version != 0 && one.op.count > 1 && one.op.lba / 8 == last / 8) {
      atomic_.push_back({one.op.lba, one.op.count, one.version});
    }
  }

  void look() {
    const auto all = disk_.read(0, kCutLbas);
    std::vector<std::uint64_t> found(kCutLbas);
    for (std::uint64_t lba = 0; lba < kCutLbas; ++lba) {
      const std::span there(all.data() + lba * 512, 512);
      auto& states = lbas_[lba].states;
      kept_ += states.size() == 1 && states[0] != 0;
      undecided_ += states.size() != 1;
      const auto state = std::ranges::find_if(
          states, [&](std::uint64_t version) { return equal(there, bytes_of(lba, version)); });
      ASSERT_NE(state, states.end()) << "LBA " << lba << " of " << states.size() << " states";
      found[lba] = *state;
      states = {*state};
    }
    // One that wrote several LBAs of a block: either none is there, or each that nobody has
    // overwritten since, who then had a higher version or discarded it.
    for (const Atomic& write : atomic_) {
      bool any = false, all_there = true;
      for (std::uint64_t i = 0; i < write.count; ++i) {
        const std::uint64_t version = found[write.lba + i];
        any = any || version == write.version;
        all_there = all_there && (version >= write.version || version == 0);
      }
      ASSERT_TRUE(!any || all_there) << "LBA " << write.lba;
    }
    atomic_.clear();
  }

  struct Atomic {
    std::uint64_t lba, count, version;
  };

  std::mt19937_64 random_;
  Disk disk_{"mem:3MiB?zone_size=256KiB&mor=5&mar=5"};
  PowerCuts cuts_;
  std::array<LbaHistory, kCutLbas> lbas_;
  std::vector<Atomic> atomic_;
  std::uint64_t version_ = 0, kept_ = 0, undecided_ = 0;
  std::uint64_t zones_reset_ = 0, cut_while_copying_ = 0;
};

TEST(BlockCrashTest, KeepsWhatItPromised) {
  for (const CrashModel model : {CrashModel::drive, CrashModel::emu}) {
    std::uint64_t kept = 0, undecided = 0, zones_reset = 0, cut_while_copying = 0;
    for (std::uint64_t seed = 1; seed <= rounds(8, 3); ++seed) {
      SCOPED_TRACE("model " + std::to_string(static_cast<int>(model)) + ", seed " +
                   std::to_string(seed));
      BlockPowerCut cut(seed, model);
      for (std::uint64_t round = 0; round < 6; ++round) {
        ASSERT_NO_FATAL_FAILURE(cut.round(seed * 100 + round));
      }
      kept += cut.kept();
      undecided += cut.undecided();
      zones_reset += cut.zones_reset();
      cut_while_copying += cut.cut_while_copying();
    }
    EXPECT_GT(kept, rounds(1000, 300)) << "hardly anything was durable: this has shown little";
    EXPECT_GT(undecided, rounds(100, 30));
    EXPECT_GT(zones_reset, rounds(60, 15)) << "hardly any zone was collected";
    EXPECT_GT(cut_while_copying, rounds(5, 1));
  }
}

void cut_power(Disk& disk, PowerCuts& cuts, std::uint64_t seed) {
  ASSERT_NO_FATAL_FAILURE(cuts.cut());
  disk.blocks.reset();
  disk.rig.close();
  cuts.restore(seed);
  ASSERT_NO_FATAL_FAILURE(disk.rig.open());
  disk.connect();
}

// A block that is zeroes already may be so by a removal that is not durable yet; of another one a
// part is put.
void zero_with_fua(bool already, std::uint64_t lbas, std::uint64_t seed) {
  using enum BlockOp::Kind;
  Disk disk("mem:3MiB?zone_size=256KiB");
  PowerCuts cuts(disk.rig, CrashModel::drive);
  cuts.start(seed);
  ASSERT_NO_FATAL_FAILURE(disk.make(block_options(1 << 20, 512)));
  AlignedBuffer data(8192);
  std::memset(data.data(), 7, data.size());
  ASSERT_TRUE(disk.run(write, 0, 16, data.data()).ok());
  ASSERT_TRUE(disk.run(flush, 0, 0).ok());
  ASSERT_TRUE(!already || disk.run(discard, 0, 16).ok());
  BlockOp zeroes;
  zeroes.kind = write_zeroes;
  zeroes.count = lbas;
  zeroes.durability = Durability::flushed;
  ASSERT_TRUE(disk.run(zeroes).ok());
  ASSERT_NO_FATAL_FAILURE(cut_power(disk, cuts, seed));
  EXPECT_TRUE(equal(disk.read(0, lbas), std::vector<std::byte>(lbas * 512)));
}

TEST(BlockCrashTest, ZeroesWithFuaAreDurableAlsoWhereTheyWereZeroesBefore) {
  for (const bool already : {true, false}) {
    for (const std::uint64_t lbas : {std::uint64_t{16}, std::uint64_t{3}}) {  // two blocks, a part
      for (std::uint64_t seed = 1; seed <= 8; ++seed) {
        SCOPED_TRACE(std::to_string(lbas) + " LBAs, seed " + std::to_string(seed));
        ASSERT_NO_FATAL_FAILURE(zero_with_fua(already, lbas, seed));
      }
    }
  }
}

// What others have written may not be durable yet.
void write_and_look(BlockOp::Kind kind, std::uint64_t seed) {
  Disk disk("mem:3MiB?zone_size=256KiB");
  PowerCuts cuts(disk.rig, CrashModel::drive);
  cuts.start(seed);
  ASSERT_NO_FATAL_FAILURE(disk.make(block_options(1 << 20, 512)));
  AlignedBuffer data(4096), other(4096);
  std::memset(data.data(), 7, data.size());
  const std::vector<std::byte> written(data.data(), data.data() + data.size());
  ASSERT_TRUE(disk.run(BlockOp::Kind::write, 0, 8, data.data()).ok());
  BlockOp look;
  look.kind = kind;
  look.count = 8;
  look.data = data.data();
  look.expected = other.data();  // not what is there
  look.durability = Durability::flushed;
  ASSERT_TRUE(disk.run(look).ok());
  ASSERT_NO_FATAL_FAILURE(cut_power(disk, cuts, seed));
  EXPECT_TRUE(equal(disk.read(0, 8), written));
}

TEST(BlockCrashTest, WhatIsReadWithFuaIsDurable) {
  using enum BlockOp::Kind;
  for (const BlockOp::Kind kind : {read, compare, compare_and_write}) {
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      SCOPED_TRACE(std::to_string(static_cast<int>(kind)) + ", seed " + std::to_string(seed));
      ASSERT_NO_FATAL_FAILURE(write_and_look(kind, seed));
    }
  }
}

}  // namespace
}  // namespace furrow::testing
