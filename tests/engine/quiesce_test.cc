// Establishes that a pool can be closed with puts in flight: each is answered, those too that wait
// for a zone which nobody frees any more.
#include <gtest/gtest.h>

#include "tests/engine/rig.h"
#include "zone/fault_device.h"

namespace furrow::testing {
namespace {

class QuiesceTest : public ::testing::TestWithParam<VolumeMode> {};
INSTANTIATE_TEST_SUITE_P(Modes, QuiesceTest,
                         ::testing::Values(VolumeMode::cache, VolumeMode::store),
                         [](const auto& each) {
                           return each.param == VolumeMode::cache ? "cache" : "store";
                         });

TEST_P(QuiesceTest, AnswersWhatIsInFlight) {
  constexpr std::uint64_t kPuts = 400, kTurnsMax = 200'000;  // more than the volume holds
  Rig rig("mem:8MiB?zone_size=1MiB");
  VolumeOptions options;
  options.name = "pages";
  options.mode = GetParam();
  options.value_bytes_max = 64 << 10;
  ASSERT_NO_FATAL_FAILURE(rig.make(options));
  std::vector<std::vector<std::byte>> pages(kPuts);
  std::vector<PageOp> ops(kPuts);
  for (std::uint64_t i = 0; i < kPuts; ++i) {
    pages[i] = content(i, 1, 30000);
    ops[i].kind = PageOp::Kind::put;
    ops[i].key = key_of(i);
    ops[i].data = pages[i].data();
    ops[i].length = 30000;
    rig.submit(ops[i]);
  }
  rig.turns(1);  // they are on their way
  bool closed = false;
  for (std::uint64_t turn = 0; turn < kTurnsMax && !closed; ++turn) {
    closed = rig.pool->quiesce();
    rig.loop.run_once();
  }
  rig.turns(100);  // answers are on their way
  ASSERT_TRUE(rig.idle()) << "a put was never answered";
  ASSERT_TRUE(closed);
  std::uint64_t stored = 0, aborted = 0;
  for (const PageOp& op : ops) {
    stored += op.status.ok() ? 1 : 0;
    aborted += op.status.code() == Code::aborted ? 1 : 0;
  }
  EXPECT_GT(stored, 50u);
  if (GetParam() == VolumeMode::cache) {  // a store refuses what it has no room for at once
    EXPECT_GT(aborted, 0u);
  }
  ASSERT_NO_FATAL_FAILURE(rig.reopen());
  for (std::uint64_t i = 0; i < kPuts; ++i) {
    if (ops[i].status.ok()) {
      const Status read = rig.get(i).status();
      const bool evicted = GetParam() == VolumeMode::cache && read.code() == Code::not_found;
      EXPECT_TRUE(read.ok() || evicted) << i << ": " << read.describe();
    }
  }
}

// What nobody flushed is flushed at the end, and that it could not be is told.
TEST_P(QuiesceTest, TellsThatTheDeviceCouldNotFlush) {
  for (const bool fails : {false, true}) {
    SCOPED_TRACE(fails);
    auto inner = open_device("mem:16MiB?zone_size=1MiB", Access::exclusive);
    ASSERT_TRUE(inner.ok());
    auto made = std::make_unique<FaultDevice>(std::move(*inner), FaultOptions());
    FaultDevice& device = *made;
    Rig rig("");
    rig.device = std::move(made);
    VolumeOptions options;
    options.name = "pages";
    options.mode = GetParam();
    options.value_bytes_max = 64 << 10;
    ASSERT_NO_FATAL_FAILURE(rig.make(options));
    ASSERT_TRUE(rig.put(1, 1, 5000).ok());
    EXPECT_FALSE(rig.pool->info().flush_failed);
    device.fail_flushes(fails ? 1000 : 0);
    for (int turn = 0; turn < 10'000 && !rig.pool->quiesce(); ++turn) rig.loop.run_once();
    ASSERT_TRUE(rig.pool->quiesce());
    EXPECT_EQ(rig.pool->info().flush_failed, fails);
    device.fail_flushes(0);
  }
}

}  // namespace
}  // namespace furrow::testing
