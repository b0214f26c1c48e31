// Simulation: what it does with its disk.
#include "tests/sim/simulation.h"

namespace furrow::sim {

void Simulation::create_disk() {
  const Result<PageStore*> made = pool_->create_volume(swarm_.disk->options);
  if (!made.ok()) return world_.fail("create_volume: " + made.status().describe());
  disk_ = std::make_unique<SimDisk>(world_, *swarm_.disk);
  (void)attach_disk();
}

void Simulation::change_disk() {
  SimRandom& random = world_.random;
  if (swarm_.resize_one_in != 0 && random.one_in(swarm_.resize_one_in)) resize_disk();
  if (random.one_in(500) && pump("before the disk grows")) {
    summary_.resized += disk_->grow(*pool_) ? 1 : 0;
  }
}

// Its quota, from less than it holds to all that nobody else was promised. Then it is full, or has
// room again.
void Simulation::resize_disk() {
  const std::uint64_t zone_bytes = swarm_.geometry.zone_capacity_bytes();
  const std::uint64_t has = disk_->quota_bytes() / zone_bytes;
  const std::uint64_t zones = world_.random.between(3, has + pool_->info().zones_unpromised);
  if (zones > has && !pump("before the disk's quota grows")) return;
  summary_.resized += disk_->set_quota(*pool_, zones * zone_bytes) ? 1 : 0;
}

void Simulation::verify_disk() {
  disk_->restart_verification();
  for (bool more = true; more && !world_.failed();) {
    if (disk_->may_start()) {
      more = disk_->start_verification();
    } else {
      turn();
    }
  }
  (void)pump("a verification of the disk");
}

void Simulation::refill_disk() {
  disk_->start_discard_of_all();
  if (!pump("a discard of the whole disk")) return;
  world_.clock.now_ns += 1'000'000'000;
  const std::uint64_t before = disk_->writes_done();
  constexpr unsigned kWrites = 4;
  for (unsigned write = 0; write < kWrites; ++write) {
    disk_->start_write();
    if (!pump("writes after a discard of the whole disk")) return;
  }
  if (disk_->writes_done() == before + kWrites) return;
  world_.fail("the disk takes no write, with nothing in it: " + disk_->last_refusal().describe());
}

}  // namespace furrow::sim
