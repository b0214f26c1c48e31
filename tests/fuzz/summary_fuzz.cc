// Establishes that no bytes make the decoder of summaries misbehave, and that the records and
// batches of one that it accepts are in range: they can be encoded, which checks that, and read
// again.
#include "tests/fuzz/media_fuzz.h"

using namespace furrow;

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t size_max, unsigned seed) {
  return fuzz::mutate(data, size, size_max, seed,
                      [](RandomStructures& random) { return random.summary().encode(); });
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Bytes bytes = fuzz::copy_of(data, size);
  reseal_summary(bytes);
  if (size < kFooterBytes) {
    fuzz::require(!SummaryView::open(bytes, {}).ok(), "nothing is too short");
    return 0;
  }
  const ZoneStamp stamp = fuzz::stamp_of(std::span(bytes).last(kFooterBytes));
  const auto footer = SummaryView::footer(bytes, stamp);
  const auto view = SummaryView::open(bytes, stamp);
  if (!view.ok()) return 0;
  fuzz::require(footer.ok() && *footer == view->summary(), "footer() agrees with open()");
  std::vector<PageRecord> records;
  std::vector<std::uint32_t> batches;
  for (std::uint32_t i = 0; i < view->summary().record_count; ++i) {
    records.push_back(view->record(i));
    fuzz::require_in_range(records.back(), view->batch_lba(0) + 1, view->summary().data_end_lba,
                           bytes.size() / view->summary().summary_lbas);
  }
  for (std::uint32_t i = 0; i < view->batch_count(); ++i) {
    batches.push_back(view->batch_lba(i));
    fuzz::require(i == 0 || batches[i] > batches[i - 1], "batches ascend");
    fuzz::require(batches[i] < view->summary().data_end_lba, "batches lie before the summary");
  }
  fuzz::Bytes again(bytes.size());
  encode(view->summary(), records, batches, again);
  const auto second = SummaryView::open(again, stamp);
  fuzz::require(second.ok() && second->summary() == view->summary(), "round trip");
  for (std::uint32_t i = 0; i < records.size(); ++i) {
    fuzz::require(second->record(i) == records[i], "round trip of records");
  }
  return 0;
}
