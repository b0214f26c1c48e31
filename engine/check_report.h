// What checking (and repairing) a pool found. Plain data.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace furrow {

struct Finding {
  enum class Structure : std::uint8_t {
    device,  // of the emulated device under the pool
    metadata,
    zone,
    zone_header,
    batch_header,
    summary,
    page
  };
  Structure structure = Structure::metadata;
  std::optional<std::uint32_t> zone;
  std::optional<std::uint64_t> lba;     // from the zone's start
  std::optional<std::uint64_t> volume;  // that the metadata does not know: its id
  bool repairable = false;              // Pool::repair() makes it whole again
  // What of the zone can be given up (Pool::OpenOptions::give_up), as it cannot be read: pages and
  // records of a store's, or all that it holds, as nobody can tell whose it is.
  enum class GiveUp : std::uint8_t { nothing, unreadable, all };
  GiveUp give_up = GiveUp::nothing;
  std::string text;  // all of that in words
};
const char* to_string(Finding::Structure structure);

struct CheckReport {
  std::vector<Finding> damage;     // by zone and LBA
  std::vector<std::string> notes;  // what is no damage: what a power cut tore off, for example
  std::uint64_t zones = 0, summaries = 0, batch_headers = 0, pages = 0;  // that were verified
  std::uint64_t bytes_read = 0;
  bool clean() const { return damage.empty(); }
};

struct CheckOptions {
  bool pages = true;                                     // every page's checksum, too
  std::uint64_t bytes_per_s_max = 0;                     // read no faster; 0: as fast as it goes
  std::function<void(std::uint64_t)> on_read = nullptr;  // told the bytes read until now
};

// What Pool::repair() is going to do about it, a line each; empty: nothing can be done, or need be.
std::vector<std::string> repair_plan(const CheckReport& report);

// The zones of which something can be given up, ascending; and what becomes of that, a line each.
std::vector<std::uint32_t> zones_to_give_up(const CheckReport& report);
std::vector<std::string> give_up_plan(const CheckReport& report);

struct RepairReport {
  std::vector<std::string> done;
  std::vector<std::string> failed;  // and why; what there was before is as it was
};

}  // namespace furrow
