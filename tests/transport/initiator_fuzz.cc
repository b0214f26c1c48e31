// Establishes that no target, whatever it answers, harms a host: nothing is read or written outside
// of a command's buffer, every operation is done exactly once with results that make sense, what
// the host sends stays well formed and is what was asked for, and everything ends. What was lost
// with a connection is sent again only where that does no harm and a bounded number of times, and
// is answered once a target behaves. How: FuzzPeers over Unix sockets, on a clock that the input
// moves, for a HostController with page operations, or for an initiator that connects again and
// again. An input is a script (script.h) that says where the target goes wrong: an empty one is a
// bring-up (or a discovery) that succeeds.
#include <array>
#include <memory>

#include "tests/transport/fake_engine.h"
#include "tests/transport/fuzz_peer.h"
#include "tests/transport/fuzz_ring.h"
#include "tests/transport/unix_listener.h"
#include "transport/host_controller.h"
#include "transport/initiator_impl.h"
#include "transport/page_command.h"
#include "zone/check.h"

namespace furrow::fuzz {
namespace {

using namespace transport;

constexpr std::size_t kOpsMax = 24;
// In the first byte: an initiator; with a target that ends connections.
constexpr std::uint8_t kReconnects = 0x40, kEnds = 0x80;
constexpr std::uint32_t kPageBytesMax = 70000;

// One for all inputs: where their hosts connect to.
UnixListener& listener() {
  static UnixListener made;
  return made;
}

// An operation with memory exactly as long as it says: the sanitizer guards its ends.
struct Op {
  PageOp page;
  Bytes memory;
  std::vector<Key> keys;
  int done = 0;
  unsigned seen = 0;  // by targets

  explicit Op(ScriptReader& script, std::size_t number) {
    static constexpr PageOp::Kind kKinds[] = {PageOp::Kind::get,   PageOp::Kind::put,
                                              PageOp::Kind::list,  PageOp::Kind::exist,
                                              PageOp::Kind::flush, PageOp::Kind::remove};
    page.kind = kKinds[script.choice(std::size(kKinds))];
    page.key.length = static_cast<std::uint8_t>(1 + script.choice(16));
    page.key.bytes[0] = static_cast<std::byte>(number);
    memory = patterned(kPageSeed, 1 + script.number() % kPageBytesMax);
    page.data = memory.data();
    page.length = page.capacity = static_cast<std::uint32_t>(memory.size());
    keys.resize(script.choice(8) + 1);
    page.keys = keys.data();
    page.keys_max = static_cast<std::uint32_t>(keys.size());
    page.context = this;
  }
  void check_list() const {
    require(page.keys_count <= page.keys_max, "a list has no more keys than asked for");
    for (std::uint32_t i = 0; i < page.keys_count; ++i) {
      require(keys[i].valid(), "a list's keys are keys");
    }
  }
};

// The targets' side, and what both kinds of hosts share.
class Targets {
 protected:
  Targets(const std::uint8_t* data, std::size_t size) : script_(data, size) {}
  ~Targets() {
    for (int fd; (fd = listener().take()) >= 0;) close(fd);
  }

  void settle() {
    for (int quiet = 0, turns = 0; quiet < 2; ++turns) {
      require(turns < 100000, "the host comes to rest");
      bool any = executor_.run_once();
      any |= ring().poll() != 0;
      for (int fd; (fd = listener().take()) >= 0; any = true) {
        peers_.push_back(std::make_unique<FuzzPeer>(fd, script_));
        peers_.back()->take_over = [this](FuzzPeer& peer, const nvme::Sqe& sqe) {
          return peer.io() && see(peer, sqe);
        };
      }
      for (auto& peer : peers_) any |= peer->turn();
      quiet = any ? 0 : quiet + 1;
    }
    std::erase_if(peers_, [](const auto& peer) { return !peer->open(); });
  }
  // A command came on an I/O queue. True: it is not to be answered.
  virtual bool see(FuzzPeer&, const nvme::Sqe&) { return false; }

  // What a target does unasked, by the script.
  void target_step(unsigned choice) {
    switch (choice) {
      default:
        return peer().say(script_.bytes(script_.u8()));
      case 1:
        clock_ns_ += script_.u8() * 200'000'000ull;
        return;
      case 2:
        return peer().go_on();
      case 3:
        return say_data();
    }
  }
  FuzzPeer& peer() {
    if (peers_.empty()) peers_.push_back(std::make_unique<FuzzPeer>(-1, script_));
    return *peers_[script_.u8() % peers_.size()];
  }

  ScriptReader script_;
  std::uint64_t clock_ns_ = 1'000'000'000;
  test::FakeExecutor executor_{clock_ns_};
  std::vector<std::unique_ptr<Op>> ops_;
  std::vector<std::unique_ptr<FuzzPeer>> peers_;

 private:
  // Data, a completion or an R2T for a command near the last one, asked for or not.
  void say_data() {
    FuzzPeer& to = peer();
    const auto cid = static_cast<std::uint16_t>(to.last_cid() - script_.choice(4));
    std::byte out[kFrontBytesMax];
    std::uint32_t front = 0;
    if (script_.wrong()) {
      front = to.encoder().r2t(out, cid, 1, script_.number(), script_.number());
    } else if (script_.wrong()) {
      nvme::Cqe cqe;
      cqe.cid = cid;
      front = to.encoder().capsule_resp(out, cqe);
    } else {
      const std::uint32_t offset = script_.number(), count = script_.number() & 0xfff;
      front = to.encoder().data(out, PduType::c2h_data, cid, 0, offset, count,
                                script_.u8() & (kFlagLast | kFlagSuccess));
      Bytes pdu(out, out + front);
      pdu.resize(front + count);
      return to.say(pdu);
    }
    to.say(Bytes(out, out + front));
  }
};

class Association final : private Targets, private HostController::Owner {
 public:
  Association(const std::uint8_t* data, std::size_t size) : Targets(data, size) {}

  void run(std::uint8_t choice) {
    start(choice);
    settle();
    script_.hold_back(false);
    for (int steps = 0; controller_ != nullptr && !script_.empty() && steps < 100; ++steps) {
      step(script_.choice(12));
      script_.hold_back(!script_.wrong());  // answered as it should be
      settle();
      script_.hold_back(false);
    }
    if (controller_ != nullptr) controller_->end();
    settle();
    require(controller_ == nullptr, "the host's controller ends");
    for (const auto& op : ops_) require(op->done == 1, "an operation is done exactly once");
    require(executor_.timers() == 0, "no timer is left");
  }

 private:
  void start(std::uint8_t choice) {
    HostControllerOptions options;
    options.address = listener().address();
    options.address_bytes = listener().bytes();
    options.subsystem_nqn = "nqn.2026-11.io.furrow:unit";
    options.host_nqn = "nqn.2026-11.io.furrow:host";
    options.header_digest = (choice & 1) != 0;
    options.data_digest = (choice & 2) != 0;
    options.discovery = (choice & 4) != 0;
    options.io_queues = (choice & 8) != 0 ? 2 : 1;
    options.queue_entries = 2u << (choice >> 4 & 3);
    HostController::Owner& owner = *this;
    controller_ = std::make_unique<HostController>(ring(), executor_, owner, options);
    script_.hold_back(!script_.wrong());  // most bring-ups succeed: the rest begins behind them
    controller_->start();
  }

  void on_up() override {
    require(!down_, "up comes before down");
    script_.hold_back(false);
  }
  void on_down(Status why) override {
    require(!down_ && !why.ok(), "down comes once, and says why");
    down_ = true;
  }
  void on_room() override {}
  void on_gone() override { controller_.reset(); }

  void step(unsigned choice) {
    if (choice < 7) return submit();
    if (choice < 11) return target_step(choice - 7);
    if (script_.wrong()) controller_->end();
  }
  PageLimits limits() const {
    PageLimits limits;
    limits.value_bytes_max = std::min(controller_->facts().value_bytes_max, kPageBytesMax);
    limits.transfer_bytes_max = controller_->facts().transfer_bytes_max;
    return limits;
  }
  void submit() {
    if (!controller_->up() || ops_.size() == kOpsMax) return;
    HostQueue* queue = nullptr;
    HostCommand* command = controller_->take(queue);
    if (command == nullptr) return;
    ops_.push_back(std::make_unique<Op>(script_, ops_.size()));
    Op& op = *ops_.back();
    if (!check_page_op(op.page, limits()).ok()) {
      ops_.pop_back();
      return queue->give_back(*command);
    }
    FURROW_CHECK(encode_page_op(op.page, limits(), false, *command));
    command->context = &op;
    command->done = &Association::done;
    queue->submit(*command);
  }
  static void done(HostCommand& command, Status status) {
    Op& op = *static_cast<Op*>(command.context);
    ++op.done;
    if (status.ok()) status = decode_page_answer(op.page, command);
    free_list_memory(op.page);
    if (!status.ok()) return;
    if (op.page.kind == PageOp::Kind::get) {
      require(command.received_bytes == std::min(op.page.length, command.data_bytes),
              "a get that succeeded has all of its bytes");
    }
    if (op.page.kind == PageOp::Kind::list) op.check_list();
  }

  std::unique_ptr<HostController> controller_;
  bool down_ = false;
};

class Reconnecting final : private Targets {
 public:
  Reconnecting(const std::uint8_t* data, std::size_t size) : Targets(data, size) {}

  void run(std::uint8_t choice) {
    InitiatorOptions options;
    options.subsystem_nqn = "nqn.2026-11.io.furrow:unit";
    options.header_digest = (choice & 1) != 0;
    options.data_digest = (choice & 2) != 0;
    options.io_queues = (choice & 8) != 0 ? 2 : 1;
    options.queue_entries = 2u << (choice >> 4 & 3);
    ends_ = (choice & kEnds) != 0 ? script_.choice(32) : 0;
    initiator_ = std::make_unique<InitiatorImpl>(executor_, options, ring());
    script_.hold_back(true);
    initiator_->begin(listener().address(), listener().bytes());
    settle();
    for (int steps = 0; !script_.empty() && steps < 100; ++steps) {
      script_.hold_back(false);
      step(script_.choice(8));
      script_.hold_back(!script_.wrong());
      settle();
    }
    script_.hold_back(true);
    behave();
    initiator_.reset();
    for (const auto& op : ops_) require(op->done == 1, "an operation is done exactly once");
    require(executor_.timers() == 0, "no timer is left");
  }

 private:
  // From now on all targets answer as they should: what waits for an answer that was left out runs
  // out of time, and the rest is sent again and answered.
  void behave() {
    for (int seconds = 0; seconds < 120 && !all_done(); ++seconds) {
      clock_ns_ += 1'000'000'000;
      settle();
    }
    require(all_done(), "every operation ends when the target behaves");
  }
  bool all_done() const {
    return std::ranges::all_of(ops_, [](const auto& op) { return op->done != 0; });
  }

  void step(unsigned choice) {
    if (choice < 3) return submit();
    if (choice < 7) return target_step(choice - 3);
    peer().hang_up();
  }
  void submit() {
    if (ops_.size() == kOpsMax) return;
    ops_.push_back(std::make_unique<Op>(script_, ops_.size()));
    PageOp& op = ops_.back()->page;
    if (op.kind == PageOp::Kind::put) {
      op.condition = std::array{PageOp::Condition::always, PageOp::Condition::if_absent,
                                PageOp::Condition::if_exists}[script_.choice(3)];
    }
    if (op.kind == PageOp::Kind::put || op.kind == PageOp::Kind::remove) {
      op.durability = script_.wrong() ? Durability::flushed : Durability::none;
    }
    op.on_result = [](PageOp& done) {
      Op& its = *static_cast<Op*>(done.context);
      require(++its.done == 1, "an operation is done once");
      const int error = done.status.sys_errno();
      require(its.seen == 0 || put_off(its) || (error != ENOTCONN && error != ESHUTDOWN),
              "what a target saw may have been done");
      if (done.status.ok() && done.kind == PageOp::Kind::list) its.check_list();
    };
    initiator_->submit(op);
  }
  bool see(FuzzPeer& peer, const nvme::Sqe& sqe) override {
    check_sent(sqe);
    if (ends_ == 0) return false;
    --ends_;
    peer.hang_up();
    return true;
  }
  // Twice only what may be done twice, and nothing for ever.
  void check_sent(const nvme::Sqe& sqe) {
    const bool keyed = sqe.opc == nvme::kv::kStore || sqe.opc == nvme::kv::kRetrieve ||
                       sqe.opc == nvme::kv::kDelete || sqe.opc == nvme::kv::kExist;
    if (!keyed) return;
    const std::size_t number = sqe.cdw2 & 0xff;
    require(number < ops_.size(), "the command is an operation's");
    Op& op = *ops_[number];
    require(op.done == 0, "an operation that is done is not sent");
    ++op.seen;
    if (put_off(op)) return;
    require(op.seen == 1 || is_idempotent(op.page), "what must not be done twice is sent once");
    require(op.seen <= InitiatorImpl::kLossesMax, "an operation is not sent again for ever");
  }
  // A target said that it did not do it, and that it may be sent again: for so long, not so often.
  static bool put_off(const Op& op) { return InitiatorImpl::was_put_off(op.page); }

  std::unique_ptr<InitiatorImpl> initiator_;
  unsigned ends_ = 0;  // so many commands end their connections
};

}  // namespace
}  // namespace furrow::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace furrow::fuzz;
  const std::uint8_t choice = size == 0 ? std::uint8_t{0} : data[0];
  const std::size_t used = size == 0 ? 0 : 1;
  if ((choice & kReconnects) != 0) {
    Reconnecting(data + used, size - used).run(choice);
  } else {
    Association(data + used, size - used).run(choice);
  }
  return 0;
}
