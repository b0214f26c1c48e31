// What the store says, beside what it may say.
#include "tests/engine/model_run.h"

namespace furrow::testing {

void ModelRun::answered(Running& one) {
  const Code code = one.op.status.code();
  if (dead() && code != Code::ok) {  // it may have come about, or not
    if (one.changes) keys_[one.number].attempt(one.state);
    return;
  }
  switch (one.op.kind) {
    case PageOp::Kind::get:
    case PageOp::Kind::exist:
      return get_answered(one, code);
    case PageOp::Kind::put:
      return put_answered(one, code);
    case PageOp::Kind::remove:
      return remove_answered(one, code);
    case PageOp::Kind::flush:
      ASSERT_EQ(code, Code::ok) << one.op.status.describe();
      for (KeyModel& key : keys_) key.flushed(round_);
      return;
    default:
      return pin_answered(one, code);
  }
}

// The store says that it has not got the key.
void ModelRun::is_absent(std::uint64_t number) {
  KeyModel& key = keys_[number];
  if (!key.present(now_s())) return;
  ASSERT_TRUE(cache_) << name(number) << " is lost";
  ASSERT_FALSE(key.stays(now_s())) << name(number) << " was pinned";
  missing_ += key.set_missing() ? 1 : 0;
}

// The store says that it has.
void ModelRun::is_present(std::uint64_t number) {
  ASSERT_TRUE(keys_[number].present(now_s())) << name(number) << " is there";
}

void ModelRun::changed(const Running& one) {
  keys_[one.number].attempt(one.state);
  keys_[one.number].acknowledge(round_, one.op.durability == Durability::flushed);
}

void ModelRun::get_answered(const Running& one, Code code) {
  if (code == Code::not_found) return is_absent(one.number);
  ASSERT_EQ(code, Code::ok) << name(one.number) << ": " << one.op.status.describe();
  ASSERT_NO_FATAL_FAILURE(is_present(one.number));
  const PageState& state = keys_[one.number].last();
  ASSERT_EQ(one.op.length, state.bytes) << name(one.number);
  ++found;
  if (one.op.kind == PageOp::Kind::exist) return;
  const auto whole = content(one.number, state.version, state.bytes);
  const auto bytes = std::min(one.op.length, one.op.capacity);
  ASSERT_EQ(std::memcmp(one.op.data, whole.data(), bytes), 0) << name(one.number);
}

void ModelRun::put_answered(const Running& one, Code code) {
  const bool stored = code == Code::ok;
  if (code == Code::no_space) return no_space(one);
  switch (one.op.condition) {
    case PageOp::Condition::always:
      ASSERT_TRUE(stored) << name(one.number) << ": " << one.op.status.describe();
      break;
    case PageOp::Condition::if_absent:
      ASSERT_TRUE(stored || code == Code::exists) << one.op.status.describe();
      ASSERT_NO_FATAL_FAILURE(stored ? is_absent(one.number) : is_present(one.number));
      break;
    case PageOp::Condition::if_exists:
      ASSERT_TRUE(stored || code == Code::not_found) << one.op.status.describe();
      ASSERT_NO_FATAL_FAILURE(stored ? is_present(one.number) : is_absent(one.number));
  }
  if (stored) changed(one);
}

// Once it was told that an evicted page is not there it does not come back. An answer that a
// deleted one is not there makes its deletion no more durable.
void ModelRun::remove_answered(const Running& one, Code code) {
  if (code == Code::not_found) {
    ASSERT_NO_FATAL_FAILURE(is_absent(one.number));
    if (keys_[one.number].missing()) changed(one);
    return;
  }
  ASSERT_EQ(code, Code::ok) << name(one.number) << ": " << one.op.status.describe();
  ASSERT_NO_FATAL_FAILURE(is_present(one.number));
  changed(one);
}

void ModelRun::pin_answered(const Running& one, Code code) {
  if (code == Code::not_found) return is_absent(one.number);
  ASSERT_NO_FATAL_FAILURE(is_present(one.number));
  if (code == Code::no_space) return no_space(one);
  ASSERT_EQ(code, Code::ok) << name(one.number) << ": " << one.op.status.describe();
  // What is as it should be is not written again, and no more durable than it was.
  if (keys_[one.number].last().pinned != one.state.pinned) changed(one);
}

// A store may refuse what does not fit, a cache what would be pinned beyond half of it.
void ModelRun::no_space(const Running& one) {
  ++refusals;
  std::uint64_t pages = 0, pinned = 0;  // LBAs
  for (const KeyModel& key : keys_) {
    const PageState& state = key.last();
    if (state.version == 0) continue;
    const std::uint64_t lbas = (state.bytes + lba_bytes_ - 1) / lba_bytes_;
    pages += lbas + 1;
    if (state.pinned) pinned += lbas;
  }
  const VolumeUsage usage = rig_.store->usage();
  const std::uint64_t quota = usage.quota_zones * (1 << 20) / lba_bytes_;
  if (cache_) {
    ASSERT_TRUE(one.state.pinned) << name(one.number);
    ASSERT_GT(4 * pinned, quota) << name(one.number);
  } else {
    ASSERT_GT(4 * pages, quota) << name(one.number);
  }
}

void ModelRun::list_answered(const Running& one, const std::set<std::uint64_t>& touched) {
  if (dead() && !one.op.status.ok()) return;
  ASSERT_TRUE(one.op.status.ok()) << one.op.status.describe();
  ASSERT_LE(one.op.keys_count, one.op.keys_max);
  std::set<std::uint64_t> listed;
  for (const Key& key : std::span(one.op.keys, one.op.keys_count)) {
    const std::uint64_t number = number_of(key);
    ASSERT_LT(number, kKeys) << "lists a key that never was";
    ASSERT_TRUE(key == model_key(number)) << "lists a key that never was";
    ASSERT_TRUE(listed.insert(number).second) << "lists " << name(number) << " twice";
    ASSERT_FALSE(key == one.op.key) << "lists the key to start behind";
    if (!touched.contains(number)) {
      ASSERT_NO_FATAL_FAILURE(is_present(number));
    }
  }
  const bool all = one.op.key.length == 0 && one.op.keys_count < one.op.keys_max;
  for (std::uint64_t number = 0; all && !dead() && number < kKeys; ++number) {
    if (listed.contains(number) || touched.contains(number)) continue;
    ASSERT_NO_FATAL_FAILURE(is_absent(number));
  }
}

// Page by page it is what it is at once, and from any key on the rest of it.
void ModelRun::list_all() {
  ++round_;
  Running whole;
  whole.keys.resize(kKeys + 1);
  whole.op.kind = PageOp::Kind::list;
  whole.op.keys = whole.keys.data();
  whole.op.keys_max = kKeys + 1;
  rig_.submit(whole.op);
  ASSERT_NO_FATAL_FAILURE(wait());
  ASSERT_NO_FATAL_FAILURE(list_answered(whole, {}));
  if (!whole.op.status.ok()) return;
  whole.keys.resize(whole.op.keys_count);
  std::vector<Key> pages;
  for (Key after;;) {
    const auto some = rig_.list(after, static_cast<std::uint32_t>(1 + draw(50)));
    if (!some.ok() && dead()) return;
    ASSERT_TRUE(some.ok()) << some.status().describe();
    if (some->empty()) break;
    pages.insert(pages.end(), some->begin(), some->end());
    after = some->back();
  }
  if (dead()) return;
  ASSERT_NO_FATAL_FAILURE(same_but_evicted(whole.keys, pages));
  if (pages.empty()) return;
  const auto from = static_cast<std::ptrdiff_t>(draw(pages.size()));
  const auto rest = rig_.list(pages[static_cast<std::size_t>(from)], kKeys);
  if (!rest.ok() && dead()) return;
  ASSERT_TRUE(rest.ok()) << rest.status().describe();
  ASSERT_NO_FATAL_FAILURE(same_but_evicted({pages.begin() + from + 1, pages.end()}, *rest));
}

// The keys of `later` are those of `keys`, in their order, but for what was evicted in between.
void ModelRun::same_but_evicted(std::span<const Key> keys, std::span<const Key> later) {
  auto next = later.begin();
  for (const Key& key : keys) {
    if (next != later.end() && *next == key) {
      ++next;
    } else {
      ASSERT_NO_FATAL_FAILURE(is_absent(number_of(key)));
    }
  }
  ASSERT_TRUE(next == later.end()) << name(number_of(*next)) << " stands elsewhere in the listing";
}

void ModelRun::remove_group() {
  ++round_;
  PageOp op;
  op.kind = PageOp::Kind::remove_group;
  op.group = 1 + draw(kGroups);
  if (one_in(3)) op.durability = Durability::flushed;
  rig_.submit(op);
  ASSERT_NO_FATAL_FAILURE(wait());
  ASSERT_TRUE(dead() || op.status.ok()) << op.status.describe();
  for (std::uint64_t number = 0; number < kKeys; ++number) {
    KeyModel& key = keys_[number];
    if (key.last().version == 0 || key.last().group != op.group) continue;
    const bool durable = key.states().size() == 1 && key.last().expires_s == 0;
    key.attempt(PageState());
    if (op.status.ok()) {
      key.acknowledge(round_, op.durability == Durability::flushed);
    } else if (durable && !cache_) {
      cut_group_.push_back(number);
    }
  }
}

}  // namespace furrow::testing
