// Establishes that no discovery log page harms a host: nothing is read out of bounds, and what is
// believed are possible NQNs, each once, no more than the page has room for. How: the input is the
// page; now and then the mutator puts a good one in its place.
#include <algorithm>
#include <cstring>

#include "tests/transport/script.h"
#include "transport/discovery_log.h"
#include "transport/nvme.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t size_max);

namespace {

using namespace furrow;
using namespace furrow::fuzz;

Bytes good_page(unsigned seed) {
  nvme::DiscoveryLogHeader header;
  header.numrec = seed % 5;
  Bytes page(sizeof header + header.numrec * sizeof(nvme::DiscoveryLogEntry));
  std::memcpy(page.data(), &header, sizeof header);
  for (std::size_t i = 0; i < header.numrec; ++i) {
    nvme::DiscoveryLogEntry entry;
    entry.trtype = nvme::kTrtypeTcp;
    entry.subtype = nvme::kSubtypeNvm;
    std::snprintf(entry.subnqn, sizeof entry.subnqn, "nqn.2026-11.io.furrow:%u",
                  (seed >> 4 * i) % 3);
    std::memcpy(page.data() + sizeof header + i * sizeof entry, &entry, sizeof entry);
  }
  return page;
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t size_max, unsigned seed) {
  if (size >= sizeof(nvme::DiscoveryLogHeader) && seed % 64 != 0) {
    return LLVMFuzzerMutate(data, size, size_max);
  }
  const Bytes page = good_page(seed / 64);
  const std::size_t taken = std::min(page.size(), size_max);
  std::memcpy(data, page.data(), taken);
  return taken;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  const Bytes page(begin, begin + size);  // exactly as long: a read behind it is found
  const auto found = transport::decode_discovery_log(page);
  if (!found.ok()) return 0;
  require(found->size() <= size / sizeof(nvme::DiscoveryLogEntry),
          "no more than there is room for");
  for (const std::string& nqn : *found) {
    require(nqn.starts_with("nqn.") && nqn.size() <= nvme::kNqnBytesMax, "an NQN is possible");
    require(std::count(found->begin(), found->end(), nqn) == 1, "each NQN once");
    require(nqn.find('\0') == std::string::npos && nqn != nvme::kDiscoveryNqn,
            "it names a subsystem");
  }
  return 0;
}
