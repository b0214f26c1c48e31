// Establishes that what an emulated device writes about itself (superblock and zone slots) is read
// back as it was and stands where zone/FORMAT.md says, that no flipped bit passes, and which of two
// slots is the newer.
#include "zone/emu_layout.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <array>
#include <cstring>
#include <random>
#include <utility>

namespace furrow::test {
namespace {

TEST(EmuLayout, DecodesWhatItEncodes) {
  std::mt19937_64 random(3);
  Geometry geometry;
  geometry.zone_count = 37;
  geometry.zone_size_lbas = 1000;
  geometry.zone_capacity_lbas = 900;
  geometry.open_zones_max = 3;
  geometry.active_zones_max = 4;
  geometry.append_lbas_max = 256;
  geometry.zone_writes_max = 16;
  std::array<std::byte, 16> uuid;
  for (std::byte& each : uuid) each = static_cast<std::byte>(random());
  const emu::Superblock made = emu::make_superblock(geometry, uuid);
  std::array<std::byte, emu::kSuperblockBytes> bytes;
  emu::encode(made, bytes);
  const Result<emu::Superblock> got = emu::decode(bytes);
  ASSERT_TRUE(got.ok());
  std::array<std::byte, emu::kSuperblockBytes> again;
  emu::encode(*got, again);
  EXPECT_EQ(bytes, again);
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(emu::decode(bytes).ok()) << bit;
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
  }
}

// Read by the numbers of zone/FORMAT.md alone.
TEST(EmuLayout, IsWhatTheGrammarSays) {
  Geometry geometry;
  geometry.lba_bytes = 512;
  geometry.zone_count = 1000;
  geometry.zone_size_lbas = 4096;
  geometry.zone_capacity_lbas = 4001;
  geometry.open_zones_max = 3;
  geometry.active_zones_max = 4;
  geometry.append_lbas_max = 256;
  geometry.zone_writes_max = 16;
  std::array<std::byte, 16> uuid;
  for (std::size_t i = 0; i < uuid.size(); ++i) uuid[i] = static_cast<std::byte>(0xA0 + i);
  const emu::Superblock made = emu::make_superblock(geometry, uuid);
  std::array<std::byte, emu::kSuperblockBytes> bytes;
  emu::encode(made, bytes);
  const auto field = [&](std::size_t at, unsigned length) {
    std::uint64_t value = 0;
    for (unsigned i = length; i > 0; --i) {
      value = value << 8 | std::to_integer<std::uint64_t>(bytes[at + i - 1]);
    }
    return value;
  };
  EXPECT_EQ(std::memcmp(bytes.data(), "FurrowZD", 8), 0);
  EXPECT_EQ(field(8, 4), 1u);
  EXPECT_EQ(field(12, 4), 512u);
  for (const std::size_t features : {16, 24}) EXPECT_EQ(field(features, 8), 0u);
  EXPECT_EQ(field(32, 8), 1u);
  EXPECT_EQ(std::memcmp(&bytes[40], uuid.data(), 16), 0);
  const std::pair<std::size_t, std::uint32_t> of_four[] = {{56, 512}, {60, 1000}, {80, 3},
                                                           {84, 4},   {88, 256},  {92, 16}};
  for (const auto& [at, value] : of_four) EXPECT_EQ(field(at, 4), value) << at;
  const std::pair<std::size_t, std::uint64_t> of_eight[] = {
      {64, 4096},     {72, 4001},  // LBAs
      {96, 8192},     {104, 16384},
      {112, 8192},                                // the table: 8000 bytes, rounded up
      {120, 1 << 20}, {128, 500 * 4096 + 4096}};  // 4001 x 512 is 2048512
  for (const auto& [at, value] : of_eight) EXPECT_EQ(field(at, 8), value) << at;
  for (std::size_t at = 136; at < 504; ++at) EXPECT_EQ(bytes[at], std::byte{0}) << at;
  EXPECT_EQ(field(504, 8), XXH3_64bits(bytes.data(), 504));

  const std::uint64_t slot = emu::SlotCodec(made).encode(
      ZoneId{7}, {.kind = ZoneRecord::Class::full, .generation = 5, .written_lbas = 4000});
  EXPECT_EQ(slot & 0x1ffffff, 4000u);
  EXPECT_EQ(slot >> 25 & 0x1fffff, 5u);
  EXPECT_EQ(slot >> 46 & 3, 1u);
  std::array<unsigned char, 12> checked{};
  for (unsigned i = 0; i < 6; ++i) checked[i] = static_cast<unsigned char>(slot >> (8 * i));
  checked[8] = 7;
  const std::uint64_t seed = XXH3_64bits(uuid.data(), uuid.size());
  EXPECT_EQ(slot >> 48, XXH3_64bits_withSeed(checked.data(), checked.size(), seed) >> 48);
  const std::uint64_t told = emu::SlotCodec(made).encode(
      ZoneId{7}, {.generation = 5, .written_lbas = 300, .data_tells = true});
  EXPECT_EQ(told & 0x1ffffff, (1u << 24) + 300u);
  EXPECT_EQ(told >> 46 & 3, 0u);
}

TEST(EmuLayout, SlotsDetectEveryFlippedBitAndOrderTheirStates) {
  Geometry geometry;
  geometry.zone_count = 8;
  geometry.zone_size_lbas = geometry.zone_capacity_lbas = 1u << 24;
  const emu::SlotCodec codec(emu::make_superblock(geometry, {}));
  using Class = ZoneRecord::Class;
  for (const ZoneRecord record :
       {ZoneRecord{}, ZoneRecord{Class::full, 5, 77}, ZoneRecord{Class::writable, 1, 1u << 24},
        ZoneRecord{Class::writable, 9, 77, true},
        ZoneRecord{Class::writable, 9, (1u << 24) - 1, true},
        ZoneRecord{Class::offline, (1u << 21) - 1, 0}}) {
    for (std::uint32_t zone = 0; zone < 8; ++zone) {
      const std::uint64_t slot = codec.encode(ZoneId{zone}, record);
      const auto got = codec.decode(ZoneId{zone}, slot);
      ASSERT_TRUE(got.has_value());
      EXPECT_EQ(got->kind, record.kind);
      EXPECT_EQ(got->generation, record.generation);
      EXPECT_EQ(got->written_lbas, record.written_lbas);
      EXPECT_EQ(got->data_tells, record.data_tells);
      EXPECT_FALSE(codec.decode(ZoneId{zone + 1}, slot).has_value());
      for (int bit = 0; bit < 64; ++bit) {
        EXPECT_FALSE(codec.decode(ZoneId{zone}, slot ^ std::uint64_t{1} << bit).has_value());
      }
    }
  }
  EXPECT_FALSE(codec.decode(ZoneId{0}, 0).has_value());
  const std::uint64_t finished = codec.encode(ZoneId{0}, {Class::full, 9, 77, true});
  EXPECT_FALSE(codec.decode(ZoneId{0}, finished).has_value()) << "its record tells";
  emu::Superblock older = emu::make_superblock(geometry, {});
  older.incompatible = 0;
  const std::uint64_t told = codec.encode(ZoneId{0}, {Class::writable, 9, 77, true});
  EXPECT_FALSE(emu::SlotCodec(older).decode(ZoneId{0}, told).has_value());
  const auto newer = [](ZoneRecord a, ZoneRecord b) {
    return emu::SlotCodec::newer(a, b) && !emu::SlotCodec::newer(b, a);
  };
  EXPECT_TRUE(newer({Class::writable, 1, 8}, {Class::writable, 1, 4}));
  EXPECT_TRUE(newer({Class::full, 1, 4}, {Class::writable, 1, 8}));
  EXPECT_TRUE(newer({Class::writable, 2, 0}, {Class::full, 1, 900}));
  EXPECT_TRUE(newer({Class::writable, 0, 0}, {Class::full, (1u << 21) - 1, 900}));  // wrapped
}

}  // namespace
}  // namespace furrow::test
