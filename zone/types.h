// Units and shapes of a zoned device. An LBA never meets a byte count: each has its own type.
#pragma once

#include <compare>
#include <cstdint>

namespace furrow {

// A number with a unit. Arithmetic goes through `.value`, so that mixing units is visible.
template <class Tag, class Rep>
struct Strong {
  Rep value{};
  friend constexpr auto operator<=>(const Strong&, const Strong&) = default;
};

using ZoneId = Strong<struct ZoneIdTag, std::uint32_t>;
using Lba = Strong<struct LbaTag, std::uint64_t>;  // absolute on its device

// Zone states of the Zoned Namespace command set (values as in a zone descriptor's high nibble).
enum class ZoneState : std::uint8_t {
  empty = 0x1,
  implicitly_open = 0x2,
  explicitly_open = 0x3,
  closed = 0x4,
  read_only = 0xD,
  full = 0xE,
  offline = 0xF,
};

const char* to_string(ZoneState state);

struct Geometry {
  std::uint32_t lba_bytes = 4096;  // 512 or 4096
  std::uint32_t zone_count = 0;
  std::uint64_t zone_size_lbas = 0;      // distance between zone starts
  std::uint64_t zone_capacity_lbas = 0;  // writable LBAs of a zone, <= zone_size_lbas
  std::uint32_t open_zones_max = 0;      // MOR; 0: no limit
  std::uint32_t active_zones_max = 0;    // MAR; 0: no limit
  std::uint32_t append_lbas_max = 0;     // largest Zone Append; 0: no append on this device
  std::uint32_t zone_writes_max = 1;     // writes that may be in flight in one zone at a time
  std::uint32_t together_lbas_max = 0;   // of these each; a larger one is alone. 0: of any size

  constexpr Lba zone_start(ZoneId zone) const { return Lba{zone.value * zone_size_lbas}; }
  constexpr ZoneId zone_of(Lba lba) const {
    return ZoneId{static_cast<std::uint32_t>(lba.value / zone_size_lbas)};
  }
  constexpr bool limits_zones() const { return open_zones_max != 0 || active_zones_max != 0; }
  constexpr std::uint64_t zone_capacity_bytes() const { return zone_capacity_lbas * lba_bytes; }
  constexpr std::uint64_t lbas(std::uint64_t bytes) const {  // rounded up
    return (bytes + lba_bytes - 1) / lba_bytes;
  }
};

struct ZoneInfo {
  ZoneId zone;
  ZoneState state = ZoneState::empty;
  std::uint64_t written_lbas = 0;  // write pointer - zone start; of a full zone: the capacity
  const char* reason = "";  // why it is offline, read-only or sealed early, where known; a literal
};

}  // namespace furrow
