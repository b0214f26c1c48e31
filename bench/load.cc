#include "bench/load.h"

#include <cstring>

#include "bench/content.h"

namespace furrow::bench {

namespace {

void note_failure(LoadResult& result, const Status& status) {
  if (result.failed++ == 0) result.failure = status;
}

}  // namespace

void LoadResult::merge(const LoadResult& other) {
  if (failed == 0) failure = other.failure;
  gets += other.gets;
  misses += other.misses;
  puts += other.puts;
  wrong += other.wrong;
  failed += other.failed;
  late += other.late;
  get.merge(other.get);
  put.merge(other.put);
}

Job::Next FillJob::next(Slot& slot, std::uint64_t) {
  if (page_ >= options_.pages || result_.failed != 0) return Next::end;
  slot.op.kind = PageOp::Kind::put;
  slot.op.key = page_key(page_, options_.salt);
  slot.op.length = options_.page_bytes;
  slot.op.ttl_s = options_.ttl_s;
  fill_page(page_, options_.salt, {slot.op.data, options_.page_bytes});
  page_ += step_;
  return Next::run;
}

bool FillJob::done(Slot& slot) {
  ++result_.puts;
  result_.put.record(slot.latency_ns);
  if (!slot.op.status.ok()) note_failure(result_, slot.op.status);
  return false;
}

LoadJob::LoadJob(const LoadOptions& options, unsigned worker, unsigned workers)
    : options_(options),
      new_page_(options.pages + worker),
      step_(workers),
      random_state_(options.salt * 0x9e3779b97f4a7c15u + worker + 1) {}

// SplitMix64.
std::uint64_t LoadJob::random() {
  std::uint64_t word = random_state_ += 0x9e3779b97f4a7c15u;
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
  return word ^ (word >> 31);
}

void LoadJob::set_up_put(Slot& slot) {
  slot.op.kind = PageOp::Kind::put;
  slot.op.length = options_.page_bytes;
  slot.op.ttl_s = options_.ttl_s;
  if (options_.put_new) {
    slot.page = new_page_;
    new_page_ += step_;
  }
  if (options_.verify) {
    fill_page(slot.page, options_.salt, {slot.op.data, options_.page_bytes});
  } else if (options_.page_bytes >= sizeof slot.page) {
    std::memcpy(slot.op.data, &slot.page, sizeof slot.page);  // no two puts are quite the same
  }
}

Job::Next LoadJob::next(Slot& slot, std::uint64_t now_ns) {
  if (end_ns_ == 0) end_ns_ = now_ns + options_.duration_ns;
  if (now_ns >= end_ns_ || result_.failed != 0) return Next::end;
  const std::uint64_t drawn = random();
  slot.page = options_.pages == 0 ? 0 : random() % options_.pages;
  if (drawn % 100 < options_.get_percent) {
    slot.op.kind = PageOp::Kind::get;
  } else {
    set_up_put(slot);
  }
  slot.op.key = page_key(slot.page, options_.salt);
  slot.op.within_us = options_.within_us;
  return Next::run;
}

bool LoadJob::done(Slot& slot) {
  const Status& status = slot.op.status;
  if (slot.late) {
    const bool put = slot.op.kind == PageOp::Kind::put;
    ++result_.late;
    ++(put ? result_.puts : result_.gets);
    (put ? result_.put : result_.get).record(slot.latency_ns);
    return false;
  }
  if (slot.op.kind == PageOp::Kind::put) {
    ++result_.puts;
    result_.put.record(slot.latency_ns);
    if (!status.ok()) note_failure(result_, status);
    return false;
  }
  ++result_.gets;
  if (status.code() == Code::not_found) {
    ++result_.misses;
    return false;
  }
  result_.get.record(slot.latency_ns);
  if (!status.ok()) {
    note_failure(result_, status);
  } else if (slot.op.length != options_.page_bytes ||
             (options_.verify &&
              !page_matches(slot.page, options_.salt, {slot.op.data, options_.page_bytes}))) {
    ++result_.wrong;
  }
  return false;
}

}  // namespace furrow::bench
