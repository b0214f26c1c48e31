#include "zone/emu_device.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "zone/aligned_buffer.h"
#include "zone/emu_queue.h"
#include "zone/emu_superblocks.h"

namespace furrow::emu {

static_assert(std::endian::native == std::endian::little, "slots are stored as the CPU has them");

namespace {

Status check_openable(const EmuFile& file, const Superblock& superblock, const EmuOptions& options,
                      Access access) {
  if (access == Access::exclusive && (superblock.read_only & ~kKnownReadOnly) != 0) {
    return zone_failure(Code::unsupported,
                        "this build may only inspect the device: it has newer features");
  }
  if (file.size_bytes < superblock.end_offset()) {
    return zone_failure(
        Code::corrupt,
        "the file is shorter than its geometry: truncated, or an incomplete copy; restore "
        "it from a complete one");
  }
  if (options.direct && !direct_io_accepts(file.fd.get(), superblock.geometry.lba_bytes)) {
    return zone_failure(Code::unsupported, kDirectIoOfPages);
  }
  return {};
}

bool is_preallocated(const Superblock& superblock) {
  return (superblock.compatible & kPreallocated) != 0;
}

// Was it made so, and has not lost any of it? The file's blocks alone do not say: other parts of it
// have some, too.
bool is_preallocated_still(const EmuFile& file, const Superblock& superblock) {
  const std::uint64_t begin = superblock.data_offset, end = superblock.end_offset();
  const int fd = file.fd.get();
  return is_preallocated(superblock) && file_blocks_bytes(fd) >= end - begin &&
         has_all_blocks(fd, begin, end);
}

constexpr std::uint64_t kSectorBytesMax = 4096;  // of block devices

// Is there anything but zeroes? What cannot be read counts as something.
bool any_data(const EmuFile& file, std::uint64_t begin, std::uint64_t end) {
  constexpr std::uint64_t kPieceBytes = 1 << 20;
  const off_t data = lseek(file.fd.get(), static_cast<off_t>(begin), SEEK_DATA);
  if (data < 0 && errno == ENXIO) return false;
  if (data > 0) begin = std::max(begin, static_cast<std::uint64_t>(data) / kPageBytes * kPageBytes);
  AlignedBuffer piece(kPieceBytes);
  while (begin < end) {
    const std::uint64_t wanted = std::min(kPieceBytes, end - begin);
    const ssize_t got = pread(file.fd.get(), piece.data(), wanted, static_cast<off_t>(begin));
    if (got <= 0) return true;
    if (!all_zeroes(piece.span().first(static_cast<std::size_t>(got)))) return true;
    begin += static_cast<std::uint64_t>(got);
  }
  return false;
}

// A 64th of what the zones hold.
std::uint64_t ballast_pieces(const Superblock& superblock) {
  const std::uint64_t bytes = superblock.end_offset() - superblock.data_offset;
  return bytes / 64 / Ballast::kPieceBytes;
}

enum class Zeroing : std::uint8_t {
  give_back,  // the file's blocks
  as_new,     // it keeps them, and the file system takes them for blocks never written
  as_written,
};

Status zero(const EmuFile& file, Zeroing how, std::uint64_t begin, std::uint64_t end) {
  constexpr std::uint64_t kPieceBytes = 1 << 20;
  const int fd = file.fd.get();
  if (how != Zeroing::as_written) {
    const int mode = how == Zeroing::as_new ? FALLOC_FL_ZERO_RANGE : FALLOC_FL_PUNCH_HOLE;
    const int rc = fallocate(fd, mode | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin),
                             static_cast<off_t>(end - begin));
    // A block device that cannot zero by itself would take as long as its open zones are large.
    if (rc == 0 || file.block_device) return {};
  }
  AlignedBuffer zeroes(kPieceBytes);
  while (begin != end) {
    const ssize_t written =
        pwrite(fd, zeroes.data(), std::min(kPieceBytes, end - begin), static_cast<off_t>(begin));
    if (written < 0 && (errno == ENOSPC || errno == EDQUOT)) {
      return zone_failure(Code::no_space,
                          "the file system has no room to void what a crash left behind a write "
                          "pointer; make some",
                          errno);
    }
    if (written <= 0) {
      return zone_failure(Code::io_error,
                          "cannot void what a power cut left behind a write pointer", errno);
    }
    begin += static_cast<std::uint64_t>(written);
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<ZonedDevice>> EmuDevice::open(const EmuOptions& options, Access access,
                                                     std::string uri, bool mends) {
  OpenMode mode;
  mode.access = access;
  mode.direct = options.direct;
  Result<EmuFile> file = open_file(options.path, mode);
  if (!file) return file.status();
  const Result<Superblock> superblock = read_superblocks(*file);
  if (!superblock) return superblock.status();
  Status status = check_openable(*file, *superblock, options, access);
  if (!status.ok()) return status;
  const bool writable = access == Access::exclusive;
  if (writable && !file->block_device) status = check_size_limit(superblock->end_offset());
  if (!status.ok()) return status;
  std::unique_ptr<EmuDevice> device(
      new EmuDevice(std::move(*file), *superblock, access, options, std::move(uri)));
  device->damaged_superblocks_ = damaged_superblocks(device->file_);
  if (mends) status = overwrite_unreadable(device->file_, *superblock);
  if (!status.ok()) return status;
  status = device->slots_.open(device->file_, *superblock, writable);
  // After a sync that failed the kernel takes what it holds of the table for written. Written
  // again, it is what the next sync vouches for.
  if (status.ok() && writable) status = device->slots_.store_again();
  if (!status.ok()) return status;
  device->load_table();
  status = device->reclaimer_.start();
  if (!status.ok()) return status;
  if (writable) status = device->void_tails();
  if (!status.ok()) return status;
  // Blocks that a preallocated file's zones have from the beginning are no left ones.
  const bool left = !mends && !device->file_.block_device && !is_preallocated(*superblock);
  if (left) device->reclaimer_.add_left();
  return std::unique_ptr<ZonedDevice>(std::move(device));
}

EmuDevice::EmuDevice(EmuFile file, const Superblock& superblock, Access access,
                     const EmuOptions& options, std::string uri)
    : ZonedDevice(superblock.geometry, std::move(uri)),
      file_(std::move(file)),
      superblock_(superblock),
      codec_(superblock),
      access_(access),
      preallocated_(is_preallocated_still(file_, superblock_)),
      reclaim_(
          options.reclaim.value_or(is_preallocated(superblock_) ? Reclaim::never : Reclaim::lazy)),
      io_mode_(options.io_mode),
      ballast_(
          file_.fd.get(), superblock_.end_offset(),
          access == Access::exclusive && !file_.block_device ? ballast_pieces(superblock_) : 0),
      next_copy_(superblock.geometry.zone_count, 0),
      table_(superblock.geometry, access == Access::exclusive ? this : nullptr),
      zero_ahead_(superblock_.geometry, table_),
      preallocation_(file_.fd.get(), superblock_,
                     access == Access::exclusive && options.direct &&
                         (!preallocated_ || reclaim_ != Reclaim::never)),
      reclaimer_(
          file_.fd.get(), superblock_, table_,
          [](void* self) { return static_cast<EmuDevice*>(self)->sync_table(); }, this,
          access == Access::exclusive ? reclaim_ : Reclaim::never) {}

// What the file has already, be it in zones that are empty, needs none of what is free.
std::uint64_t EmuDevice::missing_bytes() const {
  const int fd = file_.fd.get();
  if (file_.block_device) return 0;
  const std::uint64_t all = superblock_.data_offset +
                            geometry_.zone_count * geometry_.zone_capacity_bytes() +
                            ballast_.whole_bytes();
  const std::uint64_t there = file_blocks_bytes(fd) + file_system_free_bytes(fd);
  return all - std::min(all, there);
}

EmuDevice::~EmuDevice() {
  // The next one to open the file may write where this one would still punch.
  reclaimer_.finish();
  // Closing is not enough: a ring that is being taken apart may still hold the file.
  unlock(file_.fd.get());
}

void EmuDevice::load_table() {
  for (std::uint32_t i = 0; i < geometry_.zone_count; ++i) {
    const ZoneId zone{i};
    const auto a = codec_.decode(zone, slots_.load(0, zone));
    const auto b = codec_.decode(zone, slots_.load(1, zone));
    if (!a && !b) {
      table_.load(zone, {ZoneRecord::Class::offline, 0, 0},
                  "both of the zone's slots in the zone table are damaged");
      continue;
    }
    const bool use_a = a && (!b || !SlotCodec::newer(*b, *a));
    ZoneRecord record = use_a ? *a : *b;
    next_copy_[i] = use_a ? 1 : 0;
    if (record.data_tells) record.written_lbas = told_lbas(zone, record.written_lbas);
    if (a && b) {
      table_.load(zone, record);
      continue;
    }
    const bool vouched_for = load_half(zone, record);
    const ZoneRecord all{ZoneRecord::Class::full, record.generation, geometry_.zone_capacity_lbas};
    damaged_slots_.push_back(
        {zone, next_copy_[i],
         vouched_for ? slots_.load(use_a ? 0 : 1, zone) : codec_.encode(zone, all)});
  }
}

// The other slot is damaged. It may have been the newer one: then what was acknowledged since lies
// behind this one's write pointer. Where there is anything, all of the zone is readable, and whose
// data it is can tell what counts; nothing is written, nor zeroed, before it is reset. False: so.
bool EmuDevice::load_half(ZoneId zone, const ZoneRecord& record) {
  using Class = ZoneRecord::Class;
  const std::uint64_t capacity = geometry_.zone_capacity_lbas;
  const bool known = record.kind == Class::read_only || record.kind == Class::offline;
  const bool more = !known && any_data(file_, superblock_.offset_of(zone, record.written_lbas),
                                       superblock_.offset_of(zone, capacity));
  if (!more) {
    table_.load(zone, record);
    return true;
  }
  table_.load(zone, {Class::full, record.generation, capacity},
              "one of the zone's slots in the zone table is damaged, and the other does not vouch "
              "for all that the zone holds");
  return false;
}

// How far the zone is written by what its data tells. An LBA that cannot be read was written.
std::uint64_t EmuDevice::told_lbas(ZoneId zone, std::uint64_t from_lbas) const {
  const std::uint64_t begin = superblock_.offset_of(zone, from_lbas);
  std::uint64_t end = ahead_end_lbas(geometry_, from_lbas);
  AlignedBuffer data(superblock_.offset_of(zone, end) - begin);
  const ssize_t got = pread(file_.fd.get(), data.data(), data.size(), static_cast<off_t>(begin));
  const bool whole = got == static_cast<ssize_t>(data.size());
  const auto is_zero = [&](std::uint64_t lba) {
    const std::uint64_t at = superblock_.offset_of(zone, lba);
    if (!whole) return !any_data(file_, at, at + geometry_.lba_bytes);
    return all_zeroes(data.span().subspan(at - begin, geometry_.lba_bytes));
  };
  while (end > from_lbas && is_zero(end - 1)) --end;
  return end;
}

// A power cut may keep what was written behind the write pointer that it left. The next one could
// bring that to light: below a newer write pointer, where what was written since did not survive.
// (It may on a block device that cannot zero by itself.)
Status EmuDevice::void_tails() {
  // A preallocated file's blocks stay written, as far as looking at them takes no long time.
  constexpr std::uint64_t kWrittenBytesMax = 256 << 20;
  std::uint64_t may_write = preallocated_ && reclaim_ == Reclaim::never ? kWrittenBytesMax : 0;
  bool some = false;
  for (const ZoneInfo& zone : table_.report()) {
    if (zone.state != ZoneState::closed) continue;
    std::uint64_t begin = superblock_.offset_of(zone.zone, zone.written_lbas);
    std::uint64_t end = superblock_.offset_of(zone.zone, geometry_.zone_capacity_lbas);
    if (file_.block_device) {  // in whole sectors, whatever their size
      begin = (begin + kSectorBytesMax - 1) / kSectorBytesMax * kSectorBytesMax;
      end = end / kSectorBytesMax * kSectorBytesMax;
    }
    const off_t data = lseek(file_.fd.get(), static_cast<off_t>(begin), SEEK_DATA);
    const bool hole = data < 0 ? errno == ENXIO : static_cast<std::uint64_t>(data) >= end;
    if (hole || begin >= end) continue;
    Zeroing how = reclaim_ == Reclaim::never ? Zeroing::as_new : Zeroing::give_back;
    if (end - begin <= may_write) {
      how = Zeroing::as_written;
      may_write -= end - begin;
      if (!any_data(file_, begin, end)) continue;
    }
    const Status status = zero(file_, how, begin, end);
    if (!status.ok()) return status;
    some = true;
  }
  if (some && fdatasync(file_.fd.get()) != 0) {
    return zone_failure(Code::io_error, "cannot sync the device", errno);
  }
  return {};
}

Status EmuDevice::save(ZoneId zone, const ZoneRecord& record) {
  if (record.written_lbas == 0) {
    zero_ahead_.forget(zone);
    if (reclaim_ != Reclaim::never) preallocation_.forget(zone);
  }
  ZoneRecord slot = record;
  slot.data_tells = may_tell() && record.kind == ZoneRecord::Class::writable &&
                    zero_ahead_.slot_may_tell(zone, record.written_lbas);
  std::uint8_t& copy = next_copy_[zone.value];
  const Status status = slots_.store(copy, zone, codec_.encode(zone, slot));
  if (!status.ok()) return status;
  copy ^= 1;
  if (slot.data_tells) zero_ahead_.slot_stored(zone);
  return {};
}

Status EmuDevice::sync_table() {
  if (flush_failed_.load())
    return zone_failure(Code::io_error, "an earlier flush of the device failed");
  const Status status = slots_.sync();
  if (!status.ok()) flush_failed_.store(true);
  return status;
}

Result<std::unique_ptr<IoQueue>> EmuDevice::create_queue(unsigned depth) {
  return EmuQueue::create(*this, depth);
}

}  // namespace furrow::emu
