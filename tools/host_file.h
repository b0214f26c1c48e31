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
// They go to a file beside it, which then takes its place with its permissions. Where that would
// change more than the bytes, or cannot be (no regular file, another owner's, with further names,
// in a folder that may not be written to), it is written in place, and an error may leave a part.
Status replace_file(const std::string& path, std::span<const std::byte> bytes);

}  // namespace furrow::tools
