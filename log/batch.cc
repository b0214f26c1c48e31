// Batch header: prefix, fixed fields, then the records. The fixed part has a checksum of its own,
// so that one LBA is enough to learn how long the header is.
#include <algorithm>

#include "log/record_codec.h"
#include "log/structure.h"

namespace furrow {

namespace {

// Fixed part behind the prefix: stamp, five u32, body_bytes u32, body_crc u32, stream u8, reserved.
struct Fixed {
  BatchHeader header;
  std::uint32_t total_bytes = 0;  // header_lbas in bytes
  std::uint32_t body_crc = 0;     // of everything behind the fixed part
};
constexpr std::size_t kFixedFieldsBytes = kBatchHeaderBytes - kPrefixBytes;
static_assert(kStampBytes + 7 * 4 + 1 <= kFixedFieldsBytes);

RecordBounds bounds_of(const BatchHeader& header, std::uint32_t lba_bytes) {
  return {lba_bytes, header.lba + header.header_lbas, header.lba + header.batch_lbas, header.lba,
          header.lba};
}

bool valid_fixed(const Fixed& fixed) {
  const BatchHeader& h = fixed.header;
  if (h.header_lbas == 0 || h.batch_lbas < h.header_lbas || h.flushed_lba > h.lba) return false;
  if (h.stream > kStreamMax) return false;
  if (std::uint64_t{h.lba} + h.batch_lbas > UINT32_MAX) return false;
  if (fixed.total_bytes % h.header_lbas != 0) return false;
  if (!valid_lba_bytes(fixed.total_bytes / h.header_lbas)) return false;
  return kBatchHeaderBytes + std::uint64_t{h.record_count} * kBatchRecordBytes <= fixed.total_bytes;
}

void put_record(const PageRecord& record, std::byte* to) {
  std::memcpy(to, record.key.bytes.data(), Key::kBytesMax);
  store_le(to + 16, record.sequence);
  store_le(to + 24, record.group);
  store_le(to + 32, record.lba);
  store_le(to + 36, pack_shape(record));
  store_le(to + 40, record.checksum);
  store_le(to + 44, record.expires_s);
}

PageRecord take_record(const std::byte* from) {
  PageRecord record;
  std::memcpy(record.key.bytes.data(), from, Key::kBytesMax);
  record.sequence = load_le<std::uint64_t>(from + 16);
  record.group = load_le<std::uint64_t>(from + 24);
  record.lba = load_le<std::uint32_t>(from + 32);
  unpack_shape(load_le<std::uint32_t>(from + 36), record);
  record.checksum = load_le<std::uint32_t>(from + 40);
  record.expires_s = load_le<std::uint32_t>(from + 44);
  return record;
}

Result<Fixed> take_fixed(std::span<const std::byte> bytes, const ZoneStamp& stamp) {
  // The checksum of version 1 covers exactly the fixed part; the records have their own.
  const auto found = check_stamped(bytes, Magic::batch_header, kFixedFieldsBytes);
  if (!found) return found.status();
  if (found->stamp != stamp) {
    return Status(Code::corrupt, Origin::log, "a batch belongs to another life of its zone");
  }
  if (!found->version.ok()) return found->version;
  ByteReader reader(found->fields);
  Fixed fixed;
  fixed.header.stamp = stamp;
  for (std::uint32_t* field : {&fixed.header.lba, &fixed.header.header_lbas,
                               &fixed.header.batch_lbas, &fixed.header.flushed_lba,
                               &fixed.header.record_count, &fixed.total_bytes, &fixed.body_crc}) {
    *field = reader.take<std::uint32_t>();
  }
  fixed.header.stream = reader.take<std::uint8_t>();
  if (found->fields.size() != kFixedFieldsBytes - kStampBytes || !valid_fixed(fixed)) {
    return Status(Code::corrupt, Origin::log, "a batch header's fields are out of range");
  }
  return fixed;
}

}  // namespace

void encode(const BatchHeader& header, std::span<const PageRecord> records,
            std::span<std::byte> out) {
  FURROW_CHECK(out.size() <= UINT32_MAX && header.record_count == records.size());
  const Fixed fixed{header, static_cast<std::uint32_t>(out.size()), 0};
  FURROW_CHECK(valid_fixed(fixed));
  const RecordBounds bounds =
      bounds_of(header, static_cast<std::uint32_t>(out.size() / header.header_lbas));
  std::byte* to = out.data() + kBatchHeaderBytes;
  for (const PageRecord& record : records) {
    FURROW_CHECK(valid_record(record, bounds));
    put_record(record, to);
    to += kBatchRecordBytes;
  }
  std::fill(to, out.data() + out.size(), std::byte{0});

  ByteWriter writer(out.first(kBatchHeaderBytes));
  writer.put_zeroes(kPrefixBytes);
  put_stamp(writer, header.stamp);
  for (const std::uint32_t field :
       {header.lba, header.header_lbas, header.batch_lbas, header.flushed_lba, header.record_count,
        fixed.total_bytes, crc32c(out.subspan(kBatchHeaderBytes))}) {
    writer.put(field);
  }
  writer.put(header.stream);
  writer.zero_rest();
  seal(out.first(kBatchHeaderBytes), Magic::batch_header);
}

Result<BatchHeader> BatchView::fixed_part(std::span<const std::byte> first_lba,
                                          const ZoneStamp& stamp) {
  const auto fixed = take_fixed(first_lba, stamp);
  if (!fixed) return fixed.status();
  return fixed->header;
}

Result<BatchView> BatchView::open(std::span<const std::byte> bytes, const ZoneStamp& stamp) {
  const auto fixed = take_fixed(bytes, stamp);
  if (!fixed) return fixed.status();
  if (fixed->total_bytes > bytes.size()) {
    return Status(Code::corrupt, Origin::log, "a batch header is cut off");
  }
  const auto body = bytes.first(fixed->total_bytes).subspan(kBatchHeaderBytes);
  if (crc32c(body) != fixed->body_crc) {
    return Status(Code::corrupt, Origin::log, "the checksum of a batch's records does not match");
  }
  BatchView view;
  view.header_ = fixed->header;
  view.records_ = body.data();
  const RecordBounds bounds =
      bounds_of(view.header_, fixed->total_bytes / view.header_.header_lbas);
  std::uint32_t pages_lba = 0;  // from here on pages may come
  for (std::uint32_t i = 0; i < view.header_.record_count; ++i) {
    const PageRecord record = view.record(i);
    if (!valid_record(record, bounds)) {
      return Status(Code::corrupt, Origin::log, "a batch's record is out of range");
    }
    if (record.kind != RecordKind::page) continue;
    if (record.lba < pages_lba) {
      return Status(Code::corrupt, Origin::log, "a batch's pages are out of order");
    }
    pages_lba = record.lba + 1;
  }
  return view;
}

PageRecord BatchView::record(std::uint32_t i) const {
  FURROW_CHECK(i < header_.record_count);
  return take_record(records_ + std::size_t{i} * kBatchRecordBytes);
}

}  // namespace furrow
