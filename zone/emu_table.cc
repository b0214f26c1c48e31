#include "zone/emu_table.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "zone/aligned_buffer.h"
#include "zone/descriptors.h"

namespace furrow::emu {

namespace {

Status store_error(int error) {
  if (error == ENOSPC || error == EDQUOT) {
    return zone_failure(Code::no_space,
                        "the file system under the emulated device has no room to write the "
                        "device's zone table; make some",
                        error);
  }
  return zone_failure(Code::io_error, "cannot write the zone table", error);
}

constexpr Status kUnreadable(Code::io_error, Origin::zone, "cannot read the zone table", EIO);

bool writes_in_place(const EmuFile& file) {
  if (file.block_device) return true;
  const std::uint64_t type = file_system_type(file.fd.get());
  return type == EXT4_SUPER_MAGIC || type == TMPFS_MAGIC;
}

}  // namespace

EmuTable::~EmuTable() {
  if (slots_ != nullptr) munmap(slots_, 2 * copy_bytes_);
}

Status EmuTable::open(const EmuFile& file, const Superblock& superblock, bool writable) {
  fd_ = file.fd.get();
  copy_bytes_ = superblock.table_bytes;
  const bool mapped = writable && writes_in_place(file);
  if (mapped && !file.block_device) {  // a copy of the file may have been made with holes
    const int error = allocate(fd_, kTableOffset, 2 * copy_bytes_);
    if (error != 0 && error != EOPNOTSUPP) return store_error(error);
  } else if (writable && !mapped) {
    const std::string same = "/proc/self/fd/" + std::to_string(fd_);
    writer_ = Fd(::open(same.c_str(), O_RDWR | O_CLOEXEC));
    if (writer_.get() < 0) return store_error(errno);
  }
  const std::size_t bytes = 2 * copy_bytes_;
  void* at = writable
                 ? mmap(nullptr, bytes, PROT_READ | (mapped ? PROT_WRITE : 0), MAP_SHARED, fd_,
                        static_cast<off_t>(kTableOffset))
                 : mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return zone_failure(Code::io_error, "cannot map the zone table", errno);
  slots_ = static_cast<std::uint64_t*>(at);
  return writable ? read_ahead() : read();
}

// What cannot be read is an error here, and would be a signal where it is looked at.
Status EmuTable::read_ahead() {
  if (madvise(slots_, 2 * copy_bytes_, MADV_POPULATE_READ) == 0) return {};
  if (errno == EINVAL) return {};  // before Linux 5.14
  return zone_failure(
      Code::io_error,
      "cannot read the zone table; where one copy of it can be read, `furrowctl pool check` does "
      "with that, and with --repair writes the other one anew",
      errno == EFAULT ? EIO : errno);
}

// Page by page where it has to be. One that cannot be read is damaged, in each of its slots; where
// that is so in both copies, nothing is known of its zones.
Status EmuTable::read() {
  if (read_part(0, 2 * copy_bytes_) == 0) return {};
  std::vector<bool> lost(copy_bytes_ / kPageBytes, false);
  for (std::uint64_t at = 0; at < 2 * copy_bytes_; at += kPageBytes) {
    const int error = read_part(at, kPageBytes);
    if (error == 0) continue;
    const std::uint64_t page = at % copy_bytes_ / kPageBytes;
    if (lost[page]) return zone_failure(Code::io_error, "cannot read the zone table", error);
    lost[page] = true;
    std::memset(slots_ + at / 8, 0xFF, kPageBytes);  // no zone is written so far
  }
  return {};
}

// An errno, or 0.
int EmuTable::read_part(std::uint64_t at, std::uint64_t bytes) {
  auto* const to = static_cast<std::byte*>(static_cast<void*>(slots_));
  const std::uint64_t end = at + bytes;
  while (at < end) {
    const ssize_t rc = pread(fd_, to + at, end - at, static_cast<off_t>(kTableOffset + at));
    if (rc < 0 && errno == EINTR) continue;
    if (rc <= 0) return rc < 0 ? errno : EIO;
    at += static_cast<std::uint64_t>(rc);
  }
  return 0;
}

std::uint64_t EmuTable::load(unsigned copy, ZoneId zone) const {
  return std::atomic_ref(slot(copy, zone)).load();
}

Status EmuTable::store(unsigned copy, ZoneId zone, std::uint64_t value) {
  if (writer_.get() >= 0) {
    return write(&value, sizeof value, copy * copy_bytes_ + std::uint64_t{zone.value} * 8);
  }
  std::atomic_ref(slot(copy, zone)).store(value, std::memory_order_release);
  return {};
}

Status EmuTable::write(const void* data, std::size_t bytes, std::uint64_t at) {
  while (bytes != 0) {
    const ssize_t done = pwrite(writer_.get(), data, bytes, static_cast<off_t>(kTableOffset + at));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return store_error(done < 0 ? errno : EIO);
    data = static_cast<const std::byte*>(data) + done;
    bytes -= static_cast<std::size_t>(done);
    at += static_cast<std::uint64_t>(done);
  }
  return {};
}

// Asked for by direct I/O, for which the kernel first writes what it has to write. (Without there
// is no telling.)
bool EmuTable::medium_has_it() const {
  if (!is_direct(fd_)) return false;
  AlignedBuffer there(2 * copy_bytes_);
  const ssize_t got = pread(fd_, there.data(), there.size(), static_cast<off_t>(kTableOffset));
  return got == static_cast<ssize_t>(there.size()) &&
         std::memcmp(there.data(), slots_, there.size()) == 0;
}

Status EmuTable::store_again() {
  if (writer_.get() >= 0) {
    if (medium_has_it()) return {};  // a full file system need not find room for it
    AlignedBuffer all(2 * copy_bytes_);
    std::memcpy(all.data(), slots_, all.size());
    return write(all.data(), all.size(), 0);
  }
  for (std::uint64_t i = 0; i < 2 * copy_bytes_ / 8; ++i) {
    const std::atomic_ref same(slots_[i]);
    same.store(same.load());
  }
  return {};
}

Status EmuTable::sync() {
  const int rc =
      writer_.get() >= 0 ? fdatasync(writer_.get()) : msync(slots_, 2 * copy_bytes_, MS_SYNC);
  return rc == 0 ? Status() : zone_failure(Code::io_error, "cannot sync the zone table", errno);
}

Status overwrite_unreadable(const EmuFile& file, const Superblock& superblock) {
  const int fd = file.fd.get();
  AlignedBuffer page(kPageBytes);
  const auto can_read = [&](std::uint64_t at) {
    return pread(fd, page.data(), page.size(), static_cast<off_t>(at)) == ssize_t{kPageBytes};
  };
  bool some = false;
  for (std::uint64_t at = 0; at < superblock.table_bytes; at += kPageBytes) {
    for (unsigned copy = 0; copy < 2; ++copy) {
      const std::uint64_t its = superblock.table_offset[copy] + at;
      if (can_read(its)) continue;
      if (!can_read(superblock.table_offset[copy ^ 1] + at)) return kUnreadable;
      std::memset(page.data(), 0xFF, page.size());
      const ssize_t done = pwrite(fd, page.data(), page.size(), static_cast<off_t>(its));
      if (done != ssize_t{kPageBytes}) return store_error(done < 0 ? errno : EIO);
      some = true;
    }
  }
  return !some || fdatasync(fd) == 0 ? Status() : store_error(errno);
}

}  // namespace furrow::emu
