// Establishes that the codecs of the medium's structures keep every value, and refuse whatever is
// not exactly what was written: for many random structures of each kind, encode, decode, compare;
// then flip each bit, cut at each length, change the stamp, raise the version, and put each field
// out of its range behind a correct checksum. Known answers pin the hashes and the layout.
#include "log/format.h"

#include <gtest/gtest.h>

#include <functional>

#include "log/metadata_format.h"
#include "log/structure.h"
#include "tests/log/random_structures.h"
#include "tests/log/reseal.h"
#include "tests/log/test_seed.h"

namespace furrow {
namespace {

using Bytes = std::vector<std::byte>;
using Decode = std::function<Status(std::span<const std::byte>)>;

template <class T>
Status status_of(const Result<T>& result) {
  return result.status();
}

// Each bit flip and each truncation must be refused, as corrupt: only an intact structure may say
// that it is of a newer version.
void expect_fragile(const Bytes& bytes, const Decode& decode) {
  ASSERT_TRUE(decode(bytes).ok()) << decode(bytes).describe();
  Bytes damaged = bytes;
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    damaged[bit / 8] ^= std::byte{1} << (bit % 8);
    ASSERT_EQ(decode(damaged).code(), Code::corrupt) << "bit " << bit;
    damaged[bit / 8] = bytes[bit / 8];
  }
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const Bytes cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    ASSERT_EQ(decode(cut).code(), Code::corrupt) << "cut to " << size;
  }
}

Bytes newer(Bytes bytes, std::size_t at, std::size_t size, Magic magic) {
  seal(std::span(bytes).subspan(at, size), magic, kFormatVersion + 1);
  return bytes;
}

class FormatTest : public testing::Test {
 protected:
  RandomStructures random_{test_seed()};
};

TEST_F(FormatTest, CodecStaysInItsSpan) {
  std::array<std::byte, 3> bytes{std::byte{1}, std::byte{2}, std::byte{3}};
  ByteReader reader(bytes);
  EXPECT_EQ(reader.take<std::uint16_t>(), 0x0201);
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(reader.take<std::uint32_t>(), 0u);
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.take<std::uint8_t>(), 0u);  // nothing more after a short read
  ByteWriter writer(bytes);
  writer.put(std::uint16_t{0x0a0b});
  EXPECT_EQ(bytes[0], std::byte{0x0b});
  EXPECT_DEATH(writer.put(std::uint32_t{1}), "check failed");
}

TEST_F(FormatTest, Crc32cKnownAnswers) {
  const auto text = std::as_bytes(std::span(std::string_view("123456789")));
  EXPECT_EQ(crc32c(text), 0xe3069283u);  // RFC 3720, B.4 and the common check value
  EXPECT_EQ(crc32c(text.subspan(4), crc32c(text.first(4))), 0xe3069283u);
  EXPECT_EQ(crc32c(Bytes(32)), 0x8a9136aau);
  EXPECT_EQ(crc32c({}), 0u);
}

TEST_F(FormatTest, KeyHashSeparatesVolumesLengthsAndSecrets) {
  const std::array<std::uint8_t, 16> secret{1, 2, 3};
  const Key short_key = Key::from(std::string_view("a"));
  const Key long_key = Key::from(std::string_view("a\0", 2));
  const KeyHash hash = key_hash(secret, 7, short_key);
  EXPECT_EQ(hash, key_hash(secret, 7, short_key));
  EXPECT_NE(hash, key_hash(secret, 8, short_key));
  EXPECT_NE(hash, key_hash(secret, 7, long_key));
  EXPECT_NE(hash, key_hash({1, 2, 4}, 7, short_key));
  EXPECT_NE(hash.order, hash.identity);
}

TEST_F(FormatTest, PageChecksumIsKeyed) {
  Bytes page(4096, std::byte{0x5a});
  const KeyHash hash{random_.number(), random_.number()};
  const std::uint32_t sum = page_checksum(page, hash);
  EXPECT_EQ(sum, page_checksum(page, hash));
  EXPECT_NE(sum, page_checksum(page, {hash.order + 1, hash.identity}));
  EXPECT_NE(sum, page_checksum(page, {hash.order, hash.identity + 1}));
  page[4095] ^= std::byte{1};
  EXPECT_NE(sum, page_checksum(page, hash));
}

// The medium outlives programs: these values must never change.
TEST_F(FormatTest, HashesArePinned) {
  std::array<std::uint8_t, 16> secret;
  for (unsigned i = 0; i < 16; ++i) secret[i] = static_cast<std::uint8_t>(i);
  const KeyHash hash = key_hash(secret, 1, Key::from(std::string_view("furrow")));
  EXPECT_EQ(hash.order, 14414743657161986284u);
  EXPECT_EQ(hash.identity, 2313307055759507746u);
  EXPECT_EQ(page_checksum(Bytes(4096, std::byte{7}), hash), 1658181759u);
  EXPECT_EQ(page_checksum(Bytes(1, std::byte{7}), hash), 191650702u);
}

TEST_F(FormatTest, ZoneHeaderRoundTripAndDamage) {
  for (int round = 0; round < 50; ++round) {
    const ZoneHeader header = random_.zone_header();
    Bytes lba(random_.lba_bytes(), std::byte{0xaa});
    encode(header, lba);
    const auto decoded = decode_zone_header(lba, header.stamp.pool, header.stamp.zone);
    ASSERT_TRUE(decoded.ok());
    EXPECT_EQ(*decoded, header);
    const auto other_zone = ZoneId{header.stamp.zone.value + 1};
    EXPECT_EQ(decode_zone_header(lba, header.stamp.pool, other_zone).status().code(),
              Code::corrupt);
    EXPECT_EQ(decode_zone_header(lba, random_.uuid(), header.stamp.zone).status().code(),
              Code::corrupt);
    ZoneHeader no_stream = header;
    no_stream.stream = static_cast<std::uint8_t>(kStreamMax + 1 + random_.below(255 - kStreamMax));
    Bytes crafted(lba.size());
    encode(no_stream, crafted);
    EXPECT_EQ(decode_zone_header(crafted, header.stamp.pool, header.stamp.zone).status().code(),
              Code::corrupt);
    for (const std::uint64_t beyond : {std::uint64_t{0}, random_.below(1000)}) {
      ZoneHeader backwards = header;
      backwards.previous_opened = header.opened_sequence + beyond;
      encode(backwards, crafted);
      const auto read = decode_zone_header(crafted, header.stamp.pool, header.stamp.zone);
      ASSERT_TRUE(read.ok());
      EXPECT_EQ(read->previous_opened, 0u) << "nobody knows";
    }
    if (round != 0) continue;
    const Decode decode = [&](auto bytes) {
      return status_of(decode_zone_header(bytes, header.stamp.pool, header.stamp.zone));
    };
    expect_fragile(lba, decode);
    const Bytes future = newer(lba, 0, lba.size(), Magic::zone_header);
    EXPECT_EQ(decode(future).code(), Code::unsupported);
    EXPECT_EQ(decode_zone_header(future, header.stamp.pool, other_zone).status().code(),
              Code::corrupt);
    // Its fields are not known, but for the stamp.
    constexpr std::size_t kStampEnd = kPrefixBytes + kStampBytes;
    EXPECT_EQ(decode(newer(lba, 0, kStampEnd, Magic::zone_header)).code(), Code::unsupported);
    EXPECT_EQ(decode(newer(lba, 0, kStampEnd - 1, Magic::zone_header)).code(), Code::corrupt);
    ZoneHeader drawn_by_nobody = header;
    drawn_by_nobody.stamp.generation = ~std::uint64_t{0};
    encode(drawn_by_nobody, crafted);
    EXPECT_EQ(decode(newer(crafted, 0, kStampEnd, Magic::zone_header)).code(), Code::corrupt);
  }
}

TEST_F(FormatTest, BatchRoundTrip) {
  for (int round = 0; round < 300; ++round) {
    const ZoneStamp stamp = random_.stamp();
    const auto batch = random_.batch(stamp, static_cast<std::uint32_t>(random_.below(1u << 24)),
                                     random_.lba_bytes());
    const Bytes bytes = batch.encode();
    const auto fixed = BatchView::fixed_part(std::span(bytes).first(batch.lba_bytes), stamp);
    ASSERT_TRUE(fixed.ok()) << fixed.status().describe();
    EXPECT_EQ(*fixed, batch.header);
    const auto view = BatchView::open(bytes, stamp);
    ASSERT_TRUE(view.ok()) << view.status().describe();
    EXPECT_EQ(view->header(), batch.header);
    for (std::uint32_t i = 0; i < batch.header.record_count; ++i) {
      ASSERT_EQ(view->record(i), batch.records[i]);
    }
    ZoneStamp other = stamp;
    ++other.generation;
    EXPECT_EQ(BatchView::open(bytes, other).status().code(), Code::corrupt);
    EXPECT_EQ(BatchView::fixed_part(bytes, other).status().code(), Code::corrupt);
  }
}

TEST_F(FormatTest, BatchDamage) {
  for (const std::uint32_t lba_bytes : {512u, 4096u}) {
    const ZoneStamp stamp = random_.stamp();
    RandomStructures::Batch batch;
    do {
      batch = random_.batch(stamp, 5, lba_bytes);
    } while (batch.records.size() < 20 || batch.header.header_lbas > 4);
    const Bytes bytes = batch.encode();
    const Decode decode = [&](auto span) { return status_of(BatchView::open(span, stamp)); };
    expect_fragile(bytes, decode);
    const Bytes future = newer(bytes, 0, kBatchHeaderBytes, Magic::batch_header);
    EXPECT_EQ(decode(future).code(), Code::unsupported);
    EXPECT_EQ(BatchView::fixed_part(future, stamp).status().code(), Code::unsupported);
  }
}

// Behind correct checksums, each field out of its range must still be refused.
TEST_F(FormatTest, BatchFieldsOutOfRange) {
  const ZoneStamp stamp{Uuid{1}, ZoneId{3}, 9};
  PageRecord page;
  page.key = Key::from(std::string_view("key"));
  page.lba = 11;
  page.length = 600;
  const std::vector<PageRecord> records{page};
  Bytes good(512);
  encode(BatchHeader{stamp, 10, 1, 3, 10, 1}, records, good);
  const auto code_with = [&](std::size_t at, std::uint32_t value) {
    Bytes bytes = good;
    store_le(bytes.data() + at, value);
    reseal_batch(bytes);
    return BatchView::open(bytes, stamp).status().code();
  };
  constexpr std::size_t kFields = kPrefixBytes + kStampBytes, kRecord = kBatchHeaderBytes;
  const auto shape = [](std::uint32_t length, std::uint32_t key_length, std::uint32_t kind) {
    return (length - 1) | key_length << 22 | kind << 27;
  };
  EXPECT_EQ(code_with(kRecord + 36, shape(1024, 3, 1)), Code::ok);  // the harness works
  EXPECT_EQ(code_with(kFields + 4, 0), Code::corrupt);              // no header LBAs
  EXPECT_EQ(code_with(kFields + 8, 0), Code::corrupt);              // shorter than its header
  EXPECT_EQ(code_with(kFields + 8, ~0u), Code::corrupt);            // beyond any zone
  EXPECT_EQ(code_with(kFields + 12, 11), Code::corrupt);            // flushed behind itself
  EXPECT_EQ(code_with(kFields + 16, 10), Code::corrupt);            // more records than fit
  EXPECT_EQ(code_with(kFields + 16, ~0u), Code::corrupt);
  EXPECT_EQ(code_with(kFields + 20, 500), Code::corrupt);  // no LBA size
  EXPECT_EQ(code_with(kFields + 28, kStreamMax), Code::ok);
  EXPECT_EQ(code_with(kFields + 28, kStreamMax + 1), Code::corrupt);  // no stream
  EXPECT_EQ(code_with(kRecord + 32, 10), Code::corrupt);              // a page in the header
  EXPECT_EQ(code_with(kRecord + 32, 12), Code::corrupt);              // beyond the batch
  EXPECT_EQ(code_with(kRecord + 32, ~0u), Code::corrupt);
  EXPECT_EQ(code_with(kRecord + 36, shape(1025, 3, 1)), Code::corrupt);
  EXPECT_EQ(code_with(kRecord + 36, shape(600, 0, 1)), Code::corrupt);
  EXPECT_EQ(code_with(kRecord + 36, shape(600, 2, 1)), Code::corrupt);  // bytes behind the key
  EXPECT_EQ(code_with(kRecord + 36, shape(600, 17, 1)), Code::corrupt);
  EXPECT_EQ(code_with(kRecord + 36, shape(600, 3, 0)), Code::corrupt);
  EXPECT_EQ(code_with(kRecord + 36, shape(600, 3, 2)), Code::corrupt);  // a tombstone with a page
}

// Who looks something up by a page's LBA goes by their order.
TEST_F(FormatTest, PagesInAnotherOrder) {
  const ZoneStamp stamp{Uuid{1}, ZoneId{3}, 9};
  std::vector<PageRecord> records(3);
  for (PageRecord& record : records) record.key = Key::from(std::string_view("key"));
  records[0].lba = 12;
  records[1].kind = RecordKind::tombstone;
  records[1].lba = 10;
  records[0].length = records[2].length = 600;
  Bytes bytes(512);
  for (const std::uint32_t last : {13u, 12u, 11u}) {
    records[2].lba = last;
    const Code expected = last > records[0].lba ? Code::ok : Code::corrupt;
    encode(BatchHeader{stamp, 10, 1, 5, 10, 3}, records, bytes);
    EXPECT_EQ(BatchView::open(bytes, stamp).status().code(), expected) << last;
    encode(Summary{stamp, 1, 0, 63, 30, 1, 3}, records, std::vector<std::uint32_t>{10}, bytes);
    EXPECT_EQ(SummaryView::open(bytes, stamp).status().code(), expected) << last;
  }
}

TEST_F(FormatTest, SummaryFieldsOutOfRange) {
  const ZoneStamp stamp{Uuid{1}, ZoneId{3}, 9};
  PageRecord page;
  page.key = Key::from(std::string_view("key"));
  page.lba = 11;
  page.length = 600;
  const std::vector<PageRecord> records{page};
  const std::vector<std::uint32_t> batches{10, 20};
  Bytes good(512);
  encode(Summary{stamp, 1, 0, 63, 30, 1, 1}, records, batches, good);
  const auto code_with = [&](std::size_t at, std::uint32_t value) {
    Bytes bytes = good;
    store_le(bytes.data() + at, value);
    reseal_summary(bytes);
    return SummaryView::open(bytes, stamp).status().code();
  };
  constexpr std::size_t kFields = 512 - kFooterBytes + kPrefixBytes + kStampBytes + 16;
  EXPECT_EQ(code_with(20, 20), Code::ok);                  // the lba column; the harness works
  EXPECT_EQ(code_with(20, 10), Code::corrupt);             // where a batch header is
  EXPECT_EQ(code_with(20, 29), Code::corrupt);             // reaches beyond the data
  EXPECT_EQ(code_with(32, 20), Code::corrupt);             // batches out of order
  EXPECT_EQ(code_with(36, 30), Code::corrupt);             // a batch behind the data
  EXPECT_EQ(code_with(kFields + 4, 29), Code::corrupt);    // starts inside the data
  EXPECT_EQ(code_with(kFields + 12, 0), Code::corrupt);    // no LBAs
  EXPECT_EQ(code_with(kFields + 16, 100), Code::corrupt);  // more records than fit
  EXPECT_EQ(code_with(kFields + 16, ~0u), Code::corrupt);
  EXPECT_EQ(code_with(kFields + 20, 0), Code::corrupt);  // records without a batch
  EXPECT_EQ(code_with(kFields + 20, ~0u), Code::corrupt);
  EXPECT_EQ(code_with(kFields + 24, 8), Code::corrupt);  // an unknown column
}

TEST_F(FormatTest, SummaryRoundTrip) {
  for (int round = 0; round < 500; ++round) {
    const auto parts = random_.summary();
    const Bytes bytes = parts.encode();
    const ZoneStamp& stamp = parts.summary.stamp;
    const auto footer = SummaryView::footer(std::span(bytes).last(parts.lba_bytes), stamp);
    ASSERT_TRUE(footer.ok()) << footer.status().describe();
    EXPECT_EQ(*footer, parts.summary);
    const auto view = SummaryView::open(bytes, stamp);
    ASSERT_TRUE(view.ok()) << view.status().describe();
    EXPECT_EQ(view->summary(), parts.summary);
    for (std::uint32_t i = 0; i < parts.summary.record_count; ++i) {
      ASSERT_EQ(view->record(i), parts.records[i]);
    }
    ASSERT_EQ(view->batch_count(), parts.batch_lbas.size());
    for (std::uint32_t i = 0; i < view->batch_count(); ++i) {
      ASSERT_EQ(view->batch_lba(i), parts.batch_lbas[i]);
    }
    ZoneStamp other = stamp;
    other.pool[3] ^= 1;
    EXPECT_EQ(SummaryView::open(bytes, other).status().code(), Code::corrupt);
    EXPECT_EQ(SummaryView::footer(bytes, other).status().code(), Code::corrupt);
  }
}

TEST_F(FormatTest, SummaryDamage) {
  RandomStructures::SummaryParts parts;
  do {
    parts = random_.summary();
  } while (parts.records.size() < 20 || parts.encode().size() > 4096);
  const Bytes bytes = parts.encode();
  const ZoneStamp& stamp = parts.summary.stamp;
  const Decode decode = [&](auto span) { return status_of(SummaryView::open(span, stamp)); };
  expect_fragile(bytes, decode);
  const Bytes future = newer(bytes, bytes.size() - kFooterBytes, kFooterBytes, Magic::summary);
  EXPECT_EQ(decode(future).code(), Code::unsupported);
  EXPECT_EQ(SummaryView::footer(future, stamp).status().code(), Code::unsupported);
}

TEST_F(FormatTest, SummaryCostsWhatTheFormatPromises) {
  EXPECT_EQ(summary_bytes(0, 0, false, false, false), 96u);
  EXPECT_EQ(summary_bytes(1000, 10, false, false, false), 96u + 32 * 1000 + 40);
  EXPECT_EQ(summary_bytes(1000, 10, true, true, true), 96u + (32 + 8 + 4 + 4) * 1000 + 40);
}

TEST_F(FormatTest, SuperblockRoundTripAndDamage) {
  for (int round = 0; round < 100; ++round) {
    const Superblock superblock = random_.superblock();
    Bytes lba(superblock.lba_bytes, std::byte{0xaa});
    encode(superblock, lba);
    const auto decoded = decode_superblock(lba);
    ASSERT_TRUE(decoded.ok()) << decoded.status().describe();
    EXPECT_EQ(*decoded, superblock);
    if (round != 0) continue;
    const Decode decode = [](auto bytes) { return status_of(decode_superblock(bytes)); };
    expect_fragile(lba, decode);
    EXPECT_EQ(decode(newer(lba, 0, lba.size(), Magic::superblock)).code(), Code::unsupported);
  }
}

TEST_F(FormatTest, CheckpointRoundTripAndDamage) {
  for (int round = 0; round < 100; ++round) {
    const Checkpoint checkpoint{random_.uuid(), random_.number(), random_.state()};
    Bytes lbas((checkpoint_bytes(checkpoint.state) + 511) / 512 * 512, std::byte{0xaa});
    encode(checkpoint, lbas);
    EXPECT_EQ(claimed_checkpoint_bytes(lbas), lbas.size());
    const auto decoded = decode_checkpoint(lbas, checkpoint.pool);
    ASSERT_TRUE(decoded.ok()) << decoded.status().describe();
    EXPECT_EQ(*decoded, checkpoint);
    EXPECT_EQ(decode_checkpoint(lbas, random_.uuid()).status().code(), Code::corrupt);
    if (round != 0) continue;
    const Decode decode = [&](auto bytes) {
      return status_of(decode_checkpoint(bytes, checkpoint.pool));
    };
    expect_fragile(lbas, decode);
    EXPECT_EQ(decode(newer(lbas, 0, lbas.size(), Magic::checkpoint)).code(), Code::unsupported);
  }
}

TEST_F(FormatTest, JournalRoundTripAndDamage) {
  for (int round = 0; round < 100; ++round) {
    const JournalEntry entry = random_.journal();
    Bytes lba(random_.lba_bytes(), std::byte{0xaa});
    encode(entry, lba);
    const auto decoded = decode_journal(lba, entry.pool);
    ASSERT_TRUE(decoded.ok()) << decoded.status().describe();
    EXPECT_EQ(*decoded, entry);
    EXPECT_EQ(decode_journal(lba, random_.uuid()).status().code(), Code::corrupt);
    if (round != 0) continue;
    const Decode decode = [&](auto bytes) { return status_of(decode_journal(bytes, entry.pool)); };
    expect_fragile(lba, decode);
    EXPECT_EQ(decode(newer(lba, 0, lba.size(), Magic::journal)).code(), Code::unsupported);
  }
}

}  // namespace
}  // namespace furrow
