// GroupFilter: which groups a zone that is not written any more has no page of, for certain. So
// that who looks for one of a million groups need not go through all runs of all zones.
//
// 16 bits for each run, of which a group sets up to four, all in one word. Of the groups that are
// not there about one in a hundred and fifty seems to be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace furrow {

class GroupFilter {
 public:
  GroupFilter() = default;  // it may have any
  explicit GroupFilter(std::size_t groups) : words_(groups / kGroupsOfAWord + 1) {}

  void add(std::uint64_t group) {
    const std::uint64_t hash = mix(group);
    words_[word(hash)] |= bits(hash);
  }
  bool may_have(std::uint64_t group) const {
    if (words_.empty()) return true;
    const std::uint64_t hash = mix(group);
    return (~words_[word(hash)] & bits(hash)) == 0;
  }
  std::uint64_t bytes() const { return words_.capacity() * sizeof(std::uint64_t); }

 private:
  static constexpr std::size_t kGroupsOfAWord = 4;

  static std::uint64_t mix(std::uint64_t group) {
    constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15u;
    const std::uint64_t hash = group * kOdd;
    return (hash ^ hash >> 32) * kOdd;
  }
  std::size_t word(std::uint64_t hash) const { return (hash >> 32) * words_.size() >> 32; }
  static std::uint64_t bits(std::uint64_t hash) {
    constexpr unsigned kBits = 4, kShift = 6;
    std::uint64_t bits = 0;
    for (unsigned i = 0; i < kBits; ++i) bits |= std::uint64_t{1} << (hash >> i * kShift & 63);
    return bits;
  }

  std::vector<std::uint64_t> words_;
};

}  // namespace furrow
