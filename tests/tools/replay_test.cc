// Establishes what furrow-bench's jobs report, with a map in place of a server: hit rates of a
// known trace, that damage and loss are found, that a reconnect has every acknowledged page
// checked, and that a journal is read back with a torn tail left out.
#include "bench/replay.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <string>

#include "bench/load.h"

namespace furrow::bench {
namespace {

// Answers each operation from the loop's next turns, in the order of their submission.
class MapBackend final : public Backend, public Poller {
 public:
  explicit MapBackend(EventLoop& loop) : loop_(loop) { loop_.add(*this); }
  ~MapBackend() override { loop_.remove(*this); }

  void submit(PageOp& op) override { waiting_.push_back(&op); }
  Status register_buffer(std::span<std::byte>) override {
    return {Code::unsupported, Origin::tool};
  }
  std::uint64_t system_calls() const override { return 0; }
  std::uint64_t reconnects() const override { return reconnects_; }

  unsigned poll() override {
    if (waiting_.empty()) return 0;
    PageOp* op = waiting_.front();
    waiting_.pop_front();
    answer(*op);
    op->on_result(*op);
    op->on_released(*op);
    return 1;
  }
  int wake_fd() const override { return -1; }
  bool busy() const override { return !waiting_.empty(); }

  std::map<std::string, std::string> pages;
  std::uint64_t puts = 0;
  std::uint64_t restart_at_put = 0;  // the server "was killed" when this many were stored
  bool lose_one_at_restart = false;
  bool damage_gets = false;
  Status put_status;

 private:
  void answer(PageOp& op) {
    const std::string key(reinterpret_cast<const char*>(op.key.bytes.data()), op.key.length);
    op.status = {};
    if (op.kind == PageOp::Kind::put) {
      op.status = put_status;
      if (!op.status.ok()) return;
      pages[key] = std::string(reinterpret_cast<const char*>(op.data), op.length);
      if (++puts == restart_at_put) {
        ++reconnects_;
        if (lose_one_at_restart) pages.erase(pages.begin());
      }
      return;
    }
    const auto found = pages.find(key);
    if (found == pages.end()) {
      op.status = Status(Code::not_found, Origin::engine);
      return;
    }
    op.length = static_cast<std::uint32_t>(found->second.size());
    std::memcpy(op.data, found->second.data(), std::min(op.length, op.capacity));
    if (damage_gets) op.data[op.length - 1] ^= std::byte{1};
  }

  EventLoop& loop_;
  std::deque<PageOp*> waiting_;
  std::uint64_t reconnects_ = 0;
};

class ReplayTest : public testing::Test {
 protected:
  void play(Job& job, std::uint32_t page_bytes) {
    const auto driver = Driver::make(loop, backend, {.depth = 7, .page_bytes = page_bytes});
    ASSERT_TRUE(driver.ok()) << driver.status().describe();
    (*driver)->start(job, [this] { loop.stop_running(); });
    loop.run();
  }

  EventLoop loop;
  MapBackend backend{loop};
  Trace trace{{{0, 0, 3}, {1, 3, 3}}, {0, 1, 2, 0, 1, 3}, 4};
  ReplayJob::Options options{{.page_bytes = 5000, .salt = 3}, 2, 1};
};

TEST_F(ReplayTest, CountsHitsAgainstTheBestPossible) {
  ReplayJob job(trace, backend, options, nullptr);
  play(job, 5000);
  const ReplayResult& result = job.result();
  EXPECT_EQ(result.references, 12u);
  EXPECT_EQ(result.hits, 4u);
  EXPECT_EQ(result.best_hits, 4u);
  EXPECT_EQ(result.stored, 8u);
  EXPECT_EQ(result.served.intact, 4u);
  EXPECT_EQ(result.served.wrong, 0u);
  EXPECT_EQ(backend.pages.size(), 8u);
}

TEST_F(ReplayTest, LoopsHaveBlocksOfTheirOwn) {
  options.loops = 3;
  ReplayJob job(trace, backend, options, nullptr);
  play(job, 5000);
  EXPECT_EQ(job.result().references, 36u);
  EXPECT_EQ(job.result().hits, 12u);
  EXPECT_EQ(backend.pages.size(), 24u);
}

TEST_F(ReplayTest, FindsWrongBytes) {
  backend.damage_gets = true;
  ReplayJob job(trace, backend, options, nullptr);
  play(job, 5000);
  EXPECT_EQ(job.result().hits, 4u);
  EXPECT_EQ(job.result().served.wrong, 4u);
}

TEST_F(ReplayTest, StopsAtAFailedStore) {
  backend.put_status = Status(Code::no_space, Origin::engine);
  ReplayJob job(trace, backend, options, nullptr);
  play(job, 5000);
  EXPECT_EQ(job.result().put_failure.code(), Code::no_space);
  EXPECT_EQ(job.result().stored, 0u);
}

TEST_F(ReplayTest, ChecksEveryAcknowledgedPageAfterAReconnect) {
  backend.restart_at_put = 5;
  ReplayJob job(trace, backend, options, nullptr);
  play(job, 5000);
  EXPECT_EQ(job.result().restarts, 1u);
  EXPECT_GE(job.result().after_restart.intact, 5u);
  EXPECT_EQ(job.result().after_restart.missing, 0u);
  EXPECT_EQ(job.result().references, 12u);  // and it went on
}

TEST_F(ReplayTest, ChecksAfterAReconnectAtTheVeryEnd) {
  backend.restart_at_put = 8;
  ReplayJob job(trace, backend, options, nullptr);
  play(job, 5000);
  EXPECT_EQ(job.result().restarts, 1u);
  EXPECT_EQ(job.result().after_restart.intact, 8u);
}

TEST_F(ReplayTest, FindsALostPageAfterAReconnect) {
  backend.restart_at_put = 5;
  backend.lose_one_at_restart = true;
  ReplayJob job(trace, backend, options, nullptr);
  play(job, 5000);
  EXPECT_EQ(job.result().after_restart.missing, 1u);
}

TEST_F(ReplayTest, TheJournalHoldsWhatWasAcknowledged) {
  const std::string path = testing::TempDir() + "replay_test.journal";
  auto journal = AckJournal::create(path, {5000, 3});
  ASSERT_TRUE(journal.ok()) << journal.status().describe();
  ReplayJob job(trace, backend, options, &*journal);
  play(job, 5000);
  journal->append(99);
  ASSERT_TRUE(journal->flush().ok());
  std::FILE* file = std::fopen(path.c_str(), "ab");
  std::fwrite("torn", 1, 4, file);
  std::fclose(file);

  const auto contents = AckJournal::read(path);
  std::remove(path.c_str());
  ASSERT_TRUE(contents.ok()) << contents.status().describe();
  EXPECT_EQ(contents->header.page_bytes, 5000u);
  EXPECT_EQ(contents->header.salt, 3u);
  ASSERT_EQ(contents->pages.size(), 9u);
  EXPECT_EQ(contents->pages.back(), 99u);

  VerifyJob verify(contents->pages, options.shape);
  play(verify, 5000);
  EXPECT_EQ(verify.result().intact, 8u);
  EXPECT_EQ(verify.result().missing, 1u);  // 99 was never stored
}

TEST(AckJournal, RefusesWhatIsNoJournal) {
  const std::string path = testing::TempDir() + "replay_test.foreign";
  std::FILE* file = std::fopen(path.c_str(), "wb");
  std::fwrite("something else, long enough for a header", 1, 40, file);
  std::fclose(file);
  EXPECT_EQ(AckJournal::read(path).status().code(), Code::foreign);
  std::remove(path.c_str());
  EXPECT_EQ(AckJournal::read(path).status().code(), Code::not_found);
  EXPECT_EQ(AckJournal::create("/no/such/directory/j", {}).status().code(), Code::io_error);
}

TEST(AckJournal, RefusesAPageSizeThatIsNone) {
  const std::string path = testing::TempDir() + "replay_test.page_bytes";
  const auto read = [&path](std::uint64_t page_bytes) {
    const std::uint64_t preamble[] = {0x314b434157525546, page_bytes, 1};
    std::FILE* file = std::fopen(path.c_str(), "wb");
    std::fwrite(preamble, sizeof preamble, 1, file);
    std::fclose(file);
    return AckJournal::read(path).status().code();
  };
  EXPECT_EQ(read(4096), Code::ok);
  EXPECT_EQ(read(4u << 20), Code::ok);
  for (const std::uint64_t wrong :
       {std::uint64_t{0}, std::uint64_t{4u << 20} + 1, std::uint64_t{0xFFFFFFFF},
        (std::uint64_t{1} << 32) + 4096, ~std::uint64_t{0}}) {
    EXPECT_EQ(read(wrong), Code::corrupt) << wrong;
  }
  std::remove(path.c_str());
}

// More than any machine's address space.
TEST_F(ReplayTest, BuffersThatCannotBeHadAreAnError) {
  const Driver::Options large{.depth = 64, .page_bytes = 4096, .memory_bytes = 1ull << 62};
  EXPECT_EQ(Driver::make(loop, backend, large).status().code(), Code::no_space);
}

TEST_F(ReplayTest, LoadFillsThenFindsEveryPage) {
  LoadOptions load;
  load.page_bytes = 4096;
  load.pages = 100;
  load.get_percent = 70;
  load.verify = true;
  load.duration_ns = 20'000'000;
  FillJob fill(load, 0, 1);
  play(fill, 4096);
  EXPECT_EQ(fill.result().puts, 100u);
  LoadJob job(load, 0, 1);
  play(job, 4096);
  EXPECT_GT(job.result().gets, 0u);
  EXPECT_GT(job.result().puts, 0u);
  EXPECT_EQ(job.result().misses, 0u);
  EXPECT_EQ(job.result().wrong, 0u);
  EXPECT_EQ(job.result().failed, 0u);
  EXPECT_EQ(job.result().get.count(), job.result().gets);
  EXPECT_EQ(backend.pages.size(), 100u);

  backend.damage_gets = true;
  LoadJob damaged(load, 0, 1);
  play(damaged, 4096);
  EXPECT_GT(damaged.result().wrong, 0u);
}

// A miss is answered by the index alone: among latencies it would make them look better.
TEST_F(ReplayTest, MissesAreInNoLatency) {
  LoadOptions load;
  load.page_bytes = 4096;
  load.pages = 100;
  load.get_percent = 100;
  load.duration_ns = 5'000'000;
  LoadJob none(load, 0, 1);
  play(none, 4096);
  EXPECT_GT(none.result().gets, 0u);
  EXPECT_EQ(none.result().misses, none.result().gets);
  EXPECT_EQ(none.result().get.count(), 0u);
}

}  // namespace
}  // namespace furrow::bench
