// SimRandom: the only source of chance in a simulation. The same seed gives the same numbers with
// every compiler and library. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace furrow::sim {

class SimRandom {
 public:
  explicit SimRandom(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {  // splitmix64
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
  }
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }  // bound >= 1
  std::uint64_t between(std::uint64_t low, std::uint64_t high) {       // both included
    return low + below(high - low + 1);
  }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  bool percent(std::uint64_t p) { return below(100) < p; }
  // Each order of magnitude is as likely as another; both included.
  std::uint64_t log_between(std::uint64_t low, std::uint64_t high) {
    unsigned doublings = 0;
    while (low << doublings < high) ++doublings;
    const std::uint64_t top = low << below(doublings + 1);
    return between(low, top < high ? top : high);
  }
  template <class T>
  void shuffle(std::vector<T>& items) {
    for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }
  SimRandom fork() { return SimRandom(next()); }

 private:
  std::uint64_t state_;
};

}  // namespace furrow::sim
