#include "tests/crash/writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "engine/embedded_pool.h"
#include "tests/crash/pages.h"
#include "transport/initiator.h"
#include "zone/aligned_buffer.h"
#include "zone/event_loop.h"

namespace furrow::crash {

namespace {

constexpr unsigned kThreads = 3;
constexpr unsigned kBurstMax = 12;

// A volume, here or behind NVMe/TCP. Made and used on one thread.
class Client {
 public:
  virtual ~Client() = default;
  virtual void run(std::span<PageOp> ops) = 0;  // all are in flight together; blocks
};

class LocalClient final : public Client {
 public:
  explicit LocalClient(SyncPageStore store) : store_(store) {}
  void run(std::span<PageOp> ops) override { store_.run(ops); }

 private:
  SyncPageStore store_;
};

class RemoteClient final : public Client {
 public:
  Status connect(std::uint16_t port, std::uint32_t nsid) {
    transport::InitiatorOptions options;
    options.port = port;
    options.nsid = nsid;
    options.reconnect_for_ms = 0;
    auto connected = transport::Initiator::connect(loop_, options);
    if (!connected) return connected.status();
    initiator_ = std::move(*connected);
    return {};
  }
  void run(std::span<PageOp> ops) override {
    left_ = ops.size();
    for (PageOp& op : ops) {
      op.context = this;
      op.on_result = [](PageOp&) {};
      op.on_released = [](PageOp& done) {
        auto& client = *static_cast<RemoteClient*>(done.context);
        if (--client.left_ == 0) client.loop_.stop_running();
      };
      initiator_->submit(op);
    }
    loop_.run();
  }

 private:
  EventLoop loop_;
  std::unique_ptr<transport::Initiator> initiator_;
  std::size_t left_ = 0;
};

bool is_gone(const Status& status) {
  return status.code() == Code::aborted || status.code() == Code::io_error ||
         status.code() == Code::not_found || status.code() == Code::busy;
}

// One thread of the writer: one volume's keys that are `share` modulo kThreads.
class Worker {
 public:
  Worker(Client& client, Ledger& ledger, unsigned volume, std::uint64_t share,
         const WriterOptions& options)
      : client_(client),
        ledger_(ledger),
        volume_(volume),
        share_(share),
        remote_(options.pool.empty()),
        flushes_(options.flushes),
        keys_(options.keys),
        random_(options.seed * 31 + volume * kThreads + share),
        memory_(kBurstMax * kPageBytesMax),
        ops_(kBurstMax) {}

  // Until the server is gone (true), or something is wrong.
  bool run() {
    for (;;) {
      draw();
      client_.run(std::span(ops_).first(burst_.size()));
      bool gone = false;
      for (std::size_t i = 0; i < burst_.size(); ++i) {
        if (!take(ops_[i], burst_[i], gone)) return false;
      }
      if (gone) return true;
    }
  }

 private:
  void draw() {
    burst_.clear();
    const std::uint64_t wanted = 1 + random_() % kBurstMax;
    for (std::uint64_t i = 0; i < wanted; ++i) {
      const std::uint64_t key = random_() % (keys_ / kThreads) * kThreads + share_;
      if (!ledger_.settled(volume_, key)) continue;  // left by a kill: it is for the check to say
      if (std::ranges::find(burst_, key) != burst_.end()) continue;
      set_up(ops_[burst_.size()], key, memory_.data() + burst_.size() * kPageBytesMax);
      burst_.push_back(key);
    }
  }

  void set_up(PageOp& op, std::uint64_t key, std::byte* page) {
    op = PageOp();
    op.key = key_of(key);
    op.data = page;
    op.capacity = kPageBytesMax;
    const std::uint64_t what = random_() % 100;
    if (what < 20) return;  // a get
    if (flushes_ && random_() % 64 == 0) op.durability = Durability::flushed;
    const bool remove = what < 35;
    const std::uint64_t version = ledger_.next_version();
    op.kind = remove ? PageOp::Kind::remove : PageOp::Kind::put;
    if (!remove) {
      op.length = page_bytes_of(version);
      fill_page(key, version, {page, op.length});
      if (what < 45) op.condition = PageOp::Condition::if_absent;
    }
    ledger_.ask(volume_, key, {version, !remove});
  }

  // False: it is not as it must be.
  bool take(const PageOp& op, std::uint64_t key, bool& gone) {
    if (remote_ && op.status.code() == Code::aborted) return gone = true;
    switch (op.kind) {
      case PageOp::Kind::get:
        return take_get(op, key);
      case PageOp::Kind::remove:
        return take_remove(op, key);
      default:
        return take_put(op, key);
    }
  }

  bool take_get(const PageOp& op, std::uint64_t key) {
    const Content content = ledger_.acknowledged(volume_, key);
    if (op.status.code() == Code::not_found) {
      return !content.page || volume_ == kCache || wrong(op, key, "is lost");
    }
    if (!op.status.ok()) return wrong(op, key, "cannot be read");
    const std::span<const std::byte> page(op.data, std::min(op.length, op.capacity));
    if (!is_whole(key, page)) return wrong(op, key, "has wrong bytes");
    return (content.page && version_in(page) == content.version) ||
           wrong(op, key, fmt::format("has version {}", version_in(page)));
  }

  bool take_put(const PageOp& op, std::uint64_t key) {
    const bool present = ledger_.acknowledged(volume_, key).page;
    const bool conditional = op.condition == PageOp::Condition::if_absent;
    if (op.status.ok()) {
      if (conditional && present && volume_ == kStore) return wrong(op, key, "was stored over");
      ledger_.acknowledge(volume_, key);
      return true;
    }
    if (op.status.code() == Code::exists && conditional) {
      ledger_.withdraw(volume_, key);
      return present || wrong(op, key, "is there");
    }
    return refused(op, key);
  }

  bool take_remove(const PageOp& op, std::uint64_t key) {
    const bool absent = op.status.code() == Code::not_found;
    if (absent && volume_ == kStore && ledger_.acknowledged(volume_, key).page) {
      return wrong(op, key, "is lost");
    }
    if (!op.status.ok() && !absent) return refused(op, key);
    ledger_.acknowledge(volume_, key);
    return true;
  }

  // Full, the volume or the file system: then nothing has been done.
  bool refused(const PageOp& op, std::uint64_t key) {
    if (op.status.code() != Code::no_space) return wrong(op, key, "is refused");
    ledger_.withdraw(volume_, key);
    ledger_.count_refusal();
    return true;
  }

  bool wrong(const PageOp& op, std::uint64_t key, const std::string& what) {
    const Content told = ledger_.acknowledged(volume_, key);
    ledger_.complain(fmt::format("{}: key {}, {} {}, {}: {}", kVolumeNames[volume_], key,
                                 told.page ? "stored as" : "absent since", told.version, what,
                                 op.status.describe()));
    return false;
  }

  Client& client_;
  Ledger& ledger_;
  const unsigned volume_;
  const std::uint64_t share_;
  const bool remote_;
  const bool flushes_;
  const std::uint64_t keys_;
  std::mt19937_64 random_;
  AlignedBuffer memory_;
  std::vector<PageOp> ops_;
  std::vector<std::uint64_t> burst_;  // the keys of ops_
};

// Connects, or takes the open pool, and works. Whether it ended well.
bool work(EmbeddedPool* pool, const WriterOptions& options, Ledger& ledger, unsigned volume,
          std::uint64_t share) {
  std::unique_ptr<Client> client;
  if (pool != nullptr) {
    auto store = pool->store(kVolumeNames[volume]);
    if (!store.ok()) {
      ledger.complain(store.status().describe());
      return false;
    }
    client = std::make_unique<LocalClient>(*store);
  } else {
    auto remote = std::make_unique<RemoteClient>();
    const Status connected = remote->connect(options.port, volume + 1);
    if (!connected.ok()) {
      if (!is_gone(connected)) ledger.complain("cannot connect: " + connected.describe());
      return is_gone(connected);  // killed already, or about to be
    }
    client = std::move(remote);
  }
  return Worker(*client, ledger, volume, share, options).run();
}

}  // namespace

int run_writer(const WriterOptions& options, Ledger& ledger) {
  std::unique_ptr<EmbeddedPool> pool;
  if (!options.pool.empty()) {
    auto opened = EmbeddedPool::open(options.pool);
    if (!opened.ok()) {
      ledger.complain("the writer cannot open the pool: " + opened.status().describe());
      return 1;
    }
    pool = std::move(*opened);
  }
  std::atomic<bool> well = true;
  {
    std::vector<std::jthread> threads;
    for (unsigned volume = 0; volume < Ledger::kVolumes; ++volume) {
      for (std::uint64_t share = 0; share < kThreads; ++share) {
        threads.emplace_back([&, volume, share] {
          if (work(pool.get(), options, ledger, volume, share)) return;
          well = false;
          std::_Exit(1);  // the others would go on
        });
      }
    }
  }
  return well ? 0 : 1;
}

}  // namespace furrow::crash
