#include "engine/zone_returns.h"

#include <algorithm>
#include <utility>

#include "zone/check.h"
#include "zone/zone_state_machine.h"

namespace furrow {

namespace {
constexpr std::uint64_t kRetryNsMin = 10 * kNsPerMs;
constexpr std::uint64_t kGracePollNs = 20'000;
constexpr unsigned kFlushesFailedMax = 8;  // one after another, within 1.3 s
}  // namespace

ZoneReturns::ZoneReturns(PoolContext& pool, Owner& owner) : pool_(pool), owner_(owner) {
  io_.op = Io::Op::reset;
  io_.context = this;
  io_.on_complete = [](Io& io) { static_cast<ZoneReturns*>(io.context)->reset_done(); };
  flush_.returns = this;
  flush_.on_flushed = [](FlushWaiter& waiter) { static_cast<Flush&>(waiter).returns->flushed(); };
  retry_.returns = this;
  retry_.fire = [](Timer& timer) { static_cast<Retry&>(timer).returns->go_on(); };
}

ZoneReturns::~ZoneReturns() { FURROW_CHECK(idle()); }

// The zones that count against the device's limits come last, as the last one goes first.
void ZoneReturns::add(Volume volume) {
  std::ranges::reverse(volume.zones);
  std::stable_partition(volume.zones.begin(), volume.zones.end(),
                        [this](ZoneId zone) { return !is_active(pool_.device.zone(zone).state); });
  volumes_.push_back({std::move(volume)});
  if (!busy_) go_on();
}

std::uint64_t ZoneReturns::zones() const {
  std::uint64_t zones = 0;
  for (const Returning& volume : volumes_) zones += volume.zones.size() + volume.reset.size();
  return zones;
}

bool ZoneReturns::limits() const {
  return pool_.geometry.limits_zones() && std::ranges::any_of(volumes_, [](const Returning& each) {
           return each.admitted && !each.limits_returned;
         });
}

// A grace period goes on to its end: until then nobody else's begins.
void ZoneReturns::stop() {
  stopping_ = true;
  if (retry_.heap_slot == -1 || own_grace_) return;
  pool_.home.stop(retry_);
  busy_ = false;
}

void ZoneReturns::go_on() {
  busy_ = own_grace_ || (!stopping_ && !volumes_.empty());
  if (!busy_) return;
  if (!readers_have_left()) return pool_.home.start(retry_, kGracePollNs);
  busy_ = !stopping_;
  if (!busy_) return;
  choose();
  return_limits();
  const Returning& volume = volumes_.front();
  if (volume.zones.empty() || (!volume.lent && volume.reset.size() == kFlushedAtOnce)) {
    return pool_.flusher.request(flush_);
  }
  io_.zone = volume.zones.back();
  io_.lba = pool_.geometry.zone_start(io_.zone);
  pool_.queue.submit(io_);
}

// Gets that were there when a volume was deleted may still read its zones. (Of lent ones nothing is
// read by then.)
bool ZoneReturns::readers_have_left() {
  const auto read = [](const Returning& each) { return !each.unread && !each.lent; };
  if (!own_grace_) {
    if (std::ranges::none_of(volumes_, read)) return true;
    if (pool_.epoch.in_grace()) return false;
    pool_.epoch.begin_grace();
    own_grace_ = true;
    for (Returning& volume : volumes_) volume.in_grace = true;
  }
  if (!pool_.epoch.grace_over()) return false;
  own_grace_ = false;
  for (Returning& volume : volumes_) volume.unread |= volume.in_grace;
  return stopping_ || std::ranges::none_of(volumes_, read);
}

// Whose limits are to be returned goes before all that is left of others: no volume is made
// meanwhile.
void ZoneReturns::choose() {
  const auto waits = std::ranges::find_if(
      volumes_, [](const Returning& each) { return each.admitted && !each.limits_returned; });
  if (waits != volumes_.end()) std::rotate(volumes_.begin(), waits, waits + 1);
}

void ZoneReturns::return_limits() {
  const auto active = [this](ZoneId zone) { return is_active(pool_.device.zone(zone).state); };
  Returning& volume = volumes_.front();
  if (volume.limits_returned || (!volume.zones.empty() && active(volume.zones.back()))) return;
  volume.limits_returned = true;
  if (!volume.admitted) return;
  owner_.on_limits_returned(volume.id,
                            static_cast<unsigned>(std::ranges::count_if(volume.kept, active)));
}

void ZoneReturns::reset_done() {
  Returning& volume = volumes_.front();
  volume.zones.pop_back();
  if (io_.status.ok()) {
    volume.reset.push_back(io_.zone);
  } else {
    pool_.allocator.retire(io_.zone);
    volume.kept.push_back(io_.zone);
    if (!volume.lent) owner_.on_kept(io_.zone);
  }
  go_on();
}

// Before that none is written again: a power cut could leave one with its old write pointer.
void ZoneReturns::flushed() {
  Returning& volume = volumes_.front();
  const bool last = volume.zones.empty();
  Status status = flush_.status;
  if (status.ok() && volume.lent) status = owner_.note_returned(volume.id, volume.kept);
  flushes_failed_ = status.ok() ? 0 : flushes_failed_ + 1;
  if (!status.ok() && flushes_failed_ < kFlushesFailedMax) return try_again();
  for (const ZoneId zone : std::exchange(volume.reset, {})) {
    status.ok() ? pool_.allocator.release(zone) : pool_.allocator.retire(zone);
  }
  if (last) volumes_.pop_front();
  go_on();
}

// After a flush that failed they are reset once more: whether the next one covers what it did not
// is the device's secret. Before those that are still to be reset, of which some may count against
// its limits.
void ZoneReturns::try_again() {
  Returning& volume = volumes_.front();
  if (!flush_.status.ok()) {
    volume.zones.insert(volume.zones.begin(), volume.reset.begin(), volume.reset.end());
    volume.reset.clear();
  }
  if (stopping_) {
    busy_ = false;
    return;
  }
  pool_.home.start(retry_, kRetryNsMin << (flushes_failed_ - 1));
}

}  // namespace furrow
