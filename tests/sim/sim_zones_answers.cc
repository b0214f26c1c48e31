// What a zoned volume may answer and report, and what its zones may be after something failed or
// the power did.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tests/sim/sim_zones.h"
#include "zone/check.h"

namespace furrow::sim {

namespace {

const char* name_of(ZonedOp::Kind kind) {
  constexpr const char* kNames[] = {"read",   "write", "append",      "open", "close",
                                    "finish", "reset", "set_offline", "flush"};
  return kNames[static_cast<unsigned>(kind)];
}

bool is_taken(ZoneState state) {
  return state == ZoneState::read_only || state == ZoneState::offline;
}

}  // namespace

void SimZones::answered(Client& client) {
  const ZonedOp& op = client.op;
  ++world_.tick;
  ++world_.answered;
  world_.trace.add(static_cast<std::uint64_t>(op.status.code()) + 77);
  --running_;
  client.busy = false;
  if (!world_.device->dead() && !expected(client)) fail(client, op.status.describe());
  if (op.kind == Kind::read) return op.status.ok() ? was_read(client) : void();
  if (op.kind == Kind::flush) return op.status.ok() ? was_flushed(client) : void();
  op.all ? changed_all(client) : changed(client);
  if (!world_.device->dead()) check_limits();
}

bool SimZones::expected(const Client& client) {
  const Status& status = client.op.status;
  const std::uint16_t nvme = status.nvme();
  if (status.ok()) return client.expected == 0;
  if (client.expected != 0 && nvme == client.expected) return true;
  return faulty() || (!client.certain && may_lack(client, nvme));
}

// Others hold, or may hold, all that the volume has.
bool SimZones::may_lack(const Client& client, std::uint16_t status) const {
  std::uint32_t open = 0, active = 0;
  for (std::uint32_t i = 0; i < zone_count(); ++i) {
    const Zone& zone = zones_[i];
    if (i == client.zone) continue;
    const bool runs = zone.running != 0 || zone.undecided;
    open += runs || zone.state == ZoneState::explicitly_open ? 1 : 0;
    active += runs || is_active(zone.state) ? 1 : 0;
  }
  // Some that did may have ended since, and been let go of.
  const auto reaches = [&](std::uint32_t most, std::uint32_t held) {
    return most != 0 && held + shape_.depth >= most;
  };
  if (status == nvme_status::kTooManyOpen) return reaches(geometry_.open_zones_max, open);
  if (status == nvme_status::kTooManyActive) return reaches(geometry_.active_zones_max, active);
  return false;
}

void SimZones::was_read(Client& client) {
  const ZonedOp& op = client.op;
  Zone& zone = zones_[client.zone];
  if (!client.comparable || zone.lives != client.life || zone.doubtful) return;
  std::vector<Cell>& cells = zone.life.cells;
  for (std::uint64_t i = 0; i < op.count; ++i) {
    const std::uint64_t at = op.lba - start_of(client.zone) + i;
    const std::span<const std::byte> bytes = lba_of(client, i);
    if (at >= cells.size()) {
      if (!all_zero(bytes)) return fail(client, fmt::format("LBA {} was never written", at));
      continue;
    }
    Cell& cell = cells[at];
    if (cell.acked == 0 || cell.acked > client.from) continue;
    const std::uint64_t hash = content_hash(bytes);
    world_.trace.add(hash);
    if (cell.hash == 0) cell.hash = hash;
    if (cell.hash != hash) return fail(client, fmt::format("LBA {} has other bytes", at));
  }
}

void SimZones::was_flushed(Client& client) {
  for (Zone& zone : zones_) {
    const auto flush = [&](Life& life) {
      for (Cell& cell : life.cells) cell.durable |= cell.acked != 0 && cell.acked <= client.from;
      life.full_durable |= life.full_since != 0 && life.full_since <= client.from;
    };
    flush(zone.life);
    for (Life& life : zone.before) flush(life);
    if (zone.reset_seen != 0 && zone.reset_seen <= client.from) zone.before.clear();
  }
}

void SimZones::changed(Client& client) {
  const ZonedOp& op = client.op;
  Zone& zone = zones_[client.zone];
  --changing_;
  --zone.running;
  if (op.kind == Kind::write || (op.kind == Kind::append && !as_append(op))) --zone.writes;
  if (as_append(op)) --zone.appends;
  // A write that was flushed may be answered after a reset that came behind it.
  Life* const life = client.life == zone.lives                              ? &zone.life
                     : zone.before.empty() || client.life + 1 != zone.lives ? nullptr
                                                                            : &zone.before.back();
  if (op.status.ok() && writes(op.kind) && life != nullptr) placed(client, *life);
  if (!op.status.ok() && client.expected == 0) {
    if (faulty() && life != nullptr && writes(op.kind)) life->may_be_full = true;
    if (faulty()) {
      zone.doubtful = true;
    } else if (!world_.device->dead()) {  // it was refused
      zone.state = client.state_before;
      zone.life.cells.resize(client.cells_before);
    }
  }
  done(client, client.zone);
}

void SimZones::changed_all(Client& client) {
  --changing_;
  all_running_ = false;
  if (client.op.kind == Kind::open) (void)learn_closings();
  for (const std::uint32_t i : client.selected) {
    --zones_[i].running;
    if (!client.op.status.ok() && client.expected == 0) zones_[i].doubtful = true;
    done(client, i);
  }
}

// Its part in a zone.
void SimZones::done(Client& client, std::uint32_t number) {
  Zone& zone = zones_[number];
  const Kind kind = client.op.kind;
  // Of an empty zone, or a full one, others may have come behind it.
  const bool same_life = client.op.all || client.life == zone.lives;
  if (client.op.status.ok() && kind == Kind::finish && same_life) {
    if (zone.life.full_since == 0) zone.life.full_since = world_.tick;
    zone.life.full_durable = true;
    for (Cell& cell : zone.life.cells) cell.durable |= cell.acked != 0;
  }
  if (client.op.status.ok() && kind == Kind::reset && same_life) {
    zone.before.clear();
    ++world_.hosts_zones_reset;
  }
  if (kind == Kind::finish || kind == Kind::reset) zone.managing = false;
  zone.undecided = false;
  if (zone.running == 0 && !world_.device->dead()) settle(number);
}

void SimZones::placed(Client& client, Life& life) {
  const ZonedOp& op = client.op;
  const std::uint64_t at = op.appended_at - start_of(client.zone);
  const bool its_own = op.kind == Kind::append || op.appended_at == op.lba;
  if (!its_own || at > life.cells.size() || op.count > life.cells.size() - at) {
    return fail(client, fmt::format("it was placed at {}", op.appended_at));
  }
  const bool flushed =
      op.durability == Durability::flushed || shape_.options.durability == Durability::flushed;
  // Where a write before it had failed, which was to be there.
  const bool moved = op.kind == Kind::append && zones_[client.zone].doubtful;
  for (std::uint64_t i = 0; i < op.count; ++i) {
    Cell& cell = life.cells[at + i];
    if ((cell.placed != (op.kind == Kind::write) && !moved) || cell.acked != 0) {
      return fail(client, fmt::format("LBA {} is another's", at + i));
    }
    cell = {client.hashes[i], world_.tick, true, flushed};
  }
}

// Nothing runs in it.
void SimZones::settle(std::uint32_t number) {
  Zone& zone = zones_[number];
  if (zone.running != 0 || world_.device->dead() || world_.failed()) return;
  const ZoneInfo info = zoned_zone(*store_, number);
  if (zone.doubtful) return adopt(number, Look::now);
  if (info.state != zone.state && is_taken(info.state) && shape_.loses_zones) {
    return adopt(number, Look::now);
  }
  const bool closed = info.state == ZoneState::closed && geometry_.open_zones_max != 0;
  if (zone.state == ZoneState::implicitly_open && closed) zone.state = info.state;
  if (info.state != zone.state) {
    return fail(number, fmt::format("is {}, and should be {}", to_string(info.state),
                                    to_string(zone.state)));
  }
  if (is_taken(zone.state) || zone.state == ZoneState::full) return;
  if (info.written_lbas == zone.life.cells.size()) return;
  fail(number, fmt::format("is written up to {}, and should be up to {}", info.written_lbas,
                           zone.life.cells.size()));
}

void SimZones::check_limits() {
  std::uint32_t open = 0, active = 0;
  for (std::uint32_t i = 0; i < zone_count(); ++i) {
    const ZoneState state = zoned_zone(*store_, i).state;
    open += is_open(state) ? 1 : 0;
    active += is_active(state) ? 1 : 0;
  }
  const auto above = [](std::uint32_t zones, std::uint32_t most) {
    return most != 0 && zones > most;
  };
  if (geometry_.active_zones_max == 0) active = 0;
  // A power cut may have opened one again that had been full.
  const std::uint32_t active_max = std::max(geometry_.active_zones_max, active_when_attached_);
  if (above(open, geometry_.open_zones_max) || above(active, active_max)) {
    fail(0, fmt::format("and others: {} are open and {} active", open, active));
  }
  if (!world_.faults && zones_changed(*store_)) fail(0, "or another is said to have been taken");
}

// --- what the device says ---

// The zone is what one of its lives may have become.
void SimZones::adopt(std::uint32_t number, Look look) {
  Zone& zone = zones_[number];
  const ZoneInfo info = zoned_zone(*store_, number);
  zone.doubtful = false;
  if (is_taken(info.state) && !shape_.loses_zones) return fail(number, "was taken by nobody");
  const auto other =
      std::ranges::find_if(zone.before, [&](const Life& life) { return fits(life, info, look); });
  if (fits(zone.life, info, look)) {
    zone.reset_seen = world_.tick;
    if (other != zone.before.end()) blur(zone.life, *other, info, look);
    return take(zone, std::move(zone.life), info, look);
  }
  std::size_t overwritten = zone.life.cells.size();
  while (!zone.before.empty()) {
    Life life = std::move(zone.before.back());
    zone.before.pop_back();
    ++zone.lives;
    if (!fits(life, info, look)) {
      overwritten = std::max(overwritten, life.cells.size());
      continue;
    }
    const auto older =
        std::ranges::find_if(zone.before, [&](const Life& each) { return fits(each, info, look); });
    if (older != zone.before.end()) blur(life, *older, info, look);
    // A file's zone has one place for all of its lives.
    const std::size_t lost = look == Look::emu ? std::min(overwritten, life.cells.size()) : 0;
    std::fill_n(life.cells.begin(), lost, Cell{.placed = false});
    zone.reset_seen = 0;
    return take(zone, std::move(life), info, look);
  }
  std::uint64_t durable = 0, acked = 0, at = 0;
  for (const Cell& cell : zone.life.cells) {
    ++at;
    if (cell.durable) durable = at;
    if (cell.acked != 0) acked = at;
  }
  fail(number, fmt::format("is {}, written up to {}; it was {}, of {} LBAs {} were acknowledged "
                           "and {} flushed",
                           to_string(info.state), info.written_lbas, to_string(zone.state), at,
                           acked, durable));
}

// It may be the other one, too: which of the two nobody can tell.
void SimZones::blur(Life& life, const Life& other, const ZoneInfo& info, Look look) const {
  if (look != Look::now) {
    life.cells.assign(std::max(life.cells.size(), other.cells.size()), Cell{.placed = false});
    life.may_be_full = true;
  } else if (info.state == ZoneState::read_only) {  // which says nothing of what it was before
    life.may_be_full |= other.may_be_full;
  }
}

bool SimZones::fits(const Life& life, const ZoneInfo& info, Look look) const {
  if (info.state == ZoneState::offline) return true;
  const bool keeps_all = look == Look::now || look == Look::kept;
  const auto stays = [&](const Cell& cell) { return keeps_all ? cell.acked != 0 : cell.durable; };
  const auto last = std::find_if(life.cells.rbegin(), life.cells.rend(), stays);
  const auto least = static_cast<std::uint64_t>(life.cells.rend() - last);
  const bool may_be_full = life.may_be_full || life.cells.size() == geometry_.zone_capacity_lbas;
  if (info.state == ZoneState::full) return may_be_full;
  const bool read_only = info.state == ZoneState::read_only;
  if (!read_only && (keeps_all ? life.full_since != 0 : life.full_durable)) return false;
  if (read_only && may_be_full && info.written_lbas >= life.cells.size()) return true;
  return info.written_lbas >= least && info.written_lbas <= life.cells.size();
}

// Of what may be lost, or may be anything, nobody knows what it is, until it is read.
void SimZones::take(Zone& zone, Life life, const ZoneInfo& info, Look look) {
  const bool full = info.state == ZoneState::full;
  const bool now = look == Look::now;
  // Some of a write that failed as its zone was taken may be there after all.
  if (!full) life.cells.resize(info.written_lbas, Cell{.placed = false});
  for (std::size_t i = 0; i < life.cells.size(); ++i) {
    Cell& cell = life.cells[i];
    const bool acked = cell.acked != 0;
    // A drive keeps a beginning, of which the last LBA may be torn.
    const bool inside = look == Look::drive && !full && i + 1 < life.cells.size() && cell.placed &&
                        (acked || !world_.faults);
    const bool known = cell.durable || inside || (acked && (now || look == Look::kept));
    if (now && known) continue;
    cell = {known ? cell.hash : 0, world_.tick, true, !now};
  }
  if (full && life.full_since == 0) life.full_since = world_.tick;
  if (!full && !is_taken(info.state)) life.full_since = 0;
  life.may_be_full = full || ((now || is_taken(info.state)) && life.may_be_full);
  if (!now) {
    life.full_durable = full;
    zone.before.clear();
  }
  zone.state = info.state;
  zone.life = std::move(life);
}

void SimZones::fail(const Client& client, const std::string& what) {
  const ZonedOp& op = client.op;
  world_.fail(fmt::format(
      "{} era {} tick {}: {}{} of {} LBAs at {} of zone {}, which is {} and "
      "written up to {}: {}",
      name(), world_.era, world_.tick, name_of(op.kind), op.all ? " of all" : "", op.count,
      op.lba - start_of(client.zone), client.zone, to_string(zones_[client.zone].state),
      zones_[client.zone].life.cells.size(), what));
}

void SimZones::fail(std::uint32_t zone, const std::string& what) {
  world_.fail(
      fmt::format("{} era {} tick {}: zone {} {}", name(), world_.era, world_.tick, zone, what));
}

}  // namespace furrow::sim
