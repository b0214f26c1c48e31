// EmuDevice: a zoned device on a regular file or a block device (emu:PATH).
//
// What survives. Killed process: everything acknowledged, with exact write pointers, and without a
// system call for it where the file system allows that (EmuTable): the zone table in the file is
// updated before each completion. (Where the data tells how far a zone is written, see ZeroAhead,
// what was in flight may count as written, whole or not.) Power loss: what was acknowledged before
// an acknowledged flush; of the rest any sectors, the table's included, so that unflushed parts of
// a zone may hold its older bytes then. Open zones are closed, or empty, when the device is opened
// again.
//
// Failed writes seal their zone (see ZoneTable), and so does one that the table has no room for. A
// small one that the file system has no room for is given some (see Ballast). After a failed flush
// every later flush fails too: the kernel may have dropped what it could not write.
//
// Threads as ZonedDevice says. The file must not be truncated by others while it is open.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "zone/ballast.h"
#include "zone/device.h"
#include "zone/device_uri.h"
#include "zone/emu_file.h"
#include "zone/emu_layout.h"
#include "zone/emu_table.h"
#include "zone/preallocation.h"
#include "zone/reclaimer.h"
#include "zone/zero_ahead.h"
#include "zone/zone_table.h"

namespace furrow::emu {

class EmuDevice final : public ZonedDevice, private ZoneStore {
 public:
  // Errors as open_device().
  static Result<std::unique_ptr<ZonedDevice>> open(const EmuOptions& options, Access access,
                                                   std::string uri, bool mends = false);
  ~EmuDevice() override;

  Result<std::unique_ptr<IoQueue>> create_queue(unsigned depth) override;
  Result<std::vector<ZoneInfo>> report() override { return table_.report(); }
  ZoneInfo zone(ZoneId zone) const override { return table_.info(zone); }
  bool preallocated() const override { return preallocated_; }
  bool short_of_room() override { return !ballast_.whole(); }
  std::uint64_t missing_bytes() const override;
  std::vector<std::string> damage() const override;
  Status mend() override;

  // For tests: waits until the space of reset zones has been given back.
  void drain_reclaim() { reclaimer_.drain(); }

 private:
  friend class EmuQueue;
  struct DamagedSlot {
    ZoneId zone;
    unsigned copy = 0;
    std::uint64_t anew = 0;  // what it is to be
  };
  EmuDevice(EmuFile file, const Superblock& superblock, Access access, const EmuOptions& options,
            std::string uri);
  void load_table();
  bool load_half(ZoneId zone, const ZoneRecord& record);
  std::uint64_t told_lbas(ZoneId zone, std::uint64_t from_lbas) const;
  bool may_tell() const { return (superblock_.incompatible & kDataTells) != 0; }
  Status save(ZoneId zone, const ZoneRecord& record) override;
  Status mend_slots();
  Status sync_table();
  Status void_tails();

  EmuFile file_;
  const Superblock superblock_;
  std::vector<std::uint64_t> damaged_superblocks_;  // where they begin
  std::vector<DamagedSlot> damaged_slots_;          // beside a whole one each; by zone
  const SlotCodec codec_;
  const Access access_;
  const bool preallocated_;  // was made so, and has not lost any of it
  const Reclaim reclaim_;
  const IoMode io_mode_;
  EmuTable slots_;
  Ballast ballast_;
  std::vector<std::uint8_t> next_copy_;  // a zone: the copy that the next save() overwrites
  ZoneTable table_;
  std::atomic<bool> flush_failed_{false};
  ZeroAhead zero_ahead_;
  Preallocation preallocation_;
  Reclaimer reclaimer_;  // last: its thread uses all of the above
};

// create_device() for an emu: URI. Errors: foreign, in_use, no_space, invalid_argument, io_error.
Status create(const EmuOptions& options, const DeviceShape& shape);

}  // namespace furrow::emu
