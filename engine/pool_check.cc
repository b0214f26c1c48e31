// Pool::check(): reads everything that the pool stands on, and writes nothing.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "engine/pool_impl.h"
#include "log/zone_rebuild.h"
#include "zone/aligned_buffer.h"
#include "zone/blocking.h"

namespace furrow {

namespace {

using Structure = Finding::Structure;
using GiveUp = Finding::GiveUp;

// Reads for the check, no faster than it may.
class CheckReader {
 public:
  CheckReader(IoQueue& queue, const Geometry& geometry, const CheckOptions& options,
              CheckReport& report)
      : queue_(queue), geometry_(geometry), options_(options), report_(report) {}

  Result<std::span<const std::byte>> read(ZoneId zone, std::uint64_t lba, std::uint32_t lbas) {
    const Lba first{geometry_.zone_start(zone).value + lba};
    const auto bytes = read_blocking(queue_, first, lbas, geometry_.lba_bytes, buffer_);
    report_.bytes_read += std::uint64_t{lbas} * geometry_.lba_bytes;
    if (options_.on_read) options_.on_read(report_.bytes_read);
    keep_rate();
    return bytes;
  }

 private:
  void keep_rate() const {
    if (options_.bytes_per_s_max == 0) return;
    const double due_s =
        static_cast<double>(report_.bytes_read) / static_cast<double>(options_.bytes_per_s_max);
    std::this_thread::sleep_until(started_ + std::chrono::duration_cast<Clock::duration>(
                                                 std::chrono::duration<double>(due_s)));
  }

  using Clock = std::chrono::steady_clock;
  IoQueue& queue_;
  const Geometry& geometry_;
  const CheckOptions& options_;
  CheckReport& report_;
  AlignedBuffer buffer_;
  const Clock::time_point started_ = Clock::now();
};

// What is wrong with the structures of a data zone, in words.
class ZoneFindings {
 public:
  ZoneFindings(ZoneId zone, CheckReport& report) : zone_(zone), report_(report) {}

  void add(Structure structure, std::optional<std::uint64_t> lba, const std::string& text,
           bool repairable, GiveUp give_up = GiveUp::nothing) {
    report_.damage.push_back({structure,
                              zone_.value,
                              lba,
                              {},
                              repairable,
                              give_up,
                              fmt::format("zone {}: {}", zone_.value, text)});
  }

  void structures(const ZoneSurvey& survey, const ZoneDirectory& table, bool rebuildable) {
    ++report_.zones;
    if (!survey.header_intact) {
      add(Structure::zone_header, 0,
          "the zone header is damaged; what follows says what the zone is", rebuildable);
    }
    for (const SurveyedSegment& segment : survey.segments) {
      this->segment(segment, table, rebuildable);
    }
  }

 private:
  void segment(const SurveyedSegment& segment, const ZoneDirectory& table, bool rebuildable) {
    using Closing = SurveyedSegment::Closing;
    if (segment.closing != Closing::open) ++report_.summaries;
    if (segment.closing == Closing::damaged) {
      add(Structure::summary, segment.end_lba - 1,
          fmt::format(
              "the summary of the segment from LBA {} on is damaged; its batch headers tell "
              "what it holds",
              segment.begin_lba),
          rebuildable);
    }
    if (segment.contradicts) {
      add(Structure::summary, segment.end_lba - 1,
          fmt::format(
              "the summary of the segment from LBA {} on names other records than its batch "
              "headers",
              segment.begin_lba),
          false);
    }
    for (const SurveyedBatch& batch : segment.batches) {
      ++report_.batch_headers;
      if (batch.intact) continue;
      add(Structure::batch_header, batch.header.lba,
          fmt::format("the batch header at LBA {} is damaged; a summary behind it names its {} "
                      "records",
                      batch.header.lba, batch.records.size()),
          rebuildable);
    }
    for (const std::uint64_t lba : segment.gaps) {
      if (!table.counts(lba)) continue;
      ++report_.batch_headers;
      add(Structure::batch_header, lba,
          fmt::format("there is no batch header at LBA {}, where one should be; the pages that it "
                      "described are lost",
                      lba),
          false);
    }
  }

  const ZoneId zone_;
  CheckReport& report_;
};

}  // namespace

const char* to_string(Finding::Structure structure) {
  switch (structure) {
    case Structure::device:
      return "device";
    case Structure::metadata:
      return "metadata";
    case Structure::zone:
      return "zone";
    case Structure::zone_header:
      return "zone header";
    case Structure::batch_header:
      return "batch header";
    case Structure::summary:
      return "summary";
    case Structure::page:
      return "page";
  }
  return "unknown";
}

SurveyedZone PoolImpl::surveyed(const ZoneInfo& info) const {
  SurveyedZone zone;
  zone.stamp = context_.stamp(info.zone);
  zone.written_lbas = std::min(info.written_lbas, context_.geometry.zone_capacity_lbas);
  zone.end_lba = context_.tables[info.zone.value].end_lba;
  zone.torn = context_.tables[info.zone.value].torn;
  zone.capacity_lbas = context_.geometry.zone_capacity_lbas;
  zone.segment_lbas = context_.segment_lbas;
  zone.lba_bytes = context_.geometry.lba_bytes;
  return zone;
}

void PoolImpl::check_page(ZoneId zone, const PageRecord& record, PageLog& log, const ZoneRead& read,
                          CheckReport& report) const {
  if (record.kind != RecordKind::page) return;
  const KeyHash hash = log.hash(record.key);
  const std::uint64_t lba = context_.device_lba(zone, record.lba);
  std::array<IndexEntry, KeyOp::kCandidatesMax> entries;
  const unsigned count = std::min(log.lookup(hash, entries), KeyOp::kCandidatesMax);
  const auto live =
      std::ranges::find(entries.begin(), entries.begin() + count, lba, &IndexEntry::lba);
  if (live == entries.begin() + count) return;  // dead: nobody will read it
  ++report.pages;
  const auto page = read(record.lba, static_cast<std::uint32_t>(context_.page_lbas(record.length)));
  if (page.ok() && page_checksum(page->first(record.length), hash) == live->checksum) return;
  ZoneFindings(zone, report)
      .add(Structure::page, record.lba,
           fmt::format("the page at LBA {} is {}", record.lba,
                       page.ok() ? "damaged (checksum)" : "unreadable"),
           false, page.ok() || log.options().cache ? GiveUp::nothing : GiveUp::unreadable);
}

// Errors of reading count as damage of what could not be read.
ZoneSurvey PoolImpl::survey_zone(const ZoneInfo& info, const CheckOptions& options,
                                 CheckReport& report) {
  CheckReader reader(*queue_, context_.geometry, options, report);
  return survey(surveyed(info), [&](std::uint64_t lba, std::uint32_t lbas) {
    return reader.read(info.zone, lba, lbas);
  });
}

Result<CheckReport> PoolImpl::check(const CheckOptions& options) {
  CheckReport report;
  report.notes = notes_;
  for (const std::string& text : device_.damage()) {
    report.damage.push_back({Structure::device, {}, {}, {}, true, {}, text});
  }
  for (const std::string& text : damage_) {
    report.damage.push_back({Structure::metadata, {}, {}, {}, ring_.repairable(), {}, text});
  }
  for (const auto& [volume, zones] : unknown_) {
    const char* const why = ring_.lost()
                                ? "nothing is left that tells its name, mode and quota"
                                : "the metadata does not know it: its journal has lost its end";
    report.damage.push_back(
        {Structure::metadata,
         {},
         {},
         volume,
         ring_.repairable(),
         {},
         fmt::format("{} zones are of volume {}: {}", zones.size(), volume, why)});
  }
  for (const RecoveryResult::Lost& lost : lost_) {
    using Missing = RecoveryResult::Lost::Missing;
    const auto give_up = lost.missing == Missing::all    ? GiveUp::all
                         : lost.missing == Missing::some ? GiveUp::unreadable
                                                         : GiveUp::nothing;
    ZoneFindings(lost.zone, report).add(Structure::zone, {}, lost.why, false, give_up);
  }
  const Result<std::vector<ZoneInfo>> zones = device_.report();
  if (!zones.ok()) return zones.status();
  const Result<std::unique_ptr<IoQueue>> queue = device_.create_queue(32);
  if (!queue.ok()) return queue.status();
  CheckReader reader(**queue, context_.geometry, options, report);
  for (ZoneInfo info : *zones) {
    const ZoneAllocator::Zone& zone = context_.allocator.zone(info.zone);
    const auto store = std::ranges::find_if(
        stores_, [&](const auto& each) { return each->info().id == zone.owner; });
    if (zone.use == ZoneUse::lent || zone.owner == 0 || store == stores_.end()) continue;
    // What the device still works on is neither whole nor damaged.
    info.written_lbas = std::min(info.written_lbas, (*store)->log().written_lba(info.zone));
    if (zone.use == ZoneUse::resetting || info.written_lbas == 0) continue;
    const ZoneRead read = [&](std::uint64_t lba, std::uint32_t lbas) {
      return reader.read(info.zone, lba, lbas);
    };
    const ZoneSurvey found = survey(surveyed(info), read);
    if (!found.version.ok()) return found.version;
    // One that is kept as it is may be of another life than its batch headers say.
    const bool rebuildable = zone.use != ZoneUse::bad && is_rebuildable(found);
    ZoneFindings(info.zone, report)
        .structures(found, context_.tables[info.zone.value], rebuildable);
    if (!options.pages) continue;
    for (const SurveyedSegment& segment : found.segments) {
      for (const SurveyedBatch& batch : segment.batches) {
        for (const PageRecord& record : batch.records) {
          check_page(info.zone, record, (*store)->log(), read, report);
        }
      }
    }
  }
  return report;
}

}  // namespace furrow
