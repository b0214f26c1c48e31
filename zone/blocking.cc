#include "zone/blocking.h"

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

}  // namespace furrow
