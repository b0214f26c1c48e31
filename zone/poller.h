// Poller: a source of completions that an event loop polls: an IoQueue, a ring of sockets.
#pragma once

namespace furrow {

class Poller {
 public:
  virtual ~Poller() = default;
  // Pushes what was submitted and reaps what completed, at most one system call. Returns the
  // number of events handled. Never blocks.
  virtual unsigned poll() = 0;
  // A file descriptor that is readable when poll() would find something, so that an idle thread
  // can sleep. -1: this source completes only inside poll(); do not sleep while busy().
  virtual int wake_fd() const = 0;
  virtual bool busy() const = 0;  // operations in flight
};

}  // namespace furrow
