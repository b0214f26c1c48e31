// furrowctl volume copy: a volume of one pool, into another.

#include <fmt/format.h>
#include <gflags/gflags.h>

#include <nlohmann/json.hpp>

#include "engine/embedded_pool.h"
#include "tools/command_line.h"
#include "tools/ctl_command.h"
#include "tools/device_flags.h"
#include "tools/page_copy.h"
#include "tools/progress.h"
#include "tools/tell.h"
#include "tools/volume_json.h"

DEFINE_string(as, "", "the copy's name; empty: the same");
DECLARE_bool(rescue);

namespace furrow::tools {

namespace {

const VolumeInfo* find_volume(const std::vector<VolumeInfo>& volumes, const std::string& name) {
  const auto found = std::ranges::find(
      volumes, name, [](const VolumeInfo& volume) { return volume.options.name; });
  return found == volumes.end() ? nullptr : &*found;
}

// What can be copied so; and all of it has to be there.
Status check_source(EmbeddedPool& pool, const std::string& name) {
  const std::vector<VolumeInfo> volumes = pool.volumes();
  const VolumeInfo* const volume = find_volume(volumes, name);
  if (volume == nullptr) return {Code::not_found, Origin::tool, "the pool has no such volume"};
  if (volume->options.kind == VolumeKind::fs) {
    return {Code::unsupported, Origin::tool,
            "files are copied by `furrowctl fs export` and `furrowctl fs import`"};
  }
  if (volume->options.kind == VolumeKind::zoned) {
    return {Code::unsupported, Origin::tool, "what is in zones is copied by the host whose it is"};
  }
  bool incomplete = false;
  pool.call([&](Pool& its) { incomplete = its.find(name)->usage().incomplete; });
  if (!incomplete || FLAGS_rescue) return {};
  return {Code::io_error, Origin::tool,
          "a zone that cannot be read may hold something of it; --rescue copies the rest"};
}

// What is not found for that would just not be in the copy, of whichever volume it was.
std::vector<std::string> opening_damage(EmbeddedPool& pool) {
  std::vector<std::string> damage;
  pool.call([&](Pool& its) { damage = its.opening_damage(); });
  return damage;
}

// As the volume is, but for what was asked for; its nsid as well, where that is free.
VolumeOptions options_of_copy(const VolumeOptions& source, const VolumeFlags& flags,
                              const std::vector<VolumeInfo>& others) {
  VolumeOptions options = source;
  const VolumeOptions& asked = flags.options;
  if (!FLAGS_as.empty()) options.name = FLAGS_as;
  if (flags.asked.mode) options.mode = asked.mode;
  if (flags.asked.quota) options.quota_bytes = asked.quota_bytes;
  if (flags.asked.value_bytes_max) options.value_bytes_max = asked.value_bytes_max;
  if (flags.asked.durability) options.durability = asked.durability;
  const bool taken = std::ranges::any_of(
      others, [&](const VolumeInfo& other) { return other.options.nsid == source.nsid; });
  if (flags.asked.nsid || taken) options.nsid = asked.nsid;
  return options;
}

int copy_pages(EmbeddedPool& from, const std::string& name, EmbeddedPool& to,
               const std::string& copy_name) {
  const auto source = from.store(name), target = to.store(copy_name);
  PageCopy::Options options;
  if (FLAGS_rescue) {
    options.on_lost = [](const Key& key, const Status& why) {
      (void)report("lost: " + format_key(key), why);
    };
  }
  Progress progress("copying " + name, "pages");
  options.on_progress = [&](std::uint64_t pages) { progress.count(pages); };
  auto in = *source, out = *target;
  PageCopy copy({from, in.async()}, {to, out.async()}, std::move(options));
  if (const Status status = copy.run(); !status.ok()) {
    const std::string at = copy.failed_at().length == 0 ? "" : format_key(copy.failed_at());
    const Status gone = to.delete_volume(copy_name);
    const int exit = report(
        at.empty() ? "cannot copy " + name : fmt::format("cannot copy {} of {}", at, name), status);
    if (!gone.ok()) (void)report("what had been copied is still there", gone);
    return exit;
  }
  std::uint64_t pages = 0;  // a cache may have evicted some
  to.call([&](Pool& its) { pages = its.find(copy_name)->usage().pages; });
  nlohmann::ordered_json json{
      {"volume", copy_name}, {"copied", copy.pages()}, {"pages", pages}, {"bytes", copy.bytes()}};
  if (FLAGS_rescue) json["lost"] = copy.lost();
  const int printed = print(json);
  return printed == kExitDone && copy.lost() != 0 ? kExitFailed : printed;
}

}  // namespace

int copy_volume(const Arguments& arguments) {
  const std::string &source_uri = arguments[0], &name = arguments[1], &target_uri = arguments[2];
  const VolumeFlags flags = volume_options_from_flags(name);
  if (!flags.status.ok()) {
    return report_usage(fmt::format("--{}: {}", flags.wrong_flag, flags.status.describe()));
  }
  const Result<std::unique_ptr<EmbeddedPool>> from =
      open_embedded_pool(source_uri, Opening::inspect);
  if (!from.ok()) return report_device("cannot open", source_uri, from.status());
  const Status suits = check_source(**from, name);
  if (!suits.ok()) return report("cannot copy volume " + name, suits);
  const std::vector<std::string> damage = opening_damage(**from);
  for (const std::string& each : damage) tell("{}: {}: {}\n", program_name(), source_uri, each);
  if (!damage.empty() && !FLAGS_rescue) {
    return report("cannot copy volume " + name,
                  {Code::corrupt, Origin::tool,
                   "the pool is damaged, and something of the volume may be lost: see `furrowctl "
                   "pool check`; --rescue copies what is left"});
  }
  const Result<std::unique_ptr<EmbeddedPool>> to = open_embedded_pool(target_uri, Opening::use);
  if (!to.ok()) return report_device("cannot open", target_uri, to.status());
  const std::vector<VolumeInfo> volumes = (*from)->volumes();
  const VolumeOptions options =
      options_of_copy(find_volume(volumes, name)->options, flags, (*to)->volumes());
  const auto made = (*to)->create_volume(options);
  if (!made.ok()) return report("cannot create volume " + options.name, made.status());
  const int copied = copy_pages(**from, name, **to, options.name);
  return copied == kExitDone && !damage.empty() ? kExitFailed : copied;
}

}  // namespace furrow::tools
