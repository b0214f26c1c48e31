// Features (Base specification 2.0, 5.27; Key Value Command Set 1.0, 4.1.6). None can be saved.
#include <algorithm>
#include <cstring>

#include "transport/reactor_impl.h"

namespace furrow::transport {

namespace sc = nvme::sc;

namespace {
constexpr std::uint32_t kHostBehaviorBytes = 512;
}

const Controller::FeatureHandler Controller::kFeatureHandlers[] = {
    {nvme::fid::kArbitration, &Controller::get_stored, &Controller::set_arbitration, false},
    {nvme::fid::kPowerManagement, &Controller::get_stored, &Controller::set_power, false},
    {nvme::fid::kTemperature, &Controller::get_temperature, &Controller::set_temperature, false},
    {nvme::fid::kErrorRecovery, &Controller::get_stored, &Controller::set_error_recovery, false},
    {nvme::fid::kWriteAtomicity, &Controller::get_stored, &Controller::set_write_atomicity, false},
    {nvme::fid::kVolatileWriteCache, &Controller::get_write_cache, nullptr, false},
    {nvme::fid::kQueues, &Controller::get_queues, &Controller::set_queues, false},
    {nvme::fid::kAsyncEvent, &Controller::get_async_event, &Controller::set_async_event, true},
    {nvme::fid::kKeepAlive, &Controller::get_keep_alive, &Controller::set_keep_alive, true},
    {nvme::fid::kCommandSetProfile, &Controller::get_command_set_profile,
     &Controller::set_command_set_profile, false},
    {nvme::fid::kReservationMask, &Controller::get_reservation_mask,
     &Controller::set_reservation_mask, false},
    {nvme::fid::kReservationPersistence, &Controller::get_reservation_persistence, nullptr, false},
    {nvme::fid::kKvConfig, &Controller::get_kv_config, &Controller::set_kv_config, false},
};

const Controller::FeatureHandler* Controller::feature_handler(std::uint8_t feature, Kind kind) {
  for (const FeatureHandler& handler : kFeatureHandlers) {
    if (handler.feature != feature) continue;
    return kind == Kind::nvm || handler.discovery ? &handler : nullptr;
  }
  return nullptr;
}

void Controller::get_features(Request& request) {
  const nvme::Sqe& command = request.command;
  const auto feature = static_cast<std::uint8_t>(command.cdw10);
  if ((command.cdw10 >> 8 & 7) != 0) return fail(request, sc::kInvalidField);  // SEL: current only
  if (feature == nvme::fid::kHostBehavior && kind_ == Kind::nvm) return get_host_behavior(request);
  if (feature == nvme::fid::kHostId && kind_ == Kind::nvm) return get_host_id(request);
  const FeatureHandler* handler = feature_handler(feature, kind_);
  if (handler == nullptr) return fail(request, sc::kInvalidField);
  std::uint32_t value = 0;
  const std::uint16_t status = (this->*handler->get)(command, value);
  if (status != sc::kSuccess) return fail(request, status);
  succeed(request, value);
}

void Controller::set_features(Request& request) {
  const nvme::Sqe& command = request.command;
  const auto feature = static_cast<std::uint8_t>(command.cdw10);
  if ((command.cdw10 & 1u << 31) != 0) return fail(request, sc::kFeatureNotSaveable);
  if (feature == nvme::fid::kHostBehavior && kind_ == Kind::nvm) return set_host_behavior(request);
  if (feature == nvme::fid::kVolatileWriteCache && kind_ == Kind::nvm) {
    return set_write_cache(request);
  }
  if (feature == nvme::fid::kReservationPersistence && kind_ == Kind::nvm) {
    return set_reservation_persistence(request);
  }
  // Connect has said it.
  if (feature == nvme::fid::kHostId && kind_ == Kind::nvm) {
    return fail(request, sc::kCommandSequenceError);
  }
  const FeatureHandler* handler = feature_handler(feature, kind_);
  if (handler == nullptr) return fail(request, sc::kInvalidField);
  std::uint32_t result = 0;
  const std::uint16_t status = (this->*handler->set)(command, result);
  if (status != sc::kSuccess) return fail(request, status);
  succeed(request, result);
}

void Controller::reset_features() {
  queues_granted_.store(subsystem_.options().io_queues_max, std::memory_order_relaxed);
  write_cache_.store(true, std::memory_order_relaxed);
  arbitration_ = error_recovery_ = write_atomicity_ = 0;
  temperature_over_ = 0xFFFF;
  temperature_under_ = 0;
  async_event_config_ = 0;
  warnings_ = 0;
  host_behavior_ = {};
  retry_delays_.store(false, std::memory_order_relaxed);
}

std::uint16_t Controller::get_stored(const nvme::Sqe& command, std::uint32_t& value) {
  switch (static_cast<std::uint8_t>(command.cdw10)) {
    case nvme::fid::kArbitration:
      value = arbitration_;
      break;
    case nvme::fid::kErrorRecovery:
      value = error_recovery_;
      break;
    case nvme::fid::kWriteAtomicity:
      value = write_atomicity_;
      break;
    default:
      value = 0;
  }
  return sc::kSuccess;
}

// A time limit for retries, which there are none of. Bit 16, DULBE: a deallocated block is no error
// here, as NSFEAT says.
std::uint16_t Controller::set_error_recovery(const nvme::Sqe& command, std::uint32_t&) {
  if ((command.cdw11 & 1u << 16) != 0) return sc::kInvalidField;
  error_recovery_ = command.cdw11 & 0xffff;
  return sc::kSuccess;
}

// Bit 0: the host does without AWUN. What is atomic is so at a power cut anyway.
std::uint16_t Controller::set_write_atomicity(const nvme::Sqe& command, std::uint32_t&) {
  write_atomicity_ = command.cdw11 & 1;
  return sc::kSuccess;
}

std::uint16_t Controller::set_arbitration(const nvme::Sqe& command, std::uint32_t&) {
  arbitration_ = command.cdw11;
  return sc::kSuccess;
}

std::uint16_t Controller::set_power(const nvme::Sqe& command, std::uint32_t&) {
  // One power state, number 0.
  return (command.cdw11 & 31) == 0 ? sc::kSuccess : sc::kInvalidField;
}

// The composite temperature only (TMPSEL 0); THSEL chooses the over or the under threshold.
std::uint16_t Controller::get_temperature(const nvme::Sqe& command, std::uint32_t& value) {
  const std::uint32_t which = command.cdw11 >> 20 & 3;
  if ((command.cdw11 >> 16 & 15) != 0 || which > 1) return sc::kInvalidField;
  value = which == 0 ? temperature_over_ : temperature_under_;
  return sc::kSuccess;
}

std::uint16_t Controller::set_temperature(const nvme::Sqe& command, std::uint32_t&) {
  const std::uint32_t which = command.cdw11 >> 20 & 3;
  const std::uint32_t sensor = command.cdw11 >> 16 & 15;
  if ((sensor != 0 && sensor != 15) || which > 1) return sc::kInvalidField;
  (which == 0 ? temperature_over_ : temperature_under_) = static_cast<std::uint16_t>(command.cdw11);
  return sc::kSuccess;
}

std::uint16_t Controller::get_write_cache(const nvme::Sqe&, std::uint32_t& value) {
  value = write_cache_enabled() ? 1 : 0;
  return sc::kSuccess;
}

// With the cache disabled every command that changes something is durable before it is answered,
// and Flush is for nothing: so what was answered before is made durable first. One after another,
// so that each is answered with what its host then has.
void Controller::set_write_cache(Request& request) {
  write_cache_sets_.push_back(&request);
  if (write_cache_sets_.size() == 1) switch_write_cache();
}

void Controller::switch_write_cache() {
  const bool enable = (write_cache_sets_.front()->command.cdw11 & 1) != 0;
  const bool to_be_flushed = !enable && write_cache_enabled();
  write_cache_.store(enable, std::memory_order_relaxed);
  if (!to_be_flushed) return write_cache_switched(Status());
  reactor_.io().flush_all(
      [self = shared_from_this()](Status status) { self->write_cache_switched(status); });
}

void Controller::write_cache_switched(const Status& flushed) {
  Request& request = *write_cache_sets_.front();
  write_cache_sets_.pop_front();
  if (!flushed.ok()) write_cache_.store(true, std::memory_order_relaxed);
  flushed.ok() ? succeed(request) : fail(request, sc::kInternalError);
  if (!write_cache_sets_.empty()) switch_write_cache();
}

std::uint16_t Controller::get_queues(const nvme::Sqe&, std::uint32_t& value) {
  const std::uint32_t granted = queues_granted() - 1u;  // 0's-based
  value = granted << 16 | granted;
  return sc::kSuccess;
}

std::uint16_t Controller::set_queues(const nvme::Sqe& command, std::uint32_t& result) {
  const std::uint32_t submission = command.cdw11 & 0xffff, completion = command.cdw11 >> 16;
  if (submission == 0xffff || completion == 0xffff) return sc::kInvalidField;
  const std::lock_guard lock(subsystem_.mutex());
  if (shared.queues.size() > 1) return sc::kCommandSequenceError;  // once they exist it is fixed
  const std::uint32_t pairs = std::min(submission, completion) + 1;
  queues_granted_.store(static_cast<std::uint16_t>(
                            std::min<std::uint32_t>(pairs, subsystem_.options().io_queues_max)),
                        std::memory_order_relaxed);
  return get_queues(command, result);
}

std::uint16_t Controller::get_async_event(const nvme::Sqe&, std::uint32_t& value) {
  value = async_event_config_;
  return sc::kSuccess;
}

std::uint16_t Controller::set_async_event(const nvme::Sqe& command, std::uint32_t&) {
  async_event_config_ = command.cdw11;
  drop_unasked_events();
  if (kind_ != Kind::discovery) health_changed();
  return sc::kSuccess;
}

std::uint16_t Controller::get_keep_alive(const nvme::Sqe&, std::uint32_t& value) {
  const std::uint32_t unit = kKeepAliveGranularityMs;
  value = (kato_ms_ + unit - 1) / unit * unit;
  return sc::kSuccess;
}

std::uint16_t Controller::set_keep_alive(const nvme::Sqe& command, std::uint32_t&) {
  if (command.cdw11 > kKatoMsMax) return sc::kKeepAliveInvalid;
  kato_ms_ = command.cdw11;
  arm_keep_alive();
  return sc::kSuccess;
}

// The only combination of I/O command sets is number 0.
std::uint16_t Controller::get_command_set_profile(const nvme::Sqe&, std::uint32_t& value) {
  value = 0;
  return sc::kSuccess;
}

std::uint16_t Controller::set_command_set_profile(const nvme::Sqe& command, std::uint32_t&) {
  return (command.cdw11 & 0x1ff) == 0 ? sc::kSuccess : sc::kCommandSetCombinationRejected;
}

std::uint16_t Controller::get_kv_config(const nvme::Sqe& command, std::uint32_t& value) {
  const auto ns = subsystem_.namespaces()->find(command.nsid);
  if (ns == nullptr || ns->csi() != nvme::csi::kKv) return sc::kInvalidNamespaceOrFormat;
  value = ns->delete_missing_is_error->load(std::memory_order_relaxed) ? 1 : 0;
  return sc::kSuccess;
}

std::uint16_t Controller::set_kv_config(const nvme::Sqe& command, std::uint32_t&) {
  const auto table = subsystem_.namespaces();
  bool any = false;
  for (const auto& ns : table->all()) {
    if (command.nsid != nvme::kNsidAll && command.nsid != ns->nsid) continue;
    if (ns->csi() != nvme::csi::kKv) continue;
    ns->delete_missing_is_error->store((command.cdw11 & 1) != 0, std::memory_order_relaxed);
    any = true;
  }
  return any || command.nsid == nvme::kNsidAll ? sc::kSuccess : sc::kInvalidNamespaceOrFormat;
}

void Controller::get_host_behavior(Request& request) {
  static_assert(sizeof host_behavior_ == kHostBehaviorBytes);
  reply(request, host_behavior_);
}

// Of what there is in it ACRE counts here; the rest is kept so that the host reads back what it
// set.
void Controller::set_host_behavior(Request& request) {
  reactor_.pull(request, kHostBehaviorBytes,
                [self = shared_from_this()](Request& pulled, const std::vector<std::byte>& data) {
                  std::copy_n(data.begin(), kHostBehaviorBytes, self->host_behavior_.begin());
                  self->retry_delays_.store(data[0] == std::byte{1}, std::memory_order_relaxed);
                  self->succeed(pulled);
                });
}

}  // namespace furrow::transport
