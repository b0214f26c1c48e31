// Establishes what reservations mean: what each type lets each kind of host do (the table of the
// specification, written out), and what every Register, Acquire and Release does in every state
// that three hosts can bring about, compared with a second statement of the rules as sets. How:
// the class alone; all states are walked, from each one every command of every host is tried.
#include "transport/reservations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>

#include "log/reservation_state.h"
#include "transport/nvme.h"

namespace furrow::transport {
namespace {

namespace sc = nvme::sc;
using Type = Reservations::Type;
using Enrolment = Reservations::Enrolment;
using Acquisition = Reservations::Acquisition;
using Surrender = Reservations::Surrender;
using Notice = Reservations::Notice;
using Keys = std::map<unsigned, std::uint64_t>;

constexpr unsigned kHosts = 3;
constexpr std::uint64_t kKeys = 2;  // 0, which Preempt takes for "all", and 1
constexpr Type kTypes[] = {Type::write_exclusive,
                           Type::exclusive_access,
                           Type::write_exclusive_registrants,
                           Type::exclusive_access_registrants,
                           Type::write_exclusive_all,
                           Type::exclusive_access_all};

HostId host(unsigned number) {
  HostId id{};
  id[15] = static_cast<std::uint8_t>(number + 1);
  return id;
}
unsigned number_of(const HostId& id) { return id[15] - 1u; }

bool all_hold(Type type) {
  return type == Type::write_exclusive_all || type == Type::exclusive_access_all;
}
bool registrants_only(Type type) {
  return type == Type::write_exclusive_registrants || type == Type::exclusive_access_registrants;
}

// What a subsystem knows, and all that can be seen of it.
struct State {
  Keys keys;
  Type type = Type::none;
  std::set<unsigned> holders;
  auto operator<=>(const State&) const = default;
};

State seen(const Reservations& reservations) {
  State state;
  state.type = reservations.type();
  for (const auto& registrant : reservations.registrants()) {
    state.keys[number_of(registrant.host)] = registrant.key;
  }
  for (unsigned i = 0; i < kHosts; ++i) {
    if (reservations.holds(host(i))) state.holders.insert(i);
  }
  return state;
}

struct Command {
  enum class Opcode { enrol, acquire, release } opcode;
  unsigned by;
  unsigned action;
  bool ignore;
  Type type;
  std::uint64_t current, other;
};

// The rules once more.
struct Expected {
  std::uint16_t status = sc::kSuccess;
  State after;
  std::map<unsigned, Notice> told;
  bool counts = false;
};

Expected refuse(const State& before, std::uint16_t status) { return {status, before, {}, false}; }

void unregister(State& state, const std::set<unsigned>& gone) {
  for (const unsigned one : gone) {
    state.keys.erase(one);
    state.holders.erase(one);
  }
  if (state.holders.empty()) state.type = Type::none;
}

std::set<unsigned> with_key(const State& state, std::uint64_t key) {
  std::set<unsigned> out;
  for (const auto& [number, its] : state.keys) {
    if (its == key) out.insert(number);
  }
  return out;
}

void tell(Expected& expected, const std::set<unsigned>& whom, unsigned by, Notice notice) {
  for (const unsigned one : whom) {
    if (one != by) expected.told.emplace(one, notice);
  }
}

std::set<unsigned> registered(const State& state) {
  std::set<unsigned> out;
  for (const auto& [number, its] : state.keys) out.insert(number);
  return out;
}

Expected enrolled(const State& before, const Command& command) {
  Expected out{sc::kSuccess, before, {}, true};
  const bool known = before.keys.contains(command.by);
  const bool matches = known && (command.ignore || before.keys.at(command.by) == command.current);
  switch (static_cast<Enrolment>(command.action)) {
    case Enrolment::enrol:
      if (known && before.keys.at(command.by) != command.other) {
        return refuse(before, sc::kReservationConflict);
      }
      break;
    case Enrolment::replace:
      if (!matches && !(command.ignore && !known)) {
        return refuse(before, sc::kReservationConflict);
      }
      break;
    case Enrolment::leave:
      if (!matches) return refuse(before, sc::kReservationConflict);
      unregister(out.after, {command.by});
      if (registrants_only(before.type) && out.after.type == Type::none) {
        tell(out, registered(out.after), command.by, Notice::reservation_released);
      }
      return out;
  }
  out.after.keys[command.by] = command.other;
  if (all_hold(before.type)) out.after.holders.insert(command.by);
  return out;
}

void hold(State& state, unsigned by, Type type) {
  state.type = type;
  state.holders = all_hold(type) ? registered(state) : std::set<unsigned>{by};
}

Expected preempted(const State& before, const Command& command) {
  Expected out{sc::kSuccess, before, {}, true};
  const std::set<unsigned> named = with_key(before, command.other);
  const bool one_holds = before.type != Type::none && !all_hold(before.type);
  const bool of_holder = one_holds && named.contains(*before.holders.begin());
  const bool everybody = all_hold(before.type) && command.other == 0;
  if (of_holder || everybody) {
    std::set<unsigned> gone = everybody ? registered(before) : named;
    gone.erase(command.by);
    hold(out.after, command.by, command.type);
    unregister(out.after, gone);
    tell(out, gone, command.by, Notice::registration_preempted);
    if (before.type != command.type) {
      tell(out, registered(out.after), command.by, Notice::reservation_released);
    }
    return out;
  }
  if (one_holds && command.other == 0) return refuse(before, sc::kInvalidField);
  if (named.empty()) return refuse(before, sc::kReservationConflict);
  unregister(out.after, named);
  tell(out, named, command.by, Notice::registration_preempted);
  return out;
}

Expected acquired(const State& before, const Command& command) {
  if (!with_key(before, command.current).contains(command.by)) {
    return refuse(before, sc::kReservationConflict);
  }
  if (command.action != 0) return preempted(before, command);
  Expected out{sc::kSuccess, before, {}, false};
  if (before.type == Type::none) {
    hold(out.after, command.by, command.type);
  } else if (before.type != command.type || !before.holders.contains(command.by)) {
    return refuse(before, sc::kReservationConflict);
  }
  return out;
}

Expected released(const State& before, const Command& command) {
  if (!with_key(before, command.current).contains(command.by)) {
    return refuse(before, sc::kReservationConflict);
  }
  Expected out{sc::kSuccess, before, {}, false};
  if (static_cast<Surrender>(command.action) == Surrender::clear) {
    tell(out, registered(before), command.by, Notice::reservation_preempted);
    out.after = State();
    out.counts = true;
    return out;
  }
  if (!before.holders.contains(command.by)) return out;
  if (before.type != command.type) return refuse(before, sc::kInvalidField);
  out.after.type = Type::none;
  out.after.holders.clear();
  if (registrants_only(before.type) || all_hold(before.type)) {
    tell(out, registered(before), command.by, Notice::reservation_released);
  }
  return out;
}

Expected expected(const State& before, const Command& command) {
  switch (command.opcode) {
    case Command::Opcode::enrol:
      return enrolled(before, command);
    case Command::Opcode::acquire:
      return acquired(before, command);
    default:
      return released(before, command);
  }
}

Reservations::Outcome run(Reservations& reservations, const Command& command) {
  switch (command.opcode) {
    case Command::Opcode::enrol:
      return reservations.enrol(host(command.by), static_cast<Enrolment>(command.action),
                                command.ignore, command.current, command.other);
    case Command::Opcode::acquire:
      return reservations.acquire(host(command.by), static_cast<Acquisition>(command.action),
                                  command.type, command.current, command.other);
    default:
      return reservations.release(host(command.by), static_cast<Surrender>(command.action),
                                  command.type, command.current);
  }
}

std::vector<Command> all_commands() {
  std::vector<Command> commands;
  for (unsigned by = 0; by < kHosts; ++by) {
    for (unsigned action = 0; action < 3; ++action) {
      for (std::uint64_t keys = 0; keys < kKeys * kKeys; ++keys) {
        const std::uint64_t current = keys / kKeys, other = keys % kKeys;
        for (const bool ignore : {false, true}) {
          commands.push_back(
              {Command::Opcode::enrol, by, action, ignore, Type::none, current, other});
        }
        for (const Type type : kTypes) {
          commands.push_back({Command::Opcode::acquire, by, action, false, type, current, other});
          if (action == 2 || other != 0) continue;
          commands.push_back({Command::Opcode::release, by, action, false, type, current, 0});
        }
      }
    }
  }
  return commands;
}

// False: they differ, and it is said how.
bool check(const Reservations& before, const Command& command, const Reservations& after,
           const Reservations::Outcome& outcome) {
  const Expected wanted = expected(seen(before), command);
  std::map<unsigned, Notice> told;
  for (const auto& notification : outcome.notifications) {
    told.emplace(number_of(notification.host), notification.notice);
  }
  EXPECT_EQ(outcome.status, wanted.status);
  EXPECT_EQ(seen(after), wanted.after);
  EXPECT_EQ(told, wanted.told);
  EXPECT_EQ(told.size(), outcome.notifications.size()) << "somebody is told twice";
  EXPECT_EQ(after.generation() - before.generation(), wanted.counts ? 1u : 0u);
  if (!::testing::Test::HasFailure()) return true;
  ADD_FAILURE() << "opcode " << static_cast<int>(command.opcode) << " host " << command.by
                << " action " << command.action << " ignore " << command.ignore << " type "
                << static_cast<int>(command.type) << " keys " << command.current << ", "
                << command.other << " with type " << static_cast<int>(before.type());
  return false;
}

TEST(Reservations, EveryCommandInEveryState) {
  const std::vector<Command> commands = all_commands();
  std::map<State, Reservations> known{{State(), Reservations()}};
  std::deque<Reservations> todo{Reservations()};
  std::set<std::uint16_t> statuses;
  while (!todo.empty()) {
    const Reservations before = todo.front();
    todo.pop_front();
    for (const Command& command : commands) {
      Reservations after = before;
      const Reservations::Outcome outcome = run(after, command);
      statuses.insert(outcome.status);
      ASSERT_TRUE(check(before, command, after, outcome));
      if (known.emplace(seen(after), after).second) todo.push_back(after);
    }
  }
  // Each host registered with one of the keys or not, none holding, or one (four types), or all.
  std::size_t states = 0;
  for (unsigned count = 0; count <= kHosts; ++count) {
    const std::size_t choose[] = {1, 3, 3, 1}, keys[] = {1, 2, 4, 8};
    states += choose[count] * keys[count] * (1 + 4 * count + (count == 0 ? 0 : 2));
  }
  EXPECT_EQ(known.size(), states);
  EXPECT_EQ(statuses,
            (std::set<std::uint16_t>{sc::kSuccess, sc::kInvalidField, sc::kReservationConflict}));
}

// In every state as well, and there every command does what it did before.
TEST(Reservations, WhatIsKeptIsAllOfThem) {
  const std::vector<Command> commands = all_commands();
  std::map<State, Reservations> known{{State(), Reservations()}};
  std::deque<Reservations> todo{Reservations()};
  while (!todo.empty()) {
    Reservations before = todo.front();
    todo.pop_front();
    EXPECT_EQ(before.record(7), Reservations().record(7)) << "nothing of it persists";
    before.set_persists(true);
    const ReservationRecord record = before.record(7);
    ASSERT_TRUE(valid_reservation(record));
    const Reservations restored(record);
    ASSERT_EQ(seen(restored), seen(before));
    ASSERT_TRUE(restored.persists());
    ASSERT_EQ(restored.generation(), before.generation());
    before.set_persists(false);
    for (const Command& command : commands) {
      Reservations after = before, after_restored = restored;
      const Reservations::Outcome outcome = run(after, command);
      ASSERT_EQ(run(after_restored, command).status, outcome.status);
      ASSERT_EQ(seen(after_restored), seen(after));
      if (known.emplace(seen(after), after).second) todo.push_back(after);
    }
  }
  EXPECT_GT(known.size(), 200u);
  EXPECT_EQ(seen(Reservations(ReservationRecord())), State());
}

// Base specification 2.0, figure "Command Behavior in the Presence of a Reservation".
TEST(Reservations, WhoMayDoWhat) {
  struct Row {
    Type type;
    bool stranger_reads, stranger_writes, registrant_reads, registrant_writes;
  };
  constexpr Row kRows[] = {
      {Type::write_exclusive, true, false, true, false},
      {Type::exclusive_access, false, false, false, false},
      {Type::write_exclusive_registrants, true, false, true, true},
      {Type::exclusive_access_registrants, false, false, true, true},
      {Type::write_exclusive_all, true, false, true, true},
      {Type::exclusive_access_all, false, false, true, true},
  };
  const HostId holder = host(0), registrant = host(1), stranger = host(2);
  for (const Row& row : kRows) {
    Reservations reservations;
    for (const HostId& one : {holder, registrant, stranger}) {
      EXPECT_TRUE(reservations.allows(one, Access::write));
    }
    ASSERT_EQ(reservations.enrol(registrant, Enrolment::enrol, false, 0, 2).status, 0);
    ASSERT_EQ(reservations.enrol(holder, Enrolment::enrol, false, 0, 1).status, 0);
    EXPECT_TRUE(reservations.allows(stranger, Access::write)) << "registrants alone forbid nothing";
    ASSERT_EQ(reservations.acquire(holder, Acquisition::acquire, row.type, 1, 0).status, 0);
    const auto allowed = [&](const HostId& one) {
      EXPECT_TRUE(reservations.allows(one, Access::none));
      return std::pair(reservations.allows(one, Access::read),
                       reservations.allows(one, Access::write));
    };
    const int type = static_cast<int>(row.type);
    EXPECT_EQ(allowed(holder), std::pair(true, true)) << type;
    EXPECT_EQ(allowed(registrant), std::pair(row.registrant_reads, row.registrant_writes)) << type;
    EXPECT_EQ(allowed(stranger), std::pair(row.stranger_reads, row.stranger_writes)) << type;
  }
}

TEST(Reservations, EveryCommandHasItsGroup) {
  using enum Access;
  const std::map<std::uint8_t, Access> nvm{{0x00, write}, {0x01, write}, {0x02, read},
                                           {0x05, read},  {0x08, write}, {0x09, write}};
  const std::map<std::uint8_t, Access> zns{{0x00, write}, {0x01, write}, {0x02, read},
                                           {0x79, write}, {0x7A, read},  {0x7D, write}};
  const std::map<std::uint8_t, Access> kv{{0x00, write}, {0x01, write}, {0x02, read},
                                          {0x06, read},  {0x10, write}, {0x14, read}};
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    const auto code = static_cast<std::uint8_t>(opcode);
    const auto group = [code](const auto& table) {
      return table.contains(code) ? table.at(code) : none;
    };
    EXPECT_EQ(access_of(nvme::csi::kNvm, code), group(nvm)) << opcode;
    EXPECT_EQ(access_of(nvme::csi::kZoned, code), group(zns)) << opcode;
    EXPECT_EQ(access_of(nvme::csi::kKv, code), group(kv)) << opcode;
  }
}

TEST(Reservations, RegistrantsAreBounded) {
  Reservations reservations;
  const auto id = [](unsigned number) {
    HostId out{};
    out[3] = static_cast<std::uint8_t>(number >> 8);
    out[9] = static_cast<std::uint8_t>(number * 37);
    return out;
  };
  for (unsigned i = 0; i < Reservations::kRegistrantsMax; ++i) {
    ASSERT_EQ(reservations.enrol(id(i), Enrolment::enrol, false, 0, i).status, sc::kSuccess) << i;
  }
  for (const auto action : {Enrolment::enrol, Enrolment::replace}) {
    EXPECT_EQ(reservations.enrol(id(256), action, true, 0, 1).status, sc::kInternalError);
  }
  EXPECT_EQ(reservations.generation(), Reservations::kRegistrantsMax);
  EXPECT_EQ(reservations.enrol(id(7), Enrolment::leave, false, 7, 0).status, sc::kSuccess);
  EXPECT_EQ(reservations.enrol(id(256), Enrolment::enrol, false, 0, 1).status, sc::kSuccess);
  EXPECT_TRUE(std::is_sorted(reservations.registrants().begin(), reservations.registrants().end(),
                             [](const auto& a, const auto& b) { return a.host < b.host; }));
}

}  // namespace
}  // namespace furrow::transport
