#include "log/header_reader.h"

#include <algorithm>

namespace furrow {

namespace {
constexpr std::uint32_t kRecordsMax = 255;
}

HeaderReader::HeaderReader(PoolContext& pool) : pool_(pool), epoch_(pool.epoch.add()) {
  const std::size_t lbas = pool.geometry.lbas(batch_header_bytes(kRecordsMax));
  for (Lane& lane : lanes_) {
    lane.reader = this;
    lane.buffer = AlignedBuffer(lbas * pool.geometry.lba_bytes);
    lane.io.op = Io::Op::read;
    lane.io.context = &lane;
    lane.io.on_complete = [](Io& io) {
      auto& done = *static_cast<Lane*>(io.context);
      done.reader->completed(done);
    };
  }
}

HeaderReader::~HeaderReader() { pool_.epoch.remove(epoch_); }

void HeaderReader::read(HeaderRead& request) {
  request.epoch_side = epoch_.enter();
  request.next = nullptr;
  for (Lane& lane : lanes_) {
    if (lane.request == nullptr) return start(lane, request);
  }
  (waiting_head_ == nullptr ? waiting_head_ : waiting_tail_->next) = &request;
  waiting_tail_ = &request;
}

// How long the header is stands in it; reading the longest there can be, up to the page, saves a
// second read.
void HeaderReader::start(Lane& lane, HeaderRead& request) {
  ++reads_;
  lane.request = &request;
  lane.again = false;
  const ZoneId zone = pool_.geometry.zone_of(Lba{request.page_lba});
  const std::uint32_t relative = pool_.relative_lba(request.page_lba);
  // A page's header lies before it; a tombstone's "page" is its header.
  const std::uint32_t batch = pool_.tables[zone.value].batch_of(relative);
  const std::uint64_t left = pool_.geometry.zone_capacity_lbas - batch;
  std::uint64_t lbas = std::min<std::uint64_t>(left, lane.buffer.size() / pool_.geometry.lba_bytes);
  if (!request.whole) lbas = std::min<std::uint64_t>(lbas, relative - batch);
  lane.io.lba = Lba{pool_.device_lba(zone, batch)};
  lane.io.set_data(lane.buffer.data(), static_cast<std::uint32_t>(lbas), pool_.geometry.lba_bytes);
  pool_.queue.submit(lane.io);
}

void HeaderReader::completed(Lane& lane) {
  HeaderRead& request = *lane.request;
  const std::span<const std::byte> bytes(lane.buffer.data(), lane.io.one.iov_len);
  const ZoneId zone = pool_.geometry.zone_of(lane.io.lba);
  Result<BatchView> view = lane.io.status.ok() ? BatchView::open(bytes, pool_.stamp(zone))
                                               : Result<BatchView>(lane.io.status);
  if (view.ok() && view->header().lba != pool_.relative_lba(lane.io.lba.value)) {
    view =
        Status(Code::corrupt, Origin::log, "another batch header was read than the one asked for");
  }
  // What was read may not be what is there.
  if (view.status().code() == Code::corrupt && !lane.again) {
    lane.again = true;
    return pool_.queue.submit(lane.io);
  }
  epoch_.leave(request.epoch_side);
  request.on_read(request, view);
  lane.request = nullptr;
  if (waiting_head_ == nullptr) return;
  HeaderRead* next = waiting_head_;
  waiting_head_ = next->next;
  start(lane, *next);
}

}  // namespace furrow
