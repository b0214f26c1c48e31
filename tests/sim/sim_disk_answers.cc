// What a disk may answer: each answer against what its LBAs may hold, and what is known from then
// on.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "log/block_order.h"
#include "tests/sim/sim_disk.h"
#include "zone/check.h"

namespace furrow::sim {

namespace {

const char* name_of(BlockOp::Kind kind) {
  constexpr const char* kNames[] = {
      "read", "write", "flush", "discard", "write_zeroes", "compare", "compare_and_write"};
  return kNames[static_cast<unsigned>(kind)];
}

}  // namespace

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
  if (looks(op.kind)) --looking_;
}

bool SimDisk::expected(const Client& client) {
  const Code code = client.op.status.code();
  if (code == Code::ok || world_.device_dead || (world_.faults && !world_.healed)) return true;
  if (ended_ && code == Code::not_found) return true;
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
  // (Nobody hears what is said once the device is gone: a discard, say, that finds nothing to do.)
  const bool made = op.status.ok() && op.equal && !world_.device_dead;
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
