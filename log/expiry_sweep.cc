#include "log/expiry_sweep.h"

#include <algorithm>
#include <utility>

#include "log/page_log.h"
#include "zone/check.h"

namespace furrow {

ExpirySweep::ExpirySweep(PageLog& log) : log_(log) {
  turn_.sweep = this;
  turn_.run = [](Task& task) {
    auto& turn = static_cast<Turn&>(task);
    turn.posted = false;
    turn.sweep->turn();
  };
}

ExpirySweep::~ExpirySweep() { FURROW_CHECK(idle() && first_ == nullptr); }

void ExpirySweep::note(std::uint32_t expires_s) { earliest_s_ = std::min(earliest_s_, expires_s); }

bool ExpirySweep::begin() {
  if (turn_.posted) return true;
  const std::uint64_t now_s = log_.pool_.home.wall_s();
  if (log_.options_.cache || earliest_s_ > now_s || now_s_ == now_s) return false;
  now_s_ = now_s;
  from_ = 0;
  earliest_s_ = ~std::uint32_t{0};
  turn_.posted = true;
  log_.pool_.home.post(turn_);
  return true;
}

bool ExpirySweep::take(KeyOp& op) {
  if (!begin()) return false;
  op.next = nullptr;
  (first_ != nullptr ? last_->next : first_) = &op;
  last_ = &op;
  return true;
}

void ExpirySweep::turn() {
  from_ = log_.unpublish_some(from_, [this](const IndexEntry& entry) {
    if (!entry.expires) return false;
    const std::uint32_t expires_s = log_.expiry(entry);
    if (expires_s <= now_s_) return log_.left_out_ = true;
    note(expires_s);
    return false;
  });
  if (from_ != 0) {
    turn_.posted = true;
    return log_.pool_.home.post(turn_);
  }
  log_.collector_->kick();  // what found nothing to free may find something now
  last_ = nullptr;
  for (KeyOp* op = std::exchange(first_, nullptr); op != nullptr;) {
    KeyOp* const next = op->next;  // before it goes on: it may wait again, or be gone
    log_.locked(*op);
    op = next;
  }
}

}  // namespace furrow
