// What a host believes of a discovery log page (Base specification 2.0, 5.16.1.23). Pure.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "zone/status.h"

namespace furrow::transport {

// The NQNs of the NVM subsystems over TCP that `log` (as much of the page as was read, in bytes)
// names, each once, in its order. Entries whose NQN cannot be one are passed over. protocol: it is
// no such page, or its record format is unknown.
Result<std::vector<std::string>> decode_discovery_log(std::span<const std::byte> log);

}  // namespace furrow::transport
