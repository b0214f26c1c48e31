#include "tools/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

namespace furrow::tools {

Status tell_service_manager(std::string_view lines) {
  const char* const name = std::getenv("NOTIFY_SOCKET");
  if (name == nullptr) return {};
  const std::string_view path(name);
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  if (path.size() < 2 || path.size() >= sizeof to.sun_path || (path[0] != '/' && path[0] != '@')) {
    return Status(Code::invalid_argument, Origin::tool, "NOTIFY_SOCKET is no socket's name");
  }
  std::memcpy(to.sun_path, path.data(), path.size());
  if (path[0] == '@') to.sun_path[0] = 0;  // of Linux's abstract names

  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return Status(Code::io_error, Origin::tool, "", errno);
  const auto to_bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  ssize_t sent = 0;
  do {
    sent = sendto(socket, lines.data(), lines.size(), MSG_NOSIGNAL,
                  reinterpret_cast<const sockaddr*>(&to), to_bytes);
  } while (sent < 0 && errno == EINTR);
  const int error = errno;
  close(socket);
  return sent >= 0 ? Status() : Status(Code::io_error, Origin::tool, "", error);
}

}  // namespace furrow::tools
