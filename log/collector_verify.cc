// Before a store's zone is reset: are the zones that its pages were copied to still there?
#include <algorithm>
#include <utility>

#include "log/collector.h"
#include "log/page_log.h"

namespace furrow {

void Collector::note_copies_in(ZoneId zone) {
  if (log_.options_.cache || gone(zone)) return;
  const ZoneLife life{zone, pool_.allocator.zone(zone).generation};
  if (std::ranges::find(copies_in_, life) == copies_in_.end()) copies_in_.push_back(life);
}

bool Collector::gone(ZoneId zone) const {
  const ZoneLife life{zone, pool_.allocator.zone(zone).generation};
  return std::ranges::find(gone_, life) != gone_.end();
}

// One read of each tells. Where one went offline the victim has the only pages that can be read: it
// is emptied once more.
void Collector::verify_copies() {
  if (copies_in_.empty()) {
    if (std::exchange(copies_gone_, false)) {
      segment_ = 0;
      return next_segment();
    }
    pool_.allocator.set_use(victim_, ZoneUse::resetting);
    step_ = Step::grace;
    return wait_for_grace();
  }
  step_ = Step::verify;
  if (scan_buffer_.size() < pool_.geometry.lba_bytes) {
    scan_buffer_ = AlignedBuffer(pool_.geometry.lba_bytes);
  }
  io_.op = Io::Op::read;
  io_.lba = pool_.geometry.zone_start(copies_in_.back().zone);
  io_.set_data(scan_buffer_.data(), 1, pool_.geometry.lba_bytes);
  io_.on_complete = [](Io& io) { static_cast<Collector*>(io.context)->copies_verified(); };
  pool_.queue.submit(io_);
}

void Collector::copies_verified() {
  if (io_.status.code() == Code::zone_state) {
    std::erase_if(gone_, [this](const ZoneLife& life) { return !gone(life.zone); });
    gone_.push_back(copies_in_.back());
    copies_gone_ = true;
  }
  copies_in_.pop_back();
  verify_copies();
}

}  // namespace furrow
