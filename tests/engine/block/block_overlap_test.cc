// Establishes that operations of a disk that overlap, and are in flight together, on two sessions,
// are as if one had come after the other: what a read finds in an LBA was written, or zeroed, by an
// operation that had begun when the read ended, and after which no other one began that had ended
// when the read began. Random writes, discards and write zeroes, of whole blocks, parts of them and
// whole parts of the map, on a device whose answers are late and out of order, and one that fails
// besides: of an operation that fails each block is as it was, or as it should be.
#include <gtest/gtest.h>

#include "tests/engine/block/disk.h"
#include "tests/rounds.h"
#include "zone/fault_device.h"

namespace furrow::testing::block_overlap_test {
namespace {

constexpr std::uint64_t kLbas = 4096, kPartLbas = 2048;  // of 512 bytes; 1 MiB
constexpr std::uint64_t kRunning = ~std::uint64_t{0};

// What an operation makes of an LBA, from when to when. Version 0: zeroes.
struct Change {
  std::uint64_t version, begin, end;
};

class Overlapping {
 public:
  // `fails`: the device fails reads, writes and flushes now and then.
  Overlapping(std::uint64_t seed, bool fails) : random_(seed), fails_(fails) {
    disk_.rig.open_device();
    FaultOptions options;
    options.seed = seed;
    options.delay_polls_max = 3;
    auto fault = std::make_unique<FaultDevice>(std::move(disk_.rig.device), options);
    fault_ = fault.get();
    disk_.rig.device = std::move(fault);
    disk_.make(block_options(kLbas * 512, 512));
    auto pages = disk_.rig.pool->create_session(*disk_.rig.executor, 64);
    EXPECT_TRUE(pages.ok());
    pages_ = std::move(*pages);
    other_ = std::make_unique<BlockSession>(*pages_, *disk_.rig.executor);
    history_.assign(kLbas, {{0, 0, 0}});
  }
  ~Overlapping() {
    other_.reset();
    pages_.reset();
  }

  void run(unsigned operations) {
    for (unsigned i = 0; i < operations; ++i) {
      while (running_.size() >= 12) {
        ASSERT_NO_FATAL_FAILURE(turn());
      }
      begin();
      if (i % 50 == 49) {
        ASSERT_NO_FATAL_FAILURE(settle());
      }
    }
    ASSERT_NO_FATAL_FAILURE(settle());
  }
  std::uint64_t checked() const { return checked_; }
  std::uint64_t failed() const { return failed_; }

 private:
  struct Running {
    BlockOp op;
    AlignedBuffer data;
    std::uint64_t version = 0, begin = 0, end = kRunning;
    Overlapping* self = nullptr;
  };

  static std::vector<std::byte> bytes_of(std::uint64_t lba, std::uint64_t version) {
    return version == 0 ? std::vector<std::byte>(512) : content(lba, version, 512);
  }
  std::uint64_t below(std::uint64_t end) { return random_() % end; }

  void fail_something() {
    const Geometry& geometry = disk_.rig.device->geometry();
    const Lba lba{below(geometry.zone_count * geometry.zone_size_lbas - 16)};
    switch (below(8)) {
      case 0:
        return fault_->fail_flushes(1);
      case 1:
        return fault_->fail_writes(lba, 16);
      case 2:
        return fault_->heal();
      default:
        return fault_->fail_reads(lba, 16);
    }
  }

  void begin() {
    if (fails_ && below(3) == 0) fail_something();
    using Kind = BlockOp::Kind;
    static constexpr Kind kKinds[] = {Kind::read,    Kind::read,         Kind::read, Kind::write,
                                      Kind::discard, Kind::write_zeroes, Kind::write};
    auto one = std::make_unique<Running>();
    BlockOp& op = one->op;
    op.kind = kKinds[below(std::size(kKinds))];
    op.lba = below(2) == 0 ? below(64) : kPartLbas - 32 + below(64);
    op.count = 1 + below(below(4) == 0 ? 300 : 24);
    const bool zeroes = op.kind == Kind::discard || op.kind == Kind::write_zeroes;
    if (zeroes && below(4) == 0) {
      op.lba = below(2) * kPartLbas;
      op.count = kPartLbas;
    }
    op.durability = below(6) == 0 ? Durability::flushed : Durability::none;
    one->begin = ++now_;
    if (!zeroes) {
      one->data = AlignedBuffer(op.count * 512);
      op.data = one->data.data();
    }
    if (op.kind == Kind::write) one->version = ++version_;
    for (std::uint64_t i = 0; i < op.count && op.kind != Kind::read; ++i) {
      history_[op.lba + i].push_back({one->version, one->begin, kRunning});
      if (zeroes) continue;
      const auto bytes = bytes_of(op.lba + i, one->version);
      std::memcpy(op.data + i * 512, bytes.data(), 512);
    }
    one->self = this;
    op.context = one.get();
    op.on_done = [](BlockOp& done) {
      auto& its = *static_cast<Running*>(done.context);
      its.end = ++its.self->now_;
    };
    BlockSession& session = below(2) == 0 ? *other_ : *disk_.blocks;
    running_.push_back(std::move(one));
    session.submit(*disk_.rig.store, op);
  }

  void turn() {
    disk_.rig.loop.run_once();
    for (auto& one : running_) {
      if (one->end == kRunning) continue;
      ASSERT_NO_FATAL_FAILURE(ended(*one));
      one.reset();
    }
    std::erase(running_, nullptr);
  }

  void ended(const Running& one) {
    ASSERT_TRUE(one.op.status.ok() || fails_) << one.op.status.describe();
    if (!one.op.status.ok()) {  // each block of it as it was, or as it should be
      ++failed_;
      return;
    }
    if (one.op.kind == BlockOp::Kind::read) {
      for (std::uint64_t i = 0; i < one.op.count; ++i) {
        const std::span there(one.op.data + i * 512, 512);
        ASSERT_TRUE(may_be(one.op.lba + i, there, one)) << "LBA " << one.op.lba + i;
      }
      return;
    }
    for (std::uint64_t i = 0; i < one.op.count; ++i) {
      for (Change& change : history_[one.op.lba + i]) {
        if (change.begin == one.begin) change.end = one.end;
      }
    }
  }

  // (Changes that ended in the same turn as the read are not noted yet, and count as running.)
  bool may_be(std::uint64_t lba, std::span<const std::byte> there, const Running& read) {
    const std::vector<Change>& changes = history_[lba];
    ++checked_;
    return std::ranges::any_of(changes, [&](const Change& made) {
      const auto overwrites = [&](const Change& later) {
        return later.begin > made.end && later.end < read.begin;
      };
      return made.begin < read.end && equal(there, bytes_of(lba, made.version)) &&
             std::ranges::none_of(changes, overwrites);
    });
  }

  // Nothing is in flight: what is there now is the only thing that may be.
  void settle() {
    while (!running_.empty()) ASSERT_NO_FATAL_FAILURE(turn());
    fault_->heal();
    Running all;
    AlignedBuffer there(kLbas * 512);
    for (std::uint64_t lba = 0; lba < kLbas;) {
      const Status read = disk_.run(BlockOp::Kind::read, lba, 64, there.data() + lba * 512);
      ASSERT_TRUE(read.ok() || fails_) << read.describe();
      if (read.ok()) lba += 64;
    }
    all.end = ++now_;
    for (std::uint64_t lba = 0; lba < kLbas; ++lba) {
      const std::span its(there.data() + lba * 512, 512);
      ASSERT_TRUE(may_be(lba, its, all)) << "LBA " << lba;
      std::vector<Change>& changes = history_[lba];
      const auto found = std::ranges::find_if(
          changes, [&](const Change& made) { return equal(its, bytes_of(lba, made.version)); });
      changes = {{found->version, 0, 0}};
    }
  }

  std::mt19937_64 random_;
  const bool fails_;
  FaultDevice* fault_ = nullptr;  // the rig's device
  Disk disk_{"mem:16MiB?zone_size=1MiB"};
  std::unique_ptr<PageSession> pages_;
  std::unique_ptr<BlockSession> other_;
  std::vector<std::unique_ptr<Running>> running_;
  std::vector<std::vector<Change>> history_;  // of each LBA
  std::uint64_t now_ = 0, version_ = 0, checked_ = 0, failed_ = 0;
};

void run(bool fails) {
  std::uint64_t checked = 0, failed = 0;
  for (std::uint64_t seed = 1; seed <= rounds(20, 4); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Overlapping overlapping(seed, fails);
    ASSERT_NO_FATAL_FAILURE(overlapping.run(1000));
    checked += overlapping.checked();
    failed += overlapping.failed();
  }
  EXPECT_GT(checked, 100'000u);
  EXPECT_EQ(failed > rounds(300, 50), fails) << failed;
}

TEST(BlockOverlapTest, IsAsIfOneCameAfterTheOther) { run(false); }

TEST(BlockOverlapTest, AlsoWhereTheDeviceFails) { run(true); }

}  // namespace
}  // namespace furrow::testing::block_overlap_test
