// What a controller has to do with reservations beside the commands: the features Host Identifier,
// Reservation Notification Mask and Reservation Persistence (Base specification 2.0, 5.27.1.25 to
// 5.27.1.27), and the notifications.
#include <mutex>
#include <utility>

#include "transport/nvme_reservation.h"
#include "transport/reactor_impl.h"

namespace furrow::transport {

namespace sc = nvme::sc;

namespace {

constexpr std::uint32_t kExtendedHostId = 1;  // EXHID
constexpr std::uint32_t kNotices = 0x0e;      // bit 1 to 3, one for each
constexpr std::uint32_t kPersists = 1;        // PTPL

}  // namespace

// It was told at Connect: over fabrics it can be asked for, in its full length only.
void Controller::get_host_id(Request& request) {
  if ((request.command.cdw11 & kExtendedHostId) == 0) return fail(request, sc::kInvalidField);
  request.completion.dw0 = kExtendedHostId;
  reply(request, std::as_bytes(std::span(host_.id)));
}

std::shared_ptr<const Namespace> Controller::seen(std::uint32_t nsid) const {
  auto ns = subsystem_.namespaces()->find(nsid);
  return ns != nullptr && command_sets().has(ns->csi()) ? ns : nullptr;
}

std::uint16_t Controller::get_reservation_mask(const nvme::Sqe& command, std::uint32_t& value) {
  if (command.nsid == nvme::kNsidAll) return sc::kInvalidField;
  const auto ns = seen(command.nsid);
  if (ns == nullptr) return sc::kInvalidNamespaceOrFormat;
  value = reservation_log_.mask(*ns);
  return sc::kSuccess;
}

std::uint16_t Controller::set_reservation_mask(const nvme::Sqe& command, std::uint32_t&) {
  const auto mask = static_cast<std::uint8_t>(command.cdw11 & kNotices);
  if (command.nsid != nvme::kNsidAll) {
    const auto ns = seen(command.nsid);
    if (ns == nullptr) return sc::kInvalidNamespaceOrFormat;
    reservation_log_.set_mask(*ns, mask);
    return sc::kSuccess;
  }
  const auto table = subsystem_.namespaces();
  for (const auto& ns : table->all()) reservation_log_.set_mask(*ns, mask);
  return sc::kSuccess;
}

std::uint16_t Controller::get_reservation_persistence(const nvme::Sqe& command,
                                                      std::uint32_t& value) {
  if (command.nsid == nvme::kNsidAll) return sc::kInvalidField;
  const auto ns = seen(command.nsid);
  if (ns == nullptr) return sc::kInvalidNamespaceOrFormat;
  const std::lock_guard lock(ns->reservations->mutex);
  value = ns->reservations->state.persists() ? kPersists : 0;
  return sc::kSuccess;
}

// Answered when it is done in each namespace, with the first failure.
void Controller::set_reservation_persistence(Request& request) {
  const std::uint32_t nsid = request.command.nsid;
  std::vector<std::shared_ptr<const Namespace>> chosen;
  const auto table = subsystem_.namespaces();
  for (const auto& ns : table->all()) {
    const bool asked = nsid == nvme::kNsidAll || ns->nsid == nsid;
    if (asked && command_sets().has(ns->csi())) chosen.push_back(ns);
  }
  if (chosen.empty() && nsid != nvme::kNsidAll) return fail(request, sc::kInvalidNamespaceOrFormat);
  if (chosen.empty()) return succeed(request);
  struct All {
    std::shared_ptr<Controller> self;
    Request* request;
    std::size_t left;
    std::uint16_t status = sc::kSuccess;
  };
  const auto all = std::make_shared<All>(All{shared_from_this(), &request, chosen.size()});
  const auto done = [all](std::uint16_t status) {
    if (all->status == sc::kSuccess) all->status = status;
    if (--all->left != 0) return;
    // Others may hold `all` for a while, on other threads, which must not be the controller's last.
    const std::shared_ptr<Controller> self = std::move(all->self);
    all->status == sc::kSuccess ? self->succeed(*all->request)
                                : self->fail(*all->request, all->status);
  };
  const auto decide = [persists = (request.command.cdw11 & kPersists) != 0](Reservations& state) {
    state.set_persists(persists);
    return Reservations::Outcome();
  };
  for (const auto& ns : chosen) subsystem_.reserve({ns, decide, false, &reactor_, done});
}

void Controller::reservation_changed(const Namespace& ns, Reservations::Notice notice) {
  if (state_ == State::ended || seen(ns.nsid) == nullptr) return;
  if (reservation_log_.add(ns, notice)) raise(Event::reservations);
}

}  // namespace furrow::transport
