// A drive for tests of DriveDevice and DriveQueue: its data is in a file, its zones are as it has
// written them or as the test says, and the test decides what becomes of transfers.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tests/zone/device_test_util.h"
#include "zone/drive_queue.h"
#include "zone/emu_file.h"

namespace furrow::test {

// A device looks each second.
template <class Condition>
bool comes_true(Condition condition) {
  for (int i = 0; i < 3000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

class FakeDrive : public furrow::Drive {
 public:
  // Of a transfer: done; a reset of the controller has interrupted it before it was done, or after
  // that; the drive has failed it.
  enum class Fate { done, lost, landed, broken };

  explicit FakeDrive(bool appends = false, std::uint32_t zones = 4)
      : appends_(appends), fd_(memfd_create("drive", MFD_CLOEXEC)) {
    geometry_.zone_count = zones;
    geometry_.zone_size_lbas = geometry_.zone_capacity_lbas = 256;
    geometry_.open_zones_max = geometry_.active_zones_max = 4;
    geometry_.append_lbas_max = 64;
    for (std::uint32_t i = 0; i < zones; ++i) {
      zones_.push_back({ZoneId{i}, ZoneState::empty, 0, ""});
    }
    EXPECT_EQ(ftruncate(fd_.get(), static_cast<off_t>(zones * kMiB)), 0);
  }
  int fd() const { return fd_.get(); }

  using Drive::report;
  Result<std::vector<ZoneInfo>> report(ZoneId first, std::uint32_t count) const override {
    const std::lock_guard lock(mutex_);
    ++reports_;
    if (report_error_ != 0) return zone_failure(Code::io_error, "no report", report_error_);
    const std::vector<ZoneInfo> told(zones_.begin() + first.value,
                                     zones_.begin() + first.value + count);
    if (std::exchange(lose_behind_report_, false)) lose_locked(0, 0);
    return told;
  }
  Status manage(Io::Op op, ZoneId zone) const override {
    const std::lock_guard lock(mutex_);
    if (report_error_ != 0) return zone_failure(Code::io_error, "no", report_error_);
    if (op == Io::Op::finish && std::exchange(lose_at_finish_, false)) {
      lose_locked(zone.value, 0);
      return zone_failure(Code::io_error, "interrupted", EINTR);
    }
    ZoneInfo& info = zones_[zone.value];
    if (op == Io::Op::reset) info.written_lbas = 0;
    info.state = op == Io::Op::reset    ? ZoneState::empty
                 : op == Io::Op::finish ? ZoneState::full
                 : op == Io::Op::close  ? ZoneState::closed
                                        : ZoneState::explicitly_open;
    return {};
  }
  bool appends() const override { return appends_; }
  bool present() const override { return present_; }
  Status transfer_error(int error, const char* hint) const override {
    return zone_failure(Code::io_error, hint, error);
  }
  Status take_changed(std::vector<ZoneId>& changed) const override {
    const std::lock_guard lock(mutex_);
    ++asked_;
    if (!keeps_list_) return Drive::take_changed(changed);
    if (list_error_ != 0) return zone_failure(Code::io_error, "no list", list_error_);
    changed.insert(changed.end(), changed_.begin(), changed_.end());
    changed_.clear();
    return {};
  }

  // --- what the test decides ---
  void set(std::uint32_t zone, ZoneState state, bool listed) {
    const std::lock_guard lock(mutex_);
    zones_[zone].state = state;
    zones_[zone].reason = "worn";
    if (listed) changed_.push_back(ZoneId{zone});
  }
  void set_written(std::uint32_t zone, std::uint64_t lbas) {
    const std::lock_guard lock(mutex_);
    zones_[zone].written_lbas = lbas;
  }
  // Its power is away for a moment, when the next report is told, or in the midst of the next
  // finish.
  void lose_behind_report() {
    const std::lock_guard lock(mutex_);
    lose_behind_report_ = true;
  }
  void lose_at_finish() {
    const std::lock_guard lock(mutex_);
    lose_at_finish_ = true;
  }
  void fail(int error) {  // reports and management
    const std::lock_guard lock(mutex_);
    report_error_ = error;
  }
  void pull_out() { present_ = false; }
  void fail_list(int error) {
    const std::lock_guard lock(mutex_);
    list_error_ = error;
  }
  void list_all() {  // it has lost count of those that changed
    const std::lock_guard lock(mutex_);
    for (const ZoneInfo& zone : zones_) changed_.push_back(zone.zone);
  }
  void keep_no_list() { keeps_list_ = false; }
  void next(std::initializer_list<Fate> fates) {  // of the transfers from now on
    const std::lock_guard lock(mutex_);
    fates_.insert(fates_.end(), fates);
  }

  unsigned asked() const {
    const std::lock_guard lock(mutex_);
    return asked_;
  }
  unsigned reports() const {
    const std::lock_guard lock(mutex_);
    return reports_;
  }
  ZoneInfo zone(std::uint32_t zone) const {
    const std::lock_guard lock(mutex_);
    return zones_[zone];
  }

  // --- its queues' ---
  // It is sent a write or an append. What of a zone it has at a time are appends, or one write:
  // else it would be for the drive to choose which comes first.
  void begin(const Io& io) const {
    const std::lock_guard lock(mutex_);
    if (std::ranges::find(sent_, &io) != sent_.end()) return;  // another part of it
    for (const Io* other : sent_) {
      EXPECT_TRUE(other->zone != io.zone || (other->as_append && io.as_append))
          << "writes of zone " << io.zone.value << " together";
    }
    sent_.push_back(&io);
  }
  void end(const Io& io) const {
    const std::lock_guard lock(mutex_);
    std::erase(sent_, &io);
  }
  Fate take_fate() const {
    const std::lock_guard lock(mutex_);
    if (fates_.empty()) return Fate::done;
    const Fate fate = fates_.front();
    fates_.pop_front();
    return fate;
  }
  // Where the drive puts so much.
  std::uint64_t land(ZoneId zone, std::uint64_t lbas) const {
    const std::lock_guard lock(mutex_);
    ZoneInfo& info = zones_[zone.value];
    if (info.state == ZoneState::empty || info.state == ZoneState::closed) {
      info.state = ZoneState::implicitly_open;
    }
    info.written_lbas += lbas;
    return info.written_lbas - lbas;
  }

 private:
  void lose_locked(std::uint32_t zone, std::uint64_t written) const {
    zones_[zone].written_lbas = written;
    note_interruption();
  }

  const bool appends_;
  emu::Fd fd_;
  mutable std::mutex mutex_;
  mutable std::vector<ZoneInfo> zones_;
  mutable std::vector<ZoneId> changed_;
  mutable std::deque<Fate> fates_;
  mutable std::vector<const Io*> sent_;  // writes and appends
  mutable unsigned asked_ = 0, reports_ = 0;
  mutable bool lose_behind_report_ = false, lose_at_finish_ = false;
  bool keeps_list_ = true;
  std::atomic<bool> present_{true};
  int report_error_ = 0, list_error_ = 0;
};

class FakeQueue final : public DriveQueue {
 public:
  using Fate = FakeDrive::Fate;
  FakeQueue(DriveDevice& device, const FakeDrive& drive, unsigned depth)
      : DriveQueue(device, {.fd = drive.fd(), .stride_bytes = kMiB, .read = {}, .write = {}},
                   depth),
        drive_(drive) {}
  using DriveQueue::init_ring;

 private:
  bool may_append(const Io& io) const override {
    return drive_.appends() && (io.op == Io::Op::append || io.may_fail_over);
  }
  static bool writes_data(const Io& io) {
    return io.op == Io::Op::write || io.op == Io::Op::append;
  }
  Part next_request(Io& io) override {
    if (writes_data(io)) drive_.begin(io);
    return next_part(io);
  }
  int result_of(Io& io, const io_uring_cqe& cqe) override {
    const Fate fate = drive_.take_fate();
    const bool writes = writes_data(io);
    drive_.end(io);
    if (fate == Fate::lost) return -kInterrupted;
    if (fate == Fate::broken) return -EIO;
    if (!writes || cqe.res <= 0) return fate == Fate::landed ? -kInterrupted : cqe.res;
    const std::uint64_t start = geometry().zone_start(io.zone).value;
    const std::uint64_t wanted = first_lba(io).value - start;
    if (!io.as_append && drive_.zone(io.zone.value).written_lbas != wanted) return -EIO;
    if (drive_.zone(io.zone.value).state == ZoneState::full) return -EIO;
    const std::uint64_t at = drive_.land(io.zone, io.lba_count);
    if (!is_free(io.zone, at)) return -EIO;
    if (fate == Fate::landed) return -kInterrupted;
    if (io.op == Io::Op::write) return at == wanted ? cqe.res : -EIO;
    if (at + io.lba_count > table().admitted_lbas(io.zone)) return -EIO;
    io.appended_at = Lba{start + at};
    return cqe.res;
  }
  const FakeDrive& drive_;
};

class FakeDevice final : public DriveDevice {
 public:
  explicit FakeDevice(const FakeDrive& drive)
      : DriveDevice(drive, Access::exclusive, "fake:"), drive_(drive) {
    EXPECT_TRUE(start().ok());
  }
  ~FakeDevice() override { stop(); }
  Result<std::unique_ptr<IoQueue>> create_queue(unsigned depth) override {
    auto queue = std::make_unique<FakeQueue>(*this, drive_, depth);
    const Status status = queue->init_ring();
    if (!status.ok()) return status;
    return std::unique_ptr<IoQueue>(std::move(queue));
  }

 private:
  const FakeDrive& drive_;
};

}  // namespace furrow::test
