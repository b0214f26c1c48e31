// Operations: checked, queued, begun block by block, and finished. block_step.cc has a block's
// part.
#include "engine/block/block_session.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "engine/block/block_step.h"
#include "engine/page_store_impl.h"
#include "zone/check.h"

namespace furrow {

namespace {

BlockMap& map_of(PageStore& volume) { return static_cast<PageStoreImpl&>(volume).blocks()->map; }

bool has_data(BlockOp::Kind kind) {
  using enum BlockOp::Kind;
  return kind == read || kind == write || kind == compare || kind == compare_and_write;
}

bool zeroes(BlockOp::Kind kind) {
  return kind == BlockOp::Kind::discard || kind == BlockOp::Kind::write_zeroes;
}

// And nothing else, as far as is known now.
bool only_reads(const BlockOp& op) {
  return op.kind == BlockOp::Kind::read || op.kind == BlockOp::Kind::compare ||
         (op.kind == BlockOp::Kind::compare_and_write && !op.equal);
}

bool writes(BlockOp::Kind kind) {
  return kind == BlockOp::Kind::write || kind == BlockOp::Kind::compare_and_write;
}

// Byte positions in the volume.
struct Range {
  std::uint64_t begin, end;
};

Range range_of(const PageStore& volume, const BlockOp& op) {
  const std::uint64_t lba_bytes = volume.info().options.block_lba_bytes;
  return {op.lba * lba_bytes, (op.lba + op.count) * lba_bytes};
}

}  // namespace

BlockSession::BlockSession(PageSession& pages, Executor& executor)
    : pages_(pages), executor_(executor) {
  steps_.reserve(kStepsMax);
  continue_.self = this;
  continue_.run = [](Task& task) {
    auto& self = *static_cast<Continue&>(task).self;
    self.continue_.posted = false;
    self.run();
  };
}

BlockSession::~BlockSession() { FURROW_CHECK(idle()); }

Status BlockSession::refusal(PageStore& volume, const BlockOp& op) {
  const auto invalid = [](const char* hint) {
    return Status(Code::invalid_argument, Origin::engine, hint);
  };
  const VolumeOptions& options = volume.info().options;
  if (options.kind != VolumeKind::block) return invalid("the volume is not of kind block");
  if (static_cast<const PageStoreImpl&>(volume).deleted()) return PageStoreImpl::deleted_status();
  if (op.kind == BlockOp::Kind::flush) return {};
  if (static_cast<PageStoreImpl&>(volume).log().incomplete()) {
    return {Code::io_error, Origin::engine,
            "a zone that may hold some of the disk's blocks is lost, or could not be read when the "
            "pool was opened; open it again, or give up what is lost: `furrowctl pool check "
            "--repair --give_up`"};
  }
  const std::uint64_t lbas = options.block_bytes / options.block_lba_bytes;
  if (op.count == 0 || op.lba >= lbas || op.count > lbas - op.lba) {
    return invalid("the range is empty, or not within the volume");
  }
  if (has_data(op.kind) && op.data == nullptr) return invalid("no data");
  if (op.kind != BlockOp::Kind::compare_and_write) return {};
  if (op.expected == nullptr) return invalid("nothing to compare with");
  const Range range = range_of(volume, op);
  if (range.begin / kBlockPageBytes == (range.end - 1) / kBlockPageBytes) return {};
  return invalid("a compare and write is of one 4 KiB block");
}

void BlockSession::submit(PageStore& volume, BlockOp& op) {
  BlockOp::Internal& in = op.internal;
  ++in_flight_;
  in.self = &op;
  in.session = this;
  in.volume = &volume;
  in.next_block = in.end_block = 0;
  in.running = 0;
  in.waiting = in.paused = in.flushing = false;
  in.emptying = 0;
  in.part = ~std::uint64_t{0};
  op.equal = op.kind != BlockOp::Kind::compare_and_write;  // until it has been compared
  op.status = refusal(volume, op);
  if (!op.status.ok()) return answer_later(op);
  if (op.kind == BlockOp::Kind::flush) {
    in.next_block = 0;
    in.end_block = 1;
  } else {
    const Range range = range_of(volume, op);
    in.next_block = range.begin / kBlockPageBytes;
    in.end_block = (range.end - 1) / kBlockPageBytes + 1;
  }
  enqueue(op);
  run();
}

void BlockSession::answer_later(BlockOp& op) {
  op.internal.task.run = [](Task& task) {
    BlockOp& its_op = *reinterpret_cast<BlockOp::Internal&>(task).self;
    its_op.internal.session->finish(its_op);
  };
  executor_.post(op.internal.task);
}

void BlockSession::finish(BlockOp& op) {
  leave_parts(op);
  // Also of one that failed: what it wrote may be there all the same.
  if (writes(op.kind) && op.internal.end_block != 0) {
    const Range range = range_of(*op.internal.volume, op);
    constexpr std::uint64_t kPartBytes = BlockMap::kPartBlocks * kBlockPageBytes;
    for (std::uint64_t at = range.begin; at < range.end; at = (at / kPartBytes + 1) * kPartBytes) {
      map_of(*op.internal.volume).note(at / kBlockPageBytes);
    }
  }
  --in_flight_;
  op.on_done(op);
}

void BlockSession::enqueue(BlockOp& op) {
  op.internal.waiting = true;
  op.internal.next = nullptr;
  (first_ == nullptr ? first_ : last_->internal.next) = &op;
  last_ = &op;
}

// Begins what can be begun: operations in turn, a slice of each.
void BlockSession::run() {
  unsigned looks = 0;
  const BlockOp* looked_enough = nullptr;  // the first that may not look on in this turn
  while (first_ != nullptr && first_ != looked_enough) {
    BlockOp& op = *first_;
    const Progress progress = begin_blocks(op, looks);
    if (progress == Progress::stuck) return;  // a step's end goes on
    if (looks > kLooksMax && looked_enough == nullptr) looked_enough = &op;
    first_ = op.internal.next;
    op.internal.waiting = false;
    if (progress == Progress::more) {
      enqueue(op);
    } else if (progress == Progress::paused) {
      op.internal.paused = true;
    } else if (op.internal.running == 0) {
      answer_later(op);
    }
  }
  if (first_ == nullptr || continue_.posted) return;
  continue_.posted = true;
  executor_.post(continue_);
}

BlockSession::Progress BlockSession::begin_blocks(BlockOp& op, unsigned& looks) {
  BlockOp::Internal& in = op.internal;
  for (unsigned begun = 0; in.next_block != in.end_block; ++begun) {
    if (begun == kSlice) return Progress::more;
    if (unwanted(op)) {
      begin_no_more(op, kUnwanted);
      break;
    }
    if (zeroes(op.kind)) {
      const Progress skipped = skip_empty(op, looks);
      if (skipped != Progress::all_begun) return skipped;
      if (in.next_block == in.end_block) break;
    }
    Step* const step = take_step(op);
    if (step == nullptr) return Progress::stuck;
    ++in.running;
    ++in.next_block;
    begin(*step);
  }
  const auto& store = static_cast<const PageStoreImpl&>(*in.volume);
  const bool flushes = zeroes(op.kind) ? store.durably(op.durability)
                                       : only_reads(op) && op.durability == Durability::flushed;
  return flushes ? begin_flush(op) : Progress::all_begun;
}

// Of what was zeroed. Blocks that held nothing were passed over: what removed them before may not
// be durable yet. So that is left to one flush for all of them, when the others are removed. Of
// what was read, which others may have written just now.
BlockSession::Progress BlockSession::begin_flush(BlockOp& op) {
  BlockOp::Internal& in = op.internal;
  if (in.flushing || !op.status.ok()) return Progress::all_begun;
  if (in.running != 0) return Progress::paused;
  Step* const step = take_step(op);
  if (step == nullptr) return Progress::stuck;
  in.flushing = true;
  ++in.running;
  begin(*step);
  return Progress::all_begun;
}

// Moves on to the next block that may hold something, which the map and the index tell. more: it
// has looked up as many as a turn may. paused: parts count as being emptied until all that was
// begun in them has ended; those behind come then.
BlockSession::Progress BlockSession::skip_empty(BlockOp& op, unsigned& looks) {
  BlockOp::Internal& in = op.internal;
  auto& store = static_cast<PageStoreImpl&>(*in.volume);
  BlockMap& map = store.blocks()->map;
  std::array<IndexEntry, 1> found;
  while (in.next_block != in.end_block) {
    const std::uint64_t part = BlockMap::part_of(in.next_block);
    if (part != in.part) {
      if (in.emptying != 0 && part / kPartsEmptied != in.part / kPartsEmptied) {
        if (in.running != 0) return Progress::paused;
        leave_parts(op);
      }
      const std::uint64_t next = map.next(part, BlockMap::part_of(in.end_block) + 1);
      if (next != part) {
        in.next_block = std::min(in.end_block, next * BlockMap::kPartBlocks);
        continue;
      }
      in.part = part;
      const bool whole = in.next_block % BlockMap::kPartBlocks == 0 &&
                         in.end_block - in.next_block >= BlockMap::kPartBlocks;
      if (whole && map.begin_emptying(part)) {
        in.emptying |= std::uint64_t{1} << part % kPartsEmptied;
      }
    }
    if (++looks > kLooksMax) return Progress::more;
    if (store.log().lookup(store.log().hash(block_key(in.next_block)), found) != 0) break;
    ++in.next_block;
  }
  return Progress::all_begun;
}

void BlockSession::leave_parts(BlockOp& op) {
  BlockOp::Internal& in = op.internal;
  for (; in.emptying != 0; in.emptying &= in.emptying - 1) {
    const auto nth = static_cast<unsigned>(std::countr_zero(in.emptying));
    map_of(*in.volume).end_emptying(in.part / kPartsEmptied * kPartsEmptied + nth);
  }
}

BlockSession::Step* BlockSession::take_step(BlockOp& op) {
  if (free_ == nullptr) {
    if (steps_.size() == kStepsMax) return nullptr;
    steps_.push_back(std::make_unique<Step>());
    steps_.back()->session = this;
    free_ = steps_.back().get();
  }
  Step* const step = free_;
  free_ = step->next;
  step->op = &op;
  return step;
}

void BlockSession::begin_no_more(BlockOp& op, const Status& why) {
  BlockOp::Internal& in = op.internal;
  if (op.status.ok()) op.status = why;
  if (in.next_block == in.end_block) return;
  if (zeroes(op.kind)) map_of(*in.volume).note(in.next_block);
  in.next_block = in.end_block;
}

void BlockSession::end(Step& step, const Status& status) {
  BlockOp& op = *step.op;
  BlockOp::Internal& in = op.internal;
  if (!status.ok()) {
    if (zeroes(op.kind)) map_of(*in.volume).note(step.block);
    begin_no_more(op, status);
  }
  pass_turn(step);
  step.next = free_;
  free_ = &step;
  if (--in.running == 0 && !in.waiting) {
    std::exchange(in.paused, false) ? enqueue(op) : finish(op);
  }
  run();
}

}  // namespace furrow
