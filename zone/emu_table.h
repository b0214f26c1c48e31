// EmuTable: the two copies of an emulated device's zone table, in its file.
//
// Slots are read from a mapping of the file. They are stored into it as well, without a system
// call, where a store into allocated blocks never wants new ones: on ext4, tmpfs and block devices.
// Other file systems may copy what is written (btrfs always, XFS after a reflink), and a mapped
// store that they have no room for ends the process; there each is a pwrite() to the same pages of
// the kernel's, which says so instead. Either way a store survives the process, and a sync of the
// file makes it durable. Who only looks has a copy in memory, of when it was opened: on a full
// tmpfs even to read a hole by a mapping wants room. There a page that cannot be read is damaged;
// who writes is refused.
//
// Threads: any; one at a time for a zone's slots.
#pragma once

#include <cstdint>

#include "zone/emu_file.h"
#include "zone/emu_layout.h"

namespace furrow::emu {

class EmuTable {
 public:
  EmuTable() = default;
  EmuTable(const EmuTable&) = delete;
  EmuTable& operator=(const EmuTable&) = delete;
  ~EmuTable();

  // `file` outlives it. Errors: io_error; no_space: a store could end the process.
  Status open(const EmuFile& file, const Superblock& superblock, bool writable);

  std::uint64_t load(unsigned copy, ZoneId zone) const;
  // Errors: no_space, io_error; nothing has changed then.
  Status store(unsigned copy, ZoneId zone, std::uint64_t slot);
  // Stores all slots as they are, where the medium may have others. Errors as store().
  Status store_again();
  // Makes all stores durable, device cache included. Errors: io_error.
  Status sync();

 private:
  std::uint64_t& slot(unsigned copy, ZoneId zone) const {
    return slots_[copy * (copy_bytes_ / 8) + zone.value];
  }
  Status read();
  int read_part(std::uint64_t at, std::uint64_t bytes);
  Status read_ahead();
  Status write(const void* data, std::size_t bytes, std::uint64_t at);
  bool medium_has_it() const;

  int fd_ = -1;  // of the file, as the device has it
  Fd writer_;    // without direct I/O; -1: stores go into the mapping
  std::uint64_t copy_bytes_ = 0;
  std::uint64_t* slots_ = nullptr;  // both copies, mapped, or of ours
};

// Of a table that is not open: a page that cannot be read, and of which the other copy can be, has
// nothing but damaged slots from then on, durably. Errors: io_error.
Status overwrite_unreadable(const EmuFile& file, const Superblock& superblock);

}  // namespace furrow::emu
