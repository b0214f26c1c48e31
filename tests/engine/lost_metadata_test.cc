// Establishes what a pool makes of metadata that is older than its zones, because both copies of
// the journal's last record are gone: no zone of a volume that it has not heard of is reset, a
// repair lists that volume again, and sequences and generations of lost openings are not drawn
// again. And that one copy is enough, that trims go with their zones, and that a geometry that
// cannot hold its largest checkpoint is refused. LBAs of a pool in memory are changed, or cannot be
// read.
#include <functional>

#include "engine/page_store_impl.h"
#include "log/metadata_ring.h"
#include "log/structure.h"
#include "tests/engine/rig.h"
#include "zone/blocking.h"
#include "zone/fault_device.h"

namespace furrow::testing::lost_metadata_test {
namespace {

constexpr std::uint32_t kLbaBytes = 4096;
constexpr std::uint64_t kKeys = 300;
constexpr std::size_t kPageBytes = 8000;

class LostMetadataTest : public ::testing::Test {
 protected:
  void make() {
    VolumeOptions options;
    options.name = "pages";
    options.mode = VolumeMode::store;
    options.value_bytes_max = 64 << 10;
    ASSERT_NO_FATAL_FAILURE(rig_.make(options));
  }
  void put_all(std::uint64_t version) {
    for (std::uint64_t key = 0; key < kKeys; ++key) {
      ASSERT_TRUE(rig_.put(key, version, kPageBytes).ok());
    }
    PageOp flush;
    flush.kind = PageOp::Kind::flush;
    ASSERT_TRUE(rig_.run(flush).ok());
  }
  void expect_all(std::uint64_t version) {
    for (std::uint64_t key = 0; key < kKeys; ++key) {
      const auto page = rig_.get(key);
      ASSERT_TRUE(page.ok()) << key << ": " << page.status().describe();
      ASSERT_EQ(*page, content(key, version, kPageBytes)) << key;
    }
  }
  // Rewrites a metadata zone with `change` applied to its contents.
  void change_zone(ZoneId zone, const std::function<void(std::span<std::byte>)>& change) {
    const Geometry& geometry = rig_.device->geometry();
    const ZoneInfo info = (*rig_.device->report())[zone.value];
    auto queue = rig_.device->create_queue(4);
    ASSERT_TRUE(queue.ok());
    AlignedBuffer all(info.written_lbas * kLbaBytes);
    Io io;
    io.op = Io::Op::read;
    io.lba = geometry.zone_start(zone);
    io.set_data(all.data(), static_cast<std::uint32_t>(info.written_lbas), kLbaBytes);
    ASSERT_TRUE(run_blocking(**queue, io).ok());
    change(all.span());
    ASSERT_TRUE(manage_blocking(**queue, Io::Op::reset, zone).ok());
    io = Io();
    io.op = Io::Op::write;
    io.zone = zone;
    io.lba = geometry.zone_start(zone);
    io.set_data(all.data(), static_cast<std::uint32_t>(info.written_lbas), kLbaBytes);
    ASSERT_TRUE(run_blocking(**queue, io).ok());
  }
  // The metadata zone that the journal is in: the ring has not rolled since the pool was made.
  static constexpr ZoneId kActive{1};
  void rot_last_record(unsigned copies) {
    change_zone(kActive, [&](std::span<std::byte> lbas) {
      for (unsigned copy = 1; copy <= copies; ++copy) {
        const auto lba = lbas.subspan(lbas.size() - copy * kLbaBytes, kLbaBytes);
        ASSERT_TRUE(has_magic(lba, Magic::journal));
        lba[60] ^= std::byte{1};
      }
    });
  }
  CheckReport check() {
    EXPECT_NO_FATAL_FAILURE(rig_.open(true));
    const auto report = rig_.pool->check({});
    EXPECT_TRUE(report.ok()) << report.status().describe();
    rig_.close();
    return report.ok() ? *report : CheckReport();
  }
  Status open_status() { return Pool::open(*rig_.device, rig_.loop, {}).status(); }
  std::uint64_t data_lbas() {
    std::uint64_t lbas = 0;
    for (const ZoneInfo& zone : *rig_.device->report()) {
      if (zone.zone.value > kActive.value) lbas += zone.written_lbas;
    }
    return lbas;
  }

  Rig rig_{"mem:32MiB?zone_size=2MiB"};
};

// The record is that of the volume's creation: one copy of it is enough. That the other one is not
// whole may be a power cut's doing.
TEST_F(LostMetadataTest, OneCopyOfTheLastRecord) {
  ASSERT_NO_FATAL_FAILURE(make());
  ASSERT_NO_FATAL_FAILURE(put_all(1));
  rig_.close();
  ASSERT_NO_FATAL_FAILURE(rot_last_record(1));
  const CheckReport found = check();
  EXPECT_TRUE(found.clean());
  ASSERT_EQ(found.notes.size(), 1u);
  EXPECT_NE(found.notes[0].find("torn or damaged"), std::string::npos) << found.notes[0];
  ASSERT_NO_FATAL_FAILURE(rig_.open());
  ASSERT_NO_FATAL_FAILURE(expect_all(1));
  rig_.close();
  EXPECT_TRUE(check().notes.empty()) << "opening has rolled the ring";
  ASSERT_NO_FATAL_FAILURE(rig_.open());
  ASSERT_NO_FATAL_FAILURE(expect_all(1));
}

TEST_F(LostMetadataTest, AnUnknownVolumeIsKeptAndListedAgain) {
  ASSERT_NO_FATAL_FAILURE(make());
  ASSERT_NO_FATAL_FAILURE(put_all(1));
  rig_.close();
  ASSERT_NO_FATAL_FAILURE(rot_last_record(2));
  const std::uint64_t before = data_lbas();
  EXPECT_EQ(open_status().code(), Code::corrupt);
  EXPECT_EQ(data_lbas(), before) << "nothing was reset";
  const CheckReport found = check();
  ASSERT_EQ(found.damage.size(), 1u);
  EXPECT_EQ(found.damage.front().volume.value_or(0), 1u);
  ASSERT_EQ(repair_plan(found).size(), 1u);
  const auto repaired = Pool::repair(*rig_.device, rig_.loop);
  ASSERT_TRUE(repaired.ok()) << repaired.status().describe();
  for (const std::string& line : repaired->failed) ADD_FAILURE() << line;
  EXPECT_EQ(repaired->done.size(), 1u);
  EXPECT_TRUE(check().clean());
  ASSERT_NO_FATAL_FAILURE(rig_.open());
  ASSERT_NE(rig_.pool->find("recovered-1"), nullptr);
  ASSERT_NO_FATAL_FAILURE(expect_all(1));
  ASSERT_NO_FATAL_FAILURE(put_all(2));
  rig_.reopen();
  ASSERT_NO_FATAL_FAILURE(expect_all(2));
}

TEST_F(LostMetadataTest, NorDoesItTakeTheNameOfAnother) {
  ASSERT_NO_FATAL_FAILURE(make());
  VolumeOptions options = rig_.store->info().options;
  options.nsid = 0;
  options.quota_bytes = 8 << 20;
  ASSERT_TRUE(rig_.pool->delete_volume("pages").ok());
  for (const char* name : {"recovered-3", "pages"}) {
    options.name = name;
    ASSERT_TRUE(rig_.pool->create_volume(options).ok());
  }
  rig_.store = rig_.pool->find("pages");
  ASSERT_EQ(rig_.store->info().id, 3u);
  ASSERT_NO_FATAL_FAILURE(put_all(1));
  rig_.close();
  ASSERT_NO_FATAL_FAILURE(rot_last_record(2));
  const auto repaired = Pool::repair(*rig_.device, rig_.loop);
  ASSERT_TRUE(repaired.ok()) << repaired.status().describe();
  for (const std::string& line : repaired->failed) ADD_FAILURE() << line;
  ASSERT_EQ(repaired->done.size(), 1u);
  EXPECT_NE(repaired->done[0].find("'recovered-3_'"), std::string::npos) << repaired->done[0];
  ASSERT_NO_FATAL_FAILURE(rig_.open());
  rig_.store = rig_.pool->find("recovered-3_");
  ASSERT_NE(rig_.store, nullptr);
  ASSERT_NO_FATAL_FAILURE(expect_all(1));
}

// A zone of a volume that was deleted is reset, when that did not happen then.
TEST_F(LostMetadataTest, ADeletedVolumeIsNotUnknown) {
  ASSERT_NO_FATAL_FAILURE(make());
  ASSERT_NO_FATAL_FAILURE(put_all(1));
  rig_.close();
  {
    Result<MetadataRing> ring = MetadataRing::open(*rig_.device, false);
    ASSERT_TRUE(ring.ok());
    JournalRecord deleted;
    deleted.kind = JournalRecord::Kind::volume_deleted;
    deleted.volume.id = 1;
    ASSERT_TRUE(ring->append(deleted).ok());
  }
  EXPECT_NE(data_lbas(), 0u);
  ASSERT_NO_FATAL_FAILURE(rig_.open());
  EXPECT_EQ(data_lbas(), 0u);
  rig_.close();
}

// The record is the second opening's: what is stored in the third one must be newer than what the
// second one stored.
TEST_F(LostMetadataTest, SequencesOfALostOpeningAreNotDrawnAgain) {
  ASSERT_NO_FATAL_FAILURE(make());
  ASSERT_NO_FATAL_FAILURE(rig_.reopen());
  for (std::uint64_t i = 0; i < 50; ++i) ASSERT_TRUE(rig_.put(1000 + i, 1, 4000).ok());
  ASSERT_NO_FATAL_FAILURE(put_all(1));
  rig_.close();
  ASSERT_NO_FATAL_FAILURE(rot_last_record(2));
  const CheckReport found = check();
  ASSERT_EQ(found.damage.size(), 1u);
  EXPECT_TRUE(found.damage.front().repairable);
  ASSERT_NO_FATAL_FAILURE(rig_.open());
  ASSERT_NO_FATAL_FAILURE(expect_all(1));
  ASSERT_NO_FATAL_FAILURE(put_all(2));
  ASSERT_NO_FATAL_FAILURE(rig_.reopen());
  ASSERT_NO_FATAL_FAILURE(expect_all(2));
  rig_.close();
  EXPECT_TRUE(check().clean());
}

// As above, repaired instead of opened.
// More were drawn than an opening has: no journal has lost its end for that.
TEST_F(LostMetadataTest, NumbersOfTheNextOpeningAreCountedAsSuch) {
  ASSERT_NO_FATAL_FAILURE(make());
  std::uint64_t& next = static_cast<PageStoreImpl&>(*rig_.store).context().next_sequence;
  const std::uint64_t end = ((next >> kSequenceShift) + 1) << kSequenceShift;
  next = end - 100;
  ASSERT_NO_FATAL_FAILURE(put_all(1));
  ASSERT_GT(next, end);
  rig_.close();
  EXPECT_TRUE(check().clean());
  ASSERT_NO_FATAL_FAILURE(rig_.open());
  EXPECT_GE(static_cast<PageStoreImpl&>(*rig_.store).context().next_sequence,
            end + (std::uint64_t{1} << kSequenceShift));
  ASSERT_NO_FATAL_FAILURE(expect_all(1));
}

TEST_F(LostMetadataTest, ARepairCountsBeyondALostOpening) {
  ASSERT_NO_FATAL_FAILURE(make());
  ASSERT_NO_FATAL_FAILURE(rig_.reopen());
  ASSERT_NO_FATAL_FAILURE(put_all(1));
  rig_.close();
  ASSERT_NO_FATAL_FAILURE(rot_last_record(2));
  ASSERT_TRUE(Pool::repair(*rig_.device, rig_.loop).ok());
  EXPECT_TRUE(check().clean());
  ASSERT_NO_FATAL_FAILURE(rig_.open());
  ASSERT_NO_FATAL_FAILURE(put_all(2));
  ASSERT_NO_FATAL_FAILURE(rig_.reopen());
  ASSERT_NO_FATAL_FAILURE(expect_all(2));
}

// A read that fails is not the journal's end.
TEST_F(LostMetadataTest, AnUnreadableRecordCostsNoVolume) {
  ASSERT_NO_FATAL_FAILURE(make());
  ASSERT_NO_FATAL_FAILURE(put_all(1));
  rig_.close();
  const std::uint64_t before = data_lbas();
  const std::uint64_t end = (*rig_.device->report())[kActive.value].written_lbas;
  const std::uint64_t start = rig_.device->geometry().zone_start(kActive).value;
  auto fault = std::make_unique<FaultDevice>(std::move(rig_.device), FaultOptions());
  fault->fail_reads(Lba{start + end - 2}, 2);
  EXPECT_EQ(Pool::open(*fault, rig_.loop, {}).status().code(), Code::io_error);
  rig_.device = fault->take_inner();
  EXPECT_EQ(data_lbas(), before);
  ASSERT_NO_FATAL_FAILURE(rig_.open());
  ASSERT_NO_FATAL_FAILURE(expect_all(1));
}

// Records of the last opening that there can be would leave nothing to count beyond.
TEST_F(LostMetadataTest, ImplausibleSequencesAreDamage) {
  AlignedBuffer lba(kLbaBytes);
  ZoneHeader header;
  header.stamp.zone = ZoneId{3};
  for (const std::uint64_t sequence :
       {kOpenCountMax << kSequenceShift, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    header.stamp.generation = sequence;
    header.opened_sequence = 1;
    encode(header, lba.span());
    EXPECT_EQ(decode_zone_header(lba.span(), {}, ZoneId{3}).status().code(), Code::corrupt);
    std::swap(header.stamp.generation, header.opened_sequence);
    encode(header, lba.span());
    EXPECT_EQ(decode_zone_header(lba.span(), {}, ZoneId{3}).status().code(), Code::corrupt);
  }
  header.stamp.generation = header.opened_sequence = (kOpenCountMax << kSequenceShift) - 1;
  encode(header, lba.span());
  EXPECT_TRUE(decode_zone_header(lba.span(), {}, ZoneId{3}).ok());
}

// The highest sequence that is possible leaves no opening that could be counted beyond it: said,
// and nothing wraps.
TEST_F(LostMetadataTest, NumbersUsedUp) {
  ASSERT_NO_FATAL_FAILURE(make());
  rig_.close();
  {
    Result<MetadataRing> ring = MetadataRing::open(*rig_.device, false);
    ASSERT_TRUE(ring.ok());
    JournalRecord opened;
    opened.open_count = kOpenCountMax - 2;
    ASSERT_TRUE(ring->append(opened).ok());
  }
  ASSERT_NO_FATAL_FAILURE(rig_.open());
  ASSERT_NO_FATAL_FAILURE(put_all(1));
  rig_.close();
  EXPECT_EQ(open_status().code(), Code::unsupported);
  ASSERT_NO_FATAL_FAILURE(rig_.open(true));
  ASSERT_NO_FATAL_FAILURE(expect_all(1));
}

// Power cuts leave trims; they go when their zones' lives are over.
TEST_F(LostMetadataTest, TrimsGoWithTheirZones) {
  ASSERT_NO_FATAL_FAILURE(make());
  std::size_t trimmed = 0;
  for (std::uint64_t round = 1; round <= 40; ++round) {
    rig_.close();
    FaultOptions options;
    options.seed = round;
    auto fault = std::make_unique<FaultDevice>(std::move(rig_.device), options);
    FaultDevice* const faulty = fault.get();
    rig_.device = std::move(fault);
    ASSERT_NO_FATAL_FAILURE(rig_.open());
    faulty->cut_after(1000 + round * 37 % 300, CrashModel::drive);
    for (std::uint64_t key = 0; !faulty->dead(); ++key) {
      (void)rig_.put(key % 100, round, kPageBytes);
    }
    rig_.close();
    rig_.device = faulty->take_inner();
    ASSERT_NO_FATAL_FAILURE(rig_.open());
    rig_.close();
    std::size_t used = 0;
    for (const ZoneInfo& zone : *rig_.device->report()) {
      if (zone.zone.value > kActive.value && zone.written_lbas != 0) ++used;
    }
    const Result<MetadataRing> ring = MetadataRing::open(*rig_.device, true);
    ASSERT_TRUE(ring.ok());
    trimmed = std::max(trimmed, ring->state().trims.size());
    ASSERT_LE(ring->state().trims.size(), used) << "round " << round;
    ASSERT_NO_FATAL_FAILURE(rig_.open());
  }
  EXPECT_NE(trimmed, 0u) << "no power cut left a trim";
}

TEST_F(LostMetadataTest, AGeometryWithoutRoomForItsCheckpointIsRefused) {
  Geometry geometry;
  geometry.lba_bytes = kLbaBytes;
  geometry.zone_size_lbas = geometry.zone_capacity_lbas = 256;
  geometry.zone_count = 10'000;
  EXPECT_TRUE(Pool::suits(geometry).ok());
  geometry.zone_count = 1'000'000;
  const Status refused = Pool::suits(geometry);
  EXPECT_EQ(refused.code(), Code::invalid_argument);
  EXPECT_NE(refused.describe().find("zones larger"), std::string::npos) << refused.describe();
  geometry.zone_size_lbas = geometry.zone_capacity_lbas = 65536;
  EXPECT_TRUE(Pool::suits(geometry).ok());
}

}  // namespace
}  // namespace furrow::testing::lost_metadata_test
