// KeyLocks: all that changes a key goes one after the other. No threads: the home executor's
// operations wait for each other here while they wait for the device.
#pragma once

#include <array>
#include <cstdint>

#include "log/format.h"
#include "zone/check.h"

namespace furrow {

struct KeyLockHolder {
  KeyHash hash;
  void (*on_locked)(KeyLockHolder&) = nullptr;
  KeyLockHolder* next_in_slot = nullptr;
  KeyLockHolder* first_waiter = nullptr;  // a queue, kept by the present holder
  KeyLockHolder* last_waiter = nullptr;
  KeyLockHolder* next_waiter = nullptr;
};

class KeyLocks {
 public:
  // Calls on_locked, now or when those before have unlocked.
  void lock(KeyLockHolder& holder) {
    holder.first_waiter = holder.last_waiter = holder.next_waiter = nullptr;
    for (KeyLockHolder* other = slot(holder); other != nullptr; other = other->next_in_slot) {
      if (other->hash != holder.hash) continue;
      (other->first_waiter == nullptr ? other->first_waiter : other->last_waiter->next_waiter) =
          &holder;
      other->last_waiter = &holder;
      return;
    }
    holder.next_in_slot = slot(holder);
    slot(holder) = &holder;
    holder.on_locked(holder);
  }

  void unlock(KeyLockHolder& holder) {
    KeyLockHolder** link = &slot(holder);
    while (*link != &holder) {
      FURROW_CHECK(*link != nullptr);
      link = &(*link)->next_in_slot;
    }
    KeyLockHolder* next = holder.first_waiter;
    if (next == nullptr) {
      *link = holder.next_in_slot;
      return;
    }
    next->next_in_slot = holder.next_in_slot;
    next->first_waiter = next->next_waiter;
    next->last_waiter = next->first_waiter == nullptr ? nullptr : holder.last_waiter;
    *link = next;
    tell(*next);
  }

 private:
  static constexpr std::size_t kSlots = 4096;

  // A holder may unlock from within on_locked. Its successor is told by the outermost call then, so
  // that the stack stays as it is however many wait.
  void tell(KeyLockHolder& locked) {
    locked.next_waiter = nullptr;
    (first_told_ == nullptr ? first_told_ : last_told_->next_waiter) = &locked;
    last_told_ = &locked;
    if (telling_) return;
    telling_ = true;
    while (first_told_ != nullptr) {
      KeyLockHolder* const next = first_told_;
      first_told_ = next->next_waiter;
      next->on_locked(*next);
    }
    telling_ = false;
  }

  KeyLockHolder*& slot(const KeyLockHolder& holder) { return slots_[holder.hash.order % kSlots]; }

  std::array<KeyLockHolder*, kSlots> slots_{};
  KeyLockHolder* first_told_ = nullptr;  // hold their lock, and are to be told
  KeyLockHolder* last_told_ = nullptr;
  bool telling_ = false;
};

}  // namespace furrow
