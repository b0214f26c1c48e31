// furrowctl fs ls|stat|cat|df|rm|import|export: the files of a volume of kind fs, while it is
// closed.

#include "tools/ctl_fs.h"

#include <fmt/format.h>
#include <gflags/gflags.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "engine/embedded_pool.h"
#include "tools/command_line.h"
#include "tools/ctl_command.h"
#include "tools/make_pool.h"
#include "tools/progress.h"
#include "tools/safe_text.h"

DEFINE_string(volume, "", "the volume; empty: the pool's only one of kind fs");
DEFINE_bool(recursive, false, "a directory with all that is in it");
DEFINE_bool(rescue, false, "go around what cannot be read, and name it; nothing is written");

namespace furrow::tools {

namespace {

using Json = nlohmann::ordered_json;

int find(const std::string& uri, const Result<std::unique_ptr<EmbeddedPool>>& pool,
         PageStore*& store) {
  if (!pool.ok()) return report_device("cannot open", uri, pool.status());
  const Result<PageStore*> found = FileVolume::find((*pool)->pool(), FLAGS_volume);
  if (!found.ok()) return report("cannot find the files of " + uri, found.status());
  store = *found;
  return kExitDone;
}

}  // namespace

int mount_files(const std::string& uri, std::shared_ptr<FileVolume>& volume) {
  // Whose output nobody reads any more unmounts all the same: a process that is killed leaves what
  // it has in shared memory to the next mount.
  (void)std::signal(SIGPIPE, SIG_IGN);
  Result<std::unique_ptr<EmbeddedPool>> pool = open_embedded_pool(uri, Opening::use);
  PageStore* store = nullptr;
  if (const int status = find(uri, pool, store); status != kExitDone) return status;
  auto mounted = [&] {
    const Progress progress("mounting the files of " + uri);
    return FileVolume::mount(std::move(*pool), *store);
  }();
  if (!mounted.ok()) return report("cannot mount " + uri, mounted.status());
  volume = std::move(*mounted);
  return kExitDone;
}

int open_files(const std::string& uri, FilesToRead& volume) {
  if (!FLAGS_rescue) {
    std::shared_ptr<FileVolume> mounted;
    const int status = mount_files(uri, mounted);
    volume = std::move(mounted);
    return status;
  }
  Result<std::unique_ptr<EmbeddedPool>> pool = open_embedded_pool(uri, Opening::inspect);
  PageStore* store = nullptr;
  if (const int status = find(uri, pool, store); status != kExitDone) return status;
  auto salvaged = [&] {
    const Progress progress("looking for the files of " + uri);
    return FileVolume::salvage(std::move(*pool), *store);
  }();
  if (!salvaged.ok()) return report("cannot read " + uri, salvaged.status());
  volume = std::move(*salvaged);
  for (const FileLoss& loss : volume->losses()) (void)report(loss.what, loss.why);
  return kExitDone;
}

int done(const FileVolume& volume, int status) {
  return status == kExitDone && !volume.losses().empty() ? kExitFailed : status;
}

namespace {

// JSON is UTF-8, which a name need not be, and many of its readers keep 53 bits of a number: two
// files would seem to be one.
Json info_json(const FileInfo& info) {
  Json json = {{"name", info.name},
               {"kind", info.directory ? "directory" : "file"},
               {"bytes", info.bytes},
               {"links", info.links},
               {"chunks", info.chunks},
               {"inode", std::to_string(info.inode)},
               {"modified_s", info.modified_s}};
  if (!json_asked() || is_utf8(info.name)) return json;
  std::string hex;
  for (const char byte : info.name) hex += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  json["name_hex"] = hex;
  return json;
}

int list(const Arguments& arguments) {
  FilesToRead volume;
  if (const int status = open_files(arguments[0], volume); status != kExitDone) return status;
  const Result<FileInfo> info = volume->stat(arguments[1]);
  if (!info.ok()) return report("cannot list " + arguments[1], info.status());
  auto rows = Json::array();
  if (!info->directory) {
    rows.push_back(info_json(*info));
    return done(*volume, print(rows));
  }
  const auto all = volume->list(arguments[1]);
  if (!all.ok()) return report("cannot list " + arguments[1], all.status());
  for (const FileInfo& each : *all) rows.push_back(info_json(each));
  return done(*volume, print(rows));
}

Json usage_json(const FileVolume& volume) {
  const FilesUsage usage = volume.usage();
  const VolumeUsage store = volume.store().usage();
  return {{"volume", volume.info().options.name},
          {"files", usage.files},
          {"directories", usage.directories},
          {"bytes", usage.bytes},
          {"chunks", usage.chunks},
          {"records", usage.files + usage.directories},
          {"record_bytes", usage.record_bytes},
          {"restored_bytes", usage.restored_bytes},
          {"appended_bytes", usage.written.appended_bytes},
          {"device_bytes", usage.written.device_bytes},
          {"relocated_bytes", usage.written.relocated_bytes},
          {"pages", store.pages},
          {"used_bytes", store.live_bytes},
          {"free_bytes", usage.free_bytes},
          {"zones", store.zones},
          {"quota_zones", store.quota_zones}};
}

int stat(const Arguments& arguments) {
  FilesToRead volume;
  if (const int status = open_files(arguments[0], volume); status != kExitDone) return status;
  const Result<FileInfo> info = volume->stat(arguments[1]);
  if (!info.ok()) return report("cannot look at " + arguments[1], info.status());
  Json json = info_json(*info);
  if (info->inode == kRootInode) json.update(usage_json(*volume));  // it is the whole volume
  return done(*volume, print(json));
}

int df(const Arguments& arguments) {
  FilesToRead volume;
  if (const int status = open_files(arguments[0], volume); status != kExitDone) return status;
  return done(*volume, print(usage_json(*volume)));
}

struct Removal {
  std::uint64_t files = 0, directories = 0;
  std::string at;  // what was being removed when it failed
};

// Without recursion: a tree may be deeper than the stack.
Status remove_tree(FileVolume& volume, const std::string& path, Removal& removal,
                   Progress& progress) {
  std::vector<std::string> left{path};  // the last one first; a directory's own turn comes again
  while (!left.empty()) {
    removal.at = left.back();
    const Result<FileInfo> info = volume.stat(removal.at);
    if (!info.ok()) return info.status();
    std::vector<FileInfo> within;
    if (info->directory) {
      if (!FLAGS_recursive) {
        return {Code::invalid_argument, Origin::tool,
                "it is a directory; --recursive removes it with all that is in it"};
      }
      const auto all = volume.list(removal.at);
      if (!all.ok()) return all.status();
      within = *all;
    }
    for (const FileInfo& each : within) left.push_back(removal.at + "/" + each.name);
    if (!within.empty()) continue;
    left.pop_back();
    if (info->inode == kRootInode) continue;  // stays
    const Status gone =
        info->directory ? volume.remove_directory(removal.at) : volume.remove(removal.at);
    if (!gone.ok()) return gone;
    info->directory ? void(++removal.directories) : progress.count(++removal.files);
  }
  return {};
}

int remove_all(const Arguments& arguments) {
  std::shared_ptr<FileVolume> volume;
  if (const int status = mount_files(arguments[0], volume); status != kExitDone) return status;
  Removal removal;
  Progress progress("removing", "files");
  Status status = remove_tree(*volume, arguments[1], removal, progress);
  const Status synced = volume->sync_names();
  if (status.ok()) status = synced;
  if (!status.ok()) return report("cannot remove " + removal.at, status);
  return print({{"files", removal.files}, {"directories", removal.directories}});
}

constexpr const char* kFlags[] = {"volume"};
constexpr const char* kRemoveFlags[] = {"volume", "recursive"};
constexpr const char* kReadFlags[] = {"volume", "rescue"};

}  // namespace

std::span<const Command> fs_commands() {
  static constexpr Command kCommands[] = {
      {"fs ls", "DEVICE-URI PATH", 2, "list a directory of a volume of kind fs", kReadFlags, list},
      {"fs stat", "DEVICE-URI PATH", 2, "print what is known of a file", kReadFlags, stat},
      {"fs cat", "DEVICE-URI PATH", 2, "print a file's bytes", kReadFlags, fs_cat},
      {"fs df", "DEVICE-URI", 1, "print how much is used and free", kReadFlags, df},
      {"fs rm", "DEVICE-URI PATH", 2, "remove a file, or a directory", kRemoveFlags, remove_all},
      {"fs import", "DEVICE-URI FROM PATH", 3, "copy a file or directory in", kFlags, fs_import},
      {"fs export", "DEVICE-URI PATH TO", 3, "copy a file or directory out", kReadFlags, fs_export},
  };
  return kCommands;
}

}  // namespace furrow::tools
