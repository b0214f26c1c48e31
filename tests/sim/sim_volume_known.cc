// What only the scenario `wide` draws: pages that are known, parts of pages, and answers that are
// waited for only so long.
#include <fmt/format.h>

#include <vector>

#include "tests/sim/sim_volume.h"

namespace furrow::sim {

void SimVolume::widen(Client& client) {
  using enum PageOp::Kind;
  SimRandom& random = world_.random;
  PageOp& op = client.op;
  if (random.one_in(8)) op.within_us = static_cast<std::uint32_t>(random.log_between(1, 10'000));
  if (op.kind == get && random.one_in(2)) return draw_range(client);
  if (op.kind == get && random.one_in(8)) {
    op.capacity = static_cast<std::uint32_t>(random.log_between(1, shape_.value_bytes_max));
  }
  const bool may_know = op.kind == put || op.kind == PageOp::Kind::remove || op.kind == exist;
  if (may_know && random.one_in(2)) (void)draw_known(client);
  op.whole_record = op.kind == exist && op.known == nullptr;
}

// What may be there, or was once.
bool SimVolume::draw_known(Client& client) {
  std::vector<const State*> all;
  for (const State& state : entries_[client.key].history.states()) {
    if (state.stored) all.push_back(&state);
  }
  if (all.empty()) return false;
  const State& state =
      *all[world_.random.one_in(4) ? world_.random.below(all.size()) : all.size() - 1];
  client.version = state.version;
  client.known = {client.op.key, state.bytes, state.checksum};
  client.op.known = &client.known;
  return true;
}

void SimVolume::draw_range(Client& client) {
  PageOp& op = client.op;
  SimRandom& random = world_.random;
  if (!draw_known(client)) return;
  op.kind = PageOp::Kind::get_range;
  const std::uint32_t bytes = client.known.length;
  op.offset = static_cast<std::uint32_t>(random.one_in(4) ? 0 : random.below(bytes));
  op.wanted = static_cast<std::uint32_t>(random.between(1, bytes - op.offset));
  if (random.one_in(4)) op.wanted = bytes - op.offset;
}

// It is of that very page.
void SimVolume::known_answered(Client& client, Code code) {
  const PageOp& op = client.op;
  const History& history = entries_[client.key].history;
  if (world_.device_dead || (code != Code::ok && code != Code::not_found)) return;
  if (code == Code::not_found) {
    if (!history.must_be(client.version, client.window) || may_be_gone(client)) return;
    return fail(client, fmt::format("v{} is not there", client.version));
  }
  // (Two versions of a few bytes may be alike.)
  std::vector<std::byte> page(client.known.length);
  fill_content(client.key, client.version, page);
  if (history.present(client.key, client.window, client.known.length, page) == nullptr &&
      !lossy(client)) {
    return fail(client, fmt::format("v{} is there", client.version));
  }
  if (op.length != client.known.length || op.checksum != client.known.checksum) {
    return fail(client, fmt::format("v{} is another page", client.version));
  }
  if (op.kind == PageOp::Kind::exist) return;
  // A part alone is not verified.
  const std::span<const std::byte> part(op.data, op.wanted);
  if (has_part(client.key, client.version, op.length, op.offset, part)) return;
  const bool verified = geometry_.lbas(op.wanted) == geometry_.lbas(op.length);
  const bool excused = history.may_be_rotten(client.window) || world_.reads_stray;
  if (verified || !excused) fail(client, fmt::format("wrong bytes from {} on", op.offset));
}

}  // namespace furrow::sim
