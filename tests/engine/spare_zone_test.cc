// Establishes that a store whose power failed while it emptied a zone into the last one of its
// quota loses no page that has rotted in the zone that was to be emptied: its copy counts, and
// stays.
//
// The power of a full store on a file is cut again and again, until an opening finds such a last
// zone and resets it. With the file as it was before, one page is then damaged in its other place,
// and the pool opened.
#include <gtest/gtest.h>

#include "tests/engine/pool_file.h"
#include "zone/fault_device.h"

namespace furrow::testing::spare_zone_test {
namespace {

constexpr std::size_t kPageBytes = 20000, kZoneBytes = 1 << 20;

class SpareZoneTest : public ::testing::Test, public PoolFile {
 protected:
  void SetUp() override {
    // One zone to write to, for puts and copies.
    ASSERT_NO_FATAL_FAILURE(make_device(10 << 20, kZoneBytes, 2));
    rig_ = std::make_unique<Rig>(uri());
    VolumeOptions options;
    options.name = "pages";
    options.mode = VolumeMode::store;
    options.value_bytes_max = 64 << 10;
    ASSERT_NO_FATAL_FAILURE(rig_->make(options));
  }
  void close() {
    rig_->close();
    rig_->device.reset();
  }
  // Opens what `file` holds.
  void open(const FileImage& file) {
    write_file(file);
    ASSERT_NO_FATAL_FAILURE(rig_->open_device());
    ASSERT_NO_FATAL_FAILURE(rig_->open());
  }
  // Overwrites pages until the power fails.
  void cut(std::mt19937_64& random, std::uint64_t keys) {
    auto inner = open_device(uri(), Access::exclusive);
    ASSERT_TRUE(inner.ok()) << inner.status().describe();
    FaultOptions faults;
    faults.seed = random();
    faults.delay_polls_max = 3;
    auto fault = std::make_unique<FaultDevice>(std::move(*inner), faults);
    FaultDevice& device = *fault;
    rig_->device = std::move(fault);
    ASSERT_NO_FATAL_FAILURE(rig_->open());
    device.cut_after(1 + random() % 300, CrashModel::drive);
    while (!device.dead()) (void)rig_->put(random() % keys, ++version_, kPageBytes);
    rig_->close();
    (void)device.take_inner();
    rig_->device.reset();
  }
  std::vector<std::uint32_t> empty_zones() {
    std::vector<std::uint32_t> empty;
    const auto zones = rig_->device->report();
    for (const ZoneInfo& info : *zones) {
      if (info.state == ZoneState::empty) empty.push_back(info.zone.value);
    }
    return empty;
  }
  static std::uint32_t zone_of(std::size_t at) {
    return static_cast<std::uint32_t>((at - kDataAt) / kZoneBytes);
  }
  // Of a zone, from its header.
  static std::uint64_t opened(const FileImage& file, std::uint32_t zone) {
    std::uint64_t sequence = 0;
    std::memcpy(&sequence, file.view().data() + kDataAt + zone * kZoneBytes + 52, 8);
    return sequence;
  }
  struct Copied {
    std::uint64_t key = 0;
    std::vector<std::byte> page;
    std::size_t original = 0;  // in the file
  };
  // Opens `file`: was a zone given back that had a page which stands in another zone as well?
  std::optional<Copied> find_copied(const FileImage& file, std::uint64_t keys) {
    EXPECT_NO_FATAL_FAILURE(rig_->open_device());
    const std::size_t empty_before = empty_zones().size();
    const auto zones = rig_->device->report();
    EXPECT_NO_FATAL_FAILURE(rig_->open(true));
    CheckOptions structures;
    structures.pages = false;
    // What is torn does not count, from where the first note says.
    std::uint32_t torn_zone = 0;
    unsigned long torn_lba = 0;
    const std::vector<std::string> notes = rig_->pool->check(structures)->notes;
    const bool told =
        notes.empty() || std::sscanf(notes[0].c_str(), "zone %u: nothing counts from LBA %lu on",
                                     &torn_zone, &torn_lba) == 2;
    EXPECT_TRUE(told) << notes[0];
    rig_->close();
    EXPECT_NO_FATAL_FAILURE(rig_->open());
    const auto empty = empty_zones();
    std::optional<Copied> found;
    const bool given_back = notes.size() < 2 && empty_before == 0 && empty.size() == 1;
    for (std::uint64_t key = 0; given_back && key < keys; ++key) {
      const auto page = rig_->get(key);
      if (!page.ok() || found) continue;
      auto where = places(file, text_of(*page));
      if (where.size() != 2) continue;
      if (zone_of(where[0]) == empty.front()) std::swap(where[0], where[1]);
      // The copy counts: it lies before the write pointer, and its zone is the newer one.
      const std::size_t copy_end = where[1] + kPageBytes;
      const std::uint32_t zone = zone_of(where[1]);
      const std::uint64_t end = zone == torn_zone ? torn_lba : (*zones)[zone].written_lbas;
      if (zone != empty.front() || opened(file, zone) <= opened(file, zone_of(where[0])) ||
          zone_of(where[0]) == torn_zone || copy_end > kDataAt + zone * kZoneBytes + end * 4096) {
        continue;
      }
      found = Copied{key, *page, where[0]};
    }
    close();
    return found;
  }

  std::unique_ptr<Rig> rig_;
  std::uint64_t version_ = 0;
};

TEST_F(SpareZoneTest, ARottenOriginalDoesNotTakeItsCopyWithIt) {
  std::mt19937_64 random(11);  // of a dozen the one that finds it first
  std::uint64_t keys = 0;
  while (rig_->put(keys, ++version_, kPageBytes).ok()) ++keys;
  close();
  unsigned tried = 0;
  for (unsigned round = 0; tried == 0; ++round) {
    ASSERT_LT(round, 400u) << "no opening gave a zone back";
    ASSERT_NO_FATAL_FAILURE(cut(random, keys));
    const FileImage before = read_file();
    const std::optional<Copied> copied = find_copied(before, keys);
    if (copied) {
      ++tried;
      SCOPED_TRACE("round " + std::to_string(round) + ", key " + std::to_string(copied->key));
      FileImage damaged = before;
      damaged[copied->original + 10000] = static_cast<char>(damaged[copied->original + 10000] ^ 1);
      ASSERT_NO_FATAL_FAILURE(open(damaged));
      const auto page = rig_->get(copied->key);
      ASSERT_TRUE(page.ok()) << page.status().describe();
      EXPECT_EQ(*page, copied->page);
      EXPECT_EQ(rig_->pool->info().zones_free, 0u) << "the zone with the copy stays";
      close();
    }
    write_file(before);
  }
}

}  // namespace
}  // namespace furrow::testing::spare_zone_test
