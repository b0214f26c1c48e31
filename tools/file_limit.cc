#include "tools/file_limit.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>

namespace furrow::tools {

Result<std::uint64_t> raise_file_limit(std::uint64_t wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return Status(Code::io_error, Origin::tool, "", errno);
  if (limit.rlim_cur >= wanted) return std::uint64_t{limit.rlim_cur};  // RLIM_INFINITY is the most
  limit.rlim_cur = std::min<rlim_t>(wanted, limit.rlim_max);
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return Status(Code::io_error, Origin::tool, "", errno);
  return std::uint64_t{limit.rlim_cur};
}

}  // namespace furrow::tools
