#include "tests/sim/sim_zones.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "zone/check.h"

namespace furrow::sim {

namespace {

constexpr std::uint64_t kLbasAtOnce = 64;  // of a verification's read

}  // namespace

SimZones::SimZones(World& world, const ZonesShape& shape, const SimMedium& medium)
    : world_(world),
      shape_(shape),
      medium_(medium),
      device_append_lbas_(medium.geometry().append_lbas_max),
      zones_(shape.options.zones) {}

bool SimZones::attach(Pool& pool, Executor& executor) {
  Result<std::unique_ptr<PageSession>> session = pool.create_session(executor, 64);
  if (!session.ok()) return false;
  store_ = pool.find(name());
  pages_ = std::move(*session);
  session_ = std::make_unique<ZonedSession>(*pages_, executor);
  geometry_ = zoned_geometry(*store_);
  machine_ = std::make_unique<ZoneStateMachine>(geometry_);
  if (geometry_.zone_count != zones_.size()) {
    fail(0, fmt::format("the volume has {} zones", geometry_.zone_count));
    return false;
  }
  maybe = false;
  if (std::exchange(was_cut_, false)) {
    for (std::uint32_t i = 0; i < zone_count(); ++i) adopt(i, cut_);
  }
  for (std::uint32_t i = 0; i < zone_count(); ++i) settle(i);
  active_when_attached_ = usage().active;
  return !world_.failed();
}

void SimZones::detach() {
  session_.reset();
  pages_.reset();
  store_ = nullptr;
}

void SimZones::abandon() {
  (void)session_.release();
  (void)pages_.release();
  for (auto& client : clients_) (void)client.release();
}

// The first one: what it has left is what the others find.
void SimZones::cut(Cut how) {
  for (Zone& zone : zones_) {
    zone.running = zone.writes = zone.appends = 0;
    zone.managing = zone.undecided = zone.doubtful = false;
  }
  changing_ = 0;
  all_running_ = false;
  next_verified_ = 0;
  if (std::exchange(was_cut_, true)) return;
  cut_ = how == Cut::kept ? Look::kept : how == Cut::drive ? Look::drive : Look::emu;
}

ZoneAction SimZones::action_of(Kind kind) {
  constexpr ZoneAction kActions[] = {ZoneAction::read,  ZoneAction::write,      ZoneAction::append,
                                     ZoneAction::open,  ZoneAction::close,      ZoneAction::finish,
                                     ZoneAction::reset, ZoneAction::set_offline};
  return kActions[static_cast<unsigned>(kind)];
}

ZoneView SimZones::view(std::uint32_t zone) const {
  return {ZoneId{zone}, zones_[zone].state, zones_[zone].life.cells.size()};
}

ZoneUsage SimZones::usage() const {
  ZoneUsage usage;
  for (const Zone& zone : zones_) {
    usage.open += is_open(zone.state) ? 1 : 0;
    usage.active += is_active(zone.state) ? 1 : 0;
    usage.implicitly_open += zone.state == ZoneState::implicitly_open ? 1 : 0;
  }
  return usage;
}

std::span<std::byte> SimZones::lba_of(Client& client, std::uint64_t index) const {
  return client.data.span().subspan(index * geometry_.lba_bytes, geometry_.lba_bytes);
}

// --- submission ---

SimZones::Client& SimZones::free_client() {
  auto found = std::ranges::find_if(clients_, [](const auto& each) { return !each->busy; });
  if (found == clients_.end()) {
    clients_.push_back(std::make_unique<Client>());
    found = clients_.end() - 1;
    (*found)->zones = this;
    const std::uint64_t most = std::max(shape_.lbas_max, kLbasAtOnce);
    (*found)->data = AlignedBuffer(most * geometry_.lba_bytes);
  }
  Client& client = **found;
  client.op = ZonedOp();
  client.op.data = client.data.data();
  client.certain = true;
  client.expected = 0;
  client.selected.clear();
  return client;
}

SimZones::Kind SimZones::draw_kind(std::uint32_t zone) {
  constexpr std::pair<unsigned, Kind> kChoices[] = {
      {8, Kind::read},  {10, Kind::write}, {8, Kind::append},
      {2, Kind::open},  {2, Kind::close},  {2, Kind::finish},
      {3, Kind::reset}, {2, Kind::flush},  {1, Kind::set_offline}};
  if (zones_[zone].state == ZoneState::full && world_.random.one_in(3)) return Kind::reset;
  std::uint64_t drawn = world_.random.below(38);
  const auto* choice = kChoices;
  for (; drawn >= choice->first; ++choice) drawn -= choice->first;
  return choice->second;
}

void SimZones::start_any() {
  SimRandom& random = world_.random;
  Client& client = free_client();
  // Some zones are asked for more often.
  client.zone = static_cast<std::uint32_t>(
      random.below(random.one_in(3) ? zone_count() : 1 + zone_count() / 4));
  ZonedOp& op = client.op;
  op.kind = draw_kind(client.zone);
  op.lba = start_of(client.zone);
  if (op.kind == Kind::flush) return submit(client);
  if (op.kind == Kind::read) return start_read(client);
  op.all = !writes(op.kind) && random.one_in(10);
  if (op.all) return changing_ == 0 ? start_all(client) : void();
  if (writes(op.kind)) draw_write(client);
  if (may_begin(client.zone, op)) start_change(client);
}

// Is what becomes of it known, or can it be waited for?
bool SimZones::may_begin(std::uint32_t number, const ZonedOp& op) const {
  const Zone& zone = zones_[number];
  if (all_running_ || zone.undecided || zone.doubtful || zone.managing) return false;
  if (zone.running == 0) return true;
  if (op.kind == Kind::set_offline) return false;  // what runs may have found it read-only
  const bool waits = zone.writes != 0 && zone.appends != 0;
  if (op.kind == Kind::finish || op.kind == Kind::reset) return !faulty();
  if (!writes(op.kind)) return !waits || unlimited();
  const bool at_once = (as_append(op) ? zone.writes : zone.appends) == 0;
  // What waits for one that fails begins where that would have.
  return at_once || (!faulty() && (unlimited() || zone.state == ZoneState::explicitly_open));
}

// At the write pointer, mostly.
void SimZones::draw_write(Client& client) {
  SimRandom& random = world_.random;
  ZonedOp& op = client.op;
  const std::uint64_t written = zones_[client.zone].life.cells.size();
  const std::uint64_t left = geometry_.zone_capacity_lbas - written;
  op.count = random.log_between(1, shape_.lbas_max);
  if (op.count > left && left != 0 && !random.one_in(8)) op.count = left;
  const bool strays = random.one_in(16);
  if (op.kind == Kind::write) {
    op.lba += strays ? random.below(geometry_.zone_size_lbas)
                     : std::min(written, geometry_.zone_size_lbas - 1);
  } else if (strays) {
    op.count = std::min<std::uint64_t>(op.count, device_append_lbas_ + 1);
  }
  if (random.percent(shape_.flushed_percent)) op.durability = Durability::flushed;
  client.hashes.clear();
  for (std::uint64_t i = 0; i < op.count; ++i) {
    draw_bytes(lba_of(client, i));
    client.hashes.push_back(content_hash(lba_of(client, i)));
  }
}

// Or what the device holds somewhere, structures of the pool and of earlier lives included.
void SimZones::draw_bytes(std::span<std::byte> bytes) {
  SimRandom& random = world_.random;
  if (!random.one_in(6)) return fill_content(1, next_version_++, bytes);
  const Geometry& device = medium_.geometry();
  const ZoneId zone{static_cast<std::uint32_t>(random.below(device.zone_count))};
  medium_.read(zone, random.below(random.one_in(2) ? 4 : device.zone_capacity_lbas), bytes);
}

void SimZones::start_read(Client& client) {
  SimRandom& random = world_.random;
  ZonedOp& op = client.op;
  const std::uint64_t offset = random.below(geometry_.zone_size_lbas);
  op.lba += offset;
  op.count = random.log_between(1, shape_.lbas_max);
  if (!random.one_in(20)) op.count = std::min(op.count, geometry_.zone_size_lbas - offset);
  submit(client);
}

void SimZones::start_change(Client& client) {
  (void)learn_closings();
  Zone& zone = zones_[client.zone];
  const ZonedOp& op = client.op;
  const ZoneRequest request{action_of(op.kind), Lba{op.lba}, op.count};
  ZoneDecision decision = machine_->decide(view(client.zone), usage(), request);
  using namespace nvme_status;
  const bool lacks = decision.status == kTooManyActive || decision.status == kTooManyOpen;
  const bool takes = (writes(op.kind) || op.kind == Kind::open) &&
                     zone.state != ZoneState::explicitly_open && (decision.status == 0 || lacks);
  const bool alone = changing_ == 0;
  client.certain = !takes || unlimited() || alone;
  if (!client.certain) decision = machine_->decide(view(client.zone), {}, request);
  client.expected = decision.status;
  client.state_before = zone.state;
  client.cells_before = zone.life.cells.size();
  const bool manages = op.kind == Kind::finish || op.kind == Kind::reset;
  zone.undecided = !client.certain || (manages && faulty());
  if (decision.status == 0) enter(client, decision);
  client.life = zone.lives;
  ++zone.running;
  ++changing_;
  if (op.kind == Kind::write || (op.kind == Kind::append && !as_append(op))) ++zone.writes;
  if (as_append(op)) ++zone.appends;
  submit(client);
  const unsigned closed = learn_closings();
  const bool one = decision.status == 0 && decision.close_one_first;
  if (alone && !world_.device->dead() && closed != (one ? 1 : 0)) {
    fail(client, fmt::format("{} zones were closed for it", closed));
  }
}

// With nothing else that changes anything.
void SimZones::start_all(Client& client) {
  (void)learn_closings();
  const ZoneAction action = action_of(client.op.kind);
  for (std::uint32_t i = 0; i < zone_count(); ++i) {
    if (zones_[i].doubtful) return;
    if (ZoneStateMachine::selected_by_all(action, zones_[i].state)) client.selected.push_back(i);
  }
  const auto selected = static_cast<std::uint32_t>(client.selected.size());
  client.expected = machine_->check_all(action, usage(), selected);
  for (const std::uint32_t i : client.selected) {
    if (client.expected != 0) break;
    client.zone = i;
    enter(client, machine_->decide(view(i), usage(), {action, Lba{start_of(i)}, 0}));
  }
  for (const std::uint32_t i : client.selected) ++zones_[i].running;
  ++changing_;
  all_running_ = true;
  submit(client);
}

// What is so when it is done, and from now on for what comes behind it.
void SimZones::enter(Client& client, const ZoneDecision& decision) {
  Zone& zone = zones_[client.zone];
  const ZonedOp& op = client.op;
  const bool changes = zone.state != decision.state;
  zone.state = decision.state;
  if (writes(op.kind)) {
    std::vector<Cell>& cells = zone.life.cells;
    FURROW_CHECK(decision.written_at == cells.size());
    for (std::uint64_t i = 0; i < op.count; ++i) {
      const bool placed = op.kind == Kind::write;
      cells.push_back({.hash = placed ? client.hashes[i] : 0, .placed = placed});
    }
  }
  if (!changes) return;
  if (op.kind == Kind::finish) {
    zone.life.may_be_full = true;
    zone.managing = true;
  }
  if (op.kind == Kind::reset) {
    zone.before.push_back(std::exchange(zone.life, Life()));
    zone.reset_seen = 0;
    zone.managing = true;
    ++zone.lives;
  }
}

// The volume closes zones for others when these begin; and the device may have taken some.
unsigned SimZones::learn_closings() {
  unsigned closed = 0;
  for (std::uint32_t i = 0; i < zone_count(); ++i) {
    Zone& zone = zones_[i];
    const bool may_close = geometry_.open_zones_max != 0 && !zone.undecided && !zone.doubtful &&
                           zone.state == ZoneState::implicitly_open;
    if (may_close && zoned_zone(*store_, i).state == ZoneState::closed) {
      zone.state = ZoneState::closed;
      ++closed;
    }
    if (shape_.loses_zones) settle(i);
  }
  return closed;
}

void SimZones::submit(Client& client) {
  ZonedOp& op = client.op;
  client.busy = true;
  client.from = ++world_.tick;
  if (op.kind == Kind::read) {
    const Zone& zone = zones_[client.zone];
    std::memset(op.data, 0xEE, op.count * geometry_.lba_bytes);
    client.expected =
        machine_->decide(view(client.zone), {}, {ZoneAction::read, Lba{op.lba}, op.count}).status;
    client.life = zone.lives;
    client.comparable = !zone.managing && !zone.undecided && !zone.doubtful;
  }
  op.context = &client;
  op.on_done = [](ZonedOp& done) {
    auto& its_client = *static_cast<Client*>(done.context);
    its_client.zones->answered(its_client);
  };
  ++running_;
  world_.trace.add(static_cast<std::uint64_t>(op.kind) * 1000003 + op.lba);
  session_->submit(*store_, op);
}

void SimZones::restart_verification() {
  next_verified_ = 0;
  for (std::uint32_t i = 0; i < zone_count(); ++i) settle(i);
}

bool SimZones::start_verification() {
  const std::uint64_t size = geometry_.zone_size_lbas, all = size * zone_count();
  Client& client = free_client();
  client.zone = static_cast<std::uint32_t>(next_verified_ / size);
  client.op.lba = next_verified_;
  client.op.count = std::min(kLbasAtOnce, size - next_verified_ % size);
  next_verified_ = (next_verified_ + client.op.count) % all;
  submit(client);
  return next_verified_ != 0;
}

void SimZones::start_reset_of_all() {
  Client& client = free_client();
  client.op.kind = Kind::reset;
  client.op.all = true;
  start_all(client);
}

bool SimZones::start_filling(std::uint32_t zone) {
  const ZoneState state = zones_[zone].state;
  if (state == ZoneState::read_only || state == ZoneState::offline) return false;
  for (const Kind kind : {Kind::append, Kind::finish}) {
    Client& client = free_client();
    client.zone = zone;
    client.op.kind = kind;
    client.op.lba = start_of(zone);
    client.op.count = 1;
    draw_bytes(lba_of(client, 0));
    client.hashes = {content_hash(lba_of(client, 0))};
    start_change(client);
  }
  return true;
}

}  // namespace furrow::sim
