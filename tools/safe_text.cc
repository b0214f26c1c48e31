#include "tools/safe_text.h"

#include <fmt/format.h>

#include <cstdint>

namespace furrow::tools {

namespace {

struct Character {
  std::size_t bytes = 0;  // 0: it is not UTF-8
  std::uint32_t point = 0;
};

Character first_of(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = at(0);
  if (lead < 0x80) return {1, lead};
  const std::size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC2 ? 2 : 0;
  if (bytes == 0 || lead > 0xF4 || text.size() < bytes) return {};
  std::uint32_t point = lead & (0x7Fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((at(i) & 0xC0) != 0x80) return {};
    point = point << 6 | (at(i) & 0x3Fu);
  }
  const bool too_long = (bytes == 3 && point < 0x800) || (bytes == 4 && point < 0x10000);
  const bool surrogate = point >= 0xD800 && point <= 0xDFFF;
  return too_long || surrogate || point > 0x10FFFF ? Character() : Character{bytes, point};
}

// C0 and C1 controls, and what separates lines or turns the direction of what follows. All are
// below 2^16.
bool printable(std::uint32_t point) {
  const bool control = point < 0x20 || (point >= 0x7F && point < 0xA0);
  const bool mark = point == 0x61C || point == 0x200E || point == 0x200F;
  const bool layout = (point >= 0x2028 && point <= 0x202E) || (point >= 0x2066 && point <= 0x2069);
  return !control && !mark && !layout;
}

}  // namespace

std::string safe_text(std::string_view text) {
  std::string safe;
  while (!text.empty()) {
    const Character next = first_of(text);
    const std::size_t bytes = next.bytes == 0 ? 1 : next.bytes;
    if (next.bytes != 0 && printable(next.point)) {
      safe += text.substr(0, bytes);
    } else {
      for (const char byte : text.substr(0, bytes)) {
        safe += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
      }
    }
    text.remove_prefix(bytes);
  }
  return safe;
}

std::string safe_json(std::string_view json) {
  std::string safe;
  while (!json.empty()) {
    const Character next = first_of(json);
    const std::size_t bytes = next.bytes == 0 ? 1 : next.bytes;
    const bool line_end = next.point == '\n';  // between values: in a string it is escaped
    if (printable(next.point) || line_end) {
      safe += json.substr(0, bytes);
    } else {
      safe += fmt::format("\\u{:04x}", next.point);
    }
    json.remove_prefix(bytes);
  }
  return safe;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const Character next = first_of(text);
    if (next.bytes == 0) return false;
    text.remove_prefix(next.bytes);
  }
  return true;
}

}  // namespace furrow::tools
