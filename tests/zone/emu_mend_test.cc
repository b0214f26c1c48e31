// Establishes what an emulated device says of its own structures, and that mending them is safe: a
// damaged slot of the zone table beside a whole one, or a damaged superblock, is told, by a check
// as well, and mended; the device is the same afterwards, with all that its zones hold. What was
// written since is left as it is. A mend that the medium refuses is an error, takes nothing away
// and can be made again; one that a power cut ends, whatever of it the medium has, leaves a device
// that opens and is mended then. (That power cuts leave no such damage: emu_power_cut_test.cc.)
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <functional>

#include "tests/zone/emu_fixture.h"

namespace furrow::test {
namespace {

// From here to the end of the process what makes data durable fails.
void refuse_syncs() {
  const auto number = static_cast<std::uint32_t>(offsetof(seccomp_data, nr));
  const auto is = [](long call, std::uint8_t skip) {
    return sock_filter{BPF_JMP | BPF_JEQ | BPF_K, skip, 0, static_cast<std::uint32_t>(call)};
  };
  sock_filter code[] = {{BPF_LD | BPF_W | BPF_ABS, 0, 0, number},
                        is(SYS_fdatasync, 2),
                        is(SYS_msync, 1),
                        {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
                        {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EIO}};
  const sock_fprog program{static_cast<unsigned short>(std::size(code)), code};
  ASSERT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

// Likewise what reads by a call of its own from that offset on.
void refuse_reads_at(std::uint32_t offset) {
  const auto number = static_cast<std::uint32_t>(offsetof(seccomp_data, nr));
  const auto from = static_cast<std::uint32_t>(offsetof(seccomp_data, args[3]));
  sock_filter code[] = {
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, number},   {BPF_JMP | BPF_JEQ | BPF_K, 0, 2, SYS_pread64},
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, from},     {BPF_JMP | BPF_JEQ | BPF_K, 1, 0, offset},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}, {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EIO}};
  const sock_fprog program{static_cast<unsigned short>(std::size(code)), code};
  ASSERT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

class EmuMend : public EmuDeviceTest {
 protected:
  // Zone 0: nothing, 1: some, 2: all, 3: finished, 4: some since a reset, 5: reset, 6: some.
  void SetUp() override {
    create();
    auto device = open("?reclaim=never");
    ASSERT_NE(device, nullptr);
    Client client(*device);
    for (const std::uint32_t zone : {1u, 4u, 5u, 6u}) write_some(client, zone, zone);
    for (std::uint64_t i = 0; i < 384; i += 32) ASSERT_TRUE(client.write(2, i, 32, 2).ok());
    write_some(client, 3, 3);
    ASSERT_TRUE(client.manage(Io::Op::finish, 3).ok());
    for (const std::uint32_t zone : {4u, 5u}) {
      ASSERT_TRUE(client.manage(Io::Op::reset, zone).ok());
    }
    write_some(client, 4, 40);
    ASSERT_TRUE(client.flush().ok());
    layout_ = superblock();
  }
  static void write_some(Client& client, std::uint32_t zone, std::uint64_t seed) {
    for (std::uint64_t i = 0; i < 3; ++i) {
      ASSERT_TRUE(client.write(zone, 4 * i, 4, 10 * seed + i).ok());
    }
  }
  static void expect_some(Client& client, std::uint32_t zone, std::uint64_t seed) {
    for (std::uint64_t i = 0; i < 3; ++i) client.expect_data(zone, 4 * i, 4, 10 * seed + i);
  }
  static void expect_all(ZonedDevice& device) {
    Client client(device);
    for (const std::uint32_t zone : {1u, 3u, 6u}) expect_some(client, zone, zone);
    for (std::uint64_t i = 0; i < 384; i += 32) client.expect_data(2, i, 32, 2);
    expect_some(client, 4, 40);
  }

  std::uint64_t slot_at(unsigned copy, std::uint32_t zone) const {
    return layout_.table_offset[copy] + zone * 8;
  }
  bool is_whole(unsigned copy, std::uint32_t zone) {
    return emu::SlotCodec(layout_).decode(ZoneId{zone}, peek(slot_at(copy, zone))).has_value();
  }
  unsigned newest(std::uint32_t zone) {
    const emu::SlotCodec codec(layout_);
    const auto a = codec.decode(ZoneId{zone}, peek(slot_at(0, zone)));
    const auto b = codec.decode(ZoneId{zone}, peek(slot_at(1, zone)));
    return emu::SlotCodec::newer(*b, *a) ? 1u : 0u;
  }
  void flip(std::uint64_t offset) {
    const std::uint64_t damaged = peek(offset) ^ 0x4000;
    poke(offset, &damaged, 8);
  }
  std::string bytes() const {
    std::string all(layout_.end_offset(), '\0');
    std::ifstream(path_, std::ios::binary)
        .read(all.data(), static_cast<std::streamsize>(all.size()));
    return all;
  }
  void put_back(const std::string& all) { poke(0, all.data(), all.size()); }
  std::vector<std::string> told() {
    const auto device = open("", Access::check);
    return device == nullptr ? std::vector<std::string>{"does not open"} : device->damage();
  }
  static std::string states(ZonedDevice& device) {
    std::string all;
    for (const ZoneInfo& zone : *device.report()) {
      all += std::to_string(static_cast<int>(zone.state)) + "/" +
             std::to_string(zone.written_lbas) + " ";
    }
    return all;
  }
  // In a process of its own.
  static void in_child(const std::function<void()>& work) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      work();
      _exit(HasFailure() ? 1 : 0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }

  emu::Superblock layout_;
};

TEST_F(EmuMend, NothingIsToldOfAWholeDevice) {
  EXPECT_TRUE(told().empty());
  auto device = open();
  EXPECT_TRUE(device->mend().ok());
  expect_all(*device);
}

TEST_F(EmuMend, ASlotIsToldAndMended) {
  const std::string before = bytes();
  for (std::uint32_t zone = 0; zone < 7; ++zone) {
    for (unsigned copy = 0; copy < 2; ++copy) {
      SCOPED_TRACE("zone " + std::to_string(zone) + " copy " + std::to_string(copy));
      flip(slot_at(copy, zone));
      const std::string damaged = bytes();
      const auto lines = told();
      ASSERT_EQ(lines.size(), 1u);
      EXPECT_NE(lines[0].find("slot of zone " + std::to_string(zone) + " is damaged in copy " +
                              std::to_string(copy)),
                std::string::npos)
          << lines[0];
      EXPECT_TRUE(bytes() == damaged) << "a check wrote";
      std::string half;
      {
        auto device = open("?reclaim=never");
        half = states(*device);
        EXPECT_EQ(device->damage(), lines);
        const Status status = device->mend();
        ASSERT_TRUE(status.ok()) << status.describe();
        EXPECT_TRUE(device->damage().empty());
        EXPECT_EQ(states(*device), half);
      }
      EXPECT_TRUE(is_whole(0, zone) && is_whole(1, zone));
      EXPECT_TRUE(told().empty());
      {
        auto device = open("?reclaim=never");
        EXPECT_EQ(states(*device), half) << "mending took something away";
        expect_all(*device);
        // It goes on to work, and what it does next is what counts.
        Client client(*device);
        ASSERT_TRUE(client.manage(Io::Op::reset, zone).ok());
        write_some(client, zone, 50);
      }
      auto device = open("?reclaim=never");
      Client client(*device);
      expect_some(client, zone, 50);
      EXPECT_EQ((*device->report())[zone].written_lbas, 12u);
      device.reset();
      put_back(before);
    }
  }
}

// A page of the table has 512 slots: a line for each run of zones.
TEST_F(EmuMend, SlotsSideBySideAreALine) {
  for (const std::uint32_t zone : {0u, 1u, 2u, 5u}) flip(slot_at(1, zone));
  flip(slot_at(0, 3));
  const auto lines = told();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_NE(lines[0].find("slot of zone 3 is damaged in copy 0"), std::string::npos) << lines[0];
  EXPECT_NE(lines[1].find("slots of zones 0 to 2 are damaged in copy 1"), std::string::npos);
  EXPECT_NE(lines[2].find("slot of zone 5 is damaged in copy 1"), std::string::npos) << lines[2];
}

// With no whole copy there is nothing to mend it by: the zone is offline, and stays so.
TEST_F(EmuMend, BothSlotsAreNotMended) {
  flip(slot_at(0, 1));
  flip(slot_at(1, 1));
  EXPECT_TRUE(told().empty());
  auto device = open();
  EXPECT_TRUE(device->mend().ok());
  EXPECT_EQ((*device->report())[1].state, ZoneState::offline);
  EXPECT_FALSE(is_whole(0, 1) || is_whole(1, 1));
}

TEST_F(EmuMend, WhatWasStoredSinceIsLeftAlone) {
  flip(slot_at(newest(6) ^ 1, 6));
  flip(slot_at(newest(5), 5));
  {
    auto device = open("?reclaim=never");
    Client client(*device);
    ASSERT_TRUE(client.write(6, 12, 4, 70).ok());
    ASSERT_TRUE(client.manage(Io::Op::reset, 5).ok());
    ASSERT_TRUE(client.write(5, 0, 4, 80).ok());
    ASSERT_TRUE(device->mend().ok());
    ASSERT_TRUE(client.write(5, 4, 4, 81).ok());
  }
  auto device = open("?reclaim=never");
  EXPECT_TRUE(device->damage().empty());
  EXPECT_EQ((*device->report())[6].written_lbas, 16u);
  EXPECT_EQ((*device->report())[5].written_lbas, 8u);
  Client client(*device);
  client.expect_data(6, 12, 4, 70);
  client.expect_data(5, 0, 4, 80);
  client.expect_data(5, 4, 4, 81);
}

// --- errors ---

// The write fails at once, or in the middle of what counts, or behind that.
TEST_F(EmuMend, ASuperblockThatCannotBeWrittenIsAnErrorAndNoMore) {
  for (const std::uint64_t offset : {0u, 4096u}) {
    for (const std::uint64_t bytes_written : {0u, 256u, 512u}) {
      SCOPED_TRACE(std::to_string(bytes_written) + " bytes of the one at " +
                   std::to_string(offset));
      flip(offset + 64);
      auto device = open("?direct=0");
      {
        const FileSizeLimit limit(offset + bytes_written);
        const Status status = device->mend();
        EXPECT_EQ(status.code(), Code::io_error);
        EXPECT_NE(status.sys_errno(), 0) << "why is not said: " << status.describe();
      }
      EXPECT_EQ(device->damage().size(), 1u);
      EXPECT_TRUE(Client(*device).flush().ok());
      expect_all(*device);
      device.reset();
      device = open();
      ASSERT_NE(device, nullptr);
      expect_all(*device);
      const Status status = device->mend();
      ASSERT_TRUE(status.ok()) << status.describe();
      device.reset();
      EXPECT_TRUE(told().empty());
    }
  }
}

TEST_F(EmuMend, ASuperblockThatCannotBeReadIsToldAndWrittenAnew) {
  for (const std::uint32_t offset : {0u, 4096u}) {
    SCOPED_TRACE(offset);
    in_child([&] {
      refuse_reads_at(offset);
      auto device = open();
      ASSERT_NE(device, nullptr);
      const auto lines = device->damage();
      ASSERT_EQ(lines.size(), 1u);
      EXPECT_NE(lines[0].find("superblock at byte " + std::to_string(offset)), std::string::npos);
      EXPECT_TRUE(device->mend().ok());
      expect_all(*device);
    });
    EXPECT_TRUE(told().empty());
  }
}

TEST_F(EmuMend, WhatCannotBeMadeDurableIsAnErrorAndNoMore) {
  const std::string before = bytes();
  for (const std::uint64_t offset :
       {std::uint64_t{0}, std::uint64_t{4096}, slot_at(newest(6), 6)}) {
    SCOPED_TRACE(offset);
    flip(offset + (offset <= 4096 ? 64 : 0));
    in_child([&] {
      auto device = open("?reclaim=never");
      const auto lines = device->damage();
      refuse_syncs();
      EXPECT_EQ(device->mend().code(), Code::io_error);
      EXPECT_EQ(device->damage(), lines) << "what is not durable may still be damaged";
      EXPECT_EQ(device->mend().code(), Code::io_error);
      expect_all(*device);
    });
    auto device = open("?reclaim=never");
    ASSERT_NE(device, nullptr);
    expect_all(*device);
    ASSERT_TRUE(device->mend().ok());
    device.reset();
    EXPECT_TRUE(told().empty());
    put_back(before);
  }
}

// --- power cuts ---

// Any sectors of it, and a sector that is torn between any two words.
TEST_F(EmuMend, ACutInTheMiddleOfASuperblock) {
  const std::string before = bytes();
  for (const std::uint64_t offset : {0u, 4096u}) {
    std::string damaged = before;
    for (std::size_t at = offset; at < offset + 4096; ++at) damaged[at] ^= 0x55;
    put_back(damaged);
    { ASSERT_TRUE(open("?reclaim=never")->mend().ok()); }
    const std::string mended = bytes();
    EXPECT_TRUE(mended == before) << "nothing but what was damaged is written";
    for (std::size_t cut = 0; cut <= 4096; cut += cut < 512 ? 32 : 512) {
      for (const bool first_part : {true, false}) {
        std::string left = first_part ? damaged : mended;
        const std::string& other = first_part ? mended : damaged;
        left.replace(offset, cut, other, offset, cut);
        poke(offset, left.data() + offset, 4096);
        auto device = open();
        ASSERT_NE(device, nullptr) << cut;
        ASSERT_TRUE(device->mend().ok());
        device.reset();
        ASSERT_EQ(peek(offset + 64), peek((offset ^ 4096) + 64)) << cut;
        ASSERT_TRUE(told().empty()) << cut;
      }
    }
    auto device = open();
    expect_all(*device);
    device.reset();
    put_back(before);
  }
}

// Of several slots, any may have been stored and any not.
TEST_F(EmuMend, ACutBetweenSlots) {
  const std::string before = bytes();
  for (const std::uint32_t zone : {1u, 4u, 5u, 6u}) flip(slot_at(newest(zone), zone));
  const std::string damaged = bytes();
  std::string half;
  {
    auto device = open("?reclaim=never");
    half = states(*device);
    ASSERT_TRUE(device->mend().ok());
  }
  const std::string mended = bytes();
  for (unsigned survive = 0; survive < 16; ++survive) {
    std::string left = damaged;
    unsigned bit = 0;
    for (const std::uint32_t zone : {1u, 4u, 5u, 6u}) {
      if ((survive >> bit++ & 1) == 0) continue;
      for (unsigned copy = 0; copy < 2; ++copy) {
        left.replace(slot_at(copy, zone), 8, mended, slot_at(copy, zone), 8);
      }
    }
    put_back(left);
    auto device = open("?reclaim=never");
    ASSERT_NE(device, nullptr);
    EXPECT_EQ(states(*device), half) << survive;
    EXPECT_EQ(device->damage().empty(), survive == 15);
    expect_all(*device);
    ASSERT_TRUE(device->mend().ok());
    device.reset();
    EXPECT_TRUE(bytes() == mended) << survive;
  }
}

}  // namespace
}  // namespace furrow::test
