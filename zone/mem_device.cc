#include "zone/mem_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "zone/aligned_buffer.h"

namespace furrow {

namespace {

constexpr std::uint64_t kReclaimDelayNs = 1'000'000'000;  // lazy: a zone stays empty this long
constexpr std::uint64_t kReclaimPieceBytes = 256 << 10;   // about 10 us of a poll
constexpr std::uint64_t kReclaimPaceNs = 1'000'000;       // between pieces

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

}  // namespace

Result<std::unique_ptr<ZonedDevice>> MemDevice::open(const MemOptions& options, std::string uri) {
  const Result<Geometry> geometry = geometry_of(options.shape);
  if (!geometry) return geometry.status();
  const std::size_t bytes =
      geometry->zone_count * geometry->zone_size_lbas * std::uint64_t{geometry->lba_bytes};
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return Status(Code::no_space, Origin::zone, "cannot map the memory of the device", errno);
  }
  // Best effort: fewer TLB misses in page-sized copies.
  (void)madvise(memory, bytes, MADV_HUGEPAGE);
  return std::unique_ptr<ZonedDevice>(
      new MemDevice(*geometry, std::move(uri), static_cast<std::byte*>(memory), options.reclaim));
}

MemDevice::MemDevice(const Geometry& geometry, std::string uri, std::byte* memory, Reclaim reclaim)
    : ZonedDevice(geometry, std::move(uri)),
      memory_(memory),
      reclaim_(reclaim),
      table_(geometry, nullptr) {}

MemDevice::~MemDevice() { munmap(memory_, size_bytes()); }

std::size_t MemDevice::size_bytes() const {
  return geometry_.zone_count * geometry_.zone_size_lbas * std::uint64_t{geometry_.lba_bytes};
}

Result<std::unique_ptr<IoQueue>> MemDevice::create_queue(unsigned) {
  return std::unique_ptr<IoQueue>(std::make_unique<MemQueue>(*this));
}

void MemDevice::to_reclaim(ZoneId zone) {
  if (reclaim_ == Reclaim::never) return;
  const std::lock_guard lock(mutex_);
  std::erase_if(pending_, [zone](const Pending& pending) { return pending.zone == zone; });
  pending_.push_back({zone, now_ns() + (reclaim_ == Reclaim::lazy ? kReclaimDelayNs : 0),
                      geometry_.zone_capacity_bytes()});
  pending_count_.store(static_cast<std::uint32_t>(pending_.size()), std::memory_order_relaxed);
}

void MemDevice::reclaim_piece() {
  if (pending_count_.load(std::memory_order_relaxed) == 0) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || pending_.empty()) return;
  const std::uint64_t now = now_ns();
  Pending& first = pending_.front();
  if (first.due_ns > now) return;
  if (table_.hold_if_empty(first.zone)) {
    // From the end: the next writes are at the start.
    const std::uint64_t piece = std::min(first.left_bytes, kReclaimPieceBytes);
    first.left_bytes -= piece;
    const std::uint64_t start = geometry_.zone_start(first.zone).value * geometry_.lba_bytes;
    // A piece that does not begin with a page, or (512-byte LBAs) does not end with one, keeps its
    // memory: the page that it ends in may be the next zone's as well.
    if (piece % AlignedBuffer::kAlignment == 0) {
      (void)madvise(memory_ + start + first.left_bytes, piece, MADV_DONTNEED);
    }
    table_.release(first.zone);
  } else {
    first.left_bytes = 0;  // in use again
  }
  first.due_ns = now + kReclaimPaceNs;
  if (first.left_bytes == 0) pending_.erase(pending_.begin());
  pending_count_.store(static_cast<std::uint32_t>(pending_.size()), std::memory_order_relaxed);
}

MemQueue::MemQueue(MemDevice& device)
    : TableQueue(device.geometry(), device.table_, false), device_(device) {}

MemQueue::~MemQueue() { FURROW_CHECK(in_flight() == 0); }

void MemQueue::zone_was_reset(ZoneId zone) { device_.to_reclaim(zone); }

void MemQueue::copy(Io& io) {
  std::byte* medium = device_.memory_ + first_lba(io).value * geometry().lba_bytes;
  std::uint64_t left = transfer_bytes(io);
  for (std::uint32_t i = 0; i < io.iov_count && left != 0; ++i) {
    const std::uint64_t length = std::min<std::uint64_t>(left, io.iov[i].iov_len);
    if (io.op == Io::Op::read) {
      std::memcpy(io.iov[i].iov_base, medium, length);
    } else {
      std::memcpy(medium, io.iov[i].iov_base, length);
    }
    medium += length;
    left -= length;
  }
}

unsigned MemQueue::do_poll() {
  unsigned count = settle();
  List transfers = transfers_.take();  // what completions submit now is for the next poll
  while (Io* io = transfers.pop()) {
    if (io->op != Io::Op::flush) copy(*io);
    count += end_transfer(*io, {});
  }
  device_.reclaim_piece();
  return count;
}

// What is submitted completes at once, unless it waits for another queue.
unsigned MemQueue::do_wait(std::uint64_t timeout_us) {
  const std::uint64_t end_ns = now_ns() + timeout_us * 1000;
  for (;;) {
    const unsigned count = do_poll();
    if (count != 0 || in_flight() == 0 || now_ns() >= end_ns) return count;
    std::this_thread::yield();
  }
}

}  // namespace furrow
