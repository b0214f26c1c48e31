// key_hash() of many keys at once: the same results, eight side by side where the processor has
// AVX2 (one by one, they are a sixth of what recovery computes). Private to log/. Pure; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "log/format.h"

namespace furrow {

// hashes[i] = key_hash(secret, volume, records[i].key); `hashes` is as long as `records`.
void key_hashes(const std::array<std::uint8_t, 16>& secret, std::uint64_t volume,
                std::span<const PageRecord> records, std::span<KeyHash> hashes);

}  // namespace furrow
