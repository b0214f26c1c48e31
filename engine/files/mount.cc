// FileVolume: mounting and unmounting.
#include <algorithm>
#include <cstring>

#include "engine/files/file_volume.h"

namespace furrow {

namespace {

constexpr std::uint32_t kSlotsStep = 1024;
constexpr std::uint32_t kSlotsPerBatch = 256;  // 2 MiB

std::uint32_t chunk_bytes(std::uint32_t page_bytes_max, std::uint32_t lba_bytes) {
  return std::min(page_bytes_max, FileVolume::kChunkBytesMax) / lba_bytes * lba_bytes;
}
constexpr std::uint32_t kUsualRecordBytes = 8192;
constexpr std::uint64_t kMountMax = (1 << 24) - 1;  // see next_number()

PageOp get_op(const Key& key, AlignedBuffer& memory) {
  PageOp op;
  op.kind = PageOp::Kind::get;
  op.key = key;
  op.data = memory.data();
  op.capacity = static_cast<std::uint32_t>(memory.size());
  return op;
}

}  // namespace

Result<PageStore*> FileVolume::find(Pool& pool, std::string_view name) {
  PageStore* found = nullptr;
  for (PageStore* store : pool.stores()) {
    const VolumeOptions& options = store->info().options;
    if (options.kind != VolumeKind::fs || (!name.empty() && options.name != name)) continue;
    if (found != nullptr) {
      return Status(Code::invalid_argument, Origin::engine,
                    "the pool has several volumes of kind fs; say which (volume=NAME)");
    }
    found = store;
  }
  if (found != nullptr) return found;
  return Status(Code::not_found, Origin::engine,
                "the pool has no such volume of kind fs; `furrowctl volume create --kind=fs` makes "
                "one");
}

// Of a volume that was never mounted: an empty one.
Result<FilesSuper> FileVolume::read_super(BlockingPool& pool, PageStore& store, KnownPage& page) {
  AlignedBuffer memory(kUsualRecordBytes);
  PageOp op = get_op(super_key(), memory);
  pool.run(store, std::span(&op, 1));
  if (op.status.code() == Code::not_found && store.usage().pages == 0) return FilesSuper();
  if (op.status.code() == Code::not_found) {  // it is put before anything else, durably
    return Status(Code::corrupt, Origin::engine, "it is lost");
  }
  if (!op.status.ok()) return op.status;
  page = {op.key, op.length, op.checksum};
  return decode_files_super(memory.span().first(std::min<std::size_t>(op.length, memory.size())));
}

Result<std::shared_ptr<FileVolume>> FileVolume::mount(std::shared_ptr<BlockingPool> pool,
                                                      PageStore& store, Strays strays) {
  KnownPage page;
  // What is made now could take the place of what is there all the same.
  if (store.usage().incomplete) {
    return Status(
        Code::io_error, Origin::engine,
        "a zone that may hold some of the files is lost, or could not be read when the "
        "pool was opened; open it again, or see `furrowctl fs ls --rescue` for what is left, and "
        "`furrowctl fs export --rescue`, which copies it out; `furrowctl pool check "
        "--repair --give_up` gives up what cannot be read");
  }
  const Result<FilesSuper> before = read_super(*pool, store, page);
  if (!before.ok()) return unreadable(before.status());
  if (before->mount >= kMountMax) {
    return Status(Code::unsupported, Origin::engine,
                  "the volume was mounted 16 million times, and cannot be once more; `furrowctl fs "
                  "export --rescue` copies it out");
  }
  std::shared_ptr<FileVolume> volume(
      new FileVolume(std::move(pool), store, *before, Staging::Use::own), [](FileVolume* last) {
        const std::function<void()> call = std::move(last->when_unmounted_);
        delete last;
        if (call) call();
      });
  volume->super_page_ = page;
  const Status status = volume->load(strays);
  if (!status.ok()) {
    volume->abandon();  // what is staged stays, for a mount that succeeds
    if (volume->staging_.left().empty()) volume->staging_.forget();
    return status;
  }
  return volume;
}

FileVolume::FileVolume(std::shared_ptr<BlockingPool> pool, PageStore& store,
                       const FilesSuper& before, Staging::Use use)
    : pool_(std::move(pool)),
      store_(store),
      mount_(before.mount + 1),
      token_(pool_->random() | 1),
      use_(use),
      chunk_bytes_(chunk_bytes(store.info().options.value_bytes_max, pool_->geometry().lba_bytes)),
      identity_(Staging::name(store.info().uuid, pool_->identity())),
      staging_(identity_, chunk_bytes_, before.token != 0 ? before.token : before.mount, use),
      readers_(*pool_),
      services_{*pool_, store_, staging_, readers_, chunk_bytes_},
      written_before_(before.written),
      stats_before_(store.stats()),
      slots_(before.slots) {}

Status FileVolume::load(Strays strays) {
  if (!staging_.refusal().ok()) return staging_.refusal();
  Status status = load_records();
  next_slot_ = slots_;
  if (status.ok()) status = drop_lost();
  for (const auto& [inode, node] : tree_.nodes()) {
    if (!status.ok()) return status;
    if (node->directory || !node->content().may_have_more()) continue;
    status = node->content().find_more();
    if (!status.ok()) return unreadable(status);
  }
  if (status.ok()) status = restore_staged();
  if (!status.ok()) return status;
  staging_.announce(token_);
  status = write_super(std::max(slots_, kSlotsStep), Durability::flushed);
  if (!status.ok()) return status;
  slots_ = std::max(slots_, kSlotsStep);
  saved_bytes_ = written().device_bytes;
  staging_.begin(token_);
  record_found();
  if (tree_.root() == nullptr) status = add_root();
  if (status.ok() && strays == Strays::take_in) status = find_strays();
  if (status.ok()) status = connect();
  return status.ok() && strays == Strays::take_in ? record_strays() : status;
}

// Of files that have more than their records said, durably by now: when they were written last is
// not known better than this, and the next mount need not look for it again. Where there is no room
// for a record the old one does; where there is none in it that file may have been closed long ago.
void FileVolume::record_found() {
  const std::uint32_t bytes_max = store_.info().options.value_bytes_max;
  Lock lock(mutex_);
  for (const auto& [inode, node] : tree_.nodes()) {
    if (node->directory || node->links.empty() || !node->content().found_more()) continue;
    if (node->recorded.length + kRecordedChunkBytes > bytes_max) continue;
    node->modified_s = std::max<std::uint64_t>(node->modified_s, pool_->wall_s());
    (void)record(lock, node, Durability::none);
  }
}

// One takes an LBA at least. Of the device: the volume may have been larger.
std::uint32_t FileVolume::slots_max() const {
  const Geometry& device = geometry();
  const std::uint64_t lbas = device.zone_count * (device.zone_capacity_bytes() / device.lba_bytes);
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(lbas + kSlotsStep, ~std::uint32_t{0} - kSlotsPerBatch));
}

Status FileVolume::load_records() {
  if (slots_ > slots_max()) {
    slots_ = slots_max();
    const Status status = lost("the files' first page",
                               {Code::corrupt, Origin::engine, "it names more files than fit"});
    if (!status.ok()) return status;
  }
  std::vector<AlignedBuffer> memory;
  for (std::uint32_t i = 0; i < kSlotsPerBatch; ++i) memory.emplace_back(kUsualRecordBytes);
  for (std::uint32_t slot = 0; slot < slots_; slot += kSlotsPerBatch) {
    const auto count = std::min(kSlotsPerBatch, slots_ - slot);
    const Status status = load_slots(slot, std::span(memory).first(count));
    if (!status.ok()) return status;
  }
  return {};
}

// The records from slot `first` on, as many as there are buffers.
Status FileVolume::load_slots(std::uint32_t first, std::span<AlignedBuffer> memory) {
  const auto count = static_cast<std::uint32_t>(memory.size());
  std::vector<PageOp> ops(count);
  for (std::uint32_t i = 0; i < count; ++i) ops[i] = get_op(slot_key(first + i), memory[i]);
  pool_->run(store_, ops);
  for (std::uint32_t i = 0; i < count; ++i) {
    if (ops[i].status.code() == Code::not_found) {
      free_slots_.push_back(first + i);
      continue;
    }
    if (ops[i].status.ok() && ops[i].length > ops[i].capacity) {
      memory[i] = AlignedBuffer(ops[i].length);
      ops[i] = get_op(slot_key(first + i), memory[i]);
      pool_->run(store_, std::span(&ops[i], 1));
    }
    Status status = ops[i].status.ok() ? load_record(first + i, ops[i]) : ops[i].status;
    if (!status.ok()) status = lost("the record number " + std::to_string(first + i), status);
    if (!status.ok()) return status;
  }
  return {};
}

Status FileVolume::load_record(std::uint32_t slot, const PageOp& op) {
  const Result<FileRecord> record = decode_file_record({op.data, op.length});
  if (!record.ok()) return record.status();
  auto node = std::make_shared<FileNode>();
  node->inode = record->inode;
  node->slot = slot;
  node->directory = record->directory;
  node->modified_s = record->modified_s;
  node->links = record->links;
  node->recorded = {op.key, op.length, op.checksum};
  node->recorded_links = node->links.size();
  if (!node->directory) {
    node->file = std::make_shared<FileContent>(services_, node->inode);
    node->file->load(*record);
  }
  const bool root = node->inode == kRootInode;
  const bool sound = !root || (node->directory && node->links.empty());  // else a circle, perhaps
  if (tree_.by_inode(node->inode) != nullptr || !sound) {
    return {Code::corrupt, Origin::engine, "two records of one file, or a root that is none"};
  }
  root ? tree_.set_root(node) : tree_.add(node);
  return {};
}

Status FileVolume::add_root() {
  auto root = std::make_shared<FileNode>();
  root->inode = kRootInode;
  root->directory = true;
  Lock lock(mutex_);
  const Result<std::uint32_t> slot = take_slot(lock);
  if (!slot.ok()) return slot.status();
  root->slot = *slot;
  tree_.set_root(root);
  return record(lock, root, Durability::none);
}

// Gives the nodes their names. Those that have none, or whose names others have got since, were
// being deleted; those whose directory is not there lost it by damage, and go to the root.
Status FileVolume::connect() {
  Lock lock(mutex_);
  std::vector<std::shared_ptr<FileNode>> all, orphans;
  for (const auto& [inode, node] : tree_.nodes()) all.push_back(node);
  std::ranges::sort(all, {}, &FileNode::inode);
  for (const auto& node : all) {
    std::vector<FileLink> links;
    links.swap(node->links);
    bool orphan = false;
    for (FileLink& link : links) {
      const auto parent = tree_.by_inode(link.parent);
      if (!parent || !parent->directory) orphan = true;
      if (!parent || !parent->directory || (node->directory && !node->links.empty())) continue;
      const std::pair<std::uint64_t, std::string> name(parent->inode, link.name);
      const auto loser = tree_.add_link(parent, node, std::move(link));
      if (loser != nullptr) claimed_.emplace(name, loser);
    }
    if (orphan) orphans.push_back(node);
  }
  for (const auto& node : all) {
    if (node->directory && !tree_.is_within(*tree_.root(), *node)) orphans.push_back(node);
  }
  for (const auto& node : orphans) {
    if (node->links.empty() || node->directory) rescue(node);
  }
  for (const auto& node : all) {
    if (!node->links.empty() || node == tree_.root() || use_ == Staging::Use::look) continue;
    const Status status = destroy(lock, node);
    if (!status.ok()) return status;
  }
  std::erase_if(claimed_,
                [](const auto& claim) { return claim.second->life == FileNode::Life::gone; });
  return {};
}

// Its record still says the old names: where those are whole again, it has them again.
void FileVolume::rescue(const std::shared_ptr<FileNode>& node) {
  const std::shared_ptr<FileNode> root = tree_.root();
  if (node == root || tree_.is_within(*root, *node)) return;
  for (const FileLink& link : std::vector<FileLink>(node->links)) {
    if (const auto parent = tree_.by_inode(link.parent)) {
      tree_.remove_link(*parent, node, link.name);
    }
  }
  node->links.clear();
  std::string name = "lost+found." + std::to_string(node->inode);
  while (root->children.contains(name)) name += '+';  // what has it keeps it
  (void)tree_.add_link(root, node, {kRootInode, next_number(), name});
}

// Chunks that a power cut took although a record lists them, and what is behind them: the index
// alone is asked.
Status FileVolume::drop_lost() {
  constexpr std::size_t kBatch = 1024;
  std::vector<KnownPage> pages;
  std::vector<std::pair<FileContent*, std::size_t>> of;  // and the number of the chunk
  const auto ask = [&]() -> Status {
    std::vector<PageOp> ops(pages.size());
    for (std::size_t i = 0; i < ops.size(); ++i) {
      ops[i].kind = PageOp::Kind::exist;
      ops[i].key = pages[i].key;
      ops[i].known = &pages[i];
    }
    pool_->run(store_, ops);
    for (std::size_t i = ops.size(); i-- != 0;) {  // of each file the last chunk first
      if (ops[i].status.ok()) continue;
      if (ops[i].status.code() != Code::not_found) return ops[i].status;
      // What is behind it is damage's, which a rescue goes around.
      const bool last = of[i].second + 1 == of[i].first->chunks();
      if (last || use_ == Staging::Use::own) of[i].first->drop_from(of[i].second);
    }
    pages.clear();
    of.clear();
    return {};
  };
  for (const auto& [inode, node] : tree_.nodes()) {
    if (node->directory) continue;
    std::size_t chunk = 0;
    for (const KnownPage& page : node->content().unsure()) {
      pages.push_back(page);
      of.emplace_back(&node->content(), chunk++);
    }
    if (pages.size() < kBatch) continue;
    const Status status = ask();
    if (!status.ok()) return status;
  }
  return ask();
}

Status FileVolume::restore_staged() {
  for (const Staging::Left& left : staging_.left()) {
    const auto node = tree_.by_inode(left.inode);
    if (node == nullptr || node->directory) continue;
    const std::uint64_t before = node->content().size();
    const Status status = node->content().restore(left, use_);
    if (!status.ok()) return status;
    restored_bytes_ += node->content().size() - before;
  }
  return {};
}

FilesWritten FileVolume::written() const {
  const VolumeStats stats = store_.stats();
  return {written_before_.appended_bytes + appended_bytes_,
          written_before_.device_bytes + stats.device_bytes_written -
              stats_before_.device_bytes_written,
          written_before_.relocated_bytes + stats.relocated_bytes - stats_before_.relocated_bytes};
}

// A slot that it allows, or a mount, must not be numbered so again: for that it is flushed.
Status FileVolume::write_super(std::uint32_t slots, Durability durability) {
  const std::vector<std::byte> page = encode(FilesSuper{mount_, slots, token_, written()});
  PageOp op;
  op.kind = PageOp::Kind::put;
  op.key = super_key();
  op.data = const_cast<std::byte*>(page.data());
  op.length = op.capacity = static_cast<std::uint32_t>(page.size());
  op.durability = durability;
  op.known = &super_page_;
  op.shrinks = true;  // without a mount nothing could be deleted
  pool_->run(store_, std::span(&op, 1));
  if (!op.status.ok()) return op.status;
  super_page_ = {op.key, op.length, op.checksum};
  return {};
}

// When a file is closed, so that most of what a mount has written is counted when it is killed.
void FileVolume::save_written(Lock& lock) {
  constexpr std::uint64_t kEachBytes = 64 << 20;
  const std::uint64_t now = written().device_bytes;
  if (growing_ || now - saved_bytes_ < kEachBytes) return;
  growing_ = true;
  saved_bytes_ = now;
  const std::uint32_t slots = slots_;
  lock.unlock();
  (void)write_super(slots, Durability::none);  // what fails is made good the next time
  lock.lock();
  growing_ = false;
  changed_.notify_all();
}

// A number that no other record has. The lock is released while there are none left.
Result<std::uint32_t> FileVolume::take_slot(Lock& lock) {
  for (;;) {
    if (!free_slots_.empty()) {
      const std::uint32_t slot = free_slots_.back();
      free_slots_.pop_back();
      return slot;
    }
    if (next_slot_ < slots_) return next_slot_++;
    if (growing_) {
      changed_.wait(lock);
      continue;
    }
    growing_ = true;
    const bool freed = !freed_slots_.empty();  // as good, after a flush
    const std::uint32_t slots = slots_ + (freed ? 0 : kSlotsStep);
    lock.unlock();
    const Status status = freed ? sync_names() : write_super(slots, Durability::flushed);
    lock.lock();
    growing_ = false;
    if (status.ok()) slots_ = slots;
    changed_.notify_all();
    if (!status.ok()) return status;
  }
}

void FileVolume::abandon() {
  const Lock lock(mutex_);
  abandoned_ = true;
  staging_.leave_behind();
}

FileVolume::~FileVolume() {
  if (abandoned_) {
    for (const auto& [inode, node] : tree_.nodes()) {
      if (!node->directory) node->content().quiesce();
    }
    return;
  }
  staging_.leave_behind();  // until it is known that nothing of it is needed any more
  bool all = true;
  for (const auto& [inode, node] : tree_.nodes()) {
    if (!node->directory && !node->content().close().ok()) all = false;
  }
  if (!sync_names().ok() || !all) return;
  // What is counted is all that is new.
  if (appended_bytes_ != 0) (void)write_super(slots_, Durability::flushed);
  staging_.forget();
}

}  // namespace furrow
