#include "log/journal_queue.h"

#include "zone/check.h"

namespace furrow {

JournalQueue::JournalQueue(Executor& home, MetadataRing& ring) : home_(home), ring_(ring) {
  pending_.context = this;
  // Whoever else appends to the journal may have waited for it: the rest is for another turn.
  pending_.on_done = [](MetadataRing::Pending& pending) {
    auto* queue = static_cast<JournalQueue*>(pending.context);
    queue->home_.post(queue->answer_);
  };
  answer_.queue = this;
  answer_.run = [](Task& task) { static_cast<Answer&>(task).queue->answer(); };
}

JournalQueue::~JournalQueue() { FURROW_CHECK(first_ == nullptr); }

void JournalQueue::append(Entry& entry) {
  entry.next = nullptr;
  (first_ == nullptr ? first_ : last_->next) = &entry;
  last_ = &entry;
  if (first_ == &entry) begin_first();
}

void JournalQueue::begin_first() {
  pending_.record = first_->record;
  home_.add(ring_.poller());
  ring_.begin(pending_);
}

void JournalQueue::answer() {
  home_.remove(ring_.poller());
  Entry& entry = *first_;
  first_ = entry.next;
  entry.status = pending_.status;
  if (first_ != nullptr) begin_first();
  entry.on_done(entry);
}

}  // namespace furrow
