// Files of the host that commands read and write. One thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "zone/status.h"

namespace furrow::tools {

// What errno says about a file.
Status file_error();

// Makes `path` hold these bytes: all of them, or on an error what it held before, if it was there.
// They go to a file beside it, which then takes its place with its permissions. What is no regular
// file (a pipe, a device) is written to as it is.
Status replace_file(const std::string& path, std::span<const std::byte> bytes);

}  // namespace furrow::tools
