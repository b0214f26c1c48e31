// usage: set_version pool|device|zone_header|batch_header|summary FILE VERSION
// Makes the image of an emulated device one of another format version, checksums and all: each
// superblock of the pool, or both of the device, or all structures of a kind in its data zones.
// Exit status 0 when there was at least one.
#include <xxhash.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <string_view>
#include <vector>

#include "tests/log/reseal.h"
#include "zone/emu_layout.h"

namespace furrow {
namespace {

constexpr std::size_t kDeviceVersionAt = 8;  // of a device's superblock
constexpr std::size_t kDeviceChecksumAt = emu::kSuperblockBytes - 8;

void set_device_version(std::span<std::byte> block, std::uint32_t version) {
  store_le(block.data() + kDeviceVersionAt, version);
  store_le(block.data() + kDeviceChecksumAt,
           std::uint64_t{XXH3_64bits(block.data(), kDeviceChecksumAt)});
}

// False: nothing in the block is what was asked for.
bool change(std::string_view what, std::span<std::byte> block, std::uint64_t at,
            std::uint32_t version) {
  static const std::map<std::string_view, Magic> kMagics = {{"pool", Magic::superblock},
                                                            {"zone_header", Magic::zone_header},
                                                            {"batch_header", Magic::batch_header},
                                                            {"summary", Magic::summary}};
  if (what == "device") {
    const bool is = at == emu::kSuperblockOffsets[0] || at == emu::kSuperblockOffsets[1];
    if (is) set_device_version(block, version);
    return is;
  }
  const auto structure = what == "summary" ? block.last(kFooterBytes) : block;
  if (!has_magic(structure, kMagics.at(what))) return false;
  set_version(structure, version);
  return true;
}

int run(std::string_view what, const char* path, std::uint32_t version) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  std::vector<std::byte> block(emu::kPageBytes);
  const auto size = static_cast<std::streamsize>(block.size());
  unsigned changed = 0;
  for (std::uint64_t at = 0; file.read(reinterpret_cast<char*>(block.data()), size); at += size) {
    if (!change(what, block, at, version)) continue;
    file.seekp(static_cast<std::streamoff>(at));
    file.write(reinterpret_cast<const char*>(block.data()), size);
    file.seekg(static_cast<std::streamoff>(at) + size);
    ++changed;
  }
  std::printf("%u changed\n", changed);
  return changed == 0 ? 1 : 0;
}

}  // namespace
}  // namespace furrow

int main(int argc, char** argv) {
  if (argc != 4) return std::puts("usage: set_version WHAT FILE VERSION"), 2;
  return furrow::run(argv[1], argv[2], static_cast<std::uint32_t>(std::atoi(argv[3])));
}
