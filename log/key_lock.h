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
  bool writing = false;  // the holder's append has been given to the user's stream
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
    holder.writing = false;
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

  KeyLockHolder* holder(const KeyHash& hash) {
    KeyLockHolder* at = slots_[hash.order % kSlots];
    while (at != nullptr && at->hash != hash) at = at->next_in_slot;
    return at;
  }

  // Of each that has its lock.
  template <class Visit>
  void for_each(Visit visit) {
    for (KeyLockHolder* at : slots_) {
      for (; at != nullptr; at = at->next_in_slot) visit(*at);
    }
  }

  // `waiter`, one of those that wait for `holder`, gets the lock in its place. `holder` is told
  // once more, after `waiter` and before the others.
  void overtake(KeyLockHolder& holder, KeyLockHolder& waiter) {
    KeyLockHolder** link = &holder.first_waiter;
    KeyLockHolder* before = nullptr;
    for (; *link != &waiter; link = &before->next_waiter) {
      before = *link;
      FURROW_CHECK(before != nullptr);
    }
    *link = waiter.next_waiter;
    if (holder.last_waiter == &waiter) holder.last_waiter = before;
    waiter.first_waiter = &holder;
    waiter.last_waiter = holder.first_waiter == nullptr ? &holder : holder.last_waiter;
    holder.next_waiter = holder.first_waiter;
    holder.first_waiter = holder.last_waiter = nullptr;
    for (link = &slot(holder); *link != &holder;) link = &(*link)->next_in_slot;
    waiter.next_in_slot = holder.next_in_slot;
    *link = &waiter;
    tell(waiter);
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
