// Simulation: what it does with its volume of files.
#include "tests/sim/simulation.h"

namespace furrow::sim {

void Simulation::create_files() {
  const Result<PageStore*> made = pool_->create_volume(*swarm_.files);
  if (!made.ok()) return world_.fail("create_volume: " + made.status().describe());
  const auto route = swarm_.files_by_rocksdb ? SimFiles::Route::rocksdb : SimFiles::Route::direct;
  const bool unreadable =
      swarm_.hide_percent + swarm_.spoil_percent != 0 || swarm_.faults.fails_reads();
  const testing::FilesModel::Plan plan{.faults = swarm_.faults.but_for_reads().any(),
                                       .unreadable = unreadable,
                                       .full = true,
                                       .more = swarm_.files_by_rocksdb,
                                       .bytes_max = 60'000};
  files_ = std::make_unique<SimFiles>(world_, *swarm_.files, route, plan,
                                      [this] { turn_beside_files(); });
  (void)mount_files();
}

// False: as open_pool(), or what cannot be read now may be so at the next opening.
bool Simulation::mount_files() {
  if (!files_) return true;
  if (swarm_.faults.fails_reads() && files_->may_be_unreadable())
    device_->set_faults(swarm_.faults);
  while (files_->mount(*pool_, *session_, *executor_, swarm_.geometry)) {
    if (files_->mounted()) return true;
    const std::uint64_t then = world_.random.below(3);
    if (then < 2) return then == 0;  // the others go on without it
    world_.clock.now_ns += world_.random.below(5'000'000'000);
  }
  return false;
}

// A call; or, where it could not be mounted, another try.
void Simulation::step_files() {
  in_step_ = true;
  if (files_->mounted()) {
    files_->step();
  } else if (files_->mount(*pool_, *session_, *executor_, swarm_.geometry) && files_->mounted() &&
             !device_->dead()) {
    device_->cut_after(0);  // until all was seen
    files_->verify();
    ++summary_.mounts;
    const std::uint64_t most = swarm_.cut_events_max;
    if (most != 0) device_->cut_after(world_.random.log_between(1, most));
  }
  in_step_ = false;
}

// It is mounted once more, and then all is removed.
void Simulation::empty_files() {
  files_->unmount(true);
  if (!files_->mount(*pool_, *session_, *executor_, swarm_.geometry)) return;
  if (!files_->mounted()) return world_.fail("files cannot be mounted when all can be read");
  files_->verify();
  if (!world_.failed()) files_->remove_all();
}

// In the middle of a call.
void Simulation::turn_beside_files() {
  if (in_step_ && !world_.failed() && !device_->dead() && world_.random.one_in(2)) start_some();
  turn();
  if (world_.failed()) device_->cut_now();  // what is waited for ends
}

}  // namespace furrow::sim
