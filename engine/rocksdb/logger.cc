#include "engine/rocksdb/logger.h"

#include <fmt/chrono.h>
#include <unistd.h>

#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <string>

#include "engine/rocksdb/io_status.h"

namespace furrow {

namespace {

using Clock = std::chrono::system_clock;

// "2026/11/22-10:11:12.123456 4711 ": the time, to the microsecond, and the thread.
std::string line_start() {
  const auto now = std::chrono::time_point_cast<std::chrono::microseconds>(Clock::now());
  const auto micros = now.time_since_epoch().count() % 1'000'000;
  return fmt::format("{:%Y/%m/%d-%H:%M:%S}.{:06} {} ", fmt::localtime(Clock::to_time_t(now)),
                     micros, gettid());
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

class FileLogger final : public rocksdb::Logger {
 public:
  explicit FileLogger(std::unique_ptr<OpenFile> file) : file_(std::move(file)) {}
  ~FileLogger() override {
    if (!closed_) (void)CloseImpl();
  }

  using Logger::Logv;
  void Logv(const char* format, std::va_list arguments) override {
    std::string line = line_start() + text_of(format, arguments);
    if (line.back() != '\n') line.push_back('\n');
    const std::lock_guard lock(mutex_);
    if (lost_ != 0) {
      const std::string gap =
          line_start() + fmt::format("[WARN] {} lines before were lost\n", lost_);
      if (write(gap)) lost_ = 0;
    }
    if (lost_ != 0 || !write(line)) ++lost_;
  }
  void Flush() override {
    const std::lock_guard lock(mutex_);
    (void)file_->flush();  // the next one tries again
  }
  std::size_t GetLogFileSize() const override { return file_->content().size(); }

 private:
  // Where appended bytes do not outlive the process by themselves they are handed over now and
  // then.
  static constexpr std::chrono::seconds kFlushAfter{5};

  bool write(const std::string& text) {
    if (!file_->append(std::as_bytes(std::span(text))).ok()) return false;
    if (const auto now = Clock::now(); now - flushed_ > kFlushAfter || now < flushed_) {
      (void)file_->flush();
      flushed_ = now;
    }
    return true;
  }
  rocksdb::Status CloseImpl() override {
    const std::lock_guard lock(mutex_);
    return io_status(file_->close(), "LOG");
  }

  std::mutex mutex_;
  const std::unique_ptr<OpenFile> file_;
  Clock::time_point flushed_ = Clock::now();
  std::uint64_t lost_ = 0;
};

}  // namespace

std::shared_ptr<rocksdb::Logger> make_logger(std::unique_ptr<OpenFile> file) {
  return std::make_shared<FileLogger>(std::move(file));
}

}  // namespace furrow
