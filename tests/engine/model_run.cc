// What is drawn, and how a pool is stopped and opened again.
#include "tests/engine/model_run.h"

namespace furrow::testing {

namespace {
constexpr std::uint64_t kTurnsMax = 3'000'000;  // an operation that needs more is stuck
}  // namespace

void ModelRun::make() {
  constexpr const char* kDevices[] = {
      "mem:64MiB?zone_size=2MiB&zone_capacity=1MiB",
      "mem:24MiB?zone_size=2MiB&zone_capacity=1MiB&mor=5&mar=5",
      "mem:16MiB?zone_size=1MiB&lba=512",
      "mem:9MiB?zone_size=1MiB&mor=4&mar=4",
  };
  if (on_drive()) {
    ASSERT_NO_FATAL_FAILURE(open_drive());
  } else {
    auto inner = open_device(kDevices[draw(std::size(kDevices))], Access::exclusive);
    ASSERT_TRUE(inner.ok()) << inner.status().describe();
    wrap(std::move(*inner));
  }
  lba_bytes_ = rig_.device->geometry().lba_bytes;
  VolumeOptions options;
  options.name = "pages";
  options.mode = cache_ ? VolumeMode::cache : VolumeMode::store;
  options.value_bytes_max = kValueBytesMax;
  ASSERT_NO_FATAL_FAILURE(rig_.make(options));
}

void ModelRun::open_drive() {
  rig_.device.reset();
  auto inner = open_device(drive_, Access::exclusive);
  ASSERT_TRUE(inner.ok()) << inner.status().describe();
  auto kill = std::make_unique<KillDevice>(std::move(*inner));
  kill_ = kill.get();
  rig_.device = std::move(kill);
}

void ModelRun::wrap(std::unique_ptr<ZonedDevice> inner) {
  FaultOptions options;
  options.seed = random_();
  options.delay_polls_max = 3;
  auto fault = std::make_unique<FaultDevice>(std::move(inner), options);
  fault_ = fault.get();
  rig_.device = std::move(fault);
}

void ModelRun::wait() {
  for (std::uint64_t turns = 0; !rig_.idle(); ++turns) {
    ASSERT_LT(turns, kTurnsMax) << "operations do not end";
    rig_.loop.run_once();
  }
}

std::string ModelRun::name(std::uint64_t number) const {
  std::string text = "key " + std::to_string(number) + " in round " + std::to_string(round_) + " [";
  for (const PageState& each : keys_[number].states()) {
    text += " v" + std::to_string(each.version) + ":" + std::to_string(each.bytes);
    if (each.group != 0) text += " g" + std::to_string(each.group);
    if (each.expires_s != 0) text += each.alive(now_s()) ? " expires" : " expired";
    if (each.pinned) text += " pinned";
    if (each.answered == 0) text += "?";
  }
  return text + " ]";
}

// --- a round ---

void ModelRun::live() {
  if (!one_in(3)) {
    const std::uint64_t after = 1 + draw(one_in(2) ? 500 : 5000);
    const CrashModel model = one_in(2) ? CrashModel::drive : CrashModel::emu;
    on_drive() ? kill_->kill_after(after) : fault_->cut_after(after, model);
  }
  for (std::uint64_t rounds = 20 + draw(60); rounds != 0 && !dead(); --rounds) {
    ASSERT_NO_FATAL_FAILURE(round());
    if (one_in(12)) {
      ASSERT_NO_FATAL_FAILURE(remove_group());
    }
    if (one_in(12)) {
      ASSERT_NO_FATAL_FAILURE(list_all());
    }
    if (one_in(6)) rig_.loop.advance_s(draw(20));
    const VolumeUsage usage = rig_.store->usage();
    ASSERT_LE(usage.zones, usage.quota_zones);
  }
}

// All keys with the greatest values are more than any of the devices holds.
void ModelRun::fill() {
  ++round_;
  const std::uint64_t before = refusals;
  for (std::uint64_t number = 0; number < kKeys && refusals == before; ++number) {
    Running one;
    one.number = number;
    one.changes = true;
    one.page = AlignedBuffer(kValueBytesMax);
    one.op.kind = PageOp::Kind::put;
    one.op.key = model_key(number);
    one.op.data = one.page.data();
    one.op.length = one.op.capacity = kValueBytesMax;
    one.state = {.version = ++version_, .bytes = kValueBytesMax};
    const auto bytes = content(number, one.state.version, one.state.bytes);
    std::memcpy(one.op.data, bytes.data(), bytes.size());
    rig_.submit(one.op);
    ASSERT_NO_FATAL_FAILURE(wait());
    ASSERT_NO_FATAL_FAILURE(answered(one));
  }
  ASSERT_GT(refusals, before) << "a device that is too large for this";
}

void ModelRun::round() {
  ++round_;
  std::vector<std::unique_ptr<Running>> running;
  std::set<std::uint64_t> touched;
  for (std::uint64_t n = 1 + draw(12); n != 0; --n) {
    const std::uint64_t number = draw(one_in(3) ? kKeys / 8 : kKeys);  // some more often
    if (touched.insert(number).second) running.push_back(draw_keyed(number));
  }
  if (one_in(6)) running.push_back(draw_list());
  if (one_in(6)) {
    running.push_back(std::make_unique<Running>());
    running.back()->op.kind = PageOp::Kind::flush;
  }
  for (const auto& one : running) rig_.submit(one->op);
  ASSERT_NO_FATAL_FAILURE(wait());
  for (const auto& one : running) {
    if (one->op.kind == PageOp::Kind::list) {
      ASSERT_NO_FATAL_FAILURE(list_answered(*one, touched));
    } else {
      ASSERT_NO_FATAL_FAILURE(answered(*one));
    }
  }
}

std::unique_ptr<Running> ModelRun::draw_keyed(std::uint64_t number) {
  using enum PageOp::Kind;
  constexpr PageOp::Kind kKinds[] = {put, put, put, put,    put,    get,  get,
                                     get, get, get, remove, remove, exist};
  auto one = std::make_unique<Running>();
  PageOp& op = one->op;
  PageState& state = one->state;
  one->number = number;
  op.key = model_key(number);
  op.kind = one_in(20) ? (one_in(3) ? pin : unpin) : kKinds[draw(std::size(kKinds))];
  if (one_in(3)) op.durability = Durability::flushed;
  one->changes = op.kind != get && op.kind != exist;
  if (op.kind == put) {
    draw_put(*one);
    state = {++version_, op.length, op.group, 0, op.pinned, 0};
    if (op.ttl_s != 0) state.expires_s = now_s() + op.ttl_s;
    const auto bytes = content(number, state.version, state.bytes);
    std::memcpy(op.data, bytes.data(), bytes.size());
  } else if (op.kind == get) {  // sometimes too small, or what the device cannot fill itself
    one->page = AlignedBuffer(kValueBytesMax + 4096);
    const std::uint64_t offset = one_in(4) ? 1 + draw(100) : 0;
    op.data = one->page.data() + offset;
    op.capacity = static_cast<std::uint32_t>(one_in(6) ? draw(5000) : one->page.size() - offset);
  } else if (op.kind == pin || op.kind == unpin) {
    state = keys_[number].last();
    state.pinned = op.kind == pin;
    state.answered = 0;
    state.evicted = false;
  }
  return one;
}

void ModelRun::draw_put(Running& one) {
  PageOp& op = one.op;
  switch (draw(8)) {
    case 0:
      op.length = 1;
      break;
    case 1:
      op.length = kValueBytesMax - static_cast<std::uint32_t>(draw(2));
      break;
    case 2:  // about a boundary
      op.length = static_cast<std::uint32_t>(lba_bytes_ * (1 + draw(4)) + draw(3) - 1);
      break;
    default:
      op.length = static_cast<std::uint32_t>(1 + draw(20000));
  }
  if (one_in(4)) {
    op.condition = one_in(2) ? PageOp::Condition::if_absent : PageOp::Condition::if_exists;
  }
  if (one_in(6)) op.ttl_s = static_cast<std::uint32_t>(1 + draw(30));
  if (one_in(4)) op.group = 1 + draw(kGroups);
  op.pinned = one_in(25);
  one.page = AlignedBuffer((op.length + 4096) / 4096 * 4096 + 4096);
  op.data = one.page.data() + (one_in(4) ? 1 + draw(100) : 0);
  op.capacity =
      one_in(2) ? op.length : static_cast<std::uint32_t>((op.length + 4095) / 4096 * 4096);
  if (op.data != one.page.data()) op.capacity = op.length;
}

std::unique_ptr<Running> ModelRun::draw_list() {
  auto one = std::make_unique<Running>();
  one->op.kind = PageOp::Kind::list;
  one->keys.resize(1 + draw(one_in(2) ? 20 : 2 * kKeys));
  one->op.keys = one->keys.data();
  one->op.keys_max = static_cast<std::uint32_t>(one->keys.size());
  if (one_in(2)) one->op.key = model_key(draw(kKeys));
  return one;
}

// --- stops ---

// Ends the pool in order, so that all that it counted is known.
void ModelRun::close() {
  rig_.session.reset();
  while (!rig_.pool->quiesce()) rig_.loop.run_once();
  const VolumeStats stats = rig_.store->stats();
  evicted_ += stats.evicted_pages;
  resets += stats.zones_reset;
  ASSERT_LE(missing_, evicted_) << "pages went without having been evicted";
  ASSERT_TRUE(dead() || stats.corrupt_pages == 0) << stats.corrupt_pages;
  rig_.close();
}

void ModelRun::stop() {
  if (one_in(2)) cut_no_more();
  ASSERT_NO_FATAL_FAILURE(close());
  cut_no_more();
  const bool cut = dead();  // perhaps while it was being closed
  for (KeyModel& key : keys_) {
    if (!cut) {
      key.restarted();
    } else {
      on_drive() ? key.killed() : key.cut();
    }
  }
  if (on_drive()) {  // it tells where its zones end
    kills += cut ? 1 : 0;
    ASSERT_NO_FATAL_FAILURE(open_drive());
  } else if (cut) {
    ASSERT_NO_FATAL_FAILURE(power_up());
  }
  ASSERT_NO_FATAL_FAILURE(rig_.open());
  ASSERT_NE(rig_.store, nullptr);
  for (std::uint64_t number = 0; number < kKeys; ++number) {
    if (keys_[number].unknown()) {
      ASSERT_NO_FATAL_FAILURE(recovered(number));
    }
  }
  ASSERT_NO_FATAL_FAILURE(group_went_as_one());
  ASSERT_NO_FATAL_FAILURE(compare());
}

void ModelRun::cut_no_more() {
  on_drive() ? kill_->kill_after(0) : fault_->cut_after(0, CrashModel::drive);
}

// What the cut left, and perhaps what another leaves that falls into the recovery.
void ModelRun::power_up() {
  ++cuts;
  for (bool again = one_in(3);; again = one_in(3)) {
    std::unique_ptr<ZonedDevice> inner = fault_->take_inner();
    rig_.device.reset();
    wrap(std::move(inner));
    if (!again) return;
    const CrashModel model = one_in(2) ? CrashModel::drive : CrashModel::emu;
    fault_->cut_after(1 + draw(4), model);
    Pool::OpenOptions options;
    options.recovery_threads = 2;
    auto opened = Pool::open(*rig_.device, rig_.loop, options);
    ASSERT_TRUE(opened.ok() || dead()) << opened.status().describe();
    while (opened.ok() && !(*opened)->quiesce()) rig_.loop.run_once();
    if (opened.ok()) opened->reset();
    ASSERT_TRUE(fault_->power_cut(model).ok());
    ++recovery_cuts;
  }
}

// Into page_, which holds no page before.
void ModelRun::get(std::uint64_t number, PageOp& op) {
  std::memset(page_.data(), 0xee, page_.size());
  op.kind = PageOp::Kind::get;
  op.key = model_key(number);
  op.data = page_.data();
  op.capacity = kValueBytesMax;
  rig_.submit(op);
  ASSERT_NO_FATAL_FAILURE(wait());
}

// The first look at a key after a cut.
void ModelRun::recovered(std::uint64_t number) {
  KeyModel& key = keys_[number];
  PageOp op;
  ASSERT_NO_FATAL_FAILURE(get(number, op));
  if (op.status.ok()) {
    ASSERT_LE(op.length, kValueBytesMax);
    ASSERT_TRUE(key.recovered(number, {page_.data(), op.length}, now_s()))
        << name(number) << " is something else";
    return;
  }
  ASSERT_EQ(op.status.code(), Code::not_found) << name(number) << ": " << op.status.describe();
  if (!key.may_be_absent(now_s())) {
    ASSERT_TRUE(cache_) << name(number) << " is lost";
    ASSERT_TRUE(key.may_be_evicted()) << name(number) << " was pinned";
    missing_ += key.set_missing() ? 1 : 0;
  }
  cache_ ? key.stay_unknown() : key.recovered_absent();
}

void ModelRun::group_went_as_one() {
  std::uint64_t there = 0;
  for (const std::uint64_t number : cut_group_) there += keys_[number].present(now_s()) ? 1 : 0;
  ASSERT_TRUE(there == 0 || there == cut_group_.size())
      << there << " of " << cut_group_.size() << " pages of a group that was being deleted";
  cut_group_.clear();
}

void ModelRun::compare() {
  std::uint64_t pages = 0, bytes = 0, expired_pages = 0, expired_bytes = 0;
  for (std::uint64_t number = 0; number < kKeys; ++number) {
    Running one;
    one.number = number;
    ASSERT_NO_FATAL_FAILURE(get(number, one.op));
    ASSERT_NO_FATAL_FAILURE(get_answered(one, one.op.status.code()));
    const PageState& state = keys_[number].last();
    if (state.version == 0) continue;
    (state.alive(now_s()) ? pages : expired_pages) += 1;
    (state.alive(now_s()) ? bytes : expired_bytes) += state.bytes;
  }
  if (cache_) return;
  const VolumeUsage usage = rig_.store->usage();  // expired ones go when room is needed
  EXPECT_GE(usage.pages, pages);
  EXPECT_LE(usage.pages, pages + expired_pages);
  EXPECT_GE(usage.live_bytes, bytes);
  EXPECT_LE(usage.live_bytes, bytes + expired_bytes);
}

}  // namespace furrow::testing
