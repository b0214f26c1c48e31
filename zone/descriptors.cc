#include "zone/descriptors.h"

#include <fcntl.h>
#include <unistd.h>

namespace furrow {

bool is_direct(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && (flags & O_DIRECT) != 0;
}

// The lowest free descriptor is what open() gives, whatever other threads open meanwhile. A
// directory would be a way back for a process that shuts itself in later (chroot).
void fill_standard_files() {
  for (;;) {
    int fd = open("/dev/null", O_PATH | O_CLOEXEC);
    if (fd < 0) fd = open("/", O_PATH | O_CLOEXEC);  // which there always is
    if (fd >= 0 && fd <= STDERR_FILENO) continue;
    if (fd >= 0) close(fd);
    return;  // below 0 there is none for a device either
  }
}

}  // namespace furrow
