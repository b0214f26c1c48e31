#include "engine/zoned/zoned_session.h"

#include "engine/page_session.h"
#include "engine/page_store_impl.h"
#include "engine/pool_impl.h"
#include "engine/zoned/zoned_volume.h"
#include "zone/check.h"

namespace furrow {

namespace {

ZonedOp& zoned_op_of(Task& task) { return *reinterpret_cast<ZonedOp::Internal&>(task).self; }

bool transfers(ZonedOp::Kind kind) {
  return kind == ZonedOp::Kind::read || kind == ZonedOp::Kind::write ||
         kind == ZonedOp::Kind::append;
}

const ZonedVolume& zones_of(const PageStore& volume) {
  const ZonedVolume* const zones = static_cast<const PageStoreImpl&>(volume).zones();
  FURROW_CHECK(zones != nullptr);
  return *zones;
}

}  // namespace

Geometry zoned_geometry(const PageStore& volume) { return zones_of(volume).geometry(); }

ZoneInfo zoned_zone(const PageStore& volume, std::uint32_t zone) {
  return zones_of(volume).zone(zone);
}

bool zones_changed(const PageStore& volume) { return zones_of(volume).any_changed(); }

void look_for_taken_zones(PageStore& volume) {
  static_cast<PageStoreImpl&>(volume).zones()->look_for_taken();
}

std::vector<std::uint32_t> take_changed_zones(PageStore& volume) {
  return static_cast<PageStoreImpl&>(volume).zones()->take_changed();
}

ZonedSession::ZonedSession(PageSession& pages, Executor& executor)
    : pages_(pages), executor_(executor) {}

ZonedSession::~ZonedSession() { FURROW_CHECK(idle()); }

Status ZonedSession::refusal(const PageStoreImpl& store, const ZonedOp& op, bool read_only) {
  const auto invalid = [](const char* hint) {
    return Status(Code::invalid_argument, Origin::engine, hint);
  };
  if (store.zones() == nullptr) return invalid("the volume is not of kind zoned");
  if (store.deleted()) return PageStoreImpl::deleted_status();
  if (op.kind != ZonedOp::Kind::read && read_only) {
    return {Code::permission, Origin::engine, "the pool was opened for inspection only"};
  }
  if (op.kind == ZonedOp::Kind::flush) return {};
  const Geometry& geometry = store.zones()->geometry();
  if (transfers(op.kind)) {
    if (op.all) return invalid("data are of one zone");
    if (op.count == 0 || op.data == nullptr) return invalid("no data");
    if (reinterpret_cast<std::uintptr_t>(op.data) % geometry.lba_bytes != 0) {
      return invalid("data are aligned to the LBA size");
    }
  } else if (!op.all && op.lba % geometry.zone_size_lbas != 0) {
    return {Code::invalid_argument, Origin::engine, "zone management names a zone's first LBA", 0,
            nvme_status::kInvalidField};
  }
  if (op.all || op.lba / geometry.zone_size_lbas < geometry.zone_count) return {};
  return zone_status(nvme_status::kLbaOutOfRange);
}

void ZonedSession::submit(PageStore& volume, ZonedOp& op) {
  auto& store = static_cast<PageStoreImpl&>(volume);
  ++in_flight_;
  op.internal.self = &op;
  op.internal.session = this;
  op.internal.store = &store;
  op.status = refusal(store, op, store.pool().read_only());
  if (!op.status.ok()) return answer(op);
  if (op.kind == ZonedOp::Kind::read) return read(op);
  send_home(op, &ZonedSession::run_at_home);
}

void ZonedSession::send_home(ZonedOp& op, void (*run)(Task&)) {
  Executor& home = op.internal.store->context().home;
  op.internal.task.run = run;
  if (home.is_current()) return run(op.internal.task);
  home.post(op.internal.task);
}

void ZonedSession::run_at_home(Task& task) {
  ZonedOp& op = zoned_op_of(task);
  PageStoreImpl& store = *op.internal.store;
  if (store.deleted()) {  // while it was on its way
    op.status = PageStoreImpl::deleted_status();
    return answer(op);
  }
  store.zones()->submit(op);
}

void ZonedSession::answer(ZonedOp& op) {
  op.internal.task.run = [](Task& task) {
    ZonedOp& its_op = zoned_op_of(task);
    its_op.internal.session->done(its_op);
  };
  op.internal.session->executor_.post(op.internal.task);
}

void ZonedSession::done(ZonedOp& op) {
  --in_flight_;
  op.on_done(op);
}

// A volume is not deleted while a read that it may see here is in flight:
// PoolImpl::delete_volume().
void ZonedSession::read(ZonedOp& op) {
  PageStoreImpl& store = *op.internal.store;
  const ZonedVolume& zones = *store.zones();
  op.status = zone_status(zones.check_read(op.lba, op.count));
  if (!op.status.ok()) return answer(op);
  auto& pages = static_cast<PageSessionImpl&>(pages_);
  GetCounters& counters = pages.counters(store.ordinal());
  counters.gets.store(counters.gets.load(std::memory_order_relaxed) + 1);
  if (store.deleted()) {
    count(op, false);
    op.status = PageStoreImpl::deleted_status();
    return answer(op);
  }
  Io& io = op.internal.step.io;
  io.op = Io::Op::read;
  io.lba = zones.device_lba(op.lba);
  io.zone = pages.context().geometry.zone_of(io.lba);
  io.set_data(op.data, static_cast<std::uint32_t>(op.count), zones.geometry().lba_bytes,
              op.buffer_index);
  io.context = &op;
  io.on_complete = [](Io& read) {
    auto& its_op = *static_cast<ZonedOp*>(read.context);
    its_op.internal.session->was_read(its_op);
  };
  pages.queue().submit(io);
}

void ZonedSession::was_read(ZonedOp& op) {
  op.status = op.internal.step.io.status;
  // Before its end is, with which the volume may go.
  if (!op.status.ok()) ++counters_of(op).failed_reads;
  count(op, op.status.ok());
  if (op.status.ok() && op.durability == Durability::flushed) {
    return send_home(op, &ZonedSession::run_at_home);
  }
  if (op.status.ok()) return done(op);
  send_home(op, &ZonedSession::look_again_at_home);  // is the zone still there?
}

GetCounters& ZonedSession::counters_of(const ZonedOp& op) {
  return static_cast<PageSessionImpl&>(pages_).counters(op.internal.store->ordinal());
}

void ZonedSession::count(ZonedOp& op, bool ok) {
  GetCounters& counters = counters_of(op);
  const auto add = [](std::atomic<std::uint64_t>& counter, std::uint64_t more) {
    counter.store(counter.load(std::memory_order_relaxed) + more, std::memory_order_release);
  };
  if (ok) add(counters.bytes, op.count * op.internal.store->zones()->geometry().lba_bytes);
  add(ok ? counters.hits : counters.misses, 1);
}

void ZonedSession::look_again_at_home(Task& task) {
  ZonedOp& op = zoned_op_of(task);
  PageStoreImpl& store = *op.internal.store;
  const std::uint64_t zone = op.lba / store.zones()->geometry().zone_size_lbas;
  if (!store.deleted()) store.zones()->doubt(static_cast<std::uint32_t>(zone));
  answer(op);
}

}  // namespace furrow
