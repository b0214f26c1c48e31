// EmbeddedPool and SyncPageStore: a pool with its own background thread, and a page store with
// blocking calls, for programs that have no event loop.
//
//   auto pool = furrow::EmbeddedPool::open("emu:/var/lib/furrow/pool.img");
//   auto pages = (*pool)->store("pages");
//   furrow::Status stored = pages->put(furrow::Key::from("k"), value);
//
// Threads: every call may come from any thread; each blocks its caller only.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/blocking_pool.h"
#include "engine/page_calls.h"
#include "engine/pool.h"
#include "zone/event_loop.h"

namespace furrow {

class EmbeddedPool;

class SyncPageStore final : public PageCalls {
 public:
  using PageCalls::run;
  Result<std::vector<std::byte>> get(const Key& key);
  Status remove_group(std::uint64_t group, Durability durability = Durability::none);
  Status pin(const Key& key);
  Status unpin(const Key& key);
  PageStore& async() { return *store_; }
  void run(std::span<PageOp> ops) override;

 private:
  friend class EmbeddedPool;
  SyncPageStore(EmbeddedPool& pool, PageStore& store) : pool_(&pool), store_(&store) {}
  EmbeddedPool* pool_;
  PageStore* store_;
};

class EmbeddedPool final : public BlockingPool {
 public:
  struct CreateOptions {
    std::uint64_t size_bytes = 0;  // not 0: make what is missing: an emulated device of this size,
    std::string name = "furrow";   //   a pool of this name, and `volume` where there is none at all
    bool preallocate = false;      // of that device: see DeviceShape
    VolumeOptions volume;
    // How a pool is opened: what it verifies in the background, which zones a store collects, and
    // so on; on_scrub_finding is called by the thread that works for the pool then. may_block is
    // set, and read_only is refused: see open_to_read().
    Pool::OpenOptions opening = {};
  };
  static Result<std::unique_ptr<EmbeddedPool>> open(std::string_view uri);
  static Result<std::unique_ptr<EmbeddedPool>> open(std::string_view uri,
                                                    const CreateOptions& make);
  // The same on a device that is open.
  static Result<std::unique_ptr<EmbeddedPool>> open(std::unique_ptr<ZonedDevice> device,
                                                    const CreateOptions& make);
  // For reading alone, by this process alone: nothing is written, also not by recovery. What would
  // change a page is answered with permission.
  static Result<std::unique_ptr<EmbeddedPool>> open_to_read(std::string_view uri);
  ~EmbeddedPool() override;

  Result<SyncPageStore> store(std::string_view volume);
  // Makes a volume, which store() then finds; errors as of Pool, but never `busy`: it waits.
  Result<SyncPageStore> create_volume(const VolumeOptions& options);
  // Waits for what the volume does by itself, as collecting a zone. `busy`: something has changed
  // it for two seconds; try again. What holds it is told `not_found` then, until the pool is
  // closed: a deleted volume counts as one of the 64 that it may have. Returns when the volume's
  // zones are free, which it is gone before.
  Status delete_volume(std::string_view name);
  // As of Pool, but it waits for zones that are to be freed first: never `busy`. Of a cache of many
  // zones that may take a while.
  ResizeAnswer resize_volume(std::string_view name, const ResizeOptions& options);
  std::vector<VolumeInfo> volumes();
  PoolInfo info();
  // BlockingPool says what these are.
  void call(const std::function<void(Pool&)>& what) override;
  Pool& pool() override { return *pool_; }
  const Geometry& geometry() const override { return device_->geometry(); }
  const std::string& uri() const { return device_->uri(); }
  std::string identity() const override { return device_identity(device_->uri()); }
  std::uint64_t missing_bytes() const override;
  std::uint64_t random() override;
  std::uint64_t wall_s() const override;
  void submit(PageStore& store, PageOp& op) override;
  EventLoop::Turns take_turns() override;
  void run(PageStore& store, std::span<PageOp> ops) override;

 private:
  friend class SyncPageStore;
  using Opener = std::function<Result<std::unique_ptr<Pool>>(ZonedDevice&, EventLoop&)>;
  EmbeddedPool() = default;
  static Result<std::unique_ptr<EmbeddedPool>> start(std::unique_ptr<ZonedDevice> device,
                                                     const Opener& open);
  struct Thread;
  std::unique_ptr<ZonedDevice> device_;
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<Thread> thread_;
};

}  // namespace furrow
