// Establishes which volume has which stream after an opening where the device has not enough open
// zones for all: those with a zone of it open keep it, and one that has lost it has that zone
// finished, with all its pages there; which lifetimes a store keeps apart, by its quota and the
// open zones that the device has to spare; and that a note, which nobody asked for, is no use of a
// volume that is to be deleted. How: pools on files with few active zones; the allocator tells
// which streams' zones are open.
#include <gtest/gtest.h>

#include <array>
#include <set>

#include "engine/pool_impl.h"
#include "tests/engine/pool_file.h"
#include "zone/zone_state_machine.h"

namespace furrow::testing {
namespace {

constexpr std::uint64_t kZoneBytes = 1 << 20;
constexpr std::uint64_t kKeys = 20;
constexpr std::size_t kPageBytes = 4000;

VolumeOptions volume_of(const char* name, VolumeMode mode, std::uint64_t zones) {
  VolumeOptions options;
  options.name = name;
  options.mode = mode;
  options.quota_bytes = zones * kZoneBytes;
  options.value_bytes_max = 64 << 10;
  return options;
}

class VolumeStreamsTest : public ::testing::Test, public PoolFile {
 protected:
  // One of the 8 is the ring's; the store has 3, the caches the rest.
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(make_device(40 << 20, kZoneBytes, 8));
    rig_ = std::make_unique<Rig>(uri());
    ASSERT_NO_FATAL_FAILURE(rig_->make(volume_of("pages", VolumeMode::store, 16)));
  }
  Status put(std::uint64_t number, std::uint32_t ttl_s, Lifetime lifetime = Lifetime::medium_term) {
    PageOp op;
    op.kind = PageOp::Kind::put;
    op.key = key_of(number);
    op.ttl_s = ttl_s;
    op.lifetime = lifetime;
    AlignedBuffer page(kPageBytes);
    const auto bytes = content(number, 1, kPageBytes);
    std::ranges::copy(bytes, page.data());
    op.data = page.data();
    op.length = static_cast<std::uint32_t>(kPageBytes);
    op.capacity = static_cast<std::uint32_t>(page.size());
    return rig_->run(op);
  }
  void put_both() {
    rig_->store = rig_->pool->find("pages");
    for (std::uint64_t n = 0; n < kKeys; ++n) {
      ASSERT_TRUE(put(n, n % 2 == 0 ? 1'000'000 : 0).ok());
    }
  }
  void expect_all() {
    rig_->store = rig_->pool->find("pages");
    ASSERT_NE(rig_->store, nullptr);
    for (std::uint64_t n = 0; n < kKeys; ++n) {
      const auto page = rig_->get(n);
      ASSERT_TRUE(page.ok()) << n << ": " << page.status().describe();
      EXPECT_EQ(*page, content(n, 1, kPageBytes));
    }
  }
  // The store's open zone of a stream.
  std::optional<ZoneId> open_zone(std::uint8_t stream) {
    const auto& pool = static_cast<const PoolImpl&>(*rig_->pool);
    const std::uint64_t owner = rig_->pool->find("pages")->info().id;
    const auto zones = pool.context().allocator.zones();
    for (std::uint32_t i = 0; i < zones.size(); ++i) {
      const ZoneAllocator::Zone& zone = zones[i];
      if (zone.owner == owner && zone.stream == stream && zone.use == ZoneUse::open)
        return ZoneId{i};
    }
    return std::nullopt;
  }
  // Volumes that the pool is to know of at its next opening.
  void list_more(std::uint64_t volumes) {
    rig_->close();
    Result<MetadataRing> ring = MetadataRing::open(*rig_->device, false);
    ASSERT_TRUE(ring.ok());
    for (std::uint64_t i = 0; i < volumes; ++i) {
      JournalRecord created;
      created.kind = JournalRecord::Kind::volume_created;
      created.volume.id = ring->state().next_volume_id;
      created.volume.name = "more-" + std::to_string(i);
      created.volume.kind = static_cast<std::uint8_t>(VolumeKind::kv);
      created.volume.mode = static_cast<std::uint8_t>(VolumeMode::store);
      created.volume.nsid = static_cast<std::uint32_t>(100 + i);
      created.volume.quota_zones = 3;
      created.volume.value_bytes_max = 4096;
      ASSERT_TRUE(ring->append(created).ok());
    }
  }
  std::uint64_t active_zones() {
    return static_cast<std::uint64_t>(std::ranges::count_if(
        *rig_->device->report(), [](const ZoneInfo& zone) { return is_active(zone.state); }));
  }

  std::unique_ptr<Rig> rig_;
};

TEST_F(VolumeStreamsTest, AStreamWithAnOpenZoneIsKept) {
  ASSERT_NO_FATAL_FAILURE(put_both());
  const auto expiring = open_zone(kShortStream), user = open_zone(kUserStream);
  ASSERT_TRUE(expiring && user);
  // Of 7 open zones 6 are for users' pages: one stream is left for six stores and their kinds.
  ASSERT_NO_FATAL_FAILURE(list_more(5));
  ASSERT_NO_FATAL_FAILURE(rig_->open());
  EXPECT_EQ(open_zone(kShortStream), expiring);
  EXPECT_EQ(open_zone(kUserStream), user);
  ASSERT_NO_FATAL_FAILURE(expect_all());
  ASSERT_TRUE(put(100, 1'000'000).ok());
  EXPECT_EQ(open_zone(kShortStream), expiring) << "and it is gone on with";
  EXPECT_LE(active_zones(), 8u);
  rig_->close();
}

TEST_F(VolumeStreamsTest, AStreamWithoutAnOpenZoneToSpareEnds) {
  ASSERT_NO_FATAL_FAILURE(put_both());
  const auto expiring = open_zone(kShortStream), user = open_zone(kUserStream);
  ASSERT_TRUE(expiring && user);
  ASSERT_NO_FATAL_FAILURE(list_more(6));
  ASSERT_NO_FATAL_FAILURE(rig_->open());
  EXPECT_EQ(open_zone(kShortStream), std::nullopt);
  EXPECT_EQ(open_zone(kUserStream), user);
  EXPECT_EQ((*rig_->device->report())[expiring->value].state, ZoneState::full);
  for (int round = 0; round < 2; ++round) {
    ASSERT_NO_FATAL_FAILURE(expect_all());
    ASSERT_TRUE(put(100, 1'000'000).ok()) << "it goes to the user's zone";
    EXPECT_EQ(open_zone(kUserStream), user);
    EXPECT_LE(active_zones(), 8u);
    ASSERT_NO_FATAL_FAILURE(rig_->reopen());
  }
  const auto checked = rig_->pool->check({});
  ASSERT_TRUE(checked.ok());
  EXPECT_TRUE(checked->clean());
  rig_->close();
}

// A page of each lifetime into a store of so many zones: which streams have a zone then.
class LifetimeStreamsTest : public VolumeStreamsTest {
 protected:
  using Streams = std::set<unsigned>;

  void SetUp() override {}
  void make(std::uint32_t active_zones, std::uint64_t quota) {
    rig_.reset();
    std::filesystem::remove(path());
    ASSERT_NO_FATAL_FAILURE(make_device(80 << 20, kZoneBytes, active_zones));
    rig_ = std::make_unique<Rig>(uri());
    rig_->open_options.lifetime_zones = 16;
    ASSERT_NO_FATAL_FAILURE(rig_->make(volume_of("pages", VolumeMode::store, quota)));
  }
  Streams streams() {
    Streams open;
    for (std::uint8_t stream = 0; stream <= kStreamMax; ++stream) {
      if (open_zone(stream)) open.insert(stream);
    }
    return open;
  }
  void put_each() {
    rig_->store = rig_->pool->find("pages");
    constexpr std::array kAll = {Lifetime::medium_term, Lifetime::short_term, Lifetime::long_term,
                                 Lifetime::extreme};
    for (std::uint64_t n = 0; n < kKeys; ++n) ASSERT_TRUE(put(n, 0, kAll[n % 4]).ok());
  }
};

TEST_F(LifetimeStreamsTest, AreAsManyAsTheQuotaIsWorth) {
  for (const auto& [quota, expected] :
       {std::pair(15u, Streams{kUserStream}), std::pair(16u, Streams{kUserStream, kShortStream}),
        std::pair(31u, Streams{kUserStream, kShortStream}),
        std::pair(32u, Streams{kUserStream, kShortStream, kLongStream}),
        std::pair(63u, Streams{kUserStream, kShortStream, kLongStream}),
        std::pair(64u, Streams{kUserStream, kShortStream, kLongStream, kExtremeStream})}) {
    SCOPED_TRACE(quota);
    ASSERT_NO_FATAL_FAILURE(make(14, quota));
    ASSERT_NO_FATAL_FAILURE(put_each());
    EXPECT_EQ(streams(), expected);
    for (int round = 0; round < 2; ++round) {
      ASSERT_NO_FATAL_FAILURE(rig_->reopen());
      EXPECT_EQ(streams(), expected) << "and they are gone on with";
      ASSERT_NO_FATAL_FAILURE(expect_all());
      ASSERT_NO_FATAL_FAILURE(put_each());
      EXPECT_EQ(streams(), expected);
    }
    rig_->close();
  }
}

// Four open zones are for volumes to come, and collection has one.
TEST_F(LifetimeStreamsTest, AreAsManyAsTheDeviceHasOpenZonesToSpare) {
  for (const auto& [active, expected] :
       {std::pair(7u, Streams{kUserStream}), std::pair(8u, Streams{kUserStream, kShortStream}),
        std::pair(9u, Streams{kUserStream, kShortStream, kLongStream})}) {
    SCOPED_TRACE(active);
    ASSERT_NO_FATAL_FAILURE(make(active, 64));
    ASSERT_NO_FATAL_FAILURE(put_each());
    EXPECT_EQ(streams(), expected);
    EXPECT_LE(active_zones(), active);
    ASSERT_NO_FATAL_FAILURE(rig_->reopen());
    EXPECT_EQ(streams(), expected);
    ASSERT_NO_FATAL_FAILURE(expect_all());
    rig_->close();
  }
}

TEST_F(VolumeStreamsTest, AVolumeIsDeletedWhileItsNoteIsWritten) {
  ASSERT_NO_FATAL_FAILURE(put_both());
  PageOp flush;
  flush.kind = PageOp::Kind::flush;
  ASSERT_TRUE(rig_->run(flush).ok());
  const std::uint64_t before = rig_->store->stats().device_bytes_written;
  for (unsigned i = 0; rig_->store->stats().device_bytes_written == before; ++i) {
    ASSERT_LT(i, 10'000'000u) << "there is no note";
    rig_->loop.run_once();
  }
  const Status deleted = rig_->pool->delete_volume("pages");
  EXPECT_TRUE(deleted.ok()) << deleted.describe();
  EXPECT_EQ(rig_->pool->find("pages"), nullptr);
  rig_->close();
}

}  // namespace
}  // namespace furrow::testing
