// Interleavings: runs a few short threads in every order of their steps, on one real thread.
//
// A step is one access to memory that threads share: what StepAtomic does, and whatever else calls
// step(). Each run starts anew and follows the choices of the one before up to the last that has an
// alternative (a depth-first search without stored states). Steps that do not touch the same thing,
// or only read it, may be exchanged without a difference: of such orders one is run (sleep sets;
// Godefroid, "Partial-Order Methods", 1996). Memory is sequentially consistent here; what weaker
// orders may do is TSan's to find.
#pragma once

#include <ucontext.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace furrow::testing {

class Interleavings {
 public:
  // `prepare` before each run, `finish` after it. Says how many runs there were; stops early when
  // `failed` says so. 0: the threads wait for each other for ever.
  std::uint64_t run_all(const std::function<void()>& prepare,
                        const std::vector<std::function<void()>>& threads,
                        const std::function<bool()>& failed) {
    threads_ = &threads;
    nodes_.clear();
    for (std::uint64_t runs = 1;; ++runs) {
      prepare();
      if (!run_once()) return 0;
      if (failed() || !next_choice()) return runs;
    }
  }

  // The running thread is about to access `what`.
  static void step(const void* what, bool writes) {
    if (running_ != nullptr) running_->pause({what, writes, false});
  }
  // The running thread has nothing to do until another one writes.
  static void await_write() {
    if (running_ != nullptr) running_->pause({nullptr, false, true});
  }

 private:
  static constexpr std::size_t kStackBytes = 256 << 10;
  struct Step {
    const void* what = nullptr;
    bool writes = false;
    bool waits = false;
  };
  struct Fiber {
    ucontext_t context{};
    std::unique_ptr<char[]> stack = std::make_unique<char[]>(kStackBytes);
    const std::function<void()>* body = nullptr;
    Step next;
    std::uint64_t seen_writes = 0;  // by all, when it began to wait
    bool done = false;
  };
  // A choice: which threads need not, or not any more, go first here.
  struct Node {
    std::uint32_t enabled = 0, sleeping = 0, explored = 0;
    unsigned chosen = 0;
  };

  static bool independent(const Step& a, const Step& b) {
    if (a.waits || b.waits) return !a.writes && !b.writes;
    return a.what != b.what || (!a.writes && !b.writes);
  }

  void pause(Step next) {
    Fiber& fiber = *fibers_[current_];
    fiber.next = next;
    fiber.seen_writes = writes_;
    swapcontext(&fiber.context, &scheduler_);
  }
  static void enter() {
    Interleavings& self = *running_;
    Fiber& fiber = *self.fibers_[self.current_];
    self.pause({&fiber, false, false});  // a first step that touches nothing: where it starts
    (*fiber.body)();
    fiber.done = true;
    swapcontext(&fiber.context, &self.scheduler_);
  }
  void resume(unsigned index) {
    current_ = index;
    running_ = this;
    swapcontext(&scheduler_, &fibers_[index]->context);
    running_ = nullptr;
  }
  bool enabled(unsigned index) const {
    const Fiber& fiber = *fibers_[index];
    return !fiber.done && !(fiber.next.waits && fiber.seen_writes == writes_);
  }

  void start() {
    while (fibers_.size() < threads_->size()) fibers_.push_back(std::make_unique<Fiber>());
    writes_ = 0;
    for (unsigned i = 0; i < fibers_.size(); ++i) {
      Fiber& fiber = *fibers_[i];
      fiber.body = &(*threads_)[i];
      fiber.done = false;
      getcontext(&fiber.context);
      fiber.context.uc_stack.ss_sp = fiber.stack.get();
      fiber.context.uc_stack.ss_size = kStackBytes;
      fiber.context.uc_link = nullptr;
      makecontext(&fiber.context, &Interleavings::enter, 0);
      resume(i);  // up to its first step
      resume(i);  // and to the first that touches anything
    }
  }
  // False: some are not done, and none can go on.
  bool run_once() {
    start();
    std::uint32_t sleeping = 0;
    for (std::size_t depth = 0;; ++depth) {
      std::uint32_t can = 0, left = 0;
      for (unsigned i = 0; i < fibers_.size(); ++i) {
        can |= enabled(i) ? 1u << i : 0;
        left |= fibers_[i]->done ? 0 : 1u << i;
      }
      if (left == 0) return true;
      if (can == 0) return false;
      if (depth == nodes_.size()) {
        if ((can & ~sleeping) == 0) return run_out();  // all that follows was run in another order
        nodes_.push_back({can, sleeping, 0, lowest(can & ~sleeping)});
      }
      sleeping = after(nodes_[depth]);
      go(nodes_[depth].chosen);
    }
  }
  // Who may sleep on behind a choice: those whose next step has nothing to do with it.
  std::uint32_t after(const Node& node) const {
    std::uint32_t sleeping = 0;
    for (unsigned i = 0; i < fibers_.size(); ++i) {
      const bool asleep = ((node.sleeping | node.explored) >> i & 1) != 0;
      if (asleep && independent(fibers_[i]->next, fibers_[node.chosen]->next)) sleeping |= 1u << i;
    }
    return sleeping;
  }
  void go(unsigned index) {
    if (fibers_[index]->next.writes) ++writes_;
    resume(index);
  }
  // To the end, so that nothing is left on the stacks.
  bool run_out() {
    for (bool any = true; any;) {
      any = false;
      for (unsigned i = 0; i < fibers_.size(); ++i) {
        if (!enabled(i)) continue;
        go(i);
        any = true;
      }
    }
    for (const auto& fiber : fibers_) {
      if (!fiber->done) return false;
    }
    return true;
  }
  // The last choice that has an alternative takes it.
  bool next_choice() {
    while (!nodes_.empty()) {
      Node& node = nodes_.back();
      node.explored |= 1u << node.chosen;
      const std::uint32_t candidates = node.enabled & ~(node.sleeping | node.explored);
      if (candidates != 0) {
        node.chosen = lowest(candidates);
        return true;
      }
      nodes_.pop_back();
    }
    return false;
  }
  static unsigned lowest(std::uint32_t set) { return static_cast<unsigned>(__builtin_ctz(set)); }

  const std::vector<std::function<void()>>* threads_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Node> nodes_;
  std::uint64_t writes_ = 0;
  unsigned current_ = 0;
  ucontext_t scheduler_{};
  static inline Interleavings* running_ = nullptr;
};

// std::atomic, each access of which is a step.
template <class T>
class StepAtomic {
 public:
  StepAtomic(T value = T{}) : value_(value) {}  // NOLINT: implicit, as std::atomic's
  T load(std::memory_order = std::memory_order_seq_cst) const {
    Interleavings::step(this, false);
    return value_;
  }
  void store(T value, std::memory_order = std::memory_order_seq_cst) {
    Interleavings::step(this, true);
    value_ = value;
  }
  T fetch_add(T more, std::memory_order = std::memory_order_seq_cst) {
    Interleavings::step(this, true);
    const T before = value_;
    value_ = static_cast<T>(value_ + more);
    return before;
  }
  T fetch_sub(T less, std::memory_order = std::memory_order_seq_cst) {
    Interleavings::step(this, true);
    const T before = value_;
    value_ = static_cast<T>(value_ - less);
    return before;
  }

 private:
  T value_;
};

}  // namespace furrow::testing
