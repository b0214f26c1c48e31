// The half of a PageOp that runs on the pool's home executor.
#pragma once

#include "engine/page_op.h"
#include "engine/page_store_impl.h"

namespace furrow {

// Any thread. Passes the operation on to the home executor; it is answered on
// op.internal.reply_to. A get that is sent home found no intact page: home tells corrupt from
// absent.
void send_home(PageStoreImpl& store, PageOp& op);

}  // namespace furrow
