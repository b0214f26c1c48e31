// SimFiles: a volume of kind fs of a simulated pool: a FilesModel, which makes one call after
// another, by FileVolume or by RocksDB's FileSystem on it, and checks what is there after each
// mount. A call blocks, and gives turns meanwhile: other volumes go on, and the power may fail, at
// any event of it. It outlives power cuts. Not thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "engine/files/file_volume.h"
#include "tests/engine/files/files_model.h"
#include "tests/sim/sim_executor.h"
#include "tests/sim/sim_volume.h"

namespace furrow::sim {

class SimFiles {
 public:
  enum class Route : std::uint8_t { direct, rocksdb };
  // `turn`: takes one of the executor's, and lets others go on. `faults`: the device may fail.
  SimFiles(World& world, VolumeOptions options, Route route, bool faults,
           std::function<void()> turn);
  ~SimFiles();  // not mounted

  const VolumeOptions& options() const { return options_; }
  // False: the power failed meanwhile, or (a failure of the world's where no fault excuses it) it
  // cannot be mounted.
  bool mount(Pool& pool, PageSession& session, SimExecutor& executor, const Geometry& geometry);
  // The last time for want of a zone to write to, as some are lost and power cuts have ended all
  // others: only a larger quota would help.
  bool wedged() const { return wedged_; }
  void step();  // a call
  // After a mount: is what is there what must be?
  void verify();
  // Before the pool is closed: orderly, or as of a process that ends.
  void unmount(bool orderly);
  // The device is gone, in the middle of something: what is staged stays as it is.
  void device_died() {
    if (volume_) volume_->abandon();
  }
  // What comes after. Everything that was acknowledged is kept when `all_kept`; when the process
  // alone ended, its shared memory too.
  void cut(bool all_kept, bool process_only);
  // It cannot be unmounted any more: the process is about to end.
  void abandon();

 private:
  class Blocking;
  void note(const char* when);

  World& world_;
  const VolumeOptions options_;
  const Route route_;
  const bool faults_;
  const std::function<void()> turn_;
  const std::string identity_;  // of the device, for the shared memory
  SimRandom random_;
  testing::FilesModel model_;
  std::string staging_;
  std::shared_ptr<FileVolume> volume_;
  bool may_lose_ = false;  // since it was verified last
  bool wedged_ = false;
};

}  // namespace furrow::sim
