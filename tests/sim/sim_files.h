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
#include "tests/sim/rot.h"
#include "tests/sim/sim_executor.h"
#include "tests/sim/sim_volume.h"

namespace furrow::sim {

class SimFiles {
 public:
  enum class Route : std::uint8_t { direct, rocksdb };
  // `turn`: takes one of the executor's, and lets others go on. `plan`: what may go wrong.
  SimFiles(World& world, VolumeOptions options, Route route, testing::FilesModel::Plan plan,
           std::function<void()> turn);
  ~SimFiles();  // not mounted

  const VolumeOptions& options() const { return options_; }
  // False: the power failed meanwhile, or (a failure of the world's where no fault excuses it) it
  // cannot be mounted. True, and not mounted(): as something cannot be read for now.
  bool mount(Pool& pool, PageSession& session, SimExecutor& executor, const Geometry& geometry);
  // The last time for want of a zone to write to, as some are lost and power cuts have ended all
  // others: only a larger quota would help.
  bool wedged() const { return wedged_; }
  bool mounted() const { return volume_ != nullptr; }
  bool may_be_unreadable() const { return plan_.unreadable; }
  // For what could not be read, or was damaged.
  std::uint64_t mounts_refused() const { return mounts_refused_; }
  void step();  // a call
  // After a mount: is what is there what must be?
  void verify();
  // Likewise; and then nothing is left of anything.
  void remove_all();
  // Before the pool is closed: orderly, or as of a process that ends.
  void unmount(bool orderly);
  // The device is gone, in the middle of something: what is staged stays as it is.
  void device_died() {
    if (volume_) volume_->abandon();
  }
  // What comes after. Everything that was acknowledged is kept when `all_kept`; when the process
  // alone ended, its shared memory too.
  void cut(bool all_kept, bool process_only);
  std::uint64_t id() const { return id_; }
  void strike(const StruckPage& page);  // of it
  // It is not mounted for what was struck, and the rest was seen: that is to be mended.
  const std::vector<StruckPage>& to_mend() const { return refused_; }
  bool beyond_mending() const { return beyond_mending_; }
  // It cannot be unmounted any more: the process is about to end.
  void abandon();

 private:
  class Blocking;
  void note(const char* when);
  void salvage(const std::shared_ptr<BlockingPool>& pool, PageStore& store);

  World& world_;
  const VolumeOptions options_;
  const Route route_;
  const testing::FilesModel::Plan plan_;
  const std::function<void()> turn_;
  const std::string identity_;  // of the device, for the shared memory
  SimRandom random_;
  testing::FilesModel model_;
  std::string staging_;
  std::uint64_t id_ = 0;
  std::vector<StruckPage> records_;  // that were struck since it was mounted last
  std::vector<StruckPage> refused_;
  std::shared_ptr<FileVolume> volume_;
  std::uint64_t mounts_refused_ = 0;
  bool may_lose_ = false;  // since it was verified last
  bool wedged_ = false;
  bool beyond_mending_ = false;  // it was mended, and a copy has the damage
};

}  // namespace furrow::sim
