// ReactorImpl: the connections of one reactor. Sorts capsules into Connect, admin commands (to the
// controller) and I/O commands (to IoCommands), and counts.
//
// Threads: its executor's, but for mailbox() and stats().
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "transport/fair_share.h"
#include "transport/io_commands.h"
#include "transport/mailbox.h"
#include "transport/queue.h"
#include "transport/subsystem_impl.h"

namespace furrow::transport {

class ReactorImpl final : public SubsystemReactor {
 public:
  ReactorImpl(SubsystemImpl& subsystem, Executor& executor, std::unique_ptr<PageSession> session);
  ~ReactorImpl() override;

  void on_open(Connection& connection) override;
  void on_request(Request& request) override;
  void on_last_request(Connection& connection) override;
  void on_close(Connection& connection) override;
  bool idle() const override;

  Executor& executor() { return executor_; }
  Mailbox& mailbox() { return mailbox_; }  // any thread
  SubsystemImpl& subsystem() { return subsystem_; }
  IoCommands& io() { return io_; }
  SubsystemStats stats() const;  // any thread

  // Completes a request without data; failures are logged and counted. `dnr` is made from the
  // status unless a caller knows better (complete_connect).
  void complete(Request& request, std::uint16_t status);
  // Control plane: sends `data`, which is kept until it is out; false: the request failed instead.
  bool reply(Request& request, std::vector<std::byte> data);
  // Control plane: brings the request's data and calls `next` with it; on failure the request is
  // completed. `bytes`: what the command needs; longer data is refused.
  void pull(Request& request, std::uint32_t bytes,
            std::function<void(Request&, std::vector<std::byte>)> next);
  // Ends the connection of `queue` (after what was answered). Idempotent.
  void close(Queue& queue);
  // Commands waiting on `queue` with this identifier: completes one as aborted.
  bool abort_waiting(Queue& queue, std::uint16_t cid);

  // Single-writer counters that other threads read.
  struct Counter {
    std::atomic<std::uint64_t> value{0};
    void add(std::uint64_t amount = 1) {
      value.store(value.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
    }
    std::uint64_t get() const { return value.load(std::memory_order_relaxed); }
  };
  struct Counters {
    Counter admin_commands, io_commands, commands_failed, host_reads, host_writes, bytes_read,
        bytes_written, buffer_waits, payloads_refused;
  };
  Counters& counters() { return counters_; }

  // The request is done with: the transport has sent its completion.
  void request_done(Queue& queue);
  // Counts and logs a failure; fills the completion's status.
  void set_result(Request& request, std::uint16_t status);

 private:
  // Data of an admin command on its way; control plane, so it may allocate.
  struct Payload {
    std::vector<std::byte> data;
    std::function<void(Request&, std::vector<std::byte>)> next;
  };
  // In flight on one reactor; each connection within its share.
  static constexpr Shared kPayload{16u << 20, 8192};
  bool take_payload(Queue& queue, std::uint64_t bytes);
  void give_payload(Queue& queue, std::uint64_t bytes);

  void connect(Request& request);
  template <class Step>
  void or_refuse_connect(Request& request, Step&& step);
  void connect_data(Request& request, const std::vector<std::byte>& data);
  void complete_connect(Request& request, const Admission& admission);
  void refuse_connect(Request& request, std::uint16_t status, bool dnr, std::uint32_t dw0 = 0);
  void io_command(Queue& queue, Request& request);
  void io_fabrics(Queue& queue, Request& request);
  void drop_if_done(Queue& queue);
  void know_host(Queue& queue);
  void pull_failed(Request& request, std::uint16_t status);
  static void payload_sent(Request& request);
  static void payload_pulled(Request& request);
  static void plain_done(Request& request);

  SubsystemImpl& subsystem_;
  Executor& executor_;
  Mailbox mailbox_;
  IoCommands io_;
  Counters counters_;
  std::unordered_map<Queue*, std::shared_ptr<Queue>> queues_;
  // What each host (by NQN) and address holds of the page buffers; while it has connections here.
  std::unordered_map<std::string, std::shared_ptr<BufferPool::Held>> hosts_held_;
  std::unordered_map<std::uint64_t, std::shared_ptr<BufferPool::Held>> addresses_held_;
  std::uint64_t payload_bytes_ = 0;
};

}  // namespace furrow::transport
