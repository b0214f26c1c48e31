// Establishes what a power cut leaves of an emulated device's file. Of the 512-byte sectors of its
// zones and the slots of its zone table that were written since the last flush, any version of each
// may be there. The device opens all the same: each zone is in a state that it was in since the
// last flush, or, where its data tells, is written as far as what survived, and what was flushed;
// what was flushed is there, behind the write pointer nothing is read but zeroes, nor
// stands in the file for the next cut to bring to light; and it goes on to work, until the next
// cut. How: the file is compared with what it was before each operation; what survives is drawn.
#include <algorithm>
#include <bit>
#include <map>
#include <random>

#include "tests/log/test_seed.h"
#include "tests/rounds.h"
#include "tests/zone/emu_fixture.h"

namespace furrow::test {
namespace {

using Random = std::mt19937_64;

// The file as a disk has it.
class CutMedium {
 public:
  CutMedium(std::string path, const emu::Superblock& superblock)
      : path_(std::move(path)), layout_(superblock), durable_(read()), last_(durable_) {}

  // After an operation: what it wrote.
  void written() {
    const std::string now = read();
    for (std::size_t at = 0; at < now.size(); at += unit_bytes(at)) {
      if (at % kPageBytes == 0) {
        while (at < now.size() && now.compare(at, kPageBytes, last_, at, kPageBytes) == 0) {
          at += kPageBytes;
        }
        if (at >= now.size()) break;
      }
      const std::string_view unit = std::string_view(now).substr(at, unit_bytes(at));
      if (unit != std::string_view(last_).substr(at, unit.size())) unsafe_[at].emplace_back(unit);
    }
    last_ = now;
  }
  void flushed() {
    durable_ = last_;
    unsafe_.clear();
  }
  void table_flushed() {
    const auto end = unsafe_.lower_bound(layout_.data_offset);
    for (auto unit = unsafe_.begin(); unit != end; ++unit) keep(unit->first, unit->second.back());
    unsafe_.erase(unsafe_.begin(), end);
  }
  // The device is closed.
  void cut(Random& random) {
    const std::uint64_t survive_percent = random() % 3 * 50;
    for (const auto& [at, versions] : unsafe_) {
      if (random() % 100 >= survive_percent) continue;
      keep(at, versions[random() % 4 == 0 ? random() % versions.size() : versions.size() - 1]);
    }
    unsafe_.clear();
    write(durable_);
    last_ = durable_;
  }
  const std::string& bytes() const { return last_; }

 private:
  static constexpr std::size_t kPageBytes = 4096;
  // A slot of the zone table is stored as a whole, a sector written as a whole.
  std::size_t unit_bytes(std::size_t at) const {
    return at >= emu::kTableOffset && at < layout_.table_offset[1] + layout_.table_bytes ? 8 : 512;
  }
  void keep(std::size_t at, const std::string& unit) { durable_.replace(at, unit.size(), unit); }
  std::string read() const {
    std::string bytes(layout_.end_offset(), '\0');
    std::ifstream(path_, std::ios::binary)
        .read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return bytes;
  }
  void write(const std::string& bytes) const {
    static const std::string kHole(kPageBytes, '\0');
    { std::ofstream emptied(path_, std::ios::binary | std::ios::trunc); }
    std::filesystem::resize_file(path_, bytes.size());
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    for (std::size_t at = 0; at < bytes.size(); at += kHole.size()) {
      if (bytes.compare(at, kHole.size(), kHole) == 0) continue;
      file.seekp(static_cast<std::streamoff>(at));
      file.write(bytes.data() + at, static_cast<std::streamsize>(kHole.size()));
    }
    ASSERT_TRUE(file.good());
  }

  const std::string path_;
  const emu::Superblock layout_;
  std::string durable_, last_;
  std::map<std::size_t, std::vector<std::string>> unsafe_;  // versions since the last flush
};

// What is known of a zone.
struct ZoneModel {
  struct State {
    std::uint32_t generation = 0;
    std::uint64_t written = 0;
    bool full = false;
    friend bool operator==(const State&, const State&) = default;
  };
  std::vector<State> states{State{}};  // since the last flush; the last one is now
  std::vector<std::string> lbas;       // below the write pointer
  std::vector<std::string> flushed;  // of `flushed_generation`, whole where it was not written over
  std::uint32_t flushed_generation = 0;

  const State& now() const { return states.back(); }
  bool active() const { return !now().full && now().written != 0; }
  void flush() {
    states = {now()};
    flushed = lbas;
    flushed_generation = now().generation;
  }
};

struct CutShape {
  const char* name;
  std::uint32_t lba_bytes;
  const char* parameters;
  std::uint32_t capacity_lbas = 24;
  bool synced = false;  // most writes go to two zones, and are flushed one by one
  bool preallocate = false;
};

void PrintTo(const CutShape& shape, std::ostream* out) { *out << shape.name; }

class EmuPowerCut : public EmuDeviceTest, public testing::WithParamInterface<CutShape> {
 protected:
  static constexpr std::uint32_t kZones = 8, kActiveMax = 6;

  void make() {
    DeviceShape made;
    made.lba_bytes = GetParam().lba_bytes;
    made.zone_size_bytes = std::bit_ceil(GetParam().capacity_lbas) * made.lba_bytes;
    made.zone_capacity_bytes = GetParam().capacity_lbas * made.lba_bytes;
    made.size_bytes = kZones * made.zone_size_bytes;
    made.open_zones_max = 4;
    made.active_zones_max = kActiveMax;
    made.preallocate = GetParam().preallocate;
    const Status status = create_device(uri_ + "?direct=0", made);
    ASSERT_TRUE(status.ok()) << status.describe();
    layout_ = superblock();
    medium_.emplace(path_, layout_);
  }
  void start() {
    device_ = open(GetParam().parameters);
    ASSERT_NE(device_, nullptr);
    client_.emplace(*device_);
  }
  void cut() {
    client_.reset();
    device_.reset();
    medium_->cut(random_);
  }

  void operate() {
    if (GetParam().synced && random_() % 8 != 0) {
      const auto z = static_cast<std::uint32_t>(random_() % 16 == 0);
      if (zones_[z].now().full) return reset(z, zones_[z]);
      write(z, zones_[z]);
      if (random_() % 8 != 0) flush();
      return;
    }
    const auto z = static_cast<std::uint32_t>(random_() % kZones);
    ZoneModel& zone = zones_[z];
    const std::uint64_t what = random_() % 24;
    if (what < 3) return flush();
    if (what == 3) return finish(z, zone);
    if (zone.now().full || (what < 6 && zone.now().written != 0)) return reset(z, zone);
    write(z, zone);
  }
  void flush() {
    const Status status = client_->flush();
    ASSERT_TRUE(status.ok()) << status.describe();
    medium_->written();
    medium_->flushed();
    for (ZoneModel& zone : zones_) zone.flush();
  }
  void finish(std::uint32_t z, ZoneModel& zone) {
    if (zone.now().full || (!zone.active() && at_limit())) return;
    const Status status = client_->manage(Io::Op::finish, z);
    ASSERT_TRUE(status.ok()) << status.describe();
    changed(zone, {zone.now().generation, zone.now().written, true});
  }
  void reset(std::uint32_t z, ZoneModel& zone) {
    const Status status = client_->manage(Io::Op::reset, z);
    ASSERT_TRUE(status.ok()) << status.describe();
    zone.lbas.clear();
    changed(zone, {zone.now().generation + 1, 0, false});
    if (std::string_view(GetParam().parameters).find("reclaim=now") == std::string_view::npos) {
      return;
    }
    dynamic_cast<emu::EmuDevice&>(*device_).drain_reclaim();  // which syncs the zone table before
    medium_->table_flushed();
    medium_->written();
    for (ZoneModel& each : zones_) each.states = {each.now()};
  }
  void write(std::uint32_t z, ZoneModel& zone) {
    const ZoneModel::State before = zone.now();
    const std::uint64_t capacity = client_->geometry.zone_capacity_lbas;
    const auto lbas = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(1 + random_() % 5, capacity - before.written));
    AlignedBuffer data(std::size_t{lbas} * layout_.geometry.lba_bytes);
    fill(data.span(), layout_.geometry.lba_bytes, ++seeds_);
    if (random_() % 8 == 0) {  // ends in zeroes
      const std::uint64_t zeroes = 1 + random_() % lbas;
      std::ranges::fill(data.span().last(zeroes * layout_.geometry.lba_bytes), std::byte{0});
    }
    const bool refused = !zone.active() && at_limit();
    const Status status = write_data(z, before.written, data);
    if (refused) {
      EXPECT_EQ(status.nvme(), nvme_status::kTooManyActive);
      return;
    }
    ASSERT_TRUE(status.ok()) << status.describe();
    for (std::uint32_t i = 0; i < lbas; ++i) {
      const std::uint64_t at = before.written + i;
      zone.lbas.push_back(text(data, i));
      // Should the reset before be undone, this may have taken its place.
      if (before.generation != zone.flushed_generation && at < zone.flushed.size()) {
        zone.flushed[at].clear();
      }
    }
    changed(zone, {before.generation, before.written + lbas, before.written + lbas == capacity});
  }

  // After an opening.
  void check() {
    medium_->written();
    medium_->flushed();  // what an opening voids it syncs
    EXPECT_TRUE(device_->damage().empty()) << device_->damage().front();
    const auto report = device_->report();
    ASSERT_TRUE(report.ok());
    for (std::uint32_t z = 0; z < kZones; ++z) {
      SCOPED_TRACE("zone " + std::to_string(z));
      check_zone(z, (*report)[z]);
      if (HasFailure()) return;
    }
  }

 private:
  void changed(ZoneModel& zone, const ZoneModel::State& state) {
    zone.states.push_back(state);
    medium_->written();
  }
  bool at_limit() const {
    return std::ranges::count_if(zones_, &ZoneModel::active) >= std::int64_t{kActiveMax};
  }
  std::string text(const AlignedBuffer& data, std::uint64_t lba) const {
    const std::size_t bytes = layout_.geometry.lba_bytes;
    return {reinterpret_cast<const char*>(data.data()) + lba * bytes, bytes};
  }
  Status write_data(std::uint32_t z, std::uint64_t offset, AlignedBuffer& data) {
    Io io;
    io.op = random_() % 2 == 0 ? Io::Op::write : Io::Op::append;
    io.zone = ZoneId{z};
    if (io.op == Io::Op::write) io.lba = client_->at(z, offset);
    const std::uint32_t lba_bytes = layout_.geometry.lba_bytes;
    io.set_data(data.data(), static_cast<std::uint32_t>(data.size() / lba_bytes), lba_bytes);
    return client_->run(io);
  }
  // The state of the zone, as the format has it.
  ZoneModel::State state_in_file(std::uint32_t z, bool* told) const {
    const emu::SlotCodec codec(layout_);
    std::optional<ZoneRecord> newest;
    for (const std::uint64_t table : layout_.table_offset) {
      std::uint64_t slot = 0;
      std::memcpy(&slot, medium_->bytes().data() + table + z * 8, 8);
      const auto record = codec.decode(ZoneId{z}, slot);
      EXPECT_TRUE(record.has_value());
      if (record && (!newest || emu::SlotCodec::newer(*record, *newest))) newest = record;
    }
    *told = newest->data_tells;
    const std::uint64_t capacity = layout_.geometry.zone_capacity_lbas;
    if (*told) {
      const std::uint64_t lbas = emu::kAheadBytes / layout_.geometry.lba_bytes;
      const std::uint64_t until = std::min((newest->written_lbas / lbas + 1) * lbas, capacity);
      const std::size_t begin = layout_.offset_of(ZoneId{z}, newest->written_lbas);
      const std::string_view bytes =
          std::string_view(medium_->bytes())
              .substr(begin, layout_.offset_of(ZoneId{z}, until) - begin);
      const std::size_t last = bytes.find_last_not_of('\0');
      if (last != bytes.npos) newest->written_lbas += last / layout_.geometry.lba_bytes + 1;
    }
    const bool full = newest->kind == ZoneRecord::Class::full || newest->written_lbas == capacity;
    return {newest->generation, newest->written_lbas, full};
  }
  void check_told(const ZoneModel& zone, const ZoneModel::State& state) {
    ++told_seen_;
    std::uint64_t most = 0;
    for (const ZoneModel::State& each : zone.states) most = std::max(most, each.written);
    EXPECT_LE(state.written, most);
    EXPECT_EQ(state.generation, zone.flushed_generation);
    std::uint64_t least = zone.flushed.size();
    while (least != 0 && zone.flushed[least - 1].empty()) --least;  // written over
    EXPECT_GE(state.written, least);
  }
  void check_zone(std::uint32_t z, const ZoneInfo& info) {
    ZoneModel& zone = zones_[z];
    bool told = false;
    const ZoneModel::State state = state_in_file(z, &told);
    if (told) {
      check_told(zone, state);
    } else {
      EXPECT_TRUE(std::ranges::find(zone.states, state) != zone.states.end())
          << "generation " << state.generation << ", " << state.written << " LBAs";
    }
    EXPECT_EQ(info.state, state.full           ? ZoneState::full
                          : state.written != 0 ? ZoneState::closed
                                               : ZoneState::empty);
    AlignedBuffer got;
    const std::uint64_t capacity = layout_.geometry.zone_capacity_lbas;
    EXPECT_EQ(info.written_lbas, state.full ? capacity : state.written);
    const Status status =
        client_->read(client_->at(z, 0), static_cast<std::uint32_t>(capacity), got);
    ASSERT_TRUE(status.ok()) << status.describe();
    for (std::uint64_t i = 0; i < std::min<std::uint64_t>(state.written, zone.flushed.size());
         ++i) {
      if (state.generation != zone.flushed_generation || zone.flushed[i].empty()) continue;
      EXPECT_EQ(text(got, i), zone.flushed[i]) << "LBA " << i << " was flushed";
      ++flushed_seen_;
    }
    const std::string none((capacity - state.written) * layout_.geometry.lba_bytes, '\0');
    EXPECT_EQ(std::memcmp(got.data() + got.size() - none.size(), none.data(), none.size()), 0);
    if (info.state == ZoneState::closed) {
      const std::size_t tail = layout_.offset_of(ZoneId{z}, state.written);
      EXPECT_EQ(medium_->bytes().compare(tail, none.size(), none), 0) << "in the file";
    }
    zone.states = {state};
    zone.lbas.clear();
    for (std::uint64_t i = 0; i < state.written; ++i) zone.lbas.push_back(text(got, i));
    zone.flush();
  }

 protected:
  Random random_{test_seed()};
  emu::Superblock layout_;
  std::optional<CutMedium> medium_;
  std::unique_ptr<ZonedDevice> device_;
  std::optional<Client> client_;
  std::array<ZoneModel, kZones> zones_;
  std::uint64_t seeds_ = 0, flushed_seen_ = 0, told_seen_ = 0;
};

TEST_P(EmuPowerCut, WhatWasFlushedIsThereAndTheDeviceGoesOn) {
  ASSERT_NO_FATAL_FAILURE(make());
  ASSERT_NO_FATAL_FAILURE(start());
  for (std::uint64_t life = 0; life < rounds(8, 4); ++life) {
    SCOPED_TRACE("life " + std::to_string(life));
    for (std::uint64_t left = random_() % 60; left != 0; --left) {
      operate();
      if (HasFailure()) return;
    }
    ASSERT_NO_FATAL_FAILURE(cut());
    ASSERT_NO_FATAL_FAILURE(start());
    check();
    if (HasFailure()) return;
  }
  EXPECT_GT(flushed_seen_, rounds(50, 25));
  if (GetParam().synced) {
    EXPECT_GT(told_seen_, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, EmuPowerCut,
    testing::Values(CutShape{"Direct", 4096, ""}, CutShape{"Kept", 4096, "?reclaim=never"},
                    CutShape{"GivenBack", 4096, "?reclaim=now"},
                    CutShape{"Small", 512, "?direct=0&reclaim=now"},
                    CutShape{"Synced", 4096, "", 96, true},
                    CutShape{"SyncedKept", 4096, "?reclaim=never", 96, true},
                    CutShape{"SyncedPreallocated", 4096, "", 96, true, true},
                    CutShape{"SyncedSmall", 512, "?direct=0&reclaim=now", 600, true}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace furrow::test
