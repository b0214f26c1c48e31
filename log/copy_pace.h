// CopyPace: how fast a store's zone is emptied, so that reads and writes do not feel it at once: in
// step with what users write, so that the zone is free when they have written half of what it
// gives; and slowly where they write nothing. Whether somebody waits for the zone, which then goes
// as fast as it can, is the collector's to know.
#pragma once

#include <cstdint>

namespace furrow {

class CopyPace {
 public:
  static constexpr std::uint64_t kIdleBytesPerS = 32 << 20;

  // A zone is to be emptied. `written_bytes`: what users wrote, counted from any time on.
  // `copies_bytes`: all that is to be copied of it; `gain_bytes`: what it gives.
  void begin(std::uint64_t now_ns, std::uint64_t written_bytes, std::uint64_t copies_bytes,
             std::uint64_t gain_bytes) {
    begun_ns_ = now_ns;
    written_before_ = written_bytes;
    copies_a_byte_ = gain_bytes == 0
                         ? 0
                         : static_cast<double>(copies_bytes) * 2 / static_cast<double>(gain_bytes);
    taken_bytes_ = 0;
  }
  void take(std::uint64_t bytes) { taken_bytes_ += bytes; }
  // How long more copies have to wait for, if users write nothing; 0: they have not.
  std::uint64_t wait_ns(std::uint64_t now_ns, std::uint64_t written_bytes) const {
    const double idle_bytes_per_ns = static_cast<double>(kIdleBytesPerS) / 1e9;
    const double allowed = static_cast<double>(written_bytes - written_before_) * copies_a_byte_ +
                           static_cast<double>(now_ns - begun_ns_) * idle_bytes_per_ns;
    const double ahead = static_cast<double>(taken_bytes_) - allowed;
    return ahead <= 0 ? 0 : static_cast<std::uint64_t>(ahead / idle_bytes_per_ns) + 1;
  }

 private:
  std::uint64_t begun_ns_ = 0, written_before_ = 0, taken_bytes_ = 0;
  double copies_a_byte_ = 0;  // that users wrote
};

}  // namespace furrow
