// SimMedium: what a simulated zoned device has stored, and what is left of it when the power fails.
//
// A zone has one or more lives since its last durable state: each reset begins another. Of a life
// it is known how much data was handed to the device, how far the write pointer has moved, and how
// much of that a completed flush covers. crash() decides the rest by one of two models:
//
// drive: a zone keeps one of its lives (a reset may not have happened yet) and of that a prefix, at
//   any LBA between what is durable and what was handed over; the last LBA may be torn; a finish
//   that was not flushed did or did not happen.
// emu: a zone's record (life, write pointer, full) is any that it had since the last flush, or, as
//   where its data tells how far it is written, lies anywhere up to the end of what was handed
//   over; and of the data any 512-byte sectors survived, independently of the record; the others
//   hold what was there before.
//
// A killed process loses nothing that the device has acknowledged, whatever the model; of what it
// had not, a prefix is there, or (emu_kill) any sectors are.
// Not thread-safe. Positions are LBAs from the zone's start.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tests/sim/sim_random.h"
#include "zone/types.h"
#include "zone/zone_table.h"

namespace furrow::sim {

enum class Crash : std::uint8_t { drive, emu, kill, emu_kill };

class SimMedium {
 public:
  explicit SimMedium(const Geometry& geometry);

  const Geometry& geometry() const { return geometry_; }
  // As of the last crash(), or anew.
  ZoneRecord record(ZoneId zone) const;

  // What a zone holds, to be tampered with; empty unless all of it is durable.
  std::span<std::byte> durable_data(ZoneId zone);
  std::span<const std::byte> durable_data(ZoneId zone) const;

  // What the device does while the power is on.
  void hand_over(ZoneId zone, std::uint64_t at, std::uint64_t from_byte,
                 std::span<const std::byte> bytes);
  void set_record(ZoneId zone, const ZoneRecord& record);
  void read(ZoneId zone, std::uint64_t at, std::span<std::byte> to) const;
  void lose_zone(ZoneId zone, ZoneRecord::Class how) { zones_[zone.value].lost = how; }
  // Zone-relative: where writing ends. It only shrinks.
  std::uint64_t capacity(ZoneId zone) const { return zones_[zone.value].capacity; }
  void shrink(ZoneId zone, std::uint64_t lbas) {
    zones_[zone.value].capacity = lbas;
    ++shrunk_zones_;
  }
  std::uint64_t shrunk_zones() const { return shrunk_zones_; }
  // An LBA of a zone cannot be read until the zone is reset.
  void spoil(ZoneId zone, std::uint64_t at);
  void unspoil(ZoneId zone, std::uint64_t at) {
    std::erase(zones_[zone.value].lives.back().spoiled, at);
  }
  std::span<const std::uint64_t> spoiled(ZoneId zone) const {
    return zones_[zone.value].lives.back().spoiled;
  }
  // Half of what was handed over there is not what it should be.
  void garble(ZoneId zone, std::uint64_t at, std::uint64_t lbas, SimRandom& random);

  // A flush covers what was acknowledged when it was given to the device: mark() then, commit()
  // when it is done.
  struct Mark {
    std::uint32_t zone = 0;
    std::uint32_t generation = 0;
    std::uint64_t written = 0;
    bool full = false;
  };
  std::vector<Mark> mark() const;
  void commit(std::span<const Mark> marks);

  // Unflushed data behind the write pointer that a crash left stays on the medium, where a later
  // crash of the same kind may bring it to light. (Of interest for emu only: and emu: voids it when
  // it is opened, without which the engine fails.)
  void keep_stale_tails(bool keep) { stale_tails_ = keep; }

  // The device starts anew with what is left.
  void crash(Crash how, SimRandom& random);

 private:
  struct Life {
    std::uint32_t generation = 0;
    std::vector<std::byte> data;  // handed over
    std::uint64_t written = 0;    // write pointer as acknowledged
    std::uint64_t durable = 0;
    bool full = false, durable_full = false;
    std::vector<std::uint64_t> pointers;  // that the record has had since `durable`
    std::vector<std::uint64_t> spoiled;   // LBAs
  };
  struct Zone {
    std::vector<Life> lives;         // at least one; the first has the durable state
    std::vector<std::byte> residue;  // what earlier lives left on the medium
    std::uint64_t capacity = 0;      // LBAs
    ZoneRecord::Class lost = ZoneRecord::Class::writable;  // read_only, offline: it was taken away
  };

  bool active(const Zone& zone) const;
  bool dirty(const Zone& zone) const;
  void limit_active(std::uint32_t active_zones, std::span<const Life> before, Crash how,
                    SimRandom& random);
  void forget_end(Life& life) const;
  void leave_residue(Zone& zone, std::vector<std::byte> data);
  Life survive_drive(const Zone& zone, bool torn, SimRandom& random) const;
  Life survive_emu(const Zone& zone, SimRandom& random) const;
  void decay(const Zone& zone, const Life& record, std::span<std::byte> data,
             SimRandom& random) const;
  std::uint64_t lbas(const Life& life) const { return life.data.size() / geometry_.lba_bytes; }
  static std::size_t pick_life(const Zone& zone, SimRandom& random);

  const Geometry geometry_;
  std::vector<Zone> zones_;
  std::uint64_t shrunk_zones_ = 0;
  bool stale_tails_ = false;
};

}  // namespace furrow::sim
