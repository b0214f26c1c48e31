#include "log/metadata_scan.h"

#include <algorithm>

#include "log/structure.h"
#include "zone/blocking.h"

namespace furrow {

namespace {

constexpr std::uint64_t kWindowBytes = 256 << 10;

bool is_zero(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; });
}

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
  struct Item {  // where a checkpoint or record was found
    ZoneId zone;
    std::uint64_t end_lba;  // behind it, zone-relative
  };
  struct FoundCheckpoint : Item {
    Checkpoint checkpoint;
  };
  struct FoundEntry : Item {
    JournalEntry entry;
  };
  using Journal = std::map<std::uint64_t, FoundEntry>;

  Status find_superblock();
  Status look_at_superblock(ZoneId zone, std::span<const std::byte> bytes);
  Status check_pool() const;
  Status scan_zone(const ZoneInfo& info);
  std::uint64_t visit(ZoneReader& reader, ZoneId zone, std::uint64_t at);
  void note_damage(ZoneId zone, const std::vector<std::uint64_t>& bad_lbas);
  bool is_torn_roll(std::uint64_t number) const;
  std::optional<std::vector<std::uint64_t>> chain_to(std::uint64_t number) const;
  bool follow(const std::vector<std::uint64_t>& chain);
  bool apply_journal(std::uint64_t number, std::uint64_t from,
                     std::optional<std::uint64_t> last_counted);
  Status resolve();
  void find_end();
  void note_needed(const std::vector<std::uint64_t>& chain);
  const Journal& journal(std::uint64_t number) const;

  ZonedDevice& device_;
  IoQueue& queue_;
  std::vector<ZoneInfo> zones_;
  std::map<std::uint32_t, Superblock> superblocks_;  // by zone
  bool saw_magic_ = false;
  Status refused_;
  std::map<std::uint64_t, FoundCheckpoint> checkpoints_;
  std::map<std::uint64_t, Journal> journals_;
  RingContents contents_;
};

Status RingScan::look_at_superblock(ZoneId zone, std::span<const std::byte> bytes) {
  if (!has_magic(bytes, Magic::superblock)) return {};
  saw_magic_ = true;
  const Result<Superblock> superblock = decode_superblock(bytes);
  if (superblock.status().code() == Code::unsupported) return superblock.status();
  if (!superblock.ok() || superblock->metadata_zones <= zone.value) return {};
  const auto [found, is_first] = superblocks_.try_emplace(zone.value, *superblock);
  if (is_first || superblock->pool != found->second.pool) return {};
  // A later one in the same zone is a repair, and newer.
  const Status status = check_agree(found->second, *superblock);
  if (superblock->checkpoint > found->second.checkpoint) found->second = *superblock;
  return status;
}

// Superblocks are in the zones' first LBAs. When none is readable, a repair may have left one
// further back; the first two zones are always the ring's.
Status RingScan::find_superblock() {
  const std::size_t count = std::min<std::size_t>(zones_.size(), kMetadataZonesMax);
  bool unreadable = false;
  for (std::size_t zone = 0; zone < count; ++zone) {
    ZoneReader reader(queue_, device_.geometry(), zones_[zone]);
    if (reader.written_lbas() == 0) continue;
    const std::span<const std::byte> bytes = reader.lba(0);
    unreadable |= bytes.empty();
    const Status status = look_at_superblock(zones_[zone].zone, bytes);
    if (!status.ok()) return status;
  }
  for (std::size_t zone = 0; zone < 2 && superblocks_.empty(); ++zone) {
    ZoneReader reader(queue_, device_.geometry(), zones_[zone]);
    for (std::uint64_t at = 1; at < reader.written_lbas() && !reader.is_unused_from(at); ++at) {
      const Status status = look_at_superblock(zones_[zone].zone, reader.lba(at));
      if (!status.ok()) return status;
    }
  }
  if (!superblocks_.empty()) {
    // What a zoned volume's user wrote into a zone behind the ring does not count.
    const Superblock first = superblocks_.begin()->second;
    std::erase_if(superblocks_, [&](const auto& found) {
      return found.second.pool != first.pool || found.first >= first.metadata_zones;
    });
    return {};
  }
  if (unreadable) {
    return Status(Code::io_error, Origin::log,
                  "the device's first zones cannot be read; is it the right one, and well?");
  }
  if (saw_magic_) {
    return Status(Code::corrupt, Origin::log, "every superblock of the pool is damaged");
  }
  return Status(Code::foreign, Origin::log,
                "no pool is on this device; `furrowctl pool create` makes one");
}

// Superblocks must agree on what never changes, and fit the device.
Status RingScan::check_pool() const {
  const Geometry& geometry = device_.geometry();
  for (const auto& [zone, pool] : superblocks_) {
    if (pool.lba_bytes != geometry.lba_bytes || pool.zone_size_lbas != geometry.zone_size_lbas ||
        pool.zone_capacity_lbas != geometry.zone_capacity_lbas ||
        pool.zone_count > geometry.zone_count) {
      return Status(Code::corrupt, Origin::log,
                    "the device is smaller, or cut in other zones, than when the pool was made");
    }
    const Status status = check_agree(superblocks_.begin()->second, pool);
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
  std::vector<std::uint64_t> bad_lbas;
  for (std::uint64_t at = 0; at < reader.written_lbas();) {
    if (reader.is_unused_from(at)) break;
    const std::uint64_t lbas = visit(reader, info.zone, at);
    if (!refused_.ok()) return refused_;
    if (lbas == 0) bad_lbas.push_back(at);
    at += std::max<std::uint64_t>(lbas, 1);
  }
  note_damage(info.zone, bad_lbas);
  return {};
}

// How many LBAs the structure at `at` takes; 0: there is none.
std::uint64_t RingScan::visit(ZoneReader& reader, ZoneId zone, std::uint64_t at) {
  const std::uint32_t lba_bytes = device_.geometry().lba_bytes;
  const Uuid& pool = superblocks_.begin()->second.pool;
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
    if (!entry.ok()) return 0;
    journals_[entry->checkpoint].try_emplace(entry->index, FoundEntry{{zone, at + 1}, *entry});
    return 1;
  }
  const std::uint64_t claimed = claimed_checkpoint_bytes(bytes) / lba_bytes;
  if (claimed == 0 || claimed > reader.written_lbas() - at ||
      claimed > checkpoint_lbas_max(device_.geometry())) {
    return 0;
  }
  const Result<Checkpoint> checkpoint = decode_checkpoint(reader.lbas(at, claimed), pool);
  if (checkpoint.status().code() == Code::unsupported) refused_ = checkpoint.status();
  if (!checkpoint.ok()) return 0;
  checkpoints_.try_emplace(checkpoint->number, FoundCheckpoint{{zone, at + claimed}, *checkpoint});
  return claimed;
}

// Unreadable LBAs before the last structure of the zone's newest journal are damage; behind it they
// are what a power cut left of a record that nobody was told about.
void RingScan::note_damage(ZoneId zone, const std::vector<std::uint64_t>& bad_lbas) {
  std::uint64_t newest = 0, end_lba = 0;
  const auto meet = [&](std::uint64_t number, const Item& item) {
    if (item.zone != zone || number < newest) return;
    end_lba = number == newest ? std::max(end_lba, item.end_lba) : item.end_lba;
    newest = number;
  };
  for (const auto& [number, found] : checkpoints_) meet(number, found);
  for (const auto& [number, found] : journals_) {
    for (const auto& [index, entry] : found) meet(number, entry);
  }
  for (const std::uint64_t lba : bad_lbas) {
    if (lba >= end_lba) continue;
    contents_.damage.push_back("metadata zone " + std::to_string(zone.value) + ": LBA " +
                               std::to_string(lba) + (lba == 0 ? " (superblock)" : "") +
                               " is damaged");
  }
}

const RingScan::Journal& RingScan::journal(std::uint64_t number) const {
  static const Journal kNone;
  const auto found = journals_.find(number);
  return found == journals_.end() ? kNone : found->second;
}

// The numbers from a readable checkpoint up to `number`, by what each record 0 says it continues.
std::optional<std::vector<std::uint64_t>> RingScan::chain_to(std::uint64_t number) const {
  std::vector<std::uint64_t> chain{number};
  while (!checkpoints_.contains(chain.back())) {
    const Journal& records = journal(chain.back());
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
  const Journal& records = journal(number);
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
  contents_.state = checkpoints_.at(chain.front()).checkpoint.state;
  for (std::size_t i = 0; i < chain.size(); ++i) {
    std::optional<std::uint64_t> last;
    if (i + 1 < chain.size()) last = journal(chain[i + 1]).at(0).entry.previous_index;
    if (!apply_journal(chain[i], i == 0 ? 1 : 0, last)) return false;
  }
  return true;
}

// Of a roll that a power cut ended, record 0 may be all that survived, in a zone whose write
// pointer is still that of its earlier life. Had the roll been acknowledged, the write pointer
// would be behind what it wrote.
bool RingScan::is_torn_roll(std::uint64_t number) const {
  const Journal& records = journal(number);
  if (checkpoints_.contains(number) || records.size() != 1) return false;
  const auto& [index, entry] = *records.begin();
  return index == 0 && zones_[entry.zone.value].written_lbas != entry.end_lba;
}

Status RingScan::resolve() {
  std::vector<std::uint64_t> numbers;
  for (const auto& [number, found] : checkpoints_) numbers.push_back(number);
  for (const auto& [number, found] : journals_) numbers.push_back(number);
  std::ranges::sort(numbers, std::greater());
  for (const std::uint64_t number : numbers) {
    if (is_torn_roll(number)) continue;
    const auto chain = chain_to(number);
    if (chain) {
      contents_.incomplete |= !follow(*chain);
      contents_.number = number;
      if (chain->size() > 1) {
        contents_.must_roll = true;
        contents_.damage.push_back("checkpoint " + std::to_string(number) +
                                   " is damaged; its state was rebuilt from an older one");
      }
      find_end();
      note_needed(*chain);
      return {};
    }
    contents_.incomplete = true;
  }
  return Status(Code::corrupt, Origin::log, "every checkpoint of the pool is damaged");
}

void RingScan::find_end() {
  Item end{ZoneId{0}, 0};
  const auto meet = [&](const Item& item) {
    if (item.end_lba > end.end_lba) end = item;
  };
  const auto checkpoint = checkpoints_.find(contents_.number);
  if (checkpoint != checkpoints_.end()) meet(checkpoint->second);
  for (const auto& [index, entry] : journal(contents_.number)) meet(entry);
  contents_.active = end.zone;
  const ZoneInfo& info = zones_[end.zone.value];
  contents_.written_lbas = info.written_lbas;
  const bool writable = info.state == ZoneState::implicitly_open ||
                        info.state == ZoneState::explicitly_open || info.state == ZoneState::closed;
  if (!writable || info.written_lbas != end.end_lba) contents_.must_roll = true;
}

void RingScan::note_needed(const std::vector<std::uint64_t>& chain) {
  std::vector<ZoneId>& needed = contents_.needed;
  needed.push_back(checkpoints_.at(chain.front()).zone);
  for (const std::uint64_t number : chain) {
    for (const auto& [index, entry] : journal(number)) needed.push_back(entry.zone);
  }
  const auto has_superblock = [&](ZoneId zone) { return superblocks_.contains(zone.value); };
  if (std::ranges::none_of(needed, has_superblock)) {
    needed.push_back(ZoneId{superblocks_.begin()->first});
    contents_.must_roll = true;
  }
  std::ranges::sort(needed);
  needed.erase(std::unique(needed.begin(), needed.end()), needed.end());
}

Result<RingContents> RingScan::run() {
  Result<std::vector<ZoneInfo>> report = device_.report();
  if (!report.ok()) return report.status();
  zones_ = std::move(*report);
  if (zones_.size() < 2) {
    return Status(Code::foreign, Origin::log, "a device with one zone cannot hold a pool");
  }
  Status status = find_superblock();
  if (status.ok()) status = check_pool();
  if (!status.ok()) return status;
  const std::uint32_t ring_zones = superblocks_.begin()->second.metadata_zones;
  for (std::uint32_t zone = 0; zone < ring_zones; ++zone) {
    status = scan_zone(zones_[zone]);
    if (!status.ok()) return status;
  }
  status = check_pool();  // a repair left further superblocks inside the zones
  if (status.ok()) status = resolve();
  if (!status.ok()) return status;

  std::uint64_t newest = contents_.number;
  for (const auto& [zone, superblock] : superblocks_) {
    newest = std::max(newest, superblock.checkpoint);
  }
  const auto by_number = [](const auto& a, const auto& b) {
    return a.second.checkpoint < b.second.checkpoint;
  };
  contents_.superblock = std::ranges::max_element(superblocks_, by_number)->second;
  contents_.superblock.checkpoint = contents_.number;
  for (const auto& [number, found] : checkpoints_) newest = std::max(newest, number);
  for (const auto& [number, found] : journals_) newest = std::max(newest, number);
  contents_.next_number = newest + 1;
  return std::move(contents_);
}

}  // namespace

ZoneReader::ZoneReader(IoQueue& queue, const Geometry& geometry, const ZoneInfo& info)
    : queue_(queue), geometry_(geometry), info_(info) {
  // A full zone was written somewhere up to its capacity: finished early, perhaps.
  if (info.state == ZoneState::offline) return;
  const bool unknown = info.state == ZoneState::full || info.state == ZoneState::read_only;
  written_ = unknown ? geometry.zone_capacity_lbas
                     : std::min(info.written_lbas, geometry.zone_capacity_lbas);
}

Status ZoneReader::read(std::uint64_t at, std::uint64_t count, std::byte* into) {
  Io io;
  io.op = Io::Op::read;
  io.lba = Lba{geometry_.zone_start(info_.zone).value + at};
  io.set_data(into, static_cast<std::uint32_t>(count), geometry_.lba_bytes);
  return run_blocking(queue_, io);
}

std::span<const std::byte> ZoneReader::lba(std::uint64_t at) {
  const std::uint32_t lba_bytes = geometry_.lba_bytes;
  if (at < window_at_ || at >= window_at_ + window_lbas_) {
    if (window_.size() == 0) window_ = AlignedBuffer(std::min(kWindowBytes, written_ * lba_bytes));
    window_at_ = at;
    window_lbas_ = std::min(kWindowBytes / lba_bytes, written_ - at);
    if (!read(at, window_lbas_, window_.data()).ok()) {
      window_lbas_ = 1;  // one bad LBA must not hide its neighbours
      if (!read(at, 1, window_.data()).ok()) {
        window_lbas_ = 0;
        return {};
      }
    }
  }
  return window_.span().subspan((at - window_at_) * lba_bytes, lba_bytes);
}

std::span<const std::byte> ZoneReader::lbas(std::uint64_t at, std::uint64_t count) {
  const std::uint32_t lba_bytes = geometry_.lba_bytes;
  large_ = AlignedBuffer(count * lba_bytes);
  for (std::uint64_t done = 0; done < count;) {
    const std::uint64_t piece = std::min(count - done, kWindowBytes / lba_bytes);
    if (!read(at + done, piece, large_.data() + done * lba_bytes).ok()) return {};
    done += piece;
  }
  return large_.span();
}

bool ZoneReader::is_unused_from(std::uint64_t at) {
  if (info_.state != ZoneState::full && info_.state != ZoneState::read_only) return false;
  if (lba(at).empty()) return false;
  const std::uint64_t skip = (at - window_at_) * geometry_.lba_bytes;
  return is_zero(window_.span().first(window_lbas_ * geometry_.lba_bytes).subspan(skip));
}

std::uint64_t checkpoint_lbas_max(const Geometry& geometry) {
  const std::uint64_t half =
      (geometry.zone_capacity_lbas - std::min<std::uint64_t>(geometry.zone_capacity_lbas, 4)) / 2;
  return std::min(half, kCheckpointBytesMax / geometry.lba_bytes);
}

Result<RingContents> read_ring(ZonedDevice& device, IoQueue& queue) {
  return RingScan(device, queue).run();
}

}  // namespace furrow
