// Mailbox: control-plane messages to an executor (a queue must close, the namespaces changed). It
// allocates, so nothing on a page's path uses it.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "zone/executor.h"

namespace furrow::transport {

class Mailbox {
 public:
  explicit Mailbox(Executor& executor) : state_(std::make_shared<State>()) {
    state_->executor = &executor;
    state_->run = [](Task& task) { static_cast<State&>(task).drain(); };
  }
  // On the executor's thread, or when it does not run. What was not delivered is dropped.
  ~Mailbox() {
    const std::lock_guard lock(state_->mutex);
    state_->closed = true;
    state_->messages.clear();
  }
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // Any thread. Messages run in order, in a later turn of the executor.
  void send(std::function<void()> message) {
    const std::lock_guard lock(state_->mutex);
    if (state_->closed) return;
    state_->messages.push_back(std::move(message));
    if (state_->self != nullptr) return;
    state_->self = state_;  // the posted task keeps itself alive until it has run
    state_->executor->post(*state_);
  }

  bool empty() const {
    const std::lock_guard lock(state_->mutex);
    return state_->self == nullptr;
  }

 private:
  struct State : Task {
    std::mutex mutex;
    std::vector<std::function<void()>> messages;
    std::shared_ptr<State> self;
    Executor* executor = nullptr;
    bool closed = false;

    void drain() {
      std::shared_ptr<State> keep;
      std::vector<std::function<void()>> now;
      {
        const std::lock_guard lock(mutex);
        keep = std::move(self);
        now.swap(messages);
      }
      for (auto& message : now) {
        message();
        if (closed) return;  // a message destroyed the mailbox's owner
      }
    }
  };
  std::shared_ptr<State> state_;
};

}  // namespace furrow::transport
