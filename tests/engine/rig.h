// Rig: a pool with one volume on a device, all on the calling thread, for tests. The device
// outlives the pool, so a test can close or drop the pool and open it again.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/pool.h"
#include "zone/aligned_buffer.h"
#include "zone/event_loop.h"

namespace furrow::testing {

// Bytes that belong to (key, version): equal only when the same page comes back. (Many words at a
// time: tests are compiled without optimisation, and some put millions of pages.)
inline void fill_content(std::uint64_t key, std::uint64_t version, std::byte* to,
                         std::size_t bytes) {
  std::uint64_t words[64];
  std::uint64_t last = key * 0x9E3779B97F4A7C15u + version * 0xC2B2AE3D27D4EB4Fu + bytes;
  for (std::size_t at = 0; at < bytes; at += sizeof words) {
    for (std::uint64_t& word : words) {
      word = last = last * 6364136223846793005u + 1442695040888963407u;
    }
    std::memcpy(to + at, words, std::min(sizeof words, bytes - at));
  }
}

inline std::vector<std::byte> content(std::uint64_t key, std::uint64_t version, std::size_t bytes) {
  std::vector<std::byte> page(bytes);
  fill_content(key, version, page.data(), bytes);
  return page;
}

// Faster than `==` where nothing is optimised.
inline bool equal(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

inline Key key_of(std::uint64_t number) {
  // Lengths differ, so that keys of all sizes are stored.
  std::array<std::byte, 16> bytes{};
  std::memcpy(bytes.data(), &number, 8);
  return Key::from(std::span<const std::byte>(bytes.data(), 8 + number % 9));
}

// An event loop whose wall clock stands still until the test moves it.
class RigLoop final : public Executor {
 public:
  unsigned run_once() { return loop_.run_once(); }
  void advance_s(std::int64_t seconds) { wall_s_ += static_cast<std::uint64_t>(seconds); }

  void post(Task& task) override { loop_.post(task); }
  bool is_current() const override { return loop_.is_current(); }
  void start(Timer& timer, std::uint64_t delay_ns) override { loop_.start(timer, delay_ns); }
  void stop(Timer& timer) override { loop_.stop(timer); }
  void add(Poller& poller) override {
    loop_.add(poller);
    pollers_.push_back(&poller);
  }
  void remove(Poller& poller) override {
    loop_.remove(poller);
    std::erase(pollers_, &poller);
  }
  // Is something with a device?
  bool busy() const {
    return std::ranges::any_of(pollers_, [](const Poller* poller) { return poller->busy(); });
  }
  std::uint64_t now_ns() const override { return loop_.now_ns(); }
  std::uint64_t wall_s() const override { return wall_s_; }
  std::uint64_t random() override { return loop_.random(); }

 private:
  EventLoop loop_{EventLoop::Options{50, 1}};
  std::vector<Poller*> pollers_;
  std::uint64_t wall_s_ = 1'800'000'000;
};

class Rig {
 public:
  explicit Rig(std::string device_uri) : uri_(std::move(device_uri)) {}
  ~Rig() { close(); }

  void open_device() {
    Result<std::unique_ptr<ZonedDevice>> opened = furrow::open_device(uri_, Access::exclusive);
    ASSERT_TRUE(opened.ok()) << opened.status().describe();
    device = std::move(*opened);
  }
  void make(const VolumeOptions& options) {
    if (device == nullptr) open_device();
    ASSERT_TRUE(Pool::format(*device, "test", loop).ok());
    ASSERT_NO_FATAL_FAILURE(open());
    const Result<PageStore*> made = pool->create_volume(options);
    ASSERT_TRUE(made.ok()) << made.status().describe();
    store = *made;
  }
  void open(bool read_only = false) {
    Pool::OpenOptions options = open_options;
    options.read_only = read_only;
    options.recovery_threads = 2;
    Result<std::unique_ptr<Pool>> opened = Pool::open(*device, *executor, options);
    ASSERT_TRUE(opened.ok()) << opened.status().describe();
    pool = std::move(*opened);
    Result<std::unique_ptr<PageSession>> made = pool->create_session(*executor, 64);
    ASSERT_TRUE(made.ok()) << made.status().describe();
    session = std::move(*made);
    const auto stores = pool->stores();
    store = stores.empty() ? nullptr : stores[0];
  }
  void close() {
    session.reset();
    if (!pool) return;
    while (!pool->quiesce()) loop.run_once();
    pool.reset();
    store = nullptr;
  }
  void reopen() {
    close();
    ASSERT_NO_FATAL_FAILURE(open());
  }

  // Submits; done by wait().
  void submit(PageOp& op) {
    ++running_;
    op.context = this;
    op.on_result = nullptr;
    op.on_released = [](PageOp& done) { --static_cast<Rig*>(done.context)->running_; };
    session->submit(*store, op);
  }
  void wait() {
    while (running_ != 0) loop.run_once();
  }
  bool idle() const { return running_ == 0; }
  Status run(PageOp& op) {
    submit(op);
    wait();
    return op.status;
  }
  void turns(unsigned count) {
    for (unsigned i = 0; i < count; ++i) loop.run_once();
  }
  // Turns without new work, so that background work comes to rest: many without anything that is
  // with the device, which takes its time, or for two seconds.
  void settle() {
    const std::uint64_t until_ns = loop.now_ns() + 2'000'000'000;
    for (unsigned at_rest = 0; at_rest < 2000 && loop.now_ns() < until_ns; ++at_rest) {
      if (loop.run_once() != 0 || loop.busy()) at_rest = 0;
    }
  }

  // Until the zones of volumes that were deleted are free, or bad.
  void return_zones() {
    while (pool->info().zones_returning != 0) loop.run_once();
  }

  Status keep_reservations(const ReservationRecord& wanted) {
    Status kept;
    ++running_;
    pool->keep_reservations(wanted, [&](const Status& status) {
      kept = status;
      --running_;
    });
    wait();
    return kept;
  }

  Status put(std::uint64_t number, std::uint64_t version, std::size_t bytes,
             PageOp::Condition condition = PageOp::Condition::always) {
    PageOp op;
    op.kind = PageOp::Kind::put;
    op.key = key_of(number);
    op.condition = condition;
    AlignedBuffer page((bytes + 4095) / 4096 * 4096);
    fill_content(number, version, page.data(), bytes);
    op.data = page.data();
    op.length = static_cast<std::uint32_t>(bytes);
    op.capacity = static_cast<std::uint32_t>(page.size());
    return run(op);
  }
  Result<std::vector<std::byte>> get(std::uint64_t number, std::uint32_t capacity = 128 << 10) {
    PageOp op;
    op.kind = PageOp::Kind::get;
    op.key = key_of(number);
    if (page_.size() < capacity) page_ = AlignedBuffer(capacity);
    std::memset(page_.data(), 0xee, capacity);  // what the page that was read before it left
    op.data = page_.data();
    op.capacity = capacity;
    const Status status = run(op);
    if (!status.ok()) return status;
    return std::vector<std::byte>(page_.data(), page_.data() + std::min(op.length, capacity));
  }
  Status simple(PageOp::Kind kind, std::uint64_t number) {
    PageOp op;
    op.kind = kind;
    op.key = key_of(number);
    return run(op);
  }
  Result<std::vector<Key>> list(const Key& after, std::uint32_t keys_max) {
    std::vector<Key> keys(keys_max);
    PageOp op;
    op.kind = PageOp::Kind::list;
    op.key = after;
    op.keys = keys.data();
    op.keys_max = keys_max;
    const Status status = run(op);
    if (!status.ok()) return status;
    keys.resize(op.keys_count);
    return keys;
  }

  RigLoop loop;
  Executor* executor = &loop;      // the pool's and the session's; runs on `loop`
  Pool::OpenOptions open_options;  // of the next opening
  std::unique_ptr<ZonedDevice> device;
  std::unique_ptr<Pool> pool;
  std::unique_ptr<PageSession> session;
  PageStore* store = nullptr;

 private:
  std::string uri_;
  unsigned running_ = 0;
  AlignedBuffer page_;  // what is read, whatever page it is of
};

}  // namespace furrow::testing
