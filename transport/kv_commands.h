// KvCommands: the Key Value command set (CSI 1) on one reactor, from capsule to page operation and
// back. A value is received into, or sent from, the buffer that the device reads or writes: nothing
// is copied here.
//
// Threads: its reactor's. Nothing is allocated and no lock is taken.
#pragma once

#include <cstdint>

#include "transport/connection.h"
#include "transport/namespaces.h"

namespace furrow::transport {

class IoCommands;

class KvCommands {
 public:
  explicit KvCommands(IoCommands& io) : io_(io) {}

  // A command to one of its namespaces; answered by `io`.
  void execute(LocalNamespace& ns, Request& request);
  // The buffer is there.
  void start(Request& request);

 private:
  using Handler = void (KvCommands::*)(LocalNamespace&, Request&);
  static Handler handler(std::uint8_t opcode);

  void store(LocalNamespace& ns, Request& request);
  void retrieve(LocalNamespace& ns, Request& request);
  void remove(LocalNamespace& ns, Request& request);
  void exist(LocalNamespace& ns, Request& request);
  void list(LocalNamespace& ns, Request& request);
  void flush(LocalNamespace& ns, Request& request);

  void start_list(Request& request);
  static void store_pulled(Request& request);
  static void released(PageOp& op);
  void finish_operation(Request& request);
  void finish_retrieve(Request& request);
  void finish_list(Request& request);

  void prepare(Request& request, PageOp::Kind kind);
  void submit(Request& request);

  IoCommands& io_;
};

}  // namespace furrow::transport
