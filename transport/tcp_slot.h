// CommandSlot: one command that a host has in flight, and how far its data has come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "transport/connection.h"

namespace furrow::transport {

struct CommandSlot : Request {
  enum class State : std::uint8_t {
    free,
    with_handler,
    answered,  // the response waits to be sent
    sending,
  };
  // Where the command's host data is, when the handler wants it.
  enum class Pull : std::uint8_t {
    none,
    wanted,    // in-capsule bytes are still arriving
    r2t_due,   // the R2T waits to be sent
    arriving,  // R2T sent: H2CData may name this slot
    ready,     // on_pulled is due
    done,
  };

  State state = State::free;
  Pull pull = Pull::none;
  bool capsule_arriving = false;  // in-capsule bytes of this command are still on their way
  bool digest_failed = false;
  bool shed = false;         // the in-capsule bytes were thrown away for want of memory
  bool answer_held = false;  // completed during a pull: answered when the pull has ended
  bool owns_cid = false;
  bool waits_for_event = false;  // Asynchronous Event Request: may stay for ever
  std::uint16_t index = 0;       // also the TTAG
  std::byte* pull_into = nullptr;
  std::uint32_t pulled_bytes = 0;
  std::uint8_t data_ticks = 0;         // that its data has been awaited
  std::unique_ptr<std::byte[]> stash;  // in-capsule bytes that came before anybody wanted them
  const std::byte* push_from = nullptr;
  std::uint32_t push_bytes = 0;
  CommandSlot* link = nullptr;  // in one of the connection's lists

  bool pulling() const { return pull != Pull::none && pull != Pull::done; }
};

// First in, first out.
class SlotQueue {
 public:
  bool empty() const { return first_ == nullptr; }
  CommandSlot* front() const { return first_; }
  void push(CommandSlot& slot) {
    slot.link = nullptr;
    *(first_ == nullptr ? &first_ : &last_->link) = &slot;
    last_ = &slot;
  }
  CommandSlot& pop() {
    CommandSlot& slot = *first_;
    first_ = slot.link;
    slot.link = nullptr;
    return slot;
  }

 private:
  CommandSlot* first_ = nullptr;
  CommandSlot* last_ = nullptr;
};

}  // namespace furrow::transport
