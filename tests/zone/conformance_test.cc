// Establishes that every back end behaves as one zoned device: the same operations, on mem:, emu:
// (direct and through the page cache, 512- and 4096-byte LBAs, capacity below size, small MOR and
// MAR, zones whose size is no power of two) and on the fault device with no faults switched on,
// have the same results, the same zone states and the same NVMe status codes. FURROW_DRIVE=URI
// (zbd:, nvme:) adds a zoned drive of 12 small zones, which are reset (tests/vm has such drives).
// Ends with random operations beside a model that is driven by ZoneStateMachine.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>

#include "tests/zone/device_test_util.h"
#include "zone/device_uri.h"
#include "zone/fault_device.h"
#include "zone/zone_state_machine.h"

namespace furrow::test {
namespace {

struct Target {
  const char* name;
  enum class Kind { mem, emu, drive, fault_over_mem, fault_over_emu } kind;
  std::string parameters;  // of the URI, without '?'; of a drive: its URI
  std::uint32_t lba_bytes;
  std::uint64_t capacity_bytes;
  std::uint32_t mor, mar;
  std::uint64_t zone_bytes = kMiB;
};

std::ostream& operator<<(std::ostream& to, const Target& target) { return to << target.name; }

class Conformance : public testing::TestWithParam<Target> {
 protected:
  static constexpr std::uint32_t kZones = 12;

  void SetUp() override {
    device_ = make();
    ASSERT_NE(device_, nullptr);
    client_ = std::make_unique<Client>(*device_);
    ASSERT_NE(client_->queue, nullptr);
    geometry_ = device_->geometry();
    capacity_ = static_cast<std::uint32_t>(geometry_.zone_capacity_lbas);
  }

  std::unique_ptr<ZonedDevice> make() {
    const Target& target = GetParam();
    const bool emu =
        target.kind == Target::Kind::emu || target.kind == Target::Kind::fault_over_emu;
    std::string uri;
    if (emu) {
      uri = "emu:" + dir_.file("device.img");
      DeviceShape shape;
      shape.size_bytes = kZones * target.zone_bytes;
      shape.zone_size_bytes = target.zone_bytes;
      shape.zone_capacity_bytes = target.capacity_bytes;
      shape.lba_bytes = target.lba_bytes;
      shape.open_zones_max = target.mor;
      shape.active_zones_max = target.mar;
      const Status status = create_device(uri + "?direct=0", shape);
      EXPECT_TRUE(status.ok()) << status.describe();
      if (!target.parameters.empty()) uri += "?" + target.parameters;
    } else if (target.kind == Target::Kind::drive) {
      uri = target.parameters;
    } else {
      uri = "mem:" + std::to_string(kZones * target.zone_bytes) +
            "?zone_size=" + std::to_string(target.zone_bytes) +
            "&zone_capacity=" + std::to_string(target.capacity_bytes) +
            "&lba=" + std::to_string(target.lba_bytes) + "&mor=" + std::to_string(target.mor) +
            "&mar=" + std::to_string(target.mar);
    }
    auto device = open_device(uri, Access::exclusive);
    EXPECT_TRUE(device.ok()) << device.status().describe();
    if (!device.ok()) return nullptr;
    if (target.kind == Target::Kind::drive) empty(**device);
    if (target.kind != Target::Kind::fault_over_mem &&
        target.kind != Target::Kind::fault_over_emu) {
      return std::move(*device);
    }
    return std::make_unique<FaultDevice>(std::move(*device), FaultOptions{});
  }

  static void empty(ZonedDevice& device) {
    Client client(device);
    for (const ZoneInfo& each : device.report().value()) {
      if (each.state == ZoneState::empty) continue;
      const Status status = client.manage(Io::Op::reset, each.zone.value);
      EXPECT_TRUE(status.ok()) << status.describe();
    }
  }

  ZoneInfo zone(std::uint32_t number) {
    auto report = device_->report();
    EXPECT_TRUE(report.ok());
    return (*report)[number];
  }
  void expect_zone(std::uint32_t number, ZoneState state, std::uint64_t written) {
    const ZoneInfo info = zone(number);
    EXPECT_EQ(info.state, state) << "zone " << number << ": " << to_string(info.state);
    EXPECT_EQ(info.written_lbas, written) << "zone " << number;
  }

  TempDir dir_;
  std::unique_ptr<ZonedDevice> device_;
  std::unique_ptr<Client> client_;
  Geometry geometry_;
  std::uint32_t capacity_ = 0;
};

void expect_refused(const Status& status, Code code, std::uint16_t nvme) {
  EXPECT_EQ(status.code(), code) << status.describe();
  EXPECT_EQ(status.nvme(), nvme) << status.describe();
}

TEST_P(Conformance, NewDeviceIsEmptyAndKeepsItsGeometry) {
  EXPECT_EQ(geometry_.zone_count, kZones);
  EXPECT_EQ(geometry_.lba_bytes, GetParam().lba_bytes);
  EXPECT_EQ(geometry_.zone_size_lbas * geometry_.lba_bytes, GetParam().zone_bytes);
  EXPECT_EQ(geometry_.zone_capacity_bytes(), GetParam().capacity_bytes);
  EXPECT_EQ(geometry_.open_zones_max, GetParam().mor);
  EXPECT_EQ(geometry_.active_zones_max, GetParam().mar);
  for (std::uint32_t i = 0; i < kZones; ++i) expect_zone(i, ZoneState::empty, 0);
  client_->expect_zeroes(5, 0, 8);
}

TEST_P(Conformance, WritesAtTheWritePointerAndReadsBack) {
  EXPECT_TRUE(client_->write(2, 0, 3, 1).ok());
  EXPECT_TRUE(client_->write(2, 3, 5, 2).ok());
  expect_zone(2, ZoneState::implicitly_open, 8);
  client_->expect_data(2, 0, 3, 1);
  client_->expect_data(2, 3, 5, 2);
  expect_refused(client_->write(2, 7, 1, 3), Code::zone_state, nvme_status::kZoneInvalidWrite);
  expect_refused(client_->write(2, 9, 1, 3), Code::zone_state, nvme_status::kZoneInvalidWrite);
  expect_refused(client_->write(3, 1, 1, 3), Code::zone_state, nvme_status::kZoneInvalidWrite);
  expect_zone(2, ZoneState::implicitly_open, 8);
  expect_zone(3, ZoneState::empty, 0);
}

TEST_P(Conformance, ReadsPastTheWritePointerReturnZeroes) {
  ASSERT_TRUE(client_->write(0, 0, 4, 7).ok());
  AlignedBuffer got;
  ASSERT_TRUE(client_->read(client_->at(0, 2), 6, got).ok());
  AlignedBuffer want(got.size());
  AlignedBuffer whole(4 * geometry_.lba_bytes);
  fill(whole.span(), geometry_.lba_bytes, 7);
  std::memcpy(want.data(), whole.data() + 2 * geometry_.lba_bytes, 2 * geometry_.lba_bytes);
  EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size()), 0);
  client_->expect_zeroes(0, 4, 16);
  // The gap between the capacity and the size, to the very end of the zone.
  const auto size = static_cast<std::uint32_t>(geometry_.zone_size_lbas);
  client_->expect_zeroes(0, size - 8, 8);
}

TEST_P(Conformance, RefusesBadArgumentsInTheNextPoll) {
  AlignedBuffer data(8 * geometry_.lba_bytes);
  const auto size = static_cast<std::uint32_t>(geometry_.zone_size_lbas);
  std::array<Io, 9> ios;
  for (Io& io : ios) io.set_data(data.data(), 1, geometry_.lba_bytes);
  ios[0].lba = client_->at(0, size - 1);  // crosses its zone's end
  ios[0].set_data(data.data(), 2, geometry_.lba_bytes);
  ios[1].lba = Lba{kZones * geometry_.zone_size_lbas};
  ios[2].set_data(data.data() + 64, 1, geometry_.lba_bytes);  // misaligned
  ios[3].lba_count = 2;                                       // one piece of one LBA
  ios[4].lba_count = 0;
  ios[5].op = Io::Op::reset;
  ios[5].zone = ZoneId{kZones};
  ios[6].op = Io::Op::write;  // LBA of another zone
  ios[6].zone = ZoneId{1};
  ios[7].iov = nullptr;
  ios[8].op = Io::Op::append;
  ios[8].zone = ZoneId{~0u};
  unsigned completed = 0;
  for (Io& io : ios) {
    io.context = &completed;
    io.on_complete = [](Io& done) { ++*static_cast<unsigned*>(done.context); };
    client_->queue->submit(io);
  }
  EXPECT_EQ(completed, 0u) << "completed from submit()";
  EXPECT_EQ(client_->queue->in_flight(), ios.size());
  EXPECT_EQ(client_->queue->poll(), ios.size());
  EXPECT_EQ(completed, ios.size());
  EXPECT_FALSE(client_->queue->busy());
  for (std::size_t i = 0; i < ios.size(); ++i) {
    EXPECT_EQ(ios[i].status.code(), Code::invalid_argument) << i << ios[i].status.describe();
  }
  EXPECT_EQ(ios[0].status.nvme(), nvme_status::kZoneBoundary);
  EXPECT_EQ(ios[1].status.nvme(), nvme_status::kLbaOutOfRange);
  EXPECT_EQ(ios[5].status.nvme(), nvme_status::kLbaOutOfRange);
}

TEST_P(Conformance, FillsAZoneToItsCapacity) {
  ASSERT_TRUE(client_->write(4, 0, capacity_ - 2, 1).ok());
  expect_refused(client_->write(4, capacity_ - 2, 3, 2), Code::zone_state,
                 nvme_status::kZoneBoundary);
  expect_refused(client_->append(4, 3, 2), Code::zone_state, nvme_status::kZoneBoundary);
  ASSERT_TRUE(client_->write(4, capacity_ - 2, 2, 2).ok());
  expect_zone(4, ZoneState::full, capacity_);
  expect_refused(client_->write(4, 0, 1, 3), Code::zone_state, nvme_status::kZoneFull);
  expect_refused(client_->append(4, 1, 3), Code::zone_state, nvme_status::kZoneFull);
  client_->expect_data(4, capacity_ - 2, 2, 2);
}

TEST_P(Conformance, AppendsManyAtATime) {
  constexpr unsigned kAppends = 16;
  std::vector<AlignedBuffer> data;
  std::array<Io, kAppends> ios;
  for (unsigned i = 0; i < kAppends; ++i) {
    const std::uint32_t lbas = 1 + i % 4;
    data.emplace_back(lbas * geometry_.lba_bytes);
    fill(data[i].span(), geometry_.lba_bytes, 100 + i);
    ios[i].op = Io::Op::append;
    ios[i].zone = ZoneId{6};
    ios[i].set_data(data[i].data(), lbas, geometry_.lba_bytes);
  }
  ASSERT_TRUE(run_blocking(*client_->queue, ios).ok());
  std::uint64_t total = 0;
  for (unsigned i = 0; i < kAppends; ++i) {
    const std::uint64_t offset = ios[i].appended_at.value - client_->at(6, 0).value;
    client_->expect_data(6, offset, ios[i].lba_count, 100 + i);
    total += ios[i].lba_count;
  }
  expect_zone(6, ZoneState::implicitly_open, total);
  expect_refused(client_->append(6, geometry_.append_lbas_max + 1, 1), Code::invalid_argument,
                 nvme_status::kInvalidField);
}

TEST_P(Conformance, WritesInFlightTogetherInOneZoneLandInOrder) {
  ASSERT_GE(geometry_.zone_writes_max, 1u);
  const std::uint32_t count = geometry_.zone_writes_max;
  std::vector<AlignedBuffer> data;
  std::vector<Io> ios(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    data.emplace_back(2 * geometry_.lba_bytes);
    fill(data[i].span(), geometry_.lba_bytes, 50 + i);
    ios[i].op = Io::Op::write;
    ios[i].may_fail_over = true;
    ios[i].zone = ZoneId{1};
    ios[i].lba = client_->at(1, 2 * i);
    ios[i].set_data(data[i].data(), 2, geometry_.lba_bytes);
  }
  ASSERT_TRUE(run_blocking(*client_->queue, ios).ok());
  for (std::uint32_t i = 0; i < count; ++i) client_->expect_data(1, 2 * i, 2, 50 + i);
}

TEST_P(Conformance, TakesDataInPieces) {
  constexpr std::uint32_t kPieces = 5;
  AlignedBuffer whole(8 * geometry_.lba_bytes);
  fill(whole.span(), geometry_.lba_bytes, 9);
  const std::array<std::uint32_t, kPieces> lbas{1, 2, 1, 3, 1};
  std::vector<AlignedBuffer> pieces;
  std::array<iovec, kPieces> iov;
  std::size_t at = 0;
  for (std::uint32_t i = 0; i < kPieces; ++i) {
    pieces.emplace_back(lbas[i] * geometry_.lba_bytes);
    std::memcpy(pieces[i].data(), whole.data() + at, pieces[i].size());
    iov[i] = {pieces[i].data(), pieces[i].size()};
    at += pieces[i].size();
  }
  Io io;
  io.op = Io::Op::write;
  io.zone = ZoneId{3};
  io.lba = client_->at(3, 0);
  io.lba_count = 8;
  io.iov = iov.data();
  io.iov_count = kPieces;
  ASSERT_TRUE(client_->run(io).ok());
  client_->expect_data(3, 0, 8, 9);
  // A read that ends in the middle of a piece, at the write pointer.
  for (AlignedBuffer& piece : pieces) std::memset(piece.data(), 0xEE, piece.size());
  io.op = Io::Op::read;
  io.lba = client_->at(3, 2);
  ASSERT_TRUE(client_->run(io).ok());
  AlignedBuffer want(whole.size());
  std::memcpy(want.data(), whole.data() + 2 * geometry_.lba_bytes, 6 * geometry_.lba_bytes);
  at = 0;
  for (std::uint32_t i = 0; i < kPieces; ++i) {
    EXPECT_EQ(std::memcmp(pieces[i].data(), want.data() + at, pieces[i].size()), 0) << i;
    at += pieces[i].size();
  }
}

TEST_P(Conformance, UsesRegisteredBuffers) {
  AlignedBuffer memory(16 * geometry_.lba_bytes);
  const iovec region{memory.data(), memory.size()};
  const Status registered = client_->queue->register_buffers({&region, 1});
  if (registered.code() == Code::unsupported) GTEST_SKIP() << registered.describe();
  ASSERT_TRUE(registered.ok()) << registered.describe();
  fill(memory.span().first(4 * geometry_.lba_bytes), geometry_.lba_bytes, 11);
  Io io;
  io.op = Io::Op::append;
  io.zone = ZoneId{0};
  io.set_data(memory.data(), 4, geometry_.lba_bytes, 0);
  ASSERT_TRUE(client_->run(io).ok());
  io.op = Io::Op::read;
  io.lba = client_->at(0, 0);
  io.set_data(memory.data() + 8 * geometry_.lba_bytes, 4, geometry_.lba_bytes, 0);
  ASSERT_TRUE(client_->run(io).ok());
  EXPECT_EQ(std::memcmp(memory.data(), io.one.iov_base, io.one.iov_len), 0);
  io.set_data(memory.data(), 1, geometry_.lba_bytes, 1);  // not registered
  EXPECT_EQ(client_->run(io).code(), Code::invalid_argument);
  EXPECT_TRUE(client_->queue->register_buffers({}).ok());
}

TEST_P(Conformance, ManagesZones) {
  EXPECT_TRUE(client_->manage(Io::Op::open, 0).ok());
  expect_zone(0, ZoneState::explicitly_open, 0);
  EXPECT_TRUE(client_->manage(Io::Op::open, 0).ok());
  EXPECT_TRUE(client_->write(0, 0, 2, 1).ok());
  expect_zone(0, ZoneState::explicitly_open, 2);
  EXPECT_TRUE(client_->manage(Io::Op::close, 0).ok());
  expect_zone(0, ZoneState::closed, 2);
  EXPECT_TRUE(client_->manage(Io::Op::close, 0).ok());
  EXPECT_TRUE(client_->append(0, 1, 2).ok());
  expect_zone(0, ZoneState::implicitly_open, 3);
  EXPECT_TRUE(client_->manage(Io::Op::finish, 0).ok());
  expect_zone(0, ZoneState::full, capacity_);
  client_->expect_data(0, 0, 2, 1);
  client_->expect_zeroes(0, 3, 5);
  EXPECT_TRUE(client_->manage(Io::Op::finish, 0).ok());
  for (const Io::Op op : {Io::Op::open, Io::Op::close}) {
    expect_refused(client_->manage(op, 0), Code::zone_state, nvme_status::kInvalidTransition);
  }
  expect_refused(client_->manage(Io::Op::close, 1), Code::zone_state,
                 nvme_status::kInvalidTransition);
  EXPECT_TRUE(client_->manage(Io::Op::finish, 1).ok());  // empty
  client_->expect_zeroes(1, 0, 8);
  EXPECT_TRUE(client_->manage(Io::Op::reset, 1).ok());
  EXPECT_TRUE(client_->manage(Io::Op::reset, 1).ok());
  expect_zone(1, ZoneState::empty, 0);
}

TEST_P(Conformance, AResetZonesOldBytesAreGone) {
  ASSERT_TRUE(client_->write(7, 0, 64, 1).ok());
  ASSERT_TRUE(client_->manage(Io::Op::reset, 7).ok());
  client_->expect_zeroes(7, 0, 64);
  ASSERT_TRUE(client_->write(7, 0, 4, 2).ok());
  client_->expect_data(7, 0, 4, 2);
  client_->expect_zeroes(7, 4, 60);
  ASSERT_TRUE(client_->manage(Io::Op::finish, 7).ok());
  client_->expect_zeroes(7, 4, 60);
}

TEST_P(Conformance, KeepsTheOpenAndActiveLimits) {
  const std::uint32_t mor = geometry_.open_zones_max, mar = geometry_.active_zones_max;
  if (mor == 0 || mar == 0 || mar + 1 >= kZones) GTEST_SKIP() << "no limits to reach";
  for (std::uint32_t i = 0; i < mor; ++i) ASSERT_TRUE(client_->write(i, 0, 1, i).ok());
  // One more: the oldest implicitly open zone is closed for it.
  if (mar > mor) {
    ASSERT_TRUE(client_->write(mor, 0, 1, mor).ok());
    expect_zone(0, ZoneState::closed, 1);
    for (std::uint32_t i = mor + 1; i < mar; ++i) ASSERT_TRUE(client_->write(i, 0, 1, i).ok());
  }
  expect_refused(client_->write(mar, 0, 1, 1), Code::too_many_zones, nvme_status::kTooManyActive);
  expect_refused(client_->manage(Io::Op::open, mar), Code::too_many_zones,
                 nvme_status::kTooManyActive);
  // Explicitly open zones do not give way.
  for (std::uint32_t i = 0; i < mor; ++i) ASSERT_TRUE(client_->manage(Io::Op::open, i).ok());
  if (mar > mor) {
    expect_refused(client_->write(mor, 1, 1, 1), Code::too_many_zones, nvme_status::kTooManyOpen);
    expect_zone(mor, ZoneState::closed, 1);
  }
  ASSERT_TRUE(client_->manage(Io::Op::finish, 0).ok());
  EXPECT_TRUE(client_->write(mar, 0, 1, 1).ok());
  ASSERT_TRUE(client_->manage(Io::Op::reset, mar).ok());
  EXPECT_TRUE(client_->manage(Io::Op::open, mar).ok());
  for (std::uint32_t i = 1; i < mor; ++i) client_->expect_data(i, 0, 1, i);
}

TEST_P(Conformance, ManagementIsOrderedWithTheWritesSubmittedBefore) {
  AlignedBuffer data(geometry_.lba_bytes);
  Io write;
  write.op = Io::Op::append;
  write.zone = ZoneId{0};
  write.set_data(data.data(), 1, geometry_.lba_bytes);
  Io reset;
  reset.op = Io::Op::reset;
  reset.zone = ZoneId{0};
  std::array<Io, 2> both{write, reset};
  both[0].iov = &both[0].one;
  const Status status = run_blocking(*client_->queue, both);
  EXPECT_TRUE(both[0].status.ok());
  EXPECT_EQ(status.code(), Code::busy);
  expect_zone(0, ZoneState::implicitly_open, 1);
  // A reset and a write behind it go together.
  both[0].op = Io::Op::reset;
  both[1].op = Io::Op::write;
  both[1].lba = client_->at(0, 0);
  both[1].set_data(data.data(), 1, geometry_.lba_bytes);
  ASSERT_TRUE(run_blocking(*client_->queue, both).ok());
  expect_zone(0, ZoneState::implicitly_open, 1);
}

TEST_P(Conformance, TakesMoreThanItsDepth) {
  ASSERT_TRUE(client_->write(0, 0, 64, 3).ok());
  Client small(*device_, 4);
  std::vector<AlignedBuffer> data;
  std::vector<Io> ios(200);
  for (std::size_t i = 0; i < ios.size(); ++i) {
    data.emplace_back(geometry_.lba_bytes);
    ios[i].lba = client_->at(0, i % 64);
    ios[i].set_data(data[i].data(), 1, geometry_.lba_bytes);
  }
  ASSERT_TRUE(run_blocking(*small.queue, ios).ok());
  AlignedBuffer want(64 * geometry_.lba_bytes);
  fill(want.span(), geometry_.lba_bytes, 3);
  for (std::size_t i = 0; i < ios.size(); ++i) {
    ASSERT_EQ(std::memcmp(data[i].data(), want.data() + (i % 64) * geometry_.lba_bytes,
                          geometry_.lba_bytes),
              0);
  }
}

TEST_P(Conformance, ACompletionMaySubmitAgain) {
  struct Again {
    IoQueue* queue;
    unsigned left = 100;
    bool failed = false;
  } again{client_->queue.get()};
  AlignedBuffer data(geometry_.lba_bytes);
  Io io;
  io.op = Io::Op::append;
  io.zone = ZoneId{0};
  io.set_data(data.data(), 1, geometry_.lba_bytes);
  io.context = &again;
  io.on_complete = [](Io& done) {
    Again& state = *static_cast<Again*>(done.context);
    state.failed = state.failed || !done.status.ok();
    if (--state.left != 0) state.queue->submit(done);
  };
  client_->queue->submit(io);
  while (client_->queue->busy()) client_->queue->wait(100'000);
  EXPECT_EQ(again.left, 0u);
  EXPECT_FALSE(again.failed);
  expect_zone(0, ZoneState::implicitly_open, 100);
}

TEST_P(Conformance, FlushesAndGoesOn) {
  EXPECT_TRUE(client_->flush().ok());
  ASSERT_TRUE(client_->write(0, 0, 1, 1).ok());
  EXPECT_TRUE(client_->flush().ok());
  ASSERT_TRUE(client_->write(0, 1, 1, 2).ok());
  client_->expect_data(0, 0, 1, 1);
}

// Two threads append to one zone, each through its own queue: writes of one wait for the other's.
TEST_P(Conformance, QueuesOfTwoThreadsShareAZone) {
  constexpr std::uint32_t kEach = 60;
  const auto work = [this](std::uint64_t base, std::vector<Lba>& places) {
    Client client(*device_, 8);
    for (std::uint32_t i = 0; i < kEach; ++i) {
      Lba at;
      const Status status = client.append(9, 1, base + i, &at);
      EXPECT_TRUE(status.ok()) << status.describe();
      places.push_back(at);
      client.expect_data(9, at.value - client.at(9, 0).value, 1, base + i);
    }
  };
  std::vector<Lba> first, second;
  std::thread other([&] { work(10'000, second); });
  work(20'000, first);
  other.join();
  expect_zone(9, ZoneState::implicitly_open, 2 * kEach);
  std::sort(first.begin(), first.end());
  std::sort(second.begin(), second.end());
  std::vector<Lba> all;
  std::merge(first.begin(), first.end(), second.begin(), second.end(), std::back_inserter(all));
  for (std::uint64_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], client_->at(9, i));
}

// Random operations, one at a time, beside ZoneStateMachine and a map of what was written.
TEST_P(Conformance, BehavesAsTheModel) {
  const std::uint64_t seed = 20261121;
  RecordProperty("seed", std::to_string(seed));
  std::mt19937_64 random(seed);
  const ZoneStateMachine machine(geometry_);
  std::vector<ZoneView> views(kZones);
  std::vector<std::uint64_t> data_end(kZones);
  std::vector<std::vector<std::uint64_t>> words(kZones);
  for (std::uint32_t i = 0; i < kZones; ++i) views[i].zone = ZoneId{i};
  std::vector<std::uint32_t> implicit_order;
  for (int step = 0; step < 1500; ++step) {
    const auto z = static_cast<std::uint32_t>(random() % kZones);
    ZoneView& view = views[z];
    const auto action = static_cast<ZoneAction>(random() % 7);
    const auto lbas = static_cast<std::uint32_t>(1 + random() % 24);
    ZoneUsage usage;
    for (const ZoneView& each : views) {
      usage.open += is_open(each.state);
      usage.active += is_active(each.state);
      usage.implicitly_open += each.state == ZoneState::implicitly_open;
    }
    const std::uint64_t offset = action == ZoneAction::read      ? random() % capacity_
                                 : view.state == ZoneState::full ? 0
                                                                 : view.written_lbas;
    ZoneRequest request{action, client_->at(z, offset), lbas};
    if (action == ZoneAction::append) request.lba = client_->at(z, 0);
    const ZoneDecision decision = machine.decide(view, usage, request);
    Status status;
    switch (action) {
      case ZoneAction::read: {
        AlignedBuffer got;
        status = client_->read(client_->at(z, offset), lbas, got);
        if (!status.ok()) break;
        for (std::uint32_t i = 0; i < lbas; ++i) {
          std::uint64_t word;
          std::memcpy(&word, got.data() + std::size_t{i} * geometry_.lba_bytes, 8);
          const std::uint64_t at = offset + i;
          ASSERT_EQ(word, at < words[z].size() ? words[z][at] : 0)
              << "seed " << seed << " step " << step << " zone " << z;
        }
        break;
      }
      case ZoneAction::write:
        status = client_->write(z, offset, lbas, static_cast<std::uint64_t>(step));
        break;
      case ZoneAction::append:
        status = client_->append(z, lbas, static_cast<std::uint64_t>(step));
        break;
      case ZoneAction::open:
        status = client_->manage(Io::Op::open, z);
        break;
      case ZoneAction::close:
        status = client_->manage(Io::Op::close, z);
        break;
      case ZoneAction::finish:
        status = client_->manage(Io::Op::finish, z);
        break;
      default:
        status = client_->manage(Io::Op::reset, z);
        break;
    }
    ASSERT_EQ(status.nvme(), decision.status)
        << "seed " << seed << " step " << step << ": " << status.describe();
    if (!status.ok()) continue;
    if (decision.close_one_first) {
      views[implicit_order.front()].state = ZoneState::closed;
      implicit_order.erase(implicit_order.begin());
    }
    if (view.state == ZoneState::implicitly_open && decision.state != view.state) {
      std::erase(implicit_order, z);
    }
    if (view.state != decision.state && decision.state == ZoneState::implicitly_open) {
      implicit_order.push_back(z);
    }
    if (action == ZoneAction::write || action == ZoneAction::append) {
      for (std::uint32_t i = 0; i < lbas; ++i) {
        words[z].push_back((static_cast<std::uint64_t>(step) << 20) + i + 1);
      }
    }
    if (action == ZoneAction::reset) words[z].clear();
    if (action != ZoneAction::read) {
      view.state = decision.state;
      view.written_lbas = decision.written_lbas;
    }
  }
  for (const ZoneView& view : views) {
    expect_zone(view.zone.value, view.state, view.written_lbas);
  }
}

using Kind = Target::Kind;
INSTANTIATE_TEST_SUITE_P(
    BackEnds, Conformance,
    testing::Values(Target{"mem", Kind::mem, "", 4096, kMiB, 14, 14},
                    Target{"mem512", Kind::mem, "", 512, kMiB * 3 / 4, 3, 5},
                    Target{"memOddZones", Kind::mem, "", 4096, 2 * kMiB, 3, 5, 3 * kMiB},
                    Target{"emuOddZones", Kind::emu, "", 4096, 2 * kMiB, 3, 5, 3 * kMiB},
                    Target{"emu", Kind::emu, "", 4096, kMiB, 14, 14},
                    Target{"emuLimits", Kind::emu, "reclaim=now", 4096, kMiB * 3 / 4, 2, 3},
                    Target{"emu512", Kind::emu, "direct=1", 512, kMiB * 3 / 4, 4, 4},
                    Target{"emuSqpoll", Kind::emu, "io_mode=sqpoll", 4096, kMiB * 3 / 4, 3, 5},
                    Target{"emuBuffered", Kind::emu, "direct=0", 4096, kMiB, 0, 0},
                    Target{"emuBuffered512", Kind::emu, "direct=0&reclaim=never", 512, kMiB - 512,
                           3, 6},
                    Target{"faultMem", Kind::fault_over_mem, "", 4096, kMiB * 3 / 4, 3, 5},
                    Target{"faultEmu", Kind::fault_over_emu, "", 512, kMiB, 4, 6}),
    [](const auto& test) { return std::string(test.param.name); });

std::vector<Target> drives() {
  const char* uri = std::getenv("FURROW_DRIVE");
  if (uri == nullptr) return {};
  const auto drive = open_device(uri, Access::inspect);
  if (!drive.ok()) {
    std::fprintf(stderr, "%s: %s\n", uri, drive.status().describe().c_str());
    std::exit(1);
  }
  const Geometry& geometry = (*drive)->geometry();
  return {{"drive", Kind::drive, uri, geometry.lba_bytes, geometry.zone_capacity_bytes(),
           geometry.open_zones_max, geometry.active_zones_max,
           geometry.zone_size_lbas * geometry.lba_bytes}};
}
INSTANTIATE_TEST_SUITE_P(Drives, Conformance, testing::ValuesIn(drives()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace furrow::test
