// How the metadata ring's zones are read: through a window, and patiently.
#include <algorithm>

#include "log/metadata_scan.h"
#include "zone/blocking.h"

namespace furrow {

namespace {

constexpr std::uint64_t kWindowBytes = 256 << 10;
constexpr unsigned kTries = 3;  // a device may fail to read in passing

}  // namespace

bool is_zero(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; });
}

ZoneReader::ZoneReader(IoQueue& queue, const Geometry& geometry, const ZoneInfo& info)
    : queue_(queue), geometry_(geometry), info_(info) {
  // A full zone was written somewhere up to its capacity: finished early, perhaps.
  if (info.state == ZoneState::offline) return;
  const bool unknown = info.state == ZoneState::full || info.state == ZoneState::read_only;
  written_ = unknown ? geometry.zone_capacity_lbas
                     : std::min(info.written_lbas, geometry.zone_capacity_lbas);
}

Status ZoneReader::read(std::uint64_t at, std::uint64_t count, std::byte* into) {
  Io io;
  io.op = Io::Op::read;
  io.lba = Lba{geometry_.zone_start(info_.zone).value + at};
  io.set_data(into, static_cast<std::uint32_t>(count), geometry_.lba_bytes);
  return run_blocking(queue_, io);
}

Status ZoneReader::read_patiently(std::uint64_t at, std::uint64_t count, std::byte* into) {
  Status status = read(at, count, into);
  for (unsigned tries = 1; !status.ok() && tries < kTries; ++tries) status = read(at, count, into);
  return status;
}

std::span<const std::byte> ZoneReader::lba(std::uint64_t at) {
  const std::uint32_t lba_bytes = geometry_.lba_bytes;
  if (at < window_at_ || at >= window_at_ + window_lbas_) {
    if (window_.size() == 0) window_ = AlignedBuffer(std::min(kWindowBytes, written_ * lba_bytes));
    window_at_ = at;
    window_lbas_ = std::min(kWindowBytes / lba_bytes, written_ - at);
    if (!read(at, window_lbas_, window_.data()).ok()) {
      window_lbas_ = 1;  // one bad LBA must not hide its neighbours
      if (!read_patiently(at, 1, window_.data()).ok()) {
        window_lbas_ = 0;
        return {};
      }
    }
  }
  return window_.span().subspan((at - window_at_) * lba_bytes, lba_bytes);
}

std::span<const std::byte> ZoneReader::lbas(std::uint64_t at, std::uint64_t count) {
  const std::uint32_t lba_bytes = geometry_.lba_bytes;
  large_ = AlignedBuffer(count * lba_bytes);
  for (std::uint64_t done = 0; done < count;) {
    const std::uint64_t piece = std::min(count - done, kWindowBytes / lba_bytes);
    if (!read_patiently(at + done, piece, large_.data() + done * lba_bytes).ok()) return {};
    done += piece;
  }
  return large_.span();
}

bool ZoneReader::is_unused_from(std::uint64_t at) {
  if (info_.state != ZoneState::full && info_.state != ZoneState::read_only) return false;
  if (lba(at).empty()) return false;
  const std::uint64_t skip = (at - window_at_) * geometry_.lba_bytes;
  return is_zero(window_.span().first(window_lbas_ * geometry_.lba_bytes).subspan(skip));
}

std::uint64_t section_lbas(const Geometry& geometry, const PoolState& state) {
  return geometry.lbas(checkpoint_bytes(state)) + kSectionBesides;
}

std::uint64_t checkpoint_lbas_max(const Geometry& geometry) {
  constexpr std::uint64_t kRecordsMin = 4;
  constexpr std::uint64_t kBesides = kSections * kSectionBesides + kRecordsMin * kJournalCopies;
  const std::uint64_t room =
      geometry.zone_capacity_lbas - std::min(geometry.zone_capacity_lbas, kBesides);
  return std::min(room / kSections, kCheckpointBytesMax / geometry.lba_bytes);
}

}  // namespace furrow
