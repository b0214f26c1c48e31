// ZoneStateMachine: every rule of the Zoned Namespace command set, as pure functions.
//
// The emulated device, the fault device and the NVMe-oF target all decide by these. Nothing here
// holds state, blocks or allocates; any thread. All positions and counts are LBAs.
// Rules: Zoned Namespace Command Set specification 1.1, sections 2.1 (states, write pointers,
// resources), 3.4.1 (Append), 3.4.3 (Zone Management Send) and 5.1 (reads).
#pragma once

#include <cstdint>

#include "zone/status.h"
#include "zone/types.h"

namespace furrow {

// NVMe status of a completion: SCT in bits 10:8, SC in bits 7:0.
namespace nvme_status {
inline constexpr std::uint16_t kSuccess = 0x000;
inline constexpr std::uint16_t kInvalidField = 0x002;
inline constexpr std::uint16_t kLbaOutOfRange = 0x080;
inline constexpr std::uint16_t kZoneBoundary = 0x1B8;
inline constexpr std::uint16_t kZoneFull = 0x1B9;
inline constexpr std::uint16_t kZoneReadOnly = 0x1BA;
inline constexpr std::uint16_t kZoneOffline = 0x1BB;
inline constexpr std::uint16_t kZoneInvalidWrite = 0x1BC;
inline constexpr std::uint16_t kTooManyActive = 0x1BD;
inline constexpr std::uint16_t kTooManyOpen = 0x1BE;
inline constexpr std::uint16_t kInvalidTransition = 0x1BF;
}  // namespace nvme_status

enum class ZoneAction : std::uint8_t {
  read,
  write,
  append,
  open,
  close,
  finish,
  reset,
  set_offline,
  power_loss,  // or controller reset: not a command; never fails
};

struct ZoneRequest {
  ZoneAction action = ZoneAction::read;
  Lba lba;                      // read, write: first LBA; append: the command's ZSLBA field
  std::uint64_t lba_count = 0;  // read, write, append; at least 1
};

// The zone that the request is for, before the request.
struct ZoneView {
  ZoneId zone;
  ZoneState state = ZoneState::empty;
  std::uint64_t written_lbas = 0;  // write pointer - zone start; of a full zone: ignored
};

// The device's resources in use, before the request.
struct ZoneUsage {
  std::uint32_t open = 0;             // implicitly and explicitly open zones
  std::uint32_t active = 0;           // open and closed zones
  std::uint32_t implicitly_open = 0;  // those of `open` that the device may close by itself
};

struct ZoneDecision {
  std::uint16_t status = nvme_status::kSuccess;  // when not success, nothing below changes
  ZoneState state = ZoneState::empty;            // after the request
  std::uint64_t written_lbas = 0;                // after the request; of a full zone: the capacity
  std::uint64_t written_at = 0;  // append, write: offset in the zone of the first LBA
  int open_delta = 0;            // change of ZoneUsage::open, without the zone of close_one_first
  int active_delta = 0;          // change of ZoneUsage::active
  // One implicitly open zone, another than this one, must be closed before (ZNS 2.1.1.4.1).
  bool close_one_first = false;
};

class ZoneStateMachine {
 public:
  explicit constexpr ZoneStateMachine(const Geometry& geometry) : geometry_(geometry) {}

  // Order of checks: LBA range, fields of an append, state, write pointer, capacity, active
  // resources, open resources.
  ZoneDecision decide(const ZoneView& view, const ZoneUsage& usage,
                      const ZoneRequest& request) const;

  // Is a zone in this state acted on by the action with Select All?
  static bool selected_by_all(ZoneAction action, ZoneState state);
  // May the action with Select All start, with `selected` zones in the states that it acts on?
  // Only open can fail: it opens all closed zones or none (ZNS 3.4.3.1.4).
  std::uint16_t check_all(ZoneAction action, const ZoneUsage& usage, std::uint32_t selected) const;

 private:
  ZoneDecision decide_read(const ZoneView& view, const ZoneRequest& request) const;
  ZoneDecision decide_write(const ZoneView& view, const ZoneUsage& usage,
                            const ZoneRequest& request) const;
  ZoneDecision decide_open(const ZoneView& view, const ZoneUsage& usage) const;
  ZoneDecision decide_close(const ZoneView& view) const;
  ZoneDecision decide_finish(const ZoneView& view) const;
  ZoneDecision decide_reset(const ZoneView& view) const;
  ZoneDecision decide_offline(const ZoneView& view) const;
  ZoneDecision decide_power_loss(const ZoneView& view) const;
  // Adds what opening a zone in `from` takes, or the status that refuses it.
  void take_resources(ZoneState from, const ZoneUsage& usage, ZoneDecision& decision) const;

  Geometry geometry_;
};

constexpr bool is_open(ZoneState state) {
  return state == ZoneState::implicitly_open || state == ZoneState::explicitly_open;
}
constexpr bool is_active(ZoneState state) { return is_open(state) || state == ZoneState::closed; }

// The Status of an operation that the state machine answered with `status`; ok for success.
Status zone_status(std::uint16_t status);

}  // namespace furrow
