// PageCalls: the blocking calls that a page store has, be it in this process (SyncPageStore) or a
// server's (transport::SyncInitiator).
//
// Threads: every call may come from any thread; each blocks its caller only. Errors: those of the
// operation, in PageOp::status.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/page_op.h"
#include "zone/status.h"

namespace furrow {

struct PutOptions {
  PageOp::Condition condition = PageOp::Condition::always;
  Durability durability = Durability::none;
  std::uint32_t ttl_s = 0;
  std::uint64_t group = 0;
  bool pinned = false;
};

class PageCalls {
 public:
  virtual ~PageCalls() = default;
  Status put(const Key& key, std::span<const std::byte> value, const PutOptions& options = {});
  // not_found: the key is not there; a server says ok then, unless a host has told it otherwise
  // (transport/initiator.h).
  Status remove(const Key& key, Durability durability = Durability::none);
  Status exist(const Key& key);  // ok or not_found
  // Up to `keys_max` keys behind `after` in listing order; fewer: there are no more.
  Result<std::vector<Key>> list(const Key& after, std::uint32_t keys_max);
  Status flush();
  // Submits and waits. For many at once, use the span: all are in flight together. Their callbacks
  // and context are set by this.
  void run(PageOp& op) { run(std::span<PageOp>(&op, 1)); }
  virtual void run(std::span<PageOp> ops) = 0;

 protected:
  static PageOp keyed(PageOp::Kind kind, const Key& key);
  Status run_for_status(PageOp&& op);
};

}  // namespace furrow
