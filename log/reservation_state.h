// The part of a pool's state that is reservations: what makes a record valid, how it changes, and
// its codecs within checkpoints and journal records. Decoders take any bytes. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "log/codec.h"
#include "log/format.h"

namespace furrow {

// Registrants ascend by host, none is zero, and there are kRegistrantsMax at most; who holds the
// reservation is one of them. What does not persist yet is held by nobody.
bool valid_reservation(const ReservationRecord& record);
bool valid_reservation_change(const ReservationChange& change);

// The journal records that lead from `before` (null: there is none) to `wanted`, which is valid;
// none where they are the same, but one all the same where `unsure`, as another one that could not
// be written may be there. With kPutMax new registrants and less it is one record, else what the
// ones before the last leave does not persist. Where `wanted` does not, nothing is left of it.
std::vector<JournalRecord> reservation_changes(const ReservationRecord* before,
                                               const ReservationRecord& wanted,
                                               bool unsure = false);
// Of the volume. corrupt: it does not fit; nothing was changed then.
Status apply_reservation_change(std::vector<ReservationRecord>& all, std::uint64_t volume,
                                const ReservationChange& change);

// In a checkpoint: nothing where there are none, else with their number.
std::size_t reservation_bytes(const std::vector<ReservationRecord>& all);
void put_reservations(ByteWriter& writer, const std::vector<ReservationRecord>& all);
// `bytes`: that are left. False: fewer than are listed.
bool take_reservations(ByteReader& reader, std::size_t bytes, std::vector<ReservationRecord>& all);

// In a journal record.
constexpr std::size_t kRegistrantBytes = 16 + 8;
constexpr std::size_t kReservationChangeBytes = 4 + 4 + 16 +
                                                ReservationRecord::kRegistrantsMax / 8 +
                                                ReservationChange::kPutMax * kRegistrantBytes;
void put_reservation_change(ByteWriter& writer, const ReservationChange& change);
bool take_reservation_change(ByteReader& reader, ReservationChange& change);  // false: too many

}  // namespace furrow
