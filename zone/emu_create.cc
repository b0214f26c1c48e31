// Making an emulated zoned device: what is there already, and the order of the writes.
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "zone/aligned_buffer.h"
#include "zone/descriptors.h"
#include "zone/emu_device.h"

namespace furrow::emu {

namespace {

constexpr std::uint64_t kProbeBytes = 1u << 20;

Status write_error(int error) {
  if (error == EFBIG) {
    return zone_failure(Code::no_space,
                        "the file system does not take a file as large as this device", error);
  }
  if (error == ENOSPC || error == EDQUOT) {
    return zone_failure(Code::no_space, "no room for the emulated device's metadata", error);
  }
  if (error == EMFILE) return zone_failure(Code::io_error, kNoDescriptor, error);
  return zone_failure(Code::io_error, "cannot write the emulated device's metadata", error);
}

constexpr Status kHasDevice(
    Code::foreign, Origin::zone,
    "there is an emulated zoned device already; --force of a command that has it "
    "overwrites it");
constexpr Status kHasData(Code::foreign, Origin::zone,
                          "there is data already; --force of a command that has it overwrites it");

// Is there anything? Of a file all of it is looked at (its holes cost nothing), of a block device
// the first MiB, where every file system of note leaves a mark, and the last one, for partition
// tables and arrays that are described at the end.
Status check_unused(const EmuFile& file) {
  AlignedBuffer piece(kProbeBytes);
  const auto read_at = [&](std::uint64_t offset) -> Result<std::string_view> {
    std::size_t got = 0;
    while (got < piece.size()) {
      const ssize_t rc = pread(file.fd.get(), piece.data() + got, piece.size() - got,
                               static_cast<off_t>(offset + got));
      if (rc < 0 && errno == EINTR) continue;
      if (rc < 0) return zone_failure(Code::io_error, "cannot read what is there", errno);
      if (rc == 0) break;
      got += static_cast<std::size_t>(rc);
    }
    return std::string_view(reinterpret_cast<const char*>(piece.data()), got);
  };
  for (std::uint64_t offset = 0; offset < file.size_bytes;) {
    const Result<std::string_view> text = read_at(offset);
    if (!text) return text.status();
    if (offset == 0 && text->starts_with(kUnfinished)) return {};
    if (text->find_first_not_of('\0') != std::string_view::npos) {
      return offset == 0 && text->starts_with("FurrowZD") ? kHasDevice : kHasData;
    }
    offset += kProbeBytes;
    if (file.block_device && offset < file.size_bytes) {
      offset = std::max(offset, file.size_bytes - std::min(file.size_bytes, kProbeBytes));
    } else if (!file.block_device) {
      const off_t data = lseek(file.fd.get(), static_cast<off_t>(offset), SEEK_DATA);
      if (data < 0) break;  // ENXIO: nothing but a hole is left
      offset = static_cast<std::uint64_t>(data);
    }
  }
  return {};
}

Status write_all(int fd, std::span<const std::byte> bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t rc = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (rc < 0 && errno == EINTR) continue;
    if (rc <= 0) return write_error(rc < 0 ? errno : EIO);
    bytes = bytes.subspan(static_cast<std::size_t>(rc));
    offset += static_cast<std::uint64_t>(rc);
  }
  return {};
}

Status sync(int fd) { return fsync(fd) == 0 ? Status() : write_error(errno); }

// Both copies of the table, all zones empty: written out, so that the mapping never meets a hole.
Status write_table(int fd, const Superblock& superblock) {
  const SlotCodec codec(superblock);
  AlignedBuffer copy(superblock.table_bytes);
  for (std::uint32_t i = 0; i < superblock.geometry.zone_count; ++i) {
    const std::uint64_t slot = codec.encode(ZoneId{i}, {});
    std::memcpy(copy.data() + std::size_t{i} * 8, &slot, 8);
  }
  for (const std::uint64_t offset : superblock.table_offset) {
    const Status status = write_all(fd, copy.span(), offset);
    if (!status.ok()) return status;
  }
  return {};
}

constexpr Status kNoRoom(Code::no_space, Origin::zone,
                         "the file system has no room for all of the device");

// Has the file system room for a file of so many bytes, in place of this one? Yes, where it does
// not tell.
bool has_room(const EmuFile& file, std::uint64_t bytes) {
  struct statvfs system {};
  if (fstatvfs(file.fd.get(), &system) != 0 || system.f_blocks == 0) return true;
  return file_system_free_bytes(file.fd.get()) + file_blocks_bytes(file.fd.get()) >= bytes;
}

// All that zones may hold, as zeroes, past the page cache where that can be.
Status write_zones(const EmuFile& file, const Superblock& superblock) {
  constexpr std::uint64_t kPieceBytes = 4u << 20;
  const int fd = file.fd.get();
  std::uint64_t at = superblock.data_offset;
  const std::uint64_t end = superblock.end_offset();
  const int error = allocate(fd, at, end - at);
  if (error == ENOSPC || error == EDQUOT) return kNoRoom;
  const int flags = fcntl(fd, F_GETFL);
  const bool direct =
      flags >= 0 && fcntl(fd, F_SETFL, flags | O_DIRECT) == 0 && direct_io_accepts(fd, kPageBytes);
  if (!direct) (void)fcntl(fd, F_SETFL, flags);
  const AlignedBuffer zeroes(kPieceBytes);
  Status status;
  while (status.ok() && at != end) {
    const std::uint64_t bytes = std::min(kPieceBytes, end - at);
    status = write_all(fd, zeroes.span().first(bytes), at);
    at += bytes;
  }
  if (direct) (void)fcntl(fd, F_SETFL, flags);
  return status;
}

// The superblock comes last, when all that it speaks of is durable: a crash leaves no device, or a
// whole one.
Status write_metadata(const EmuFile& file, const Superblock& superblock) {
  const int fd = file.fd.get();
  AlignedBuffer page(kPageBytes);
  std::memcpy(page.data(), kUnfinished.data(), kUnfinished.size());
  for (const std::uint64_t offset : kSuperblockOffsets) {
    const Status status = write_all(fd, page.span(), offset);
    if (!status.ok()) return status;
  }
  if (!file.block_device && ftruncate(fd, static_cast<off_t>(superblock.end_offset())) != 0) {
    return write_error(errno);
  }
  Status status = write_table(fd, superblock);
  if (status.ok() && (superblock.compatible & kPreallocated) != 0) {
    status = write_zones(file, superblock);
  }
  if (status.ok()) status = sync(fd);
  if (!status.ok()) return status;
  std::ranges::fill(page.span(), std::byte{0});
  encode(superblock, page.span().first<kSuperblockBytes>());
  for (const std::uint64_t offset : kSuperblockOffsets) {
    status = write_all(fd, page.span(), offset);
    if (!status.ok()) return status;
  }
  return sync(fd);
}

// So that the name of a new file is as durable as the file.
Status sync_directory(const std::string& path) {
  std::filesystem::path parent = std::filesystem::path(path).parent_path();
  if (parent.empty()) parent = ".";
  const Fd directory(open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0 || fsync(directory.get()) != 0) return write_error(errno);
  return {};
}

// On a file the zones get all of `size_bytes`; a block device must hold the metadata too.
Result<Superblock> plan(const EmuFile& file, DeviceShape shape) {
  if (shape.preallocate && file.block_device) {
    return zone_failure(Code::invalid_argument,
                        "a block device has all its blocks: preallocate files, and open this one "
                        "with ?reclaim=never where zones are to keep them");
  }
  std::array<std::byte, 16> uuid;
  if (getrandom(uuid.data(), uuid.size(), 0) != static_cast<ssize_t>(uuid.size())) {
    return zone_failure(Code::io_error, "no random numbers", errno);
  }
  if (shape.size_bytes == 0) {
    if (file.size_bytes == 0) return zone_failure(Code::invalid_argument, "say the device's size");
    shape.size_bytes = file.size_bytes;
  }
  Result<Geometry> geometry = geometry_of(shape);
  if (!geometry) return geometry.status();
  Superblock superblock = make_superblock(*geometry, uuid);
  if (shape.preallocate) superblock.compatible |= kPreallocated;
  if (!file.block_device) return superblock;
  while (superblock.end_offset() > file.size_bytes && geometry->zone_count > 1) {
    const std::uint64_t excess = superblock.end_offset() - file.size_bytes;
    const std::uint64_t zones = (excess + superblock.stride_bytes - 1) / superblock.stride_bytes;
    if (shape.size_bytes != file.size_bytes || zones >= geometry->zone_count) {
      return zone_failure(Code::invalid_argument,
                          "the block device has no room for zones of that size in all, and for "
                          "the emulated device's own structures; without a size all of it is used");
    }
    geometry->zone_count -= static_cast<std::uint32_t>(zones);
    superblock = make_superblock(*geometry, uuid);
  }
  if (superblock.end_offset() > file.size_bytes) {
    return zone_failure(Code::invalid_argument, "the block device is too small for one zone");
  }
  return superblock;
}

// Can it be opened as its URI says? Of a file that has no data yet that cannot be told.
Status check_direct(const EmuFile& file, const EmuOptions& options, std::uint32_t lba_bytes) {
  if (!options.direct) return {};
  const int fd = file.fd.get(), flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_DIRECT) != 0) {
    return zone_failure(Code::unsupported, kNoDirectIo, errno);
  }
  const bool accepts = direct_io_accepts(fd, lba_bytes);
  (void)fcntl(fd, F_SETFL, flags);
  return accepts ? Status() : zone_failure(Code::unsupported, kDirectIoOfPages);
}

Status format(const EmuFile& file, const EmuOptions& options, const DeviceShape& shape) {
  if (!shape.force) {
    const Status unused = check_unused(file);
    if (!unused.ok()) return unused;
  }
  const Result<Superblock> superblock = plan(file, shape);
  if (!superblock) return superblock.status();
  const std::uint32_t lba_bytes = superblock->geometry.lba_bytes;
  Status status = check_direct(file, options, lba_bytes);  // before anything is lost
  if (status.ok() && !file.block_device) status = check_size_limit(superblock->end_offset());
  if (!status.ok()) return status;
  if (shape.preallocate && !has_room(file, superblock->end_offset())) return kNoRoom;
  // Old contents of a file go first: their space, and their bytes.
  if (!file.block_device && ftruncate(file.fd.get(), 0) != 0) return write_error(errno);
  status = write_metadata(file, *superblock);
  if (status.ok()) status = check_direct(file, options, lba_bytes);
  if (!status.ok() && !file.block_device) (void)ftruncate(file.fd.get(), 0);  // it had got some
  if (!status.ok() || !file.created) return status;
  return sync_directory(options.path);
}

}  // namespace

Status create(const EmuOptions& options, const DeviceShape& shape) {
  if (shape.size_bytes != 0) {  // a mistake in the shape is told before anything is touched
    const Result<Geometry> geometry = geometry_of(shape);
    if (!geometry) return geometry.status();
  }
  OpenMode mode;
  mode.create = true;
  mode.direct = false;  // a few small writes, each synced
  const Result<EmuFile> file = open_file(options.path, mode);
  if (!file) return file.status();
  const Status status = format(*file, options, shape);
  if (!status.ok() && file->created) unlink(options.path.c_str());
  return status;
}

}  // namespace furrow::emu
