#include "transport/tcp_stream.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "zone/check.h"

namespace furrow::transport {

namespace {
// Data with less left than this is copied from the read-ahead buffer: a read of its own costs more.
constexpr std::size_t kDirectBytesMin = 4096;
// From this size on a data PDU is worth a short read-ahead, so that nearly all of it is read in
// place: the bytes that come behind the header are copied.
constexpr std::uint32_t kLargeDataBytes = 12288;
constexpr std::uint32_t kShortReadBytes = 256;
// With so few it is faster to send and to look by calls of one's own; with 8 over loopback it made
// no difference that could be told from the noise.
constexpr std::uint32_t kFewInFlight = 4;
constexpr std::uint32_t kLullReads = 16;  // so many without more are no lull of a deep queue
}  // namespace

void SendBatch::clear() { pieces_ = first_ = used_ = data_bytes_ = 0; }

void SendBatch::add(const std::byte* from, std::size_t bytes) {
  if (pieces_ > 0) {  // headers that follow each other in the arena go as one piece
    iovec& last = iov_[pieces_ - 1];
    if (static_cast<const std::byte*>(last.iov_base) + last.iov_len == from) {
      last.iov_len += bytes;
      return;
    }
  }
  FURROW_CHECK(pieces_ < kPiecesMax);
  iov_[pieces_++] = {const_cast<std::byte*>(from), bytes};
}

void SendBatch::wrote(std::uint32_t bytes) {
  add(space(), bytes);
  used_ += bytes;
  FURROW_CHECK(used_ <= kArenaBytes);
}

void SendBatch::data(const std::byte* from, std::uint32_t bytes) {
  add(from, bytes);
  data_bytes_ += bytes;
}

bool SendBatch::sent(std::size_t bytes) {
  while (first_ < pieces_ && bytes >= iov_[first_].iov_len) bytes -= iov_[first_++].iov_len;
  if (first_ == pieces_) return true;
  iov_[first_].iov_base = static_cast<std::byte*>(iov_[first_].iov_base) + bytes;
  iov_[first_].iov_len -= bytes;
  return false;
}

TcpStream::TcpStream(SocketRing& ring, Owner& owner, int fd, PduDecoder::Role role)
    : ring_(ring), owner_(owner), fd_(fd), decoder_(role) {
  receive_op_.self = send_op_.self = flush_.self = quiet_.self = this;
  receive_op_.done = [](SocketRing::Op& op, int result, bool more) {
    static_cast<ReceiveOp&>(op).self->on_received(result, more);
  };
  send_op_.done = [](SocketRing::Op& op, int result, bool) {
    static_cast<ReceiveOp&>(op).self->on_transmitted(result);
  };
  flush_.run = [](SocketRing::Deferred& work) { static_cast<FlushWork&>(work).self->flush(); };
  quiet_.run = [](SocketRing::Deferred& work) {
    static_cast<FlushWork&>(work).self->owner_.on_quiet();
  };
}

TcpStream::~TcpStream() {
  FURROW_CHECK(quiet() && !flush_.queued && !quiet_.queued);
  close(fd_);
}

void TcpStream::start() { receive(); }

void TcpStream::discard_input() {
  discarding_ = true;
  large_data_ = false;
}

void TcpStream::end_output() { shutdown(fd_, SHUT_WR); }

void TcpStream::abort() {
  if (aborted_) return;
  aborted_ = true;
  shutdown(fd_, SHUT_RDWR);  // ends what is in flight; an error says that it has ended already
  ring_.cancel(receive_op_);
  ring_.cancel(send_op_);
  if (quiet()) ring_.defer(quiet_);
}

void TcpStream::end(int error) {
  if (ended_ || aborted_) return;
  ended_ = true;
  owner_.on_end(error);
}

// Where there is no memory for a larger one, the one that there is does, until the next read.
void TcpStream::make_buffer() {
  std::unique_ptr<std::byte[]> made(new (std::nothrow) std::byte[buffer_bytes_wanted_]);
  if (made == nullptr && buffer_ == nullptr) throw std::bad_alloc();
  if (made == nullptr) return;
  buffer_ = std::move(made);
  buffer_bytes_ = buffer_bytes_wanted_;
}

bool TcpStream::few_in_flight() const {
  return busy_reads_ == 0 && owner_.in_flight() <= kFewInFlight;
}

SocketRing::Input TcpStream::expected() const {
  using enum SocketRing::Input;
  if (more_) return now;
  return few_in_flight() ? soon : later;
}

void TcpStream::receive() {
  if (buffer_bytes_ != buffer_bytes_wanted_) make_buffer();
  landing_ = discarding_ ? std::span<std::byte>() : decoder_.landing();
  if (landing_.size() < kDirectBytesMin) landing_ = {};
  const std::uint32_t ahead =
      large_data_ ? std::min(kShortReadBytes, buffer_bytes_) : buffer_bytes_;
  if (landing_.empty()) {
    ring_.receive(receive_op_, fd_, {buffer_.get(), ahead}, expected());
    return;
  }
  receive_iov_ = {iovec{landing_.data(), landing_.size()}, iovec{buffer_.get(), ahead}};
  receive_message_.msg_iov = receive_iov_.data();
  receive_message_.msg_iovlen = receive_iov_.size();
  ring_.receive(receive_op_, fd_, &receive_message_, expected());
}

void TcpStream::on_received(int result, bool more) {
  if (aborted_) {
    if (quiet()) ring_.defer(quiet_);
    return;
  }
  if (result <= 0) {
    if (result == -EINTR || result == -EAGAIN) return receive();
    return end(-result);
  }
  more_ = more;
  fed_ = true;
  const std::size_t count = static_cast<std::size_t>(result);
  const std::size_t landed = std::min(count, landing_.size());
  large_seen_ = landed != 0;
  if (!discarding_) {
    if (landed != 0) decoder_.landed(landed);
    process({buffer_.get(), count - landed});
  }
  if (owner_.in_flight() > kFewInFlight) {
    busy_reads_ = kLullReads;
  } else if (busy_reads_ != 0) {
    --busy_reads_;
  }
  if (!large_seen_) large_data_ = false;
  if (!aborted_) receive();
}

void TcpStream::process(std::span<const std::byte> input) {
  while (!discarding_ && !aborted_) {
    switch (decoder_.next(input)) {
      case PduDecoder::Event::none:
        return;
      case PduDecoder::Event::header:
        if (decoder_.data_bytes() >= kLargeDataBytes) large_data_ = large_seen_ = true;
        owner_.on_header();
        break;
      case PduDecoder::Event::end:
        owner_.on_data_end();
        break;
      case PduDecoder::Event::error:
        owner_.on_pdu_error();
        return;
    }
  }
}

void TcpStream::want_send() {
  if (!sending_ && !aborted_) ring_.defer(flush_);
}

void TcpStream::flush() {
  if (sending_ || aborted_) return;
  if (more_ && fed_ && owner_.output_may_wait()) {
    fed_ = false;  // for one read only: should that find nothing, the output goes
    return ring_.defer(flush_);
  }
  batch_.clear();
  send_now_ = few_in_flight();
  owner_.fill(batch_);
  if (batch_.empty() || aborted_) return;
  sending_ = true;
  transmit();
}

void TcpStream::transmit() {
  send_message_.msg_iov = batch_.iov_.data() + batch_.first_;
  send_message_.msg_iovlen = batch_.pieces_ - batch_.first_;
  if (std::exchange(send_now_, false)) {
    const int result = ring_.send_now(fd_, &send_message_);
    if (result != -EAGAIN) return on_transmitted(result);
  }
  ring_.send(send_op_, fd_, &send_message_);
}

void TcpStream::on_transmitted(int result) {
  if (aborted_) {
    sending_ = false;
    if (quiet()) ring_.defer(quiet_);
    return;
  }
  if (result == -EINTR || result == -EAGAIN) return transmit();
  if (result < 0) {
    sending_ = false;
    return end(-result);
  }
  if (!batch_.sent(static_cast<std::size_t>(result))) return transmit();
  sending_ = false;
  owner_.on_sent();
  want_send();
}

}  // namespace furrow::transport
