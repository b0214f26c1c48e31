#include "transport/discovery_log.h"

#include <algorithm>
#include <cstring>

#include "transport/nvme.h"

namespace furrow::transport {

namespace {

// Printable ASCII, "nqn." in front, at most 223 bytes and a NUL behind them.
template <std::size_t kSize>
std::string sent_nqn(const char (&field)[kSize]) {
  const std::size_t length = strnlen(field, kSize);
  if (length > nvme::kNqnBytesMax) return {};
  const std::string nqn(field, length);
  const bool printable =
      std::all_of(nqn.begin(), nqn.end(), [](char c) { return c > ' ' && c <= '~'; });
  return printable && nqn.starts_with("nqn.") ? nqn : std::string();
}

}  // namespace

Result<std::vector<std::string>> decode_discovery_log(std::span<const std::byte> log) {
  nvme::DiscoveryLogHeader header;
  if (log.size() < sizeof header) {
    return Status(Code::protocol, Origin::transport, "the discovery log page is too short");
  }
  std::memcpy(&header, log.data(), sizeof header);
  if (header.recfmt != 0) {
    return Status(Code::protocol, Origin::transport,
                  "the discovery log page has a record format that this host does not know");
  }
  std::vector<std::string> subsystems;
  log = log.subspan(sizeof header);
  for (std::uint64_t left = header.numrec; left > 0; --left) {
    nvme::DiscoveryLogEntry entry;
    if (log.size() < sizeof entry) break;  // more than was read
    std::memcpy(&entry, log.data(), sizeof entry);
    log = log.subspan(sizeof entry);
    if (entry.trtype != nvme::kTrtypeTcp || entry.subtype != nvme::kSubtypeNvm) continue;
    const std::string nqn = sent_nqn(entry.subnqn);
    if (nqn.empty() || nqn == nvme::kDiscoveryNqn) continue;
    if (std::find(subsystems.begin(), subsystems.end(), nqn) == subsystems.end()) {
      subsystems.push_back(nqn);
    }
  }
  return subsystems;
}

}  // namespace furrow::transport
