// Backend: where the benchmark's operations go, a local volume or one behind NVMe/TCP. Made and
// used on one thread; operations complete from the turns of the executor that it was made with.
#pragma once

#include <memory>

#include "engine/pool.h"
#include "transport/initiator.h"
#include "zone/executor.h"

namespace furrow::bench {

class Backend {
 public:
  virtual ~Backend() = default;
  virtual void submit(PageOp& op) = 0;
  // Memory that operations will use; PageOp::buffer_index is then 0. unsupported: go on without.
  virtual Status register_buffer(std::span<std::byte> buffer) = 0;
  virtual std::uint64_t system_calls() const = 0;
  virtual std::uint64_t reconnects() const = 0;
};

// `pool` and `store` outlive it. `depth`: device reads in flight at a time. `is_home`: `executor`
// is the pool's; the system calls of all that writes count there.
Result<std::unique_ptr<Backend>> local_backend(Pool& pool, PageStore& store, Executor& executor,
                                               unsigned depth, bool is_home);
// Connects; blocks.
Result<std::unique_ptr<Backend>> remote_backend(Executor& executor,
                                                const transport::InitiatorOptions& options);

}  // namespace furrow::bench
