// The page log's streams: which one a record goes to, and who may have the zones that are left.
#include <algorithm>

#include "log/page_log.h"

namespace furrow {

namespace {
// Streams by lifetime are folded when fewer zones are left than these, or than a 16th.
constexpr std::uint64_t kZonesLeftMax = 2, kZonesLeftShare = 16;
}  // namespace

// Those that may have a zone that is partly written.
std::uint64_t PageLog::users_streams() const {
  std::uint64_t streams = 0;
  for (unsigned number = kUserStream; number <= kStreamMax; ++number) {
    if (users_stream(number) != nullptr && !is_put_away(number)) ++streams;
  }
  return streams;
}

std::uint64_t PageLog::users_streams_made() const {
  std::uint64_t streams = 0;
  for (unsigned number = kUserStream; number <= kStreamMax; ++number) {
    if (users_stream(number) != nullptr) ++streams;
  }
  return streams;
}

bool PageLog::is_put_away(unsigned number) const {
  const Stream& stream = *streams_[number];
  return folded_[number] && !stream.has_zone() && !stream.waits_for_zone();
}

// A zone more that is partly written is room that pages have not got.
bool PageLog::room_for_streams() const {
  return used_bytes() <= usable_bytes(options_.value_bytes_max, zones_max() - 1) / 4 * 3;
}

bool PageLog::grant_stream(std::uint8_t number) {
  if (options_.cache || !options_.grant_stream) return false;
  if (!options_.grant_stream(number, room_for_streams())) return false;
  make_stream(number);
  zones_changed();
  return true;
}

bool PageLog::unfold(std::uint8_t number) {
  if (!room_for_streams()) return false;
  folded_.reset(number);
  zones_changed();
  return true;
}

// Room is short: before pages are refused, all lifetimes go together, and their zones are ended, so
// that what these have left can be collected.
void PageLog::fold_streams() {
  const std::uint64_t quota = pool_.allocator.quota(options_.volume);
  const std::uint64_t left = std::min(kZonesLeftMax, quota / kZonesLeftShare);
  const std::uint64_t bytes = used_bytes() + left * pool_.geometry.zone_capacity_bytes();
  if (options_.cache || bytes <= usable_bytes(largest_bytes_)) return;
  for (unsigned number = kShortStream; number <= kStreamMax; ++number) {
    Stream* const stream = streams_[number].get();
    if (stream == nullptr) continue;
    folded_.set(number);
    if (stream->idle() && stream->can_end_zone()) stream->end_zone();
  }
  if (quota >= kZonesMin) stats_.usable_bytes = usable_bytes(options_.value_bytes_max);
}

// The longest lifetime goes with the long one where it has none of its own.
Stream& PageLog::stream_of(const PageRecord& record, Lifetime lifetime) {
  if (record.kind == RecordKind::tombstone) return fallback();
  const auto own = [this](std::uint8_t number) {
    if (streams_[number] == nullptr) return grant_stream(number);
    return !folded_[number] || unfold(number);
  };
  if (record.expires_s != 0) lifetime = Lifetime::short_term;
  if (lifetime == Lifetime::short_term && own(kShortStream)) return *streams_[kShortStream];
  if (lifetime == Lifetime::extreme && own(kExtremeStream)) return *streams_[kExtremeStream];
  const bool is_long = lifetime == Lifetime::long_term || lifetime == Lifetime::extreme;
  return is_long && own(kLongStream) ? *streams_[kLongStream] : user_stream();
}

// Where there is room when no more zones can be taken.
Stream& PageLog::fallback() const {
  for (unsigned number = kUserStream; number <= kStreamMax; ++number) {
    Stream* const stream = users_stream(number);
    if (stream != nullptr && stream->room_lbas() != 0) return *stream;
  }
  return user_stream();
}

bool PageLog::any_stream(bool (*test)(const Stream&)) const {
  return std::ranges::any_of(streams_, [&](const auto& stream) { return stream && test(*stream); });
}

bool PageLog::filled_unflushed() const {
  return any_stream([](const Stream& stream) { return stream.filled_unflushed(); });
}

void PageLog::flush_filled() {
  for (const auto& stream : streams_) {
    if (stream) stream->flush_filled();
  }
}

// The last zone of the quota is for relocation alone: a zone can then always be emptied. So is what
// may be held beyond the quota.
bool PageLog::may_open_zone(bool relocation) {
  collector_->kick();
  return relocation ? !at_quota() : pool_.allocator.held(options_.volume) + 1 < zones_max();
}

bool PageLog::at_quota() const {
  return pool_.allocator.held(options_.volume) >= pool_.allocator.held_max(options_.volume);
}

// A zone that collection wrote to when the power was cut cannot be gone on with. With no zone left
// to take instead, what the user's zone has left must do.
Stream& PageLog::relocation_stream() {
  return collection_stream() && !without_reserve() ? *collection_stream() : fallback();
}

bool PageLog::relocations_stranded() const {
  return at_quota() &&
         any_stream([](const Stream& stream) { return stream.relocations_wait_for_zone(); });
}

void PageLog::reroute_relocations() {
  if (!relocations_stranded()) return;
  Stream& other = fallback();
  for (const auto& stream : streams_) {
    const bool stranded = stream && stream->relocations_wait_for_zone();
    if (stranded && stream.get() != &other) stream->hand_relocations_to(other);
  }
  if (!other.relocations_wait_for_zone()) return;
  other.fail_relocations({Code::no_space, Origin::log, "no zone is left to move pages to"});
}

// What is left of the user's zone, for as long as copies into it can free another one. When they
// cannot, deletes may use it: they are what helps then.
bool PageLog::kept_for_copies() const {
  const bool none = collector_->found_nothing() && !collector_->exhausted();  // to be made
  return without_reserve() && !none && !left_for_deletions();
}

bool PageLog::left_for_deletions() const {
  return collector_->exhausted() && collector_->unreadable_for_long() &&
         collector_->room_beside_copies();
}

// Collection's zone takes deletions, which had no other, while it is not the last of the quota; and
// then too when what keeps the next zone from being freed cannot be read, perhaps for good. Not
// before it has been so for a while: with copies alone the last zone can be given back, be it that
// the device or a power cut ends it; with a deletion in it nothing could be written any more.
bool PageLog::kept_from_users(const Stream& stream) const {
  if (frees_for_quota()) return true;
  return &stream == collection_stream() ? kept_from_deletions() : kept_for_copies();
}

bool PageLog::kept_from_deletions() const { return at_quota() && !left_for_deletions(); }

bool PageLog::may_write_user(const Stream& stream) {
  // Deletes may have made copying possible, or it waits for what is kept from being written.
  if (without_reserve() || frees_for_quota()) collector_->kick();
  return !kept_from_users(stream);
}

// Something waits that only a zone set free can let go on.
bool PageLog::stuck(const Stream& stream) const {
  return stream.waits_for_zone() || (stream.has_waiting_user() && kept_from_users(stream));
}

const PageRecord* PageLog::waiting_deletion() const {
  for (const auto& stream : streams_) {
    const PageRecord* record = stream ? stream->waiting_deletion() : nullptr;
    if (record != nullptr) return record;
  }
  return nullptr;
}

bool PageLog::hand_deletions_to_collection() {
  Stream* const to = collection_stream();
  const PageRecord* first = waiting_deletion();
  if (to == nullptr || first == nullptr || kept_from_deletions() || !to->can_take(*first))
    return false;
  for (const auto& stream : streams_) {
    if (stream && stream.get() != to) stream->hand_deletions_to(*to);
  }
  return true;
}

}  // namespace furrow
