// A host without a wire: FakeConnection hands capsules to a reactor and keeps the answers. World
// puts a pool of maps, a subsystem and two reactors together, and runs them on the test's thread.
//
// The fake keeps the transport's side of connection.h strictly: answers and on_done come in a later
// turn, a connection is freed as soon as the contract allows it (so that the sanitizer sees every
// late use), and a request answered twice is a failure.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fake_engine.h"
#include "transport/connection.h"
#include "transport/subsystem.h"

namespace furrow::test {

namespace nv = furrow::nvme;
namespace sc = furrow::nvme::sc;
using transport::Request;
using Bytes = std::vector<std::byte>;

// One command and what became of it.
struct Command {
  nv::Sqe sqe;
  Bytes out;  // the host's data
  Bytes in;   // what the controller sent
  nv::Cqe cqe;
  bool done = false;
  std::uint16_t status() const { return done ? cqe.sct_sc() : 0xFFFF; }
};
using CommandPtr = std::shared_ptr<Command>;

class FakeConnection final : public transport::Connection {
 public:
  FakeConnection(transport::ConnectionHandler& handler, Executor& executor,
                 std::uint64_t address = 0)
      : handler_(handler), executor_(executor), address_(address) {
    handler_.on_open(*this);
  }
  ~FakeConnection() override { EXPECT_TRUE(slots_.empty()); }

  // `data_bytes` is the SGL's length; `in_capsule`: the data comes with the capsule.
  CommandPtr send(nv::Sqe sqe, Bytes out, std::uint32_t data_bytes, bool in_capsule) {
    auto command = std::make_shared<Command>();
    sqe.cid = next_cid_++;
    command->sqe = sqe;
    command->out = std::move(out);
    if (closed_) return command;
    auto& slot = slots_.emplace_back(std::make_unique<Slot>());
    slot->command = command;
    slot->request.command = sqe;
    slot->request.connection = this;
    slot->request.data_bytes = data_bytes;
    slot->request.data_in_capsule = in_capsule;
    handler_.on_request(slot->request);
    return command;
  }

  void pull(Request& request, std::byte* into) override {
    Slot& slot = slot_of(request);
    if (hold_pulls) return held_.push_back([this, &slot, into] { land(slot, into); });
    events_.push_back([this, &slot, into] { land(slot, into); });
  }
  void push(Request& request, const std::byte* from, std::uint32_t bytes) override {
    Slot& slot = slot_of(request);
    EXPECT_LE(bytes, request.data_bytes);
    slot.command->in.assign(from, from + bytes);
    finish(slot);
  }
  void complete(Request& request) override { finish(slot_of(request)); }
  void close() override { close_asked = true; }
  Executor& executor() override { return executor_; }
  std::string_view peer() const override { return "fake"; }
  std::string local_address() const override { return local; }
  std::uint64_t address() const override { return address_; }
  void set_queue(std::uint32_t queue_entries, bool no_flow_control) override {
    entries = queue_entries;
    flow_control_disabled = no_flow_control;
  }

  // The socket is gone.
  void disconnect() {
    if (closed_) return;
    closed_ = true;
    release_pulls();
    release_answers();
    handler_.on_close(*this);
  }
  void release_pulls() {
    hold_pulls = false;
    for (auto& event : held_) events_.push_back(std::move(event));
    held_.clear();
  }
  void release_answers() {
    hold_answers = false;
    for (auto& event : held_answers_) events_.push_back(std::move(event));
    held_answers_.clear();
  }
  bool run_once() {
    if (close_asked && !closed_ && events_.empty() && !stuck) {
      disconnect();
      return true;
    }
    std::deque<std::function<void()>> now;
    now.swap(events_);
    for (auto& event : now) event();
    return !now.empty();
  }
  bool finished() const { return closed_ && slots_.empty(); }
  std::size_t in_flight() const { return slots_.size(); }

  std::uint32_t entries = 0;
  bool flow_control_disabled = false;
  bool close_asked = false;
  bool hold_pulls = false;    // the host does not send its data yet
  bool hold_answers = false;  // it does not read its answers yet
  bool stuck = false;         // the socket does not drain: close() takes for ever
  Status pull_status;         // of the next pull
  std::string local;          // this end's address

 private:
  struct Slot {
    Request request;
    CommandPtr command;
    bool answered = false;
  };
  Slot& slot_of(Request& request) {
    for (auto& slot : slots_) {
      if (&slot->request == &request) return *slot;
    }
    ADD_FAILURE() << "a request that is not in flight";
    std::abort();
  }
  void land(Slot& slot, std::byte* into) {
    slot.request.pull_status =
        closed_ ? Status(Code::aborted, Origin::transport, "gone") : pull_status;
    pull_status = Status();
    std::memset(into, 0, slot.request.data_bytes);
    const Bytes& out = slot.command->out;
    std::copy_n(out.begin(), std::min<std::size_t>(out.size(), slot.request.data_bytes), into);
    slot.request.on_pulled(slot.request);
  }
  void finish(Slot& slot) {
    EXPECT_FALSE(slot.answered) << "answered twice";
    slot.answered = true;
    slot.command->cqe = slot.request.completion;
    if (!closed_) slot.command->done = true;
    (hold_answers ? held_answers_ : events_).push_back([this, &slot] {
      Request& request = slot.request;
      if (request.on_done != nullptr) request.on_done(request);
      std::erase_if(slots_, [&](const auto& known) { return known.get() == &slot; });
    });
  }

  transport::ConnectionHandler& handler_;
  Executor& executor_;
  const std::uint64_t address_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::deque<std::function<void()>> events_, held_, held_answers_;
  std::uint16_t next_cid_ = 0;
  bool closed_ = false;
};

inline nv::Sqe sqe(std::uint8_t opcode, std::uint32_t nsid = 0) {
  nv::Sqe out;
  out.opc = opcode;
  out.flags = nv::kPsdtSgl;
  out.nsid = nsid;
  out.sgl_type = nv::kSglTransport;
  return out;
}

inline nv::Sqe fabrics(std::uint8_t type) { return sqe(nv::opcode::kFabrics, type); }

inline Bytes bytes_of(const std::string& text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

template <class T>
T read(const Bytes& data, std::size_t offset) {
  T out{};
  EXPECT_LE(offset + sizeof(T), data.size());
  if (offset + sizeof(T) <= data.size()) std::memcpy(&out, data.data() + offset, sizeof(T));
  return out;
}

struct ConnectOptions {
  std::string subnqn = "nqn.2026-11.io.furrow:unit";
  std::string hostnqn = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";
  std::uint8_t hostid = 7;  // all 16 bytes
  std::uint16_t cntlid = nv::kCntlidDynamic;
  std::uint16_t qid = 0;
  std::uint16_t sqsize = 31;  // 0's-based
  std::uint8_t cattr = nv::kCattrNoFlowControl;
  std::uint32_t kato_ms = 5000;
  std::uint16_t recfmt = 0;
};

inline std::pair<nv::Sqe, Bytes> connect_command(const ConnectOptions& options) {
  nv::ConnectData data;
  std::memset(data.hostid, options.hostid, sizeof(data.hostid));
  data.cntlid = options.cntlid;
  std::memcpy(data.subnqn, options.subnqn.data(), options.subnqn.size());
  std::memcpy(data.hostnqn, options.hostnqn.data(), options.hostnqn.size());
  Bytes bytes(sizeof(data));
  std::memcpy(bytes.data(), &data, sizeof(data));
  nv::Sqe command = fabrics(nv::fabrics::kConnect);
  command.sgl_type = nv::kSglInCapsule;
  command.cdw10 = std::uint32_t{options.qid} << 16 | options.recfmt;
  command.cdw11 = options.sqsize | std::uint32_t{options.cattr} << 16;
  command.cdw12 = options.kato_ms;
  return {command, std::move(bytes)};
}

class World {
 public:
  // Small by default: zeroing page buffers is most of what a test would do.
  static transport::SubsystemOptions small_buffers() {
    transport::SubsystemOptions options;
    options.buffer_bytes_max = 0;  // the least of each size
    return options;
  }
  explicit World(transport::SubsystemOptions options = small_buffers())
      : executors{FakeExecutor(clock_ns), FakeExecutor(clock_ns)}, options_(std::move(options)) {
    VolumeOptions volume;
    volume.name = "pages";
    volume.nsid = 1;
    EXPECT_TRUE(pool.create_volume(volume).ok());
    start();
  }
  ~World() { end(); }

  // The pool is what it was; nobody is connected.
  void restart() {
    end();
    start();
  }
  void start() {
    auto made = transport::Subsystem::create(pool, executors[0], options_);
    EXPECT_TRUE(made.ok()) << made.status().describe();
    subsystem = std::move(*made);
    for (unsigned i = 0; i < 2; ++i) {
      auto reactor = subsystem->create_reactor(executors[i]);
      EXPECT_TRUE(reactor.ok());
      reactors[i] = std::move(*reactor);
    }
  }
  void end() {
    pool_unhold();
    for (auto& connection : connections_) connection->disconnect();
    run();
    EXPECT_TRUE(connections_.empty());
    for (auto& reactor : reactors) {
      EXPECT_TRUE(reactor->idle());
      reactor.reset();
    }
    EXPECT_EQ(subsystem->stats().controllers, 0u);
    subsystem.reset();
    EXPECT_EQ(executors[0].timers() + executors[1].timers(), 0u);
  }

  FakeConnection& open(unsigned reactor = 0) {
    connections_.push_back(
        std::make_unique<FakeConnection>(*reactors[reactor], executors[reactor]));
    return *connections_.back();
  }
  bool alive(const FakeConnection& connection) const {
    for (const auto& known : connections_) {
      if (known.get() == &connection) return true;
    }
    return false;
  }
  // Until nothing moves any more. Frees connections that are through.
  void run() {
    while (run_turn() && !holding()) {
    }
    if (holding()) run_some();
  }
  // Says whether anything happened.
  bool run_turn() {
    bool any = false;
    for (auto& executor : executors) any |= executor.run_once();
    for (std::size_t i = 0; i < connections_.size(); ++i) any |= connections_[i]->run_once();
    std::erase_if(connections_, [](const auto& known) { return known->finished(); });
    return any;
  }
  void advance_ms(std::uint64_t ms) {
    clock_ns += ms * 1'000'000;
    run();
  }

  // Sends and runs until it is quiet.
  CommandPtr call(FakeConnection& connection, const nv::Sqe& command, Bytes out = {},
                  std::uint32_t data_bytes = 0, bool in_capsule = false) {
    CommandPtr sent = connection.send(command, std::move(out), data_bytes, in_capsule);
    run();
    return sent;
  }
  CommandPtr connect(FakeConnection& connection, const ConnectOptions& options) {
    const auto [command, data] = connect_command(options);
    return call(connection, command, data, static_cast<std::uint32_t>(data.size()), true);
  }
  std::uint64_t property(FakeConnection& admin, std::uint32_t offset) {
    nv::Sqe command = fabrics(nv::fabrics::kPropertyGet);
    command.cdw10 = offset == nv::property::kCap ? 1 : 0;
    command.cdw11 = offset;
    const auto done = call(admin, command);
    EXPECT_EQ(done->status(), sc::kSuccess);
    return std::uint64_t{done->cqe.dw1} << 32 | done->cqe.dw0;
  }
  CommandPtr set_cc(FakeConnection& admin, std::uint32_t cc) {
    nv::Sqe command = fabrics(nv::fabrics::kPropertySet);
    command.cdw11 = nv::property::kCc;
    command.cdw12 = cc;
    return call(admin, command);
  }
  static constexpr std::uint32_t kCcOn =
      1 | nv::kCssAll << nv::kCcCssShift | 6u << nv::kCcIosqesShift | 4u << nv::kCcIocqesShift;

  // A controller that is ready. Returns its admin connection.
  FakeConnection& admin(ConnectOptions options = {}, unsigned reactor = 0) {
    FakeConnection& connection = open(reactor);
    const auto connected = connect(connection, options);
    EXPECT_EQ(connected->status(), sc::kSuccess);
    last_cntlid = static_cast<std::uint16_t>(connected->cqe.dw0);
    EXPECT_EQ(set_cc(connection, kCcOn)->status(), sc::kSuccess);
    return connection;
  }
  FakeConnection& io(std::uint16_t cntlid, std::uint16_t qid = 1, unsigned reactor = 1,
                     ConnectOptions options = {}) {
    FakeConnection& connection = open(reactor);
    options.cntlid = cntlid;
    options.qid = qid;
    options.sqsize = 127;
    EXPECT_EQ(connect(connection, options)->status(), sc::kSuccess);
    return connection;
  }
  CommandPtr identify(FakeConnection& admin, std::uint8_t cns, std::uint32_t nsid = 0,
                      std::uint8_t csi = 0, std::uint32_t bytes = 4096) {
    nv::Sqe command = sqe(nv::admin::kIdentify, nsid);
    command.cdw10 = cns;
    command.cdw11 = std::uint32_t{csi} << 24;
    return call(admin, command, {}, bytes);
  }
  CommandPtr log(FakeConnection& admin, std::uint8_t id, std::uint32_t bytes,
                 std::uint64_t offset = 0, std::uint8_t csi = 0, bool retain = false) {
    nv::Sqe command = sqe(nv::admin::kGetLogPage, nv::kNsidAll);
    const std::uint32_t dwords = bytes / 4 - 1;
    command.cdw10 = id | (retain ? 1u << 15 : 0) | dwords << 16;
    command.cdw11 = dwords >> 16;
    command.cdw12 = static_cast<std::uint32_t>(offset);
    command.cdw13 = static_cast<std::uint32_t>(offset >> 32);
    command.cdw14 = std::uint32_t{csi} << 24;
    return call(admin, command, {}, bytes);
  }
  CommandPtr set_feature(FakeConnection& admin, std::uint8_t feature, std::uint32_t value,
                         std::uint32_t nsid = 0) {
    nv::Sqe command = sqe(nv::admin::kSetFeatures, nsid);
    command.cdw10 = feature;
    command.cdw11 = value;
    return call(admin, command);
  }
  CommandPtr get_feature(FakeConnection& admin, std::uint8_t feature, std::uint32_t nsid = 0,
                         std::uint32_t cdw11 = 0, std::uint32_t bytes = 0) {
    nv::Sqe command = sqe(nv::admin::kGetFeatures, nsid);
    command.cdw10 = feature;
    command.cdw11 = cdw11;
    return call(admin, command, {}, bytes);
  }

  std::uint64_t clock_ns = 1'000'000'000;
  std::array<FakeExecutor, 2> executors;
  FakePool pool;
  std::unique_ptr<transport::Subsystem> subsystem;
  std::array<std::unique_ptr<transport::SubsystemReactor>, 2> reactors;
  std::uint16_t last_cntlid = 0;

 private:
  const transport::SubsystemOptions options_;
  bool holding() const {
    for (PageStore* store : pool.stores()) {
      if (static_cast<FakeStore*>(store)->hold) return true;
    }
    return false;
  }
  void pool_unhold() {
    for (PageStore* store : pool.stores()) static_cast<FakeStore*>(store)->hold = false;
  }
  // Held operations repost themselves for ever: a bounded number of turns instead.
  void run_some() {
    for (int turn = 0; turn < 20; ++turn) run_turn();
  }
  std::vector<std::unique_ptr<FakeConnection>> connections_;
};

}  // namespace furrow::test
