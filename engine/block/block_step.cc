// One block's part of an operation: read; written whole; or, a part of it, read, changed and put if
// it is still what was read.
#include "engine/block/block_step.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/page_store_impl.h"

namespace furrow {

void BlockSession::begin(Step& step) {
  BlockOp& op = *step.op;
  PageOp& page = step.page;
  page.durability = op.durability;
  page.context = &step;
  page.on_result = nullptr;
  page.on_released = &BlockSession::stepped;
  step.block = op.internal.next_block - 1;
  if (op.kind == BlockOp::Kind::flush || op.internal.flushing) {
    page.kind = PageOp::Kind::flush;
    return submit(step);
  }
  const std::uint64_t lba_bytes = op.internal.volume->info().options.block_lba_bytes;
  const std::uint64_t begin = op.lba * lba_bytes, end = begin + op.count * lba_bytes;
  const std::uint64_t block_begin = step.block * kBlockPageBytes;
  const std::uint64_t from = std::max(begin, block_begin);
  const std::uint64_t to = std::min(end, block_begin + kBlockPageBytes);
  step.offset = static_cast<std::uint32_t>(from - block_begin);
  step.bytes = static_cast<std::uint32_t>(to - from);
  step.data = op.data == nullptr ? nullptr : op.data + (from - begin);
  page.key = block_key(step.block);
  const bool whole = step.bytes == kBlockPageBytes;
  switch (op.kind) {
    case BlockOp::Kind::write:
      if (!whole) return change_part(step);
      page.condition = PageOp::Condition::always;
      page.known = nullptr;
      return put_block(step, step.data, op.buffer_index);
    case BlockOp::Kind::discard:
    case BlockOp::Kind::write_zeroes:
      step.data = nullptr;
      page.durability = Durability::none;  // begin_flush()
      if (!whole) return change_part(step);
      page.kind = PageOp::Kind::remove;
      page.known = nullptr;
      return submit(step);
    case BlockOp::Kind::compare_and_write:
      return change_part(step);
    default:
      return read_block(step);
  }
}

void BlockSession::change_part(Step& step) {
  step.in_turn = true;
  step.next = nullptr;
  Step** behind = &changing_[step.block % kStepsMax];
  const bool first = *behind == nullptr;
  while (*behind != nullptr) behind = &(*behind)->next;
  *behind = &step;
  if (first) read_block(step);
}

void BlockSession::pass_turn(Step& step) {
  if (!std::exchange(step.in_turn, false)) return;
  Step*& first = changing_[step.block % kStepsMax];
  first = step.next;
  if (first != nullptr) read_block(*first);
}

void BlockSession::submit(Step& step) { pages_.submit(*step.op->internal.volume, step.page); }

// Into the caller's memory where all of it is wanted.
void BlockSession::read_block(Step& step) {
  PageOp& page = step.page;
  page.kind = PageOp::Kind::get;
  page.capacity = kBlockPageBytes;
  if (step.op->kind == BlockOp::Kind::read && step.bytes == kBlockPageBytes) {
    page.data = step.data;
    page.buffer_index = step.op->buffer_index;
  } else {
    page.data = step.buffer.data();
    page.buffer_index = -1;
  }
  submit(step);
}

void BlockSession::stepped(PageOp& page) {
  Step& step = *static_cast<Step*>(page.context);
  BlockSession& self = *step.session;
  switch (page.kind) {
    case PageOp::Kind::get:
      return self.was_read(step);
    case PageOp::Kind::put:
      return self.was_put(step);
    case PageOp::Kind::remove:
      if (page.status.code() == Code::not_found) return self.end(step, Status());
      return self.end(step, page.status);
    default:
      return self.end(step, page.status);
  }
}

// Where there is no volume any more, no page is no answer.
bool BlockSession::deleted(Step& step) {
  auto& store = static_cast<PageStoreImpl&>(*step.op->internal.volume);
  if (!store.deleted()) return false;
  end(step, PageStoreImpl::deleted_status());
  return true;
}

void BlockSession::was_read(Step& step) {
  PageOp& page = step.page;
  BlockOp& op = *step.op;
  if (op.kind == BlockOp::Kind::compare_and_write) op.equal = false;  // perhaps not any more
  if (deleted(step)) return;
  const bool absent = page.status.code() == Code::not_found;
  if (!page.status.ok() && !absent) return end(step, page.status);
  if (!absent && page.length != kBlockPageBytes) {
    return end(step, {Code::corrupt, Origin::engine, "a block's page has another length"});
  }
  if (absent) std::memset(page.data, 0, kBlockPageBytes);
  const std::byte* const there = page.data + step.offset;
  switch (op.kind) {
    case BlockOp::Kind::read:
      if (page.data != step.data) std::memcpy(step.data, there, step.bytes);
      return end(step, Status());
    case BlockOp::Kind::compare:
      if (std::memcmp(step.data, there, step.bytes) != 0) op.equal = false;
      return end(step, Status());
    case BlockOp::Kind::compare_and_write:
      op.equal = std::memcmp(op.expected, there, step.bytes) == 0;
      if (!op.equal) return end(step, Status());
      break;
    default:
      break;
  }
  if (unwanted(op)) return end(step, kUnwanted);
  if (step.data == nullptr && absent) return end(step, Status());  // zeroes already
  step.known = {page.key, kBlockPageBytes, page.checksum};
  page.condition = absent ? PageOp::Condition::if_absent : PageOp::Condition::if_exists;
  page.known = absent ? nullptr : &step.known;
  write_part(step);
}

void BlockSession::write_part(Step& step) {
  std::byte* const part = step.buffer.data() + step.offset;
  if (step.data == nullptr) {
    std::memset(part, 0, step.bytes);
  } else {
    std::memcpy(part, step.data, step.bytes);
  }
  put_block(step, step.buffer.data(), -1);
}

void BlockSession::put_block(Step& step, std::byte* data, std::int32_t buffer_index) {
  PageOp& page = step.page;
  page.kind = PageOp::Kind::put;
  page.data = data;
  page.length = page.capacity = kBlockPageBytes;
  page.buffer_index = buffer_index;
  submit(step);
}

void BlockSession::was_put(Step& step) {
  PageOp& page = step.page;
  if (deleted(step)) return;
  // Another one was faster: once more, with what stands there now.
  if (page.status.code() == Code::exists || page.status.code() == Code::not_found) {
    if (page.condition != PageOp::Condition::always) return read_block(step);
  }
  auto& store = static_cast<PageStoreImpl&>(*step.op->internal.volume);
  if (step.data == nullptr) store.blocks()->map.note(step.block);
  end(step, page.status);
}

}  // namespace furrow
