// FaultDevice: what a power cut leaves.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "zone/blocking.h"
#include "zone/fault_device.h"

namespace furrow {

namespace {
constexpr std::size_t kSectorBytes = 512;
}  // namespace

Status FaultDevice::power_cut(CrashModel model) {
  const std::lock_guard lock(mutex_);
  if (!dead_) cut_status_ = cut_now(model);
  return cut_status_;
}

// In random order: survivors of different zones have nothing to do with each other.
Status FaultDevice::cut_now(CrashModel model) {
  dead_ = true;
  std::vector<std::uint32_t> zones(geometry_.zone_count);
  std::iota(zones.begin(), zones.end(), 0u);
  std::ranges::shuffle(zones, random_);
  for (const std::uint32_t i : zones) {
    if (!media_[i].dirty()) continue;
    Result<Survivor> survivor = model == CrashModel::drive
                                    ? Result<Survivor>(survive_drive(media_[i]))
                                    : survive_emu(ZoneId{i}, media_[i]);
    if (!survivor) return survivor.status();
    const Status status = apply(ZoneId{i}, *survivor);
    // The resets that would have made room did not survive: then neither did this.
    if (!status.ok() && status.code() != Code::too_many_zones) return status;
  }
  Io flush;
  flush.op = Io::Op::flush;
  return run_blocking(*inner_queue_, flush);
}

FaultDevice::Survivor FaultDevice::survive_drive(const Media& media) {
  Survivor survivor;
  survivor.offset = media.base();
  if (media.was_reset) {
    if (random_() % 4 == 0) return survivor;  // nothing of it
    survivor.reset = true;
  }
  const std::uint64_t lbas = media.tail.size() / geometry_.lba_bytes;
  // All and nothing are as likely as all lengths between together.
  const std::uint64_t choice = random_() % 4;
  const std::uint64_t kept = choice == 0 ? 0 : choice == 1 ? lbas : random_() % (lbas + 1);
  const auto bytes = static_cast<std::ptrdiff_t>(kept * geometry_.lba_bytes);
  survivor.data.assign(media.tail.begin(), media.tail.begin() + bytes);
  if (kept != 0 && random_() % 4 == 0) {
    const std::size_t torn = 1 + random_() % (geometry_.lba_bytes / kSectorBytes);
    scribble(std::span(survivor.data).last(torn * kSectorBytes));
  }
  survivor.finish = media.full && kept == lbas && random_() % 2 == 0;
  return survivor;
}

// The record is chosen first; the data below its write pointer is what the sectors of the unflushed
// writes left, over what was there before.
Result<FaultDevice::Survivor> FaultDevice::survive_emu(ZoneId zone, const Media& media) {
  const std::uint64_t lba_bytes = geometry_.lba_bytes;
  constexpr double kLikelihoods[] = {0, 0.1, 0.5, 0.9, 1};
  const double survives = kLikelihoods[random_() % std::size(kLikelihoods)];
  ZoneRecord record{media.durable_full ? ZoneRecord::Class::full : ZoneRecord::Class::writable,
                    media.durable_generation, media.durable_lbas};
  const std::uint64_t choice = random_() % 3;
  if (choice == 0 && !media.history.empty()) record = media.history.back();
  if (choice == 1 && !media.history.empty())
    record = media.history[random_() % media.history.size()];
  const bool old_generation = media.was_reset && record.generation == media.durable_generation;
  std::vector<std::byte> old(media.durable_lbas * lba_bytes);
  const Status status =
      inner_transfer(Io::Op::read, geometry_.zone_start(zone), old.data(), media.durable_lbas);
  if (!status.ok()) return status;
  const std::uint64_t base = media.base();
  if (!media.was_reset) record.written_lbas = std::max(record.written_lbas, base);

  Survivor survivor;
  survivor.finish = record.kind == ZoneRecord::Class::full;
  survivor.reset = media.was_reset;
  survivor.offset = base;
  survivor.data.resize((record.written_lbas - base) * lba_bytes);
  const std::vector<std::byte> nothing(lba_bytes);
  for (std::uint64_t lba = base; lba < record.written_lbas; ++lba) {
    const std::span<std::byte> to(survivor.data.data() + (lba - base) * lba_bytes, lba_bytes);
    const bool had_old = media.was_reset && lba < media.durable_lbas;
    const std::span<const std::byte> before(had_old ? old.data() + lba * lba_bytes : nothing.data(),
                                            lba_bytes);
    if ((lba - base) * lba_bytes < media.tail.size()) {
      std::memcpy(to.data(), media.tail.data() + (lba - base) * lba_bytes, lba_bytes);
      decay(to, before, survives);
    } else if (old_generation || random_() % 2 == 0) {
      std::memcpy(to.data(), before.data(), lba_bytes);
    }
  }
  return survivor;
}

// One LBA of unflushed data, sector by sector: survives, or not.
void FaultDevice::decay(std::span<std::byte> lba, std::span<const std::byte> old, double survives) {
  const bool torn = random_() % 8 == 0;
  const bool whole = chance(survives);
  const std::uint64_t loss = random_() % 4;  // zeroes and old bytes are likelier than garbage
  for (std::size_t at = 0; at < lba.size(); at += kSectorBytes) {
    if (torn ? random_() % 2 == 0 : whole) continue;
    const std::span<std::byte> sector = lba.subspan(at, kSectorBytes);
    if (loss == 0) {
      scribble(sector);
    } else if (loss == 1) {
      std::memset(sector.data(), 0, sector.size());
    } else {
      std::memcpy(sector.data(), old.data() + at, sector.size());
    }
  }
}

void FaultDevice::scribble(std::span<std::byte> bytes) {
  for (std::byte& each : bytes) each = static_cast<std::byte>(random_());
}

Status FaultDevice::apply(ZoneId zone, const Survivor& survivor) {
  if (survivor.reset) {
    const Status status = inner_manage(Io::Op::reset, zone);
    if (!status.ok()) return status;
  }
  if (!survivor.data.empty()) {
    const Lba at{geometry_.zone_start(zone).value + survivor.offset};
    std::vector<std::byte> data = survivor.data;
    const Status status =
        inner_transfer(Io::Op::write, at, data.data(), data.size() / geometry_.lba_bytes);
    if (!status.ok()) return status;
  }
  return survivor.finish ? inner_manage(Io::Op::finish, zone) : Status();
}

}  // namespace furrow
