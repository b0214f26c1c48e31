#include "zone/status.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace furrow {

const char* to_string(Code code) {
  switch (code) {
    case Code::ok:
      return "ok";
    case Code::invalid_argument:
      return "invalid argument";
    case Code::not_found:
      return "not found";
    case Code::exists:
      return "exists";
    case Code::no_space:
      return "no space";
    case Code::in_use:
      return "in use";
    case Code::busy:
      return "busy";
    case Code::corrupt:
      return "corrupt";
    case Code::io_error:
      return "I/O error";
    case Code::zone_state:
      return "zone state";
    case Code::too_many_zones:
      return "too many open or active zones";
    case Code::unsupported:
      return "unsupported";
    case Code::foreign:
      return "foreign data";
    case Code::permission:
      return "not permitted";
    case Code::too_large:
      return "too large";
    case Code::late:
      return "late";
    case Code::aborted:
      return "aborted";
    case Code::protocol:
      return "protocol error";
  }
  return "unknown";
}

namespace {
const char* to_string(Origin origin) {
  switch (origin) {
    case Origin::none:
      return "";
    case Origin::zone:
      return " (zone)";
    case Origin::alloc:
      return " (alloc)";
    case Origin::log:
      return " (log)";
    case Origin::engine:
      return " (engine)";
    case Origin::transport:
      return " (transport)";
    case Origin::tool:
      return "";
  }
  return "";
}
}  // namespace

std::string Status::describe() const {
  std::string text = std::string(furrow::to_string(code_)) + to_string(origin_);
  if (*hint_ != '\0') text += std::string(": ") + hint_;
  if (errno_ != 0) text += std::string(" [") + std::strerror(errno_) + "]";
  if (nvme_ != 0) {
    char nvme[24];
    std::snprintf(nvme, sizeof nvme, " [NVMe status %03xh]", nvme_);
    text += nvme;
  }
  return text;
}

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, condition);
  std::abort();
}

}  // namespace furrow
