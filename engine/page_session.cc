#include "engine/page_session.h"

#include <algorithm>
#include <cstring>

#include "engine/home_ops.h"
#include "engine/op_answer.h"
#include "engine/pool_impl.h"
#include "zone/check.h"

namespace furrow {

PageSessionImpl::PageSessionImpl(PoolImpl& pool, PoolContext& context, Executor& executor,
                                 std::unique_ptr<IoQueue> queue)
    : pool_(pool),
      context_(context),
      executor_(executor),
      queue_(std::move(queue)),
      epoch_(context.epoch.add()),
      counters_(std::make_unique<GetCounters[]>(PoolImpl::kVolumesMax)) {
  executor_.add(*queue_);
  pool_.attach(*this);
}

PageSessionImpl::~PageSessionImpl() {
  FURROW_CHECK(!queue_->busy() && waiting_head_ == nullptr);
  pool_.detach(*this);
  executor_.remove(*queue_);
  context_.epoch.remove(epoch_);
}

Status PageSessionImpl::register_buffers(std::span<const iovec> buffers) {
  return queue_->register_buffers(buffers);
}

Status PageSessionImpl::refusal(const PageStoreImpl& store, const PageOp& op) const {
  using enum PageOp::Kind;
  if (store.deleted()) return PageStoreImpl::deleted_status();
  if (const Status status = check_time_limit(op); !status.ok()) return status;
  if (store.zones() != nullptr && op.kind != flush) {
    return {Code::invalid_argument, Origin::engine, "a zoned volume has no pages"};
  }
  const bool keyed = op.kind != flush && op.kind != remove_group && op.kind != list;
  if (keyed && !op.key.valid()) {
    return {Code::invalid_argument, Origin::engine, "a key has 1 to 16 bytes"};
  }
  if (op.kind == list && op.key.length > Key::kBytesMax) {
    return {Code::invalid_argument, Origin::engine, "a key has 1 to 16 bytes"};
  }
  if (op.kind == remove_group && op.group == 0) {
    return {Code::invalid_argument, Origin::engine, "group 0 means no group"};
  }
  if (const PoolContext::Blocks* const blocks = store.blocks()) {
    const bool known = op.kind == get || op.kind == get_range || op.kind == put ||
                       op.kind == remove || op.kind == exist || op.kind == list;
    const bool fits =
        known && blocks->order.is_block(op.key) &&
        (op.kind != put || (op.length == kBlockPageBytes && op.ttl_s == 0 && !op.pinned));
    const bool from_start = op.kind == list && op.key.length == 0;
    if (!fits && !from_start && op.kind != flush) {
      return {Code::invalid_argument, Origin::engine,
              "a block volume has pages of 4096 bytes, under the numbers of its blocks"};
    }
  }
  if (op.kind == put) {
    if (op.length == 0 || op.data == nullptr) {
      return {Code::invalid_argument, Origin::engine, "a value has at least one byte"};
    }
    if (op.length > store.info().options.value_bytes_max) {
      return {Code::too_large, Origin::engine,
              "the value is larger than the volume allows (value_bytes_max)"};
    }
  }
  if (op.kind == get_range && (op.known == nullptr || op.wanted == 0 || op.wanted > op.capacity ||
                               op.offset + std::uint64_t{op.wanted} > op.known->length)) {
    return {Code::invalid_argument, Origin::engine, "a range is of a known page, and not empty"};
  }
  if (op.whole_record && (op.kind != exist || op.known != nullptr)) {
    return {Code::invalid_argument, Origin::engine,
            "a page's record is told by exist, to who does not know the page"};
  }
  const bool writes = op.kind != get && op.kind != get_range && op.kind != exist && op.kind != list;
  if (writes && pool_.read_only()) {
    return {Code::permission, Origin::engine, "the pool was opened for inspection only"};
  }
  return {};
}

void PageSessionImpl::submit(PageStore& store, PageOp& op) {
  auto& its_store = static_cast<PageStoreImpl&>(store);
  op.internal.self = &op;
  op.internal.store = &store;
  accept(op, executor_, [](Timer& timer) { tell_late(timer); });
  if (const Status status = refusal(its_store, op); !status.ok()) return answer_later(op, status);
  if (op.kind == PageOp::Kind::get || op.kind == PageOp::Kind::get_range) return start_get(op);
  send_home(its_store, op);
}

// Never from within submit(): the caller may not expect its events there.
void PageSessionImpl::answer_later(PageOp& op, Status status) {
  op.internal.status = status;
  op.internal.task.run = [](Task& task) {
    answer(*reinterpret_cast<PageOp::Internal&>(task).self);
  };
  executor_.post(op.internal.task);
}

// --- get ---

void PageSessionImpl::start_get(PageOp& op) {
  auto& gets = counters(op).gets;
  gets.store(gets.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  op.internal.scratch[0] = this;
  op.internal.bounce = nullptr;
  op.internal.diagnosed_lba = ~std::uint64_t{0};
  op.internal.hash = static_cast<PageStoreImpl*>(op.internal.store)->log().hash(op.key);
  op.internal.io.op = Io::Op::read;
  op.internal.io.context = &op;
  op.internal.io.on_complete = [](Io& io) {
    auto& its_op = *static_cast<PageOp*>(io.context);
    static_cast<PageSessionImpl*>(its_op.internal.scratch[0])->page_read(its_op);
  };
  look_up(op);
}

void PageSessionImpl::look_up(PageOp& op) {
  PageOp::Internal& in = op.internal;
  in.epoch_side = epoch_.enter();
  in.candidate = 0;
  in.mismatch = false;
  in.status = Status();
  in.candidate_count =
      std::min(static_cast<PageStoreImpl*>(in.store)->log().lookup(in.hash, in.key_op.candidates),
               KeyOp::kCandidatesMax);
  try_candidates(op);
}

void PageSessionImpl::try_candidates(PageOp& op) {
  PageOp::Internal& in = op.internal;
  PageLog& log = static_cast<PageStoreImpl*>(in.store)->log();
  for (; in.candidate != in.candidate_count; ++in.candidate) {
    const IndexEntry& entry = in.key_op.candidates[in.candidate];
    if (entry.expires && log.expired(entry, executor_.wall_s())) {
      if (log.in_index(in.hash, entry.lba)) continue;
      // Another one, perhaps, was stored before it expired: that is what counts.
      epoch_.leave(in.epoch_side);
      return look_up(op);
    }
    if (op.kind == PageOp::Kind::get_range && !PageLog::is_known(entry, *op.known)) continue;
    const Wanted wanted = wanted_of(op, entry);
    if (!choose_memory(op, wanted)) return;  // goes on when a bounce buffer is free
    in.io.lba = Lba{entry.lba + wanted.first_lba};
    return queue_->submit(in.io);
  }
  no_candidate_left(op);
}

// What of the page is read: all of it, or the LBAs that the range touches; not where what a record
// calls damaged would be given out so: it may be anything, and nobody has verified it.
PageSessionImpl::Wanted PageSessionImpl::wanted_of(const PageOp& op,
                                                   const IndexEntry& entry) const {
  if (op.kind == PageOp::Kind::get) {
    return {0, static_cast<std::uint32_t>(context_.page_lbas(entry.length)), 0, entry.length};
  }
  if (static_cast<PageStoreImpl*>(op.internal.store)->log().has_damaged_copies()) {
    return {0, static_cast<std::uint32_t>(context_.page_lbas(entry.length)), op.offset, op.wanted};
  }
  const std::uint32_t lba_bytes = context_.geometry.lba_bytes;
  const std::uint32_t first = op.offset / lba_bytes;
  const std::uint32_t skipped = op.offset - first * lba_bytes;
  const auto lbas = static_cast<std::uint32_t>(context_.page_lbas(skipped + op.wanted));
  return {first, lbas, skipped, op.wanted};
}

// The caller's memory, where the device can fill it; else a bounce buffer. False: none is free, the
// get waits.
bool PageSessionImpl::choose_memory(PageOp& op, const Wanted& wanted) {
  PageOp::Internal& in = op.internal;
  const std::uint32_t lba_bytes = context_.geometry.lba_bytes;
  const std::uint32_t lbas = wanted.lbas;
  const std::uint64_t rounded = std::uint64_t{lbas} * lba_bytes;
  if (wanted.skipped == 0 && op.capacity >= rounded &&
      reinterpret_cast<std::uintptr_t>(op.data) % lba_bytes == 0) {
    in.io.set_data(op.data, lbas, lba_bytes, op.buffer_index);
    return true;
  }
  if (in.bounce == nullptr) {
    if (free_bounces_.empty() && bounces_.size() < kBouncesMax) {
      bounces_.push_back(std::make_unique<AlignedBuffer>());
      free_bounces_.push_back(bounces_.back().get());
    }
    if (free_bounces_.empty()) {
      epoch_.leave(in.epoch_side);  // zones must not wait for this one
      in.next = nullptr;
      (waiting_head_ == nullptr ? waiting_head_ : waiting_tail_->internal.next) = &op;
      waiting_tail_ = &op;
      return false;
    }
    in.bounce = free_bounces_.back();
    free_bounces_.pop_back();
  }
  if (in.bounce->size() < rounded) *in.bounce = AlignedBuffer(rounded);
  in.io.set_data(in.bounce->data(), lbas, lba_bytes);
  return true;
}

void PageSessionImpl::page_read(PageOp& op) {
  PageOp::Internal& in = op.internal;
  const IndexEntry& entry = in.key_op.candidates[in.candidate];
  const auto* page = static_cast<const std::byte*>(in.io.one.iov_base);
  const bool part = in.io.lba_count != context_.page_lbas(entry.length);
  if (!in.io.status.ok()) {
    auto& failed = counters(op).failed_reads;
    failed.store(failed.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    in.mismatch = true;
    in.status = in.io.status;
  } else if (part || page_checksum({page, entry.length}, in.hash) == entry.checksum) {
    return got(op, entry);
  } else {
    in.mismatch = true;
  }
  ++in.candidate;
  try_candidates(op);
}

void PageSessionImpl::got(PageOp& op, const IndexEntry& entry) {
  PageOp::Internal& in = op.internal;
  op.length = entry.length;
  op.checksum = entry.checksum;
  if (in.bounce != nullptr && in.io.one.iov_base == in.bounce->data()) {
    const bool all = op.kind == PageOp::Kind::get;
    const std::uint64_t before = (in.io.lba.value - entry.lba) * context_.geometry.lba_bytes;
    std::memcpy(op.data, in.bounce->data() + (all ? 0 : op.offset - before),
                std::min(op.capacity, all ? entry.length : op.wanted));
  }
  static_cast<PageStoreImpl*>(in.store)->log().note_hit(entry);
  GetCounters& count = counters(op);
  count.hits.store(count.hits.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  count.bytes.store(count.bytes.load(std::memory_order_relaxed) + entry.length,
                    std::memory_order_relaxed);
  epoch_.leave(in.epoch_side);
  give_bounce_back(op);
  in.status = Status();
  answer(op);
}

void PageSessionImpl::no_candidate_left(PageOp& op) {
  PageOp::Internal& in = op.internal;
  epoch_.leave(in.epoch_side);
  give_bounce_back(op);
  if (!in.mismatch) {
    GetCounters& count = counters(op);
    count.misses.store(count.misses.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    return answer_later(op, {Code::not_found, Origin::engine});
  }
  if (!in.status.ok()) return answer_later(op, in.status);  // the device failed the read
  // Something was read, and was not this key's page: another key's, or a damaged one. The batch
  // header knows, and is read at home.
  send_home(*static_cast<PageStoreImpl*>(in.store), op);
}

void PageSessionImpl::diagnosed(PageOp& op) {
  auto& session = *static_cast<PageSessionImpl*>(op.internal.scratch[0]);
  session.answer_diagnosed(op);
}

// Home says whether the key is there and where. The page may have been stored since it was looked
// up, or been read wrong: it is corrupt only if, looked up and read again, it still does not match,
// and still is where home said.
void PageSessionImpl::answer_diagnosed(PageOp& op) {
  PageOp::Internal& in = op.internal;
  if (in.status.code() == Code::corrupt) {
    if (in.diagnosed_lba != in.key_op.old.lba) {
      in.diagnosed_lba = in.key_op.old.lba;
      return look_up(op);
    }
    static_cast<PageStoreImpl*>(in.store)->log().count_corrupt();
  } else if (in.status.code() == Code::not_found) {
    GetCounters& count = counters(op);
    count.misses.store(count.misses.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  answer(op);
}

void PageSessionImpl::give_bounce_back(PageOp& op) {
  if (op.internal.bounce == nullptr) return;
  free_bounces_.push_back(op.internal.bounce);
  op.internal.bounce = nullptr;
  // One that waited may find that it needs no buffer any more: then the next has it.
  while (waiting_head_ != nullptr && !free_bounces_.empty()) {
    PageOp* next = waiting_head_;
    waiting_head_ = next->internal.next;
    look_up(*next);  // anew: its epoch was left
  }
}

}  // namespace furrow
