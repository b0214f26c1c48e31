// block_bench: a block volume by itself, on one thread: what a write and a read of 4 KiB cost, and
// what its map takes of DRAM for each block that was written, structure included.

#include <fmt/format.h>
#include <gflags/gflags.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/block/block_session.h"
#include "zone/aligned_buffer.h"
#include "zone/device.h"
#include "zone/event_loop.h"

DEFINE_string(device, "mem:6GiB?zone_size=64MiB", "the device, which is overwritten");
DEFINE_string(pattern, "dense", "dense: one block after the other; sparse: anywhere in the volume");
DEFINE_uint64(blocks, 1'000'000, "of 4 KiB, that are written");
DEFINE_uint64(size_gib, 1024, "size of the volume");
DEFINE_uint32(depth, 32, "operations in flight");
DEFINE_uint32(blocks_each, 1, "blocks of 4 KiB that an operation reads or writes, 256 at most");
DEFINE_uint64(seed, 1, "of what is random");

namespace furrow {
namespace {

struct Bench {
  EventLoop loop;
  std::unique_ptr<ZonedDevice> device;
  std::unique_ptr<Pool> pool;
  PageStore* volume = nullptr;
  std::unique_ptr<PageSession> pages;
  std::unique_ptr<BlockSession> blocks;
};

struct Slot {
  BlockOp op;
  AlignedBuffer data{FLAGS_blocks_each * kBlockPageBytes};
  bool busy = false;
};

template <class T>
T checked(Result<T> result) {
  if (result.ok()) return std::move(*result);
  fmt::print(stderr, "block_bench: {}\n", result.status().describe());
  std::exit(1);
}

void checked(const Status& status) { checked(status.ok() ? Result<int>(0) : Result<int>(status)); }

void open(Bench& bench) {
  bench.device = checked(open_device(FLAGS_device, Access::exclusive));
  checked(Pool::format(*bench.device, "bench", bench.loop));
  bench.pool = checked(Pool::open(*bench.device, bench.loop, {}));
  VolumeOptions options;
  options.name = "disk";
  options.kind = VolumeKind::block;
  options.mode = VolumeMode::store;
  options.value_bytes_max = kBlockPageBytes;
  options.block_bytes = FLAGS_size_gib << 30;
  options.block_lba_bytes = 4096;
  bench.volume = checked(bench.pool->create_volume(options));
  bench.pages = checked(bench.pool->create_session(bench.loop, 256));
  bench.blocks = std::make_unique<BlockSession>(*bench.pages, bench.loop);
}

// All of `lbas`, `depth` at a time; prints how long each took.
void run(Bench& bench, std::vector<Slot>& slots, BlockOp::Kind kind,
         const std::vector<std::uint64_t>& lbas, const char* what) {
  const std::uint64_t started_ns = bench.loop.now_ns();
  std::size_t next = 0, running = 0;
  while (next < lbas.size() || running != 0) {
    for (Slot& slot : slots) {
      if (slot.busy || next == lbas.size()) continue;
      slot.op.kind = kind;
      slot.op.lba = lbas[next++];
      slot.op.count = FLAGS_blocks_each;
      slot.op.data = slot.data.data();
      slot.op.context = &slot;
      slot.op.on_done = [](BlockOp& op) { static_cast<Slot*>(op.context)->busy = false; };
      slot.busy = true;
      bench.blocks->submit(*bench.volume, slot.op);
    }
    bench.loop.run_once();
    running = 0;
    for (Slot& slot : slots) {
      running += slot.busy;
      if (!slot.busy) checked(slot.op.status);
    }
  }
  fmt::print("{:<12} {:8.2f} us each\n", what,
             static_cast<double>(bench.loop.now_ns() - started_ns) / 1e3 /
                 static_cast<double>(lbas.size()));
}

void report(const Bench& bench, const char* when) {
  const VolumeUsage usage = bench.volume->usage();
  const VolumeStats stats = bench.volume->stats();
  fmt::print("{:<12} {} blocks, {:.2f} bytes of DRAM each, {} header reads\n", when, usage.pages,
             static_cast<double>(stats.index_bytes) / static_cast<double>(usage.pages),
             stats.header_reads);
}

void discard_all(Bench& bench, Slot& slot) {
  const std::uint64_t pages = bench.volume->usage().pages;
  const std::uint64_t started_ns = bench.loop.now_ns();
  slot.op.kind = BlockOp::Kind::discard;
  slot.op.lba = 0;
  slot.op.count = (FLAGS_size_gib << 30) / 4096;
  slot.op.data = nullptr;
  slot.busy = true;
  bench.blocks->submit(*bench.volume, slot.op);
  while (slot.busy) bench.loop.run_once();
  checked(slot.op.status);
  fmt::print(
      "{:<12} {:8.2f} us each\n", "discard",
      static_cast<double>(bench.loop.now_ns() - started_ns) / 1e3 / static_cast<double>(pages));
}

void bench_volume() {
  Bench bench;
  open(bench);
  std::vector<Slot> slots(FLAGS_depth);
  std::mt19937_64 random(FLAGS_seed);
  for (Slot& slot : slots) {
    for (std::byte& byte : slot.data.span()) byte = static_cast<std::byte>(random());
  }
  std::vector<std::uint64_t> lbas(FLAGS_blocks / FLAGS_blocks_each);
  const std::uint64_t all = (FLAGS_size_gib << 30) / 4096 / FLAGS_blocks_each;
  for (std::uint64_t i = 0; i < lbas.size(); ++i) {
    lbas[i] = (FLAGS_pattern == "dense" ? i % all : random() % all) * FLAGS_blocks_each;
  }
  run(bench, slots, BlockOp::Kind::write, lbas, "write");
  report(bench, "written");
  std::ranges::shuffle(lbas, random);
  run(bench, slots, BlockOp::Kind::read, lbas, "read");
  lbas.resize(lbas.size() / 4);
  run(bench, slots, BlockOp::Kind::write, lbas, "overwrite");
  report(bench, "overwritten");
  discard_all(bench, slots[0]);
  while (!bench.blocks->idle()) bench.loop.run_once();
  bench.blocks.reset();
  bench.pages.reset();
  while (!bench.pool->quiesce()) bench.loop.run_once();
}

}  // namespace
}  // namespace furrow

int main(int argc, char** argv) {
  gflags::SetUsageMessage("[--pattern=dense|sparse] [--blocks=N]: a block volume by itself");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  if (argc > 1 || FLAGS_depth == 0 || FLAGS_blocks_each == 0 || FLAGS_blocks_each > 256 ||
      FLAGS_blocks < FLAGS_blocks_each || FLAGS_size_gib == 0 ||
      (FLAGS_pattern != "dense" && FLAGS_pattern != "sparse")) {
    fmt::print(stderr, "block_bench: --pattern is dense or sparse, numbers are not 0\n");
    return 2;
  }
  furrow::bench_volume();
  return 0;
}
