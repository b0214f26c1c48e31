// Establishes what a cache's saturated ingest costs the device once it turns over: at most 1.02
// device bytes a page byte at 16 KiB and 1.04 at 4 KiB, all that is written counted, the pool's
// metadata too; that pages which are kept as they were hit are counted apart, each of them; and
// that the statistics tell what the device got. How: a pool in memory, all on one thread;
// TapDevice counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "tests/engine/rig.h"
#include "tests/log/tap_device.h"

namespace furrow::testing {
namespace {

constexpr unsigned kDepth = 256;

struct Written {
  std::uint64_t device = 0;  // bytes to all zones
  std::uint64_t data = 0;    // of these, to the volume's
};

class WriteAmplification : public ::testing::Test {
 protected:
  void make(std::uint32_t page_bytes) {
    auto inner = open_device("mem:72MiB?zone_size=4MiB", Access::exclusive);
    ASSERT_TRUE(inner.ok()) << inner.status().describe();
    auto tap = std::make_unique<TapDevice>(std::move(*inner));
    tap_ = tap.get();
    rig_.device = std::move(tap);
    VolumeOptions options;
    options.name = "pages";
    options.mode = VolumeMode::cache;
    ASSERT_NO_FATAL_FAILURE(rig_.make(options));
    page_bytes_ = page_bytes;
    memory_ = AlignedBuffer(std::size_t{kDepth} * page_bytes);
    slots_.resize(kDepth);
    for (unsigned i = 0; i < kDepth; ++i) {
      slots_[i].op.data = memory_.data() + std::size_t{i} * page_bytes;
      slots_[i].op.capacity = page_bytes;
    }
  }
  // New pages until the cache has turned over so often, kDepth in flight; every `hits_every`th
  // operation is a get of one of the first `hot` pages.
  void ingest(double turnovers, std::uint64_t hot = 0, unsigned hits_every = 0) {
    const std::uint64_t quota = rig_.store->usage().quota_zones;
    const auto zones = static_cast<std::uint64_t>(turnovers * static_cast<double>(quota));
    const std::uint64_t until = rig_.store->stats().evicted_zones + zones;
    while (rig_.store->stats().evicted_zones < until) {
      for (Slot& slot : slots_) {
        if (!slot.busy) start(slot, hot, hits_every);
      }
      rig_.loop.run_once();
    }
    while (std::ranges::any_of(slots_, &Slot::busy)) rig_.loop.run_once();
  }
  Written written() const {
    const std::uint64_t lba_bytes = rig_.device->geometry().lba_bytes;
    Written written;
    for (const TapDevice::Event& event : tap_->events()) {
      if (event.op != Io::Op::write || event.answered) continue;
      written.device += event.lbas * lba_bytes;
      // The first zones are the pool's own.
      if (event.zone.value >= rig_.pool->info().zones_metadata) {
        written.data += event.lbas * lba_bytes;
      }
    }
    return written;
  }

  struct Slot {
    PageOp op;
    bool busy = false;
  };
  void start(Slot& slot, std::uint64_t hot, unsigned hits_every) {
    const bool hit = hits_every != 0 && ++operations_ % hits_every == 0;
    slot.op.kind = hit ? PageOp::Kind::get : PageOp::Kind::put;
    slot.op.key = key_of(hit ? operations_ / hits_every % hot : next_page_++);
    slot.op.length = page_bytes_;
    slot.op.context = &slot;
    slot.op.on_released = [](PageOp& op) {
      EXPECT_TRUE(op.status.ok()) << op.status.describe();
      static_cast<Slot*>(op.context)->busy = false;
    };
    slot.busy = true;
    rig_.session->submit(*rig_.store, slot.op);
  }

  AlignedBuffer memory_{4096};
  std::vector<Slot> slots_;
  Rig rig_{"unused"};
  TapDevice* tap_ = nullptr;
  std::uint32_t page_bytes_ = 0;
  std::uint64_t next_page_ = 0, operations_ = 0;
};

class Ingest : public WriteAmplification,
               public ::testing::WithParamInterface<std::pair<std::uint32_t, double>> {};

TEST_P(Ingest, CostsLittleMoreThanThePages) {
  const auto [page_bytes, most] = GetParam();
  ASSERT_NO_FATAL_FAILURE(make(page_bytes));
  ingest(1);  // all zones have been written before
  tap_->forget_events();
  const VolumeStats before = rig_.store->stats();
  ingest(3);
  const VolumeStats after = rig_.store->stats();
  const Written is = written();
  const std::uint64_t pages = after.put_bytes - before.put_bytes;
  const double amplification = static_cast<double>(is.device) / static_cast<double>(pages);
  std::printf("%u bytes a page: %.4f\n", page_bytes, amplification);
  EXPECT_LE(amplification, most);
  EXPECT_GE(is.data, pages);
  EXPECT_EQ(is.data, after.device_bytes_written - before.device_bytes_written);
  EXPECT_EQ(after.relocated_bytes, 0u) << "nothing was hit";
}
INSTANTIATE_TEST_SUITE_P(Sizes, Ingest,
                         ::testing::Values(std::pair{4096u, 1.04}, std::pair{16384u, 1.02}));

TEST_F(WriteAmplification, PagesThatWereHitAreCountedApart) {
  constexpr std::uint64_t kHot = 300;
  ASSERT_NO_FATAL_FAILURE(make(4096));
  while (next_page_ < kHot) ASSERT_TRUE(rig_.put(next_page_++, 0, 4096).ok());
  // Each of them some fifty times a turnover.
  ingest(3, kHot, 2);
  const VolumeStats stats = rig_.store->stats();
  const Written is = written();
  EXPECT_EQ(is.data, stats.device_bytes_written);
  EXPECT_EQ(stats.get_misses, 0u) << "hot pages were lost";
  // A page moves each time that its zone is the oldest: once a turnover.
  std::printf("%llu kept, %llu zones evicted\n",
              static_cast<unsigned long long>(stats.relocated_bytes / 4096),
              static_cast<unsigned long long>(stats.evicted_zones));
  EXPECT_EQ(stats.relocated_bytes % 4096, 0u);
  EXPECT_GE(stats.relocated_bytes, 3 * kHot * 4096);
  EXPECT_LE(stats.relocated_bytes, 4 * kHot * 4096);
  const auto pages = static_cast<double>(stats.put_bytes);
  EXPECT_LE(static_cast<double>(is.device - stats.relocated_bytes) / pages, 1.04);
  EXPECT_GT(static_cast<double>(is.device) / pages, 1.04);
}

}  // namespace
}  // namespace furrow::testing
