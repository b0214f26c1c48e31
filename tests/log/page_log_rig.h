// PageLogRig: a PageLog on a LogRig, its operations one call each, and reopening through recovery.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "log/page_log.h"
#include "tests/log/log_rig.h"
#include "zone/blocking.h"
#include "zone/zone_state_machine.h"

namespace furrow {

class PageLogRig : public LogRig {
 protected:
  struct Op : KeyOp {
    AlignedBuffer memory;
    unsigned answers = 0;
    std::uint64_t answered_as = 0;  // the how-manyth of all answers
    PageLogRig* rig = nullptr;
  };
  // How a put differs from the plainest one.
  struct Put {
    KeyOp::Condition condition = KeyOp::Condition::always;
    bool flushed = false, pinned = false, shrinks = false;
    std::uint64_t group = 0;
    std::uint32_t expires_s = 0;
    Lifetime lifetime = Lifetime::medium_term;
  };

  PageLogRig() = default;
  ~PageLogRig() override { drop_pool(); }

  // The volume's log on a fresh device.
  void make_log(const Shape& shape, bool cache) {
    make(shape);
    options_.volume = kVolume;
    options_.cache = cache;
    // The user's, collection's, and those by lifetime, as the format numbers them.
    for (unsigned number = 1; number <= kStreamMax; ++number) {
      options_.streams.set(number, !cache && number < shape.streams);
    }
    log_ = std::make_unique<PageLog>(*pool_, options_);
    log_->start();
  }
  // Another one, on a new device.
  void remake(const Shape& shape, bool cache) {
    drop_pool();
    cuts_.clear();
    make_log(shape, cache);
  }
  void drop_pool() override {
    if (device_) {
      device_->let_go(Io::Op::write);
      device_->let_go(Io::Op::flush);
      device_->let_go(Io::Op::read);
      device_->let_go(Io::Op::reset);
    }
    if (log_) {
      log_->stop_background();
      run([this] { return log_->idle() && !queue_->busy(); });
    }
    log_.reset();
    LogRig::drop_pool();
  }
  // A new PageLog on what recovery finds. The old one stops as it is, if need be in an orderly way.
  void reopen(bool orderly = false) {
    if (orderly) {
      log_->stop_background();
      for (bool closed = false; !closed; run()) closed = log_->idle() && log_->close();
    }
    drop_pool();
    recover_log();
  }
  // A kill, and the zones that were being written to are full.
  void reopen_cut_off() {
    drop_pool();
    for (const ZoneInfo& zone : *device_->report()) {
      if (zone.zone.value < kMetadataZones || !is_active(zone.state)) continue;
      ASSERT_TRUE(direct(Io::Op::finish, zone.zone).ok());
    }
    recover_log();
  }
  void recover_log() {
    make_pool();
    RecoveryOptions options;
    options.scanners_per_thread = 1;
    options.volumes = {kVolume};
    (options_.cache ? options.caches : options.stores) = {kVolume};
    options.trims = cuts_;
    Result<RecoveryResult> found = recover(*device_, *pool_, options);
    ASSERT_TRUE(found.ok()) << found.status().describe();
    cuts_.insert(cuts_.end(), found->new_trims.begin(), found->new_trims.end());
    log_ = std::make_unique<PageLog>(*pool_, options_);
    const RecoveredVolume& volume = found->volumes[kVolume];
    for (const auto& [stream, resume] : volume.resumes) {
      log_->resume(stream, Stream::Resume(resume));
    }
    log_->load({volume.pages, volume.live_bytes, volume.pinned_lbas, volume.cost_bytes,
                volume.largest_bytes, volume.first_expiry_s, volume.expired, volume.hidden,
                volume.lost, volume.outlived, volume.damaged});
    log_->start();
  }
  // The power goes off and on again.
  void power_cut(CrashModel model = CrashModel::drive) {
    ASSERT_TRUE(faults_->power_cut(model).ok());
    drop_pool();
    std::unique_ptr<ZonedDevice> left = faults_->take_inner();
    device_.reset();
    use_device(std::move(left));
    recover_log();
  }

  Op& start(KeyOp::Kind kind, std::uint64_t number) {
    Op& op = prepare(kind, number);
    log_->submit(op);
    return op;
  }
  Op& prepare(KeyOp::Kind kind, std::uint64_t number) {
    ops_.push_back(std::make_unique<Op>());
    Op& op = *ops_.back();
    op.kind = kind;
    op.key = key_number(number);
    op.rig = this;
    op.on_done = [](KeyOp& done) {
      auto& its_op = static_cast<Op&>(done);
      ++its_op.answers;
      its_op.answered_as = ++its_op.rig->answers_;
    };
    return op;
  }
  Op& start_put(std::uint64_t number, std::uint64_t version, std::uint32_t bytes) {
    return start_put(number, version, bytes, Put());
  }
  Op& start_put(std::uint64_t number, std::uint64_t version, std::uint32_t bytes, const Put& how) {
    Op& op = prepare(KeyOp::Kind::put, number);
    op.condition = how.condition;
    op.flushed = how.flushed;
    op.pinned = how.pinned;
    op.shrinks = how.shrinks;
    op.group = how.group;
    op.expires_s = how.expires_s;
    op.lifetime = how.lifetime;
    give_page(op, page_bytes(number, version, bytes));
    log_->submit(op);
    return op;
  }
  static void give_page(Op& op, const std::vector<std::byte>& page) {
    op.memory = AlignedBuffer((page.size() + kLbaBytes - 1) / kLbaBytes * kLbaBytes);
    std::ranges::copy(page, op.memory.data());
    op.data = op.memory.data();
    op.length = static_cast<std::uint32_t>(page.size());
    op.capacity = static_cast<std::uint32_t>(op.memory.size());
  }
  Status finish(Op& op) {
    EXPECT_TRUE(run([&] { return op.answers != 0; })) << "it is never answered";
    EXPECT_EQ(op.answers, 1u);
    return op.status;
  }
  Status put(std::uint64_t number, std::uint64_t version, std::uint32_t bytes) {
    return finish(start_put(number, version, bytes, Put()));
  }
  Status put(std::uint64_t number, std::uint64_t version, std::uint32_t bytes, const Put& how) {
    return finish(start_put(number, version, bytes, how));
  }
  Status apply_op(KeyOp::Kind kind, std::uint64_t number) { return finish(start(kind, number)); }
  Status remove(std::uint64_t number) { return apply_op(KeyOp::Kind::remove, number); }
  Code exist(std::uint64_t number) { return apply_op(KeyOp::Kind::exist, number).code(); }

  // What a reader would be given: the page that the index points to, if its checksum is right.
  std::optional<std::vector<std::byte>> get(std::uint64_t number) {
    const KeyHash hash = log_->hash(key_number(number));
    std::array<IndexEntry, 16> found;
    const unsigned count = std::min(log_->lookup(hash, found), 16u);
    for (unsigned i = 0; i < count; ++i) {
      if (log_->expired(found[i], executor_.wall_s())) continue;
      AlignedBuffer page(pool_->page_lbas(found[i].length) * kLbaBytes);
      Io io;
      io.op = Io::Op::read;
      io.lba = Lba{found[i].lba};
      io.set_data(page.data(), static_cast<std::uint32_t>(page.size() / kLbaBytes), kLbaBytes);
      auto queue = device_->create_queue(4);
      if (!run_blocking(**queue, io).ok()) continue;
      if (page_checksum({page.data(), found[i].length}, hash) != found[i].checksum) continue;
      return std::vector<std::byte>(page.data(), page.data() + found[i].length);
    }
    return std::nullopt;
  }
  void expect_page(std::uint64_t number, std::uint64_t version, std::uint32_t bytes) {
    const auto found = get(number);
    ASSERT_TRUE(found) << "page " << number << " is lost";
    EXPECT_TRUE(*found == page_bytes(number, version, bytes))
        << "page " << number << " is not version " << version;
  }
  void expect_absent(std::uint64_t number) { EXPECT_FALSE(get(number)) << "page " << number; }
  // Of a page that is there.
  IndexEntry entry(std::uint64_t number) {
    std::array<IndexEntry, 16> found{};
    EXPECT_EQ(log_->lookup(log_->hash(key_number(number)), found), 1u) << number;
    return found[0];
  }
  ZoneId zone_of(std::uint64_t number) { return pool_->geometry.zone_of(Lba{entry(number).lba}); }

  // Keys whose hashes are alike in the bits that an index entry has.
  std::pair<std::uint64_t, std::uint64_t> two_of_one_tag() {
    std::map<std::uint64_t, std::uint64_t> by_tag;
    for (std::uint64_t n = 0;; ++n) {
      const auto [at, fresh] = by_tag.try_emplace(log_->hash(key_number(n)).order >> 32, n);
      if (!fresh) return {at->second, n};
    }
  }

  struct Group : RemoveGroupOp {
    unsigned answers = 0;
  };
  Group& start_remove_group(std::uint64_t group, bool flushed = false, bool own_keys = false) {
    groups_.push_back(std::make_unique<Group>());
    Group& op = *groups_.back();
    op.group = group;
    op.flushed = flushed;
    op.own_keys = own_keys;
    op.on_done = [](RemoveGroupOp& done) { ++static_cast<Group&>(done).answers; };
    log_->remove_group(op);
    return op;
  }
  Status remove_group(std::uint64_t group, bool flushed = false) {
    Group& op = start_remove_group(group, flushed);
    EXPECT_TRUE(run([&] { return op.answers != 0; }));
    return op.status;
  }
  struct Flush : FlushOp {
    unsigned answers = 0;
  };
  Flush& start_flush() {
    flushes_.push_back(std::make_unique<Flush>());
    Flush& op = *flushes_.back();
    op.on_flushed = [](FlushWaiter& done) { ++static_cast<Flush&>(done).answers; };
    log_->flush(op);
    return op;
  }
  // Keys behind `after`; `status` is the operation's.
  std::vector<Key> list(const Key& after, std::uint32_t keys_max, Status* status = nullptr) {
    struct List : ListOp {
      bool done = false;
    } op;
    std::vector<Key> keys(keys_max);
    op.after = after;
    op.keys = keys.data();
    op.keys_max = keys_max;
    op.on_done = [](ListOp& done) { static_cast<List&>(done).done = true; };
    log_->list(op);
    EXPECT_TRUE(run([&] { return op.done; }));
    if (status != nullptr) *status = op.status;
    EXPECT_TRUE(status != nullptr || op.status.ok()) << op.status.describe();
    keys.resize(op.keys_count);
    return keys;
  }

  PageLogOptions options_{.value_bytes_max = 8 << 10};
  std::unique_ptr<PageLog> log_;
  std::vector<std::unique_ptr<Op>> ops_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::vector<std::unique_ptr<Flush>> flushes_;
  std::uint64_t answers_ = 0;
};

}  // namespace furrow
