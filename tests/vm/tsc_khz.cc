// Prints how many thousand times a second this machine's time stamp counter counts. QEMU's
// emulation gives it to the guest as it is, and a guest's kernel that measures it itself, on a
// machine with other work, may take it for many times slower: its clock then runs as many times too
// fast.
#include <time.h>
#include <x86intrin.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>

namespace {

struct Instant {
  std::uint64_t ns = 0, ticks = 0, apart = ~std::uint64_t{0};
};

// The clock and the counter at one time: of some attempts the one that least came between.
Instant look() {
  Instant best;
  for (int i = 0; i < 100; ++i) {
    timespec at{};
    const std::uint64_t before = __rdtsc();
    clock_gettime(CLOCK_MONOTONIC_RAW, &at);
    const std::uint64_t after = __rdtsc();
    if (after - before >= best.apart) continue;
    best.apart = after - before;
    best.ticks = before + best.apart / 2;
    best.ns = static_cast<std::uint64_t>(at.tv_sec) * 1'000'000'000 +
              static_cast<std::uint64_t>(at.tv_nsec);
  }
  return best;
}

}  // namespace

int main() {
  const Instant first = look();
  const timespec wait{0, 100'000'000};
  (void)nanosleep(&wait, nullptr);  // for about so long
  const Instant last = look();
  std::printf("%" PRIu64 "\n", (last.ticks - first.ticks) * 1'000'000 / (last.ns - first.ns));
}
