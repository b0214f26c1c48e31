#include "tests/sim/sim_volume.h"

#include <algorithm>
#include <cstring>

#include "tests/sim/structure_check.h"

namespace furrow::sim {

namespace {

// Keys of all lengths from 2 on; the first two bytes are the number.
Key key_of(std::uint64_t number) {
  std::array<std::byte, Key::kBytesMax> bytes;
  bytes.fill(std::byte{0xA5});
  bytes[0] = static_cast<std::byte>(number);
  bytes[1] = static_cast<std::byte>(number >> 8);
  return Key::from(std::span<const std::byte>(bytes).first(2 + number % 15));
}

// Of a volume: a page of another one is no page of it.
constexpr std::uint64_t kVersionsMax = 1'000'000;

}  // namespace

SimVolume::SimVolume(World& world, const VolumeShape& shape, const Geometry& geometry)
    : world_(world),
      shape_(shape),
      geometry_(geometry),
      entries_(shape.keys),
      first_version_(1 + (shape.wide ? world.volumes++ * kVersionsMax : 0)),
      next_version_(first_version_),
      quota_zones_(shape.options.quota_bytes / geometry.zone_capacity_bytes()) {
  for (std::uint64_t i = 0; i < shape.keys; ++i) entries_[i].key = key_of(i);
}

void SimVolume::end() {
  ended_ = true;
  (void)store_->usage();  // of what it was, or nothing: it can be asked until it is forgotten
  (void)stats();
  for (int i = 0; i < 2; ++i) {
    start_keyed(i == 0 ? PageOp::Kind::get : PageOp::Kind::exist, world_.random.below(shape_.keys));
  }
}

void SimVolume::attach(PageStore* store, PageSession* session) {
  store_ = store, session_ = session;
  veiled_ = false;
  if (store == nullptr) return;
  id_ = store->info().id;
  zones_when_opened_ = store->usage().zones;
}

SimVolume::Client& SimVolume::free_client() {
  const auto found = std::ranges::find_if(clients_, [](const auto& each) { return !each->busy; });
  if (found != clients_.end()) return **found;
  clients_.push_back(std::make_unique<Client>());
  Client& client = *clients_.back();
  client.volume = this;
  client.page = AlignedBuffer(geometry_.lbas(shape_.options.value_bytes_max) * geometry_.lba_bytes +
                              geometry_.lba_bytes);
  return client;
}

void SimVolume::start_any() {
  const Mix& mix = shape_.mix;
  const std::pair<unsigned, PageOp::Kind> choices[] = {
      {mix.put, PageOp::Kind::put},
      {mix.get, PageOp::Kind::get},
      {mix.remove, PageOp::Kind::remove},
      {mix.exist, PageOp::Kind::exist},
      {mix.list, PageOp::Kind::list},
      {mix.flush, PageOp::Kind::flush},
      {mix.pin, PageOp::Kind::pin},
      {mix.unpin, PageOp::Kind::unpin},
      {mix.remove_group, PageOp::Kind::remove_group}};
  unsigned sum = 0;
  for (const auto& [weight, kind] : choices) sum += weight;
  std::uint64_t drawn = world_.random.below(sum);
  PageOp::Kind kind = PageOp::Kind::put;
  for (const auto& [weight, choice] : choices) {
    if (drawn < weight) {
      kind = choice;
      break;
    }
    drawn -= weight;
  }
  if (kind == PageOp::Kind::flush) return start_flush();
  if (kind == PageOp::Kind::list) return start_list();
  if (kind == PageOp::Kind::remove_group) return start_remove_group();
  // Some keys are asked for more often.
  const std::uint64_t keys = world_.random.one_in(3) ? 1 + shape_.keys / 8 : shape_.keys;
  start_keyed(kind, world_.random.below(keys));
}

bool SimVolume::start_verification() {
  start_keyed(PageOp::Kind::get, next_verified_);
  next_verified_ = (next_verified_ + 1) % shape_.keys;
  return next_verified_ != 0;
}

bool SimVolume::start_removal() {
  start_keyed(PageOp::Kind::remove, next_verified_);
  next_verified_ = (next_verified_ + 1) % shape_.keys;
  return next_verified_ != 0;
}

void SimVolume::start_keyed(PageOp::Kind kind, std::uint64_t key) {
  Client& client = free_client();
  client.op = PageOp();
  client.op.kind = kind;
  client.key = key;
  client.version = 0;
  Entry& entry = entries_[key];
  client.op.key = entry.key;
  client.alone = entry.history.running == 0 && groups_running_ == 0;
  if (lists_running_ == 0) entry.history.forget_invisible();
  entry.started = ++started_;
  ++entry.history.running;
  client.started = started_;
  if (kind == PageOp::Kind::put || kind == PageOp::Kind::remove) {
    State state;
    state.serial = client.serial = next_serial_++;
    state.era = world_.era;
    if (world_.random.percent(shape_.flushed_percent)) client.op.durability = Durability::flushed;
    if (kind == PageOp::Kind::put) draw_put(client, state);
    entry.history.add(state);
  }
  if (kind == PageOp::Kind::unpin) entry.history.unpin();
  if (kind == PageOp::Kind::get) {
    client.op.data = client.page.data();
    client.op.capacity = static_cast<std::uint32_t>(client.page.size());
    if (world_.random.one_in(8)) {  // memory that the device cannot fill itself
      client.op.data += 1 + world_.random.below(63);
      client.op.capacity -= 64;
    }
  }
  if (shape_.wide && !ended_) widen(client);
  submit(client);
}

void SimVolume::draw_put(Client& client, State& state) {
  SimRandom& random = world_.random;
  PageOp& op = client.op;
  state.version = next_version_++;
  state.bytes =
      static_cast<std::uint32_t>(random.between(shape_.value_bytes_min, shape_.value_bytes_max));
  if (random.percent(shape_.condition_percent)) {
    op.condition = random.one_in(2) ? PageOp::Condition::if_absent : PageOp::Condition::if_exists;
  }
  if (random.percent(shape_.ttl_percent)) {
    op.ttl_s = static_cast<std::uint32_t>(random.log_between(1, 30));
    state.expires_s = world_.wall_s() + op.ttl_s;
  }
  if (random.percent(shape_.group_percent))
    op.group = state.group = random.between(1, shape_.groups);
  op.pinned = state.pinned = random.percent(shape_.pinned_percent);
  state.evictions_survived = evictions_survived();
  client.offset = random.one_in(4) ? static_cast<std::uint32_t>(1 + random.below(255)) : 0;
  op.data = client.page.data() + client.offset;
  op.length = state.bytes;
  // Not drawn, so that what else a seed is stays as it was. Half of the keys change theirs.
  if (shape_.keys % 2 == 0) {
    const std::uint64_t which = client.key + (client.key % 8 < 4 ? 0 : state.version);
    op.lifetime = static_cast<Lifetime>(which % 4);
  }
  const bool roomy = random.one_in(2);
  const auto whole = static_cast<std::uint32_t>(geometry_.lbas(op.length) * geometry_.lba_bytes);
  op.capacity = roomy ? whole : op.length;
  fill_content(client.key, state.version, {op.data, op.length});
}

void SimVolume::start_flush() {
  Client& client = free_client();
  client.op = PageOp();
  client.op.kind = PageOp::Kind::flush;
  submit(client);
}

void SimVolume::start_list() {
  Client& client = free_client();
  client.op = PageOp();
  client.op.kind = PageOp::Kind::list;
  client.keys.resize(world_.random.one_in(2) ? shape_.keys + 1 : 1 + world_.random.below(20));
  client.op.keys = client.keys.data();
  client.op.keys_max = static_cast<std::uint32_t>(client.keys.size());
  if (world_.random.one_in(3)) client.op.key = entries_[world_.random.below(shape_.keys)].key;
  client.from_start = client.op.key.length == 0;
  client.by_pages = shape_.wide;
  client.listed.assign(shape_.keys, false);
  ++lists_running_;
  submit(client);
}

// Each key that is in the group, or may come to be while others run on it, may be absent from now
// on. What is put later is newer than the deletion.
void SimVolume::start_remove_group() {
  Client& client = free_client();
  client.op = PageOp();
  client.op.kind = PageOp::Kind::remove_group;
  client.op.group = world_.random.between(1, shape_.groups);
  if (world_.random.percent(shape_.flushed_percent)) client.op.durability = Durability::flushed;
  client.serial = next_serial_++;
  for (Entry& entry : entries_) {
    const bool touched = std::ranges::any_of(entry.history.states(), [&](const State& state) {
      return state.dead == State::kAlive && state.version != 0 && state.group == client.op.group;
    });
    if (!touched) continue;
    // It may hold a page of another group, too, which stays: then nothing is certain.
    const bool certain = std::ranges::all_of(entry.history.states(), [&](const State& state) {
      return state.dead != State::kAlive || state.version == 0 || state.group == client.op.group;
    });
    if (!certain) entry.started = started_ + 2;
    State state;
    state.serial = client.serial;
    state.era = world_.era;
    entry.history.add(state);
  }
  ++groups_running_;
  last_group_removal_ = client.started = ++started_;
  ++started_;
  submit(client);
}

void SimVolume::submit(Client& client) {
  client.busy = true;
  client.window = {++world_.tick, world_.wall_s(), 0};
  client.turn = world_.turns;
  if (client.op.kind == PageOp::Kind::put) {
    client.tombstones_max = room_of(*store_).tombstones_max;
    client.zones_reset = stats().zones_reset;
  }
  client.op.context = &client;
  client.results = 0;
  client.op.on_result = [](PageOp& op) { ++static_cast<Client*>(op.context)->results; };
  client.op.on_released = [](PageOp& op) {
    auto& its_client = *static_cast<Client*>(op.context);
    its_client.volume->answered(its_client);
  };
  ++running_;
  world_.trace.add(static_cast<std::uint64_t>(client.op.kind) * 1000003 + client.key);
  session_->submit(*store_, client.op);
}

}  // namespace furrow::sim
