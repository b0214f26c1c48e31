// NvmeDrive: a zoned namespace by NVMe passthrough (nvme:/dev/ng0n1): what it is, its zones and
// their management, by libnvme. Threads as Drive says.
//
// The kernel's block device of the same namespace is held too, so that nobody mounts or writes it:
// the block path and passthrough must not be mixed. Where the kernel has none, as for zones whose
// size is no power of two, the generic device itself is locked.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "zone/device.h"
#include "zone/drive.h"
#include "zone/drive_facts.h"
#include "zone/emu_file.h"
#include "zone/outage.h"

namespace furrow::nvme {

// Marks an NVMe status among the errors of Drive::transfer_error().
inline constexpr int kStatusFlag = 1 << 16;

class NvmeDrive final : public Drive {
 public:
  // Errors: not_found, permission, in_use, unsupported (no namespace's generic device, not zoned,
  // LBAs with metadata, zones that differ or may come to, Linux before 6.1), io_error.
  static Result<std::unique_ptr<NvmeDrive>> open(const std::string& path, Access access);
  ~NvmeDrive() override;

  int fd() const { return fd_.get(); }
  std::uint32_t nsid() const { return nsid_; }
  // What one command may transfer.
  const drive::RequestLimits& limits() const { return limits_; }

  using Drive::report;
  Result<std::vector<ZoneInfo>> report(ZoneId first, std::uint32_t count) const override;
  Status manage(Io::Op op, ZoneId zone) const override;
  Status take_changed(std::vector<ZoneId>& changed) const override;
  bool present() const override;
  bool appends() const override { return appends_; }
  Status transfer_error(int error, const char* hint) const override;

 private:
  NvmeDrive() = default;
  Status hold(const std::string& block, Access access);
  Status identify(const std::string& block);
  Status find_zones();
  Status find_appends();
  Status read_zones(ZoneId first, std::uint32_t count, std::vector<std::byte>& descriptors) const;
  template <class Command>
  int answered(Command command, bool once = false) const;

  int locked_fd() const { return block_.fd.get() >= 0 ? block_.fd.get() : fd_.get(); }

  emu::EmuFile block_;  // held, not used; none where the kernel hides it
  emu::Fd fd_;
  std::string folder_;  // of sysfs, as long as there is the device
  std::uint32_t nsid_ = 0;
  drive::RequestLimits limits_;
  bool appends_ = false;
  mutable Outage outage_;
};

// Has a reset of the controller, rather than the drive, failed a command with this status (NVMe,
// with Do Not Retry in bit 14)? It was done, or not.
bool is_interruption(int status);
// Does the drive not know what it was asked for, nor ever will?
bool is_refusal(int status);

// The zones of a Changed Zone List (Zoned Namespace Command Set specification, 4.1.4.1), each once;
// all of them where it says that there were more than it holds.
inline constexpr std::size_t kChangedZonesBytes = 4096;
std::vector<ZoneId> changed_zones(std::span<const std::byte, kChangedZonesBytes> log,
                                  const Geometry& geometry);
// The kernel's block device of the same namespace; empty where there is none.
std::string block_device(const std::string& path);
// Who holds the namespace; empty when nobody or unknown.
std::string holder(const std::string& path);
// Its world-wide identifier, or else its number; empty: there is none.
std::string identity(const std::string& path);

}  // namespace furrow::nvme
