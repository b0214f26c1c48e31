// Establishes that what hosts have reserved of volumes comes through the journal and checkpoints as
// it was: between any two states there are records that lead from one to the other, one where few
// hosts are new; they and the states survive their codecs; and what does not fit is refused and
// changes nothing.
#include "log/reservation_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "log/metadata_format.h"
#include "tests/log/random_structures.h"
#include "tests/log/test_seed.h"

namespace furrow {
namespace {

constexpr std::uint64_t kVolume = 3;

class ReservationStateTest : public testing::Test {
 protected:
  ReservationStateTest() {
    VolumeRecord volume;
    volume.id = kVolume;
    volume.name = "shared";
    state_.volumes = {volume};
    state_.next_volume_id = kVolume + 1;
  }
  const ReservationRecord* now() const {
    return state_.reservations.empty() ? nullptr : &state_.reservations.front();
  }
  // As it comes back from the medium.
  JournalRecord through_journal(const JournalRecord& record) {
    JournalEntry entry{random_.uuid(), 7, 3, 0, 0, record, 1};
    std::vector<std::byte> lba(512);
    encode(entry, lba);
    const Result<JournalEntry> back = decode_journal(lba, entry.pool);
    EXPECT_TRUE(back.ok()) << back.status().describe();
    return back.ok() ? back->record : JournalRecord();
  }
  void expect_checkpoint() {
    Checkpoint checkpoint{random_.uuid(), 5, state_};
    const std::size_t bytes = (checkpoint_bytes(state_) + 511) / 512 * 512;
    std::vector<std::byte> lbas(bytes);
    encode(checkpoint, lbas);
    const Result<Checkpoint> back = decode_checkpoint(lbas, checkpoint.pool);
    ASSERT_TRUE(back.ok()) << back.status().describe();
    EXPECT_EQ(back->state, state_);
  }
  std::size_t change_to(const ReservationRecord& wanted) {
    const auto records = reservation_changes(now(), wanted);
    for (const JournalRecord& record : records) {
      const JournalRecord back = through_journal(record);
      EXPECT_EQ(back, record);
      EXPECT_EQ(features_needed(back), kFeatureReservations);
      const bool last = &record == &records.back();
      const Status status = apply(state_, back);
      EXPECT_TRUE(status.ok()) << status.describe();
      EXPECT_TRUE(valid_state(state_));
      EXPECT_TRUE(last || !now()->persists) << "not all of it is there";
    }
    return records.size();
  }
  void expect_refused(const JournalRecord& record) {
    const PoolState before = state_;
    EXPECT_EQ(apply(state_, record).code(), Code::corrupt);
    EXPECT_EQ(state_, before);
  }

  RandomStructures random_{test_seed()};
  PoolState state_;
};

TEST_F(ReservationStateTest, AnyStateLeadsToAnyOther) {
  for (unsigned round = 0; round < 300; ++round) {
    const std::uint64_t hosts = random_.below(2) == 0 ? random_.below(20) : random_.below(257);
    ReservationRecord wanted = random_.reservation(kVolume, hosts);
    const bool alike = now() != nullptr && random_.below(2) == 0;
    if (alike) {  // as a command changes it
      wanted = *now();
      wanted.persists = true;
      wanted.generation++;
      auto& registrants = wanted.registrants;
      const std::uint64_t one_in = 1 + random_.below(4);
      std::erase_if(registrants, [&](const auto&) { return random_.below(one_in) == 0; });
      for (auto& registrant : registrants) {
        if (random_.below(60) == 0) ++registrant.key;
      }
      wanted.type = registrants.empty() ? 0 : static_cast<std::uint8_t>(1 + random_.below(6));
      wanted.holder = {};
      if (wanted.type != 0 && wanted.type <= 4) {
        wanted.holder = registrants[random_.below(registrants.size())].host;
      }
    }
    const std::size_t records = change_to(wanted);
    if (!wanted.persists) {
      ASSERT_EQ(now(), nullptr) << "it counted for nothing";
    } else {
      ASSERT_NE(now(), nullptr);
      ASSERT_EQ(*now(), wanted);
    }
    ASSERT_EQ(features_needed(state_), now() == nullptr ? 0 : kFeatureReservations);
    ASSERT_LE(records, alike ? 2u : 26u);
    ASSERT_NO_FATAL_FAILURE(expect_checkpoint());
    ASSERT_EQ(change_to(wanted), 0u) << "nothing is written for nothing";
  }
}

TEST_F(ReservationStateTest, OneCommandIsOneRecord) {
  ReservationRecord wanted = random_.reservation(kVolume, 256);
  wanted.persists = true;
  wanted.type = 6;
  wanted.holder = {};
  EXPECT_EQ(change_to(wanted), 26u) << "ten hosts each";
  ++wanted.registrants[200].key;
  EXPECT_EQ(change_to(wanted), 1u);
  std::vector<ReservationRecord::Registrant> odd;  // the most scattered of preemptions
  for (std::size_t i = 1; i < 256; i += 2) odd.push_back(wanted.registrants[i]);
  wanted.registrants = odd;
  wanted.type = 1;
  wanted.holder = odd[7].host;
  EXPECT_EQ(change_to(wanted), 1u);
  EXPECT_EQ(*now(), wanted);
  JournalRecord deleted;
  deleted.kind = JournalRecord::Kind::volume_deleted;
  deleted.volume.id = kVolume;
  EXPECT_TRUE(apply(state_, deleted).ok());
  EXPECT_TRUE(state_.reservations.empty()) << "it goes with the volume";
}

TEST_F(ReservationStateTest, WhatDoesNotFitIsRefused) {
  ReservationRecord wanted = random_.reservation(kVolume, 3);
  wanted.persists = true;
  wanted.type = 0;
  wanted.holder = {};
  change_to(wanted);
  JournalRecord good;
  good.kind = JournalRecord::Kind::reservations_changed;
  good.volume.id = kVolume;
  good.reservation.persists = true;
  good.reservation.kept[0] = 7;
  const auto expect_wrong = [&](auto&& spoil) {
    JournalRecord record = good;
    spoil(record);
    expect_refused(record);
  };
  using Record = JournalRecord;
  expect_wrong([](Record& r) { r.volume.id = kVolume + 1; });
  expect_wrong([](Record& r) { r.volume.nsid = 1; });
  expect_wrong([](Record& r) { r.open_count = 1; });
  expect_wrong([](Record& r) { r.reservation.kept[0] = 8; });
  expect_wrong([](Record& r) { r.reservation.kept[31] = 128; });
  expect_wrong([](Record& r) { r.reservation.type = 7; });
  expect_wrong([](Record& r) { r.reservation.type = 1; });
  expect_wrong([](Record& r) { r.reservation.holder[3] = 1; });
  expect_wrong([](Record& r) {  // held by somebody else
    r.reservation.type = 1;
    r.reservation.holder[3] = 1;
  });
  expect_wrong([](Record& r) { r.reservation.put.resize(1); });  // host 0
  expect_wrong([&](Record& r) { r.reservation.put = {wanted.registrants[1]}; });
  expect_wrong([&](Record& r) {
    r.reservation.kept[0] = 1;
    r.reservation.put = {wanted.registrants[2], wanted.registrants[1]};
  });
  expect_wrong([](Record& r) {
    r.reservation.kept[0] = 0;
    r.reservation.type = 5;  // all hold it, and nobody is there
  });
  expect_wrong([](Record& r) {
    r.reservation.persists = false;
    r.reservation.type = 5;
  });
  EXPECT_TRUE(apply(state_, good).ok());
  JournalRecord other;
  other.kind = JournalRecord::Kind::formatted;
  other.reservation.generation = 1;
  expect_refused(other);
  state_.reservations[0].volume = kVolume + 1;
  EXPECT_FALSE(valid_state(state_)) << "of a volume that is not there";
}

}  // namespace
}  // namespace furrow
