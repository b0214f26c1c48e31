// What whoever makes an io_uring has to say: to its user where there is none, and of one to the
// thread sanitizer.
#pragma once

#include <liburing.h>

#include <cerrno>
#include <cstddef>

#include "zone/descriptors.h"
#include "zone/status.h"

#if defined(__SANITIZE_THREAD__)
extern "C" void AnnotateNewMemory(const char* file, int line, const void* memory, std::size_t size);
#endif

namespace furrow {

// The kernel gives no ring, with `error` (an errno).
inline Status ring_refused(int error, Origin origin) {
  if (error == ENOSYS || error == EPERM) {
    return {Code::unsupported, origin,
            "there is no io_uring here: it is disabled (sysctl kernel.io_uring_disabled), or a "
            "container's seccomp profile forbids it",
            error};
  }
  if (error == ENOMEM) {
    return {Code::io_error, origin,
            "no memory for an io_uring: raise the limit of locked memory (ulimit -l, in a systemd "
            "unit LimitMEMLOCK=); 8 MiB do",
            error};
  }
  return {Code::io_error, origin, error == EMFILE ? kNoDescriptor : "cannot make an io_uring",
          error};
}

// To be called when a ring has been made. liburing maps its rings by raw system calls: without a
// word the thread sanitizer takes a new ring for an older one of another thread, whose addresses it
// has got.
inline void tell_sanitizer([[maybe_unused]] const io_uring& ring) {
#if defined(__SANITIZE_THREAD__)
  AnnotateNewMemory(__FILE__, __LINE__, ring.sq.ring_ptr, ring.sq.ring_sz);
  AnnotateNewMemory(__FILE__, __LINE__, ring.cq.ring_ptr, ring.cq.ring_sz);
  AnnotateNewMemory(__FILE__, __LINE__, ring.sq.sqes, ring.sq.ring_entries * sizeof(io_uring_sqe));
#endif
}

}  // namespace furrow
