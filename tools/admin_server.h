// AdminServer: the HTTP listener of furrowd. GET /ready, /metrics, /pool, /zones and /volumes; and,
// for who has the token, POST /volumes, PATCH and DELETE /volumes/NAME. Slow hosts delay neither
// the others nor the end: see AdminHttp.
//
// Threads: start(), set_ready() and request_stop() from any one thread; the handlers run on threads
// of the server, `metrics` included.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "zone/status.h"

namespace furrow::tools {

class AdminHttp;

struct AdminAnswer {
  int status = 503;  // HTTP
  std::string json;
};

class AdminServer {
 public:
  struct Handlers {
    std::function<std::optional<std::string>()> metrics;  // the body of /metrics; nothing: 503
    std::function<AdminAnswer()> pool = nullptr, zones = nullptr, volumes = nullptr;
    // What these get is the body, and the volume's name.
    std::function<AdminAnswer(const std::string&)> create_volume = nullptr, delete_volume = nullptr;
    // The volume's name, and the body.
    std::function<AdminAnswer(const std::string&, const std::string&)> resize_volume = nullptr;
    std::string token = {};  // of who may change something (Authorization: Bearer); empty: nobody
    std::function<void()> stopped;  // after request_stop(), when no handler runs any more
  };
  // Port 0: any free one, see port(). Errors: in_use, permission, io_error, invalid_argument (no
  // address of this machine).
  static Result<std::unique_ptr<AdminServer>> start(const std::string& host, std::uint16_t port,
                                                    Handlers handlers);
  ~AdminServer();

  std::uint16_t port() const { return port_; }
  void set_ready(bool ready) { ready_.store(ready); }  // what /ready answers: 200 or 503
  void request_stop();                                 // does not wait; cuts what is being asked

 private:
  AdminServer();
  void route();
  void guard_changes();

  std::unique_ptr<AdminHttp> server_;
  Handlers handlers_;
  std::uint16_t port_ = 0;
  std::atomic<bool> ready_{false};
  std::thread thread_;
};

}  // namespace furrow::tools
