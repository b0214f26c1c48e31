// Establishes that the benchmark's check of a page's bytes finds any change: a flipped bit
// anywhere, another page, a piece at another place; and that keys and pages differ.
#include "bench/content.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>
#include <vector>

namespace furrow::bench {
namespace {

constexpr std::uint64_t kSalt = 11;

std::vector<std::byte> page(std::uint64_t number, std::size_t bytes) {
  std::vector<std::byte> content(bytes);
  fill_page(number, kSalt, content);
  return content;
}

TEST(Content, MatchesWhatWasFilled) {
  for (const std::size_t bytes : {1u, 7u, 8u, 4095u, 4096u, 4097u, 16384u, 100'003u}) {
    EXPECT_TRUE(page_matches(3, kSalt, page(3, bytes))) << bytes;
  }
}

TEST(Content, FindsEveryFlippedBit) {
  for (const std::size_t bytes : {1u, 13u, 4100u}) {
    std::vector<std::byte> content = page(3, bytes);
    for (std::size_t bit = 0; bit < bytes * 8; ++bit) {
      content[bit / 8] ^= std::byte{1} << (bit % 8);
      ASSERT_FALSE(page_matches(3, kSalt, content)) << bytes << " bytes, bit " << bit;
      content[bit / 8] ^= std::byte{1} << (bit % 8);
    }
  }
}

TEST(Content, FindsAnotherPageAndPiecesThatChangedPlaces) {
  std::vector<std::byte> content = page(3, 16384);
  EXPECT_FALSE(page_matches(4, kSalt, content));
  EXPECT_FALSE(page_matches(3, kSalt + 1, content));
  std::vector<std::byte> swapped = content;
  std::memcpy(swapped.data(), content.data() + 4096, 4096);
  std::memcpy(swapped.data() + 4096, content.data(), 4096);
  EXPECT_FALSE(page_matches(3, kSalt, swapped));
}

TEST(Content, KeysDiffer) {
  std::set<std::string> keys;
  for (std::uint64_t number = 0; number < 10'000; ++number) {
    const Key key = page_key(number, kSalt);
    EXPECT_EQ(key.length, Key::kBytesMax);
    keys.emplace(reinterpret_cast<const char*>(key.bytes.data()), key.length);
  }
  EXPECT_EQ(keys.size(), 10'000u);
}

}  // namespace
}  // namespace furrow::bench
