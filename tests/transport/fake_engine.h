// Fakes for tests of the controller logic: an executor with a clock that the test moves, and a pool
// whose stores are plain maps.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/pool.h"
#include "zone/executor.h"

namespace furrow::test {

// Runs on the test's thread, when told to; pollers as well, but while they are held.
class FakeExecutor final : public Executor {
 public:
  explicit FakeExecutor(std::uint64_t& clock_ns) : clock_ns_(clock_ns) {}

  void post(Task& task) override { tasks_.push_back(&task); }
  bool is_current() const override { return true; }
  void start(Timer& timer, std::uint64_t delay_ns) override {
    stop(timer);
    timer.at_ns = clock_ns_ + delay_ns;
    timer.heap_slot = 0;
    timers_.push_back(&timer);
  }
  void stop(Timer& timer) override {
    std::erase(timers_, &timer);
    timer.heap_slot = -1;
  }
  void add(Poller& poller) override { pollers_.push_back(&poller); }
  void remove(Poller& poller) override { std::erase(pollers_, &poller); }
  std::uint64_t now_ns() const override { return clock_ns_; }
  std::uint64_t wall_s() const override { return clock_ns_ / 1'000'000'000; }
  std::uint64_t random() override { return ++random_; }

  // Runs what is due; says whether there was any.
  bool run_once() {
    bool any = false;
    for (std::size_t left = tasks_.size(); left > 0; --left) {
      Task* task = tasks_.front();
      tasks_.pop_front();
      task->run(*task);
      any = true;
    }
    while (Timer* due = first_due()) {
      stop(*due);
      due->fire(*due);
      any = true;
    }
    const std::vector<Poller*> pollers = hold_pollers ? std::vector<Poller*>() : pollers_;
    for (Poller* poller : pollers) {
      if (std::ranges::count(pollers_, poller) != 0) any |= poller->poll() != 0;
    }
    return any;
  }
  std::size_t timers() const { return timers_.size(); }

  bool hold_pollers = false;

 private:
  Timer* first_due() {
    for (Timer* timer : timers_) {
      if (timer->at_ns <= clock_ns_) return timer;
    }
    return nullptr;
  }
  std::uint64_t& clock_ns_;
  std::uint64_t random_ = 0;
  std::deque<Task*> tasks_;
  std::vector<Timer*> timers_;
  std::vector<Poller*> pollers_;
};

inline constexpr std::uint64_t kFakeZoneBytes = 64ull << 20;

class FakeStore final : public PageStore {
 public:
  using Bytes = std::vector<std::byte>;

  explicit FakeStore(VolumeInfo info) : info_(std::move(info)) {}
  const VolumeInfo& info() const override { return info_; }
  VolumeUsage usage() const override {
    const std::lock_guard lock(mutex_);
    VolumeUsage usage;
    for (const auto& [key, value] : pages_) usage.live_bytes += value.size();
    usage.pages = pages_.size();
    usage.quota_zones =
        info_.options.quota_bytes == 0 ? 5 : info_.options.quota_bytes / kFakeZoneBytes;
    return usage;
  }
  VolumeStats stats() const override { return {}; }

  void resize(const ResizeOptions& options) {
    if (options.quota_bytes != 0) info_.options.quota_bytes = options.quota_bytes;
    if (options.block_bytes != 0) info_.options.block_bytes = options.block_bytes;
  }

  // Runs `op` against the map, or fails it as the test asked.
  void run(PageOp& op) {
    const std::lock_guard lock(mutex_);
    last_durability = op.durability;
    last_capacity = op.capacity;
    ++operations;
    op.status = next_failure.ok() ? apply(op) : next_failure;
    next_failure = Status();
  }

  Status next_failure;  // of the next operation
  Durability last_durability = Durability::none;
  std::uint32_t last_capacity = 0;
  std::uint64_t operations = 0, flushes = 0;
  std::uint32_t keys_at_a_time = 1000;
  bool hold = false;  // operations wait until it is false

 private:
  static std::string text(const Key& key) {
    return {reinterpret_cast<const char*>(key.bytes.data()), key.length};
  }
  static Status failure(Code code) { return Status(code, Origin::engine, "fake"); }

  Status apply(PageOp& op) {
    const auto found = pages_.find(text(op.key));
    const bool present = found != pages_.end();
    switch (op.kind) {
      case PageOp::Kind::put:
        if (op.condition == PageOp::Condition::if_absent && present) return failure(Code::exists);
        if (op.condition == PageOp::Condition::if_exists && !present) {
          return failure(Code::not_found);
        }
        pages_[text(op.key)] = Bytes(op.data, op.data + op.length);
        return Status();
      case PageOp::Kind::get:
        if (!present) return failure(Code::not_found);
        op.length = static_cast<std::uint32_t>(found->second.size());
        std::memcpy(op.data, found->second.data(), std::min(op.length, op.capacity));
        return Status();
      case PageOp::Kind::remove:
        if (!present) return failure(Code::not_found);
        pages_.erase(found);
        return Status();
      case PageOp::Kind::exist:
        return present ? Status() : failure(Code::not_found);
      case PageOp::Kind::list:
        return list(op);
      case PageOp::Kind::flush:
        ++flushes;
        return Status();
      default:
        return failure(Code::unsupported);
    }
  }
  // In the order of the key bytes, after op.key.
  Status list(PageOp& op) {
    auto it = op.key.length == 0 ? pages_.begin() : pages_.upper_bound(text(op.key));
    const std::uint32_t limit = std::min(op.keys_max, keys_at_a_time);
    for (op.keys_count = 0; it != pages_.end() && op.keys_count < limit; ++it) {
      op.keys[op.keys_count++] = Key::from(it->first);
    }
    return Status();
  }

  VolumeInfo info_;
  mutable std::mutex mutex_;
  std::map<std::string, Bytes> pages_;
};

class FakeSession final : public PageSession {
 public:
  explicit FakeSession(Executor& executor) : executor_(executor) {}
  void submit(PageStore& store, PageOp& op) override {
    op.internal.self = &op;
    op.internal.store = &store;
    op.internal.reply_to = &executor_;
    op.internal.task.run = &FakeSession::run;
    executor_.post(op.internal.task);
  }
  Status register_buffers(std::span<const iovec> buffers) override {
    return buffers.size() == 1 ? Status() : Status(Code::invalid_argument, Origin::engine);
  }
  unsigned wait(std::uint64_t) override { return 0; }
  void may_block() override {}
  std::uint64_t system_calls() const override { return 0; }

 private:
  static void run(Task& task) {
    auto& internal = reinterpret_cast<PageOp::Internal&>(task);
    PageOp& op = *internal.self;
    auto& store = static_cast<FakeStore&>(*internal.store);
    if (store.hold) return internal.reply_to->post(task);
    store.run(op);
    op.on_result(op);
    if (op.on_released != nullptr) op.on_released(op);
  }
  Executor& executor_;
};

class FakePool final : public Pool {
 public:
  bool quiesce() override { return true; }
  static constexpr std::uint64_t kZoneBytes = kFakeZoneBytes;

  std::vector<PoolZone> zones() const override { return {}; }
  PoolInfo info() const override {
    PoolInfo info;
    info.name = "unit";
    for (unsigned i = 0; i < info.uuid.size(); ++i) info.uuid[i] = static_cast<std::uint8_t>(i);
    info.geometry.lba_bytes = 4096;
    info.geometry.zone_count = 20;
    info.geometry.zone_size_lbas = info.geometry.zone_capacity_lbas = kZoneBytes / 4096;
    info.zones_free = 8;
    info.zones_metadata = 2;
    info.zones_bad = zones_bad;
    info.device_gone = device_gone;
    info.flush_failed = flush_failed;
    info.media_errors = media_errors;
    return info;
  }
  std::uint64_t zones_returning() const override { return 0; }
  std::vector<std::string> opening_damage() const override { return {}; }
  Result<PageStore*> create_volume(const VolumeOptions& options) override {
    VolumeInfo info;
    info.options = options;
    info.id = ++last_id_;
    for (unsigned i = 0; i < 16; ++i) info.uuid[i] = static_cast<std::uint8_t>(0xA0 + i);
    info.uuid[0] = static_cast<std::uint8_t>(options.nsid);
    info.uuid[1] = static_cast<std::uint8_t>(info.id);
    stores_.push_back(std::make_unique<FakeStore>(info));
    return static_cast<PageStore*>(stores_.back().get());
  }
  Status delete_volume(std::string_view name) override {
    const auto erased = std::erase_if(
        stores_, [&](const auto& store) { return store->info().options.name == name; });
    return erased != 0 ? Status() : Status(Code::not_found, Origin::engine);
  }
  void forget_deleted() override {}
  ResizeAnswer resize_volume(std::string_view name, const ResizeOptions& options) override {
    ResizeAnswer answer;
    auto* const store = static_cast<FakeStore*>(find(name));
    if (store == nullptr) {
      answer.status = Status(Code::not_found, Origin::engine);
    } else {
      store->resize(options);
    }
    return answer;
  }
  ReservationRecord reservations(std::uint64_t volume) const override {
    const auto found = kept.find(volume);
    return found == kept.end() ? ReservationRecord() : found->second;
  }
  void keep_reservations(const ReservationRecord& wanted,
                         std::function<void(const Status&)> done) override {
    ++keeps;
    if (keep_failure.ok()) kept[wanted.volume] = wanted;
    done(keep_failure);
  }
  std::vector<PageStore*> stores() const override {
    std::vector<PageStore*> out;
    for (const auto& store : stores_) out.push_back(store.get());
    return out;
  }
  PageStore* find(std::string_view name) const override {
    for (const auto& store : stores_) {
      if (store->info().options.name == name) return store.get();
    }
    return nullptr;
  }
  PageStore* find_nsid(std::uint32_t nsid) const override {
    for (const auto& store : stores_) {
      if (store->info().options.nsid == nsid) return store.get();
    }
    return nullptr;
  }
  Result<std::unique_ptr<PageSession>> create_session(Executor& executor, unsigned) override {
    return std::unique_ptr<PageSession>(std::make_unique<FakeSession>(executor));
  }
  Result<CheckReport> check(const CheckOptions&) override { return CheckReport(); }
  std::vector<ZoneGivenUp> given_up() const override { return {}; }

  FakeStore& store(std::uint32_t nsid) { return static_cast<FakeStore&>(*find_nsid(nsid)); }
  std::uint64_t zones_bad = 1, media_errors = 0;
  bool device_gone = false, flush_failed = false;
  std::map<std::uint64_t, ReservationRecord> kept;
  Status keep_failure;
  std::uint64_t keeps = 0;

 private:
  std::uint64_t last_id_ = 0;
  std::vector<std::unique_ptr<FakeStore>> stores_;
};

}  // namespace furrow::test
