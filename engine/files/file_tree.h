// FileTree: the names of a volume's files, in memory. Pure; its owner locks it.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/files/file_content.h"
#include "engine/files/file_format.h"
#include "zone/status.h"

namespace furrow {

inline Status no_such_file() {
  return {Code::not_found, Origin::engine, "no such file or directory"};
}

// A file or a directory.
struct FileNode {
  std::uint64_t inode = 0;
  std::uint32_t slot = 0;
  bool directory = false;
  std::atomic<std::uint64_t> modified_s = 0;
  std::vector<FileLink> links;                                             // its names
  std::map<std::string, std::shared_ptr<FileNode>, std::less<>> children;  // of a directory
  std::shared_ptr<FileContent> file;                                       // of a file
  unsigned pins = 0;  // who has it open, or works on it
  enum class Life : std::uint8_t { there, going, gone } life = Life::there;  // its pages

  // Its record.
  KnownPage recorded;              // length 0: there is none
  bool record_unsure = false;      // or another one: a put failed that may be done all the same
  std::size_t recorded_links = 0;  // names in it
  std::uint64_t changes = 0;       // of what a record says
  std::uint64_t recorded_changes = 0;
  bool recording = false;  // it is being written

  FileContent& content() { return *file; }
  const FileContent& content() const { return *file; }
};

class FileTree {
 public:
  using NodePtr = std::shared_ptr<FileNode>;

  FileTree() = default;
  ~FileTree();
  FileTree(const FileTree&) = delete;
  FileTree& operator=(const FileTree&) = delete;

  // Where a path leads to: the directory that its last name is in, and what has that name.
  struct Place {
    NodePtr parent;    // null: the path is the root
    std::string name;  // of `parent`
    NodePtr node;      // null: nothing has it
  };
  // not_found: a directory on the way; invalid_argument: a file on the way, a name too long.
  Result<Place> find(std::string_view path) const;
  // The names of a path, "." and ".." resolved.
  static std::vector<std::string_view> split(std::string_view path);

  void set_root(NodePtr root);
  const NodePtr& root() const { return root_; }
  // Gives the node a further name. Of two with one name, the higher sequence has it: the node that
  // lost its name is returned.
  NodePtr add_link(const NodePtr& parent, const NodePtr& node, FileLink link);
  void remove_link(FileNode& parent, const NodePtr& node, std::string_view name);
  // Is `node` the directory, or somewhere in it?
  bool is_within(const FileNode& directory, const FileNode& node) const;

  void add(const NodePtr& node) { nodes_[node->inode] = node; }
  void erase(const FileNode& node) { nodes_.erase(node.inode); }
  NodePtr by_inode(std::uint64_t inode) const;
  std::string path_of(const FileNode& node) const;  // by its first name
  const std::unordered_map<std::uint64_t, NodePtr>& nodes() const { return nodes_; }

 private:
  NodePtr root_;
  std::unordered_map<std::uint64_t, NodePtr> nodes_;
};

}  // namespace furrow
