#include "engine/embedded_pool.h"

#include <chrono>
#include <future>
#include <optional>
#include <thread>
#include <utility>

#include "engine/run_ops.h"
#include "zone/aligned_buffer.h"
#include "zone/device_uri.h"
#include "zone/threads.h"

namespace furrow {

namespace {
constexpr unsigned kReadDepth = 128;
constexpr std::chrono::milliseconds kRetry{1};
constexpr std::chrono::seconds kUnusedMax{2};  // a volume's own collection takes less, mostly
}  // namespace

// The pool, its session and its home executor all live on this thread.
struct EmbeddedPool::Thread {
  std::unique_ptr<EventLoop> loop;
  std::unique_ptr<PageSession> session;
  std::jthread thread;
};

Result<std::unique_ptr<EmbeddedPool>> EmbeddedPool::open(std::string_view uri) {
  return open(uri, CreateOptions());
}

namespace {

constexpr Status kReadOnly{Code::invalid_argument, Origin::engine,
                           "for reading alone a pool is opened by open_to_read()"};

// Whether the pool and its volume can be made on such a device.
Status check_fit(const Geometry& geometry, const EmbeddedPool::CreateOptions& make) {
  const Status status = Pool::suits(geometry);
  if (!status.ok() || make.volume.name.empty()) return status;
  return Pool::suits(geometry, make.volume);
}

// A device that is not there, or whose making was cut off, is made: not one that could not be used
// as asked.
Result<std::unique_ptr<ZonedDevice>> open_or_create(std::string_view uri,
                                                    const EmbeddedPool::CreateOptions& make) {
  Result<std::unique_ptr<ZonedDevice>> device = open_device(uri, Access::exclusive);
  if (device.ok() || make.size_bytes == 0) return device;
  const Code code = device.status().code();
  if (code != Code::not_found && code != Code::foreign) return device;
  DeviceShape shape;
  shape.size_bytes = make.size_bytes;
  shape.preallocate = make.preallocate;
  const Result<Geometry> geometry = geometry_of(shape);
  if (!geometry.ok()) return geometry.status();
  Status status = check_fit(*geometry, make);
  if (status.ok()) status = create_device(uri, shape);
  if (!status.ok()) return status;
  return open_device(uri, Access::exclusive);
}

// Zones of volumes that were deleted may be on their way back, whatever it is asked for.
void end(Pool& pool, EventLoop& loop) {
  while (!pool.quiesce()) loop.run_once();
}

// `may_make`: a pool on a device that has none, and a volume in a pool that has none. Each is made
// by itself, so that a program that was killed in between goes on here.
Result<std::unique_ptr<Pool>> open_pool(ZonedDevice& device, EventLoop& loop, bool may_make,
                                        const EmbeddedPool::CreateOptions& make) {
  if (may_make) {
    const Result<bool> blank = Pool::is_blank(device);
    if (!blank.ok()) return blank.status();
    Status status = *blank ? check_fit(device.geometry(), make) : Status();
    if (status.ok() && *blank) status = Pool::format(device, make.name, loop);
    if (!status.ok()) return status;
  }
  Pool::OpenOptions options = make.opening;
  options.may_block = true;
  Result<std::unique_ptr<Pool>> pool = Pool::open(device, loop, options);
  if (!pool.ok() || !may_make || make.volume.name.empty() || !(*pool)->stores().empty()) {
    return pool;
  }
  for (;;) {
    const Status made = (*pool)->create_volume(make.volume).status();
    if (made.ok()) return pool;
    if (made.code() != Code::busy) {
      end(**pool, loop);
      return made;
    }
    loop.run_once();
  }
}

}  // namespace

Result<std::unique_ptr<EmbeddedPool>> EmbeddedPool::open(std::string_view uri,
                                                         const CreateOptions& make) {
  if (make.opening.read_only) return kReadOnly;
  Result<std::unique_ptr<ZonedDevice>> device = open_or_create(uri, make);
  if (!device.ok()) return device.status();
  return open(std::move(*device), make);
}

Result<std::unique_ptr<EmbeddedPool>> EmbeddedPool::open(std::unique_ptr<ZonedDevice> device,
                                                         const CreateOptions& make) {
  if (make.opening.read_only) return kReadOnly;
  // A mem: device is always new.
  const bool may_make = make.size_bytes != 0 || device->uri().starts_with("mem:");
  return start(std::move(device), [may_make, make](ZonedDevice& its_device, EventLoop& loop) {
    return open_pool(its_device, loop, may_make, make);
  });
}

Result<std::unique_ptr<EmbeddedPool>> EmbeddedPool::open_to_read(std::string_view uri) {
  Result<std::unique_ptr<ZonedDevice>> device = open_device(uri, Access::check);
  if (!device.ok()) return device.status();
  return start(std::move(*device), [](ZonedDevice& its_device, EventLoop& loop) {
    Pool::OpenOptions options;
    options.read_only = options.may_block = true;
    return Pool::open(its_device, loop, options);
  });
}

// Opened by `open` on the thread that is to be the pool's.
Result<std::unique_ptr<EmbeddedPool>> EmbeddedPool::start(std::unique_ptr<ZonedDevice> device,
                                                          const Opener& open) {
  auto loop = EventLoop::make({.lends = EventLoop::Lends::asleep});
  if (!loop.ok()) return loop.status();
  std::unique_ptr<EmbeddedPool> embedded(new EmbeddedPool());
  embedded->device_ = std::move(device);
  embedded->thread_ = std::make_unique<Thread>();
  embedded->thread_->loop = std::move(*loop);
  std::promise<Status> opened;
  const auto body = [&embedded = *embedded, &opened, open] {
    Thread& thread = *embedded.thread_;
    Result<std::unique_ptr<Pool>> pool = open(*embedded.device_, *thread.loop);
    if (!pool.ok()) return opened.set_value(pool.status());
    Result<std::unique_ptr<PageSession>> session =
        (*pool)->create_session(*thread.loop, kReadDepth);
    if (!session.ok()) {
      end(**pool, *thread.loop);
      return opened.set_value(session.status());
    }
    embedded.pool_ = std::move(*pool);
    thread.session = std::move(*session);
    opened.set_value(Status());
    thread.loop->run();
    // Everything that was submitted has been answered: its callers were waiting for it.
    thread.session.reset();
    end(*embedded.pool_, *thread.loop);
    embedded.pool_.reset();
  };
  Status status = start_thread(embedded->thread_->thread, body);
  if (!status.ok()) return status;
  status = opened.get_future().get();
  if (!status.ok()) {
    embedded->thread_->thread.join();
    return status;
  }
  return embedded;
}

EmbeddedPool::~EmbeddedPool() {
  if (!thread_ || !thread_->thread.joinable()) return;
  thread_->loop->stop_running();
  thread_->thread.join();
}

void EmbeddedPool::call(const std::function<void(Pool&)>& what) {
  struct Call : Task {
    const std::function<void(Pool&)>* what = nullptr;
    Pool* pool = nullptr;
    std::promise<void> done;
  } call;
  call.what = &what;
  call.pool = pool_.get();
  call.run = [](Task& task) {
    auto& self = static_cast<Call&>(task);
    (*self.what)(*self.pool);
    std::promise<void> answer = std::move(self.done);  // `self` may be gone before this returns
    answer.set_value();
  };
  std::future<void> done = call.done.get_future();
  thread_->loop->post(call);
  done.get();
}

std::uint64_t EmbeddedPool::random() {
  std::uint64_t drawn = 0;
  call([&](Pool&) { drawn = thread_->loop->random(); });
  return drawn;
}

// All of them while what is left is kept for deletes.
std::uint64_t EmbeddedPool::missing_bytes() const {
  return device_->short_of_room() ? ~std::uint64_t{0} : device_->missing_bytes();
}

std::uint64_t EmbeddedPool::wall_s() const { return thread_->loop->wall_s(); }

Result<SyncPageStore> EmbeddedPool::create_volume(const VolumeOptions& options) {
  for (;;) {
    std::optional<Result<PageStore*>> made;
    call([&](Pool& pool) { made = pool.create_volume(options); });
    if (made->ok()) return SyncPageStore(*this, ***made);
    if (made->status().code() != Code::busy) return made->status();
    std::this_thread::sleep_for(kRetry);
  }
}

Status EmbeddedPool::delete_volume(std::string_view name) {
  const auto until = std::chrono::steady_clock::now() + kUnusedMax;
  Status status;
  bool does_things = false;  // by itself: a host's zones do not
  for (;;) {
    call([&](Pool& pool) {
      const PageStore* const store = pool.find(name);
      does_things = store != nullptr && store->info().options.kind != VolumeKind::zoned;
      status = pool.delete_volume(name);
    });
    const bool waits = does_things && std::chrono::steady_clock::now() < until;
    if (status.code() != Code::busy || !waits) break;
    std::this_thread::sleep_for(kRetry);
  }
  if (!status.ok()) return status;
  for (;;) {
    std::uint64_t left = 0;
    call([&](Pool& pool) { left = pool.zones_returning(); });
    if (left == 0) return status;
    std::this_thread::sleep_for(kRetry);
  }
}

ResizeAnswer EmbeddedPool::resize_volume(std::string_view name, const ResizeOptions& options) {
  for (;;) {
    ResizeAnswer answer;
    call([&](Pool& pool) { answer = pool.resize_volume(name, options); });
    if (answer.status.code() != Code::busy) return answer;
    std::this_thread::sleep_for(kRetry);
  }
}

std::vector<VolumeInfo> EmbeddedPool::volumes() {
  std::vector<VolumeInfo> infos;
  call([&](Pool& pool) {
    for (const PageStore* store : pool.stores()) infos.push_back(store->info());
  });
  return infos;
}

PoolInfo EmbeddedPool::info() {
  PoolInfo info;
  call([&](Pool& pool) { info = pool.info(); });
  return info;
}

Result<SyncPageStore> EmbeddedPool::store(std::string_view volume) {
  PageStore* store = nullptr;
  call([&](Pool& pool) { store = pool.find(volume); });
  if (store == nullptr) {
    return Status(Code::not_found, Origin::engine, "the pool has no volume of that name");
  }
  return SyncPageStore(*this, *store);
}

void EmbeddedPool::submit(PageStore& store, PageOp& op) {
  op.internal.self = &op;
  op.internal.store = &store;
  op.internal.scratch[0] = thread_->session.get();
  op.internal.task.run = [](Task& task) {
    PageOp::Internal& in = reinterpret_cast<PageOp::Internal&>(task);
    static_cast<PageSession*>(in.scratch[0])->submit(*in.store, *in.self);
  };
  thread_->loop->post(op.internal.task);
}

EventLoop::Turns EmbeddedPool::take_turns() { return thread_->loop->take_turns(); }

void EmbeddedPool::run(PageStore& store, std::span<PageOp> ops) {
  run_ops(*thread_->loop, ops, [this, &store](PageOp& op) { thread_->session->submit(store, op); });
}

void SyncPageStore::run(std::span<PageOp> ops) { pool_->run(*store_, ops); }

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
