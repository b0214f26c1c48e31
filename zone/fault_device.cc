#include "zone/fault_device.h"

#include <algorithm>
#include <cstring>

#include "zone/blocking.h"

namespace furrow {

namespace {

constexpr std::uint16_t kWriteFault = 0x280;  // NVMe media errors
constexpr std::uint16_t kUnrecoveredReadError = 0x281;
constexpr std::size_t kHistoryMax = 1024;
constexpr unsigned kInnerDepth = 32;
constexpr std::uint64_t kTransferMaxBytes = 1u << 20;

ZoneRecord record_of(const ZoneInfo& info) {
  ZoneRecord record{ZoneRecord::Class::writable, 0, info.written_lbas};
  if (info.state == ZoneState::full) record.kind = ZoneRecord::Class::full;
  if (info.state == ZoneState::read_only) record.kind = ZoneRecord::Class::read_only;
  if (info.state == ZoneState::offline) record.kind = ZoneRecord::Class::offline;
  return record;
}

}  // namespace

FaultDevice::FaultDevice(std::unique_ptr<ZonedDevice> inner, const FaultOptions& options)
    : ZonedDevice(inner->geometry(), inner->uri()),
      options_(options),
      inner_(std::move(inner)),
      table_(geometry_, this),
      random_(options.seed),
      media_(geometry_.zone_count) {
  FURROW_CHECK(options_.latency_us == 0 || options_.clock != nullptr);
  auto queue = inner_->create_queue(kInnerDepth);
  const Result<std::vector<ZoneInfo>> zones = inner_->report();
  if (!queue || !zones) {  // then every operation is aborted, and create_queue() says why
    dead_ = true;
    cut_status_ = queue ? zones.status() : queue.status();
    return;
  }
  inner_queue_ = std::move(*queue);
  for (const ZoneInfo& info : *zones) {
    const ZoneRecord record = record_of(info);
    table_.load(info.zone, record, info.reason);
    Media& media = media_[info.zone.value];
    media.durable_lbas = record.written_lbas;
    media.durable_full = media.full = info.state == ZoneState::full;
  }
}

FaultDevice::~FaultDevice() = default;

Result<std::unique_ptr<IoQueue>> FaultDevice::create_queue(unsigned) {
  if (!cut_status_.ok()) return cut_status_;
  return std::unique_ptr<IoQueue>(std::make_unique<FaultQueue>(*this));
}

Result<std::vector<ZoneInfo>> FaultDevice::report() {
  if (dead()) return Status(Code::aborted, Origin::zone, "the power was cut");
  return table_.report();
}

bool FaultDevice::dead() const {
  const std::lock_guard lock(mutex_);
  return dead_;
}

std::unique_ptr<ZonedDevice> FaultDevice::take_inner() {
  const std::lock_guard lock(mutex_);
  dead_ = true;
  inner_queue_.reset();
  return std::move(inner_);
}

void FaultDevice::fail_reads(Lba first, std::uint64_t lba_count) {
  const std::lock_guard lock(mutex_);
  bad_.push_back({first, lba_count, false});
}

void FaultDevice::fail_writes(Lba first, std::uint64_t lba_count) {
  const std::lock_guard lock(mutex_);
  bad_.push_back({first, lba_count, true});
}

void FaultDevice::fail_read_once(Lba lba) {
  const std::lock_guard lock(mutex_);
  bad_.push_back({lba, 1, false, true});
}

void FaultDevice::heal() {
  const std::lock_guard lock(mutex_);
  bad_.clear();
}

void FaultDevice::fail_flushes(unsigned next) {
  const std::lock_guard lock(mutex_);
  flushes_to_fail_ = next;
}

void FaultDevice::pull_out() {
  const std::uint64_t lbas = geometry().zone_size_lbas * geometry().zone_count;
  fail_reads(Lba{0}, lbas);
  fail_writes(Lba{0}, lbas);
  pulled_out_.store(true);
}

void FaultDevice::degrade(ZoneId zone, ZoneState state) {
  table_.degrade(zone, state, "taken away by the fault device");
  zones_taken_.fetch_add(1);
}

void FaultDevice::cut_after(std::uint64_t lbas, CrashModel model) {
  const std::lock_guard lock(mutex_);
  cut_after_lbas_ = lbas;
  cut_model_ = model;
}

std::uint64_t FaultDevice::unflushed_bytes() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t bytes = 0;
  for (const Media& media : media_) bytes += media.tail.size();
  return bytes;
}

// The table tells of each change of a zone that a medium would have to remember.
Status FaultDevice::save(ZoneId zone, const ZoneRecord& record) {
  const std::lock_guard lock(mutex_);
  Media& media = media_[zone.value];
  if (record.generation != media.generation) {
    media.generation = record.generation;
    media.was_reset = true;
    media.tail.clear();
    const std::uint64_t start = geometry_.zone_start(zone).value;
    std::erase_if(bad_, [&](const BadRange& bad) {
      return bad.first.value >= start && bad.first.value < start + geometry_.zone_size_lbas;
    });
  }
  media.full =
      record.kind == ZoneRecord::Class::full || record.written_lbas == geometry_.zone_capacity_lbas;
  if (media.history.size() < kHistoryMax) {
    media.history.push_back(record);
  } else {
    media.history[random_() % kHistoryMax] = record;
  }
  return {};
}

void FaultDevice::take_write(const Io& io, Lba at) {
  if (dead_) return;
  Media& media = media_[io.zone.value];
  std::uint64_t byte =
      (at.value - geometry_.zone_start(io.zone).value - media.base()) * geometry_.lba_bytes;
  std::vector<std::byte>& tail = media.tail;
  if (tail.capacity() == 0) {  // else it would move, and double, write after write
    tail.reserve(std::min(geometry_.zone_capacity_lbas * geometry_.lba_bytes, kTransferMaxBytes));
  }
  if (tail.size() < byte) tail.resize(byte);
  for (std::uint32_t i = 0; i < io.iov_count; ++i) {
    const auto* const data = static_cast<const std::byte*>(io.iov[i].iov_base);
    const std::size_t bytes = io.iov[i].iov_len;
    const std::size_t over = std::min(bytes, tail.size() - byte);
    if (over != 0) std::memcpy(tail.data() + byte, data, over);
    tail.insert(tail.end(), data + over, data + bytes);
    byte += bytes;
  }
  if (cut_after_lbas_ == 0) return;
  if (cut_after_lbas_ <= io.lba_count) {
    cut_status_ = cut_now(cut_model_);
  } else {
    cut_after_lbas_ -= io.lba_count;
  }
}

bool FaultDevice::chance(double probability) {
  return probability > 0 && std::uniform_real_distribution<>()(random_) < probability;
}

bool FaultDevice::hits_bad_range(Lba at, std::uint64_t lba_count, bool write) {
  const auto hit = std::ranges::find_if(bad_, [&](const BadRange& bad) {
    return bad.write == write && at.value < bad.first.value + bad.lba_count &&
           bad.first.value < at.value + lba_count;
  });
  if (hit == bad_.end()) return false;
  if (hit->once) bad_.erase(hit);
  return true;
}

Status FaultDevice::perform(Io& io, Lba at, std::uint64_t bytes) {
  switch (io.op) {
    case Io::Op::read:
      if (chance(options_.read_error) || hits_bad_range(at, io.lba_count, false)) {
        return Status(Code::io_error, Origin::zone, "the medium cannot be read here", 0,
                      kUnrecoveredReadError);
      }
      return read(io, at, bytes);
    case Io::Op::flush:
      if (flushes_to_fail_ != 0 || chance(options_.flush_error)) {
        flushes_to_fail_ -= flushes_to_fail_ != 0 ? 1 : 0;
        return Status(Code::io_error, Origin::zone, "the flush failed");
      }
      return flush();
    default:
      if (chance(options_.write_error) || hits_bad_range(at, io.lba_count, true)) {
        return Status(Code::io_error, Origin::zone, "the medium cannot be written here", 0,
                      kWriteFault);
      }
      return {};
  }
}

// `bytes`: the part below the write pointer; zeroes are in place behind it.
Status FaultDevice::read(Io& io, Lba at, std::uint64_t bytes) {
  const ZoneId zone = geometry_.zone_of(at);
  const Media& media = media_[zone.value];
  const std::uint64_t base = media.base() * geometry_.lba_bytes;
  std::uint64_t from = (at.value - geometry_.zone_start(zone).value) * geometry_.lba_bytes;
  for (std::uint32_t i = 0; i < io.iov_count && bytes != 0; ++i) {
    auto* to = static_cast<std::byte*>(io.iov[i].iov_base);
    const std::uint64_t length = std::min<std::uint64_t>(bytes, io.iov[i].iov_len);
    const std::uint64_t below = from < base ? std::min(length, base - from) : 0;
    if (below != 0) {
      const Lba lba{geometry_.zone_start(zone).value + from / geometry_.lba_bytes};
      const Status status = inner_transfer(Io::Op::read, lba, to, below / geometry_.lba_bytes);
      if (!status.ok()) return status;
    }
    if (below != length) {
      // A reset since the read was submitted leaves less than was asked for: zeroes.
      const std::uint64_t skip = from + below - base;
      const std::uint64_t there = media.tail.size() > skip ? media.tail.size() - skip : 0;
      const std::uint64_t copied = std::min(there, length - below);
      if (copied != 0) std::memcpy(to + below, media.tail.data() + skip, copied);
      std::memset(to + below + copied, 0, length - below - copied);
    }
    from += length;
    bytes -= length;
  }
  return {};
}

// Resets come first, then zones that end full: so the inner device never needs more active zones
// than there were here at some moment.
Status FaultDevice::flush() {
  const auto pass = [this](auto&& wanted, bool resets_only) {
    for (std::uint32_t i = 0; i < geometry_.zone_count; ++i) {
      if (!media_[i].dirty() || !wanted(media_[i])) continue;
      const Status status = commit(ZoneId{i}, resets_only);
      if (!status.ok()) return status;
    }
    return Status();
  };
  Status status = pass([](const Media& media) { return media.was_reset; }, true);
  if (status.ok()) {
    status = pass([](const Media& media) { return media.full && media.durable_lbas != 0; }, false);
  }
  if (status.ok()) status = pass([](const Media& media) { return media.full; }, false);
  if (status.ok()) status = pass([](const Media&) { return true; }, false);
  if (!status.ok()) return status;
  Io io;
  io.op = Io::Op::flush;
  return run_blocking(*inner_queue_, io);
}

Status FaultDevice::commit(ZoneId zone, bool resets_only) {
  Media& media = media_[zone.value];
  const ZoneInfo info = table_.info(zone);
  if (info.state == ZoneState::offline) return {};
  if (media.was_reset) {
    const Status status = inner_manage(Io::Op::reset, zone);
    if (!status.ok()) return status;
    media.was_reset = false;
    media.durable_generation = media.generation;
    media.durable_lbas = 0;
    media.durable_full = false;
    // Of its lives before nothing comes back, also where there is nothing else to flush.
    std::erase_if(media.history,
                  [&](const ZoneRecord& record) { return record.generation != media.generation; });
  }
  if (resets_only) return {};
  // Writes in flight are not covered, and what lies behind one cannot be acknowledged yet.
  const std::uint64_t written = table_.written_lbas(zone);
  const std::uint64_t lbas = written > media.durable_lbas ? written - media.durable_lbas : 0;
  if (lbas != 0) {
    const Lba at{geometry_.zone_start(zone).value + media.durable_lbas};
    const Status status = inner_transfer(Io::Op::write, at, media.tail.data(), lbas);
    if (!status.ok()) return status;
    const auto bytes = static_cast<std::ptrdiff_t>(lbas * geometry_.lba_bytes);
    media.tail.erase(media.tail.begin(), media.tail.begin() + bytes);
    media.durable_lbas = written;
    if (written == geometry_.zone_capacity_lbas) media.durable_full = true;
  }
  if (media.full && !media.durable_full) {
    const Status status = inner_manage(Io::Op::finish, zone);
    if (!status.ok()) return status;
    media.durable_full = true;
    media.tail.clear();  // of writes that failed
  }
  media.history.clear();
  media.history.push_back({media.full ? ZoneRecord::Class::full : ZoneRecord::Class::writable,
                           media.generation, written});
  return {};
}

Status FaultDevice::inner_manage(Io::Op op, ZoneId zone) {
  Io io;
  io.op = op;
  io.zone = zone;
  return run_blocking(*inner_queue_, io);
}

// Through an aligned buffer, in bounded pieces.
Status FaultDevice::inner_transfer(Io::Op op, Lba at, std::byte* data, std::uint64_t lbas) {
  const std::uint64_t piece_lbas =
      std::min<std::uint64_t>(lbas, kTransferMaxBytes / geometry_.lba_bytes);
  const std::size_t piece_bytes = piece_lbas * geometry_.lba_bytes;
  if (transfer_.size() < piece_bytes) transfer_ = AlignedBuffer(piece_bytes);
  while (lbas != 0) {
    const std::uint64_t count = std::min(lbas, piece_lbas);
    const std::size_t bytes = count * geometry_.lba_bytes;
    if (op == Io::Op::write) std::memcpy(transfer_.data(), data, bytes);
    Io io;
    io.op = op;
    io.zone = geometry_.zone_of(at);
    io.lba = at;
    io.set_data(transfer_.data(), static_cast<std::uint32_t>(count), geometry_.lba_bytes);
    const Status status = run_blocking(*inner_queue_, io);
    if (!status.ok()) return status;
    if (op == Io::Op::read) std::memcpy(data, transfer_.data(), bytes);
    data += bytes;
    at.value += count;
    lbas -= count;
  }
  return {};
}

}  // namespace furrow
