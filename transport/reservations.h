// Reservations: which hosts have registered with one namespace, who holds a reservation on it, and
// what each host may therefore do there (Base specification 2.0, 8.19). With Persist Through Power
// Loss all of it is kept in the pool (record()); without, a namespace begins without registrants
// when the target starts.
//
// A host is its Host Identifier; all its controllers count as one. Pure, and a value: a copy is a
// snapshot. Threads: one at a time for what changes it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "log/format.h"

namespace furrow::transport {

using HostId = ReservationRecord::Host;

// The group of a command (8.19, "Command Behavior in the Presence of a Reservation").
enum class Access : std::uint8_t { none, read, write };
// Of an I/O command, by command set (CSI) and opcode; unknown ones: none.
Access access_of(std::uint8_t csi, std::uint8_t opcode);

class Reservations {
 public:
  static constexpr std::size_t kRegistrantsMax = ReservationRecord::kRegistrantsMax;

  // RTYPE.
  enum class Type : std::uint8_t {
    none,
    write_exclusive,
    exclusive_access,
    write_exclusive_registrants,   // "Registrants Only": one holds it, all may use it
    exclusive_access_registrants,  //
    write_exclusive_all,           // "All Registrants": all hold it
    exclusive_access_all,
  };
  // RREGA, RACQA and RRELA.
  enum class Enrolment : std::uint8_t { enrol, leave, replace };
  enum class Acquisition : std::uint8_t { acquire, preempt, preempt_and_abort };
  enum class Surrender : std::uint8_t { release, clear };

  using Registrant = ReservationRecord::Registrant;
  // What the controllers of a host are to be told of: the type of a log page.
  enum class Notice : std::uint8_t {
    registration_preempted = 1,
    reservation_released = 2,
    reservation_preempted = 3,
  };
  struct Notification {
    HostId host{};
    Notice notice = Notice::registration_preempted;
  };
  struct Outcome {
    std::uint16_t status = 0;  // as in nvme::sc; what failed has changed nothing
    std::vector<Notification> notifications;
  };

  Reservations() = default;
  // What record() told; a record that does not persist: nothing.
  explicit Reservations(const ReservationRecord& record);

  // Reservation Register. `ignore_key` (IEKEY): `current` does not have to be the host's key.
  // kInternalError: there are kRegistrantsMax already.
  Outcome enrol(const HostId& host, Enrolment action, bool ignore_key, std::uint64_t current,
                std::uint64_t next);
  // Reservation Acquire. `type` is not none. Aborting commands is the caller's.
  Outcome acquire(const HostId& host, Acquisition action, Type type, std::uint64_t current,
                  std::uint64_t preempted);
  // Reservation Release.
  Outcome release(const HostId& host, Surrender action, Type type, std::uint64_t current);

  // Persist Through Power Loss (CPTPL, and the feature Reservation Persistence).
  void set_persists(bool persists) { persists_ = persists; }
  bool persists() const { return persists_; }
  // What is to outlive the target, as of `volume`: nothing, unless it persists.
  ReservationRecord record(std::uint64_t volume) const;

  bool allows(const HostId& host, Access access) const;
  bool held() const { return type_ != Type::none; }
  Type type() const { return type_; }
  bool holds(const HostId& host) const;
  std::uint32_t generation() const { return generation_; }                     // GEN
  const std::vector<Registrant>& registrants() const { return registrants_; }  // by host

 private:
  bool all_hold() const {
    return type_ == Type::write_exclusive_all || type_ == Type::exclusive_access_all;
  }
  std::size_t place_of(const HostId& host) const;
  const Registrant* find(const HostId& host) const;
  bool has_key(const HostId& host, std::uint64_t key) const;
  Outcome add(const HostId& host, std::uint64_t key);
  Outcome preempt(const HostId& host, Type type, std::uint64_t preempted);
  template <class Leaves>
  std::uint32_t remove(const HostId& by, Notice notice, Outcome& outcome, Leaves leaves);
  void take(const HostId& host, Type type);
  void drop();
  void tell_others(const HostId& by, Outcome& outcome) const;

  std::vector<Registrant> registrants_;
  Type type_ = Type::none;
  HostId holder_{};  // of a type that one host holds
  std::uint32_t generation_ = 0;
  bool persists_ = false;
};

}  // namespace furrow::transport
