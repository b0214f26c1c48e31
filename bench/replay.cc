#include "bench/replay.h"

#include "bench/content.h"

namespace furrow::bench {

namespace {

void set_up_get(Slot& slot, std::uint64_t page, const PageShape& shape) {
  slot.page = page;
  slot.op.kind = PageOp::Kind::get;
  slot.op.key = page_key(page, shape.salt);
}

void set_up_put(Slot& slot, const PageShape& shape) {
  slot.op.kind = PageOp::Kind::put;
  slot.op.length = shape.page_bytes;
  fill_page(slot.page, shape.salt, {slot.op.data, shape.page_bytes});
}

void check(Slot& slot, const PageShape& shape, Verified& verified) {
  const Status& status = slot.op.status;
  if (status.code() == Code::not_found) {
    ++verified.missing;
  } else if (!status.ok()) {
    if (verified.failed++ == 0) verified.failure = status;
  } else if (slot.op.length == shape.page_bytes &&
             page_matches(slot.page, shape.salt, {slot.op.data, shape.page_bytes})) {
    ++verified.intact;
  } else {
    ++verified.wrong;
  }
}

}  // namespace

ReplayJob::ReplayJob(const Trace& trace, const Backend& backend, const Options& options,
                     AckJournal* journal)
    : trace_(trace),
      backend_(backend),
      options_(options),
      journal_(journal),
      reconnects_(backend.reconnects()) {
  const std::uint64_t pages =
      std::uint64_t{trace.distinct} * options.pages_per_block * options.loops;
  seen_.resize(pages);
  busy_.resize(pages);
  acknowledged_.resize(pages);
}

bool ReplayJob::failed() const {
  return !result_.put_failure.ok() || result_.served.failed != 0 ||
         result_.after_restart.failed != 0;
}

std::uint64_t ReplayJob::page_here() const {
  const std::uint64_t block = std::uint64_t{loop_} * trace_.distinct + trace_.blocks[reference_];
  return block * options_.pages_per_block + page_of_block_;
}

void ReplayJob::advance() {
  if (++page_of_block_ < options_.pages_per_block) return;
  page_of_block_ = 0;
  if (++reference_ < trace_.blocks.size()) return;
  reference_ = 0;
  ++loop_;
}

Job::Next ReplayJob::next(Slot& slot, std::uint64_t now_ns) {
  if (failed()) return Next::end;
  if (phase_ == Phase::replaying && backend_.reconnects() != reconnects_) {
    phase_ = Phase::draining;
    result_.restarts += backend_.reconnects() - reconnects_;
    reconnects_ = backend_.reconnects();
  }
  if (phase_ == Phase::draining) {
    if (in_flight_ != 0) return Next::wait;
    phase_ = Phase::verifying;
    verified_ = 0;
    verify_started_ns_ = now_ns;
  }
  const Next next =
      phase_ == Phase::verifying ? next_verification(slot, now_ns) : next_reference(slot);
  if (next == Next::run) ++in_flight_;
  return next;
}

Job::Next ReplayJob::next_verification(Slot& slot, std::uint64_t now_ns) {
  if (verified_ < acknowledged_pages_.size()) {
    set_up_get(slot, acknowledged_pages_[verified_++], options_.shape);
    slot.state = kVerifying;
    return Next::run;
  }
  if (in_flight_ != 0) return Next::wait;
  phase_ = Phase::replaying;
  result_.verify_ns += now_ns - verify_started_ns_;
  return next_reference(slot);
}

Job::Next ReplayJob::next_reference(Slot& slot) {
  // What is still in flight at the end may yet need its connection back, and pages checked.
  if (exhausted()) return in_flight_ == 0 ? Next::end : Next::wait;
  const std::uint64_t page = page_here();
  if (busy_[page]) return Next::wait;  // else both would miss and store it twice
  busy_[page] = true;
  ++result_.references;
  if (seen_[page]) ++result_.best_hits;
  seen_[page] = true;
  set_up_get(slot, page, options_.shape);
  slot.state = kFetching;
  advance();
  return Next::run;
}

bool ReplayJob::done(Slot& slot) {
  bool goes_on = false;
  switch (static_cast<State>(slot.state)) {
    case kFetching:
      goes_on = fetched(slot);
      break;
    case kStoring:
      goes_on = stored(slot);
      break;
    case kVerifying:
      check(slot, options_.shape, result_.after_restart);
      break;
  }
  if (goes_on) return true;
  if (slot.state != kVerifying) busy_[slot.page] = false;
  --in_flight_;
  return false;
}

bool ReplayJob::fetched(Slot& slot) {
  if (slot.op.status.code() == Code::not_found) {
    result_.miss.record(slot.latency_ns);
    set_up_put(slot, options_.shape);
    slot.state = kStoring;
    return true;
  }
  result_.hit.record(slot.latency_ns);
  ++result_.hits;
  check(slot, options_.shape, result_.served);
  return false;
}

bool ReplayJob::stored(Slot& slot) {
  result_.put.record(slot.latency_ns);
  if (!slot.op.status.ok()) {
    if (result_.put_failure.ok()) result_.put_failure = slot.op.status;
    return false;
  }
  ++result_.stored;
  if (!acknowledged_[slot.page]) {
    acknowledged_[slot.page] = true;
    acknowledged_pages_.push_back(slot.page);
  }
  if (journal_ != nullptr) journal_->append(slot.page);
  return false;
}

Job::Next VerifyJob::next(Slot& slot, std::uint64_t) {
  if (at_ == pages_.size()) return Next::end;
  set_up_get(slot, pages_[at_++], shape_);
  return Next::run;
}

bool VerifyJob::done(Slot& slot) {
  check(slot, shape_, result_);
  return false;
}

}  // namespace furrow::bench
