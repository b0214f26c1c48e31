#include "engine/home_ops.h"

#include "engine/op_answer.h"
#include "engine/page_session.h"
#include "engine/pool_impl.h"

namespace furrow {

namespace {

PageOp& op_of(Task& task) { return *reinterpret_cast<PageOp::Internal&>(task).self; }

// Back to the thread that asked.
void reply(PageOp& op, Status status) {
  op.internal.status = status;
  if (op.kind == PageOp::Kind::get || op.kind == PageOp::Kind::get_range) {
    op.internal.task.run = [](Task& task) { PageSessionImpl::diagnosed(op_of(task)); };
  } else {
    op.internal.task.run = [](Task& task) { answer(op_of(task)); };
  }
  op.internal.reply_to->post(op.internal.task);
}

PageLog& log_of(PageOp& op) { return static_cast<PageStoreImpl*>(op.internal.store)->log(); }

void tell_exist(const KeyOp& done, PageOp& op) {
  op.length = done.value_length;
  if (!done.whole_record) return;
  op.pinned = done.pinned;
  op.group = done.group;
  op.ttl_s = 0;
  if (done.expires_s == 0) return;
  const std::uint64_t now = static_cast<PageStoreImpl*>(op.internal.store)->context().home.wall_s();
  op.ttl_s = done.expires_s > now ? static_cast<std::uint32_t>(done.expires_s - now) : 1;
}

void run_key_op(PageOp& op, KeyOp::Kind kind) {
  auto& store = *static_cast<PageStoreImpl*>(op.internal.store);
  KeyOp& key_op = op.internal.key_op;
  key_op.kind = kind;
  key_op.condition = static_cast<KeyOp::Condition>(op.condition);
  key_op.flushed = store.durably(op.durability);
  key_op.pinned = op.pinned;
  key_op.shrinks = op.shrinks;
  key_op.whole_record = op.whole_record;
  key_op.key = op.key;
  key_op.group = op.group;
  key_op.expires_s = 0;
  if (op.ttl_s != 0) {
    const std::uint64_t at = store.context().home.wall_s() + op.ttl_s;
    key_op.expires_s = static_cast<std::uint32_t>(std::min<std::uint64_t>(at, ~std::uint32_t{0}));
  }
  key_op.lifetime = op.lifetime;
  // A get is of whatever is there, though a put may have had its operation before.
  key_op.known = op.kind == PageOp::Kind::get ? nullptr : op.known;
  key_op.data = op.data;
  key_op.length = op.length;
  key_op.capacity = op.capacity;
  key_op.on_done = [](KeyOp& done) {
    PageOp& its_op = *done.page_op;
    if (done.kind == KeyOp::Kind::exist) tell_exist(done, its_op);
    its_op.checksum = done.value_checksum;
    reply(its_op, done.status);
  };
  key_op.page_op = &op;
  log_of(op).submit(key_op);
}

void run_list(PageOp& op) {
  ListOp& list = op.internal.list_op;
  list.after = op.key;
  list.keys = op.keys;
  list.keys_max = op.keys_max;
  list.page_op = &op;
  list.on_done = [](ListOp& done) {
    done.page_op->keys_count = done.keys_count;
    reply(*done.page_op, done.status);
  };
  log_of(op).list(list);
}

void run_remove_group(PageOp& op) {
  RemoveGroupOp& removal = op.internal.group_op;
  removal.group = op.group;
  removal.flushed = static_cast<PageStoreImpl*>(op.internal.store)->durably(op.durability);
  removal.own_keys = op.own_keys;
  removal.known = {op.known, op.known_count};
  removal.page_op = &op;
  removal.on_done = [](RemoveGroupOp& done) { reply(*done.page_op, done.status); };
  log_of(op).remove_group(removal);
}

void run_flush(PageOp& op) {
  FlushOp& flush = op.internal.flush_op;
  flush.page_op = &op;
  flush.on_flushed = [](FlushWaiter& waiter) {
    reply(*static_cast<FlushOp&>(waiter).page_op, waiter.status);
  };
  auto& store = *static_cast<PageStoreImpl*>(op.internal.store);
  store.zones() == nullptr ? store.log().flush(flush) : store.context().flusher.request(flush);
}

void run_at_home(PageOp& op) {
  if (static_cast<PageStoreImpl*>(op.internal.store)->deleted()) {  // while it was on its way
    return reply(op, PageStoreImpl::deleted_status());
  }
  switch (op.kind) {
    case PageOp::Kind::put:
      return run_key_op(op, KeyOp::Kind::put);
    case PageOp::Kind::remove:
      return run_key_op(op, KeyOp::Kind::remove);
    case PageOp::Kind::exist:
      return run_key_op(op, KeyOp::Kind::exist);
    case PageOp::Kind::pin:
      return run_key_op(op, KeyOp::Kind::pin);
    case PageOp::Kind::unpin:
      return run_key_op(op, KeyOp::Kind::unpin);
    case PageOp::Kind::get:
    case PageOp::Kind::get_range:
      return run_key_op(op, KeyOp::Kind::diagnose);
    case PageOp::Kind::list:
      return run_list(op);
    case PageOp::Kind::remove_group:
      return run_remove_group(op);
    case PageOp::Kind::flush:
      return run_flush(op);
  }
}

}  // namespace

void send_home(PageStoreImpl& store, PageOp& op) {
  op.internal.self = &op;
  Executor& home = store.context().home;
  if (home.is_current()) return run_at_home(op);
  op.internal.task.run = [](Task& task) { run_at_home(op_of(task)); };
  home.post(op.internal.task);
}

}  // namespace furrow
