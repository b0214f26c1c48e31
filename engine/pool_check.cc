// Pool::check(): reads everything that the pool stands on, and writes nothing.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/pool_impl.h"
#include "log/segment_scan.h"
#include "zone/aligned_buffer.h"
#include "zone/blocking.h"

namespace furrow {

namespace {

// Scans a zone's structures, and reads the pages that the index points to.
class ZoneCheck {
 public:
  ZoneCheck(PoolContext& context, IoQueue& queue, PageLog& log, bool verify_pages,
            std::vector<std::string>& found)
      : context_(context), queue_(queue), log_(log), verify_pages_(verify_pages), found_(found) {}

  void run(ZoneId zone, std::uint64_t written_lbas) {
    for (std::uint64_t begin = 0; begin < written_lbas; begin += context_.segment_lbas) {
      const std::uint64_t end =
          std::min(begin + context_.segment_lbas, context_.geometry.zone_capacity_lbas);
      SegmentScan scan(
          {context_.stamp(zone), begin, end, written_lbas, context_.geometry.lba_bytes});
      while (const std::optional<SegmentScan::Read> wanted = scan.next()) {
        scan.feed(read(context_.device_lba(zone, wanted->lba), wanted->lbas));
      }
      if (scan.damaged() && end <= context_.tables[zone.value].end_lba) {
        found_.push_back(
            fmt::format("zone {}: the segment at LBA {} has a damaged summary", zone.value, begin));
      }
      if (!verify_pages_) continue;
      for (const PageRecord& record : scan.records()) check_page(zone, record);
    }
  }

 private:
  Result<std::span<const std::byte>> read(std::uint64_t lba, std::uint32_t lbas) {
    const std::size_t bytes = std::size_t{lbas} * context_.geometry.lba_bytes;
    if (buffer_.size() < bytes) buffer_ = AlignedBuffer(bytes);
    Io io;
    io.op = Io::Op::read;
    io.lba = Lba{lba};
    io.set_data(buffer_.data(), lbas, context_.geometry.lba_bytes);
    const Status status = run_blocking(queue_, io);
    if (!status.ok()) return status;
    return std::span<const std::byte>(buffer_.data(), bytes);
  }

  void check_page(ZoneId zone, const PageRecord& record) {
    if (record.kind != RecordKind::page) return;
    const KeyHash hash = log_.hash(record.key);
    const std::uint64_t lba = context_.device_lba(zone, record.lba);
    std::array<IndexEntry, KeyOp::kCandidatesMax> entries;
    const unsigned count = std::min(log_.lookup(hash, entries), KeyOp::kCandidatesMax);
    const auto live =
        std::ranges::find(entries.begin(), entries.begin() + count, lba, &IndexEntry::lba);
    if (live == entries.begin() + count) return;  // dead: nobody will read it
    const auto page = read(lba, static_cast<std::uint32_t>(context_.page_lbas(record.length)));
    if (page.ok() && page_checksum(page->first(record.length), hash) == live->checksum) return;
    found_.push_back(fmt::format("zone {}: the page at LBA {} is {}", zone.value, record.lba,
                                 page.ok() ? "damaged (checksum)" : "unreadable"));
  }

  PoolContext& context_;
  IoQueue& queue_;
  PageLog& log_;
  const bool verify_pages_;
  std::vector<std::string>& found_;
  AlignedBuffer buffer_;
};

}  // namespace

Result<std::vector<std::string>> PoolImpl::check(bool verify_pages) {
  std::vector<std::string> found = damage_;
  Result<std::vector<ZoneInfo>> report = device_.report();
  if (!report.ok()) return report.status();
  Result<std::unique_ptr<IoQueue>> queue = device_.create_queue(32);
  if (!queue.ok()) return queue.status();
  for (const auto& store : stores_) {
    ZoneCheck check(context_, **queue, store->log(), verify_pages, found);
    for (const ZoneInfo& info : *report) {
      const ZoneAllocator::Zone& zone = context_.allocator.zone(info.zone);
      if (zone.owner != store->info().id) continue;
      check.run(info.zone, info.written_lbas);
    }
  }
  std::ranges::sort(found);
  found.erase(std::unique(found.begin(), found.end()),
              found.end());  // clang 14 lacks ranges::unique
  return found;
}

}  // namespace furrow
