// EventLoop: the Executor that real threads run. It polls its pollers, runs tasks and timers, and
// when a while has passed with nothing to do it sleeps in the kernel (adaptive polling).
//
// Waking a thread costs more than much of what it is woken for, above all where its core sleeps
// too, or others want it. So a thread that is going to wait for what the loop does may give it the
// turns itself, as long as run() has nothing to do (Turns): it is the executor's thread then.
#pragma once

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "zone/executor.h"
#include "zone/status.h"

namespace furrow {

class EventLoop final : public Executor {
 public:
  // When run() lends its turns. What a thread has submitted to the kernel may be cancelled when it
  // ends: that is no matter to files and drives, which try again, and would be the end of a
  // connection.
  enum class Lends : std::uint8_t {
    never,
    idle,    // while nothing is in flight
    asleep,  // also while it sleeps over what is in flight
  };
  struct Options {
    std::uint64_t spin_us = 50;  // how long to poll without work before sleeping; ~0: never sleep
    std::uint64_t seed = 0;      // of random(); 0: from the system
    Lends lends = Lends::idle;
  };
  // Where there are no descriptors left they throw a std::system_error.
  EventLoop() : EventLoop(Options{}) {}
  explicit EventLoop(Options options);
  // Errors: io_error.
  static Result<std::unique_ptr<EventLoop>> make(Options options);
  ~EventLoop() override;

  // Runs until stop_running(). The calling thread becomes the executor's thread.
  void run();
  void stop_running();  // any thread; idempotent
  // One turn without blocking; returns the number of events. For callers with a loop of their own.
  unsigned run_once();

  // The right to give turns, lent by a loop that is in run().
  class Turns {
   public:
    Turns() = default;
    Turns(Turns&& other) noexcept : loop_(std::exchange(other.loop_, nullptr)) {}
    Turns& operator=(Turns&&) = delete;
    ~Turns() {
      if (loop_ != nullptr) loop_->give_back();
    }
    explicit operator bool() const { return loop_ != nullptr; }
    // Gives turns until `done`, and sleeps where there is nothing to do; what is not done by then
    // is left to run(). Not from within a turn.
    template <class Done>
    void run_until(const Done& done) {
      IdleTime idle;
      while (!done()) loop_->turn(idle, false);
    }

   private:
    friend class EventLoop;
    explicit Turns(EventLoop& loop) : loop_(&loop) {}
    EventLoop* loop_ = nullptr;
  };
  // Any thread but the executor's; does not block. None: another has the turns, and is busy.
  Turns take_turns();

  void post(Task& task) override;
  bool is_current() const override;
  void start(Timer& timer, std::uint64_t delay_ns) override;
  void stop(Timer& timer) override;
  void add(Poller& poller) override;
  void remove(Poller& poller) override;
  std::uint64_t now_ns() const override;
  std::uint64_t wall_s() const override;
  std::uint64_t random() override;

 private:
  struct EventFds {
    EventFds();
    static EventFds needed();   // or throws
    const char* why() const;    // there is an error
    int wake, rest, error = 0;  // of errno; 0: both are there
  };
  EventLoop(Options options, const EventFds& fds);
  enum class State : std::uint8_t {
    turning,  // who has the turns is awake
    asleep,   // or sleeps until wake_fd_
    resting,  // nobody has them; run() comes back for what is posted, for rest_fd_ or a poller's
  };
  struct IdleTime {
    std::uint64_t since_ns = 0;  // 0: there was something to do
  };
  void turn(IdleTime& idle, bool may_rest);
  unsigned run_tasks();
  unsigned fire_timers();
  bool anything_busy() const;
  bool must_be_polled() const;
  bool watch(std::vector<pollfd>& fds, int event_fd);
  std::uint64_t first_timer_ns() const;
  void sleep();
  void rest(std::uint64_t awake_until_ns);
  void give_back();
  void sift(std::size_t slot);

  Options options_;
  std::atomic<Task*> posted_{nullptr};  // a stack; reversed when taken
  std::atomic<unsigned> posting_{0};    // threads within post()
  std::atomic<State> state_{State::turning};
  std::atomic<bool> stop_{false};
  std::atomic<bool> recalled_{false};  // rest() is to end
  std::atomic<std::thread::id> thread_{};
  std::mutex turns_mutex_;                        // held by who has the turns
  std::atomic<std::uint64_t> rests_until_ns_{0};  // of run(), at most; 0: it is about to look
  std::atomic<bool> watches_{false};              // rest() does all pollers' descriptors
  int wake_fd_ = -1;                              // eventfd, of who has the turns
  int rest_fd_ = -1;                              // eventfd, of run()
  std::vector<Timer*> timers_;                    // a binary heap by at_ns
  std::vector<Poller*> pollers_;
  std::vector<pollfd> poll_fds_;  // of sleep()
  std::vector<pollfd> rest_fds_;  // of rest()
  unsigned turns_ = 0;
  std::mt19937_64 random_;
};

}  // namespace furrow
