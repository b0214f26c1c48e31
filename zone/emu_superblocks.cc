#include "zone/emu_superblocks.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "zone/aligned_buffer.h"

namespace furrow::emu {

namespace {

// `page`: what it stands in.
Result<Superblock> read_superblock(const EmuFile& file, std::uint64_t offset, AlignedBuffer& page) {
  const ssize_t got = pread(file.fd.get(), page.data(), page.size(), static_cast<off_t>(offset));
  if (got < 0) return zone_failure(Code::io_error, "cannot read the superblock", errno);
  if (static_cast<std::size_t>(got) < kSuperblockBytes) {
    return zone_failure(Code::foreign, "too short for an emulated zoned device; make one first");
  }
  return decode(page.span().first<kSuperblockBytes>());
}

}  // namespace

Result<Superblock> read_superblocks(const EmuFile& file) {
  AlignedBuffer page(kPageBytes);
  Result<Superblock> first = read_superblock(file, kSuperblockOffsets[0], page);
  if (first || first.status().code() == Code::unsupported) return first;
  const Result<Superblock> second = read_superblock(file, kSuperblockOffsets[1], page);
  if (second || second.status().code() == Code::unsupported) return second;
  return first;
}

std::vector<std::uint64_t> damaged_superblocks(const EmuFile& file) {
  std::optional<AlignedBuffer> whole;
  std::vector<std::uint64_t> damaged;
  for (const std::uint64_t offset : kSuperblockOffsets) {
    AlignedBuffer page(kPageBytes);
    const Result<Superblock> found = read_superblock(file, offset, page);
    if (!found) {
      if (found.status().code() != Code::unsupported) damaged.push_back(offset);
    } else if (!whole) {
      whole = std::move(page);
    } else if (std::memcmp(whole->data(), page.data(), kSuperblockBytes) != 0) {
      damaged.push_back(offset);
    }
  }
  return damaged;
}

Status mend_superblock(const EmuFile& file, std::uint64_t damaged) {
  const std::uint64_t other =
      damaged == kSuperblockOffsets[0] ? kSuperblockOffsets[1] : kSuperblockOffsets[0];
  AlignedBuffer page(kPageBytes);
  const Result<Superblock> whole = read_superblock(file, other, page);
  if (!whole) return whole.status();
  const int fd = file.fd.get();
  const ssize_t written = pwrite(fd, page.data(), page.size(), static_cast<off_t>(damaged));
  const bool short_of_it = written >= 0 && written != static_cast<ssize_t>(page.size());
  if (short_of_it || written < 0 || fdatasync(fd) != 0) {
    const int error = short_of_it ? EIO : errno;
    const bool full = error == ENOSPC || error == EDQUOT;
    return zone_failure(full ? Code::no_space : Code::io_error,
                        "cannot write the device's superblock", error);
  }
  return {};
}

}  // namespace furrow::emu
