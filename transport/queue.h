// Queue: one connection, as the controller logic sees it: a submission and completion queue pair
// that may or may not have been connected to a controller yet.
//
// Threads: its reactor's, but for `traffic`, and `id` and `reactor` once it is registered with a
// controller. The pool's home executor reads `state`.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "transport/buffer_pool.h"
#include "transport/command_sets.h"
#include "transport/connection.h"

namespace furrow::transport {

class Controller;
class ReactorImpl;

struct Queue {
  enum class State : std::uint8_t {
    awaiting_connect,  // nothing but Connect is allowed
    connecting,        // its data is on the way
    live,
    closing,  // the connection was told to end; commands are turned away
  };

  std::atomic<State> state = State::awaiting_connect;
  bool open = true;             // until on_close
  CommandSets command_sets;     // whose namespaces CC.CSS lets this queue use
  std::uint16_t id = 0;         // 0: the admin queue
  std::uint32_t in_flight = 0;  // requests in the controller's hands
  ReactorImpl* reactor = nullptr;
  Connection* connection = nullptr;
  std::shared_ptr<Controller> controller;  // null until Connect was accepted
  std::uint32_t entries = 0;               // of a registered queue
  // What it holds of its reactor's memory, and the commands that wait for a page buffer, by size
  // (IoCommands).
  struct WaitList {
    Request* first = nullptr;
    Request* last = nullptr;
  };
  BufferPool::Held buffers_held{};
  // Those of all queues of its host, once that is known, and of its address, on this reactor.
  std::shared_ptr<BufferPool::Held> host_held, address_held;
  std::uint64_t payload_bytes = 0;
  Request* fused_first = nullptr;   // waits for the next command (FusedCommands)
  bool fused_first_failed = false;  // the last command was a first one that was refused at once
  std::array<WaitList, BufferPool::kClasses> waiting{};
  Queue* next_waiting = nullptr;
  bool in_waiting = false;
  // Commands received; one writer. Keep Alive counts any of them (TBKAS).
  std::atomic<std::uint32_t> traffic{0};

  BufferPool::Holders holders() { return {&buffers_held, host_held.get(), address_held.get()}; }

  static Queue& of(Request& request) {
    return *static_cast<Queue*>(request.connection->controller_context);
  }
};

}  // namespace furrow::transport
