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

class EmbeddedPool {
 public:
  struct CreateOptions {
    std::uint64_t size_bytes = 0;  // not 0: make what is missing: an emulated device of this size,
    std::string name = "furrow";   //   a pool of this name, and `volume` where there is none at all
    VolumeOptions volume;
    // Its thread does not interrupt a thread of the program's to begin its work where no processor
    // is free (SCHED_BATCH): for who writes much behind threads that must not be late.
    bool gives_way = false;
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
  ~EmbeddedPool();

  Result<SyncPageStore> store(std::string_view volume);
  // Makes a volume, which store() then finds; errors as of Pool.
  Result<SyncPageStore> create_volume(const VolumeOptions& options);
  // `busy`: something still changes the volume; try again. What holds it is told `not_found` then.
  Status delete_volume(std::string_view name);
  // As of Pool, but it waits for zones that are to be freed first: never `busy`. Of a cache of many
  // zones that may take a while.
  ResizeAnswer resize_volume(std::string_view name, const ResizeOptions& options);
  std::vector<VolumeInfo> volumes();
  PoolInfo info();
  // Runs `what` on the pool's thread, where all functions of a Pool may be used, and waits for it;
  // nothing else of the pool is done meanwhile. Not from that thread itself.
  void call(const std::function<void(Pool&)>& what);
  // For create_session(), which any thread may use; for all else see call().
  Pool& pool() { return *pool_; }
  const Geometry& geometry() const { return device_->geometry(); }
  std::uint64_t random();  // 64 random bits, of the pool's executor
  const std::string& uri() const { return device_->uri(); }  // of the device
  // Any thread; does not block. The op's events come on the pool's thread, which is its own or one
  // that took the turns. All are released
  // before the pool is destroyed. What one thread submits is begun in that order.
  void submit(PageStore& store, PageOp& op);
  // As of EventLoop: for who submits and then waits.
  EventLoop::Turns take_turns();
  // Any thread but the pool's: submits all and waits until they are released.
  void run(PageStore& store, std::span<PageOp> ops);

 private:
  friend class SyncPageStore;
  using Opener = std::function<Result<std::unique_ptr<Pool>>(ZonedDevice&, EventLoop&)>;
  EmbeddedPool() = default;
  static Result<std::unique_ptr<EmbeddedPool>> run(std::unique_ptr<ZonedDevice> device,
                                                   bool gives_way, const Opener& open);
  struct Thread;
  std::unique_ptr<ZonedDevice> device_;
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<Thread> thread_;
};

}  // namespace furrow
