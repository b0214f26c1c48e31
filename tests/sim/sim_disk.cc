#include "tests/sim/sim_disk.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "log/block_order.h"
#include "tests/sim/structure_check.h"
#include "zone/check.h"

namespace furrow::sim {

namespace {

constexpr std::uint64_t kBlocksAtOnce = 16;      // of a verification's read
constexpr std::uint64_t kBytesMax = 3ull << 20;  // it does not grow beyond
constexpr std::size_t kTogetherMax = 8;          // remembered of a block

}  // namespace

SimDisk::SimDisk(World& world, const DiskShape& shape)
    : world_(world),
      shape_(shape),
      lba_bytes_(shape.options.block_lba_bytes),
      bytes_(shape.options.block_bytes),
      bytes_tried_(bytes_),
      quota_(shape.options.quota_bytes) {
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
  maybe = false;
  for (Way& way : ways_) {
    Result<std::unique_ptr<PageSession>> session = pool.create_session(executor, 64);
    if (!session.ok()) {
      detach();
      return false;
    }
    way.pages = std::move(*session);
    way.blocks = std::make_unique<BlockSession>(*way.pages, executor);
  }
  const std::uint64_t bytes = store_->info().options.block_bytes;
  if (bytes != bytes_ && bytes != bytes_tried_) {
    world_.fail(fmt::format("the disk has {} bytes, which nobody gave it", bytes));
  }
  if (quota_bytes() != quota_ && !std::ranges::count(quotas_tried_, quota_bytes())) {
    world_.fail(fmt::format("the disk has a quota of {} bytes, which nobody gave it", quota_));
  }
  quota_ = quota_bytes();
  quotas_tried_.clear();
  resize_to(bytes);
  fits_ = all_fits();
  return !world_.failed();
}

bool SimDisk::all_fits() const {
  const StoreRoom room = room_of(*store_);
  return room.usable_bytes >=
         bytes_ / kBlockPageBytes * (shape_.block_cost + 2 * room.record_bytes);
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
    if (looking_ == 0) entry.history.forget_invisible();
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

bool SimDisk::set_quota(Pool& pool, std::uint64_t bytes) {
  FURROW_CHECK(bytes <= quota_ || running_ == 0);
  quotas_tried_.push_back(bytes);
  const ResizeAnswer answer = pool.resize_volume(shape_.options.name, {.quota_bytes = bytes});
  const Code code = answer.status.code();
  world_.trace.add(static_cast<std::uint64_t>(code));
  // One that could not be written to the journal may count at the next opening.
  const bool refused = code == Code::no_space && answer.status.origin() != Origin::zone;
  if (world_.device->dead() || (world_.faults && code != Code::ok && !refused)) return false;
  // While it is to be smaller it may have no room for what it will have room for then.
  fits_ = code != Code::busy && all_fits();
  if (code == Code::busy) return false;
  if (code == Code::ok) quota_ = bytes;
  if ((code != Code::ok && code != Code::no_space) || quota_bytes() != quota_) {
    world_.fail("the disk's quota: " + answer.status.describe());
  }
  if (code == Code::ok) {
    quotas_tried_.clear();
  } else {
    quotas_tried_.pop_back();  // it wrote nothing
  }
  return code == Code::ok;
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
  if (looks(client.op.kind)) ++looking_;
  world_.trace.add(static_cast<std::uint64_t>(client.op.kind) * 1000003 + client.op.lba);
  ways_[world_.random.below(std::size(ways_))].blocks->submit(*store_, client.op);
}

}  // namespace furrow::sim
