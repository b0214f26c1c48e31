// A text's bytes, as files take them.
#pragma once

#include <span>
#include <string_view>

namespace furrow::testing {

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

}  // namespace furrow::testing
