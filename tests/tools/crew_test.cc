// Establishes that a Crew's phases keep together: no member goes on before the jobs of all have
// ended; the loop that serves the others runs until then, though its own job ended long before;
// phases and meetings follow one another in any number. How: threads whose jobs differ in length,
// with a backend of each thread's own, and with one that member 0's loop serves.
#include "bench/crew.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace furrow::bench {
namespace {

// Answers each operation from a task on `server`, by way of one on the member's own loop.
class ServedBackend final : public Backend {
 public:
  ServedBackend(EventLoop& own, EventLoop& server) : own_(own), server_(server) {}

  void submit(PageOp& op) override {
    FURROW_CHECK(hop_.op == nullptr);
    hop_.op = &op;
    hop_.backend = this;
    hop_.run = [](Task& task) {
      auto& hop = static_cast<Hop&>(task);
      EXPECT_TRUE(hop.backend->server_.is_current());
      hop.run = &ServedBackend::answer;
      hop.backend->own_.post(hop);
    };
    server_.post(hop_);
  }
  Status register_buffer(std::span<std::byte>) override {
    return {Code::unsupported, Origin::tool};
  }
  std::uint64_t system_calls() const override { return 0; }
  std::uint64_t reconnects() const override { return 0; }

 private:
  struct Hop : Task {
    PageOp* op = nullptr;
    ServedBackend* backend = nullptr;
  };
  static void answer(Task& task) {
    auto& hop = static_cast<Hop&>(task);
    EXPECT_TRUE(hop.backend->own_.is_current());
    PageOp& op = *std::exchange(hop.op, nullptr);
    op.on_result(op);
    op.on_released(op);
  }

  EventLoop& own_;
  EventLoop& server_;
  Hop hop_;
};

class CountedJob final : public Job {
 public:
  CountedJob(unsigned operations, std::atomic<unsigned>& done) : left_(operations), done_(done) {}
  Next next(Slot&, std::uint64_t) override { return left_ == 0 ? Next::end : (--left_, Next::run); }
  bool done(Slot&) override {
    ++done_;
    return false;
  }

 private:
  unsigned left_;
  std::atomic<unsigned>& done_;
};

// In phase p member i has so many operations: none, few or many.
unsigned operations(unsigned member, unsigned phase) {
  return (member + phase) % 3 == 0 ? 0 : 1 + (member * 131 + phase * 17) % 97;
}

class CrewTest : public testing::TestWithParam<bool> {
 protected:
  static constexpr unsigned kPhases = 30;
  bool has_home() const { return GetParam(); }

  void member(Crew& crew, unsigned index, unsigned members) {
    EventLoop own({.spin_us = 0});
    EventLoop& loop = index == 0 && has_home() ? home_ : own;
    ServedBackend backend(loop, has_home() ? home_ : loop);
    const auto driver = Driver::make(loop, backend, {.depth = 1, .page_bytes = 512});
    ASSERT_TRUE(driver.ok());
    unsigned total = 0;  // of all members, to the end of the phase
    for (unsigned phase = 0; phase < kPhases; ++phase) {
      CountedJob job(operations(index, phase), done_);
      crew.run(loop, **driver, job);
      for (unsigned i = 0; i < members; ++i) total += operations(i, phase);
      EXPECT_EQ(done_, total) << "member " << index << ", phase " << phase;
      crew.meet();  // before any begins anew
    }
  }
  void run(unsigned members) {
    done_ = 0;
    Crew crew(members, has_home() ? &home_ : nullptr);
    std::vector<std::thread> others;
    for (unsigned i = 1; i < members; ++i) {
      others.emplace_back([&, i] { member(crew, i, members); });
    }
    member(crew, 0, members);
    for (std::thread& other : others) other.join();
  }

  EventLoop home_{{.spin_us = 0}};
  std::atomic<unsigned> done_{0};
};

TEST_P(CrewTest, AMemberAlone) { run(1); }

TEST_P(CrewTest, NoneGoesOnBeforeAllHaveEnded) { run(4); }

INSTANTIATE_TEST_SUITE_P(, CrewTest, testing::Bool(),
                         [](const auto& with) { return with.param ? "Home" : "NoHome"; });

TEST(Crew, NobodyLeavesAMeetingBeforeAllHaveCome) {
  constexpr unsigned kMembers = 4;
  Crew crew(kMembers, nullptr);
  std::atomic<unsigned> came{0};
  std::vector<std::thread> members;
  for (unsigned i = 0; i < kMembers; ++i) {
    members.emplace_back([&] {
      for (unsigned meeting = 1; meeting <= 100; ++meeting) {
        ++came;
        crew.meet();
        EXPECT_GE(came, meeting * kMembers);
        crew.meet();
        EXPECT_LE(came, (meeting + 1) * kMembers);
      }
    });
  }
  for (std::thread& member : members) member.join();
}

}  // namespace
}  // namespace furrow::bench
