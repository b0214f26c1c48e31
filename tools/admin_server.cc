#include "tools/admin_server.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <string_view>

#include "tools/admin_http.h"
#include "zone/descriptors.h"
#include "zone/threads.h"

namespace furrow::tools {

namespace {

constexpr std::size_t kBodyBytesMax = 4096;
constexpr const char* kText = "text/plain";
constexpr const char* kVolume = "/volumes/([A-Za-z0-9._-]+)";

// In a time that does not tell where they differ.
bool same(std::string_view given, std::string_view token) {
  unsigned different = given.size() == token.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(given.size(), token.size()); ++i) {
    different |= static_cast<unsigned>(given[i] ^ token[i]);
  }
  return different == 0;
}

// The scheme's name may be in any case (RFC 9110, 11.1).
bool bears(std::string_view header, std::string_view token) {
  constexpr std::string_view kScheme = "Bearer ";
  const auto lower = [](unsigned char c) { return std::tolower(c); };
  const std::string_view scheme = header.substr(0, kScheme.size());
  return std::ranges::equal(scheme, kScheme, {}, lower, lower) &&
         same(header.substr(scheme.size()), token);
}

// Without SO_REUSEPORT (httplib's standard), so that a port in use is an error.
void set_socket_options(socket_t socket) {
  const int yes = 1;
  setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
}

// httplib says only "no" when it cannot bind; errno is what the last system call left.
Status bind_error(int error) {
  switch (error) {
    case EADDRINUSE:
      return {
          Code::in_use, Origin::tool,
          "another process has this port; is another server running? choose another with --admin",
          error};
    case EACCES:
      return {Code::permission, Origin::tool, "this port needs privileges", error};
    case EMFILE:
      return {Code::io_error, Origin::tool, kNoDescriptor, error};
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

// Before a body is read: one without a length, or that is too long, would be waited for.
void AdminServer::guard_changes() {
  using Response = httplib::Server::HandlerResponse;
  server_->set_pre_routing_handler(
      [this](const httplib::Request& request, httplib::Response& answer) {
        if (request.method == "GET" || request.method == "HEAD") return Response::Unhandled;
        if (handlers_.token.empty()) {
          answer.status = 405;
          answer.set_header("Allow", "GET, HEAD");
          answer.set_content("read-only: furrowd was started without --admin_token_file\n", kText);
        } else if (!bears(request.get_header_value("Authorization"), handlers_.token)) {
          answer.status = 401;
          answer.set_header("WWW-Authenticate", "Bearer");
          answer.set_content("this needs the token of furrowd's --admin_token_file\n", kText);
        } else if (request.has_header("Transfer-Encoding") ||
                   (!request.has_header("Content-Length") && request.method != "DELETE")) {
          answer.status = 411;
          answer.set_content("a Content-Length is needed, and no Transfer-Encoding\n", kText);
        } else if (request.get_header_value<std::uint64_t>("Content-Length") > kBodyBytesMax) {
          answer.status = 413;
          answer.set_content("a request's body has at most 4096 bytes\n", kText);
        } else {
          return Response::Unhandled;
        }
        return Response::Handled;
      });
}

void AdminServer::route() {
  const auto give = [](httplib::Response& response, const AdminAnswer& answer) {
    response.status = answer.status;
    response.set_content(answer.json, "application/json");
  };
  server_->Get("/ready", [this](const httplib::Request&, httplib::Response& response) {
    const bool ready = ready_.load();
    response.status = ready ? 200 : 503;
    response.set_content(ready ? "ready\n" : "not ready\n", kText);
  });
  server_->Get("/metrics", [this](const httplib::Request&, httplib::Response& response) {
    const std::optional<std::string> metrics = handlers_.metrics();
    if (metrics) {
      response.set_content(*metrics, "text/plain; version=0.0.4");
    } else {
      response.status = 503;
      response.set_content("not ready\n", kText);
    }
  });
  const auto tell = [this, give](const char* path, const std::function<AdminAnswer()>& handler) {
    server_->Get(path, [&handler, give](const httplib::Request&, httplib::Response& response) {
      give(response, handler());
    });
  };
  tell("/pool", handlers_.pool);
  tell("/zones", handlers_.zones);
  tell("/volumes", handlers_.volumes);
  server_->Post("/volumes",
                [this, give](const httplib::Request& request, httplib::Response& response) {
                  give(response, handlers_.create_volume(request.body));
                });
  server_->Patch(kVolume,
                 [this, give](const httplib::Request& request, httplib::Response& response) {
                   give(response, handlers_.resize_volume(request.matches[1], request.body));
                 });
  server_->Delete(kVolume,
                  [this, give](const httplib::Request& request, httplib::Response& response) {
                    give(response, handlers_.delete_volume(request.matches[1]));
                  });
}

Result<std::unique_ptr<AdminServer>> AdminServer::start(const std::string& host, std::uint16_t port,
                                                        Handlers handlers) {
  std::unique_ptr<AdminServer> admin(new AdminServer);
  admin->handlers_ = std::move(handlers);
  AdminHttp& server = *admin->server_;
  server.set_socket_options(set_socket_options);
  server.set_payload_max_length(kBodyBytesMax);
  admin->guard_changes();
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
  const Status started = start_thread(admin->thread_, [admin = admin.get()] {
    admin->server_->run();
    admin->handlers_.stopped();
  });
  if (!started.ok()) return started;
  return admin;
}

void AdminServer::request_stop() { server_->end(); }

}  // namespace furrow::tools
