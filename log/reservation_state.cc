#include "log/reservation_state.h"

#include <algorithm>
#include <functional>

#include "zone/check.h"

namespace furrow {

namespace {

using Host = ReservationRecord::Host;
using Registrant = ReservationRecord::Registrant;

constexpr std::size_t kReservationsCountBytes = 4;
constexpr std::size_t kReservationBytes = 8 + 4 + 2 + 1 + 1 + 16;  // without registrants

bool ascend(const std::vector<Registrant>& registrants) {
  const auto same_or_later = [](const Registrant& a, const Registrant& b) {
    return a.host >= b.host;
  };
  const auto is_nobody = [](const Registrant& registrant) { return registrant.host == Host{}; };
  return std::ranges::adjacent_find(registrants, same_or_later) == registrants.end() &&
         std::ranges::none_of(registrants, is_nobody);
}

bool valid_hold(bool persists, std::uint8_t type, const Host& holder) {
  if (type > ReservationRecord::kTypeMax || (!persists && type != 0)) return false;
  const bool one_holds = type != 0 && type <= ReservationRecord::kTypeOfOneMax;
  return one_holds == (holder != Host{});
}

bool is_kept(const ReservationChange& change, std::size_t i) {
  return (change.kept[i / 8] >> (i % 8) & 1) != 0;
}

void put_host(ByteWriter& writer, const Host& host) {
  writer.put_bytes(std::as_bytes(std::span(host)));
}

void put_registrant(ByteWriter& writer, const Registrant& registrant) {
  put_host(writer, registrant.host);
  writer.put(registrant.key);
}

Registrant take_registrant(ByteReader& reader) {
  Registrant registrant;
  reader.take_into(registrant.host);
  registrant.key = reader.take<std::uint64_t>();
  return registrant;
}

Status reservation_misfit(const char* hint) { return Status(Code::corrupt, Origin::log, hint); }

}  // namespace

bool valid_reservation(const ReservationRecord& record) {
  const std::vector<Registrant>& registrants = record.registrants;
  if (registrants.size() > ReservationRecord::kRegistrantsMax || !ascend(registrants)) return false;
  if (!valid_hold(record.persists, record.type, record.holder)) return false;
  if (record.type == 0) return record.persists || !registrants.empty();
  if (record.holder == Host{}) return !registrants.empty();
  return std::ranges::binary_search(registrants, record.holder, {}, &Registrant::host);
}

bool valid_reservation_change(const ReservationChange& change) {
  return change.put.size() <= ReservationChange::kPutMax && ascend(change.put) &&
         valid_hold(change.persists, change.type, change.holder);
}

std::vector<JournalRecord> reservation_changes(const ReservationRecord* before,
                                               const ReservationRecord& wanted, bool unsure) {
  if (!unsure && (before == nullptr ? !wanted.persists : *before == wanted)) return {};
  JournalRecord next;
  next.kind = JournalRecord::Kind::reservations_changed;
  next.volume.id = wanted.volume;
  ReservationChange& change = next.reservation;
  std::vector<Registrant> added = wanted.persists ? wanted.registrants : std::vector<Registrant>();
  const std::size_t count = before == nullptr ? 0 : before->registrants.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (std::erase(added, before->registrants[i]) != 0) change.kept[i / 8] |= 1u << (i % 8);
  }
  std::vector<JournalRecord> records;
  std::vector<Registrant> there;  // when the next record is met
  for (std::size_t i = 0; i < count; ++i) {
    if (is_kept(change, i)) there.push_back(before->registrants[i]);
  }
  while (added.size() > ReservationChange::kPutMax) {
    const auto end = added.begin() + ReservationChange::kPutMax;
    change.put.assign(added.begin(), end);
    there.insert(there.end(), added.begin(), end);
    added.erase(added.begin(), end);
    records.push_back(next);
    change.kept = {};
    for (std::size_t i = 0; i < there.size(); ++i) change.kept[i / 8] |= 1u << (i % 8);
  }
  change.put = std::move(added);
  change.persists = wanted.persists;
  if (wanted.persists) {
    change.generation = wanted.generation;
    change.type = wanted.type;
    change.holder = wanted.holder;
  }
  records.push_back(next);
  return records;
}

Status apply_reservation_change(std::vector<ReservationRecord>& all, std::uint64_t volume,
                                const ReservationChange& change) {
  const auto at = std::ranges::lower_bound(all, volume, {}, &ReservationRecord::volume);
  const bool there = at != all.end() && at->volume == volume;
  ReservationRecord next{volume,      change.persists, change.generation,
                         change.type, change.holder,   change.put};
  const std::size_t before = there ? at->registrants.size() : 0;
  for (std::size_t i = 0; i < ReservationRecord::kRegistrantsMax; ++i) {
    if (!is_kept(change, i)) continue;
    if (i >= before) return reservation_misfit("a host stays registered that is not");
    next.registrants.push_back(at->registrants[i]);
  }
  std::ranges::sort(next.registrants, {}, &Registrant::host);
  if (!next.persists && next.registrants.empty()) {
    if (there) all.erase(at);
    return {};
  }
  if (!valid_reservation(next))
    return reservation_misfit("a reservation is held by nobody, or a host is twice");
  if (there) {
    *at = std::move(next);
  } else {
    all.insert(at, std::move(next));
  }
  return {};
}

std::size_t reservation_bytes(const std::vector<ReservationRecord>& all) {
  if (all.empty()) return 0;
  std::size_t bytes = kReservationsCountBytes;
  for (const ReservationRecord& record : all) {
    bytes += kReservationBytes + record.registrants.size() * kRegistrantBytes;
  }
  return bytes;
}

void put_reservations(ByteWriter& writer, const std::vector<ReservationRecord>& all) {
  if (all.empty()) return;
  writer.put(static_cast<std::uint32_t>(all.size()));
  for (const ReservationRecord& record : all) {
    writer.put(record.volume);
    writer.put(record.generation);
    writer.put(static_cast<std::uint16_t>(record.registrants.size()));
    writer.put(record.type);
    writer.put(static_cast<std::uint8_t>(record.persists ? 1 : 0));
    put_host(writer, record.holder);
    for (const Registrant& registrant : record.registrants) put_registrant(writer, registrant);
  }
}

bool take_reservations(ByteReader& reader, std::size_t bytes, std::vector<ReservationRecord>& all) {
  if (bytes < kReservationsCountBytes) return true;
  bytes -= kReservationsCountBytes;
  for (auto left = reader.take<std::uint32_t>(); left != 0; --left) {
    if (bytes < kReservationBytes) return false;
    bytes -= kReservationBytes;
    ReservationRecord& record = all.emplace_back();
    record.volume = reader.take<std::uint64_t>();
    record.generation = reader.take<std::uint32_t>();
    const auto registrants = reader.take<std::uint16_t>();
    record.type = reader.take<std::uint8_t>();
    record.persists = reader.take<std::uint8_t>() != 0;
    reader.take_into(record.holder);
    if (bytes < registrants * kRegistrantBytes) return false;
    bytes -= registrants * kRegistrantBytes;
    for (unsigned i = 0; i < registrants; ++i) {
      record.registrants.push_back(take_registrant(reader));
    }
  }
  return true;
}

void put_reservation_change(ByteWriter& writer, const ReservationChange& change) {
  FURROW_CHECK(change.put.size() <= ReservationChange::kPutMax);
  writer.put(change.generation);
  writer.put(change.type);
  writer.put(static_cast<std::uint8_t>(change.persists ? 1 : 0));
  writer.put(static_cast<std::uint8_t>(change.put.size()));
  writer.put_zeroes(1);
  put_host(writer, change.holder);
  writer.put_bytes(std::as_bytes(std::span(change.kept)));
  for (const Registrant& registrant : change.put) put_registrant(writer, registrant);
}

bool take_reservation_change(ByteReader& reader, ReservationChange& change) {
  change.generation = reader.take<std::uint32_t>();
  change.type = reader.take<std::uint8_t>();
  change.persists = reader.take<std::uint8_t>() != 0;
  const auto put = reader.take<std::uint8_t>();
  reader.take_bytes(1);
  reader.take_into(change.holder);
  reader.take_into(change.kept);
  if (put > ReservationChange::kPutMax) return false;
  for (unsigned i = 0; i < put; ++i) change.put.push_back(take_registrant(reader));
  return true;
}

}  // namespace furrow
