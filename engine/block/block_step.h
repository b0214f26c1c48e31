// A step of a BlockSession: what one operation does to one block. Private to engine/block.
#pragma once

#include "engine/block/block_session.h"
#include "engine/op_answer.h"
#include "log/block_order.h"
#include "zone/aligned_buffer.h"

namespace furrow {

struct BlockSession::Step {
  PageOp page;
  BlockSession* session = nullptr;
  Step* next = nullptr;  // while free; while it changes a part of a block: who does so behind it
  bool in_turn = false;  // changes a part of a block
  BlockOp* op = nullptr;
  std::uint64_t block = 0;
  std::uint32_t offset = 0, bytes = 0;    // of it: what the operation is about
  std::byte* data = nullptr;              // the operation's, of these bytes; null: zeroes
  KnownPage known;                        // what was read, and has to be there still
  AlignedBuffer buffer{kBlockPageBytes};  // a block, where one is read that is not all read's
};

}  // namespace furrow
