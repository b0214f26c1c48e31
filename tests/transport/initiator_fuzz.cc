// Establishes that no target, whatever it answers, harms a host: nothing is read or written outside
// of a command's buffer, every operation is done exactly once with results that make sense, what
// the host sends stays well formed and is what was asked for, and everything ends. How: a
// HostController and page operations against a FuzzPeer over Unix sockets, on a clock that the
// input moves. An input is a script (script.h) that says where the target goes wrong: an empty one
// is a bring-up (or a discovery) that succeeds.
#include <sys/un.h>

#include <memory>

#include "tests/transport/fake_engine.h"
#include "tests/transport/fuzz_peer.h"
#include "transport/host_controller.h"
#include "transport/page_command.h"

namespace furrow::fuzz {
namespace {

using namespace transport;

constexpr std::size_t kOpsMax = 24;
constexpr std::uint32_t kPageBytesMax = 70000;

SocketRing& ring() {
  static const std::unique_ptr<SocketRing> made = [] {
    auto ring = SocketRing::create();
    require(ring.ok(), "an io_uring can be made");
    return std::move(*ring);
  }();
  return *made;
}

// One for all inputs: where their hosts connect to.
class Listener {
 public:
  Listener() : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    bytes_ = sizeof(sa_family_t);  // the kernel chooses a name that is in no file system
    require(bind(fd_, reinterpret_cast<sockaddr*>(&name), bytes_) == 0, "a socket can be bound");
    require(listen(fd_, 64) == 0, "a socket can listen");
    bytes_ = sizeof address_;
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address_), &bytes_);
  }
  int take() { return accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC); }
  const sockaddr_storage& address() const { return address_; }
  socklen_t bytes() const { return bytes_; }

 private:
  int fd_;
  sockaddr_storage address_{};
  socklen_t bytes_ = 0;
};

Listener& listener() {
  static Listener made;
  return made;
}

class Association final : private HostController::Owner {
 public:
  Association(const std::uint8_t* data, std::size_t size) : script_(data, size) {}

  void run() {
    start();
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
    for (int fd; (fd = listener().take()) >= 0;) close(fd);
  }

 private:
  // An operation with memory exactly as long as it says: the sanitizer guards its ends.
  struct Op {
    PageOp page;
    Bytes memory;
    std::vector<Key> keys;
    int done = 0;
  };

  void start() {
    HostControllerOptions options;
    options.address = listener().address();
    options.address_bytes = listener().bytes();
    options.subsystem_nqn = "nqn.2026-11.io.furrow:unit";
    options.host_nqn = "nqn.2026-11.io.furrow:host";
    const std::uint8_t choice = script_.u8();
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

  void settle() {
    for (int quiet = 0, turns = 0; quiet < 2; ++turns) {
      require(turns < 100000, "the host comes to rest");
      bool any = executor_.run_once();
      any |= ring().poll() != 0;
      for (int fd; (fd = listener().take()) >= 0; any = true) {
        peers_.push_back(std::make_unique<FuzzPeer>(fd, script_));
      }
      for (auto& peer : peers_) any |= peer->turn();
      quiet = any ? 0 : quiet + 1;
    }
  }

  void step(unsigned choice) {
    switch (choice) {
      default:
        return submit();
      case 7:
        return peer().say(script_.bytes(script_.u8()));
      case 8:
        clock_ns_ += script_.u8() * 200'000'000ull;
        return;
      case 9:
        return peer().go_on();
      case 10:
        return say_data();
      case 11:
        if (script_.wrong()) controller_->end();
        return;
    }
  }
  FuzzPeer& peer() {
    if (peers_.empty()) peers_.push_back(std::make_unique<FuzzPeer>(-1, script_));
    return *peers_[script_.u8() % peers_.size()];
  }
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

  PageLimits limits() const {
    PageLimits limits;
    limits.value_bytes_max = std::min(controller_->facts().value_bytes_max, kPageBytesMax);
    limits.transfer_bytes_max = controller_->facts().transfer_bytes_max;
    return limits;
  }
  void submit() {
    static constexpr PageOp::Kind kKinds[] = {PageOp::Kind::get,   PageOp::Kind::put,
                                              PageOp::Kind::list,  PageOp::Kind::exist,
                                              PageOp::Kind::flush, PageOp::Kind::remove};
    if (!controller_->up() || ops_.size() == kOpsMax) return;
    HostQueue* queue = nullptr;
    HostCommand* command = controller_->take(queue);
    if (command == nullptr) return;
    ops_.push_back(std::make_unique<Op>());
    Op& op = *ops_.back();
    op.page.kind = kKinds[script_.choice(std::size(kKinds))];
    op.page.key.length = static_cast<std::uint8_t>(1 + script_.choice(16));
    op.memory = patterned(kPageSeed, 1 + script_.number() % kPageBytesMax);
    op.page.data = op.memory.data();
    op.page.length = op.page.capacity = static_cast<std::uint32_t>(op.memory.size());
    op.keys.resize(script_.choice(8) + 1);
    op.page.keys = op.keys.data();
    op.page.keys_max = static_cast<std::uint32_t>(op.keys.size());
    if (!check_page_op(op.page, limits()).ok()) {
      ops_.pop_back();
      return queue->give_back(*command);
    }
    encode_page_op(op.page, limits(), false, *command);
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
    if (op.page.kind == PageOp::Kind::list) {
      require(op.page.keys_count <= op.page.keys_max, "a list has no more keys than asked for");
      for (std::uint32_t i = 0; i < op.page.keys_count; ++i) {
        require(op.keys[i].valid(), "a list's keys are keys");
      }
    }
  }

  ScriptReader script_;
  std::uint64_t clock_ns_ = 1'000'000'000;
  test::FakeExecutor executor_{clock_ns_};
  std::vector<std::unique_ptr<Op>> ops_;
  std::unique_ptr<HostController> controller_;
  std::vector<std::unique_ptr<FuzzPeer>> peers_;
  bool down_ = false;
};

}  // namespace
}  // namespace furrow::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  furrow::fuzz::Association(data, size).run();
  return 0;
}
