#include "transport/reservation_commands.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <vector>

#include "transport/command_checks.h"
#include "transport/nvme_reservation.h"
#include "transport/reactor_impl.h"

namespace furrow::transport {

namespace sc = nvme::sc;
namespace wire = nvme::reservation;

namespace {

using Payload = std::vector<std::byte>;

template <class T>
T decoded(const Payload& data) {
  T out;
  std::memcpy(&out, data.data(), sizeof out);
  return out;
}

std::uint32_t action_of(const nvme::Sqe& command) { return command.cdw10 & wire::kActionMask; }
bool ignores_key(const nvme::Sqe& command) {
  return (command.cdw10 & wire::kIgnoreExistingKey) != 0;
}
std::uint8_t type_of(const nvme::Sqe& command) {
  return static_cast<std::uint8_t>(command.cdw10 >> wire::kTypeShift);
}
bool is_type(std::uint8_t type) {
  return type != 0 && type <= static_cast<std::uint8_t>(Reservations::Type::exclusive_access_all);
}

// One entry for each host, as a subsystem with dynamic controllers has it.
Payload status_page(const Reservations& state) {
  const auto& registrants = state.registrants();
  Payload page(sizeof(wire::StatusHeader) +
               registrants.size() * sizeof(wire::RegisteredController));
  wire::StatusHeader header;
  header.gen = state.generation();
  header.rtype = static_cast<std::uint8_t>(state.type());
  const auto count = static_cast<std::uint16_t>(registrants.size());
  std::memcpy(header.regctl, &count, sizeof count);
  header.ptpls = state.persists() ? 1 : 0;
  std::memcpy(page.data(), &header, sizeof header);
  std::byte* at = page.data() + sizeof header;
  for (const Reservations::Registrant& registrant : registrants) {
    wire::RegisteredController entry;
    entry.rcsts = state.holds(registrant.host) ? 1 : 0;
    entry.rkey = registrant.key;
    std::copy(registrant.host.begin(), registrant.host.end(), entry.hostid);
    std::memcpy(at, &entry, sizeof entry);
    at += sizeof entry;
  }
  return page;
}

}  // namespace

void ReservationCommands::execute(const NamespacePtr& ns, Request& request) {
  if (const auto status = check_sgl(request); status != sc::kSuccess) {
    return reactor_.complete(request, status);
  }
  if (request.command.opc == wire::kReport) return report(*ns, request);
  // An identifier of 0 is nobody's: two such hosts are not the same one (5.27.1.25).
  if (Queue::of(request).controller->host().id == HostId{}) {
    return reactor_.complete(request, sc::kCommandSequenceError);
  }
  switch (request.command.opc) {
    case wire::kRegister:
      return enrol(ns, request);
    case wire::kAcquire:
      return acquire(ns, request);
    default:
      return release(ns, request);
  }
}

void ReservationCommands::enrol(const NamespacePtr& ns, Request& request) {
  const nvme::Sqe& command = request.command;
  const std::uint32_t persist = command.cdw10 >> wire::kPersistShift;
  const auto action = static_cast<Reservations::Enrolment>(action_of(command));
  if (action > Reservations::Enrolment::replace || persist == wire::kPersistReserved) {
    return reactor_.complete(request, sc::kInvalidField);
  }
  reactor_.pull(request, sizeof(wire::RegisterData),
                [this, ns, action, persist](Request& pulled, const Payload& data) {
                  const auto keys = decoded<wire::RegisterData>(data);
                  const bool ignore = ignores_key(pulled.command);
                  change(ns, pulled, false, [=](Reservations& state, const HostId& host) {
                    if (persist != wire::kPersistKeep) {
                      state.set_persists(persist == wire::kPersistOn);
                    }
                    return state.enrol(host, action, ignore, keys.crkey, keys.nrkey);
                  });
                });
}

void ReservationCommands::acquire(const NamespacePtr& ns, Request& request) {
  const nvme::Sqe& command = request.command;
  const auto action = static_cast<Reservations::Acquisition>(action_of(command));
  if (action > Reservations::Acquisition::preempt_and_abort || ignores_key(command) ||
      !is_type(type_of(command))) {
    return reactor_.complete(request, sc::kInvalidField);
  }
  reactor_.pull(request, sizeof(wire::AcquireData),
                [this, ns, action](Request& pulled, const Payload& data) {
                  const auto keys = decoded<wire::AcquireData>(data);
                  const auto type = static_cast<Reservations::Type>(type_of(pulled.command));
                  const bool aborts = action == Reservations::Acquisition::preempt_and_abort;
                  change(ns, pulled, aborts, [=](Reservations& state, const HostId& host) {
                    return state.acquire(host, action, type, keys.crkey, keys.prkey);
                  });
                });
}

void ReservationCommands::release(const NamespacePtr& ns, Request& request) {
  const nvme::Sqe& command = request.command;
  const auto action = static_cast<Reservations::Surrender>(action_of(command));
  if (action > Reservations::Surrender::clear || ignores_key(command)) {
    return reactor_.complete(request, sc::kInvalidField);
  }
  reactor_.pull(request, sizeof(wire::ReleaseData),
                [this, ns, action](Request& pulled, const Payload& data) {
                  const auto keys = decoded<wire::ReleaseData>(data);
                  const auto type = static_cast<Reservations::Type>(type_of(pulled.command));
                  change(ns, pulled, false, [=](Reservations& state, const HostId& host) {
                    return state.release(host, action, type, keys.crkey);
                  });
                });
}

// Hosts over fabrics have identifiers of 128 bits, which the short structure has no room for.
void ReservationCommands::report(const Namespace& ns, Request& request) {
  const nvme::Sqe& command = request.command;
  if ((command.cdw11 & wire::kExtended) == 0) {
    return reactor_.complete(request, sc::kHostIdInconsistent);
  }
  const std::uint64_t bytes = (std::uint64_t{command.cdw10} + 1) * 4;
  if (bytes > reactor_.io().transfer_bytes_max()) {
    return reactor_.complete(request, sc::kInvalidField);
  }
  Payload page;
  const std::uint16_t status = or_interrupted([&] {
    const std::lock_guard lock(ns.reservations->mutex);
    page = status_page(ns.reservations->state);
    page.resize(bytes);
    return sc::kSuccess;
  });
  if (status != sc::kSuccess) return reactor_.complete(request, status);
  (void)reactor_.reply(request, std::move(page));
}

void ReservationCommands::change(const NamespacePtr& ns, Request& request, bool aborts,
                                 const Decide& decide) {
  const HostId& host = Queue::of(request).controller->host().id;
  reactor_.subsystem().reserve(
      {ns, [decide, host](Reservations& state) { return decide(state, host); }, aborts, &reactor_,
       [this, &request](std::uint16_t status) { reactor_.complete(request, status); }});
}

}  // namespace furrow::transport
