#include "log/metadata_ring.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "log/metadata_format.h"
#include "log/metadata_scan.h"
#include "log/reservation_state.h"
#include "zone/aligned_buffer.h"
#include "zone/blocking.h"
#include "zone/canary.h"
#include "zone/check.h"
#include "zone/zone_state_machine.h"

namespace furrow {

namespace {

constexpr unsigned kQueueDepth = 4;
constexpr std::uint64_t kWriteBytesMax = 256 << 10;
constexpr std::uint64_t kWaitUs = 100'000;
// Of a journal: each opening reads all of them, and zones may have room for millions.
constexpr std::uint64_t kRecordsMax = 16'384;

// Features that this program knows.
constexpr Features kKnown{0, 0,
                          kFeatureBlockVolumes | kFeatureZonedVolumes | kFeatureResizedVolumes |
                              kFeatureReservations | kFeatureDamagedPages};

Status invalid(const char* hint) { return Status(Code::invalid_argument, Origin::log, hint); }

Status write(IoQueue& queue, const Geometry& geometry, ZoneId zone, std::uint64_t at_lba,
             AlignedBuffer& data) {
  const std::uint32_t lba_bytes = geometry.lba_bytes;
  for (std::size_t done = 0; done < data.size();) {
    const std::size_t piece = std::min<std::size_t>(data.size() - done, kWriteBytesMax);
    Io io;
    io.op = Io::Op::write;
    io.zone = zone;
    io.lba = Lba{geometry.zone_start(zone).value + at_lba + done / lba_bytes};
    io.set_data(data.data() + done, static_cast<std::uint32_t>(piece / lba_bytes), lba_bytes);
    const Status status = run_blocking(queue, io);
    if (!status.ok()) return status;
    done += piece;
  }
  return {};
}

// Both copies of a journal record.
void encode_copies(JournalEntry entry, std::span<std::byte> lbas) {
  const std::size_t lba_bytes = lbas.size() / kJournalCopies;
  for (entry.copy = 0; entry.copy < kJournalCopies; ++entry.copy) {
    encode(entry, lbas.subspan(entry.copy * lba_bytes, lba_bytes));
  }
}

// Superblock, checkpoint, record 0 and the superblock again, as they stand on the medium.
AlignedBuffer section(const Superblock& superblock, const Checkpoint& checkpoint,
                      const JournalEntry& first) {
  const std::uint32_t lba_bytes = superblock.lba_bytes;
  const std::size_t checkpoint_lbas =
      (checkpoint_bytes(checkpoint.state) + lba_bytes - 1) / lba_bytes;
  AlignedBuffer buffer((checkpoint_lbas + kSectionBesides) * lba_bytes);
  const auto lbas = [&](std::size_t at, std::size_t count) {
    return buffer.span().subspan(at * lba_bytes, count * lba_bytes);
  };
  encode(superblock, lbas(0, 1));
  encode(checkpoint, lbas(1, checkpoint_lbas));
  encode_copies(first, lbas(1 + checkpoint_lbas, kJournalCopies));
  encode(superblock, lbas(1 + checkpoint_lbas + kJournalCopies, 1));
  return buffer;
}

Status check_fits(const PoolState& state, const Geometry& geometry) {
  if (geometry.lbas(checkpoint_bytes(state)) <= checkpoint_lbas_max(geometry)) return {};
  return Status(Code::no_space, Origin::log,
                "the pool's volumes do not fit its metadata zones; delete some");
}

Status check_features(const Features& features, bool read_only) {
  if ((features.incompatible & ~kKnown.incompatible) != 0) {
    return Status(Code::unsupported, Origin::log,
                  "the pool uses features that this version does not know; use a newer one");
  }
  if ((features.read_only & ~kKnown.read_only) != 0 && !read_only) {
    return Status(Code::unsupported, Origin::log,
                  "the pool uses features that this version may only read; use a newer one");
  }
  return {};
}

// Nothing in the zones tells whose lent ones are, nor how large a disk is: so that no end of a
// journal that is lost ever gives one to somebody else, or cuts the other, a checkpoint and a
// journal do, from the last of those records on that lend zones, or one that gives some back, and
// from a resize on. Likewise that a zone counts again which was void in whatever life.
bool stands_twice(const JournalRecord& record) {
  using enum JournalRecord::Kind;
  const ZoneTrimRecord& trim = record.trim;
  const bool counts_again =
      trim.generation == ZoneTrimRecord::kAnyLife && trim.end_lba == ZoneTrimRecord::kNothing;
  if (record.kind == zone_trimmed) return counts_again;
  return (record.kind == volume_created && record.volume.kind == kKindZoned) ||
         (record.kind == zones_lent && record.anew) || record.kind == volume_resized;
}

// May the state be built upon?
Status check_complete(const RingContents& contents) {
  if (contents.unreadable) {
    return Status(Code::io_error, Origin::log,
                  "a metadata zone cannot be read; try again, and if it stays so open the pool "
                  "read-only and copy it");
  }
  if (!contents.incomplete) return {};
  return Status(Code::corrupt, Origin::log,
                "metadata records are lost; open the pool read-only and copy what is left");
}

Status check_new_pool(const Superblock& superblock, const PoolState& state,
                      const Geometry& geometry) {
  if (!valid_name(superblock.name)) {
    return invalid("a pool's name is 1-63 of letters, digits, '.', '_' and '-'");
  }
  if (!valid_superblock(superblock) || !valid_state(state)) {
    return invalid("the pool's metadata zones, segments or volumes are out of range");
  }
  if (superblock.lba_bytes != geometry.lba_bytes ||
      superblock.zone_size_lbas != geometry.zone_size_lbas ||
      superblock.zone_capacity_lbas != geometry.zone_capacity_lbas ||
      superblock.zone_count > geometry.zone_count) {
    return invalid("the pool's geometry is not the device's");
  }
  return check_fits(state, geometry);
}

}  // namespace

MetadataRing::MetadataRing() = default;
MetadataRing::MetadataRing(MetadataRing&&) noexcept = default;
MetadataRing& MetadataRing::operator=(MetadataRing&&) noexcept = default;
MetadataRing::~MetadataRing() = default;

Status MetadataRing::suits(const Geometry& geometry, std::size_t volumes) {
  if (has_room_for(geometry, volumes, {})) return {};
  return invalid(
      "too many zones for their size: a pool keeps lists of all its zones in two of them; make the "
      "zones larger");
}

bool MetadataRing::has_room_for(const Geometry& geometry, std::size_t volumes,
                                const std::vector<ReservationRecord>& reservations) {
  const std::size_t largest =
      checkpoint_bytes_max(volumes, geometry.zone_count) + reservation_bytes(reservations);
  return geometry.lbas(largest) <= checkpoint_lbas_max(geometry);
}

// The first section goes into zone 0, which is finished then, and a second one, with the same
// state, into zone 1: from the start there is an older checkpoint to fall back to.
Status MetadataRing::format(ZonedDevice& device, const Superblock& superblock,
                            const PoolState& state) {
  Status status = check_new_pool(superblock, state, device.geometry());
  if (!status.ok()) return status;
  MetadataRing ring;
  Result<std::unique_ptr<IoQueue>> queue = device.create_queue(kQueueDepth);
  if (!queue.ok()) return queue.status();
  ring.device_ = &device;
  ring.queue_ = std::move(*queue);
  ring.superblock_ = superblock;
  ring.superblock_.checkpoint = 0;
  ring.next_number_ = 1;
  for (std::uint32_t zone = 0; zone < superblock.metadata_zones; ++zone) {
    status = manage_blocking(*ring.queue_, Io::Op::reset, ZoneId{zone});
    if (!status.ok()) return status;
  }
  JournalRecord nothing;
  nothing.kind = JournalRecord::Kind::formatted;
  status = ring.write_section(ZoneId{0}, 0, state, nothing);
  if (status.ok()) status = ring.roll_into(ZoneId{1}, state, nothing);
  return status;
}

Result<MetadataRing> MetadataRing::open(ZonedDevice& device, bool read_only, bool lost_too) {
  Result<std::unique_ptr<IoQueue>> queue = device.create_queue(kQueueDepth);
  if (!queue.ok()) return queue.status();
  if (!read_only) {
    // What a killed process left behind may not be durable yet, and is built upon from now on.
    const Status flushed = flush_blocking(**queue);
    if (!flushed.ok()) return flushed;
  }
  Result<RingContents> contents = read_ring(device, **queue);
  if (!contents.ok()) return contents.status();
  const Status features = check_features(contents->superblock.features, read_only);
  if (!features.ok()) return features;
  if (contents->lost && !lost_too) {
    return Status(Code::corrupt, Origin::log,
                  "every checkpoint of the pool is damaged; `furrowctl pool check --repair` makes "
                  "them anew from what the zones say");
  }
  if (!read_only) {
    const Status complete = check_complete(*contents);
    if (!complete.ok()) return complete;
  } else if (contents->incomplete) {
    contents->damage.push_back("metadata records that were acknowledged are lost");
  } else if (contents->unreadable) {
    contents->damage.push_back("the metadata's newest records may be in what cannot be read");
  }
  MetadataRing ring;
  ring.device_ = &device;
  ring.queue_ = std::move(*queue);
  ring.superblock_ = std::move(contents->superblock);
  ring.said_ = ring.superblock_.features.incompatible;
  ring.state_ = std::move(contents->state);
  ring.damage_ = std::move(contents->damage);
  ring.notes_ = std::move(contents->notes);
  ring.read_only_ = read_only;
  ring.lost_ = contents->lost;
  ring.incomplete_ = contents->incomplete || contents->unreadable;
  ring.must_roll_ = contents->must_roll;
  ring.active_zone_ = contents->active;
  ring.written_lbas_ = contents->written_lbas;
  ring.last_index_ = contents->last_index;
  ring.next_number_ = contents->next_number;
  ring.needed_ = std::move(contents->needed);
  ring.torn_ = std::move(contents->torn);
  if (!read_only) ring.finish_others();
  return ring;
}

Status MetadataRing::check_record(const JournalRecord& record, PoolState& state) const {
  if (read_only_) {
    return Status(Code::permission, Origin::log, "the pool was opened read-only");
  }
  if (lost_) return Status(Code::corrupt, Origin::log, "the pool's checkpoints are lost");
  if (record.kind == JournalRecord::Kind::volume_created && !valid_name(record.volume.name)) {
    return invalid("a volume's name is 1-63 of letters, digits, '.', '_' and '-'");
  }
  const Status applied = apply(state, record);
  if (!applied.ok()) return invalid(applied.hint());
  return check_fits(state, device_->geometry());
}

bool MetadataRing::has_room(const PoolState& changed) const {
  const std::uint64_t repairs = (kSections - 1) * section_lbas(device_->geometry(), changed);
  return !must_roll_ && last_index_ < kRecordsMax &&
         written_lbas_ + kJournalCopies + repairs <= superblock_.zone_capacity_lbas;
}

// An older program is to be told by the superblock, before it meets what it does not know.
bool MetadataRing::needs_roll(const JournalRecord& record, const PoolState& changed) const {
  const std::uint64_t needed = features_needed(changed) | features_needed(record);
  return (needed & ~superblock_.features.incompatible) != 0 || stands_twice(record);
}

Status MetadataRing::append(const JournalRecord& record) {
  while (begun_ != nullptr) queue_->wait(kWaitUs);
  PoolState changed = state_;
  const Status status = check_record(record, changed);
  if (!status.ok()) return status;
  if (needs_roll(record, changed)) {
    superblock_.features.incompatible |= features_needed(changed) | features_needed(record);
    must_roll_ = true;
  }
  if (!torn_.empty() && roll(changed, record).ok()) {
    state_ = std::move(changed);
    return {};
  }
  end_torn();  // one that cannot be reset stays so
  if (has_room(changed)) {
    if (write_record(record).ok()) {
      state_ = std::move(changed);
      return {};
    }
    // Whether the record is on the medium nobody knows, so nothing may follow it. The roll puts
    // the record elsewhere; if that fails too, its error is the one to tell.
    must_roll_ = true;
  }
  const Status rolled = roll(changed, record);
  if (rolled.ok()) state_ = std::move(changed);
  return rolled;
}

// As an opening does, which finds the same after a kill.
Status MetadataRing::settle() {
  if (!must_roll_ || read_only_ || lost_) return {};
  JournalRecord opened;
  opened.kind = JournalRecord::Kind::opened;
  opened.open_count = state_.open_count + 1;
  return append(opened);
}

Status MetadataRing::need(std::uint64_t features) {
  if ((features & ~said_) == 0) return {};
  superblock_.features.incompatible |= features;
  must_roll_ = true;
  return settle();
}

AlignedBuffer MetadataRing::next_record(const JournalRecord& record) const {
  AlignedBuffer lbas(kJournalCopies * superblock_.lba_bytes);
  encode_copies({superblock_.pool, superblock_.checkpoint, last_index_ + 1, 0, 0, record},
                lbas.span());
  return lbas;
}

// And is durable.
void MetadataRing::record_written() {
  written_lbas_ += kJournalCopies;
  ++last_index_;
}

Status MetadataRing::write_record(const JournalRecord& record) {
  AlignedBuffer buffer = next_record(record);
  Status status = write(*queue_, device_->geometry(), active_zone_, written_lbas_, buffer);
  if (status.ok()) status = flush_blocking(*queue_);
  if (status.ok()) record_written();
  return status;
}

bool MetadataRing::is_needed(ZoneId zone) const {
  return std::ranges::find(needed_, zone) != needed_.end();
}

// The first section may have to go behind a damaged one in the active zone; that zone is then
// written last.
Status MetadataRing::repair() {
  JournalRecord nothing;
  nothing.kind = JournalRecord::Kind::formatted;
  const PoolState state = state_;
  Status status;
  for (std::uint32_t i = 0; status.ok() && i <= superblock_.metadata_zones; ++i) {
    status = roll(state, nothing);
  }
  if (status.ok()) damage_.clear();
  return status;
}

Status MetadataRing::assume(PoolState state) {
  FURROW_CHECK(lost_);
  if (!valid_state(state)) return invalid("the pool's zones contradict each other");
  const Status fits = check_fits(state, device_->geometry());
  if (fits.ok()) state_ = std::move(state);
  return fits;
}

Status MetadataRing::rebuild(PoolState state) {
  const Status status = assume(std::move(state));
  if (!status.ok()) return status;
  const Result<std::vector<ZoneInfo>> report = device_->report();
  if (!report.ok()) return report.status();
  const ZoneInfo& active = (*report)[active_zone_.value];
  const std::uint64_t end_lba = active.written_lbas + section_lbas(device_->geometry(), state_);
  if (is_active(active.state) && end_lba <= superblock_.zone_capacity_lbas) {
    needed_.clear();
    for (std::uint32_t i = 0; i < superblock_.metadata_zones; ++i) needed_.push_back(ZoneId{i});
  } else {
    active_zone_ = needed_.front();
  }
  lost_ = false;
  return repair();
}

Status MetadataRing::roll(const PoolState& state, const JournalRecord& record) {
  const Status rolled = roll_somewhere(state, record);
  if (rolled.ok()) end_torn();  // it may have gone elsewhere than where another was torn
  return rolled;
}

// Tries the zones behind the active one in turn; one that is worn out is passed over.
Status MetadataRing::roll_somewhere(const PoolState& state, const JournalRecord& record) {
  Status last;
  for (std::uint32_t step = 1; step <= superblock_.metadata_zones; ++step) {
    const ZoneId zone{(active_zone_.value + step) % superblock_.metadata_zones};
    if (is_needed(zone)) continue;
    last = roll_into(zone, state, record);
    if (last.ok()) return last;
  }
  if (needed_.size() < superblock_.metadata_zones) return last;
  const Result<std::vector<ZoneInfo>> report = device_->report();
  if (!report.ok()) return report.status();
  const std::uint64_t written = (*report)[active_zone_.value].written_lbas;
  return write_section(active_zone_, written, state, record);
}

Status MetadataRing::roll_into(ZoneId zone, const PoolState& state, const JournalRecord& record) {
  Status status = manage_blocking(*queue_, Io::Op::reset, zone);
  // A power cut must not put the new section under the write pointer of the zone's earlier life,
  // nor leave that life beside the active zone, finished.
  if (status.ok()) status = flush_blocking(*queue_);
  if (status.ok()) status = finish_if_active(active_zone_);
  // Nor may it take the section away and the finish with it: the journal would go on, and what is
  // left of the section, of a number that is drawn again then, could come to light under the next
  // one, when that is torn, and take back what was acknowledged in between.
  if (status.ok()) status = flush_blocking(*queue_);
  if (status.ok()) status = write_section(zone, 0, state, record);
  return status;
}

// What was torn is finished as it is. A superblock behind it, of a section that never follows,
// tells it from a section that was whole, and has rotted. Where that cannot be written it is taken
// for one.
void MetadataRing::end_torn() {
  const std::vector<ZoneId> torn = std::exchange(torn_, {});
  for (const ZoneId zone : torn) {
    const ZoneInfo info = device_->zone(zone);
    if (zone == active_zone_ || !is_active(info.state)) continue;
    Superblock superblock = superblock_;
    superblock.checkpoint = next_number_++;
    AlignedBuffer lba(superblock.lba_bytes);
    encode(superblock, lba.span());
    (void)write(*queue_, device_->geometry(), zone, info.written_lbas, lba);
  }
  if (!torn.empty()) finish_others();
}

// A power cut may undo the finish of the zone before the active one, or leave a roll half done in
// the next: neither may keep one of the device's active zones. The latter is rolled into first.
void MetadataRing::finish_others() {
  for (std::uint32_t i = 0; i < superblock_.metadata_zones; ++i) {
    const bool torn = std::ranges::find(torn_, ZoneId{i}) != torn_.end();
    if (ZoneId{i} == active_zone_ || torn) continue;
    const Status status = finish_if_active(ZoneId{i});
    if (status.ok()) continue;
    damage_.push_back(fmt::format("metadata zone {} cannot be finished: {}", i, status.describe()));
  }
}

// One active zone is the ring's share of the device's: the old one gives its place up first.
Status MetadataRing::finish_if_active(ZoneId zone) {
  const Result<std::vector<ZoneInfo>> report = device_->report();
  if (!report.ok()) return report.status();
  if (!is_active((*report)[zone.value].state)) return {};
  if (zone == active_zone_) must_roll_ = true;
  return manage_blocking(*queue_, Io::Op::finish, zone);
}

Status MetadataRing::write_section(ZoneId zone, std::uint64_t at_lba, const PoolState& state,
                                   const JournalRecord& record) {
  if (next_number_ <= superblock_.checkpoint) {  // only what was made so can have come to the end
    return Status(Code::corrupt, Origin::log,
                  "the metadata's numbers are used up; open the pool read-only and copy it");
  }
  Superblock superblock = superblock_;
  superblock.checkpoint = next_number_++;
  const JournalEntry first{superblock_.pool,       superblock.checkpoint, 0,
                           superblock_.checkpoint, last_index_,           record};
  AlignedBuffer data =
      section(superblock, Checkpoint{superblock_.pool, superblock.checkpoint, state}, first);
  const std::uint64_t end_lba = at_lba + data.size() / superblock.lba_bytes;
  if (end_lba > superblock.zone_capacity_lbas) {
    return Status(
        Code::no_space, Origin::log,
        "a damaged metadata zone cannot be replaced; open the pool read-only and copy it");
  }
  Status status = write(*queue_, device_->geometry(), zone, at_lba, data);
  if (status.ok() && !canary(Canary::checkpoint_not_durable)) status = flush_blocking(*queue_);
  if (!status.ok()) return status;
  superblock_ = superblock;
  said_ = superblock.features.incompatible;
  active_zone_ = zone;
  written_lbas_ = end_lba;
  last_index_ = 0;
  must_roll_ = false;
  needed_ = {zone};
  return {};
}

}  // namespace furrow
