// Establishes that key_hashes() gives for many keys what key_hash() gives for each: keys of each
// length, alike and mixed, with eights of one length between them, as many as do not come out even.
// How: random keys.
#include "log/key_hashes.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/log/test_seed.h"

namespace furrow {
namespace {

class KeyHashesTest : public testing::Test {
 protected:
  Key key(std::size_t length) {
    std::array<std::byte, Key::kBytesMax> bytes;
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random_());
    return Key::from(std::span(bytes).first(length));
  }
  void expect_as_one_by_one(std::span<const PageRecord> records) {
    const std::array<std::uint8_t, 16> secret{9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 1, 2, 3, 4, 5, 250};
    std::vector<KeyHash> hashes(records.size());
    const std::uint64_t volume = random_();
    key_hashes(secret, volume, records, hashes);
    for (std::size_t i = 0; i < records.size(); ++i) {
      ASSERT_EQ(hashes[i], key_hash(secret, volume, records[i].key)) << "key " << i;
    }
  }
  std::mt19937_64 random_{test_seed()};
};

TEST_F(KeyHashesTest, OfEachLength) {
  for (std::size_t length = 0; length <= Key::kBytesMax; ++length) {
    std::vector<PageRecord> records(8 * 6 + 5);
    for (PageRecord& one : records) one.key = key(length);
    expect_as_one_by_one(records);
  }
}

TEST_F(KeyHashesTest, OfMixedLengths) {
  for (unsigned round = 0; round < 20; ++round) {
    std::vector<PageRecord> records(8 * 6 + 5);
    for (PageRecord& one : records) one.key = key(random_() % (Key::kBytesMax + 1));
    std::fill_n(records.begin() + static_cast<std::ptrdiff_t>(round), 8, records[16]);
    expect_as_one_by_one(records);
  }
}

TEST_F(KeyHashesTest, OfEachNumber) {
  for (std::size_t count = 0; count <= 33; ++count) {
    std::vector<PageRecord> records(count);
    for (PageRecord& one : records) one.key = key(16);
    expect_as_one_by_one(records);
  }
}

}  // namespace
}  // namespace furrow
