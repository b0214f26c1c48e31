// KvCommands: the I/O commands of the Key Value command set (CSI 1) on one reactor, from capsule to
// page operation and back. A value is received into, or sent from, the buffer that the device reads
// or writes: nothing is copied here.
//
// Threads: its reactor's. Nothing is allocated and no lock is taken.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/pool.h"
#include "transport/buffer_pool.h"
#include "transport/namespaces.h"
#include "transport/queue.h"

namespace furrow::transport {

class ReactorImpl;

class KvCommands {
 public:
  KvCommands(ReactorImpl& reactor, std::unique_ptr<PageSession> session,
             std::uint64_t buffer_bytes_max, std::uint32_t transfer_bytes_max);

  // A command of an I/O queue.
  void execute(Request& request);
  // The new set of namespaces. `applied` is called when no command uses one that went.
  void apply(const NamespaceTable& table, std::function<void()> applied);
  // Takes commands that wait for a buffer out again: those of `queue`, or the one with this command
  // identifier. Returns how many; each was completed with `status`.
  static constexpr std::int32_t kEveryCommand = -1;
  unsigned cancel_waiting(Queue& queue, std::int32_t cid, std::uint16_t status);
  // Makes all that was stored durable; `done` gets the first failure. For the control plane.
  void flush_all(std::function<void(Status)> done);
  bool idle() const { return buffers_.all_free() && flushes_ == 0; }
  bool buffers_registered() const { return registered_; }

 private:
  using Handler = void (KvCommands::*)(LocalNamespace&, Request&);
  static Handler handler(std::uint8_t opcode);

  void store(LocalNamespace& ns, Request& request);
  void retrieve(LocalNamespace& ns, Request& request);
  void remove(LocalNamespace& ns, Request& request);
  void exist(LocalNamespace& ns, Request& request);
  void list(LocalNamespace& ns, Request& request);
  void flush(LocalNamespace& ns, Request& request);

  // Once the buffer is there (store, retrieve, list).
  void start(Request& request);
  void start_list(Request& request);
  static void store_pulled(Request& request);
  static void released(PageOp& op);
  void finish_operation(Request& request);
  void finish_retrieve(Request& request);
  bool continue_list(Request& request);  // false: the list is complete
  void finish_list(Request& request);

  void prepare(LocalNamespace& ns, Request& request, PageOp::Kind kind);
  void submit(Request& request);
  void with_buffer(Request& request, std::uint32_t bytes);  // waits if none is free
  void complete(Request& request, std::uint16_t status);
  static void sent(Request& request);
  void end(Request& request);  // gives everything back
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
