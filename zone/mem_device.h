// MemDevice: a zoned device in anonymous memory, for tests and for serving pages from memory.
//
// A read is one copy. Memory is touched by the first write to it and given back after a reset, in
// bounded pieces, from poll(). Nothing survives the device. Threads as ZonedDevice says.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "zone/device_uri.h"
#include "zone/table_queue.h"

namespace furrow {

class MemDevice final : public ZonedDevice {
 public:
  // Errors: invalid_argument (geometry), no_space (no address space for it).
  static Result<std::unique_ptr<ZonedDevice>> open(const MemOptions& options, std::string uri);
  ~MemDevice() override;

  Result<std::unique_ptr<IoQueue>> create_queue(unsigned depth) override;
  Result<std::vector<ZoneInfo>> report() override { return table_.report(); }
  ZoneInfo zone(ZoneId zone) const override { return table_.info(zone); }

 private:
  friend class MemQueue;
  MemDevice(const Geometry& geometry, std::string uri, std::byte* memory, Reclaim reclaim);
  std::size_t size_bytes() const;
  void to_reclaim(ZoneId zone);
  // Gives back one piece, if one is due. Called on every poll; cheap when there is nothing to do.
  void reclaim_piece();

  std::byte* const memory_;  // LBA 0
  const Reclaim reclaim_;
  ZoneTable table_;
  struct Pending {
    ZoneId zone;
    std::uint64_t due_ns;
    std::uint64_t left_bytes;
  };
  std::atomic<std::uint32_t> pending_count_{0};
  std::mutex mutex_;
  std::vector<Pending> pending_;  // under mutex_; by due_ns
};

class MemQueue final : public TableQueue {
 public:
  explicit MemQueue(MemDevice& device);
  ~MemQueue() override;
  Status register_buffers(std::span<const iovec> buffers) override {
    set_registered(buffers.size());
    return {};
  }
  std::uint64_t system_calls() const override { return 0; }
  int wake_fd() const override { return -1; }

 private:
  void start_transfer(Io& io) override { transfers_.push(io); }
  void start_flush(Io& io) override { transfers_.push(io); }
  void zone_was_reset(ZoneId zone) override;
  unsigned do_poll() override;
  unsigned do_wait(std::uint64_t timeout_us) override;
  void copy(Io& io);

  MemDevice& device_;
  List transfers_;
};

}  // namespace furrow
