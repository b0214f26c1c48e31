// Establishes the Key Value command set but for List: each command's effect, every option against a
// present and an absent key, every check and the status of every failure of the engine. How: a host
// without a wire on an I/O queue that lives on another reactor than its admin queue, over a store
// that is a map and can fail on request.
#include <gtest/gtest.h>

#include "kv_host.h"

namespace furrow::test {
namespace {

TEST(Kv, AValueComesBackAsItWas) {
  Kv kv;
  for (const std::size_t bytes : {1u, 511u, 4096u, 4097u, 16384u, 65536u, 300'000u, 1u << 20}) {
    const Bytes value = pattern(bytes, static_cast<unsigned>(bytes));
    ASSERT_EQ(kv.store("key", value)->status(), sc::kSuccess) << bytes;
    const auto got = kv.retrieve("key", 1u << 20);
    ASSERT_EQ(got->status(), sc::kSuccess) << bytes;
    EXPECT_EQ(got->cqe.dw0, bytes);
    EXPECT_EQ(got->in, value);
  }
}

TEST(Kv, KeysOfEveryLength) {
  Kv kv;
  const std::string longest = "0123456789abcdef";
  for (std::size_t length = 1; length <= 16; ++length) {
    ASSERT_EQ(kv.store(longest.substr(0, length), pattern(length))->status(), sc::kSuccess);
  }
  for (std::size_t length = 1; length <= 16; ++length) {
    EXPECT_EQ(kv.retrieve(longest.substr(0, length), 64)->in, pattern(length)) << length;
  }
  EXPECT_EQ(kv.pages().usage().pages, 16u);
  // What the fields hold behind the key's length does not matter.
  nv::Sqe noisy = Kv::command(nv::kv::kExist, "0123");
  noisy.cdw3 = noisy.cdw14 = noisy.cdw15 = 0xFFFFFFFF;
  EXPECT_EQ(kv.call(kv.queue, noisy)->status(), sc::kSuccess);
}

TEST(Kv, AShortHostBufferGetsTheBeginningAndTheTrueLength) {
  Kv kv;
  const Bytes value = pattern(5000);
  kv.store("k", value);
  const auto part = kv.retrieve("k", 100);
  EXPECT_EQ(part->status(), sc::kSuccess);
  EXPECT_EQ(part->cqe.dw0, 5000u);
  EXPECT_EQ(part->in, Bytes(value.begin(), value.begin() + 100));
  const auto none = kv.retrieve("k", 0);
  EXPECT_EQ(none->status(), sc::kSuccess);
  EXPECT_EQ(none->cqe.dw0, 5000u);
  EXPECT_TRUE(none->in.empty());
}

TEST(Kv, StoreOptionsAgainstPresence) {
  struct Row {
    std::uint8_t options;
    bool present;
    std::uint16_t status;
    bool written;
  };
  const Row rows[] = {
      {0, false, sc::kSuccess, true},
      {0, true, sc::kSuccess, true},
      {nv::kv::kStoreIfExists, false, sc::kKeyNotFound, false},
      {nv::kv::kStoreIfExists, true, sc::kSuccess, true},
      {nv::kv::kStoreIfAbsent, false, sc::kSuccess, true},
      {nv::kv::kStoreIfAbsent, true, sc::kKeyExists, false},
      {nv::kv::kStoreNoCompress, false, sc::kSuccess, true},
      {nv::kv::kStoreNoCompress | nv::kv::kStoreIfAbsent, true, sc::kKeyExists, false},
      {nv::kv::kStoreIfExists | nv::kv::kStoreIfAbsent, false, sc::kInvalidField, false},
      {nv::kv::kStoreIfExists | nv::kv::kStoreIfAbsent, true, sc::kInvalidField, false},
      {0x08, false, sc::kInvalidField, false},
      {0x80, true, sc::kInvalidField, false},
  };
  Kv kv;
  int number = 0;
  for (const Row& row : rows) {
    const std::string key = "row" + std::to_string(number++);
    if (row.present) {
      ASSERT_EQ(kv.store(key, pattern(10, 1))->status(), sc::kSuccess);
    }
    EXPECT_EQ(kv.store(key, pattern(20, 2), row.options)->status(), row.status) << key;
    const auto got = kv.retrieve(key, 100);
    if (row.written) {
      EXPECT_EQ(got->in, pattern(20, 2)) << key;
    } else if (row.present) {
      EXPECT_EQ(got->in, pattern(10, 1)) << key;
    } else {
      EXPECT_EQ(got->status(), sc::kKeyNotFound) << key;
    }
  }
}

TEST(Kv, OptionsOfTheOtherCommands) {
  Kv kv;
  kv.store("k", pattern(10));
  EXPECT_EQ(kv.retrieve("k", 100, nv::kv::kRetrieveRaw)->status(), sc::kSuccess);
  EXPECT_EQ(kv.retrieve("k", 100, 2)->status(), sc::kInvalidField);
  for (const std::uint8_t opcode : {nv::kv::kExist, nv::kv::kDelete}) {
    EXPECT_EQ(kv.call(kv.queue, Kv::command(opcode, "k", 0, 1))->status(), sc::kInvalidField);
  }
  EXPECT_EQ(kv.call(kv.queue, Kv::command(nv::kv::kList, "k", 64, 1), {}, 64)->status(),
            sc::kInvalidField);
}

TEST(Kv, AbsentKeys) {
  Kv kv;
  EXPECT_EQ(kv.retrieve("k", 100)->status(), sc::kKeyNotFound);
  EXPECT_EQ(kv.simple(nv::kv::kExist, "k")->status(), sc::kKeyNotFound);
  EXPECT_EQ(kv.simple(nv::kv::kDelete, "k")->status(), sc::kSuccess) << "EDNEK is clear";
  kv.set_feature(kv.admin_queue, nv::fid::kKvConfig, 1, 1);
  EXPECT_EQ(kv.simple(nv::kv::kDelete, "k")->status(), sc::kKeyNotFound) << "EDNEK is set";
  kv.store("k", pattern(10));
  EXPECT_EQ(kv.simple(nv::kv::kExist, "k")->status(), sc::kSuccess);
  EXPECT_EQ(kv.simple(nv::kv::kDelete, "k")->status(), sc::kSuccess);
  EXPECT_EQ(kv.simple(nv::kv::kExist, "k")->status(), sc::kKeyNotFound);
  EXPECT_EQ(kv.subsystem->stats().commands_failed, 0u) << "absence is an answer, no failure";
}

TEST(Kv, KeyLengthsOnEveryCommand) {
  Kv kv;
  const std::string too_long = "0123456789abcdefg";
  for (const std::string& key : {std::string(), too_long}) {
    EXPECT_EQ(kv.store(key, pattern(10))->status(), sc::kInvalidKeySize);
    EXPECT_EQ(kv.retrieve(key, 100)->status(), sc::kInvalidKeySize);
    EXPECT_EQ(kv.simple(nv::kv::kExist, key)->status(), sc::kInvalidKeySize);
    EXPECT_EQ(kv.simple(nv::kv::kDelete, key)->status(), sc::kInvalidKeySize);
  }
  EXPECT_EQ(kv.list(too_long, 64)->status(), sc::kInvalidKeySize);
  EXPECT_EQ(kv.list("", 64)->status(), sc::kSuccess) << "List: from the beginning";
  EXPECT_EQ(kv.pages().operations, 1u);
}

TEST(Kv, ValueLengths) {
  VolumeOptions small;
  small.name = "small";
  small.nsid = 2;
  small.value_bytes_max = 8192;
  Kv kv;
  ASSERT_TRUE(kv.pool.create_volume(small).ok());
  kv.subsystem->namespaces_changed();
  kv.run();
  const auto store = [&](std::uint32_t nsid, std::uint32_t length, std::uint32_t data_bytes) {
    return kv.call(kv.queue, Kv::command(nv::kv::kStore, "k", length, 0, nsid), Bytes(data_bytes),
                   data_bytes);
  };
  EXPECT_EQ(store(1, 0, 0)->status(), sc::kInvalidValueSize);
  EXPECT_EQ(store(1, 0, 4096)->status(), sc::kInvalidValueSize);
  EXPECT_EQ(store(2, 8193, 8193)->status(), sc::kInvalidValueSize);
  EXPECT_EQ(store(2, 8192, 8192)->status(), sc::kSuccess);
  EXPECT_EQ(store(1, (1u << 20) + 1, 1u << 20)->status(), sc::kInvalidValueSize);
  EXPECT_EQ(store(1, 0xFFFFFFFF, 4096)->status(), sc::kInvalidValueSize);
  EXPECT_EQ(store(1, 4096, (1u << 20) + 4)->status(), sc::kInvalidField) << "MDTS";
  EXPECT_EQ(store(1, 4097, 4096)->status(), sc::kDataSglLengthInvalid);
  // The buffer may be rounded up; the value is as long as CDW10 says.
  EXPECT_EQ(store(1, 100, 4096)->status(), sc::kSuccess);
  EXPECT_EQ(kv.retrieve("k", 4096)->cqe.dw0, 100u);
  EXPECT_EQ(kv.call(kv.queue, Kv::command(nv::kv::kRetrieve, "k", 4096), {}, 2048)->status(),
            sc::kDataSglLengthInvalid);
  EXPECT_EQ(
      kv.call(kv.queue, Kv::command(nv::kv::kRetrieve, "k", 2u << 20), {}, 2u << 20)->status(),
      sc::kInvalidField);
}

TEST(Kv, NamespacesOpcodesAndFlags) {
  Kv kv;
  for (const std::uint32_t nsid : {0u, 2u, 1024u, 1025u, 0x80000000u, nv::kNsidAll}) {
    EXPECT_EQ(kv.call(kv.queue, Kv::command(nv::kv::kExist, "k", 0, 0, nsid))->status(),
              sc::kInvalidNamespaceOrFormat);
    EXPECT_EQ(kv.call(kv.queue, Kv::command(nv::kv::kFlush, "", 0, 0, nsid))->status(),
              sc::kInvalidNamespaceOrFormat);
  }
  for (const std::uint8_t opcode : {0x05, 0x09, 0x0C, 0x0F, 0x12, 0x19, 0x7D, 0x80, 0xFF}) {
    EXPECT_EQ(kv.simple(opcode, "k")->status(), sc::kInvalidOpcode) << int{opcode};
  }
  nv::Sqe fused = Kv::command(nv::kv::kExist, "k");
  fused.flags |= 1;
  EXPECT_EQ(kv.call(kv.queue, fused)->status(), sc::kInvalidField);
  nv::Sqe prp = Kv::command(nv::kv::kExist, "k");
  prp.flags = 0;
  EXPECT_EQ(kv.call(kv.queue, prp)->status(), sc::kInvalidField);
}

TEST(Kv, SglDescriptors) {
  Kv kv;
  nv::Sqe store = Kv::command(nv::kv::kStore, "k", 4);
  const Bytes value = pattern(4);
  store.sgl_type = nv::kSglInCapsule;
  EXPECT_EQ(kv.call(kv.queue, store, value, 4, true)->status(), sc::kSuccess);
  EXPECT_EQ(kv.call(kv.queue, store, value, 4, false)->status(), sc::kDataSglLengthInvalid);
  store.sgl_address = 4;
  EXPECT_EQ(kv.call(kv.queue, store, value, 4, true)->status(), sc::kSglOffsetInvalid);
  store.sgl_address = 0;
  for (const std::uint8_t type : {0x00, 0x40, 0x4F, 0x20, 0x30}) {
    store.sgl_type = type;
    EXPECT_EQ(kv.call(kv.queue, store, value, 4)->status(), sc::kSglTypeInvalid) << int{type};
  }
  EXPECT_EQ(kv.pages().operations, 1u);
}

// A capsule carries data to the target only: a read that names it has nowhere to put its answer.
TEST(Kv, ReadsDoNotTakeAnSglInTheCapsule) {
  Kv kv;
  ASSERT_EQ(kv.store("k", pattern(100))->status(), sc::kSuccess);
  for (const std::uint8_t opcode : {nv::kv::kRetrieve, nv::kv::kList}) {
    nv::Sqe read = Kv::command(opcode, "k", 100);
    read.sgl_type = nv::kSglInCapsule;
    const auto refused = kv.call(kv.queue, read, Bytes(100), 100, true);
    EXPECT_EQ(refused->status(), sc::kSglTypeInvalid) << int{opcode};
    EXPECT_TRUE(refused->in.empty());
  }
}

TEST(Kv, FailuresOfTheEngine) {
  struct Row {
    Code code;
    std::uint16_t on_store, on_retrieve;
    bool dnr;
  };
  const Row rows[] = {
      {Code::no_space, sc::kCapacityExceeded, sc::kCapacityExceeded, false},
      {Code::corrupt, sc::kUnrecovered, sc::kUnrecovered, true},
      {Code::io_error, sc::kInternalError, sc::kUnrecovered, false},
      {Code::too_large, sc::kInvalidValueSize, sc::kInvalidValueSize, true},
      {Code::busy, sc::kNamespaceNotReady, sc::kNamespaceNotReady, false},
      {Code::late, sc::kNamespaceNotReady, sc::kNamespaceNotReady, false},
      {Code::aborted, sc::kAbortRequested, sc::kAbortRequested, false},
      {Code::unsupported, sc::kInternalError, sc::kInternalError, false},
  };
  Kv kv;
  kv.store("k", pattern(10));
  for (const Row& row : rows) {
    const Status failure(row.code, Origin::engine, "asked for");
    kv.pages().next_failure = failure;
    const auto stored = kv.store("k", pattern(10));
    EXPECT_EQ(stored->status(), row.on_store) << to_string(row.code);
    EXPECT_EQ(stored->cqe.dnr(), row.dnr) << to_string(row.code);
    kv.pages().next_failure = failure;
    const auto got = kv.retrieve("k", 100);
    EXPECT_EQ(got->status(), row.on_retrieve) << to_string(row.code);
    EXPECT_TRUE(got->in.empty()) << "nothing of a failed page may leave";
    kv.pages().next_failure = failure;
    EXPECT_NE(kv.list("k", 100)->status(), sc::kSuccess);
    kv.pages().next_failure = failure;
    EXPECT_NE(kv.simple(nv::kv::kFlush, "")->status(), sc::kSuccess);
  }
  EXPECT_EQ(kv.subsystem->stats().host_writes, 1u);
  EXPECT_EQ(kv.subsystem->stats().commands_failed, 4 * std::size(rows));
}

TEST(Kv, LostDataIsNotStored) {
  Kv kv;
  kv.queue.pull_status = Status(Code::corrupt, Origin::transport, "data digest");
  const auto lost = kv.store("k", pattern(10));
  EXPECT_EQ(lost->status(), sc::kTransientTransportError);
  EXPECT_FALSE(lost->cqe.dnr());
  EXPECT_EQ(kv.pages().operations, 0u);
}

TEST(Kv, DataThatArrivesAfterTheEndIsNotStored) {
  Kv kv;
  kv.queue.hold_pulls = true;
  kv.queue.stuck = true;  // told to close, and still there
  const auto late = kv.store("k", pattern(10));
  kv.admin_queue.disconnect();
  kv.run();
  EXPECT_TRUE(kv.queue.close_asked);
  kv.queue.release_pulls();
  kv.run();
  EXPECT_EQ(late->status(), sc::kAbortedSqDeletion);
  EXPECT_EQ(kv.pages().operations, 0u);
  kv.queue.stuck = false;
  kv.run();
  EXPECT_EQ(kv.subsystem->stats().controllers, 0u);
}

TEST(Kv, DurabilityFollowsTheWriteCacheFeature) {
  Kv kv;
  kv.store("k", pattern(10));
  EXPECT_EQ(kv.pages().last_durability, Durability::none);
  kv.set_feature(kv.admin_queue, nv::fid::kVolatileWriteCache, 0);
  EXPECT_EQ(kv.get_feature(kv.admin_queue, nv::fid::kVolatileWriteCache)->cqe.dw0, 0u);
  EXPECT_EQ(kv.pages().flushes, 1u) << "what was stored before is durable now, too";
  kv.store("k", pattern(10));
  EXPECT_EQ(kv.pages().last_durability, Durability::flushed);
  kv.simple(nv::kv::kDelete, "k");
  EXPECT_EQ(kv.pages().last_durability, Durability::flushed);
  EXPECT_EQ(kv.simple(nv::kv::kFlush, "")->status(), sc::kSuccess);
  EXPECT_EQ(kv.pages().flushes, 2u);
}

TEST(Kv, TheWriteCacheIsOffWhenWhatWasStoredIsDurable) {
  Kv kv;
  kv.store("k", pattern(10));
  kv.pages().hold = true;
  const auto off = kv.set_feature(kv.admin_queue, nv::fid::kVolatileWriteCache, 0);
  const auto again = kv.set_feature(kv.admin_queue, nv::fid::kVolatileWriteCache, 0);
  EXPECT_FALSE(off->done);
  EXPECT_FALSE(again->done) << "nothing was flushed yet";
  kv.pages().hold = false;
  kv.run();
  EXPECT_EQ(off->status(), sc::kSuccess);
  EXPECT_EQ(again->status(), sc::kSuccess);
}

TEST(Kv, WhoTurnsTheWriteCacheOffIsToldWhatItIsAlsoWhenAnotherFlushFails) {
  Kv kv;
  kv.store("k", pattern(10));
  kv.pages().hold = true;
  const auto off = kv.set_feature(kv.admin_queue, nv::fid::kVolatileWriteCache, 0);
  const auto again = kv.set_feature(kv.admin_queue, nv::fid::kVolatileWriteCache, 0);
  kv.pages().next_failure = Status(Code::io_error, Origin::engine);
  kv.pages().hold = false;
  kv.run();
  EXPECT_EQ(off->status(), sc::kInternalError);
  EXPECT_EQ(again->status(), sc::kSuccess);
  EXPECT_EQ(kv.get_feature(kv.admin_queue, nv::fid::kVolatileWriteCache)->cqe.dw0, 0u);
  kv.store("k", pattern(10));
  EXPECT_EQ(kv.pages().last_durability, Durability::flushed);
  kv.pages().hold = true;
  const auto on = kv.set_feature(kv.admin_queue, nv::fid::kVolatileWriteCache, 1);
  kv.pages().hold = false;
  kv.run();
  EXPECT_EQ(on->status(), sc::kSuccess);
  EXPECT_EQ(kv.get_feature(kv.admin_queue, nv::fid::kVolatileWriteCache)->cqe.dw0, 1u);
}

TEST(Kv, AStoreWhoseDataCameWithTheWriteCacheOffIsDurable) {
  Kv kv;
  kv.queue.hold_pulls = true;
  const auto store = kv.store("k", pattern(10));
  ASSERT_FALSE(store->done);
  kv.set_feature(kv.admin_queue, nv::fid::kVolatileWriteCache, 0);
  kv.queue.release_pulls();
  kv.run();
  EXPECT_EQ(store->status(), sc::kSuccess);
  EXPECT_EQ(kv.pages().flushes, 2u) << "for Set Features, and for what came behind that";
}

}  // namespace
}  // namespace furrow::test
