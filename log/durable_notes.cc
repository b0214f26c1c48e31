#include "log/durable_notes.h"

#include <algorithm>

#include "zone/check.h"

namespace furrow {

DurableNotes::DurableNotes(PoolContext& pool, JournalQueue& journal)
    : pool_(pool), journal_(journal) {
  entry_.context = this;
  entry_.on_done = [](JournalQueue::Entry& entry) {
    static_cast<DurableNotes*>(entry.context)->answer();
  };
}

DurableNotes::~DurableNotes() { FURROW_CHECK(first_ == nullptr); }

void DurableNotes::request(DurableNote& note) {
  note.next = nullptr;
  (first_ == nullptr ? first_ : last_->next) = &note;
  last_ = &note;
  if (first_ == &note) write_first();
}

void DurableNotes::write_first() {
  const ZoneId zone = first_->zone;
  const auto capacity = static_cast<std::uint32_t>(pool_.geometry.zone_capacity_lbas);
  entry_.record.kind = JournalRecord::Kind::zone_trimmed;
  const ZoneDirectory& table = pool_.tables[zone.value];
  entry_.record.trim = {zone.value, std::min(table.end_lba, capacity),
                        pool_.allocator.zone(zone).generation, !table.unverified,
                        first_->aside || table.evicted};
  journal_.append(entry_);
}

void DurableNotes::answer() {
  DurableNote& note = *first_;
  first_ = note.next;
  note.status = entry_.status;
  ZoneDirectory& table = pool_.tables[note.zone.value];
  if (note.status.ok()) table.durable = !table.unverified;
  if (first_ != nullptr) write_first();
  note.on_noted(note);
}

}  // namespace furrow
