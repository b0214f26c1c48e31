#include "tests/crash/crash_run.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <thread>

#include "tests/crash/pages.h"
#include "zone/event_loop.h"

namespace furrow::crash {

namespace {

constexpr unsigned kWaitMax_s = 60;  // generous: a loaded machine is no failure
constexpr std::uint64_t kForever = ~std::uint64_t{0};

using Clock = std::chrono::steady_clock;

void sleep_us(std::uint64_t us) { std::this_thread::sleep_for(std::chrono::microseconds(us)); }

}  // namespace

void Totals::add(const Totals& other) {
  for (auto member : {&Totals::rounds, &Totals::kills, &Totals::early_kills, &Totals::server_rounds,
                      &Totals::terms, &Totals::full, &Totals::acknowledged, &Totals::refused,
                      &Totals::unanswered, &Totals::pages_verified}) {
    this->*member += other.*member;
  }
}

CrashRun::CrashRun(const Options& options)
    : options_(options),
      random_(options.seed * 0x9E3779B97F4A7C15u + 1),
      ledger_(Ledger::create(options.directory + "/ledger")) {}

std::string CrashRun::Plan::describe() const {
  std::string text = server ? "furrowd" : "embedded writer";
  text += term ? ", SIGTERM" : both ? ", killed with its writer" : ", killed";
  text += fmt::format(" {} us after {}", after_us, early ? "its start" : "the first answer");
  if (early_kills != 0) text += fmt::format(", {} kills at start-up", early_kills);
  if (file_bytes_max != kForever) text += fmt::format(", disk full at {} bytes", file_bytes_max);
  return text;
}

CrashRun::Plan CrashRun::draw() {
  Plan plan;
  plan.server = below(2) == 0;
  const std::uint64_t what = below(100);
  plan.term = plan.server && what < 25;
  plan.early = what >= 85;
  plan.both = plan.server && below(3) == 0;
  plan.after_us = below(2) == 0 ? below(5'000) : below(120'000);
  if (plan.early) plan.after_us = below(30'000);
  if (below(3) == 0 && !plan.term) plan.early_kills = 1 + static_cast<unsigned>(below(3));
  if (below(5) == 0 && options_.device.empty()) {
    plan.file_bytes_max = pool_bytes_ / 4 + below(pool_bytes_ * 3 / 4);
  }
  plan.after_us *= options_.pace;
  return plan;
}

// A file, of a shape that is drawn.
bool CrashRun::make_device() {
  DeviceShape shape;
  const std::uint64_t zone_bytes = std::uint64_t{1} << (20 + below(3));
  const std::uint64_t zones = 10 + below(24);
  const std::uint64_t zones_max = 4 + below(11);
  pool_bytes_ = zones * zone_bytes;
  shape.size_bytes = pool_bytes_;
  shape.zone_size_bytes = zone_bytes;
  if (below(3) == 0) shape.zone_capacity_bytes = zone_bytes - (64 << 10);
  shape.lba_bytes = below(4) == 0 ? 512 : 4096;
  shape.open_zones_max = shape.active_zones_max = static_cast<std::uint32_t>(zones_max);
  const Status status = create_device(uri(), shape);
  return status.ok() || fail("cannot make the device: " + status.describe());
}

// Two volumes, one of each mode, that share a small device: collection and eviction go on all the
// time, and sometimes the store is full.
bool CrashRun::make_pool() {
  if (options_.device.empty() && !make_device()) return false;  // (a drive has its shape)
  EventLoop loop;
  auto device = open_device(uri(), Access::exclusive);
  if (!device.ok()) return fail("cannot open the device: " + device.status().describe());
  const Geometry& shape = (*device)->geometry();
  // A store holds some 6 KiB for each key that is there.
  const std::uint64_t store_bytes = (shape.zone_count - 2) / 2 * shape.zone_capacity_bytes();
  keys_ = std::min(Ledger::kKeysMax, store_bytes / (below(4) == 0 ? 6'000 : 24'000));
  shape_ =
      fmt::format("{} zones of {} bytes, LBAs of {}, MOR and MAR {}, {} keys", shape.zone_count,
                  shape.zone_capacity_bytes(), shape.lba_bytes, shape.active_zones_max, keys_);
  const Status status = Pool::format(**device, "crash", loop);
  if (!status.ok()) return fail("cannot make the pool: " + status.describe());
  auto pool = Pool::open(**device, loop, {});
  if (!pool.ok()) return fail("cannot open the new pool: " + pool.status().describe());
  for (unsigned volume = 0; volume < Ledger::kVolumes; ++volume) {
    VolumeOptions make;
    make.name = kVolumeNames[volume];
    make.mode = volume == kStore ? VolumeMode::store : VolumeMode::cache;
    make.quota_bytes = volume == kStore ? store_bytes : 0;
    make.nsid = volume + 1;
    make.value_bytes_max = kPageBytesMax;
    const auto made = (*pool)->create_volume(make);
    if (!made.ok()) return fail("cannot make a volume: " + made.status().describe());
  }
  while (!(*pool)->quiesce()) loop.run_once();
  return true;
}

bool CrashRun::run() {
  if (!make_pool()) return false;
  if (options_.verbose) fmt::print("seed {}: {}\n", options_.seed, shape_);
  for (unsigned i = 0; i < options_.rounds && !(options_.stop && *options_.stop); ++i) {
    const Plan plan = draw();
    const std::uint64_t before = ledger_.acknowledgements();
    const auto began = Clock::now();
    // On a full disk the end of the last zone may not have been noted before the kill.
    const bool full = plan.file_bytes_max != kForever;
    const bool held = round(plan) && (full || check()) && verify(plan.term) && (!full || check());
    totals_.acknowledged = ledger_.acknowledgements();
    totals_.refused = ledger_.refusals();
    if (options_.verbose || !held) {
      fmt::print(
          "seed {} round {}: {}: {} answers, {} ms{}\n", options_.seed, i, plan.describe(),
          ledger_.acknowledgements() - before,
          std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began).count(),
          held ? "" : ": FAILED");
    }
    if (!held) return false;
    ++totals_.rounds;
    if (plan.file_bytes_max != kForever) ++totals_.full;
  }
  return true;
}

bool CrashRun::round(const Plan& plan) {
  if (!(plan.server ? server_round(plan) : embedded_round(plan))) return false;
  for (unsigned i = 0; i < plan.early_kills; ++i) {
    if (!early_kill()) return false;
  }
  return true;
}

Process CrashRun::start_server(const Plan& plan) {
  const std::vector<std::string> command = {options_.programs + "/furrowd",
                                            "--pool=" + uri(),
                                            "--listen=127.0.0.1:0",
                                            "--admin=",
                                            fmt::format("--cores={}", 1 + below(2)),
                                            "--poll=sleep"};
  return Process(command, {path("furrowd.log"), plan.file_bytes_max});
}

Process CrashRun::start_writer(const Plan& plan, std::uint16_t port) {
  std::vector<std::string> command = {
      "/proc/self/exe", "--role=writer", "--ledger=" + path("ledger"),
      fmt::format("--seed={}", random_()), fmt::format("--keys={}", keys_)};
  // Of a put that is to be flushed, the first command may be accepted and the second not.
  if (plan.term) command.push_back("--noflushes");
  command.push_back(plan.server ? fmt::format("--port={}", port) : "--pool=" + uri());
  return Process(command, {path("writer.log"), plan.server ? kForever : plan.file_bytes_max});
}

bool CrashRun::embedded_round(const Plan& plan) {
  Process writer = start_writer(plan, 0);
  if (!plan.early && !wait_for_work(writer)) return false;
  sleep_us(plan.after_us);
  ++(plan.early ? totals_.early_kills : totals_.kills);
  return was_killed(writer.end(), "writer");
}

bool CrashRun::server_round(const Plan& plan) {
  ++totals_.server_rounds;
  Process server = start_server(plan);
  if (plan.early) {
    sleep_us(plan.after_us);
    ++totals_.early_kills;
    return was_killed(server.end(), "furrowd");
  }
  std::uint16_t port = 0;
  if (!wait_for_port(server, port)) return false;
  Process writer = start_writer(plan, port);
  if (!wait_for_work(writer)) return false;
  sleep_us(plan.after_us);
  if (plan.term) {
    ++totals_.terms;
    server.signal(SIGTERM);
    const Ended ended = server.wait(kWaitMax_s);
    if (ended.killed || ended.code != 0) {
      return fail(fmt::format("furrowd, sent SIGTERM, {}: {}", ended.describe(),
                              text_of(path("furrowd.log"))));
    }
  } else {
    ++totals_.kills;
    if (plan.both) writer.signal(SIGKILL);
    if (!was_killed(server.end(), "furrowd")) return false;
  }
  if (plan.both && !plan.term) return was_killed(writer.end(), "writer");
  const Ended ended = writer.wait(kWaitMax_s);
  if (!ended.killed && ended.code == 0) return true;
  return fail(fmt::format("the writer {}: {}{}", ended.describe(), ledger_.complaint(),
                          text_of(path("writer.log"))));
}

// Recovers the pool, perhaps, and dies.
bool CrashRun::early_kill() {
  Plan plan;
  Process server = start_server(plan);
  sleep_us(below(25'000) * options_.pace);
  ++totals_.early_kills;
  return was_killed(server.end(), "furrowd");
}

bool CrashRun::wait_for_port(Process& server, std::uint16_t& port) {
  const auto end_at = Clock::now() + std::chrono::seconds(kWaitMax_s);
  while (Clock::now() < end_at) {
    const std::string said = text_of(path("furrowd.log"));
    const std::size_t at = said.find("listen=127.0.0.1:");
    if (at != std::string::npos && said.find('\n', at) != std::string::npos) {
      port = static_cast<std::uint16_t>(std::stoul(said.substr(at + 17)));
      return true;
    }
    if (!server.running()) break;
    sleep_us(500);
  }
  return fail("furrowd does not start: " + text_of(path("furrowd.log")));
}

// Until the writer has been told that something is stored, or refused.
bool CrashRun::wait_for_work(Process& writer) {
  const std::uint64_t before = ledger_.acknowledgements() + ledger_.refusals();
  const auto end_at = Clock::now() + std::chrono::seconds(kWaitMax_s);
  while (ledger_.acknowledgements() + ledger_.refusals() == before) {
    if (!writer.running() || Clock::now() > end_at) {
      return fail(fmt::format("the writer does not work: {}{}", ledger_.complaint(),
                              text_of(path("writer.log"))));
    }
    sleep_us(200);
  }
  return true;
}

bool CrashRun::was_killed(const Ended& ended, const char* what) {
  if (!ledger_.complaint().empty()) return fail(ledger_.complaint());
  if (ended.killed && ended.code == SIGKILL) return true;
  return fail(fmt::format("{} {}, before it was killed: {}{}", what, ended.describe(),
                          text_of(path("furrowd.log")), text_of(path("writer.log"))));
}

bool CrashRun::check() {
  Process furrowctl({options_.programs + "/furrowctl", "pool", "check", uri()},
                    {path("check.log")});
  const Ended ended = furrowctl.wait(kWaitMax_s);
  if (!ended.killed && ended.code == 0) return true;
  return fail(fmt::format("pool check {}: {}", ended.describe(), text_of(path("check.log"))));
}

// `drained`: what was not answered has not been done either.
bool CrashRun::verify(bool drained) {
  auto pool = EmbeddedPool::open(uri());
  if (!pool.ok()) return fail("the pool does not open: " + pool.status().describe());
  for (unsigned volume = 0; volume < Ledger::kVolumes; ++volume) {
    auto store = (*pool)->store(kVolumeNames[volume]);
    if (!store.ok()) return fail("a volume is lost: " + store.status().describe());
    if (!verify_volume(*store, volume, drained)) return false;
  }
  return true;
}

bool CrashRun::verify_volume(SyncPageStore& store, unsigned volume, bool drained) {
  std::uint64_t present = 0;
  const std::uint64_t evicted_before = store.async().stats().evicted_pages;
  for (std::uint64_t key = 0; key < keys_; ++key) {
    if (!verify_key(store, volume, key, drained, present)) return false;
  }
  totals_.pages_verified += present;
  // A cache that was opened full evicts, perhaps a page that has just been seen.
  const std::uint64_t held = store.async().usage().pages;
  const std::uint64_t evicted = store.async().stats().evicted_pages - evicted_before;
  if (held <= present && present <= held + evicted) return true;
  return fail(fmt::format("{}: {} pages are there, the volume says {}", kVolumeNames[volume],
                          present, held));
}

bool CrashRun::verify_key(SyncPageStore& store, unsigned volume, std::uint64_t key, bool drained,
                          std::uint64_t& present) {
  const Content told = ledger_.acknowledged(volume, key);
  const Content asked = ledger_.asked(volume, key);
  const bool settled = ledger_.settled(volume, key);
  if (!settled) ++totals_.unanswered;
  const auto wrong = [&](const std::string& what) {
    return fail(fmt::format("{}: key {}, {} {} (asked for since: {} {}), {}", kVolumeNames[volume],
                            key, told.page ? "stored as" : "absent since", told.version,
                            asked.page ? "store" : "delete", settled ? 0 : asked.version, what));
  };
  const auto page = store.get(key_of(key));
  Content found;
  if (page.ok()) {
    if (!is_whole(key, *page)) return wrong("has wrong bytes");
    found = Content{version_in(*page), true};
    ++present;
  } else if (page.status().code() != Code::not_found) {
    return wrong("cannot be read: " + page.status().describe());
  }
  const bool evicted = volume == kCache && !found.page;
  if (!found.same_as(told) && (settled || drained || !found.same_as(asked)) && !evicted) {
    return wrong(found.page ? fmt::format("is there as {}", found.version) : "is not there");
  }
  if (evicted && (told.page || asked.page)) {
    // What is evicted may come back with a kill, as it was: the key begins anew.
    const Status removed = store.remove(key_of(key));
    if (!removed.ok() && removed.code() != Code::not_found && removed.code() != Code::no_space) {
      return wrong("cannot be deleted: " + removed.describe());
    }
  }
  ledger_.settle(volume, key, found.page ? found : Content{std::max(told.version, asked.version)});
  return true;
}

bool CrashRun::fail(std::string what) {
  if (failure_.empty()) failure_ = std::move(what);
  return false;
}

}  // namespace furrow::crash
