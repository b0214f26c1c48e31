// ReservationCommands: Reservation Register, Acquire, Release and Report on one reactor, for
// namespaces of every command set (Base specification 2.0, 7.2 to 7.5). A change is answered when
// it is durable, if it is to persist, and all reactors go by it, and one that aborts (Preempt and
// Abort) when no command that any of them had begun before is still being worked on.
//
// Threads: its reactor's. Control plane: it may allocate, and takes the namespace's mutex for a
// short while.
#pragma once

#include <functional>
#include <memory>

#include "transport/connection.h"
#include "transport/namespaces.h"
#include "transport/reservations.h"

namespace furrow::transport {

class ReactorImpl;

class ReservationCommands {
 public:
  explicit ReservationCommands(ReactorImpl& reactor) : reactor_(reactor) {}

  // A reservation command to `ns`; it is answered here.
  void execute(const std::shared_ptr<const Namespace>& ns, Request& request);

 private:
  using NamespacePtr = std::shared_ptr<const Namespace>;
  using Decide = std::function<Reservations::Outcome(Reservations&, const HostId&)>;

  void enrol(const NamespacePtr& ns, Request& request);
  void acquire(const NamespacePtr& ns, Request& request);
  void release(const NamespacePtr& ns, Request& request);
  void report(const Namespace& ns, Request& request);
  void change(const NamespacePtr& ns, Request& request, bool aborts, const Decide& decide);

  ReactorImpl& reactor_;
};

}  // namespace furrow::transport
