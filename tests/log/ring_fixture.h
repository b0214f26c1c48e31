// What the tests of the metadata ring share: a small mem: device, a pool on it, a random change
// after another with the state that they lead to, and a way to damage what is on the medium.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <string>

#include "log/metadata_format.h"
#include "log/metadata_ring.h"
#include "tests/log/test_seed.h"
#include "zone/aligned_buffer.h"
#include "zone/blocking.h"

namespace furrow {

constexpr std::uint32_t kRingLbaBytes = 512;
constexpr std::uint64_t kRingZoneLbas = 32, kRingCapacityLbas = 30;

inline std::unique_ptr<ZonedDevice> small_device() {
  auto device = open_device("mem:128KiB?zone_size=16KiB&zone_capacity=15KiB&lba=512&mor=3&mar=3",
                            Access::exclusive);
  EXPECT_TRUE(device.ok()) << device.status().describe();
  EXPECT_EQ((*device)->geometry().zone_capacity_lbas, kRingCapacityLbas);
  return std::move(*device);
}

inline Superblock small_superblock(const Geometry& geometry, std::uint32_t metadata_zones = 2) {
  Superblock superblock;
  superblock.pool.fill(7);
  superblock.device_set.fill(8);
  superblock.hash_key.fill(9);
  superblock.name = "test-pool";
  superblock.metadata_zones = metadata_zones;
  superblock.segment_lbas = 8;
  superblock.lba_bytes = geometry.lba_bytes;
  superblock.zone_size_lbas = geometry.zone_size_lbas;
  superblock.zone_capacity_lbas = geometry.zone_capacity_lbas;
  superblock.zone_count = geometry.zone_count;
  return superblock;
}

// Random records that fit the state they meet.
class RandomChanges {
 public:
  explicit RandomChanges(std::uint64_t seed) : random_(seed) {}

  JournalRecord next(const PoolState& state) {
    JournalRecord record;
    const std::uint64_t kind = random_() % 5;
    if (kind == 1 && state.volumes.size() < 6) {
      record.kind = JournalRecord::Kind::volume_created;
      record.volume.id = state.next_volume_id + random_() % 3;
      record.volume.name = "v" + std::to_string(record.volume.id);
      record.volume.nsid = static_cast<std::uint32_t>(record.volume.id);
      record.volume.quota_zones = random_() % 100;
    } else if (kind == 2 && !state.volumes.empty()) {
      record.kind = JournalRecord::Kind::volume_deleted;
      record.volume.id = state.volumes[random_() % state.volumes.size()].id;
    } else if (kind == 3) {
      record.kind = JournalRecord::Kind::zone_trimmed;
      record.trim.zone = static_cast<std::uint32_t>(random_() % 6);
      record.trim.generation = random_() >> 1;
    } else if (kind == 4 && !state.volumes.empty()) {
      record.kind = JournalRecord::Kind::reservations_changed;
      record.volume.id = state.volumes[random_() % state.volumes.size()].id;
      record.reservation = reserved();
    } else {
      record.open_count = state.open_count + 1;
    }
    return record;
  }

 private:
  // By one host, or by nobody any more.
  ReservationChange reserved() {
    ReservationChange change;
    change.persists = random_() % 3 != 0;
    if (!change.persists) return change;
    change.generation = static_cast<std::uint32_t>(random_());
    change.put.push_back({{static_cast<std::uint8_t>(1 + random_() % 9)}, random_()});
    change.type = static_cast<std::uint8_t>(1 + random_() % 6);
    if (change.type <= ReservationRecord::kTypeOfOneMax) change.holder = change.put.front().host;
    return change;
  }

  std::mt19937_64 random_;
};

inline std::vector<std::byte> read_lbas(ZonedDevice& device, Lba first, std::uint64_t count) {
  auto queue = device.create_queue(4);
  EXPECT_TRUE(queue.ok());
  const std::uint32_t lba_bytes = device.geometry().lba_bytes;
  AlignedBuffer buffer(count * lba_bytes);
  Io io;
  io.op = Io::Op::read;
  io.lba = first;
  io.set_data(buffer.data(), static_cast<std::uint32_t>(count), lba_bytes);
  EXPECT_TRUE(run_blocking(**queue, io).ok());
  return {buffer.data(), buffer.data() + buffer.size()};
}

inline std::vector<std::byte> read_zone(ZonedDevice& device, ZoneId zone) {
  const Geometry& geometry = device.geometry();
  return read_lbas(device, geometry.zone_start(zone), geometry.zone_capacity_lbas);
}

// Gives a zone other contents, with the same write pointer and, if it was full, the same state.
inline void rewrite_zone(ZonedDevice& device, ZoneId zone, std::span<const std::byte> contents,
                         std::uint64_t written_lbas, bool full) {
  auto queue = device.create_queue(4);
  ASSERT_TRUE(queue.ok());
  const Geometry& geometry = device.geometry();
  Io io;
  io.op = Io::Op::reset;
  io.zone = zone;
  ASSERT_TRUE(run_blocking(**queue, io).ok());
  AlignedBuffer buffer(written_lbas * geometry.lba_bytes);
  std::copy_n(contents.begin(), buffer.size(), buffer.data());
  if (written_lbas != 0) {
    io = Io();
    io.op = Io::Op::write;
    io.zone = zone;
    io.lba = geometry.zone_start(zone);
    io.set_data(buffer.data(), static_cast<std::uint32_t>(written_lbas), geometry.lba_bytes);
    ASSERT_TRUE(run_blocking(**queue, io).ok());
  }
  if (full && written_lbas < geometry.zone_capacity_lbas) {
    io = Io();
    io.op = Io::Op::finish;
    io.zone = zone;
    ASSERT_TRUE(run_blocking(**queue, io).ok());
  }
}

// Changes the bytes of one LBA on the medium.
inline void change_lba(ZonedDevice& device, ZoneId zone, std::uint64_t lba,
                       const std::function<void(std::span<std::byte>)>& change) {
  const auto report = device.report();
  ASSERT_TRUE(report.ok());
  const ZoneInfo info = (*report)[zone.value];
  std::vector<std::byte> contents = read_zone(device, zone);
  const std::size_t lba_bytes = device.geometry().lba_bytes;
  change(std::span(contents).subspan(lba * lba_bytes, lba_bytes));
  const bool full = info.state == ZoneState::full;
  rewrite_zone(device, zone, contents,
               full ? device.geometry().zone_capacity_lbas : info.written_lbas, full);
}

inline void flip_bit(ZonedDevice& device, ZoneId zone, std::uint64_t lba) {
  change_lba(device, zone, lba, [](std::span<std::byte> bytes) { bytes[40] ^= std::byte{4}; });
}

}  // namespace furrow
