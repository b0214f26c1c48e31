// The two events of a PageOp, and its time limit (PageOp::within_us), for whoever carries it out: a
// PageSession, or an Initiator.
//
// Threads: all of it on the executor's thread that the operation was submitted on.
#pragma once

#include "engine/page_op.h"

namespace furrow {

// invalid_argument: it has a time limit, and no on_released to say when its data is the caller's.
Status check_time_limit(const PageOp& op);

// It is accepted; answer() follows. What `when_late` does begins with tell_late().
void accept(PageOp& op, Executor& executor, void (*when_late)(Timer&));

// Of an operation that whoever asked for it has given up (BlockOp::wanted, ZonedOp::wanted).
inline constexpr Status kUnwanted{Code::aborted, Origin::engine,
                                  "whoever asked for it wants it no longer"};

// The time of this one's Deadline has passed: its caller is told.
PageOp& tell_late(Timer& deadline);

// op.internal.status is final. Calls on_result, unless it was late and has had that, and
// on_released.
void answer(PageOp& op);

}  // namespace furrow
