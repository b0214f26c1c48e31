// FileContent: what is left of a file when it is removed, in its record, and at a mount.
#include <algorithm>
#include <array>
#include <utility>

#include "engine/files/file_content.h"

namespace furrow {

// --- removing ---

std::optional<std::vector<KnownPage>> FileContent::retire() {
  Lock lock(mutex_);
  wait(lock, &FileContent::nothing_in_flight);
  std::vector<KnownPage> pages;
  for (const Chunk& chunk : chunks_) pages.push_back(known(chunk));
  if (writing_.size() != held_) strays_ = true;
  retired_ = {std::exchange(writing_, {}), std::exchange(held_, 0), std::exchange(full_, Status()),
              std::exchange(tail_, nullptr)};
  for (Staging::Slot* slot : retired_slots()) {  // nobody is to ask for them
    if (slot->known.length != 0) pages.push_back(slot->known);
    services_.staging.set_tail(*slot, false);
    services_.staging.set_refused(*slot, false);
  }
  if (std::exchange(strays_, true) || !error_.ok()) return std::nullopt;
  return pages;
}

std::vector<Staging::Slot*> FileContent::retired_slots() const {
  std::vector<Staging::Slot*> slots = retired_.writing;
  if (retired_.tail != nullptr) slots.push_back(retired_.tail);
  return slots;
}

void FileContent::end_retirement(bool removed) {
  const Lock lock(mutex_);
  const std::vector<Staging::Slot*> slots = retired_slots();
  Retired had = std::exchange(retired_, {});
  if (removed) {
    for (Staging::Slot* slot : slots) services_.staging.give_back(*slot);
    return;
  }
  const std::size_t given = had.writing.size() - had.held;  // to the device, which had no room
  for (std::size_t i = 0; i < slots.size(); ++i) {
    services_.staging.set_tail(*slots[i], i >= given);
    services_.staging.set_refused(*slots[i], i < given && !slots[i]->done);
  }
  writing_ = std::move(had.writing);
  held_ = had.held;
  full_ = had.full;
  tail_ = had.tail;
}

// --- records and mounting ---

void FileContent::describe(FileRecord& record) const {
  const Lock lock(mutex_);
  record.version = version_;
  record.open = open_ || strays_;
  record.durable = flushed_ >= puts_;
  record.chunks.clear();
  for (const Chunk& chunk : chunks_) {
    record.chunks.push_back({chunk.length, chunk.checksum, chunk.version});
  }
}

void FileContent::load(const FileRecord& record) {
  version_ = record.version;
  open_ = strays_ = record.open;
  unsure_ = !record.durable;
  flushed_ = puts_;  // mounting ends with a flush
  for (const FileChunk& chunk : record.chunks) {
    chunks_.push_back({chunks_end(), chunk.length, chunk.checksum, chunk.version});
  }
}

void FileContent::load_found(std::span<const Found> chunks) {
  strays_ = true;
  flushed_ = puts_;
  constexpr std::uint64_t kHoleMax = 1 << 30;
  for (const Found& found : chunks) {
    while (chunks_end() < found.offset) {  // no page has such a key
      const std::uint64_t hole = std::min(found.offset - chunks_end(), kHoleMax);
      chunks_.push_back({chunks_end(), static_cast<std::uint32_t>(hole), 0, kVersionMax});
    }
    chunks_.push_back({found.offset, found.length, found.checksum, found.version});
  }
}

std::vector<KnownPage> FileContent::unsure() const {
  std::vector<KnownPage> pages;
  if (!unsure_) return pages;
  for (const Chunk& chunk : chunks_) pages.push_back(known(chunk));
  return pages;
}

// What stands under the key of one that is lost is an older, shorter version of it, and is found as
// of an open file.
void FileContent::drop_from(std::size_t chunk) {
  if (chunks_[chunk].version == version_) open_ = true;
  chunks_.resize(chunk);
  strays_ = true;
}

// One is often as long as the one before, full or as a sync left it: as far as that has proved
// right, several are asked for at a time, and next to nothing is read in vain.
Status FileContent::find_more() {
  std::array<PageOp, 16> ops;
  std::size_t count = 1;
  while (open_) {
    Lock lock(mutex_);
    const std::uint64_t each = chunks_.empty() ? services_.chunk_bytes : chunks_.back().length;
    for (std::size_t i = 0; i < count; ++i) {
      ops[i].kind = PageOp::Kind::exist;
      ops[i].key = chunk_key(inode_, version_, chunks_end() + i * each);
    }
    lock.unlock();
    const std::span<PageOp> asked = std::span(ops).first(count);
    services_.pool.run(services_.store, asked);
    lock.lock();
    count = std::min(2 * count, ops.size());
    for (const PageOp& op : asked) {
      if (op.status.code() == Code::not_found) return {};
      if (!op.status.ok()) return op.status;
      chunks_.push_back({chunks_end(), op.length, op.checksum, version_});
      found_more_ = true;
      if (op.length == each) continue;
      count = 1;  // the others were asked for at the wrong places
      break;
    }
  }
  return {};
}

// What the device has of a tail is put again with what was added to it, if that is under its key.
Status FileContent::restore(const Staging::Left& left, Staging::Use use) {
  const std::uint64_t end = sealed_end();
  if (!open_ || left.version > version_ ||
      left.offset > end ||  // what lay before was never written
      left.offset + left.bytes.size() <= end) {
    return {};
  }
  found_more_ = true;
  const auto skipped = static_cast<std::uint32_t>(end - left.offset);
  if (use == Staging::Use::look) {
    writing_.push_back(&services_.staging.adopt(left, skipped, shared_from_this()));
    return {};
  }
  const bool grown = writing_.empty() && !chunks_.empty() && chunks_.back().offset == left.offset &&
                     chunks_.back().version == version_;
  const std::uint64_t offset = grown ? left.offset : end;
  const auto bytes = left.bytes.subspan(grown ? 0 : skipped);
  PageOp op;
  op.kind = PageOp::Kind::put;
  op.key = chunk_key(inode_, version_, offset);
  op.group = inode_;
  op.data = const_cast<std::byte*>(bytes.data());  // rounded up by copying: not written to
  op.length = op.capacity = static_cast<std::uint32_t>(bytes.size());
  const Status status = full_.ok() ? run(op) : full_;  // or it would be out of turn
  if (status.code() == Code::no_space) {
    writing_.push_back(&services_.staging.adopt(left, skipped, shared_from_this()));
    services_.staging.set_refused(*writing_.back(), true);
    full_ = status;
    return {};
  }
  if (!status.ok()) return status;
  if (grown) chunks_.pop_back();
  chunks_.push_back({offset, op.length, op.checksum, version_});
  return {};
}

}  // namespace furrow
