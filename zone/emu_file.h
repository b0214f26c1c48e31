// EmuFile: the file or block device under an emulated zoned device: opened, locked, sized.
#pragma once

#include <cstdint>
#include <string>

#include "zone/device.h"
#include "zone/status.h"

namespace furrow::emu {

inline constexpr const char* kNoDirectIo = "no direct I/O here; ?direct=0 does without";
inline constexpr const char* kDirectIoOfPages =
    "direct I/O here needs 4 KiB: use lba=4096 or ?direct=0";

// An owned file descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Fd& operator=(Fd&& other) noexcept;
  ~Fd();
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

struct OpenMode {
  Access access = Access::exclusive;  // inspect: without the lock
  bool create = false;                // make a regular file that does not exist
  bool direct = true;
};

struct EmuFile {
  Fd fd;
  bool block_device = false;
  bool created = false;
  std::uint64_t size_bytes = 0;
};

// Errors: not_found, permission (that of the user, or a file system or block device that is
// read-only), in_use (another process has it open; a process that was killed is waited for while
// the kernel ends its I/O), unsupported (neither file nor block device; no O_DIRECT), io_error.
Result<EmuFile> open_file(const std::string& path, const OpenMode& mode);

// The lock that open_file() takes, on a file that is open. Errors: in_use, io_error.
Status lock(int fd);
// Lets the next one open the file. Nothing may be in flight.
void unlock(int fd);

// "process 1234 (furrowd)": who holds the lock on the file; empty when nobody or unknown.
std::string lock_holder(const std::string& path);

// Does direct I/O on the file accept pieces of `bytes` bytes? (A 512-byte LBA on a disk with 4 KiB
// sectors does not.)
bool direct_io_accepts(int fd, std::uint32_t bytes);

// Of the file system that the file is in: its number in <linux/magic.h>, 0 if it cannot be told;
// and how much this process may still store there, 0 likewise.
std::uint64_t file_system_type(int fd);
std::uint64_t file_system_free_bytes(int fd);
// What the file has of it; 0 if it cannot be told.
std::uint64_t file_blocks_bytes(int fd);

// Has all of that part of the file blocks, written or not? Yes, where it cannot be told.
bool has_all_blocks(int fd, std::uint64_t begin, std::uint64_t end);

// May the process write a file of so many bytes? Where it may not (ulimit -f) the kernel answers
// with a signal as well, SIGXFSZ: of that a process that ignores it or has a handler notices
// nothing but the error, and any other one is ended. So only for that it is no_space.
Status check_size_limit(std::uint64_t bytes);

// Gives a part of the file, behind its end as well, blocks where it has none. An errno, or 0.
int allocate(int fd, std::uint64_t offset, std::uint64_t bytes);

}  // namespace furrow::emu
