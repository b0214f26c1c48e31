// A volume of an open pool: its log, or its zones, and what its sessions count.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "engine/pool.h"
#include "engine/zoned/zoned_volume.h"
#include "log/page_log.h"
#include "zone/check.h"

namespace furrow {

// What one session did to one store. Written by the session's thread, read by any.
struct alignas(64) GetCounters {
  std::atomic<std::uint64_t> gets{0}, hits{0}, misses{0}, bytes{0}, failed_reads{0};

  void add_to(GetCounters& sum) const {
    sum.gets += gets;
    sum.hits += hits;
    sum.misses += misses;
    sum.bytes += bytes;
    sum.failed_reads += failed_reads;
  }
  void reset() { gets = hits = misses = bytes = failed_reads = 0; }
};

class PoolImpl;

// One of kind zoned has zones and no log, any other a log and no zones.
class PageStoreImpl final : public PageStore {
 public:
  PageStoreImpl(PoolImpl& pool, VolumeInfo info, PoolContext& context,
                const PageLogOptions& options, std::size_t ordinal)
      : pool_(pool),
        infos_{std::make_shared<const VolumeInfo>(std::move(info))},
        context_(context),
        log_(std::make_unique<PageLog>(context, options)),
        blocks_(context.blocks_of(options.volume)),
        ordinal_(ordinal) {}
  PageStoreImpl(PoolImpl& pool, VolumeInfo info, PoolContext& context,
                std::unique_ptr<ZonedVolume> zones, std::size_t ordinal)
      : pool_(pool),
        infos_{std::make_shared<const VolumeInfo>(std::move(info))},
        context_(context),
        zones_(std::move(zones)),
        ordinal_(ordinal) {}

  const VolumeInfo& info() const override { return *info_.load(std::memory_order_acquire); }
  VolumeUsage usage() const override;
  VolumeStats stats() const override;
  std::uint64_t media_errors() const;  // its part of PoolInfo's

  PageLog& log() {
    FURROW_CHECK(log_ != nullptr);
    return *log_;
  }
  ZonedVolume* zones() const { return zones_.get(); }      // of kind zoned; null: another
  PoolContext::Blocks* blocks() const { return blocks_; }  // of kind block; null: another
  PoolImpl& pool() { return pool_; }
  PoolContext& context() { return context_; }
  std::size_t ordinal() const { return ordinal_; }  // its place in a session's counters
  // Home executor: the volume was resized. What info() gave before stays.
  void set_info(VolumeInfo info) {
    infos_.push_back(std::make_shared<const VolumeInfo>(std::move(info)));
    info_.store(infos_.back().get(), std::memory_order_release);
  }
  // Any thread; set by the home executor. A deleted volume's store stays until the pool is closed
  // and refuses what comes, so nobody has to know when the last operation on it has been answered.
  bool deleted() const { return deleted_.load(); }
  void mark_deleted(bool deleted = true) { deleted_.store(deleted); }
  // Is what an operation changes to be durable before it is answered?
  bool durably(Durability asked) const {
    return asked == Durability::flushed || info().options.durability == Durability::flushed;
  }
  static Status deleted_status() {
    return {Code::not_found, Origin::engine, "the volume was deleted"};
  }

 private:
  PoolImpl& pool_;
  std::vector<std::shared_ptr<const VolumeInfo>> infos_;  // the last one is the volume's
  std::atomic<const VolumeInfo*> info_{infos_.front().get()};
  PoolContext& context_;
  const std::unique_ptr<PageLog> log_;
  const std::unique_ptr<ZonedVolume> zones_;
  PoolContext::Blocks* const blocks_ = nullptr;
  const std::size_t ordinal_;
  std::atomic<bool> deleted_{false};
};

}  // namespace furrow
