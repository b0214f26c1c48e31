// Server: what furrowd runs. A pool, its NVMe/TCP target, the admin listener and the signals, from
// start-up to an orderly end.
//
// Threads: made, run and destroyed on one thread, which becomes the pool's home executor.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "tools/admin_server.h"
#include "tools/command_line.h"
#include "tools/device_watch.h"
#include "tools/live_volumes.h"
#include "tools/make_pool.h"
#include "tools/metrics.h"
#include "tools/scrub_log.h"
#include "transport/target.h"
#include "zone/event_loop.h"

namespace furrow::tools {

struct ServerOptions {
  PoolRecipe pool;
  bool create = false;  // make what is missing: device, pool, `volume`
  VolumeOptions volume;
  VolumeAsked volume_asked;
  transport::TargetOptions target;
  std::optional<Endpoint> admin;  // none: no admin listener
  std::string admin_token;        // of who may change volumes by it; empty: nobody
  std::uint32_t drain_ms = 5000;
  Pool::OpenOptions opening;
};

class Server {
 public:
  explicit Server(ServerOptions options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Serves until SIGTERM, SIGINT or SIGHUP (unless it is ignored), then drains. Prints one line on
  // stdout when it serves (a JSON object with --json). A failure is reported on stderr with what
  // was being done; the result is the process's exit status. Such a signal during the start-up ends
  // the process at once, by itself.
  int run();

 private:
  struct SnapshotTask;
  int start();
  int open_pool_and_volume();
  void tell_damage();
  int settle_volume();
  int try_to_listen() const;
  int cannot_listen(const Status& status) const;
  int start_target();
  void want_files() const;  // as many as connections may be open
  int start_admin();
  int begin_serving();
  void wait_for_signal();
  void end_waiting();               // of signals_
  void begin_stop();                // on the home executor
  ServerSnapshot snapshot() const;  // on the home executor
  // On a thread of the admin listener.
  std::optional<std::string> metrics();
  AdminAnswer ask(const std::function<AdminAnswer(LiveVolumes&)>& what);

  struct MemberTask : Task {
    Server* server = nullptr;
    void (Server::*call)() = nullptr;
  };
  void post(MemberTask& task, void (Server::*call)());
  void stop_home() { home_.stop_running(); }
  void watch_device();
  void tell_scrub(const std::optional<std::string>& what);

  struct WatchTimer : Timer {
    Server* server = nullptr;
  };

  enum class Phase : std::uint8_t { starting, serving, failed, ended };
  void leave_start(Phase to);
  std::atomic<Phase> phase_{Phase::starting};  // decided once: by the start-up, or by a signal

  ServerOptions options_;
  EventLoop home_;
  OpenPool open_;
  std::unique_ptr<transport::Target> target_;
  std::optional<LiveVolumes> live_;
  std::unique_ptr<AdminServer> admin_;
  std::thread signals_;
  MemberTask stop_task_, admin_stopped_task_;
  WatchTimer watch_timer_;
  DeviceWatch device_watch_;
  ScrubLog scrub_log_;
};

}  // namespace furrow::tools
