// Simulation: how a pool ends, what becomes of the medium meanwhile, and recovery and repair.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/files/file_format.h"
#include "log/metadata_ring.h"
#include "tests/sim/rot.h"
#include "tests/sim/simulation.h"

namespace furrow::sim {

namespace {

Crash crash_of(bool emu, bool process_only) {
  if (process_only) return emu ? Crash::emu_kill : Crash::kill;
  return emu ? Crash::emu : Crash::drive;
}

}  // namespace

void Simulation::stop() {
  ++summary_.stops;
  resizing_ = {};
  SimRandom& random = world_.random;
  const bool orderly = !device_->dead() && random.percent(swarm_.close_percent);
  if (orderly) ++summary_.closes;
  if (orderly) {
    device_->cut_after(0);
  } else {
    device_->cut_now();
  }
  end_pool(orderly);
  if (world_.failed()) return;
  rot();
  const bool kill = random.percent(swarm_.kill_percent);
  medium_.crash(crash_of(swarm_.emu, kill), random);
  ++world_.era;
  // An orderly close has made everything durable, if the device could.
  const bool all_kept = kill || (orderly && end_flushed_);
  for (const auto& volume : volumes_) volume->cut(all_kept);
  if (files_) files_->cut(all_kept, kill);
  cut_disks(all_kept);
  cut_zones(all_kept);
  note_struck_pages();
  say(fmt::format("step {}: {}, era {}", steps_,
                  orderly ? "closed"
                  : kill  ? "killed"
                          : "cut",
                  world_.era));
}

void Simulation::rot() {
  SimRandom& random = world_.random;
  const auto drawn = [&](unsigned percent) { return percent != 0 && random.percent(percent); };
  if (drawn(swarm_.summary_rot_percent) && rot_summary(medium_, Rot::flip, random)) {
    world_.rotted = true;
    ++summary_.summaries_rotted;
  }
  if (drawn(swarm_.page_rot_percent)) strike_page();
  if (drawn(swarm_.journal_rot_percent) && rot_journal(medium_, random)) {
    ++summary_.records_rotted;
  }
  if (!drawn(swarm_.spoil_percent)) return;
  const std::uint64_t what = random.below(3);
  std::optional<StruckPage> page;
  if (what == 2) page = rot_page(medium_, Rot::unreadable, random);
  // Without a record of its names a volume of files is not mounted.
  const auto is_chunk = [&] { return page->volume != files_->id() || chunk_of(page->key); };
  if (page && files_ && (page->key.length == 0 || !is_chunk())) {
    medium_.unspoil(page->zone, page->at / swarm_.geometry.lba_bytes);
    page.reset();
  }
  if (page && page->key.length != 0) unreadable_.push_back(*page);
  if (what == 0   ? rot_summary(medium_, Rot::unreadable, random)
      : what == 1 ? spoil_batch_header(medium_, random)
                  : page.has_value()) {
    ++summary_.spoiled;
    ++world_.places_spoiled;
  }
}

void Simulation::strike_page() {
  std::optional<StruckPage> page = rot_page(medium_, Rot::flip, world_.random);
  if (!page) return;
  world_.rotted = true;
  ++summary_.pages_rotted;
  if (page->key.length != 0) struck_.push_back(std::move(*page));
}

SimVolume* Simulation::volume_of(const StruckPage& page) {
  const auto is_its = [&](const auto& volume) { return volume->id() == page.volume; };
  const auto volume = std::ranges::find_if(volumes_, is_its);
  return volume == volumes_.end() ? nullptr : volume->get();
}

// When it is known what else may be there.
void Simulation::note_struck_pages() {
  for (const StruckPage& page : std::exchange(struck_, {})) {
    if (SimVolume* const volume = volume_of(page)) volume->strike(page);
    for (const auto& disk : disks_) {
      if (disk->id() == page.volume) disk->strike(page);
    }
    if (files_ && files_->id() == page.volume) files_->strike(page);
  }
}

// All of which something cannot be read, or nothing.
std::vector<std::uint32_t> Simulation::zones_to_give_up() const {
  std::vector<std::uint32_t> zones;
  for (std::uint32_t i = 0; i < swarm_.geometry.zone_count; ++i) {
    const bool offline = medium_.record(ZoneId{i}).kind == ZoneRecord::Class::offline;
    if (offline || !medium_.spoiled(ZoneId{i}).empty()) zones.push_back(i);
  }
  return zones;
}

// That costs the pages that cannot be read, and no others.
void Simulation::note_given_up(const std::vector<std::uint32_t>& zones) {
  if (zones.empty()) return;
  for (const StruckPage& page : unreadable_) {
    if (SimVolume* const volume = volume_of(page)) volume->give_up(page);
  }
}

void Simulation::end_pool(bool orderly) {
  if (files_) files_->unmount(orderly);
  if (!pump(orderly ? "before a close" : "after a power cut")) return;
  ended_.clear();
  check_usage();
  rest_disks();
  if (world_.failed()) return;
  for (std::uint64_t turns = 0; zones_ && !zones_->at_rest(); ++turns) {
    executor_->run_once();
    if (turns > kQuietTurnsMax) return world_.fail("the zones do not come to rest");
  }
  for (const auto& disk : disks_) disk->detach();
  if (zones_) zones_->detach();
  session_.reset();
  const std::uint64_t flushes_failed = device_->flushes_failed();
  std::uint64_t turns = 0;
  while (pool_ != nullptr && !pool_->quiesce()) {
    executor_->run_once();
    if (++turns <= kQuietTurnsMax) continue;
    return world_.fail("the pool does not come to rest");
  }
  note_lost_zones();
  for (const auto& volume : volumes_) volume->note_evictions();
  count_collection();
  pool_.reset();
  end_flushed_ = device_->flushes_failed() == flushes_failed;
  summary_.faults += device_->faults_injected();
  summary_.spells += device_->spells();
  if (!device_->violation().empty()) world_.fail("the device says: " + device_->violation());
  device_.reset();
}

// What the volumes have counted since the pool was opened.
void Simulation::count_collection() {
  if (pool_ == nullptr) return;
  for (const PageStore* const store : pool_->stores()) {
    const VolumeStats stats = store->stats();
    summary_.zones_reset += stats.zones_reset;
    summary_.relocated_bytes += stats.relocated_bytes;
  }
}

void Simulation::recover() {
  constexpr unsigned kAttemptsMax = 6;
  const std::vector<StruckPage> none;
  SimRandom& random = world_.random;
  std::optional<ZoneId> struck;
  if (repairable_ && swarm_.repair_percent != 0 && random.percent(swarm_.repair_percent)) {
    power_on();
    if (!check("after a stop")) world_.fail("a stop has damaged structures");
    if (!world_.failed()) struck = strike();
    if (struck) see_damage(*struck);
    device_.reset();
    world_.rotted |= struck.has_value();
    if (struck) say(fmt::format("zone {} is damaged", struck->value));
  }
  if (swarm_.inspect_percent != 0 && random.percent(swarm_.inspect_percent)) look_at();
  for (unsigned attempt = 0; !world_.failed(); ++attempt) {
    power_on();
    if (attempt == 0 && struck && !repair(*struck)) return;
    if (attempt < kAttemptsMax && random.percent(swarm_.recovery_cut_percent)) {
      device_->cut_after(random.log_between(1, 400));
    }
    ++summary_.recoveries;
    if (swarm_.clock_set_one_in != 0 && random.one_in(2)) set_clock();
    if (attempt < kAttemptsMax && world_.faults && random.one_in(2)) {
      device_->set_faults(swarm_.faults.while_opening());
    }
    const bool hidden = attempt < kAttemptsMax && hide();
    const bool opened = open_pool();
    if (opened) {
      for (const auto& volume : volumes_) {
        if (hidden) volume->veil();
      }
      device_->set_faults(swarm_.faults);
      device_->cut_after(0);
      break;
    }
    say(fmt::format("attempt {} to open failed", attempt));
    if (world_.failed()) return;
    if (!device_->dead() && attempt > kAttemptsMax) {
      const bool wedged = files_ && files_->wedged() && world_.zones_lost != 0;
      over_ = wedged || (files_ && files_->beyond_mending());
      return over_ ? void() : world_.fail("the pool does not open");
    }
    // A session may have been refused although the pool was open, or files not mounted.
    const bool killed =
        files_ && files_->may_be_unreadable() && !device_->dead() && random.one_in(2);
    device_->cut_now();
    end_pool(false);
    if (world_.failed()) return;
    for (const StruckPage& page : files_ ? files_->to_mend() : none) mend(medium_, page);
    cut(killed);
  }
  if (files_ && files_->mounted() && !device_->dead()) {
    files_->verify();
    ++summary_.mounts;
  }
  if (random.percent(swarm_.verify_percent)) verify();
}

// True: something cannot be read, for as long as the device is on.
bool Simulation::hide() {
  SimRandom& random = world_.random;
  if (swarm_.hide_percent == 0 || !random.percent(swarm_.hide_percent)) return false;
  const bool pages = files_ && random.one_in(2);
  std::vector<std::uint64_t> lbas = swarm_.hides_ends ? hidden_ends(medium_, random)
                                    : pages           ? hidden_pages(medium_, random)
                                                      : hidden_lbas(medium_, random);
  const bool some = !lbas.empty();
  if (some) say(fmt::format("{} LBAs cannot be read, from {} on", lbas.size(), lbas.front()));
  device_->hide(std::move(lbas));
  return some;
}

// Somebody sets it, a little or by much, or right.
void Simulation::set_clock() {
  constexpr std::uint64_t kLittleS = 50, kMuchS = 10'000'000;
  SimRandom& random = world_.random;
  const std::uint64_t shown_s = world_.wall_s();
  std::uint64_t& ahead_s = world_.clock.wall_ahead_s;
  const std::uint64_t drawn = ahead_s != 0 && random.one_in(2) ? 0 : random.between(1, 8);
  ahead_s = drawn == 0   ? 0
            : drawn == 1 ? random.log_between(kLittleS, kMuchS)
                         : random.between(1, kLittleS);
  if (random.one_in(4)) ahead_s = 0 - ahead_s;
  for (const auto& volume : volumes_) volume->clock_set(shown_s);
  for (const auto& volume : ended_) volume->clock_set(shown_s);
  ++summary_.clock_set;
  say(fmt::format("the clock is set from {} to {} s", shown_s, world_.wall_s()));
}

void Simulation::cut(bool process_only) {
  medium_.crash(crash_of(swarm_.emu, process_only), world_.random);
  ++world_.era;
  for (const auto& volume : volumes_) volume->cut(process_only);
  if (files_) files_->cut(process_only, process_only);
  cut_disks(process_only);
  cut_zones(process_only);
}

// Repairs the pool, through some power cuts; then nothing that a repair can mend is damaged.
bool Simulation::repair(ZoneId struck) {
  // Each attempt leaves something behind in the only whole zone of the metadata ring.
  const unsigned cuts_max = struck.value < 2 ? 1 : 3;
  SimRandom& random = world_.random;
  for (unsigned cuts = static_cast<unsigned>(random.between(0, cuts_max));; --cuts) {
    if (cuts != 0) device_->cut_after(random.log_between(1, 600));
    ++summary_.repairs;
    const Result<RepairReport> report =
        Pool::repair(*device_, *executor_, Pool::OpenOptions::kCallingThread);
    if (!device_->violation().empty()) world_.fail("the device says: " + device_->violation());
    if (!device_->dead()) {
      device_->cut_after(0);
      if (!report.ok()) world_.fail("repair: " + report.status().describe());
      if (world_.failed()) return false;
      for (const std::string& text : report->done) say(text);
      for (const std::string& text : report->failed) say(text);
      repairable_ = report->failed.empty();  // else no zone was free: what is damaged stays so
      // A batch header that only a summary in the void end of its zone names is not rebuilt.
      if (repairable_) repairable_ = check("after a repair");
      return !world_.failed();
    }
    device_.reset();
    cut();
    power_on();
  }
}

// Damages a structure; nothing: none was found. The device is on.
std::optional<ZoneId> Simulation::strike() {
  const Result<MetadataRing> ring = MetadataRing::open(*device_, true);
  if (ring.ok()) return rot_structure(medium_, ring->state().trims, world_.random);
  world_.fail("the metadata after a stop: " + ring.status().describe());
  return std::nullopt;
}

Result<CheckReport> Simulation::inspect() {
  Pool::OpenOptions inspect;
  inspect.read_only = true;
  inspect.recovery_threads = Pool::OpenOptions::kCallingThread;
  const Result<std::unique_ptr<Pool>> pool = Pool::open(*device_, *executor_, inspect);
  if (!pool.ok()) return pool.status();
  CheckOptions structures;
  structures.pages = false;
  return pool.value()->check(structures);
}

// Before it is opened: what it would have is there to be read, and nothing is damaged that nobody
// has struck.
void Simulation::look_at() {
  power_on();
  inspects_ = true;
  Pool::OpenOptions options;
  options.read_only = true;
  options.recovery_threads = Pool::OpenOptions::kCallingThread;
  Result<std::unique_ptr<Pool>> opened = Pool::open(*device_, *executor_, options);
  if (!opened.ok()) return world_.fail("open to look at: " + opened.status().describe());
  pool_ = std::move(*opened);
  Result<std::unique_ptr<PageSession>> session = pool_->create_session(*executor_, 64);
  if (!session.ok()) return world_.fail("create_session: " + session.status().describe());
  session_ = std::move(*session);
  if (!attach_volumes()) return;
  verify();
  if (world_.failed()) return;
  check_all("after a stop");
  for (const auto& volume : volumes_) volume->attach(nullptr, nullptr);
  session_.reset();
  while (!pool_->quiesce()) executor_->run_once();
  pool_.reset();
  device_.reset();
  inspects_ = false;
}

// Pages as well. A write that failed may have left half of a structure, until a later opening says
// that it is void. Of the metadata it leaves none, or nothing at all where a roll had begun with
// it.
void Simulation::check_all(const char* when) {
  const Result<CheckReport> report = pool_->check({});
  if (world_.rotted || summary_.records_rotted != 0 || device_->dead()) return;
  if (!report.ok()) {
    if (!world_.faults) world_.fail("check: " + report.status().describe());
    return;
  }
  for (const Finding& finding : report->damage) {
    const bool metadata = inspects_ && finding.structure == Finding::Structure::metadata &&
                          !finding.text.starts_with("nothing is left of checkpoint");
    if (world_.faults && !metadata) continue;
    return world_.fail(fmt::format("damaged, {}: {}", when, finding.text));
  }
}

// What was struck is told: as damage, but where a power cut has torn what the metadata ring wrote
// there as well.
void Simulation::see_damage(ZoneId zone) {
  const Result<CheckReport> report = inspect();
  if (report.ok() && !report->clean()) return;
  const std::string torn = fmt::format("metadata zone {}:", zone.value);
  const auto told = [&](const std::string& note) { return note.starts_with(torn); };
  if (report.ok() && std::ranges::any_of(report->notes, told)) return;
  world_.fail(fmt::format("zone {} is damaged, and a check does not see it: {}", zone.value,
                          report.status().describe()));
}

// True: no structure is damaged. None may be that a repair can mend.
bool Simulation::check(const char* when) {
  const Result<CheckReport> report = inspect();
  if (!report.ok()) {
    world_.fail(fmt::format("check {}: {}", when, report.status().describe()));
    return false;
  }
  bool clean = true;
  for (const Finding& finding : report->damage) {
    say(finding.text);
    if (finding.repairable) world_.fail(fmt::format("damaged {}: {}", when, finding.text));
    clean = false;
  }
  return clean;
}

}  // namespace furrow::sim
