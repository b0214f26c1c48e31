// Opening a device as a pool, and making one where nothing is: for furrowd and furrowctl.
// Blocking; one thread, before the executor runs.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/embedded_pool.h"
#include "engine/pool.h"
#include "tools/asked.h"
#include "zone/device.h"
#include "zone/event_loop.h"

namespace furrow::tools {

// A pool with what it stands on. Destroyed on the home executor's thread while that does not run,
// after all sessions: ends background work, then closes the pool in order.
class OpenPool {
 public:
  OpenPool() = default;
  OpenPool(std::unique_ptr<ZonedDevice> device, std::unique_ptr<Pool> pool, EventLoop& home)
      : device_(std::move(device)), pool_(std::move(pool)), home_(&home) {}
  OpenPool(OpenPool&&) noexcept = default;
  OpenPool& operator=(OpenPool&& other) noexcept;
  ~OpenPool() { close(); }

  Pool* operator->() const { return pool_.get(); }
  Pool& operator*() const { return *pool_; }
  ZonedDevice& device() const { return *device_; }
  // As of the pool, but they wait until zones of volumes that were deleted, before or by this, have
  // been reset.
  Result<PageStore*> create_volume(const VolumeOptions& options) const;
  Status delete_volume(std::string_view name) const;
  // False: the device could not flush at the end.
  bool close();

 private:
  std::unique_ptr<ZonedDevice> device_;
  std::unique_ptr<Pool> pool_;
  EventLoop* home_ = nullptr;
};

// "cannot open URI: DESCRIPTION", and who holds the device when that is why, on stderr. Returns the
// exit status, as report() does.
int report_device(std::string_view what, const std::string& uri, const Status& status);

enum class Opening : std::uint8_t {
  use,      // by this process alone
  check,    // by this process alone, and nothing is written: recovery mends nothing
  inspect,  // read-only, also while another process uses it
};
Result<OpenPool> open_pool(const std::string& uri, EventLoop& home, Opening opening,
                           Pool::OpenOptions options = {});  // read_only is as `opening` says

// The same of a pool with a thread of its own; not to check. To inspect: nobody else may use it.
Result<std::unique_ptr<EmbeddedPool>> open_embedded_pool(const std::string& uri, Opening opening);

struct PoolRecipe {
  std::string uri;
  DeviceShape shape;  // of an emulated device that is made when there is none
  ShapeAsked asked;   // what of the shape must be so on a device that is there
  std::string name;
  bool name_asked = false;  // it must be so of a pool that is there
  // What will be made in a pool that is new: where it could not be, no pool is made either.
  std::optional<VolumeOptions> first_volume = {};
};

// Makes the device when it is not there, and an empty pool on it. exists: it holds a pool already
// (and shape.force is not set), or has another shape than was asked for; foreign: it holds
// something else; invalid_argument: a shape was asked for of a mem: device, whose URI has it.
Result<OpenPool> create_pool(const PoolRecipe& recipe, EventLoop& home);

// As create_pool(), but a pool that is there is opened as it is; exists: it has another name than
// was asked for.
Result<OpenPool> open_or_create_pool(const PoolRecipe& recipe, EventLoop& home,
                                     const Pool::OpenOptions& options = {});

// The pool that must be there, for use; with what was asked for, as above.
Result<OpenPool> open_made_pool(const PoolRecipe& recipe, EventLoop& home,
                                const Pool::OpenOptions& options = {});

}  // namespace furrow::tools
