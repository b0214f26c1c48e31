// FileCalls of FileVolume itself.
#include <utility>

#include "tests/engine/files/bytes_of.h"
#include "tests/engine/files/file_calls.h"
#include "zone/aligned_buffer.h"

namespace furrow::testing {

namespace {

class DirectFile final : public FileInUse {
 public:
  explicit DirectFile(std::unique_ptr<OpenFile> file) : file_(std::move(file)) {}

  std::uint64_t inode() const override { return file_->inode(); }
  std::uint64_t size() const override { return file_->content().size(); }
  void set_lifetime(Lifetime lifetime) override { file_->content().set_lifetime(lifetime); }
  Status append(std::string_view bytes) override { return file_->append(bytes_of(bytes)); }
  Status write_at(std::uint64_t offset, std::string_view bytes) override {
    return file_->write_at(offset, bytes_of(bytes));
  }
  Status truncate(std::uint64_t bytes) override { return file_->truncate(bytes); }
  Status sync() override { return file_->sync(); }
  Status close() override { return file_->close(); }

 private:
  const std::unique_ptr<OpenFile> file_;
};

class DirectCalls final : public FileCalls {
 public:
  explicit DirectCalls(FileVolume& volume) : volume_(volume) {}

  Opened create(const std::string& path, Existing existing) override {
    return opened(volume_.create(path, existing));
  }
  Opened open(const std::string& path) override { return opened(volume_.open_file(path)); }
  Status remove(const std::string& path) override { return volume_.remove(path); }
  Status rename(const std::string& from, const std::string& to) override {
    return volume_.rename(from, to);
  }
  Status link(const std::string& from, const std::string& to) override {
    return volume_.link(from, to);
  }
  Status make_directory(const std::string& path) override { return volume_.make_directory(path); }
  Status remove_directory(const std::string& path) override {
    return volume_.remove_directory(path);
  }
  Status sync_names() override { return volume_.sync_names(); }
  Result<FileInfo> stat(const std::string& path) override { return volume_.stat(path); }
  Result<std::vector<FileInfo>> list(const std::string& path) override {
    return volume_.list(path);
  }
  Result<std::string> contents(const std::string& path) override;
  Status read(const std::string& path, std::span<FileRead> reads, ReadWay way) override;
  Opened reuse(const std::string& path, const std::string& old) override {
    Status status = rename(old, path);
    if (status.ok()) status = remove(path);
    if (!status.ok()) return status;
    return create(path, Existing::truncate);
  }

 private:
  static Opened opened(Result<std::unique_ptr<OpenFile>> file) {
    if (!file.ok()) return file.status();
    return Opened(std::make_unique<DirectFile>(std::move(*file)));
  }

  FileVolume& volume_;
};

// To memory that the device never fills itself, wherever it is: a simulated run is its seed.
Result<std::string> DirectCalls::contents(const std::string& path) {
  const auto file = volume_.open_file(path);
  if (!file.ok()) return file.status();
  const std::uint64_t size = (*file)->content().size();
  AlignedBuffer buffer(size + 1);
  const std::span<std::byte> memory = buffer.span().subspan(1);
  const auto bytes = (*file)->content().read(0, memory);
  if (!bytes.ok()) return bytes.status();
  return std::string(reinterpret_cast<const char*>(memory.data()), *bytes);
}

Status read_together(const FileContent& content, std::span<FileRead> reads) {
  content.read(reads);
  for (const FileRead& read : reads) {
    if (!read.status.ok()) return read.status;
  }
  return {};
}

// All are begun before the first is waited for.
Status read_by_themselves(const FileContent& content, std::span<FileRead> reads) {
  std::vector<AsyncRead> begun(reads.size());
  Status status;
  for (std::size_t i = 0; i < reads.size(); ++i) {
    begun[i].read = reads[i];
    if (!content.start(begun[i])) status = {Code::too_large, Origin::none, "a read of many parts"};
  }
  for (std::size_t i = 0; i < reads.size(); ++i) {
    begun[i].wait();
    reads[i].bytes = begun[i].read.bytes;
    if (status.ok()) status = begun[i].read.status;
  }
  return status;
}

Status read_one_by_one(const OpenFile& file, std::span<FileRead> reads) {
  for (FileRead& read : reads) {
    const Result<std::size_t> bytes = file.read(read.offset, read.memory);
    if (!bytes.ok()) return bytes.status();
    read.bytes = *bytes;
  }
  return {};
}

Status DirectCalls::read(const std::string& path, std::span<FileRead> reads, ReadWay way) {
  const auto file = volume_.open_file(path);
  if (!file.ok()) return file.status();
  if (way == ReadWay::together) return read_together((*file)->content(), reads);
  if (way == ReadWay::by_themselves) return read_by_themselves((*file)->content(), reads);
  return read_one_by_one(**file, reads);
}

}  // namespace

std::unique_ptr<FileCalls> direct_calls(FileVolume& volume) {
  return std::make_unique<DirectCalls>(volume);
}

}  // namespace furrow::testing
