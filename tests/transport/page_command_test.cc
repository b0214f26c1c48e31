// Establishes how a page operation becomes a Key Value command, field by field as the specification
// has them, and how each answer becomes its result again: every status of the Key Value Command Set
// and those of any command set that a host may meet, lists, values that are longer or shorter than
// they say. How: commands without a queue; lists are made by the target's own builder, and by hand
// where they lie.
#include "transport/page_command.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "transport/kv_list.h"

namespace furrow::transport {
namespace {

using Kind = PageOp::Kind;
using Condition = PageOp::Condition;

constexpr PageLimits kLimits{.nsid = 7, .value_bytes_max = 40000, .transfer_bytes_max = 65536};

PageOp op_of(Kind kind, std::string_view key = "k") {
  static std::byte memory[100];
  PageOp op;
  op.kind = kind;
  if (!key.empty()) op.key = Key::from(key);
  op.data = memory;
  op.length = op.capacity = sizeof memory;
  return op;
}
HostCommand encoded(PageOp& op, bool flush = false) {
  HostCommand command;
  EXPECT_TRUE(encode_page_op(op, kLimits, flush, command));
  return command;
}
std::string key_in(const nvme::Sqe& sqe) {
  char bytes[16];
  std::memcpy(bytes, &sqe.cdw2, 4);
  std::memcpy(bytes + 4, &sqe.cdw3, 4);
  std::memcpy(bytes + 8, &sqe.cdw14, 4);
  std::memcpy(bytes + 12, &sqe.cdw15, 4);
  return {bytes, sqe.cdw11 & 0xff};
}

TEST(PageCommand, OpcodesKeysAndData) {
  struct Expected {
    Kind kind;
    std::uint8_t opcode;
    HostCommand::Direction direction;
  };
  for (const Expected& expected : {Expected{Kind::put, 0x01, HostCommand::Direction::to_target},
                                   Expected{Kind::get, 0x02, HostCommand::Direction::from_target},
                                   Expected{Kind::remove, 0x10, HostCommand::Direction::none},
                                   Expected{Kind::exist, 0x14, HostCommand::Direction::none}}) {
    for (const std::string key : {"k", "eight by", "nine byte", "sixteen bytes!!!"}) {
      PageOp op = op_of(expected.kind, key);
      const HostCommand command = encoded(op);
      EXPECT_EQ(command.sqe.opc, expected.opcode);
      EXPECT_EQ(command.sqe.nsid, kLimits.nsid);
      EXPECT_EQ(key_in(command.sqe), key);
      EXPECT_EQ(command.sqe.cdw11 >> 8, 0u) << "no options";
      EXPECT_EQ(command.sqe.cdw12, 0u);
      EXPECT_EQ(command.sqe.cdw13, 0u);
      EXPECT_EQ(command.direction, expected.direction);
      const bool data = expected.direction != HostCommand::Direction::none;
      EXPECT_EQ(command.data, data ? op.data : nullptr);
      EXPECT_EQ(command.data_bytes, data ? 100u : 0u);
      EXPECT_EQ(command.sqe.cdw10, data ? 100u : 0u);
    }
  }
}

TEST(PageCommand, StoreOptions) {
  PageOp op = op_of(Kind::put);
  op.condition = Condition::if_exists;
  EXPECT_EQ(encoded(op).sqe.cdw11, 1u << 8 | 1);
  op.condition = Condition::if_absent;
  EXPECT_EQ(encoded(op).sqe.cdw11, 2u << 8 | 1);
}

TEST(PageCommand, AFlushNamesNoKey) {
  PageOp put = op_of(Kind::put), flush = op_of(Kind::flush, "");
  for (const nvme::Sqe& sqe : {encoded(put, true).sqe, encoded(flush).sqe}) {
    EXPECT_EQ(sqe.opc, 0x00);
    EXPECT_EQ(sqe.nsid, kLimits.nsid);
    EXPECT_EQ(sqe.cdw10 | sqe.cdw11 | sqe.cdw2, 0u);
  }
}

TEST(PageCommand, NoTransferIsLongerThanTheTargetTakes) {
  PageOp get = op_of(Kind::get);
  get.capacity = 1u << 30;
  EXPECT_EQ(encoded(get).data_bytes, kLimits.transfer_bytes_max);
  PageOp list = op_of(Kind::list, "");
  list.keys_max = 1u << 30;
  EXPECT_EQ(encoded(list).data_bytes, kLimits.transfer_bytes_max);
  free_list_memory(list);
}

TEST(PageCommand, WhatCannotBeSent) {
  const auto expect = [](Code code, PageOp op, auto&& change) {
    change(op);
    EXPECT_EQ(check_page_op(op, kLimits).code(), code)
        << static_cast<int>(op.kind) << ' ' << op.length;
  };
  for (const Kind kind : {Kind::put, Kind::get, Kind::remove, Kind::exist}) {
    expect(Code::ok, op_of(kind), [](PageOp&) {});
    expect(Code::invalid_argument, op_of(kind, ""), [](PageOp&) {});
    expect(Code::invalid_argument, op_of(kind), [](PageOp& op) { op.key.length = 17; });
  }
  for (const Kind kind : {Kind::pin, Kind::unpin, Kind::remove_group, Kind::get_range}) {
    expect(Code::unsupported, op_of(kind), [](PageOp&) {});
  }
  expect(Code::unsupported, op_of(Kind::put), [](PageOp& op) { op.ttl_s = 1; });
  expect(Code::unsupported, op_of(Kind::put), [](PageOp& op) { op.group = 1; });
  expect(Code::unsupported, op_of(Kind::put), [](PageOp& op) { op.pinned = true; });
  expect(Code::unsupported, op_of(Kind::exist), [](PageOp& op) { op.whole_record = true; });
  expect(Code::invalid_argument, op_of(Kind::put), [](PageOp& op) { op.length = 0; });
  expect(Code::ok, op_of(Kind::put), [](PageOp& op) { op.length = 40000; });
  expect(Code::too_large, op_of(Kind::put), [](PageOp& op) { op.length = 40001; });
  expect(Code::ok, op_of(Kind::list, ""), [](PageOp& op) { op.keys_max = 1; });
  expect(Code::invalid_argument, op_of(Kind::list, ""), [](PageOp&) {});
  expect(Code::ok, op_of(Kind::flush, ""), [](PageOp&) {});
}

TEST(PageCommand, EveryStatusSaysWhatHappened) {
  struct Expected {
    std::uint16_t status;
    Code code;
    bool again = false;  // unless DNR is set
  };
  constexpr Expected kExpected[] = {
      {0x000, Code::ok},
      // Generic.
      {0x001, Code::unsupported},
      {0x002, Code::io_error},
      {0x004, Code::io_error},
      {0x006, Code::io_error},
      {0x007, Code::aborted},
      {0x008, Code::aborted},
      {0x00B, Code::not_found},
      {0x020, Code::io_error},
      {0x021, Code::busy, true},
      {0x022, Code::busy, true},
      // Key Value Command Set.
      {0x081, Code::no_space},
      {0x082, Code::busy, true},
      {0x083, Code::in_use},
      {0x084, Code::busy, true},
      {0x085, Code::invalid_argument},
      {0x086, Code::invalid_argument},
      {0x087, Code::not_found},
      {0x088, Code::corrupt},
      {0x089, Code::exists},
      // Of a path, of the vendor, and whatever else.
      {0x303, Code::io_error},
      {0x7C1, Code::io_error},
      {0x0FF, Code::io_error},
  };
  for (const Expected& expected : kExpected) {
    for (const bool dnr : {false, true}) {
      PageOp op = op_of(Kind::exist);
      HostCommand command = encoded(op);
      command.cqe.set_status(expected.status, dnr);
      const Status status = decode_page_answer(op, command);
      const bool final = expected.again && dnr && expected.status < 0x080;
      EXPECT_EQ(status.code(), final ? Code::io_error : expected.code)
          << std::hex << expected.status << (dnr ? " dnr" : "");
      EXPECT_EQ(status.nvme(), expected.status);
      EXPECT_NE(status.ok(), std::strlen(status.hint()) != 0);
      EXPECT_EQ(may_succeed_later(status, command.cqe), expected.again && !dnr)
          << std::hex << expected.status;
    }
  }
}

TEST(PageCommand, AFlushThatFailsIsNoDamagedPage) {
  PageOp op = op_of(Kind::flush);
  HostCommand command = encoded(op);
  command.cqe.set_status(nvme::sc::kUnrecovered, true);
  const Status status = decode_page_answer(op, command);
  EXPECT_EQ(status.code(), Code::io_error);
  EXPECT_EQ(status.nvme(), nvme::sc::kUnrecovered);
}

TEST(PageCommand, AValueIsAsLongAsItsAnswerSays) {
  struct Case {
    std::uint32_t announced, received;
    Code code;
  };
  for (const Case& one : {Case{100, 100, Code::ok}, Case{50, 50, Code::ok},
                          Case{5000, 100, Code::ok}, Case{100, 99, Code::protocol},
                          Case{5000, 99, Code::protocol}, Case{50, 100, Code::protocol}}) {
    PageOp op = op_of(Kind::get);
    HostCommand command = encoded(op);
    command.cqe.dw0 = one.announced;
    command.received_bytes = one.received;
    EXPECT_EQ(decode_page_answer(op, command).code(), one.code) << one.announced;
    EXPECT_EQ(op.length, one.code == Code::ok ? one.announced : 100);
  }
}

// What did not come is not taken for what is in the caller's memory.
TEST(PageCommand, AValueLongerThanATransferIsNotThere) {
  for (const std::uint32_t more : {0u, 1u}) {
    PageOp op = op_of(Kind::get);
    op.capacity = 2 * kLimits.transfer_bytes_max;
    HostCommand command = encoded(op);
    command.received_bytes = kLimits.transfer_bytes_max;
    command.cqe.dw0 = kLimits.transfer_bytes_max + more;
    EXPECT_EQ(decode_page_answer(op, command).code(), more == 0 ? Code::ok : Code::protocol);
  }
}

// A List as the target answers it, of so many keys.
struct List {
  std::vector<Key> keys = std::vector<Key>(64);
  PageOp op = op_of(Kind::list, "");
  HostCommand command;

  explicit List(std::uint32_t keys_max) {
    op.keys = keys.data();
    op.keys_max = keys_max;
    command = encoded(op);
  }
  ~List() { free_list_memory(op); }
  void answer(const std::vector<std::string>& names) {
    const std::uint32_t bytes = command.sqe.cdw10;
    std::vector<std::byte> buffer(KvListBuilder::buffer_bytes(bytes));
    KvListBuilder::begin(buffer.data(), bytes);
    Request request;
    request.buffer = buffer.data();
    request.command = command.sqe;
    KvListBuilder builder(request);
    for (const std::string& name : names) ASSERT_TRUE(builder.add(Key::from(name)));
    command.received_bytes = builder.finish();
    std::memcpy(command.data, buffer.data(), command.received_bytes);
  }
  // Of these bytes.
  Code lie(const std::vector<unsigned char>& bytes) {
    std::ranges::copy(std::as_bytes(std::span(bytes)), command.data);
    command.received_bytes = static_cast<std::uint32_t>(bytes.size());
    return decode_page_answer(op, command).code();
  }
  std::vector<std::string> found() const {
    std::vector<std::string> names;
    for (std::uint32_t i = 0; i < op.keys_count; ++i) {
      names.emplace_back(reinterpret_cast<const char*>(keys[i].bytes.data()), keys[i].length);
    }
    return names;
  }
};

// It may go by another association, whose transfers may be longer.
TEST(PageCommand, AListThatIsSentAgainHasTheMemoryThatItAsksFor) {
  PageOp op = op_of(Kind::list, "");
  op.keys_max = 1u << 20;
  PageLimits limits = kLimits;
  for (const std::uint32_t bytes : {4096u, 1u << 20, 4096u}) {
    limits.transfer_bytes_max = bytes;
    HostCommand command;
    EXPECT_TRUE(encode_page_op(op, limits, false, command));
    EXPECT_EQ(command.data_bytes, bytes);
    EXPECT_GE(malloc_usable_size(command.data), command.data_bytes);
  }
  free_list_memory(op);
}

TEST(PageCommand, AListIsReadAsItWasMade) {
  std::vector<std::string> names;
  for (std::size_t length = 1; length <= Key::kBytesMax; ++length) {
    names.emplace_back(length, static_cast<char>('a' + length));
  }
  List list(20);
  list.answer(names);
  EXPECT_TRUE(decode_page_answer(list.op, list.command).ok());
  EXPECT_EQ(list.found(), names);
}

TEST(PageCommand, AListRepeatsTheKeyThatItStartsFrom) {
  List list(3);
  list.op.key = Key::from("b");
  list.answer({"b", "c", "d", "e"});
  EXPECT_TRUE(decode_page_answer(list.op, list.command).ok());
  EXPECT_EQ(list.found(), (std::vector<std::string>{"c", "d", "e"}));
}

TEST(PageCommand, AListHasNoMoreKeysThanWereAskedFor) {
  List list(2);
  list.answer({"a", "b", "c"});
  EXPECT_TRUE(decode_page_answer(list.op, list.command).ok());
  EXPECT_EQ(list.found(), (std::vector<std::string>{"a", "b"}));
}

TEST(PageCommand, AListThatLies) {
  EXPECT_EQ(List(8).lie({0, 0, 0, 0}), Code::ok);
  EXPECT_EQ(List(8).lie({1, 0, 0, 0, 1, 0, 'a', 0}), Code::ok);
  EXPECT_EQ(List(8).lie({1, 0, 0, 0, 1, 0, 'a'}), Code::ok) << "the last needs no padding";
  EXPECT_EQ(List(8).lie({}), Code::protocol);
  EXPECT_EQ(List(8).lie({0, 0, 0}), Code::protocol);
  EXPECT_EQ(List(8).lie({1, 0, 0, 0}), Code::protocol) << "a key that is not there";
  EXPECT_EQ(List(8).lie({1, 0, 0, 0, 1}), Code::protocol);
  EXPECT_EQ(List(8).lie({1, 0, 0, 0, 2, 0, 'a'}), Code::protocol);
  EXPECT_EQ(List(8).lie({1, 0, 0, 0, 0, 0, 0, 0}), Code::protocol) << "a key of no bytes";
  EXPECT_EQ(List(8).lie({1, 0, 0, 0, 17, 0, 'a', 'b'}), Code::protocol);
  EXPECT_EQ(List(8).lie({2, 0, 0, 0, 1, 0, 'a', 0}), Code::protocol);
  EXPECT_EQ(List(8).lie({255, 255, 255, 255, 1, 0, 'a', 0}), Code::protocol);
}

TEST(PageCommand, WhatMayBeSentTwice) {
  for (const Kind kind : {Kind::get, Kind::exist, Kind::list, Kind::remove, Kind::put}) {
    EXPECT_TRUE(is_idempotent(op_of(kind)));
  }
  PageOp put = op_of(Kind::put);
  put.condition = Condition::if_absent;
  EXPECT_FALSE(is_idempotent(put));
  put.condition = Condition::if_exists;
  EXPECT_FALSE(is_idempotent(put));
  EXPECT_FALSE(is_idempotent(op_of(Kind::flush))) << "it would vouch for another association's";
}

TEST(PageCommand, WhatAFlushFollows) {
  for (const Kind kind : {Kind::put, Kind::remove, Kind::get, Kind::exist, Kind::flush}) {
    PageOp op = op_of(kind);
    EXPECT_FALSE(needs_flush(op));
    op.durability = Durability::flushed;
    EXPECT_EQ(needs_flush(op), kind == Kind::put || kind == Kind::remove);
    EXPECT_EQ(changes_pages(op), kind == Kind::put || kind == Kind::remove);
  }
}

}  // namespace
}  // namespace furrow::transport
