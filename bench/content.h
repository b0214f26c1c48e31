// What a page of the benchmark holds: content that follows from its number, so that every byte can
// be checked at memory speed without keeping it. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "log/key.h"

namespace furrow::bench {

// 16 bytes: the number and a hash of it, so that keys do not arrive in the order of anything.
// `salt` keeps two runs' pages apart.
Key page_key(std::uint64_t page, std::uint64_t salt);

// Writes the content of a page over all of `out`. No two pages have a 4 KiB piece in common, nor
// has one page two equal pieces.
void fill_page(std::uint64_t page, std::uint64_t salt, std::span<std::byte> out);
// Is every byte what fill_page() wrote?
bool page_matches(std::uint64_t page, std::uint64_t salt, std::span<const std::byte> bytes);

}  // namespace furrow::bench
