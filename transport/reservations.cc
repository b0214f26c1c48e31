#include "transport/reservations.h"

#include <algorithm>

#include "transport/nvme.h"

namespace furrow::transport {

namespace sc = nvme::sc;

namespace {

Access nvm_access(std::uint8_t opcode) {
  switch (opcode) {
    case nvme::nvm::kRead:
    case nvme::nvm::kCompare:
      return Access::read;
    case nvme::nvm::kFlush:
    case nvme::nvm::kWrite:
    case nvme::nvm::kWriteZeroes:
    case nvme::nvm::kDatasetManagement:
      return Access::write;
    default:
      return Access::none;
  }
}

Access zns_access(std::uint8_t opcode) {
  switch (opcode) {
    case nvme::nvm::kRead:
    case nvme::zns::kManagementReceive:
      return Access::read;
    case nvme::nvm::kFlush:
    case nvme::nvm::kWrite:
    case nvme::zns::kAppend:
    case nvme::zns::kManagementSend:
      return Access::write;
    default:
      return Access::none;
  }
}

Access kv_access(std::uint8_t opcode) {
  switch (opcode) {
    case nvme::kv::kRetrieve:
    case nvme::kv::kList:
    case nvme::kv::kExist:
      return Access::read;
    case nvme::kv::kFlush:
    case nvme::kv::kStore:
    case nvme::kv::kDelete:
      return Access::write;
    default:
      return Access::none;
  }
}

Reservations::Outcome refused(std::uint16_t status) { return {status, {}}; }

}  // namespace

Access access_of(std::uint8_t csi, std::uint8_t opcode) {
  switch (csi) {
    case nvme::csi::kNvm:
      return nvm_access(opcode);
    case nvme::csi::kZoned:
      return zns_access(opcode);
    default:
      return kv_access(opcode);
  }
}

static_assert(ReservationRecord::kTypeMax ==
              static_cast<std::uint8_t>(Reservations::Type::exclusive_access_all));
static_assert(ReservationRecord::kTypeOfOneMax ==
              static_cast<std::uint8_t>(Reservations::Type::exclusive_access_registrants));

Reservations::Reservations(const ReservationRecord& record) {
  if (!record.persists) return;
  registrants_ = record.registrants;
  type_ = static_cast<Type>(record.type);
  holder_ = record.holder;
  generation_ = record.generation;
  persists_ = true;
}

ReservationRecord Reservations::record(std::uint64_t volume) const {
  ReservationRecord record;
  record.volume = volume;
  if (!persists_) return record;
  record.persists = true;
  record.generation = generation_;
  record.type = static_cast<std::uint8_t>(type_);
  if (!all_hold()) record.holder = holder_;
  record.registrants = registrants_;
  return record;
}

// Where the host stands, or would stand.
std::size_t Reservations::place_of(const HostId& host) const {
  const auto at = std::lower_bound(
      registrants_.begin(), registrants_.end(), host,
      [](const Registrant& registrant, const HostId& id) { return registrant.host < id; });
  return static_cast<std::size_t>(at - registrants_.begin());
}

const Reservations::Registrant* Reservations::find(const HostId& host) const {
  const std::size_t place = place_of(host);
  const bool is_there = place < registrants_.size() && registrants_[place].host == host;
  return is_there ? &registrants_[place] : nullptr;
}

bool Reservations::has_key(const HostId& host, std::uint64_t key) const {
  const Registrant* registrant = find(host);
  return registrant != nullptr && registrant->key == key;
}

bool Reservations::holds(const HostId& host) const {
  if (!held()) return false;
  return all_hold() ? find(host) != nullptr : holder_ == host;
}

bool Reservations::allows(const HostId& host, Access access) const {
  if (!held() || access == Access::none) return true;
  const bool excludes_reads = type_ == Type::exclusive_access ||
                              type_ == Type::exclusive_access_registrants ||
                              type_ == Type::exclusive_access_all;
  if (access == Access::read && !excludes_reads) return true;
  const bool one = type_ == Type::write_exclusive || type_ == Type::exclusive_access;
  return one ? holder_ == host : find(host) != nullptr;
}

void Reservations::take(const HostId& host, Type type) {
  type_ = type;
  holder_ = host;
}

void Reservations::drop() {
  type_ = Type::none;
  holder_ = {};
}

// Of a reservation that is no more, or another one now.
void Reservations::tell_others(const HostId& by, Outcome& outcome) const {
  for (const Registrant& registrant : registrants_) {
    if (registrant.host == by) continue;
    outcome.notifications.push_back({registrant.host, Notice::reservation_released});
  }
}

// The registrants that `leaves` names are none any longer, and what they held alone is released;
// how many they were.
template <class Leaves>
std::uint32_t Reservations::remove(const HostId& by, Notice notice, Outcome& outcome,
                                   Leaves leaves) {
  const auto gone = std::erase_if(registrants_, [&](const Registrant& registrant) {
    if (!leaves(registrant)) return false;
    if (registrant.host != by) outcome.notifications.push_back({registrant.host, notice});
    return true;
  });
  if (held() && (all_hold() ? registrants_.empty() : find(holder_) == nullptr)) drop();
  return static_cast<std::uint32_t>(gone);
}

Reservations::Outcome Reservations::add(const HostId& host, std::uint64_t key) {
  if (registrants_.size() == kRegistrantsMax) return refused(sc::kInternalError);
  registrants_.insert(registrants_.begin() + static_cast<std::ptrdiff_t>(place_of(host)),
                      {host, key});
  ++generation_;
  return {};
}

// 8.19.3 and 8.19.4.
Reservations::Outcome Reservations::enrol(const HostId& host, Enrolment action, bool ignore_key,
                                          std::uint64_t current, std::uint64_t next) {
  const Registrant* known = find(host);
  if (action == Enrolment::enrol) {
    if (known == nullptr) return add(host, next);
    if (known->key != next) return refused(sc::kReservationConflict);
    ++generation_;
    return {};
  }
  // With IEKEY a key is replaced whether there was one or not.
  if (known == nullptr && action == Enrolment::replace && ignore_key) return add(host, next);
  if (known == nullptr || (!ignore_key && known->key != current)) {
    return refused(sc::kReservationConflict);
  }
  ++generation_;
  if (action == Enrolment::replace) {
    registrants_[place_of(host)].key = next;
    return {};
  }
  Outcome outcome;
  const Type type = type_;
  remove(host, Notice::registration_preempted, outcome,
         [&](const Registrant& registrant) { return registrant.host == host; });
  const bool registrants_used_it =
      type == Type::write_exclusive_registrants || type == Type::exclusive_access_registrants;
  if (!held() && registrants_used_it) tell_others(host, outcome);
  return outcome;
}

// 8.19.5.
Reservations::Outcome Reservations::acquire(const HostId& host, Acquisition action, Type type,
                                            std::uint64_t current, std::uint64_t preempted) {
  if (!has_key(host, current)) return refused(sc::kReservationConflict);
  if (action != Acquisition::acquire) {
    Outcome outcome = preempt(host, type, preempted);
    if (outcome.status == sc::kSuccess) ++generation_;
    return outcome;
  }
  if (!held()) {
    take(host, type);
    return {};
  }
  return holds(host) && type_ == type ? Outcome() : refused(sc::kReservationConflict);
}

// 8.19.7. A key is not one host's: several may have registered the same.
Reservations::Outcome Reservations::preempt(const HostId& host, Type type,
                                            std::uint64_t preempted) {
  Outcome outcome;
  constexpr Notice kNotice = Notice::registration_preempted;
  if (all_hold() && preempted == 0) {
    take(host, type);  // before the others go, so that it is not released
    remove(host, kNotice, outcome, [&](const Registrant& one) { return one.host != host; });
    return outcome;
  }
  if (held() && !all_hold()) {
    if (has_key(holder_, preempted)) {
      const bool changes = type_ != type;
      take(host, type);
      remove(host, kNotice, outcome,
             [&](const Registrant& one) { return one.key == preempted && one.host != host; });
      if (changes) tell_others(host, outcome);
      return outcome;
    }
    if (preempted == 0) return refused(sc::kInvalidField);
  }
  const std::uint32_t gone =
      remove(host, kNotice, outcome, [&](const Registrant& one) { return one.key == preempted; });
  return gone != 0 ? outcome : refused(sc::kReservationConflict);
}

// 8.19.6 and 8.19.8.
Reservations::Outcome Reservations::release(const HostId& host, Surrender action, Type type,
                                            std::uint64_t current) {
  if (!has_key(host, current)) return refused(sc::kReservationConflict);
  Outcome outcome;
  if (action == Surrender::clear) {
    drop();
    remove(host, Notice::reservation_preempted, outcome, [](const Registrant&) { return true; });
    ++generation_;
    return outcome;
  }
  if (!holds(host)) return {};
  if (type_ != type) return refused(sc::kInvalidField);
  drop();
  if (type != Type::write_exclusive && type != Type::exclusive_access) tell_others(host, outcome);
  return outcome;
}

}  // namespace furrow::transport
