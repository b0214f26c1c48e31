// The ring of a fuzz target's sockets, one for all inputs: making one takes longer than most
// inputs.
#pragma once

#include <memory>

#include "tests/transport/script.h"
#include "transport/socket_ring.h"

namespace furrow::fuzz {

inline transport::SocketRing& ring() {
  static const std::unique_ptr<transport::SocketRing> made = [] {
    auto ring = transport::SocketRing::create();
    require(ring.ok(), "an io_uring can be made");
    return std::move(*ring);
  }();
  return *made;
}

}  // namespace furrow::fuzz
