// Simulation: what it does with its disks.
#include <fmt/format.h>

#include <algorithm>

#include "tests/sim/simulation.h"

namespace furrow::sim {

void Simulation::create_disks() {
  for (const DiskShape& shape : swarm_.disks) {
    if (!world_.failed() && !create_disk(shape)) world_.fail("the disks do not fit");
  }
}

// False: there is no room for it, or not yet.
bool Simulation::create_disk(DiskShape shape) {
  const Result<PageStore*> made = pool_->create_volume(shape.options);
  const Code code = made.status().code();
  if (code == Code::no_space || code == Code::too_many_zones || code == Code::busy) return false;
  if (!made.ok() && !device_->dead() && !world_.faults) {
    world_.fail("create_volume: " + made.status().describe());
    return true;
  }
  disks_.push_back(std::make_unique<SimDisk>(world_, shape));
  disks_.back()->maybe = !made.ok();
  if (made.ok()) (void)disks_.back()->attach(*pool_, *executor_);
  return true;
}

bool Simulation::attach_disks() {
  std::erase_if(disks_, [this](const auto& disk) {
    return disk->maybe && pool_->find(disk->name()) == nullptr;
  });
  return std::ranges::all_of(disks_,
                             [this](const auto& disk) { return disk->attach(*pool_, *executor_); });
}

void Simulation::cut_disks(bool process_only) {
  for (const auto& disk : disks_) disk->cut(process_only);
}

// The draw is left out where there is but one.
SimDisk& Simulation::any_disk() {
  return *disks_[disks_.size() == 1 ? 0 : world_.random.below(disks_.size())];
}

void Simulation::change_disks() {
  SimRandom& random = world_.random;
  const unsigned one_in = swarm_.disks_change_one_in;
  if (one_in != 0 && random.one_in(one_in)) come_or_go();
  if (disks_.empty()) return;
  SimDisk& disk = any_disk();
  if (!disk.attached()) return;
  if (swarm_.resize_one_in != 0 && random.one_in(swarm_.resize_one_in)) resize(disk);
  if (random.one_in(500) && pump("before the disk grows")) {
    summary_.resized += disk.grow(*pool_) ? 1 : 0;
  }
}

void Simulation::come_or_go() {
  SimRandom& random = world_.random;
  if (!ended_disks_.empty() && random.one_in(4)) {
    if (pump("before deleted disks are forgotten")) rest_disks();
    if (!world_.failed()) pool_->forget_deleted();
    return;
  }
  if (disks_.size() < swarm_.disks.size() && random.one_in(2)) {
    DiskShape shape = swarm_.disks[random.below(swarm_.disks.size())];
    shape.options.name = fmt::format("d{}", names_++);
    (void)create_disk(shape);
  } else if (!disks_.empty()) {
    remove(any_disk());
  }
}

// Under load, at which it may be busy; or while nothing changes it.
void Simulation::remove(SimDisk& disk) {
  if (!disk.attached()) return;
  const Status removed = pool_->delete_volume(disk.name());
  world_.trace.add(static_cast<std::uint64_t>(removed.code()));
  if (removed.code() == Code::busy) return;
  if (!removed.ok()) {
    disk.maybe = true;
    if (!device_->dead() && !world_.faults) world_.fail("delete_volume: " + removed.describe());
    return;
  }
  if (disk.running() != 0) ++summary_.disks_deleted;
  disk.end();
  const auto found = std::ranges::find(disks_, &disk, [](const auto& each) { return each.get(); });
  ended_disks_.push_back(std::move(*found));
  disks_.erase(found);
}

void Simulation::rest_disks() {
  const auto rests = [](const auto& disk) { return disk->at_rest(); };
  for (std::uint64_t turns = 0;
       !std::ranges::all_of(disks_, rests) || !std::ranges::all_of(ended_disks_, rests); ++turns) {
    executor_->run_once();
    if (turns > kQuietTurnsMax) return world_.fail("a disk does not come to rest");
  }
  ended_disks_.clear();
}

// Its quota, from less than it holds to all that nobody else was promised. Then it is full, or has
// room again.
void Simulation::resize(SimDisk& disk) {
  const std::uint64_t zone_bytes = swarm_.geometry.zone_capacity_bytes();
  const std::uint64_t has = disk.quota_bytes() / zone_bytes;
  const std::uint64_t zones = world_.random.between(3, has + pool_->info().zones_unpromised);
  if (zones > has && !pump("before the disk's quota grows")) return;
  summary_.resized += disk.set_quota(*pool_, zones * zone_bytes) ? 1 : 0;
}

void Simulation::verify(SimDisk& disk) {
  disk.restart_verification();
  for (bool more = true; more && !world_.failed();) {
    if (disk.may_start()) {
      more = disk.start_verification();
    } else {
      turn();
    }
  }
  (void)pump("a verification of the disk");
}

void Simulation::refill(SimDisk& disk) {
  disk.start_discard_of_all();
  if (!pump("a discard of the whole disk")) return;
  world_.clock.now_ns += 1'000'000'000;
  const std::uint64_t before = disk.writes_done();
  constexpr unsigned kWrites = 4;
  for (unsigned write = 0; write < kWrites; ++write) {
    disk.start_write();
    if (!pump("writes after a discard of the whole disk")) return;
  }
  if (disk.writes_done() == before + kWrites) return;
  world_.fail("the disk takes no write, with nothing in it: " + disk.last_refusal().describe());
}

}  // namespace furrow::sim
