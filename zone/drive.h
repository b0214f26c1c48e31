// Drive: a zoned drive's geometry, report and zone management, however it is reached.
//
// All calls block; any thread, several at a time. Counts are LBAs of geometry().
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "zone/io.h"
#include "zone/types.h"

namespace furrow {

class Drive {
 public:
  virtual ~Drive() = default;
  const Geometry& geometry() const { return geometry_; }

  // As the drive tells them now; written_lbas rounded down, `reason` set where a zone is read-only
  // or offline, or its write pointer inside an LBA. Errors: io_error.
  virtual Result<std::vector<ZoneInfo>> report(ZoneId first, std::uint32_t count) const = 0;
  Result<std::vector<ZoneInfo>> report() const { return report(ZoneId{0}, geometry_.zone_count); }
  // Reset, finish, open or close of one zone. Errors: zone_state, too_many_zones, io_error (a
  // finish that was interrupted, too: only the others are done again here).
  virtual Status manage(Io::Op op, ZoneId zone) const = 0;
  // Appends the zones that the drive itself changed since this was called before, or more. Errors:
  // unsupported (it keeps no list of them), io_error.
  virtual Status take_changed(std::vector<ZoneId>&) const {
    return zone_failure(Code::unsupported, "the drive keeps no list of changed zones");
  }
  // Is it there? Cheap; asks the kernel, not the drive.
  virtual bool present() const = 0;
  // Zone Append is the drive's own, and many may be in flight in a zone; else the write pointer's.
  virtual bool appends() const { return false; }
  // The error of a transfer that the kernel or the drive failed with `error`, as the completion has
  // it: an errno, or what the drive's own queues make of it. `hint` when nothing says more.
  virtual Status transfer_error(int error, const char* hint) const = 0;

  // How often a reset of the drive's controller was seen to interrupt something: its power may have
  // been away. Any thread.
  std::uint64_t interruptions() const { return interruptions_.load(); }
  void note_interruption() const { interruptions_.fetch_add(1); }

 protected:
  Geometry geometry_;

 private:
  mutable std::atomic<std::uint64_t> interruptions_{0};
};

}  // namespace furrow
