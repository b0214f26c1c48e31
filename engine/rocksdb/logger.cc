#include "engine/rocksdb/logger.h"

#include <fmt/chrono.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdarg>
#include <cstdio>
#include <deque>
#include <mutex>
#include <string>
#include <utility>

#include "engine/files/placement.h"
#include "engine/rocksdb/io_status.h"

namespace furrow {

namespace {

using Wall = std::chrono::system_clock;
using Clock = std::chrono::steady_clock;

// "2026/11/22-10:11:12.123456 4711 ": the time, to the microsecond, and the thread.
std::string line_start() {
  const auto now = std::chrono::time_point_cast<std::chrono::microseconds>(Wall::now());
  const auto micros = now.time_since_epoch().count() % 1'000'000;
  return fmt::format("{:%Y/%m/%d-%H:%M:%S}.{:06} {} ", fmt::localtime(Wall::to_time_t(now)), micros,
                     gettid());
}

std::string text_of(const char* format, std::va_list arguments) {
  std::va_list again;
  va_copy(again, arguments);
  const int length = std::vsnprintf(nullptr, 0, format, again);
  va_end(again);
  if (length <= 0) return {};
  std::string text(static_cast<std::size_t>(length), '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, arguments);
  return text;
}

// RocksDB may hold what everybody waits for when it has something to log. So a line that could only
// be appended by waiting for the device stays in memory until it need not, or Flush() or Close()
// comes, or for some seconds: one thread then waits, and others go on.
class FileLogger final : public rocksdb::Logger {
 public:
  FileLogger(std::unique_ptr<OpenFile> file, std::shared_ptr<FileVolume> volume, std::string path)
      : volume_(std::move(volume)), path_(std::move(path)) {
    use(std::move(file));
  }
  ~FileLogger() override {
    if (!closed_) (void)CloseImpl();
  }

  using Logger::Logv;
  void Logv(const char* format, std::va_list arguments) override {
    std::string line = line_start() + text_of(format, arguments);
    if (line.back() != '\n') line.push_back('\n');
    Lock lock(mutex_);
    add(std::move(line));
    if (const auto now = Clock::now(); now - told_ > kTellEvery) {
      told_ = now;
      add(line_start() + written());
    }
    if (!writing_) write_waiting(lock, Clock::now() - tried_ > kWaitAfter ? Wait::yes : Wait::no);
  }
  void Flush() override {
    Lock lock(mutex_);
    write_waiting(lock, Wait::yes);
  }
  std::size_t GetLogFileSize() const override {
    const Lock lock(mutex_);
    return file_ != nullptr ? file_->content().size() + waiting_bytes_ : 0;
  }

 private:
  using Lock = std::unique_lock<std::mutex>;
  enum class Wait : bool { no, yes };
  struct Line {
    std::string text;
    std::uint64_t lost_before = 0;  // lines
  };
  static constexpr std::size_t kWaitingBytesMax = 1 << 20;
  static constexpr std::chrono::seconds kWaitAfter{5};
  static constexpr std::chrono::minutes kTellEvery{10};  // as RocksDB its own statistics

  void use(std::unique_ptr<OpenFile> file) {
    file_ = std::move(file);
    if (file_ != nullptr) file_->content().set_lifetime(lifetime_of(FileKind::other));
  }
  // By who is writing.
  void make_file(Lock& lock) {
    lock.unlock();
    auto made = volume_->create(path_, FileVolume::Existing::keep);
    lock.lock();
    if (made.ok()) use(std::move(*made));
  }
  void add(std::string line) {
    if (waiting_bytes_ + line.size() > kWaitingBytesMax) {
      ++lost_;
      return;
    }
    waiting_bytes_ += line.size();
    waiting_.push_back({std::move(line), std::exchange(lost_, 0)});
  }
  std::string written() const {
    const FilesWritten written = volume_->written();
    const auto appended = static_cast<double>(std::max<std::uint64_t>(written.appended_bytes, 1));
    return fmt::format(
        "[furrow] volume {}: {} bytes written to files, {} given to the device for that ({:.3f} "
        "times as many), {} of these moved by collection; {} free\n",
        volume_->info().options.name, written.appended_bytes, written.device_bytes,
        static_cast<double>(written.device_bytes) / appended, written.relocated_bytes,
        volume_->free_bytes());
  }

  // One thread at a time, which also writes what comes meanwhile. The lock is released where it
  // does.
  void write_waiting(Lock& lock, Wait wait) {
    written_.wait(lock, [this] { return !writing_; });
    writing_ = true;
    if (wait == Wait::yes && file_ == nullptr) make_file(lock);
    if (file_ != nullptr) write_lines(lock, wait);
    if (wait == Wait::yes) tried_ = Clock::now();
    writing_ = false;
    written_.notify_all();
  }
  void write_lines(Lock& lock, Wait wait) {
    if (wait == Wait::yes && lost_ != 0) waiting_.push_back({"", std::exchange(lost_, 0)});
    while (!waiting_.empty() && (wait == Wait::yes || fits_memory(waiting_.front()))) {
      const Line line = std::move(waiting_.front());
      waiting_.pop_front();
      waiting_bytes_ -= line.text.size();
      lock.unlock();
      const std::uint64_t lost = write(line);
      lock.lock();
      (waiting_.empty() ? lost_ : waiting_.front().lost_before) += lost;
    }
    if (wait == Wait::yes) {
      lock.unlock();
      (void)file_->flush();  // the next one tries again
      lock.lock();
    }
  }
  bool fits_memory(const Line& line) const {
    constexpr std::size_t kGapBytes = 128;
    return !file_->content().append_may_wait(line.text.size() + kGapBytes);
  }
  // How many lines are lost.
  std::uint64_t write(const Line& line) {
    if (line.lost_before != 0 &&
        !append(line_start() +
                fmt::format("[WARN] {} lines before were lost\n", line.lost_before))) {
      return line.lost_before + (line.text.empty() ? 0 : 1);
    }
    return append(line.text) ? 0 : 1;
  }
  bool append(const std::string& text) {
    return file_->append(std::as_bytes(std::span(text))).ok();
  }
  rocksdb::Status CloseImpl() override {
    Lock lock(mutex_);
    write_waiting(lock, Wait::yes);
    add(line_start() + written());  // for which there is room now
    write_waiting(lock, Wait::yes);
    constexpr Status kNeverMade(Code::no_space, Origin::engine, "there was no room to make it");
    return io_status(file_ != nullptr ? file_->close() : kNeverMade, "LOG");
  }

  mutable std::mutex mutex_;
  std::condition_variable written_;
  std::unique_ptr<OpenFile> file_;  // null: there was no room to make it
  const std::shared_ptr<FileVolume> volume_;
  const std::string path_;
  std::deque<Line> waiting_;
  std::size_t waiting_bytes_ = 0;
  std::uint64_t lost_ = 0;  // lines, behind those that wait
  Clock::time_point tried_ = Clock::now(), told_ = Clock::now();
  bool writing_ = false;
};

}  // namespace

std::shared_ptr<rocksdb::Logger> make_logger(std::unique_ptr<OpenFile> file,
                                             std::shared_ptr<FileVolume> volume,
                                             const std::string& path) {
  return std::make_shared<FileLogger>(std::move(file), std::move(volume), path);
}

}  // namespace furrow
