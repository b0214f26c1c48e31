// What a pool is without its metadata: the volumes that its zones' headers speak of. Private to
// engine/. Blocking; reads only.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "log/format.h"
#include "log/metadata_ring.h"
#include "zone/device.h"
#include "zone/executor.h"

namespace furrow {

std::string recovered_name(std::uint64_t volume);  // with a `_` or more, where others have that

// The record of a volume whose zones are there and whose own record is lost, beside `others`. Which
// mode it had is not known: a store drops nothing. no_space: the others' quotas leave it less than
// its `held_zones`; else it has some more of `left_zones`.
Result<VolumeRecord> recovered_volume(std::uint64_t id, std::uint64_t held_zones,
                                      std::uint64_t left_zones,
                                      const std::vector<VolumeRecord>& others,
                                      const Superblock& superblock, Executor& home);

// Of a pool that has lost every checkpoint. Where it may have had zoned volumes that the journals
// do not tell of, all zones that hold something and are nobody's make one: nothing in them says
// more, and as nobody's they would be reset.
struct AssumedPool {
  PoolState state;
  std::map<std::uint64_t, std::vector<ZoneId>> recovered;  // volumes known by their zones alone
  std::vector<std::string> notes;
};
// no_space, io_error.
Result<AssumedPool> assume_pool(ZonedDevice& device, Executor& home, const MetadataRing& lost);

}  // namespace furrow
