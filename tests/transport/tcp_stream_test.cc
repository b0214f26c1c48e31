// Establishes what a TcpStream's owner relies on: the decoder's events come however the stream is
// cut, and large data lands where it was told to in few reads; what a turn has to send goes in one
// system call, as much as a SendBatch has room for, again and again until there is no more, and may
// wait for input that is there already; the end is told once, with its cause; input that is
// discarded tells nothing but its end; and after abort() there is one on_quiet(), from a later
// poll, and nothing else. How: one end of a TCP connection on loopback, whose other end the test
// reads and writes by hand, and an owner that lists what it is told.
#include "transport/tcp_stream.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tests/transport/loopback_listener.h"

namespace furrow::transport {
namespace {

using StreamBytes = std::vector<std::byte>;

StreamBytes stream_bytes(std::size_t count, unsigned seed) {
  StreamBytes bytes(count);
  std::mt19937 random(seed);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// A command capsule of a host, with its data.
StreamBytes capsule(std::uint16_t cid, const StreamBytes& data = {}) {
  nvme::Sqe sqe;
  sqe.opc = 1;
  sqe.cid = cid;
  sqe.sgl_type = data.empty() ? nvme::kSglTransport : nvme::kSglInCapsule;
  sqe.sgl_length = static_cast<std::uint32_t>(data.size());
  StreamBytes pdu(kFrontBytesMax);
  pdu.resize(PduEncoder().capsule_cmd(pdu.data(), sqe, sqe.sgl_length));
  pdu.insert(pdu.end(), data.begin(), data.end());
  return pdu;
}
constexpr std::uint32_t kCapsuleBytes = sizeof(CapsuleCmd);

class StreamOwner : public TcpStream::Owner {
 public:
  void on_header() override {
    events += "h" + std::to_string(stream->decoder().header<CapsuleCmd>().sqe.cid) + " ";
    if (stream->decoder().data_bytes() != 0) stream->decoder().set_destination(destination);
    if (at_header) at_header();
  }
  void on_data_end() override { events += "d "; }
  void on_pdu_error() override { events += "error "; }
  void fill(SendBatch& batch) override {
    events += "fill ";
    if (put) put(batch);
  }
  bool output_may_wait() const override { return may_wait; }
  std::uint32_t in_flight() const override { return few ? 1 : 100; }
  void on_sent() override { events += "sent "; }
  void on_end(int error) override { events += "end" + std::to_string(error) + " "; }
  void on_quiet() override { events += "quiet "; }

  TcpStream* stream = nullptr;
  std::string events;
  std::byte* destination = nullptr;
  std::function<void()> at_header;
  std::function<void(SendBatch&)> put;
  bool may_wait = false, few = false;
};

// Parameter: are so few commands on their way that the stream sends and looks by calls of its own?
class TcpStreamTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    auto made = SocketRing::create();
    ASSERT_TRUE(made.ok()) << made.status().describe();
    ring_ = std::move(*made);
    owner_.few = GetParam();
    make_stream();
  }
  void make_stream() {
    if (peer_ >= 0) close(peer_);
    owner_.events.clear();
    const LoopbackListener listener;
    const sockaddr_in& address = listener.address();
    peer_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(connect(peer_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    const int fd = accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC);
    ASSERT_GE(fd, 0);
    // The peer's socket takes all that a test says at once, the stream's what is no page.
    const int on = 1, much = 1 << 20, little = 64 << 10;
    ASSERT_EQ(setsockopt(peer_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), 0);
    ASSERT_EQ(setsockopt(peer_, SOL_SOCKET, SO_SNDBUF, &much, sizeof much), 0);
    ASSERT_EQ(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &little, sizeof little), 0);
    ASSERT_EQ(fcntl(peer_, F_SETFL, O_NONBLOCK), 0);
    stream_ = std::make_unique<TcpStream>(*ring_, owner_, fd, PduDecoder::Role::target);
    owner_.stream = stream_.get();
    stream_->decoder().set_initialized();
    stream_->decoder().set_limits({1u << 20, ~0u});
  }
  void TearDown() override {
    owner_.put = nullptr;
    owner_.at_header = nullptr;
    if (stream_ != nullptr) drop_stream();
    if (peer_ >= 0) close(peer_);
  }
  void drop_stream() {
    stream_->abort();
    run_until([&] { return owner_.events.find("quiet") != std::string::npos; });
    stream_.reset();
  }

  // Turns until `done`, or for five seconds.
  void run_until(const std::function<bool()>& done) {
    for (int turns = 0; !done(); ++turns) {
      if (ring_->poll() != 0) continue;
      ASSERT_LT(turns, 50'000) << owner_.events;
      usleep(100);
    }
  }
  void run_until(std::string_view events) {
    run_until([&] { return owner_.events.size() >= events.size(); });
    EXPECT_EQ(owner_.events, events);
  }
  // All that can happen without the peer.
  void settle() {
    for (int idle = 0; idle < 20;) idle = ring_->poll() != 0 ? 0 : idle + 1;
  }
  void say(const StreamBytes& bytes) {
    ASSERT_EQ(write(peer_, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  // What the peer is sent, until there are so many bytes, or (0) the end.
  StreamBytes hear(std::size_t bytes) {
    StreamBytes heard;
    bool end = false;
    run_until([&] {
      std::byte piece[65536];
      const ssize_t count = read(peer_, piece, sizeof piece);
      if (count > 0) heard.insert(heard.end(), piece, piece + count);
      end = count == 0 || (count < 0 && errno != EAGAIN);
      return end || (bytes != 0 && heard.size() >= bytes);
    });
    EXPECT_EQ(end, bytes == 0);
    return heard;
  }

  std::unique_ptr<SocketRing> ring_;
  StreamOwner owner_;
  std::unique_ptr<TcpStream> stream_;
  int peer_ = -1;
};

TEST_P(TcpStreamTest, NothingIsReadBeforeStart) {
  say(capsule(1));
  settle();
  EXPECT_EQ(owner_.events, "");
  EXPECT_TRUE(stream_->quiet());
  stream_->start();
  EXPECT_FALSE(stream_->quiet());
  run_until("h1 ");
}

TEST_P(TcpStreamTest, EventsComeHoweverTheStreamIsCut) {
  stream_->start();
  const StreamBytes data = stream_bytes(30'000, 1);
  StreamBytes stream, got(data.size());
  std::string expected;
  for (std::uint16_t cid = 1; cid <= 12; ++cid) {
    const StreamBytes pdu = cid % 3 == 0 ? capsule(cid, data) : capsule(cid);
    stream.insert(stream.end(), pdu.begin(), pdu.end());
    expected += "h" + std::to_string(cid) + (cid % 3 == 0 ? " d " : " ");
  }
  owner_.destination = got.data();
  for (const std::size_t piece : {stream.size(), std::size_t{1000}, std::size_t{4097}}) {
    for (const std::uint32_t read_bytes : {65536u, 8192u, 100u}) {
      stream_->set_receive_bytes(read_bytes);
      owner_.events.clear();
      std::ranges::fill(got, std::byte{0});
      for (std::size_t at = 0; at < stream.size();) {
        const ssize_t count = write(peer_, stream.data() + at, std::min(piece, stream.size() - at));
        if (count > 0) at += static_cast<std::size_t>(count);
        ring_->poll();
      }
      run_until(expected);
      ASSERT_EQ(got, data) << piece << " " << read_bytes;
    }
  }
}

// Read 8 KiB at a time it would take thirty.
TEST_P(TcpStreamTest, LargeDataLandsInPlaceInFewReads) {
  const StreamBytes data = stream_bytes(240'000, 2);
  StreamBytes got(data.size());
  owner_.destination = got.data();
  say(capsule(7, data));
  const std::uint64_t before = ring_->system_calls();
  stream_->start();
  run_until("h7 d ");
  EXPECT_EQ(got, data);
  EXPECT_LE(ring_->system_calls() - before, 12u);
}

TEST_P(TcpStreamTest, DataWithoutDestinationIsDrained) {
  stream_->start();
  say(capsule(1, stream_bytes(50'000, 3)));
  say(capsule(2));
  run_until("h1 d h2 ");
}

TEST_P(TcpStreamTest, ABadPduIsToldAndNothingBehindIt) {
  stream_->start();
  StreamBytes bad = capsule(2);
  bad[0] = std::byte{0x77};
  StreamBytes stream = capsule(1);
  stream.insert(stream.end(), bad.begin(), bad.end());
  say(stream);
  run_until("h1 error ");
  stream_->discard_input();
  say(capsule(3));
  settle();
  EXPECT_EQ(owner_.events, "h1 error ");
}

TEST_P(TcpStreamTest, WhatATurnSendsIsOneSystemCall) {
  const StreamBytes data = stream_bytes(3000, 4);
  StreamBytes expected;
  owner_.put = [&](SendBatch& batch) {
    for (unsigned i = 0; i < 40; ++i) {
      ASSERT_TRUE(batch.has_room());
      std::memset(batch.space(), static_cast<int>(i), 24);
      batch.wrote(24);
      batch.data(data.data() + i, 2000);
      expected.insert(expected.end(), 24, static_cast<std::byte>(i));
      expected.insert(expected.end(), data.begin() + i, data.begin() + i + 2000);
    }
    owner_.put = nullptr;
  };
  const std::uint64_t before = ring_->system_calls();
  for (int i = 0; i < 5; ++i) stream_->want_send();
  EXPECT_EQ(owner_.events, "") << "never from within";
  ring_->poll();
  EXPECT_EQ(ring_->system_calls() - before, 1u);
  const StreamBytes heard = hear(40 * 2024);
  EXPECT_EQ(heard, expected);
  run_until("fill sent fill ");
  EXPECT_FALSE(stream_->sending());
}

TEST_P(TcpStreamTest, WhatIsWantedWhileItSendsGoesBehindIt) {
  const StreamBytes page = stream_bytes(400'000, 5);
  unsigned left = 20;  // more than the socket takes at once
  owner_.put = [&](SendBatch& batch) {
    if (left == 0) return;
    --left;
    batch.data(page.data(), static_cast<std::uint32_t>(page.size()));
  };
  stream_->want_send();
  run_until([&] { return stream_->sending(); });
  stream_->want_send();
  settle();
  ASSERT_TRUE(stream_->sending()) << "nobody reads";
  EXPECT_EQ(owner_.events.substr(owner_.events.size() - 5), "fill ") << "one at a time";
  EXPECT_FALSE(stream_->quiet());
  const StreamBytes heard = hear(20 * page.size());
  ASSERT_EQ(heard.size(), 20 * page.size());
  for (unsigned i = 0; i < 20; ++i) {
    ASSERT_TRUE(std::equal(page.begin(), page.end(),
                           heard.begin() + static_cast<std::ptrdiff_t>(i * page.size())))
        << i;
  }
}

// A connection's longest item, and its shortest: neither runs over what a batch holds.
TEST_P(TcpStreamTest, ABatchTakesAsMuchAsItHasRoomFor) {
  const StreamBytes page = stream_bytes(SendBatch::kDataBytesMax, 6);
  struct Item {
    std::uint32_t front, data, behind;
  };
  for (const Item& item : {Item{kFrontBytesMax, 1, kDigestBytes + kFrontBytesMax}, Item{24, 1, 0},
                           Item{24, 100'000, 4}, Item{24, 0, 0}}) {
    SendBatch batch;
    EXPECT_TRUE(batch.empty());
    std::size_t items = 0, arena = 0, data = 0;
    for (; batch.has_room(); ++items) {
      std::memset(batch.space(), 1, SendBatch::kItemBytesMax);
      batch.wrote(item.front);
      if (item.data != 0) batch.data(page.data() + 8 * (items % 8), item.data);
      if (item.behind != 0) batch.wrote(item.behind);
      arena += item.front + item.behind;
      data += item.data;
    }
    EXPECT_FALSE(batch.empty());
    EXPECT_LE(arena, SendBatch::kArenaBytes);
    EXPECT_LT(data, SendBatch::kDataBytesMax + std::max(item.data, 1u));
    // What lies one behind another in the arena is one piece.
    const std::size_t pieces = item.data == 0 ? 1 : 2 * items + (item.behind != 0 ? 1 : 0);
    EXPECT_TRUE(arena + SendBatch::kItemBytesMax > SendBatch::kArenaBytes ||
                data >= SendBatch::kDataBytesMax ||
                pieces + SendBatch::kItemPieces > SendBatch::kPiecesMax)
        << "full, and not before: " << items;
  }
}

// A deep queue has lulls: few in flight count after sixteen reads that left no more.
TEST_P(TcpStreamTest, ItLooksByItselfWhileFewAreInFlight) {
  const auto looks = [&] {
    settle();
    const std::uint64_t before = ring_->system_calls();
    ring_->poll();
    return ring_->system_calls() != before;
  };
  stream_->start();
  unsigned read = 0;
  const auto read_one = [&](bool few) {
    owner_.few = few;
    say(capsule(1));
    ++read;
    run_until([&] { return owner_.events.size() == 3 * read; });
  };
  read_one(true);
  EXPECT_TRUE(looks());
  read_one(false);
  EXPECT_FALSE(looks());
  for (unsigned i = 1; i <= 16; ++i) {
    read_one(true);
    EXPECT_EQ(looks(), i == 16) << i;
  }
}

TEST_P(TcpStreamTest, OutputMayWaitForInputThatIsThere) {
  for (const bool may_wait : {false, true}) {
    owner_.may_wait = may_wait;
    owner_.events.clear();
    stream_->set_receive_bytes(kCapsuleBytes);  // a command at a time
    StreamBytes three;
    for (const std::uint16_t cid : {1, 2, 3}) {
      const StreamBytes pdu = capsule(cid);
      three.insert(three.end(), pdu.begin(), pdu.end());
    }
    owner_.at_header = [&] { stream_->want_send(); };
    say(three);
    if (!may_wait) stream_->start();
    // Each read is followed by a look at what there is to send, unless that waits.
    const std::string_view expected = may_wait ? "h1 h2 h3 fill " : "h1 fill h2 fill h3 fill ";
    run_until(expected);
    settle();
    EXPECT_EQ(owner_.events, expected);
  }
}

TEST_P(TcpStreamTest, ThePeersEndIsToldOnce) {
  stream_->start();
  say(capsule(1));
  ASSERT_EQ(shutdown(peer_, SHUT_WR), 0);
  run_until("h1 end0 ");
  settle();
  EXPECT_EQ(owner_.events, "h1 end0 ");
}

// Of a receive, of a send, and of both at a time, where the kernel tells one of them alone.
TEST_P(TcpStreamTest, AFailureIsToldOnceWithItsErrno) {
  const StreamBytes page = stream_bytes(500'000, 7);
  for (const bool receives : {true, false}) {
    for (const bool sends : {false, true}) {
      if (!receives && !sends) continue;
      owner_.put = [&](SendBatch& batch) {
        batch.data(page.data(), static_cast<std::uint32_t>(page.size()));
      };
      if (receives) stream_->start();
      if (sends) stream_->want_send();
      for (int i = 0; i < 100; ++i) ring_->poll();
      ASSERT_EQ(stream_->sending(), sends) << "the peer does not read";
      owner_.events.clear();
      const linger reset{1, 0};
      ASSERT_EQ(setsockopt(peer_, SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0);
      close(std::exchange(peer_, -1));
      run_until([&] { return !stream_->sending() && stream_->quiet(); });
      settle();
      ASSERT_EQ(owner_.events.substr(0, 3), "end") << owner_.events;
      EXPECT_EQ(owner_.events.find("end", 3), std::string::npos) << owner_.events;
      const int error = std::stoi(owner_.events.substr(3));
      EXPECT_TRUE(sends || error == ECONNRESET) << error;
      EXPECT_TRUE(receives || error == ECONNRESET || error == EPIPE) << error;
      drop_stream();
      make_stream();
    }
  }
}

TEST_P(TcpStreamTest, DiscardedInputTellsItsEndOnly) {
  stream_->start();
  say(capsule(1));
  run_until("h1 ");
  stream_->discard_input();
  say(capsule(2, stream_bytes(100'000, 8)));
  say(stream_bytes(1000, 9));
  settle();
  ASSERT_EQ(shutdown(peer_, SHUT_WR), 0);
  run_until("h1 end0 ");
}

TEST_P(TcpStreamTest, WhatIsDiscardedDoesNotLand) {
  const StreamBytes data = stream_bytes(200'000, 12), large = capsule(1, data);
  constexpr std::size_t kFirst = 50'000 - kCapsuleBytes;  // of the data
  const auto part = [&](std::size_t from, std::size_t to) {
    return StreamBytes(large.begin() + static_cast<std::ptrdiff_t>(from),
                       large.begin() + static_cast<std::ptrdiff_t>(to));
  };
  StreamBytes got(200'000);
  owner_.destination = got.data();
  stream_->start();
  say(part(0, 50'000));
  run_until([&] { return got[kFirst - 1] == data[kFirst - 1]; });
  stream_->discard_input();
  say(part(50'000, 100'000));  // for the read that has begun
  run_until([&] { return got[kFirst] == data[kFirst]; });
  std::ranges::fill(got, std::byte{0xEE});
  say(part(100'000, large.size()));
  settle();
  EXPECT_EQ(got, StreamBytes(got.size(), std::byte{0xEE}));
  EXPECT_EQ(owner_.events, "h1 ");
}

TEST_P(TcpStreamTest, HowMuchIsReadAtATimeMayChange) {
  const auto after_two = [&] {
    owner_.events.clear();
    StreamBytes two = capsule(1), second = capsule(2);
    two.insert(two.end(), second.begin(), second.end());
    say(two);
    run_until([&] { return !owner_.events.empty(); });
    return std::exchange(owner_.events, "");
  };
  stream_->start();
  EXPECT_EQ(after_two(), "h1 h2 ");
  stream_->set_receive_bytes(kCapsuleBytes);
  EXPECT_EQ(after_two(), "h1 h2 ") << "the read that had begun";
  EXPECT_EQ(after_two(), "h1 ");
  run_until("h2 ");
}

// From within an event: what came with it is thrown away too.
TEST_P(TcpStreamTest, InputMayBeDiscardedFromWithinAnEvent) {
  owner_.at_header = [&] { stream_->discard_input(); };
  StreamBytes two = capsule(1), second = capsule(2);
  two.insert(two.end(), second.begin(), second.end());
  say(two);
  stream_->start();
  run_until("h1 ");
  settle();
  EXPECT_EQ(owner_.events, "h1 ");
  owner_.put = [&](SendBatch& batch) {
    batch.space()[0] = std::byte{9};
    batch.wrote(1);
    owner_.put = nullptr;
  };
  stream_->want_send();
  EXPECT_EQ(hear(1), StreamBytes{std::byte{9}}) << "output goes on";
}

TEST_P(TcpStreamTest, ThePeerSeesTheEndBehindWhatWasSent) {
  const StreamBytes page = stream_bytes(300'000, 10);
  owner_.put = [&](SendBatch& batch) {
    batch.data(page.data(), static_cast<std::uint32_t>(page.size()));
    owner_.put = nullptr;
  };
  stream_->start();
  stream_->want_send();
  StreamBytes heard = hear(page.size());
  run_until([&] { return !stream_->sending(); });
  stream_->end_output();
  EXPECT_TRUE(hear(0).empty());
  EXPECT_EQ(heard, page);
  say(capsule(4));
  run_until("fill sent fill h4 ");
}

TEST_P(TcpStreamTest, AfterAnAbortThereIsOneQuiet) {
  const StreamBytes page = stream_bytes(500'000, 11);
  for (const bool receives : {false, true}) {
    for (const bool sends : {false, true}) {
      if (receives) stream_->start();
      owner_.put = nullptr;
      if (sends) {
        owner_.put = [&](SendBatch& batch) {
          batch.data(page.data(), static_cast<std::uint32_t>(page.size()));
        };
        stream_->want_send();
      }
      // Until what is sent fills the sockets.
      for (int i = 0; i < 100; ++i) ring_->poll();
      ASSERT_EQ(stream_->sending(), sends);
      say(capsule(1));  // it is not told of any more
      owner_.events.clear();
      stream_->abort();
      stream_->abort();
      stream_->want_send();
      EXPECT_EQ(owner_.events, "") << "never from within";
      run_until("quiet ");
      EXPECT_TRUE(stream_->quiet());
      stream_->abort();
      settle();
      EXPECT_EQ(owner_.events, "quiet ");
      EXPECT_FALSE(ring_->busy());
      const int fd = stream_->fd();
      stream_.reset();
      EXPECT_EQ(fcntl(fd, F_GETFD), -1) << "it was the stream's";
      hear(0);
      make_stream();
    }
  }
}

TEST_P(TcpStreamTest, AnAbortFromWithinAnEventEndsIt) {
  owner_.at_header = [&] { stream_->abort(); };
  StreamBytes two = capsule(1), second = capsule(2);
  two.insert(two.end(), second.begin(), second.end());
  say(two);
  stream_->start();
  run_until("h1 quiet ");
  settle();
  EXPECT_EQ(owner_.events, "h1 quiet ");
  stream_.reset();
}

TEST_P(TcpStreamTest, AnAbortAfterTheEndIsQuietAsWell) {
  stream_->start();
  close(std::exchange(peer_, -1));
  run_until("end0 ");
  EXPECT_TRUE(stream_->quiet());
  stream_->abort();
  run_until("end0 quiet ");
  stream_.reset();
}

INSTANTIATE_TEST_SUITE_P(FewCommands, TcpStreamTest, testing::Bool());

}  // namespace
}  // namespace furrow::transport
