// Establishes that whatever was asked for of a device or a volume that is there is compared with
// it, each part by itself, and that nothing else is.
#include "tools/asked.h"

#include <gtest/gtest.h>

#include <string>

namespace furrow::tools {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

Geometry device() {
  Geometry geometry;
  geometry.lba_bytes = 4096;
  geometry.zone_count = 16;
  geometry.zone_size_lbas = 8 * kMiB / 4096;
  geometry.zone_capacity_lbas = 6 * kMiB / 4096;
  geometry.open_zones_max = 14;
  geometry.active_zones_max = 12;
  return geometry;
}

// Refused, and the hint names the flag.
void expect_refused(const Status& status, const std::string& flag) {
  EXPECT_EQ(status.code(), Code::exists);
  EXPECT_NE(std::string(status.hint()).find(flag + ":"), std::string::npos) << status.describe();
}

TEST(CheckShape, TakesWhatTheDeviceHas) {
  DeviceShape same;
  same.size_bytes = 16 * 8 * kMiB + kMiB;  // whole zones count
  same.zone_size_bytes = 8 * kMiB;
  same.zone_capacity_bytes = 6 * kMiB;
  same.lba_bytes = 4096;
  same.open_zones_max = 14;
  same.active_zones_max = 12;
  same.preallocate = true;
  EXPECT_TRUE(check_shape(device(), true, same, {true, true, true, true, true, true, true}).ok());
}

TEST(CheckShape, RefusesEachPartThatWasAskedForAndDiffers) {
  const DeviceShape other{.size_bytes = 64 * kMiB,
                          .zone_size_bytes = 4 * kMiB,
                          .zone_capacity_bytes = 4 * kMiB,
                          .lba_bytes = 512,
                          .open_zones_max = 8,
                          .active_zones_max = 8};
  EXPECT_TRUE(check_shape(device(), true, other, {}).ok());
  expect_refused(check_shape(device(), true, other, {.size = true}), "--size");
  expect_refused(check_shape(device(), true, other, {.zone_size = true}), "--zone_size");
  expect_refused(check_shape(device(), true, other, {.zone_capacity = true}), "--zone_capacity");
  expect_refused(check_shape(device(), true, other, {.lba = true}), "--lba");
  expect_refused(check_shape(device(), true, other, {.open_zones_max = true}), "--mor");
  expect_refused(check_shape(device(), true, other, {.active_zones_max = true}), "--mar");
  expect_refused(check_shape(device(), true, other, {.preallocate = true}), "--preallocate");
}

TEST(CheckName, RefusesAnother) {
  PoolInfo pool;
  pool.name = "furrow";
  EXPECT_TRUE(check_name(pool, "furrow").ok());
  EXPECT_TRUE(check_name(pool, "").ok());
  expect_refused(check_name(pool, "other"), "--name");
}

VolumeInfo volume() {
  VolumeInfo info;
  info.options.mode = VolumeMode::store;
  info.options.quota_bytes = 4 * 6 * kMiB;
  info.options.nsid = 3;
  info.options.value_bytes_max = 65536;
  info.options.durability = Durability::flushed;
  return info;
}

TEST(CheckVolume, TakesWhatTheVolumeHas) {
  VolumeOptions same = volume().options;
  const VolumeAsked all{true, true, true, true, true, true};
  EXPECT_TRUE(check_volume(volume(), device(), same, all).ok());
  same.quota_bytes += 5 * kMiB;  // still four zones
  EXPECT_TRUE(check_volume(volume(), device(), same, all).ok());
  same.quota_bytes = 0;  // 0 and 0: whatever is free
  same.nsid = 0;
  EXPECT_TRUE(check_volume(volume(), device(), same, all).ok());
}

TEST(CheckVolume, RefusesEachPartThatWasAskedForAndDiffers) {
  VolumeOptions other;
  other.mode = VolumeMode::cache;
  other.quota_bytes = 5 * 6 * kMiB;
  other.nsid = 4;
  other.value_bytes_max = 4096;
  EXPECT_TRUE(check_volume(volume(), device(), other, {}).ok());
  expect_refused(check_volume(volume(), device(), other, {.mode = true}), "--mode");
  expect_refused(check_volume(volume(), device(), other, {.quota = true}), "--quota");
  expect_refused(check_volume(volume(), device(), other, {.nsid = true}), "--nsid");
  expect_refused(check_volume(volume(), device(), other, {.value_bytes_max = true}),
                 "--value_bytes_max");
  expect_refused(check_volume(volume(), device(), other, {.durability = true}), "--durability");
}

}  // namespace
}  // namespace furrow::tools
