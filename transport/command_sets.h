// CommandSets: I/O command sets, by identifier (CSI).
#pragma once

#include <cstdint>

#include "transport/nvme.h"

namespace furrow::transport {

struct CommandSets {
  std::uint8_t bits = 0;

  constexpr bool has(std::uint8_t csi) const { return csi < 8 && (bits >> csi & 1) != 0; }

  static constexpr CommandSets all() {
    return {1u << nvme::csi::kNvm | 1u << nvme::csi::kKv | 1u << nvme::csi::kZoned};
  }
  // What CC.CSS enables (Base specification, 3.1.3.5).
  static constexpr CommandSets enabled_by(std::uint32_t css) {
    if (css == nvme::kCssAll) return all();
    return css == nvme::kCssNvm ? CommandSets{1u << nvme::csi::kNvm} : CommandSets{};
  }
};

}  // namespace furrow::transport
