// Establishes that no pool misbehaves, whatever stands on its medium, and that no page is served
// that was never stored under its key. The input is a list of edits of a small pool that a fixed
// history left behind, with checksums made right again, so that they reach behind the decoders:
// inspection, recovery, check, operations, another recovery, repair. Of what was stored under a key
// that the history does not know, nothing may be lost again.
#include <array>
#include <map>
#include <memory>
#include <optional>

#include "engine/pool.h"
#include "tests/fuzz/fixed_randomness.h"
#include "tests/fuzz/media_fuzz.h"
#include "tests/sim/sim_executor.h"
#include "zone/aligned_buffer.h"
#include "zone/blocking.h"

using namespace furrow;

namespace {

constexpr std::size_t kLba = 512, kZoneLbas = 64, kZones = 14, kZoneBytes = kLba * kZoneLbas;
constexpr std::size_t kValueMax = 3000;
constexpr std::uint64_t kKeys = 24, kNewKey = 1000;
// Far more turns than anything here needs.
constexpr unsigned kTurnsMax = 2'000'000;

struct ZoneImage {
  fuzz::Bytes bytes;  // up to the write pointer
  bool finished = false;
};
using Image = std::array<ZoneImage, kZones>;

Key key_of(std::uint64_t number) {
  std::array<std::byte, Key::kBytesMax> bytes{};
  std::memcpy(bytes.data(), &number, sizeof number);
  return Key::from(std::span<const std::byte>(bytes).first(8 + number % 9));
}

// Of 1 to kValueMax bytes, and different for each (volume, key, version).
fuzz::Bytes content(std::size_t volume, std::uint64_t key, std::uint64_t version) {
  std::uint64_t word = (volume * 1009 + key) * 1009 + version + 1;
  const auto next = [&word] { return word = word * 6364136223846793005u + 1442695040888963407u; };
  next();
  fuzz::Bytes bytes(16 + (next() >> 33) % (kValueMax - 16));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(next() >> 56);
  return bytes;
}

// The device, and a pool on it while one is open; all on this thread, in simulated time.
class World {
 public:
  World() {
    auto opened = open_device("mem:" + std::to_string(kZones * kZoneBytes) +
                                  "?zone_size=32KiB&lba=512&mor=0&mar=0&reclaim=never",
                              Access::exclusive);
    fuzz::require(opened.ok(), "mem: opens");
    device_ = std::move(*opened);
    auto queue = device_->create_queue(4);
    fuzz::require(queue.ok(), "queue");
    queue_ = std::move(*queue);
  }

  ZonedDevice& device() { return *device_; }
  sim::SimExecutor& home() { return executor_; }
  Pool& pool() { return *pool_; }

  bool open(bool read_only) {
    Pool::OpenOptions options;
    options.read_only = read_only;
    options.recovery_threads = Pool::OpenOptions::kCallingThread;
    auto opened = Pool::open(*device_, executor_, options);
    if (!opened) return false;
    pool_ = std::move(*opened);
    auto session = pool_->create_session(executor_, 8);
    fuzz::require(session.ok(), "session");
    session_ = std::move(*session);
    return true;
  }
  void close() {
    session_.reset();
    run_until([this] { return pool_->quiesce(); });
    pool_.reset();
  }
  Status run(PageStore& store, PageOp& op) {
    bool released = false;
    op.context = &released;
    op.on_result = nullptr;
    op.on_released = [](PageOp& done) { *static_cast<bool*>(done.context) = true; };
    session_->submit(store, op);
    run_until([&released] { return released; });
    return op.status;
  }

  Image image() {
    Image image;
    const auto zones = device_->report();
    fuzz::require(zones.ok(), "report");
    for (const ZoneInfo& info : *zones) {
      ZoneImage& zone = image[info.zone.value];
      zone.bytes.resize(info.written_lbas * kLba);
      zone.finished = info.state == ZoneState::full;
      if (!zone.bytes.empty()) transfer(Io::Op::read, info.zone, zone.bytes);
    }
    return image;
  }
  void load(Image& image) {
    for (std::uint32_t i = 0; i < kZones; ++i) {
      manage(Io::Op::reset, ZoneId{i});
      if (!image[i].bytes.empty()) transfer(Io::Op::write, ZoneId{i}, image[i].bytes);
      if (image[i].finished) manage(Io::Op::finish, ZoneId{i});
    }
  }

 private:
  template <class Condition>
  void run_until(Condition&& holds) {
    unsigned turns = 0;
    while (!holds()) {
      (void)executor_.run_once();
      fuzz::require(++turns < kTurnsMax, "an operation ends");
    }
  }
  void manage(Io::Op op, ZoneId zone) {
    fuzz::require(furrow::manage_blocking(*queue_, op, zone).ok(), "a zone is managed");
  }
  void transfer(Io::Op op, ZoneId zone, fuzz::Bytes& bytes) {
    AlignedBuffer buffer(bytes.size());
    std::copy(bytes.begin(), bytes.end(), buffer.data());
    Io io;
    io.op = op;
    io.zone = zone;
    io.lba = device_->geometry().zone_start(zone);
    io.set_data(buffer.data(), static_cast<std::uint32_t>(bytes.size() / kLba), kLba);
    fuzz::require(run_blocking(*queue_, io).ok(), "a zone is read and written");
    std::copy_n(buffer.data(), bytes.size(), bytes.begin());
  }

  std::unique_ptr<ZonedDevice> device_;
  std::unique_ptr<IoQueue> queue_;
  sim::SimClock clock_;
  sim::SimExecutor executor_{clock_, sim::SimRandom(1), [this] { return clock_.now_ns + 1; }};
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<PageSession> session_;
};

// A page's memory, as long as the largest page and aligned.
struct PageMemory {
  AlignedBuffer buffer{4096};
  void lend_to(PageOp& op) {
    op.data = buffer.data();
    op.capacity = static_cast<std::uint32_t>(buffer.size());
  }
};

Status put(World& world, PageStore& store, std::uint64_t key, const fuzz::Bytes& value,
           std::uint64_t group = 0, std::uint32_t ttl_s = 0) {
  PageMemory memory;
  PageOp op;
  op.kind = PageOp::Kind::put;
  op.key = key_of(key);
  op.group = group;
  op.ttl_s = ttl_s;
  memory.lend_to(op);
  std::copy(value.begin(), value.end(), memory.buffer.data());
  op.length = static_cast<std::uint32_t>(value.size());
  return world.run(store, op);
}

std::optional<fuzz::Bytes> get(World& world, PageStore& store, std::uint64_t key) {
  PageMemory memory;
  PageOp op;
  op.key = key_of(key);
  memory.lend_to(op);
  if (!world.run(store, op).ok()) return std::nullopt;
  fuzz::require(op.length <= memory.buffer.size(), "a page has the length of one that was stored");
  return fuzz::Bytes(memory.buffer.data(), memory.buffer.data() + op.length);
}

Status simple(World& world, PageStore& store, PageOp::Kind kind, std::uint64_t key,
              std::uint64_t group = 0) {
  PageOp op;
  op.kind = kind;
  if (kind != PageOp::Kind::flush && kind != PageOp::Kind::remove_group) op.key = key_of(key);
  op.group = group;
  return world.run(store, op);
}

// What the history left at some of its steps, and the versions of each page that it stored.
class History {
 public:
  explicit History(World& world) {
    fuzz::use_fixed_randomness();  // one process, one history
    fuzz::require(Pool::format(world.device(), "fuzz", world.home()).ok(), "format");
    for (std::uint64_t opening = 0; opening < 4; ++opening) {
      fuzz::require(world.open(false), "opens");
      if (opening == 0) create_volumes(world);
      for (std::uint64_t step = 0; step < 60; ++step) act(world, opening * 60 + step);
      images.push_back(world.image());  // as a kill leaves it
      world.close();
      images.push_back(world.image());
    }
  }

  bool was_stored(std::size_t volume, std::uint64_t key, const fuzz::Bytes& value) const {
    for (std::uint64_t version = 0; version < versions_[volume][key]; ++version) {
      if (value == content(volume, key, version)) return true;
    }
    return false;
  }

  static constexpr std::size_t kVolumes = 2;
  static std::string name_of(std::size_t volume) { return volume == 0 ? "cache" : "store"; }
  std::vector<Image> images;

 private:
  static void create_volumes(World& world) {
    for (std::size_t volume = 0; volume < kVolumes; ++volume) {
      VolumeOptions options;
      options.name = name_of(volume);
      options.mode = volume == 0 ? VolumeMode::cache : VolumeMode::store;
      options.quota_bytes = (volume == 0 ? 4 : 6) * kZoneBytes;
      options.value_bytes_max = kValueMax;
      fuzz::require(world.pool().create_volume(options).ok(), "volume");
    }
  }
  void act(World& world, std::uint64_t step) {
    const std::size_t volume = step % kVolumes;
    PageStore& store = *world.pool().find(name_of(volume));
    const std::uint64_t key = step * 7 % kKeys;
    const std::uint64_t group = step % 3;
    if (step % 11 == 10) {
      (void)simple(world, store, PageOp::Kind::remove, key);
    } else if (step % 29 == 28) {
      (void)simple(world, store, PageOp::Kind::remove_group, 0, 1);
    } else if (step % 17 == 16) {
      (void)simple(world, store, PageOp::Kind::pin, key);
    } else if (step % 13 == 12) {
      fuzz::require(simple(world, store, PageOp::Kind::flush, 0).ok(), "flush");
    } else {
      const std::uint64_t version = versions_[volume][key]++;
      const Status status = put(world, store, key, content(volume, key, version), group,
                                step % 5 == 0 ? 1u << 20 : 0);
      fuzz::require(status.ok(), "the history's puts");
    }
  }

  std::array<std::array<std::uint64_t, kKeys>, kVolumes> versions_{};
};

// An edit: eight bytes, and as many as its length says.
struct Edit {
  std::uint8_t zone, lba, action, length;
  std::uint16_t offset;
  std::uint16_t unused;
};
enum Action : std::uint8_t { overwrite, flip, copy_lba, cut, zero_lba, finish, rot, kActions };

void reseal_at(ZoneImage& zone, std::size_t lba) {
  const std::span<std::byte> rest = std::span(zone.bytes).subspan(lba * kLba);
  const std::span<std::byte> one = rest.first(kLba);
  if (has_magic(one, Magic::batch_header)) return reseal_batch(rest);
  reseal(one);
}

// The summary that ends with the zone's last LBA, whichever LBA of it was edited.
void reseal_summary_of(ZoneImage& zone) {
  constexpr std::size_t kSummaryLbasAt = 72;
  if (zone.bytes.size() != kZoneBytes) return;
  const std::span<std::byte> footer = std::span(zone.bytes).last(kFooterBytes);
  if (!has_magic(footer, Magic::summary)) return;
  const auto lbas = load_le<std::uint32_t>(footer.data() + kSummaryLbasAt);
  if (lbas == 0 || lbas > kZoneLbas) return;
  reseal_summary(std::span(zone.bytes).last(lbas * kLba));
}

void apply(const Edit& edit, std::span<const std::byte> bytes, Image& image) {
  ZoneImage& zone = image[edit.zone % kZones];
  const std::size_t lbas = zone.bytes.size() / kLba;
  if (lbas == 0) return;
  const std::size_t lba = edit.lba % lbas;
  const std::span<std::byte> there = std::span(zone.bytes).subspan(lba * kLba, kLba);
  const std::size_t offset = edit.offset % kLba;
  const std::size_t length = std::min(bytes.size(), kLba - offset);
  switch (edit.action % kActions) {
    case overwrite:
    case rot:
      std::copy_n(bytes.begin(), length, there.begin() + static_cast<std::ptrdiff_t>(offset));
      break;
    case flip:
      for (std::size_t i = 0; i < length; ++i) there[offset + i] ^= bytes[i];
      break;
    case copy_lba: {
      if (bytes.size() < 2) return;
      const ZoneImage& from = image[std::to_integer<unsigned>(bytes[0]) % kZones];
      if (from.bytes.empty()) return;
      const std::size_t source = std::to_integer<unsigned>(bytes[1]) % (from.bytes.size() / kLba);
      const fuzz::Bytes copy(from.bytes.begin() + static_cast<std::ptrdiff_t>(source * kLba),
                             from.bytes.begin() + static_cast<std::ptrdiff_t>((source + 1) * kLba));
      std::copy(copy.begin(), copy.end(), there.begin());
      break;
    }
    case cut:
      zone.bytes.resize(lba * kLba);
      zone.finished = false;
      return;
    case zero_lba:
      std::fill(there.begin(), there.end(), std::byte{0});
      return;
    case finish:
      zone.finished = true;
      return;
  }
  if (edit.action % kActions == rot) return;
  reseal_at(zone, lba);
  reseal_summary_of(zone);
}

Image edited(std::span<const std::uint8_t> input, const History& history) {
  Image image = history.images[input[0] % history.images.size()];
  for (std::size_t at = 1; at + sizeof(Edit) <= input.size();) {
    Edit edit;
    std::memcpy(&edit, input.data() + at, sizeof edit);
    at += sizeof edit;
    const std::size_t length = std::min<std::size_t>(edit.length, input.size() - at);
    apply(edit, std::as_bytes(input.subspan(at, length)), image);
    at += length;
  }
  return image;
}

using Found = std::map<std::pair<std::size_t, std::uint64_t>, fuzz::Bytes>;

// Every page that is served was stored under its key.
Found read_all(World& world, const History& history) {
  Found found;
  for (std::size_t volume = 0; volume < History::kVolumes; ++volume) {
    PageStore* const store = world.pool().find(History::name_of(volume));
    if (store == nullptr) continue;
    for (std::uint64_t key = 0; key < kKeys; ++key) {
      auto value = get(world, *store, key);
      if (!value) continue;
      fuzz::require(history.was_stored(volume, key, *value), "a page is one that was stored");
      found.emplace(std::pair(volume, key), std::move(*value));
    }
    std::array<Key, 64> keys;
    PageOp op;
    op.kind = PageOp::Kind::list;
    op.keys = keys.data();
    op.keys_max = keys.size();
    if (world.run(*store, op).ok()) {
      fuzz::require(op.keys_count <= keys.size(), "a listing has no more than was asked for");
      for (std::uint32_t i = 0; i < op.keys_count; ++i) {
        fuzz::require(keys[i].valid(), "a listing has keys");
      }
    }
  }
  return found;
}

// Changes both volumes; the volumes that took a page under the new key.
std::array<bool, History::kVolumes> change(World& world) {
  std::array<bool, History::kVolumes> stored{};
  for (std::size_t volume = 0; volume < History::kVolumes; ++volume) {
    PageStore* const store = world.pool().find(History::name_of(volume));
    if (store == nullptr) continue;
    (void)simple(world, *store, PageOp::Kind::remove, 3);
    (void)simple(world, *store, PageOp::Kind::remove_group, 0, 2);
    const bool accepted = put(world, *store, kNewKey, content(volume, kNewKey, 0)).ok();
    (void)simple(world, *store, PageOp::Kind::flush, 0);
    stored[volume] = accepted && volume == 1;  // a cache may have evicted it
    const auto value = get(world, *store, kNewKey);
    fuzz::require(!stored[volume] || value.has_value(), "what was stored is there");
    fuzz::require(!value || *value == content(volume, kNewKey, 0), "what was stored is right");
  }
  return stored;
}

World& world() {
  static World world;
  return world;
}
const History& history() {
  static const History kHistory(world());
  return kHistory;
}

}  // namespace

// Half of the mutations are the fuzzer's, the other half a well-formed edit more.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t size_max, unsigned seed) {
  RandomStructures random(seed);
  if (size != 0 && random.below(2) == 0) return LLVMFuzzerMutate(data, size, size_max);
  if (size == 0) data[size++] = static_cast<std::uint8_t>(random.number());
  const std::size_t length = 1 + random.below(8);
  if (size + sizeof(Edit) + length > size_max) return LLVMFuzzerMutate(data, size, size_max);
  const Edit edit{
      static_cast<std::uint8_t>(random.number()),
      // Structures stand at the begin and at the end of a zone.
      static_cast<std::uint8_t>(random.below(2) == 0 ? random.below(4) : random.number()),
      static_cast<std::uint8_t>(random.below(kActions)), static_cast<std::uint8_t>(length),
      static_cast<std::uint16_t>(random.below(2) == 0 ? random.below(160) : random.number()), 0};
  std::memcpy(data + size, &edit, sizeof edit);
  size += sizeof edit;
  for (std::size_t i = 0; i < length; ++i) {
    data[size++] = static_cast<std::uint8_t>(random.number());
  }
  return size;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  Image image = edited({data, size}, history());
  world().load(image);
  if (world().open(true)) {
    const Status checked = world().pool().check({}).status();
    // A summary may hide a structure of a newer version from an opening.
    fuzz::require(checked.ok() || checked.code() == Code::unsupported,
                  "a check of a device without errors");
    (void)read_all(world(), history());
    world().close();
  }
  if (world().open(false)) {
    (void)read_all(world(), history());
    const auto stored = change(world());
    world().close();
    fuzz::require(world().open(false), "what was open, and closed in order, opens again");
    (void)read_all(world(), history());
    for (std::size_t volume = 0; volume < History::kVolumes; ++volume) {
      if (!stored[volume]) continue;
      const auto value = get(world(), *world().pool().find(History::name_of(volume)), kNewKey);
      fuzz::require(value && *value == content(volume, kNewKey, 0), "what was stored stays");
    }
    world().close();
  }
  world().load(image);
  (void)Pool::repair(world().device(), world().home());
  if (world().open(false)) {
    (void)read_all(world(), history());
    world().close();
  }
  return 0;
}
