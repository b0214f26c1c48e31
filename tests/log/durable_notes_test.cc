// Establishes that DurableNotes puts into the metadata journal which life of a zone is durable and
// how far, and says so in the zone's table; that it writes one note after another, in the order in
// which they were asked for, without waiting for the device; that each is answered once, from a
// later turn, also where the journal answers at once or for somebody else; that an error is told,
// changes nothing and holds up no other note; and that nothing is polled when nothing is asked for.
// How: on a metadata ring on a TapDevice, which is opened anew to see what the journal says.
#include "log/durable_notes.h"

#include <optional>

#include "tests/log/log_rig.h"

namespace furrow {
namespace {

constexpr std::uint32_t kWholeZone = 96;  // its capacity

class DurableNotesTest : public LogRig {
 protected:
  struct Note : DurableNote {
    unsigned answers = 0;
    DurableNotesTest* test = nullptr;
    Note* then = nullptr;  // is asked for from within the answer
  };

  void SetUp() override {
    make({});
    ASSERT_TRUE(MetadataRing::format(*device_, superblock_, PoolState()).ok());
    open_ring();
    for (std::uint32_t zone = 2; zone < 8; ++zone) seal(ZoneId{zone}, 70 + zone);
    device_->forget_events();
  }
  void open_ring(bool read_only = false) {
    notes_.reset();
    journal_.reset();
    Result<MetadataRing> ring = MetadataRing::open(*device_, read_only);
    ASSERT_TRUE(ring.ok()) << ring.status().describe();
    ring_.emplace(std::move(*ring));
    journal_.emplace(pool_->home, *ring_);
    notes_ = std::make_unique<DurableNotes>(*pool_, *journal_);
  }
  void seal(ZoneId zone, std::uint64_t generation) {
    ZoneAllocator::Zone state;
    state.use = ZoneUse::sealed;
    state.owner = kVolume;
    state.generation = generation;
    pool_->allocator.adopt(zone, state);
  }
  Note& note(std::uint32_t zone) {
    asked_.push_back(std::make_unique<Note>());
    Note& made = *asked_.back();
    made.zone = ZoneId{zone};
    made.test = this;
    made.on_noted = [](DurableNote& noted) {
      auto& its = static_cast<Note&>(noted);
      ++its.answers;
      its.test->answered_.push_back(noted.zone.value);
      if (its.then != nullptr) its.test->notes_->request(*its.then);
    };
    return made;
  }
  Note& request(std::uint32_t zone) {
    Note& made = note(zone);
    notes_->request(made);
    EXPECT_EQ(made.answers, 0u) << "never from within";
    return made;
  }
  bool durable(std::uint32_t zone) const { return pool_->tables[zone].durable; }
  // What an opening finds in the journal.
  std::vector<ZoneTrimRecord> journal() {
    const Result<MetadataRing> ring = MetadataRing::open(*device_, true);
    EXPECT_TRUE(ring.ok()) << ring.status().describe();
    EXPECT_TRUE(ring->damage().empty());
    return ring->state().trims;
  }
  static ZoneTrimRecord durable_to(std::uint32_t zone, std::uint32_t end_lba) {
    return {zone, end_lba, 70 + zone, true};
  }

  std::optional<MetadataRing> ring_;
  std::optional<JournalQueue> journal_;
  std::unique_ptr<DurableNotes> notes_;
  std::vector<std::unique_ptr<Note>> asked_;
  std::vector<std::uint32_t> answered_;  // zones, in order
};

TEST_F(DurableNotesTest, WhatTheNextOpeningIsToKnowStaysInTheJournal) {
  pool_->tables[2].evicted = true;
  pool_->tables[3].unverified = true;
  request(2);
  note(3).aside = true;
  notes_->request(*asked_.back());
  run();
  EXPECT_TRUE(durable(2));
  EXPECT_FALSE(durable(3)) << "it may be torn";
  EXPECT_EQ(journal(), (std::vector<ZoneTrimRecord>{{2, kWholeZone, 72, true, true},
                                                    {3, kWholeZone, 73, false, true}}));
}

TEST_F(DurableNotesTest, TheJournalAndTheTableSayThatTheZoneIsDurable) {
  pool_->tables[3].end_lba = 40;  // what is behind it was cut off before
  const Note& whole = request(2);
  const Note& cut = request(3);
  EXPECT_TRUE(run());
  EXPECT_EQ(whole.answers, 1u);
  EXPECT_EQ(cut.answers, 1u);
  EXPECT_TRUE(whole.status.ok() && cut.status.ok());
  EXPECT_TRUE(durable(2) && durable(3));
  EXPECT_FALSE(durable(4));
  EXPECT_EQ(pool_->tables[3].end_lba, 40u);
  EXPECT_EQ(journal(), (std::vector{durable_to(2, kWholeZone), durable_to(3, 40)}));
}

TEST_F(DurableNotesTest, OneAfterAnotherAndNobodyWaitsForTheDevice) {
  device_->hold(Io::Op::flush);
  for (const std::uint32_t zone : {5u, 2u, 4u}) request(zone);
  for (std::size_t written = 1; written <= 3; ++written) {
    EXPECT_TRUE(run());
    ASSERT_EQ(device_->count(Io::Op::write), written) << "the next one waits";
    ASSERT_EQ(device_->count(Io::Op::flush), written);
    ASSERT_EQ(answered_.size(), written - 1) << "not before its record is flushed";
    EXPECT_EQ(durable(2), written > 2);
    device_->let_one_go(Io::Op::flush, 0);
  }
  device_->let_go(Io::Op::flush);
  EXPECT_TRUE(run());
  EXPECT_EQ(answered_, (std::vector<std::uint32_t>{5, 2, 4}));
  EXPECT_EQ(device_->count(Io::Op::write), 3u);
  EXPECT_EQ(journal().size(), 3u);
}

TEST_F(DurableNotesTest, WhoIsAnsweredMayAskAgain) {
  Note& first = request(2);
  request(3);
  first.then = &note(4);        // behind the one that waits
  first.then->then = &note(5);  // when none does
  EXPECT_TRUE(run());
  EXPECT_EQ(answered_, (std::vector<std::uint32_t>{2, 3, 4, 5}));
  EXPECT_EQ(journal().size(), 4u);
}

// The ring then writes the record, in a section of its own, before begin() returns.
TEST_F(DurableNotesTest, TheAnswerComesFromALaterTurnAlsoWhenTheRingRolls) {
  unsigned at_once = 0;
  for (unsigned i = 0; i < 100; ++i) {
    const std::uint64_t before = ring_->superblock().checkpoint;
    const Note& asked = request(2 + i % 6);
    const bool rolled = ring_->superblock().checkpoint != before;
    at_once += rolled ? 1 : 0;
    EXPECT_FALSE(durable(2 + i % 6));
    EXPECT_TRUE(run());
    ASSERT_EQ(asked.answers, 1u);
    ASSERT_TRUE(asked.status.ok()) << asked.status.describe();
    pool_->tables[2 + i % 6].durable = false;
  }
  EXPECT_GE(at_once, 2u);
  EXPECT_EQ(journal().size(), 6u);
}

TEST_F(DurableNotesTest, WhoAppendsToTheJournalMeanwhileAnswersNobody) {
  const Note& first = request(2);
  const Note& second = request(3);
  JournalRecord opened;
  opened.open_count = 1;
  ASSERT_TRUE(ring_->append(opened).ok()) << "it comes behind the one that was begun";
  EXPECT_EQ(ring_->state().trims, std::vector{durable_to(2, kWholeZone)});
  EXPECT_EQ(first.answers + second.answers, 0u);
  EXPECT_FALSE(durable(2));
  EXPECT_TRUE(run());
  EXPECT_EQ(answered_, (std::vector<std::uint32_t>{2, 3}));
  EXPECT_EQ(journal().size(), 2u);
}

TEST_F(DurableNotesTest, AnErrorIsToldAndTheNextOneGoesOn) {
  for (const Io::Op op : {Io::Op::write, Io::Op::flush}) {
    device_->fail(op, {Code::io_error, Origin::zone});
    const Note& bad = request(2);
    const Note& good = request(3);
    EXPECT_TRUE(run());
    EXPECT_EQ(bad.answers, 1u);
    EXPECT_EQ(bad.status.code(), Code::io_error);
    EXPECT_FALSE(durable(2));
    EXPECT_EQ(good.answers, 1u);
    EXPECT_TRUE(good.status.ok()) << good.status.describe();
    EXPECT_TRUE(durable(3));
    EXPECT_EQ(journal(), std::vector{durable_to(3, kWholeZone)});
    pool_->tables[3].durable = false;
  }
  request(2);
  EXPECT_TRUE(run());
  EXPECT_TRUE(durable(2)) << "asked for once more";
  EXPECT_EQ(journal().size(), 2u);
}

TEST_F(DurableNotesTest, ARingThatIsReadOnlyRefuses) {
  open_ring(true);
  const Note& refused = request(2);
  EXPECT_TRUE(run());
  EXPECT_EQ(refused.answers, 1u);
  EXPECT_EQ(refused.status.code(), Code::permission);
  EXPECT_FALSE(durable(2));
}

TEST_F(DurableNotesTest, TheRingIsPolledOnlyWhileSomethingIsAskedFor) {
  request(2);
  EXPECT_TRUE(run());
  struct Begun : MetadataRing::Pending {
    bool done = false;
  } begun;
  begun.record.open_count = 1;
  begun.on_done = [](MetadataRing::Pending& pending) { static_cast<Begun&>(pending).done = true; };
  ring_->begin(begun);
  EXPECT_TRUE(run());
  EXPECT_FALSE(begun.done) << "the home executor still polls the ring";
  while (!begun.done) ring_->poller().poll();
  EXPECT_TRUE(begun.status.ok());
}

TEST_F(DurableNotesTest, ItIsNotToGoWhileSomethingIsAskedFor) {
  EXPECT_DEATH(
      {
        request(2);
        notes_.reset();
      },
      "first_ == nullptr");
}

}  // namespace
}  // namespace furrow
