// ZoneTable: the zone states and write pointers of an emulated device, kept by the rules of
// ZoneStateMachine, for mem: and emu: alike.
//
// Threads: any. Readers and writers that advance a write pointer in an open zone take no lock;
// what opens, closes, fills, finishes or resets a zone takes a short one.
//
// Two positions a zone: `next`, where the next write is admitted, and `written`, up to where data
// is readable. Writes are admitted in order of submission, many may be in flight, and `written`
// moves over them in that order only: it never passes a write that is not complete. So all that
// was acknowledged, and nothing else, lies below it at any time.
//
// A write that fails seals its zone: the zone becomes full as if finished, `written` stays at the
// failed write's first LBA, what lies before stays readable, and the writes behind it fail too.
// (Where the store cannot record that, it holds until the device is closed: after that the zone
// ends at the same place, or, where its data tells, behind what reached the medium of the writes
// that failed, and can be written on.)
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "zone/io.h"
#include "zone/zone_state_machine.h"

namespace furrow {

// What of a zone survives its device being closed. Open and closed zones differ only in memory.
struct ZoneRecord {
  enum class Class : std::uint8_t { writable, full, read_only, offline };
  Class kind = Class::writable;
  std::uint32_t generation = 0;  // grows with each reset
  std::uint64_t written_lbas = 0;
  bool data_tells = false;  // more may be written, as the store can see from the data
};

// Where a table keeps its records over a restart. Called with at most one thread in a zone. What
// cannot be kept is not acknowledged.
class ZoneStore {
 public:
  virtual ~ZoneStore() = default;
  virtual Status save(ZoneId zone, const ZoneRecord& record) = 0;
};

class ZoneTable {
 public:
  // `store` may be null, and outlives the table. All zones start empty, generation 0.
  ZoneTable(const Geometry& geometry, ZoneStore* store);

  // Before use: what an earlier run left. `reason` as in ZoneInfo.
  void load(ZoneId zone, const ZoneRecord& record, const char* reason = "");

  // --- writes ---
  struct Admission {
    std::uint16_t status = nvme_status::kSuccess;  // when not success, nothing was admitted
    Lba lba{};                                     // the first LBA to write
    bool held = false;   // do not touch the medium before held(zone) is false
    bool later = false;  // nothing was admitted: ask again when management of zones has ended
  };
  // Admits a write at io.lba, or an append. Each admitted write is ended exactly once, below.
  Admission admit(const Io& io);
  // The data of an admitted write at `lba` is on the medium. ok: it is readable, and recorded:
  // acknowledge it. An error: fail it so; an earlier write failed, or it cannot be recorded, which
  // seals the zone. Nothing: an earlier write is in flight, try again later. `told`: the data says
  // all that a record would (ZoneRecord::data_tells), so that none is made.
  std::optional<Status> end_write(ZoneId zone, Lba lba, std::uint64_t lba_count, bool told = false);
  // Would end_write() fail it? It need not be written then.
  bool fails(ZoneId zone, Lba lba) const {
    return lba.value - geometry_.zone_start(zone).value >= entry(zone).sealed_at.load();
  }
  // An admitted write failed: seals the zone. `reason` as in ZoneInfo.
  void fail_write(ZoneId zone, Lba lba, const char* reason);

  // The device itself takes the zone away (`state`: read_only or offline): writes in flight in it
  // fail. What a read-only zone holds stays readable.
  void degrade(ZoneId zone, ZoneState state, const char* reason);

  // --- zone management --- (op: open, close, finish, reset)
  // `busy`, when the answer is refused because writes are in flight in the zone. What cannot be
  // recorded is not done.
  Status manage(Io::Op op, ZoneId zone);

  // --- zone management that a drive does, in its own time ---
  // Takes the zone for it: until leave() no write is admitted to the zone, and nobody else may take
  // it. ok: taken; an error: what manage() would answer. Nothing: another has the zone, or what it
  // needs may be given back by another's; ask again later.
  std::optional<Status> take(Io::Op op, ZoneId zone);
  // By whoever took it, after manage() if the drive did what was asked.
  void leave(Io::Op op, ZoneId zone);

  // --- reads ---
  bool offline(ZoneId zone) const {
    return state_of(entry(zone).control.load()) == ZoneState::offline;
  }
  // LBAs from the zone's start that are readable data; beyond, there are zeroes.
  std::uint64_t written_lbas(ZoneId zone) const {
    return entry(zone).written.load(std::memory_order_acquire);
  }
  // LBAs from the zone's start that are written, or will be by writes in flight.
  std::uint64_t admitted_lbas(ZoneId zone) const { return next_of(entry(zone).control.load()); }
  ZoneInfo info(ZoneId zone) const;
  std::vector<ZoneInfo> report() const;

  // --- giving back the space of reset zones, and writing ahead of a write pointer ---
  // Which life of the zone it is, that has nothing written yet; nothing: it is not empty.
  std::optional<std::uint32_t> empty_life(ZoneId zone) const;
  // Succeeds for an empty zone, of that life if one is given. Until release(), writes to it are
  // admitted as `held`.
  bool hold_if_empty(ZoneId zone, std::optional<std::uint32_t> life = {});
  void release(ZoneId zone);
  // Succeeds for an open zone whose only write in flight ends at `end_lbas` from its start, with
  // the same effect: what is admitted from now on does not touch the medium before release().
  bool hold_behind(ZoneId zone, std::uint64_t end_lbas);
  bool held(ZoneId zone) const { return (entry(zone).control.load() & kHeld) != 0; }

 private:
  // control: next (32 bits) | writes in flight (24) | taken (1) | held (1) | state (4).
  static constexpr std::uint64_t kHeld = 1u << 4;
  static constexpr std::uint64_t kTaken = 1u << 5;
  static constexpr unsigned kInFlightShift = 8;
  static constexpr std::uint64_t kInFlightOne = std::uint64_t{1} << kInFlightShift;
  static constexpr std::uint64_t kInFlightMask = 0xFFFFFFu;
  static constexpr unsigned kNextShift = 32;
  static constexpr std::uint64_t kNotSealed = ~std::uint64_t{0};

  struct alignas(64) Entry {
    std::atomic<std::uint64_t> control{static_cast<std::uint64_t>(ZoneState::empty)};
    std::atomic<std::uint64_t> written{0};
    std::atomic<std::uint64_t> sealed_at{kNotSealed};  // writes from this offset on fail
    std::atomic<const char*> reason{""};
    std::uint32_t generation = 0;  // of whoever may save the record
    bool finished = false;         // likewise: full by finish or seal, not by its last write
  };

  static ZoneState state_of(std::uint64_t control) { return static_cast<ZoneState>(control & 0xF); }
  static std::uint64_t next_of(std::uint64_t control) { return control >> kNextShift; }
  static std::uint64_t in_flight_of(std::uint64_t control) {
    return control >> kInFlightShift & kInFlightMask;
  }
  static std::uint64_t with(std::uint64_t control, ZoneState state, std::uint64_t next) {
    return (control & ((kInFlightMask << kInFlightShift) | kHeld | kTaken)) |
           static_cast<std::uint64_t>(state) | next << kNextShift;
  }
  Entry& entry(ZoneId zone) { return entries_[zone.value]; }
  const Entry& entry(ZoneId zone) const { return entries_[zone.value]; }

  std::optional<Admission> admit_open(const Io& io);  // the way without a lock
  Admission admit_locked(const Io& io);
  void apply_locked(const ZoneView& before, const ZoneDecision& decision);
  void close_one_locked(ZoneId except);
  Status save(ZoneId zone, const Entry& entry, std::uint64_t written_lbas);
  Status save_record(ZoneId zone, const ZoneRecord& record) {
    return store_ == nullptr ? Status() : store_->save(zone, record);
  }
  Status reset_record_locked(ZoneId zone, Entry& entry);
  Status finish_record_locked(ZoneId zone, Entry& entry);
  ZoneUsage usage_locked() const;
  // Will what is being managed give back what was missing for `status`?
  bool may_pass_locked(std::uint16_t status) const;

  const Geometry geometry_;
  const ZoneStateMachine machine_;
  ZoneStore* const store_;
  std::unique_ptr<Entry[]> entries_;
  mutable std::mutex mutex_;
  std::uint32_t open_ = 0;               // under mutex_
  std::uint32_t active_ = 0;             // under mutex_
  std::uint32_t giving_back_ = 0;        // under mutex_; zones taken to close, finish or reset
  std::vector<ZoneId> implicitly_open_;  // under mutex_; oldest first
};

}  // namespace furrow
