#include "tools/make_pool.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/command_line.h"

namespace furrow::tools {

namespace {

Result<OpenPool> open_on(std::unique_ptr<ZonedDevice> device, EventLoop& home, bool read_only) {
  Pool::OpenOptions options;
  options.read_only = read_only;
  auto pool = Pool::open(*device, home, options);
  if (!pool) return pool.status();
  return OpenPool(std::move(device), std::move(*pool), home);
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
  return open_on(std::move(device), home, false);
}

}  // namespace

OpenPool& OpenPool::operator=(OpenPool&& other) noexcept {
  close();
  device_ = std::move(other.device_);
  pool_ = std::move(other.pool_);
  home_ = other.home_;
  return *this;
}

void OpenPool::close() {
  if (pool_) {
    while (!pool_->quiesce()) home_->run_once();
  }
  pool_.reset();
  device_.reset();
}

int report_device(std::string_view what, const std::string& uri, const Status& status) {
  std::string text = fmt::format("{} {}", what, uri);
  if (status.code() == Code::in_use) {
    const std::string holder = device_holder(uri);
    if (!holder.empty()) text += " (held by " + holder + ")";
  }
  return report(text, status);
}

Result<OpenPool> open_pool(const std::string& uri, EventLoop& home, Opening opening) {
  const Access access = opening == Opening::inspect ? Access::inspect : Access::exclusive;
  auto device = open_device(uri, access);
  if (!device) return device.status();
  return open_on(std::move(*device), home, opening != Opening::use);
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
  return open_on(std::move(*device), home, false);
}

}  // namespace furrow::tools
