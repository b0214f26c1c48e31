// Establishes that damage on the medium is found, told and never served, and costs nothing beside
// what it hit: corrupted pages, batch headers, summaries and superblocks of a pool, closed or
// killed; and what makes a pool not open.
#include <gtest/gtest.h>

#include "log/codec.h"
#include "log/format.h"
#include "log/metadata_ring.h"
#include "tests/engine/pool_file.h"
#include "zone/blocking.h"

namespace furrow::testing {
namespace {

class DamageTest : public PoolFileTest {
 protected:
  void SetUp() override { ASSERT_NO_FATAL_FAILURE(make_pool(64 << 20, VolumeMode::store)); }

  void open_again() {
    ASSERT_NO_FATAL_FAILURE(rig_->open_device());
    ASSERT_NO_FATAL_FAILURE(rig_->open());
  }
  // Where in the file `bytes` are; they must be there once.
  std::size_t offset_of(const std::vector<std::byte>& bytes) {
    const FileImage file = read_file();
    const std::string_view wanted(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const std::size_t at = file.view().find(wanted);
    EXPECT_NE(at, std::string::npos);
    return at;
  }
  // The pages' last batch is followed by a note, as after an orderly close.
  std::size_t note_behind(std::uint64_t number, std::uint64_t version, std::size_t bytes) {
    return offset_of(content(number, version, bytes)) + (bytes + 4095) / 4096 * 4096;
  }
  Status flush() {
    PageOp op;
    op.kind = PageOp::Kind::flush;
    return rig_->run(op);
  }
  // Flushes, and turns until something is written that nobody has asked for, or for ten seconds.
  void flush_and_wait_for_note() {
    const std::uint64_t before = rig_->store->stats().device_bytes_written;
    ASSERT_TRUE(flush().ok());
    const std::uint64_t late_ns = rig_->loop.now_ns() + 10'000'000'000;
    while (rig_->store->stats().device_bytes_written == before && rig_->loop.now_ns() < late_ns) {
      rig_->turns(10);
    }
    EXPECT_GT(rig_->store->stats().device_bytes_written, before);
    ASSERT_TRUE(flush().ok());  // answered behind it
  }
};

// An orderly close notes what is durable: damage after it takes one page, not the rest of the zone.
TEST_F(DamageTest, ADamagedPageOfAClosedPoolTakesNothingElse) {
  for (std::uint64_t i = 0; i < 10; ++i) ASSERT_TRUE(rig_->put(i, 1, 9000).ok());
  close_device();
  damage(offset_of(content(4, 1, 9000)) + 5000);
  ASSERT_NO_FATAL_FAILURE(open_again());
  for (std::uint64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(rig_->get(i).status().code(), i == 4 ? Code::corrupt : Code::ok) << i;
  }
  const auto found = rig_->pool->check({});
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->damage.size(), 1u);
  EXPECT_TRUE(rig_->put(20, 1, 9000).ok());
  ASSERT_NO_FATAL_FAILURE(rig_->reopen());
  EXPECT_TRUE(rig_->get(20).ok());
}

// So does the close of a pool that was recovered and not written to since.
TEST_F(DamageTest, ACloseAfterARecoveryIsNotedToo) {
  for (std::uint64_t i = 0; i < 10; ++i) ASSERT_TRUE(rig_->put(i, 1, 9000).ok());
  const FileImage killed = read_file();
  close_device();
  write_file(killed);
  ASSERT_NO_FATAL_FAILURE(open_again());
  close_device();
  damage(offset_of(content(4, 1, 9000)) + 5000);
  ASSERT_NO_FATAL_FAILURE(open_again());
  for (std::uint64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(rig_->get(i).status().code(), i == 4 ? Code::corrupt : Code::ok) << i;
  }
}

// A flush that was answered is on record even when nothing followed it and the process was killed:
// one bad page takes no other with it.
TEST_F(DamageTest, ADamagedPageOfAKilledPoolTakesNothingThatWasFlushed) {
  for (std::uint64_t i = 0; i < 10; ++i) ASSERT_TRUE(rig_->put(i, 1, 9000).ok());
  ASSERT_NO_FATAL_FAILURE(flush_and_wait_for_note());
  const FileImage killed = read_file();
  close_device();
  write_file(killed);
  damage(offset_of(content(4, 1, 9000)) + 5000);
  for (unsigned round = 0; round < 2; ++round) {
    ASSERT_NO_FATAL_FAILURE(open_again());
    for (std::uint64_t i = 0; i < 10; ++i) {
      EXPECT_EQ(rig_->get(i).status().code(), i == 4 ? Code::corrupt : Code::ok) << i;
    }
    close_device();
  }
}

// What recovery verified is durable, and on record as well.
TEST_F(DamageTest, WhatAnOpeningVerifiedIsNoted) {
  for (std::uint64_t i = 0; i < 10; ++i) ASSERT_TRUE(rig_->put(i, 1, 9000).ok());
  const FileImage killed = read_file();
  close_device();
  write_file(killed);
  ASSERT_NO_FATAL_FAILURE(open_again());
  ASSERT_NO_FATAL_FAILURE(flush_and_wait_for_note());
  const FileImage killed_again = read_file();
  close_device();
  write_file(killed_again);
  damage(offset_of(content(4, 1, 9000)) + 5000);
  ASSERT_NO_FATAL_FAILURE(open_again());
  for (std::uint64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(rig_->get(i).status().code(), i == 4 ? Code::corrupt : Code::ok) << i;
  }
}

TEST_F(DamageTest, DamageBehindTheFlushPointIsCorruptAndTakesNothingElse) {
  // More than one zone, so that the first is sealed and flushed.
  for (std::uint64_t i = 0; i < 200; ++i) ASSERT_TRUE(rig_->put(i, 1, 60000).ok());
  close_device();
  damage(offset_of(content(4, 1, 60000)) + 30000);
  ASSERT_NO_FATAL_FAILURE(open_again());
  EXPECT_EQ(rig_->get(4).status().code(), Code::corrupt);
  EXPECT_EQ(rig_->get(4).status().code(), Code::corrupt);
  EXPECT_EQ(rig_->store->stats().corrupt_pages, 2u);
  for (std::uint64_t i = 0; i < 200; ++i) {
    if (i != 4) {
      ASSERT_TRUE(rig_->get(i).ok()) << i;
    }
  }
  const auto found = rig_->pool->check({});
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found->damage.size(), 1u);
  EXPECT_NE(found->damage.front().text.find("damaged"), std::string::npos)
      << found->damage.front().text;
  EXPECT_TRUE(rig_->put(4, 2, 100).ok()) << "it can be stored anew";
  EXPECT_TRUE(rig_->get(4).ok());
}

// Collection copies what is damaged as such: it stays corrupt, however often it is copied, and the
// version before it, in a zone that was not collected, superseded; until it is stored anew.
TEST_F(DamageTest, ADamagedPageStaysSoAndDoesNotGiveWayToAnOlderVersion) {
  for (std::uint64_t i = 0; i < 80; ++i) ASSERT_TRUE(rig_->put(i, 1, 60000).ok());
  ASSERT_TRUE(rig_->put(4, 2, 60000).ok());
  for (std::uint64_t i = 1000; i < 1100; ++i) ASSERT_TRUE(rig_->put(i, 1, 60000).ok());
  close_device();
  damage(offset_of(content(4, 2, 60000)) + 30000);
  ASSERT_NO_FATAL_FAILURE(open_again());
  for (std::uint64_t i = 1000; i < 1100; ++i) ASSERT_TRUE(rig_->put(i, 2, 60000).ok());
  for (std::uint64_t i = 2000; rig_->store->stats().corrupt_pages == 0; ++i) {
    ASSERT_TRUE(rig_->put(i, 1, 60000).ok())
        << "full, and the damaged page's zone was not collected";
  }
  const std::uint64_t copied = rig_->store->stats().zones_reset;
  for (std::uint64_t i = 1000; rig_->store->stats().zones_reset < copied + 20; ++i) {
    ASSERT_TRUE(rig_->put(1000 + i % 100, 3, 60000).ok());
  }
  EXPECT_EQ(rig_->store->stats().corrupt_pages, 1u) << "the same one is not counted again";
  for (int opening = 0; opening < 2; ++opening) {
    EXPECT_EQ(rig_->get(4).status().code(), Code::corrupt);
    EXPECT_TRUE(rig_->simple(PageOp::Kind::exist, 4).ok());
    EXPECT_EQ(*rig_->get(5), content(5, 1, 60000));
    const auto found = rig_->pool->check({});
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(found->damage.size(), 1u);
    ASSERT_NO_FATAL_FAILURE(rig_->reopen());
  }
  ASSERT_TRUE(rig_->put(4, 3, 60000).ok());
  EXPECT_EQ(*rig_->get(4), content(4, 3, 60000));
  const auto found = rig_->pool->check({});
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(found->clean());
  rig_->close();
  const auto ring = MetadataRing::open(*rig_->device, true);
  ASSERT_TRUE(ring.ok());
  EXPECT_NE(ring->superblock().features.incompatible & kFeatureDamagedPages, 0u);
}

// With its batch header gone as well the summary tells whose page it was: as with the header, and
// the key can be stored anew.
TEST_F(DamageTest, HeaderAndPageDamagedTogether) {
  for (std::uint64_t i = 0; i < 200; ++i) ASSERT_TRUE(rig_->put(i, 1, 60000).ok());
  close_device();
  const std::size_t page = offset_of(content(4, 1, 60000));
  damage(page + 30000);
  damage(page - 4096 + 40);  // one put at a time: its header is the LBA before it
  ASSERT_NO_FATAL_FAILURE(open_again());
  EXPECT_EQ(rig_->get(4).status().code(), Code::corrupt);
  EXPECT_TRUE(rig_->simple(PageOp::Kind::exist, 4).ok());
  const auto keys = rig_->list(Key(), 300);
  ASSERT_TRUE(keys.ok()) << keys.status().describe();
  EXPECT_EQ(keys->size(), 200u);
  EXPECT_TRUE(rig_->put(4, 2, 100).ok());
  EXPECT_EQ(*rig_->get(4), content(4, 2, 100));
}

// In the zone that is still written to, where no summary helps, a note says what a batch header
// said: nothing is lost, and the older version of a page, in a zone before, does not come back.
TEST_F(DamageTest, ADamagedBatchHeaderTakesNothingThatANoteRepeats) {
  ASSERT_TRUE(rig_->put(1, 1, 9000).ok());
  ASSERT_TRUE(rig_->put(2, 1, 9000).ok());
  for (std::uint64_t i = 1000; i < 1080; ++i) ASSERT_TRUE(rig_->put(i, 1, 60000).ok());
  ASSERT_TRUE(rig_->put(1, 2, 9000).ok());
  ASSERT_TRUE(rig_->simple(PageOp::Kind::remove, 2).ok());
  ASSERT_TRUE(rig_->put(3, 1, 9000).ok());
  ASSERT_NO_FATAL_FAILURE(flush_and_wait_for_note());
  const FileImage killed = read_file();
  close_device();
  const FileImage closed = read_file();
  for (const FileImage* const file : {&killed, &closed}) {
    write_file(*file);
    const std::size_t page = offset_of(content(1, 2, 9000));
    damage(page - 4096 + 40);
    damage(page + 3 * 4096 + 40);  // the tombstone's
    for (unsigned round = 0; round < 3; ++round) {
      ASSERT_NO_FATAL_FAILURE(open_again());
      const auto found = rig_->get(1);
      ASSERT_TRUE(found.ok()) << found.status().describe();
      EXPECT_EQ(*found, content(1, 2, 9000));
      EXPECT_EQ(rig_->get(2).status().code(), Code::not_found);
      EXPECT_TRUE(rig_->get(3).ok());
      EXPECT_TRUE(rig_->pool->opening_damage().empty()) << "nothing is lost";
      const auto checked = rig_->pool->check({});
      ASSERT_TRUE(checked.ok());
      EXPECT_EQ(checked->damage.size(), 2u);
      for (const Finding& finding : checked->damage) {
        EXPECT_NE(finding.text.find("a summary behind it names its 1 records"), std::string::npos)
            << finding.text;
      }
      ASSERT_TRUE(rig_->put(2000 + round, 1, 9000).ok());
      close_device();
    }
  }
}

// Nothing is noted in the zones of a volume that is gone.
TEST_F(DamageTest, ADeletedVolumeIsLeftAlone) {
  ASSERT_TRUE(rig_->put(1, 1, 9000).ok());
  ASSERT_TRUE(flush().ok());
  Status deleted;
  while ((deleted = rig_->pool->delete_volume("pages")).code() == Code::busy) rig_->turns(1);
  ASSERT_TRUE(deleted.ok()) << deleted.describe();
  const std::uint64_t until_ns = rig_->loop.now_ns() + 50'000'000;
  while (rig_->loop.now_ns() < until_ns) rig_->turns(10);
  const auto zones = rig_->device->report();
  ASSERT_TRUE(zones.ok());
  for (std::size_t i = 2; i < zones->size(); ++i) EXPECT_EQ((*zones)[i].written_lbas, 0u) << i;
  rig_->store = nullptr;
}

// Without it, what was flushed behind the damage stays, and nothing more is written there.
TEST_F(DamageTest, ADamagedBatchHeaderTakesItsOwnBatchOnly) {
  for (std::uint64_t i = 0; i < 20; ++i) ASSERT_TRUE(rig_->put(i, 1, 9000).ok());
  close_device();
  damage(offset_of(content(4, 1, 9000)) - 4096 + 40);
  damage(note_behind(19, 1, 9000) + 4096 + 40);
  ASSERT_NO_FATAL_FAILURE(open_again());
  for (int round = 0; round < 2; ++round) {
    for (std::uint64_t i = 0; i < 20; ++i) {
      EXPECT_EQ(rig_->get(i).status().code(), i == 4 ? Code::not_found : Code::ok) << i;
    }
    const auto found = rig_->pool->check({});
    ASSERT_TRUE(found.ok());
    ASSERT_EQ(found->damage.size(), 1u);
    EXPECT_NE(found->damage.front().text.find("no batch header"), std::string::npos)
        << found->damage.front().text;
    const std::vector<std::string> told = rig_->pool->opening_damage();
    ASSERT_EQ(told.size(), 1u);
    EXPECT_EQ(told[0].find("zone 2: the batch header at LBA "), 0u) << told[0];
    EXPECT_EQ(rig_->pool->info().opening_damage, 1u);
    ASSERT_TRUE(rig_->put(100, 1, 9000).ok());
    ASSERT_NO_FATAL_FAILURE(rig_->reopen());
    EXPECT_TRUE(rig_->get(100).ok());
  }
}

// The only batch of the zone that is written to: with its header gone the segment has no records.
// What is stored next goes to another zone, also after each restart.
TEST_F(DamageTest, ADamagedHeaderOfTheOnlyBatch) {
  constexpr std::size_t kMost = 64 << 10;
  rig_->close();
  rig_->device.reset();
  std::filesystem::remove(path());
  DeviceShape shape;
  shape.size_bytes = 16 << 20;
  shape.zone_size_bytes = 128 << 10;  // one page of the largest size to a zone
  ASSERT_TRUE(create_device(uri(), shape).ok());
  ASSERT_NO_FATAL_FAILURE(rig_->open_device());
  VolumeOptions options;
  options.name = "pages";
  options.mode = VolumeMode::store;
  options.value_bytes_max = kMost;
  ASSERT_NO_FATAL_FAILURE(rig_->make(options));
  ASSERT_TRUE(rig_->put(1, 1, kMost).ok());
  close_device();
  damage(offset_of(content(1, 1, kMost)) - 4096 + 40);
  damage(note_behind(1, 1, kMost) + 4096 + 40);
  for (std::uint64_t i = 2; i < 5; ++i) {
    ASSERT_NO_FATAL_FAILURE(open_again());
    EXPECT_EQ(rig_->get(1).status().code(), Code::not_found);
    ASSERT_TRUE(rig_->put(i, 1, kMost).ok());
    for (std::uint64_t k = 2; k <= i; ++k) EXPECT_TRUE(rig_->get(k).ok()) << k;
    close_device();
  }
}

// A segment may have its summary on the medium and not all that the summary names: the power went
// before a flush. The zone ends there.
TEST_F(DamageTest, ASummaryDoesNotVouchForWhatWasNotFlushed) {
  // One to a batch; 63 fill the zone up to its summary, and none has asked for a flush.
  for (std::uint64_t i = 0; i < 63; ++i) ASSERT_TRUE(rig_->put(i, 1, 60000).ok());
  const FileImage before = read_file();  // as a power cut leaves it: nothing was closed
  close_device();
  write_file(before);
  damage(offset_of(content(30, 1, 60000)) - 4096 + 40);
  ASSERT_NO_FATAL_FAILURE(open_again());
  for (std::uint64_t i = 0; i < 63; ++i) {
    EXPECT_EQ(rig_->get(i).status().code(), i < 30 ? Code::ok : Code::not_found) << i;
  }
  const auto keys = rig_->list(Key(), 300);
  ASSERT_TRUE(keys.ok()) << keys.status().describe();
  EXPECT_EQ(keys->size(), 30u);
  EXPECT_TRUE(rig_->put(40, 2, 60000).ok());
  ASSERT_NO_FATAL_FAILURE(rig_->reopen());
  EXPECT_EQ(rig_->store->usage().pages, 31u);
}

// A zone header that was made up, its checksum right: no stream has its number. The zone is left as
// it is, and told.
TEST_F(DamageTest, AZoneOfAStreamThatThereIsNot) {
  ASSERT_TRUE(rig_->put(1, 1, 9000).ok());
  const Uuid uuid = rig_->pool->info().uuid;
  const std::uint64_t volume = rig_->store->info().id;
  rig_->close();
  const ZoneId zone{7};
  const auto write = [&](std::uint8_t stream) {
    AlignedBuffer lbas(2 * 4096);
    const ZoneStamp stamp{uuid, zone, 12345};
    encode(ZoneHeader{stamp, volume, 12345, stream}, lbas.span().first(4096));
    encode(BatchHeader{stamp, 1, 1, 1, 1, 0, 0}, {}, lbas.span().last(4096));
    // Its stream is beyond what the encoder takes, too.
    auto header = lbas.span().last(4096).first(kBatchHeaderBytes);
    header[kBatchHeaderBytes - 8] = static_cast<std::byte>(stream);
    store_le(header.data() + 8, crc32c(header.subspan(12), crc32c(header.first(8))));
    auto queue = rig_->device->create_queue(4);
    Io io;
    io.op = Io::Op::write;
    io.zone = zone;
    io.lba = rig_->device->geometry().zone_start(zone);
    io.set_data(lbas.data(), 2, 4096);
    ASSERT_TRUE(run_blocking(**queue, io).ok());
  };
  ASSERT_NO_FATAL_FAILURE(write(kStreamMax + 1));
  ASSERT_NO_FATAL_FAILURE(rig_->open());
  EXPECT_TRUE(rig_->get(1).ok());
  EXPECT_TRUE(rig_->put(2, 1, 9000).ok());
  EXPECT_EQ(rig_->pool->info().zones_bad, 1u);
  const auto found = rig_->pool->check({});
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->damage.size(), 1u);
}

// With the header of a zone and that of its first batch both gone, the next batch tells whose zone
// it is.
TEST_F(DamageTest, AZonesFirstTwoHeadersDamaged) {
  for (std::uint64_t i = 0; i < 100; ++i) ASSERT_TRUE(rig_->put(i, 1, 60000).ok());
  close_device();
  const std::size_t first_page = offset_of(content(0, 1, 60000));
  damage(first_page - 4096 + 40);
  damage(first_page - 2 * 4096 + 40);
  ASSERT_NO_FATAL_FAILURE(open_again());
  for (std::uint64_t i = 0; i < 100; ++i) EXPECT_EQ(rig_->get(i).ok(), true) << i;
}

// Nothing is left that tells whose a full zone is: that is told, and the zone kept, until it is
// given up. What it has replaced may be in others.
TEST_F(DamageTest, AFullZoneOfWhichNoStructureIsLeft) {
  for (std::uint64_t i = 0; i < 200; ++i) ASSERT_TRUE(rig_->put(i, 1, 60000).ok());
  close_device();
  const std::size_t zone = offset_of(content(0, 1, 60000)) - 2 * 4096;
  const auto damage_all = [&](std::string_view magic, std::size_t at) {
    for (const std::size_t lba : offsets_of(magic, at)) {
      if (lba >= zone && lba < zone + (4 << 20)) damage(lba + at);
    }
  };
  damage_all("FUZH", 0);
  damage_all("FUBH", 0);
  damage_all("FUSM", kLba - 96);
  const std::uint32_t number = (zone - kDataAt) / (4 << 20);
  const auto told = [&](const CheckReport& report) {
    return std::ranges::any_of(report.damage, [&](const Finding& finding) {
      return finding.zone == number && finding.give_up == Finding::GiveUp::all;
    });
  };
  for (const bool read_only : {true, false, false}) {
    ASSERT_NO_FATAL_FAILURE(rig_->open_device());
    ASSERT_NO_FATAL_FAILURE(rig_->open(read_only));
    const auto found = rig_->pool->check({});
    ASSERT_TRUE(found.ok());
    EXPECT_TRUE(told(*found));
    EXPECT_EQ(rig_->get(0).status().code(), Code::not_found);
    EXPECT_TRUE(rig_->get(100).ok());
    EXPECT_TRUE(rig_->store->usage().incomplete);
    close_device();
    EXPECT_EQ(offset_of(content(0, 1, 60000)), zone + 2 * 4096) << "its pages stand there still";
  }
  rig_->open_options.give_up = {number};
  ASSERT_NO_FATAL_FAILURE(open_again());
  rig_->open_options.give_up.clear();
  for (unsigned round = 0; round < 2; ++round) {
    const auto found = rig_->pool->check({});
    ASSERT_TRUE(found.ok());
    EXPECT_TRUE(found->clean()) << found->damage.front().text;
    EXPECT_TRUE(rig_->get(100).ok());
    ASSERT_NO_FATAL_FAILURE(rig_->reopen());
  }
}

// Every LBA of a sealed zone's structures and pages in turn: recovery never fails, never serves
// anything wrong, and loses at most what the damaged LBA held.
TEST_F(DamageTest, AnyDamagedLbaOfASealedZone) {
  constexpr std::uint64_t kPages = 100;
  for (std::uint64_t i = 0; i < kPages; ++i) ASSERT_TRUE(rig_->put(i, 1, 60000).ok());
  close_device();
  const std::size_t first_page = offset_of(content(0, 1, 60000));
  const FileImage whole = read_file();
  std::size_t begin = first_page - 2 * 4096;  // the zone header and the first batch header
  for (std::size_t lba = 0; lba < 1024; lba += lba < 8 || lba > 1010 ? 1 : 61) {
    damage(begin + lba * 4096 + 17);
    ASSERT_NO_FATAL_FAILURE(open_again()) << lba;
    std::uint64_t lost = 0;
    for (std::uint64_t i = 0; i < kPages; ++i) {
      const auto page = rig_->get(i);
      if (page.ok()) {
        ASSERT_TRUE(equal(*page, content(i, 1, 60000))) << "LBA " << lba;
      } else {
        ++lost;
      }
    }
    EXPECT_LE(lost, 1u) << "LBA " << lba;
    close_device();
    write_file(whole);
  }
}

// What a zone's own records do not name any longer goes with its zone: were it kept, it would be
// older than what comes after it, and come back when the damage does not show at the next opening.
TEST_F(DamageTest, ACacheKeepsNothingThatItCannotName) {
  ASSERT_TRUE(rig_->pool->delete_volume("pages").ok());
  VolumeOptions options;
  options.name = "cache";
  options.value_bytes_max = 64 << 10;
  const auto made = rig_->pool->create_volume(options);
  ASSERT_TRUE(made.ok()) << made.status().describe();
  rig_->store = *made;
  // Pages of 15 LBAs, each behind its header, in zones of 1024: 63 to a zone, then its summary.
  for (std::uint64_t i = 0; i < 70; ++i) ASSERT_TRUE(rig_->put(i, 1, 60000).ok());
  const std::size_t zone = offset_of(content(0, 1, 60000)) - 2 * 4096;
  damage(zone + 1023 * 4096 + 40);                      // the summary
  damage(offset_of(content(4, 1, 60000)) - 4096 + 40);  // a batch header: the chain ends there
  EXPECT_TRUE(rig_->get(10).ok()) << "found without it";
  for (std::uint64_t i = 100; i < 3000; ++i) ASSERT_TRUE(rig_->put(i, 1, 60000).ok()) << i;
  for (std::uint64_t i = 0; i < 70; ++i) {
    EXPECT_EQ(rig_->get(i).status().code(), Code::not_found) << i;
  }
  const auto found = rig_->pool->check({});
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(found->clean()) << found->damage.front().text;
  const std::uint64_t pages = rig_->store->usage().pages;
  ASSERT_NO_FATAL_FAILURE(rig_->reopen());
  EXPECT_EQ(rig_->store->usage().pages, pages);
}

TEST_F(DamageTest, OneSuperblockIsEnough) {
  ASSERT_TRUE(rig_->put(1, 1, 9000).ok());
  const std::string uuid(reinterpret_cast<const char*>(rig_->pool->info().uuid.data()), 16);
  close_device();
  const FileImage whole = read_file();
  const std::size_t first = whole.view().find(uuid);
  ASSERT_NE(first, std::string::npos);
  damage(first);
  ASSERT_NO_FATAL_FAILURE(rig_->open_device());
  auto opened = Pool::open(*rig_->device, rig_->loop, {});
  ASSERT_TRUE(opened.ok()) << opened.status().describe();
  EXPECT_NE((*opened)->find("pages"), nullptr) << "the other one leads to the same state";
}

TEST_F(DamageTest, WhatIsNotAPool) {
  close_device();
  std::filesystem::remove(path());
  DeviceShape shape;
  shape.size_bytes = 64 << 20;
  ASSERT_TRUE(create_device(uri(), shape).ok());
  ASSERT_NO_FATAL_FAILURE(rig_->open_device());
  const auto opened = Pool::open(*rig_->device, rig_->loop, {});
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.status().code(), Code::foreign) << opened.status().describe();
}

TEST_F(DamageTest, ASecondOpenerIsRefused) {
  const auto second = open_device(uri(), Access::exclusive);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), Code::in_use) << second.status().describe();
}

TEST(FormatTest, TooSmallADeviceIsRefused) {
  auto device = open_device("mem:4MiB?zone_size=1MiB", Access::exclusive);
  ASSERT_TRUE(device.ok());
  EventLoop loop;
  EXPECT_EQ(Pool::format(**device, "x", loop).code(), Code::invalid_argument);
}

TEST(FormatTest, VolumesThatCannotBe) {
  Rig rig("mem:16MiB?zone_size=1MiB&mor=2&mar=2");
  VolumeOptions options;
  options.name = "a";
  options.value_bytes_max = 64 << 10;
  options.quota_bytes = 4 << 20;
  ASSERT_NO_FATAL_FAILURE(rig.make(options));
  EXPECT_EQ(rig.pool->create_volume(options).status().code(), Code::exists);
  options.name = "b";
  EXPECT_EQ(rig.pool->create_volume(options).status().code(), Code::too_many_zones);
  options.quota_bytes = 1 << 20;
  EXPECT_EQ(rig.pool->create_volume(options).status().code(), Code::invalid_argument);
  options.quota_bytes = 100 << 20;
  EXPECT_EQ(rig.pool->create_volume(options).status().code(), Code::no_space);
  options.quota_bytes = 0;
  options.name = "no spaces please";
  EXPECT_EQ(rig.pool->create_volume(options).status().code(), Code::invalid_argument);
  options.name = "c";
  options.value_bytes_max = 1 << 20;
  EXPECT_EQ(rig.pool->create_volume(options).status().code(), Code::invalid_argument);
  ASSERT_TRUE(rig.pool->delete_volume("a").ok());
  EXPECT_EQ(rig.pool->delete_volume("a").code(), Code::not_found);
  options.value_bytes_max = 64 << 10;
  const auto again = rig.pool->create_volume(options);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ((*again)->info().id, 2u) << "ids are never used twice";
}

}  // namespace
}  // namespace furrow::testing
