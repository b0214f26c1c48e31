// Appending to the journal of the metadata ring without waiting for the device.
#include <utility>

#include "log/metadata_format.h"
#include "log/metadata_ring.h"
#include "zone/check.h"

namespace furrow {

// All but a record behind the others is append()'s.
void MetadataRing::begin(Pending& pending) {
  FURROW_CHECK(begun_ == nullptr);
  PoolState changed = state_;
  const bool follows = check_record(pending.record, changed).ok() && torn_.empty() &&
                       !needs_roll(pending.record, changed) && has_room(changed);
  if (!follows) {
    pending.status = append(pending.record);
    return pending.on_done(pending);
  }
  begun_ = std::make_unique<Begun>();
  begun_->pending = &pending;
  begun_->changed = std::move(changed);
  begun_->lbas = next_record(pending.record);
  Io& io = begun_->io;
  io.op = Io::Op::write;
  io.zone = active_zone_;
  io.lba = Lba{device_->geometry().zone_start(active_zone_).value + written_lbas_};
  io.set_data(begun_->lbas.data(), kJournalCopies, superblock_.lba_bytes);
  io.context = this;
  io.on_complete = [](Io& done) { static_cast<MetadataRing*>(done.context)->begun_written(); };
  queue_->submit(io);
}

void MetadataRing::begun_written() {
  Io& io = begun_->io;
  if (!io.status.ok()) return begun_flushed();
  io.op = Io::Op::flush;
  io.lba_count = 0;
  io.iov_count = 0;
  io.on_complete = [](Io& done) { static_cast<MetadataRing*>(done.context)->begun_flushed(); };
  queue_->submit(io);
}

// As in append(): nothing may follow a record of which nobody knows whether it is on the medium.
void MetadataRing::begun_flushed() {
  const Status status = begun_->io.status;
  if (status.ok()) {
    record_written();
  } else {
    must_roll_ = true;
  }
  end_begun(status);
}

void MetadataRing::end_begun(const Status& status) {
  const std::unique_ptr<Begun> ended = std::exchange(begun_, nullptr);
  if (status.ok()) state_ = std::move(ended->changed);
  ended->pending->status = status;
  ended->pending->on_done(*ended->pending);
}

}  // namespace furrow
