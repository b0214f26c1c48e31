#include "log/listing.h"

#include <algorithm>

namespace furrow {

void Listing::start(PageLog& log, ListOp& op) {
  (new Listing(log, op))->walk();  // deleted by finish()
}

Listing::Listing(PageLog& log, ListOp& op) : log_(log), op_(op), from_start_(op.after.length == 0) {
  ++log_.running_;
  ++log_.stats_.lists;
  op_.keys_count = 0;
  if (!from_start_) {
    after_ = log_.hash(op.after);
    bucket_ = after_.order;
  }
  run = [](Task& task) { static_cast<Listing&>(task).walk(); };
  for (Lane& lane : lanes_) {
    lane.listing = this;
    lane.on_read = [](HeaderRead& read, const Result<BatchView>& view) {
      auto& its_lane = static_cast<Lane&>(read);
      its_lane.listing->header_read(its_lane, view);
    };
  }
}

// From bucket to bucket, up to one whose headers have to be read: header_read() goes on then. Most
// may be empty.
void Listing::walk() {
  for (unsigned looked = 0; looked < kBucketsPerTurn; ++looked) {
    if (begin_bucket()) return;
    if (end_bucket()) return finish();
  }
  log_.pool_.home.post(*this);
}

// True: headers are being read.
bool Listing::begin_bucket() {
  entries_.clear();
  found_.clear();
  epoch_side_ = log_.epoch_.enter();  // what the bucket names stays until it has been read
  behind_ = log_.index_.bucket_entries(bucket_, entries_);
  next_entry_ = 0;
  const std::uint64_t now = log_.pool_.home.wall_s();
  std::erase_if(entries_, [&](const IndexEntry& entry) { return log_.expired(entry, now); });
  reading_ = 0;
  for (Lane& lane : lanes_) read_on(lane);  // none answers from within
  return reading_ != 0;
}

void Listing::read_on(Lane& lane) {
  if (next_entry_ == entries_.size()) return;
  lane.entry = next_entry_++;
  lane.page_lba = entries_[lane.entry].lba;
  ++reading_;
  log_.headers_.read(lane);
}

void Listing::header_read(Lane& lane, const Result<BatchView>& view) {
  const IndexEntry& entry = entries_[lane.entry];
  if (!view.ok()) {
    // Damage takes its own keys from the listing and no others.
    if (view.status().code() == Code::corrupt) {
      log_.count_corrupt();
    } else if (status_.ok()) {
      status_ = view.status();
    }
  } else {
    for (std::uint32_t i = 0; i < view->header().record_count; ++i) {
      const PageRecord record = view->record(i);
      if (record.kind != RecordKind::page) continue;
      if (record.lba != log_.pool_.relative_lba(entry.lba)) continue;
      found_.push_back({log_.hash(record.key), record.key});
    }
  }
  read_on(lane);
  if (--reading_ != 0) return;
  end_bucket() ? finish() : walk();
}

// True: that was the last one.
bool Listing::end_bucket() {
  log_.epoch_.leave(epoch_side_);
  std::ranges::sort(found_, {}, &Found::hash);
  for (const Found& found : found_) {
    if (!from_start_ && found.hash <= after_) continue;
    if (op_.keys_count == op_.keys_max) return true;
    op_.keys[op_.keys_count++] = found.key;
  }
  bucket_ = behind_;
  return behind_ == 0 || op_.keys_count == op_.keys_max || !status_.ok();
}

void Listing::finish() {
  ListOp& op = op_;
  const Status status = status_;
  --log_.running_;
  delete this;
  op.status = status;
  op.on_done(op);
}

void PageLog::list(ListOp& op) { Listing::start(*this, op); }

}  // namespace furrow
