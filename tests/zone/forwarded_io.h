// What a decorator of a test asks of the queue that it is on.
#pragma once

#include "zone/device.h"

namespace furrow {

// As `io` asks, with an answer of its own.
inline Io forwarded(const Io& io, void* context, void (*on_complete)(Io&)) {
  Io asked;
  asked.op = io.op;
  asked.zone = io.zone;
  asked.lba = io.lba;
  asked.lba_count = io.lba_count;
  asked.iov = io.iov;
  asked.iov_count = io.iov_count;
  asked.context = context;
  asked.on_complete = on_complete;
  return asked;
}

}  // namespace furrow
