// The limit of open files (RLIMIT_NOFILE) of this process. A connection is a file: with the soft
// limit that most systems give a service (1024), 1024 connections do not fit.
//
// Threads: any; it is the process's.
#pragma once

#include <cstdint>

#include "zone/status.h"

namespace furrow::tools {

// Raises the soft limit to `wanted`, or as far as the hard limit lets it; never lowers it. Returns
// what the limit is then. Errors: io_error (errno says).
Result<std::uint64_t> raise_file_limit(std::uint64_t wanted);

}  // namespace furrow::tools
