// The writer of a crash test: stores, deletes and reads pages until it is killed, or, over the
// network, until its server is gone, and keeps the ledger of what it was told.
#pragma once

#include <cstdint>
#include <string>

#include "tests/crash/ledger.h"

namespace furrow::crash {

struct WriterOptions {
  std::string pool;        // device URI, opened by the writer itself; empty: `port` is
  std::uint16_t port = 0;  //   a server's on loopback
  std::uint64_t seed = 1;
  std::uint64_t keys = 0;  // of each volume
  bool flushes = true;  // some puts and deletes are to be flushed: over the network, two commands
};

inline constexpr const char* kVolumeNames[Ledger::kVolumes] = {"store", "cache"};
inline constexpr unsigned kStore = 0, kCache = 1;

// Its exit status: 0 the server is gone, 1 something is wrong (the ledger says what).
int run_writer(const WriterOptions& options, Ledger& ledger);

}  // namespace furrow::crash
