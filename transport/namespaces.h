// The namespaces of the subsystem: the volumes of the pool as hosts see them.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/pool.h"
#include "transport/nvme.h"
#include "transport/reservations.h"

namespace furrow::transport {

inline constexpr std::uint32_t kNamespacesMax = 1024;  // Identify Controller's NN

// What reactors know of a namespace's reservations: a snapshot while one is held, else null.
using ReservationView = std::shared_ptr<const Reservations>;

class ReactorImpl;
struct Namespace;

// Somebody's change of a namespace's reservations.
struct ReservationTurn {
  std::shared_ptr<const Namespace> ns;
  // Whether and how; called once, on any thread, with the state that is changed if it succeeds.
  std::function<Reservations::Outcome(Reservations&)> decide;
  bool aborts = false;  // done when no command that was begun before is still being worked on
  ReactorImpl* origin = nullptr;
  std::function<void(std::uint16_t)> done;  // with a status, on origin's executor
};

// The reservations of a namespace, for as long as it exists. Any thread, under the mutex.
struct SharedReservations {
  std::mutex mutex;
  Reservations state;
  ReservationView view;
  // The first is being made durable, if it is to persist; the others wait. As many as there are
  // commands at most.
  std::deque<ReservationTurn> turns;
};

// One active namespace, as of one size. Immutable but for its feature; shared by all reactors.
struct Namespace {
  std::uint32_t nsid = 0;
  std::uint64_t volume_id = 0;
  PageStore* store = nullptr;
  Uuid uuid{};
  std::uint32_t value_bytes_max = 0;  // what a host may store: the volume's limit within MDTS
  std::uint32_t lba_bytes = 4096;
  std::uint64_t zone_bytes = 0;  // capacity of a zone
  std::uint64_t pool_bytes = 0;  // capacity of the pool's zones
  // Feature 20h: deleting a key that does not exist is an error. It stays when the volume is
  // resized.
  std::shared_ptr<std::atomic<bool>> delete_missing_is_error;
  std::shared_ptr<SharedReservations> reservations;  // they stay as well

  VolumeKind kind = VolumeKind::kv;
  // Of kind block.
  std::uint64_t block_bytes = 0;      // its size
  std::uint32_t block_lba_bytes = 0;  // as hosts see them
  Geometry zones;                     // of kind zoned
  std::uint64_t lbas() const {        // of kind block or zoned
    return kind == VolumeKind::zoned ? zones.zone_count * zones.zone_size_lbas
                                     : block_bytes / block_lba_bytes;
  }

  std::uint8_t csi() const {
    switch (kind) {
      case VolumeKind::block:
        return nvme::csi::kNvm;
      case VolumeKind::zoned:
        return nvme::csi::kZoned;
      default:
        return nvme::csi::kKv;
    }
  }
  std::uint64_t quota_bytes = 0;     // as of then
  std::uint64_t size_bytes() const;  // the volume's quota, in zone capacities
};

// What becomes of a namespace, by its NSID; 0: of none.
struct NamespaceChange {
  std::uint32_t withdrawn = 0;   // inactive from now on, until its volume goes or it is ..
  std::uint32_t given_back = 0;  // .. active again
};

// The active namespaces at one moment, by ascending NSID.
class NamespaceTable {
 public:
  NamespaceTable() = default;
  // Home thread. Namespaces whose volume is already in `before`, in the same size, are taken over
  // from it; of one that was resized, or is given back, the feature and the reservations are.
  // Volumes of an NSID above kNamespacesMax are left out.
  NamespaceTable(const Pool& pool, const NamespaceTable& before, const NamespaceChange& change,
                 std::uint32_t transfer_bytes_max);

  std::shared_ptr<const Namespace> find(std::uint32_t nsid) const;
  const std::vector<std::shared_ptr<const Namespace>>& all() const { return all_; }

 private:
  using Namespaces = std::vector<std::shared_ptr<const Namespace>>;
  static std::shared_ptr<const Namespace> find_volume(const Namespaces& among, std::uint64_t id);

  Namespaces all_;
  Namespaces withdrawn_;  // of volumes that are there
};

// What one reactor knows of a namespace: its own count of commands, so that a namespace can be
// withdrawn without a shared counter, and who may use it.
struct LocalNamespace {
  std::shared_ptr<const Namespace> shared;
  std::uint32_t in_flight = 0;
  ReservationView view;

  // Commands that the pool works on, in two turns, so that those which were there at some moment
  // can be waited for while others come: `draining` is let go of when the other turn's are done,
  // then `to_drain` have their turn.
  std::array<std::uint32_t, 2> working{};
  unsigned turn = 0;
  std::vector<std::shared_ptr<void>> draining, to_drain;
};

}  // namespace furrow::transport
