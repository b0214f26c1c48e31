// Controller: one host's association with the NVM subsystem or with the discovery subsystem: its
// properties, features, asynchronous events and keep-alive timer, and the commands of its admin
// queue.
//
// Threads: it lives on the reactor of its admin queue. Its I/O queues may live on others; what they
// look at is atomic, immutable, or in `Shared`, which the subsystem's mutex guards.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/change_log.h"
#include "transport/command_sets.h"
#include "transport/connection.h"
#include "transport/error_log.h"
#include "transport/namespaces.h"
#include "transport/nvme.h"
#include "transport/queue.h"
#include "transport/reservation_log.h"
#include "zone/executor.h"

namespace furrow::transport {

class SubsystemImpl;
class ReactorImpl;

class Controller : public std::enable_shared_from_this<Controller> {
 public:
  enum class Kind : std::uint8_t { nvm, discovery };
  enum class State : std::uint8_t {
    disabled,   // CC.EN = 0
    ready,      // CSTS.RDY = 1
    quiescing,  // a reset or a shutdown waits for the I/O queues to go
    shut_down,  // CSTS.SHST = 10b
    failed,     // CSTS.CFS = 1
    ended,      // the admin queue is gone
  };
  struct Host {
    std::string nqn;
    std::array<std::uint8_t, 16> id{};
  };

  // Bounds.
  static constexpr std::uint8_t kAsyncEventsMax = 4;  // AERL + 1
  static constexpr std::uint8_t kAbortsMax = 4;       // ACL + 1
  static constexpr std::uint64_t kQuiesceTimeoutMs =
      12'000;  // below CAP.TO; above a transport's own (TcpLimits)
  static constexpr std::uint32_t kRetryDelayMs = 1000;  // of what could not be done just now
  static constexpr std::uint32_t kKeepAliveGranularityMs = 1000;
  static constexpr std::uint32_t kKatoMsMax = 24u * 3600 * 1000;

  Controller(SubsystemImpl& subsystem, ReactorImpl& reactor, Kind kind, std::uint16_t id, Host host,
             std::uint32_t kato_ms);
  ~Controller();

  // Any thread: immutable or atomic.
  std::uint16_t id() const { return id_; }
  Kind kind() const { return kind_; }
  const Host& host() const { return host_; }
  ErrorLog& errors() { return errors_; }
  bool write_cache_enabled() const { return write_cache_.load(std::memory_order_relaxed); }
  // ACRE of Host Behavior Support: it waits for as long as CRD says.
  bool heeds_retry_delays() const { return retry_delays_.load(std::memory_order_relaxed); }
  std::uint16_t queues_granted() const { return queues_granted_.load(std::memory_order_relaxed); }
  CommandSets command_sets() const { return command_sets_.load(std::memory_order_relaxed); }

  // Guarded by SubsystemImpl::mutex().
  struct Shared {
    std::map<std::uint16_t, std::shared_ptr<Queue>> queues;  // registered, by queue id
    bool accepts_io = false;                                 // an I/O Connect may join
    bool quiescing = false;  // the last I/O queue to go sends quiesced()
    bool alive = true;       // the admin queue is there: messages may be sent to its reactor
  } shared;

  // The rest: on the admin queue's reactor.
  ReactorImpl& reactor() { return reactor_; }
  State state() const { return state_; }
  // The Connect of the admin queue was accepted.
  void start();
  // A command other than Connect on the admin queue.
  void execute(Request& request);
  // The admin connection is gone, or has to go (keep-alive): everything else goes too.
  void end();
  void quiesced();
  void namespaces_changed(const std::vector<std::uint32_t>& nsids);
  void discovery_changed();
  // The SMART log's warnings are others, or the host asks to be told of others.
  void health_changed();
  // The device took zones of the namespace to another state.
  void zones_changed(const Namespace& ns, const std::vector<std::uint32_t>& zones);
  // Of its host: another one changed what it has of a namespace's reservations.
  void reservation_changed(const Namespace& ns, Reservations::Notice notice);
  void abort_done(Request& request, bool aborted);

 private:
  using Handler = void (Controller::*)(Request&);
  struct OpcodeHandler {
    std::uint8_t opcode;
    Handler handler;
    bool discovery;  // also of a discovery controller
  };
  static const OpcodeHandler kAdminHandlers[];

  // Answers.
  void succeed(Request& request, std::uint32_t dw0 = 0);
  void fail(Request& request, std::uint16_t status);
  void reply(Request& request, std::span<const std::byte> data);  // a copy of it

  // Fabrics commands (properties.cc).
  void fabrics(Request& request);
  void property_get(Request& request);
  void property_set(Request& request);
  std::uint64_t capabilities() const;
  std::uint16_t set_configuration(std::uint32_t cc);  // returns a status
  std::uint16_t check_enable(std::uint32_t cc) const;

  // Admin commands (admin_commands.cc).
  void get_log_page(Request& request);
  void identify(Request& request);
  void abort(Request& request);
  void set_features(Request& request);
  void get_features(Request& request);
  void async_event(Request& request);
  void keep_alive(Request& request);

  // Identify data by CNS (identify.cc). Each returns a status and fills `page` (4096 bytes).
  std::uint16_t identify_page(const nvme::Sqe& command, std::vector<std::byte>& page) const;
  std::uint16_t identify_namespace_page(std::uint8_t cns, std::uint32_t nsid, std::uint8_t csi,
                                        std::vector<std::byte>& page) const;
  std::uint16_t identify_list_page(std::uint8_t cns, const nvme::Sqe& command,
                                   std::vector<std::byte>& page) const;
  nvme::IdentifyController identify_controller() const;

  // Log pages (log_pages.cc). Returns a status; `log` is the whole page.
  // `reached_at`: this end's address of the connection that asks.
  std::uint16_t log_page(std::uint8_t log_id, const nvme::Sqe& command,
                         const std::string& reached_at, std::vector<std::byte>& log);
  void log_page_read(std::uint8_t log_id, std::uint32_t nsid);
  void log_page_missed(std::uint8_t log_id);
  nvme::SmartLog smart_log() const;

  // Features (features.cc).
  struct FeatureHandler {
    std::uint8_t feature;
    std::uint16_t (Controller::*get)(const nvme::Sqe&, std::uint32_t& value);
    // Null: set_features() knows how, as it takes longer.
    std::uint16_t (Controller::*set)(const nvme::Sqe&, std::uint32_t& result);
    bool discovery;
  };
  static const FeatureHandler kFeatureHandlers[];
  static const FeatureHandler* feature_handler(std::uint8_t feature, Kind kind);
  std::uint16_t get_stored(const nvme::Sqe&, std::uint32_t&);
  std::uint16_t set_arbitration(const nvme::Sqe&, std::uint32_t&);
  std::uint16_t set_error_recovery(const nvme::Sqe&, std::uint32_t&);
  std::uint16_t set_write_atomicity(const nvme::Sqe&, std::uint32_t&);
  std::uint16_t set_power(const nvme::Sqe&, std::uint32_t&);
  std::uint16_t get_temperature(const nvme::Sqe&, std::uint32_t&);
  std::uint16_t set_temperature(const nvme::Sqe&, std::uint32_t&);
  std::uint16_t get_write_cache(const nvme::Sqe&, std::uint32_t&);
  std::uint16_t get_queues(const nvme::Sqe&, std::uint32_t&);
  std::uint16_t set_queues(const nvme::Sqe&, std::uint32_t&);
  std::uint16_t get_async_event(const nvme::Sqe&, std::uint32_t&);
  std::uint16_t set_async_event(const nvme::Sqe&, std::uint32_t&);
  std::uint16_t get_keep_alive(const nvme::Sqe&, std::uint32_t&);
  std::uint16_t set_keep_alive(const nvme::Sqe&, std::uint32_t&);
  std::uint16_t get_command_set_profile(const nvme::Sqe&, std::uint32_t&);
  std::uint16_t set_command_set_profile(const nvme::Sqe&, std::uint32_t&);
  std::uint16_t get_kv_config(const nvme::Sqe&, std::uint32_t&);
  std::uint16_t set_kv_config(const nvme::Sqe&, std::uint32_t&);
  std::uint16_t get_reservation_mask(const nvme::Sqe&, std::uint32_t&);
  std::uint16_t set_reservation_mask(const nvme::Sqe&, std::uint32_t&);
  std::uint16_t get_reservation_persistence(const nvme::Sqe&, std::uint32_t&);
  void set_reservation_persistence(Request& request);
  void get_host_id(Request& request);
  void get_host_behavior(Request& request);
  void set_host_behavior(Request& request);
  void set_write_cache(Request& request);
  void switch_write_cache();
  void write_cache_switched(const Status& flushed);
  void reset_features();
  // An active namespace of an enabled command set; null: it is none.
  std::shared_ptr<const Namespace> seen(std::uint32_t nsid) const;

  // Asynchronous events: each is held back until a request is there and the last one of its type
  // has been acknowledged by reading its log page.
  enum class Event : std::uint8_t { namespaces, discovery, zones, reservations, health };
  static constexpr unsigned kEvents = 5;
  static constexpr std::uint8_t kLogOf[kEvents] = {nvme::lid::kChangedNamespaces,
                                                   nvme::lid::kDiscovery, nvme::lid::kChangedZones,
                                                   nvme::lid::kReservations, nvme::lid::kSmart};
  bool is_asked_for(Event event) const;
  void raise(Event event);
  void drop_unasked_events();
  void send_events();
  void zones_acknowledged();
  void abort_async_events();

  void begin_quiesce();
  void flushed(Status status);
  void stopped();
  void close_io_queues();  // asks; shared.queues empties later
  void fail_controller();

  void arm_keep_alive();
  void keep_alive_tick();
  bool may_be_silent() const;
  void expire();
  std::uint32_t traffic() const;

  struct OwnTimer : Timer {
    Controller* self = nullptr;
  };

  SubsystemImpl& subsystem_;
  ReactorImpl& reactor_;
  const Kind kind_;
  const std::uint16_t id_;
  const Host host_;
  ErrorLog errors_;
  std::atomic<bool> write_cache_{true}, retry_delays_{false};
  std::atomic<CommandSets> command_sets_{CommandSets()};  // enabled by CC.CSS
  std::atomic<std::uint16_t> queues_granted_;

  State state_ = State::disabled;
  std::uint32_t cc_ = 0, csts_ = 0;
  bool reset_pending_ = false, shutdown_pending_ = false;
  bool shutdown_flushes_ = false;  // as it was asked for first, whatever CC says meanwhile
  OwnTimer quiesce_timer_;

  // Keep alive: four ticks without traffic end the association, so that a reactor that was held up
  // itself (one late tick) does not blame the host.
  static constexpr unsigned kKeepAliveTicks = 4;
  std::uint32_t kato_ms_;
  std::uint32_t idle_limit_ms_ = 0;   // 0: not enforced
  bool only_without_queues_ = false;  // idle_limit_ms_ comes from no keep-alive time of the host's
  std::uint32_t traffic_seen_ = 0;
  unsigned idle_ticks_ = 0;
  OwnTimer keep_alive_timer_;

  std::uint32_t arbitration_ = 0, error_recovery_ = 0, write_atomicity_ = 0;
  std::uint16_t temperature_over_ = 0xFFFF, temperature_under_ = 0;
  std::uint32_t async_event_config_ = 0;
  std::array<std::byte, 512> host_behavior_{};
  std::deque<Request*> write_cache_sets_;  // the first is being carried out

  std::array<Request*, kAsyncEventsMax> async_events_{};
  unsigned async_event_count_ = 0;
  std::array<bool, kEvents> event_pending_{}, event_masked_{};
  // Of the SMART log's, among those that the host has asked for: which are there, and which of them
  // the event or the log has not told of.
  std::uint8_t warnings_ = 0, warnings_new_ = 0;
  ChangeLog<std::uint32_t> changed_namespaces_;
  // First LBAs of zones by namespace, until the host has read of them; one more than a log names.
  std::map<std::uint32_t, ChangeLog<std::uint64_t>> changed_zones_;
  ReservationLog reservation_log_;
  unsigned aborts_ = 0;
};

}  // namespace furrow::transport
