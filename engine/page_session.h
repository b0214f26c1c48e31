// PageSession, as it is. See engine/pool.h.
//
// A get: hash the key, enter the epoch (so that no zone it could read is reset), look the index up,
// read straight into the caller's memory, verify the keyed checksum, leave. Everything else is
// passed to the pool's home executor and comes back by a task.
#pragma once

#include <memory>
#include <vector>

#include "alloc/epoch.h"
#include "engine/page_store_impl.h"
#include "engine/pool.h"
#include "zone/aligned_buffer.h"

namespace furrow {

class PageSessionImpl final : public PageSession {
 public:
  PageSessionImpl(PoolImpl& pool, PoolContext& context, Executor& executor,
                  std::unique_ptr<IoQueue> queue);
  ~PageSessionImpl() override;

  void submit(PageStore& store, PageOp& op) override;
  unsigned wait(std::uint64_t timeout_us) override { return queue_->wait(timeout_us); }
  Status register_buffers(std::span<const iovec> buffers) override;
  void may_block() override { queue_->may_block(); }
  std::uint64_t system_calls() const override { return queue_->system_calls(); }

  // A get that was sent home came back, on this session's thread.
  static void diagnosed(PageOp& op);

  const GetCounters& counters(std::size_t ordinal) const { return counters_[ordinal]; }
  // For the other kinds of sessions, which are made of this one.
  GetCounters& counters(std::size_t ordinal) { return counters_[ordinal]; }
  const PoolContext& context() const { return context_; }
  IoQueue& queue() { return *queue_; }

 private:
  static constexpr unsigned kBouncesMax = 16;

  void start_get(PageOp& op);
  void look_up(PageOp& op);
  void try_candidates(PageOp& op);
  void no_candidate_left(PageOp& op);
  struct Wanted {
    std::uint32_t first_lba, lbas;  // of the page
    std::uint32_t skipped, bytes;   // of what these hold
  };
  Wanted wanted_of(const PageOp& op, const IndexEntry& entry) const;
  bool choose_memory(PageOp& op, const Wanted& wanted);
  void page_read(PageOp& op);
  void got(PageOp& op, const IndexEntry& entry);
  void answer_diagnosed(PageOp& op);
  void give_bounce_back(PageOp& op);
  void answer_later(PageOp& op, Status status);
  Status refusal(const PageStoreImpl& store, const PageOp& op) const;
  GetCounters& counters(PageOp& op) {
    return counters_[static_cast<PageStoreImpl*>(op.internal.store)->ordinal()];
  }

  PoolImpl& pool_;
  PoolContext& context_;
  Executor& executor_;
  std::unique_ptr<IoQueue> queue_;
  Epoch::Reader& epoch_;
  std::unique_ptr<GetCounters[]> counters_;
  std::vector<std::unique_ptr<AlignedBuffer>> bounces_;  // all of them
  std::vector<AlignedBuffer*> free_bounces_;
  PageOp* waiting_head_ = nullptr;  // gets that wait for a bounce buffer
  PageOp* waiting_tail_ = nullptr;
};

}  // namespace furrow
