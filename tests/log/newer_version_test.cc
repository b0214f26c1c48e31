// Establishes that a pool in whose zones an intact structure is of a newer version is not
// recovered, and that nothing on the medium is changed then, also not in zones that a recovery
// resets or finishes; and that such a structure is nothing, like any other, where it does not
// count: of an earlier life of its zone, another pool or a deleted volume, where all is void, and a
// zone header alone. How: on images of zones; headers and summaries of a sealed and of an open zone
// are given the next version in turn, alone and beside others that are damaged.
#include "tests/log/recovery_rig.h"

namespace furrow {
namespace {

constexpr std::uint32_t kSealed = 2, kOpen = 3;
constexpr std::uint64_t kSummary = 31;  // the last LBA of each zone's first segment

class NewerVersionTest : public RecoveryTest {
 protected:
  void SetUp() override {
    Shape shape;
    shape.open_zones = 8;
    make(shape);
  }
  // A sealed zone, one that is written to, and three that a recovery does not leave as they are.
  void make_images() {
    images_.clear();
    sealed_ = &zone(kSealed, 10);
    for (std::uint64_t segment = 0; segment < 3; ++segment) {
      sealed_->add_batch({sealed_->page(segment, 11 + segment, 600)});
      sealed_->close_segment();
    }
    open_ = &zone(kOpen, 20);
    open_->add_batch({open_->page(11, 21, 600)});
    open_->close_segment();
    open_->add_batch({open_->page(12, 22, 600)});
    later_ = open_->add_batch({open_->page(13, 23, 600)});
    ZoneImage& deleted = zone(4, 30, 99);
    deleted.add_batch({deleted.page(21, 31, 600)});
    zone(5, 40);  // a header alone
    ZoneImage& nobodys = zone(6, 50);
    nobodys.add_batch({nobodys.page(31, 51, 600)});
    nobodys.damage(0);
    nobodys.lba(1)[kPrefixBytes + kStampBytes] ^= std::byte{1};  // its own LBA
    reseal(nobodys.lba(1));
  }
  std::vector<std::vector<std::byte>> media() {
    std::vector<std::vector<std::byte>> zones;
    for (std::uint32_t i = 0; i < shape_.zones; ++i) {
      zones.push_back(read_zone(*device_, ZoneId{i}));
    }
    return zones;
  }
  Status recovered(const RecoveryOptions& options) {
    drop_pool();
    make_pool();
    return recover(*device_, *pool_, options).status();
  }
  // As the images are.
  void expect_refused(const std::vector<std::uint64_t>& volumes = {kVolume}) {
    write_all();
    device_->forget_events();
    const auto before = media();
    for (const bool read_only : {true, false}) {
      RecoveryOptions with = options();
      with.read_only = read_only;
      with.volumes = volumes;
      with.note_trim = [](const ZoneTrim&) {
        ADD_FAILURE() << "a trim was noted";
        return Status();
      };
      const Status status = recovered(with);
      EXPECT_EQ(status.code(), Code::unsupported);
      EXPECT_NE(status.describe().find("newer version"), std::string::npos) << status.describe();
    }
    EXPECT_TRUE(device_->events().empty()) << "but for reads";
    EXPECT_TRUE(media() == before);
  }

  ZoneImage* sealed_ = nullptr;
  ZoneImage* open_ = nullptr;
  std::uint32_t later_ = 0;  // the open zone's last batch
};

TEST_F(NewerVersionTest, WithoutOneZonesAreResetAndFinished) {
  make_images();
  write_all();
  device_->forget_events();
  ASSERT_NO_FATAL_FAILURE(recover_now());
  EXPECT_EQ(device_->count(Io::Op::reset), 2u);
  EXPECT_EQ(device_->count(Io::Op::finish), 1u);
  EXPECT_EQ(found(13), 23u);
}

TEST_F(NewerVersionTest, InASealedZone) {
  struct Case {
    const char* what;
    std::vector<std::uint64_t> newer, damaged;
  };
  const Case cases[] = {
      {"the zone header", {0}, {}},
      {"all of them", {0, 1, kSummary, 32, 63, 64, 95}, {}},
      {"a summary", {kSummary}, {}},
      {"the last segment's summary", {95}, {}},
      {"a batch header and its summary", {1, kSummary}, {}},
      {"a batch header, the summary damaged", {1}, {kSummary}},
      {"a batch header and its summary, the zone header damaged", {1, kSummary}, {0}},
      {"a summary, the zone header damaged", {kSummary}, {0}},
      {"a later summary, the zone header and a batch header damaged", {95}, {0, 1}},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.what);
    make_images();
    for (const std::uint64_t lba : each.newer) sealed_->make_newer(lba);
    for (const std::uint64_t lba : each.damaged) {
      (lba == kSummary ? sealed_->lba(lba).last(kFooterBytes) : sealed_->lba(lba))[50] ^=
          std::byte{1};
    }
    expect_refused();
  }
}

TEST_F(NewerVersionTest, InAnOpenZone) {
  make_images();
  for (const std::uint64_t lba :
       {std::uint64_t{0}, kSummary, std::uint64_t{32}, std::uint64_t{later_}}) {
    SCOPED_TRACE(lba);
    make_images();
    open_->make_newer(lba);
    expect_refused();
  }
  SCOPED_TRACE("found behind damage");
  make_images();
  open_->damage(32);
  open_->make_newer(later_);
  expect_refused();
}

// Whatever is written behind a zone header of a later version is not known, as is how long it is.
TEST_F(NewerVersionTest, InAZoneOfThatVersionAlone) {
  for (const bool damaged : {false, true}) {
    make_images();
    ZoneImage& newer = zone(7, 60);
    newer.add_batch({newer.page(41, 61, 600)});
    newer.make_newer(0);
    newer.make_newer(1);
    if (damaged) newer.damage(0);
    expect_refused();
  }
}

// With one volume it would be that one's.
TEST_F(NewerVersionTest, InTheSummaryThatWouldTellTheOwner) {
  make_images();
  sealed_->damage(0);
  for (const std::uint64_t lba : {kSummary, std::uint64_t{63}, std::uint64_t{95}}) {
    sealed_->make_newer(lba);
  }
  expect_refused({kVolume, 8});
}

TEST_F(NewerVersionTest, OfAnEarlierLifeOrAnotherPoolItIsNothing) {
  make_images();
  // Where an earlier life's batch and summary show behind what this one has written.
  ZoneImage::Shape shape = open_->shape();
  shape.stamp.generation = 5;
  ZoneImage earlier(shape);
  while (earlier.written_lbas() < open_->written_lbas()) {
    earlier.add_batch({earlier.page(51, 6, 600)});
  }
  const std::uint32_t stale = earlier.add_batch({earlier.page(52, 7, 600)});
  earlier.make_newer(stale);
  std::ranges::copy(earlier.lba(stale), open_->lba(open_->written_lbas()).begin());
  open_->set_written(open_->written_lbas() + 1);
  // Another pool's, which would be reset without.
  shape.stamp = {Uuid{1}, ZoneId{7}, 40};
  ZoneImage foreign(shape);
  foreign.add_batch({foreign.page(61, 41, 600)});
  foreign.make_newer(0);
  foreign.make_newer(1);
  foreign.write_to(*device_);
  write_all();
  ASSERT_NO_FATAL_FAILURE(recover_now());
  EXPECT_EQ(found(13), 23u);
  EXPECT_EQ(use(7), ZoneUse::free);
}

TEST_F(NewerVersionTest, WhereNothingCountsItIsNothing) {
  make_images();
  open_->make_newer(later_);
  images_[2]->make_newer(1);  // of a deleted volume
  images_[3]->make_newer(0);  // a header alone
  ZoneImage& cut = zone(7, 60);
  cut.add_batch({cut.page(41, 61, 600)});
  cut.make_newer(0);
  ZoneImage& torn = zone(8, 70);
  torn.add_batch({torn.page(51, 71, 600)});
  torn.damage(0);
  torn.make_newer(1);
  write_all();
  RecoveryOptions with = options();
  with.trims = {{ZoneId{kOpen}, 20, later_}, {ZoneId{7}, 60, 0}, {ZoneId{8}, 70, 1}};
  ASSERT_NO_FATAL_FAILURE(recover_now(with));
  EXPECT_EQ(found(12), 22u);
  EXPECT_EQ(found(13), 0u);
  for (const std::uint32_t reset : {4u, 5u, 7u, 8u}) {
    EXPECT_EQ(info(ZoneId{reset}).written_lbas, 0u) << "zone " << reset;
  }
  // Of another life the trims say nothing.
  make_images();
  sealed_->make_newer(95);
  with.trims = {{ZoneId{kSealed}, 9, 64}};
  write_all();
  EXPECT_EQ(recovered(with).code(), Code::unsupported);
  with.trims = {{ZoneId{kSealed}, 10, 64}};
  ASSERT_NO_FATAL_FAILURE(recover_now(with));
  EXPECT_EQ(found(1), 12u);
}

TEST_F(RecoveryTest, ANewerHeaderAloneInAZoneThatCannotBeResetIsNothing) {
  Shape shape;
  shape.faults = true;
  make(shape);
  zone(2, 10).make_newer(0);
  ZoneImage& other = zone(3, 20);
  other.add_batch({other.page(1, 21, 600)});
  write_all();
  faults_->degrade(ZoneId{2}, ZoneState::read_only);
  ASSERT_NO_FATAL_FAILURE(recover_now());
  EXPECT_EQ(found(1), 21u);
  EXPECT_EQ(use(2), ZoneUse::bad);
}

}  // namespace
}  // namespace furrow
