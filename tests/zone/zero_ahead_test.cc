// Establishes that an emulated device writes zeroes ahead of a zone that is flushed after each of
// several small writes, of no other, and that these neither harm the data written there later, in
// whatever order it is asked for, nor cost a write the last room of a full file system; and that a
// queue that may block makes a lone flush itself.
#include "zone/zero_ahead.h"

#include <sys/mount.h>

#include <thread>

#include "tests/zone/emu_fixture.h"

namespace furrow::test {
namespace {

using emu::ZeroAhead;

// No room is taken ahead of writes that the page cache has: what the file has is what was written.
constexpr const char* kUnallocated = "?direct=0";

class ZeroAheadTest : public EmuDeviceTest {
 protected:
  void SetUp() override { create(); }
  void synced_writes(Client& client, std::uint32_t zone, std::uint64_t first, std::uint64_t end) {
    for (std::uint64_t at = first; at < end; ++at) {
      ASSERT_TRUE(client.write(zone, at, 1, 1000 + at).ok());
      ASSERT_TRUE(client.flush().ok());
    }
  }
  void expect_synced(Client& client, std::uint32_t zone, std::uint64_t first, std::uint64_t end) {
    for (std::uint64_t at = first; at < end; ++at) client.expect_data(zone, at, 1, 1000 + at);
  }
};

TEST_F(ZeroAheadTest, GoesWithOneSyncedWriteInMany) {
  auto device = open(kUnallocated);
  Client client(*device);
  const std::uint64_t before = used_bytes(path_);
  synced_writes(client, 0, 0, ZeroAhead::kStreak);
  EXPECT_EQ(used_bytes(path_) - before, ZeroAhead::kStreak * 4096u) << "too early";
  synced_writes(client, 0, ZeroAhead::kStreak, ZeroAhead::kStreak + 1);
  EXPECT_EQ(used_bytes(path_) - before, emu::kAheadBytes);
  synced_writes(client, 0, ZeroAhead::kStreak + 1, 64);
  EXPECT_EQ(used_bytes(path_) - before, emu::kAheadBytes);
  synced_writes(client, 0, 64, 80);
  EXPECT_EQ(used_bytes(path_) - before, 2 * emu::kAheadBytes);
  expect_synced(client, 0, 0, 80);
  client.expect_zeroes(0, 80, 200);
  EXPECT_EQ((*device->report())[0].written_lbas, 80u);
}

TEST_F(ZeroAheadTest, NotWithLargeWritesNorWithThoseThatShareAFlush) {
  auto device = open(kUnallocated);
  Client client(*device);
  const std::uint64_t before = used_bytes(path_);
  for (std::uint64_t at = 0; at < 160; at += 16) {
    ASSERT_TRUE(client.write(0, at, 16, at).ok());
    ASSERT_TRUE(client.flush().ok());
  }
  for (std::uint64_t at = 0; at < 20; ++at) {
    ASSERT_TRUE(client.write(1, at, 1, at).ok());
    if (at % 2 != 0) {
      ASSERT_TRUE(client.flush().ok());
    }
  }
  EXPECT_EQ(used_bytes(path_) - before, (160 + 20) * 4096u);
}

TEST_F(ZeroAheadTest, EndsWithTheZonesCapacity) {
  auto device = open(kUnallocated);
  Client client(*device);
  const std::uint64_t capacity = client.geometry.zone_capacity_lbas;
  const auto most = static_cast<std::uint32_t>(capacity - 30);
  ASSERT_TRUE(client.write(0, 0, most, 7).ok());
  ASSERT_TRUE(client.flush().ok());
  const std::uint64_t before = used_bytes(path_);
  synced_writes(client, 0, most, capacity);
  EXPECT_EQ(used_bytes(path_) - before, 30 * 4096u);
  expect_synced(client, 0, most, capacity);
  EXPECT_EQ((*device->report())[0].state, ZoneState::full);
}

TEST(ZeroAheadRules, HoldsTheZoneAndWantsItAlone) {
  Geometry geometry;
  geometry.lba_bytes = 4096;
  geometry.zone_count = 2;
  geometry.zone_size_lbas = geometry.zone_capacity_lbas = 512;
  geometry.append_lbas_max = 8;
  ZoneTable table(geometry, nullptr);
  ZeroAhead ahead(geometry, table);
  constexpr std::uint32_t kAheadLbas = emu::kAheadBytes / 4096;
  const ZoneId zone{1};
  Io append;
  append.op = Io::Op::append;
  append.zone = zone;
  append.lba_count = 1;
  for (std::uint32_t i = 0; i < ZeroAhead::kStreak; ++i) {
    ahead.flush_ended(ahead.flush_begins());
    const Lba at = table.admit(append).lba;
    EXPECT_EQ(ahead.begin(zone, at, 1), i + 1 == ZeroAhead::kStreak ? kAheadLbas - i - 1 : 0) << i;
    EXPECT_EQ(table.held(zone), i + 1 == ZeroAhead::kStreak);
    ASSERT_EQ(end_write(table, zone, at, 1), End::done);
  }
  ahead.ended(zone, true);
  EXPECT_FALSE(table.held(zone));
  for (std::uint32_t i = ZeroAhead::kStreak; i < kAheadLbas; ++i) {  // they lie there
    ahead.flush_ended(ahead.flush_begins());
    const Lba at = table.admit(append).lba;
    EXPECT_EQ(ahead.begin(zone, at, 1), 0u);
    ASSERT_EQ(end_write(table, zone, at, 1), End::done);
  }
  ahead.flush_ended(ahead.flush_begins());
  const Lba a = table.admit(append).lba, b = table.admit(append).lba;
  EXPECT_EQ(ahead.begin(zone, a, 1), 0u) << "another is on its way to where they would go";
  EXPECT_FALSE(table.held(zone));
  ASSERT_EQ(end_write(table, zone, a, 1), End::done);
  ASSERT_EQ(end_write(table, zone, b, 1), End::done);
  // Empty again, it begins anew.
  ASSERT_TRUE(table.manage(Io::Op::reset, zone).ok());
  ahead.forget(zone);
  std::uint32_t lbas = 0;
  for (std::uint32_t i = 0; i < 2 * ZeroAhead::kStreak && lbas == 0; ++i) {
    ahead.flush_ended(ahead.flush_begins());
    const Lba at = table.admit(append).lba;
    lbas = ahead.begin(zone, at, 1);
    ASSERT_EQ(end_write(table, zone, at, 1), End::done);
  }
  EXPECT_NE(lbas, 0u);
}

class ZeroAheadTells : public testing::Test {
 protected:
  static constexpr std::uint32_t kAheadLbas = emu::kAheadBytes / 4096;

  ZeroAheadTells() {
    geometry_.lba_bytes = 4096;
    geometry_.zone_count = 1;
    geometry_.zone_size_lbas = geometry_.zone_capacity_lbas = 512;
    geometry_.append_lbas_max = 8;
    table_.emplace(geometry_, nullptr);
    ahead_.emplace(geometry_, *table_);
  }
  void flush() { ahead_->flush_ended(ahead_->flush_begins()); }
  std::uint32_t write() {
    Io io;
    io.op = Io::Op::append;
    io.lba_count = 1;
    const Lba at = table_->admit(io).lba;
    const std::uint32_t zeroes = ahead_->begin(kZone, at, 1);
    EXPECT_EQ(end_write(*table_, kZone, at, 1), End::done);
    ++written_;
    return zeroes;
  }
  void write_until_zeroes() {
    while (write() == 0) {
      ASSERT_LT(written_, 2 * kAheadLbas);
      flush();
    }
  }
  bool may_tell() const { return ahead_->slot_may_tell(kZone, written_); }
  bool tells() const { return ahead_->data_tells(kZone, written_); }

  static constexpr ZoneId kZone{0};
  Geometry geometry_;
  std::optional<ZoneTable> table_;
  std::optional<ZeroAhead> ahead_;
  std::uint64_t written_ = 0;
};

TEST_F(ZeroAheadTells, OnlyWhenTheZeroesAndThenASlotAreDurable) {
  write_until_zeroes();
  EXPECT_FALSE(may_tell()) << "they are on their way";
  const std::uint64_t early = ahead_->flush_begins();
  ahead_->ended(kZone, true);
  EXPECT_FALSE(may_tell());
  ahead_->flush_ended(early);
  EXPECT_FALSE(may_tell()) << "the flush may have been done with them before they came";
  flush();
  EXPECT_TRUE(may_tell());
  EXPECT_FALSE(tells()) << "no slot says so";
  ahead_->slot_stored(kZone);
  const std::uint64_t first = ahead_->flush_begins(), second = ahead_->flush_begins();
  EXPECT_FALSE(tells());
  ahead_->flush_ended(second);
  EXPECT_TRUE(tells());
  ahead_->flush_ended(first);
  write();
  ahead_->slot_stored(kZone);
  EXPECT_TRUE(tells()) << "the first one counts";
  while (written_ < kAheadLbas) {
    EXPECT_TRUE(may_tell() && tells()) << written_;
    EXPECT_EQ(write(), 0u);
  }
  EXPECT_TRUE(tells());
  EXPECT_FALSE(may_tell()) << "zeroes behind this one were not written";
  flush();
  write();
  EXPECT_FALSE(may_tell() || tells());
}

TEST_F(ZeroAheadTells, NotWhereTheMediumHasSomeOfThemOnlyNorInAResetZone) {
  write_until_zeroes();
  ahead_->ended(kZone, false);
  flush();
  EXPECT_FALSE(may_tell());
  EXPECT_EQ(write(), 0u) << "what there was no room for";
  write_until_zeroes();
  ahead_->ended(kZone, true);
  flush();
  EXPECT_TRUE(may_tell());
  ahead_->slot_stored(kZone);
  flush();
  EXPECT_TRUE(tells());
  ahead_->forget(kZone);
  EXPECT_FALSE(may_tell() || tells());
}

// Writes that come while the zeroes are on their way lie where these go.
TEST_F(ZeroAheadTest, WritesBehindItComeAfterIt) {
  auto device = open();
  Client client(*device);
  synced_writes(client, 0, 0, ZeroAhead::kStreak);
  constexpr std::uint64_t kMany = 24;
  std::vector<AlignedBuffer> data;
  std::vector<Io> ios(kMany);
  for (std::uint64_t i = 0; i < kMany; ++i) {
    data.emplace_back(4096);
    fill(data[i].span(), 4096, 1000 + ZeroAhead::kStreak + i);
    ios[i].op = Io::Op::write;
    ios[i].zone = ZoneId{0};
    ios[i].lba = client.at(0, ZeroAhead::kStreak + i);
    ios[i].set_data(data[i].data(), 1, 4096);
  }
  unsigned ended = 0;
  for (Io& io : ios) {
    io.context = &ended;
    io.on_complete = [](Io& done) { ++*static_cast<unsigned*>(done.context); };
  }
  client.queue->submit(ios[0]);
  client.queue->poll();  // it has gone to the kernel, with zeroes
  for (std::uint64_t i = 1; i < kMany; ++i) client.queue->submit(ios[i]);
  while (ended != kMany) client.queue->wait(100'000);
  for (const Io& io : ios) EXPECT_TRUE(io.status.ok()) << io.status.describe();
  expect_synced(client, 0, 0, ZeroAhead::kStreak + kMany);
  ASSERT_TRUE(client.flush().ok());
  device.reset();
  device = open();
  Client again(*device);
  expect_synced(again, 0, 0, ZeroAhead::kStreak + kMany);
}

TEST_F(ZeroAheadTest, OverwriteWhatTheZoneHeldBefore) {
  auto device = open("?reclaim=never");
  Client client(*device);
  ASSERT_TRUE(client.write(0, 0, 200, 1).ok());
  ASSERT_TRUE(client.manage(Io::Op::reset, 0).ok());
  synced_writes(client, 0, 0, 20);
  // Seen in the file itself.
  const std::uint64_t end = emu::kAheadBytes / 4096;
  EXPECT_EQ(peek(superblock().offset_of(ZoneId{0}, end - 1)), 0u);
  EXPECT_NE(peek(superblock().offset_of(ZoneId{0}, end)), 0u);
  client.expect_zeroes(0, 20, 180);
  expect_synced(client, 0, 0, 20);
}

TEST_F(ZeroAheadTest, CostsNoWriteTheLastRoom) {
  const std::string mount_point = dir_.file("small");
  std::filesystem::create_directory(mount_point);
  if (mount("tmpfs", mount_point.c_str(), "tmpfs", 0, "size=2m") != 0) {
    GTEST_SKIP() << "cannot mount a tmpfs";
  }
  struct Unmount {
    std::string where;
    ~Unmount() { EXPECT_EQ(umount(where.c_str()), 0); }
  } const unmount{mount_point};
  path_ = mount_point + "/device.img";
  uri_ = "emu:" + path_;
  create();
  auto device = open("?direct=0");
  Client client(*device);
  ASSERT_TRUE(client.write(0, 0, 300, 1).ok());
  Status status;
  std::uint64_t written = 0;
  while (status.ok() && written < 384) {
    status = client.write(1, written, 1, 1000 + written);
    if (status.ok()) ++written;
    ASSERT_TRUE(client.flush().ok());
  }
  EXPECT_EQ(status.code(), Code::no_space) << status.describe();
  EXPECT_GT(used_bytes(path_), 2 * kMiB - 8192);
  EXPECT_GT(written, 130u);
  // Not all of the last zeroes found room: each write behind them had a slot of its own.
  const emu::Superblock super = superblock();
  const emu::SlotCodec codec(super);
  for (const std::uint64_t table : super.table_offset) {
    const auto record = codec.decode(ZoneId{1}, peek(table + 8));
    ASSERT_TRUE(record.has_value());
    EXPECT_EQ(record->written_lbas, written);
    EXPECT_FALSE(record->data_tells);
  }
  expect_synced(client, 1, 0, written);
}

TEST_F(ZeroAheadTest, AQueueThatMayBlockFlushesByItself) {
  auto device = open();
  Client client(*device);
  client.queue->may_block();
  ASSERT_TRUE(client.write(0, 0, 1, 1).ok());
  bool done = false;
  Io flush;
  flush.op = Io::Op::flush;
  flush.context = &done;
  flush.on_complete = [](Io& io) { *static_cast<bool*>(io.context) = true; };
  const std::uint64_t before = client.queue->system_calls();
  client.queue->submit(flush);
  EXPECT_FALSE(done);
  client.queue->poll();
  EXPECT_TRUE(done);
  EXPECT_TRUE(flush.status.ok());
  EXPECT_EQ(client.queue->system_calls() - before, 1u);
}

// The kernel cancels what a thread that ends had submitted and was not begun.
TEST_F(ZeroAheadTest, WhatAThreadThatEndedSubmittedIsDoneAllTheSame) {
  auto device = open();
  Client client(*device, 64);
  std::vector<AlignedBuffer> data;
  std::vector<Io> ios(2 * 60);
  unsigned ended = 0;
  for (std::size_t i = 0; i < ios.size(); ++i) {
    data.emplace_back(4096);
    ios[i].context = &ended;
    ios[i].on_complete = [](Io& io) { ++*static_cast<unsigned*>(io.context); };
    ios[i].op = i % 2 == 0 ? Io::Op::write : Io::Op::flush;
    if (i % 2 != 0) continue;
    fill(data[i].span(), 4096, 1000 + i / 2);
    ios[i].zone = ZoneId{0};
    ios[i].lba = client.at(0, i / 2);
    ios[i].set_data(data[i].data(), 1, 4096);
  }
  std::thread([&] {
    for (Io& io : ios) client.queue->submit(io);
    client.queue->poll();
  }).join();
  while (ended != ios.size()) client.queue->wait(100'000);
  for (const Io& io : ios) EXPECT_TRUE(io.status.ok()) << io.status.describe();
  expect_synced(client, 0, 0, 60);
}

}  // namespace
}  // namespace furrow::test
