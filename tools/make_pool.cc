#include "tools/make_pool.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>

#include "tools/command_line.h"
#include "tools/progress.h"
#include "tools/tell.h"
#include "zone/device_uri.h"
#include "zone/emu_file.h"

namespace furrow::tools {

namespace {

Result<OpenPool> open_on(std::unique_ptr<ZonedDevice> device, EventLoop& home,
                         const Pool::OpenOptions& options) {
  auto pool = Pool::open(*device, home, options);
  if (!pool) return pool.status();
  return OpenPool(std::move(device), std::move(*pool), home);
}

Status check_fit(const Geometry& geometry, const PoolRecipe& recipe) {
  const Status status = Pool::suits(geometry);
  if (!status.ok() || !recipe.first_volume) return status;
  return Pool::suits(geometry, *recipe.first_volume);
}

std::string about(std::uint64_t bytes) {
  constexpr std::uint64_t kMiB = 1 << 20, kGiB = 1 << 30;
  if (bytes < kGiB) return fmt::format("{} MiB", bytes / kMiB);
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / static_cast<double>(kGiB));
}

// An emulated device is a sparse file: it may be larger than what the file system can give it.
void warn_of_room(const PoolRecipe& recipe, std::uint64_t bytes) {
  const Result<DeviceUri> uri = parse_device_uri(recipe.uri);
  if (!uri.ok() || uri->scheme != "emu") return;
  std::error_code error;
  if (!std::filesystem::is_regular_file(uri->place, error)) return;
  const std::filesystem::space_info space = std::filesystem::space(uri->place, error);
  if (error || space.available >= bytes) return;
  tell(
      "{}: {} may grow to {} and its file system has {} left; when that is full, a store and a "
      "cache alike refuse pages until there is room\n",
      program_name(), uri->place, about(bytes), about(space.available));
}

// How large the block device is that an emulated one is on; 0: it is on none.
std::uint64_t block_device_bytes(const std::string& device) {
  const Result<DeviceUri> uri = parse_device_uri(device);
  if (!uri.ok() || uri->scheme != "emu") return 0;
  emu::OpenMode mode;
  mode.access = Access::inspect;
  mode.direct = false;
  const Result<emu::EmuFile> file = emu::open_file(uri->place, mode);
  return file.ok() && file->block_device ? file->size_bytes : 0;
}

// Who asks for as much as the block device has gets all of it, but for what the emulated device
// takes for itself.
ShapeAsked asked_of(const PoolRecipe& recipe) {
  ShapeAsked asked = recipe.asked;
  if (asked.size && recipe.shape.size_bytes == block_device_bytes(recipe.uri)) asked.size = false;
  return asked;
}

// A device that could not hold what is wanted is not made.
Result<std::unique_ptr<ZonedDevice>> make_device(const PoolRecipe& recipe, DeviceShape shape) {
  if (shape.size_bytes == 0) shape.size_bytes = block_device_bytes(recipe.uri);
  if (shape.size_bytes == 0) {
    return Status(
        Code::invalid_argument, Origin::tool,
        "say with --size how large to make the device: there is none yet, or nothing that "
        "tells");
  }
  const Result<Geometry> geometry = geometry_of(shape);
  if (!geometry) return geometry.status();
  Status status = check_fit(*geometry, recipe);
  if (status.ok()) status = create_device(recipe.uri, shape);
  if (!status.ok()) return status;
  if (!shape.preallocate) warn_of_room(recipe, shape.size_bytes);
  return open_device(recipe.uri, Access::exclusive);
}

struct FoundDevice {
  std::unique_ptr<ZonedDevice> device;
  bool empty = false;  // or made just now
};

// The device at the URI, made when nothing is there, and anew, as it is asked for, when what is
// there is empty or (`overwrite`) may be lost.
Result<FoundDevice> device_of(const PoolRecipe& recipe, bool overwrite) {
  if (recipe.uri.starts_with("mem:") && recipe.asked.any()) {
    return Status(Code::invalid_argument, Origin::tool,
                  "the geometry of mem: stands in its URI, as in mem:1GiB?zone_size=8MiB&lba=512; "
                  "leave out the flags for it");
  }
  auto device = open_device(recipe.uri, Access::exclusive);
  if (!device) {
    const Code code = device.status().code();
    const bool nobodys =
        code == Code::not_found || code == Code::foreign || (overwrite && code == Code::corrupt);
    if (!recipe.uri.starts_with("emu:") || !nobodys) return device.status();
    device = make_device(recipe, recipe.shape);
    if (!device) return device.status();
    return FoundDevice{std::move(*device), true};
  }
  const Result<bool> empty = Pool::is_blank(**device);
  if (!empty) return empty.status();
  const bool emulated = recipe.uri.starts_with("emu:");
  if (emulated && recipe.shape.size_bytes != 0 && (*empty || overwrite)) {
    device->reset();
    DeviceShape shape = recipe.shape;
    shape.force = true;
    device = make_device(recipe, shape);
    if (!device) return device.status();
    return FoundDevice{std::move(*device), true};
  }
  return FoundDevice{std::move(*device), *empty};
}

Result<OpenPool> format_on(std::unique_ptr<ZonedDevice> device, const PoolRecipe& recipe,
                           EventLoop& home, const Pool::OpenOptions& options) {
  // A device that was there and is kept has its own shape.
  const Status shaped =
      check_shape(device->geometry(), device->preallocated(), recipe.shape, asked_of(recipe));
  if (!shaped.ok()) return shaped;
  const Status fits = check_fit(device->geometry(), recipe);
  if (!fits.ok()) return fits;
  const Status formatted = Pool::format(*device, recipe.name, home);
  if (!formatted.ok()) return formatted;
  return open_on(std::move(device), home, options);
}

// A pool that is there, if it is what was asked for.
Result<OpenPool> open_asked(std::unique_ptr<ZonedDevice> device, const PoolRecipe& recipe,
                            EventLoop& home, const Pool::OpenOptions& options) {
  Status same =
      check_shape(device->geometry(), device->preallocated(), recipe.shape, asked_of(recipe));
  if (!same.ok()) return same;
  auto opened = open_on(std::move(device), home, options);
  if (!opened) return opened.status();
  same = check_name((*opened)->info(), recipe.name_asked ? recipe.name : "");
  if (!same.ok()) return same;
  return opened;
}

}  // namespace

OpenPool& OpenPool::operator=(OpenPool&& other) noexcept {
  close();
  device_ = std::move(other.device_);
  pool_ = std::move(other.pool_);
  home_ = other.home_;
  return *this;
}

Result<PageStore*> OpenPool::create_volume(const VolumeOptions& options) const {
  for (;;) {
    Result<PageStore*> made = pool_->create_volume(options);
    if (made.status().code() != Code::busy) return made;
    home_->run_once();
  }
}

// It has no clients: what keeps it busy is its own collection, which comes to an end.
Status OpenPool::delete_volume(std::string_view name) const {
  constexpr std::uint64_t kCollectionNsMax = 60'000'000'000;
  const std::uint64_t until_ns = home_->now_ns() + kCollectionNsMax;
  Status deleted = pool_->delete_volume(name);
  while (deleted.code() == Code::busy && home_->now_ns() < until_ns) {
    home_->run_once();
    deleted = pool_->delete_volume(name);
  }
  while (pool_->zones_returning() != 0) home_->run_once();
  return deleted;
}

bool OpenPool::close() {
  bool flushed = true;
  if (pool_) {
    while (!pool_->quiesce()) home_->run_once();
    const PoolInfo info = pool_->info();
    flushed = !info.flush_failed && !info.device_gone;
  }
  pool_.reset();
  device_.reset();
  return flushed;
}

int report_device(std::string_view what, const std::string& uri, const Status& status) {
  std::string text = fmt::format("{} {}", what, uri);
  if (status.code() == Code::in_use) {
    const std::string holder = device_holder(uri);
    if (!holder.empty()) text += " (held by " + holder + ")";
  }
  if (status.code() == Code::exists || status.code() == Code::foreign) {
    const std::string content = device_content(uri);
    if (!content.empty()) text += " (it holds: " + content + ")";
  }
  return report(text, status);
}

Result<OpenPool> open_pool(const std::string& uri, EventLoop& home, Opening opening,
                           Pool::OpenOptions options) {
  // A check shows its own progress, of which this is a part.
  std::optional<Progress> progress;
  if (opening != Opening::check) progress.emplace("opening " + uri);
  const Access access = opening == Opening::use     ? Access::exclusive
                        : opening == Opening::check ? Access::check
                                                    : Access::inspect;
  auto device = open_device(uri, access);
  if (!device) return device.status();
  options.read_only = opening != Opening::use;
  options.as_repaired = opening == Opening::check;
  return open_on(std::move(*device), home, options);
}

Result<std::unique_ptr<EmbeddedPool>> open_embedded_pool(const std::string& uri, Opening opening) {
  const Progress progress("opening " + uri);
  return opening == Opening::use ? EmbeddedPool::open(uri) : EmbeddedPool::open_to_read(uri);
}

Result<OpenPool> create_pool(const PoolRecipe& recipe, EventLoop& home) {
  const Progress progress("making a pool on " + recipe.uri);
  auto found = device_of(recipe, recipe.shape.force);
  if (!found) return found.status();
  if (!found->empty && !recipe.shape.force) {
    return Status(Code::exists, Origin::tool,
                  "the device has data; --force makes a new pool and loses it");
  }
  return format_on(std::move(found->device), recipe, home, {});
}

Result<OpenPool> open_or_create_pool(const PoolRecipe& recipe, EventLoop& home,
                                     const Pool::OpenOptions& options) {
  const Progress progress("opening " + recipe.uri);
  auto found = device_of(recipe, false);
  if (!found) return found.status();
  if (found->empty) return format_on(std::move(found->device), recipe, home, options);
  return open_asked(std::move(found->device), recipe, home, options);
}

Result<OpenPool> open_made_pool(const PoolRecipe& recipe, EventLoop& home,
                                const Pool::OpenOptions& options) {
  const Progress progress("opening " + recipe.uri);
  auto device = open_device(recipe.uri, Access::exclusive);
  if (!device) return device.status();
  return open_asked(std::move(*device), recipe, home, options);
}

}  // namespace furrow::tools
