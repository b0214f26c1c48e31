// What fs cat, export and import of furrowctl share: files of the host, and what a copy has done.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "zone/status.h"

namespace furrow::tools {

constexpr std::size_t kCopyBytes = 1 << 20;
constexpr std::uint64_t kMiB = 1 << 20;

// A descriptor of the host's, closed at the end; fd < 0: errno says why.
class HostFile {
 public:
  HostFile(const std::string& path, int flags);
  ~HostFile();
  HostFile(const HostFile&) = delete;
  HostFile& operator=(const HostFile&) = delete;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

// What errno says.
Status host_error(const char* hint);

// What has been copied, and what was being copied when it failed.
struct Copy {
  std::uint64_t files = 0, directories = 0, bytes = 0, lost_bytes = 0;
  std::string from, to;  // what is being copied
  struct Made {
    std::string path;
    bool directory;
  };
  std::vector<Made> made;  // in that order, so that it can be taken back
};

// Prints it, or what went wrong. `what`: "import". Returns an exit status.
int report_copy(const char* what, const Copy& copy, const Status& status);

}  // namespace furrow::tools
