// FileContent: reading.
#include <algorithm>
#include <cstring>

#include "engine/files/file_content.h"

namespace furrow {

namespace {

std::size_t copy_from(std::span<const std::byte> from, std::uint64_t skipped,
                      std::span<std::byte> to) {
  const std::size_t bytes = std::min<std::size_t>(from.size() - skipped, to.size());
  std::memcpy(to.data(), from.data() + skipped, bytes);
  return bytes;
}

}  // namespace

// The next part of a read: copied from staging memory, or given to op number `count`. `bytes`: how
// many. False: there is no room for that op.
bool FileContent::gather_part(FileRead& read, std::size_t done, const ReadParts& parts,
                              unsigned& count, std::size_t& bytes) const {
  const std::uint64_t offset = read.offset + done;
  const std::span<std::byte> memory = read.memory.subspan(done);
  bytes = 0;
  if (offset >= end()) return true;
  if (offset < chunks_end()) {
    if (count == parts.ops.size()) return false;
    const auto chunk = std::prev(std::ranges::upper_bound(chunks_, offset, {}, &Chunk::offset));
    KnownPage& page = parts.known[count] = known(*chunk);
    PageOp& op = parts.ops[count];
    op.kind = PageOp::Kind::get_range;
    op.key = page.key;
    op.known = &page;
    op.offset = static_cast<std::uint32_t>(offset - chunk->offset);
    bytes = std::min<std::size_t>(chunk->length - op.offset, memory.size());
    op.wanted = static_cast<std::uint32_t>(bytes);
    op.data = memory.data();
    // What is behind it in memory is this read's last LBA's, unless more of the file goes there.
    const bool last = chunk->offset + chunk->length == end();
    op.capacity = static_cast<std::uint32_t>(
        last ? std::min<std::size_t>(memory.size(), services_.chunk_bytes * 2) : bytes);
    parts.reads[count++] = &read;
    return true;
  }
  for (const Staging::Slot* slot : writing_) {
    if (offset >= slot->offset + slot->length) continue;
    bytes = copy_from({slot->data, slot->length}, offset - slot->offset, memory);
    return true;
  }
  bytes = copy_from({tail_->data, tail_->length}, offset - tail_->offset, memory);
  return true;
}

std::uint64_t FileContent::part_end(std::uint64_t offset) const {
  const Lock lock(mutex_);
  if (offset >= chunks_end()) return end();
  const auto chunk = std::prev(std::ranges::upper_bound(chunks_, offset, {}, &Chunk::offset));
  return chunk->offset + chunk->length;
}

void FileContent::settle(const ReadParts& parts, unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    Status status = parts.ops[i].status;
    if (status.code() == Code::not_found) {
      status = {Code::corrupt, Origin::engine, "a part of the file is lost"};
    }
    if (!status.ok() && parts.reads[i]->status.ok()) parts.reads[i]->status = status;
  }
}

// Ops for as much as one batch may be; where to go on is in `at`.
unsigned FileContent::gather(std::span<FileRead> reads, Cursor& at, const ReadParts& parts) const {
  const Lock lock(mutex_);
  unsigned count = 0;
  while (at.read != reads.size()) {
    FileRead& read = reads[at.read];
    std::size_t bytes = 0;
    const bool whole = at.bytes == read.memory.size();
    if (!whole && !gather_part(read, at.bytes, parts, count, bytes)) break;
    at.bytes += bytes;
    if (bytes != 0) continue;
    read.bytes = at.bytes;
    at = {at.read + 1, 0};
  }
  return count;
}

void FileContent::read(std::span<FileRead> reads) const {
  Cursor at;
  FileReaders::Lease reader;
  for (FileRead& read : reads) read.status = Status();
  (void)gather(reads, at, {});  // as far as it is in memory
  while (at.read != reads.size()) {
    if (!reader) {
      Result<FileReaders::Lease> borrowed = services_.readers.borrow();
      if (!borrowed.ok()) {
        for (FileRead& read : reads) read.status = borrowed.status();
        return;
      }
      reader = std::move(*borrowed);
    }
    run(*reader.operator->(), reads, at);
  }
}

// As many parts as a reader takes are in flight, until there are no more.
void FileContent::run(FileReaders::Reader& reader, std::span<FileRead> reads, Cursor& at) const {
  const ReadParts parts = reader.parts();
  unsigned in_flight = gather(reads, at, parts);
  for (unsigned i = 0; i < in_flight; ++i) reader.submit(services_.store, i);
  while (in_flight != 0) {
    for (const unsigned i : reader.wait()) {
      const ReadParts one = parts.one(i);
      settle(one, 1);
      const bool more = at.read != reads.size() && gather(reads, at, one) != 0;
      more ? reader.submit(services_.store, i) : void(--in_flight);
    }
  }
}

Result<std::size_t> FileContent::read(std::uint64_t offset, std::span<std::byte> memory) const {
  FileRead one{offset, memory, 0, {}};
  read(std::span(&one, 1));
  if (!one.status.ok()) return one.status;
  return one.bytes;
}

// Of a read, as many as there are with the device now.
std::size_t FileContent::parts_of(const FileRead& read) const {
  const Lock lock(mutex_);
  const auto first = std::ranges::upper_bound(chunks_, read.offset, {}, &Chunk::offset);
  const auto end = std::ranges::lower_bound(first, chunks_.end(), read.offset + read.memory.size(),
                                            {}, &Chunk::offset);
  return static_cast<std::size_t>(end - first) + 1;
}

bool FileContent::start(AsyncRead& read) const {
  read.read.status = Status();
  for (Cursor at; at.read != 1;) {  // once more if the file has got more parts meanwhile
    const std::size_t parts = parts_of(read.read);
    if (parts > AsyncRead::kPartsMax) return read.count_ = 0, false;
    read.make_room(parts);
    at = Cursor();
    read.count_ = gather(std::span(&read.read, 1), at, read.parts());
  }
  read.pool_ = &services_.pool;
  read.left_ = read.count_;
  for (PageOp& op : read.parts().ops.first(read.count_)) {
    op.context = &read;
    op.on_result = [](PageOp&) {};
    op.on_released = [](PageOp& done) {
      auto& its_read = *static_cast<AsyncRead*>(done.context);
      // Notified with the mutex held: the caller cannot leave before.
      const std::lock_guard lock(its_read.mutex_);
      if (--its_read.left_ == 0) its_read.done_.notify_all();
    };
    services_.pool.submit(services_.store, op);
  }
  return true;
}

void AsyncRead::make_room(std::size_t parts) {
  room_ = parts;
  ops_ = std::make_unique<PageOp[]>(parts);
  known_ = std::make_unique<KnownPage[]>(parts);
  reads_ = std::make_unique<FileRead*[]>(parts);
}

void AsyncRead::wait() {
  std::unique_lock lock(mutex_);
  const auto done = [&] { return left_ == 0; };
  if (!done()) pool_->wait(lock, done_, done);
  FileContent::settle(parts(), count_);
}

}  // namespace furrow
