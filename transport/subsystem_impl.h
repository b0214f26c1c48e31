// SubsystemImpl: the shared, control-plane part of the subsystem. See subsystem.h.
//
// Threads: as stated there; what reactors call is any-thread and takes the mutex for a short while.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "transport/controller.h"
#include "transport/mailbox.h"
#include "transport/namespaces.h"
#include "transport/subsystem.h"

namespace furrow::transport {

class ReactorImpl;

struct Port {
  std::string address;
  std::uint16_t port = 0;
  std::uint16_t id = 0;
};

// What a Connect command leads to.
struct Admission {
  std::uint16_t status = nvme::sc::kSuccess;
  bool dnr = false;
  std::uint32_t dw0 = 0;
  std::shared_ptr<Controller> controller;
};

class SubsystemImpl final : public Subsystem {
 public:
  SubsystemImpl(Pool& pool, Executor& home, SubsystemOptions options);
  ~SubsystemImpl() override;

  Result<std::unique_ptr<SubsystemReactor>> create_reactor(Executor& executor) override;
  void add_port(const std::string& address, std::uint16_t port) override;
  void remove_port(const std::string& address, std::uint16_t port) override;
  void namespaces_changed(std::function<void()> served) override;
  void withdraw_namespace(std::uint32_t nsid, std::function<void()> idle) override;
  void give_back_namespace(std::uint32_t nsid) override;
  void refuse_connects() override;
  const std::string& nqn() const override { return options_.nqn; }
  const SubsystemOptions& options() const override { return options_; }
  SubsystemStats stats() const override;

  // For reactors and controllers.
  std::mutex& mutex() const { return mutex_; }
  const std::string& serial() const { return serial_; }
  std::uint64_t instance() const { return instance_; }
  // Whoever looks at all of them holds it meanwhile: a change lets go of the table before.
  std::shared_ptr<const NamespaceTable> namespaces() const;
  bool host_allowed(const std::string& host_nqn) const;

  // A gauge of the pool that only its home thread may ask for; refreshed now and then.
  struct PoolGauges {
    std::uint64_t capacity_bytes = 0, free_bytes = 0, zones = 0, zones_bad = 0, media_errors = 0;
    std::uint8_t spare_percent = 100;
    std::uint8_t warnings = 0;  // nvme::smart
  };
  static constexpr std::uint8_t kSparePercentLow = 10;  // below that there is a warning
  PoolGauges pool_gauges() const;
  std::uint64_t created_ns() const { return created_ns_; }  // on the monotonic clock

  // Connect with well-formed data (connect.cc): makes or joins a controller and registers
  // `queue` with it.
  Admission admit(const std::shared_ptr<Queue>& queue, const nvme::Sqe& command,
                  const nvme::ConnectData& data, const std::string& subnqn,
                  const std::string& hostnqn);
  // The device has taken zones of a namespace to another state: hosts are told. Any thread.
  void zones_changed();
  // Any thread: one change after another of each namespace; what is to persist is durable, and all
  // reactors go by it, before it is answered.
  void reserve(ReservationTurn turn);
  // The queue is closed and has nothing in flight.
  void queue_gone(Queue& queue);
  // Controllers with an id of at least `first`, ascending.
  std::vector<std::uint16_t> controller_ids(std::uint16_t first) const;

  struct DiscoveryLog {
    std::uint64_t generation = 0;
    std::vector<Port> ports;
  };
  DiscoveryLog discovery_log() const;

  void attach(ReactorImpl& reactor);
  void detach(ReactorImpl& reactor, const SubsystemStats& totals);
  void count_refused_connect() { connects_refused_.fetch_add(1, std::memory_order_relaxed); }
  void count_keep_alive_expired() { keep_alive_expired_.fetch_add(1, std::memory_order_relaxed); }
  void count_idle_expired() { idle_expired_.fetch_add(1, std::memory_order_relaxed); }

 private:
  Admission admit_admin(const std::shared_ptr<Queue>& queue, const nvme::Sqe& command,
                        const nvme::ConnectData& data, Controller::Kind kind,
                        const std::string& hostnqn);
  Admission admit_io(const std::shared_ptr<Queue>& queue, const nvme::Sqe& command,
                     const nvme::ConnectData& data, Controller::Kind kind,
                     const std::string& hostnqn);
  std::uint16_t free_controller_id();  // 0: none
  Admission refuse_full();
  bool host_is_full(const std::string& hostnqn) const;
  void register_queue(const std::shared_ptr<Queue>& queue, std::uint16_t qid, std::uint32_t entries,
                      const std::shared_ptr<Controller>& controller);
  void change_namespaces(const NamespaceChange& change, std::function<void()> applied);
  void publish(std::shared_ptr<const NamespaceTable> table, std::uint32_t withdrawn,
               std::function<void()> applied);
  void notify_namespaces(const NamespaceTable& before, const NamespaceTable& after);
  // Reservations (reservation_turns.cc), whose mutex the caller holds.
  void take_turns(const std::shared_ptr<SharedReservations>& reservations);
  void end_turn(const std::shared_ptr<SharedReservations>& reservations, Reservations next,
                const Reservations::Outcome& outcome);
  void publish(const std::shared_ptr<SharedReservations>& reservations,
               const ReservationTurn& turn);
  void notify_reservations(const std::shared_ptr<const Namespace>& ns,
                           const std::vector<Reservations::Notification>& notifications);
  void notify_discovery();
  void notify_zones();
  void notify_health();
  void watch_pool();
  void refresh_gauges();

  struct OwnTimer : Timer {
    SubsystemImpl* self = nullptr;
  };

  Pool& pool_;
  Executor& home_;
  SubsystemOptions options_;
  std::string serial_;
  const std::uint64_t instance_;  // drawn anew each time
  Mailbox home_mailbox_;
  OwnTimer watch_timer_;
  const std::uint64_t created_ns_;

  mutable std::mutex mutex_;
  std::map<std::uint16_t, std::shared_ptr<Controller>> controllers_;
  std::uint16_t controller_id_last_ = 0;
  std::uint64_t queue_entries_ = 0;  // of all registered queues
  std::vector<ReactorImpl*> reactors_;
  std::vector<Port> ports_;
  std::uint16_t port_id_last_ = 0;
  std::uint64_t generation_ = 1;
  std::shared_ptr<const NamespaceTable> namespaces_;
  PoolGauges gauges_;
  SubsystemStats totals_;  // of reactors that are gone
  bool refuse_connects_ = false;

  std::atomic<std::uint64_t> connects_refused_{0}, keep_alive_expired_{0}, hosts_refused_{0},
      full_refused_{0}, idle_expired_{0};
};

}  // namespace furrow::transport
