// The parts of furrow-bench's command table, a file each, and the flags that they share.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "bench/backend.h"
#include "bench/driver.h"
#include "tools/command.h"
#include "tools/make_pool.h"
#include "transport/initiator.h"

namespace furrow::bench {

std::span<const tools::Command> load_commands();    // local, remote
std::span<const tools::Command> replay_commands();  // replay, verify
std::span<const tools::Command> list_commands();    // list

// --page_bytes, checked. An exit status when it is wrong.
int take_page_bytes(std::uint32_t& page_bytes);

// --depth, checked, and that the buffers of so many drivers go into this machine's memory. An exit
// status when something is wrong.
int take_buffers(Driver::Options& each, unsigned drivers);

// A pool of this process's own, from --pool --volume, made with --create from the shape and volume
// flags. Reports what is wrong on stderr.
struct LocalVolume {
  tools::OpenPool open;
  PageStore* store = nullptr;
};
int open_local_volume(EventLoop& home, LocalVolume& volume);

// From --target --nqn --nsid --connections --depth and the digest flags.
int take_initiator_options(transport::InitiatorOptions& options);

}  // namespace furrow::bench
