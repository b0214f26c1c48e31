#include "tools/volume_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "tools/device_flags.h"

namespace furrow::tools {

namespace {

using Json = nlohmann::ordered_json;

Status invalid(const char* hint) { return {Code::invalid_argument, Origin::tool, hint}; }

// One of a few words; false: none of them.
template <class Value, std::size_t N>
bool take_word(const Json& word, const Value (&values)[N], Value& into) {
  for (const Value value : values) {
    if (word != to_string(value)) continue;
    into = value;
    return true;
  }
  return false;
}

template <class Number>
bool take_number(const Json& value, Number& into) {
  if (!value.is_number_unsigned()) return false;
  const auto number = value.get<std::uint64_t>();
  into = static_cast<Number>(number);
  return into == number;
}

// As parse_size() takes it.
std::string format_size(std::uint64_t bytes) {
  for (const auto& [shift, unit] : {std::pair{30, "GiB"}, {20, "MiB"}, {10, "KiB"}}) {
    const std::uint64_t one = std::uint64_t{1} << shift;
    if (bytes % one == 0 && bytes != 0) return fmt::format("{}{}", bytes / one, unit);
  }
  return std::to_string(bytes);
}

bool take_kind(const Json& value, VolumeOptions& options) {
  constexpr VolumeKind kKinds[] = {VolumeKind::kv, VolumeKind::fs, VolumeKind::block,
                                   VolumeKind::zoned};
  return take_word(value, kKinds, options.kind);
}

// What a volume of its kind is where nobody says otherwise, as by furrowctl's flags.
void set_defaults_of_kind(VolumeOptions& options) {
  if (options.kind == VolumeKind::kv) return;
  options.mode = VolumeMode::store;
  if (options.kind == VolumeKind::fs) options.value_bytes_max = 0;
  if (options.kind != VolumeKind::block) return;
  options.value_bytes_max = kBlockPageBytes;
  options.block_lba_bytes = kBlockPageBytes;
}

bool take_member(const std::string& name, const Json& value, VolumeOptions& options) {
  if (name == "name") {
    if (value.is_string()) options.name = value.get<std::string>();
    return value.is_string();
  }
  if (name == "kind") return take_kind(value, options);
  if (name == "mode") {
    constexpr VolumeMode kModes[] = {VolumeMode::cache, VolumeMode::store};
    return take_word(value, kModes, options.mode);
  }
  if (name == "durability") {
    constexpr Durability kDurabilities[] = {Durability::none, Durability::flushed};
    return take_word(value, kDurabilities, options.durability);
  }
  if (name == "quota_bytes") return take_number(value, options.quota_bytes);
  if (name == "nsid") return take_number(value, options.nsid);
  if (name == "value_bytes_max") return take_number(value, options.value_bytes_max);
  if (name == "size_bytes") return take_number(value, options.block_bytes);
  if (name == "lba_bytes") return take_number(value, options.block_lba_bytes);
  if (name == "zones") return take_number(value, options.zones);
  if (name == "max_open") return take_number(value, options.open_zones_max);
  if (name == "max_active") return take_number(value, options.active_zones_max);
  return false;
}

}  // namespace

nlohmann::ordered_json volume_json(const PageStore& store) {
  const VolumeInfo& info = store.info();
  const VolumeUsage usage = store.usage();
  nlohmann::ordered_json json = {{"name", info.options.name},
                                 {"nsid", info.options.nsid},
                                 {"kind", to_string(info.options.kind)},
                                 {"mode", to_string(info.options.mode)},
                                 {"durability", to_string(info.options.durability)},
                                 {"quota_bytes", info.options.quota_bytes},
                                 {"quota_zones", usage.quota_zones},
                                 {"zones", usage.zones},
                                 {"pages", usage.pages},
                                 {"live_bytes", usage.live_bytes},
                                 {"value_bytes_max", info.options.value_bytes_max},
                                 {"id", info.id},
                                 {"uuid", format_uuid(info.uuid)}};
  if (info.options.mode == VolumeMode::store) json["free_bytes"] = usage.free_bytes;
  if (usage.incomplete) json["incomplete"] = true;
  if (info.options.kind == VolumeKind::block) {
    json["size_bytes"] = info.options.block_bytes;
    json["lba_bytes"] = info.options.block_lba_bytes;
  }
  if (info.options.kind == VolumeKind::zoned) {
    json["max_open"] = info.options.open_zones_max;
    json["max_active"] = info.options.active_zones_max;
  }
  return json;
}

Json options_json(const VolumeOptions& options) {
  Json json = {{"name", options.name},
               {"kind", to_string(options.kind)},
               {"mode", to_string(options.mode)},
               {"durability", to_string(options.durability)},
               {"value_bytes_max", options.value_bytes_max}};
  const auto add = [&json](const char* name, std::uint64_t value) {
    if (value != 0) json[name] = value;
  };
  add("quota_bytes", options.quota_bytes);
  add("nsid", options.nsid);
  add("size_bytes", options.block_bytes);
  add("lba_bytes", options.block_lba_bytes);
  add("zones", options.zones);
  add("max_open", options.open_zones_max);
  add("max_active", options.active_zones_max);
  return json;
}

Result<VolumeOptions> options_from_json(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return invalid("what says how to make a volume is no JSON object");
  VolumeOptions options;
  if (const auto kind = json.find("kind"); kind != json.end()) (void)take_kind(*kind, options);
  set_defaults_of_kind(options);
  for (const auto& [name, value] : json.items()) {
    if (!take_member(name, value, options)) {
      return invalid(
          "the members are name, kind, mode and durability, which are strings, and quota_bytes, "
          "nsid, value_bytes_max, size_bytes, lba_bytes, zones, max_open and max_active, which are "
          "whole numbers");
    }
  }
  return options;
}

Json resize_json(const ResizeOptions& options) {
  Json json = Json::object();
  if (options.quota_bytes != 0) json["quota_bytes"] = options.quota_bytes;
  if (options.block_bytes != 0) json["size_bytes"] = options.block_bytes;
  return json;
}

Result<ResizeOptions> resize_from_json(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return invalid("what says how to resize a volume is no JSON object");
  ResizeOptions options;
  for (const auto& [name, value] : json.items()) {
    const bool taken = name == "quota_bytes"  ? take_number(value, options.quota_bytes)
                       : name == "size_bytes" ? take_number(value, options.block_bytes)
                                              : false;
    if (!taken) return invalid("the members are quota_bytes and size_bytes, whole numbers");
  }
  return options;
}

Json error_json(const ResizeAnswer& answer) {
  Json json = error_json(answer.status);
  std::string text = json["error"];
  if (answer.status.code() == Code::no_space && answer.quota_bytes_max != 0) {
    text += fmt::format(" (now it can be {} to {})", format_size(answer.quota_bytes_min),
                        format_size(answer.quota_bytes_max));
    json["quota_bytes_min"] = answer.quota_bytes_min;
    json["quota_bytes_max"] = answer.quota_bytes_max;
  } else if (answer.zones_to_free != 0) {
    text += fmt::format(" ({} to go)", answer.zones_to_free);
    json["zones_to_free"] = answer.zones_to_free;
  }
  json["error"] = text;
  return json;
}

Json error_json(const Status& status) {
  return {{"error", status.describe()}, {"code", to_string(status.code())}};
}

}  // namespace furrow::tools
