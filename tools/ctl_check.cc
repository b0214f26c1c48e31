// furrowctl pool check [--repair]

#include <fmt/format.h>
#include <gflags/gflags.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "engine/embedded_pool.h"
#include "engine/files/file_volume.h"
#include "tools/command_line.h"
#include "tools/ctl_command.h"
#include "tools/ctl_server.h"
#include "tools/progress.h"
#include "tools/tell.h"
#include "zone/device_uri.h"

DEFINE_bool(pages, true, "read every page, too; --nopages checks structures only");
DEFINE_string(rate, "", "read no faster than this a second, as in 100MiB; empty: no limit");
DEFINE_bool(repair, false, "after that, write what can be rebuilt anew");
DEFINE_bool(give_up, false, "with --repair: what cannot be read is lost, for good");
DEFINE_bool(yes, false, "with --repair: do not ask");
DEFINE_bool(dry_run, false, "with --repair: say what would be done, and do nothing");

namespace furrow::tools {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kExitNotChecked = 3;

int take_options(CheckOptions& options) {
  options.pages = FLAGS_pages;
  if ((FLAGS_yes || FLAGS_dry_run || FLAGS_give_up) && !FLAGS_repair) {
    return report_usage("--yes, --dry_run and --give_up are of --repair");
  }
  if (FLAGS_rate.empty()) return kExitDone;
  const Result<std::uint64_t> rate = parse_size(FLAGS_rate);
  if (!rate || *rate == 0) return report_usage("--rate: a size, as in 100MiB");
  options.bytes_per_s_max = *rate;
  return kExitDone;
}

Result<CheckReport> check_pool(const std::string& uri, CheckOptions options) {
  EventLoop home;
  Progress progress("checking " + uri, "MiB");
  options.on_read = [&progress](std::uint64_t bytes) { progress.count(bytes >> 20); };
  const auto opened = open_pool(uri, home, Opening::check);
  if (!opened) return opened.status();
  return (*opened)->check(options);
}

Json to_json(const CheckReport& report) {
  Json damage = Json::array();
  for (const Finding& finding : report.damage) {
    Json one{{"structure", to_string(finding.structure)}};
    if (finding.zone) one["zone"] = *finding.zone;
    if (finding.lba) one["lba"] = *finding.lba;
    if (finding.volume) one["volume"] = *finding.volume;
    one["repairable"] = finding.repairable;
    one["can_be_given_up"] = finding.give_up != Finding::GiveUp::nothing;
    one["text"] = finding.text;
    damage.push_back(std::move(one));
  }
  return {{"clean", report.clean()},       {"damage", damage},
          {"notes", report.notes},         {"zones", report.zones},
          {"summaries", report.summaries}, {"batch_headers", report.batch_headers},
          {"pages", report.pages},         {"bytes_read", report.bytes_read}};
}

// Damage that already stops the pool from opening is damage, a wrong URI is wrong usage, anything
// else is "could not check".
int not_checked(const std::string& uri, const Status& status) {
  const int exit_status = report_device("cannot check", uri, status);
  if (exit_status == kExitUsage) return exit_status;
  if (status.code() != Code::corrupt) return kExitNotChecked;
  if (!json_asked()) return exit_status;
  CheckReport report;
  report.damage.push_back({Finding::Structure::metadata, {}, {}, {}, false, {}, status.describe()});
  (void)print(to_json(report));
  return exit_status;
}

// A line for each thing found; "clean" when that is nothing wrong.
void add_lines(const CheckReport& report, Json& lines) {
  for (const Finding& finding : report.damage) lines.push_back(finding.text);
  for (const std::string& note : report.notes) lines.push_back("note: " + note);
  if (report.clean()) lines.push_back("clean");
}

// Where it could not be said that a pool is clean, the status does not say that it is damaged.
int end_status(bool clean, int printed) {
  if (!clean) return kExitFailed;
  return printed == kExitDone ? kExitDone : kExitNotChecked;
}

int print_check(const CheckReport& report) {
  Json lines = Json::array();
  add_lines(report, lines);
  return end_status(report.clean(), print(json_asked() ? to_json(report) : lines));
}

bool confirmed() {
  if (FLAGS_yes) return true;
  tell("Do this? [y/N] ");
  std::fflush(stderr);
  const int answer = std::getchar();
  return answer == 'y' || answer == 'Y';
}

// What a repair says: before, what is to be done, and then what was done and is left.
class RepairTelling {
 public:
  RepairTelling(const CheckReport& before, const std::vector<std::string>& plan) {
    if (json_asked()) {
      json_ = {{"before", to_json(before)}, {"plan", plan}};
      return;
    }
    Json lines = Json::array();
    add_lines(before, lines);
    for (const std::string& step : plan) lines.push_back("to do: " + step);
    if (plan.empty() && !before.clean()) lines.push_back("nothing of this can be rebuilt");
    printed_ = print(lines);
  }
  void done(const RepairReport& repair, const CheckReport& after) {
    if (json_asked()) {
      json_["done"] = repair.done;
      json_["failed"] = repair.failed;
      json_["after"] = to_json(after);
      return;
    }
    Json lines = Json::array();
    for (const std::string& step : repair.done) lines.push_back("done: " + step);
    for (const std::string& step : repair.failed) lines.push_back("failed: " + step);
    add_lines(after, lines);
    if (printed_ == kExitDone) printed_ = print(lines);
  }
  // The exit status.
  int end(bool clean) {
    if (json_asked()) printed_ = print(json_);
    return end_status(clean, printed_);
  }

 private:
  Json json_;
  int printed_ = kExitDone;
};

// All of it is done, or has failed, when this returns.
Status give_up(const std::string& uri, const CheckReport& found, RepairReport& into) {
  const std::vector<std::string> plan = give_up_plan(found);
  if (plan.empty()) return {};
  EventLoop home;
  Pool::OpenOptions options;
  options.give_up = zones_to_give_up(found);
  const Progress progress("giving up what cannot be read of " + uri);
  auto pool = open_pool(uri, home, Opening::use, options);
  if (!pool) return pool.status();
  std::vector<ZoneGivenUp> zones;
  const auto is_busy = [](const ZoneGivenUp& zone) { return zone.status.code() == Code::busy; };
  do {
    home.run_once();
    zones = (*pool)->given_up();
  } while (std::ranges::any_of(zones, is_busy));
  for (std::size_t i = 0; i < zones.size(); ++i) {
    const Status& status = zones[i].status;
    (status.ok() ? into.done : into.failed)
        .push_back(status.ok() ? plan[i] : plan[i] + ": " + status.describe());
  }
  return pool->close() ? Status() : Status(Code::io_error, Origin::tool, "the device cannot flush");
}

// A file of which the record was given up has lost its name, and nothing else that can be read.
void take_in_files(const std::string& uri, RepairReport& into) {
  auto opened = EmbeddedPool::open(uri);
  if (!opened.ok()) {
    into.failed.push_back("look for files without a record: " + opened.status().describe());
    return;
  }
  const std::shared_ptr<EmbeddedPool> pool = std::move(*opened);
  for (const VolumeInfo& info : pool->volumes()) {
    const std::string& name = info.options.name;
    if (info.options.kind != VolumeKind::fs) continue;
    const auto mounted = FileVolume::mount(pool, **FileVolume::find(pool->pool(), name),
                                           FileVolume::Strays::take_in);
    const std::string what = fmt::format("volume '{}': name the files that have no record", name);
    const Status named = mounted.ok() ? (*mounted)->sync_names() : mounted.status();
    if (!named.ok()) {
      into.failed.push_back(what + ": " + named.describe());
      continue;
    }
    for (const FileLoss& loss : (*mounted)->losses()) {
      into.done.push_back(fmt::format("{}: {}", what, loss.what));
    }
  }
}

Result<RepairReport> repair_device(const std::string& uri) {
  EventLoop home;
  const auto device = open_device(uri, Access::mend);
  if (!device) return device.status();
  const Progress progress("repairing " + uri);
  return Pool::repair(**device, home);
}

int repair(const std::string& uri, const CheckReport& before, const CheckOptions& options) {
  std::vector<std::string> plan = repair_plan(before);
  const bool rebuilds = !plan.empty();
  if (FLAGS_give_up) std::ranges::move(give_up_plan(before), std::back_inserter(plan));
  if (!plan.empty() && !FLAGS_yes && !FLAGS_dry_run && isatty(STDIN_FILENO) != 1) {
    return report_usage("--repair: there is no terminal to ask; give --yes, or --dry_run");
  }
  RepairTelling telling(before, plan);
  if (plan.empty() || FLAGS_dry_run || !confirmed()) return telling.end(before.clean());
  RepairReport repaired;
  if (rebuilds) {
    auto result = repair_device(uri);
    if (!result) return report_device("cannot repair", uri, result.status());
    repaired = std::move(*result);
  }
  auto after = rebuilds ? check_pool(uri, options) : Result<CheckReport>(before);
  if (after.ok() && FLAGS_give_up && !give_up_plan(*after).empty()) {
    const Status status = give_up(uri, *after, repaired);
    if (!status.ok()) return report_device("cannot give up what cannot be read of", uri, status);
    take_in_files(uri, repaired);
    after = check_pool(uri, options);
  }
  if (!after) return not_checked(uri, after.status());
  telling.done(repaired, *after);
  return telling.end(after->clean() && repaired.failed.empty());
}

}  // namespace

int check(const Arguments& arguments) {
  set_end_status(kExitNotChecked);
  if (server_asked()) {
    tell(
        "{}: cannot check a pool that is being served: end its furrowd, then `{} pool check "
        "DEVICE-URI`; what a running one's --scrub_rate finds is on its standard error and "
        "in /metrics\n",
        program_name(), program_name());
    return kExitNotChecked;
  }
  CheckOptions options;
  if (const int status = take_options(options); status != kExitDone) return status;
  const auto report = check_pool(arguments[0], options);
  if (!report) return not_checked(arguments[0], report.status());
  return FLAGS_repair ? repair(arguments[0], *report, options) : print_check(*report);
}

}  // namespace furrow::tools
