// OpenFile: a file's bytes by its handle, and its record brought up to date with them.
#include <algorithm>

#include "engine/files/file_volume.h"

namespace furrow {

namespace {
constexpr Status kFileTooLong(Code::too_large, Origin::engine, "a file has less than 256 TiB");
}  // namespace

OpenFile::OpenFile(std::shared_ptr<FileVolume> volume, std::shared_ptr<FileNode> node)
    : volume_(std::move(volume)), node_(std::move(node)) {}

OpenFile::~OpenFile() {
  (void)close();  // who wants to know calls it before
  volume_->release(node_);
}

Status OpenFile::record(Durability durability) {
  std::unique_lock lock(volume_->mutex_);
  return volume_->record(lock, node_, durability);
}

void OpenFile::set_modified(std::uint64_t unix_s) {
  changed_ = true;
  node_->modified_s.store(unix_s, std::memory_order_relaxed);
}

Status OpenFile::append(std::span<const std::byte> bytes) {
  if (bytes.empty()) return {};
  set_modified(volume_->pool_->wall_s());
  Status status = content().append(bytes);
  while (status.code() == Code::busy) {  // its record does not say yet that more may come
    status = content().begin_appending([this] { return record(Durability::flushed); });
    if (status.ok()) status = content().append(bytes);
  }
  if (status.ok()) volume_->appended_bytes_ += bytes.size();
  return status;
}

Status OpenFile::flush() { return volume_->survives_kill() ? Status() : content().write_out(); }

Status OpenFile::sync() { return content().sync(); }

Status OpenFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  if (bytes.empty()) return {};
  if (offset > kFileBytesMax - std::min<std::uint64_t>(bytes.size(), kFileBytesMax)) {
    return kFileTooLong;
  }
  const std::uint64_t size = content().size();
  Status status = offset > size ? add_zeroes(offset) : Status();
  const std::uint64_t there = std::min<std::uint64_t>(bytes.size(), size - std::min(size, offset));
  if (there != 0) {
    set_modified(volume_->pool_->wall_s());
    status = content().overwrite(offset, bytes.first(there),
                                 [this] { return record(Durability::flushed); });
    if (status.ok()) volume_->appended_bytes_ += there;
  }
  return status.ok() ? append(bytes.subspan(there)) : status;
}

Status OpenFile::truncate(std::uint64_t bytes) {
  const std::uint64_t size = content().size();
  if (bytes > kFileBytesMax) return kFileTooLong;
  const bool anew = bytes == 0 && content().failed();
  if (bytes >= size && !anew) return add_zeroes(bytes);
  set_modified(volume_->pool_->wall_s());
  return content().cut(bytes, [this] { return record(Durability::flushed); });
}

Status OpenFile::add_zeroes(std::uint64_t size) {
  const std::uint64_t bytes = size - content().size();
  if (bytes > volume_->free_bytes()) {
    return {Code::no_space, Origin::engine,
            "zeroes take as much room as other bytes, and there is less"};
  }
  const std::vector<std::byte> zeroes(std::min<std::uint64_t>(bytes, 1 << 20));
  for (std::uint64_t left = bytes; left != 0;) {
    const std::uint64_t part = std::min<std::uint64_t>(left, zeroes.size());
    const Status status = append(std::span(zeroes).first(part));
    if (!status.ok()) return status;
    left -= part;
  }
  return {};
}

Result<std::size_t> OpenFile::read(std::uint64_t offset, std::span<std::byte> memory) const {
  for (;;) {
    const std::uint64_t before = content().replacements();
    const Result<std::size_t> bytes = content().read(offset, memory);
    if (bytes.ok() || content().replacements() == before) return bytes;
  }
}

Status OpenFile::close() {
  if (!changed_ || volume_->abandoned_) return {};
  const Status finished = content().close();
  std::unique_lock lock(volume_->mutex_);
  const Status recorded = volume_->record(lock, node_, Durability::none);
  changed_ = !finished.ok() || !recorded.ok();  // then the next call tries again
  volume_->save_written(lock);
  return finished.ok() ? recorded : finished;
}

}  // namespace furrow
