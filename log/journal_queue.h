// JournalQueue: appends to the metadata journal, one record after another, beside what else the
// home executor does: nobody waits for the device, unless the ring has to roll.
//
// Threads: the pool's home executor.
#pragma once

#include "log/metadata_ring.h"
#include "zone/executor.h"

namespace furrow {

class JournalQueue {
 public:
  // Intrusive: the caller's again at on_done.
  struct Entry {
    JournalRecord record;
    Status status;  // as of MetadataRing::begin()
    void (*on_done)(Entry&) = nullptr;
    void* context = nullptr;  // the caller's
    Entry* next = nullptr;
  };

  JournalQueue(Executor& home, MetadataRing& ring);  // both outlive it, where they are
  ~JournalQueue();                                   // when nothing is in it
  JournalQueue(const JournalQueue&) = delete;
  JournalQueue& operator=(const JournalQueue&) = delete;

  void append(Entry& entry);  // answered from a later turn

 private:
  struct Answer : Task {
    JournalQueue* queue = nullptr;
  };
  void begin_first();
  void answer();

  Executor& home_;
  MetadataRing& ring_;
  Entry* first_ = nullptr;  // is being written
  Entry* last_ = nullptr;
  MetadataRing::Pending pending_;
  Answer answer_;
};

}  // namespace furrow
