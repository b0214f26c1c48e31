#include "log/metadata_scan.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "log/metadata_found.h"
#include "log/structure.h"
#include "zone/zone_state_machine.h"

namespace furrow {

namespace {

// Superblocks of one pool agree on all that a roll leaves as it is.
Status check_agree(const Superblock& a, const Superblock& b) {
  Superblock same = a;
  same.checkpoint = b.checkpoint;
  same.features = b.features;
  if (same == b) return {};
  return Status(Code::corrupt, Origin::log, "the pool's superblocks contradict each other");
}

// Everything that was found in the ring's zones, and how it hangs together.
class RingScan {
 public:
  RingScan(ZonedDevice& device, IoQueue& queue) : device_(device), queue_(queue) {}
  Result<RingContents> run();

 private:
  using Item = RingFound::Item;
  using BadLba = RingFound::BadLba;
  using Journal = RingFound::Journal;

  Status find_superblock();
  Status look_at_superblock(ZoneId zone, std::span<const std::byte> bytes);
  Status check_pool() const;
  Status scan_zone(const ZoneInfo& info);
  std::uint64_t visit(ZoneReader& reader, ZoneId zone, std::uint64_t at);
  bool take_entry(ZoneId zone, std::uint64_t at, const JournalEntry& entry);
  void note_tail(const Item& end);
  bool may_hide_newer(ZoneId zone, const BadLba& bad, const Item& end) const;
  bool is_sealed_roll(std::uint64_t number) const;
  std::optional<std::vector<std::uint64_t>> chain_to(std::uint64_t number) const;
  bool follow(const std::vector<std::uint64_t>& chain);
  bool apply_journal(std::uint64_t number, std::uint64_t from,
                     std::optional<std::uint64_t> last_counted);
  Status resolve();
  void assemble();
  ZoneId newest_zone(const std::function<bool(const ZoneInfo&)>& suits, ZoneId other) const;
  void find_end();
  void note_needed(const std::vector<std::uint64_t>& chain);

  ZonedDevice& device_;
  IoQueue& queue_;
  RingFound found_;
  bool saw_magic_ = false;
  Status refused_;
  bool unreadable_ = false;   // some LBA
  bool read_failed_ = false;  // of a checkpoint's LBAs, since the last visit
  RingContents contents_;
};

Status RingScan::look_at_superblock(ZoneId zone, std::span<const std::byte> bytes) {
  if (!has_magic(bytes, Magic::superblock)) return {};
  saw_magic_ = true;
  const Result<Superblock> superblock = decode_superblock(bytes);
  if (superblock.status().code() == Code::unsupported) return superblock.status();
  if (!superblock.ok() || superblock->metadata_zones <= zone.value) return {};
  const auto [found, is_first] = found_.superblocks.try_emplace(zone.value, *superblock);
  if (is_first || superblock->pool != found->second.pool) return {};
  // A later one in the same zone is a repair, and newer.
  const Status status = check_agree(found->second, *superblock);
  if (superblock->checkpoint > found->second.checkpoint) found->second = *superblock;
  return status;
}

// Superblocks are in the zones' first LBAs. The first two zones are always the ring's; when none is
// readable there, a repair may have left one further back. What follows may be a zoned volume's,
// whose user may write anything: it is asked for as far as the ring goes, or when there is no
// other.
Status RingScan::find_superblock() {
  const std::size_t count = std::min<std::size_t>(found_.zones.size(), kMetadataZonesMax);
  bool unreadable = false;
  const auto look = [&](std::size_t zone) {
    ZoneReader reader(queue_, device_.geometry(), found_.zones[zone]);
    if (reader.written_lbas() == 0) return Status();
    const std::span<const std::byte> bytes = reader.lba(0);
    unreadable |= bytes.empty();
    return look_at_superblock(found_.zones[zone].zone, bytes);
  };
  std::size_t zone = 0;
  for (; zone < 2; ++zone) {
    if (const Status status = look(zone); !status.ok()) return status;
  }
  for (std::size_t deep = 0; deep < 2 && found_.superblocks.empty(); ++deep) {
    ZoneReader reader(queue_, device_.geometry(), found_.zones[deep]);
    for (std::uint64_t at = 1; at < reader.written_lbas() && !reader.is_unused_from(at); ++at) {
      const Status status = look_at_superblock(found_.zones[deep].zone, reader.lba(at));
      if (!status.ok()) return status;
    }
  }
  const auto in_ring = [&] {
    return found_.superblocks.empty() || zone < found_.superblocks.begin()->second.metadata_zones;
  };
  for (; zone < count && in_ring(); ++zone) {
    if (const Status status = look(zone); !status.ok()) return status;
  }
  if (!found_.superblocks.empty()) {
    const Superblock first = found_.superblocks.begin()->second;
    std::erase_if(found_.superblocks, [&](const auto& found) {
      return found.second.pool != first.pool || found.first >= first.metadata_zones;
    });
    return {};
  }
  if (unreadable) {
    return Status(Code::io_error, Origin::log,
                  "the device's first zones cannot be read; is it the right one, and well?");
  }
  if (saw_magic_) {
    return Status(
        Code::corrupt, Origin::log,
        "every superblock of the pool is damaged, and with them the secret that pages' "
        "checksums need is gone: nothing can be rebuilt, unless one LBA with a superblock "
        "is put back from a copy of the device");
  }
  const auto lost = [this](std::size_t i) { return found_.zones[i].state == ZoneState::offline; };
  if (lost(0) || lost(1)) {
    return Status(Code::corrupt, Origin::log,
                  "one of the device's first zones is offline, and a pool's superblocks, if there "
                  "was one, with it");
  }
  return Status(Code::foreign, Origin::log,
                "no pool is on this device; `furrowctl pool create`, or --create of a command that "
                "has it, makes one");
}

// Superblocks must agree on what never changes, and fit the device.
Status RingScan::check_pool() const {
  const Geometry& geometry = device_.geometry();
  for (const auto& [zone, pool] : found_.superblocks) {
    if (pool.lba_bytes != geometry.lba_bytes || pool.zone_size_lbas != geometry.zone_size_lbas ||
        pool.zone_capacity_lbas != geometry.zone_capacity_lbas ||
        pool.zone_count > geometry.zone_count) {
      return Status(Code::corrupt, Origin::log,
                    "the device is smaller, or cut in other zones, than when the pool was made");
    }
    const Status status = check_agree(found_.superblocks.begin()->second, pool);
    if (!status.ok()) return status;
  }
  return {};
}

Status RingScan::scan_zone(const ZoneInfo& info) {
  const std::string name = "metadata zone " + std::to_string(info.zone.value);
  if (info.state == ZoneState::offline) {
    contents_.damage.push_back(name + " is offline");
    return {};
  }
  ZoneReader reader(queue_, device_.geometry(), info);
  std::vector<BadLba>& bad = found_.bad[info.zone.value];
  for (std::uint64_t at = 0; at < reader.written_lbas();) {
    if (reader.is_unused_from(at)) break;
    const std::uint64_t lbas = visit(reader, info.zone, at);
    if (!refused_.ok()) return refused_;
    if (lbas == 0) {
      const bool unreadable = std::exchange(read_failed_, false) || reader.lba(at).empty();
      bad.push_back({at, unreadable});
      unreadable_ |= unreadable;
    }
    at += std::max<std::uint64_t>(lbas, 1);
    found_.end_lba[info.zone.value] = at;
  }
  return {};
}

// How many LBAs the structure at `at` takes; 0: there is none.
std::uint64_t RingScan::visit(ZoneReader& reader, ZoneId zone, std::uint64_t at) {
  const std::uint32_t lba_bytes = device_.geometry().lba_bytes;
  const Uuid& pool = found_.superblocks.begin()->second.pool;
  std::span<const std::byte> bytes = reader.lba(at);
  if (has_magic(bytes, Magic::superblock)) {
    const Result<Superblock> superblock = decode_superblock(bytes);
    if (superblock.status().code() == Code::unsupported) refused_ = superblock.status();
    if (!superblock.ok() || superblock->pool != pool) return 0;
    refused_ = look_at_superblock(zone, bytes);
    return 1;
  }
  if (has_magic(bytes, Magic::journal)) {
    const Result<JournalEntry> entry = decode_journal(bytes, pool);
    if (entry.status().code() == Code::unsupported) refused_ = entry.status();
    return entry.ok() && take_entry(zone, at, *entry) ? 1 : 0;
  }
  const std::uint64_t claimed = claimed_checkpoint_bytes(bytes) / lba_bytes;
  if (claimed == 0 || claimed > reader.written_lbas() - at ||
      claimed > checkpoint_lbas_max(device_.geometry())) {
    return 0;
  }
  bytes = reader.lbas(at, claimed);
  if (bytes.empty()) {
    read_failed_ = true;
    return 0;
  }
  const Result<Checkpoint> checkpoint = decode_checkpoint(bytes, pool);
  if (checkpoint.status().code() == Code::unsupported) refused_ = checkpoint.status();
  if (!checkpoint.ok()) return 0;
  found_.checkpoints.try_emplace(checkpoint->number,
                                 RingFound::FoundCheckpoint{{zone, at + claimed}, at, *checkpoint});
  return claimed;
}

// False: a record of this index was found, which says something else; neither was acknowledged
// then, or both are behind what counts.
bool RingScan::take_entry(ZoneId zone, std::uint64_t at, const JournalEntry& entry) {
  // Behind record 0 comes the superblock once more.
  const std::uint64_t behind = entry.index == 0 ? 1 : 0;
  const Item where{zone, at + kJournalCopies - entry.copy + behind};
  const auto [found, is_first] = found_.journals[entry.checkpoint].try_emplace(
      entry.index, RingFound::FoundEntry{where, entry});
  RingFound::FoundEntry& record = found->second;
  JournalEntry same = entry;
  same.copy = record.entry.copy;
  if (!is_first &&
      (record.zone != zone || record.end_lba != where.end_lba || same != record.entry)) {
    return false;
  }
  record.copies |= 1u << entry.copy;
  return true;
}

// What follows the last record that counts.
void RingScan::note_tail(const Item& end) {
  std::uint64_t torn = 0;
  for (const auto& [zone, all] : found_.bad) {
    for (const BadLba& bad : all) {
      if (bad.unreadable && may_hide_newer(ZoneId{zone}, bad, end)) contents_.unreadable = true;
      if (ZoneId{zone} == end.zone && bad.lba >= end.end_lba) ++torn;
    }
  }
  if (torn == 0) return;
  contents_.notes.push_back("metadata zone " + std::to_string(end.zone.value) + ": " +
                            std::to_string(torn) + " LBAs behind the last record are none: a " +
                            "power cut tore one that was answered to nobody");
}

// An LBA that the device does not give is no tear: may it hold what is newer than what was found?
bool RingScan::may_hide_newer(ZoneId zone, const BadLba& bad, const Item& end) const {
  if (zone == end.zone) return bad.lba >= end.end_lba;
  // A roll finishes the zone that it comes from before it writes elsewhere.
  if (is_active(found_.zones[end.zone.value].state)) return false;
  const std::optional<std::uint64_t> newest = found_.newest_in(zone);
  return !newest || *newest > contents_.number;
}

// The numbers from a readable checkpoint up to `number`, by what each record 0 says it continues.
std::optional<std::vector<std::uint64_t>> RingScan::chain_to(std::uint64_t number) const {
  std::vector<std::uint64_t> chain{number};
  while (!found_.checkpoints.contains(chain.back())) {
    const Journal& records = found_.journal(chain.back());
    const auto first = records.find(0);
    if (first == records.end()) return std::nullopt;
    chain.push_back(first->second.entry.previous_checkpoint);  // smaller: the decoder saw to it
  }
  std::ranges::reverse(chain);
  return chain;
}

// Applies records `from`.. up to the last one that counts, or all. False: one is missing or does
// not fit.
bool RingScan::apply_journal(std::uint64_t number, std::uint64_t from,
                             std::optional<std::uint64_t> last_counted) {
  const Journal& records = found_.journal(number);
  const std::uint64_t last = last_counted      ? *last_counted
                             : records.empty() ? 0
                                               : records.rbegin()->first;
  contents_.last_index = 0;
  for (std::uint64_t index = from; index <= last; ++index) {
    const auto found = records.find(index);
    if (found == records.end() || !apply(contents_.state, found->second.entry.record).ok()) {
      return false;
    }
    contents_.last_index = index;
  }
  return true;
}

bool RingScan::follow(const std::vector<std::uint64_t>& chain) {
  contents_.state = found_.checkpoints.at(chain.front()).checkpoint.state;
  for (std::size_t i = 0; i < chain.size(); ++i) {
    std::optional<std::uint64_t> last;
    if (i + 1 < chain.size()) last = found_.journal(chain[i + 1]).at(0).entry.previous_index;
    if (!apply_journal(chain[i], i == 0 ? 1 : 0, last)) return false;
  }
  return true;
}

// A roll that failed, which sealed its zone, and of which a power cut left no checkpoint, is not
// worth following: both zones would be needed, and neither could be written. Where the one before
// it is whole, it was never acknowledged: the next thing to be done would have been to reset that.
// One whose checkpoint is whole may have been, whatever else of it is: that other zone may be all
// that a reset and a power cut have brought to light again.
bool RingScan::is_sealed_roll(std::uint64_t number) const {
  if (found_.superblocks.begin()->second.metadata_zones != 2) return false;
  const Journal& records = found_.journal(number);
  const auto checkpoint = found_.checkpoints.find(number);
  const auto first = records.find(0);
  const bool any = checkpoint != found_.checkpoints.end() || first != records.end();
  if (!any || records.size() > 1 || (records.size() == 1 && first == records.end())) return false;
  const ZoneId zone =
      checkpoint != found_.checkpoints.end() ? checkpoint->second.zone : first->second.zone;
  if (is_active(found_.zones[zone.value].state)) return false;
  const auto is_older = [&](const auto& found) {
    return found.first < number && found.second.zone != zone;
  };
  if (std::ranges::none_of(found_.checkpoints, is_older)) return false;
  const auto superblock = found_.superblocks.find(zone.value);
  if (superblock == found_.superblocks.end() || superblock->second.checkpoint != number)
    return true;
  return checkpoint == found_.checkpoints.end();
}

Status RingScan::resolve() {
  std::vector<std::uint64_t> numbers;
  for (const auto& [number, found] : found_.checkpoints) numbers.push_back(number);
  for (const auto& [number, found] : found_.journals) numbers.push_back(number);
  std::ranges::sort(numbers, std::greater());
  for (const std::uint64_t number : numbers) {
    if (is_sealed_roll(number)) continue;
    const auto chain = chain_to(number);
    if (chain) {
      contents_.incomplete |= !follow(*chain);
      contents_.number = number;
      if (chain->size() > 1) contents_.must_roll = true;
      find_end();
      note_needed(*chain);
      return {};
    }
    contents_.incomplete = true;
  }
  if (unreadable_) {
    return Status(Code::io_error, Origin::log,
                  "no checkpoint of the pool can be read; is the device well?");
  }
  assemble();
  return {};
}

// Of the ring's zones that suit, the one with the highest number.
ZoneId RingScan::newest_zone(const std::function<bool(const ZoneInfo&)>& suits,
                             ZoneId other) const {
  std::optional<std::uint64_t> best;
  for (std::uint32_t i = 0; i < found_.superblocks.begin()->second.metadata_zones; ++i) {
    const std::optional<std::uint64_t> newest = found_.newest_in(ZoneId{i});
    if (!suits(found_.zones[i]) || !newest || (best && *newest < *best)) continue;
    best = newest;
    other = ZoneId{i};
  }
  return other;
}

// No checkpoint is left. What journals tell of volumes and of zones' ends counts all the same. A
// zone that a repair had begun may be whole since: that it was void is not believed.
void RingScan::assemble() {
  contents_.lost = contents_.must_roll = true;
  contents_.incomplete = false;
  contents_.damage.push_back("every checkpoint of the pool is damaged");
  for (const auto& [number, records] : found_.journals) {
    for (const auto& [index, found] : records) {
      const JournalRecord& record = found.entry.record;
      const bool trim = record.kind == JournalRecord::Kind::zone_trimmed;
      if (trim && record.trim.end_lba == 0 && !record.trim.durable) continue;
      (void)apply(contents_.state, record).ok();  // what does not fit was told before
    }
  }
  for (const auto& [number, records] : found_.journals) contents_.number = number;
  for (const auto& [zone, superblock] : found_.superblocks) {
    contents_.number = std::max(contents_.number, superblock.checkpoint);
  }
  const ZoneId kept = newest_zone(
      [this](const ZoneInfo& info) { return found_.superblocks.contains(info.zone.value); },
      ZoneId{found_.superblocks.begin()->first});
  contents_.needed = {kept};
  contents_.active = newest_zone([](const ZoneInfo& info) { return is_active(info.state); }, kept);
  contents_.written_lbas = found_.zones[contents_.active.value].written_lbas;
}

void RingScan::find_end() {
  Item end{ZoneId{0}, 0};
  const auto meet = [&](const Item& item) {
    if (item.end_lba > end.end_lba) end = item;
  };
  const auto checkpoint = found_.checkpoints.find(contents_.number);
  if (checkpoint != found_.checkpoints.end()) meet(checkpoint->second);
  for (const auto& [index, entry] : found_.journal(contents_.number)) meet(entry);
  contents_.active = end.zone;
  const ZoneInfo& info = found_.zones[end.zone.value];
  contents_.written_lbas = info.written_lbas;
  if (!is_active(info.state) || info.written_lbas != end.end_lba) contents_.must_roll = true;
  // A power cut may have left a roll's checkpoint and nothing behind it.
  if (!found_.journal(contents_.number).contains(0)) contents_.must_roll = true;
  // Rolling makes whole what is damaged, and a record of which one copy is left.
  const auto before_end = [&](const BadLba& bad) { return bad.lba < end.end_lba; };
  if (std::ranges::any_of(found_.bad[end.zone.value], before_end)) contents_.must_roll = true;
  const auto is_half = [](const auto& found) {
    return found.second.copies != RingFound::kAllCopies;
  };
  if (std::ranges::any_of(found_.journal(contents_.number), is_half)) contents_.must_roll = true;
  note_tail(end);
}

void RingScan::note_needed(const std::vector<std::uint64_t>& chain) {
  std::vector<ZoneId>& needed = contents_.needed;
  needed.push_back(found_.checkpoints.at(chain.front()).zone);
  for (const std::uint64_t number : chain) {
    for (const auto& [index, entry] : found_.journal(number)) needed.push_back(entry.zone);
  }
  const auto has_superblock = [&](ZoneId zone) { return found_.superblocks.contains(zone.value); };
  if (std::ranges::none_of(needed, has_superblock)) {
    needed.push_back(ZoneId{found_.superblocks.begin()->first});
    contents_.must_roll = true;
  }
  std::ranges::sort(needed);
  needed.erase(std::unique(needed.begin(), needed.end()), needed.end());
}

Result<RingContents> RingScan::run() {
  Result<std::vector<ZoneInfo>> report = device_.report();
  if (!report.ok()) return report.status();
  found_.zones = std::move(*report);
  if (found_.zones.size() < 2) {
    return Status(Code::foreign, Origin::log, "a device with one zone cannot hold a pool");
  }
  Status status = find_superblock();
  if (status.ok()) status = check_pool();
  if (!status.ok()) return status;
  const std::uint32_t ring_zones = found_.superblocks.begin()->second.metadata_zones;
  for (std::uint32_t zone = 0; zone < ring_zones; ++zone) {
    status = scan_zone(found_.zones[zone]);
    if (!status.ok()) return status;
  }
  status = check_pool();  // a repair left further superblocks inside the zones
  if (status.ok()) status = resolve();
  if (!status.ok()) return status;

  std::uint64_t newest = contents_.number;
  for (const auto& [zone, superblock] : found_.superblocks) {
    newest = std::max(newest, superblock.checkpoint);
  }
  const auto by_number = [](const auto& a, const auto& b) {
    return a.second.checkpoint < b.second.checkpoint;
  };
  contents_.superblock = std::ranges::max_element(found_.superblocks, by_number)->second;
  contents_.superblock.checkpoint = contents_.number;
  for (const auto& [number, found] : found_.checkpoints) newest = std::max(newest, number);
  for (const auto& [number, found] : found_.journals) newest = std::max(newest, number);
  contents_.next_number = newest + 1;
  judge_ring(found_, contents_);
  contents_.unreadable |= contents_.incomplete && unreadable_;
  return std::move(contents_);
}

}  // namespace

Result<RingContents> read_ring(ZonedDevice& device, IoQueue& queue) {
  return RingScan(device, queue).run();
}

}  // namespace furrow
