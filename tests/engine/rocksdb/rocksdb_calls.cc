#include "tests/engine/rocksdb/rocksdb_calls.h"

#include <rocksdb/file_system.h>

#include <cstring>
#include <set>
#include <utility>

#include "engine/rocksdb/file_system.h"
#include "log/codec.h"
#include "zone/aligned_buffer.h"

namespace furrow::testing {

namespace {

using rocksdb::FileOptions;
using rocksdb::FSReadRequest;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

Status failure(Code code, const std::string& text) {
  static std::set<std::string> texts;  // a Status has none of its own; few differ
  return {code, Origin::engine, texts.insert(text).first->c_str()};
}

// RocksDB has fewer kinds of errors: which one it was says the text.
Status status_of(const IOStatus& status) {
  if (status.ok()) return {};
  const std::string text = status.ToString();
  if (status.IsPathNotFound() || status.IsNotFound()) return failure(Code::not_found, text);
  if (status.IsNoSpace()) return failure(Code::no_space, text);
  if (status.IsCorruption()) return failure(Code::corrupt, text);
  if (!status.IsIOError()) return failure(Code::unsupported, text);
  for (const Code code : {Code::aborted, Code::exists, Code::invalid_argument, Code::no_space}) {
    const std::string said = std::string(": ") + to_string(code) + " (";
    if (text.find(said) != std::string::npos) return failure(code, text);
  }
  return failure(Code::io_error, text);
}

template <class File>
std::uint64_t inode_of(const File& file) {
  char id[64];
  const std::size_t bytes = file.GetUniqueId(id, sizeof id);
  if (bytes < sizeof(std::uint64_t)) return 0;
  return load_le<std::uint64_t>(reinterpret_cast<const std::byte*>(id) + bytes - 8);
}

const IOOptions kOptions;

class RocksFile final : public FileInUse {
 public:
  RocksFile(std::unique_ptr<rocksdb::FSWritableFile> writer,
            std::unique_ptr<rocksdb::FSRandomRWFile> changer)
      : writer_(std::move(writer)), changer_(std::move(changer)) {}

  std::uint64_t inode() const override { return inode_of(*writer_); }
  std::uint64_t size() const override { return writer_->GetFileSize(kOptions, nullptr); }
  void set_lifetime(Lifetime lifetime) override;
  Status append(std::string_view bytes) override;
  Status write_at(std::uint64_t offset, std::string_view bytes) override;
  Status truncate(std::uint64_t bytes) override {
    return status_of(writer_->Truncate(bytes, kOptions, nullptr));
  }
  Status sync() override { return status_of(writer_->Sync(kOptions, nullptr)); }
  Status close() override {
    const Status status = status_of(changer_->Close(kOptions, nullptr));
    return status.ok() ? status_of(writer_->Close(kOptions, nullptr)) : status;
  }

 private:
  const std::unique_ptr<rocksdb::FSWritableFile> writer_;
  const std::unique_ptr<rocksdb::FSRandomRWFile> changer_;  // of the same file
};

// Without a hint the name says it.
void RocksFile::set_lifetime(Lifetime lifetime) {
  using rocksdb::Env;
  constexpr Env::WriteLifeTimeHint kHints[] = {Env::WLTH_NOT_SET, Env::WLTH_SHORT, Env::WLTH_LONG,
                                               Env::WLTH_EXTREME};
  static_assert(static_cast<unsigned>(Lifetime::extreme) + 1 == std::size(kHints));
  writer_->SetWriteLifeTimeHint(kHints[static_cast<unsigned>(lifetime)]);
}

// Some with a position, as with direct I/O.
Status RocksFile::append(std::string_view bytes) {
  const Slice slice(bytes.data(), bytes.size());
  if (bytes.size() % 4 != 0) return status_of(writer_->Append(slice, kOptions, nullptr));
  return status_of(writer_->PositionedAppend(slice, size(), kOptions, nullptr));
}

Status RocksFile::write_at(std::uint64_t offset, std::string_view bytes) {
  const Slice slice(bytes.data(), bytes.size());
  if (offset % 2 == 0) {
    return status_of(writer_->PositionedAppend(slice, offset, kOptions, nullptr));
  }
  return status_of(changer_->Write(offset, slice, kOptions, nullptr));
}

class RocksCalls final : public FileCalls {
 public:
  explicit RocksCalls(std::shared_ptr<FileVolume> volume)
      : fs_(make_file_system(std::move(volume), "furrow://test")) {}

  Opened create(const std::string& path, Existing existing) override;
  Opened open(const std::string& path) override;
  Opened reuse(const std::string& path, const std::string& old) override {
    std::unique_ptr<rocksdb::FSWritableFile> writer;
    const IOStatus status = fs_->ReuseWritableFile(path, old, FileOptions(), &writer, nullptr);
    return opened(status, path, std::move(writer));
  }
  Status remove(const std::string& path) override {
    return status_of(fs_->DeleteFile(path, kOptions, nullptr));
  }
  Status rename(const std::string& from, const std::string& to) override {
    return status_of(fs_->RenameFile(from, to, kOptions, nullptr));
  }
  Status link(const std::string& from, const std::string& to) override {
    return status_of(fs_->LinkFile(from, to, kOptions, nullptr));
  }
  Status make_directory(const std::string& path) override {
    return status_of(fs_->CreateDir(path, kOptions, nullptr));
  }
  Status remove_directory(const std::string& path) override {
    return status_of(fs_->DeleteDir(path, kOptions, nullptr));
  }
  Status sync_names() override {
    std::unique_ptr<rocksdb::FSDirectory> root;
    const IOStatus status = fs_->NewDirectory("/", kOptions, &root, nullptr);
    return status_of(status.ok() ? root->Fsync(kOptions, nullptr) : status);
  }
  Result<FileInfo> stat(const std::string& path) override;
  Result<std::vector<FileInfo>> list(const std::string& path) override;
  Result<std::string> contents(const std::string& path) override;
  Status read(const std::string& path, std::span<FileRead> reads, ReadWay way) override;

 private:
  using Requests = std::span<FSReadRequest>;
  Opened opened(const IOStatus& status, const std::string& path,
                std::unique_ptr<rocksdb::FSWritableFile> writer);
  IOStatus read_from_the_beginning(const std::string& path, Requests requests);
  IOStatus read_by_themselves(rocksdb::FSRandomAccessFile& file, Requests requests);
  IOStatus read_randomly(const std::string& path, Requests requests, ReadWay way);

  const std::unique_ptr<rocksdb::FileSystem> fs_;
};

// --- names ---

FileCalls::Opened RocksCalls::opened(const IOStatus& status, const std::string& path,
                                     std::unique_ptr<rocksdb::FSWritableFile> writer) {
  if (!status.ok()) return status_of(status);
  std::unique_ptr<rocksdb::FSRandomRWFile> changer;
  const IOStatus again = fs_->NewRandomRWFile(path, FileOptions(), &changer, nullptr);
  if (!again.ok()) return status_of(again);
  return Opened(std::make_unique<RocksFile>(std::move(writer), std::move(changer)));
}

// (RocksDB never asks for a file that must be new.)
FileCalls::Opened RocksCalls::create(const std::string& path, Existing existing) {
  if (existing == Existing::refuse && fs_->FileExists(path, kOptions, nullptr).ok()) {
    return failure(Code::exists, path);
  }
  std::unique_ptr<rocksdb::FSWritableFile> writer;
  const IOStatus status = existing == Existing::keep
                              ? fs_->ReopenWritableFile(path, FileOptions(), &writer, nullptr)
                              : fs_->NewWritableFile(path, FileOptions(), &writer, nullptr);
  return opened(status, path, std::move(writer));
}

FileCalls::Opened RocksCalls::open(const std::string& path) {
  const IOStatus there = fs_->FileExists(path, kOptions, nullptr);
  if (!there.ok()) return status_of(there);
  return create(path, Existing::keep);
}

Result<FileInfo> RocksCalls::stat(const std::string& path) {
  FileInfo info;
  info.name = path.substr(path.rfind('/') + 1);
  IOStatus status = fs_->IsDirectory(path, kOptions, &info.directory, nullptr);
  if (!status.ok()) return status_of(status);
  if (info.directory) {
    std::unique_ptr<rocksdb::FSDirectory> directory;
    status = fs_->NewDirectory(path, kOptions, &directory, nullptr);
    if (status.ok()) info.inode = inode_of(*directory);
  } else {
    std::unique_ptr<rocksdb::FSRandomAccessFile> file;
    status = fs_->NewRandomAccessFile(path, FileOptions(), &file, nullptr);
    if (status.ok()) info.inode = inode_of(*file);
    if (status.ok()) status = fs_->GetFileSize(path, kOptions, &info.bytes, nullptr);
  }
  if (!status.ok()) return status_of(status);
  return info;
}

Result<std::vector<FileInfo>> RocksCalls::list(const std::string& path) {
  std::vector<std::string> names;
  const IOStatus status = fs_->GetChildren(path, kOptions, &names, nullptr);
  if (!status.ok()) return status_of(status);
  std::vector<FileInfo> all;
  for (const std::string& name : names) {
    const Result<FileInfo> info = stat((path == "/" ? "" : path) + "/" + name);
    if (!info.ok()) return info.status();
    all.push_back(*info);
  }
  return all;
}

// --- bytes ---

Result<std::string> RocksCalls::contents(const std::string& path) {
  std::unique_ptr<rocksdb::FSSequentialFile> file;
  IOStatus status = fs_->NewSequentialFile(path, FileOptions(), &file, nullptr);
  AlignedBuffer memory(50'000);  // wherever it is, a run is its seed
  std::string text;
  for (bool more = status.ok(); more;) {
    Slice got;
    status =
        file->Read(memory.size(), kOptions, &got, reinterpret_cast<char*>(memory.data()), nullptr);
    text.append(got.data(), got.size());
    more = status.ok() && got.size() == memory.size();
  }
  if (!status.ok()) return status_of(status);
  return text;
}

IOStatus RocksCalls::read_from_the_beginning(const std::string& path, Requests requests) {
  for (FSReadRequest& request : requests) {
    std::unique_ptr<rocksdb::FSSequentialFile> file;
    IOStatus status = fs_->NewSequentialFile(path, FileOptions(), &file, nullptr);
    if (status.ok()) status = file->Skip(request.offset);
    if (!status.ok()) return status;
    request.status = file->Read(request.len, kOptions, &request.result, request.scratch, nullptr);
  }
  return IOStatus::OK();
}

// All are begun before the first is waited for.
IOStatus RocksCalls::read_by_themselves(rocksdb::FSRandomAccessFile& file, Requests requests) {
  const auto answered = [](const FSReadRequest& done, void* to) {
    *static_cast<FSReadRequest*>(to) = done;
  };
  IOStatus status;
  std::vector<void*> handles;
  std::vector<rocksdb::IOHandleDeleter> deleters;
  for (FSReadRequest& request : requests) {
    void* handle = nullptr;
    rocksdb::IOHandleDeleter deleter;
    status = file.ReadAsync(request, kOptions, answered, &request, &handle, &deleter, nullptr);
    if (!status.ok()) break;
    if (handle == nullptr) continue;  // it was answered at once
    handles.push_back(handle);
    deleters.push_back(std::move(deleter));
  }
  if (status.ok()) status = fs_->Poll(handles, handles.size());
  for (std::size_t i = 0; i < handles.size(); ++i) deleters[i](handles[i]);
  return status;
}

IOStatus RocksCalls::read_randomly(const std::string& path, Requests requests, ReadWay way) {
  std::unique_ptr<rocksdb::FSRandomAccessFile> file;
  const IOStatus status = fs_->NewRandomAccessFile(path, FileOptions(), &file, nullptr);
  if (!status.ok()) return status;
  if (way == ReadWay::by_themselves) return read_by_themselves(*file, requests);
  if (way == ReadWay::together) {
    return file->MultiRead(requests.data(), requests.size(), kOptions, nullptr);
  }
  for (FSReadRequest& request : requests) {
    request.status = file->Read(request.offset, request.len, kOptions, &request.result,
                                request.scratch, nullptr);
  }
  return IOStatus::OK();
}

Status RocksCalls::read(const std::string& path, std::span<FileRead> reads, ReadWay way) {
  std::vector<FSReadRequest> requests(reads.size());
  for (std::size_t i = 0; i < reads.size(); ++i) {
    requests[i].offset = reads[i].offset;
    requests[i].len = reads[i].memory.size();
    requests[i].scratch = reinterpret_cast<char*>(reads[i].memory.data());
  }
  const IOStatus status = way == ReadWay::from_the_beginning
                              ? read_from_the_beginning(path, requests)
                              : read_randomly(path, requests, way);
  if (!status.ok()) return status_of(status);
  for (std::size_t i = 0; i < reads.size(); ++i) {
    if (!requests[i].status.ok()) return status_of(requests[i].status);
    reads[i].bytes = requests[i].result.size();
  }
  return {};
}

}  // namespace

std::unique_ptr<FileCalls> rocksdb_calls(std::shared_ptr<FileVolume> volume) {
  return std::make_unique<RocksCalls>(std::move(volume));
}

}  // namespace furrow::testing
