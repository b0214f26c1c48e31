// ZoneImage: the bytes of a data zone, made structure by structure with the codecs, for tests of
// what reads zones. It holds what a Stream could have written, and what a test then damages.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "log/format.h"
#include "tests/log/log_rig.h"
#include "tests/log/reseal.h"

namespace furrow {

class ZoneImage {
 public:
  struct Shape {
    ZoneStamp stamp;
    std::uint64_t volume = kVolume;
    std::uint64_t capacity_lbas = 96;
    std::uint64_t segment_lbas = 32;
    std::uint8_t stream = 0;
    std::uint64_t opened_sequence = 0;  // 0: the generation
    std::array<std::uint8_t, 16> hash_key{};
  };
  // A record to be, and the page that it describes.
  struct Item {
    PageRecord record;
    std::vector<std::byte> page;
  };

  explicit ZoneImage(const Shape& shape) : shape_(shape), bytes_(shape.capacity_lbas * kLbaBytes) {
    const std::uint64_t opened =
        shape.opened_sequence != 0 ? shape.opened_sequence : shape.stamp.generation;
    encode(ZoneHeader{shape.stamp, shape.volume, opened, shape.stream}, lba(0));
  }

  Item page(std::uint64_t number, std::uint64_t sequence, std::uint32_t bytes,
            std::uint64_t version = 0) const {
    Item item;
    item.page = page_bytes(number, version, bytes);
    item.record.key = key_number(number);
    item.record.sequence = sequence;
    item.record.length = bytes;
    item.record.checksum =
        page_checksum(item.page, key_hash(shape_.hash_key, shape_.volume, item.record.key));
    return item;
  }
  static Item tombstone(std::uint64_t number, std::uint64_t sequence) {
    Item item;
    item.record.kind = RecordKind::tombstone;
    item.record.key = key_number(number);
    item.record.sequence = sequence;
    return item;
  }
  static Item group_tombstone(std::uint64_t group, std::uint64_t sequence) {
    Item item;
    item.record.kind = RecordKind::group_tombstone;
    item.record.group = group;
    item.record.sequence = sequence;
    return item;
  }
  static Item in_group(Item item, std::uint64_t group) {
    item.record.group = group;
    return item;
  }
  static Item expiring(Item item, std::uint32_t expires_s) {
    item.record.expires_s = expires_s;
    return item;
  }

  // Where the batch's header stands.
  std::uint32_t add_batch(std::vector<Item> items, std::uint32_t flushed_lba = 1) {
    const auto lbas = [](std::size_t bytes) {
      return static_cast<std::uint32_t>((bytes + kLbaBytes - 1) / kLbaBytes);
    };
    const std::uint32_t at = next_lba_;
    const std::uint32_t header_lbas = lbas(batch_header_bytes(items.size()));
    next_lba_ += header_lbas;
    std::vector<PageRecord> placed;
    for (Item& item : items) {
      item.record.lba = item.page.empty() ? at : next_lba_;
      if (!item.page.empty())
        std::memcpy(lba(next_lba_).data(), item.page.data(), item.page.size());
      next_lba_ += lbas(item.page.size());
      placed.push_back(item.record);
    }
    const BatchHeader header{shape_.stamp,   at,          header_lbas,
                             next_lba_ - at, flushed_lba, static_cast<std::uint32_t>(placed.size()),
                             shape_.stream};
    encode(header, placed, std::span(bytes_).subspan(at * kLbaBytes, header_lbas * kLbaBytes));
    records_.insert(records_.end(), placed.begin(), placed.end());
    batches_.push_back(at);
    all_.insert(all_.end(), placed.begin(), placed.end());
    return at;
  }
  // A batch without records that repeats the segment's batches from number `from` on, and says that
  // all before it is durable, or what is before `flushed_before`.
  std::uint32_t add_note(std::size_t from = 0, std::uint32_t flushed_before = ~0u) {
    const std::uint32_t at = next_lba_;
    const std::uint32_t flushed_lba = std::min(at, flushed_before);
    const auto batches = std::span(batches_).subspan(from);
    std::vector<PageRecord> told = records_;
    std::erase_if(told, [&](const PageRecord& r) { return r.lba < batches.front(); });
    const std::size_t bytes = summary_bytes(told.size(), batches.size(), true, true, true);
    const auto lbas = static_cast<std::uint32_t>((bytes + kLbaBytes - 1) / kLbaBytes);
    encode(BatchHeader{shape_.stamp, at, 1, 1 + lbas, flushed_lba, 0, shape_.stream}, {}, lba(at));
    const Summary summary{
        shape_.stamp, shape_.volume, static_cast<std::uint32_t>(segment_),   at + 1,
        at,           lbas,          static_cast<std::uint32_t>(told.size())};
    encode(summary, told, batches,
           std::span(bytes_).subspan((at + 1) * kLbaBytes, lbas * kLbaBytes));
    next_lba_ += 1 + lbas;
    batches_.push_back(at);
    return at;
  }
  // The summary of the segment that is being written; where it starts.
  std::uint32_t close_segment() {
    const std::uint64_t end = std::min((segment_ + 1) * shape_.segment_lbas, shape_.capacity_lbas);
    bool groups = false, expiries = false;
    for (const PageRecord& record : records_) {
      groups |= record.group != 0;
      expiries |= record.expires_s != 0;
    }
    const std::size_t bytes =
        summary_bytes(records_.size(), batches_.size(), groups, expiries, true);
    const std::uint64_t lbas = (bytes + kLbaBytes - 1) / kLbaBytes;
    FURROW_CHECK(next_lba_ + lbas <= end);
    const auto first = static_cast<std::uint32_t>(end - lbas);
    const Summary summary{shape_.stamp,
                          shape_.volume,
                          static_cast<std::uint32_t>(segment_),
                          first,
                          next_lba_,
                          static_cast<std::uint32_t>(lbas),
                          static_cast<std::uint32_t>(records_.size())};
    encode(summary, records_, batches_,
           std::span(bytes_).subspan(first * kLbaBytes, lbas * kLbaBytes));
    records_.clear();
    batches_.clear();
    next_lba_ = static_cast<std::uint32_t>(end);
    ++segment_;
    return first;
  }

  std::span<std::byte> lba(std::uint64_t at) {
    return std::span(bytes_).subspan(at * kLbaBytes, kLbaBytes);
  }
  // The zone that was opened before it.
  void set_previous(std::uint64_t opened_sequence) {
    const std::uint64_t opened =
        shape_.opened_sequence != 0 ? shape_.opened_sequence : shape_.stamp.generation;
    encode(ZoneHeader{shape_.stamp, shape_.volume, opened, shape_.stream, opened_sequence}, lba(0));
  }
  void damage(std::uint64_t at) { lba(at)[50] ^= std::byte{1}; }
  // The header at that LBA, or the summary that ends with it, is intact and of a later version.
  void make_newer(std::uint64_t at) {
    const auto footer = lba(at).last(kFooterBytes);
    const bool summary = has_magic(footer, Magic::summary);
    set_version(summary ? footer : lba(at), kFormatVersion + 1);
  }
  std::span<const std::byte> bytes() const { return bytes_; }
  std::uint32_t written_lbas() const { return next_lba_; }
  void set_written(std::uint32_t lbas) { next_lba_ = lbas; }
  const std::vector<PageRecord>& records() const { return all_; }  // of all segments
  const Shape& shape() const { return shape_; }

  void write_to(ZonedDevice& device) const {
    const bool full = next_lba_ == shape_.capacity_lbas;
    rewrite_zone(device, shape_.stamp.zone, bytes_, next_lba_, full);
  }

 private:
  static constexpr std::size_t kLbaBytes = 512;

  Shape shape_;
  std::vector<std::byte> bytes_;
  std::uint32_t next_lba_ = 1;
  std::uint64_t segment_ = 0;
  std::vector<PageRecord> records_;  // of the segment
  std::vector<std::uint32_t> batches_;
  std::vector<PageRecord> all_;
};

}  // namespace furrow
