// FileVolume: names and records.
#include "engine/files/file_volume.h"

#include <algorithm>
#include <array>
#include <utility>

namespace furrow {

namespace {

Status fail(Code code, const char* hint) { return {code, Origin::engine, hint}; }

// What others wait for to end: also where memory cannot be had. Made and ended with the lock held.
template <class Taken>
class Turn {
 public:
  Turn(Taken& taken, Taken mine, std::unique_lock<std::mutex>& lock,
       std::condition_variable& changed)
      : taken_(taken), lock_(lock), changed_(changed) {
    changed_.wait(lock_, [&] { return !taken_; });
    taken_ = mine;
  }
  ~Turn() {
    if (!lock_.owns_lock()) lock_.lock();
    taken_ = Taken();
    changed_.notify_all();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  Taken& taken_;
  std::unique_lock<std::mutex>& lock_;
  std::condition_variable& changed_;
};

}  // namespace

// --- records ---

// Writes what the node is by now, unless another thread just did. The lock is released meanwhile;
// the caller has pinned the node.
Status FileVolume::record(Lock& lock, const std::shared_ptr<FileNode>& node,
                          Durability durability) {
  const std::uint64_t mine = ++node->changes;
  const Turn turn(node->recording, true, lock, changed_);
  if (node->recorded_changes >= mine && durability == Durability::none) return {};
  const std::uint64_t covered = node->changes;
  FileRecord record;
  record.inode = node->inode;
  record.directory = node->directory;
  record.modified_s = node->modified_s;
  record.links = node->links;
  if (!node->directory) node->content().describe(record);
  KnownPage recorded = node->recorded;
  lock.unlock();
  const Status status = put_record(*node, record, durability, recorded);
  lock.lock();
  node->record_unsure = !status.ok();
  if (status.ok()) {
    node->recorded = recorded;
    node->recorded_links = record.links.size();
    node->recorded_changes = covered;
  }
  return status;
}

Status FileVolume::put_record(const FileNode& node, const FileRecord& record, Durability durability,
                              KnownPage& recorded) {
  const std::uint32_t bytes_max = store_.info().options.value_bytes_max;
  // One that has lost a name is to be no longer, so that it is taken where nothing new is: chunks
  // that it has no room for then, of a file that is being written, a mount finds by itself.
  const bool shrinks = record.links.size() < node.recorded_links;
  Result<std::vector<std::byte>> page = encode(record, shrinks ? recorded.length : bytes_max);
  if (!page.ok() && shrinks) page = encode(record, bytes_max);
  if (!page.ok()) return page.status();
  PageOp op;
  op.kind = PageOp::Kind::put;
  op.durability = durability;
  op.key = slot_key(node.slot);
  op.group = node.inode;
  op.data = page->data();
  op.length = op.capacity = static_cast<std::uint32_t>(page->size());
  op.known = &recorded;
  op.shrinks = shrinks;
  pool_->run(store_, std::span(&op, 1));
  if (op.status.ok()) recorded = {op.key, op.length, op.checksum};
  return op.status;
}

// --- claims ---

FileVolume::Claim::Claim(FileVolume& volume, Lock& lock, std::span<const std::string_view> paths)
    : volume_(volume) {
  while (!find(paths)) volume.changed_.wait(lock);
  decltype(volume.changing_) claimed;
  for (const FileTree::Place& place : places_) {
    if (place.parent != nullptr) claimed.insert({place.parent->inode, place.name});
  }
  volume.changing_.merge(claimed);  // for which there is memory: all of them or none
}

// False: somebody changes one of them.
bool FileVolume::Claim::find(std::span<const std::string_view> paths) {
  places_.clear();
  bool free = true;
  for (const std::string_view path : paths) {
    Result<FileTree::Place> place = volume_.tree_.find(path);
    if (!place.ok()) {
      status_ = place.status();
      places_.clear();
      return true;
    }
    free = free && !volume_.is_changing(*place) && !volume_.is_unsettled(*place);
    places_.push_back(std::move(*place));
  }
  return free;
}

FileVolume::Claim::~Claim() {
  for (const FileTree::Place& place : places_) {
    if (place.parent != nullptr) volume_.changing_.erase({place.parent->inode, place.name});
  }
  volume_.changed_.notify_all();
}

// Or what is in the directory that it names: it would be taken away under that.
bool FileVolume::is_changing(const FileTree::Place& place) const {
  if (place.parent == nullptr) return false;
  if (changing_.contains({place.parent->inode, place.name})) return true;
  return place.node != nullptr && is_changing_within(*place.node);
}

// A directory that it is in, which may not get where it is found meanwhile: it is being moved, or
// has no record yet and is being made.
bool FileVolume::is_unsettled(const FileTree::Place& place) const {
  if (place.parent == nullptr) return false;
  const auto is_changed = [this](const FileLink& link) {
    return changing_.contains({link.parent, link.name});
  };
  const FileNode& parent = *place.parent;
  if (parent.recorded.length == 0 && std::ranges::any_of(parent.links, is_changed)) return true;
  return moving_ != nullptr && tree_.is_within(*moving_, parent);
}

bool FileVolume::is_changing_within(const FileNode& directory) const {
  const auto within = changing_.lower_bound({directory.inode, ""});
  return within != changing_.end() && within->first == directory.inode;
}

// Something is being made in it, perhaps: since its own name was claimed.
bool FileVolume::is_empty(const FileNode& directory) const {
  return directory.children.empty() && !is_changing_within(directory);
}

// --- making and removing ---

// A node at a path where there is none, with a record.
Result<std::shared_ptr<FileNode>> FileVolume::make_node(Lock& lock, std::string_view path,
                                                        bool directory) {
  const Claim claim(*this, lock, std::span(&path, 1));
  if (!claim.status().ok()) return claim.status();
  const FileTree::Place& place = claim[0];
  if (place.node != nullptr) return fail(Code::exists, "the name is taken");
  if (const Status settled = settle_names(lock); !settled.ok()) return settled;
  const Result<std::uint32_t> slot = take_slot(lock);
  if (!slot.ok()) return slot.status();
  auto node = std::make_shared<FileNode>();
  node->inode = next_number();
  node->slot = *slot;
  node->directory = directory;
  node->modified_s = pool_->wall_s();
  if (!directory) {
    node->file = std::make_shared<FileContent>(services_, node->inode);
    node->file->begin_new();
  }
  tree_.add(node);
  (void)tree_.add_link(place.parent, node, {place.parent->inode, next_number(), place.name});
  ++node->pins;
  const Status status = record(lock, node, Durability::none);
  if (!status.ok()) tree_.remove_link(*place.parent, node, place.name);
  unpin(lock, node);
  if (!status.ok()) return status;
  return node;
}

Result<std::unique_ptr<OpenFile>> FileVolume::open_file(std::string_view path) {
  const Lock lock(mutex_);
  const Result<FileTree::Place> place = tree_.find(path);
  if (!place.ok()) return place.status();
  if (place->node == nullptr) return no_such_file();
  if (place->node->directory) return fail(Code::invalid_argument, "it is a directory");
  return handle(place->node);
}

Result<std::unique_ptr<OpenFile>> FileVolume::create(std::string_view path, Existing existing) {
  for (;;) {
    Lock lock(mutex_);
    const Result<FileTree::Place> place = tree_.find(path);
    if (!place.ok()) return place.status();
    if (place->node == nullptr) {
      const auto made = make_node(lock, path, false);
      if (made.ok()) return handle(*made);
      if (made.status().code() == Code::exists && existing != Existing::refuse) continue;
      return made.status();
    }
    if (place->node->directory) return fail(Code::invalid_argument, "it is a directory");
    if (existing == Existing::refuse) return fail(Code::exists, "the file exists");
    std::unique_ptr<OpenFile> file = handle(place->node);
    lock.unlock();
    const Status status = existing == Existing::truncate ? file->truncate(0) : Status();
    if (!status.ok()) return status;
    return file;
  }
}

Status FileVolume::make_directory(std::string_view path) {
  Lock lock(mutex_);
  return make_node(lock, path, true).status();
}

Status FileVolume::remove(std::string_view path) {
  Lock lock(mutex_);
  const Claim claim(*this, lock, std::span(&path, 1));
  if (!claim.status().ok()) return claim.status();
  if (claim[0].node == nullptr) return no_such_file();
  if (claim[0].node->directory) return fail(Code::invalid_argument, "it is a directory");
  const Status status = unlink(lock, claim[0]);
  if (status.ok()) destroy_left(lock);
  return status;
}

Status FileVolume::remove_directory(std::string_view path) {
  Lock lock(mutex_);
  const Claim claim(*this, lock, std::span(&path, 1));
  if (!claim.status().ok()) return claim.status();
  const FileTree::Place& place = claim[0];
  if (place.node == nullptr) return no_such_file();
  if (!place.node->directory) return fail(Code::invalid_argument, "it is not a directory");
  if (place.parent == nullptr) return fail(Code::invalid_argument, "the root stays");
  return unlink(lock, place);
}

// Takes a name, which is claimed, from a node, and the node away with its last one. On failure it
// has its name still, unless it is gone and only that this is durable failed.
Status FileVolume::unlink(Lock& lock, const FileTree::Place& place) {
  const std::shared_ptr<FileNode> node = place.node, parent = place.parent;
  if (const Status settled = settle(lock, place); !settled.ok()) return settled;
  if (!is_empty(*node)) return fail(Code::invalid_argument, "the directory is not empty");
  const auto its = std::ranges::find_if(node->links, [&](const FileLink& link) {
    return link.parent == parent->inode && link.name == place.name;
  });
  FileLink link = *its;
  tree_.remove_link(*parent, node, place.name);
  const bool last = is_nobodys(*node);
  if (!last) ++node->pins;
  const Status status = last ? destroy(lock, node) : record(lock, node, Durability::none);
  const bool stays = !status.ok() && node->life == FileNode::Life::there;
  if (stays) (void)tree_.add_link(parent, node, std::move(link));
  if (stays && !last) take_back(lock, node);
  if (!last) unpin(lock, node);
  return status;
}

// The place's name is about to be nobody's.
Status FileVolume::settle(Lock& lock, const FileTree::Place& place) {
  using enum FileNode::Life;
  const std::pair<std::uint64_t, std::string> name(place.parent->inode, place.name);
  for (auto claim = claimed_.find(name); claim != claimed_.end(); claim = claimed_.find(name)) {
    const std::shared_ptr<FileNode> node = claim->second;
    changed_.wait(lock, [&] { return node->life != going; });
    const Status status = node->life == there ? drop_names(lock, node) : Status();
    if (!status.ok()) return status;
    claimed_.erase(claim);  // (nobody else changes what is kept of a claimed name)
  }
  return {};
}

// The medium no longer says the names that the node has lost.
Status FileVolume::drop_names(Lock& lock, const std::shared_ptr<FileNode>& node) {
  if (is_nobodys(*node)) return destroy(lock, node);
  ++node->pins;
  const Status status = record(lock, node, Durability::none);
  unpin(lock, node);
  return status;
}

bool FileVolume::is_nobodys(const FileNode& node) {
  return node.pins == 0 && node.links.empty() && node.life == FileNode::Life::there;
}

// The last to let go of a node without a name takes it away. Where that fails it is tried again.
void FileVolume::unpin(Lock& lock, const std::shared_ptr<FileNode>& node) {
  --node->pins;
  if (is_nobodys(*node)) (void)destroy(lock, node);
}

void FileVolume::destroy_left(Lock& lock) {
  while (!left_.empty()) {
    const std::shared_ptr<FileNode> node = std::move(left_.back());
    left_.pop_back();
    if (is_nobodys(*node) && !destroy(lock, node).ok()) return;  // nor will the others be now
  }
}

// What a deletion whose flush failed has left is nothing: it is done, and not known to be durable.
bool FileVolume::is_there(const KnownPage& page) {
  PageOp op;
  op.kind = PageOp::Kind::exist;
  op.key = page.key;
  op.known = &page;
  if (page.length != 0) pool_->run(store_, std::span(&op, 1));
  return op.status.code() != Code::not_found;
}

// One record deletes all of it. It is nobody's, and will not be anybody's until it is in left_.
Status FileVolume::destroy(Lock& lock, const std::shared_ptr<FileNode>& node) {
  if (abandoned_) return {};
  node->life = FileNode::Life::going;
  tree_.erase(*node);
  const KnownPage recorded = node->recorded;
  const bool unsure = node->record_unsure;
  lock.unlock();
  std::optional<std::vector<KnownPage>> pages(std::in_place);
  if (!node->directory) pages = node->content().retire();
  if (unsure) pages.reset();  // they are found
  if (pages && recorded.length != 0) pages->push_back(recorded);
  PageOp op;
  op.kind = PageOp::Kind::remove_group;
  op.group = node->inode;
  op.own_keys = true;  // a slot is used again when this is durable
  if (pages) op.known = pages->data(), op.known_count = pages->size();
  const bool nothing = pages && pages->empty();
  if (!nothing) pool_->run(store_, std::span(&op, 1));
  const bool gone = op.status.ok() || (pages && !is_there(recorded));
  if (!node->directory) node->content().end_retirement(gone);
  lock.lock();
  if (gone) {
    node->life = FileNode::Life::gone;
    freed_slots_.push_back(node->slot);
  } else {
    node->life = FileNode::Life::there;
    tree_.add(node);
    left_.push_back(node);
  }
  changed_.notify_all();
  return op.status;
}

Status FileVolume::rename(std::string_view from, std::string_view to) {
  Lock lock(mutex_);
  const Claim claim(*this, lock, std::array{from, to});
  if (!claim.status().ok()) return claim.status();
  const FileTree::Place &source = claim[0], &target = claim[1];
  // One after the other: each of two directories could go into what the other one moves.
  std::optional<Turn<const FileNode*>> turn;
  if (source.node != nullptr && source.node->directory) {
    turn.emplace(moving_, source.node.get(), lock, changed_);
  }
  return rename(lock, source, target);
}

// Of names that are claimed.
Status FileVolume::rename(Lock& lock, const FileTree::Place& source,
                          const FileTree::Place& target) {
  Status refused = rename_refusal(source, target);
  if (!refused.ok() || source.node == target.node) return refused;
  if (target.node != nullptr && !target.node->directory) {
    const Status whole = make_whole(lock, source.node);
    if (!whole.ok()) return whole;
  }
  if (const Status settled = settle(lock, source); !settled.ok()) return settled;
  if (const Status settled = settle_names(lock); !settled.ok()) return settled;
  refused = rename_refusal(source, target);  // something may have been made in it meanwhile
  if (!refused.ok()) return refused;
  const std::shared_ptr<FileNode> node = source.node, replaced = target.node;
  const std::vector<FileLink> links_before = node->links;
  const std::vector<FileLink> replaced_before = replaced ? replaced->links : links_before;
  ++node->pins;
  const std::uint64_t replaced_changes = replaced ? replaced->changes : 0;
  if (replaced) ++replaced->pins;
  tree_.remove_link(*source.parent, node, source.name);
  (void)tree_.add_link(target.parent, node, {target.parent->inode, next_number(), target.name});
  const Status status = record(lock, node, Durability::none);
  if (!status.ok()) {  // as it was
    tree_.remove_link(*target.parent, node, target.name);
    restore_link(source.parent, node, links_before, source.name);
    if (replaced) restore_link(target.parent, replaced, replaced_before, target.name);
    take_back(lock, node);
    // One that was written meanwhile says that it has lost the name.
    if (replaced && replaced->changes != replaced_changes) take_back(lock, replaced);
  }
  unpin(lock, node);
  if (replaced) {
    --replaced->pins;
    // Its record counts for less than the new one by now: where it stays, that is settled later.
    if (status.ok() && !drop_names(lock, replaced).ok() && replaced->life != FileNode::Life::gone) {
      claimed_.emplace(std::pair(target.parent->inode, target.name), replaced);
    }
  }
  return status;
}

// A file's bytes may go to another stream than its record: that one is not to be durable first, as
// the file that was there goes with it.
Status FileVolume::make_whole(Lock& lock, const std::shared_ptr<FileNode>& node) {
  ++node->pins;
  lock.unlock();
  const Status status = node->content().make_whole();
  lock.lock();
  unpin(lock, node);
  return status;
}

// The record that failed may be on the medium all the same, as where only the flush behind it
// failed, and says the new names: who got one of them later would take the file's place there. So
// it is written again, with the names as they are; where that fails, before anybody gets a name.
void FileVolume::take_back(Lock& lock, const std::shared_ptr<FileNode>& node) {
  if (!record(lock, node, Durability::none).ok()) names_unsure_.push_back(node);
}

Status FileVolume::settle_names(Lock& lock) {
  while (!names_unsure_.empty()) {
    const std::shared_ptr<FileNode> node = names_unsure_.back();
    const bool unsure = node->life == FileNode::Life::there && node->record_unsure;
    const Status status = unsure ? drop_names(lock, node) : Status();
    if (!status.ok()) return status;
    std::erase(names_unsure_, node);
  }
  return {};
}

void FileVolume::restore_link(const std::shared_ptr<FileNode>& parent,
                              const std::shared_ptr<FileNode>& node,
                              const std::vector<FileLink>& before, const std::string& name) {
  for (const FileLink& link : before) {
    if (link.parent == parent->inode && link.name == name) {
      (void)tree_.add_link(parent, node, link);
    }
  }
}

Status FileVolume::rename_refusal(const FileTree::Place& source,
                                  const FileTree::Place& target) const {
  if (source.node == nullptr) return no_such_file();
  if (source.parent == nullptr || target.parent == nullptr) {
    return fail(Code::invalid_argument, "the root keeps its name");
  }
  if (source.node == target.node) return {};
  if (target.node != nullptr && target.node->directory != source.node->directory) {
    return fail(Code::invalid_argument, "a directory and a file do not replace each other");
  }
  if (target.node != nullptr && !is_empty(*target.node)) {
    return fail(Code::invalid_argument, "the directory is not empty");
  }
  if (source.node->directory && tree_.is_within(*source.node, *target.parent)) {
    return fail(Code::invalid_argument, "a directory cannot go into itself");
  }
  return {};
}

Status FileVolume::link(std::string_view from, std::string_view to) {
  Lock lock(mutex_);
  const Claim claim(*this, lock, std::array{from, to});
  if (!claim.status().ok()) return claim.status();
  if (claim[0].node == nullptr) return no_such_file();
  if (claim[0].node->directory) return fail(Code::invalid_argument, "it is a directory");
  if (claim[1].node != nullptr) return fail(Code::exists, "the name is taken");
  if (const Status settled = settle_names(lock); !settled.ok()) return settled;
  const std::shared_ptr<FileNode> node = claim[0].node, parent = claim[1].parent;
  (void)tree_.add_link(parent, node, {parent->inode, next_number(), claim[1].name});
  ++node->pins;
  const Status status = record(lock, node, Durability::none);
  if (!status.ok()) {
    tree_.remove_link(*parent, node, claim[1].name);
    take_back(lock, node);
  }
  unpin(lock, node);
  return status;
}

Status FileVolume::sync_names() {
  PageOp op;
  op.kind = PageOp::Kind::flush;
  std::vector<std::uint32_t> freed;
  Lock lock(mutex_);
  destroy_left(lock);
  const Status settled = settle_names(lock);
  freed.swap(freed_slots_);
  lock.unlock();
  pool_->run(store_, std::span(&op, 1));
  lock.lock();
  auto& slots = op.status.ok() ? free_slots_ : freed_slots_;
  slots.insert(slots.end(), freed.begin(), freed.end());
  return settled.ok() ? op.status : settled;
}

// --- handles ---

std::unique_ptr<OpenFile> FileVolume::handle(const std::shared_ptr<FileNode>& node) {
  ++node->pins;
  return std::unique_ptr<OpenFile>(new OpenFile(shared_from_this(), node));
}

void FileVolume::release(const std::shared_ptr<FileNode>& node) {
  Lock lock(mutex_);
  unpin(lock, node);
}

}  // namespace furrow
