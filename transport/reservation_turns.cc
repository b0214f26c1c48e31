// Changes of reservations, one after another for each namespace: decided, made durable by the
// pool's home executor if they are to persist, and told to all reactors and to the hosts that they
// concern.
#include <mutex>
#include <utility>
#include <vector>

#include "transport/reactor_impl.h"

namespace furrow::transport {

namespace sc = nvme::sc;

namespace {

// Of a change that could not be made durable.
std::uint16_t status_of_keeping(const Status& status) {
  if (status.ok()) return sc::kSuccess;
  return status.code() == Code::not_found ? sc::kInvalidNamespaceOrFormat : sc::kInternalError;
}

}  // namespace

void SubsystemImpl::reserve(ReservationTurn turn) {
  const std::shared_ptr<SharedReservations> reservations = turn.ns->reservations;
  const std::lock_guard lock(reservations->mutex);
  reservations->turns.push_back(std::move(turn));
  if (reservations->turns.size() == 1) take_turns(reservations);
}

void SubsystemImpl::take_turns(const std::shared_ptr<SharedReservations>& reservations) {
  while (!reservations->turns.empty()) {
    const ReservationTurn& turn = reservations->turns.front();
    Reservations next = reservations->state;
    Reservations::Outcome outcome = turn.decide(next);
    if (outcome.status != sc::kSuccess) next = reservations->state;
    const ReservationRecord wanted = next.record(turn.ns->volume_id);
    if (wanted == reservations->state.record(turn.ns->volume_id)) {
      end_turn(reservations, std::move(next), outcome);
      continue;
    }
    home_mailbox_.send([this, reservations, wanted, next = std::move(next),
                        outcome = std::move(outcome)]() mutable {
      pool_.keep_reservations(wanted, [this, reservations, next = std::move(next),
                                       outcome = std::move(outcome)](const Status& kept) mutable {
        outcome.status = status_of_keeping(kept);
        const std::lock_guard lock(reservations->mutex);
        end_turn(reservations, std::move(next), outcome);
        take_turns(reservations);
      });
    });
    return;
  }
}

void SubsystemImpl::end_turn(const std::shared_ptr<SharedReservations>& reservations,
                             Reservations next, const Reservations::Outcome& outcome) {
  const ReservationTurn turn = std::move(reservations->turns.front());
  reservations->turns.pop_front();
  if (outcome.status != sc::kSuccess) {
    turn.origin->mailbox().send([done = turn.done, status = outcome.status] { done(status); });
    return;
  }
  const bool was_held = reservations->state.held();
  reservations->state = std::move(next);
  // While nobody holds anything, reactors need not know who is registered.
  if (was_held || reservations->state.held() || turn.aborts) {
    publish(reservations, turn);
  } else {
    turn.origin->mailbox().send([done = turn.done] { done(sc::kSuccess); });
  }
  notify_reservations(turn.ns, outcome.notifications);
}

// Done when each reactor goes by it and, with `aborts`, has done what it was at.
void SubsystemImpl::publish(const std::shared_ptr<SharedReservations>& reservations,
                            const ReservationTurn& turn) {
  ReservationView& view = reservations->view;
  const Reservations& state = reservations->state;
  view = state.held() ? std::make_shared<const Reservations>(state) : nullptr;
  // When the last holder lets go, every reactor is done.
  const std::shared_ptr<void> all_done(turn.origin,
                                       [origin = turn.origin, done = turn.done](void*) {
                                         origin->mailbox().send([done] { done(sc::kSuccess); });
                                       });
  const std::lock_guard lock(mutex_);
  for (ReactorImpl* reactor : reactors_) {
    reactor->mailbox().send([reactor, reservations, view, aborts = turn.aborts, all_done] {
      reactor->io().reserve(*reservations, view, aborts ? all_done : nullptr);
    });
  }
}

void SubsystemImpl::notify_reservations(
    const std::shared_ptr<const Namespace>& ns,
    const std::vector<Reservations::Notification>& notifications) {
  if (notifications.empty()) return;
  const std::lock_guard lock(mutex_);
  for (const auto& [id, controller] : controllers_) {
    if (!controller->shared.alive || controller->kind() != Controller::Kind::nvm) continue;
    for (const Reservations::Notification& notification : notifications) {
      if (notification.host != controller->host().id) continue;
      controller->reactor().mailbox().send(
          [controller = controller, ns, notice = notification.notice] {
            controller->reservation_changed(*ns, notice);
          });
    }
  }
}

}  // namespace furrow::transport
