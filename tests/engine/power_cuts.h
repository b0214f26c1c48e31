// PowerCuts: the device under a Rig whose power is cut again and again. Its answers are late and
// out of order, as the seed has it; after a cut the pool is closed and what the device kept goes
// on, behind faults of another seed.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "tests/engine/rig.h"
#include "zone/fault_device.h"

namespace furrow::testing {

class PowerCuts {
 public:
  PowerCuts(Rig& rig, CrashModel model) : rig_(rig), model_(model) {}

  // Opens the rig's device.
  void start(std::uint64_t seed) {
    ASSERT_NO_FATAL_FAILURE(rig_.open_device());
    wrap(std::move(rig_.device), seed);
  }
  // When so many more LBAs have been handed to writes.
  void cut_after(std::uint64_t lbas) { fault_->cut_after(lbas, model_); }
  bool dead() const { return fault_->dead(); }
  // Now, if it has not been cut yet.
  void cut() {
    if (dead()) return;
    ASSERT_TRUE(fault_->power_cut(model_).ok());
  }
  // Once cut, and the pool and its queues are closed.
  void restore(std::uint64_t seed) {
    std::unique_ptr<ZonedDevice> inner = fault_->take_inner();
    rig_.device.reset();
    wrap(std::move(inner), seed);
  }

 private:
  void wrap(std::unique_ptr<ZonedDevice> inner, std::uint64_t seed) {
    FaultOptions options;
    options.seed = seed;
    options.delay_polls_max = 3;
    auto fault = std::make_unique<FaultDevice>(std::move(inner), options);
    fault_ = fault.get();
    rig_.device = std::move(fault);
  }

  Rig& rig_;
  const CrashModel model_;
  FaultDevice* fault_ = nullptr;  // the rig's device
};

}  // namespace furrow::testing
