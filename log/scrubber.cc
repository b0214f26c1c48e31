#include "log/scrubber.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "log/page_log.h"
#include "zone/check.h"

namespace furrow {

namespace {
constexpr std::uint64_t kSecondNs = 1'000'000'000;
constexpr std::uint64_t kPauseNsMin = 1'000'000;  // also where there is nothing to read
constexpr std::uint64_t kCreditNs = 100'000'000;  // of time not used, that is caught up
}  // namespace

Scrubber::Scrubber(PoolContext& pool, Options options)
    : pool_(pool), options_(std::move(options)), epoch_(pool.epoch.add()) {
  FURROW_CHECK(options_.bytes_per_s != 0);
  turn_.scrubber = wait_.scrubber = this;
  turn_.run = [](Task& task) {
    auto& its_turn = static_cast<Turn&>(task);
    its_turn.posted = false;
    its_turn.scrubber->turn();
  };
  wait_.fire = [](Timer& timer) { static_cast<Wait&>(timer).scrubber->turn(); };
  io_.op = Io::Op::read;
  io_.context = this;
  io_.on_complete = [](Io& io) { static_cast<Scrubber*>(io.context)->completed(); };
  rewrite_.kind = KeyOp::Kind::rewrite;
  rewrite_.scrubber = this;
  rewrite_.on_done = [](KeyOp& op) { static_cast<Rewrite&>(op).scrubber->rewritten(); };
}

Scrubber::~Scrubber() {
  FURROW_CHECK(idle());
  pool_.home.stop(wait_);
  pool_.epoch.remove(epoch_);
}

// A pass begins anywhere: else a process that is often restarted would never come to the last
// zones.
void Scrubber::start() {
  at_zone_ = static_cast<std::uint32_t>(pool_.home.random() % pool_.geometry.zone_count);
  zones_left_ = pool_.geometry.zone_count;
  post();
}

void Scrubber::stop() {
  stopped_ = true;
  pool_.home.stop(wait_);
}

void Scrubber::post() {
  if (turn_.posted) return;
  turn_.posted = true;
  pool_.home.post(turn_);
}

void Scrubber::turn() {
  if (stopped_ || reading_ || rewriting_) return;
  if (step_ != Step::zone && !still_there()) step_ = Step::zone;
  switch (step_) {
    case Step::zone:
      return next_zone();
    case Step::scan:
      return next_of_scan();
    case Step::headers:
      return next_header();
    case Step::pages:
      return next_page();
  }
}

// Nobody has begun to reset it, and its volume is there.
bool Scrubber::still_there() const {
  const ZoneAllocator::Zone& zone = pool_.allocator.zone(zone_);
  const bool kept = zone.use == ZoneUse::sealed || zone.use == ZoneUse::draining;
  return kept && zone.generation == generation_ && log() != nullptr;
}

void Scrubber::next_zone() {
  for (; zones_left_ != 0; --zones_left_) {
    zone_ = ZoneId{at_zone_};
    at_zone_ = (at_zone_ + 1) % pool_.geometry.zone_count;
    const ZoneAllocator::Zone& zone = pool_.allocator.zone(zone_);
    generation_ = zone.generation;
    volume_ = zone.owner;
    if (zone.use != ZoneUse::sealed || !still_there()) continue;
    --zones_left_;
    ++stats_.zones;
    segment_ = 0;
    return begin_segment();
  }
  ++stats_.passes;
  stats_.last_pass_wall_s = pool_.home.wall_s();
  zones_left_ = pool_.geometry.zone_count;
  pool_.home.start(wait_, std::max(options_.pause_s * kSecondNs, kPauseNsMin));
}

void Scrubber::begin_segment() {
  const std::uint64_t capacity = pool_.geometry.zone_capacity_lbas;
  const std::uint64_t begin = segment_ * pool_.segment_lbas;
  if (begin >= std::min<std::uint64_t>(capacity, pool_.tables[zone_.value].end_lba)) {
    step_ = Step::zone;
    return post();
  }
  const std::uint64_t end = std::min(begin + pool_.segment_lbas, capacity);
  second_try_ = false;
  scan_.emplace(
      SegmentScan::Bounds{pool_.stamp(zone_), begin, end, capacity, pool_.geometry.lba_bytes});
  step_ = Step::scan;
  next_of_scan();
}

void Scrubber::next_of_scan() {
  if (const std::optional<SegmentScan::Read> wanted = scan_->next()) {
    return read(wanted->lba, wanted->lbas);
  }
  const std::uint64_t end =
      std::min((segment_ + 1) * pool_.segment_lbas, pool_.geometry.zone_capacity_lbas);
  // Where writing ended before its end a segment has none.
  if (!scan_->summarized() && end <= pool_.tables[zone_.value].end_lba) {
    structure_damaged(ScrubFinding::Kind::summary_damaged, end - 1);
  }
  next_ = 0;
  header_lbas_ = 1;
  // Without a summary it was the headers that were read.
  step_ = scan_->summarized() ? Step::headers : Step::pages;
  post();
}

void Scrubber::next_header() {
  if (next_ == scan_->batch_lbas().size()) {
    next_ = 0;
    step_ = Step::pages;
    return post();
  }
  const std::uint64_t lba = scan_->batch_lbas()[next_];
  if (lba >= pool_.tables[zone_.value].end_lba) {
    ++next_;
    return post();
  }
  // No further: a page behind it that cannot be read is not the header's damage.
  read(lba, std::min<std::uint64_t>(header_lbas_, pool_.geometry.zone_capacity_lbas - lba));
}

void Scrubber::header_read() {
  const std::uint64_t lba = scan_->batch_lbas()[next_];
  bool whole = false;
  if (io_.status.ok()) {
    const Result<BatchHeader> fixed =
        BatchView::fixed_part(bytes_read().first(pool_.geometry.lba_bytes), pool_.stamp(zone_));
    if (fixed.ok() && std::exchange(header_lbas_, fixed->header_lbas) < fixed->header_lbas) return;
    whole = fixed.ok() && BatchView::open(bytes_read(), pool_.stamp(zone_)).ok();
  }
  if (!whole && !std::exchange(second_try_, true)) return;  // once more
  if (!whole) structure_damaged(ScrubFinding::Kind::batch_header_damaged, lba);
  second_try_ = false;
  header_lbas_ = 1;
  ++next_;
}

void Scrubber::next_page() {
  for (unsigned looked = 0; looked < kRecordsPerTurn; ++looked, ++next_) {
    if (next_ == scan_->records().size()) {
      ++segment_;
      return begin_segment();
    }
    if (find_live(scan_->records()[next_])) {
      return read(record_.lba, pool_.page_lbas(record_.length));
    }
  }
  post();
}

// Does the index point to it?
bool Scrubber::find_live(const PageRecord& record) {
  if (record.kind != RecordKind::page || record.lba >= pool_.tables[zone_.value].end_lba) {
    return false;
  }
  record_ = record;
  hash_ = log()->hash(record.key);
  std::array<IndexEntry, KeyOp::kCandidatesMax> found;
  const unsigned count = std::min(log()->lookup(hash_, found), KeyOp::kCandidatesMax);
  const std::uint64_t lba = pool_.device_lba(zone_, record.lba);
  const auto live = std::ranges::find(found.begin(), found.begin() + count, lba, &IndexEntry::lba);
  if (live == found.begin() + count) return false;
  entry_ = *live;
  return true;
}

void Scrubber::read(std::uint64_t lba, std::uint64_t lbas) {
  const std::size_t bytes = lbas * pool_.geometry.lba_bytes;
  if (buffer_.size() < bytes) buffer_ = AlignedBuffer(bytes);
  io_.lba = Lba{pool_.device_lba(zone_, lba)};
  io_.set_data(buffer_.data(), static_cast<std::uint32_t>(lbas), pool_.geometry.lba_bytes);
  reading_ = true;
  epoch_side_ = epoch_.enter();  // the zone is not being reset; now it will not be
  stats_.bytes_read += bytes;
  const std::uint64_t cost_ns =
      static_cast<std::uint64_t>(static_cast<double>(bytes) * kSecondNs / options_.bytes_per_s);
  const std::uint64_t now_ns = pool_.home.now_ns();
  due_ns_ = std::max(due_ns_, now_ns - std::min(now_ns, kCreditNs)) + cost_ns;
  pool_.queue.submit(io_);
}

void Scrubber::completed() {
  reading_ = false;
  epoch_.leave(epoch_side_);
  if (!io_.status.ok() && pool_.device.gone()) stop();
  if (stopped_ || !still_there()) return go_on();
  switch (step_) {
    case Step::scan:
      scan_->feed(io_.status.ok() ? Result<std::span<const std::byte>>(bytes_read())
                                  : Result<std::span<const std::byte>>(io_.status));
      break;
    case Step::headers:
      header_read();
      break;
    case Step::pages:
      page_read();
      break;
    case Step::zone:
      break;
  }
  go_on();
}

void Scrubber::page_read() {
  ++stats_.pages;
  const bool whole = io_.status.ok() &&
                     page_checksum(bytes_read().first(record_.length), hash_) == entry_.checksum;
  if (!find_live(record_)) {  // it was overwritten or deleted meanwhile
    second_try_ = false;
    ++next_;
  } else if (!whole) {
    if (std::exchange(second_try_, true)) page_lost();
  } else if (second_try_) {
    rewrite();
  } else {
    ++next_;
  }
}

void Scrubber::page_lost() {
  using Kind = ScrubFinding::Kind;
  ++stats_.pages_lost;
  ++next_;
  second_try_ = false;
  const bool dropped = log()->options().cache;
  if (dropped) log()->let_go(hash_, entry_);
  report({io_.status.ok() ? Kind::page_damaged : Kind::page_unreadable, volume_, zone_, record_.lba,
          record_.key, dropped});
}

// As it was just read, while it can be. Its record's fields go along.
void Scrubber::rewrite() {
  report({ScrubFinding::Kind::page_read_twice, volume_, zone_, record_.lba, record_.key});
  ++next_;
  second_try_ = false;
  rewriting_ = true;
  rewrite_.key = record_.key;
  rewrite_.group = record_.group;
  rewrite_.expires_s = record_.expires_s;
  rewrite_.pinned = entry_.pinned;
  rewrite_.data = buffer_.data();
  rewrite_.length = record_.length;
  rewrite_.capacity = static_cast<std::uint32_t>(buffer_.size());
  rewrite_.rewritten_lba = entry_.lba;
  rewrite_.rewritten_generation = generation_;
  rewrite_.old_sequence = record_.sequence;
  log()->submit(rewrite_);
}

void Scrubber::rewritten() {
  rewriting_ = false;
  if (rewrite_.status.ok()) ++stats_.pages_rewritten;
  go_on();
}

void Scrubber::structure_damaged(ScrubFinding::Kind kind, std::uint64_t lba) {
  ++stats_.structures_damaged;
  report({kind, volume_, zone_, lba, Key()});
  log()->collect(zone_);
}

void Scrubber::report(ScrubFinding finding) {
  if (options_.on_finding) options_.on_finding(finding);
}

void Scrubber::go_on() {
  if (stopped_ || rewriting_) return;
  const std::uint64_t now_ns = pool_.home.now_ns();
  if (due_ns_ <= now_ns) return post();
  pool_.home.start(wait_, due_ns_ - now_ns);
}

std::string describe(const ScrubFinding& finding) {
  using Kind = ScrubFinding::Kind;
  std::string text = fmt::format("zone {}, LBA {}: ", finding.zone.value, finding.lba);
  if (finding.kind == Kind::summary_damaged) {
    return text + "the summary that ends there is damaged; batch headers tell what it said";
  }
  if (finding.kind == Kind::batch_header_damaged) {
    return text + "the batch header is damaged; the segment's summary tells what it said";
  }
  text += "the page of key 0x";
  for (const std::byte byte : finding.key.view()) text += fmt::format("{:02x}", byte);
  if (finding.kind == Kind::page_read_twice) {
    return text +
           " was whole at the second reading only; it is written anew elsewhere if it can be";
  }
  text += finding.kind == Kind::page_damaged ? " is damaged (checksum)" : " cannot be read";
  return text + (finding.dropped ? "; the cache let go of it" : "; it stays, and is not served");
}

}  // namespace furrow
