// furrow-bench list: every key of a volume, so many at a time.

#include <fmt/format.h>
#include <gflags/gflags.h>

#include <vector>

#include "bench/bench_command.h"
#include "bench/report.h"
#include "bench/rig.h"
#include "tools/device_flags.h"

DEFINE_uint32(keys, 1000, "keys asked for at a time");

namespace furrow::bench {

namespace {

using tools::kExitDone;
using tools::report;
using tools::report_usage;

constexpr std::uint32_t kKeysMax = 1'000'000;

// Each list goes on behind the last key of the one before; the one that finds none is the last.
class ListJob final : public Job {
 public:
  explicit ListJob(std::uint32_t at_a_time) : found_(at_a_time) {}
  Next next(Slot& slot, std::uint64_t) override {
    if (ended_) return Next::end;
    if (running_) return Next::wait;
    running_ = true;
    slot.op.kind = PageOp::Kind::list;
    slot.op.key = after_;
    slot.op.keys = found_.data();
    slot.op.keys_max = static_cast<std::uint32_t>(found_.size());
    return Next::run;
  }
  bool done(Slot& slot) override {
    running_ = false;
    status_ = slot.op.status;
    latency_.record(slot.latency_ns);
    if (status_.ok()) keys_ += slot.op.keys_count;
    ended_ = !status_.ok() || slot.op.keys_count == 0;
    if (!ended_) after_ = found_[slot.op.keys_count - 1];
    return false;
  }
  std::uint64_t keys() const { return keys_; }
  const Status& status() const { return status_; }
  const Histogram& latency() const { return latency_; }

 private:
  std::vector<Key> found_;
  Key after_;
  bool running_ = false, ended_ = false;
  std::uint64_t keys_ = 0;
  Status status_;
  Histogram latency_;
};

int list(const tools::Arguments&) {
  if (FLAGS_keys == 0 || FLAGS_keys > kKeysMax) {
    return report_usage(fmt::format("--keys: 1 to {}", kKeysMax));
  }
  Rig rig;
  if (const int status = set_up(rig); status != kExitDone) return status;
  ListJob job(FLAGS_keys);
  const Result<double> seconds = play(rig, job, 1, "listing");
  if (!seconds) return report("cannot list", seconds.status());
  if (!job.status().ok()) return report("cannot list", job.status());
  Json json{{"keys", job.keys()},
            {"lists", job.latency().count()},
            {"seconds", rounded(*seconds, 3)},
            {"keys_per_s", rounded(ratio(static_cast<double>(job.keys()), *seconds), 0)}};
  add_latencies(json, "list", job.latency());
  return tools::print(json);
}

constexpr const char* kListFlags[] = {
    "keys",        "sleep",         "target",      "nqn",  tools::kClientNsid,
    "connections", "header_digest", "data_digest", "pool", "volume"};

}  // namespace

std::span<const tools::Command> list_commands() {
  static constexpr tools::Command kCommands[] = {
      {"list", "", 0, "every key of a volume", kListFlags, list},
  };
  return kCommands;
}

}  // namespace furrow::bench
