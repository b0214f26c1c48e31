#include "engine/page_calls.h"

#include <algorithm>
#include <utility>

namespace furrow {

PageOp PageCalls::keyed(PageOp::Kind kind, const Key& key) {
  PageOp op;
  op.kind = kind;
  op.key = key;
  return op;
}

Status PageCalls::run_for_status(PageOp&& op) {
  run(op);
  return op.status;
}

Status PageCalls::put(const Key& key, std::span<const std::byte> value, const PutOptions& options) {
  if (value.size() > ~std::uint32_t{0}) return {Code::too_large, Origin::engine};
  PageOp op = keyed(PageOp::Kind::put, key);
  op.condition = options.condition;
  op.durability = options.durability;
  op.ttl_s = options.ttl_s;
  op.group = options.group;
  op.pinned = options.pinned;
  // Only read, as its capacity says that there is nothing behind it to round up into.
  op.data = const_cast<std::byte*>(value.data());
  op.length = op.capacity = static_cast<std::uint32_t>(value.size());
  return run_for_status(std::move(op));
}

Status PageCalls::remove(const Key& key, Durability durability) {
  PageOp op = keyed(PageOp::Kind::remove, key);
  op.durability = durability;
  return run_for_status(std::move(op));
}

Status PageCalls::exist(const Key& key) { return run_for_status(keyed(PageOp::Kind::exist, key)); }

// In pieces, so that who asks for all of them need not have room for as many as there could be. A
// piece may be shorter, as by the longest transfer of a server.
Result<std::vector<Key>> PageCalls::list(const Key& after, std::uint32_t keys_max) {
  constexpr std::size_t kKeysAtOnce = 64 << 10;
  std::vector<Key> keys;
  for (bool more = true; more && keys.size() < keys_max;) {
    const std::size_t had = keys.size();
    PageOp op = keyed(PageOp::Kind::list, had == 0 ? after : keys.back());
    keys.resize(std::min<std::size_t>(had + kKeysAtOnce, keys_max));
    op.keys = keys.data() + had;
    op.keys_max = static_cast<std::uint32_t>(keys.size() - had);
    run(op);
    if (!op.status.ok()) return op.status;
    more = op.keys_count != 0;
    keys.resize(had + op.keys_count);
  }
  return keys;
}

Status PageCalls::flush() { return run_for_status(keyed(PageOp::Kind::flush, Key())); }

}  // namespace furrow
