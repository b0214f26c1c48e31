#include "engine/files/file_content.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "zone/check.h"

namespace furrow {

// Maybe on the pool's thread, the last to know of it, and after the volume: touches nothing else.
FileContent::~FileContent() { FURROW_CHECK(nothing_in_flight()); }

void FileContent::wait(Lock& lock, bool (FileContent::*until)() const) const {
  services_.pool.wait(lock, changed_, [&] { return (this->*until)(); });
}

void FileContent::quiesce() const {
  Lock lock(mutex_);
  wait(lock, &FileContent::nothing_in_flight);
}

std::uint64_t FileContent::size() const {
  const Lock lock(mutex_);
  return end();
}

std::uint64_t FileContent::chunks() const {
  const Lock lock(mutex_);
  const bool tail = tail_ != nullptr && tail_->length != 0;
  return chunks_.size() + writing_.size() + (tail ? 1 : 0);
}

// --- appending ---

Status FileContent::append(std::span<const std::byte> bytes) {
  Lock lock(mutex_);
  if (!appendable_) return {Code::busy, Origin::engine, "the file was closed"};
  ++appending_;
  begin_flush();
  Status status = put_again(lock);
  while (status.ok() && error_.ok() && !bytes.empty()) {
    if (tail_ == nullptr) status = take_tail(lock);
    if (tail_ == nullptr) continue;
    if (bytes.size() > services_.chunk_bytes - tail_->length) {
      const Result<std::size_t> taken = append_across(lock, bytes);
      status = taken.status();
      if (taken.ok()) bytes = bytes.subspan(*taken);
    } else {
      std::memcpy(tail_->data + tail_->length, bytes.data(), bytes.size());
      services_.staging.publish(*tail_, tail_->length + static_cast<std::uint32_t>(bytes.size()));
      bytes = {};
    }
    if (tail_ != nullptr && tail_->length == services_.chunk_bytes) send_full_tail(lock);
  }
  --appending_;
  changed_.notify_all();
  return error_.ok() ? status : error_;
}

// What the tail has no room for is in the next slot before the tail is full, and what is to be
// waited for comes first: so a kill leaves all of it or nothing, unless it is longer than a chunk.
// Returns how much was taken; 0: the tail has changed meanwhile.
Result<std::size_t> FileContent::append_across(Lock& lock, std::span<const std::byte> bytes) {
  wait(lock, &FileContent::may_end_tail);
  if (tail_ == nullptr || !error_.ok()) return std::size_t{0};
  if (!full_.ok()) return full_;
  const std::uint32_t room = services_.chunk_bytes - tail_->length;
  if (bytes.size() <= room) return std::size_t{0};
  Staging::Slot* const next = services_.staging.take(shared_from_this(), inode_, version_,
                                                     tail_->offset + services_.chunk_bytes);
  if (next == nullptr) {
    const Status status = free_slot(lock);
    if (!status.ok()) return status;
    return std::size_t{0};
  }
  const std::size_t rest = std::min<std::size_t>(bytes.size() - room, services_.chunk_bytes);
  std::memcpy(tail_->data + tail_->length, bytes.data(), room);
  std::memcpy(next->data, bytes.data() + room, rest);
  services_.staging.publish(*next, static_cast<std::uint32_t>(rest));
  services_.staging.publish(*tail_, services_.chunk_bytes);
  end_tail();
  tail_ = next;
  return room + rest;
}

bool FileContent::append_may_wait(std::size_t bytes) const {
  const Lock lock(mutex_);
  if (!appendable_ || !full_.ok()) return true;
  if (tail_ != nullptr && tail_->length + bytes < services_.chunk_bytes) return false;
  return bytes >= services_.chunk_bytes || !tail_at_rest() || writing_.size() + 1 >= kWritingMax ||
         !services_.staging.has_free_slot();
}

// What there was no room for keeps its slot, and has another try before anything else.
Status FileContent::put_again(Lock& lock) {
  if (full_.ok()) return {};
  wait(lock, &FileContent::nothing_in_flight);
  full_ = Status();
  for (Staging::Slot* slot : writing_) {
    if (!slot->refused) continue;
    services_.staging.set_refused(*slot, false);
    submit_piece(*slot);
  }
  wait(lock, &FileContent::nothing_in_flight);
  return full_;
}

// Not with the lock held: another file may have to give up its slot, and it may ask for ours.
Status FileContent::take_tail(Lock& lock) {
  wait(lock, &FileContent::may_write_more);
  if (tail_ != nullptr || !error_.ok()) return {};  // another thread has, or it has failed
  if (!full_.ok()) return full_;
  for (;;) {
    const std::uint64_t offset = sealed_end();
    tail_ = services_.staging.take(shared_from_this(), inode_, version_, offset);
    if (tail_ != nullptr) return {};
    const Status status = free_slot(lock);
    if (tail_ != nullptr || !error_.ok()) return {};
    if (!status.ok()) return status;
  }
}

// no_space: of the file that was to give one up.
Status FileContent::free_slot(Lock& lock) {
  lock.unlock();
  const auto other = services_.staging.idle();
  const Status status = other != nullptr ? other->give_up_tail() : Status();
  if (other == nullptr) services_.staging.wait_free(services_.pool);
  lock.lock();
  return status.code() == Code::no_space ? status : Status();
}

// Bytes that are written apart could outlive a record that is not durable: nobody would delete
// them. Where that fails they are not, and the next sync says what is wrong.
void FileContent::begin_flush() {
  if (lifetime_ == Lifetime::medium_term || flushed_ != 0 || record_flush_ != nullptr) return;
  flushing_ = true;
  record_flush_ = std::make_unique<RecordFlush>();
  record_flush_->keep = shared_from_this();
  PageOp& op = record_flush_->op;
  op.kind = PageOp::Kind::flush;
  op.context = record_flush_.get();
  op.on_result = [](PageOp&) {};
  op.on_released = [](PageOp& flushed) {
    const auto file = std::move(static_cast<RecordFlush*>(flushed.context)->keep);
    const Lock lock(file->mutex_);
    file->flushing_ = false;
    if (flushed.status.ok()) file->flushed_ = std::max<std::uint64_t>(file->flushed_, 1);
    file->changed_.notify_all();
  };
  services_.pool.submit(services_.store, op);
}

void FileContent::submit_put(Staging::Slot& slot, Durability durability) {
  ++puts_;
  PageOp& op = slot.op;
  op.kind = PageOp::Kind::put;
  op.durability = durability;
  op.key = chunk_key(inode_, version_, slot.offset);
  op.group = inode_;
  op.data = slot.data;
  op.length = op.capacity = slot.length;
  op.known = &slot.known;
  op.lifetime = flushed_ != 0 ? lifetime_.load() : Lifetime::medium_term;
  op.context = &slot;
  op.on_result = [](PageOp&) {};
  slot.keep = shared_from_this();
  services_.pool.submit(services_.store, op);
}

void FileContent::send_full_tail(Lock& lock) {
  wait(lock, &FileContent::tail_at_rest);
  if (tail_ == nullptr || tail_->length != services_.chunk_bytes) return;  // another thread did
  end_tail();
}

void FileContent::end_tail() {
  writing_.push_back(std::exchange(tail_, nullptr));
  if (++held_ == kTogether || services_.staging.short_of_slots()) submit_held();
}

void FileContent::submit_held() {
  for (std::size_t i = writing_.size() - std::exchange(held_, 0); i < writing_.size(); ++i) {
    services_.staging.set_tail(*writing_[i], false);
    submit_piece(*writing_[i]);
  }
}

void FileContent::submit_piece(Staging::Slot& slot) {
  ++in_flight_;
  slot.op.on_released = [](PageOp& op) {
    auto& its_slot = *static_cast<Staging::Slot*>(op.context);
    const std::shared_ptr<FileContent> file = std::move(its_slot.keep);
    file->piece_written(its_slot);
  };
  submit_put(slot, Durability::none);
}

// On the pool's thread.
void FileContent::piece_written(Staging::Slot& slot) {
  const Lock lock(mutex_);
  --in_flight_;
  const Status& status = slot.op.status;
  if (status.code() == Code::no_space) {
    full_ = status;
    services_.staging.set_refused(slot, true);
  } else {
    if (status.ok()) slot.known = {slot.op.key, slot.op.length, slot.op.checksum};
    if (!status.ok() && error_.ok()) error_ = status;
    slot.done = true;
  }
  while (!writing_.empty() && writing_.front()->done) {
    Staging::Slot& first = *writing_.front();
    writing_.erase(writing_.begin());
    if (error_.ok())
      chunks_.push_back({first.offset, first.known.length, first.known.checksum, version_});
    services_.staging.give_back(first);
  }
  changed_.notify_all();
}

Status FileContent::put_tail(Durability durability) {
  Lock lock(mutex_);
  Status status = put_again(lock);
  if (!status.ok()) return status;
  wait(lock, &FileContent::tail_at_rest);
  submit_held();  // from here on all that was appended is on its way, up to the tail's put
  const bool puts = error_.ok() && tail_ != nullptr && tail_->length > tail_->known.length;
  // With the tail's own: where that is refused another thread may put it, without a flush.
  const std::uint64_t asked = puts_ + (puts ? 1 : 0), until = sealed_end();
  if (puts) {
    putting_ = true;
    // Full chunks that are on their way may come after it, and then take a flush of their own.
    const bool covers = durability == Durability::flushed && in_flight_ == 0;
    covered_ = covers ? asked : 0;
    tail_->op.on_released = [](PageOp& op) {
      auto& slot = *static_cast<Staging::Slot*>(op.context);
      const std::shared_ptr<FileContent> file = std::move(slot.keep);
      file->tail_written();
    };
    tail_refusal_ = Status();
    submit_tail(lock, covers ? Durability::flushed : Durability::none);
    status = tail_refusal_;
  }
  // Not for what others append meanwhile: that need not end.
  services_.pool.wait(lock, changed_, [&] { return in_flight_ == 0 || is_written(until); });
  if (!error_.ok()) return error_;
  if (status.ok()) status = full_;
  if (!status.ok() || durability == Durability::none || flushed_ >= asked) return status;
  return flush(lock, std::max(asked, puts_at_rest()));
}

// And waits; the pool's thread need not be woken if it has nothing else to do.
void FileContent::submit_tail(Lock& lock, Durability durability) {
  if (EventLoop::Turns turns = services_.pool.take_turns()) {
    submit_put(*tail_, durability);
    lock.unlock();
    turns.run_until([this] {
      const Lock locked(mutex_);
      return tail_at_rest();
    });
  } else {
    submit_put(*tail_, durability);
  }
  if (!lock.owns_lock()) lock.lock();
  wait(lock, &FileContent::tail_at_rest);
}

// On the pool's thread.
void FileContent::tail_written() {
  const Lock lock(mutex_);
  const PageOp& op = tail_->op;
  putting_ = false;
  if (op.status.ok()) {
    tail_->known = {op.key, op.length, op.checksum};
    flushed_ = std::max(flushed_, covered_);
    const bool all = tail_->known.length == tail_->length;
    if (all && tail_->length >= kSealBytes && writing_.empty()) seal_tail();
  } else if (op.status.code() == Code::no_space) {
    tail_refusal_ = op.status;  // it stays, for another try
  } else if (error_.ok()) {
    error_ = op.status;
  }
  changed_.notify_all();
}

void FileContent::seal_tail() {
  const KnownPage& known = tail_->known;
  chunks_.push_back({tail_->offset, known.length, known.checksum, version_});
  services_.staging.begin_chunk(*tail_, version_, chunks_end());
}

void FileContent::release_tail() {
  if (tail_ != nullptr) services_.staging.give_back(*tail_);
  tail_ = nullptr;
}

// `covered`: puts that are done by now.
Status FileContent::flush(Lock& lock, std::uint64_t covered) {
  lock.unlock();
  PageOp op;
  op.kind = PageOp::Kind::flush;
  const Status status = run(op);
  lock.lock();
  if (status.ok()) flushed_ = std::max(flushed_, covered);
  return status;
}

Status FileContent::make_whole() {
  const Status written = write_out();
  Lock lock(mutex_);
  if (!written.ok() && error_.ok()) return written;
  return flushed_ >= puts_ ? Status() : flush(lock, puts_at_rest());
}

Status FileContent::finish() {
  const Status written = write_out();
  Lock lock(mutex_);
  wait(lock, &FileContent::nothing_in_flight);
  const bool stored =
      written.ok() && writing_.empty() && tail_ != nullptr && tail_->known.length == tail_->length;
  if (stored && tail_->length != 0) seal_tail();
  if (stored || !error_.ok()) release_tail();
  return written;
}

// A failure is said at the file's next operation as well.
Status FileContent::give_up_tail() { return finish(); }

bool FileContent::failed() const {
  const Lock lock(mutex_);
  return !error_.ok();
}

// Nothing more is to come: what waits for room could still be written over what is found now.
bool FileContent::failed_and_at_rest() const {
  const Lock lock(mutex_);
  return !error_.ok() && writing_.empty() && nothing_in_flight();
}

Status FileContent::close() {
  const std::lock_guard changing(changing_);
  for (;;) {
    const Status status = finish();
    // Such as what was synced of the tail, for who reads it.
    if (failed_and_at_rest()) (void)find_more();
    if (!status.ok()) return status;
    Lock lock(mutex_);
    wait(lock, &FileContent::nobody_appends);
    if (tail_ != nullptr || !writing_.empty()) continue;  // another thread has added something
    open_ = appendable_ = false;
    return {};
  }
}

Status FileContent::run(PageOp& op) const {
  services_.pool.run(services_.store, std::span(&op, 1));
  return op.status;
}

}  // namespace furrow
