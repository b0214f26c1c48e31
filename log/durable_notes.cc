#include "log/durable_notes.h"

#include <algorithm>

#include "zone/check.h"

namespace furrow {

DurableNotes::DurableNotes(PoolContext& pool, MetadataRing& ring) : pool_(pool), ring_(ring) {
  pending_.context = this;
  // Whoever else appends to the journal may have waited for it: the rest is for another turn.
  pending_.on_done = [](MetadataRing::Pending& pending) {
    auto* notes = static_cast<DurableNotes*>(pending.context);
    notes->pool_.home.post(notes->answer_);
  };
  answer_.notes = this;
  answer_.run = [](Task& task) { static_cast<Answer&>(task).notes->answer(); };
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
  pending_.record.kind = JournalRecord::Kind::zone_trimmed;
  pending_.record.trim = {zone.value, std::min(pool_.tables[zone.value].end_lba, capacity),
                          pool_.allocator.zone(zone).generation, true};
  pool_.home.add(ring_.poller());
  ring_.begin(pending_);
}

void DurableNotes::answer() {
  pool_.home.remove(ring_.poller());
  DurableNote& note = *first_;
  first_ = note.next;
  note.status = pending_.status;
  if (note.status.ok()) pool_.tables[note.zone.value].durable = true;
  if (first_ != nullptr) write_first();
  note.on_noted(note);
}

}  // namespace furrow
