#include "log/zone_rebuild.h"

#include <algorithm>
#include <cstring>

#include "zone/aligned_buffer.h"
#include "zone/blocking.h"

namespace furrow {

namespace {

constexpr std::uint64_t kPieceBytes = 256 << 10;

using Closing = SurveyedSegment::Closing;

// The records of a segment as its summary is to name them.
struct SegmentRecords {
  std::vector<PageRecord> records;
  std::vector<std::uint32_t> batch_lbas;
  bool groups = false, expiries = false;
};

SegmentRecords records_of(const SurveyedSegment& segment) {
  SegmentRecords all;
  for (const SurveyedBatch& batch : segment.batches) {
    all.batch_lbas.push_back(batch.header.lba);
    all.records.insert(all.records.end(), batch.records.begin(), batch.records.end());
  }
  for (const PageRecord& record : all.records) {
    all.groups |= record.group != 0;
    all.expiries |= record.expires_s != 0;
  }
  return all;
}

class Rebuild {
 public:
  Rebuild(IoQueue& queue, const Geometry& geometry, const SurveyedZone& from,
          const ZoneHeader& header)
      : queue_(queue), geometry_(geometry), from_(from), header_(header) {}

  Result<std::uint64_t> run(const ZoneSurvey& survey) {
    AlignedBuffer lba(geometry_.lba_bytes);
    encode(header_, lba.span());
    Status status = write(lba.span());
    // With an older header in its place, what an earlier life of the zone left would count again.
    if (status.ok()) status = flush_blocking(queue_);
    for (const SurveyedSegment& segment : survey.segments) {
      if (status.ok()) status = copy(segment);
    }
    if (status.ok()) status = flush_blocking(queue_);
    if (status.ok()) status = compare(survey);
    if (status.ok()) return at_;
    (void)manage_blocking(queue_, Io::Op::reset, to());  // the error to tell is the first one
    return status;
  }

 private:
  ZoneId to() const { return header_.stamp.zone; }

  // At the write pointer.
  Status write(std::span<std::byte> bytes) {
    for (std::size_t done = 0; done < bytes.size();) {
      const std::size_t piece = std::min<std::size_t>(bytes.size() - done, kPieceBytes);
      Io io;
      io.op = Io::Op::write;
      io.zone = to();
      io.lba = Lba{geometry_.zone_start(to()).value + at_};
      io.set_data(bytes.data() + done, static_cast<std::uint32_t>(piece / geometry_.lba_bytes),
                  geometry_.lba_bytes);
      const Status status = run_blocking(queue_, io);
      if (!status.ok()) return status;
      at_ += piece / geometry_.lba_bytes;
      done += piece;
    }
    return {};
  }

  Result<std::span<const std::byte>> read(ZoneId zone, std::uint64_t lba, std::uint32_t lbas) {
    const Lba first{geometry_.zone_start(zone).value + lba};
    return read_blocking(queue_, first, lbas, geometry_.lba_bytes, buffer_);
  }

  Status copy(const SurveyedSegment& segment) {
    for (const SurveyedBatch& batch : segment.batches) {
      const Status status = copy(batch);
      if (!status.ok()) return status;
    }
    return segment.closing == Closing::open ? Status() : close(segment);
  }

  Status copy(const SurveyedBatch& batch) {
    BatchHeader header = batch.header;
    header.stamp = header_.stamp;
    header.stream = header_.stream;
    header.record_count = static_cast<std::uint32_t>(batch.records.size());
    if (header.lba + std::uint64_t{header.batch_lbas} > from_.end_lba) {  // its end is void
      header.batch_lbas = header.header_lbas;
      for (const PageRecord& record : batch.records) {
        if (record.kind != RecordKind::page) continue;
        const std::uint64_t end = record.lba + geometry_.lbas(record.length);
        header.batch_lbas =
            std::max(header.batch_lbas, static_cast<std::uint32_t>(end - header.lba));
      }
    }
    AlignedBuffer bytes(std::size_t{header.header_lbas} * geometry_.lba_bytes);
    encode(header, batch.records, bytes.span());
    Status status = write(bytes.span());
    const std::uint64_t end = header.lba + std::uint64_t{header.batch_lbas};
    if (status.ok() && is_note(header)) {  // its summary has the old stamp
      AlignedBuffer zeroes((end - at_) * geometry_.lba_bytes);
      return write(zeroes.span());
    }
    while (status.ok() && at_ < end) {
      const std::uint64_t lbas = std::min(end - at_, kPieceBytes / geometry_.lba_bytes);
      const auto pages = read(from_.stamp.zone, at_, static_cast<std::uint32_t>(lbas));
      if (!pages.ok()) return pages.status();
      status = write(buffer_.span().first(pages->size()));
    }
    return status;
  }

  Status close(const SurveyedSegment& segment) {
    const SegmentRecords all = records_of(segment);
    const std::uint64_t lbas = geometry_.lbas(
        summary_bytes(all.records.size(), all.batch_lbas.size(), all.groups, all.expiries, true));
    const std::uint64_t data_end = at_;
    if (data_end + lbas > segment.end_lba) {
      return {Code::corrupt, Origin::log, "the summary of a segment does not fit behind its pages"};
    }
    AlignedBuffer bytes((segment.end_lba - data_end) * geometry_.lba_bytes);
    const Summary summary{header_.stamp,
                          header_.volume,
                          static_cast<std::uint32_t>(segment.begin_lba / from_.segment_lbas),
                          static_cast<std::uint32_t>(segment.end_lba - lbas),
                          static_cast<std::uint32_t>(data_end),
                          static_cast<std::uint32_t>(lbas),
                          static_cast<std::uint32_t>(all.records.size())};
    encode(summary, all.records, all.batch_lbas, bytes.span().last(lbas * geometry_.lba_bytes));
    return write(bytes.span());
  }

  // Does the new zone say what the old one did?
  Status compare(const ZoneSurvey& old) {
    SurveyedZone zone = from_;
    zone.stamp = header_.stamp;
    zone.written_lbas = zone.end_lba = at_;
    const ZoneSurvey now = survey(
        zone, [this](std::uint64_t lba, std::uint32_t lbas) { return read(to(), lba, lbas); });
    bool same = now.header_intact && now.segments.size() == old.segments.size();
    for (std::size_t i = 0; same && i < now.segments.size(); ++i) {
      const SurveyedSegment& segment = now.segments[i];
      same = segment.closing != Closing::damaged && segment.gaps.empty() && !segment.contradicts &&
             std::ranges::all_of(segment.batches, &SurveyedBatch::intact) &&
             records_of(segment).records == records_of(old.segments[i]).records;
    }
    if (same) return {};
    return {Code::io_error, Origin::log, "the rebuilt zone does not read back as it was written"};
  }

  IoQueue& queue_;
  const Geometry& geometry_;
  const SurveyedZone& from_;
  const ZoneHeader& header_;
  std::uint64_t at_ = 0;
  AlignedBuffer buffer_;
};

}  // namespace

bool is_rebuildable(const ZoneSurvey& survey) {
  return survey.version.ok() &&
         std::ranges::all_of(survey.segments, [](const SurveyedSegment& segment) {
           return segment.gaps.empty() && !segment.contradicts;
         });
}

Result<std::uint64_t> rebuild_zone(IoQueue& queue, const Geometry& geometry,
                                   const SurveyedZone& from, const ZoneSurvey& survey,
                                   const ZoneHeader& header) {
  return Rebuild(queue, geometry, from, header).run(survey);
}

}  // namespace furrow
