// safe_text(): what a medium or a peer named, so that it can be shown. A name may have any bytes; a
// terminal takes some for commands, and a line break would pass for another line.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

namespace furrow::tools {

// As it is where it is printable UTF-8; each byte of anything else as \xHH.
std::string safe_text(std::string_view text);
// JSON that says the same, with what JSON would let pass, and a terminal obeys, as \uHHHH.
std::string safe_json(std::string_view json);
bool is_utf8(std::string_view text);

// Of an argument to be printed.
template <class T>
decltype(auto) safe_argument(const T& argument) {
  if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    return safe_text(argument);
  } else {
    return (argument);
  }
}

}  // namespace furrow::tools
