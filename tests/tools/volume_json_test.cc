// Establishes that what furrowctl says of a volume to be made is what furrowd makes of it: options
// of every kind come through JSON as they were, and what is not such a text is refused. And that of
// a volume of which something may be missing it is said, of another it is not; and that a UUID is
// written as others write it.
#include "tools/volume_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tools/device_flags.h"

namespace furrow::tools {
namespace {

TEST(VolumeJson, OptionsComeThrough) {
  VolumeOptions all;
  all.name = "a-volume";
  all.kind = VolumeKind::block;
  all.mode = VolumeMode::store;
  all.durability = Durability::flushed;
  all.quota_bytes = std::uint64_t{1} << 40;
  all.nsid = 1024;
  all.value_bytes_max = 4096;
  all.block_bytes = std::uint64_t{3} << 40;
  all.block_lba_bytes = 512;
  all.zones = 7;
  all.open_zones_max = 3;
  all.active_zones_max = 4;
  VolumeOptions plain;
  plain.name = "x";
  for (const VolumeOptions& options : {all, plain}) {
    const auto read = options_from_json(options_json(options).dump());
    ASSERT_TRUE(read.ok()) << read.status().describe();
    EXPECT_EQ(options_json(*read), options_json(options));
    EXPECT_EQ(read->name, options.name);
    EXPECT_EQ(read->kind, options.kind);
    EXPECT_EQ(read->mode, options.mode);
    EXPECT_EQ(read->durability, options.durability);
    EXPECT_EQ(read->quota_bytes, options.quota_bytes);
    EXPECT_EQ(read->nsid, options.nsid);
    EXPECT_EQ(read->value_bytes_max, options.value_bytes_max);
    EXPECT_EQ(read->block_bytes, options.block_bytes);
    EXPECT_EQ(read->block_lba_bytes, options.block_lba_bytes);
    EXPECT_EQ(read->zones, options.zones);
    EXPECT_EQ(read->open_zones_max, options.open_zones_max);
    EXPECT_EQ(read->active_zones_max, options.active_zones_max);
  }
}

TEST(VolumeJson, AUuidIsAsOthersWriteIt) {
  Uuid uuid;
  for (std::size_t i = 0; i < uuid.size(); ++i) uuid[i] = static_cast<std::uint8_t>(i + 9);
  EXPECT_EQ(format_uuid(uuid), "090a0b0c-0d0e-0f10-1112-131415161718");
}

// As of furrowctl volume create, whatever the order of members.
TEST(VolumeJson, DefaultsAreThoseOfTheKind) {
  const auto block = options_from_json(R"({"size_bytes": 1048576, "kind": "block"})");
  ASSERT_TRUE(block.ok()) << block.status().describe();
  EXPECT_EQ(block->mode, VolumeMode::store);
  EXPECT_EQ(block->value_bytes_max, 4096u);
  EXPECT_EQ(block->block_lba_bytes, 4096u);
  const auto sectors = options_from_json(R"({"lba_bytes": 512, "kind": "block"})");
  ASSERT_TRUE(sectors.ok()) << sectors.status().describe();
  EXPECT_EQ(sectors->block_lba_bytes, 512u);
  const auto zoned = options_from_json(R"({"zones": 2, "kind": "zoned"})");
  ASSERT_TRUE(zoned.ok()) << zoned.status().describe();
  EXPECT_EQ(zoned->mode, VolumeMode::store);
  const auto files = options_from_json(R"({"kind": "fs"})");
  ASSERT_TRUE(files.ok()) << files.status().describe();
  EXPECT_EQ(files->mode, VolumeMode::store);
  EXPECT_EQ(files->value_bytes_max, 0u) << "the pool chooses it by its zones";
  EXPECT_EQ(options_from_json("{}")->mode, VolumeMode::cache);
  EXPECT_EQ(options_from_json(R"({"mode": "cache", "kind": "block"})")->mode, VolumeMode::cache)
      << "what is said is for the pool to refuse";
}

TEST(VolumeJson, WhatIsNoneIsRefused) {
  for (const char* text :
       {"", "x", "[]", "5", "null", R"({"name")", R"({"name": 5})", R"({"kind": "tape"})",
        R"({"kind": 1})", R"({"mode": ""})", R"({"nsid": -1})", R"({"nsid": 1.5})",
        R"({"nsid": "1"})", R"({"nsid": 4294967296})", R"({"quota_bytes": 18446744073709551616})",
        R"({"colour": 1})", R"({"": 1})"}) {
    EXPECT_EQ(options_from_json(text).status().code(), Code::invalid_argument) << text;
  }
  EXPECT_TRUE(options_from_json("{}").ok()) << "all at their defaults";
}

TEST(VolumeJson, WhatIsToChangeComesThrough) {
  for (const ResizeOptions& options :
       {ResizeOptions{}, ResizeOptions{.quota_bytes = std::uint64_t{1} << 40},
        ResizeOptions{.block_bytes = 3 << 20},
        ResizeOptions{.quota_bytes = 5, .block_bytes = std::uint64_t{15} << 40}}) {
    const auto read = resize_from_json(resize_json(options).dump());
    ASSERT_TRUE(read.ok()) << read.status().describe();
    EXPECT_EQ(read->quota_bytes, options.quota_bytes);
    EXPECT_EQ(read->block_bytes, options.block_bytes);
  }
  for (const char* text : {"", "[]", "5", R"({"quota_bytes": -1})", R"({"quota_bytes": "1"})",
                           R"({"size_bytes": 18446744073709551616})", R"({"name": "x"})"}) {
    EXPECT_EQ(resize_from_json(text).status().code(), Code::invalid_argument) << text;
  }
}

TEST(VolumeJson, ARefusedResizeHasFigures) {
  ResizeAnswer answer;
  answer.status = {Code::no_space, Origin::engine, "too little"};
  answer.quota_bytes_min = 12 << 20;
  answer.quota_bytes_max = (std::uint64_t{3} << 30) + (1 << 10);
  auto said = error_json(answer);
  EXPECT_EQ(said["error"], "no space (engine): too little (now it can be 12MiB to 3145729KiB)");
  EXPECT_EQ(said["quota_bytes_min"], 12 << 20);
  EXPECT_EQ(said["quota_bytes_max"], answer.quota_bytes_max);
  answer.status = {Code::busy, Origin::engine, "wait"};
  answer.zones_to_free = 7;
  said = error_json(answer);
  EXPECT_EQ(said["error"], "busy (engine): wait (7 to go)");
  EXPECT_EQ(said["zones_to_free"], 7);
  EXPECT_EQ(said["code"], "busy");
  EXPECT_FALSE(error_json(ResizeAnswer{{Code::not_found, Origin::engine, "no"}}).contains("quota"));
}

class Volume final : public PageStore {
 public:
  explicit Volume(bool incomplete) : incomplete_(incomplete) {}
  const VolumeInfo& info() const override { return info_; }
  VolumeUsage usage() const override { return {.incomplete = incomplete_}; }
  VolumeStats stats() const override { return {}; }

 private:
  VolumeInfo info_;
  bool incomplete_;
};

TEST(VolumeJson, WhatMayBeMissingIsSaid) {
  EXPECT_EQ(volume_json(Volume(true)).value("incomplete", false), true);
  EXPECT_FALSE(volume_json(Volume(false)).contains("incomplete"));
}

TEST(VolumeJson, AnErrorSaysWhatAndWhichKind) {
  const auto said = error_json({Code::no_space, Origin::engine, "make room"});
  EXPECT_EQ(said["code"], "no space");
  EXPECT_EQ(said["error"], "no space (engine): make room");
}

}  // namespace
}  // namespace furrow::tools
