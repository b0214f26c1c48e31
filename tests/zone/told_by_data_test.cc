// Establishes that a zone of an emulated device which is flushed after each of several small writes
// soon needs no slot of the zone table for each of them, and yet is written exactly as far as it
// was, to whoever opens the device after it was closed, or a copy of the file from any time; that
// it is so where data ends in zeroes, after seals, resets and damage; and that a device that was
// made without the feature does not use it. (What a power cut leaves: emu_power_cut_test.)
#include <thread>

#include "tests/zone/emu_fixture.h"
#include "zone/zero_ahead.h"

namespace furrow::test {
namespace {

using emu::kAheadBytes;
using emu::ZeroAhead;

class ToldByData : public EmuDeviceTest {
 protected:
  static constexpr std::uint64_t kAheadLbas = kAheadBytes / 4096;
  // Until the data tells: small writes, the one with zeroes, and the first one behind it.
  static constexpr std::uint64_t kFirst = ZeroAhead::kStreak + 2;

  void SetUp() override { create(); }
  void synced_write(Client& client, std::uint32_t zone, std::uint64_t at) {
    ASSERT_TRUE(client.write(zone, at, 1, 1000 + at).ok());
    ASSERT_TRUE(client.flush().ok());
  }
  void synced_writes(Client& client, std::uint32_t zone, std::uint64_t first, std::uint64_t end) {
    for (std::uint64_t at = first; at < end; ++at) synced_write(client, zone, at);
  }
  // Both slots of the zone, as they are in the file.
  std::array<std::uint64_t, 2> slots(std::uint32_t zone) {
    const emu::Superblock super = superblock();
    return {peek(super.table_offset[0] + zone * 8), peek(super.table_offset[1] + zone * 8)};
  }
  // What whoever opens a copy of the file, as it is now, finds.
  void expect_in_copy(std::uint32_t zone, std::uint64_t written) {
    const std::string copy = dir_.file("copy.img");
    std::filesystem::copy_file(path_, copy, std::filesystem::copy_options::overwrite_existing);
    auto device = open_device("emu:" + copy, Access::exclusive);
    ASSERT_TRUE(device.ok()) << device.status().describe();
    Client client(**device);
    EXPECT_EQ((*(*device)->report())[zone].written_lbas, written);
    for (std::uint64_t at = 0; at < written; ++at) client.expect_data(zone, at, 1, 1000 + at);
    client.expect_zeroes(zone, written, 8);
  }
  Status write_zeroes(Client& client, std::uint32_t zone, std::uint64_t at, std::uint32_t lbas) {
    AlignedBuffer data(std::size_t{lbas} * 4096);
    Io io;
    io.op = Io::Op::write;
    io.zone = ZoneId{zone};
    io.lba = client.at(zone, at);
    io.set_data(data.data(), lbas, 4096);
    return client.run(io);
  }
};

TEST_F(ToldByData, WritesNeedNoSlot) {
  auto device = open();
  Client client(*device);
  synced_writes(client, 0, 0, kFirst);
  const auto before = slots(0);
  for (std::uint64_t at = kFirst; at < kAheadLbas; ++at) {
    synced_write(client, 0, at);
    EXPECT_EQ(dirty_table_kib(), 0) << at;
  }
  EXPECT_EQ(slots(0), before);
  expect_in_copy(0, kAheadLbas);
  synced_write(client, 0, kAheadLbas);
  EXPECT_NE(slots(0), before);
  synced_writes(client, 0, kAheadLbas + 1, kAheadLbas + 3);
  const auto next = slots(0);
  synced_writes(client, 0, kAheadLbas + 3, 2 * kAheadLbas);
  EXPECT_EQ(slots(0), next) << "zeroes went ahead once more";
  expect_in_copy(0, 2 * kAheadLbas);
}

TEST_F(ToldByData, EveryWriteCountsAtAnyTime) {
  auto device = open();
  Client client(*device);
  for (std::uint64_t at = 0; at < kAheadLbas + kFirst + 4; ++at) {
    ASSERT_TRUE(client.write(0, at, 1, 1000 + at).ok());
    expect_in_copy(0, at + 1);
    ASSERT_TRUE(client.flush().ok());
    if (HasFailure()) return;
  }
}

TEST_F(ToldByData, ZeroesAtTheEndCount) {
  auto device = open();
  Client client(*device);
  synced_writes(client, 0, 0, 20);
  ASSERT_TRUE(write_zeroes(client, 0, 20, 3).ok());
  ASSERT_TRUE(client.flush().ok());
  device = nullptr;
  {
    auto again = open();
    EXPECT_EQ((*again->report())[0].written_lbas, 23u);
    Client reader(*again);
    ASSERT_TRUE(reader.write(0, 23, 1, 5).ok());
  }
  auto last = open();
  EXPECT_EQ((*last->report())[0].written_lbas, 24u);
}

TEST_F(ToldByData, FillsItsZone) {
  auto device = open();
  Client client(*device);
  const std::uint64_t capacity = client.geometry.zone_capacity_lbas;
  ASSERT_TRUE(client.write(0, 0, static_cast<std::uint32_t>(capacity - 30), 7).ok());
  synced_writes(client, 0, capacity - 30, capacity);
  device = nullptr;
  device = open();
  EXPECT_EQ((*device->report())[0].state, ZoneState::full);
}

TEST_F(ToldByData, FinishedAndResetZonesBeginAnew) {
  auto device = open("?reclaim=never");
  Client client(*device);
  synced_writes(client, 0, 0, 40);
  synced_writes(client, 1, 0, 40);
  ASSERT_TRUE(client.manage(Io::Op::finish, 1).ok());
  ASSERT_TRUE(client.manage(Io::Op::reset, 0).ok());
  ASSERT_TRUE(client.write(0, 0, 1, 1000).ok());
  expect_in_copy(0, 1);  // whatever lies behind it
  ASSERT_TRUE(client.flush().ok());
  synced_writes(client, 0, 1, 3);
  expect_in_copy(0, 3);
  device = nullptr;
  device = open();
  EXPECT_EQ((*device->report())[0].written_lbas, 3u);
  EXPECT_EQ((*device->report())[1].state, ZoneState::full);
}

TEST_F(ToldByData, GoesOnWhereItEndedOnceReopened) {
  auto device = open();
  for (std::uint64_t at = 0; at < 2 * kAheadLbas; at += 16) {
    Client client(*device);
    synced_writes(client, 0, at, at + 16);
    client.queue.reset();
    device = nullptr;
    device = open();
    ASSERT_EQ((*device->report())[0].written_lbas, at + 16);
  }
  Client client(*device);
  for (std::uint64_t at = 0; at < 2 * kAheadLbas; ++at) client.expect_data(0, at, 1, 1000 + at);
}

// The other slot is older, and all that is behind it can be read.
TEST_F(ToldByData, ADamagedSlotLosesNothing) {
  auto device = open();
  {
    Client client(*device);
    synced_writes(client, 0, 0, 40);
  }
  device = nullptr;
  const emu::Superblock super = superblock();
  const auto before = slots(0);
  for (const unsigned copy : {0u, 1u}) {
    const std::uint64_t damaged = before[copy] ^ 0x4000;
    poke(super.table_offset[copy], &damaged, 8);
    {
      device = open("", Access::check);
      Client client(*device);
      for (std::uint64_t at = 0; at < 40; ++at) client.expect_data(0, at, 1, 1000 + at);
    }
    device = nullptr;
    poke(super.table_offset[copy], &before[copy], 8);
  }
}

TEST_F(ToldByData, DevicesMadeWithoutItDoWithout) {
  emu::Superblock older = superblock();
  older.incompatible &= ~emu::kDataTells;
  std::array<std::byte, emu::kSuperblockBytes> bytes;
  emu::encode(older, bytes);
  for (const std::uint64_t offset : emu::kSuperblockOffsets) {
    poke(offset, bytes.data(), bytes.size());
  }
  auto device = open();
  Client client(*device);
  const emu::SlotCodec codec(older);
  for (std::uint64_t at = 0; at < kAheadLbas + 4; ++at) {
    synced_write(client, 0, at);
    const auto now = slots(0);
    const auto a = codec.decode(ZoneId{0}, now[0]), b = codec.decode(ZoneId{0}, now[1]);
    ASSERT_TRUE(a && b);
    EXPECT_EQ(std::max(a->written_lbas, b->written_lbas), at + 1);
  }
}

// Threads write to the zones and flush, and reset them, as they like.
TEST_F(ToldByData, ManyThreads) {
  constexpr std::uint32_t kThreads = 4;
  auto device = open();
  std::array<std::uint64_t, kThreads> written{};
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Client client(*device);
      for (std::uint64_t life = 0; life < 3; ++life) {
        if (life != 0) {
          ASSERT_TRUE(client.manage(Io::Op::reset, t).ok());
        }
        written[t] = 30 + 20 * ((t + life) % 3);
        synced_writes(client, t, 0, written[t]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::uint32_t t = 0; t < kThreads; ++t) expect_in_copy(t, written[t]);
}

}  // namespace
}  // namespace furrow::test
