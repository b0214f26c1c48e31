#include "tools/make_pool.h"

#include <algorithm>

namespace furrow::tools {

namespace {

Result<std::unique_ptr<Pool>> open_on(ZonedDevice& device, EventLoop& home, Access access) {
  Pool::OpenOptions options;
  options.read_only = access == Access::inspect;
  return Pool::open(device, home, options);
}

Result<bool> is_empty(ZonedDevice& device) {
  const Result<std::vector<ZoneInfo>> zones = device.report();
  if (!zones) return zones.status();
  return std::ranges::all_of(*zones,
                             [](const ZoneInfo& zone) { return zone.state == ZoneState::empty; });
}

// The device at the URI, made when nothing is there.
Result<std::unique_ptr<ZonedDevice>> device_of(const PoolRecipe& recipe) {
  auto device = open_device(recipe.uri, Access::exclusive);
  const bool missing = !device && device.status().code() == Code::not_found;
  const bool replace = !device && device.status().code() == Code::foreign;
  if (!missing && !replace) return device;
  if (recipe.shape.size_bytes == 0) {
    return Status(Code::invalid_argument, Origin::tool,
                  "there is no device yet; say how large to make it with --size");
  }
  const Status made = create_device(recipe.uri, recipe.shape);
  if (!made.ok()) return made;
  return open_device(recipe.uri, Access::exclusive);
}

Result<OpenPool> format_on(std::unique_ptr<ZonedDevice> device, const PoolRecipe& recipe,
                           EventLoop& home) {
  const Status formatted = Pool::format(*device, recipe.name, home);
  if (!formatted.ok()) return formatted;
  auto pool = open_on(*device, home, Access::exclusive);
  if (!pool) return pool.status();
  return OpenPool{std::move(device), std::move(*pool)};
}

}  // namespace

Result<OpenPool> open_pool(const std::string& uri, EventLoop& home, Access access) {
  auto device = open_device(uri, access);
  if (!device) return device.status();
  auto pool = open_on(**device, home, access);
  if (!pool) return pool.status();
  return OpenPool{std::move(*device), std::move(*pool)};
}

Result<OpenPool> create_pool(const PoolRecipe& recipe, EventLoop& home) {
  auto device = device_of(recipe);
  if (!device) return device.status();
  const Result<bool> empty = is_empty(**device);
  if (!empty) return empty.status();
  if (!*empty && !recipe.shape.force) {
    return Status(Code::exists, Origin::tool,
                  "the device has data; --force makes a new pool and loses it");
  }
  return format_on(std::move(*device), recipe, home);
}

Result<OpenPool> open_or_create_pool(const PoolRecipe& recipe, EventLoop& home) {
  auto device = device_of(recipe);
  if (!device) return device.status();
  const Result<bool> empty = is_empty(**device);
  if (!empty) return empty.status();
  if (*empty) return format_on(std::move(*device), recipe, home);
  auto pool = open_on(**device, home, Access::exclusive);
  if (!pool) return pool.status();
  return OpenPool{std::move(*device), std::move(*pool)};
}

}  // namespace furrow::tools
