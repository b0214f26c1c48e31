#include "zone/blocking.h"

#include <chrono>
#include <thread>

namespace furrow {

Status run_blocking(IoQueue& queue, std::span<Io> ios) {
  constexpr std::uint64_t kWaitUs = 100'000;
  std::size_t left = ios.size();
  for (Io& io : ios) {
    io.context = &left;
    io.on_complete = [](Io& done) { --*static_cast<std::size_t*>(done.context); };
    queue.submit(io);
  }
  while (left != 0) queue.wait(kWaitUs);
  for (const Io& io : ios) {
    if (!io.status.ok()) return io.status;
  }
  return {};
}

Status manage_blocking(IoQueue& queue, Io::Op op, ZoneId zone) {
  Io io;
  io.op = op;
  io.zone = zone;
  return run_blocking(queue, io);
}

Status flush_blocking(IoQueue& queue) { return manage_blocking(queue, Io::Op::flush, ZoneId{}); }

Result<std::span<const std::byte>> read_blocking(IoQueue& queue, Lba first, std::uint32_t lbas,
                                                 std::uint32_t lba_bytes, AlignedBuffer& buffer) {
  const std::size_t bytes = std::size_t{lbas} * lba_bytes;
  if (buffer.size() < bytes) buffer = AlignedBuffer(bytes);
  Io io;
  io.op = Io::Op::read;
  io.lba = first;
  io.set_data(buffer.data(), lbas, lba_bytes);
  const Status status = run_blocking(queue, io);
  if (!status.ok()) return status;
  return std::span<const std::byte>(buffer.data(), bytes);
}

bool Patience::pause() {
  if (pauses.fetch_sub(1) <= 0) return false;
  time.block_for(kPauseNs);
  return true;
}

void Executor::block_for(std::uint64_t ns) {
  std::this_thread::sleep_for(std::chrono::nanoseconds(ns));
}

Result<std::span<const std::byte>> read_patiently(IoQueue& queue, Lba first, std::uint32_t lbas,
                                                  std::uint32_t lba_bytes, AlignedBuffer& buffer,
                                                  Patience& patience) {
  constexpr unsigned kTriesMax = 4;
  auto bytes = read_blocking(queue, first, lbas, lba_bytes, buffer);
  for (unsigned tries = 1; tries < kTriesMax; ++tries) {
    if (bytes.status().code() != Code::io_error) break;
    if (tries > 1 && !patience.pause()) break;
    bytes = read_blocking(queue, first, lbas, lba_bytes, buffer);
  }
  return bytes;
}

}  // namespace furrow
