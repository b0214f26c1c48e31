// What a queue keeps in the Ios that it has: IoList, some of them in the order in which they came,
// linked by Io::next; and how far a transfer is.
#pragma once

#include "zone/io.h"

namespace furrow {

inline std::uint64_t& bytes_done(Io& io) { return io.scratch[0]; }
inline std::uint64_t& transfer_bytes(Io& io) { return io.scratch[1]; }
inline std::uint64_t transfer_bytes(const Io& io) { return io.scratch[1]; }

struct IoList {
  Io* head = nullptr;
  Io* tail = nullptr;
  void push(Io& io) {
    io.next = nullptr;
    (tail == nullptr ? head : tail->next) = &io;
    tail = &io;
  }
  void push_front(Io& io) {
    io.next = head;
    head = &io;
    if (tail == nullptr) tail = &io;
  }
  Io* pop() {
    Io* io = head;
    if (io != nullptr && (head = io->next) == nullptr) tail = nullptr;
    return io;
  }
  IoList take() {
    const IoList taken = *this;
    head = tail = nullptr;
    return taken;
  }
};

}  // namespace furrow
