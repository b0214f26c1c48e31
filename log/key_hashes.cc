// SipHash-2-4-128 of eight keys side by side: the rounds of one key wait for each other, those of
// two vectors of four do not. libsodium has only the one-key form, which takes the keys that do not
// come in eights of one length.
#include "log/key_hashes.h"

#include <algorithm>

#include "log/codec.h"
#include "zone/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace furrow {

namespace {

constexpr std::size_t kHashedAtOnce = 8;

#if defined(__x86_64__)

// What is hashed: volume, key length, key; the last word has its length in the top byte.
constexpr std::size_t kTextBytesMin = 8 + 1;
constexpr std::size_t kWordsMax = (kTextBytesMin + Key::kBytesMax) / 8 + 1;

struct Text {
  alignas(32) std::uint64_t words[kWordsMax][kHashedAtOnce];
  std::size_t count;  // words in use
};

// Bytes of a key beyond its length are zero, in every Key and in every record that was decoded.
Text text_of(std::uint64_t volume, const PageRecord* records) {
  const std::size_t length = records->key.length, bytes = kTextBytesMin + length;
  Text text;
  text.count = bytes / 8 + 1;
  for (std::size_t lane = 0; lane < kHashedAtOnce; ++lane) {
    const std::byte* key = records[lane].key.bytes.data();
    const auto low = load_le<std::uint64_t>(key), high = load_le<std::uint64_t>(key + 8);
    text.words[0][lane] = volume;
    text.words[1][lane] = length | low << 8;
    text.words[2][lane] = low >> 56 | high << 8;
    text.words[3][lane] = high >> 56;
    text.words[text.count - 1][lane] |= std::uint64_t{bytes} << 56;
  }
  return text;
}

struct State {
  __m256i v0[2], v1[2], v2[2], v3[2];
};

template <int bits>
[[gnu::target("avx2"), gnu::always_inline]] inline __m256i rotate(__m256i x) {
  return _mm256_or_si256(_mm256_slli_epi64(x, bits), _mm256_srli_epi64(x, 64 - bits));
}

[[gnu::target("avx2"), gnu::always_inline]] inline void rounds(State& s, int count) {
  for (int round = 0; round < count; ++round) {
    for (int half = 0; half < 2; ++half) {
      __m256i &v0 = s.v0[half], &v1 = s.v1[half], &v2 = s.v2[half], &v3 = s.v3[half];
      v0 = _mm256_add_epi64(v0, v1);
      v2 = _mm256_add_epi64(v2, v3);
      v1 = _mm256_xor_si256(rotate<13>(v1), v0);
      v3 = _mm256_xor_si256(rotate<16>(v3), v2);
      v0 = _mm256_shuffle_epi32(v0, _MM_SHUFFLE(2, 3, 0, 1));  // by 32
      v2 = _mm256_add_epi64(v2, v1);
      v0 = _mm256_add_epi64(v0, v3);
      v1 = _mm256_xor_si256(rotate<17>(v1), v2);
      v3 = _mm256_xor_si256(rotate<21>(v3), v0);
      v2 = _mm256_shuffle_epi32(v2, _MM_SHUFFLE(2, 3, 0, 1));
    }
  }
}

[[gnu::target("avx2"), gnu::always_inline]] inline void mix_in(__m256i (&v)[2],
                                                               std::uint64_t constant) {
  const __m256i word = _mm256_set1_epi64x(static_cast<long long>(constant));
  for (__m256i& half : v) half = _mm256_xor_si256(half, word);
}

[[gnu::target("avx2"), gnu::always_inline]] inline void store(const State& s,
                                                              std::uint64_t* lanes) {
  for (int half = 0; half < 2; ++half) {
    const __m256i word = _mm256_xor_si256(_mm256_xor_si256(s.v0[half], s.v1[half]),
                                          _mm256_xor_si256(s.v2[half], s.v3[half]));
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes + half * 4), word);
  }
}

[[gnu::target("avx2")]] void hash_eight(std::uint64_t k0, std::uint64_t k1, const Text& text,
                                        KeyHash* hashes) {
  State s{};
  mix_in(s.v0, k0 ^ 0x736f6d6570736575);
  mix_in(s.v1, k1 ^ 0x646f72616e646f6d ^ 0xee);
  mix_in(s.v2, k0 ^ 0x6c7967656e657261);
  mix_in(s.v3, k1 ^ 0x7465646279746573);
  for (std::size_t i = 0; i < text.count; ++i) {
    const auto* words = reinterpret_cast<const __m256i*>(text.words[i]);
    const __m256i word[2] = {_mm256_load_si256(words), _mm256_load_si256(words + 1)};
    for (int half = 0; half < 2; ++half) s.v3[half] = _mm256_xor_si256(s.v3[half], word[half]);
    rounds(s, 2);
    for (int half = 0; half < 2; ++half) s.v0[half] = _mm256_xor_si256(s.v0[half], word[half]);
  }
  alignas(32) std::uint64_t order[kHashedAtOnce], identity[kHashedAtOnce];
  mix_in(s.v2, 0xee);
  rounds(s, 4);
  store(s, order);
  mix_in(s.v1, 0xdd);
  rounds(s, 4);
  store(s, identity);
  for (std::size_t lane = 0; lane < kHashedAtOnce; ++lane)
    hashes[lane] = {order[lane], identity[lane]};
}

bool one_length(const PageRecord* records) {
  return std::all_of(records + 1, records + kHashedAtOnce, [&](const PageRecord& record) {
    return record.key.length == records->key.length;
  });
}

#endif

}  // namespace

void key_hashes(const std::array<std::uint8_t, 16>& secret, std::uint64_t volume,
                std::span<const PageRecord> records, std::span<KeyHash> hashes) {
  FURROW_CHECK(records.size() == hashes.size());
  std::size_t i = 0;
  const auto one_by_one = [&](std::size_t end) {
    for (; i < end; ++i) hashes[i] = key_hash(secret, volume, records[i].key);
  };
#if defined(__x86_64__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  const auto* bytes = reinterpret_cast<const std::byte*>(secret.data());
  const auto k0 = load_le<std::uint64_t>(bytes), k1 = load_le<std::uint64_t>(bytes + 8);
  while (has_avx2 && records.size() - i >= kHashedAtOnce) {
    const PageRecord* eight = &records[i];
    if (!one_length(eight)) {
      one_by_one(i + kHashedAtOnce);
      continue;
    }
    hash_eight(k0, k1, text_of(volume, eight), &hashes[i]);
    i += kHashedAtOnce;
  }
#endif
  one_by_one(records.size());
}

}  // namespace furrow
