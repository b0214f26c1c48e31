// The parts of furrowctl's command table, a file each, and what they print in common.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>

#include "tools/command.h"
#include "tools/make_pool.h"

namespace furrow::tools {

std::span<const Command> pool_commands();
std::span<const Command> volume_commands();
std::span<const Command> zone_commands();
std::span<const Command> kv_commands();
std::span<const Command> fs_commands();

int check(const Arguments& arguments);        // pool check
int copy_volume(const Arguments& arguments);  // volume copy

}  // namespace furrow::tools
