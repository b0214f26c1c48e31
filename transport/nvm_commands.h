// NvmCommands: the NVM command set (CSI 0) on one reactor, from capsule to block operation and
// back, for volumes of kind block. Data are received into, or sent from, the buffer that the device
// reads or writes.
//
// Threads: its reactor's. Nothing is allocated and no lock is taken.
#pragma once

#include <cstdint>

#include "engine/block/block_op.h"
#include "transport/connection.h"
#include "transport/namespaces.h"

namespace furrow::transport {

class IoCommands;

class NvmCommands {
 public:
  explicit NvmCommands(IoCommands& io) : io_(io) {}

  // A command to one of its namespaces; answered by `io`.
  void execute(LocalNamespace& ns, Request& request);
  // The buffer is there.
  void start(Request& request);

  // For fused commands as well.
  void prepare(Request& request, BlockOp::Kind kind);
  static Durability durability_of(Request& request);
  // The range of CDW10 to CDW12; a status.
  static std::uint16_t take_range(const Namespace& ns, Request& request);
  void submit(Request& request);
  static std::uint16_t status_of(const BlockOp& op);

 private:
  void transfer(LocalNamespace& ns, Request& request, BlockOp::Kind kind);
  void write_zeroes(LocalNamespace& ns, Request& request);
  void manage_datasets(LocalNamespace& ns, Request& request);
  void flush(Request& request);

  static void data_pulled(Request& request);
  static void ranges_pulled(Request& request);
  void next_range(Request& request);
  static void done(BlockOp& op);
  void finish(Request& request);

  IoCommands& io_;
};

}  // namespace furrow::transport
