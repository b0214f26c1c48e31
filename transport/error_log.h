// ErrorLog: the last failed commands of one controller (log page 01h). Its queues may live on
// several reactors, hence the mutex: it is taken for failed commands only.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <vector>

#include "transport/nvme.h"

namespace furrow::transport {

class ErrorLog {
 public:
  static constexpr std::uint32_t kEntries = 64;  // Identify Controller's ELPE + 1

  // `status` as in Cqe::status. Any thread.
  void add(const nvme::Sqe& command, std::uint16_t sqid, std::uint16_t status) {
    const std::lock_guard lock(mutex_);
    ++count_;
    nvme::ErrorLogEntry& entry = entries_[count_ % kEntries];
    entry = {};
    entry.error_count = count_;
    entry.sqid = sqid;
    entry.cid = command.cid;
    entry.status = status;
    entry.nsid = command.opc == nvme::opcode::kFabrics ? 0 : command.nsid;
    entry.trtype = nvme::kTrtypeTcp;
  }

  // Newest first; unused entries are zero.
  std::vector<nvme::ErrorLogEntry> newest_first() const {
    const std::lock_guard lock(mutex_);
    std::vector<nvme::ErrorLogEntry> out;
    for (std::uint64_t i = 0; i < kEntries && i < count_; ++i) {
      out.push_back(entries_[(count_ - i) % kEntries]);
    }
    nvme::ErrorLogEntry unused;
    unused.parameter = 0;
    out.resize(kEntries, unused);
    return out;
  }

  std::uint64_t count() const {
    const std::lock_guard lock(mutex_);
    return count_;
  }

 private:
  mutable std::mutex mutex_;
  std::uint64_t count_ = 0;
  std::array<nvme::ErrorLogEntry, kEntries> entries_{};
};

}  // namespace furrow::transport
