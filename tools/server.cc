#include "tools/server.h"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <semaphore>
#include <utility>

#include "tools/command.h"
#include "tools/file_limit.h"
#include "tools/service_manager.h"
#include "tools/tell.h"
#include "transport/tcp_listener.h"
#include "zone/threads.h"

namespace furrow::tools {

namespace {

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  // nohup(1) has the second ignored, a shell without job control the first for what it runs in the
  // background; who waits for one would get it all the same.
  for (const int number : {SIGINT, SIGHUP}) {
    struct sigaction at_start {};
    const bool known = sigaction(number, nullptr, &at_start) == 0;
    if (known && at_start.sa_handler != SIG_IGN) sigaddset(&set, number);
  }
  return set;
}

// The process ends as if the signal had never been blocked.
[[noreturn]] void die_of(int signal_number) {
  tell("{}: ended by a signal while it started\n", program_name());
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal_number);
  signal(signal_number, SIG_DFL);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  raise(signal_number);
  _exit(128 + signal_number);
}

// That it cannot be told stops nobody from being served.
void tell_manager(const std::string& lines) {
  const Status told = tell_service_manager(lines);
  if (told.ok()) return;
  tell("{}: cannot tell the service manager: {}\n", program_name(), told.describe());
}

std::string format_endpoint(const std::string& host, std::uint16_t port) {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

}  // namespace

Server::Server(ServerOptions options)
    : options_(std::move(options)), home_({.spin_us = options_.target.spin_us}) {}

Server::~Server() = default;

int Server::run() {
  // Before any other thread exists, so that only the one that waits for them gets these signals.
  const sigset_t set = stop_signals();
  FURROW_CHECK(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error, as a full disk is

  const Status waits = start_thread(signals_, [this] { wait_for_signal(); });
  if (!waits.ok()) return report("cannot wait for signals", waits);
  int status = start();
  if (status == kExitDone) {
    status = begin_serving();
    if (status != kExitDone) (void)pthread_kill(signals_.native_handle(), SIGTERM);  // in order
    watch_device();
    home_.run();
    home_.stop(watch_timer_);
    tell_scrub(scrub_log_.second_passed());
  } else {
    end_waiting();
  }
  signals_.join();
  admin_.reset();
  target_.reset();
  if (!open_.close() && status == kExitDone) {
    tell("{}: the device could not flush at the end: what was not flushed before may be lost\n",
         program_name());
    status = kExitFailed;
  }
  return status;
}

// The admin listener comes first, so that /ready tells of the start-up. An address that cannot be
// had is said before a pool is made.
int Server::start() {
  int status = options_.create ? try_to_listen() : kExitDone;
  if (status == kExitDone) status = start_admin();
  if (status == kExitDone) status = open_pool_and_volume();
  if (status == kExitDone) status = start_target();
  return status;
}

int Server::cannot_listen(const Status& status) const {
  return report("cannot listen on " +
                    format_endpoint(options_.target.listen_host, options_.target.listen_port),
                status);
}

int Server::try_to_listen() const {
  const auto listener =
      transport::TcpListener::open(options_.target.listen_host, options_.target.listen_port);
  return listener ? kExitDone : cannot_listen(listener.status());
}

void Server::want_files() const {
  const std::uint64_t wanted = transport::descriptors_max(options_.target);
  const auto limit = raise_file_limit(wanted);
  if (limit && *limit >= wanted) return;
  tell(
      "{}: --connections_max={} needs {} open files and the limit is {}: connections beyond "
      "it will wait; raise it (`ulimit -Hn {}`, in a systemd unit LimitNOFILE={}), or lower "
      "--connections_max\n",
      program_name(), options_.target.connections_max, wanted,
      limit ? fmt::to_string(*limit) : limit.status().describe(), wanted, wanted);
}

int Server::start_target() {
  want_files();
  auto target = transport::Target::start(*open_, home_, options_.target);
  if (!target) return cannot_listen(target.status());
  target_ = std::move(*target);
  live_.emplace(*open_, open_.device(), *target_, home_);
  return kExitDone;
}

// Whoever waits for the line would wait for ever if it went nowhere: that is a failure.
int Server::begin_serving() {
  nlohmann::ordered_json ready = {
      {"listen", format_endpoint(options_.target.listen_host, target_->port())}};
  if (admin_) ready["admin"] = format_endpoint(options_.admin->host, admin_->port());
  ready["nqn"] = target_->subsystem_nqn();
  std::string line = json_text(ready, -1);
  if (!json_asked()) {
    line = "furrowd ready";
    for (const auto& [name, value] : ready.items()) {
      line += fmt::format(" {}={}", name, value.get<std::string>());
    }
  }
  leave_start(Phase::serving);
  if (admin_) admin_->set_ready(true);
  tell_manager("READY=1\nSTATUS=serves on " + ready["listen"].get<std::string>());
  const int status = print_text(line + '\n');
  if (status != kExitDone) tell("{}: it ends, as nobody was told that it serves\n", program_name());
  return status;
}

// Unless a signal came first: then its thread is ending the process.
void Server::leave_start(Phase to) {
  Phase phase = Phase::starting;
  if (!phase_.compare_exchange_strong(phase, to)) {
    for (;;) pause();
  }
}

int Server::open_pool_and_volume() {
  Pool::OpenOptions opening = options_.opening;
  opening.on_scrub_finding = [this](const ScrubFinding& finding) {
    tell_scrub(scrub_log_.found(finding));
  };
  auto opened = options_.create ? open_or_create_pool(options_.pool, home_, opening)
                                : open_made_pool(options_.pool, home_, opening);
  if (!opened) return report_device("cannot open pool", options_.pool.uri, opened.status());
  open_ = std::move(*opened);
  tell_damage();
  return settle_volume();
}

void Server::tell_damage() {
  constexpr std::size_t kTold = 10;
  const std::vector<std::string> texts = open_->opening_damage();
  for (std::size_t i = 0; i < std::min(texts.size(), kTold); ++i) {
    tell("{}: damaged: {}\n", program_name(), texts[i]);
  }
  if (texts.empty()) return;
  tell("{}: {} damaged places in all; stop the server and see `furrowctl pool check {}`\n",
       program_name(), texts.size(), options_.pool.uri);
}

// The volume that was asked for is there, as it was asked for. One that was not asked for is made
// only where there is none at all: a server that was killed between making the pool and its volume
// makes the volume next time.
int Server::settle_volume() {
  const std::string& name = options_.volume.name;
  const PageStore* const volume = open_->find(name);
  if (volume != nullptr) {
    const Status same = check_volume(volume->info(), open_->info().geometry, options_.volume,
                                     options_.volume_asked);
    return same.ok() ? kExitDone : report("cannot serve volume " + name, same);
  }
  if (options_.create && (options_.volume_asked.any() || open_->stores().empty())) {
    const Status made = open_.create_volume(options_.volume).status();
    return made.ok() ? kExitDone : report("cannot create volume " + name, made);
  }
  if (!options_.volume_asked.any()) return kExitDone;
  std::string others;
  for (const PageStore* store : open_->stores()) {
    others += (others.empty() ? "; the pool has: " : ", ") + store->info().options.name;
  }
  tell("{}: there is no volume {}{}; --create makes it\n", program_name(), name,
       others.empty() ? ", nor any other" : others);
  return kExitFailed;
}

int Server::start_admin() {
  if (!options_.admin) return kExitDone;
  auto admin = AdminServer::start(
      options_.admin->host, options_.admin->port,
      {.metrics = [this] { return metrics(); },
       .pool = [this] { return ask(&LiveVolumes::pool); },
       .zones = [this] { return ask(&LiveVolumes::zones); },
       .volumes = [this] { return ask(&LiveVolumes::list); },
       .create_volume =
           [this](const std::string& options) {
             return ask([&](LiveVolumes& live) { return live.create(options); });
           },
       .delete_volume =
           [this](const std::string& name) {
             return ask([&](LiveVolumes& live) { return live.remove(name); });
           },
       .resize_volume =
           [this](const std::string& name, const std::string& options) {
             return ask([&](LiveVolumes& live) { return live.resize(name, options); });
           },
       .token = options_.admin_token,
       .stopped = [this] { post(admin_stopped_task_, &Server::stop_home); }});
  if (!admin) {
    return report("cannot listen on " + format_endpoint(options_.admin->host, options_.admin->port),
                  admin.status());
  }
  admin_ = std::move(*admin);
  return kExitDone;
}

void Server::tell_scrub(const std::optional<std::string>& what) {
  if (what) tell("{}: scrub: {}\n", program_name(), *what);
}

void Server::watch_device() {
  constexpr std::uint64_t kWatchNs = 1'000'000'000;
  for (const std::string& news : device_watch_.look(open_->info())) {
    tell("{}: {}\n", program_name(), news);
  }
  if (admin_ && open_->info().device_gone) admin_->set_ready(false);
  tell_scrub(scrub_log_.second_passed());
  watch_timer_.server = this;
  watch_timer_.fire = [](Timer& timer) { static_cast<WatchTimer&>(timer).server->watch_device(); };
  home_.start(watch_timer_, kWatchNs);
}

void Server::post(MemberTask& task, void (Server::*call)()) {
  task.server = this;
  task.call = call;
  task.run = [](Task& posted) {
    const auto& member = static_cast<MemberTask&>(posted);
    (member.server->*member.call)();
  };
  home_.post(task);
}

void Server::wait_for_signal() {
  const sigset_t set = stop_signals();
  int signal_number = 0;
  FURROW_CHECK(sigwait(&set, &signal_number) == 0);
  Phase phase = Phase::starting;
  // Nothing was acknowledged yet, and the next start recovers from any point of this one.
  if (phase_.compare_exchange_strong(phase, Phase::ended)) die_of(signal_number);
  if (phase == Phase::serving) post(stop_task_, &Server::begin_stop);  // else: from end_waiting()
}

void Server::end_waiting() {
  leave_start(Phase::failed);
  (void)pthread_kill(signals_.native_handle(), SIGTERM);  // it may have ended by a real one
}

// Drains the target, then the admin listener (which answers /ready with 503 meanwhile), then ends
// the loop.
void Server::begin_stop() {
  // A second signal ends the process at once, as it would any other program; what was acknowledged
  // survives that. Not SIGHUP: of a terminal that goes a shell tells, and then the kernel.
  sigset_t set = stop_signals();
  sigdelset(&set, SIGHUP);
  FURROW_CHECK(pthread_sigmask(SIG_UNBLOCK, &set, nullptr) == 0);
  if (admin_) admin_->set_ready(false);
  tell_manager("STOPPING=1\nSTATUS=ends what it accepted");
  live_->end();
  target_->stop(options_.drain_ms, [this] {
    if (admin_) {
      admin_->request_stop();
    } else {
      home_.stop_running();
    }
  });
}

ServerSnapshot Server::snapshot() const {
  ServerSnapshot snapshot;
  snapshot.pool = open_->info();
  for (const PageStore* store : open_->stores()) {
    snapshot.volumes.push_back({store->info(), store->usage(), store->stats()});
  }
  snapshot.target = target_->stats();
  return snapshot;
}

struct Server::SnapshotTask : Task {
  const Server* server = nullptr;
  ServerSnapshot snapshot;
  std::binary_semaphore done{0};
};

AdminAnswer Server::ask(const std::function<AdminAnswer(LiveVolumes&)>& what) {
  if (phase_.load() != Phase::serving) return {503, "{\"error\":\"not ready\"}\n"};
  return what(*live_);
}

std::optional<std::string> Server::metrics() {
  if (phase_.load() != Phase::serving) return std::nullopt;  // the home executor does not run yet
  SnapshotTask task;
  task.server = this;
  task.run = [](Task& posted) {
    auto& asked = static_cast<SnapshotTask&>(posted);
    asked.snapshot = asked.server->snapshot();
    asked.done.release();
  };
  home_.post(task);
  task.done.acquire();
  return metrics_text(task.snapshot);
}

}  // namespace furrow::tools
