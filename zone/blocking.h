// Blocking I/O on a queue, for formatting, recovery and tools: not for an executor that serves.
#pragma once

#include <span>

#include "zone/device.h"

namespace furrow {

// Submits all, waits for all; returns the first error. Each Io's status is set. Uses on_complete
// and context of the Ios.
Status run_blocking(IoQueue& queue, std::span<Io> ios);
inline Status run_blocking(IoQueue& queue, Io& io) { return run_blocking(queue, {&io, 1}); }

}  // namespace furrow
