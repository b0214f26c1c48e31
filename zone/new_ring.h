// What whoever makes an io_uring has to say: to its user where there is none, or the kernel takes
// nothing any more, and of one to the thread sanitizer.
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
  if (error == EAGAIN) {
    return {Code::io_error, origin,
            "no thread for an io_uring: raise the limit of threads (ulimit -u, a container's or "
            "unit's number of tasks)",
            error};
  }
  return {Code::io_error, origin, error == EMFILE ? kNoDescriptor : "cannot make an io_uring",
          error};
}

// What io_uring_enter(2) returned. A shortage or a signal passes: what was not taken stays in the
// ring for the next call. After any other error nothing more will be taken (or, of EBADR, a
// completion is lost), nor can it be known what becomes of the memory that the kernel has got: the
// process ends, of a std::system_error, so that a program's terminate handler can say why.
void check_entered(int result) noexcept;

// Is the kernel ready to take anything from a ring that has just been made? Else as ring_refused():
// a seccomp profile may forbid the call that this takes alone.
Status try_ring(io_uring& ring, Origin origin);

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
