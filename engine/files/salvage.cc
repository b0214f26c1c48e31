// FileVolume: what is left of files of which records cannot be read.
//
// A record's chunks are pages of their own, and a chunk's key says which file it is of, and where
// in it: so a file that has lost its record has lost its names, and nothing of what it holds.
#include <algorithm>
#include <map>

#include "engine/files/file_volume.h"

namespace furrow {

namespace {

constexpr std::uint32_t kKeysPerList = 4096;

Status for_each_key(BlockingPool& pool, PageStore& store,
                    const std::function<void(const Key&)>& what) {
  std::vector<Key> keys(kKeysPerList);
  Key after;
  for (;;) {
    PageOp op;
    op.kind = PageOp::Kind::list;
    op.key = after;
    op.keys = keys.data();
    op.keys_max = kKeysPerList;
    pool.run(store, std::span(&op, 1));
    if (!op.status.ok()) return op.status;
    for (const Key& key : std::span(keys).first(op.keys_count)) what(key);
    if (op.keys_count < kKeysPerList) return {};
    after = keys[op.keys_count - 1];
  }
}

// What follows what, in a file: where two are of the same bytes, the one that was put last. Its
// version is the higher one, but for the rare replacement whose record was not written yet.
std::vector<FileContent::Found> in_order(std::vector<FileContent::Found> chunks) {
  std::ranges::sort(chunks, [](const auto& one, const auto& other) {
    return one.offset != other.offset ? one.offset < other.offset : one.version > other.version;
  });
  std::uint64_t end = 0;
  std::erase_if(chunks, [&](const FileContent::Found& chunk) {
    if (chunk.offset < end) return true;
    end = chunk.offset + chunk.length;
    return false;
  });
  return chunks;
}

}  // namespace

Result<std::shared_ptr<const FileVolume>> FileVolume::salvage(std::shared_ptr<BlockingPool> pool,
                                                              PageStore& store) {
  KnownPage page;
  const Result<FilesSuper> super = read_super(*pool, store, page);
  if (super.status().code() == Code::unsupported) return super.status();
  const FilesSuper before = super.ok() ? *super : FilesSuper();
  std::shared_ptr<FileVolume> volume(
      new FileVolume(std::move(pool), store, before, Staging::Use::look));
  volume->abandoned_ = true;
  if (!super.ok()) (void)volume->lost("the files' first page, and what was staged", super.status());
  const Status status = volume->salvage();
  if (!status.ok()) return status;
  return std::shared_ptr<const FileVolume>(std::move(volume));
}

Status FileVolume::salvage() {
  std::vector<std::string> damage;
  pool_->call([&](Pool& pool) { damage = pool.opening_damage(); });
  for (const std::string& text : damage) {
    (void)lost(text, {Code::corrupt, Origin::engine, "found when the pool was opened"});
  }
  if (!staging_.refusal().ok()) (void)lost("what was staged", staging_.refusal());
  if (slots_ == 0) find_slots();
  Status status = load_records();
  if (!status.ok()) return status;
  if (tree_.root() == nullptr) {
    auto root = std::make_shared<FileNode>();
    root->inode = kRootInode;
    root->directory = true;
    tree_.set_root(root);
  }
  status = find_strays();
  if (status.ok()) status = connect();
  if (status.ok()) status = drop_lost();
  if (!status.ok()) return status;
  for (const auto& [inode, node] : tree_.nodes()) {
    if (node->directory || !node->content().may_have_more()) continue;
    const Status found = node->content().find_more();
    if (!found.ok()) (void)lost(tree_.path_of(*node) + ": the end of it", found);
  }
  return restore_staged();
}

// The first page would have said how many there are.
void FileVolume::find_slots() {
  const Status listed = for_each_key(*pool_, store_, [&](const Key& key) {
    if (const auto slot = slot_of(key)) slots_ = std::max(slots_, std::min(*slot, ~0u - 1) + 1);
  });
  slots_ = std::min(slots_, slots_max());
  if (!listed.ok()) (void)lost("the records that no list could be made of", listed);
}

// Files by their chunks alone: connect() puts them in the root, as their directory is not known.
Status FileVolume::find_strays() {
  std::map<std::uint64_t, std::vector<FileContent::Found>> strays;
  const Status listed = for_each_key(*pool_, store_, [&](const Key& key) {
    const auto chunk = chunk_of(key);
    if (!chunk || tree_.by_inode(chunk->inode) != nullptr) return;
    strays[chunk->inode].push_back({chunk->offset, 0, 0, chunk->version});
  });
  if (!listed.ok()) {
    const Status status = lost("the files without a record that no list could be made of", listed);
    if (!status.ok()) return status;
  }
  for (auto& [inode, chunks] : strays) {
    const std::string name = "/lost+found." + std::to_string(inode);
    for (FileContent::Found& chunk : chunks) {
      PageOp op;
      op.kind = PageOp::Kind::exist;
      op.key = chunk_key(inode, chunk.version, chunk.offset);
      pool_->run(store_, std::span(&op, 1));
      if (!op.status.ok()) losses_.push_back({name + ": a part of it", op.status});
      if (op.status.ok()) chunk.length = op.length, chunk.checksum = op.checksum;
    }
    std::erase_if(chunks, [](const FileContent::Found& chunk) { return chunk.length == 0; });
    auto node = std::make_shared<FileNode>();
    node->inode = inode;
    node->file = std::make_shared<FileContent>(services_, inode);
    node->file->load_found(in_order(std::move(chunks)));
    node->links.push_back({});  // of no directory
    tree_.add(node);
    losses_.push_back({name, Status(Code::corrupt, Origin::engine,
                                    "its record is lost: its name was another one, and where its "
                                    "end is missing that cannot be told")});
  }
  return {};
}

// They have a name by now. When they were written is not known better than this.
Status FileVolume::record_strays() {
  Lock lock(mutex_);
  std::vector<std::shared_ptr<FileNode>> strays;
  for (const auto& [inode, node] : tree_.nodes()) {
    if (!node->directory && node->recorded.length == 0) strays.push_back(node);
  }
  for (const auto& node : strays) {
    const Result<std::uint32_t> slot = take_slot(lock);
    if (!slot.ok()) return slot.status();
    node->slot = *slot;
    node->modified_s = pool_->wall_s();
    const Status status = record(lock, node, Durability::none);
    if (!status.ok()) return status;
  }
  return {};
}

// The status of a mount; of a rescue, which goes on: ok.
Status FileVolume::lost(std::string what, const Status& why) {
  if (use_ == Staging::Use::own) return unreadable(why);
  losses_.push_back({std::move(what), why});
  return {};
}

Status FileVolume::unreadable(const Status& why) {
  if (why.code() != Code::corrupt && why.code() != Code::io_error) return why;
  return {
      why.code(), Origin::engine,
      "the record of a file or directory, or the end of a file, cannot be read; `furrowctl fs ls "
      "--rescue` shows what is left, and what is lost, and `furrowctl fs export --rescue` copies "
      "it out",
      why.sys_errno()};
}

}  // namespace furrow
