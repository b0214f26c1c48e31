#include "tools/server.h"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <semaphore>

namespace furrow::tools {

namespace {

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
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

  const int status = start();
  if (status == kExitDone) {
    signals_ = std::thread([this] { wait_for_signal(); });
    watch_device();
    home_.run();
    home_.stop(watch_timer_);
    signals_.join();
  } else if (target_) {
    target_->stop(0, [this] { home_.stop_running(); });
    home_.run();
  }
  admin_.reset();
  target_.reset();
  open_.close();
  return status;
}

int Server::start() {
  const Status opened = open_pool_and_volume();
  if (!opened.ok()) return report_device("cannot open pool", options_.pool.uri, opened);

  auto target = transport::Target::start(*open_, home_, options_.target);
  if (!target) {
    return report("cannot listen on " +
                      format_endpoint(options_.target.listen_host, options_.target.listen_port),
                  target.status());
  }
  target_ = std::move(*target);
  const int status = start_admin();
  if (status != kExitDone) return status;

  std::string line =
      "furrowd ready listen=" + format_endpoint(options_.target.listen_host, target_->port());
  if (admin_) line += " admin=" + format_endpoint(options_.admin->host, admin_->port());
  line += " nqn=" + target_->subsystem_nqn();
  fmt::print("{}\n", line);
  std::fflush(stdout);
  return kExitDone;
}

Status Server::open_pool_and_volume() {
  auto opened = options_.create ? open_or_create_pool(options_.pool, home_)
                                : open_pool(options_.pool.uri, home_, Opening::use);
  if (!opened) return opened.status();
  open_ = std::move(*opened);
  if (!options_.create) return {};
  // A server that was killed between making the pool and its volume makes the volume next time.
  if (open_->stores().empty()) return open_->create_volume(options_.volume).status();
  const PageStore* const volume = open_->find(options_.volume.name);
  if (volume != nullptr && volume->info().options.mode != options_.volume.mode) {
    return {
        Code::exists, Origin::tool,
        "the volume is there already, in the other mode: leave --create out, or give its --mode"};
  }
  return {};
}

int Server::start_admin() {
  if (!options_.admin) return kExitDone;
  auto admin =
      AdminServer::start(options_.admin->host, options_.admin->port,
                         {.metrics = [this] { return metrics(); },
                          .stopped = [this] { post(admin_stopped_task_, &Server::stop_home); }});
  if (!admin) {
    return report("cannot listen on " + format_endpoint(options_.admin->host, options_.admin->port),
                  admin.status());
  }
  admin_ = std::move(*admin);
  admin_->set_ready(true);
  return kExitDone;
}

void Server::watch_device() {
  constexpr std::uint64_t kWatchNs = 1'000'000'000;
  const bool full = open_->info().device_full;
  if (full != device_full_) {
    fmt::print(
        stderr, "{}: {}\n", program_name(),
        full ? "the device takes no more data (is the file system under it full?): what is to "
               "be stored is refused until there is room"
             : "the device takes data again");
    device_full_ = full;
  }
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
  post(stop_task_, &Server::begin_stop);
}

// Drains the target, then the admin listener (which answers /ready with 503 meanwhile), then ends
// the loop.
void Server::begin_stop() {
  // A second signal ends the process at once, as it would any other program; what was acknowledged
  // survives that.
  const sigset_t set = stop_signals();
  FURROW_CHECK(pthread_sigmask(SIG_UNBLOCK, &set, nullptr) == 0);
  if (admin_) admin_->set_ready(false);
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

std::string Server::metrics() {
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
