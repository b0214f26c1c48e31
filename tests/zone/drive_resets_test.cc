// Establishes what a reset of a drive's controller costs: reads and flushes that it interrupted are
// done again, and so are writes where nothing of them, nor of others in their zone, has been done;
// any other zone with a write in flight is sealed, its data intact; and no flush is acknowledged on
// a drive that lost what it had not flushed. Which of NVMe's statuses mean a reset. How: a drive
// that is a file, whose transfers the test interrupts before or after they are done.
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "tests/zone/fake_drive.h"
#include "zone/nvme_drive.h"
#include "zone/zone_state_machine.h"

namespace furrow::test {
namespace {

using Fate = FakeDrive::Fate;

struct Rig {
  explicit Rig(bool appends = false) : drive(appends), device(drive), client(device) {}
  // So many of one LBA each, all in flight in zone 0, filled with seed, seed + 1...
  void write_together(std::vector<Io>& ios, Io::Op op, std::uint64_t offset, std::uint64_t seed) {
    data.clear();
    for (std::size_t i = 0; i < ios.size(); ++i) {
      data.emplace_back(4096);
      fill(data[i].span(), 4096, seed + i);
      ios[i].op = op;
      ios[i].may_fail_over = true;
      ios[i].lba = Lba{offset + i};
      ios[i].set_data(data[i].data(), 1, 4096);
    }
    (void)run_blocking(*client.queue, ios);
  }
  FakeDrive drive;
  FakeDevice device;
  Client client;
  std::vector<AlignedBuffer> data;
};

TEST(DriveResets, ReadsAndFlushesAreDoneAgain) {
  Rig rig;
  ASSERT_TRUE(rig.client.write(0, 0, 4, 1).ok());
  rig.drive.next({Fate::lost, Fate::landed, Fate::lost});
  rig.client.expect_data(0, 0, 4, 1);
  rig.drive.next({Fate::lost, Fate::landed});
  EXPECT_TRUE(rig.client.flush().ok());
  EXPECT_TRUE(rig.client.flush().ok());
}

// Nothing else was: so they alone tell that the drive's power may have been away.
TEST(DriveResets, ReadsThatAreOneForTheDriveTellOfIt) {
  Rig rig;
  ASSERT_TRUE(rig.client.write(0, 0, 4, 1).ok());
  rig.drive.next({Fate::lost});
  std::array<AlignedBuffer, 2> into{AlignedBuffer(8192), AlignedBuffer(8192)};
  std::array<Io, 2> ios;
  for (std::size_t i = 0; i < ios.size(); ++i) {
    ios[i].lba = Lba{2 * i};
    ios[i].set_data(into[i].data(), 2, 4096);
  }
  ASSERT_TRUE(run_blocking(*rig.client.queue, ios).ok());
  EXPECT_EQ(rig.device.interruptions(), 2u);
  rig.drive.set_written(0, 0);
  EXPECT_FALSE(rig.client.flush().ok());
}

TEST(DriveResets, OneThatNeverEndsFailsWhatWaits) {
  Rig rig;
  ASSERT_TRUE(rig.client.write(0, 0, 4, 1).ok());
  for (int i = 0; i < 100; ++i) rig.drive.next({Fate::lost});
  AlignedBuffer into;
  EXPECT_EQ(rig.client.read(rig.client.at(0, 0), 4, into).code(), Code::io_error);
}

TEST(DriveResets, AWriteIsDoneAgainIfItWasNot) {
  Rig rig;
  ASSERT_TRUE(rig.client.write(0, 0, 4, 1).ok());
  rig.drive.next({Fate::lost, Fate::lost});
  ASSERT_TRUE(rig.client.write(0, 4, 2, 2).ok());
  ASSERT_TRUE(rig.client.write(0, 6, 2, 3).ok());
  rig.client.expect_data(0, 0, 4, 1);
  rig.client.expect_data(0, 4, 2, 2);
  EXPECT_EQ(rig.drive.zone(0).written_lbas, 8u);
}

TEST(DriveResets, AWriteThatWasDoneSealsItsZone) {
  Rig rig;
  ASSERT_TRUE(rig.client.write(0, 0, 4, 1).ok());
  rig.drive.next({Fate::landed});
  const Status status = rig.client.write(0, 4, 2, 2);
  EXPECT_EQ(status.code(), Code::io_error);
  EXPECT_NE(std::string(status.hint()).find("was reset"), std::string::npos) << status.describe();
  EXPECT_EQ(rig.drive.zone(0).state, ZoneState::full);
  EXPECT_EQ(rig.client.write(0, 4, 1, 3).nvme(), nvme_status::kZoneFull);
  rig.client.expect_data(0, 0, 4, 1);
  EXPECT_TRUE(rig.client.write(1, 0, 1, 3).ok());
}

// What is behind it would open the zone on the drive, and nobody would count that one.
TEST(DriveResets, AnEmptyZoneInWhichAnAppendFailedIsFinished) {
  FakeDrive drive(true);
  FakeDevice device(drive);
  const auto queue = device.create_queue(1);  // the kernel has one at a time
  drive.next({Fate::broken});
  std::array<AlignedBuffer, 2> data{AlignedBuffer(4096), AlignedBuffer(4096)};
  std::array<Io, 2> ios;
  unsigned left = 2;
  for (std::size_t i = 0; i < ios.size(); ++i) {
    ios[i].op = Io::Op::append;
    ios[i].set_data(data[i].data(), 1, 4096);
    ios[i].context = &left;
    ios[i].on_complete = [](Io& done) { --*static_cast<unsigned*>(done.context); };
    (*queue)->submit(ios[i]);
  }
  while ((*queue)->poll() == 0) {
  }
  EXPECT_TRUE(comes_true([&] { return drive.zone(0).state == ZoneState::full; }));
  while (left != 0) (*queue)->wait(1000);
  for (const Io& io : ios) EXPECT_EQ(io.status.code(), Code::io_error) << io.status.describe();
  EXPECT_EQ(device.zone(ZoneId{0}).state, ZoneState::full);
  EXPECT_EQ(drive.zone(0).state, ZoneState::full);
}

// In whatever order they are interrupted they go again in that of their places.
TEST(DriveResets, WritesInFlightTogetherAreDoneAgainInOrder) {
  for (const Io::Op op : {Io::Op::write, Io::Op::append}) {
    Rig rig(true);
    ASSERT_TRUE(rig.client.append(0, 4, 1).ok());
    constexpr std::size_t kMany = 40;
    for (std::size_t i = 0; i < kMany; ++i) rig.drive.next({Fate::lost});
    std::vector<Io> ios(kMany);
    rig.write_together(ios, op, 4, 10);
    for (std::size_t i = 0; i < ios.size(); ++i) {
      ASSERT_TRUE(ios[i].status.ok()) << i << ": " << ios[i].status.describe();
      EXPECT_EQ(op == Io::Op::append ? ios[i].appended_at.value : ios[i].lba.value, 4 + i);
      rig.client.expect_data(0, 4 + i, 1, 10 + i);
    }
    EXPECT_EQ(rig.drive.zone(0).written_lbas, 4 + kMany);
  }
}

// Those behind it have gone to other places then, or would.
TEST(DriveResets, OneThatWasDoneSealsTheZoneOfAll) {
  const std::initializer_list<std::array<Fate, 4>> kAll = {
      {Fate::landed, Fate::lost, Fate::lost, Fate::lost},
      {Fate::lost, Fate::lost, Fate::done, Fate::lost},
      {Fate::done, Fate::landed, Fate::landed, Fate::lost},
      {Fate::lost, Fate::broken, Fate::lost, Fate::lost}};
  for (const auto& fates : kAll) {
    Rig rig(true);
    ASSERT_TRUE(rig.client.append(0, 4, 1).ok());
    ASSERT_TRUE(rig.client.append(1, 4, 2).ok());
    for (const Fate fate : fates) rig.drive.next({fate});
    std::vector<Io> ios(4);
    rig.write_together(ios, Io::Op::write, 4, 10);
    const bool first_done = fates[0] == Fate::done;
    EXPECT_EQ(ios[0].status.ok(), first_done);
    for (std::size_t i = 1; i < ios.size(); ++i) EXPECT_EQ(ios[i].status.code(), Code::io_error);
    EXPECT_FALSE(rig.client.queue->busy());
    EXPECT_EQ(rig.drive.zone(0).state, ZoneState::full);
    rig.client.expect_data(0, 0, 4, 1);
    EXPECT_TRUE(rig.client.append(1, 4, 3).ok());
  }
}

// Appends may be anywhere: only what nobody was told of costs their zone.
TEST(DriveResets, AppendsFillThePlaceOfThoseThatWereNotDone) {
  Rig rig(true);
  rig.drive.next({Fate::lost, Fate::lost, Fate::done, Fate::done});
  std::vector<Io> ios(4);
  rig.write_together(ios, Io::Op::append, 0, 10);
  for (const Io& io : ios) EXPECT_TRUE(io.status.ok()) << io.status.describe();
  EXPECT_EQ(ios[2].appended_at.value, 0u);
  EXPECT_EQ(ios[3].appended_at.value, 1u);
  EXPECT_EQ(ios[0].appended_at.value, 2u);
  EXPECT_EQ(rig.drive.zone(0).written_lbas, 4u);
  EXPECT_TRUE(rig.client.append(0, 1, 2).ok());
}

TEST(DriveResets, ADriveThatLostItsPowerHasNotFlushed) {
  Rig rig;
  ASSERT_TRUE(rig.client.write(0, 0, 4, 1).ok());
  ASSERT_TRUE(rig.client.flush().ok());
  ASSERT_TRUE(rig.client.write(0, 4, 4, 2).ok());
  rig.drive.next({Fate::lost});
  rig.drive.set_written(0, 4);
  const Status status = rig.client.flush();
  EXPECT_EQ(status.code(), Code::io_error);
  EXPECT_NE(std::string(status.hint()).find("power"), std::string::npos) << status.describe();
  EXPECT_EQ(rig.client.flush().code(), Code::io_error) << "what is lost stays lost";
}

// What was interrupted is something else, or the device's own question.
TEST(DriveResets, AFlushLooksForLossesWhateverWasInterrupted) {
  for (const int what : {0, 1, 2}) {
    Rig rig;
    ASSERT_TRUE(rig.client.write(0, 0, 4, 1).ok());
    ASSERT_TRUE(rig.client.write(1, 0, 4, 2).ok());
    rig.drive.set_written(0, 2);
    if (what == 2) {
      rig.drive.note_interruption();
    } else {
      rig.drive.next({Fate::lost});
      what == 0 ? rig.client.expect_data(1, 0, 4, 2) : (void)rig.client.write(1, 4, 4, 3);
    }
    const Status status = rig.client.flush();
    EXPECT_EQ(status.code(), Code::io_error) << what;
    EXPECT_NE(std::string(status.hint()).find("power"), std::string::npos) << status.describe();
    EXPECT_EQ(rig.client.flush().code(), Code::io_error) << "what is lost stays lost";
  }
}

TEST(DriveResets, AFlushLooksOnceWhereNothingIsLost) {
  Rig rig;
  ASSERT_TRUE(rig.client.write(0, 0, 4, 1).ok());
  ASSERT_TRUE(rig.client.flush().ok());
  rig.drive.next({Fate::lost});
  rig.client.expect_data(0, 0, 4, 1);
  const unsigned before = rig.drive.reports();
  EXPECT_TRUE(rig.client.flush().ok());
  EXPECT_EQ(rig.drive.reports(), before + 1);
  EXPECT_TRUE(rig.client.flush().ok());
  EXPECT_EQ(rig.drive.reports(), before + 1);
  EXPECT_EQ(rig.device.interruptions(), 1u);
}

TEST(DriveResets, AFlushLooksAgainForWhatCameMeanwhile) {
  Rig rig;
  ASSERT_TRUE(rig.client.write(0, 0, 4, 1).ok());
  rig.drive.note_interruption();
  rig.drive.lose_behind_report();
  EXPECT_EQ(rig.client.flush().code(), Code::io_error);
}

// No drive is interrupted here: as by zbd:, where the kernel sends things again.
TEST(DriveResets, AWriteThatFindsItsZoneShorterTellsFlushes) {
  Rig rig;
  ASSERT_TRUE(rig.client.write(0, 0, 4, 1).ok());
  rig.drive.set_written(0, 2);
  EXPECT_EQ(rig.client.write(0, 4, 4, 2).code(), Code::io_error);
  EXPECT_EQ(rig.drive.zone(0).state, ZoneState::full) << "the report tells no more";
  EXPECT_EQ(rig.client.flush().code(), Code::io_error);
}

// It may fill the place of what is lost, so that the zone's length tells nothing.
TEST(DriveResets, AnAppendThatTakesThePlaceOfOthersTellsFlushes) {
  for (const bool append : {true, false}) {
    Rig rig(true);
    ASSERT_TRUE(rig.client.append(0, 4, 1).ok());
    rig.drive.set_written(0, 2);
    std::vector<Io> ios(4);
    rig.write_together(ios, append ? Io::Op::append : Io::Op::write, 4, 10);
    EXPECT_EQ(rig.drive.zone(0).state, ZoneState::full);
    EXPECT_EQ(rig.client.flush().code(), Code::io_error);
  }
}

// Of a full zone the drive does not tell how much of it was written.
TEST(DriveResets, AFinishDoesNotHideALoss) {
  for (const bool meanwhile : {true, false}) {
    Rig rig;
    ASSERT_TRUE(rig.client.write(0, 0, 4, 1).ok());
    if (meanwhile) {
      rig.drive.lose_at_finish();
    } else {
      rig.drive.note_interruption();
      rig.drive.set_written(0, 2);
    }
    EXPECT_TRUE(rig.client.manage(Io::Op::finish, 0).ok());
    EXPECT_EQ(rig.client.flush().code(), Code::io_error) << meanwhile;
  }
}

// It may have been done all the same: the zone is shorter then, and that is no loss.
TEST(DriveResets, AResetThatFailedLosesNothing) {
  Rig rig;
  ASSERT_TRUE(rig.client.write(0, 0, 4, 1).ok());
  rig.drive.fail(EIO);
  EXPECT_EQ(rig.client.manage(Io::Op::reset, 0).code(), Code::io_error);
  rig.drive.fail(0);
  rig.drive.set_written(0, 0);
  rig.drive.note_interruption();
  EXPECT_TRUE(rig.client.flush().ok());
  EXPECT_TRUE(rig.client.manage(Io::Op::reset, 0).ok());
  ASSERT_TRUE(rig.client.write(0, 0, 4, 1).ok());
  rig.drive.set_written(0, 2);
  rig.drive.note_interruption();
  EXPECT_EQ(rig.client.flush().code(), Code::io_error) << "from then on it counts again";
}

TEST(DriveResets, AFlushThatFailsIsNotForgotten) {
  Rig rig;
  ASSERT_TRUE(rig.client.write(0, 0, 4, 1).ok());
  rig.drive.next({Fate::broken});
  EXPECT_EQ(rig.client.flush().code(), Code::io_error);
  EXPECT_EQ(rig.client.flush().code(), Code::io_error);
  EXPECT_FALSE(rig.device.gone());
  rig.client.expect_data(0, 0, 4, 1);
}

TEST(DriveResets, AFlushFindsThatTheDriveIsGone) {
  Rig rig;
  rig.drive.next({Fate::broken});
  rig.drive.fail(ENODEV);
  EXPECT_EQ(rig.client.flush().sys_errno(), ENODEV);
  EXPECT_TRUE(rig.device.gone());
}

// What a drive no longer writes to it may still fail to read.
TEST(DriveResets, AReadThatFailsInAReadOnlyZoneHasFailed) {
  Rig rig;
  ASSERT_TRUE(rig.client.write(0, 0, 4, 1).ok());
  rig.drive.set(0, ZoneState::read_only, false);
  rig.drive.next({Fate::broken});
  AlignedBuffer into;
  EXPECT_EQ(rig.client.read(rig.client.at(0, 0), 4, into).code(), Code::io_error);
  rig.client.expect_data(0, 0, 4, 1);
}

TEST(DriveResets, StatusesThatMeanAReset) {
  for (const int status : {0x370, 0x371, 0x301, 0x007, 0x008}) {
    EXPECT_TRUE(nvme::is_interruption(status)) << std::hex << status;
    EXPECT_FALSE(nvme::is_interruption(status | 0x4000)) << std::hex << status;
  }
  for (const int status : {0x002, 0x006, 0x080, 0x1BC, 0x281, 0x286}) {
    EXPECT_FALSE(nvme::is_interruption(status)) << std::hex << status;
  }
}

}  // namespace
}  // namespace furrow::test
