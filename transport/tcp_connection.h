// TcpConnection: the target's side of one NVMe/TCP queue (NVMe/TCP Transport Specification 1.1).
// Turns capsules into Requests for the ConnectionHandler, moves their data, and answers whatever a
// host may get wrong with a C2HTermReq.
//
//   await_icreq -> await_connect -> live -> finishing -> lingering -> closing -> (destroyed)
//
// Any state may go to finishing (close(), a protocol error, drain()) or straight to closing (the
// peer is gone, a time-out, cut()). teardown() is the one way into closing; it waits for the
// socket's operations and for every request that the handler still has.
//
// Threads: its reactor's.
#pragma once

#include <atomic>
#include <bitset>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "transport/connection.h"
#include "transport/pdu.h"
#include "transport/tcp_slot.h"
#include "transport/tcp_stream.h"
#include "zone/executor.h"

namespace furrow::transport {

struct TcpLimits {
  std::uint32_t in_capsule_bytes = 16384;  // of I/O queues; a multiple of 16
  std::uint32_t h2c_data_bytes = 1 << 20;  // MAXH2CDATA: a multiple of 4, 4096 or more
  std::uint32_t setup_ms = 10000;          // for ICReq, and again for Connect
  std::uint32_t linger_ms = 2000;          // for the host to read our last PDUs
  // For the host to take what is to be sent before that, when the connection ends. A controller
  // that is reset waits for both.
  std::uint32_t finish_ms = 8000;
  // For a host to send all of a command's data once it may, and to read one send of ours: whoever
  // takes longer would keep the page buffer from others.
  std::uint32_t data_ms = 15000;
  // Of a reactor: in-capsule data that nobody has asked for yet; each connection within its share
  // (fair_share.h).
  std::uint64_t stash_bytes_max = 64ull << 20;
};

// Of one reactor. Written on its thread, read by any.
struct TcpStats {
  std::atomic<std::uint64_t> commands{0}, protocol_errors{0}, digest_errors{0}, timeouts{0};
  std::atomic<std::uint64_t> stashes_refused{0};  // commands failed for want of that memory
  std::atomic<std::uint64_t> stash_bytes{0};      // gauge
};

class TcpConnection final : public Connection, private TcpStream::Owner {
 public:
  enum class State : std::uint8_t {
    await_icreq,
    await_connect,
    live,
    finishing,  // sends what is left, accepts nothing
    lingering,  // all sent; the host has linger_ms to read it and close
    closing,    // the socket is dead; waits for what still refers to this
  };

  static constexpr std::uint32_t kReceiveBytesMax = 65536;  // of an I/O queue; 8 KiB before

  struct Environment {
    SocketRing& ring;
    Executor& executor;
    ConnectionHandler& handler;
    const TcpLimits& limits;
    TcpStats& stats;
    // The connection has become live: it no longer counts as one being set up. May be null.
    void (*on_live)(TcpConnection&) = nullptr;
    // Nothing refers to the connection any longer: destroy it. Called from the ring's poll.
    void (*on_gone)(TcpConnection&) = nullptr;
    // After stop_accepting(): it is answered(). May be null.
    void (*on_answered)(TcpConnection&) = nullptr;
    void* context = nullptr;
  };

  // Takes `fd` over; std::bad_alloc: it does not.
  TcpConnection(const Environment& environment, int fd, std::string peer,
                std::uint64_t address = 0);
  ~TcpConnection() override;

  void start();           // std::bad_alloc: cut() it then
  void stop_accepting();  // of commands; what was accepted is answered
  void drain();           // the same, and ends then
  void cut();             // ends now
  // Nothing that was accepted waits for its answer, or for the socket to take that.
  bool answered() const {
    return state_ != State::live ||
           (unanswered_ <= waiting_events_ && out_.empty() && !stream_.sending());
  }
  bool is_io_queue() const { return queue_id_ != 0; }
  State state() const { return state_; }
  bool was_live() const { return was_live_; }
  void* context() const { return environment_.context; }

  // Connection.
  void pull(Request& request, std::byte* into) override;
  void push(Request& request, const std::byte* from, std::uint32_t bytes) override;
  void complete(Request& request) override;
  void close() override;
  Executor& executor() override { return environment_.executor; }
  std::string_view peer() const override { return peer_; }
  std::string local_address() const override;
  std::uint64_t address() const override { return address_; }
  void set_queue(std::uint32_t entries, bool flow_control_disabled) override;

 private:
  struct SetupTimer : Timer {
    TcpConnection* self;
  };
  struct Work : SocketRing::Deferred {
    TcpConnection* self;
  };

  // TcpStream::Owner.
  void on_header() override;
  void on_data_end() override;
  void on_pdu_error() override;
  void fill(SendBatch& batch) override;
  std::uint32_t in_flight() const override { return is_io_queue() ? unanswered_ : ~0u; }
  void on_sent() override;
  void on_end(int error) override;
  void on_quiet() override;

  // What arrives.
  void on_icreq();
  void on_capsule();
  void on_h2c_data();
  bool check_h2c_data(CommandSlot*& slot);
  CommandSlot* take_slot();
  bool describe(CommandSlot& slot);
  void hand_over(CommandSlot& slot);
  void place_capsule_data(CommandSlot& slot);
  void make_stash(CommandSlot& slot);
  void drop_stash(CommandSlot& slot);
  void settle_pull(CommandSlot& slot);
  void end_pull(CommandSlot& slot);
  void tell_pulled(CommandSlot& slot);
  void run_work();

  // What leaves.
  void answer(CommandSlot& slot);
  void refuse(CommandSlot& slot, std::uint16_t status);
  void drop_output();
  void put_response(SendBatch& batch, CommandSlot& slot);
  void put_completion(SendBatch& batch, const CommandSlot& slot);
  void release(CommandSlot& slot);

  // How it ends.
  void terminate(const PduError& error);
  void terminate(const PduError& error, std::span<const std::byte> offending);
  void finish();
  void finish_when_answered();
  void linger();
  void detach();
  void teardown();
  void reap();
  void on_timer();
  void watch();
  bool data_is_late();

  // Five ticks of a quarter of data_ms without progress make a time-out, so that a reactor that was
  // held up itself (one late tick) does not blame the host.
  static constexpr unsigned kDataTicks = 4;

  Environment environment_;
  std::string peer_;
  const std::uint64_t address_;
  State state_ = State::await_icreq;
  TcpStream stream_;
  PduEncoder encoder_;
  SetupTimer timer_{};
  Work work_{};

  // `entries_` may be unanswered; as many again may be on their way to the host. The first slot is
  // the one that Connect uses, before the depth is known.
  std::unique_ptr<CommandSlot> connect_slot_;
  std::unique_ptr<CommandSlot[]> more_slots_;
  std::vector<CommandSlot*> slots_;  // by index, which is the TTAG
  SlotQueue free_, out_, sending_, pulled_;
  std::unique_ptr<std::bitset<65536>> cids_;  // in flight
  CommandSlot* receiving_ = nullptr;          // whose data the decoder is in
  std::uint32_t entries_ = 1;
  std::uint32_t unanswered_ = 0;  // commands whose response is not in a sendmsg yet
  std::uint32_t held_ = 0;        // slots that are not free
  std::uint32_t waiting_events_ = 0;
  std::uint64_t stash_bytes_ = 0;
  std::uint16_t queue_id_ = 0;
  std::uint16_t sq_head_ = 0;
  bool queue_set_ = false;
  bool was_live_ = false;
  bool sent_ = false;        // something, since the last tick
  unsigned send_ticks_ = 0;  // that the send in flight has seen
  bool flow_control_ = true;
  bool opened_ = false, detached_ = false, quiet_ = false;
  bool accepting_ = true, draining_ = false;
  bool icresp_due_ = false, term_due_ = false;
  std::uint32_t control_bytes_ = 0;
  std::byte control_[kTermReqBytesMax]{};  // ICResp or C2HTermReq, while due
};

}  // namespace furrow::transport
