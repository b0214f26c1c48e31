// Processors of the machine, by the numbers that Linux gives them, and who runs on which.
#pragma once

namespace furrow::transport {

// May this process run there? (What it was given, as by taskset(1) or a cpuset.)
bool may_run_on(unsigned processor);
// The calling thread stays there from now on; false: it may not.
[[nodiscard]] bool stay_on(unsigned processor);

}  // namespace furrow::transport
