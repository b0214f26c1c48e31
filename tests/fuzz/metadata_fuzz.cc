// Establishes that nothing that may stand in the metadata zones makes opening or going on with a
// pool misbehave. The input is what two zones of a mem: device hold, LBA by LBA, with checksums
// made right: superblocks, checkpoints, journal records. What opens must hold a valid state, take a
// record, and open again with the state it had.
#include <functional>

#include "log/metadata_ring.h"
#include "tests/fuzz/media_fuzz.h"
#include "zone/aligned_buffer.h"
#include "zone/blocking.h"

using namespace furrow;

namespace {

constexpr std::size_t kLbaBytes = 512, kCapacityLbas = 30;

Uuid pool_uuid() {
  Uuid uuid;
  uuid.fill(7);
  return uuid;
}

Superblock superblock(const Geometry& geometry, std::uint64_t number) {
  Superblock s;
  s.pool = pool_uuid();
  s.name = "fuzz";
  s.checkpoint = number;
  s.segment_lbas = 8;
  s.lba_bytes = kLbaBytes;
  s.zone_size_lbas = geometry.zone_size_lbas;
  s.zone_capacity_lbas = geometry.zone_capacity_lbas;
  s.zone_count = geometry.zone_count;
  return s;
}

ZonedDevice& device() {
  static const std::unique_ptr<ZonedDevice> kDevice = [] {
    auto opened =
        open_device("mem:64KiB?zone_size=16KiB&zone_capacity=15KiB&lba=512", Access::exclusive);
    fuzz::require(opened.ok(), "mem: opens");
    return std::move(*opened);
  }();
  return *kDevice;
}

void put(fuzz::Bytes& zone, const std::function<void(std::span<std::byte>)>& encode_into) {
  fuzz::Bytes lba(kLbaBytes);
  encode_into(lba);
  zone.insert(zone.end(), lba.begin(), lba.end());
}

// Superblock, checkpoint and some records, numbers small so that zones refer to each other.
fuzz::Bytes zone_of(RandomStructures& random, std::uint64_t number) {
  fuzz::Bytes zone;
  put(zone, [&](auto lba) { encode(superblock(device().geometry(), number), lba); });
  PoolState state = random.state();
  state.open_count = number * 100;
  fuzz::Bytes checkpoint((checkpoint_bytes(state) + kLbaBytes - 1) / kLbaBytes * kLbaBytes);
  encode(Checkpoint{pool_uuid(), number, state}, checkpoint);
  zone.insert(zone.end(), checkpoint.begin(), checkpoint.end());
  for (std::uint64_t index = 0, end = random.below(8); index < end; ++index) {
    JournalEntry entry = random.journal();
    entry.pool = pool_uuid();
    entry.checkpoint = number;
    entry.index = index;
    entry.previous_checkpoint = index == 0 ? number - 1 : 0;
    entry.previous_index = index == 0 ? random.below(6) : 0;
    if (entry.record.kind == JournalRecord::Kind::opened) {
      entry.record.open_count = number * 100 + index;
    }
    for (entry.copy = 0; entry.copy < kJournalCopies; ++entry.copy) {
      if (random.below(8) != 0) put(zone, [&](auto lba) { encode(entry, lba); });
    }
    if (index != 0) continue;
    put(zone, [&](auto lba) { encode(superblock(device().geometry(), number), lba); });
  }
  zone.resize(std::min(zone.size(), kCapacityLbas * kLbaBytes));
  return zone;
}

void write_zone(IoQueue& queue, ZoneId zone, std::span<const std::byte> contents) {
  Io io;
  io.op = Io::Op::reset;
  io.zone = zone;
  fuzz::require(run_blocking(queue, io).ok(), "reset");
  const std::size_t lbas = std::min(contents.size() / kLbaBytes, kCapacityLbas);
  if (lbas == 0) return;
  AlignedBuffer buffer(lbas * kLbaBytes);
  std::copy_n(contents.begin(), buffer.size(), buffer.data());
  for (std::size_t lba = 0; lba < lbas; ++lba) {
    reseal(buffer.span().subspan(lba * kLbaBytes));
  }
  io = Io();
  io.op = Io::Op::write;
  io.zone = zone;
  io.lba = device().geometry().zone_start(zone);
  io.set_data(buffer.data(), static_cast<std::uint32_t>(lbas), kLbaBytes);
  fuzz::require(run_blocking(queue, io).ok(), "write");
}

}  // namespace

// Of an input, the first byte cuts it in the contents of two zones.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t size_max, unsigned seed) {
  return fuzz::mutate(data, size, size_max, seed, [](RandomStructures& random) {
    const fuzz::Bytes first = zone_of(random, 1 + random.below(3));
    const fuzz::Bytes second = zone_of(random, 1 + random.below(3));
    fuzz::Bytes input{static_cast<std::byte>(first.size() / kLbaBytes)};
    input.insert(input.end(), first.begin(), first.end());
    input.insert(input.end(), second.begin(), second.end());
    return input;
  });
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const fuzz::Bytes input = fuzz::copy_of(data + 1, size - 1);
  const std::size_t cut = std::min<std::size_t>(data[0] * kLbaBytes, input.size());
  {
    const auto queue = device().create_queue(4);
    fuzz::require(queue.ok(), "queue");
    write_zone(**queue, ZoneId{0}, std::span(input).first(cut));
    write_zone(**queue, ZoneId{1}, std::span(input).subspan(cut));
  }
  const auto inspected = MetadataRing::open(device(), true);
  auto ring = MetadataRing::open(device(), false);
  if (!ring.ok()) return 0;
  fuzz::require(inspected.ok() && inspected->state() == ring->state(), "inspection agrees");
  fuzz::require(valid_state(ring->state()), "the state is valid");
  JournalRecord record;
  record.open_count = ring->state().open_count + 1;
  const Status status = ring->append(record);
  const auto again = MetadataRing::open(device(), true);
  if (status.ok()) {
    fuzz::require(again.ok() && again->state() == ring->state(), "opens again");
  }
  return 0;
}
