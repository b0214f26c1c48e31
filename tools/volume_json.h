// Volumes as JSON: what furrowctl prints, and what it and furrowd's admin listener say to each
// other.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "engine/pool.h"
#include "zone/status.h"

namespace furrow::tools {

nlohmann::ordered_json volume_json(const PageStore& store);

// Members that are 0 are left out. The reverse takes what is left out for the default of a volume
// of its kind; invalid_argument: not JSON, no object, or a member that there is not or of another
// type. Whether such a volume can be is for Pool::create_volume() to say.
nlohmann::ordered_json options_json(const VolumeOptions& options);
Result<VolumeOptions> options_from_json(std::string_view text);

// The same of what is to change.
nlohmann::ordered_json resize_json(const ResizeOptions& options);
Result<ResizeOptions> resize_from_json(std::string_view text);

// {"error": ..., "code": ...}
nlohmann::ordered_json error_json(const Status& status);
// .. and the figures that the answer has, in the text as well: the quota's bounds where it is out
// of them, how many zones are still to be freed while they are.
nlohmann::ordered_json error_json(const ResizeAnswer& answer);

}  // namespace furrow::tools
