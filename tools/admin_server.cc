#include "tools/admin_server.h"

#include <cerrno>

#include "tools/admin_http.h"

namespace furrow::tools {

namespace {

constexpr std::size_t kBodyBytesMax = 4096;

// Without SO_REUSEPORT (httplib's standard), so that a port in use is an error.
void set_socket_options(socket_t socket) {
  const int yes = 1;
  setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
}

// httplib says only "no" when it cannot bind; errno is what the last system call left.
Status bind_error(int error) {
  switch (error) {
    case EADDRINUSE:
      return {Code::in_use, Origin::tool, "another process has this port; choose another", error};
    case EACCES:
      return {Code::permission, Origin::tool, "this port needs privileges", error};
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return {Code::io_error, Origin::tool, "this machine is out of it", error};
    default:  // the name was not found, or it is another machine's
      return {Code::invalid_argument, Origin::tool, "this is no address of this machine", error};
  }
}

}  // namespace

AdminServer::AdminServer() : server_(std::make_unique<AdminHttp>()) {}

AdminServer::~AdminServer() {
  request_stop();
  if (thread_.joinable()) thread_.join();
}

void AdminServer::route() {
  // Before a body is read: one without a length would be waited for.
  server_->set_pre_routing_handler([](const httplib::Request& request, httplib::Response& answer) {
    if (request.method == "GET" || request.method == "HEAD") {
      return httplib::Server::HandlerResponse::Unhandled;
    }
    answer.status = 405;
    answer.set_header("Allow", "GET, HEAD");
    answer.set_content("read-only\n", "text/plain");
    return httplib::Server::HandlerResponse::Handled;
  });
  server_->Get("/ready", [this](const httplib::Request&, httplib::Response& response) {
    const bool ready = ready_.load();
    response.status = ready ? 200 : 503;
    response.set_content(ready ? "ready\n" : "not ready\n", "text/plain");
  });
  server_->Get("/metrics", [this](const httplib::Request&, httplib::Response& response) {
    const std::optional<std::string> metrics = handlers_.metrics();
    if (metrics) {
      response.set_content(*metrics, "text/plain; version=0.0.4");
    } else {
      response.status = 503;
      response.set_content("not ready\n", "text/plain");
    }
  });
}

Result<std::unique_ptr<AdminServer>> AdminServer::start(const std::string& host, std::uint16_t port,
                                                        Handlers handlers) {
  std::unique_ptr<AdminServer> admin(new AdminServer);
  admin->handlers_ = std::move(handlers);
  AdminHttp& server = *admin->server_;
  server.set_socket_options(set_socket_options);
  server.set_payload_max_length(kBodyBytesMax);
  admin->route();

  errno = 0;
  if (port == 0) {
    const int any = server.bind_to_any_port(host);
    if (any < 0) return bind_error(errno);
    admin->port_ = static_cast<std::uint16_t>(any);
  } else {
    if (!server.bind_to_port(host, port)) return bind_error(errno);
    admin->port_ = port;
  }
  server.widen_backlog();
  admin->thread_ = std::thread([admin = admin.get()] {
    admin->server_->listen_after_bind();
    admin->handlers_.stopped();
  });
  // stop() before the listener runs would be forgotten.
  while (!server.is_running()) std::this_thread::yield();
  return admin;
}

void AdminServer::request_stop() { server_->end(); }

}  // namespace furrow::tools
