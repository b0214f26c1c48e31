// Establishes that a block volume is what a disk is: beside a plain array of bytes, random reads,
// writes, discards, write zeroes, compares and flushes of any offset and length, many in flight and
// also within one block of 4 KiB, with both LBA sizes, give what the array has, and so do restarts,
// in a pool so small that zones are collected all the while.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/engine/block/disk.h"
#include "tests/engine/pool_file.h"
#include "tests/rounds.h"
#include "zone/fault_device.h"

namespace furrow::testing::block_session_test {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr const char* kDevice = "mem:48MiB?zone_size=2MiB";

struct Action {
  BlockOp op;
  AlignedBuffer data;
  std::vector<std::byte> expected;
  bool equal = true;
};

class Against {
 public:
  Against(std::uint64_t seed, const char* device, std::uint32_t lba_bytes)
      : random_(seed), disk_(device), lba_bytes_(lba_bytes), model_(kBytes) {
    disk_.make(block_options(kBytes, lba_bytes));
  }
  void run(unsigned rounds) {
    for (unsigned round = 1; round <= rounds; ++round) {
      ASSERT_NO_FATAL_FAILURE(act());
      if (round % (rounds / 4) == 0) {
        const VolumeStats stats = disk_.rig.store->stats();
        zones_reset_ += stats.zones_reset;
        relocated_bytes_ += stats.relocated_bytes;
        ASSERT_NO_FATAL_FAILURE(disk_.reopen());
        ASSERT_NO_FATAL_FAILURE(compare_all());
      }
    }
  }
  std::uint64_t zones_reset() const { return zones_reset_; }
  std::uint64_t relocated_bytes() const { return relocated_bytes_; }

 private:
  static constexpr std::uint64_t kBytes = 4 * kMiB;

  std::uint64_t below(std::uint64_t end) { return random_() % end; }

  // Some operations at once, on ranges of LBAs that are apart, but may share blocks.
  void act() {
    const std::uint64_t lbas = kBytes / lba_bytes_;
    std::vector<std::unique_ptr<Action>> actions;
    // Mostly in one corner, so that operations meet.
    std::uint64_t lba = below(4) == 0 ? below(lbas) : below(256);
    for (std::uint64_t n = 1 + below(8); n != 0 && lba < lbas; --n) {
      const std::uint64_t longest =  // also whole parts of the map that discards go by
          below(40) == 0  ? 3 * kMiB / lba_bytes_
          : below(5) == 0 ? (256 << 10) / lba_bytes_
                          : 20;
      const std::uint64_t count = std::min(1 + below(longest), lbas - lba);
      actions.push_back(make(lba, count));
      lba += count + (below(2) == 0 ? 0 : below(12));
    }
    for (const auto& action : actions) disk_.submit(action->op);
    disk_.wait();
    for (const auto& action : actions) ASSERT_NO_FATAL_FAILURE(check(*action));
  }

  std::unique_ptr<Action> make(std::uint64_t lba, std::uint64_t count) {
    auto action = std::make_unique<Action>();
    BlockOp& op = action->op;
    const std::uint64_t bytes = count * lba_bytes_, at = lba * lba_bytes_;
    const std::span there(model_.data() + at, bytes);
    // Every third one is at an address that no device can use.
    const std::size_t skew = below(3) == 0 ? 16 : 0;
    action->data = AlignedBuffer(bytes + 4096);
    op.data = action->data.data() + skew;
    op.lba = lba;
    op.count = count;
    op.durability = below(4) == 0 ? Durability::flushed : Durability::none;
    const auto fresh = content(lba, ++version_, bytes);
    switch (below(10)) {
      case 0:
      case 1:
      case 2:
      case 3:
        op.kind = BlockOp::Kind::write;
        std::memcpy(op.data, fresh.data(), bytes);
        std::ranges::copy(fresh, there.begin());
        break;
      case 4:
      case 5:
        op.kind = below(2) == 0 ? BlockOp::Kind::discard : BlockOp::Kind::write_zeroes;
        op.data = nullptr;
        std::ranges::fill(there, std::byte{0});
        break;
      case 6:
        op.kind = BlockOp::Kind::compare;
        std::ranges::copy(there, op.data);
        action->equal = below(2) == 0;
        if (!action->equal) op.data[below(bytes)] ^= std::byte{1};
        break;
      case 7:
        if (at / 4096 == (at + bytes - 1) / 4096) {
          op.kind = BlockOp::Kind::compare_and_write;
          action->expected.assign(there.begin(), there.end());
          action->equal = below(2) == 0;
          if (!action->equal) action->expected[below(bytes)] ^= std::byte{1};
          op.expected = action->expected.data();
          std::memcpy(op.data, fresh.data(), bytes);
          if (action->equal) std::ranges::copy(fresh, there.begin());
          break;
        }
        [[fallthrough]];
      default:
        op.kind = BlockOp::Kind::read;
        action->expected.assign(there.begin(), there.end());
    }
    return action;
  }

  void check(Action& action) {
    const BlockOp& op = action.op;
    ASSERT_TRUE(op.status.ok()) << op.status.describe();
    if (op.kind == BlockOp::Kind::read) {
      ASSERT_TRUE(equal({op.data, action.expected.size()}, action.expected))
          << "LBA " << op.lba << " to " << op.lba + op.count;
    } else {
      ASSERT_EQ(op.equal, action.equal) << static_cast<int>(op.kind);
    }
  }

  void compare_all() {
    const auto all = disk_.read(0, kBytes / lba_bytes_);
    const auto differs = std::ranges::mismatch(all, model_).in1;
    ASSERT_EQ(differs, all.end()) << "byte " << differs - all.begin();
  }

  std::mt19937_64 random_;
  Disk disk_;
  const std::uint32_t lba_bytes_;
  std::vector<std::byte> model_;
  std::uint64_t version_ = 0, zones_reset_ = 0, relocated_bytes_ = 0;
};

TEST(BlockSessionTest, IsAsAnArrayOfBytes) {
  std::uint64_t seed = 1;
  for (const char* device : {"mem:8MiB?zone_size=512KiB", "mem:8MiB?zone_size=512KiB&lba=512"}) {
    for (const std::uint32_t lba_bytes : {512u, 4096u}) {
      SCOPED_TRACE(std::string(device) + ", LBAs of " + std::to_string(lba_bytes));
      Against against(++seed, device, lba_bytes);
      ASSERT_NO_FATAL_FAILURE(against.run(rounds(400, 200)));
      EXPECT_GT(against.zones_reset(), rounds(20, 3)) << "hardly any zone was collected";
      EXPECT_GE(against.relocated_bytes(), rounds(500'000, 0));
    }
  }
}

TEST(BlockSessionTest, WhatWasNeverWrittenReadsAsZeroes) {
  Disk disk(kDevice);
  ASSERT_NO_FATAL_FAILURE(disk.make(block_options(1024 * kMiB, 512)));
  for (const std::uint64_t lba : {0ull, 12345ull, 2097152ull - 300}) {
    const auto bytes = disk.read(lba, 300);
    EXPECT_TRUE(std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; }));
  }
}

TEST(BlockSessionTest, RefusesWhatIsOutside) {
  Disk disk(kDevice);
  ASSERT_NO_FATAL_FAILURE(disk.make(block_options(kMiB, 512)));
  AlignedBuffer data(8192);
  const auto refused = [&](BlockOp::Kind kind, std::uint64_t lba, std::uint64_t count,
                           std::byte* at) {
    return disk.run(kind, lba, count, at).code() == Code::invalid_argument;
  };
  EXPECT_TRUE(disk.run(BlockOp::Kind::read, 2047, 1, data.data()).ok());
  EXPECT_TRUE(refused(BlockOp::Kind::read, 2047, 2, data.data()));
  EXPECT_TRUE(refused(BlockOp::Kind::read, 2048, 1, data.data()));
  EXPECT_TRUE(refused(BlockOp::Kind::write, 0, 0, data.data()));
  EXPECT_TRUE(refused(BlockOp::Kind::write, ~0ull, 2, data.data()));
  EXPECT_TRUE(refused(BlockOp::Kind::write, 0, 1, nullptr));
  EXPECT_TRUE(refused(BlockOp::Kind::discard, 0, 2049, nullptr));
  EXPECT_TRUE(refused(BlockOp::Kind::compare_and_write, 0, 1, data.data())) << "nothing expected";
  BlockOp op;
  op.kind = BlockOp::Kind::compare_and_write;
  op.lba = 7;
  op.count = 2;
  op.data = data.data();
  op.expected = data.data() + 4096;
  EXPECT_EQ(disk.run(op).code(), Code::invalid_argument) << "two blocks";
  op.lba = 6;
  EXPECT_TRUE(disk.run(op).ok());
}

TEST(BlockSessionTest, AKvVolumeHasNoBlocks) {
  VolumeOptions options;
  options.name = "pages";
  Disk disk(kDevice);
  ASSERT_NO_FATAL_FAILURE(disk.make(options));
  EXPECT_EQ(disk.run(BlockOp::Kind::flush, 0, 0).code(), Code::invalid_argument);
}

TEST(BlockSessionTest, ADeletedVolumeSaysSo) {
  Disk disk(kDevice);
  ASSERT_NO_FATAL_FAILURE(disk.make(block_options(kMiB, 512)));
  AlignedBuffer data(512);
  ASSERT_TRUE(disk.run(BlockOp::Kind::write, 0, 1, data.data()).ok());
  Status deleted;
  do {
    disk.rig.loop.run_once();
    deleted = disk.rig.pool->delete_volume("disk");
  } while (deleted.code() == Code::busy);
  ASSERT_TRUE(deleted.ok()) << deleted.describe();
  for (const BlockOp::Kind kind : {BlockOp::Kind::read, BlockOp::Kind::write}) {
    EXPECT_EQ(disk.run(kind, 0, 1, data.data()).code(), Code::not_found);
  }
  EXPECT_EQ(disk.run(BlockOp::Kind::discard, 0, 2048).code(), Code::not_found);
}

// mkfs discards all of a disk: on a new one, and on one that holds little, that is soon done.
TEST(BlockSessionTest, DiscardOfAThinDiskTouchesWhatItHolds) {
  constexpr std::uint64_t kLbas = (1ull << 40) / 4096;
  Disk disk(kDevice);
  ASSERT_NO_FATAL_FAILURE(disk.make(block_options(1ull << 40, 4096)));
  ASSERT_TRUE(disk.run(BlockOp::Kind::discard, 0, kLbas).ok());
  EXPECT_EQ(disk.rig.store->stats().removes, 0u);
  AlignedBuffer data(4096);
  std::memset(data.data(), 1, data.size());
  std::mt19937_64 random(3);
  for (unsigned i = 0; i < 300; ++i) {
    ASSERT_TRUE(disk.run(BlockOp::Kind::write, random() % kLbas, 1, data.data()).ok());
  }
  const std::uint64_t held = disk.rig.store->usage().pages;
  ASSERT_GT(held, 290u);
  ASSERT_NO_FATAL_FAILURE(disk.reopen());  // recovery knows which parts hold something
  ASSERT_TRUE(disk.run(BlockOp::Kind::discard, 0, kLbas).ok());
  EXPECT_EQ(disk.rig.store->stats().removes, held);
  EXPECT_EQ(disk.rig.store->usage().pages, 0u);
}

// A host sends a command again on another path while the first copy of it is still at work.
// All of a part of the map was emptied, but for a piece of its last block.
TEST(BlockSessionTest, WhatIsLeftOfABlockIsFoundWhenItIsZeroedToo) {
  constexpr std::uint64_t kPartLbas = kMiB / 512;
  Disk disk(kDevice);
  ASSERT_NO_FATAL_FAILURE(disk.make(block_options(4 * kMiB, 512)));
  AlignedBuffer data(kMiB);
  std::memset(data.data(), 1, data.size());
  ASSERT_TRUE(disk.run(BlockOp::Kind::write, 0, kPartLbas, data.data()).ok());
  ASSERT_TRUE(disk.run(BlockOp::Kind::write_zeroes, 0, kPartLbas - 1).ok());
  ASSERT_TRUE(disk.run(BlockOp::Kind::read, kPartLbas - 8, 8, data.data()).ok());
  EXPECT_EQ(data.data()[0], std::byte{0});
  EXPECT_EQ(data.data()[4095], std::byte{1});
  ASSERT_TRUE(disk.run(BlockOp::Kind::write_zeroes, 0, kPartLbas).ok());
  ASSERT_TRUE(disk.run(BlockOp::Kind::read, kPartLbas - 8, 8, data.data()).ok());
  EXPECT_EQ(data.data()[4095], std::byte{0});
}

// Whole parts, whose blocks the map was to say are gone; where they have more blocks than there are
// steps, also the part that it had come to, of which nothing was begun.
TEST(BlockSessionTest, WhatADeviceDidNotTakeIsZeroedTheNextTime) {
  for (const std::uint64_t blocks : {4, 260}) {
    Disk disk(kDevice);
    ASSERT_NO_FATAL_FAILURE(disk.rig.open_device());
    auto faulty = std::make_unique<FaultDevice>(std::move(disk.rig.device), FaultOptions());
    FaultDevice& faults = *faulty;
    disk.rig.device = std::move(faulty);
    ASSERT_NO_FATAL_FAILURE(disk.make(block_options(4 * kMiB, 4096)));
    AlignedBuffer data(blocks * 4096);
    std::memset(data.data(), 1, data.size());
    ASSERT_TRUE(disk.run(BlockOp::Kind::write, 0, blocks, data.data()).ok());
    const Geometry& geometry = disk.rig.device->geometry();
    faults.fail_writes(geometry.zone_start(ZoneId{2}),
                       geometry.zone_count * geometry.zone_size_lbas);
    EXPECT_EQ(disk.run(BlockOp::Kind::write_zeroes, 0, 512).code(), Code::io_error);
    faults.heal();
    EXPECT_TRUE(disk.run(BlockOp::Kind::write_zeroes, 0, 512).ok());
    EXPECT_TRUE(disk.read(0, blocks) == std::vector<std::byte>(blocks * 4096));
  }
}

TEST(BlockSessionTest, WhatIsZeroedTwiceAtOnceIsZeroesWhenEitherIsAnswered) {
  constexpr std::uint64_t kLbas = kMiB / 4096;
  for (const BlockOp::Kind kind : {BlockOp::Kind::write_zeroes, BlockOp::Kind::discard}) {
    Disk disk(kDevice);
    ASSERT_NO_FATAL_FAILURE(disk.make(block_options(8 * kMiB, 4096)));
    AlignedBuffer data(kMiB);
    std::memset(data.data(), 7, data.size());
    ASSERT_TRUE(disk.run(BlockOp::Kind::write, 0, kLbas, data.data()).ok());
    std::array<BlockOp, 2> ops;
    for (BlockOp& op : ops) {
      op.kind = kind;
      op.count = kLbas;
      disk.submit(op);
      op.on_done = [](BlockOp& done) { done.context = nullptr; };
    }
    while (ops[0].context != nullptr && ops[1].context != nullptr) disk.rig.loop.run_once();
    EXPECT_EQ(disk.rig.store->usage().pages, 0u);
    while (ops[0].context != nullptr || ops[1].context != nullptr) disk.rig.loop.run_once();
    for (const BlockOp& op : ops) EXPECT_TRUE(op.status.ok()) << op.status.describe();
  }
}

// The one has come to where the map has other words, while what it began in the first part goes on.
TEST(BlockSessionTest, WhatIsZeroedTwiceIsZeroesAlsoBehindOneThatHasMovedOn) {
  constexpr std::uint64_t kPartLbas = 256, kFar = 64 * kPartLbas;
  Disk disk(kDevice);
  ASSERT_NO_FATAL_FAILURE(disk.make(block_options(1 << 30, 4096)));
  AlignedBuffer data(4 * 4096);
  std::memset(data.data(), 7, data.size());
  ASSERT_TRUE(disk.run(BlockOp::Kind::write, 0, 4, data.data()).ok());
  ASSERT_TRUE(disk.run(BlockOp::Kind::write, kFar, 1, data.data()).ok());
  BlockOp longer, shorter;
  longer.kind = shorter.kind = BlockOp::Kind::write_zeroes;
  longer.count = kFar + kPartLbas;
  shorter.count = kPartLbas;
  static std::uint64_t left;  // when the shorter one is answered
  static PageStore* store;
  store = disk.rig.store;
  for (BlockOp* op : {&longer, &shorter}) {
    disk.submit(*op);
    op->on_done = [](BlockOp& done) { done.context = nullptr; };
  }
  shorter.on_done = [](BlockOp& done) {
    left = store->usage().pages;
    done.context = nullptr;
  };
  while (shorter.context != nullptr) disk.rig.loop.run_once();
  EXPECT_LE(left, 1u);
  while (longer.context != nullptr) disk.rig.loop.run_once();
  EXPECT_TRUE(shorter.status.ok() && longer.status.ok());
  EXPECT_EQ(disk.rig.store->usage().pages, 0u);
}

TEST(BlockSessionTest, ALongDiscardLetsOthersBy) {
  constexpr std::uint64_t kLbas = 128 * kMiB / 4096;
  Disk disk("mem:64MiB?zone_size=2MiB");
  ASSERT_NO_FATAL_FAILURE(disk.make(block_options(128 * kMiB, 4096)));
  AlignedBuffer data(4096);
  for (std::uint64_t lba = 0; lba < kLbas; lba += 256) {  // each part may hold something
    ASSERT_TRUE(disk.run(BlockOp::Kind::write, lba, 1, data.data()).ok());
  }
  BlockOp discard, read;
  discard.kind = BlockOp::Kind::discard;
  discard.count = kLbas;
  read.count = 1;
  read.data = data.data();
  static bool discarded_first;
  discarded_first = false;
  disk.submit(discard);
  disk.submit(read);
  discard.on_done = [](BlockOp& op) {
    discarded_first = true;
    op.context = nullptr;
  };
  read.on_done = [](BlockOp& op) { op.context = nullptr; };
  while (read.context != nullptr) disk.rig.loop.run_once();
  EXPECT_FALSE(discarded_first);
  while (discard.context != nullptr) disk.rig.loop.run_once();
  EXPECT_EQ(disk.rig.store->usage().pages, 0u);
}

// Not even of a block of which it changes a part, and has begun to.
TEST(BlockSessionTest, WhatIsNotWantedAnyMoreChangesNoFurtherBlock) {
  constexpr std::uint64_t kBlocks = 600;  // more than are in flight at once
  Disk disk("mem:64MiB?zone_size=2MiB");
  ASSERT_NO_FATAL_FAILURE(disk.make(block_options(8 * kMiB, 512)));
  AlignedBuffer ones(kBlocks * 4096), twos(kBlocks * 4096);
  std::memset(ones.data(), 1, ones.size());
  std::memset(twos.data(), 2, twos.size());
  static bool wanted;
  const auto give_up = [&](BlockOp::Kind kind, std::uint64_t lba, std::uint64_t count) {
    EXPECT_TRUE(disk.run(BlockOp::Kind::write, 0, kBlocks * 8, ones.data()).ok());
    BlockOp op;
    op.kind = kind;
    op.lba = lba;
    op.count = count;
    if (kind == BlockOp::Kind::write) op.data = twos.data();
    op.wanted = [](const BlockOp&) { return wanted; };
    wanted = true;
    disk.submit(op);
    wanted = false;
    disk.wait();
    EXPECT_EQ(op.status.code(), Code::aborted) << op.status.describe();
    const std::vector<std::byte> now = disk.read(0, kBlocks * 8);
    return std::ranges::count(now, std::byte{1}) / 512;
  };
  for (const auto kind :
       {BlockOp::Kind::write, BlockOp::Kind::discard, BlockOp::Kind::write_zeroes}) {
    const auto left = give_up(kind, 0, kBlocks * 8);
    EXPECT_GT(left, 0) << "of some it was too late";
    EXPECT_LT(left, kBlocks * 8);
    EXPECT_EQ(left % 8, 0);
    EXPECT_EQ(give_up(kind, 1, 1), kBlocks * 8) << "a part of a block";
  }
  EXPECT_TRUE(disk.run(BlockOp::Kind::discard, 0, kBlocks * 8).ok());
  EXPECT_EQ(disk.rig.store->usage().pages, 0u) << "it is found when it is asked for again";
}

// Its turn to look on may still be to come when the last removal has ended.
TEST(BlockSessionTest, AnIdleSessionMayEnd) {
  constexpr std::uint64_t kLbas = 64 * kMiB / 4096, kPart = 256;
  Disk disk("mem:64MiB?zone_size=2MiB");
  ASSERT_NO_FATAL_FAILURE(disk.make(block_options(64 * kMiB, 4096)));
  AlignedBuffer data(100 * 4096);
  // Parts that held something, and have to be looked at.
  for (std::uint64_t lba = kPart; lba < kLbas; lba += kPart) {
    ASSERT_TRUE(disk.run(BlockOp::Kind::write, lba, 1, data.data()).ok());
    ASSERT_TRUE(disk.run(BlockOp::Kind::discard, lba, 1).ok());
  }
  ASSERT_TRUE(disk.run(BlockOp::Kind::write, 0, 100, data.data()).ok());
  ASSERT_TRUE(disk.run(BlockOp::Kind::discard, 0, kLbas).ok());  // returns when it is idle
  disk.blocks.reset();
}

TEST(BlockSessionTest, AFullPoolSaysSoAndDiscardMakesRoom) {
  Disk disk("mem:16MiB?zone_size=1MiB");
  ASSERT_NO_FATAL_FAILURE(disk.make(block_options(64 * kMiB, 4096)));
  AlignedBuffer data(64 << 10);
  std::memset(data.data(), 7, data.size());
  std::uint64_t lba = 0;
  Status status;
  for (; status.ok() && lba < 4096; lba += 16) {
    status = disk.run(BlockOp::Kind::write, lba, 16, data.data());
  }
  EXPECT_EQ(status.code(), Code::no_space);
  EXPECT_TRUE(disk.run(BlockOp::Kind::discard, 0, lba).ok());
  for (std::uint64_t i = 0; i < 20; ++i) {
    EXPECT_TRUE(disk.run(BlockOp::Kind::write, i * 16, 16, data.data()).ok());
  }
}

TEST(BlockSessionTest, ADamagedBlockIsNoZeroes) {
  PoolFile file;
  ASSERT_NO_FATAL_FAILURE(file.make_device(16 * kMiB, kMiB));
  const auto first = content(0, 1, 4096);
  {
    Disk disk(file.uri());
    ASSERT_NO_FATAL_FAILURE(disk.make(block_options(kMiB, 512)));
    AlignedBuffer data(8192);
    std::ranges::copy(first, data.data());
    ASSERT_TRUE(disk.run(BlockOp::Kind::write, 0, 16, data.data()).ok());
  }
  const FileImage bytes = file.read_file();
  const std::size_t at =
      bytes.view().find({reinterpret_cast<const char*>(first.data()), first.size()});
  ASSERT_NE(at, std::string::npos);
  file.damage(at + 100);
  Disk disk(file.uri());
  ASSERT_NO_FATAL_FAILURE(disk.rig.open_device());
  ASSERT_NO_FATAL_FAILURE(disk.rig.open());
  disk.connect();
  AlignedBuffer data(4096);
  EXPECT_EQ(disk.run(BlockOp::Kind::read, 0, 8, data.data()).code(), Code::corrupt);
  // Also where what was known of another block stands in the step.
  ASSERT_TRUE(disk.run(BlockOp::Kind::write, 8, 1, data.data()).ok());
  EXPECT_EQ(disk.run(BlockOp::Kind::read, 0, 8, data.data()).code(), Code::corrupt);
  EXPECT_EQ(disk.run(BlockOp::Kind::compare, 0, 8, data.data()).code(), Code::corrupt);
  EXPECT_EQ(disk.run(BlockOp::Kind::write, 0, 1, data.data()).code(), Code::corrupt);
  ASSERT_TRUE(disk.run(BlockOp::Kind::write, 0, 8, data.data()).ok()) << "as a whole it may be";
  EXPECT_TRUE(disk.run(BlockOp::Kind::read, 0, 8, data.data()).ok());
}

}  // namespace
}  // namespace furrow::testing::block_session_test
