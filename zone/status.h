// Status and Result<T>: how every layer reports an error without allocating.
//
// A Status says what went wrong (Code), where (Origin), and what the layer below said (an NVMe
// status, an errno). `hint` is a string literal that tells the user what to do; text is made only
// when somebody prints it (describe()).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "zone/check.h"

namespace furrow {

enum class Code : std::uint8_t {
  ok,
  invalid_argument,  // the caller's mistake: a flag, a size, an alignment
  not_found,         // no such key, volume, file
  exists,            // only-if-absent met a present key; name taken
  no_space,          // full: the device, the quota, the file system under emu:
  in_use,            // another process or host holds it
  busy,              // a bounded queue is full; try again
  corrupt,           // a checksum says that the bytes are not what was written
  io_error,          // the device or the kernel failed the operation
  zone_state,        // the zone's state forbids the operation (full, offline, read-only, not at wp)
  too_many_zones,    // MOR or MAR exhausted
  unsupported,       // a version, feature or option that this build does not know
  foreign,           // the medium holds somebody else's data
  permission,        // not allowed (EACCES, disallowed host)
  too_large,         // over a limit: value size, MDTS
  late,              // the deadline passed first
  aborted,           // cancelled: shutdown, Abort command, connection lost
  protocol,          // a peer broke the wire protocol
};

enum class Origin : std::uint8_t { none, zone, alloc, log, engine, transport, tool };

class [[nodiscard]] Status {
 public:
  constexpr Status() = default;
  constexpr Status(Code code, Origin origin, const char* hint = "", int sys_errno = 0,
                   std::uint16_t nvme = 0)
      : hint_(hint), errno_(sys_errno), nvme_(nvme), code_(code), origin_(origin) {}

  constexpr bool ok() const { return code_ == Code::ok; }
  constexpr Code code() const { return code_; }
  constexpr Origin origin() const { return origin_; }
  constexpr int sys_errno() const { return errno_; }
  // NVMe status as in a completion: SCT in bits 10:8, SC in bits 7:0. 0: none known.
  constexpr std::uint16_t nvme() const { return nvme_; }
  constexpr const char* hint() const { return hint_; }  // a literal, never null

  // "corrupt (log): superblock checksum mismatch; run `furrowctl pool check`"
  std::string describe() const;

 private:
  const char* hint_ = "";
  int errno_ = 0;
  std::uint16_t nvme_ = 0;
  Code code_ = Code::ok;
  Origin origin_ = Origin::none;
};

const char* to_string(Code code);

constexpr Status zone_failure(Code code, const char* hint, int sys_errno = 0) {
  return {code, Origin::zone, hint, sys_errno};
}

// A value or the Status that says why there is none (never an ok Status).
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : held_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit
  Result(Status status) : held_(std::in_place_index<1>, status) {       // NOLINT: implicit
    FURROW_CHECK(!status.ok());
  }

  bool ok() const { return held_.index() == 0; }
  explicit operator bool() const { return ok(); }
  Status status() const { return ok() ? Status() : std::get<1>(held_); }

  T& value() & { return *held(); }
  const T& value() const& { return *const_cast<Result*>(this)->held(); }
  T value() && { return std::move(*held()); }  // by value: safe in a range-for
  T& operator*() & { return *held(); }
  const T& operator*() const& { return value(); }
  T operator*() && { return std::move(*held()); }
  T* operator->() { return held(); }
  const T* operator->() const { return &value(); }

 private:
  T* held() {
    FURROW_CHECK(ok());
    return std::get_if<0>(&held_);
  }
  std::variant<T, Status> held_;
};

}  // namespace furrow
