#include "engine/files/file_tree.h"

#include <algorithm>

namespace furrow {

// None is to be destroyed by the one above it: a tree may be deeper than the stack.
FileTree::~FileTree() {
  for (const auto& [inode, node] : nodes_) node->children.clear();
}

std::vector<std::string_view> FileTree::split(std::string_view path) {
  std::vector<std::string_view> names;
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/'), path.size());
    const std::string_view name = path.substr(0, end);
    path.remove_prefix(std::min(end + 1, path.size()));
    if (name.empty() || name == ".") continue;
    if (name != "..") {
      names.push_back(name);
    } else if (!names.empty()) {
      names.pop_back();
    }
  }
  return names;
}

Result<FileTree::Place> FileTree::find(std::string_view path) const {
  Place place{nullptr, "", root_};
  for (const std::string_view name : split(path)) {
    if (name.size() > kFileNameMax) {
      return Status(Code::invalid_argument, Origin::engine, "a file's name has at most 255 bytes");
    }
    if (place.node == nullptr) {
      return Status(Code::not_found, Origin::engine, "a directory of the path does not exist");
    }
    if (!place.node->directory) {
      return Status(Code::invalid_argument, Origin::engine, "a file is not a directory");
    }
    place.parent = place.node;
    place.name = name;
    const auto found = place.parent->children.find(name);
    place.node = found == place.parent->children.end() ? nullptr : found->second;
  }
  return place;
}

void FileTree::set_root(NodePtr root) {
  root_ = std::move(root);
  add(root_);
}

FileTree::NodePtr FileTree::add_link(const NodePtr& parent, const NodePtr& node, FileLink link) {
  NodePtr& has = parent->children[link.name];
  const auto drop = [&](FileNode& loser) {
    std::erase_if(loser.links, [&](const FileLink& other) {
      return other.parent == link.parent && other.name == link.name;
    });
  };
  const NodePtr other = has;
  if (other != nullptr) {
    const auto its = std::ranges::find_if(other->links, [&](const FileLink& each) {
      return each.parent == link.parent && each.name == link.name;
    });
    if (its != other->links.end() && its->sequence > link.sequence) return node;
    drop(*other);
  }
  has = node;
  node->links.push_back(std::move(link));
  return other;
}

void FileTree::remove_link(FileNode& parent, const NodePtr& node, std::string_view name) {
  const auto found = parent.children.find(name);
  if (found != parent.children.end() && found->second == node) parent.children.erase(found);
  std::erase_if(node->links, [&](const FileLink& link) {
    return link.parent == parent.inode && link.name == name;
  });
}

bool FileTree::is_within(const FileNode& directory, const FileNode& node) const {
  const FileNode* at = &node;
  std::size_t steps = 0;
  while (at != &directory) {
    // What comes from a damaged medium may go round in a circle.
    if (at->links.empty() || ++steps > nodes_.size()) return false;
    const NodePtr parent = by_inode(at->links.front().parent);
    if (parent == nullptr) return false;
    at = parent.get();
  }
  return true;
}

std::string FileTree::path_of(const FileNode& node) const {
  std::string path;
  const FileNode* at = &node;
  for (std::size_t steps = 0; !at->links.empty() && steps < nodes_.size(); ++steps) {
    path.insert(0, "/" + at->links.front().name);
    const NodePtr parent = by_inode(at->links.front().parent);
    if (parent == nullptr) break;
    at = parent.get();
  }
  return path.empty() ? "/" : path;
}

FileTree::NodePtr FileTree::by_inode(std::uint64_t inode) const {
  const auto found = nodes_.find(inode);
  return found == nodes_.end() ? nullptr : found->second;
}

}  // namespace furrow
