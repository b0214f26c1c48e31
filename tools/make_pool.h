// Opening a device as a pool, and making one where nothing is: for furrowd and furrowctl.
// Blocking; one thread, before the executor runs.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "engine/pool.h"
#include "zone/device.h"
#include "zone/event_loop.h"

namespace furrow::tools {

// A pool with what it stands on, destroyed in the right order.
struct OpenPool {
  std::unique_ptr<ZonedDevice> device;
  std::unique_ptr<Pool> pool;
};

// Opens for use by this process alone, or for inspection (read-only, also while it is in use).
Result<OpenPool> open_pool(const std::string& uri, EventLoop& home, Access access);

struct PoolRecipe {
  std::string uri;
  DeviceShape shape;  // of an emulated device that is made when there is none
  std::string name;
};

// Makes the device when it is not there, and an empty pool on it. exists: it holds a pool already
// (and shape.force is not set); foreign: it holds something else.
Result<OpenPool> create_pool(const PoolRecipe& recipe, EventLoop& home);

// As create_pool(), but a pool that is there is opened as it is.
Result<OpenPool> open_or_create_pool(const PoolRecipe& recipe, EventLoop& home);

}  // namespace furrow::tools
