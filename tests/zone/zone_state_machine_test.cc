// Establishes that ZoneStateMachine follows the Zoned Namespace rules: every state x action, over
// all write pointers, LBA ranges, MOR and MAR limits and resource counts of a small device, beside
// a table that is written down here row by row and shares nothing with the implementation.
#include "zone/zone_state_machine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace furrow {
namespace {

using S = ZoneState;
using A = ZoneAction;
constexpr S kStates[] = {S::empty, S::implicitly_open, S::explicitly_open, S::closed, S::read_only,
                         S::full,  S::offline};

// Management: what each action makes of each state. "open+" takes an open resource, "active+" also
// an active one; "-" gives back what the state holds.
struct Row {
  S from;
  A action;
  std::uint16_t status;
  S to;
  int open, active;  // change, when it succeeds
};
constexpr std::uint16_t kBF = 0x1BF;
constexpr Row kRows[] = {
    {S::empty, A::open, 0, S::explicitly_open, +1, +1},
    {S::implicitly_open, A::open, 0, S::explicitly_open, 0, 0},
    {S::explicitly_open, A::open, 0, S::explicitly_open, 0, 0},
    {S::closed, A::open, 0, S::explicitly_open, +1, 0},
    {S::read_only, A::open, kBF, S::read_only, 0, 0},
    {S::full, A::open, kBF, S::full, 0, 0},
    {S::offline, A::open, kBF, S::offline, 0, 0},

    {S::empty, A::close, kBF, S::empty, 0, 0},
    {S::implicitly_open, A::close, 0, S::closed, -1, 0},
    {S::explicitly_open, A::close, 0, S::closed, -1, 0},
    {S::closed, A::close, 0, S::closed, 0, 0},
    {S::read_only, A::close, kBF, S::read_only, 0, 0},
    {S::full, A::close, kBF, S::full, 0, 0},
    {S::offline, A::close, kBF, S::offline, 0, 0},

    {S::empty, A::finish, 0, S::full, 0, 0},
    {S::implicitly_open, A::finish, 0, S::full, -1, -1},
    {S::explicitly_open, A::finish, 0, S::full, -1, -1},
    {S::closed, A::finish, 0, S::full, 0, -1},
    {S::read_only, A::finish, kBF, S::read_only, 0, 0},
    {S::full, A::finish, 0, S::full, 0, 0},
    {S::offline, A::finish, kBF, S::offline, 0, 0},

    {S::empty, A::reset, 0, S::empty, 0, 0},
    {S::implicitly_open, A::reset, 0, S::empty, -1, -1},
    {S::explicitly_open, A::reset, 0, S::empty, -1, -1},
    {S::closed, A::reset, 0, S::empty, 0, -1},
    {S::read_only, A::reset, kBF, S::read_only, 0, 0},
    {S::full, A::reset, 0, S::empty, 0, 0},
    {S::offline, A::reset, kBF, S::offline, 0, 0},

    {S::empty, A::set_offline, kBF, S::empty, 0, 0},
    {S::implicitly_open, A::set_offline, kBF, S::implicitly_open, 0, 0},
    {S::explicitly_open, A::set_offline, kBF, S::explicitly_open, 0, 0},
    {S::closed, A::set_offline, kBF, S::closed, 0, 0},
    {S::read_only, A::set_offline, 0, S::offline, 0, 0},
    {S::full, A::set_offline, kBF, S::full, 0, 0},
    {S::offline, A::set_offline, 0, S::offline, 0, 0},
};

constexpr std::uint64_t kSize = 8, kCapacity = 6, kAppendMax = 3;
constexpr std::uint32_t kZones = 3;

Geometry geometry(std::uint32_t mor, std::uint32_t mar) {
  Geometry made;
  made.zone_count = kZones;
  made.zone_size_lbas = kSize;
  made.zone_capacity_lbas = kCapacity;
  made.append_lbas_max = kAppendMax;
  made.open_zones_max = mor;
  made.active_zones_max = mar;
  return made;
}

struct Case {
  std::uint32_t mor, mar;
  ZoneView view;
  ZoneUsage usage;
  ZoneRequest request;
  std::string text() const {
    return "mor " + std::to_string(mor) + " mar " + std::to_string(mar) + " " +
           to_string(view.state) + " written " + std::to_string(view.written_lbas) + " open " +
           std::to_string(usage.open) + " active " + std::to_string(usage.active) + " implicit " +
           std::to_string(usage.implicitly_open) + " action " +
           std::to_string(static_cast<int>(request.action)) + " lba " +
           std::to_string(request.lba.value) + " count " + std::to_string(request.lba_count);
  }
};

void expect_unchanged(const Case& c, const ZoneDecision& got) {
  EXPECT_EQ(got.state, c.view.state) << c.text();
  EXPECT_EQ(got.written_lbas, c.view.written_lbas) << c.text();
  EXPECT_EQ(got.open_delta, 0) << c.text();
  EXPECT_EQ(got.active_delta, 0) << c.text();
  EXPECT_FALSE(got.close_one_first) << c.text();
}

// The status that the resources demand when `open` and `active` more are needed.
std::uint16_t resource_status(const Case& c, int open, int active) {
  if (active > 0 && c.mar != 0 && c.usage.active + 1 > c.mar) return 0x1BD;
  if (open > 0 && c.mor != 0 && c.usage.open + 1 > c.mor && c.usage.implicitly_open == 0) {
    return 0x1BE;
  }
  return 0;
}
bool must_close_one(const Case& c, int open) {
  return open > 0 && c.mor != 0 && c.usage.open + 1 > c.mor;
}

void check_management(const Case& c) {
  const auto row = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& each) {
    return each.from == c.view.state && each.action == c.request.action;
  });
  ASSERT_NE(row, std::end(kRows));
  const ZoneDecision got =
      ZoneStateMachine(geometry(c.mor, c.mar)).decide(c.view, c.usage, c.request);
  const std::uint16_t want =
      row->status != 0 ? row->status : resource_status(c, row->open, row->active);
  ASSERT_EQ(got.status, want) << c.text();
  if (want != 0) return expect_unchanged(c, got);
  EXPECT_EQ(got.state, row->to) << c.text();
  EXPECT_EQ(got.open_delta, row->open) << c.text();
  EXPECT_EQ(got.active_delta, row->active) << c.text();
  EXPECT_EQ(got.close_one_first, must_close_one(c, row->open)) << c.text();
  if (row->to == S::empty) {
    EXPECT_EQ(got.written_lbas, 0u) << c.text();
  } else if (row->to == S::full) {
    if (row->from != S::full) {
      EXPECT_EQ(got.written_lbas, kCapacity) << c.text();
    }
  } else {
    EXPECT_EQ(got.written_lbas, c.view.written_lbas) << c.text();
  }
}

// Reads and writes: the checks in their order; the first that applies names the status.
void check_transfer(const Case& c) {
  const A action = c.request.action;
  const std::uint64_t start = c.view.zone.value * kSize;
  const std::uint64_t first =
      action == A::append ? start + c.view.written_lbas : c.request.lba.value;
  const std::uint64_t count = c.request.lba_count;
  const S state = c.view.state;
  std::uint16_t want = 0;
  const auto rule = [&](bool applies, std::uint16_t status) {
    if (want == 0 && applies) want = status;
  };
  const bool writes = action != A::read;
  const int open = state == S::empty || state == S::closed ? 1 : 0;
  const int active = state == S::empty ? 1 : 0;
  rule(c.request.lba.value + count > kZones * kSize, 0x080);
  rule(action == A::append && (c.request.lba.value != start || count > kAppendMax), 0x002);
  rule(writes && state == S::full, 0x1B9);
  rule(writes && state == S::read_only, 0x1BA);
  rule(state == S::offline, 0x1BB);
  rule(action == A::write && first != start + c.view.written_lbas, 0x1BC);
  rule(writes && first + count > start + kCapacity, 0x1B8);
  rule(!writes && first + count > start + kSize, 0x1B8);
  rule(writes, resource_status(c, open, active));
  const ZoneDecision got =
      ZoneStateMachine(geometry(c.mor, c.mar)).decide(c.view, c.usage, c.request);
  ASSERT_EQ(got.status, want) << c.text();
  if (want != 0 || !writes) return expect_unchanged(c, got);
  const std::uint64_t written = c.view.written_lbas + count;
  const bool full = written == kCapacity;
  EXPECT_EQ(got.written_at, c.view.written_lbas) << c.text();
  EXPECT_EQ(got.written_lbas, written) << c.text();
  EXPECT_EQ(got.state, full                          ? S::full
                       : state == S::explicitly_open ? S::explicitly_open
                                                     : S::implicitly_open)
      << c.text();
  EXPECT_EQ(got.open_delta, open - (full ? 1 : 0)) << c.text();
  EXPECT_EQ(got.active_delta, active - (full ? 1 : 0)) << c.text();
  EXPECT_EQ(got.close_one_first, must_close_one(c, open)) << c.text();
}

// Calls `check` for all limits, states, write pointers and consistent resource counts.
template <class Check>
void for_each_situation(Check check) {
  for (std::uint32_t mar = 0; mar <= 3; ++mar) {
    for (std::uint32_t mor = 0; mor <= 3; ++mor) {
      for (const S state : kStates) {
        const bool self_open = state == S::implicitly_open || state == S::explicitly_open;
        const bool self_active = self_open || state == S::closed;
        const std::uint64_t wp_max = state == S::full ? 0 : kCapacity - 1;
        for (std::uint64_t written = 0; written <= (state == S::empty ? 0 : wp_max); ++written) {
          for (std::uint32_t active = self_active; active <= 3; ++active) {
            for (std::uint32_t open = self_open; open <= active; ++open) {
              for (std::uint32_t implicit = state == S::implicitly_open; implicit <= open;
                   ++implicit) {
                if (state == S::explicitly_open && implicit == open) continue;
                if (state == S::closed && open == active) continue;
                check(Case{mor, mar, {ZoneId{1}, state, written}, {open, active, implicit}, {}});
              }
            }
          }
        }
      }
    }
  }
}

TEST(ZoneStateMachine, ManagementFollowsTheTable) {
  std::uint64_t cases = 0;
  for_each_situation([&](Case c) {
    for (const A action : {A::open, A::close, A::finish, A::reset, A::set_offline}) {
      c.request = {action, {}, 0};
      check_management(c);
      ++cases;
    }
  });
  EXPECT_GT(cases, 5000u);
}

TEST(ZoneStateMachine, TransfersFollowTheOrderOfChecks) {
  std::uint64_t cases = 0;
  for_each_situation([&](Case c) {
    for (const A action : {A::read, A::write, A::append}) {
      // From the zone's start to beyond the device's end. (The zone is the one of the LBA.)
      for (std::uint64_t offset = 0; offset < kSize; ++offset) {
        for (std::uint64_t count = 1; count <= 2 * kSize + 1; ++count) {
          c.request = {action, Lba{kSize + offset}, count};
          check_transfer(c);
          ++cases;
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  });
  EXPECT_GT(cases, 500'000u);
}

TEST(ZoneStateMachine, HugeRangesDoNotWrapAround) {
  const ZoneStateMachine machine(geometry(0, 0));
  for (const A action : {A::read, A::write, A::append}) {
    const ZoneRequest request{action, Lba{~std::uint64_t{0} - 1}, 8};
    EXPECT_EQ(machine.decide({}, {}, request).status, 0x080);
    EXPECT_EQ(machine.decide({}, {}, {action, Lba{1}, ~std::uint64_t{0}}).status, 0x080);
  }
}

TEST(ZoneStateMachine, PowerLossClosesOpenZones) {
  for_each_situation([](Case c) {
    c.request = {A::power_loss, {}, 0};
    const ZoneDecision got =
        ZoneStateMachine(geometry(c.mor, c.mar)).decide(c.view, c.usage, c.request);
    ASSERT_EQ(got.status, 0) << c.text();
    const bool open = c.view.state == S::implicitly_open || c.view.state == S::explicitly_open;
    if (open || c.view.state == S::closed) {
      const bool data = c.view.written_lbas != 0;
      EXPECT_EQ(got.state, data ? S::closed : S::empty) << c.text();
      EXPECT_EQ(got.written_lbas, c.view.written_lbas) << c.text();
      EXPECT_EQ(got.open_delta, open ? -1 : 0) << c.text();
      EXPECT_EQ(got.active_delta, data ? 0 : -1) << c.text();
    } else {
      expect_unchanged(c, got);
    }
  });
}

TEST(ZoneStateMachine, SelectAllActsOnTheStatesOfTheSpecification) {
  const auto selected = [](A action) {
    std::string letters;
    for (const S state : kStates) {
      letters += ZoneStateMachine::selected_by_all(action, state) ? '1' : '0';
    }
    return letters;
  };
  // empty, implicitly open, explicitly open, closed, read only, full, offline
  EXPECT_EQ(selected(A::open), "0001000");
  EXPECT_EQ(selected(A::close), "0110000");
  EXPECT_EQ(selected(A::finish), "0111000");
  EXPECT_EQ(selected(A::reset), "0111010");
  EXPECT_EQ(selected(A::set_offline), "0000100");
  EXPECT_EQ(selected(A::read), "0000000");
}

TEST(ZoneStateMachine, OpenAllOpensAllOrNone) {
  const ZoneStateMachine machine(geometry(2, 3));
  EXPECT_EQ(machine.check_all(A::open, {0, 2, 0}, 2), 0);
  EXPECT_EQ(machine.check_all(A::open, {1, 3, 1}, 2), 0);  // the implicitly open one gives way
  EXPECT_EQ(machine.check_all(A::open, {1, 3, 0}, 2), 0x1BE);
  EXPECT_EQ(machine.check_all(A::open, {0, 3, 0}, 3), 0x1BE);
  EXPECT_EQ(machine.check_all(A::reset, {2, 3, 0}, 3), 0);
  EXPECT_EQ(ZoneStateMachine(geometry(0, 0)).check_all(A::open, {0, 3, 0}, 3), 0);
}

TEST(ZoneStateMachine, EachStatusHasAHint) {
  for (const std::uint16_t status :
       {0x002, 0x080, 0x1B8, 0x1B9, 0x1BA, 0x1BB, 0x1BC, 0x1BD, 0x1BE, 0x1BF}) {
    const Status made = zone_status(status);
    EXPECT_FALSE(made.ok());
    EXPECT_EQ(made.nvme(), status);
    EXPECT_NE(std::string(made.hint()), "");
  }
  EXPECT_TRUE(zone_status(0).ok());
}

}  // namespace
}  // namespace furrow
