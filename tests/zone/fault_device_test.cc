// Establishes that the fault device does what it says and no more: what was flushed survives every
// power cut, what was not is lost only as its model allows; each switch makes exactly the
// operations fail that it names; late completions come in another order but all come; and the same
// seed gives the same run.
#include "zone/fault_device.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "tests/zone/device_test_util.h"
#include "zone/event_loop.h"

namespace furrow::test {
namespace {

constexpr char kUri[] = "mem:16MiB?zone_size=1MiB&zone_capacity=512KiB&lba=4096&mor=4&mar=6";
constexpr std::uint32_t kLbaBytes = 4096;

std::unique_ptr<ZonedDevice> memory(const char* uri = kUri) {
  auto device = open_device(uri, Access::exclusive);
  EXPECT_TRUE(device.ok()) << device.status().describe();
  return std::move(*device);
}

std::unique_ptr<FaultDevice> faulty(FaultOptions options = {}) {
  return std::make_unique<FaultDevice>(memory(), options);
}

std::uint64_t word_at(Client& client, std::uint32_t zone, std::uint64_t offset,
                      std::size_t byte = 0) {
  AlignedBuffer got;
  const Status status = client.read(client.at(zone, offset), 1, got);
  EXPECT_TRUE(status.ok()) << status.describe();
  std::uint64_t word = 0;
  std::memcpy(&word, got.data() + byte, 8);
  return word;
}

class PowerCut : public testing::TestWithParam<CrashModel> {};

// A drive loses power again and again; beside it an oracle knows what was flushed.
TEST_P(PowerCut, WhatWasFlushedSurvives) {
  struct Zone {
    std::vector<std::uint64_t> words;  // as the owner sees it
    std::vector<std::uint64_t> flushed;
    std::uint64_t resets = 0, flushed_resets = 0;
    bool full = false, flushed_full = false;
  };
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    FaultOptions options;
    options.seed = seed;
    options.delay_polls_max = static_cast<unsigned>(seed % 4);
    auto device = faulty(options);
    auto client = std::make_unique<Client>(*device);
    std::vector<Zone> zones(5);
    const std::uint64_t capacity = client->geometry.zone_capacity_lbas;
    for (unsigned step = 0, end = 5 + random() % 60; step < end; ++step) {
      const auto z = static_cast<std::uint32_t>(random() % zones.size());
      Zone& zone = zones[z];
      const std::uint64_t choice = random() % 12;
      if (choice == 0) {
        ASSERT_TRUE(client->flush().ok());
        for (Zone& each : zones) {
          each.flushed = each.words;
          each.flushed_resets = each.resets;
          each.flushed_full = each.full;
        }
      } else if (choice == 1 || zone.full) {
        ASSERT_TRUE(client->manage(Io::Op::reset, z).ok());
        zone.words.clear();
        zone.full = false;
        ++zone.resets;
      } else if (choice == 2) {
        ASSERT_TRUE(client->manage(Io::Op::finish, z).ok());
        zone.full = true;
      } else {
        const auto lbas = static_cast<std::uint32_t>(
            std::min<std::uint64_t>(1 + random() % 24, capacity - zone.words.size()));
        const std::uint64_t tag = seed * 1000 + step;
        ASSERT_TRUE(client->write(z, zone.words.size(), lbas, tag).ok());
        for (std::uint32_t i = 0; i < lbas; ++i) zone.words.push_back((tag << 20) + i + 1);
        zone.full = zone.words.size() == capacity;
      }
    }
    ASSERT_TRUE(device->power_cut(GetParam()).ok());
    EXPECT_EQ(client->flush().code(), Code::aborted);
    EXPECT_EQ(device->create_queue(4).ok(), true);
    client.reset();
    const std::unique_ptr<ZonedDevice> inner = device->take_inner();
    Client after(*inner);
    for (std::uint32_t z = 0; z < zones.size(); ++z) {
      const Zone& zone = zones[z];
      const ZoneInfo info = (*inner->report())[z];
      if (zone.resets != zone.flushed_resets) continue;  // may be anything between
      EXPECT_GE(info.written_lbas, zone.flushed.size());
      if (zone.flushed_full) {
        EXPECT_EQ(info.state, ZoneState::full);
      }
      if (!zone.full) {
        EXPECT_LE(info.written_lbas, zone.words.size());
      }
      for (std::size_t i = 0; i < zone.flushed.size(); ++i) {
        ASSERT_EQ(word_at(after, z, i), zone.flushed[i]) << "zone " << z << " LBA " << i;
      }
      if (GetParam() == CrashModel::drive && info.state != ZoneState::full) {
        // A prefix: all but the last LBA are whole.
        for (std::size_t i = 0; i + 1 < info.written_lbas; ++i) {
          ASSERT_EQ(word_at(after, z, i), zone.words[i]);
          ASSERT_EQ(word_at(after, z, i, kLbaBytes - 8), zone.words[i]);
        }
      }
    }
  }
}

// Over many seeds every kind of damage that the model allows does happen.
TEST_P(PowerCut, TakesAllThatTheModelAllows) {
  std::set<std::string> seen;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    FaultOptions options;
    options.seed = seed;
    auto device = faulty(options);
    {
      Client client(*device);
      ASSERT_TRUE(client.write(0, 0, 8, 1).ok());  // flushed, then reset and written again
      ASSERT_TRUE(client.flush().ok());
      ASSERT_TRUE(client.manage(Io::Op::reset, 0).ok());
      for (std::uint64_t at = 0; at < 12; at += 4) ASSERT_TRUE(client.write(0, at, 4, 2).ok());
      for (std::uint64_t at = 0; at < 16; at += 4) ASSERT_TRUE(client.write(1, at, 4, 3).ok());
      ASSERT_TRUE(device->power_cut(GetParam()).ok());
    }
    const std::unique_ptr<ZonedDevice> inner = device->take_inner();
    Client after(*inner);
    const auto zones = *inner->report();
    const std::uint64_t old_word = (1u << 20) + 1, new_word = (2u << 20) + 1;
    if (zones[0].written_lbas == 0) seen.insert("reset alone survived");
    if (zones[0].written_lbas == 8 && word_at(after, 0, 0) == old_word) seen.insert("no reset");
    if (zones[0].written_lbas == 12 && word_at(after, 0, 0) == new_word) seen.insert("rewritten");
    const std::uint64_t written = zones[1].written_lbas;
    if (written == 0) seen.insert("nothing");
    if (written == 16) seen.insert("everything");
    if (written > 0 && written < 16) seen.insert("a part");
    for (std::uint64_t i = 0; i < written; ++i) {
      const bool head = word_at(after, 1, i) == (std::uint64_t{3} << 20) + i % 4 + 1;
      const bool tail = word_at(after, 1, i, kLbaBytes - 8) == (std::uint64_t{3} << 20) + i % 4 + 1;
      if (head != tail) seen.insert("torn");
      if (!head && word_at(after, 1, i) == 0) seen.insert("zeroes below the write pointer");
      if (!head && i + 1 < written) seen.insert("a hole");
    }
  }
  std::set<std::string> want{"reset alone survived", "no reset", "rewritten", "nothing",
                             "everything",           "a part",   "torn"};
  if (GetParam() == CrashModel::emu) {
    want.insert({"zeroes below the write pointer", "a hole"});
  }
  EXPECT_EQ(seen, want);
}

TEST_P(PowerCut, AbortsWhatIsInFlight) {
  FaultOptions options;
  options.delay_polls_max = 50;
  auto device = faulty(options);
  Client client(*device);
  AlignedBuffer data(kLbaBytes);
  std::vector<Io> ios(20);
  unsigned aborted = 0;
  for (Io& io : ios) {
    io.op = Io::Op::append;
    io.zone = ZoneId{1};
    io.set_data(data.data(), 1, kLbaBytes);
    io.context = &aborted;
    io.on_complete = [](Io& done) {
      *static_cast<unsigned*>(done.context) += done.status.code() == Code::aborted;
    };
    client.queue->submit(io);
  }
  client.queue->poll();
  const unsigned left = client.queue->in_flight();
  ASSERT_TRUE(device->power_cut(GetParam()).ok());
  client.queue->poll();
  EXPECT_EQ(client.queue->in_flight(), 0u);
  EXPECT_EQ(aborted, left);
  EXPECT_GT(aborted, 0u);
  EXPECT_FALSE(device->report().ok());
}

TEST_P(PowerCut, ComesByItselfAtAnLba) {
  auto device = faulty();
  Client client(*device);
  device->cut_after(10, GetParam());
  EXPECT_TRUE(client.write(0, 0, 4, 1).ok());
  EXPECT_TRUE(client.write(0, 4, 5, 1).ok());
  EXPECT_FALSE(device->dead());
  EXPECT_EQ(client.write(0, 9, 1, 1).code(), Code::aborted);
  EXPECT_TRUE(device->dead());
}

// The same seed, the same operations: the same bytes are left.
TEST_P(PowerCut, IsReproducible) {
  const auto run = [](std::uint64_t seed) {
    FaultOptions options;
    options.seed = seed;
    auto device = faulty(options);
    {
      Client client(*device);
      for (std::uint32_t z = 0; z < 4; ++z) EXPECT_TRUE(client.write(z, 0, 32, z).ok());
      EXPECT_TRUE(device->power_cut(GetParam()).ok());
    }
    const std::unique_ptr<ZonedDevice> inner = device->take_inner();
    Client after(*inner);
    std::string bytes;
    for (std::uint32_t z = 0; z < 4; ++z) {
      AlignedBuffer got;
      EXPECT_TRUE(after.read(after.at(z, 0), 32, got).ok());
      bytes.append(reinterpret_cast<const char*>(got.data()), got.size());
      bytes += std::to_string((*inner->report())[z].written_lbas);
    }
    return bytes;
  };
  EXPECT_EQ(run(5), run(5));
  EXPECT_NE(run(5), run(6));
}

INSTANTIATE_TEST_SUITE_P(Models, PowerCut, testing::Values(CrashModel::drive, CrashModel::emu),
                         [](const auto& test) {
                           return std::string(test.param == CrashModel::drive ? "drive" : "emu");
                         });

// emu: under the fault device, reopened after the cut as a restarted process would.
TEST(FaultDevice, LeavesAnEmulatedDeviceThatOpens) {
  TempDir dir;
  const std::string uri = "emu:" + dir.file("device.img");
  DeviceShape shape;
  shape.size_bytes = 16u << 20;
  shape.zone_size_bytes = 1u << 20;
  ASSERT_TRUE(create_device(uri, shape).ok());
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    auto inner = open_device(uri, Access::exclusive);
    ASSERT_TRUE(inner.ok()) << inner.status().describe();
    FaultOptions options;
    options.seed = seed;
    FaultDevice device(std::move(*inner), options);
    Client client(device);
    ASSERT_TRUE(client.manage(Io::Op::reset, 1).ok());
    ASSERT_TRUE(client.write(1, 0, 16, seed).ok());
    ASSERT_TRUE(client.flush().ok());
    ASSERT_TRUE(client.write(1, 16, 16, seed + 100).ok());
    ASSERT_TRUE(device.power_cut(CrashModel::emu).ok());
    client.queue.reset();
    device.take_inner().reset();
    auto again = open_device(uri, Access::exclusive);
    ASSERT_TRUE(again.ok()) << again.status().describe();
    Client(**again).expect_data(1, 0, 16, seed);
  }
}

TEST(FaultDevice, HoldsUnflushedDataAndGivesItOnAtAFlush) {
  auto device = faulty();
  Client client(*device);
  ASSERT_TRUE(client.write(0, 0, 16, 1).ok());
  ASSERT_TRUE(client.write(1, 0, 128, 1).ok());  // full
  EXPECT_EQ(device->unflushed_bytes(), 144u * kLbaBytes);
  ASSERT_TRUE(client.flush().ok());
  EXPECT_EQ(device->unflushed_bytes(), 0u);
  ASSERT_TRUE(client.write(0, 16, 16, 2).ok());
  AlignedBuffer got;  // half from the inner device, half from memory
  ASSERT_TRUE(client.read(client.at(0, 8), 16, got).ok());
  client.expect_data(0, 0, 16, 1);
  client.expect_data(0, 16, 16, 2);
  client.queue.reset();
  const std::unique_ptr<ZonedDevice> inner = device->take_inner();
  EXPECT_EQ((*inner->report())[0].written_lbas, 16u);
  EXPECT_EQ((*inner->report())[1].state, ZoneState::full);
}

// With nothing but resets to flush, too.
TEST(FaultDevice, AFlushedResetIsNotUndone) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    FaultOptions options;
    options.seed = seed;
    auto device = faulty(options);
    {
      Client client(*device);
      ASSERT_TRUE(client.write(0, 0, 30, 1).ok());
      ASSERT_TRUE(client.manage(Io::Op::reset, 0).ok());
      ASSERT_TRUE(client.flush().ok());
      ASSERT_TRUE(client.write(0, 0, 6, 2).ok());
      ASSERT_TRUE(device->power_cut(CrashModel::emu).ok());
    }
    const std::unique_ptr<ZonedDevice> inner = device->take_inner();
    ASSERT_LE((*inner->report())[0].written_lbas, 6u) << "seed " << seed;
  }
}

// As many active zones as there may be, exchanged between two flushes: the inner device has the
// same limit and must never be asked for more.
TEST(FaultDevice, AFlushKeepsTheInnerDevicesLimits) {
  std::mt19937_64 random(9);
  auto device = faulty();
  Client client(*device);
  for (int step = 0; step < 3000; ++step) {
    const auto z = static_cast<std::uint32_t>(random() % 16);
    const ZoneInfo info = (*device->report())[z];
    switch (random() % 8) {
      case 0:
        ASSERT_TRUE(client.manage(Io::Op::reset, z).ok());
        break;
      case 1:
        ASSERT_TRUE(client.manage(Io::Op::finish, z).ok());
        break;
      case 2: {
        const Status status = client.flush();
        ASSERT_TRUE(status.ok()) << step << ": " << status.describe();
        break;
      }
      default:
        if (info.state == ZoneState::full) break;
        const auto left = static_cast<std::uint32_t>(128 - info.written_lbas);
        const Status status = client.write(z, info.written_lbas, random() % 2 == 0 ? left : 1, 1);
        ASSERT_TRUE(status.ok() || status.code() == Code::too_many_zones) << status.describe();
    }
  }
}

TEST(FaultDevice, MediaErrorsHitTheirLbasOnly) {
  auto device = faulty();
  Client client(*device);
  ASSERT_TRUE(client.write(0, 0, 16, 1).ok());
  device->fail_reads(client.at(0, 4), 2);
  AlignedBuffer got;
  EXPECT_EQ(client.read(client.at(0, 0), 16, got).code(), Code::io_error);
  EXPECT_EQ(client.read(client.at(0, 5), 1, got).nvme(), 0x281);
  client.expect_data(0, 0, 4, 1);
  EXPECT_TRUE(client.read(client.at(0, 6), 10, got).ok());
  ASSERT_TRUE(client.manage(Io::Op::reset, 0).ok());
  client.expect_zeroes(0, 0, 16);
}

TEST(FaultDevice, AFailedWriteSealsItsZone) {
  auto device = faulty();
  Client client(*device);
  ASSERT_TRUE(client.write(0, 0, 4, 1).ok());
  device->fail_writes(client.at(0, 6), 1);
  ASSERT_TRUE(client.write(0, 4, 2, 2).ok());
  const Status status = client.write(0, 6, 2, 3);
  EXPECT_EQ(status.code(), Code::io_error);
  EXPECT_EQ(status.nvme(), 0x280);
  EXPECT_EQ((*device->report())[0].state, ZoneState::full);
  EXPECT_EQ(client.write(0, 6, 1, 4).nvme(), nvme_status::kZoneFull);
  client.expect_data(0, 4, 2, 2);
  client.expect_zeroes(0, 6, 2);
  ASSERT_TRUE(client.flush().ok());
  client.expect_data(0, 4, 2, 2);
  ASSERT_TRUE(client.manage(Io::Op::reset, 0).ok());
  EXPECT_TRUE(client.write(0, 0, 8, 5).ok());
}

// Sixteen writes in flight, one of them fails: those before it are whole, those behind it fail.
TEST(FaultDevice, AFailureInTheMiddleFailsWhatIsBehindIt) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    FaultOptions options;
    options.seed = seed;
    options.delay_polls_max = 8;
    auto device = faulty(options);
    Client client(*device);
    const std::uint64_t bad = seed % 16;
    device->fail_writes(client.at(2, bad), 1);
    std::vector<AlignedBuffer> data;
    std::vector<Io> ios(16);
    for (std::size_t i = 0; i < ios.size(); ++i) {
      data.emplace_back(kLbaBytes);
      fill(data[i].span(), kLbaBytes, i);
      ios[i].op = Io::Op::append;
      ios[i].zone = ZoneId{2};
      ios[i].set_data(data[i].data(), 1, kLbaBytes);
    }
    EXPECT_FALSE(run_blocking(*client.queue, ios).ok());
    for (std::size_t i = 0; i < ios.size(); ++i) EXPECT_EQ(ios[i].status.ok(), i < bad) << i;
    for (std::size_t i = 0; i < bad; ++i) client.expect_data(2, i, 1, i);
    client.expect_zeroes(2, bad, static_cast<std::uint32_t>(16 - bad));
    ASSERT_TRUE(client.manage(Io::Op::reset, 2).ok());
    EXPECT_TRUE(client.write(2, 0, 1, 1).ok());
  }
}

TEST(FaultDevice, FailsFlushesAndKeepsWhatTheyDidNotCover) {
  auto device = faulty();
  Client client(*device);
  ASSERT_TRUE(client.write(0, 0, 4, 1).ok());
  device->fail_flushes(2);
  EXPECT_EQ(client.flush().code(), Code::io_error);
  EXPECT_EQ(client.flush().code(), Code::io_error);
  EXPECT_EQ(device->unflushed_bytes(), 4u * kLbaBytes);
  EXPECT_TRUE(client.flush().ok());
  EXPECT_EQ(device->unflushed_bytes(), 0u);
}

TEST(FaultDevice, ZonesGoReadOnlyAndOffline) {
  auto device = faulty();
  Client client(*device);
  for (std::uint32_t z = 0; z < 4; ++z) ASSERT_TRUE(client.write(z, 0, 4, z).ok());
  device->degrade(ZoneId{0}, ZoneState::read_only);
  device->degrade(ZoneId{1}, ZoneState::offline);
  EXPECT_EQ((*device->report())[0].state, ZoneState::read_only);
  EXPECT_EQ((*device->report())[1].state, ZoneState::offline);
  client.expect_data(0, 0, 4, 0);
  EXPECT_EQ(client.write(0, 4, 1, 1).nvme(), nvme_status::kZoneReadOnly);
  EXPECT_EQ(client.write(1, 4, 1, 1).nvme(), nvme_status::kZoneOffline);
  AlignedBuffer got;
  EXPECT_EQ(client.read(client.at(1, 0), 1, got).nvme(), nvme_status::kZoneOffline);
  EXPECT_EQ(client.manage(Io::Op::reset, 0).nvme(), nvme_status::kInvalidTransition);
  // Their resources are free: MOR is 4.
  for (const std::uint32_t z : {2u, 3u, 4u, 5u}) {
    EXPECT_TRUE(client.manage(Io::Op::open, z).ok()) << z;
  }
  EXPECT_EQ(client.manage(Io::Op::open, 6).nvme(), nvme_status::kTooManyOpen);
  EXPECT_TRUE(client.flush().ok());
  client.expect_data(2, 0, 4, 2);
}

TEST(FaultDevice, ErrorsComeAsOftenAsAsked) {
  FaultOptions options;
  options.read_error = 0.25;
  auto device = faulty(options);
  Client client(*device);
  ASSERT_TRUE(client.write(0, 0, 1, 1).ok());
  int failed = 0;
  for (int i = 0; i < 2000; ++i) {
    AlignedBuffer got;
    failed += !client.read(client.at(0, 0), 1, got).ok();
  }
  EXPECT_GT(failed, 400);
  EXPECT_LT(failed, 600);
}

TEST(FaultDevice, CompletesLateAndOutOfOrder) {
  FaultOptions options;
  options.delay_polls_max = 10;
  auto device = faulty(options);
  Client client(*device);
  ASSERT_TRUE(client.write(0, 0, 64, 1).ok());
  struct State {
    std::vector<std::uint64_t> order;
  } state;
  std::vector<AlignedBuffer> data;
  std::vector<Io> ios(64);
  for (std::size_t i = 0; i < ios.size(); ++i) {
    data.emplace_back(kLbaBytes);
    ios[i].lba = client.at(0, i);
    ios[i].set_data(data[i].data(), 1, kLbaBytes);
    ios[i].context = &state;
    ios[i].on_complete = [](Io& io) {
      static_cast<State*>(io.context)->order.push_back(io.lba.value);
    };
    client.queue->submit(ios[i]);
  }
  unsigned polls = 0;
  while (client.queue->busy()) {
    client.queue->poll();
    ++polls;
  }
  EXPECT_GT(polls, 5u);
  EXPECT_LE(polls, 12u);
  EXPECT_EQ(state.order.size(), ios.size());
  EXPECT_FALSE(std::is_sorted(state.order.begin(), state.order.end()));
}

TEST(FaultDevice, TakesItsTime) {
  EventLoop clock;
  FaultOptions options;
  options.latency_us = 2000;
  options.clock = &clock;
  auto device = faulty(options);
  Client client(*device);
  const std::uint64_t began_ns = clock.now_ns();
  ASSERT_TRUE(client.write(0, 0, 1, 1).ok());
  EXPECT_GE(clock.now_ns() - began_ns, 2'000'000u);
}

}  // namespace
}  // namespace furrow::test
