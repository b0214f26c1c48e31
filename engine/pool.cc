#include "engine/pool.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/page_session.h"
#include "engine/pool_impl.h"

namespace furrow {

PoolState PoolImpl::assumed_state() const {
  PoolState state = ring_.state();
  for (const ZoneTrimRecord& trim : cuts_) {
    JournalRecord record;
    record.kind = JournalRecord::Kind::zone_trimmed;
    record.trim = trim;
    FURROW_CHECK(apply(state, record).ok());
  }
  state.open_count = open_count_ - 1;
  return state;
}

PoolImpl::PoolImpl(ZonedDevice& device, Executor& home, MetadataRing ring,
                   std::unique_ptr<IoQueue> queue, const OpenOptions& options)
    : device_(device),
      ring_(std::move(ring)),
      queue_(std::move(queue)),
      context_(device, home, *queue_, ring_.superblock()),
      journal_queue_(home, ring_),
      durable_notes_(context_, journal_queue_),
      returns_(context_, *this),
      options_(options),
      ended_(std::make_unique<GetCounters[]>(kVolumesMax)) {
  context_.home.add(*queue_);
  context_.on_zone_cut = [this](ZoneId zone, std::uint32_t end_lba) {
    cuts_.push_back({zone.value, end_lba, context_.allocator.zone(zone).generation});
    (void)note_cuts();  // asked for again before it matters
  };
  context_.note_cuts = [this] {
    count_drawn();
    Status noted = note_cuts();
    if (noted.ok()) noted = drop_asides();
    if (noted.ok()) (void)ring_.settle();  // see journal()
    return noted;
  };
  context_.may_say_damaged = [this] { return ring_.need(kFeatureDamagedPages); };
  context_.flusher.ask_before([this] { return settle(); });
  context_.note_durable = [this](DurableNote& note) { durable_notes_.request(note); };
}

// Where the file system is full, the journal may not take them either: until it does, nothing else
// is written, and the next recovery finds out by itself, and calls it torn.
Status PoolImpl::note_cuts() {
  while (!cuts_.empty()) {
    JournalRecord record;
    record.kind = JournalRecord::Kind::zone_trimmed;
    record.trim = cuts_.front();
    const Status noted = ring_.append(record);
    if (!noted.ok()) return noted;
    const ZoneId zone{record.trim.zone};
    const bool is_void = record.trim.end_lba == 0 && !record.trim.durable;
    if (is_void && context_.allocator.zone(zone).use == ZoneUse::bad) {
      context_.allocator.make_void(zone);  // tombstones need not stay for what it holds
    }
    cuts_.erase(cuts_.begin());
  }
  return {};
}

PoolImpl::~PoolImpl() {
  FURROW_CHECK(sessions_.empty());
  scrubber_.reset();
  stores_.clear();
  deleted_.clear();
  context_.home.remove(*queue_);
}

// What is drawn beyond an opening's numbers is the next one's, and the journal says so long before:
// else it would look as if it had lost its end. Asked with each zone that is opened; where it
// cannot be written, the next one asks again.
void PoolImpl::count_drawn() {
  constexpr std::uint64_t kAhead = std::uint64_t{1} << (kSequenceShift - 2);
  JournalRecord opened;
  opened.kind = JournalRecord::Kind::opened;
  opened.open_count = (context_.next_sequence + kAhead) >> kSequenceShift;
  if (opened.open_count > ring_.state().open_count) (void)ring_.append(opened);
}

// A record that failed may be on the medium all the same, and the next flush makes it durable with
// all that is stored meanwhile. So that it does not count, another follows, at once or, where the
// device does not take that either, before the next flush, or when the next zone is opened. Until
// then what is stored is answered behind a flush only: a kill leaves the record that failed, too.
Status PoolImpl::journal(const JournalRecord& record) {
  const Status status = ring_.append(record);
  if (!status.ok()) context_.unsettled = !ring_.settle().ok();
  return status;
}

Status PoolImpl::settle() {
  if (!context_.unsettled) return {};
  const Status settled = ring_.settle();
  context_.unsettled = !settled.ok();
  return settled;
}

Status PoolImpl::note_trim(const ZoneTrimRecord& trim) {
  if (options_.read_only) {
    if (ring_.lost()) cuts_.push_back(trim);  // a repair writes it
    return {};
  }
  const std::vector<ZoneTrimRecord>& known = ring_.state().trims;
  if (std::ranges::find(known, trim) != known.end()) return {};
  JournalRecord record;
  record.kind = JournalRecord::Kind::zone_trimmed;
  record.trim = trim;
  return ring_.append(record);
}

// Of lives of zones that are over: recovery has made their resets durable. So there is never more
// than a trim for each zone that is in use.
Status PoolImpl::drop_trims() {
  const std::vector<ZoneTrimRecord> trims = ring_.state().trims;
  for (const ZoneTrimRecord& trim : trims) {
    if (trim.zone < context_.geometry.zone_count) {
      const ZoneAllocator::Zone& zone = context_.allocator.zone(ZoneId{trim.zone});
      if (zone.use == ZoneUse::bad || zone.generation == trim.generation) continue;
    }
    const Status status = note_trim({trim.zone, ZoneTrimRecord::kNothing, trim.generation});
    if (!status.ok()) return status;
  }
  return {};
}

// .. and before a zone that was reset since is opened anew: that life of it is none that an opening
// went without, and is not to be verified as if it was.
Status PoolImpl::drop_asides() {
  const std::vector<ZoneTrimRecord> trims = ring_.state().trims;
  for (const ZoneTrimRecord& trim : trims) {
    const bool over = context_.allocator.zone(ZoneId{trim.zone}).use == ZoneUse::free;
    if (!trim.aside || !over) continue;
    const Status status = note_trim({trim.zone, ZoneTrimRecord::kNothing, trim.generation});
    if (!status.ok()) return status;
  }
  return {};
}

PageLog* PoolImpl::log_of(std::uint64_t volume) const {
  for (const auto& store : stores_) {
    if (store->info().id == volume && store->zones() == nullptr) return &store->log();
  }
  return nullptr;
}

void PoolImpl::start_scrubber() {
  if (options_.scrub_bytes_per_s == 0) return;
  Scrubber::Options options;
  options.bytes_per_s = options_.scrub_bytes_per_s;
  options.pause_s = options_.scrub_pause_s;
  options.log_of = [this](std::uint64_t volume) { return log_of(volume); };
  options.on_finding = options_.on_scrub_finding;
  scrubber_ = std::make_unique<Scrubber>(context_, std::move(options));
  scrubber_->start();
}

bool PoolImpl::quiesce() {
  if (scrubber_) scrubber_->stop();
  returns_.stop();
  bool idle = !queue_->busy() && !context_.flusher.busy() && (!scrubber_ || scrubber_->idle()) &&
              keepings_.empty() && returns_.idle();
  for (const auto& store : stores_) {
    if (store->zones() != nullptr) {
      idle = idle && store->zones()->idle();
      continue;
    }
    store->log().stop_background();
    store->log().fail_stranded();
    idle = idle && store->log().idle();
  }
  if (!idle || options_.read_only) return idle;
  (void)note_cuts();  // else the next recovery finds out by itself
  bool closed = true;
  for (const auto& store : stores_) {
    const bool its = store->zones() != nullptr ? store->zones()->close() : store->log().close();
    closed = its && closed;
  }
  if (closed) (void)ring_.settle();  // else the next opening does
  return closed;
}

PoolInfo PoolImpl::info() const {
  PoolInfo info;
  const Superblock& superblock = ring_.superblock();
  info.name = superblock.name;
  info.uuid = superblock.pool;
  info.format_version = kFormatVersion;
  info.geometry = context_.geometry;
  const ZoneAllocator& allocator = context_.allocator;
  info.zones_unpromised = allocator.unpromised();
  info.zones_returning = returns_.zones();
  info.zones_free = allocator.count(ZoneUse::free);
  info.zones_metadata = allocator.count(ZoneUse::metadata);
  info.zones_bad = allocator.count(ZoneUse::bad);
  info.zones_data = context_.geometry.zone_count - info.zones_free - info.zones_metadata -
                    info.zones_bad - info.zones_returning;
  info.preallocated = device_.preallocated();
  info.device_full = context_.device_full || device_.short_of_room();
  info.write_failure = context_.write_failure;
  info.failed_writes = context_.failed_writes;
  info.media_errors = media_errors();
  info.flush_failed = context_.flusher.last_failed();
  info.device_gone = device_.gone();
  info.misplaced_writes = device_.misplaced_writes();
  info.interruptions = device_.interruptions();
  info.system_calls = queue_->system_calls();
  info.recovery_us = recovery_us_;
  info.recovered_pages = recovered_pages_;
  info.opening_damage = damage_.size() + lost_.size() + gaps_.size();
  if (scrubber_) info.scrub = scrubber_->stats();
  return info;
}

std::uint64_t PoolImpl::media_errors() const {
  std::uint64_t errors = media_errors_forgotten_;
  for (const auto* stores : {&stores_, &deleted_}) {
    for (const auto& store : *stores) errors += store->media_errors();
  }
  return errors;
}

std::vector<PoolZone> PoolImpl::zones() const {
  std::vector<PoolZone> zones;
  for (const ZoneAllocator::Zone& zone : context_.allocator.zones()) {
    zones.push_back({zone.use, zone.owner, zone.live_lbas * context_.geometry.lba_bytes});
  }
  return zones;
}

std::vector<std::string> PoolImpl::opening_damage() const {
  std::vector<std::string> texts = damage_;
  for (const RecoveryResult::Lost& lost : lost_) {
    texts.push_back(fmt::format("zone {} {}", lost.zone.value, lost.why));
  }
  texts.insert(texts.end(), gaps_.begin(), gaps_.end());
  return texts;
}

Result<std::unique_ptr<PageSession>> PoolImpl::create_session(Executor& executor, unsigned depth) {
  Result<std::unique_ptr<IoQueue>> queue = device_.create_queue(depth);
  if (!queue.ok()) return queue.status();
  return std::unique_ptr<PageSession>(
      std::make_unique<PageSessionImpl>(*this, context_, executor, std::move(*queue)));
}

void PoolImpl::attach(PageSessionImpl& session) {
  const std::lock_guard lock(sessions_mutex_);
  sessions_.push_back(&session);
}

void PoolImpl::detach(PageSessionImpl& session) {
  const std::lock_guard lock(sessions_mutex_);
  std::erase(sessions_, &session);
  for (std::size_t i = 0; i < kVolumesMax; ++i) session.counters(i).add_to(ended_[i]);
}

void PoolImpl::reset_counters(std::size_t ordinal) {
  const std::lock_guard lock(sessions_mutex_);
  ended_[ordinal].reset();
  for (PageSessionImpl* session : sessions_) session->counters(ordinal).reset();
}

// What ended is counted before what began, so that none is missed.
bool PoolImpl::gets_in_flight(std::size_t ordinal) const {
  const std::lock_guard lock(sessions_mutex_);
  std::uint64_t ended = ended_[ordinal].hits + ended_[ordinal].misses;
  std::uint64_t begun = ended_[ordinal].gets;
  for (const PageSessionImpl* session : sessions_) {
    ended += session->counters(ordinal).hits + session->counters(ordinal).misses;
  }
  for (const PageSessionImpl* session : sessions_) begun += session->counters(ordinal).gets;
  return begun != ended;
}

void PoolImpl::sum_gets(std::size_t ordinal, GetCounters& sum) const {
  const std::lock_guard lock(sessions_mutex_);
  ended_[ordinal].add_to(sum);
  for (const PageSessionImpl* session : sessions_) session->counters(ordinal).add_to(sum);
}

}  // namespace furrow
