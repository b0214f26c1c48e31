// Establishes that ErrorLog keeps the last failures, newest first, whichever threads add them, and
// that KvListBuilder makes the payload of NVMe's List: keys padded to four bytes, none cut short,
// nothing written behind the host's buffer. How: each alone.
#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "transport/error_log.h"
#include "transport/kv_list.h"

namespace furrow::transport {
namespace {

nvme::Sqe command(std::uint16_t cid, std::uint8_t opcode = nvme::kv::kStore) {
  nvme::Sqe sqe;
  sqe.opc = opcode;
  sqe.cid = cid;
  sqe.nsid = 5;
  return sqe;
}

TEST(ErrorLog, UnusedEntriesAreZero) {
  const ErrorLog log;
  const auto entries = log.newest_first();
  ASSERT_EQ(entries.size(), ErrorLog::kEntries);
  for (const auto& entry : entries) EXPECT_EQ(entry.error_count, 0u);
  EXPECT_EQ(log.count(), 0u);
}

TEST(ErrorLog, KeepsTheLastOnesNewestFirst) {
  ErrorLog log;
  const std::uint32_t added = ErrorLog::kEntries + 10;
  for (std::uint32_t i = 1; i <= added; ++i) {
    log.add(command(static_cast<std::uint16_t>(i)), static_cast<std::uint16_t>(i % 4), 0x4002);
  }
  EXPECT_EQ(log.count(), added);
  const auto entries = log.newest_first();
  ASSERT_EQ(entries.size(), ErrorLog::kEntries);
  for (std::uint32_t i = 0; i < ErrorLog::kEntries; ++i) {
    EXPECT_EQ(entries[i].error_count, added - i);
    EXPECT_EQ(entries[i].cid, added - i);
    EXPECT_EQ(entries[i].sqid, (added - i) % 4);
    EXPECT_EQ(entries[i].status, 0x4002);
    EXPECT_EQ(entries[i].nsid, 5u);
    EXPECT_EQ(entries[i].trtype, nvme::kTrtypeTcp);
  }
}

// What stands where other commands have their namespace is the fabrics command's type.
TEST(ErrorLog, AFabricsCommandHasNoNamespace) {
  ErrorLog log;
  log.add(command(1, nvme::opcode::kFabrics), 0, 0x4002);
  EXPECT_EQ(log.newest_first()[0].nsid, 0u);
}

TEST(ErrorLog, QueuesOfSeveralThreads) {
  ErrorLog log;
  constexpr unsigned kEach = 2000;
  {
    std::vector<std::jthread> threads;
    for (std::uint16_t queue = 1; queue <= 3; ++queue) {
      threads.emplace_back([&log, queue] {
        for (std::uint16_t i = 0; i < kEach; ++i) log.add(command(i), queue, 0x4002);
      });
    }
    for (int i = 0; i < 100; ++i) {
      const auto entries = log.newest_first();
      for (std::size_t n = 1; n < entries.size() && entries[n].error_count != 0; ++n) {
        ASSERT_EQ(entries[n].error_count + 1, entries[n - 1].error_count);
      }
    }
  }
  EXPECT_EQ(log.count(), 3 * kEach);
}

// A request whose buffer ends exactly where the builder may write: the sanitizer guards its end.
class KvListTest : public ::testing::Test {
 protected:
  void begin(std::uint32_t payload_bytes) {
    memory_ = std::vector<std::byte>(KvListBuilder::buffer_bytes(payload_bytes), std::byte{0xEE});
    request_.buffer = memory_.data();
    request_.command.cdw10 = payload_bytes;
    KvListBuilder::begin(request_.buffer, payload_bytes);
  }
  std::uint32_t count() const {
    std::uint32_t value = 0;
    std::memcpy(&value, memory_.data(), sizeof value);
    return value;
  }
  std::vector<std::byte> memory_;
  Request request_;
};

TEST_F(KvListTest, AnEmptyListIsACountOfZero) {
  begin(KvListBuilder::kPayloadBytesMin);
  KvListBuilder builder(request_);
  EXPECT_FALSE(builder.add(Key::from("k")));
  EXPECT_EQ(builder.finish(), 4u);
  EXPECT_EQ(count(), 0u);
}

TEST_F(KvListTest, EntriesArePaddedToFourBytes) {
  EXPECT_EQ(KvListBuilder::entry_bytes(Key::from("1")), 4u);
  EXPECT_EQ(KvListBuilder::entry_bytes(Key::from("12")), 4u);
  EXPECT_EQ(KvListBuilder::entry_bytes(Key::from("123")), 8u);
  EXPECT_EQ(KvListBuilder::entry_bytes(Key::from("1234567890123456")), 20u);
  begin(64);
  KvListBuilder builder(request_);
  for (const char* text : {"a", "abc", "abcd"}) EXPECT_TRUE(builder.add(Key::from(text)));
  ASSERT_EQ(builder.finish(), 4u + 4 + 8 + 8);
  EXPECT_EQ(count(), 3u);
  const char expected[] = "\x03\0\0\0\x01\0a\0\x03\0abc\0\0\0\x04\0abcd\0";
  EXPECT_EQ(std::memcmp(memory_.data(), expected, 24), 0);
}

TEST_F(KvListTest, AKeyThatDoesNotFitIsLeftOutWhole) {
  begin(4 + 8 + 7);  // one key of three bytes, and nearly another
  KvListBuilder builder(request_);
  EXPECT_TRUE(builder.add(Key::from("abc")));
  EXPECT_FALSE(builder.add(Key::from("abc")));
  EXPECT_TRUE(builder.add(Key::from("ab"))) << "a shorter one has room";
  EXPECT_EQ(builder.finish(), 16u);
  EXPECT_EQ(memory_[16], std::byte{0xEE}) << "nothing behind the last entry";
}

// What the engine lends the keys' memory for lies behind the payload, and survives it.
TEST_F(KvListTest, TakesTheKeysThatAnOperationReturned) {
  const std::uint32_t payload = 4 + 20 * KvListBuilder::kKeysAtATime;
  begin(payload);
  PageOp op;
  {
    const KvListBuilder builder(request_);
    builder.lend_keys(op);
  }
  ASSERT_EQ(op.keys_max, KvListBuilder::kKeysAtATime);
  EXPECT_GE(reinterpret_cast<std::byte*>(op.keys), memory_.data() + payload);
  EXPECT_LE(reinterpret_cast<std::byte*>(op.keys + op.keys_max), memory_.data() + memory_.size());
  for (std::uint32_t i = 0; i < op.keys_max; ++i) op.keys[i] = Key::from("1234567890123456");
  op.keys_count = op.keys_max;
  KvListBuilder builder(request_);
  EXPECT_TRUE(builder.add_all(op)) << "there may be more";
  EXPECT_FALSE(builder.add(Key::from("k"))) << "it is full to the byte";
  EXPECT_EQ(builder.finish(), payload);
  op.keys_count = 0;
  EXPECT_FALSE(builder.add_all(op)) << "none is the end";
}

}  // namespace
}  // namespace furrow::transport
