// HostController: a host's association with one controller: the admin queue, the I/O queues and the
// keep-alive, brought up step by step as NVMe over Fabrics says (Base specification 2.0, section
// 3.5.2), without blocking. With a discovery controller it reads the log page instead.
//
// Threads: its executor's. It never comes back from being down: make another.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/host_queue.h"
#include "transport/socket_ring.h"
#include "zone/executor.h"
#include "zone/status.h"

namespace furrow::transport {

struct HostControllerOptions {
  sockaddr_storage address{};
  socklen_t address_bytes = 0;
  std::string subsystem_nqn;
  std::string host_nqn;
  std::array<std::uint8_t, 16> host_id{};
  std::uint32_t nsid = 1;
  std::array<std::uint8_t, 16> nguid{};  // that the namespace must have; zeroes: any
  std::uint16_t io_queues = 1;
  std::uint32_t queue_entries = 128;
  bool header_digest = false, data_digest = false;
  std::uint32_t keep_alive_ms = 5000;
  std::uint32_t timeout_ms = 10000;  // for all of the bring-up
  // For the answer to an I/O command, give or take a quarter; a target that takes longer is given
  // up, with all that is in flight. 0: for ever.
  std::uint32_t command_timeout_ms = 30000;
  bool discovery = false;
};

class HostController final : private HostQueue::Owner {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void on_up() = 0;  // I/O may be sent; of a discovery controller: the log was read
    virtual void on_down(Status why) = 0;  // once; not after end()
    virtual void on_room() = 0;            // an I/O queue can take another command
    virtual void on_gone() = 0;            // down or ended, and nothing is in flight: destroy it
  };
  // What the controller and its namespace said of themselves.
  struct Facts {
    std::uint64_t cap = 0;
    std::uint32_t vs = 0;
    std::uint32_t in_capsule_bytes = 0;
    std::uint32_t transfer_bytes_max = 0;
    std::uint32_t value_bytes_max = 0;
    std::array<std::uint8_t, 16> nguid{};  // of the namespace; zeroes: it has none
    std::uint16_t cntlid = 0;
    std::uint64_t instance = 0;           // of a Furrow: another one after each start; of others 0
    std::vector<std::string> subsystems;  // of a discovery log: the NQNs of NVM subsystems over TCP
  };

  HostController(SocketRing& ring, Executor& executor, Owner& owner,
                 const HostControllerOptions& options);
  ~HostController() override;

  void start();
  void end();  // idempotent
  // The target gives its queues up: nothing more is sent, it may still answer what it has, and if
  // it does not end the connections in a second they are ended here.
  void leave();
  bool up() const { return step_ == Step::up; }
  const Facts& facts() const { return facts_; }
  // A free command on the I/O queue that has the fewest in flight; null: all are busy. Submit it
  // through submit().
  HostCommand* take(HostQueue*& queue);
  // For a caller that waits without running the executor: does what a timer would.
  void tick();

 private:
  // One step at a time; each but the first and the last is one command, and its answer leads on.
  enum class Step : std::uint8_t {
    open_admin,
    connect_admin,
    read_cap,
    enable,
    read_csts,
    read_vs,
    identify,
    set_queues,
    open_io,
    connect_io,
    identify_namespace,
    read_discovery_log,   // a piece of it
    check_discovery_log,  // has it changed since the first one?
    up,
    down,
  };
  struct OwnTimer : Timer {
    HostController* self;
  };

  // HostQueue::Owner.
  void on_ready(HostQueue& queue) override;
  void on_down(HostQueue& queue, Status why) override;
  void on_room(HostQueue& queue) override;
  void on_gone(HostQueue& queue) override;

  Status open_queue(std::uint32_t entries, std::uint32_t in_capsule_bytes,
                    std::uint32_t receive_bytes);
  void run(Step step);
  void on_answer(HostCommand& command, const Status& status);
  void after(Step step, const nvme::Cqe& cqe);
  void send(HostQueue& queue, const nvme::Sqe& sqe, HostCommand::Direction direction,
            std::uint32_t data_bytes);
  void get_property(std::uint32_t offset, bool wide);
  void send_connect(HostQueue& queue, std::uint16_t qid, std::uint32_t entries);
  void send_identify(std::uint32_t nsid, std::uint8_t cns, std::uint8_t csi);
  void read_discovery_log(std::uint64_t offset, std::uint32_t bytes);
  void take_identify();
  void take_namespace();
  void take_discovery_log();
  void check_discovery_log();
  void decode_subsystems();
  void set_due(std::uint64_t delay_ns);
  void keep_alive();
  void age_commands();
  void stop_timers();
  void fail(Status why);
  std::uint32_t io_entries() const;

  SocketRing& ring_;
  Executor& executor_;
  Owner& owner_;
  const HostControllerOptions options_;
  Facts facts_;
  Step step_ = Step::open_admin;
  std::vector<std::unique_ptr<HostQueue>> queues_;  // the first is the admin queue
  std::size_t queues_gone_ = 0;
  std::uint16_t io_queues_ = 1;           // that the controller grants
  std::vector<std::byte> data_;           // of the step's command
  std::uint32_t received_bytes_ = 0;      // of data_, by its answer
  std::vector<std::byte> discovery_log_;  // as far as it was read
  OwnTimer timer_{};      // the next CSTS, the next keep-alive, or the end of patience
  OwnTimer age_timer_{};  // four of its ticks are command_timeout_ms
  std::uint64_t due_ns_ = 0;
  std::uint64_t deadline_ns_ = 0;
  bool keep_alive_pending_ = false;
  bool ended_ = false;
};

}  // namespace furrow::transport
