#include "zone/emu_file.h"

#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <thread>
#include <utility>

#include "zone/aligned_buffer.h"
#include "zone/descriptors.h"

namespace furrow::emu {

namespace {

Status open_error(int error, bool creating) {
  switch (error) {
    case ENOENT:
      if (creating) {
        return zone_failure(Code::not_found, "its directory does not exist; make that first",
                            error);
      }
      return zone_failure(
          Code::not_found,
          "no such file; `furrowctl pool create`, or --create of a command that has "
          "it, makes the device",
          error);
    case EACCES:
    case EPERM:
      return zone_failure(Code::permission,
                          "this user may not open the file, or make it in its directory", error);
    case EROFS:
      return zone_failure(Code::permission,
                          "the file system is mounted read-only; mount it read-write (`furrowctl "
                          "pool check` and what only lists do without)",
                          error);
    case EEXIST:  // that to which nothing was there a moment ago
      return zone_failure(Code::not_found,
                          "this is a symbolic link to a file that is not there; name that file",
                          error);
    case EBUSY:
      return zone_failure(Code::in_use, "the block device is mounted or in use", error);
    case EINVAL:
      return zone_failure(Code::unsupported, kNoDirectIo, error);
    case EMFILE:
      return zone_failure(Code::io_error, kNoDescriptor, error);
    default:
      return zone_failure(Code::io_error, "cannot open the file", error);
  }
}

// The process that holds the exclusive BSD lock on the file, from /proc/locks; 0: none or unknown.
// (A shared one is none of ours: udevd takes it for a moment, to look at a device that was closed.)
// 1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF
pid_t lock_holder_pid(const struct stat& file) {
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    char kind[16], access[16];
    long pid = 0;
    unsigned major_id = 0, minor_id = 0;
    unsigned long inode = 0;
    if (std::sscanf(line.c_str(), "%*d: %15s %*s %15s %ld %x:%x:%lu", kind, access, &pid, &major_id,
                    &minor_id, &inode) != 6) {
      continue;
    }
    if (std::string_view(kind) == "FLOCK" && std::string_view(access) == "WRITE" &&
        inode == file.st_ino && makedev(major_id, minor_id) == file.st_dev && pid > 0) {
      return static_cast<pid_t>(pid);
    }
  }
  return 0;
}

// A process that ended, or of which only the exit status is left; or that was killed, or ends, and
// holds what it held until the kernel is done with it. proc(5), /proc/pid/stat:
// 1234 (furrowd) S 1 1234 1234 0 -1 FLAGS (21 more) PENDING-SIGNALS ...
bool is_ending(pid_t pid) {
  constexpr unsigned long kExiting = 0x4 | 0x8;  // PF_EXITING, PF_POSTCOREDUMP
  constexpr unsigned long kKilled = 1ul << (SIGKILL - 1);
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(stat, line)) return true;
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return true;
  char state = 0;
  unsigned long flags = 0, pending = 0;
  const int known = std::sscanf(line.c_str() + name_end + 1,
                                " %c %*d %*d %*d %*d %*d %lu %*u %*u %*u %*u %*u %*u %*d %*d %*d "
                                "%*d %*d %*d %*u %*u %*d %*u %*u %*u %*u %*u %*u %lu",
                                &state, &flags, &pending);
  if (known < 1 || state == 'Z' || state == 'X') return true;
  return (flags & kExiting) != 0 || (pending & kKilled) != 0;
}

// A block device of a killed process is busy until the kernel has ended its I/O, as the lock above;
// whose it is cannot be asked, so that each busy one is given that time.
int open_patiently(const std::string& path, int flags) {
  constexpr int kTries = 200;
  constexpr auto kStep = std::chrono::milliseconds(5);
  for (int i = 0;; ++i) {
    const int fd = open(path.c_str(), flags, 0640);
    if (fd >= 0 || errno != EBUSY || i == kTries) return fd;
    std::this_thread::sleep_for(kStep);
  }
}

Status check_type(const struct stat& info) {
  if (S_ISDIR(info.st_mode)) {
    return zone_failure(Code::unsupported, "this is a directory; name a file in it");
  }
  if (!S_ISREG(info.st_mode) && !S_ISBLK(info.st_mode)) {
    return zone_failure(Code::unsupported, "this is neither a regular file nor a block device");
  }
  return {};
}

bool is_link(const std::string& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode);
}

Status find_size(EmuFile& file) {
  struct stat info {};
  if (fstat(file.fd.get(), &info) != 0)
    return zone_failure(Code::io_error, "cannot stat the file", errno);
  if (S_ISREG(info.st_mode)) {
    file.size_bytes = static_cast<std::uint64_t>(info.st_size);
    return {};
  }
  if (const Status type = check_type(info); !type.ok()) return type;
  file.block_device = true;
  if (ioctl(file.fd.get(), BLKGETSIZE64, &file.size_bytes) != 0) {
    return zone_failure(Code::io_error, "cannot ask the block device for its size", errno);
  }
  return {};
}

// Linux opens it to be written all the same.
Status check_writable(const EmuFile& file) {
  int read_only = 0;
  if (!file.block_device || ioctl(file.fd.get(), BLKROGET, &read_only) != 0 || read_only == 0) {
    return {};
  }
  return zone_failure(Code::permission, "the block device is read-only (`blockdev --setrw`)",
                      EROFS);
}

}  // namespace

Fd& Fd::operator=(Fd&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Fd::~Fd() {
  if (fd_ >= 0) close(fd_);
}

Result<EmuFile> open_file(const std::string& path, const OpenMode& mode) {
  struct stat before {};
  const bool exists = stat(path.c_str(), &before) == 0;
  if (exists) {
    if (const Status type = check_type(before); !type.ok()) return type;
  }
  const bool locked = mode.access != Access::inspect;
  int flags = (mode.access == Access::exclusive ? O_RDWR : O_RDONLY) | O_CLOEXEC |
              (mode.direct ? O_DIRECT : 0);
  EmuFile file;
  if (exists && S_ISBLK(before.st_mode)) {
    if (locked) flags |= O_EXCL;  // refuses a mounted one
  } else if (!exists && mode.create) {
    flags |= O_CREAT | O_EXCL;
    file.created = true;
  }
  file.fd = Fd(open_patiently(path, flags));
  if (file.fd.get() < 0) {
    const int error = errno;
    // O_DIRECT is refused after the file was made.
    if (file.created && error == EINVAL) unlink(path.c_str());
    // Somebody else has made it meanwhile.
    if (file.created && error == EEXIST && !is_link(path)) return open_file(path, mode);
    return open_error(error, file.created);
  }
  // Reads need not ask each time when the file was read last. Who does not own it may not say so.
  const int current = fcntl(file.fd.get(), F_GETFL);
  if (current >= 0) (void)fcntl(file.fd.get(), F_SETFL, current | O_NOATIME);
  Status status = locked ? lock(file.fd.get()) : Status();
  if (status.ok()) status = find_size(file);  // whoever had the lock may have made the device
  if (status.ok() && mode.access == Access::exclusive) status = check_writable(file);
  if (!status.ok()) return status;
  return file;
}

// The lock of a killed process lives on until the kernel has ended it and the I/O that it had in
// flight, which a busy disk makes long: that one is waited for, a live one is not.
Status lock(int fd) {
  constexpr auto kUnknownMax = std::chrono::seconds(5);
  constexpr auto kEndingMax = std::chrono::seconds(60);
  constexpr auto kStep = std::chrono::milliseconds(2);
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return {};
    if (errno != EWOULDBLOCK) return zone_failure(Code::io_error, "cannot lock the file", errno);
    struct stat file {};
    if (fstat(fd, &file) != 0) return zone_failure(Code::io_error, "cannot stat the file", errno);
    const pid_t holder = lock_holder_pid(file);
    const bool ending = holder != 0 && is_ending(holder);
    const auto waited = std::chrono::steady_clock::now() - start;
    if ((holder != 0 && !ending) || waited > (ending ? kEndingMax : kUnknownMax)) {
      return zone_failure(
          Code::in_use,
          "the device is open already, here or in another process; close it there first");
    }
    std::this_thread::sleep_for(kStep);
  }
}

void unlock(int fd) { (void)flock(fd, LOCK_UN); }

std::string lock_holder(const std::string& path) {
  struct stat file {};
  if (stat(path.c_str(), &file) != 0) return {};
  const pid_t pid = lock_holder_pid(file);
  if (pid == 0) return {};
  std::string name;
  std::ifstream comm("/proc/" + std::to_string(pid) + "/comm");
  std::getline(comm, name);
  return "process " + std::to_string(pid) + (name.empty() ? "" : " (" + name + ")");
}

bool direct_io_accepts(int fd, std::uint32_t bytes) {
  AlignedBuffer buffer(bytes);
  return pread(fd, buffer.data(), bytes, bytes) >= 0 || errno != EINVAL;
}

std::uint64_t file_system_type(int fd) {
  struct statfs system {};
  return fstatfs(fd, &system) == 0 ? static_cast<std::uint64_t>(system.f_type) : 0;
}

std::uint64_t file_system_free_bytes(int fd) {
  struct statvfs system {};
  if (fstatvfs(fd, &system) != 0) return 0;
  const std::uint64_t blocks = geteuid() == 0 ? system.f_bfree : system.f_bavail;
  return blocks * system.f_frsize;
}

std::uint64_t file_blocks_bytes(int fd) {
  constexpr std::uint64_t kBlockBytes = 512;  // of st_blocks
  struct stat file {};
  return fstat(fd, &file) == 0 ? static_cast<std::uint64_t>(file.st_blocks) * kBlockBytes : 0;
}

bool has_all_blocks(int fd, std::uint64_t begin, std::uint64_t end) {
  constexpr std::uint32_t kExtents = 64;  // at a time
  alignas(fiemap) std::byte memory[sizeof(fiemap) + kExtents * sizeof(fiemap_extent)];
  while (begin < end) {
    std::memset(memory, 0, sizeof memory);
    auto& map = *reinterpret_cast<fiemap*>(memory);
    map.fm_start = begin;
    map.fm_length = end - begin;
    map.fm_extent_count = kExtents;
    if (ioctl(fd, FS_IOC_FIEMAP, &map) != 0) return true;
    if (map.fm_mapped_extents == 0) return false;
    const auto* const extents = reinterpret_cast<const fiemap_extent*>(&map + 1);
    for (std::uint32_t i = 0; i < map.fm_mapped_extents; ++i) {
      if (extents[i].fe_logical > begin) return false;
      begin = extents[i].fe_logical + extents[i].fe_length;
    }
  }
  return true;
}

Status check_size_limit(std::uint64_t bytes) {
  rlimit limit{};
  struct sigaction action {};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur >= bytes) return {};
  if (sigaction(SIGXFSZ, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return {};
  return zone_failure(Code::no_space,
                      "the process may not write files as large as the device's (ulimit -f), and "
                      "would be ended where it did: raise that limit, or ignore SIGXFSZ",
                      EFBIG);
}

int allocate(int fd, std::uint64_t offset, std::uint64_t bytes) {
  const int rc =
      fallocate(fd, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  return rc == 0 ? 0 : errno;
}

}  // namespace furrow::emu
