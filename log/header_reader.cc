#include "log/header_reader.h"

#include <algorithm>
#include <utility>

#include "log/record_codec.h"

namespace furrow {

namespace {
constexpr std::uint32_t kRecordsMax = 255;
constexpr unsigned kReadsFailedMax = 16;  // of a segment
}  // namespace

HeaderReader::HeaderReader(PoolContext& pool, WrittenLba written_lba)
    : pool_(pool), written_lba_(std::move(written_lba)), epoch_(pool.epoch.add()) {
  const std::size_t lbas = pool.geometry.lbas(batch_header_bytes(kRecordsMax));
  for (Lane& lane : lanes_) {
    lane.reader = this;
    lane.buffer = AlignedBuffer(lbas * pool.geometry.lba_bytes);
    lane.io.op = Io::Op::read;
    lane.io.context = &lane;
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
  lane.batch_lba = batch;
  lane.io.on_complete = [](Io& io) {
    auto& done = *static_cast<Lane*>(io.context);
    done.reader->completed(done);
  };
  lane.io.lba = Lba{pool_.device_lba(zone, batch)};
  lane.io.set_data(lane.buffer.data(), static_cast<std::uint32_t>(lbas), pool_.geometry.lba_bytes);
  pool_.queue.submit(lane.io);
}

void HeaderReader::completed(Lane& lane) {
  const std::span<const std::byte> bytes(lane.buffer.data(), lane.io.one.iov_len);
  const ZoneId zone = pool_.geometry.zone_of(lane.io.lba);
  Result<BatchView> view = lane.io.status.ok() ? BatchView::open(bytes, pool_.stamp(zone))
                                               : Result<BatchView>(lane.io.status);
  if (view.ok() && view->header().lba != lane.batch_lba) {
    view =
        Status(Code::corrupt, Origin::log, "another batch header was read than the one asked for");
  }
  const Code code = view.status().code();
  const bool lost = code == Code::corrupt || code == Code::io_error;
  if (!lost) return answer(lane, view);
  const bool second = std::exchange(lane.again, true);
  if (!second || code == Code::io_error) lane.lost = view.status();
  if (second) return look_elsewhere(lane);
  // What was read may not be what is there; what cannot be read may be a page behind the header.
  if (code == Code::io_error) {
    lane.io.set_data(lane.buffer.data(), 1, pool_.geometry.lba_bytes);
  }
  pool_.queue.submit(lane.io);
}

void HeaderReader::look_elsewhere(Lane& lane) {
  lane.reads_failed = 0;
  const ZoneId zone = pool_.geometry.zone_of(lane.io.lba);
  const std::uint64_t capacity = pool_.geometry.zone_capacity_lbas;
  const std::uint64_t begin = lane.batch_lba / pool_.segment_lbas * pool_.segment_lbas;
  const std::uint64_t written = written_lba_ ? std::min(capacity, written_lba_(zone)) : capacity;
  lane.scan.emplace(
      SegmentScan::Bounds{pool_.stamp(zone), begin, std::min(begin + pool_.segment_lbas, capacity),
                          std::min<std::uint64_t>(written, pool_.tables[zone.value].end_lba),
                          pool_.geometry.lba_bytes});
  lane.io.on_complete = [](Io& io) {
    auto& done = *static_cast<Lane*>(io.context);
    done.reader->scan_fed(done);
  };
  read_on(lane);
}

void HeaderReader::read_on(Lane& lane) {
  const std::optional<SegmentScan::Read> read = lane.scan->next();
  if (!read) {
    return answer(lane, repeated(lane));
  }
  const std::size_t bytes = std::size_t{read->lbas} * pool_.geometry.lba_bytes;
  if (lane.scan_buffer.size() < bytes) lane.scan_buffer = AlignedBuffer(bytes);
  const ZoneId zone = pool_.geometry.zone_of(lane.io.lba);
  lane.io.lba = Lba{pool_.device_lba(zone, read->lba)};
  lane.io.set_data(lane.scan_buffer.data(), read->lbas, pool_.geometry.lba_bytes);
  pool_.queue.submit(lane.io);
}

void HeaderReader::scan_fed(Lane& lane) {
  // A device that gives next to nothing is not asked for each LBA of the segment.
  if (!lane.io.status.ok() && ++lane.reads_failed == kReadsFailedMax) {
    return answer(lane, lane.io.status);
  }
  const std::span<const std::byte> bytes(lane.scan_buffer.data(), lane.io.one.iov_len);
  lane.scan->feed(lane.io.status.ok() ? Result<std::span<const std::byte>>(bytes)
                                      : Result<std::span<const std::byte>>(lane.io.status));
  read_on(lane);
}

// The header as it was, but for its flush point, from what the scan says of its batch.
Result<BatchView> HeaderReader::repeated(Lane& lane) const {
  const Status lost = lane.lost.code() == Code::io_error
                          ? lane.lost
                          : Status(Code::corrupt, Origin::log,
                                   "a batch header is damaged, and neither summary nor note "
                                   "repeats it");
  const SegmentScan& scan = *lane.scan;
  const std::vector<std::uint32_t>& batches = scan.batch_lbas();
  const auto batch = std::ranges::lower_bound(batches, lane.batch_lba);
  if (batch == batches.end() || *batch != lane.batch_lba) return lost;
  const std::uint64_t next = batch + 1 == batches.end() ? ~std::uint64_t{0} : batch[1];
  std::vector<PageRecord> records;
  std::uint64_t end_lba = 0;
  for (const PageRecord& record : scan.records()) {
    if (record.lba < lane.batch_lba || record.lba >= next) continue;
    records.push_back(record);
    end_lba = std::max(end_lba, record.lba + pool_.page_lbas(record.length));
  }
  const std::uint64_t header_lbas = pool_.geometry.lbas(batch_header_bytes(records.size()));
  const auto first = static_cast<std::uint32_t>(lane.batch_lba + header_lbas);
  BatchHeader header;
  header.stamp = pool_.stamp(pool_.geometry.zone_of(lane.io.lba));
  header.lba = lane.batch_lba;
  header.header_lbas = static_cast<std::uint32_t>(header_lbas);
  header.batch_lbas =
      static_cast<std::uint32_t>(std::max<std::uint64_t>(end_lba, first) - lane.batch_lba);
  header.record_count = static_cast<std::uint32_t>(records.size());
  const RecordBounds bounds{pool_.geometry.lba_bytes, first, header.lba + header.batch_lbas,
                            header.lba, header.lba};
  const bool valid = std::ranges::all_of(
      records, [&](const PageRecord& record) { return valid_record(record, bounds); });
  if (records.empty() || records.size() > kRecordsMax || !valid) return lost;
  const auto bytes = lane.buffer.span().first(header_lbas * pool_.geometry.lba_bytes);
  encode(header, records, bytes);
  return BatchView::open(bytes, header.stamp);
}

void HeaderReader::answer(Lane& lane, const Result<BatchView>& view) {
  HeaderRead& request = *lane.request;
  lane.scan.reset();
  epoch_.leave(request.epoch_side);
  request.on_read(request, view);
  lane.request = nullptr;
  if (waiting_head_ == nullptr) return;
  HeaderRead* next = waiting_head_;
  waiting_head_ = next->next;
  start(lane, *next);
}

}  // namespace furrow
