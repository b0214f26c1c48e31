#include "tests/sim/simulation.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tests/sim/structure_check.h"

namespace furrow::sim {

namespace {

constexpr std::uint64_t kTurnsPerCheck = 50;  // of the structure

// libsodium's randomness, which the pool's hash key comes from, is the simulation's.
SimRandom g_sodium_random(0);

Swarm draw(const SimulationOptions& options, SimRandom& random) {
  return draw_swarm(options.scenario, random);
}

void use_simulated_sodium(std::uint64_t seed) {
  static randombytes_implementation implementation = {
      [] { return "simulation"; },
      [] { return static_cast<std::uint32_t>(g_sodium_random.next()); },
      nullptr,
      nullptr,
      [](void* const buffer, const std::size_t size) {
        auto* to = static_cast<unsigned char*>(buffer);
        for (std::size_t i = 0; i < size; ++i) {
          to[i] = static_cast<unsigned char>(g_sodium_random.next());
        }
      },
      nullptr};
  // Before sodium_init(), which draws from it, and only the first time.
  static const int set = randombytes_set_implementation(&implementation) | sodium_init();
  FURROW_CHECK(set >= 0);
  g_sodium_random = SimRandom(seed);
}

}  // namespace

Simulation::Simulation(const SimulationOptions& options)
    : options_(options),
      world_(options.seed),
      swarm_(draw(options, world_.random)),
      medium_(swarm_.geometry) {
  world_.watched_key = options.watched_key;
  world_.is_wedged = [this](std::uint64_t volume) { return is_wedged(*pool_, volume); };
  use_simulated_sodium(world_.random.next());
  executor_ = std::make_unique<SimExecutor>(world_.clock, world_.random.fork(), [this] {
    return device_ == nullptr ? SimExecutor::kNever : device_->due();
  });
}

Simulation::~Simulation() {
  if (world_.failed()) abandon();
}

// A pool that does not come to rest cannot be destroyed. The process reports and ends.
void Simulation::abandon() {
  (void)session_.release();
  (void)pool_.release();
  (void)device_.release();
  (void)executor_.release();
  if (files_) files_->abandon();
  (void)files_.release();
  for (auto* const disks : {&disks_, &ended_disks_}) {
    for (auto& disk : *disks) disk->abandon();
    for (auto& disk : *disks) (void)disk.release();
  }
  if (zones_) zones_->abandon();
  (void)zones_.release();
  for (auto& volume : volumes_) (void)volume.release();
  for (auto& volume : ended_) (void)volume.release();
}

bool Simulation::run() {
  if (!make_pool()) return false;
  while (!world_.failed() && steps_ < options_.steps) {
    const bool cuts = swarm_.cut_events_max != 0;
    if (cuts) device_->cut_after(world_.random.log_between(1, swarm_.cut_events_max));
    const std::uint64_t last = steps_ + (cuts ? options_.steps : options_.steps / 4 + 1);
    while (!world_.failed() && !device_->dead() && steps_ < options_.steps && steps_ < last) step();
    if (world_.failed()) break;
    stop();
    if (!world_.failed()) recover();
    if (over_) break;
  }
  if (over_) {
    end_pool(true);
    return !world_.failed();
  }
  if (!world_.failed()) write_after_losses();
  if (!world_.failed()) verify();
  if (!world_.failed()) verify_healed();
  if (!world_.failed()) end_pool(true);
  return !world_.failed();
}

// What the device failed to do has passed: every page can be read, no operation is answered with an
// error of the device's any more, and a store can be emptied and filled again.
void Simulation::verify_healed() {
  constexpr std::uint64_t kLongNs = 120'000'000'000;  // the engine tries again less and less often
  constexpr unsigned kOperations = 200;
  const SimFaults faults = std::exchange(swarm_.faults, SimFaults());
  const bool passing = faults.transient() && !faults.loses_zones() && faults.capacity_losses == 0 &&
                       swarm_.spoil_percent == 0;
  const bool lasting = faults.any() || swarm_.spoil_percent != 0;
  if (std::exchange(swarm_.hide_percent, 0) != 0) {
    stop();
    if (!world_.failed()) recover();
    world_.healed = !lasting;
    if (!world_.failed()) verify();
    if (files_ && !world_.failed()) empty_files();
    return;
  }
  if (!passing) return lasting ? void() : refill_all();
  device_->set_faults({});
  for (unsigned pauses = 0; pauses < 2; ++pauses) {
    world_.clock.now_ns += kLongNs;
    if (!pump("until the device works again")) return;
  }
  world_.healed = true;
  verify();
  // Zones that could not be finished keep some of what the device can have open until then.
  if (faults.may_exceed_limits() && !world_.failed()) {
    stop();
    if (!world_.failed()) recover();
  }
  for (unsigned i = 0; i < kOperations && !world_.failed() && !volumes_.empty(); ++i) {
    SimVolume& volume = *volumes_[world_.random.below(volumes_.size())];
    if (volume.may_start()) volume.start_any();
    turn();
    world_.clock.now_ns += kLongNs / 100;
  }
  if (pump("operations on a device that works again")) verify();
  refill_all();
}

// Every store can be emptied and filled again.
void Simulation::refill_all() {
  for (const auto& volume : volumes_) {
    if (!world_.failed() && volume->attached()) refill(*volume);
  }
  for (const auto& disk : disks_) {
    if (!world_.failed() && disk->attached()) refill(*disk);
  }
  if (zones_ && !world_.failed()) refill_zones();
  if (files_ && !world_.failed()) empty_files();
}

void Simulation::refill(SimVolume& volume) {
  volume.restart_verification();
  for (bool more = true; more && !world_.failed();) {
    if (volume.may_start()) {
      more = volume.start_removal();
    } else {
      turn();
    }
  }
  if (!pump("a removal of all pages")) return;
  world_.clock.now_ns += 1'000'000'000;
  const std::uint64_t before = volume.puts_stored();
  for (unsigned put = 0; put < 2; ++put) {
    volume.start_put();
    if (!pump("puts after a removal of all pages")) return;
  }
  // What deletes leave may take the room until zones are collected.
  if (volume.puts_stored() == before) come_to_rest();
  if (volume.puts_stored() == before) volume.start_put();
  if (!pump("a put when collection has come to rest")) return;
  const bool must = volume.takes_puts();
  if (must && volume.puts_stored() == before) {
    world_.fail(fmt::format("volume {} takes no put, with nothing in it: {}", volume.name(),
                            volume.last_refusal().describe()));
  }
}

// All that has begun of collection has ended.
void Simulation::come_to_rest() {
  constexpr unsigned kTurns = 1000;
  for (unsigned turns = 0; turns < kTurns && !world_.failed(); ++turns) turn();
}

// Zones that are gone cost their room and no more: while whatever else there is goes round, puts
// get through.
void Simulation::write_after_losses() {
  constexpr unsigned kRounds = 60, kPuts = 20;
  if (!swarm_.faults.loses_zones() || volumes_.empty()) return;
  device_->set_faults({});
  device_->lose_one(swarm_.faults.offline);
  SimVolume& volume = *volumes_[world_.random.below(volumes_.size())];
  if (!volume.attached() || !pump("before puts")) return;
  if (!volume.must_have_room(world_.zones_lost + 1)) return;
  std::uint64_t before = 0;
  for (unsigned round = 0; round < kRounds; ++round) {
    world_.clock.now_ns += 1'000'000'000;  // the engine may wait before it tries again
    before = volume.puts_stored();
    for (unsigned put = 0; put < kPuts; ++put) {
      volume.start_put();
      if (volume.may_start()) continue;
      if (!pump("puts after zones were lost")) return;
    }
    if (!pump("puts after zones were lost")) return;
  }
  // (These puts may have filled it themselves; or the zone that is gone is the one that copies go
  // to, and cuts had ended all others.)
  if (volume.puts_stored() == before && volume.must_have_room(world_.zones_lost) &&
      !is_wedged(*pool_, volume.id())) {
    world_.fail(fmt::format("volume {} takes no put, with {} zones lost: {}", volume.name(),
                            world_.zones_lost, volume.last_refusal().describe()));
  }
}

void Simulation::power_on() {
  device_ = std::make_unique<SimDevice>(medium_, world_.clock, world_.trace, swarm_.latency,
                                        world_.random.fork());
  world_.device = device_.get();
  device_->hosts_zones([this](ZoneId zone) {
    return pool_ && zones_ && zones_->attached() && owner_of(*pool_, zone) == zones_->id();
  });
  device_->when_cut([this] {
    if (files_) files_->device_died();
  });
  world_.device_dead = false;
  lost_zones_seen_ = 0;
}

bool Simulation::make_pool() {
  power_on();
  const Status formatted = Pool::format(*device_, "sim", *executor_);
  if (!formatted.ok()) {
    world_.fail("format: " + formatted.describe());
    return false;
  }
  if (!open_pool()) return false;
  for (const VolumeShape& shape : swarm_.volumes) {
    volumes_.push_back(std::make_unique<SimVolume>(world_, shape, swarm_.geometry));
  }
  for (const auto& volume : volumes_) create(*volume);
  std::erase_if(volumes_, [](const auto& each) { return each->exists == SimVolume::Exists::no; });
  if (volumes_.empty()) world_.fail("not even one volume fits");
  if (swarm_.files) create_files();
  create_disks();
  if (swarm_.zones) create_zones();
  world_.faults = swarm_.faults.any() || swarm_.spoil_percent + swarm_.hide_percent != 0;
  world_.reads_stray = swarm_.faults.misdirected_reads != 0;
  world_.reads_fail = swarm_.faults.read_errors + swarm_.faults.misdirected_reads +
                          swarm_.faults.unreadable_spells + swarm_.spoil_percent +
                          swarm_.hide_percent !=
                      0;
  world_.sets_clock = swarm_.clock_set_one_in != 0;
  world_.hides = swarm_.hide_percent != 0;
  device_->set_faults(swarm_.faults);
  return !world_.failed();
}

// False: the power failed meanwhile, or the pool cannot be opened, which is a failure.
bool Simulation::open_pool() {
  Pool::OpenOptions options;
  options.recovery_threads = Pool::OpenOptions::kCallingThread;
  options.victim_policy = swarm_.victim_policy;
  options.lifetime_zones = swarm_.lifetime_zones;
  options.scrub_bytes_per_s = swarm_.scrub_bytes_per_s;
  options.scrub_pause_s = 0;
  options.on_scrub_finding = [this](const ScrubFinding& finding) {
    if (device_->dead()) return;  // and answers nothing
    ++summary_.scrub_findings;
    say("scrub: " + furrow::describe(finding));
    if (world_.faults || world_.rotted) return;
    world_.fail("scrub finds damage where there is none: " + furrow::describe(finding));
  };
  if (swarm_.wide && world_.random.one_in(3)) options.give_up = zones_to_give_up();
  Result<std::unique_ptr<Pool>> opened = Pool::open(*device_, *executor_, options);
  if (!opened.ok()) {
    if (!device_->dead() && !world_.faults) world_.fail("open: " + opened.status().describe());
    return false;
  }
  pool_ = std::move(*opened);
  note_given_up(options.give_up);
  Result<std::unique_ptr<PageSession>> session = pool_->create_session(*executor_, 64);
  if (!session.ok()) return false;
  session_ = std::move(*session);
  check_structure();
  if (!attach_volumes() || !mount_files() || !attach_disks() || !attach_zones()) return false;
  reservations_.attach(*pool_);
  return !world_.failed();
}

bool Simulation::attach_volumes() {
  for (const auto& volume : volumes_) {
    PageStore* const store = pool_->find(volume->name());
    using enum SimVolume::Exists;
    if (store == nullptr && volume->exists == yes) world_.fail("volume lost: " + volume->name());
    if (store != nullptr && volume->exists == no) world_.fail("volume back: " + volume->name());
    volume->exists = store != nullptr ? yes : no;
    volume->attach(store, session_.get());
    if (store != nullptr && !volume->has_its_quota()) {
      world_.fail(fmt::format("volume {} has a quota of {} zones that nobody gave it",
                              volume->name(), volume->quota_zones()));
    }
  }
  std::erase_if(volumes_, [](const auto& each) { return each->exists == SimVolume::Exists::no; });
  return !world_.failed();
}

// --- running ---

unsigned Simulation::running() const {
  unsigned running = 0;
  for (const auto& volume : volumes_) running += volume->running();
  for (const auto& volume : ended_) running += volume->running();
  for (const auto& disk : disks_) running += disk->running();
  for (const auto& disk : ended_disks_) running += disk->running();
  return running + (zones_ ? zones_->running() : 0) + reservations_.running();
}

void Simulation::turn() {
  world_.device_dead = device_->dead();  // since something that blocked
  const bool more = executor_->run_once();
  world_.device_dead = device_->dead();
  if (!device_->violation().empty()) world_.fail("the device says: " + device_->violation());
  for (const auto& volume : volumes_) {
    volume->check_quota();
    volume->note_evictions();
  }
  note_lost_zones();
  if (++world_.turns % kTurnsPerCheck == 0) check_structure();
  quiet_turns_ = world_.answered == answered_seen_ && running() != 0 ? quiet_turns_ + 1 : 0;
  answered_seen_ = world_.answered;
  if (running() != 0 && (!more || quiet_turns_ > kQuietTurnsMax)) {
    world_.fail(fmt::format("{} operations get no answer{}", running(),
                            more ? "" : ", and nothing is left that could give one"));
  }
}

void Simulation::note_lost_zones() {
  // Of a zone that got smaller nobody counts what is left.
  world_.zones_lost += medium_.shrunk_zones() - shrunk_zones_seen_;
  shrunk_zones_seen_ = medium_.shrunk_zones();
  const std::span<const ZoneId> lost = device_->lost_zones();
  for (; lost_zones_seen_ < lost.size() && pool_ != nullptr; ++lost_zones_seen_) {
    ++world_.zones_lost;
    if (!swarm_.faults.offline) continue;
    const std::uint64_t owner = owner_of(*pool_, lost[lost_zones_seen_]);
    for (const auto& volume : volumes_) {
      if (volume->attached() && volume->id() == owner) volume->lost_a_zone();
    }
  }
}

void Simulation::check_structure() {
  if (pool_ == nullptr || device_->dead() || inspects_) return;
  const std::string wrong = check_structure_of(*pool_, *device_, world_.faults);
  if (!wrong.empty()) world_.fail("structure: " + wrong);
  if (running() == 0) check_usage();
}

// At rest the counts are what the model says.
void Simulation::check_usage() {
  for (const auto& volume : volumes_) {
    if (volume->attached() && !device_->dead()) volume->check_usage();
  }
}

void Simulation::step() {
  ++steps_;
  SimRandom& random = world_.random;
  if (swarm_.clock_jump_one_in != 0 && random.one_in(swarm_.clock_jump_one_in)) {
    world_.clock.now_ns += random.between(1, 5) * 1'000'000'000;
  }
  if (swarm_.clock_set_one_in != 0 && random.one_in(swarm_.clock_set_one_in)) set_clock();
  if (swarm_.volume_change_one_in != 0 && random.one_in(swarm_.volume_change_one_in)) {
    return change_volumes();
  }
  if (swarm_.disks.empty() && swarm_.resize_one_in != 0 && random.one_in(swarm_.resize_one_in)) {
    return resize_some();
  }
  if (swarm_.wide && random.one_in(300)) check_all("while it is used");
  if (files_ && random.one_in(8)) return step_files();
  if (!swarm_.disks.empty()) change_disks();
  if (swarm_.reserve_one_in != 0 && random.one_in(swarm_.reserve_one_in)) {
    reservations_.start_any(*pool_);
  }
  if (swarm_.zones) change_zones();
  start_some();
  if (random.one_in(3)) turn();
}

void Simulation::start_some() {
  SimRandom& random = world_.random;
  if (!disks_.empty() && !random.one_in(3)) {
    SimDisk& disk = any_disk();
    if (disk.may_start() && !random.one_in(4)) disk.start_any();
    return;
  }
  if (zones_ && zones_->attached() && !random.one_in(3)) {
    if (zones_->may_start() && !random.one_in(4)) zones_->start_any();
    return;
  }
  if (volumes_.empty()) return;
  SimVolume& volume = *volumes_[random.below(volumes_.size())];
  if (volume.may_start() && !random.one_in(4)) volume.start_any();
}

bool Simulation::pump(const char* why) {
  for (std::uint64_t turns = 0; running() != 0 && !world_.failed(); ++turns) turn();
  if (world_.failed()) world_.failure += fmt::format(" (while it waited: {})", why);
  return !world_.failed();
}

void Simulation::change_volumes() {
  SimRandom& random = world_.random;
  if (!volumes_.empty() && random.one_in(2)) {
    SimVolume& volume = *volumes_[random.below(volumes_.size())];
    if (!swarm_.wide && !pump("before a volume's deletion")) return;
    remove(volume);
    return forget_ended();
  }
  const VolumeShape& like = swarm_.volumes[random.below(swarm_.volumes.size())];
  VolumeShape shape = like;
  shape.options.name = fmt::format("w{}", names_++);
  volumes_.push_back(std::make_unique<SimVolume>(world_, shape, swarm_.geometry));
  create(*volumes_.back());
  if (volumes_.back()->exists == SimVolume::Exists::no) volumes_.pop_back();
}

void Simulation::create(SimVolume& volume) {
  const Result<PageStore*> made = pool_->create_volume(volume.shape().options);
  world_.trace.add(static_cast<std::uint64_t>(made.status().code()));
  if (made.ok()) {
    volume.exists = SimVolume::Exists::yes;
    volume.attach(*made, session_.get());
    return;
  }
  const Code code = made.status().code();
  const bool full = code == Code::no_space || code == Code::too_many_zones || code == Code::busy;
  if (!full && !device_->dead() && !world_.faults) {
    world_.fail("create_volume: " + made.status().describe());
  }
  volume.exists = full ? SimVolume::Exists::no : SimVolume::Exists::maybe;
}

void Simulation::remove(SimVolume& volume) {
  if (!volume.attached()) return;
  const Status removed = pool_->delete_volume(volume.name());
  world_.trace.add(static_cast<std::uint64_t>(removed.code()));
  if (removed.code() == Code::busy) return;
  if (removed.ok()) {
    const auto is_it = [&](const auto& each) { return each.get() == &volume; };
    const auto found = std::ranges::find_if(volumes_, is_it);
    if (swarm_.wide) {
      volume.end();
      ended_.push_back(std::move(*found));
    }
    volumes_.erase(found);
    return;
  }
  if (!device_->dead() && !world_.faults) world_.fail("delete_volume: " + removed.describe());
  volume.exists = SimVolume::Exists::maybe;
}

void Simulation::forget_ended() {
  if (ended_.empty() || !world_.random.one_in(4)) return;
  if (!pump("before deleted volumes are forgotten")) return;
  ended_.clear();
  pool_->forget_deleted();
}

// One volume after another: one that is to be smaller is asked again until it is, or no more.
void Simulation::resize_some() {
  SimRandom& random = world_.random;
  const auto is_it = [this](const auto& volume) { return volume->name() == resizing_.name; };
  auto volume = std::ranges::find_if(volumes_, is_it);
  if (volume == volumes_.end() || random.one_in(8)) {
    if (volumes_.empty()) return;
    volume = volumes_.begin() + static_cast<std::ptrdiff_t>(random.below(volumes_.size()));
    if (!(*volume)->attached()) return;
    const std::uint64_t most = (*volume)->quota_zones() + pool_->info().zones_unpromised;
    resizing_ = {(*volume)->name(), random.between(3, std::max<std::uint64_t>(most, 4))};
  }
  if ((*volume)->attached()) resize(**volume);
}

void Simulation::resize(SimVolume& volume) {
  // An answer that waits says what was so with the smaller quota.
  if (resizing_.zones > volume.quota_zones() && !pump("before a volume grows")) return;
  volume.tried_quota(resizing_.zones);
  const ResizeAnswer answer = pool_->resize_volume(
      volume.name(), {.quota_bytes = resizing_.zones * swarm_.geometry.zone_capacity_bytes()});
  const Code code = answer.status.code();
  world_.trace.add(static_cast<std::uint64_t>(code));
  if (code == Code::busy) return;
  resizing_ = {};
  // One that could not be written to the journal may count at the next opening.
  const bool refused = code == Code::no_space && answer.status.origin() != Origin::zone;
  if (device_->dead() || (world_.faults && code != Code::ok && !refused)) return;
  summary_.resized += answer.status.ok() ? 1 : 0;
  if (code != Code::ok && code != Code::no_space && code != Code::unsupported) {
    return world_.fail("resize_volume: " + answer.status.describe());
  }
  if (refused) volume.refused_quota();
  const bool right = refused ? volume.keeps_its_quota() : volume.has_its_quota();
  if (!right) world_.fail("volume " + volume.name() + " has another quota");
}

void Simulation::verify() {
  for (const auto& volume : volumes_) {
    if (!volume->attached()) continue;
    volume->restart_verification();
    bool more = true;
    while (more && !world_.failed()) {
      if (volume->may_start()) {
        more = volume->start_verification();
      } else {
        turn();
      }
    }
    if (!pump("a verification")) return;
    volume->start_list();
    if (!pump("a listing")) return;
    if (!device_->dead()) volume->check_usage();
  }
  for (const auto& disk : disks_) {
    if (disk->attached()) verify(*disk);
  }
  if (zones_ && zones_->attached()) verify_zones();
  if (!device_->dead()) reservations_.check(*pool_);
}

Simulation::Summary Simulation::summary() const {
  Summary summary = summary_;
  summary.trace = world_.trace.hash();
  summary.events = world_.trace.events();
  summary.answered = world_.answered;
  summary.longest_turns = world_.longest_turns;
  summary.puts_refused = world_.puts_refused;
  summary.zones_lost = world_.zones_lost;
  summary.removes_refused = world_.removes_refused;
  summary.hosts_zones_reset = world_.hosts_zones_reset;
  summary.reservations_kept = reservations_.kept();
  if (files_) summary.mounts_refused = files_->mounts_refused();
  return summary;
}

void Simulation::say(const std::string& text) const {
  if (options_.verbose) std::fprintf(stderr, "%s\n", text.c_str());
}

}  // namespace furrow::sim
