// SimVolume: one volume of a simulated pool: its clients, which draw operations at random and keep
// some in flight, and its Model, against which every answer is checked. It outlives power cuts.
// Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/model.h"
#include "tests/sim/rot.h"
#include "tests/sim/sim_device.h"
#include "tests/sim/sim_executor.h"
#include "tests/sim/swarm.h"
#include "zone/aligned_buffer.h"

namespace furrow::sim {

// What all parts of one simulation share.
struct World {
  explicit World(std::uint64_t seed) : random(seed) {}

  void fail(std::string text) {
    if (failure.empty()) failure = std::move(text);
  }
  bool failed() const { return !failure.empty(); }

  SimClock clock;
  SimRandom random;
  Trace trace;
  std::uint64_t tick = 2;
  std::uint64_t era = 0;              // power cuts and kills so far
  bool faults = false;                // the device may fail operations: more errors are allowed
  bool reads_stray = false;           // of these: what others hold
  std::uint64_t volumes = 0;          // made so far
  bool reads_fail = false;            // of these: a zone may be left alone for a while
  bool hides = false;                 // an opening cannot read some of the medium
  std::uint64_t places_spoiled = 0;   // unreadable until their zone is reset
  const SimDevice* device = nullptr;  // while operations may run
  bool healed = false;                // that has passed: no answer is excused any more
  bool device_dead = false;
  bool rotted = false;              // something was struck in a zone
  std::uint64_t answered = 0;       // operations
  std::uint64_t turns = 0;          // of the executor
  std::uint64_t longest_turns = 0;  // that an operation took, faults and power cuts aside
  std::uint64_t puts_refused = 0, removes_refused = 0;  // no_space
  std::uint64_t zones_lost = 0;                         // read-only or offline
  std::uint64_t hosts_zones_reset = 0;                  // of volumes of kind zoned
  std::function<bool(std::uint64_t volume)> is_wedged;  // see structure_check.h
  std::string failure;

  std::uint64_t watched_key = ~std::uint64_t{0};  // its answers are printed
  bool watch(std::uint64_t key) const { return key == watched_key; }
  std::uint64_t wall_s() const { return clock.wall_s(); }
  bool sets_clock = false;  // the wall clock is set, back as well
};

class SimVolume {
 public:
  SimVolume(World& world, const VolumeShape& shape, const Geometry& geometry);

  const std::string& name() const { return shape_.options.name; }
  const VolumeShape& shape() const { return shape_; }
  void attach(PageStore* store, PageSession* session);
  bool attached() const { return store_ != nullptr; }
  // It is deleted: what runs finds its page or nothing, and what comes later nothing.
  void end();
  VolumeStats stats() const { return store_->stats(); }
  std::uint64_t id() const { return id_; }  // that it had when it was last attached

  unsigned running() const { return running_; }
  bool may_start() const { return attached() && running_ < shape_.depth; }
  void start_any();
  // Reads the next key of all; false: that was the last.
  bool start_verification();
  void restart_verification() { next_verified_ = 0; }
  // Of one key after another; false: it was the last one.
  bool start_removal();
  void start_list();
  void start_put() {  // of one of a few keys
    start_keyed(PageOp::Kind::put, world_.random.below(std::min<std::uint64_t>(shape_.keys, 8)));
  }
  std::uint64_t puts_stored() const { return puts_stored_; }
  // Of those with nothing in it, some are stored. (Power cuts may have ended all zones of a small
  // cache while pages were pinned, which neither deletes nor copies find room for then; or of a
  // store, where what was copied last has rotted where it came from.)
  bool takes_puts() const {
    const bool pins = cache() && shape_.pinned_percent + shape_.mix.pin != 0;
    return shape_.condition_percent == 0 && !pins && !rotted_and_wedged();
  }
  const Status& last_refusal() const { return last_refusal_; }  // of a put
  // With so many of its zones lost there is room for a put whatever the others hold.
  bool must_have_room(std::uint64_t zones_lost) const;
  // Counts that the volume gives, against the model's. Nothing may run.
  void check_usage();
  void check_quota();  // at any time
  std::uint64_t quota_zones() const;
  // It may have that one from now on.
  void tried_quota(std::uint64_t zones) { quotas_tried_.push_back(zones); }
  // The last one was, and wrote nothing: others that failed may count at the next opening still.
  void refused_quota() { quotas_tried_.pop_back(); }
  bool keeps_its_quota() const { return quota_zones() == quota_zones_; }
  // What it was given last, or what was tried since; only that from now on.
  bool has_its_quota();
  void note_evictions();
  // One of its zones is offline, with whatever it held. Until the pool is opened again what it had
  // is known, and asking for it gives errors; from then on older versions of keys may be the newest
  // that are left, until they are stored anew.
  void lost_a_zone() { zone_lost_ = true; }
  // Something cannot be read until the pool is opened again: keys may be there that are not, and
  // the other way round, until they are stored or deleted. It all counts again then.
  void veil();
  void cut(bool process_only);
  // The wall clock, which has shown this, is set to what it shows now.
  void clock_set(std::uint64_t shown_s);
  void strike(const StruckPage& page);   // of it
  void give_up(const StruckPage& page);  // of it, as it cannot be read

  enum class Exists : std::uint8_t { yes, no, maybe };  // maybe: its creation or deletion was cut
  Exists exists = Exists::no;

 private:
  struct Client {
    SimVolume* volume = nullptr;
    PageOp op;
    AlignedBuffer page;
    std::uint32_t offset = 0;  // of the page in it
    std::vector<Key> keys;
    std::uint64_t key = 0;
    std::uint64_t serial = 0;
    Window window;
    KnownPage known;  // of this version, where the operation says so
    std::uint64_t version = 0;
    unsigned results = 0;    // that it had
    bool from_start = true;  // a listing
    bool by_pages = false;   // and goes on behind its last key
    std::vector<bool> listed;
    bool alone = false;         // nothing else ran on the key when it was submitted
    std::uint64_t started = 0;  // its number
    std::uint64_t turn = 0;     // in which it was submitted
    // A put's, then: what may have been counted, and how many zones had been reset.
    std::uint64_t tombstones_max = 0, zones_reset = 0;
    bool busy = false;
  };
  struct Entry {
    History history;
    std::uint64_t started = 0;  // the number of the start or end of an operation that came last
    Key key;
    bool lossy = false;              // any of its versions may be there, or none, ..
    std::uint64_t lossy_serial = 0;  // .. until a state from this one on is durable
    std::uint64_t veil_end = 0;      // tick: what may be there besides is not known until then
  };

  Client& free_client();
  void start_keyed(PageOp::Kind kind, std::uint64_t key);
  void widen(Client& client);
  void draw_range(Client& client);
  bool draw_known(Client& client);
  void start_flush();
  void start_remove_group();
  void draw_put(Client& client, State& state);
  void submit(Client& client);
  void answered(Client& client);
  void put_answered(Client& client, Code code);
  void remove_answered(Client& client, Code code);
  void presence_answered(Client& client, Code code);
  void get_answered(Client& client, Code code);
  void get_missed(Client& client, bool alone);
  void known_answered(Client& client, Code code);
  void list_answered(Client& client);
  bool goes_on(Client& client);
  void flush_answered(Client& client);
  void group_answered(Client& client, Code code);
  bool expected(const Client& client, Code code);
  bool may_be_rotten(const Client& client) const {
    return entries_[client.key].history.may_be_rotten(client.window);
  }
  bool may_be_gone(std::uint64_t key, const Window& window);
  bool may_be_gone(const Client& client) { return may_be_gone(client.key, client.window); }
  std::uint64_t evictions() const;
  std::uint64_t evictions_survived() const;
  bool lossy(std::uint64_t key, const Window& window) const;
  bool lossy(const Client& client) const { return lossy(client.key, client.window); }
  void changed(const Client& client);
  bool is_some_version(std::uint64_t key, std::uint32_t page_bytes,
                       std::span<const std::byte> beginning) const;
  void refused(const Client& client);
  void refused_as_full(const Client& client);
  bool rotted_and_wedged() const;
  void delete_refused(const Client& client);
  std::uint64_t most_used_lbas() const;
  std::uint64_t cost_of(std::uint64_t bytes) const;
  void check_free_bytes(std::uint64_t free_bytes, std::uint64_t least, std::uint64_t most);
  void fail(const Client& client, const std::string& what);
  bool cache() const { return shape_.options.mode == VolumeMode::cache; }

  World& world_;
  const VolumeShape shape_;
  const Geometry geometry_;
  PageStore* store_ = nullptr;
  std::uint64_t id_ = 0;
  PageSession* session_ = nullptr;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<Entry> entries_;  // by number
  std::uint64_t next_serial_ = 1;
  const std::uint64_t first_version_;
  std::uint64_t next_version_;
  std::uint64_t started_ = 0;
  std::uint64_t last_group_removal_ = 0;  // the number of the operation
  unsigned groups_running_ = 0;
  unsigned lists_running_ = 0;
  unsigned running_ = 0;
  std::uint64_t quota_zones_;
  std::vector<std::uint64_t> quotas_tried_;
  std::uint64_t zones_when_opened_ = 0;
  bool zone_lost_ = false;
  bool veiled_ = false;
  bool ended_ = false;
  bool evicts_ = false;                 // of a cache: pages have gone for room, or for damage
  std::uint64_t evictions_before_ = 0;  // of zones, until the pool was opened
  std::uint64_t evictions_since_ = 0;
  std::uint64_t puts_stored_ = 0;
  Status last_refusal_;
  std::uint64_t next_verified_ = 0;
};

}  // namespace furrow::sim
