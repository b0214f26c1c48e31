// ZnsCommands: the Zoned Namespace command set (CSI 2) on one reactor, from capsule to zoned
// operation and back, for volumes of kind zoned. Data are received into, or sent from, the buffer
// that the device reads or writes; a report of zones is made in it.
//
// Threads: its reactor's. Nothing is allocated and no lock is taken.
#pragma once

#include <cstdint>

#include "engine/zoned/zoned_op.h"
#include "transport/connection.h"
#include "transport/namespaces.h"

namespace furrow::transport {

class IoCommands;

class ZnsCommands {
 public:
  explicit ZnsCommands(IoCommands& io) : io_(io) {}

  // A command to one of its namespaces; answered by `io`.
  void execute(LocalNamespace& ns, Request& request);
  // The buffer is there.
  void start(Request& request);

  static std::uint16_t status_of(const ZonedOp& op);

 private:
  void transfer(const Namespace& ns, Request& request, ZonedOp::Kind kind);
  void manage(Request& request);
  void receive(const Namespace& ns, Request& request);
  void report(const Namespace& ns, Request& request);

  void prepare(Request& request, ZonedOp::Kind kind);
  void submit(Request& request);
  static void data_pulled(Request& request);
  static void done(ZonedOp& op);
  void finish(Request& request);

  IoCommands& io_;
};

}  // namespace furrow::transport
