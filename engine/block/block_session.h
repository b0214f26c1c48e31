// BlockSession: a thread's way into the pool's volumes of kind block.
//
// A block is a page of 4 KiB under its number (8 bytes, big-endian), so durability, recovery,
// collection and checking are the page log's, and a block is written whole or not at all: writes
// within one are atomic, also at a power cut, those of more are not. An operation on many blocks
// has many page operations in flight. A part of a block is changed by reading it, and a put on the
// condition that it still is what was read, or else once more: nothing that others write to the
// other LBAs is lost, on whichever thread.
//
// Threads: one, that of the executor and of the page session that it is made for, as it itself.
// Nothing is allocated once its steps are (see Options).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/block/block_op.h"
#include "engine/pool.h"

namespace furrow {

class BlockSession {
 public:
  // Blocks in flight at most. Each takes kStepBytes from when it is first needed on.
  static constexpr unsigned kStepsMax = 256;
  static constexpr std::uint64_t kStepBytes = sizeof(PageOp) + kBlockPageBytes + 64;

  // Both outlive it.
  BlockSession(PageSession& pages, Executor& executor);
  ~BlockSession();  // idle()
  BlockSession(const BlockSession&) = delete;
  BlockSession& operator=(const BlockSession&) = delete;

  void submit(PageStore& volume, BlockOp& op);
  // Nothing is in flight, nor on its way to the executor.
  bool idle() const { return in_flight_ == 0 && !continue_.posted; }

 private:
  struct Step;
  enum class Progress : std::uint8_t { all_begun, more, paused, stuck };
  // Blocks that an operation begins, or looks up to be discarded, before others have their turn.
  static constexpr unsigned kSlice = 32, kLooksMax = 1024;
  static constexpr unsigned kPartsEmptied = 64;  // bits of BlockOp::Internal::emptying

  struct Continue : Task {
    BlockSession* self = nullptr;
    bool posted = false;
  };

  static Status refusal(PageStore& volume, const BlockOp& op);
  static bool unwanted(const BlockOp& op) { return op.wanted != nullptr && !op.wanted(op); }
  static void begin_no_more(BlockOp& op, const Status& why);
  void answer_later(BlockOp& op);
  void finish(BlockOp& op);
  void enqueue(BlockOp& op);
  void run();
  Progress begin_blocks(BlockOp& op, unsigned& looks);
  Progress skip_empty(BlockOp& op, unsigned& looks);
  static void leave_parts(BlockOp& op);
  Progress begin_flush(BlockOp& op);
  Step* take_step(BlockOp& op);  // null: all are in use
  void begin(Step& step);

  // Of one block.
  static void stepped(PageOp& page);
  void read_block(Step& step);
  void was_read(Step& step);
  bool deleted(Step& step);  // true: and the step has ended
  void change_part(Step& step);
  void pass_turn(Step& step);
  void write_part(Step& step);
  void put_block(Step& step, std::byte* data, std::int32_t buffer_index);
  void was_put(Step& step);
  void submit(Step& step);
  void end(Step& step, const Status& status);

  PageSession& pages_;
  Executor& executor_;
  std::vector<std::unique_ptr<Step>> steps_;  // all of them
  Step* free_ = nullptr;
  // Those that change a part of a block, by its number, in the order in which they came: of this
  // session one at a time, which saves them from meeting.
  std::array<Step*, kStepsMax> changing_{};
  BlockOp* first_ = nullptr;  // with blocks that are not begun yet
  BlockOp* last_ = nullptr;
  Continue continue_;
  std::uint64_t in_flight_ = 0;
};

}  // namespace furrow
