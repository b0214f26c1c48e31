// furrow:// URIs: what they name, the mounts that this process has, and their registration.
#include <rocksdb/utilities/object_registry.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <list>
#include <map>
#include <mutex>

#include "engine/embedded_pool.h"
#include "engine/files/file_volume.h"
#include "engine/rocksdb/file_system.h"
#include "engine/rocksdb/io_status.h"
#include "zone/device_uri.h"

namespace furrow {

namespace {

constexpr std::string_view kScheme = "furrow://";

struct Uri {
  std::string device;
  std::string volume;
  std::uint64_t create_bytes = 0;
  bool preallocate = false;
};

Status wrong(const char* hint) { return {Code::invalid_argument, Origin::engine, hint}; }

// Parameters that are not ours are the device's.
Result<Uri> parse(std::string_view text) {
  if (!text.starts_with(kScheme)) return wrong("a URI is furrow://DEVICE-URI");
  text.remove_prefix(kScheme.size());
  Uri uri;
  const std::size_t end = std::min(text.find('?'), text.size());
  uri.device = text.substr(0, end);
  text.remove_prefix(end);
  char separator = '?';
  while (!text.empty()) {
    text.remove_prefix(1);
    const std::string_view parameter = text.substr(0, text.find('&'));
    text.remove_prefix(parameter.size());
    if (parameter.starts_with("volume=")) {
      uri.volume = parameter.substr(parameter.find('=') + 1);
    } else if (parameter.starts_with("create=")) {
      const auto size = parse_size(parameter.substr(parameter.find('=') + 1));
      if (!size.ok() || *size == 0) return wrong("create=SIZE: KiB, MiB, GiB or TiB may follow");
      uri.create_bytes = *size;
    } else if (parameter.starts_with("preallocate=")) {
      if (parameter != "preallocate=0" && parameter != "preallocate=1") {
        return wrong("preallocate is 0 or 1");
      }
      uri.preallocate = parameter.ends_with('1');
    } else {
      uri.device.append(1, separator).append(parameter);
      separator = '&';
    }
  }
  if (uri.device.empty()) return wrong("a URI is furrow://DEVICE-URI");
  if (uri.preallocate && uri.create_bytes == 0) {
    return wrong("preallocate=1 goes with create=SIZE: it is about a device that is made");
  }
  return uri;
}

// Where a device would be that is not there yet; of one in memory, which.
std::string place_of(const std::string& device) {
  const Result<DeviceUri> parsed = parse_device_uri(device);
  if (!parsed.ok() || parsed->scheme == "mem") return device;
  std::error_code error;
  auto place =
      std::filesystem::absolute(parsed->place, error);  // there may be no directory to be in
  if (!error) place = std::filesystem::weakly_canonical(place, error);
  return parsed->scheme + ":" + (error ? parsed->place : place.string());
}

// What a URI says of a device that was opened by another one: it may say less.
Status conflict(const std::string& opened, const std::string& asked) {
  constexpr std::pair<std::string_view, const char*> kHints[] = {
      {"direct", "this process has the pool open already, with another direct="},
      {"reclaim", "this process has the pool open already, with another reclaim="},
      {"io_mode", "this process has the pool open already, with another io_mode="}};
  const Result<DeviceUri> before = parse_device_uri(opened), now = parse_device_uri(asked);
  if (!before.ok() || !now.ok()) return before.ok() ? now.status() : before.status();
  if (before->scheme != now->scheme) {
    return wrong("this process has the pool open already, by another kind of device URI");
  }
  for (const auto& parameter : now->parameters) {
    if (std::ranges::find(before->parameters, parameter) != before->parameters.end()) continue;
    const auto* const known =
        std::ranges::find(kHints, parameter.first, [](const auto& hint) { return hint.first; });
    return wrong(known != std::end(kHints) ? known->second : "an unknown parameter");
  }
  return {};
}

class Mounts {
 public:
  // A volume that is being unmounted is waited for: it writes until it is gone.
  Result<std::shared_ptr<FileVolume>> get(const Uri& uri) {
    for (;;) {
      Device& device = device_of(uri.device);
      std::unique_lock lock(device.mutex);
      if (&device_of(uri.device) != &device) continue;  // what it was is closed now
      if (const Status other = device.conflict(uri.device); !other.ok()) {
        if (device.used()) return other;
        device.unmounted.wait(lock);
        continue;
      }
      const Result<PageStore*> store = store_of(device, uri);
      const auto mounted =
          store.ok() ? device.volumes.find((*store)->info().options.name) : device.volumes.end();
      if (mounted == device.volumes.end()) {
        auto volume = store.ok() ? mount(device, **store) : store.status();
        close_if_unused(device);
        return volume;
      }
      if (auto volume = mounted->second.lock(); volume != nullptr) return volume;
      device.unmounted.wait(lock);
    }
  }

 private:
  // Opening and closing one waits for no other.
  struct Device {
    // Under Mounts::mutex_. The identity is that of the one that is open, or being opened: without
    // a pool it says nothing, as another file may have it by now. Empty: it is not there yet.
    std::string place, identity;
    std::mutex mutex;
    std::condition_variable unmounted;
    std::shared_ptr<EmbeddedPool> pool;                        // while it has volumes
    std::map<std::string, std::weak_ptr<FileVolume>> volumes;  // by name, until they are gone

    Status conflict(const std::string& uri) const {
      return pool != nullptr ? furrow::conflict(pool->uri(), uri) : Status();
    }
    bool used() const {  // else its volumes are all being unmounted
      return std::ranges::any_of(volumes, [](const auto& each) { return !each.second.expired(); });
    }
  };

  // The same one however its URI is spelt.
  Device& device_of(const std::string& uri) {
    const std::string place = place_of(uri), identity = device_identity(uri);
    const std::lock_guard lock(mutex_);
    auto found = devices_.end();
    if (!identity.empty()) found = std::ranges::find(devices_, identity, &Device::identity);
    if (found != devices_.end()) return *found;
    found = std::ranges::find_if(devices_, [&place](const Device& each) {
      return each.identity.empty() && each.place == place;
    });
    if (found == devices_.end()) found = devices_.emplace(found);  // for good
    found->place = place;
    found->identity = identity;
    return *found;
  }
  void identify(Device& device, const std::string& identity) {
    const std::lock_guard lock(mutex_);
    device.identity = identity;
  }
  void close_if_unused(Device& device) {
    if (!device.volumes.empty()) return;
    device.pool.reset();
    identify(device, "");
  }
  // Of a pool that is opened if need be.
  Result<PageStore*> store_of(Device& device, const Uri& uri) {
    if (device.pool == nullptr) {
      EmbeddedPool::CreateOptions make;
      make.size_bytes = uri.create_bytes;
      make.preallocate = uri.preallocate;
      make.volume.name = uri.volume.empty() ? "files" : uri.volume;
      make.volume.kind = VolumeKind::fs;
      make.volume.mode = VolumeMode::store;
      make.volume.value_bytes_max = 0;  // what suits the zones

      identify(device, device_identity(uri.device));  // who had it before may have closed it
      Result<std::unique_ptr<EmbeddedPool>> opened = EmbeddedPool::open(uri.device, make);
      if (!opened.ok()) return opened.status();
      device.pool = std::move(*opened);
      identify(device, device.pool->identity());
    }
    return FileVolume::find(device.pool->pool(), uri.volume);
  }
  Result<std::shared_ptr<FileVolume>> mount(Device& device, PageStore& store) {
    Result<std::shared_ptr<FileVolume>> volume = FileVolume::mount(device.pool, store);
    if (!volume.ok()) return volume;
    const std::string& name = store.info().options.name;
    device.volumes[name] = *volume;
    (*volume)->when_unmounted([this, &device, name] {
      const std::lock_guard lock(device.mutex);
      device.volumes.erase(name);
      close_if_unused(device);
      device.unmounted.notify_all();
    });
    return volume;
  }

  std::mutex mutex_;
  std::list<Device> devices_;  // under mutex_
};

Mounts& mounts() {
  static Mounts* const all = new Mounts();  // outlives every static object
  return *all;
}

// Whether a database is to be opened for reading alone is not known yet, so all processes but the
// first are refused in the same way.
rocksdb::Status refusal(const std::string& uri, const Uri& parsed, const Status& status) {
  if (status.code() != Code::in_use) {
    const bool missing = status.code() == Code::not_found && status.origin() == Origin::zone &&
                         parsed.create_bytes == 0;
    return rocksdb::Status::IOError(
        uri + ": " + status.describe() +
        (missing ? "; create=SIZE in the URI makes what is missing" : ""));
  }
  const std::string holder = device_holder(parsed.device);
  return rocksdb::Status::NotSupported(
      uri + " is in use" + (holder.empty() ? "" : " by " + holder) +
      ": a pool is used by one process at a time, also when databases are opened read-only or as "
      "secondaries; stop that process first, or open the database in it");
}

}  // namespace

rocksdb::Status open_file_system(const std::string& uri,
                                 std::unique_ptr<rocksdb::FileSystem>* result) {
  const Result<Uri> parsed = parse(uri);
  if (!parsed.ok()) {
    return rocksdb::Status::InvalidArgument(uri + ": " + parsed.status().describe());
  }
  const Result<std::shared_ptr<FileVolume>> volume = mounts().get(*parsed);
  if (volume.status().code() == Code::invalid_argument) {
    return rocksdb::Status::InvalidArgument(uri + ": " + volume.status().describe());
  }
  if (!volume.ok()) return refusal(uri, *parsed, volume.status());
  *result = make_file_system(*volume, uri);
  return rocksdb::Status::OK();
}

}  // namespace furrow

extern "C" int register_furrow(rocksdb::ObjectLibrary& library, const std::string&) {
  const auto pattern =
      rocksdb::ObjectLibrary::PatternEntry("furrow", false).AddSeparator("://", false);
  library.AddFactory<rocksdb::FileSystem>(
      pattern,
      [](const std::string& uri, std::unique_ptr<rocksdb::FileSystem>* guard,
         std::string* error) -> rocksdb::FileSystem* {
        const rocksdb::Status status = furrow::open_file_system(uri, guard);
        if (!status.ok()) *error = status.ToString();
        return guard->get();
      });
  library.AddFactory<rocksdb::Env>(pattern,
                                   [](const std::string& uri, std::unique_ptr<rocksdb::Env>* guard,
                                      std::string* error) -> rocksdb::Env* {
                                     std::unique_ptr<rocksdb::FileSystem> files;
                                     const rocksdb::Status status =
                                         furrow::open_file_system(uri, &files);
                                     if (status.ok())
                                       *guard = rocksdb::NewCompositeEnv(std::move(files));
                                     if (!status.ok()) *error = status.ToString();
                                     return guard->get();
                                   });
  return 2;
}
