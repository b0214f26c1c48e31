#include "zone/zone_state_machine.h"

namespace furrow {

namespace {

ZoneDecision refuse(const ZoneView& view, std::uint16_t status) {
  ZoneDecision decision;
  decision.status = status;
  decision.state = view.state;
  decision.written_lbas = view.written_lbas;
  return decision;
}

ZoneDecision keep(const ZoneView& view) { return refuse(view, nvme_status::kSuccess); }

// A move to a state that holds no resources.
ZoneDecision release(const ZoneView& view, ZoneState to, std::uint64_t written_lbas) {
  ZoneDecision decision;
  decision.state = to;
  decision.written_lbas = written_lbas;
  decision.open_delta = is_open(view.state) ? -1 : 0;
  decision.active_delta = is_active(view.state) ? -1 : 0;
  return decision;
}

}  // namespace

ZoneDecision ZoneStateMachine::decide(const ZoneView& view, const ZoneUsage& usage,
                                      const ZoneRequest& request) const {
  switch (request.action) {
    case ZoneAction::read:
      return decide_read(view, request);
    case ZoneAction::write:
    case ZoneAction::append:
      return decide_write(view, usage, request);
    case ZoneAction::open:
      return decide_open(view, usage);
    case ZoneAction::close:
      return decide_close(view);
    case ZoneAction::finish:
      return decide_finish(view);
    case ZoneAction::reset:
      return decide_reset(view);
    case ZoneAction::set_offline:
      return decide_offline(view);
    case ZoneAction::power_loss:
      return decide_power_loss(view);
  }
  return refuse(view, nvme_status::kInvalidField);
}

ZoneDecision ZoneStateMachine::decide_read(const ZoneView& view, const ZoneRequest& request) const {
  const std::uint64_t device_lbas = geometry_.zone_count * geometry_.zone_size_lbas;
  if (request.lba_count > device_lbas || request.lba.value > device_lbas - request.lba_count) {
    return refuse(view, nvme_status::kLbaOutOfRange);
  }
  if (view.state == ZoneState::offline) return refuse(view, nvme_status::kZoneOffline);
  const std::uint64_t offset = request.lba.value - geometry_.zone_start(view.zone).value;
  // The boundary is the zone's size: its gap above the capacity reads as zeroes.
  if (offset + request.lba_count > geometry_.zone_size_lbas) {
    return refuse(view, nvme_status::kZoneBoundary);
  }
  return keep(view);
}

ZoneDecision ZoneStateMachine::decide_write(const ZoneView& view, const ZoneUsage& usage,
                                            const ZoneRequest& request) const {
  const std::uint64_t device_lbas = geometry_.zone_count * geometry_.zone_size_lbas;
  if (request.lba_count > device_lbas || request.lba.value > device_lbas - request.lba_count) {
    return refuse(view, nvme_status::kLbaOutOfRange);
  }
  const Lba start = geometry_.zone_start(view.zone);
  const bool append = request.action == ZoneAction::append;
  if (append && (request.lba != start || request.lba_count > geometry_.append_lbas_max)) {
    return refuse(view, nvme_status::kInvalidField);
  }
  if (view.state == ZoneState::full) return refuse(view, nvme_status::kZoneFull);
  if (view.state == ZoneState::read_only) return refuse(view, nvme_status::kZoneReadOnly);
  if (view.state == ZoneState::offline) return refuse(view, nvme_status::kZoneOffline);
  const std::uint64_t offset = append ? view.written_lbas : request.lba.value - start.value;
  if (offset != view.written_lbas) return refuse(view, nvme_status::kZoneInvalidWrite);
  if (request.lba_count > geometry_.zone_capacity_lbas - offset) {
    return refuse(view, nvme_status::kZoneBoundary);
  }
  ZoneDecision decision = keep(view);
  if (!is_open(view.state)) {
    take_resources(view.state, usage, decision);
    if (decision.status != nvme_status::kSuccess) return decision;
    decision.state = ZoneState::implicitly_open;
  }
  decision.written_at = offset;
  decision.written_lbas = offset + request.lba_count;
  if (decision.written_lbas == geometry_.zone_capacity_lbas) {
    decision.state = ZoneState::full;
    decision.open_delta -= 1;
    decision.active_delta -= 1;
  }
  return decision;
}

void ZoneStateMachine::take_resources(ZoneState from, const ZoneUsage& usage,
                                      ZoneDecision& decision) const {
  if (from == ZoneState::empty) {
    if (geometry_.active_zones_max != 0 && usage.active >= geometry_.active_zones_max) {
      decision.status = nvme_status::kTooManyActive;
      return;
    }
    decision.active_delta = 1;
  }
  if (geometry_.open_zones_max != 0 && usage.open >= geometry_.open_zones_max) {
    if (usage.implicitly_open == 0) {
      decision.active_delta = 0;
      decision.status = nvme_status::kTooManyOpen;
      return;
    }
    decision.close_one_first = true;
  }
  decision.open_delta = 1;
}

ZoneDecision ZoneStateMachine::decide_open(const ZoneView& view, const ZoneUsage& usage) const {
  ZoneDecision decision = keep(view);
  switch (view.state) {
    case ZoneState::empty:
    case ZoneState::closed:
      take_resources(view.state, usage, decision);
      if (decision.status != nvme_status::kSuccess) return decision;
      [[fallthrough]];
    case ZoneState::implicitly_open:
    case ZoneState::explicitly_open:
      decision.state = ZoneState::explicitly_open;
      return decision;
    default:
      return refuse(view, nvme_status::kInvalidTransition);
  }
}

ZoneDecision ZoneStateMachine::decide_close(const ZoneView& view) const {
  ZoneDecision decision = keep(view);
  if (view.state == ZoneState::closed) return decision;
  if (!is_open(view.state)) return refuse(view, nvme_status::kInvalidTransition);
  decision.state = ZoneState::closed;
  decision.open_delta = -1;
  return decision;
}

ZoneDecision ZoneStateMachine::decide_finish(const ZoneView& view) const {
  switch (view.state) {
    case ZoneState::full:
      return keep(view);
    case ZoneState::read_only:
    case ZoneState::offline:
      return refuse(view, nvme_status::kInvalidTransition);
    default:
      return release(view, ZoneState::full, geometry_.zone_capacity_lbas);
  }
}

ZoneDecision ZoneStateMachine::decide_reset(const ZoneView& view) const {
  if (view.state == ZoneState::read_only || view.state == ZoneState::offline) {
    return refuse(view, nvme_status::kInvalidTransition);
  }
  return release(view, ZoneState::empty, 0);
}

ZoneDecision ZoneStateMachine::decide_offline(const ZoneView& view) const {
  if (view.state != ZoneState::read_only && view.state != ZoneState::offline) {
    return refuse(view, nvme_status::kInvalidTransition);
  }
  return release(view, ZoneState::offline, view.written_lbas);
}

ZoneDecision ZoneStateMachine::decide_power_loss(const ZoneView& view) const {
  if (!is_active(view.state)) return keep(view);
  if (view.written_lbas == 0) return release(view, ZoneState::empty, 0);
  ZoneDecision decision = keep(view);
  decision.state = ZoneState::closed;
  decision.open_delta = is_open(view.state) ? -1 : 0;
  return decision;
}

bool ZoneStateMachine::selected_by_all(ZoneAction action, ZoneState state) {
  switch (action) {
    case ZoneAction::open:
      return state == ZoneState::closed;
    case ZoneAction::close:
      return is_open(state);
    case ZoneAction::finish:
      return is_active(state);
    case ZoneAction::reset:
      return is_active(state) || state == ZoneState::full;
    case ZoneAction::set_offline:
      return state == ZoneState::read_only;
    default:
      return false;
  }
}

std::uint16_t ZoneStateMachine::check_all(ZoneAction action, const ZoneUsage& usage,
                                          std::uint32_t selected) const {
  if (action != ZoneAction::open || geometry_.open_zones_max == 0) return nvme_status::kSuccess;
  // Implicitly open zones give way one by one, explicitly open ones do not.
  const std::uint64_t explicitly_open = usage.open - usage.implicitly_open;
  return explicitly_open + selected > geometry_.open_zones_max ? nvme_status::kTooManyOpen
                                                               : nvme_status::kSuccess;
}

Status zone_status(std::uint16_t status) {
  const auto make = [status](Code code, const char* hint) {
    return Status(code, Origin::zone, hint, 0, status);
  };
  switch (status) {
    case nvme_status::kSuccess:
      return {};
    case nvme_status::kInvalidField:
      return make(Code::invalid_argument, "the append is longer than the device's append limit");
    case nvme_status::kLbaOutOfRange:
      return make(Code::invalid_argument, "the LBA range ends beyond the device");
    case nvme_status::kZoneBoundary:
      return make(Code::zone_state, "the LBA range crosses the end of the zone");
    case nvme_status::kZoneFull:
      return make(Code::zone_state, "the zone is full; reset it first");
    case nvme_status::kZoneReadOnly:
      return make(Code::zone_state, "the zone is read-only");
    case nvme_status::kZoneOffline:
      return make(Code::zone_state, "the zone is offline: its data is lost");
    case nvme_status::kZoneInvalidWrite:
      return make(Code::zone_state, "the write is not at the zone's write pointer");
    case nvme_status::kTooManyActive:
      return make(Code::too_many_zones, "active zone limit reached; finish or reset a zone first");
    case nvme_status::kTooManyOpen:
      return make(Code::too_many_zones, "open zone limit reached; close a zone first");
    case nvme_status::kInvalidTransition:
      return make(Code::zone_state, "the zone's state does not allow this operation");
    default:
      return make(Code::io_error, "the device reports an error");
  }
}

}  // namespace furrow
