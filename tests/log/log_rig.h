// LogRig: what the unit tests of log/ stand on: a small mem: device behind a TapDevice (and a
// FaultDevice where faults are wanted), a PoolContext on it, and an executor that one thread turns
// by hand. Nothing depends on time or on an order that the test does not choose.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "log/pool_context.h"
#include "log/recovery.h"
#include "log/zone_survey.h"
#include "tests/log/ring_fixture.h"
#include "tests/log/tap_device.h"
#include "tests/sim/sim_executor.h"
#include "zone/aligned_buffer.h"
#include "zone/fault_device.h"

namespace furrow {

constexpr std::uint64_t kVolume = 7;  // the volume that these tests write to

// Bytes that belong to (number, version): equal only when the same page comes back.
inline std::vector<std::byte> page_bytes(std::uint64_t number, std::uint64_t version,
                                         std::size_t bytes) {
  std::vector<std::byte> page(bytes);
  std::mt19937_64 random(number * 1'000'003 + version);
  for (std::byte& byte : page) byte = static_cast<std::byte>(random());
  return page;
}

inline Key key_number(std::uint64_t number) {
  std::array<std::byte, Key::kBytesMax> bytes{};
  std::memcpy(bytes.data(), &number, 8);
  return Key::from(std::span<const std::byte>(bytes.data(), 8 + number % 9));
}

inline std::vector<std::uint32_t> batches_of(const ZoneDirectory& table) {
  std::vector<std::uint32_t> all;
  table.batches.for_each(0, ~std::uint32_t{0}, [&](std::uint32_t lba) { all.push_back(lba); });
  return all;
}

class LogRig : public ::testing::Test {
 protected:
  // 512-byte LBAs. Zones 0 and 1 would be the metadata ring's.
  struct Shape {
    std::uint32_t zones = 10;
    std::uint64_t zone_size_lbas = 128;
    std::uint64_t zone_capacity_lbas = 96;
    std::uint64_t segment_lbas = 32;
    std::uint64_t quota = 6;
    std::uint64_t others_quota = 0;  // of another volume, which holds nothing
    unsigned streams = 2;
    unsigned open_zones = 5;       // of the device's at most, and active ones
    bool faults = false;           // a FaultDevice, whose power can be cut, under the TapDevice
    unsigned delay_polls_max = 0;  // of its completions, which come in any order then
  };
  static constexpr std::uint32_t kLbaBytes = 512, kMetadataZones = 2;

  ~LogRig() override { drop_pool(); }

  void make(const Shape& shape) {
    shape_ = shape;
    const std::string open_zones = std::to_string(shape.open_zones);
    const auto bytes = [](std::uint64_t lbas) { return std::to_string(lbas * kLbaBytes); };
    auto device = open_device("mem:" + bytes(shape.zones * shape.zone_size_lbas) +
                                  "?zone_size=" + bytes(shape.zone_size_lbas) +
                                  "&zone_capacity=" + bytes(shape.zone_capacity_lbas) +
                                  "&lba=512&mor=" + open_zones + "&mar=" + open_zones,
                              Access::exclusive);
    ASSERT_TRUE(device.ok()) << device.status().describe();
    use_device(std::move(*device));
    make_pool();
  }

  // `inner`: a device that holds what an earlier one left.
  void use_device(std::unique_ptr<ZonedDevice> inner) {
    if (shape_.faults) {
      FaultOptions options;
      options.delay_polls_max = shape_.delay_polls_max;
      auto faulty = std::make_unique<FaultDevice>(std::move(inner), options);
      faults_ = faulty.get();
      inner = std::move(faulty);
    }
    device_ = std::make_unique<TapDevice>(std::move(inner));
  }

  // A fresh PoolContext on the device as it is, as after an opening.
  void make_pool() {
    auto queue = device_->create_queue(64);
    ASSERT_TRUE(queue.ok());
    queue_ = std::move(*queue);
    executor_.add(*queue_);
    superblock_ = small_superblock(device_->geometry(), kMetadataZones);
    superblock_.segment_lbas = shape_.segment_lbas;
    pool_ = std::make_unique<PoolContext>(*device_, executor_, *queue_, superblock_);
    ++openings_;
    pool_->next_sequence = (openings_ << 40) + 1;
    pool_->on_zone_cut = [this](ZoneId zone, std::uint32_t end_lba) {
      cuts_.push_back({zone, pool_->allocator.zone(zone).generation, end_lba});
    };
    ASSERT_TRUE(pool_->allocator.admit(kVolume, shape_.quota, shape_.streams).ok());
    if (shape_.others_quota == 0) return;
    ASSERT_TRUE(pool_->allocator.admit(kVolume + 1, shape_.others_quota, 0).ok());
  }
  virtual void drop_pool() {
    pool_.reset();
    if (queue_) executor_.remove(*queue_);
    queue_.reset();
  }

  // Turns until there is nothing to do, or `done` says so. False: it never did.
  bool run(const std::function<bool()>& done = nullptr) {
    for (unsigned turn = 0; turn < 100'000; ++turn) {
      if (done && done()) return true;
      if (!executor_.run_once()) return !done || done();
    }
    ADD_FAILURE() << "there is always something to do";
    return false;
  }

  // One operation, waited for, beside the pool's queue.
  Status direct(Io::Op op, ZoneId zone) {
    auto queue = device_->create_queue(4);
    Io io;
    io.op = op;
    io.zone = zone;
    io.lba = device_->geometry().zone_start(zone);
    return run_blocking(**queue, io);
  }
  ZoneInfo info(ZoneId zone) { return (*device_->report())[zone.value]; }

  // What the structures of a zone say, summaries and batch headers both.
  ZoneSurvey survey_zone(ZoneId zone) { return survey_zone(zone, generation(zone)); }
  ZoneSurvey survey_zone(ZoneId zone, std::uint64_t generation) {
    const std::vector<std::byte> bytes = read_zone(*device_, zone);
    const SurveyedZone shape{
        {pool_->pool, zone, generation},    info(zone).written_lbas, info(zone).written_lbas,
        pool_->geometry.zone_capacity_lbas, pool_->segment_lbas,     kLbaBytes};
    return survey(shape, [&bytes](std::uint64_t lba, std::uint32_t lbas) {
      return Result<std::span<const std::byte>>(
          std::span(bytes).subspan(lba * kLbaBytes, std::size_t{lbas} * kLbaBytes));
    });
  }
  std::vector<SurveyedBatch> batches(ZoneId zone) {
    std::vector<SurveyedBatch> all;
    for (const SurveyedSegment& segment : survey_zone(zone).segments) {
      EXPECT_TRUE(segment.gaps.empty());
      EXPECT_FALSE(segment.contradicts);
      all.insert(all.end(), segment.batches.begin(), segment.batches.end());
    }
    return all;
  }
  std::uint64_t generation(ZoneId zone) { return pool_->allocator.zone(zone).generation; }
  KeyHash hash(const Key& key) const { return key_hash(superblock_.hash_key, kVolume, key); }

  Shape shape_;
  sim::SimClock clock_;
  // Without delays all that the device has comes with the next poll(): nothing is due later.
  sim::SimExecutor executor_{clock_, sim::SimRandom(1), [this] {
                               const bool later = shape_.delay_polls_max != 0 && queue_->busy();
                               return later ? clock_.now_ns : sim::SimExecutor::kNever;
                             }};
  std::unique_ptr<TapDevice> device_;
  FaultDevice* faults_ = nullptr;
  std::unique_ptr<IoQueue> queue_;
  Superblock superblock_;
  std::unique_ptr<PoolContext> pool_;
  std::vector<ZoneTrim> cuts_;  // what the pool would have put into its journal
  std::uint64_t openings_ = 0;
};

}  // namespace furrow
