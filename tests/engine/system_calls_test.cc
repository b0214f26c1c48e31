// Establishes that a page costs no system call beyond its share of a batch's, in the engine over an
// emulated device: 64 gets in flight are one call, 64 puts of 4 KiB (two batches of group commit) a
// few, counted by the queues of the session and of the pool. (That these count all there are:
// tests/zone/emu_calls_test.cc.) How: in the page cache, where a read is done when it is submitted,
// so that how fast a disk is changes nothing. (Of a disk's: in tmpfs the kernel has threads read.)
#include "tests/engine/pool_file.h"

namespace furrow::testing {
namespace {

constexpr std::uint32_t kDepth = 64, kPageBytes = 4096;
constexpr std::uint64_t kPages = 40 * kDepth;

class SystemCallsTest : public ::testing::Test, public PoolFile {
 protected:
  SystemCallsTest() : PoolFile(std::filesystem::temp_directory_path()) {}
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(make_device(64 << 20, 4 << 20));
    VolumeOptions options;
    options.name = "pages";
    options.mode = VolumeMode::store;
    ASSERT_NO_FATAL_FAILURE(rig_.make(options));
  }
  // All pages, 64 at a time. Returns how many system calls that took.
  std::uint64_t run(PageOp::Kind kind) {
    const std::uint64_t before = system_calls();
    for (std::uint64_t at = 0; at < kPages; at += kDepth) {
      for (std::uint32_t i = 0; i < kDepth; ++i) {
        PageOp& op = ops_[i];
        op.kind = kind;
        op.key = key_of(at + i);
        op.data = memory_.data() + std::size_t{i} * kPageBytes;
        op.length = op.capacity = kPageBytes;
        rig_.submit(op);
      }
      rig_.wait();
      for (const PageOp& op : ops_) EXPECT_TRUE(op.status.ok()) << op.status.describe();
    }
    return system_calls() - before;
  }
  std::uint64_t system_calls() const {
    return rig_.session->system_calls() + rig_.pool->info().system_calls;
  }

  Rig rig_{uri() + "?direct=0"};
  AlignedBuffer memory_{std::size_t{kDepth} * kPageBytes};
  std::vector<PageOp> ops_ = std::vector<PageOp>(kDepth);
};

TEST_F(SystemCallsTest, APageCostsItsShareOfABatchs) {
  constexpr std::uint64_t kBatches = kPages / kDepth;
  EXPECT_LE(run(PageOp::Kind::put), 4 * kBatches) << "new pages";
  // Those that take the place of another one's first read the header that has its key.
  EXPECT_LE(run(PageOp::Kind::put), 12 * kBatches);
  const std::uint64_t gets = run(PageOp::Kind::get);
  EXPECT_GE(gets, kBatches);
  EXPECT_LE(gets, kBatches + kBatches / 4);
}

}  // namespace
}  // namespace furrow::testing
