// MetadataDamageTest: a metadata ring that has rolled some times, whose LBAs a test tears, damages
// or hides, and what must be left of it.
#pragma once

#include "log/structure.h"
#include "tests/log/ring_fixture.h"
#include "zone/fault_device.h"

namespace furrow {

using Images = std::vector<std::vector<std::byte>>;

class MetadataDamageTest : public testing::Test {
 protected:
  // A pool whose ring has rolled some times; `state_` is what was acknowledged.
  void make(unsigned records, std::uint32_t metadata_zones = 2) {
    device_ = small_device();
    state_ = PoolState();
    ASSERT_TRUE(MetadataRing::format(*device_,
                                     small_superblock(device_->geometry(), metadata_zones), state_)
                    .ok());
    Result<MetadataRing> ring = MetadataRing::open(*device_, false);
    ASSERT_TRUE(ring.ok());
    for (unsigned i = 0; i < records; ++i) {
      ASSERT_TRUE(ring->append(changes_.next(state_)).ok());
      state_ = ring->state();
    }
  }
  void save() {
    infos_ = *device_->report();
    images_.clear();
    for (std::uint32_t zone = 0; zone < 3; ++zone) {
      images_.push_back(read_zone(*device_, ZoneId{zone}));
    }
  }
  void restore() {
    for (std::uint32_t zone = 0; zone < 3; ++zone) {
      const bool full = infos_[zone].state == ZoneState::full;
      rewrite_zone(*device_, ZoneId{zone}, images_[zone],
                   full ? kRingCapacityLbas : infos_[zone].written_lbas, full);
    }
  }
  // Hands the device to a FaultDevice, runs, cuts the power, and takes back what survived.
  void with_faults(std::uint64_t seed, const std::function<void(FaultDevice&)>& run,
                   CrashModel model) {
    FaultOptions options;
    options.seed = seed;
    FaultDevice faulty(std::move(device_), options);
    run(faulty);
    ASSERT_TRUE(faulty.power_cut(model).ok());
    device_ = faulty.take_inner();
  }
  // Appends until an error; `acknowledged` is the state then, `attempted` the one of the record
  // that failed.
  void append_until_error(ZonedDevice& device, unsigned records) {
    acknowledged_ = attempted_ = state_;
    Result<MetadataRing> ring = MetadataRing::open(device, false);
    if (!ring.ok()) return;
    ASSERT_EQ(ring->state(), state_);
    for (unsigned i = 0; i < records; ++i) {
      const JournalRecord record =
          i == 0 ? opening_of(acknowledged_) : changes_.next(acknowledged_);
      attempted_ = acknowledged_;
      ASSERT_TRUE(apply(attempted_, record).ok());
      if (!ring->append(record).ok()) {
        ASSERT_EQ(ring->state(), acknowledged_);
        return;
      }
      acknowledged_ = attempted_;
    }
  }
  // What a pool that was opened writes first.
  static JournalRecord opening_of(const PoolState& state) {
    JournalRecord opened;
    opened.open_count = state.open_count + 1;
    return opened;
  }
  // The ring rolls for it.
  static JournalRecord resize_of(const PoolState& state) {
    JournalRecord resized;
    resized.kind = JournalRecord::Kind::volume_resized;
    resized.volume.id = state.volumes.front().id;
    resized.volume.quota_zones = state.volumes.front().quota_zones + 1;
    return resized;
  }
  // A power cut tears, which is no damage: not before the next opening, and not after it.
  void expect_no_damage(const std::string& what) {
    const Result<MetadataRing> inspected = MetadataRing::open(*device_, true);
    ASSERT_TRUE(inspected.ok()) << what << ": " << inspected.status().describe();
    for (const std::string& text : inspected->damage()) FAIL() << what << ": " << text;
  }
  void expect_survived(const std::string& what) {
    Result<MetadataRing> ring = MetadataRing::open(*device_, false);
    ASSERT_TRUE(ring.ok()) << what << ": " << ring.status().describe();
    ASSERT_TRUE(ring->state() == acknowledged_ || ring->state() == attempted_) << what;
    for (int i = 0; i < 3; ++i) {
      const Status status =
          ring->append(i == 0 ? opening_of(ring->state()) : changes_.next(ring->state()));
      ASSERT_TRUE(status.ok()) << what << ": " << status.describe();
    }
    const Result<MetadataRing> again = MetadataRing::open(*device_, false);
    ASSERT_TRUE(again.ok()) << what << ": " << again.status().describe();
    ASSERT_EQ(again->state(), ring->state()) << what;
  }
  // The zone that the journal is in, of the saved images.
  std::uint32_t newest_zone() const {
    const auto number = [&](std::uint32_t zone) {
      return decode_superblock(std::span(images_[zone]).first(kRingLbaBytes))->checkpoint;
    };
    return number(0) > number(1) ? 0 : 1;
  }

  static void damage(ZonedDevice& device, ZoneId zone, std::uint64_t lba, bool zeroed) {
    if (!zeroed) return flip_bit(device, zone, lba);
    change_lba(device, zone, lba,
               [](std::span<std::byte> bytes) { std::ranges::fill(bytes, std::byte{}); });
  }
  void damage(ZoneId zone, std::uint64_t lba, bool zeroed) { damage(*device_, zone, lba, zeroed); }
  JournalRecord::Kind newest_began_with() const {
    const std::uint32_t zone = newest_zone();
    Uuid pool;
    pool.fill(7);
    const auto lba =
        std::span(images_[zone]).subspan(record_0(zone) * kRingLbaBytes, kRingLbaBytes);
    return decode_journal(lba, pool)->record.kind;
  }
  // Damages an LBA of the saved images that was written.
  void expect_named(std::uint32_t zone, std::uint64_t lba, bool zeroed, const std::string& made) {
    const std::string what =
        made + ", zone " + std::to_string(zone) + " LBA " + std::to_string(lba);
    restore();
    damage(ZoneId{zone}, lba, zeroed);
    const Result<MetadataRing> inspected = MetadataRing::open(*device_, true);
    ASSERT_TRUE(inspected.ok()) << what;
    ASSERT_EQ(inspected->state(), state_) << what;
    ASSERT_TRUE(inspected->repairable()) << what;
    const bool newest = zone == newest_zone();
    const std::uint64_t end = end_of_zone(zone);
    const bool rolled = end == record_0(zone) + 3;
    const bool last = lba + 2 >= end || rolled;
    using enum JournalRecord::Kind;
    const JournalRecord::Kind kind = newest_began_with();
    const bool left_orderly = kind != opened && kind != zone_trimmed;
    const bool formatted_it = rolled && kind == formatted;
    const bool may_be_torn = last && !formatted_it && (newest || !left_orderly);
    const bool noted = may_be_torn && (newest || rolled);
    ASSERT_EQ(!inspected->notes().empty(), noted) << what;
    ASSERT_EQ(inspected->damage().empty(), may_be_torn) << what;
    Result<MetadataRing> ring = MetadataRing::open(*device_, false);
    ASSERT_TRUE(ring.ok()) << what << ": " << ring.status().describe();
    ASSERT_EQ(ring->state(), state_) << what;
    if (!newest) {
      ASSERT_TRUE(ring->repair().ok()) << what;
      expect_no_damage(what + ", repaired");
      return;
    }
    // The next record makes it whole.
    ASSERT_TRUE(ring->append(changes_.next(ring->state())).ok()) << what;
    const Result<MetadataRing> again = MetadataRing::open(*device_, true);
    ASSERT_TRUE(again.ok() && again->state() == ring->state()) << what;
    flip_bit(*device_, ZoneId{zone}, lba);
    const Result<MetadataRing> fallback = MetadataRing::open(*device_, true);
    ASSERT_TRUE(fallback.ok() && fallback->state() == ring->state()) << what;
  }

  std::uint64_t record_0(std::uint32_t zone) const {
    std::uint64_t lba = 0;
    while (!has_magic(std::span(images_[zone]).subspan(lba * kRingLbaBytes), Magic::journal)) ++lba;
    return lba;
  }
  // Behind the last LBA of a zone that is not all zeroes, in the saved images.
  std::uint64_t end_of_zone(std::uint32_t zone) const {
    const auto used = [](std::byte byte) { return byte != std::byte{0}; };
    const auto last = std::find_if(images_[zone].rbegin(), images_[zone].rend(), used);
    return static_cast<std::uint64_t>(images_[zone].rend() - last + kRingLbaBytes - 1) /
           kRingLbaBytes;
  }

  std::unique_ptr<ZonedDevice> device_;
  RandomChanges changes_{test_seed()};
  PoolState state_, acknowledged_, attempted_;
  std::vector<ZoneInfo> infos_;
  Images images_;
};

}  // namespace furrow
