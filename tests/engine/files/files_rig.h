// FilesRig: a mounted file volume on a device that tests can kill and open again.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/embedded_pool.h"
#include "engine/files/file_volume.h"
#include "engine/pool_impl.h"
#include "tests/engine/files/bytes_of.h"
#include "tests/engine/pool_file.h"
#include "zone/fault_device.h"

namespace furrow::testing {

class FilesRig : public PoolFile {
 public:
  using PoolFile::PoolFile;
  ~FilesRig() {
    volume_.reset();
    for (const std::string& name : staging_) shm_unlink(name.c_str());
  }

  // Makes device, pool and volume where there are none.
  void mount(std::uint64_t size_bytes = 64 << 20) {
    EmbeddedPool::CreateOptions make;
    make.size_bytes = size_bytes;
    make.volume.name = "files";
    make.volume.kind = VolumeKind::fs;
    make.volume.mode = VolumeMode::store;
    make.volume.value_bytes_max = 64 << 10;
    auto pool = EmbeddedPool::open(uri(), make);
    ASSERT_TRUE(pool.ok()) << pool.status().describe();
    ASSERT_NO_FATAL_FAILURE(mount(std::move(*pool)));
  }
  void mount(std::shared_ptr<EmbeddedPool> pool, bool may_be_cut = false) {
    const auto store = FileVolume::find(pool->pool(), "");
    ASSERT_TRUE(store.ok()) << store.status().describe();
    mounted_pool_ = pool.get();
    auto mounted = FileVolume::mount(std::move(pool), **store);
    if (may_be_cut && mounted.status().code() == Code::aborted) return;
    ASSERT_TRUE(mounted.ok()) << mounted.status().describe();
    volume_ = std::move(*mounted);
    staging_.insert(staging_name());
  }
  // Makes what is missing, and mounts it on a `Device` around what it is on, which is the pool's.
  // nullptr: that has failed.
  template <class Device, class... Arguments>
  Device* mount_on(std::uint64_t size_bytes, const Arguments&... arguments) {
    mount(size_bytes);
    unmount();
    auto inner = open_device(uri(), Access::exclusive);
    EXPECT_TRUE(inner.ok()) << inner.status().describe();
    if (!inner.ok()) return nullptr;
    auto made = std::make_unique<Device>(std::move(*inner), arguments...);
    Device* const device = made.get();
    auto pool = EmbeddedPool::open(std::move(made), {});
    EXPECT_TRUE(pool.ok()) << pool.status().describe();
    if (pool.ok()) mount(std::move(*pool));
    return volume_ != nullptr ? device : nullptr;
  }
  EmbeddedPool& mounted_pool() { return *mounted_pool_; }
  // On a device that loses its power when so many more LBAs have been handed to it (0: when
  // cut_power() is called). No volume(): that was before it was mounted.
  // Completions come late and out of order where `delay_polls_max` is not 0.
  void mount_until_cut(std::uint64_t lbas, CrashModel model, std::uint64_t seed,
                       unsigned delay_polls_max = 0) {
    auto inner = open_device(uri(), Access::exclusive);
    ASSERT_TRUE(inner.ok()) << inner.status().describe();
    FaultOptions options;
    options.seed = seed;
    options.delay_polls_max = delay_polls_max;
    auto fault = std::make_unique<FaultDevice>(std::move(*inner), options);
    fault->cut_after(lbas, model);
    fault_ = fault.get();
    auto pool = EmbeddedPool::open(std::move(fault), {});
    if (pool.status().code() == Code::aborted) return;
    ASSERT_TRUE(pool.ok()) << pool.status().describe();
    ASSERT_NO_FATAL_FAILURE(mount(std::move(*pool), true));
  }
  // Once more, while it is mounted.
  void cut_after(std::uint64_t lbas, CrashModel model) { fault_->cut_after(lbas, model); }
  // On a device that fails now and then. No volume(): before it was mounted.
  void mount_on_faults(const FaultOptions& options) {
    auto inner = open_device(uri(), Access::exclusive);
    ASSERT_TRUE(inner.ok()) << inner.status().describe();
    auto pool = EmbeddedPool::open(std::make_unique<FaultDevice>(std::move(*inner), options), {});
    if (!pool.ok()) return;
    const auto store = FileVolume::find((*pool)->pool(), "");
    ASSERT_TRUE(store.ok()) << store.status().describe();
    auto mounted = FileVolume::mount(std::move(*pool), **store);
    if (!mounted.ok()) return;
    volume_ = std::move(*mounted);
    staging_.insert(staging_name());
  }
  // After mount_until_cut(): what was not flushed is lost, as far as the model says, and so is the
  // staging memory. The test's own handles must be gone.
  void cut_power(CrashModel model) {
    volume_->abandon();
    EXPECT_TRUE(fault_->power_cut(model).ok());
    kill();
    forget_staged();
  }
  void unmount() { volume_.reset(); }
  // As if the process was killed: what is staged, and nothing else, goes to the next mount. The
  // test's own handles must be gone by then, after abandon().
  void kill() {
    volume_->abandon();
    volume_.reset();
  }
  // As a reboot does.
  void forget_staged() const {
    for (const std::string& name : staging_) shm_unlink(name.c_str());
  }
  std::string staging_name() const {  // of what is mounted
    return Staging::name(volume_->info().uuid, device_identity(uri()));
  }

  // The zones in which something of a volume lives, or did: number and generation.
  using ZoneLives = std::set<std::pair<std::uint32_t, std::uint64_t>>;
  ZoneLives zone_lives() {
    ZoneLives lives;
    mounted_pool_->call([&](Pool& pool) {
      const auto zones = static_cast<PoolImpl&>(pool).context().allocator.zones();
      for (std::uint32_t i = 0; i < zones.size(); ++i) {
        if (zones[i].owner != 0) lives.emplace(i, zones[i].generation);
      }
    });
    return lives;
  }
  // Files come and go, in as little room as there is beside others that stay, until these zones
  // were given back: what lives in them is elsewhere.
  void collect(const ZoneLives& zones) {
    const std::string mib(1 << 20, 'x');
    for (unsigned i = 0; files().free_bytes() > (9u << 20); ++i) {
      write("/filler" + std::to_string(i), mib);
    }
    const auto is_old = [&](const ZoneLives& now) {
      return std::ranges::any_of(zones, [&](const auto& life) { return now.contains(life); });
    };
    for (unsigned i = 0; is_old(zone_lives()); ++i) {
      ASSERT_LT(i, 2000u) << "nothing is collected";
      write("/churn", mib + mib);
    }
    ASSERT_TRUE(!files().stat("/churn").ok() || files().remove("/churn").ok());
    for (unsigned i = 0; files().stat("/filler" + std::to_string(i)).ok(); ++i) {
      ASSERT_TRUE(files().remove("/filler" + std::to_string(i)).ok());
    }
  }

  FileVolume& files() { return *volume_; }
  std::shared_ptr<FileVolume>& volume() { return volume_; }

  std::unique_ptr<OpenFile> make(std::string_view path) {
    auto file = volume_->create(path, FileVolume::Existing::truncate);
    EXPECT_TRUE(file.ok()) << path << ": " << file.status().describe();
    return file.ok() ? std::move(*file) : nullptr;
  }
  void write(std::string_view path, std::string_view text) {
    auto file = make(path);
    ASSERT_NE(file, nullptr);
    ASSERT_TRUE(file->append(std::as_bytes(std::span(text))).ok());
    ASSERT_TRUE(file->close().ok());
  }
  std::string read(std::string_view path) {
    auto file = volume_->open_file(path);
    if (!file.ok()) return "<" + std::string(to_string(file.status().code())) + ">";
    return read(**file);
  }
  static std::string read(const OpenFile& file) {
    std::string text(file.content().size(), '\0');
    const auto bytes = file.content().read(0, std::as_writable_bytes(std::span(text)));
    if (!bytes.ok()) return "<read: " + std::string(to_string(bytes.status().code())) + ">";
    text.resize(*bytes);
    return text;
  }
  std::vector<std::string> names(std::string_view path) {
    std::vector<std::string> all;
    const auto list = volume_->list(path);
    EXPECT_TRUE(list.ok()) << list.status().describe();
    for (const FileInfo& info : *list) all.push_back(info.name);
    return all;
  }

 private:
  FaultDevice* fault_ = nullptr;  // the pool's
  EmbeddedPool* mounted_pool_ = nullptr;
  std::shared_ptr<FileVolume> volume_;
  std::set<std::string> staging_;
};

}  // namespace furrow::testing
