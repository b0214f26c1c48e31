// Establishes that an emulated device is exact after kill -9: a child writes, appends, resets and
// finishes with many operations in flight and notes each acknowledgement in shared memory; it is
// killed at a random moment; then every zone holds at least what was acknowledged, all that lies
// below its write pointer is what was written there, and nothing lies above. No flush is used.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "tests/zone/device_test_util.h"

namespace furrow::test {
namespace {

constexpr std::uint32_t kZones = 6, kLbas = 4;

// What the child says of a zone: packed so that one store is one statement.
struct Note {
  std::atomic<std::uint64_t> acknowledged{0};  // generation << 32 | LBAs
};

// Four writes in flight in each zone; a full one is reset and begun anew.
class Writer {
 public:
  Writer(ZonedDevice& device, Note* notes) : client_(device, 32), notes_(notes) {
    for (std::uint32_t z = 0; z < kZones; ++z) {
      generation_[z] = static_cast<std::uint32_t>(notes[z].acknowledged >> 32);
      next_[z] = (*device.report())[z].written_lbas;
      if ((*device.report())[z].state == ZoneState::full) next_[z] = capacity();
    }
  }
  [[noreturn]] void run() {
    for (;;) {
      for (std::uint32_t z = 0; z < kZones; ++z) step(z);
      client_.queue->poll();
    }
  }

 private:
  struct Slot {
    Io io;
    AlignedBuffer data{kLbas * 4096};
    Writer* writer = nullptr;
    bool used = false;
  };
  std::uint64_t capacity() const { return client_.geometry.zone_capacity_lbas; }

  void step(std::uint32_t z) {
    if (next_[z] + kLbas > capacity()) {
      if (in_flight_[z] == 0) reset(z);
      return;
    }
    for (Slot& slot : slots_[z]) {
      if (slot.used) continue;
      fill(slot.data.span(), 4096, std::uint64_t{generation_[z]} << 24 | next_[z]);
      slot.used = true;
      slot.writer = this;
      slot.io.op = next_[z] % 8 == 0 ? Io::Op::append : Io::Op::write;
      slot.io.zone = ZoneId{z};
      slot.io.lba = client_.at(z, next_[z]);
      slot.io.set_data(slot.data.data(), kLbas, 4096);
      slot.io.context = &slot;
      slot.io.on_complete = [](Io& io) {
        Slot& done = *static_cast<Slot*>(io.context);
        if (!io.status.ok()) _exit(3);
        const std::uint32_t zone = io.zone.value;
        --done.writer->in_flight_[zone];
        done.used = false;
        done.writer->notes_[zone].acknowledged += kLbas;
      };
      next_[z] += kLbas;
      ++in_flight_[z];
      client_.queue->submit(slot.io);
      if (next_[z] + kLbas > capacity()) return;
    }
  }
  void reset(std::uint32_t z) {
    if (!client_.manage(Io::Op::reset, z).ok()) _exit(4);
    ++generation_[z];
    next_[z] = 0;
    notes_[z].acknowledged = std::uint64_t{generation_[z]} << 32;
  }

  Client client_;
  Note* notes_;
  std::array<std::uint32_t, kZones> generation_{};
  std::array<std::uint64_t, kZones> next_{};
  std::array<unsigned, kZones> in_flight_{};
  std::array<std::array<Slot, 4>, kZones> slots_;
};

void verify(ZonedDevice& device, Note* notes) {
  Client client(device);
  const std::uint64_t capacity = client.geometry.zone_capacity_lbas;
  for (const ZoneInfo& info : *device.report()) {
    const std::uint32_t z = info.zone.value;
    const std::uint64_t note = notes[z].acknowledged;
    auto generation = static_cast<std::uint32_t>(note >> 32);
    const std::uint64_t acknowledged = note & 0xFFFFFFFF;
    EXPECT_TRUE(info.state == ZoneState::empty || info.state == ZoneState::closed ||
                info.state == ZoneState::full)
        << to_string(info.state);
    const std::uint64_t written = info.written_lbas;
    if (written < acknowledged) {  // only when a reset was made and not yet acknowledged
      EXPECT_EQ(acknowledged, capacity) << "zone " << z << " has " << written;
      EXPECT_EQ(written, 0u) << "zone " << z;
      ++generation;
    }
    EXPECT_EQ(written % kLbas, 0u) << "a write was cut";
    for (std::uint64_t at = 0; at < written; at += kLbas) {
      client.expect_data(z, at, kLbas, std::uint64_t{generation} << 24 | at);
      if (testing::Test::HasFailure()) return;
    }
    if (written < capacity) client.expect_zeroes(z, written, kLbas);
    notes[z].acknowledged = std::uint64_t{generation} << 32 | written;
  }
}

class EmuKill : public testing::TestWithParam<const char*> {};

TEST_P(EmuKill, EveryAcknowledgedWriteIsThere) {
  constexpr std::uint64_t kSeed = 77;
  std::mt19937_64 random(kSeed);
  RecordProperty("seed", std::to_string(kSeed));
  TempDir dir;
  const std::string uri = "emu:" + dir.file("device.img");
  DeviceShape shape;
  shape.size_bytes = kZones * 2 * kMiB;
  shape.zone_size_bytes = 2 * kMiB;
  ASSERT_TRUE(create_device(uri, shape).ok());
  void* shared = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  Note* notes = new (shared) Note[kZones];
  std::uint64_t resets = 0;
  for (int round = 0; round < 8 && !HasFailure(); ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto device = open_device(uri + GetParam(), Access::exclusive);
      if (!device.ok()) _exit(2);
      Writer(**device, notes).run();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20 + random() % 60));
    ASSERT_EQ(kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child gave up: " << WEXITSTATUS(status);
    // At once: the kernel may still be ending the child's I/O.
    auto device = open_device(uri, Access::exclusive);
    ASSERT_TRUE(device.ok()) << device.status().describe();
    verify(**device, notes);
  }
  for (std::uint32_t z = 0; z < kZones; ++z) resets += notes[z].acknowledged >> 32;
  std::printf("zones were filled and reset %lu times in 8 lives\n", resets);
  munmap(shared, 4096);
}

INSTANTIATE_TEST_SUITE_P(Ways, EmuKill, testing::Values("", "?direct=0", "?reclaim=now"),
                         [](const auto& test) { return "way" + std::to_string(test.index); });

}  // namespace
}  // namespace furrow::test
