#include "engine/pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "engine/page_session.h"
#include "engine/pool_impl.h"
#include "zone/blocking.h"

namespace furrow {

namespace {
constexpr unsigned kHomeQueueDepth = 256;
}

Result<std::unique_ptr<Pool>> Pool::open(ZonedDevice& device, Executor& home,
                                         const OpenOptions& options) {
  if (options.victim_policy == VictimPolicy::fifo) {
    return Status(Code::invalid_argument, Origin::engine,
                  "a store's zones are collected greedy or cost_benefit");
  }
  const bool as_repaired = options.read_only && options.as_repaired;
  Result<MetadataRing> ring = MetadataRing::open(device, options.read_only, as_repaired);
  if (!ring.ok()) return ring.status();
  const Superblock& superblock = ring->superblock();
  const Geometry& geometry = device.geometry();
  if (superblock.lba_bytes != geometry.lba_bytes || superblock.zone_count != geometry.zone_count ||
      superblock.zone_size_lbas != geometry.zone_size_lbas ||
      superblock.zone_capacity_lbas != geometry.zone_capacity_lbas) {
    return Status(Code::corrupt, Origin::engine,
                  "the device's geometry is not the one that the pool was made with");
  }
  Result<std::unique_ptr<IoQueue>> queue = device.create_queue(kHomeQueueDepth);
  if (!queue.ok()) return queue.status();
  if (options.may_block) (*queue)->may_block();
  auto pool =
      std::make_unique<PoolImpl>(device, home, std::move(*ring), std::move(*queue), options);
  Status status;
  if (pool->lost()) {
    Result<AssumedPool> assumed = assume_pool(device, home, pool->ring());
    status = assumed.ok() ? pool->assume(std::move(*assumed)) : assumed.status();
  }
  if (status.ok()) status = pool->open_volumes();
  if (!status.ok()) return status;
  return std::unique_ptr<Pool>(std::move(pool));
}

Status PoolImpl::assume(AssumedPool assumed) {
  unknown_ = std::move(assumed.recovered);
  notes_ = std::move(assumed.notes);
  return ring_.assume(std::move(assumed.state));
}

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

// Each gets its quota, and of the zones that the device allows to be open what it cannot do
// without.
Status PoolImpl::admit_volumes(RecoveryOptions& options) {
  if (ring_.state().volumes.size() > kVolumesMax) {
    return {Code::corrupt, Origin::engine, "its metadata tells of more than 64 volumes"};
  }
  if (options_.read_only) context_.allocator.opens_none();
  Status status = take_lent_zones();
  for (const VolumeRecord& record : ring_.state().volumes) {
    if (!status.ok()) break;
    if (record.kind == kKindZoned) continue;
    status = context_.allocator.admit(record.id, record.quota_zones, 1);
    options.volumes.push_back(record.id);
    add_blocks(record);
    const bool store = record.mode == static_cast<std::uint8_t>(VolumeMode::store);
    (store ? options.stores : options.caches).push_back(record.id);
  }
  if (status.code() != Code::too_many_zones) return status;
  return {Code::too_many_zones, Origin::engine,
          "the device allows fewer open and active zones (MOR, MAR) than the pool's volumes need: "
          "one for the metadata, one for each volume, and what volumes of kind zoned were given; "
          "bring the pool to a device that allows as many as the one that it was made on"};
}

Status PoolImpl::open_volumes() {
  const std::uint64_t started_ns = context_.home.now_ns();
  RecoveryOptions options;
  options.read_only = options_.read_only;
  options.threads = options_.recovery_threads != 0
                        ? options_.recovery_threads
                        : std::max(1u, std::thread::hardware_concurrency());
  if (options_.recovery_threads == OpenOptions::kCallingThread) {
    options.threads = 1;
    options.scanners_per_thread = 1;
  }
  if (const Status status = admit_volumes(options); !status.ok()) return status;
  for (const ZoneTrimRecord& trim : ring_.state().trims) {
    options.trims.push_back(
        {ZoneId{trim.zone}, trim.generation, trim.end_lba, trim.durable, trim.aside});
  }
  options.next_volume_id = ring_.state().next_volume_id;
  for (const std::uint32_t zone : options_.give_up) options.give_up.push_back(ZoneId{zone});
  options.note_trim = [this](const ZoneTrim& trim) {
    return note_trim({trim.zone.value, trim.end_lba, trim.generation, trim.durable, trim.aside});
  };
  options.trims_lost = ring_.lost();
  damage_ = ring_.damage();
  notes_.insert(notes_.begin(), ring_.notes().begin(), ring_.notes().end());
  Result<RecoveryResult> recovered = recover(device_, context_, options);
  if (!recovered.ok()) return recovered.status();
  lost_ = std::move(recovered->lost);
  for (const RecoveryResult::Gap& gap : recovered->gaps) {
    gaps_.push_back(
        fmt::format("zone {}: the batch header at LBA {} is damaged; the pages that it named are "
                    "lost, and older ones may be there in their place",
                    gap.zone.value, gap.lba));
  }
  unknown_.merge(recovered->unknown);
  const Status counted = count_opening(recovered->highest_sequence);
  if (!counted.ok()) return counted;
  for (const ZoneTrim& trim : recovered->new_trims) {
    if (trim.end_lba < context_.geometry.zone_capacity_lbas) {
      notes_.push_back(
          fmt::format("zone {}: nothing counts from LBA {} on: writing ended there, or "
                      "was torn before it was flushed",
                      trim.zone.value, trim.end_lba));
    }
    const Status status =
        note_trim({trim.zone.value, trim.end_lba, trim.generation, trim.durable, trim.aside});
    if (!status.ok()) return status;
  }
  const Status dropped = drop_trims();
  if (!dropped.ok()) return dropped;
  const Status status = load(*recovered);
  recovery_us_ = (context_.home.now_ns() - started_ns) / 1000;
  return status;
}

// Before anything is written: what this opening draws must be beyond all that any zone has seen,
// also where the metadata is older than the zones.
Status PoolImpl::count_opening(std::uint64_t highest_sequence) {
  const std::uint64_t known = ring_.state().open_count;
  const std::uint64_t seen = highest_sequence >> kSequenceShift;
  if (seen > known && !ring_.lost()) {
    const std::string text = fmt::format(
        "zones hold records of opening {}, and the metadata knows of {} only: its journal has lost "
        "its end",
        seen, known);
    (options_.read_only ? damage_ : notes_).push_back(text);
  }
  open_count_ = std::max(known, seen) + 1;
  context_.next_sequence = (open_count_ << kSequenceShift) + 1;
  if (options_.read_only) return {};
  if (open_count_ >= kOpenCountMax) {
    return {Code::unsupported, Origin::engine,
            "the pool's numbers are used up; open it read-only and copy it"};
  }
  JournalRecord opened;
  opened.kind = JournalRecord::Kind::opened;
  opened.open_count = open_count_;
  return ring_.append(opened);
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

// A store has a stream for copies, where there is an open zone to spare, and those by lifetime that
// have a zone open; others are granted when the first page comes. A cache evicts zones in the order
// in which they were opened, which is that of its pages in one stream only.
std::map<std::uint64_t, StreamSet> PoolImpl::share_streams(const RecoveryResult& recovered) {
  std::map<std::uint64_t, StreamSet> streams;
  const auto share = [&](std::uint8_t stream, bool with_zone) {
    for (const VolumeRecord& record : ring_.state().volumes) {
      const bool cache = record.mode == static_cast<std::uint8_t>(VolumeMode::cache);
      if (record.kind == kKindZoned || cache) continue;
      const auto found = recovered.volumes.find(record.id);
      const bool there = found != recovered.volumes.end();
      const bool has_zone = there && found->second.resumes.contains(stream);
      StreamSet& its = streams[record.id];
      const std::uint64_t by_lifetime = its.count() - (its.test(kCollectionStream) ? 1 : 0);
      const bool few = stream != kCollectionStream &&
                       context_.allocator.quota(record.id) <= kVolumeZonesMin + by_lifetime;
      if (has_zone != with_zone || few) continue;
      if (context_.allocator.try_add_stream(record.id)) its.set(stream);
    }
  };
  for (std::uint8_t stream = kCollectionStream; stream <= kStreamMax; ++stream) {
    share(stream, true);
  }
  share(kCollectionStream, false);
  return streams;
}

Status PoolImpl::load(const RecoveryResult& recovered) {
  const std::uint64_t lost = context_.allocator.shrink_quotas();
  if (lost != 0) {
    notes_.push_back(
        fmt::format("{} zones are lost: quotas are smaller by as much until they are back", lost));
  }
  std::map<std::uint64_t, StreamSet> streams = share_streams(recovered);
  const Result<std::vector<ZoneInfo>> report = device_.report();
  if (!report.ok()) return report.status();
  // A copy: ending a zone adds to the journal, which makes the state anew.
  const std::vector<VolumeRecord> volumes = ring_.state().volumes;
  for (const VolumeRecord& record : volumes) {
    if (record.kind == kKindZoned) {
      add_zoned(record, *report);
      continue;
    }
    add_store(record, streams[record.id]);
    const auto found = recovered.volumes.find(record.id);
    if (found == recovered.volumes.end()) continue;
    const RecoveredVolume& volume = found->second;
    PageLog& log = stores_.back()->log();
    for (const auto& [stream, resume] : volume.resumes) {
      const bool granted = stream == kUserStream || streams[record.id].test(stream);
      const Status ended = granted ? Status() : end_zone(resume);
      if (!ended.ok()) return ended;
      log.resume(stream, Stream::Resume(resume));
    }
    log.load({volume.pages, volume.live_bytes, volume.pinned_lbas, volume.cost_bytes,
              volume.largest_bytes, volume.first_expiry_s, volume.expired, volume.hidden,
              volume.lost, volume.outlived, volume.damaged});
    recovered_pages_ += volume.pages.size();
    // It was said before the first of these was written, and may have gone with a superblock since.
    const bool say_so = volume.damaged && !options_.read_only;
    const Status said = say_so ? ring_.need(kFeatureDamagedPages) : Status();
    if (!said.ok()) return said;
  }
  if (!options_.read_only) {
    for (const auto& store : stores_) {
      if (store->zones() == nullptr) store->log().start();
    }
    return_orphans();
    if (!recovered.vacated.empty()) returns_.add({.zones = recovered.vacated, .admitted = false});
    begin_giving_up();
    start_scrubber();
  }
  return {};
}

// Of a stream that there is no open zone for any more: it must not take one of the device's.
Status PoolImpl::end_zone(const Stream::Resume& resume) {
  if (options_.read_only) return {};
  const std::uint64_t generation = context_.allocator.zone(resume.zone).generation;
  const Status status =
      note_trim({resume.zone.value, static_cast<std::uint32_t>(resume.next_lba), generation});
  if (!status.ok()) return status;
  const Status finished = manage_blocking(*queue_, Io::Op::finish, resume.zone);
  if (!finished.ok()) {  // no reason not to open the pool
    notes_.push_back(
        fmt::format("zone {} cannot be finished: {}", resume.zone.value, finished.describe()));
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
