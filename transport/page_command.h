// PageOps as commands of the Key Value Command Set (specification 1.0), and their answers back.
// Pure: no queue, no socket.
//
// Not expressible over KV, and refused as unsupported: TTL, groups, pinning.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/page_op.h"
#include "transport/host_queue.h"
#include "zone/status.h"

namespace furrow::transport {

struct PageLimits {
  std::uint32_t nsid = 1;
  std::uint32_t value_bytes_max = 1 << 20;
  std::uint32_t transfer_bytes_max = 1 << 20;
};

// Ok, or why this operation cannot be sent: invalid_argument, too_large, unsupported.
Status check_page_op(const PageOp& op, const PageLimits& limits);

// Fills in the command. `flush`: the Flush that makes a Store or Delete durable, which follows it.
// A list allocates memory for the payload (op.internal.scratch[0]) until free_list_memory(); false:
// there is none.
[[nodiscard]] bool encode_page_op(PageOp& op, const PageLimits& limits, bool flush,
                                  HostCommand& command);
// Sets the results of `op` from an answered command; returns its status.
Status decode_page_answer(PageOp& op, const HostCommand& command);
void free_list_memory(PageOp& op);
// Did it fail of what time can heal, so that the same command may be sent again? `status`: from
// decode_page_answer(), or why there is nothing to decode.
bool may_succeed_later(const Status& status, const nvme::Cqe& cqe);

// May it be sent again after a connection was lost without an answer?
bool is_idempotent(const PageOp& op);
bool changes_pages(const PageOp& op);  // put, remove
// Must a Flush follow before it is acknowledged?
bool needs_flush(const PageOp& op);

}  // namespace furrow::transport
