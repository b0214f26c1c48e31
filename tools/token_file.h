// The file that has the token of furrowd's admin listener.
#pragma once

#include <string>

#include "zone/status.h"

namespace furrow::tools {

// Its first line, which may end as Windows ends it: 16 to 256 printable characters without spaces.
// permission: others than its owner
// may read it; not_found, io_error; invalid_argument: no token is in it.
Result<std::string> read_token(const std::string& path);

}  // namespace furrow::tools
