// A pool whose zones are images that a test writes, and what recover() makes of them.
#pragma once

#include <map>

#include "log/page_log.h"
#include "log/recovery.h"
#include "tests/log/zone_image.h"

namespace furrow {

class RecoveryTest : public LogRig {
 protected:
  void SetUp() override { make({}); }

  // An image of a zone of this pool. `generation` tells which was opened first.
  ZoneImage& zone(std::uint32_t number, std::uint64_t generation, std::uint64_t volume = kVolume,
                  std::uint8_t stream = 0, std::uint64_t opened_sequence = 0) {
    ZoneImage::Shape shape;
    shape.opened_sequence = opened_sequence;
    shape.stamp = {superblock_.pool, ZoneId{number}, generation};
    shape.hash_key = superblock_.hash_key;
    shape.volume = volume;
    shape.stream = stream;
    images_.push_back(std::make_unique<ZoneImage>(shape));
    return *images_.back();
  }
  void write_all() {
    for (const auto& image : images_) image->write_to(*device_);
  }
  RecoveryOptions options() const {
    RecoveryOptions made;
    made.scanners_per_thread = 1;
    made.volumes = {kVolume};
    return made;
  }
  RecoveryOptions options_of_store() const {
    RecoveryOptions made = options();
    made.stores = {kVolume};
    return made;
  }
  // No images, on another device, which may fail.
  void remake_with_faults() {
    images_.clear();
    drop_pool();
    Shape shape;
    shape.faults = true;
    make(shape);
  }
  // Recovers into a fresh PoolContext.
  void recover_now(const RecoveryOptions& options) {
    drop_pool();
    make_pool();
    Result<RecoveryResult> found = recover(*device_, *pool_, options);
    ASSERT_TRUE(found.ok()) << found.status().describe();
    result_ = std::make_unique<RecoveryResult>(std::move(*found));
    index_ = std::make_unique<Index>(10'000);
    result_->volumes[kVolume].pages.load_into(*index_);
  }
  void recover_now() { recover_now(options()); }
  // Until faults_->heal(). The LBA is the zone's.
  void fail_reads(std::uint32_t zone, std::uint64_t lba, std::uint32_t lbas = 1) {
    faults_->fail_reads(Lba{pool_->device_lba(ZoneId{zone}, lba)}, lbas);
  }
  // Once more, with what the last one has put into the journal, where all can be read again.
  void recover_mended(RecoveryOptions& with) {
    with.trims = result_->new_trims;
    faults_->heal();
    recover_now(with);
  }
  RecoveredVolume& volume() { return result_->volumes[kVolume]; }
  // Where the page that counts for a key lies; ~0: nowhere.
  std::uint32_t zone_of(std::uint64_t number) {
    std::array<IndexEntry, 4> entries;
    if (index_->find(hash(key_number(number)).order, 0, entries) != 1) return ~std::uint32_t{0};
    return pool_->geometry.zone_of(Lba{entries[0].lba}).value;
  }
  // The sequence of the record that counts for a key; 0: there is none.
  std::uint64_t found(std::uint64_t number) {
    std::array<IndexEntry, 4> entries;
    const unsigned count = index_->find(hash(key_number(number)).order, 0, entries);
    EXPECT_LE(count, 1u);
    if (count == 0) return 0;
    for (const auto& image : images_) {
      for (const PageRecord& r : image->records()) {
        const ZoneStamp& stamp = image->shape().stamp;
        if (pool_->device_lba(stamp.zone, r.lba) != entries[0].lba) continue;
        if (r.kind != RecordKind::page || r.key != key_number(number)) continue;
        EXPECT_EQ(entries[0].length, r.length);
        EXPECT_EQ(entries[0].checksum, r.checksum);
        return r.sequence;
      }
    }
    ADD_FAILURE() << "page " << number << " is where none was written";
    return 0;
  }
  ZoneUse use(std::uint32_t number) { return pool_->allocator.zone(ZoneId{number}).use; }

  std::vector<std::unique_ptr<ZoneImage>> images_;
  std::unique_ptr<RecoveryResult> result_;
  std::unique_ptr<Index> index_;
};

}  // namespace furrow
