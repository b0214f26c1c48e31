#include "engine/files/file_readers.h"

#include <functional>
#include <thread>

#include "zone/check.h"

namespace furrow {

namespace {

constexpr unsigned kDepth = FileReaders::kOpsMax;
constexpr std::uint64_t kWaitUs = 100'000;

// Threads start looking at different slots, always the same.
unsigned first_slot() {
  static std::atomic<unsigned> threads{0};
  thread_local const unsigned mine = threads.fetch_add(1, std::memory_order_relaxed);
  return mine % FileReaders::kReadersMax;
}

}  // namespace

void FileReaders::Reader::submit(PageStore& store, unsigned number) {
  PageOp& op = ops_[number];
  op.context = this;
  op.on_result = [](PageOp&) {};
  op.on_released = [](PageOp& done) {
    auto& self = *static_cast<Reader*>(done.context);
    self.done_[self.done_count_++] = static_cast<unsigned>(&done - self.ops_.data());
  };
  session_ != nullptr ? session_->submit(store, op) : pool_.submit(store, op);
}

std::span<const unsigned> FileReaders::Reader::wait() {
  done_count_ = 0;
  if (session_ == nullptr) {
    std::unique_lock lock(mutex_);
    pool_.wait(lock, changed_, [this] { return done_count_ != 0; });
  }
  while (done_count_ == 0) {
    // Nothing with the device: the pool's thread is asked something, and answers by a task.
    if (session_->wait(kWaitUs) == 0 && loop_->run_once() == 0) std::this_thread::yield();
    if (done_count_ == 0) loop_->run_once();
  }
  return std::span(done_).first(done_count_);
}

FileReaders::~FileReaders() {
  unsigned found = 0;
  for (auto& slot : free_) {
    Reader* const reader = slot.exchange(nullptr);
    if (reader != nullptr) ++found;
    delete reader;
  }
  FURROW_CHECK(found == made_);
}

FileReaders::Reader* FileReaders::take_free() {
  const unsigned first = first_slot();
  for (unsigned i = 0; i < kReadersMax; ++i) {
    auto& slot = free_[(first + i) % kReadersMax];
    if (slot.load(std::memory_order_seq_cst) == nullptr) continue;
    Reader* const reader = slot.exchange(nullptr, std::memory_order_acquire);
    if (reader != nullptr) return reader;
  }
  return nullptr;
}

Result<FileReaders::Lease> FileReaders::try_borrow() {
  if (Reader* const reader = take_free(); reader != nullptr) return Lease(*this, *reader);
  const std::lock_guard lock(mutex_);
  if (made_ == kReadersMax) return Lease();
  Result<std::unique_ptr<Reader>> made = make();
  if (!made.ok()) return made_ == 0 ? Result<Lease>(made.status()) : Lease();
  ++made_;
  return Lease(*this, *made->release());
}

Result<std::unique_ptr<FileReaders::Reader>> FileReaders::make() {
  Result<std::unique_ptr<EventLoop>> loop = EventLoop::make({});
  if (!loop.ok()) return loop.status();
  std::unique_ptr<Reader> made(new Reader(pool_, std::move(*loop)));
  if (!pool_.has_thread()) return made;
  auto session = pool_.pool().create_session(*made->loop_, kDepth);
  if (!session.ok()) return session.status();
  made->session_ = std::move(*session);
  made->session_->may_block();
  return made;
}

Result<FileReaders::Lease> FileReaders::borrow() {
  for (;;) {
    Result<Lease> lease = try_borrow();
    if (!lease.ok() || *lease) return lease;
    std::unique_lock lock(mutex_);
    ++waiting_;
    Reader* found = nullptr;
    given_back_.wait(lock, [&] { return (found = take_free()) != nullptr; });
    --waiting_;
    return Lease(*this, *found);
  }
}

void FileReaders::give_back(Reader& reader) {
  const unsigned first = first_slot();
  for (unsigned i = 0;; ++i) {
    Reader* expected = nullptr;
    auto& slot = free_[(first + i) % kReadersMax];
    if (slot.compare_exchange_strong(expected, &reader, std::memory_order_seq_cst)) break;
  }
  if (waiting_.load(std::memory_order_seq_cst) == 0) return;
  const std::lock_guard lock(mutex_);
  given_back_.notify_one();
}

}  // namespace furrow
