#include "engine/embedded_pool.h"

#include <future>
#include <thread>
#include <utility>

#include "engine/run_ops.h"
#include "zone/aligned_buffer.h"
#include "zone/event_loop.h"

namespace furrow {

namespace {
constexpr unsigned kReadDepth = 128;
}

// The pool, its session and its home executor all live on this thread.
struct EmbeddedPool::Thread {
  EventLoop loop;
  std::unique_ptr<PageSession> session;
  std::jthread thread;
};

Result<std::unique_ptr<EmbeddedPool>> EmbeddedPool::open(std::string_view uri) {
  return open(uri, CreateOptions());
}

namespace {

// A device that is not there, or whose making was cut off, is made.
Result<std::unique_ptr<ZonedDevice>> open_or_create(std::string_view uri,
                                                    std::uint64_t size_bytes) {
  Result<std::unique_ptr<ZonedDevice>> device = open_device(uri, Access::exclusive);
  if (device.ok() || size_bytes == 0) return device;
  const Code code = device.status().code();
  if (code != Code::not_found && code != Code::foreign) return device;
  DeviceShape shape;
  shape.size_bytes = size_bytes;
  const Status status = create_device(uri, shape);
  if (!status.ok()) return status;
  return open_device(uri, Access::exclusive);
}

// `may_make`: a pool on a device that has none, and a volume in a pool that has none. Each is made
// by itself, so that a program that was killed in between goes on here.
Result<std::unique_ptr<Pool>> open_pool(ZonedDevice& device, EventLoop& loop, bool may_make,
                                        const EmbeddedPool::CreateOptions& make) {
  if (may_make) {
    const Result<bool> blank = Pool::is_blank(device);
    if (!blank.ok()) return blank.status();
    const Status status = *blank ? Pool::format(device, make.name, loop) : Status();
    if (!status.ok()) return status;
  }
  Result<std::unique_ptr<Pool>> pool = Pool::open(device, loop, {});
  if (!pool.ok() || !may_make || make.volume.name.empty() || !(*pool)->stores().empty()) {
    return pool;
  }
  const Result<PageStore*> volume = (*pool)->create_volume(make.volume);
  if (!volume.ok()) return volume.status();
  return pool;
}

}  // namespace

Result<std::unique_ptr<EmbeddedPool>> EmbeddedPool::open(std::string_view uri,
                                                         const CreateOptions& make) {
  Result<std::unique_ptr<ZonedDevice>> device = open_or_create(uri, make.size_bytes);
  if (!device.ok()) return device.status();
  // A mem: device is always new.
  const bool may_make = make.size_bytes != 0 || uri.starts_with("mem:");
  std::unique_ptr<EmbeddedPool> embedded(new EmbeddedPool());
  embedded->device_ = std::move(*device);
  embedded->thread_ = std::make_unique<Thread>();
  std::promise<Status> opened;
  embedded->thread_->thread = std::jthread([&embedded = *embedded, &opened, may_make, make] {
    Thread& thread = *embedded.thread_;
    Result<std::unique_ptr<Pool>> pool = open_pool(*embedded.device_, thread.loop, may_make, make);
    if (!pool.ok()) return opened.set_value(pool.status());
    Result<std::unique_ptr<PageSession>> session = (*pool)->create_session(thread.loop, kReadDepth);
    if (!session.ok()) return opened.set_value(session.status());
    embedded.pool_ = std::move(*pool);
    thread.session = std::move(*session);
    opened.set_value(Status());
    thread.loop.run();
    // Everything that was submitted has been answered: its callers were waiting for it.
    thread.session.reset();
    while (!embedded.pool_->quiesce()) thread.loop.run_once();
    embedded.pool_.reset();
  });
  const Status status = opened.get_future().get();
  if (!status.ok()) {
    embedded->thread_->thread.join();
    return status;
  }
  return embedded;
}

EmbeddedPool::~EmbeddedPool() {
  if (!thread_ || !thread_->thread.joinable()) return;
  thread_->loop.stop_running();
  thread_->thread.join();
}

Result<SyncPageStore> EmbeddedPool::store(std::string_view volume) {
  PageStore* const store = pool_->find(volume);
  if (store == nullptr) {
    return Status(Code::not_found, Origin::engine, "the pool has no volume of that name");
  }
  return SyncPageStore(*this, *store);
}

void SyncPageStore::run(std::span<PageOp> ops) {
  EmbeddedPool::Thread& thread = *pool_->thread_;
  run_ops(thread.loop, ops,
          [&thread, store = store_](PageOp& op) { thread.session->submit(*store, op); });
}

Result<std::vector<std::byte>> SyncPageStore::get(const Key& key) {
  // Most pages fit; a longer one says how long it is, and is read again.
  std::uint32_t capacity = 64 << 10;
  for (;;) {
    AlignedBuffer buffer(capacity);
    PageOp op = keyed(PageOp::Kind::get, key);
    op.data = buffer.data();
    op.capacity = capacity;
    run(op);
    if (!op.status.ok()) return op.status;
    if (op.length <= capacity) {
      return std::vector<std::byte>(buffer.data(), buffer.data() + op.length);
    }
    capacity = op.length;
  }
}

Status SyncPageStore::remove_group(std::uint64_t group, Durability durability) {
  PageOp op = keyed(PageOp::Kind::remove_group, Key());
  op.group = group;
  op.durability = durability;
  return run_for_status(std::move(op));
}

Status SyncPageStore::pin(const Key& key) { return run_for_status(keyed(PageOp::Kind::pin, key)); }

Status SyncPageStore::unpin(const Key& key) {
  return run_for_status(keyed(PageOp::Kind::unpin, key));
}

}  // namespace furrow
