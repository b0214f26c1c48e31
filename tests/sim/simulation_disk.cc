// Simulation: what it does with its disk.
#include "tests/sim/simulation.h"

namespace furrow::sim {

void Simulation::create_disk() {
  const Result<PageStore*> made = pool_->create_volume(swarm_.disk->options);
  if (!made.ok()) return world_.fail("create_volume: " + made.status().describe());
  disk_ = std::make_unique<SimDisk>(world_, *swarm_.disk);
  (void)attach_disk();
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
