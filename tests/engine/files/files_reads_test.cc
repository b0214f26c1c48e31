// Establishes that reads wait for nobody they need not wait for: those of a file neither for what
// is done to another one, be it read, written or renamed, nor for a part of a batch that is late;
// and that a large read that was begun goes on by itself. How: a device whose reads, and writes,
// are held until the test lets them go.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <list>
#include <mutex>
#include <set>
#include <thread>

#include "tests/engine/files/files_rig.h"

namespace furrow::testing {
namespace {

// Each read has a number, from when the gate was closed.
class GatedDevice final : public ZonedDevice {
 public:
  explicit GatedDevice(std::unique_ptr<ZonedDevice> inner)
      : ZonedDevice(inner->geometry(), inner->uri()), inner_(std::move(inner)) {}
  Result<std::unique_ptr<IoQueue>> create_queue(unsigned depth) override {
    Result<std::unique_ptr<IoQueue>> inner = inner_->create_queue(depth);
    if (!inner.ok()) return inner.status();
    return std::unique_ptr<IoQueue>(std::make_unique<Queue>(*this, std::move(*inner)));
  }
  Result<std::vector<ZoneInfo>> report() override { return inner_->report(); }
  ZoneInfo zone(ZoneId zone) const override { return inner_->zone(zone); }

  void close(bool writes) {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    writes_closed_ = writes;
    asked_ = 0;
  }
  void let_go(unsigned read) {
    const std::lock_guard lock(mutex_);
    let_go_.insert(read);
  }
  void open() {
    const std::lock_guard lock(mutex_);
    closed_ = writes_closed_ = false;
  }
  unsigned reads() const {
    const std::lock_guard lock(mutex_);
    return asked_;
  }

 private:
  class Queue final : public IoQueue {
   public:
    Queue(GatedDevice& device, std::unique_ptr<IoQueue> inner)
        : IoQueue(device.geometry()), device_(device), inner_(std::move(inner)) {}
    Status register_buffers(std::span<const iovec> buffers) override {
      return inner_->register_buffers(buffers);
    }
    std::uint64_t system_calls() const override { return inner_->system_calls(); }
    int wake_fd() const override { return -1; }

   private:
    struct Held {
      Queue* queue = nullptr;
      Io io;  // the inner queue's
      Io* outer = nullptr;
      unsigned number = 0;
      bool submitted = false;
    };
    void do_submit(Io& io) override {
      Held& held = all_.emplace_back();
      held.queue = this;
      held.outer = &io;
      if (io.op == Io::Op::read) held.number = device_.take_number();
      held.io.op = io.op;
      held.io.zone = io.zone;
      held.io.lba = io.lba;
      held.io.lba_count = io.lba_count;
      held.io.iov = io.iov;
      held.io.iov_count = io.iov_count;
      held.io.context = &held;
      held.io.on_complete = [](Io& done) {
        auto& its = *static_cast<Held*>(done.context);
        its.queue->done_.push_back(&its);
      };
      submit_open();
    }
    void submit_open() {
      for (Held& each : all_) {
        if (each.submitted || !device_.lets(each.io.op, each.number)) continue;
        each.submitted = true;
        inner_->submit(each.io);
      }
    }
    unsigned do_poll() override {
      submit_open();
      inner_->poll();
      std::vector<Held*> done;
      done.swap(done_);
      for (Held* const each : done) {
        Io& outer = *each->outer;
        const Status status = each->io.status;
        all_.remove_if([each](const Held& held) { return &held == each; });
        complete(outer, status);
      }
      return static_cast<unsigned>(done.size());
    }
    unsigned do_wait(std::uint64_t timeout_us) override {
      submit_open();
      if (done_.empty()) inner_->wait(std::min<std::uint64_t>(timeout_us, 1000));
      return do_poll();
    }

    GatedDevice& device_;
    std::unique_ptr<IoQueue> inner_;
    std::list<Held> all_;
    std::vector<Held*> done_;
  };

  unsigned take_number() {
    const std::lock_guard lock(mutex_);
    return asked_++;
  }
  bool lets(Io::Op op, unsigned number) const {
    const std::lock_guard lock(mutex_);
    if (op == Io::Op::read) return !closed_ || let_go_.contains(number);
    return op != Io::Op::write || !writes_closed_;
  }

  std::unique_ptr<ZonedDevice> inner_;
  mutable std::mutex mutex_;
  bool closed_ = false, writes_closed_ = false;
  unsigned asked_ = 0;
  std::set<unsigned> let_go_;
};

class FilesReadsTest : public ::testing::Test, public FilesRig {
 protected:
  static constexpr unsigned kParts = 40;
  static_assert(kParts > FileReaders::kOpsMax);

  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(mount());
    unmount();
    auto inner = open_device(uri(), Access::exclusive);
    ASSERT_TRUE(inner.ok()) << inner.status().describe();
    auto gate = std::make_unique<GatedDevice>(std::move(*inner));
    gate_ = gate.get();
    auto pool = EmbeddedPool::open(std::move(gate), {});
    ASSERT_TRUE(pool.ok()) << pool.status().describe();
    ASSERT_NO_FATAL_FAILURE(FilesRig::mount(std::shared_ptr<EmbeddedPool>(std::move(*pool))));
    for (std::size_t i = 0; i < all_.size(); ++i) all_[i] = static_cast<char>(i * 31 + i / 4099);
    write("/a", all_);
    write("/b", all_);
  }
  void TearDown() override { unmount(); }
  void wait_until_asked(unsigned reads) {
    while (gate_->reads() < reads) std::this_thread::yield();
  }
  static void give_others_time() { std::this_thread::sleep_for(std::chrono::milliseconds(30)); }

  GatedDevice* gate_ = nullptr;
  std::string all_ = std::string(kParts * 65'536, '\0');
};

TEST_F(FilesReadsTest, ThoseOfOneFileWaitForNothingThatIsDoneToAnother) {
  auto a = files().open_file("/a"), b = files().open_file("/b");
  ASSERT_TRUE(a.ok() && b.ok());
  gate_->close(true);
  std::atomic<unsigned> done{0};
  const auto read_a = [&] {
    std::string text(5000, '\0');
    const auto got = (*a)->read(0, std::as_writable_bytes(std::span(text)));
    EXPECT_TRUE(got.ok() && text == all_.substr(0, text.size()));
    ++done;
  };
  std::jthread reader(read_a);
  wait_until_asked(1);
  std::jthread writer([&] {
    EXPECT_TRUE((*a)->append(bytes_of("more")).ok() && (*a)->sync().ok());
    ++done;
  });
  std::jthread renamer([&] {
    EXPECT_TRUE(files().rename("/a", "/c").ok());
    ++done;
  });
  give_others_time();
  for (unsigned i = 1; i <= 4; ++i) gate_->let_go(i);
  std::string text(5000, '\0');
  const auto got = (*b)->read(70'000, std::as_writable_bytes(std::span(text)));
  EXPECT_TRUE(got.ok() && text == all_.substr(70'000, text.size()));
  EXPECT_TRUE(files().stat("/b").ok());
  auto again = files().open_file("/b");
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE((*again)->read(0, std::as_writable_bytes(std::span(text))).ok());
  EXPECT_EQ(done, 0u) << "they are held";
  gate_->open();
}

TEST_F(FilesReadsTest, APartThatIsLateHoldsUpNoOther) {
  auto a = files().open_file("/a");
  ASSERT_TRUE(a.ok());
  AlignedBuffer memory(all_.size());  // or each would need a buffer, of which there are few
  gate_->close(false);
  std::jthread reader([&] {
    const auto got = (*a)->read(0, memory.span());
    EXPECT_TRUE(got.ok() && *got == all_.size());
  });
  wait_until_asked(FileReaders::kOpsMax);
  give_others_time();
  EXPECT_EQ(gate_->reads(), FileReaders::kOpsMax);
  for (unsigned i = 1; i <= kParts - FileReaders::kOpsMax; ++i) gate_->let_go(i);
  wait_until_asked(kParts);  // number 0 is still on its way
  gate_->open();
  reader.join();
  EXPECT_TRUE(std::ranges::equal(memory.span(), bytes_of(all_)));
}

TEST_F(FilesReadsTest, ALargeOneThatWasBegunGoesOnByItself) {
  auto a = files().open_file("/a");
  ASSERT_TRUE(a.ok());
  AlignedBuffer memory(all_.size());
  AsyncRead read;
  read.read.memory = memory.span();
  gate_->close(false);
  ASSERT_TRUE((*a)->content().start(read)) << "it would be waited for";
  wait_until_asked(8);
  gate_->open();
  read.wait();
  EXPECT_TRUE(read.read.status.ok()) << read.read.status.describe();
  EXPECT_EQ(read.read.bytes, all_.size());
  EXPECT_TRUE(std::ranges::equal(memory.span(), bytes_of(all_)));
}

}  // namespace
}  // namespace furrow::testing
