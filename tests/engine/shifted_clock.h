// ShiftedClock: an executor's, with the time of day set to something else.
#pragma once

#include "zone/executor.h"

namespace furrow::testing {

class ShiftedClock final : public Executor {
 public:
  explicit ShiftedClock(Executor& inner) : inner_(inner) {}
  void shift(std::int64_t seconds) { seconds_ = seconds; }

  void post(Task& task) override { inner_.post(task); }
  bool is_current() const override { return inner_.is_current(); }
  void start(Timer& timer, std::uint64_t delay_ns) override { inner_.start(timer, delay_ns); }
  void stop(Timer& timer) override { inner_.stop(timer); }
  void add(Poller& poller) override { inner_.add(poller); }
  void remove(Poller& poller) override { inner_.remove(poller); }
  std::uint64_t now_ns() const override { return inner_.now_ns(); }
  std::uint64_t wall_s() const override {
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(inner_.wall_s()) + seconds_);
  }
  std::uint64_t random() override { return inner_.random(); }

 private:
  Executor& inner_;
  std::int64_t seconds_ = 0;
};

}  // namespace furrow::testing
