// TcpStream: one NVMe/TCP socket, either side of it. It turns what arrives into the decoder's
// events, landing large data straight in its destination, and sends what its owner has queued, many
// PDUs in one sendmsg.
//
// Threads: its ring's. Ownership: the owner destroys it when quiet().
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "transport/pdu.h"
#include "transport/socket_ring.h"

namespace furrow::transport {

// What one sendmsg carries: small pieces are gathered in an arena, data is referenced.
class SendBatch {
 public:
  static constexpr std::size_t kPiecesMax = 256;
  static constexpr std::size_t kArenaBytes = 16384;
  static constexpr std::size_t kDataBytesMax = 512 * 1024;  // so that buffers come back steadily
  // What one PDU with data, its digest and a completion may need of the arena, and of the pieces.
  static constexpr std::size_t kItemBytesMax = kFrontBytesMax + kDigestBytes + kFrontBytesMax;
  static constexpr std::size_t kItemPieces = 3;

  bool has_room() const {
    return pieces_ + kItemPieces <= kPiecesMax && used_ + kItemBytesMax <= kArenaBytes &&
           data_bytes_ < kDataBytesMax;
  }
  bool empty() const { return pieces_ == 0; }
  std::byte* space() { return arena_.get() + used_; }     // write here, at most kItemBytesMax,
  void wrote(std::uint32_t bytes);                        // then say how much
  void data(const std::byte* from, std::uint32_t bytes);  // stays lent until it is sent

 private:
  friend class TcpStream;
  void clear();
  bool sent(std::size_t bytes);  // all?
  void add(const std::byte* from, std::size_t bytes);

  std::unique_ptr<std::byte[]> arena_ = std::make_unique<std::byte[]>(kArenaBytes);
  std::array<iovec, kPiecesMax> iov_;
  std::size_t pieces_ = 0, first_ = 0, used_ = 0, data_bytes_ = 0;
};

class TcpStream {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    // A PDU's header is in the decoder; when it has data, name its destination now.
    virtual void on_header() = 0;
    virtual void on_data_end() = 0;
    virtual void on_pdu_error() = 0;
    // The socket takes output: put as much as there is, or as has room.
    virtual void fill(SendBatch& batch) = 0;
    // More input is waiting: may the output wait until it has been seen to? A sendmsg for several
    // small PDUs costs little more than one for each.
    virtual bool output_may_wait() const { return false; }
    // Commands in flight, as far as this side knows. With few, either side soon has nothing to do
    // but wait for the other.
    virtual std::uint32_t in_flight() const { return ~0u; }
    virtual void on_sent() = 0;  // all that the last fill() put; its data is free
    // The peer ended the connection (0) or it failed (errno). Once. Call abort().
    virtual void on_end(int error) = 0;
    virtual void on_quiet() = 0;  // after abort(): nothing touches memory any longer
  };

  // Takes `fd` over, a blocking-mode stream socket; std::bad_alloc: it does not.
  TcpStream(SocketRing& ring, Owner& owner, int fd, PduDecoder::Role role);
  ~TcpStream();
  TcpStream(const TcpStream&) = delete;
  TcpStream& operator=(const TcpStream&) = delete;

  void start();      // receives from now on; std::bad_alloc: it does not
  void want_send();  // fill() is called before the next system call
  bool sending() const { return sending_; }
  // From now on what arrives is thrown away, but for its end. A read that has begun may still land
  // where the decoder was told to.
  void discard_input();
  void end_output();  // the peer sees the end after what was sent
  void abort();       // idempotent
  bool quiet() const { return !receive_op_.in_flight && !send_op_.in_flight; }

  int fd() const { return fd_; }
  PduDecoder& decoder() { return decoder_; }
  // How much is read at a time when nothing large is expected. Takes effect with the next read.
  void set_receive_bytes(std::uint32_t bytes) { buffer_bytes_wanted_ = bytes; }

 private:
  struct ReceiveOp : SocketRing::Op {
    TcpStream* self;
  };
  struct FlushWork : SocketRing::Deferred {
    TcpStream* self;
  };

  void make_buffer();
  bool few_in_flight() const;
  SocketRing::Input expected() const;
  void receive();
  void on_received(int result, bool more);
  void process(std::span<const std::byte> input);
  void flush();
  void transmit();
  void on_transmitted(int result);
  void end(int error);

  SocketRing& ring_;
  Owner& owner_;
  int fd_;
  PduDecoder decoder_;
  ReceiveOp receive_op_{};
  ReceiveOp send_op_{};
  FlushWork flush_{};
  FlushWork quiet_{};
  std::unique_ptr<std::byte[]> buffer_;
  std::uint32_t buffer_bytes_ = 0, buffer_bytes_wanted_ = 8192;
  std::span<std::byte> landing_;  // of the read in flight
  std::array<iovec, 2> receive_iov_{};
  msghdr receive_message_{}, send_message_{};
  SendBatch batch_;
  bool more_ = true;              // there may be something to read
  bool fed_ = false;              // something was read since output last waited
  bool large_data_ = false;       // the last data PDU was large: expect the like
  bool large_seen_ = false;       // since the last read
  std::uint32_t busy_reads_ = 0;  // to go, until few commands in flight count as such
  bool send_now_ = false;         // the batch, as it is of few commands
  bool sending_ = false, discarding_ = false, ended_ = false, aborted_ = false;
};

}  // namespace furrow::transport
