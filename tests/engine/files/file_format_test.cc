// Establishes that what files keep in pages is read back as it was written, that a record that is
// too long leaves out what can be found again and nothing else, and that damage is refused. How:
// random records; each cut short at every byte; keys compared.
#include "engine/files/file_format.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/log/test_seed.h"

namespace furrow {
namespace {

FileRecord random_record(std::mt19937_64& random) {
  FileRecord record;
  record.inode = random() | 1;
  record.directory = random() % 4 == 0;
  record.open = random() % 2 == 0;
  record.durable = random() % 2 == 0;
  record.version = static_cast<std::uint16_t>(random());
  record.modified_s = random();
  for (unsigned links = random() % 4; links != 0; --links) {
    record.links.push_back({random(), random(), std::string(1 + random() % kFileNameMax, 'x')});
  }
  for (unsigned chunks = random() % 50; chunks != 0; --chunks) {
    record.chunks.push_back({static_cast<std::uint32_t>(1 + random() % (1 << 20)),
                             static_cast<std::uint32_t>(random()),
                             static_cast<std::uint16_t>(random())});
  }
  return record;
}

TEST(FileFormat, ARecordComesBackAndAPartOfItDoesNot) {
  std::mt19937_64 random(test_seed());
  for (unsigned i = 0; i < 200; ++i) {
    const FileRecord record = random_record(random);
    const auto page = encode(record, 1 << 20);
    ASSERT_TRUE(page.ok()) << page.status().describe();
    const auto back = decode_file_record(*page);
    ASSERT_TRUE(back.ok()) << back.status().describe();
    EXPECT_EQ(*back, record);
    for (std::size_t bytes = 0; bytes < page->size(); ++bytes) {
      EXPECT_EQ(decode_file_record(std::span(*page).first(bytes)).status().code(), Code::corrupt);
    }
  }
}

TEST(FileFormat, WhatDoesNotFitIsLeftToBeFound) {
  FileRecord record;
  record.inode = 7;
  record.version = 3;
  record.links.push_back({1, 2, "log"});
  for (unsigned i = 0; i < 1000; ++i) record.chunks.push_back({4096, i, 3});
  const auto page = encode(record, 4096);
  ASSERT_TRUE(page.ok());
  EXPECT_LE(page->size(), 4096u);
  const auto back = decode_file_record(*page);
  ASSERT_TRUE(back.ok());
  EXPECT_TRUE(back->open);
  EXPECT_GT(back->chunks.size(), 300u);
  EXPECT_TRUE(std::equal(back->chunks.begin(), back->chunks.end(), record.chunks.begin()));
  // Of another version, they could not be found.
  record.chunks.back().version = 2;
  EXPECT_EQ(encode(record, 4096).status().code(), Code::too_large);
  record.chunks.clear();
  record.links.front().name.assign(5000, 'x');
  EXPECT_EQ(encode(record, 4096).status().code(), Code::too_large);
}

TEST(FileFormat, ARecordSaysHowManyNamesItHas) {
  FileRecord record;
  record.inode = 7;
  for (std::size_t i = 0; i < kFileLinksMax; ++i) record.links.push_back({1, i, "x"});
  const auto page = encode(record, 4 << 20);
  ASSERT_TRUE(page.ok()) << page.status().describe();
  EXPECT_EQ(decode_file_record(*page)->links.size(), kFileLinksMax);
  record.links.push_back({1, 7, "x"});
  EXPECT_EQ(encode(record, 4 << 20).status().code(), Code::too_large);
}

TEST(FileFormat, DamageAndNewerVersionsAreRefused) {
  FileRecord record;
  record.inode = 7;
  record.chunks.push_back({4096, 1, 0});
  std::vector<std::byte> page = *encode(record, 4096);
  page[8] = std::byte{2};  // the version
  EXPECT_EQ(decode_file_record(page).status().code(), Code::unsupported);
  page = *encode(record, 4096);
  page[0] ^= std::byte{1};
  EXPECT_EQ(decode_file_record(page).status().code(), Code::corrupt);
  record.chunks[0].length = 0;
  EXPECT_EQ(decode_file_record(*encode(record, 4096)).status().code(), Code::corrupt);
  record.chunks.clear();
  record.inode = 0;
  EXPECT_EQ(decode_file_record(*encode(record, 4096)).status().code(), Code::corrupt);
}

// As of a pool that somebody made to have `fs export` write where it should not.
TEST(FileFormat, NamesThatNoPathLeadsToAreRefused) {
  const auto decoded = [](const std::string& name) {
    FileRecord record;
    record.inode = 7;
    record.links.push_back({1, 2, name});
    return decode_file_record(*encode(record, 4096)).status().code();
  };
  for (const char* name : {"", ".", "..", "/etc/passwd", "../x", "a/b", "a/"}) {
    EXPECT_EQ(decoded(name), Code::corrupt) << name;
  }
  EXPECT_EQ(decoded(std::string(kFileNameMax + 1, 'x')), Code::corrupt);
  for (const char* name : {"a", "...", ".a", "000001.sst"}) {
    EXPECT_EQ(decoded(name), Code::ok) << name;
  }
  EXPECT_EQ(decoded(std::string(kFileNameMax, 'x')), Code::ok);
}

TEST(FileFormat, TheFirstPageComesBack) {
  FilesSuper super{
      .mount = 77, .slots = 2048, .token = 0x1234'5678'9abc'def0, .written = {11, 12, 13}};
  const std::vector<std::byte> page = encode(super);
  EXPECT_EQ(*decode_files_super(page), super);
  super.written = {};
  EXPECT_EQ(*decode_files_super(std::span(page).first(32)), super) << "of an older version";
  super.token = 0;
  EXPECT_EQ(*decode_files_super(std::span(page).first(24)), super) << "of an older version";
  EXPECT_FALSE(decode_files_super(std::span(page).first(page.size() - 1)).ok());
  FileRecord record;
  record.inode = 1;
  EXPECT_FALSE(decode_files_super(*encode(record, 4096)).ok());
}

TEST(FileFormat, KeysOfDifferentThingsDiffer) {
  EXPECT_NE(chunk_key(1, 0, 0), chunk_key(2, 0, 0));
  EXPECT_NE(chunk_key(1, 0, 0), chunk_key(1, 1, 0));
  EXPECT_NE(chunk_key(1, 0, 0), chunk_key(1, 0, kFileBytesMax));
  EXPECT_NE(slot_key(1), slot_key(256));
  EXPECT_EQ(slot_key(1).length, 8);
  EXPECT_EQ(chunk_key(1, 0, 0).length, 16);
}

TEST(FileFormat, AKeySaysWhatItIsOf) {
  std::mt19937_64 random(test_seed());
  for (unsigned i = 0; i < 100; ++i) {
    const auto slot = static_cast<std::uint32_t>(random());
    EXPECT_EQ(slot_of(slot_key(slot)), slot);
    EXPECT_FALSE(chunk_of(slot_key(slot)));
    const ChunkName chunk{random(), static_cast<std::uint16_t>(random()), random() % kFileBytesMax};
    const Key key = chunk_key(chunk.inode, chunk.version, chunk.offset);
    EXPECT_EQ(chunk_of(key), chunk);
    EXPECT_FALSE(slot_of(key));
  }
  EXPECT_FALSE(slot_of(super_key()));
  EXPECT_FALSE(chunk_of(super_key()));
  EXPECT_FALSE(slot_of(Key()));
}

}  // namespace
}  // namespace furrow
