// Establishes that nothing that may stand in the metadata zones makes opening or going on with a
// pool misbehave. The input is what two zones of a mem: device hold, LBA by LBA, with checksums
// made right: superblocks, checkpoints, journal records. What opens must hold a valid state, take a
// record, and open again with the state it had.
#include "log/metadata_ring.h"
#include "tests/fuzz/media_fuzz.h"
#include "tests/fuzz/valid_structures.h"
#include "zone/aligned_buffer.h"
#include "zone/blocking.h"

using namespace furrow;

namespace {

using fuzz::kMetadataLbaBytes, fuzz::kMetadataCapacityLbas;

ZonedDevice& device() {
  static const std::unique_ptr<ZonedDevice> kDevice = [] {
    auto opened =
        open_device("mem:64KiB?zone_size=16KiB&zone_capacity=15KiB&lba=512", Access::exclusive);
    fuzz::require(opened.ok(), "mem: opens");
    const Geometry& geometry = (*opened)->geometry();
    fuzz::require(geometry.zone_size_lbas == fuzz::kMetadataZoneLbas &&
                      geometry.zone_capacity_lbas == fuzz::kMetadataCapacityLbas &&
                      geometry.zone_count == fuzz::kMetadataZones,
                  "the device is the one that valid metadata are of");
    return std::move(*opened);
  }();
  return *kDevice;
}

void write_zone(IoQueue& queue, ZoneId zone, std::span<const std::byte> contents) {
  Io io;
  io.op = Io::Op::reset;
  io.zone = zone;
  fuzz::require(run_blocking(queue, io).ok(), "reset");
  const std::size_t lbas = std::min(contents.size() / kMetadataLbaBytes, kMetadataCapacityLbas);
  if (lbas == 0) return;
  AlignedBuffer buffer(lbas * kMetadataLbaBytes);
  std::copy_n(contents.begin(), buffer.size(), buffer.data());
  for (std::size_t lba = 0; lba < lbas; ++lba) {
    reseal(buffer.span().subspan(lba * kMetadataLbaBytes));
  }
  io = Io();
  io.op = Io::Op::write;
  io.zone = zone;
  io.lba = device().geometry().zone_start(zone);
  io.set_data(buffer.data(), static_cast<std::uint32_t>(lbas), kMetadataLbaBytes);
  fuzz::require(run_blocking(queue, io).ok(), "write");
}

}  // namespace

// Of an input, the first byte cuts it in the contents of two zones.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t size_max, unsigned seed) {
  return fuzz::mutate(data, size, size_max, seed,
                      [](RandomStructures& random) { return fuzz::valid_metadata(random); });
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const fuzz::Bytes input = fuzz::copy_of(data + 1, size - 1);
  const std::size_t cut = std::min<std::size_t>(data[0] * kMetadataLbaBytes, input.size());
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
