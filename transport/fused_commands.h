// FusedCommands: the fused operation Compare and Write (Base specification 2.0, 3.4.2; NVM Command
// Set specification 1.0, 3.2.1) on one reactor: two commands that follow each other in one queue,
// of the same LBAs of a block namespace, of which the second is done if the first finds what it
// expects. Both or none: the engine compares and writes within one block of 4 KiB.
//
// The first command waits in its queue for the next one, whatever that is and however long it
// takes: without a buffer, and without a hold on its namespace, which may go meanwhile. From then
// on the first leads: it has the buffer that holds the data of both, and waits for it; the second
// is answered with it.
//
// Threads: its reactor's. Nothing is allocated and no lock is taken.
#pragma once

#include <cstdint>

#include "engine/block/block_op.h"
#include "transport/connection.h"
#include "transport/namespaces.h"
#include "transport/queue.h"

namespace furrow::transport {

class IoCommands;

class FusedCommands {
 public:
  // Of the data of each of both; a host may describe more than it transfers.
  static constexpr std::uint32_t kDataBytesMax = 32u << 10;

  explicit FusedCommands(IoCommands& io) : io_(io) {}

  // A command with FUSE set; `ns` is what it names, null: nothing.
  void execute(LocalNamespace* ns, Request& request);
  // What comes next in the queue is no second command, or nothing comes.
  void give_up_first(Queue& queue, std::uint16_t status);
  // Of a pair, its first command: the buffer is there; the engine is through.
  void start(Request& first);
  void finish(Request& first);
  // Answers both.
  void complete(Request& first, std::uint16_t its, std::uint16_t seconds);

 private:
  void second(LocalNamespace& ns, Request& request);
  void begin_pair(LocalNamespace& ns, Request& first, Request& second);
  std::uint16_t check(const Request& request, std::uint64_t bytes) const;
  static void first_pulled(Request& first);
  static void second_pulled(Request& second);
  static void done(BlockOp& op);

  IoCommands& io_;
};

}  // namespace furrow::transport
