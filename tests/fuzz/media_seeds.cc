// The seeds of the fuzz targets of what is on the medium: valid structures, and edits of a valid
// pool.
#include <algorithm>
#include <string>

#include "tests/fuzz/seeds.h"
#include "tests/fuzz/valid_structures.h"
#include "zone/emu_layout.h"

namespace furrow::fuzz {
namespace {

// Of several drawn ones, so that the corpus stays small, the shortest. Drawing goes on from there.
template <class Make>
void add_short(Corpus& out, const std::string& name, RandomStructures& random, Make&& make) {
  constexpr unsigned kDrawn = 8;
  Bytes shortest = make(random);
  for (unsigned i = 1; i < kDrawn; ++i) {
    Bytes drawn = make(random);
    if (drawn.size() < shortest.size()) shortest = std::move(drawn);
  }
  const auto* const begin = reinterpret_cast<const std::uint8_t*>(shortest.data());
  out.emplace(name, CorpusBytes(begin, begin + shortest.size()));
}

void emu_seeds(Corpus& out) {
  Geometry geometry;
  geometry.zone_count = 64;
  geometry.zone_size_lbas = geometry.zone_capacity_lbas = 4096;
  std::array<std::byte, emu::kSuperblockBytes> super;
  const emu::Superblock made = emu::make_superblock(geometry, {});
  emu::encode(made, super);
  CorpusBytes bytes{3};  // a superblock as it is
  for (const std::byte byte : super) bytes.push_back(std::to_integer<std::uint8_t>(byte));
  out.emplace("superblock", bytes);
  bytes[0] = 2;  // ... its checksum made right
  out.emplace("superblock-mended", bytes);
  CorpusBytes any{1};  // a geometry, as seven numbers
  for (std::uint8_t i = 0; i < 56; ++i) any.push_back(i % 8 == 0 ? 64 : 0);
  out.emplace("geometry", any);
  const emu::SlotCodec codec(made);
  using Class = ZoneRecord::Class;
  for (const Class kind : {Class::writable, Class::full, Class::read_only, Class::offline}) {
    ZoneRecord record;
    record.kind = kind;
    record.written_lbas = 17;
    const std::uint64_t value = codec.encode(ZoneId{0}, record);
    CorpusBytes slot{0};
    for (unsigned i = 0; i < 8; ++i) slot.push_back(static_cast<std::uint8_t>(value >> 8 * i));
    out.emplace("slot-" + std::to_string(static_cast<unsigned>(kind)), slot);
  }
}

// The number of an image that the history left behind, then edits: zone, LBA, action, how many
// bytes follow, offset (two bytes), two unused ones, those bytes.
void pool_seeds(Corpus& out) {
  constexpr std::uint8_t kImages = 8, kActions = 7;
  for (std::uint8_t image = 0; image < kImages; ++image) {
    out.emplace("whole-" + std::to_string(image), CorpusBytes{image});
  }
  for (std::uint8_t action = 0; action < kActions; ++action) {
    CorpusBytes bytes{6};
    for (std::uint8_t zone = 0; zone < 5; ++zone) {
      bytes.insert(bytes.end(), {zone, 2, action, 4, 16, 0, 0, 0, 1, 2, 3, 4});
    }
    out.emplace("edits-" + std::to_string(action), bytes);
  }
  // The version of a batch header, which the summary of its segment hides.
  out.emplace("newer-version", CorpusBytes{2, 4, 19, 1, 1, 4, 0, 0, 0, 2});
}

}  // namespace

bool media_seeds(std::string_view target, Corpus& out) {
  RandomStructures random(1);
  if (target == "batch_fuzz") {
    for (const char* const name : {"batch-1", "batch-2", "batch-3"}) {
      add_short(out, name, random, [](RandomStructures& drawn) {
        const ZoneStamp stamp = drawn.stamp();
        return drawn.batch(stamp, static_cast<std::uint32_t>(drawn.below(1000)), 512).encode();
      });
    }
  } else if (target == "summary_fuzz") {
    add_short(out, "summary", random,
              [](RandomStructures& drawn) { return drawn.summary().encode(); });
  } else if (target == "zone_header_fuzz") {
    add_short(out, "zone-header", random, [](RandomStructures& drawn) {
      Bytes lba(512);
      encode(drawn.zone_header(), lba);
      return lba;
    });
  } else if (target == "files_fuzz") {
    for (const char* const name : {"file-1", "file-2"}) {
      add_short(out, name, random, valid_file_record);
    }
    add_short(out, "first-page", random, valid_first_page);
    CorpusBytes old = out["first-page"];
    old.resize(24);
    out.emplace("first-page-without-token", old);
  } else if (target == "metadata_fuzz") {
    add_short(out, "two-zones", random, valid_metadata);
  } else if (target == "emu_layout_fuzz") {
    emu_seeds(out);
  } else if (target == "pool_fuzz") {
    pool_seeds(out);
  } else {
    return false;
  }
  return true;
}

}  // namespace furrow::fuzz
