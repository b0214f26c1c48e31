// Establishes that no bytes make the decoder of zone headers misbehave, and that what it accepts
// can be encoded and read again.
#include "tests/fuzz/media_fuzz.h"

using namespace furrow;

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t size_max, unsigned seed) {
  return fuzz::mutate(data, size, size_max, seed, [](RandomStructures& random) {
    fuzz::Bytes lba(random.lba_bytes());
    encode(random.zone_header(), lba);
    return lba;
  });
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Bytes bytes = fuzz::copy_of(data, size);
  reseal(bytes);
  const ZoneStamp stamp = fuzz::stamp_of(bytes);
  const auto header = decode_zone_header(bytes, stamp.pool, stamp.zone);
  if (!header.ok()) return 0;
  fuzz::Bytes again(bytes.size());
  encode(*header, again);
  fuzz::require(*decode_zone_header(again, stamp.pool, stamp.zone) == *header, "round trip");
  return 0;
}
