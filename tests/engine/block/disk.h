// Disk: a pool with one block volume, on the calling thread, for tests.
#pragma once

#include "engine/block/block_session.h"
#include "tests/engine/rig.h"

namespace furrow::testing {

inline VolumeOptions block_options(std::uint64_t bytes, std::uint32_t lba_bytes) {
  VolumeOptions options;
  options.name = "disk";
  options.kind = VolumeKind::block;
  options.mode = VolumeMode::store;
  options.value_bytes_max = kBlockPageBytes;
  options.block_bytes = bytes;
  options.block_lba_bytes = lba_bytes;
  return options;
}

class Disk {
 public:
  explicit Disk(const std::string& uri) : rig(uri) {}
  ~Disk() { blocks.reset(); }

  void make(const VolumeOptions& options) {
    ASSERT_NO_FATAL_FAILURE(rig.make(options));
    connect();
  }
  void connect() { blocks = std::make_unique<BlockSession>(*rig.session, *rig.executor); }
  void reopen() {
    blocks.reset();
    ASSERT_NO_FATAL_FAILURE(rig.reopen());
    connect();
  }
  std::uint32_t lba_bytes() const { return rig.store->info().options.block_lba_bytes; }

  void submit(BlockOp& op) {
    op.context = this;
    op.on_done = [](BlockOp& done) { --static_cast<Disk*>(done.context)->running_; };
    ++running_;
    blocks->submit(*rig.store, op);
  }
  void wait() {
    while (running_ != 0 || !blocks->idle()) rig.loop.run_once();
  }
  Status run(BlockOp& op) {
    submit(op);
    wait();
    return op.status;
  }
  Status run(BlockOp::Kind kind, std::uint64_t lba, std::uint64_t count,
             std::byte* data = nullptr) {
    BlockOp op;
    op.kind = kind;
    op.lba = lba;
    op.count = count;
    op.data = data;
    return run(op);
  }
  std::vector<std::byte> read(std::uint64_t lba, std::uint64_t count) {
    AlignedBuffer data(count * lba_bytes());
    std::memset(data.data(), 0xa5, data.size());
    const Status status = run(BlockOp::Kind::read, lba, count, data.data());
    EXPECT_TRUE(status.ok()) << status.describe();
    return {data.data(), data.data() + count * lba_bytes()};
  }
  bool idle() const { return running_ == 0; }

  Rig rig;
  std::unique_ptr<BlockSession> blocks;

 private:
  unsigned running_ = 0;
};

}  // namespace furrow::testing
