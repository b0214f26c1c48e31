// Page buffers for I/O commands: who gets one, and who waits in which order.
#include <algorithm>
#include <utility>

#include "transport/io_commands.h"
#include "transport/reactor_impl.h"

namespace furrow::transport {

// Waits when none is free, or when its connection, its host or their address has its share: it then
// holds nothing back from others, whose commands go on.
void IoCommands::with_buffer(Request& request, std::uint32_t bytes) {
  const unsigned wanted = buffers_.class_of(bytes);
  Queue& queue = Queue::of(request);
  if (queue.waiting[wanted].first != nullptr || !try_buffer(request, wanted)) {
    reactor_.counters().buffer_waits.add();
    pause(request);
    return add_waiting(queue, request, wanted);
  }
  start(request);
}

bool IoCommands::try_buffer(Request& request, unsigned wanted) {
  const BufferPool::Buffer buffer = buffers_.take(wanted, Queue::of(request).holders());
  if (buffer.data == nullptr) return false;
  request.buffer = buffer.data;
  request.buffer_bytes = buffer.bytes;
  return true;
}

void IoCommands::add_waiting(Queue& queue, Request& request, unsigned wanted) {
  Queue::WaitList& list = queue.waiting[wanted];
  request.next = nullptr;
  (list.first == nullptr ? list.first : list.last->next) = &request;
  list.last = &request;
  if (!queue.in_waiting) append_waiting(queue);
}

void IoCommands::append_waiting(Queue& queue) {
  queue.in_waiting = true;
  queue.next_waiting = nullptr;
  (first_waiting_ == nullptr ? first_waiting_ : last_waiting_->next_waiting) = &queue;
  last_waiting_ = &queue;
}

void IoCommands::remove_waiting(Queue& queue) {
  if (!std::exchange(queue.in_waiting, false)) return;
  Queue* before = nullptr;
  for (Queue** link = &first_waiting_; *link != &queue; link = &(*link)->next_waiting) {
    before = *link;
  }
  (before == nullptr ? first_waiting_ : before->next_waiting) = queue.next_waiting;
  if (last_waiting_ == &queue) last_waiting_ = before;
}

// One command of `queue`, the smallest size first; false: none can have a buffer.
bool IoCommands::serve(Queue& queue) {
  for (unsigned i = 0; i < BufferPool::kClasses; ++i) {
    Queue::WaitList& list = queue.waiting[i];
    if (list.first == nullptr || !try_buffer(*list.first, i)) continue;
    Request& request = *list.first;
    list.first = request.next;
    const std::uint16_t status = begin(request);
    status == nvme::sc::kSuccess ? start(request) : complete(request, status);
    return true;
  }
  return false;
}

// A buffer came back: the queues that wait have one command served each, in turn, until a round of
// them changes nothing.
void IoCommands::serve_waiting() {
  for (Queue* refused = nullptr; first_waiting_ != nullptr;) {
    Queue& queue = *first_waiting_;
    if (&queue == refused) return;  // the first that could not be served, and none after it could
    remove_waiting(queue);
    const bool served = serve(queue);
    const bool more = std::any_of(queue.waiting.begin(), queue.waiting.end(),
                                  [](const auto& list) { return list.first != nullptr; });
    if (more) append_waiting(queue);
    if (served) {
      refused = nullptr;
    } else if (refused == nullptr) {
      refused = &queue;
    }
  }
}

// `only_second`: of a pair it is the second that is meant.
void IoCommands::cancel(Request& request, bool only_second, std::uint16_t status) {
  if (request.fused == nullptr) return complete(request, status);
  if (only_second) return fused_.complete(request, nvme::sc::kFailedFused, status);
  complete(request, status);
}

unsigned IoCommands::cancel_waiting(Queue& queue, std::int32_t cid, std::uint16_t status) {
  Request* cancelled = nullptr;
  bool left = false;
  for (Queue::WaitList& list : queue.waiting) {
    Request* last = nullptr;
    for (Request** link = &list.first; *link != nullptr;) {
      Request* request = *link;
      const bool is_second = request->fused != nullptr && request->fused->command.cid == cid;
      if (cid == kEveryCommand || request->command.cid == cid || is_second) {
        *link = request->next;
        request->next = std::exchange(cancelled, request);
      } else {
        last = request;
        link = &request->next;
      }
    }
    list.last = last;
    left |= last != nullptr;
  }
  if (!left) remove_waiting(queue);
  unsigned count = 0;
  const Request* const first = queue.fused_first;
  if (first != nullptr && (cid == kEveryCommand || first->command.cid == cid)) {
    give_up_fused(queue, status);
    ++count;
  }
  while (cancelled != nullptr) {
    Request* request = std::exchange(cancelled, cancelled->next);
    cancel(*request, cid != kEveryCommand && request->command.cid != cid, status);
    ++count;
  }
  return count;
}

}  // namespace furrow::transport
