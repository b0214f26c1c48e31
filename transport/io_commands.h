// IoCommands: the commands of one reactor's I/O queues: what all command sets have in common. The
// namespace and its command set are found here, page buffers lent and waited for, answers counted.
// What a command means, KvCommands, NvmCommands and ZnsCommands know.
//
// Threads: its reactor's. Nothing is allocated and no lock is taken.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/block/block_session.h"
#include "engine/pool.h"
#include "engine/zoned/zoned_session.h"
#include "transport/buffer_pool.h"
#include "transport/fused_commands.h"
#include "transport/kv_commands.h"
#include "transport/namespaces.h"
#include "transport/nvm_commands.h"
#include "transport/queue.h"
#include "transport/reservation_commands.h"
#include "transport/zns_commands.h"

namespace furrow::transport {

class ReactorImpl;

class IoCommands {
 public:
  IoCommands(ReactorImpl& reactor, std::unique_ptr<PageSession> session,
             std::uint64_t buffer_bytes_max, std::uint32_t transfer_bytes_max);

  // A command of an I/O queue.
  void execute(Request& request);
  // The new set of namespaces. `applied` is called when no command uses any that NSID `withdrawn`
  // (0: nobody waits for one) meant before.
  void apply(const NamespaceTable& table, std::uint32_t withdrawn, std::function<void()> applied);
  // What follows in the queue is not the second command that one of it waits for, or nothing does.
  void give_up_fused(Queue& queue, std::uint16_t status) { fused_.give_up_first(queue, status); }
  // Takes commands that wait for a buffer, or a second command, out again: those of `queue`, or the
  // one with this command identifier. Returns how many; each was completed with `status`.
  static constexpr std::int32_t kEveryCommand = -1;
  unsigned cancel_waiting(Queue& queue, std::int32_t cid, std::uint16_t status);
  // A change of a namespace's reservations. `drained` (null: nobody asks) is let go of when the
  // commands that the pool works on are done.
  void reserve(const SharedReservations& reservations, const ReservationView& view,
               const std::shared_ptr<void>& drained);
  // Makes all that was stored durable; `done` gets the first failure. For the control plane.
  void flush_all(std::function<void(Status)> done);
  bool idle() const {
    return buffers_.all_free() && flushes_ == 0 && blocks_.idle() && zoned_.idle();
  }
  bool buffers_registered() const { return registered_; }

  // For the command sets.
  KvCommands& kv() { return kv_; }
  NvmCommands& nvm() { return nvm_; }
  FusedCommands& fused() { return fused_; }
  ZnsCommands& zns() { return zns_; }
  PageSession& session() { return *session_; }
  BlockSession& blocks() { return blocks_; }
  ZonedSession& zoned() { return zoned_; }
  ReactorImpl& reactor() { return reactor_; }
  std::uint32_t transfer_bytes_max() const { return transfer_bytes_max_; }
  static LocalNamespace& namespace_of(const Request& request) {
    return *static_cast<LocalNamespace*>(request.context);
  }
  // Of a command that transfers data: a status.
  std::uint16_t check_data(const Request& request) const;
  // Then the command set's start(), with request.buffer; waits if none is free.
  void with_buffer(Request& request, std::uint32_t bytes);
  // Brings the host's data into the buffer, then calls `next`, if the command is to go on.
  void pull(Request& request, void (*next)(Request&));
  // The pool's work on a command begins, if a reservation does not forbid it (a status), and
  // pauses or ends: while it waits for memory or for its host, and with its answer.
  std::uint16_t begin(Request& request);
  void pause(Request& request);
  // What a command that changes something promises from its start on.
  static Durability durability_of(Request& request, bool fua);
  // And one that reads, of what it has read when it is answered.
  static Durability durability_of_read(bool fua) {
    return fua ? Durability::flushed : Durability::none;
  }
  // Of the first of a pair: the second fails with it. Flushes first where the write cache was on
  // when the command began, and is not any more.
  void complete(Request& request, std::uint16_t status);
  void push(Request& request, std::uint32_t bytes);  // of the buffer; success

 private:
  static void pulled(Request& request);
  void flush(Request& request);
  static void sent(Request& request);
  void end(Request& request);  // gives everything back
  void drain(LocalNamespace& ns);
  void start(Request& request);
  void cancel(Request& request, bool only_second, std::uint16_t status);
  bool try_buffer(Request& request, unsigned wanted);
  void add_waiting(Queue& queue, Request& request, unsigned wanted);
  void append_waiting(Queue& queue);
  void remove_waiting(Queue& queue);
  bool serve(Queue& queue);
  void serve_waiting();
  void retire(LocalNamespace& ns);
  void leave(LocalNamespace& ns);  // one command less uses it
  static void flush_released(PageOp& op);
  LocalNamespace* find(std::uint32_t nsid) {
    return nsid < by_nsid_.size() ? by_nsid_[nsid] : nullptr;
  }

  struct FlushAll;
  struct Retiring {
    std::vector<LocalNamespace*> waiting_for;
    std::function<void()> applied;
  };

  ReactorImpl& reactor_;
  std::unique_ptr<PageSession> session_;
  BlockSession blocks_;
  ZonedSession zoned_;
  KvCommands kv_;
  NvmCommands nvm_;
  FusedCommands fused_;
  ZnsCommands zns_;
  ReservationCommands reservations_;
  BufferPool buffers_;
  const std::uint32_t transfer_bytes_max_;
  bool registered_ = false;
  Queue* first_waiting_ = nullptr;  // queues with commands that wait for a buffer, in turn
  Queue* last_waiting_ = nullptr;
  std::vector<std::unique_ptr<LocalNamespace>> namespaces_;  // active and retiring
  std::vector<LocalNamespace*> by_nsid_;                     // active; null: none
  std::vector<Retiring> retiring_;
  unsigned flushes_ = 0;  // of flush_all(), in flight
};

}  // namespace furrow::transport
