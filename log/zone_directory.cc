#include <algorithm>

#include "log/pool_context.h"

namespace furrow {

std::uint32_t ZoneDirectory::batch_of(std::uint32_t lba) const {
  const auto after = std::ranges::lower_bound(batch_lbas, lba);
  FURROW_CHECK(after != batch_lbas.begin());
  return *(after - 1);
}

void ZoneDirectory::add_group(std::uint64_t group, std::uint32_t lba) {
  if (!groups.empty() && groups.back().group == group) {
    groups.back().last_lba = lba;
  } else {
    groups.push_back({lba, lba, group});
  }
}

void ZoneDirectory::truncate(std::uint32_t lba) {
  batch_lbas.erase(std::ranges::lower_bound(batch_lbas, lba), batch_lbas.end());
  groups.erase(std::ranges::lower_bound(groups, lba, {}, &GroupRun::first_lba), groups.end());
  if (!groups.empty()) groups.back().last_lba = std::min(groups.back().last_lba, lba - 1);
}

}  // namespace furrow
