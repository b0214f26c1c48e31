// Establishes that no bytes make the decoder of batch headers misbehave, and that the records of a
// header that it accepts are in range: they can be encoded, which checks that, and read again.
#include "tests/fuzz/media_fuzz.h"

using namespace furrow;

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t size_max, unsigned seed) {
  return fuzz::mutate(data, size, size_max, seed, [](RandomStructures& random) {
    const ZoneStamp stamp = random.stamp();
    return random.batch(stamp, static_cast<std::uint32_t>(random.below(1000)), random.lba_bytes())
        .encode();
  });
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Bytes bytes = fuzz::copy_of(data, size);
  reseal_batch(bytes);
  const ZoneStamp stamp = fuzz::stamp_of(bytes);
  const auto fixed = BatchView::fixed_part(bytes, stamp);
  const auto view = BatchView::open(bytes, stamp);
  if (!view.ok()) return 0;
  fuzz::require(fixed.ok() && *fixed == view->header(), "fixed_part() agrees with open()");
  const BatchHeader& header = view->header();
  const auto total = load_le<std::uint32_t>(bytes.data() + kBatchTotalAt);
  fuzz::require(header.flushed_lba <= header.lba, "what was flushed lies before");
  std::vector<PageRecord> records;
  for (std::uint32_t i = 0; i < view->header().record_count; ++i) {
    records.push_back(view->record(i));
    fuzz::require_in_range(records.back(), header.lba + header.header_lbas,
                           header.lba + header.batch_lbas, total / header.header_lbas);
  }
  fuzz::Bytes again(total);
  encode(view->header(), records, again);
  const auto second = BatchView::open(again, stamp);
  fuzz::require(second.ok() && second->header() == view->header(), "round trip");
  for (std::uint32_t i = 0; i < records.size(); ++i) {
    fuzz::require(second->record(i) == records[i], "round trip of records");
  }
  return 0;
}
