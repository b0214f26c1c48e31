// FURROW_CHECK: an assertion for our own mistakes, on in every build. What a device, a peer or a
// user can cause is never checked with it: that gets a Status.
#pragma once

namespace furrow {
[[noreturn]] void check_failed(const char* condition, const char* file, int line);
}  // namespace furrow

#define FURROW_CHECK(condition) \
  ((condition) ? void() : ::furrow::check_failed(#condition, __FILE__, __LINE__))
