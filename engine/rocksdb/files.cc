#include "engine/rocksdb/files.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/files/placement.h"
#include "engine/rocksdb/io_status.h"
#include "zone/aligned_buffer.h"

namespace furrow {

namespace {

using rocksdb::DataVerificationInfo;
using rocksdb::FSReadRequest;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

std::span<const std::byte> bytes_of(const Slice& slice) {
  return std::as_bytes(std::span(slice.data(), slice.size()));
}
// None of RocksDB's own is none to read to.
std::span<std::byte> memory_of(char* scratch, std::size_t bytes) {
  return std::as_writable_bytes(std::span(scratch, scratch != nullptr ? bytes : 0));
}

std::size_t copy_id(const std::string& from, char* id, std::size_t bytes_max) {
  if (bytes_max < from.size()) return 0;
  std::copy(from.begin(), from.end(), id);
  return from.size();
}

// What is known of a file when its first bytes come.
struct Known {
  rocksdb::Env::WriteLifeTimeHint hint = rocksdb::Env::WLTH_NOT_SET;
  rocksdb::Env::IOPriority priority = rocksdb::Env::IO_TOTAL;
  std::size_t allocated_bytes = 0;
  rocksdb::Temperature temperature = rocksdb::Temperature::kUnknown;
};

// A flush does not know how long its table will be; and has another priority, but while writers are
// held up, when both have the same.
bool is_by_compaction(const Known& known) {
  return known.priority == rocksdb::Env::IO_LOW || known.allocated_bytes != 0;
}

// Level compaction says how long a table will live. The other styles say nothing: what a compaction
// writes outlives what comes from memory then, and what is said to be cold outlives both.
Lifetime lifetime_of(std::string_view name, const Known& known) {
  using rocksdb::Env;
  if (known.hint == Env::WLTH_SHORT) return Lifetime::short_term;
  if (known.hint == Env::WLTH_MEDIUM) return Lifetime::medium_term;
  if (known.hint == Env::WLTH_LONG) return Lifetime::long_term;
  if (known.hint == Env::WLTH_EXTREME) return Lifetime::extreme;
  const FileKind kind = file_kind(name);
  if (kind != FileKind::table) return lifetime_of(kind);
  if (known.temperature == rocksdb::Temperature::kCold) return Lifetime::extreme;
  return is_by_compaction(known) ? Lifetime::long_term : Lifetime::medium_term;
}

IOStatus read_at(const OpenFile& file, const std::string& name, std::uint64_t offset, std::size_t n,
                 Slice* result, char* scratch) {
  const std::span<std::byte> memory = memory_of(scratch, n);
  *result = Slice();
  // Tables of formats that live in mapped memory, with allow_mmap_reads: all others give some.
  if (memory.size() != n) {
    return IOStatus::NotSupported(
        name, "files are not mapped into memory; open the database without allow_mmap_reads");
  }
  const Result<std::size_t> read = file.read(offset, memory);
  *result = Slice(scratch, read.ok() ? *read : 0);
  return io_status(read.status(), name);
}

// Nothing else keeps what was read: so who goes on where the last read ended is read ahead for,
// twice as far each time, as by the kernel in a file of its own. What is kept is as old as the read
// that it came with. (PositionedRead is direct I/O's, which has memory of its own.)
class SequentialFile final : public rocksdb::FSSequentialFile {
 public:
  SequentialFile(std::unique_ptr<OpenFile> file, std::string name)
      : file_(std::move(file)), name_(std::move(name)) {}

  IOStatus Read(std::size_t n, const IOOptions&, Slice* result, char* scratch,
                IODebugContext*) override {
    const std::uint64_t begin = position_;
    std::size_t done = take_ahead(n, scratch);
    if (done < n) {
      Slice rest;
      const IOStatus status = read_on(n - done, &rest, scratch + done);
      if (!status.ok()) {
        position_ = begin;
        *result = Slice();
        return status;
      }
      done += rest.size();
    }
    *result = Slice(scratch, done);
    return IOStatus::OK();
  }
  IOStatus Skip(std::uint64_t n) override {
    position_ += n;
    return IOStatus::OK();
  }
  IOStatus PositionedRead(std::uint64_t offset, std::size_t n, const IOOptions&, Slice* result,
                          char* scratch, IODebugContext*) override {
    return read_at(*file_, name_, offset, n, result, scratch);
  }
  IOStatus InvalidateCache(std::size_t, std::size_t) override {
    ahead_bytes_ = 0;
    return IOStatus::OK();
  }

 private:
  static constexpr std::size_t kWindowMax = 256 << 10;  // ends where a chunk does

  // Of what was read ahead.
  std::size_t take_ahead(std::size_t n, char* scratch) {
    if (position_ < ahead_begin_ || position_ - ahead_begin_ >= ahead_bytes_) return 0;
    const std::size_t at = position_ - ahead_begin_;
    const std::size_t taken = std::min(n, ahead_bytes_ - at);
    std::memcpy(scratch, ahead_.data() + at, taken);
    position_ += taken;
    return taken;
  }
  IOStatus read_on(std::size_t n, Slice* result, char* scratch) {
    const std::size_t window = std::min(window_, kWindowMax - position_ % kWindowMax);
    window_ = std::clamp(2 * n, std::min(2 * window_, kWindowMax), kWindowMax);
    ahead_bytes_ = 0;
    if (window > n && scratch != nullptr && read_ahead(window)) {
      *result = Slice(scratch, take_ahead(n, scratch));
      return IOStatus::OK();
    }
    IOStatus status = read_at(*file_, name_, position_, n, result, scratch);
    position_ += result->size();
    return status;
  }
  // Not where any of it cannot be read: that is no error of what was asked for.
  bool read_ahead(std::size_t window) {
    if (ahead_.size() == 0) ahead_ = AlignedBuffer(kWindowMax);
    const Result<std::size_t> read = file_->read(position_, ahead_.span().first(window));
    if (!read.ok()) return false;
    ahead_begin_ = position_;
    ahead_bytes_ = *read;
    return true;
  }

  const std::unique_ptr<OpenFile> file_;
  const std::string name_;
  std::uint64_t position_ = 0;
  std::size_t window_ = 0;  // how far the next one goes that reads on
  AlignedBuffer ahead_;     // of the file, from ahead_begin_ on
  std::uint64_t ahead_begin_ = 0;
  std::size_t ahead_bytes_ = 0;
};

// One that failed is tried again by itself: the file may have been changed meanwhile.
void take_answer(const OpenFile& file, const std::string& name, const FileRead& read,
                 FSReadRequest& request) {
  request.result = Slice(request.scratch, read.bytes);
  request.status = IOStatus::OK();
  if (read.status.ok() && read.memory.size() == request.len) return;
  request.status =
      read_at(file, name, request.offset, request.len, &request.result, request.scratch);
}

// What ReadAsync gives RocksDB as a handle.
struct ReadHandle {
  ReadHandle(const OpenFile& of, const std::string& its_name) : file(of), name(its_name) {}
  AsyncRead async;
  bool answered = false;
  FSReadRequest request;
  std::function<void(const FSReadRequest&, void*)> callback;
  void* argument = nullptr;
  const OpenFile& file;  // as long as the handle
  const std::string& name;

  ~ReadHandle() { async.wait(); }  // the memory is RocksDB's again
  void answer(bool aborted) {
    if (std::exchange(answered, true)) return;
    async.wait();
    if (aborted) {
      request.result = Slice(request.scratch, 0);
      request.status = IOStatus::Aborted();
    } else {
      take_answer(file, name, async.read, request);
    }
    callback(request, argument);
  }
};

class RandomAccessFile final : public rocksdb::FSRandomAccessFile {
 public:
  RandomAccessFile(std::unique_ptr<OpenFile> file, std::string name, std::string id,
                   std::uint32_t alignment, bool direct)
      : file_(std::move(file)),
        name_(std::move(name)),
        id_(std::move(id)),
        alignment_(alignment),
        direct_(direct) {}

  IOStatus Read(std::uint64_t offset, std::size_t n, const IOOptions&, Slice* result, char* scratch,
                IODebugContext*) const override {
    return read_at(*file_, name_, offset, n, result, scratch);
  }
  IOStatus MultiRead(FSReadRequest* requests, std::size_t count, const IOOptions&,
                     IODebugContext*) override {
    std::vector<FileRead> reads(count);
    for (std::size_t i = 0; i < count; ++i) {
      reads[i].offset = requests[i].offset;
      reads[i].memory = memory_of(requests[i].scratch, requests[i].len);
    }
    file_->content().read(reads);
    for (std::size_t i = 0; i < count; ++i) take_answer(*file_, name_, reads[i], requests[i]);
    return IOStatus::OK();
  }
  IOStatus ReadAsync(FSReadRequest& request, const IOOptions& options,
                     std::function<void(const FSReadRequest&, void*)> callback, void* argument,
                     void** handle, rocksdb::IOHandleDeleter* deleter,
                     IODebugContext* debug) override {
    auto made = std::make_unique<ReadHandle>(*file_, name_);
    made->async.read = {request.offset, memory_of(request.scratch, request.len), 0, {}};
    const bool some = made->async.read.memory.size() == request.len;
    if (!some || !file_->content().start(made->async)) {
      return FSRandomAccessFile::ReadAsync(request, options, std::move(callback), argument, handle,
                                           deleter, debug);
    }
    made->request = request;
    made->callback = std::move(callback);
    made->argument = argument;
    *handle = made.release();
    *deleter = [](void* gone) { delete static_cast<ReadHandle*>(gone); };
    return IOStatus::OK();
  }
  std::size_t GetUniqueId(char* id, std::size_t bytes_max) const override {
    return copy_id(id_, id, bytes_max);
  }
  bool use_direct_io() const override { return direct_; }
  std::size_t GetRequiredBufferAlignment() const override { return alignment_; }
  IOStatus InvalidateCache(std::size_t, std::size_t) override { return IOStatus::OK(); }

 private:
  const std::unique_ptr<OpenFile> file_;
  const std::string name_, id_;
  const std::uint32_t alignment_;
  const bool direct_;
};

class WritableFile final : public rocksdb::FSWritableFile {
 public:
  WritableFile(std::unique_ptr<OpenFile> file, std::string name, std::string id,
               const rocksdb::FileOptions& options)
      : FSWritableFile(options),
        file_(std::move(file)),
        name_(std::move(name)),
        id_(std::move(id)),
        temperature_(options.temperature) {}

  using FSWritableFile::Append;
  using FSWritableFile::PositionedAppend;
  IOStatus Append(const Slice& data, const IOOptions&, IODebugContext*) override {
    file_->content().set_lifetime(lifetime());
    return told(file_->append(bytes_of(data)));
  }
  IOStatus Append(const Slice& data, const IOOptions& options, const DataVerificationInfo&,
                  IODebugContext* debug) override {
    return Append(data, options, debug);
  }
  IOStatus PositionedAppend(const Slice& data, std::uint64_t offset, const IOOptions&,
                            IODebugContext*) override {
    file_->content().set_lifetime(lifetime());
    return told(file_->write_at(offset, bytes_of(data)));
  }
  IOStatus PositionedAppend(const Slice& data, std::uint64_t offset, const IOOptions& options,
                            const DataVerificationInfo&, IODebugContext* debug) override {
    return PositionedAppend(data, offset, options, debug);
  }
  IOStatus Truncate(std::uint64_t size, const IOOptions&, IODebugContext*) override {
    return told(file_->truncate(size));
  }
  IOStatus Close(const IOOptions&, IODebugContext*) override { return told(file_->close()); }
  IOStatus Flush(const IOOptions&, IODebugContext*) override { return told(file_->flush()); }
  IOStatus Sync(const IOOptions&, IODebugContext*) override { return told(file_->sync()); }
  bool IsSyncThreadSafe() const override { return true; }
  // Full chunks go to the device without being asked for, some at a time.
  IOStatus RangeSync(std::uint64_t, std::uint64_t, const IOOptions&, IODebugContext*) override {
    return strict_bytes_per_sync_ ? told(file_->sync()) : IOStatus::OK();
  }
  std::uint64_t GetFileSize(const IOOptions&, IODebugContext*) override {
    return file_->content().size();
  }
  std::size_t GetUniqueId(char* id, std::size_t bytes_max) const override {
    return copy_id(id_, id, bytes_max);
  }
  IOStatus InvalidateCache(std::size_t, std::size_t) override { return IOStatus::OK(); }

 private:
  IOStatus told(const Status& status) const { return io_status(status, name_); }
  Lifetime lifetime() {
    return lifetime_of(
        name_, {GetWriteLifeTimeHint(), GetIOPriority(), preallocation_block_size(), temperature_});
  }

  const std::unique_ptr<OpenFile> file_;
  const std::string name_, id_;
  const rocksdb::Temperature temperature_;
};

class RandomRWFile final : public rocksdb::FSRandomRWFile {
 public:
  RandomRWFile(std::unique_ptr<OpenFile> file, std::string name)
      : file_(std::move(file)), name_(std::move(name)) {}

  IOStatus Write(std::uint64_t offset, const Slice& data, const IOOptions&,
                 IODebugContext*) override {
    return told(file_->write_at(offset, bytes_of(data)));
  }
  IOStatus Read(std::uint64_t offset, std::size_t n, const IOOptions&, Slice* result, char* scratch,
                IODebugContext*) const override {
    return read_at(*file_, name_, offset, n, result, scratch);
  }
  IOStatus Flush(const IOOptions&, IODebugContext*) override { return told(file_->flush()); }
  IOStatus Sync(const IOOptions&, IODebugContext*) override { return told(file_->sync()); }
  IOStatus Close(const IOOptions&, IODebugContext*) override { return told(file_->close()); }

 private:
  IOStatus told(const Status& status) const { return io_status(status, name_); }

  const std::unique_ptr<OpenFile> file_;
  const std::string name_;
};

}  // namespace

std::unique_ptr<rocksdb::FSSequentialFile> make_sequential_file(std::unique_ptr<OpenFile> file,
                                                                const std::string& name) {
  return std::make_unique<SequentialFile>(std::move(file), name);
}

std::unique_ptr<rocksdb::FSRandomAccessFile> make_random_access_file(std::unique_ptr<OpenFile> file,
                                                                     const std::string& name,
                                                                     const std::string& id,
                                                                     std::uint32_t alignment,
                                                                     bool direct) {
  return std::make_unique<RandomAccessFile>(std::move(file), name, id, alignment, direct);
}

std::unique_ptr<rocksdb::FSWritableFile> make_writable_file(std::unique_ptr<OpenFile> file,
                                                            const std::string& name,
                                                            const std::string& id,
                                                            const rocksdb::FileOptions& options) {
  return std::make_unique<WritableFile>(std::move(file), name, id, options);
}

std::unique_ptr<rocksdb::FSRandomRWFile> make_random_rw_file(std::unique_ptr<OpenFile> file,
                                                             const std::string& name) {
  return std::make_unique<RandomRWFile>(std::move(file), name);
}

IOStatus poll_reads(std::vector<void*>& handles) {
  for (void* handle : handles) static_cast<ReadHandle*>(handle)->answer(false);
  return IOStatus::OK();
}

// A read cannot be taken back from the device; it is waited for. RocksDB is called back all the
// same, as by its own file system: it frees what it had allocated.
IOStatus abort_reads(std::vector<void*>& handles) {
  for (void* handle : handles) static_cast<ReadHandle*>(handle)->answer(true);
  return IOStatus::OK();
}

}  // namespace furrow
