// SimZones: a volume of kind zoned of a simulated pool: its client, which draws operations and
// keeps some in flight, and what each zone may be and hold, against which every answer and every
// report is checked. It outlives power cuts. Not thread-safe.
//
// What a zone's state allows ZoneStateMachine says, as of all that was asked for before. Whether
// there is an open or active zone left is certain when nothing else runs, or where there is no
// limit; else both answers are right, and the zone is let alone until it has come.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/zoned/zoned_session.h"
#include "tests/sim/sim_volume.h"
#include "tests/sim/swarm.h"
#include "zone/aligned_buffer.h"
#include "zone/zone_state_machine.h"

namespace furrow::sim {

class SimZones {
 public:
  // `medium`: whose bytes are written among others, the pool's structures with them.
  SimZones(World& world, const ZonesShape& shape, const SimMedium& medium);

  const std::string& name() const { return shape_.options.name; }
  const VolumeOptions& options() const { return shape_.options; }
  // It may not have been made, or be deleted already: that was cut.
  bool maybe = false;
  // False: the power failed meanwhile, or (a failure of the world's) it is not as it was left.
  bool attach(Pool& pool, Executor& executor);
  std::uint64_t id() const { return store_->info().id; }
  bool attached() const { return store_ != nullptr; }
  void detach();  // at_rest()
  bool at_rest() const { return running_ == 0 && (session_ == nullptr || session_->idle()); }

  unsigned running() const { return running_; }
  bool may_start() const { return running_ < shape_.depth; }
  void start_any();
  // Reads the next LBAs of all; false: those were the last.
  bool start_verification();
  void restart_verification();
  // Of all zones that can be written.
  void start_reset_of_all();
  bool start_filling(std::uint32_t zone);  // with an LBA, and it is finished; false: it is taken
  std::uint32_t zone_count() const { return geometry_.zone_count; }

  // From now on it holds what an end of that kind may leave.
  enum class Cut : std::uint8_t { drive, emu, kept };
  void cut(Cut how);
  // It cannot be detached any more: the process is about to end.
  void abandon();

 private:
  using Kind = ZonedOp::Kind;
  struct Cell {               // an LBA below the write pointer
    std::uint64_t hash = 0;   // of its bytes; 0: nobody knows, until it is read
    std::uint64_t acked = 0;  // tick; 0: not
    bool placed = true;       // an append's is known with its answer
    bool durable = false;
  };
  struct Life {  // from one reset to the next
    std::vector<Cell> cells;
    bool may_be_full = false;      // before they are: a finish was asked for, or a write failed
    std::uint64_t full_since = 0;  // tick at which it was known to be; 0: it is not
    bool full_durable = false;
  };
  struct Zone {
    ZoneState state = ZoneState::empty;
    Life life;
    std::vector<Life> before;      // what comes back if a reset is lost
    std::uint64_t reset_seen = 0;  // tick at which it was known to be done, though not durable
    std::uint64_t lives = 0;
    unsigned running = 0, writes = 0, appends = 0;  // without reads
    bool managing = false;                          // a finish or reset runs
    bool undecided = false;  // what runs in it may be refused or not: nothing else begins
    bool doubtful = false;   // an operation failed: what the device says counts
  };
  struct Client {
    SimZones* zones = nullptr;
    ZonedOp op;
    AlignedBuffer data;
    std::vector<std::uint64_t> hashes;  // of what it writes
    std::uint32_t zone = 0;
    std::vector<std::uint32_t> selected;  // by an operation on all
    std::uint64_t from = 0;               // tick
    bool certain = true;                  // it is answered with `expected`
    std::uint16_t expected = 0;
    ZoneState state_before = ZoneState::empty;
    std::size_t cells_before = 0;
    std::uint64_t life = 0;
    bool comparable = false;  // a read's bytes
    bool busy = false;
  };
  enum class Look : std::uint8_t { now, kept, drive, emu };  // at a zone: after what

  static ZoneAction action_of(Kind kind);
  static bool writes(Kind kind) { return kind == Kind::write || kind == Kind::append; }
  bool unlimited() const { return geometry_.open_zones_max + geometry_.active_zones_max == 0; }
  bool faulty() const { return world_.faults && !world_.healed; }
  bool as_append(const ZonedOp& op) const {
    return op.kind == Kind::append && op.count <= device_append_lbas_;
  }
  std::uint64_t start_of(std::uint32_t zone) const { return zone * geometry_.zone_size_lbas; }
  ZoneView view(std::uint32_t zone) const;
  ZoneUsage usage() const;
  std::span<std::byte> lba_of(Client& client, std::uint64_t index) const;

  Client& free_client();
  Kind draw_kind(std::uint32_t zone);
  bool may_begin(std::uint32_t zone, const ZonedOp& op) const;
  void draw_write(Client& client);
  void draw_bytes(std::span<std::byte> bytes);
  void start_read(Client& client);
  void start_change(Client& client);
  void start_all(Client& client);
  void enter(Client& client, const ZoneDecision& decision);
  unsigned learn_closings();
  void submit(Client& client);

  void answered(Client& client);
  void was_read(Client& client);
  void was_flushed(Client& client);
  void changed(Client& client);
  void changed_all(Client& client);
  void done(Client& client, std::uint32_t zone);
  void placed(Client& client, Life& life);
  bool expected(const Client& client);
  bool may_lack(const Client& client, std::uint16_t status) const;
  void settle(std::uint32_t zone);
  void check_limits();

  void adopt(std::uint32_t zone, Look look);
  void blur(Life& life, const Life& other, const ZoneInfo& info, Look look) const;
  bool fits(const Life& life, const ZoneInfo& info, Look look) const;
  void take(Zone& zone, Life life, const ZoneInfo& info, Look look);
  void fail(const Client& client, const std::string& what);
  void fail(std::uint32_t zone, const std::string& what);

  World& world_;
  const ZonesShape shape_;
  const SimMedium& medium_;
  const std::uint32_t device_append_lbas_;
  Geometry geometry_;  // the volume's
  std::unique_ptr<ZoneStateMachine> machine_;
  PageStore* store_ = nullptr;
  std::unique_ptr<PageSession> pages_;
  std::unique_ptr<ZonedSession> session_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<Zone> zones_;
  Look cut_ = Look::kept;  // how the pool ended that it was attached to last
  bool was_cut_ = false;
  std::uint64_t next_version_ = 1;
  std::uint64_t next_verified_ = 0;  // LBA
  std::uint32_t active_when_attached_ = 0;
  unsigned running_ = 0, changing_ = 0;
  bool all_running_ = false;
};

}  // namespace furrow::sim
