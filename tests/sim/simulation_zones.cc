// Simulation: what it does with its volume of kind zoned.
#include <fmt/format.h>

#include "tests/sim/simulation.h"

namespace furrow::sim {

// Of zones that others may have had before.
void Simulation::create_zones() {
  ZonesShape shape = *swarm_.zones;
  shape.options.name = fmt::format("z{}", names_++);
  const Result<PageStore*> made = pool_->create_volume(shape.options);
  world_.trace.add(static_cast<std::uint64_t>(made.status().code()));
  const Code code = made.status().code();
  if (code == Code::no_space || code == Code::too_many_zones || code == Code::busy) return;
  if (!made.ok() && !device_->dead() && !world_.faults) {
    return world_.fail("create_volume: " + made.status().describe());
  }
  zones_ = std::make_unique<SimZones>(world_, shape, medium_);
  zones_->maybe = !made.ok();
  if (made.ok()) (void)zones_->attach(*pool_, *executor_);
}

bool Simulation::attach_zones() {
  if (!zones_) return true;
  if (pool_->find(zones_->name()) != nullptr) return zones_->attach(*pool_, *executor_);
  if (!zones_->maybe) world_.fail("volume lost: " + zones_->name());
  zones_.reset();
  return !world_.failed();
}

void Simulation::cut_zones(bool all_kept) {
  using enum SimZones::Cut;
  if (zones_) zones_->cut(all_kept ? kept : swarm_.emu ? emu : drive);
}

void Simulation::change_zones() {
  const unsigned one_in = swarm_.zones_change_one_in;
  if (one_in == 0 || !world_.random.one_in(one_in)) return;
  if (zones_ && zones_->attached()) return remove_zones();
  if (!zones_) create_zones();
}

// While it is in use it is not deleted.
void Simulation::remove_zones() {
  if (world_.random.one_in(2) && !pump("before the zones' deletion")) return;
  const Status removed = pool_->delete_volume(zones_->name());
  world_.trace.add(static_cast<std::uint64_t>(removed.code()));
  if (removed.code() == Code::busy) return;
  if (!removed.ok() && !device_->dead() && !world_.faults) {
    return world_.fail("delete_volume: " + removed.describe());
  }
  zones_->maybe = true;
  if (!removed.ok() || !pump("after the zones' deletion")) return;
  zones_->detach();
  zones_.reset();
  pool_->forget_deleted();
}

void Simulation::verify_zones() {
  zones_->restart_verification();
  for (bool more = true; more && !world_.failed();) {
    if (zones_->may_start()) {
      more = zones_->start_verification();
    } else {
      turn();
    }
  }
  (void)pump("a verification of the zones");
}

void Simulation::refill_zones() {
  if (!zones_->attached()) return;
  zones_->start_reset_of_all();
  for (std::uint32_t i = 0; i < zones_->zone_count(); ++i) {
    if (!pump("a reset of all zones, and writes")) return;
    (void)zones_->start_filling(i);
  }
  if (!pump("writes to all zones")) return;
  verify_zones();
}

}  // namespace furrow::sim
