// FileVolume: what is there, and how much of it.
#include <algorithm>

#include "engine/files/file_volume.h"

namespace furrow {

FileInfo FileVolume::info_of(const FileNode& node, std::string_view name) const {
  FileInfo info;
  info.name = name;
  info.directory = node.directory;
  info.inode = node.inode;
  info.bytes = node.directory ? 0 : node.content().size();
  info.modified_s = node.modified_s;
  info.links = static_cast<std::uint32_t>(node.links.size());
  info.chunks = node.directory ? 0 : node.content().chunks();
  return info;
}

Result<FileInfo> FileVolume::stat(std::string_view path) const {
  const Lock lock(mutex_);
  const Result<FileTree::Place> place = tree_.find(path);
  if (!place.ok()) return place.status();
  if (place->node == nullptr) return no_such_file();
  return info_of(*place->node, place->name);
}

Result<std::vector<FileInfo>> FileVolume::list(std::string_view path) const {
  const Lock lock(mutex_);
  const Result<FileTree::Place> place = tree_.find(path);
  if (!place.ok()) return place.status();
  if (place->node == nullptr) return no_such_file();
  if (!place->node->directory)
    return Status(Code::invalid_argument, Origin::engine, "it is not a directory");
  std::vector<FileInfo> all;
  for (const auto& [name, node] : place->node->children) all.push_back(info_of(*node, name));
  return all;
}

Result<std::shared_ptr<const FileContent>> FileVolume::content(std::string_view path) const {
  const Lock lock(mutex_);
  const Result<FileTree::Place> place = tree_.find(path);
  if (!place.ok()) return place.status();
  if (place->node == nullptr) return no_such_file();
  if (place->node->directory)
    return Status(Code::invalid_argument, Origin::engine, "it is a directory");
  return std::shared_ptr<const FileContent>(place->node->file);
}

// As of a device that is smaller by what the medium has no room for.
std::uint64_t FileVolume::free_bytes() const {
  const VolumeUsage usage = store_.usage();
  const std::uint64_t all = geometry().zone_count * geometry().zone_capacity_bytes();
  const double missing = static_cast<double>(std::min(all, pool_->missing_bytes()));
  const auto usable = static_cast<double>(usage.free_bytes + usage.live_bytes);
  const double lost = usable * missing / static_cast<double>(all);
  return usage.free_bytes - std::min(usage.free_bytes, static_cast<std::uint64_t>(lost));
}

FilesUsage FileVolume::usage() const {
  FilesUsage usage;
  usage.free_bytes = free_bytes();
  usage.written = written();
  usage.restored_bytes = restored_bytes_;
  const Lock lock(mutex_);
  for (const auto& [inode, node] : tree_.nodes()) {
    ++(node->directory ? usage.directories : usage.files);
    usage.record_bytes += node->recorded.length;
    if (node->directory) continue;
    usage.bytes += node->content().size();
    usage.chunks += node->content().chunks();
  }
  return usage;
}

}  // namespace furrow
