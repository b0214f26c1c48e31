// FileContent: what is there is changed.
//
// A chunk's replacement is put under a key of its own, so what stands there counts until the record
// says otherwise; then the old one is removed. The record is put when the device has the chunks.
#include <algorithm>
#include <cstring>

#include "engine/files/file_content.h"

namespace furrow {

namespace {

// A record has not room for what it would have to list: none was written, and the medium says what
// it said before.
bool is_refusal(const Status& record) { return record.code() == Code::too_large; }

Status too_many_versions() {
  return {Code::unsupported, Origin::engine,
          "a file was cut, or added to after a kill while it was open, 65000 times; copy it"};
}

}  // namespace

Status FileContent::begin_appending(const Record& record) {
  const std::lock_guard changing(changing_);
  return begin_changing(record);
}

// Nothing is put before the record says durably that there may be more than it lists.
Status FileContent::begin_changing(const Record& record) {
  Versions before;
  {
    Lock lock(mutex_);
    if (open_ && appendable_) return {};
    // What waits for room is of the version that was, and found by that until the record says more.
    Status status = put_again(lock);
    if (!status.ok()) return status;
    wait(lock, &FileContent::nothing_in_flight);
    before = versions();
    if (strays_) status = next_version();
    if (!status.ok()) return status;
    open_ = true;
  }
  const Status status = record();
  Lock lock(mutex_);
  if (status.ok()) appendable_ = true;
  if (!is_refusal(status)) return status;
  restore(before);
  lock.unlock();
  if (!takes_back(record)) note_strays();
  return status;
}

// Another's record, of the file's names, may have told meanwhile of what was taken back. Does the
// medium say what there is, and nothing of that?
bool FileContent::takes_back(const Record& record) { return record().ok(); }

void FileContent::note_strays() {
  const Lock lock(mutex_);
  strays_ = true;
}

// Chunks to come get keys of a version that no page behind the file's end has: mounting would take
// that for the file's.
Status FileContent::next_version() {
  if (version_ >= kVersionMax) return too_many_versions();
  ++version_;
  return {};
}

// Else what a record leaves out would be of another version than it says, and no later one could be
// written either.
void FileContent::restore(const Versions& before) {
  version_ = before.version;
  open_ = before.open;
  appendable_ = before.appendable;
}

// All of the file that there is by now is in chunks_.
Status FileContent::settle() {
  const std::uint64_t until = size();
  for (;;) {
    const Status status = finish();
    if (!status.ok()) return status;
    const Lock lock(mutex_);
    if (chunks_end() >= until) return {};
  }
}

Result<bool> FileContent::holds(std::uint64_t offset, std::span<const std::byte> bytes) const {
  AlignedBuffer memory(std::min<std::size_t>(bytes.size(), services_.chunk_bytes));
  while (!bytes.empty()) {
    const std::size_t part = std::min<std::size_t>(bytes.size(), memory.size());
    const Result<std::size_t> got = read(offset, memory.span().first(part));
    if (!got.ok()) return got.status();
    if (*got != part || std::memcmp(memory.data(), bytes.data(), part) != 0) return false;
    offset += part;
    bytes = bytes.subspan(part);
  }
  return true;
}

Status FileContent::overwrite(std::uint64_t offset, std::span<const std::byte> bytes,
                              const Record& record) {
  const std::lock_guard changing(changing_);
  const Result<bool> same = holds(offset, bytes);
  if (!same.ok() || *same) return same.status();
  Status status = settle();
  if (status.ok()) status = begin_changing(record);
  if (!status.ok()) return status;
  std::vector<Replacement> replacements;
  status = put_replacements(offset, bytes, replacements);
  if (status.ok()) status = make_durable();
  bool listed = status.ok();
  if (listed) {
    swap_in(replacements);  // from here on they are those that were there before
    status = record();
    if (!status.ok()) swap_in(replacements);
    listed = !is_refusal(status) || !takes_back(record);
  }
  if (listed && !status.ok()) {  // whether the medium lists them is not known: they stay
    note_strays();
    return status;
  }
  std::vector<Chunk> superfluous;
  for (const Replacement& each : replacements) superfluous.push_back(each.chunk);
  remove_all(superfluous);
  return status;
}

Status FileContent::put_replacements(std::uint64_t offset, std::span<const std::byte> bytes,
                                     std::vector<Replacement>& put) {
  const std::uint64_t end = offset + bytes.size();
  std::unique_lock lock(mutex_);
  const auto first = std::ranges::upper_bound(chunks_, offset, {}, &Chunk::offset);
  for (std::size_t i = static_cast<std::size_t>(first - chunks_.begin()) - 1;
       i < chunks_.size() && chunks_[i].offset < end; ++i) {
    const Chunk old = chunks_[i];
    lock.unlock();
    const std::uint64_t from = std::max(offset, old.offset);
    const std::uint64_t to = std::min(end, old.offset + old.length);
    const Result<Chunk> made = put_replacement(
        old, old.length, from, bytes.subspan(from - offset, static_cast<std::size_t>(to - from)));
    if (!made.ok()) return made.status();
    put.push_back({i, *made});
    lock.lock();
  }
  return {};
}

// The first `length` bytes of `old`, with `bytes` at `offset` of the file.
Result<FileContent::Chunk> FileContent::put_replacement(const Chunk& old, std::uint32_t length,
                                                        std::uint64_t offset,
                                                        std::span<const std::byte> bytes) {
  AlignedBuffer buffer(old.length);
  if (bytes.size() != length) {  // as a whole, which is verified: what is damaged is not put anew
    const Result<std::size_t> got = read(old.offset, buffer.span().first(old.length));
    if (!got.ok()) return got.status();
  }
  std::ranges::copy(bytes, buffer.data() + (offset - old.offset));
  // Also not that of one whose record may, or may not, have been written.
  do {
    replacement_ = static_cast<std::uint16_t>((replacement_ + 1) | kReplacements);
  } while (replacement_ == old.version);
  PageOp op;
  op.kind = PageOp::Kind::put;
  op.key = chunk_key(inode_, replacement_, old.offset);
  op.group = inode_;
  op.data = buffer.data();
  op.length = op.capacity = length;
  const Status status = run(op);
  if (status.ok()) return Chunk{old.offset, length, op.checksum, replacement_};
  const Lock lock(mutex_);
  if (status.code() != Code::no_space) strays_ = true;
  return status;
}

Status FileContent::make_durable() {
  Lock lock(mutex_);
  return flush(lock, puts_at_rest());
}

void FileContent::swap_in(std::vector<Replacement>& replacements) {
  const Lock lock(mutex_);
  for (Replacement& each : replacements) std::swap(chunks_[each.index], each.chunk);
  ++replacements_;
}

Status FileContent::cut(std::uint64_t size, const Record& record) {
  const std::lock_guard changing(changing_);
  Status status = settle();
  const bool anew = size == 0 && failed_and_at_rest();  // nothing stays that could lack something
  if (status.ok() || anew) status = begin_changing(record);
  if (!status.ok()) return status;
  std::vector<Chunk> before;
  {
    const Lock lock(mutex_);
    before = chunks_;
  }
  const auto first = std::ranges::find_if(
      before, [&](const Chunk& chunk) { return chunk.offset + chunk.length > size; });
  if (first == before.end() && !anew) return {};
  std::vector<Chunk> after(before.begin(), first), shortened;
  if (first != before.end() && size > first->offset) {
    const auto length = static_cast<std::uint32_t>(size - first->offset);
    const Result<Chunk> put = put_replacement(*first, length, size, {});
    if (!put.ok()) return put.status();
    after.push_back(*put);
    shortened.push_back(*put);
    status = make_durable();
  }
  bool listed = false;
  if (status.ok()) status = list_cut(std::move(after), before, record, listed);
  if (status.ok()) remove_all(std::span<const Chunk>(first, before.end()));
  if (!status.ok() && !listed) remove_all(shortened);
  if (status.ok() && anew) forget_failure();
  return status;
}

void FileContent::forget_failure() {
  const Lock lock(mutex_);
  error_ = Status();
  strays_ = true;
}

// `listed`: the medium may say so.
Status FileContent::list_cut(std::vector<Chunk> after, const std::vector<Chunk>& before,
                             const Record& record, bool& listed) {
  Versions versions_before;
  {
    const Lock lock(mutex_);
    versions_before = versions();
    const Status status = next_version();  // those that go are not found as what follows
    if (!status.ok()) return status;
    chunks_ = std::move(after);
    ++replacements_;
    appendable_ = false;
  }
  listed = true;
  const Status status = record();
  {
    const Lock lock(mutex_);
    if (status.ok()) {
      appendable_ = true;
      return status;
    }
    chunks_ = before;
    ++replacements_;
    if (is_refusal(status)) restore(versions_before);
  }
  listed = !is_refusal(status) || !takes_back(record);
  if (listed) note_strays();  // who appends has the record written first
  return status;
}

// One that stays is in nobody's way, and goes with the file.
void FileContent::remove_all(std::span<const Chunk> chunks) {
  constexpr std::size_t kTogetherMax = 256;
  while (!chunks.empty()) {
    const std::span<const Chunk> some = chunks.first(std::min(chunks.size(), kTogetherMax));
    chunks = chunks.subspan(some.size());
    std::vector<KnownPage> pages;
    for (const Chunk& chunk : some) pages.push_back(known(chunk));
    std::vector<PageOp> ops(pages.size());
    for (std::size_t i = 0; i < ops.size(); ++i) {
      ops[i].kind = PageOp::Kind::remove;
      ops[i].key = pages[i].key;
      ops[i].known = &pages[i];
    }
    services_.pool.run(services_.store, ops);
    const bool all = std::ranges::all_of(ops, [](const PageOp& op) { return op.status.ok(); });
    const Lock lock(mutex_);
    if (!all) strays_ = true;
  }
}

}  // namespace furrow
