#include "tests/sim/sim_disk.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "log/block_order.h"
#include "tests/sim/structure_check.h"
#include "zone/check.h"

namespace furrow::sim {

namespace {

constexpr std::uint64_t kBlocksAtOnce = 16;      // of a verification's read
constexpr std::uint64_t kBytesMax = 3ull << 20;  // it does not grow beyond
constexpr std::size_t kTogetherMax = 8;          // remembered of a block

const char* name_of(BlockOp::Kind kind) {
  constexpr const char* kNames[] = {
      "read", "write", "flush", "discard", "write_zeroes", "compare", "compare_and_write"};
  return kNames[static_cast<unsigned>(kind)];
}

bool all_zero(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte each) { return each == std::byte{}; });
}

}  // namespace

SimDisk::SimDisk(World& world, const DiskShape& shape)
    : world_(world),
      shape_(shape),
      lba_bytes_(shape.options.block_lba_bytes),
      bytes_(shape.options.block_bytes),
      bytes_tried_(bytes_) {
  resize_to(bytes_);
}

void SimDisk::resize_to(std::uint64_t bytes) {
  bytes_ = bytes_tried_ = bytes;
  entries_.resize(bytes / lba_bytes_);
  together_.resize(bytes / kBlockPageBytes);
}

bool SimDisk::attach(Pool& pool, Executor& executor) {
  store_ = pool.find(shape_.options.name);
  if (store_ == nullptr) {
    world_.fail("disk lost");
    return false;
  }
  id_ = store_->info().id;
  for (Way& way : ways_) {
    Result<std::unique_ptr<PageSession>> session = pool.create_session(executor, 64);
    if (!session.ok()) return false;
    way.pages = std::move(*session);
    way.blocks = std::make_unique<BlockSession>(*way.pages, executor);
  }
  const std::uint64_t bytes = store_->info().options.block_bytes;
  if (bytes != bytes_ && bytes != bytes_tried_) {
    world_.fail(fmt::format("the disk has {} bytes, which nobody gave it", bytes));
  }
  resize_to(bytes);
  const StoreRoom room = room_of(*store_);
  fits_ =
      room.usable_bytes >= bytes / kBlockPageBytes * (shape_.block_cost + 2 * room.record_bytes);
  return !world_.failed();
}

void SimDisk::detach() {
  for (Way& way : ways_) {
    way.blocks.reset();
    way.pages.reset();
  }
  store_ = nullptr;
}

bool SimDisk::at_rest() const {
  return running_ == 0 && std::ranges::all_of(ways_, [](const Way& way) {
           return way.blocks == nullptr || way.blocks->idle();
         });
}

void SimDisk::abandon() {
  for (Way& way : ways_) {
    (void)way.blocks.release();
    (void)way.pages.release();
  }
  for (auto& client : clients_) (void)client.release();
}

bool SimDisk::changes(BlockOp::Kind kind) {
  using enum BlockOp::Kind;
  return kind != read && kind != flush && kind != compare;
}

// --- submission ---

SimDisk::Client& SimDisk::free_client() {
  auto found = std::ranges::find_if(clients_, [](const auto& each) { return !each->busy; });
  if (found == clients_.end()) {
    clients_.push_back(std::make_unique<Client>());
    found = clients_.end() - 1;
    (*found)->disk = this;
    const std::uint64_t most = std::max<std::uint64_t>(shape_.blocks_max + 1, kBlocksAtOnce);
    (*found)->data = AlignedBuffer((most + 1) * kBlockPageBytes);
    (*found)->expected = AlignedBuffer(kBlockPageBytes);
  }
  Client& client = **found;
  client.op = BlockOp();
  client.op.data = client.data.data();
  client.certain = false;
  return client;
}

void SimDisk::start_any() {
  using enum BlockOp::Kind;
  // How often each is drawn, relative to the others.
  constexpr std::pair<unsigned, BlockOp::Kind> kChoices[] = {{6, read},
                                                             {14, write},
                                                             {2, discard},
                                                             {1, write_zeroes},
                                                             {1, BlockOp::Kind::flush},
                                                             {1, compare},
                                                             {2, compare_and_write}};
  std::uint64_t drawn = world_.random.below(27);
  const auto* choice = kChoices;
  for (; drawn >= choice->first; ++choice) drawn -= choice->first;
  Client& client = free_client();
  client.op.kind = choice->second;
  if (world_.random.percent(shape_.flushed_percent)) client.op.durability = Durability::flushed;
  if (client.op.kind == BlockOp::Kind::flush) return submit(client);
  draw_range(client.op);
  if (changes(client.op.kind)) {
    const auto first = entries_.begin() + static_cast<std::ptrdiff_t>(client.op.lba);
    const auto last = first + static_cast<std::ptrdiff_t>(client.op.count);
    const bool meets = std::any_of(first, last, std::mem_fn(&Entry::changing));
    if (meets && !shape_.overlaps) return;
  }
  draw_data(client);
  submit(client);
}

// A part of a block, some whole ones, or anything.
void SimDisk::draw_range(BlockOp& op) {
  SimRandom& random = world_.random;
  const std::uint64_t per_block = lbas_per_block();
  // Some blocks are asked for more often.
  const std::uint64_t blocks = lbas() / per_block;
  const std::uint64_t block = random.below(random.one_in(3) ? 1 + blocks / 16 : blocks);
  const bool within = op.kind == BlockOp::Kind::compare_and_write || random.one_in(3);
  const std::uint64_t offset = random.below(per_block);
  if (within) {
    op.lba = block * per_block + offset;
    op.count = random.between(1, per_block - offset);
    return;
  }
  const bool whole = random.one_in(2);
  op.lba = block * per_block + (whole ? 0 : offset);
  op.count = random.log_between(1, shape_.blocks_max) * per_block;
  if (!whole) op.count -= std::min(op.count - 1, random.below(per_block));
  // All of a mebibyte, which is emptied as one.
  const bool zeroes = op.kind == BlockOp::Kind::discard || op.kind == BlockOp::Kind::write_zeroes;
  if (zeroes && random.one_in(4)) {
    op.count = (random.one_in(2) ? 256 : 300) * per_block;
    op.lba = random.one_in(2) ? 0 : op.lba / (256 * per_block) * (256 * per_block);
  }
  op.count = std::min(op.count, lbas() - op.lba);
}

void SimDisk::draw_data(Client& client) {
  BlockOp& op = client.op;
  SimRandom& random = world_.random;
  if (random.one_in(4)) op.data += random.below(kBlockPageBytes);  // which no device takes
  using enum BlockOp::Kind;
  if (op.kind == compare || op.kind == compare_and_write) draw_comparison(client);
  if (changes(op.kind)) begin_change(client);
  if (op.kind == read) std::memset(op.data, 0xEE, op.count * lba_bytes_);
}

// With what is there, as far as that is known, or, half of the time, with something else.
void SimDisk::draw_comparison(Client& client) {
  BlockOp& op = client.op;
  const bool also_writes = op.kind == BlockOp::Kind::compare_and_write;
  std::byte* const with = also_writes ? client.expected.data() : op.data;
  client.alike = world_.random.one_in(2);
  client.certain = true;
  const Window now{world_.tick, 0, 0};
  for (std::uint64_t i = 0; i < op.count; ++i) {
    std::uint64_t visible = 0, version = 0;
    for (const State& state : entries_[op.lba + i].history.states()) {
      if (state.dead <= now.from) continue;
      ++visible;
      version = state.version;
    }
    client.certain = client.certain && visible == 1;
    fill(op.lba + i, version, lba_of(with, i));
  }
  if (!client.alike) {
    const std::uint64_t at = world_.random.below(op.count * lba_bytes_);
    with[at] ^= std::byte{1};
  }
  if (also_writes) op.expected = with;
}

void SimDisk::begin_change(Client& client) {
  using enum BlockOp::Kind;
  BlockOp& op = client.op;
  const bool zeroes = op.kind == discard || op.kind == write_zeroes;
  client.version = zeroes ? 0 : next_version_++;
  client.serial = next_serial_++;
  ++started_;
  for (std::uint64_t i = 0; i < op.count; ++i) {
    Entry& entry = entries_[op.lba + i];
    entry.history.forget_invisible();
    entry.overlapped = entry.changing();
    entry.touched = started_;
    ++entry.history.running;
    State state;
    state.version = client.version;
    state.bytes = lba_bytes_;
    state.serial = client.serial;
    state.era = world_.era;
    entry.history.add(state);
    if (!zeroes) fill(op.lba + i, client.version, lba_of(op.data, i));
  }
  if (zeroes) {
    op.data = nullptr;
    return;
  }
  const std::uint64_t per_block = lbas_per_block();
  for (std::uint64_t lba = op.lba; lba < op.lba + op.count;) {
    const std::uint64_t end = std::min((lba / per_block + 1) * per_block, op.lba + op.count);
    std::vector<Together>& last = together_[lba / per_block];
    const auto meets = [this](std::uint64_t from, std::uint64_t to) {
      return std::any_of(entries_.begin() + static_cast<std::ptrdiff_t>(from),
                         entries_.begin() + static_cast<std::ptrdiff_t>(to),
                         [](const Entry& each) { return each.overlapped; });
    };
    // Where others overwrite a part of it at the same time it may be the part that is newer.
    if (meets(lba, end)) {
      last.clear();
    } else {
      if (last.size() == kTogetherMax) last.erase(last.begin());
      last.push_back({lba, end - lba, client.version});
    }
    lba = end;
  }
}

bool SimDisk::start_verification() {
  Client& client = free_client();
  client.op.lba = next_verified_;
  client.op.count = std::min(kBlocksAtOnce * lbas_per_block(), lbas() - next_verified_);
  // Alone what may be an error.
  const auto rotten = rotten_.lower_bound(client.op.lba / lbas_per_block());
  if (rotten != rotten_.end()) {
    const std::uint64_t at = *rotten * lbas_per_block();
    const std::uint64_t end = at == client.op.lba ? at + lbas_per_block() : at;
    client.op.count = std::min(client.op.count, end - client.op.lba);
  }
  next_verified_ = (next_verified_ + client.op.count) % lbas();
  submit(client);
  return next_verified_ != 0;
}

void SimDisk::start_discard_of_all() {
  Client& client = free_client();
  client.op.kind = BlockOp::Kind::discard;
  client.op.count = lbas();
  begin_change(client);
  submit(client);
}

void SimDisk::start_write() {
  Client& client = free_client();
  client.op.kind = BlockOp::Kind::write;
  client.op.count = lbas_per_block();
  client.op.lba = world_.random.below(lbas() / client.op.count) * client.op.count;
  begin_change(client);
  submit(client);
}

bool SimDisk::grow(Pool& pool) {
  if (bytes_ >= kBytesMax || running_ != 0) return false;
  bytes_tried_ = bytes_ + (1 << 20);
  const ResizeAnswer answer =
      pool.resize_volume(shape_.options.name, {.block_bytes = bytes_tried_});
  world_.trace.add(static_cast<std::uint64_t>(answer.status.code()));
  if (answer.status.ok()) {
    resize_to(bytes_tried_);
    fits_ = false;
  } else if (!world_.device->dead() && !world_.faults) {
    world_.fail("the disk does not grow: " + answer.status.describe());
  }
  return answer.status.ok();
}

void SimDisk::submit(Client& client) {
  client.busy = true;
  client.window = {++world_.tick, 0, 0};
  client.started = started_;
  client.op.context = &client;
  client.op.on_done = [](BlockOp& op) {
    auto& its_client = *static_cast<Client*>(op.context);
    its_client.disk->answered(its_client);
  };
  ++running_;
  world_.trace.add(static_cast<std::uint64_t>(client.op.kind) * 1000003 + client.op.lba);
  ways_[world_.random.below(std::size(ways_))].blocks->submit(*store_, client.op);
}

// --- answers ---

void SimDisk::answered(Client& client) {
  BlockOp& op = client.op;
  ++world_.tick;
  ++world_.answered;
  world_.trace.add(static_cast<std::uint64_t>(op.status.code()) + 77);
  if (!expected(client)) fail(client, op.lba, op.status.describe());
  using enum BlockOp::Kind;
  if (op.kind == compare || op.kind == compare_and_write) compared(client);
  if (changes(op.kind)) changed(client);
  if (op.status.ok() && op.kind == read) was_read(client);
  if (op.status.ok() && op.kind == BlockOp::Kind::flush) {
    for (Entry& entry : entries_) entry.history.flushed(client.window.from);
  }
  client.busy = false;
  --running_;
}

bool SimDisk::expected(const Client& client) {
  const Code code = client.op.status.code();
  if (code == Code::ok || world_.device_dead || (world_.faults && !world_.healed)) return true;
  if (code == Code::corrupt) return may_be_rotten(client.op);
  return code == Code::no_space && changes(client.op.kind) && !fits_;
}

// As a whole: then nobody needs to read what was there.
bool SimDisk::replaces_blocks(const BlockOp& op) const {
  const bool whole = op.lba % lbas_per_block() == 0 && op.count % lbas_per_block() == 0;
  return whole && changes(op.kind) && op.kind != BlockOp::Kind::compare_and_write;
}

// It is told until the block is written as a whole, or discarded.
bool SimDisk::may_be_rotten(const BlockOp& op) const {
  if (op.kind == BlockOp::Kind::flush || replaces_blocks(op)) return false;
  const auto rotten = rotten_.lower_bound(op.lba / lbas_per_block());
  return rotten != rotten_.end() && *rotten <= (op.lba + op.count - 1) / lbas_per_block();
}

// If that is what may be there of the block.
void SimDisk::strike(const StruckPage& page) {
  const std::uint64_t block = block_of(page.key);
  FURROW_CHECK(page.bytes.size() == kBlockPageBytes && block < together_.size());
  const Window any{0, 0, 0};
  for (std::uint64_t i = 0; i < lbas_per_block(); ++i) {
    const std::span lba(page.bytes.data() + i * lba_bytes_, lba_bytes_);
    if (matching(block * lbas_per_block() + i, any, lba).empty()) return;
  }
  rotten_.insert(block);
}

void SimDisk::changed(Client& client) {
  const BlockOp& op = client.op;
  const bool made = op.status.ok() && op.equal;
  const bool one_block = op.lba / lbas_per_block() == (op.lba + op.count - 1) / lbas_per_block();
  const bool refused =
      op.status.code() == Code::no_space && one_block && !world_.faults && !world_.device_dead;
  const bool durable =
      op.durability == Durability::flushed || shape_.options.durability == Durability::flushed;
  if (made && durable && replaces_blocks(op) && running_ == 1) {  // nobody else reads it
    const std::uint64_t block = op.lba / lbas_per_block();
    rotten_.erase(rotten_.lower_bound(block),
                  rotten_.lower_bound(block + op.count / lbas_per_block()));
  }
  if (op.status.ok()) ++writes_done_;
  if (!op.status.ok()) last_refusal_ = op.status;
  ++started_;
  for (std::uint64_t i = 0; i < op.count; ++i) {
    Entry& entry = entries_[op.lba + i];
    entry.touched = started_;
    --entry.history.running;
    if (made && !entry.overlapped) entry.history.acknowledge(client.serial, world_.tick);
    if (made && !entry.overlapped && durable) entry.history.durable(client.serial);
    if (!op.equal || refused) entry.history.drop(client.serial);  // nothing was written
    if (!entry.changing()) entry.overlapped = false;
  }
}

// No change of its LBAs ran meanwhile, but for its own.
bool SimDisk::alone(const Client& client) const {
  const auto first = entries_.begin() + static_cast<std::ptrdiff_t>(client.op.lba);
  const auto last = first + static_cast<std::ptrdiff_t>(client.op.count);
  return std::all_of(first, last, [&](const Entry& each) {
    const unsigned own = client.op.kind == BlockOp::Kind::compare_and_write ? 1 : 0;
    return each.history.running == own && !each.overlapped && each.touched <= client.started;
  });
}

void SimDisk::compared(Client& client) {
  const BlockOp& op = client.op;
  const bool also_writes = op.kind == BlockOp::Kind::compare_and_write;
  if (!op.status.ok() && !(also_writes && op.equal)) return;
  if (op.equal && !client.alike) return fail(client, op.lba, "equal, with what never was there");
  if (!op.equal && client.alike && client.certain && alone(client)) {
    return fail(client, op.lba, "not equal, with what is there");
  }
  const std::byte* const with = also_writes ? op.expected : op.data;
  for (std::uint64_t i = 0; op.equal && i < op.count; ++i) {
    const std::span there(with + i * lba_bytes_, lba_bytes_);
    if (matching(op.lba + i, client.window, there).empty()) {
      return fail(client, op.lba + i, "equal, with what is not there any more");
    }
  }
}

void SimDisk::was_read(Client& client) {
  const BlockOp& op = client.op;
  const std::uint64_t per_block = lbas_per_block();
  std::vector<std::uint64_t> versions;  // of the block, as far as it is read
  bool settled = true;                  // nothing was changed in it meanwhile
  for (std::uint64_t i = 0; i < op.count; ++i) {
    const std::uint64_t lba = op.lba + i;
    Entry& entry = entries_[lba];
    const std::vector<const State*> found = matching(lba, client.window, lba_of(op.data, i));
    if (found.empty()) return fail(client, lba, "wrong bytes");
    const State& state = *found.back();
    world_.trace.add(state.version);
    if (lba % per_block == 0) {
      versions.clear();
      settled = true;
    }
    versions.push_back(state.version);
    const bool unchanged = !entry.changing() && entry.touched <= client.started;
    settled = settled && unchanged;
    if (settled && versions.size() == per_block) {
      check_together(client, lba / per_block, versions);
    }
    // Zeroes may have come about by several; those from before the last cut are alike.
    if (unchanged && (found.size() == 1 || state.era < world_.era)) {
      entry.history.seen(state.serial, world_.era, world_.tick);
    }
  }
}

// Either none of what was written together is there, or all, but for what was overwritten since,
// with a higher version, or zeroes.
void SimDisk::check_together(const Client& client, std::uint64_t block,
                             std::span<const std::uint64_t> versions) {
  const std::uint64_t first = block * lbas_per_block();
  for (const Together& write : together_[block]) {
    const auto there = versions.subspan(write.lba - first, write.count);
    const bool any = std::ranges::find(there, write.version) != there.end();
    const bool all = std::ranges::all_of(
        there, [&](std::uint64_t each) { return each >= write.version || each == 0; });
    if (any && !all) return fail(client, write.lba, "a part of what was written to the block");
  }
}

std::vector<const State*> SimDisk::matching(std::uint64_t lba, const Window& window,
                                            std::span<const std::byte> bytes) const {
  std::vector<const State*> found;
  for (const State& state : entries_[lba].history.states()) {
    if (state.dead <= window.from) continue;
    const bool same = state.version == 0 ? all_zero(bytes) : has_content(lba, state.version, bytes);
    if (same) found.push_back(&state);
  }
  return found;
}

void SimDisk::fill(std::uint64_t lba, std::uint64_t version, std::span<std::byte> bytes) const {
  if (version != 0) return fill_content(lba, version, bytes);
  std::ranges::fill(bytes, std::byte{});
}

void SimDisk::cut(bool process_only) {
  for (Entry& entry : entries_) {
    entry.history.cut(process_only);
    entry.overlapped = false;
  }
  next_verified_ = 0;
}

void SimDisk::fail(const Client& client, std::uint64_t lba, const std::string& what) {
  world_.fail(
      fmt::format("disk era {} tick {}: {} of {} LBAs from {} on: LBA {}: {}; it may be [{}]",
                  world_.era, world_.tick, name_of(client.op.kind), client.op.count, client.op.lba,
                  lba, what, describe(entries_[lba].history)));
}

}  // namespace furrow::sim
