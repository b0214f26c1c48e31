// DurableNotes: puts into the metadata journal that zones are durable, one after another, beside
// what else the home executor does. A recovery then takes them as they are, where it would have to
// verify them as the newest of their streams.
//
// Threads: the pool's home executor.
#pragma once

#include "log/journal_queue.h"
#include "log/pool_context.h"

namespace furrow {

class DurableNotes {
 public:
  DurableNotes(PoolContext& pool, JournalQueue& journal);  // both outlive it, where they are
  ~DurableNotes();                                         // when nothing is asked for
  DurableNotes(const DurableNotes&) = delete;
  DurableNotes& operator=(const DurableNotes&) = delete;

  // Answered from a later turn. Until then the zone stays as it is. An error: of the journal.
  void request(DurableNote& note);

 private:
  void write_first();
  void answer();

  PoolContext& pool_;
  JournalQueue& journal_;
  DurableNote* first_ = nullptr;  // is being written
  DurableNote* last_ = nullptr;
  JournalQueue::Entry entry_;
};

}  // namespace furrow
