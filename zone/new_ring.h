// liburing maps its rings by raw system calls: without a word the thread sanitizer takes a new ring
// for an older one of another thread, whose addresses it has got.
#pragma once

#include <liburing.h>

#include <cstddef>

#if defined(__SANITIZE_THREAD__)
extern "C" void AnnotateNewMemory(const char* file, int line, const void* memory, std::size_t size);
#endif

namespace furrow {

// To be called when a ring has been made.
inline void tell_sanitizer([[maybe_unused]] const io_uring& ring) {
#if defined(__SANITIZE_THREAD__)
  AnnotateNewMemory(__FILE__, __LINE__, ring.sq.ring_ptr, ring.sq.ring_sz);
  AnnotateNewMemory(__FILE__, __LINE__, ring.cq.ring_ptr, ring.cq.ring_sz);
  AnnotateNewMemory(__FILE__, __LINE__, ring.sq.sqes, ring.sq.ring_entries * sizeof(io_uring_sqe));
#endif
}

}  // namespace furrow
