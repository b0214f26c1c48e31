// What a service manager is told of this process, by the protocol of sd_notify(3): lines as in
// "READY=1" to the socket that NOTIFY_SOCKET names. (By libsystemd, apt-get would put another
// version of systemd itself on the machine; the protocol is promised to stay.)
//
// Threads: any.
#pragma once

#include <string_view>

#include "zone/status.h"

namespace furrow::tools {

// Done as well where nobody wants to know: NOTIFY_SOCKET is not set. Errors: invalid_argument (it
// is no socket's name), io_error (errno says).
Status tell_service_manager(std::string_view lines);

}  // namespace furrow::tools
