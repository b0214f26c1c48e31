// Establishes that a store whose device fails is neither after it all the time nor, when the device
// is well again, goes on refusing what it refused before. How: on a PageLog whose writes fail for a
// while, or whose zones hold less than they say, by what the device was asked for meanwhile and
// what is answered afterwards.
#include "tests/log/collector_rig.h"

namespace furrow {
namespace {

class CollectorBackOffTest : public CollectorTest {
 protected:
  static constexpr std::uint32_t kBytes = 400;
  static constexpr std::uint64_t kMs = 1'000'000, kSecond = 1'000 * kMs;

  Shape shape_of(unsigned streams) const {
    Shape shape;
    shape.zones = 14;
    shape.quota = 8;
    shape.streams = streams;
    return shape;
  }
  Status put_one() {
    const Status status = put(next_++, 0, kBytes);
    run();  // what it has kicked, should it have been refused at once
    return status;
  }
};

TEST_F(CollectorBackOffTest, WhereNothingIsWrittenItWaitsAndGoesOnWhenThatIsOver) {
  for (const Code code : {Code::io_error, Code::no_space}) {
    for (const unsigned streams : {1u, 2u}) {
      for (const std::uint64_t held : {6, 7}) {
        SCOPED_TRACE(testing::Message() << streams << " streams, " << held << " zones, "
                                        << (code == Code::io_error ? "errors" : "no room"));
        remake(shape_of(streams), kStore);
        fill(held);  // and each zone can be collected
        for (std::size_t i = 0; i < filler_.size(); i += 2) {
          ASSERT_TRUE(remove(filler_[i]).ok());
        }
        const std::size_t writes = device_->count(Io::Op::write), before = resets().size();
        device_->fail(Io::Op::write, {code, Origin::zone}, ~0u);
        for (std::uint64_t ms = 0; ms < 3'000; ++ms) {
          ASSERT_FALSE(put_one().ok());
          clock_.now_ns += kMs;
        }
        EXPECT_LT(device_->count(Io::Op::write) - writes, 100u);
        EXPECT_LT(resets().size() - before, 200u);
        device_->fail(Io::Op::write, Status(), 0);
        clock_.now_ns += kSecond;
        (void)put_one();  // if it is refused, that tries again
        for (unsigned i = 0; i < 50; ++i) {
          const Status status = put_one();
          ASSERT_TRUE(status.ok()) << i << ": " << status.describe();
        }
        for (std::size_t i = 1; i < filler_.size(); i += 2) expect_page(filler_[i], 0, kBytes);
      }
    }
  }
}

// Of zones that can be emptied into each other for ever a few are tried again, ever more seldom.
TEST_F(CollectorBackOffTest, ACircleIsTriedAgainWithFewZones) {
  constexpr std::uint64_t kHoldsLbas = 40;
  Shape shape = shape_of(2);
  shape.faults = true;
  remake(shape, kStore);
  std::size_t seen = ~std::size_t{0};
  const auto put_short = [&] {
    Op& op = start_put(next_++, 0, 2000);
    const auto turn = [&] {  // a reset makes a zone whole
      const std::size_t resets = device_->count(Io::Op::reset);
      if (std::exchange(seen, resets) == resets) return;
      faults_->heal();
      for (std::uint32_t i = kMetadataZones; i < shape_.zones; ++i) {
        faults_->fail_writes(Lba{pool_->device_lba(ZoneId{i}, kHoldsLbas)},
                             shape_.zone_capacity_lbas - kHoldsLbas);
      }
    };
    for (bool busy = true; busy;) {
      turn();
      busy = executor_.run_once();
    }
    EXPECT_EQ(op.answers, 1u);
    return op.status;
  };
  while (put_short().ok()) {
  }
  const std::uint64_t stored = next_ - 1;
  EXPECT_GT(resets().size(), 256u);
  const auto resets_in = [&](std::uint64_t ms) {
    const std::size_t before = resets().size();
    for (const std::uint64_t end_ns = clock_.now_ns + ms * kMs; clock_.now_ns < end_ns;) {
      EXPECT_EQ(put_short().code(), Code::no_space);
      clock_.now_ns += 100 * kMs;
    }
    return resets().size() - before;
  };
  const std::size_t few = 3 * shape.quota;
  EXPECT_EQ(resets_in(900), 0u);
  const std::size_t again = resets_in(1'100);
  EXPECT_GT(again, 0u);
  EXPECT_LE(again, few);
  EXPECT_LE(resets_in(15'000), 3 * few) << "after 2, 4, 8, .. seconds";
  faults_->heal();
  clock_.now_ns += 60 * kSecond;
  (void)put_one();
  EXPECT_TRUE(put_one().ok());
  for (std::uint64_t n = 1000; n < stored; ++n) expect_page(n, 0, 2000);
}

}  // namespace
}  // namespace furrow
