// RingQueueTest: a queue on a file in memory, whose results the test can change, and on a pipe,
// which answers when the test says so.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "zone/aligned_buffer.h"
#include "zone/ring_queue.h"

namespace furrow::test {

inline constexpr std::uint32_t kRingLba = 512, kRingZones = 4;
inline constexpr std::uint64_t kZoneLbas = 256;
inline constexpr std::uint64_t kFirstBytes = 4096, kStrideBytes = kZoneLbas * kRingLba + 1024;

inline Geometry ring_geometry() {
  Geometry made;
  made.lba_bytes = kRingLba;
  made.zone_count = kRingZones;
  made.zone_size_lbas = made.zone_capacity_lbas = kZoneLbas;
  made.append_lbas_max = 8;
  return made;
}

class FileQueue : public RingQueue {
 public:
  using RingQueue::kEnded;
  using RingQueue::Medium;
  FileQueue(ZoneTable& table, const Medium& medium, unsigned depth)
      : RingQueue(ring_geometry(), table, false, medium, depth) {}
  using RingQueue::init_ring;

  std::vector<std::uint64_t> requests;  // of how many bytes, as the kernel was given them
  std::vector<int> ends;                // what transferred() was told

 private:
  Part next_request(Io& io) override {
    const Part part = next_part(io);
    requests.push_back(part.bytes);
    return part;
  }
  void transferred(Io& io, int error) override {
    ends.push_back(error);
    end_transfer(io, error == 0 ? Status() : zone_failure(Code::io_error, "", error));
  }
  void zone_was_reset(ZoneId) override {}
};

// What the kernel answers goes through the test's hands. Of a read, what is not told is not there.
class ChangedQueue final : public FileQueue {
 public:
  using FileQueue::FileQueue;
  std::function<int(const Io&, int)> change;  // of bytes or -errno

 private:
  int result_of(Io& io, const io_uring_cqe& cqe) override {
    const int result = change(io, cqe.res);
    if (io.op == Io::Op::read && result > 0) {
      const Part part = next_part(io);
      const iovec whole{part.data, part.bytes};
      const iovec* piece = part.count != 0 ? part.pieces : &whole;
      auto told = static_cast<std::size_t>(result);
      for (std::uint32_t i = 0; i < std::max(part.count, 1u); ++i, ++piece) {
        const std::size_t kept = std::min(told, piece->iov_len);
        std::memset(static_cast<std::byte*>(piece->iov_base) + kept, 0xEE, piece->iov_len - kept);
        told -= kept;
      }
    }
    return result;
  }
};

class RingQueueTest : public testing::Test {
 protected:
  using Lbas = std::vector<std::uint64_t>;
  struct Op : Io {
    AlignedBuffer memory;
    std::vector<iovec> pieces;
    unsigned done = 0;
  };

  void SetUp() override {
    file_ = memfd_create("furrow-ring-queue-test", MFD_CLOEXEC);
    ASSERT_GE(file_, 0);
    std::mt19937_64 random(20261122);
    content_.resize(kFirstBytes + kRingZones * kStrideBytes);
    for (std::byte& byte : content_) byte = static_cast<std::byte>(random());
    ASSERT_EQ(pwrite(file_, content_.data(), content_.size(), 0),
              static_cast<ssize_t>(content_.size()));
    for (std::uint32_t zone = 0; zone < kRingZones; ++zone) {
      table_.load(ZoneId{zone}, {ZoneRecord::Class::writable, 0, zone == 3 ? 0 : kZoneLbas / 2});
    }
  }
  void TearDown() override {
    queue_.reset();
    close(file_);
    for (const int fd : pipe_) {
      if (fd >= 0) close(fd);
    }
  }

  FileQueue::Medium medium() const {
    return {.fd = file_, .first_bytes = kFirstBytes, .stride_bytes = kStrideBytes};
  }
  template <class Queue = FileQueue>
  Queue& make(const FileQueue::Medium& medium, unsigned depth = 32) {
    auto made = std::make_unique<Queue>(table_, medium, depth);
    Queue& queue = *made;
    const Status status = queue.init_ring();
    EXPECT_TRUE(status.ok()) << status.describe();
    queue_ = std::move(made);
    return queue;
  }
  // What reads from a pipe does not end before say().
  FileQueue& make_on_pipe(bool calls = false, IoMode mode = IoMode::regular) {
    EXPECT_EQ(pipe(pipe_), 0);
    return make({.fd = pipe_[0], .stride_bytes = kStrideBytes, .calls = calls, .mode = mode});
  }
  void say(std::size_t bytes) {
    const std::vector<std::byte> data(bytes, std::byte{0x5A});
    ASSERT_EQ(write(pipe_[1], data.data(), bytes), static_cast<ssize_t>(bytes));
  }

  // `pieces`: LBAs of each piece of memory.
  Op& prepare(Io::Op what, std::uint32_t zone, std::uint64_t offset,
              const std::vector<std::uint32_t>& pieces) {
    ops_.push_back(std::make_unique<Op>());
    Op& op = *ops_.back();
    op.op = what;
    op.zone = ZoneId{zone};
    op.lba = Lba{zone * kZoneLbas + offset};
    for (const std::uint32_t lbas : pieces) op.lba_count += lbas;
    op.memory = AlignedBuffer(std::size_t{op.lba_count} * kRingLba);
    std::size_t at = 0;
    for (const std::uint32_t lbas : pieces) {
      op.pieces.push_back({op.memory.data() + at, std::size_t{lbas} * kRingLba});
      at += op.pieces.back().iov_len;
    }
    op.iov = op.pieces.data();
    op.iov_count = static_cast<std::uint32_t>(pieces.size());
    op.on_complete = [](Io& io) { ++static_cast<Op&>(io).done; };
    return op;
  }
  Op& submit(Io::Op what, std::uint32_t zone, std::uint64_t offset,
             const std::vector<std::uint32_t>& pieces) {
    Op& op = prepare(what, zone, offset, pieces);
    queue_->submit(op);
    EXPECT_EQ(op.done, 0u) << "never from within submit()";
    return op;
  }
  Op& read(std::uint32_t zone, std::uint64_t offset, const std::vector<std::uint32_t>& pieces) {
    return submit(Io::Op::read, zone, offset, pieces);
  }
  void run() {
    for (int turns = 0; queue_->busy() && turns < 100; ++turns) queue_->wait(100'000);
    ASSERT_FALSE(queue_->busy()) << "an operation does not end";
  }
  static std::uint64_t file_offset(std::uint32_t zone, std::uint64_t offset) {
    return kFirstBytes + zone * kStrideBytes + offset * kRingLba;
  }
  // Did the read give what the file holds there?
  void expect_content(const Op& op) {
    EXPECT_EQ(op.done, 1u);
    ASSERT_TRUE(op.status.ok()) << op.status.describe();
    const std::byte* const there =
        content_.data() + file_offset(op.zone.value, op.lba.value % kZoneLbas);
    EXPECT_EQ(std::memcmp(op.memory.data(), there, op.memory.size()), 0);
  }
  bool wakes(int timeout_ms) const {
    pollfd wake{queue_->wake_fd(), POLLIN, 0};
    return ::poll(&wake, 1, timeout_ms) == 1;
  }

  int file_ = -1;
  int pipe_[2] = {-1, -1};
  std::vector<std::byte> content_;  // of the file
  ZoneTable table_{ring_geometry(), nullptr};
  std::vector<std::unique_ptr<Op>> ops_;
  std::unique_ptr<FileQueue> queue_;
};

}  // namespace furrow::test
