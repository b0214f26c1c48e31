// Poller: a source of completions that an event loop polls: an IoQueue, a ring of sockets.
#pragma once

namespace furrow {

class Poller {
 public:
  virtual ~Poller() = default;
  // Pushes what was submitted and reaps what completed, in a few system calls at most. Returns the
  // number of events handled. Never blocks.
  virtual unsigned poll() = 0;
  // To be called before a thread sleeps on wake_fd(): what poll() looks for by itself, the kernel
  // looks for from now on. False: it cannot yet; do not sleep.
  virtual bool before_sleep() { return true; }
  // A file descriptor that is readable when poll() would find something, so that an idle thread
  // can sleep. -1: this source completes only inside poll(); do not sleep while busy().
  virtual int wake_fd() const = 0;
  virtual bool busy() const = 0;  // operations in flight
};

}  // namespace furrow
