#include "tests/sim/sim_medium.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace furrow::sim {

namespace {

constexpr std::size_t kSectorBytes = 512;

void scribble(std::span<std::byte> bytes, SimRandom& random) {
  for (std::byte& each : bytes) each = static_cast<std::byte>(random.next());
}

}  // namespace

SimMedium::SimMedium(const Geometry& geometry) : geometry_(geometry), zones_(geometry.zone_count) {
  for (Zone& zone : zones_) {
    zone.lives.resize(1);
    zone.capacity = geometry.zone_capacity_lbas;
  }
}

ZoneRecord SimMedium::record(ZoneId zone) const {
  const Zone& of = zones_[zone.value];
  const Life& life = of.lives.back();
  ZoneRecord record{of.lost, life.generation, life.written};
  if (record.kind == ZoneRecord::Class::writable && life.full) {
    record.kind = ZoneRecord::Class::full;
  }
  return record;
}

void SimMedium::hand_over(ZoneId zone, std::uint64_t at, std::uint64_t from_byte,
                          std::span<const std::byte> bytes) {
  std::vector<std::byte>& data = zones_[zone.value].lives.back().data;
  const std::uint64_t begin = at * geometry_.lba_bytes + from_byte;
  if (data.capacity() == 0) data.reserve(geometry_.zone_capacity_bytes());
  if (data.size() < begin + bytes.size()) data.resize(begin + bytes.size());
  std::memcpy(data.data() + begin, bytes.data(), bytes.size());
}

void SimMedium::set_record(ZoneId zone, const ZoneRecord& record) {
  Zone& of = zones_[zone.value];
  if (of.lives.back().generation != record.generation) {
    of.lives.emplace_back();
    of.lives.back().generation = record.generation;
  }
  Life& life = of.lives.back();
  life.written = record.written_lbas;
  life.full =
      record.kind == ZoneRecord::Class::full || record.written_lbas == geometry_.zone_capacity_lbas;
  life.pointers.push_back(record.written_lbas);
}

void SimMedium::read(ZoneId zone, std::uint64_t at, std::span<std::byte> to) const {
  const std::vector<std::byte>& data = zones_[zone.value].lives.back().data;
  const std::uint64_t begin = at * geometry_.lba_bytes;
  const std::uint64_t there = data.size() > begin ? data.size() - begin : 0;
  const std::uint64_t copied = std::min<std::uint64_t>(there, to.size());
  if (copied != 0) std::memcpy(to.data(), data.data() + begin, copied);
  std::memset(to.data() + copied, 0, to.size() - copied);
}

void SimMedium::spoil(ZoneId zone, std::uint64_t at) {
  zones_[zone.value].lives.back().spoiled.push_back(at);
}

void SimMedium::garble(ZoneId zone, std::uint64_t at, std::uint64_t lbas, SimRandom& random) {
  const std::span all(zones_[zone.value].lives.back().data);
  const std::uint64_t skip = random.below(lbas);
  scribble(all.subspan((at + skip) * geometry_.lba_bytes, (lbas - skip) * geometry_.lba_bytes),
           random);
}

std::span<std::byte> SimMedium::durable_data(ZoneId zone) {
  Zone& of = zones_[zone.value];
  if (dirty(of)) return {};
  return of.lives.back().data;
}

std::span<const std::byte> SimMedium::durable_data(ZoneId zone) const {
  return const_cast<SimMedium*>(this)->durable_data(zone);
}

std::vector<SimMedium::Mark> SimMedium::mark() const {
  std::vector<Mark> marks;
  for (std::uint32_t i = 0; i < zones_.size(); ++i) {
    const Zone& zone = zones_[i];
    const Life& life = zone.lives.back();
    if (zone.lives.size() == 1 && life.durable == life.written && life.durable_full == life.full) {
      continue;
    }
    marks.push_back({i, life.generation, life.written, life.full});
  }
  return marks;
}

void SimMedium::commit(std::span<const Mark> marks) {
  for (const Mark& mark : marks) {
    Zone& zone = zones_[mark.zone];
    const auto life = std::ranges::find(zone.lives, mark.generation, &Life::generation);
    if (life == zone.lives.end()) continue;  // a flush that was faster has covered a later life
    life->durable = std::max(life->durable, mark.written);
    life->durable_full |= mark.full;
    std::erase_if(life->pointers, [&](std::uint64_t each) { return each <= life->durable; });
    for (auto old = zone.lives.begin(); old != life; ++old)
      leave_residue(zone, std::move(old->data));
    zone.lives.erase(zone.lives.begin(), life);
  }
}

void SimMedium::leave_residue(Zone& zone, std::vector<std::byte> data) {
  if (data.size() >= zone.residue.size()) {
    zone.residue = std::move(data);
  } else {
    std::ranges::copy(data, zone.residue.begin());
  }
}

bool SimMedium::active(const Zone& zone) const {
  const Life& life = zone.lives.back();
  return zone.lost == ZoneRecord::Class::writable && !life.full && life.written != 0;
}

std::size_t SimMedium::pick_life(const Zone& zone, SimRandom& random) {
  const std::size_t last = zone.lives.size() - 1;
  return last == 0 || !random.one_in(4) ? last : random.below(last + 1);
}

SimMedium::Life SimMedium::survive_drive(const Zone& zone, bool torn, SimRandom& random) const {
  const Life& from = zone.lives[pick_life(zone, random)];
  const std::uint64_t most = lbas(from);
  // All and nothing are as likely as all lengths between together.
  const std::uint64_t choice = random.below(4);
  const std::uint64_t kept = choice == 0   ? from.durable
                             : choice == 1 ? most
                                           : random.between(from.durable, most);
  Life life;
  life.generation = from.generation;
  life.spoiled = from.spoiled;
  life.data.reserve(geometry_.zone_capacity_bytes());
  life.data.assign(from.data.begin(),
                   from.data.begin() + static_cast<std::ptrdiff_t>(kept * geometry_.lba_bytes));
  if (torn && kept > from.durable && random.one_in(4)) {
    const std::size_t sectors = random.between(1, geometry_.lba_bytes / kSectorBytes);
    scribble(std::span(life.data).last(sectors * kSectorBytes), random);
  }
  life.written = life.durable = kept;
  // It may have been finished, and what was written before that be lost.
  life.full =
      from.durable_full || kept == geometry_.zone_capacity_lbas || (from.full && random.one_in(2));
  return life;
}

SimMedium::Life SimMedium::survive_emu(const Zone& zone, SimRandom& random) const {
  const Life& from = zone.lives[pick_life(zone, random)];
  const std::uint64_t choice = random.below(4);
  std::uint64_t written = from.durable;
  if (choice == 3) written = random.between(from.durable, lbas(from));
  if (choice == 0) written = from.written;
  if (choice == 1 && !from.pointers.empty()) {
    written = std::max(written, from.pointers[random.below(from.pointers.size())]);
  }
  Life life;
  life.generation = from.generation;
  life.spoiled = from.spoiled;
  life.data.reserve(geometry_.zone_capacity_bytes());
  life.data.resize(written * geometry_.lba_bytes);
  decay(zone, from, life.data, random);
  life.written = life.durable = written;
  life.full = from.durable_full || written == geometry_.zone_capacity_lbas ||
              (from.full && written == from.written && random.one_in(2));
  return life;
}

// `data` becomes what the medium holds below the write pointer of `record`: of each sector the last
// of its writes that survived.
void SimMedium::decay(const Zone& zone, const Life& record, std::span<std::byte> data,
                      SimRandom& random) const {
  constexpr std::uint64_t kSurvivePercent[] = {0, 10, 50, 90, 100};
  const std::uint64_t survives = kSurvivePercent[random.below(std::size(kSurvivePercent))];
  const std::size_t lba_bytes = geometry_.lba_bytes;
  for (std::size_t at = 0; at < data.size(); at += lba_bytes) {
    const std::uint64_t lba = at / lba_bytes;
    std::byte* const to = data.data() + at;
    const auto copy = [&](const std::vector<std::byte>& from, std::size_t sector) {
      const std::size_t begin = at + sector * kSectorBytes;
      if (begin + kSectorBytes > from.size())
        return std::memset(to + sector * kSectorBytes, 0, 512);
      return std::memcpy(to + sector * kSectorBytes, from.data() + begin, kSectorBytes);
    };
    if (&record == &zone.lives.back() && lba < record.durable) {
      std::memcpy(to, record.data.data() + at, lba_bytes);
      continue;
    }
    const bool torn = random.one_in(8);
    const bool zeroes = random.one_in(3);
    for (std::size_t sector = 0; sector < lba_bytes / kSectorBytes; ++sector) {
      if (!zeroes) copy(zone.residue, sector);
    }
    for (const Life& life : zone.lives) {
      if (lba >= lbas(life)) continue;
      const bool durable = &life == &zone.lives.front() && lba < life.durable;
      const bool whole = random.percent(survives);
      for (std::size_t sector = 0; sector < lba_bytes / kSectorBytes; ++sector) {
        if (durable || (torn ? random.one_in(2) : whole)) copy(life.data, sector);
      }
    }
  }
}

bool SimMedium::dirty(const Zone& zone) const {
  const Life& last = zone.lives.back();
  return zone.lives.size() > 1 || last.durable != last.written || last.durable != lbas(last) ||
         last.durable_full != last.full;
}

void SimMedium::crash(Crash how, SimRandom& random) {
  if (how == Crash::kill || how == Crash::emu_kill) commit(mark());
  std::vector<Life> before(zones_.size());  // without their data
  std::uint32_t active_zones = 0;
  for (std::uint32_t i = 0; i < zones_.size(); ++i) {
    Zone& zone = zones_[i];
    before[i].generation = zone.lives.back().generation;
    before[i].full = zone.lives.back().full;
    if (dirty(zone)) {
      const bool emu = how == Crash::emu || how == Crash::emu_kill;
      Life left =
          emu ? survive_emu(zone, random) : survive_drive(zone, how == Crash::drive, random);
      for (Life& life : zone.lives) {
        if (life.generation == left.generation && !stale_tails_) life.data = left.data;
        leave_residue(zone, std::move(life.data));
      }
      zone.lives.clear();
      zone.lives.push_back(std::move(left));
      zone.lives[0].durable_full = zone.lives[0].full;
    }
    active_zones += active(zone) ? 1 : 0;
    if (how == Crash::drive || how == Crash::kill) forget_end(zone.lives.back());
  }
  if (geometry_.active_zones_max != 0) limit_active(active_zones, before, how, random);
}

// A drive's full zone does not say where its data ends.
void SimMedium::forget_end(Life& life) const {
  if (!life.full) return;
  life.written = life.durable = geometry_.zone_capacity_lbas;
  life.data.resize(geometry_.zone_capacity_bytes());
}

// A device never has more active zones than it may: what made room for one has happened too.
void SimMedium::limit_active(std::uint32_t active_zones, std::span<const Life> before, Crash how,
                             SimRandom& random) {
  std::vector<std::uint32_t> order(zones_.size());
  std::iota(order.begin(), order.end(), 0u);
  random.shuffle(order);
  for (const std::uint32_t i : order) {
    if (active_zones <= geometry_.active_zones_max) break;
    if (!active(zones_[i])) continue;
    Life& now = zones_[i].lives[0];
    if (before[i].generation != now.generation) {  // its reset
      leave_residue(zones_[i], std::move(now.data));
      now = Life();
      now.generation = before[i].generation;
    } else if (before[i].full) {  // its finish
      now.full = now.durable_full = true;
      if (how == Crash::drive || how == Crash::kill) forget_end(now);
    } else {
      continue;
    }
    --active_zones;
  }
}

}  // namespace furrow::sim
