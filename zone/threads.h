// Threads that may not be had: a process may have no more (ulimit -u, a container's limit of
// processes, memory), of which std::thread's constructor throws.
#pragma once

#include <functional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "zone/status.h"

namespace furrow {

// `thread` (a std::thread or std::jthread) runs `body`. Errors: io_error (errno says).
template <class Thread, class Body>
[[nodiscard]] Status start_thread(Thread& thread, Body&& body) {
  try {
    thread = Thread(std::forward<Body>(body));
    return {};
  } catch (const std::system_error& error) {
    return {Code::io_error, Origin::zone,
            "no thread can be had: raise the limit of processes (ulimit -u, a container's pids, in "
            "a systemd unit TasksMax), or of address space (ulimit -v)",
            error.code().value()};
  }
}

// work(i) for i = 0 on this thread, and for each other one below `count` on another, but for those
// that cannot be had: what there is to do is shared by those that run. Returns when all are done.
inline void run_on_threads(unsigned count, const std::function<void(unsigned)>& work) {
  std::vector<std::jthread> others(count == 0 ? 0 : count - 1);
  for (unsigned i = 1; i < count; ++i) {
    if (!start_thread(others[i - 1], [&work, i] { work(i); }).ok()) break;
  }
  work(0);
}

}  // namespace furrow
