// FileReaders: lets threads that have no event loop read pages. Each read borrows a Reader (a small
// event loop and a session of its own), so that threads that read share nothing but the slot that
// it is borrowed from, and each has a slot of its own as long as there are as many.
//
// Threads: borrow() from any; a Reader is used by one thread at a time, not always the same.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>

#include "engine/blocking_pool.h"

namespace furrow {

struct FileRead {
  std::uint64_t offset = 0;
  std::span<std::byte> memory;  // what the device may fill; where aligned to LBAs nothing is copied
  std::size_t bytes = 0;        // result: fewer than asked at the file's end
  Status status;                // result
};

// Room for the parts of reads, an op each; all three are equally long.
struct ReadParts {
  std::span<PageOp> ops;
  std::span<KnownPage> known;
  std::span<FileRead*> reads;  // which one a part is of
  ReadParts one(unsigned i) const {
    return {ops.subspan(i, 1), known.subspan(i, 1), reads.subspan(i, 1)};
  }
};

class FileReaders {
 public:
  static constexpr unsigned kReadersMax = 64;
  static constexpr unsigned kOpsMax = 32;  // that one Reader has in flight

  class Reader {
   public:
    ReadParts parts() { return {ops_, known_, reads_}; }
    // Begins the one of that number.
    void submit(PageStore& store, unsigned number);
    // Some of those that were begun must still be to come: which are done, one at least. Until the
    // next call.
    std::span<const unsigned> wait();

   private:
    friend class FileReaders;
    Reader(BlockingPool& pool, std::unique_ptr<EventLoop> loop)
        : pool_(pool), loop_(std::move(loop)) {}
    BlockingPool& pool_;
    std::array<PageOp, kOpsMax> ops_;
    std::array<KnownPage, kOpsMax> known_;
    std::array<FileRead*, kOpsMax> reads_{};
    const std::unique_ptr<EventLoop> loop_;
    std::unique_ptr<PageSession> session_;  // none: the pool has no thread, and its own serves
    std::array<unsigned, kOpsMax> done_{};
    unsigned done_count_ = 0;
    std::mutex mutex_;  // these two: where the pool has no thread
    std::condition_variable changed_;
  };

  class Lease {
   public:
    Lease() = default;
    Lease(FileReaders& readers, Reader& reader) : readers_(&readers), reader_(&reader) {}
    Lease(Lease&& other) noexcept { *this = std::move(other); }
    Lease& operator=(Lease&& other) noexcept {
      std::swap(readers_, other.readers_);
      std::swap(reader_, other.reader_);
      return *this;
    }
    ~Lease() {
      if (reader_ != nullptr) readers_->give_back(*reader_);
    }
    explicit operator bool() const { return reader_ != nullptr; }
    Reader* operator->() { return reader_; }

   private:
    FileReaders* readers_ = nullptr;
    Reader* reader_ = nullptr;
  };

  explicit FileReaders(BlockingPool& pool) : pool_(pool) {}
  ~FileReaders();  // all are given back

  // Waits while all are borrowed. Errors: of making another.
  Result<Lease> borrow();

 private:
  Result<Lease> try_borrow();  // an empty lease: none is free
  Result<std::unique_ptr<Reader>> make();
  void give_back(Reader& reader);
  Reader* take_free();

  BlockingPool& pool_;
  std::array<std::atomic<Reader*>, kReadersMax> free_{};
  std::mutex mutex_;  // of making readers and of waiting for one
  std::condition_variable given_back_;
  std::atomic<unsigned> waiting_{0};
  unsigned made_ = 0;
};

}  // namespace furrow
