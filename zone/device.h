// ZonedDevice and IoQueue: an asynchronous zoned block device.
//
// Threads: a ZonedDevice may be used from any thread; an IoQueue by one thread at a time. Errors of
// an operation come in Io::status; nothing on a medium or in an argument aborts the process.
// Rules: Zoned Namespace Command Set specification, through ZoneStateMachine.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zone/io.h"
#include "zone/poller.h"
#include "zone/status.h"
#include "zone/types.h"

namespace furrow {

class IoQueue : public Poller {
 public:
  // Takes the operation; it completes later from poll(), errors included (never from here). The
  // queue takes any number; beyond its ring they wait inside it. Order of submission is the order
  // in which writes to one zone reach the device.
  void submit(Io& io);
  unsigned poll() final;
  // Blocks until something completed, or for `timeout_us` at most. Returns as poll() does.
  unsigned wait(std::uint64_t timeout_us);
  bool busy() const final { return in_flight_ != 0; }
  unsigned in_flight() const { return in_flight_; }

  // Registers memory for Io::buffer_index = its position here. Replaces an earlier registration.
  // Only while nothing is in flight. unsupported: go on without.
  virtual Status register_buffers(std::span<const iovec> buffers) = 0;
  // From now on poll() and wait() may make a system call that blocks for a flush, or a small
  // transfer, that nothing else is in flight beside: that is faster than having it done and being
  // told. For who has nothing to do meanwhile. (emu: does; the others need not.)
  virtual void may_block() {}
  // System calls that this queue has made, for benchmarks that count them.
  virtual std::uint64_t system_calls() const = 0;

 protected:
  explicit IoQueue(const Geometry& geometry) : geometry_(geometry) {}
  const Geometry& geometry() const { return geometry_; }
  // Back ends call this for each finished operation, from within do_poll()/do_wait().
  void complete(Io& io, Status status);

 private:
  virtual void do_submit(Io& io) = 0;  // arguments already checked
  virtual unsigned do_poll() = 0;
  virtual unsigned do_wait(std::uint64_t timeout_us) = 0;

  unsigned complete_refused();

  Geometry geometry_;
  unsigned in_flight_ = 0;
  Io* refused_head_ = nullptr;  // failed the argument check; completed by the next poll()
  Io* refused_tail_ = nullptr;
};

class ZonedDevice {
 public:
  virtual ~ZonedDevice() = default;
  const Geometry& geometry() const { return geometry_; }
  const std::string& uri() const { return uri_; }
  // `depth`: operations that the kernel is given at a time. The device outlives its queues.
  virtual Result<std::unique_ptr<IoQueue>> create_queue(unsigned depth) = 0;
  // States and write pointers of all zones, as the device tells them now. Blocks.
  virtual Result<std::vector<ZoneInfo>> report() = 0;
  // One zone as it is known here: as the device told it last, with what was done to it since and
  // what it said when an operation failed. Cheap. Any thread.
  virtual ZoneInfo zone(ZoneId zone) const = 0;
  // How many zones it was found to have taken away (read-only, offline) since it was opened. Any
  // thread.
  virtual std::uint64_t zones_taken() const { return 0; }
  // Is the medium, such as the file system under emu:, so full that only deletes, and what frees
  // room, should be written? Cheap while it is not. Any thread.
  virtual bool short_of_room() { return false; }
  // Of what all zones hold, how much the medium has no room for now. Asks it. Any thread.
  virtual std::uint64_t missing_bytes() const { return 0; }
  // Is it a file that has had all its blocks, and written ones, since it was made? So no write has
  // to have the file system note anything (but where an opening had to zero more than 256 MiB
  // behind write pointers), nor can it run out of room, unless it copies what is written over;
  // zones that are reset keep theirs, unless the URI says otherwise.
  virtual bool preallocated() const { return false; }
  // Writes since it was opened that have failed because the drive placed them elsewhere, for no
  // reason but its own. When there is one, a zone's writes are given to it one at a time. Any
  // thread.
  virtual std::uint64_t misplaced_writes() const { return 0; }
  // Transfers, and tries of commands, since it was opened that a reset of the drive's controller
  // has interrupted, as far as it is known here. Any thread.
  virtual std::uint64_t interruptions() const { return 0; }
  // The drive was removed, or has failed as a whole: nothing is answered any more until it is there
  // and opened again. Known when something was asked of it. Any thread.
  virtual bool gone() const { return false; }
  // What of the device's own structures is damaged, of which another copy is whole: a line each.
  virtual std::vector<std::string> damage() const { return {}; }
  // Writes that anew, durably. Of a device that was opened to be written, and of which nothing is
  // in flight. Blocks; one thread at a time with damage(). What fails leaves the device as it was,
  // or with less of the damage, and is to be tried again. io_error, no_space.
  virtual Status mend() { return {}; }

 protected:
  ZonedDevice(Geometry geometry, std::string uri) : geometry_(geometry), uri_(std::move(uri)) {}
  Geometry geometry_;

 private:
  std::string uri_;
};

enum class Access : std::uint8_t {
  exclusive,  // by this process alone
  mend,       // likewise, for mend(): what of the device's own structures cannot be read is
              // overwritten, where another copy of it can be, and is damage then
  check,      // likewise, and read-only: nothing on the medium changes, nor any zone's state
  inspect,    // read-only, never refused as in use
};

// Opens a device by URI: `emu:PATH[?direct=0&io_mode=MODE]`,
// `mem:SIZE[?zone_size=..&zone_capacity=..&lba=..&mor=..&mar=..]`, or a zoned drive:
// `zbd:/dev/nvme0n1`, `nvme:/dev/ng0n1`. Errors: invalid_argument (unknown scheme or parameter),
// not_found, in_use (with who holds it in the text that the caller prints), foreign, unsupported
// (version; no zoned drive), permission, corrupt, io_error.
Result<std::unique_ptr<ZonedDevice>> open_device(std::string_view uri, Access access);

// Who has the device open: "process 1234 (furrowd)", for the text printed with in_use. Empty when
// nobody has, or it cannot be known.
std::string device_holder(std::string_view uri);

// What others have left on it that libblkid knows: "ext4 file system", "gpt partition table", for
// the text printed with exists and foreign. Empty when there is nothing known, or it cannot be
// read.
std::string device_content(std::string_view uri);

// Tells the device from all others that this machine has now, a copy of it too: of a file its
// "DEVICE.INODE", of a drive its identifier or number, whichever way it is reached. Empty when it
// cannot be known. Letters, digits and ".-:_", 200 at most.
std::string device_identity(std::string_view uri);

// How to make an emulated device. A zone size of 0 becomes a power of two from 4 MiB to 1 GiB that
// makes some hundred zones, a capacity of 0 the zone size, a size of 0 that of what is there.
struct DeviceShape {
  std::uint64_t size_bytes = 0;  // of the zones; a file gets 1 MiB or more on top, 9 once open
  std::uint64_t zone_size_bytes = 0;
  std::uint64_t zone_capacity_bytes = 0;
  std::uint32_t lba_bytes = 4096;
  // MOR and MAR, 0: no limit. Not said: 14, but as few or many as the other one asks for.
  std::optional<std::uint32_t> open_zones_max, active_zones_max;
  bool force = false;        // overwrite data that is not ours
  bool preallocate = false;  // writes all of a file once, which keeps its blocks from then on: see
                             // ZonedDevice::preallocated()
};

// Makes an emulated device at an `emu:` URI (file created, or an existing empty file or block
// device used). Errors: foreign (something is there and `force` is not set), invalid_argument (a
// drive or mem: is not made).
Status create_device(std::string_view uri, const DeviceShape& shape);

}  // namespace furrow
