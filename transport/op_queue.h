// OpQueue: page operations that wait, linked through PageOp::internal.next.
//
// Threads: one. Ownership: an operation is in one queue at a time and stays its caller's.
#pragma once

#include <utility>

#include "engine/page_op.h"

namespace furrow::transport {

// First in, first out, through PageOp::internal.next.
class OpQueue {
 public:
  bool empty() const { return first_ == nullptr; }
  void push(PageOp& op) {
    op.internal.next = nullptr;
    *(first_ == nullptr ? &first_ : &last_->internal.next) = &op;
    last_ = &op;
  }
  PageOp& pop() {
    PageOp& op = *first_;
    first_ = op.internal.next;
    return op;
  }
  void push_front(PageOp& op) {
    op.internal.next = first_;
    if (first_ == nullptr) last_ = &op;
    first_ = &op;
  }
  void push_front_all(OpQueue& other) {
    if (other.empty()) return;
    other.last_->internal.next = first_;
    if (first_ == nullptr) last_ = other.last_;
    first_ = std::exchange(other.first_, nullptr);
  }

 private:
  PageOp* first_ = nullptr;
  PageOp* last_ = nullptr;
};

}  // namespace furrow::transport
