// Establishes List's payload, how Key Value commands wait for page buffers, and that random
// commands of several hosts agree with a map. How: as kv_commands_test.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "kv_host.h"

namespace furrow::test {
namespace {

struct Listed {
  std::vector<std::string> keys;
  std::uint32_t bytes = 0;
};

Listed parse(const CommandPtr& done) {
  Listed out;
  EXPECT_EQ(done->status(), sc::kSuccess);
  const auto count = read<std::uint32_t>(done->in, 0);
  std::size_t at = 4;
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto length = read<std::uint16_t>(done->in, at);
    out.keys.emplace_back(reinterpret_cast<const char*>(done->in.data()) + at + 2, length);
    at = (at + 2 + length + 3) / 4 * 4;
  }
  EXPECT_EQ(at, done->in.size()) << "nothing behind the last key";
  out.bytes = static_cast<std::uint32_t>(done->in.size());
  return out;
}

TEST(KvList, PayloadFormat) {
  Kv kv;
  kv.store("a", pattern(1));
  kv.store("bcdef", pattern(1));
  const Bytes in = kv.list("", 4096)->in;
  const std::uint8_t expected[] = {2, 0, 0, 0, 1, 0, 'a', 0, 5, 0, 'b', 'c', 'd', 'e', 'f', 0};
  ASSERT_EQ(in.size(), sizeof(expected));
  EXPECT_EQ(std::memcmp(in.data(), expected, sizeof(expected)), 0);
}

TEST(KvList, StartsWithTheKeyOrTheNextOne) {
  Kv kv;
  for (const char* key : {"b", "d", "f"}) kv.store(key, pattern(1));
  EXPECT_EQ(parse(kv.list("", 4096)).keys, (std::vector<std::string>{"b", "d", "f"}));
  EXPECT_EQ(parse(kv.list("d", 4096)).keys, (std::vector<std::string>{"d", "f"}));
  EXPECT_EQ(parse(kv.list("c", 4096)).keys, (std::vector<std::string>{"d", "f"}));
  EXPECT_EQ(parse(kv.list("g", 4096)).keys, std::vector<std::string>());
  kv.simple(nv::kv::kDelete, "d");
  EXPECT_EQ(parse(kv.list("d", 4096)).keys, std::vector<std::string>{"f"});
}

TEST(KvList, IsBoundedByTheHostsBuffer) {
  Kv kv;
  for (const char* key : {"aaaaaa", "bbbbbb", "cccccc"}) kv.store(key, pattern(1));  // 8 B each
  EXPECT_EQ(kv.list("", 0)->status(), sc::kInvalidField);
  EXPECT_EQ(kv.list("", 3)->status(), sc::kInvalidField);
  for (std::uint32_t bytes = 4; bytes <= 40; ++bytes) {
    const Listed listed = parse(kv.list("", bytes));
    EXPECT_EQ(listed.keys.size(), std::min<std::size_t>(3, (bytes - 4) / 8)) << bytes;
    EXPECT_LE(listed.bytes, bytes);
  }
  EXPECT_TRUE(parse(kv.list("aaaaaa", 4)).keys.empty()) << "no room for the start key";
  EXPECT_EQ(kv.call(kv.queue, Kv::command(nv::kv::kList, "", 64), {}, 32)->status(),
            sc::kDataSglLengthInvalid);
}

// More keys than the engine gives at a time; pages of the listing overlap in their start key.
TEST(KvList, AllKeysInPieces) {
  Kv kv;
  std::set<std::string> stored;
  for (int i = 0; i < 1500; ++i) {
    const std::string key = "key" + std::to_string(i);
    ASSERT_EQ(kv.store(key, pattern(1))->status(), sc::kSuccess);
    stored.insert(key);
  }
  for (const std::uint32_t at_a_time : {7u, 512u, 1000u}) {
    kv.pages().keys_at_a_time = at_a_time;
    const Listed whole = parse(kv.list("", 1u << 20));
    EXPECT_EQ(std::set<std::string>(whole.keys.begin(), whole.keys.end()), stored);
    EXPECT_EQ(whole.keys.size(), stored.size());
    std::vector<std::string> pieces;
    std::string start;
    while (true) {
      std::vector<std::string> piece = parse(kv.list(start, 1000)).keys;
      if (!start.empty()) {
        ASSERT_FALSE(piece.empty());
        ASSERT_EQ(piece.front(), start);
        piece.erase(piece.begin());
      }
      if (piece.empty()) break;
      pieces.insert(pieces.end(), piece.begin(), piece.end());
      start = pieces.back();
    }
    EXPECT_EQ(pieces, whole.keys);
  }
}

// Buffers.

TEST(KvBuffers, CommandsWaitInOrderAndAllAreAnswered) {
  Kv kv;  // four buffers of each size
  const Bytes value = pattern(1u << 20);
  kv.store("k", value);
  kv.pages().hold = true;
  std::vector<CommandPtr> commands;
  for (unsigned i = 0; i < 40; ++i) {
    const std::uint32_t bytes = i % 2 == 0 ? 1u << 20 : 4096;
    commands.push_back(kv.queue.send(Kv::command(nv::kv::kRetrieve, "k", bytes), {}, bytes, false));
  }
  kv.run();
  // Half of each size: one connection leaves as many to others as it has.
  EXPECT_EQ(kv.subsystem->stats().buffer_waits, 40u - 6u);
  kv.pages().hold = false;
  kv.run();
  for (unsigned i = 0; i < 40; ++i) {
    ASSERT_EQ(commands[i]->status(), sc::kSuccess) << i;
    EXPECT_EQ(commands[i]->in.size(), i % 2 == 0 ? 1u << 20 : 4096u);
  }
}

TEST(KvBuffers, WaitingCommandsEndWithTheirConnection) {
  Kv kv;
  FakeConnection& second = kv.io(kv.last_cntlid, 2);
  kv.pages().hold = true;
  const auto command = Kv::command(nv::kv::kRetrieve, "k", 1u << 20);
  for (int i = 0; i < 8; ++i) kv.queue.send(command, {}, 1u << 20, false);
  const auto survivor = second.send(command, {}, 1u << 20, false);
  kv.run();
  kv.queue.disconnect();
  kv.run();
  kv.pages().hold = false;
  kv.run();
  EXPECT_EQ(survivor->status(), sc::kKeyNotFound);
  EXPECT_EQ(kv.pages().operations, 3u) << "two that had a buffer, and the survivor";
}

// Random operations of two hosts with several queues each, against a map.
TEST(KvModel, RandomCommandsAgreeWithAMap) {
  const unsigned seed = 20261121;
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  Kv kv;
  std::vector<FakeConnection*> queues{&kv.queue};
  queues.push_back(&kv.io(kv.last_cntlid, 2, 0));
  kv.admin({}, 1);
  queues.push_back(&kv.io(kv.last_cntlid, 1, 0));
  queues.push_back(&kv.io(kv.last_cntlid, 7, 1));
  std::map<std::string, Bytes> model;
  for (int step = 0; step < 3000; ++step) {
    FakeConnection& queue = *queues[random() % queues.size()];
    const std::string key = "k" + std::to_string(random() % 50);
    const auto known = model.find(key);
    switch (random() % 4) {
      case 0: {
        const Bytes value = pattern(1 + random() % 9000, static_cast<unsigned>(random()));
        const auto length = static_cast<std::uint32_t>(value.size());
        const auto option = static_cast<std::uint8_t>(random() % 3);  // always, exists, absent
        const bool refused = (option == nv::kv::kStoreIfExists && known == model.end()) ||
                             (option == nv::kv::kStoreIfAbsent && known != model.end());
        const auto done =
            kv.call(queue, Kv::command(nv::kv::kStore, key, length, option), value, length);
        ASSERT_EQ(done->status() == sc::kSuccess, !refused) << step;
        if (!refused) model[key] = value;
        break;
      }
      case 1: {
        const auto done = kv.call(queue, Kv::command(nv::kv::kRetrieve, key, 12288), {}, 12288);
        ASSERT_EQ(done->status(), known == model.end() ? sc::kKeyNotFound : sc::kSuccess) << step;
        if (known != model.end()) {
          ASSERT_EQ(done->in, known->second) << step;
        }
        break;
      }
      case 2:
        ASSERT_EQ(kv.call(queue, Kv::command(nv::kv::kExist, key))->status(),
                  known == model.end() ? sc::kKeyNotFound : sc::kSuccess);
        break;
      default:
        ASSERT_EQ(kv.call(queue, Kv::command(nv::kv::kDelete, key))->status(), sc::kSuccess);
        model.erase(key);
    }
  }
}

// Connections that never give anything back leave something to the next one, as long as there are
// fewer of them than buffers.
TEST(KvBuffers, StuckConnectionsDoNotDelayAnother) {
  World world(World::small_buffers());  // four of each size
  world.admin();
  std::vector<FakeConnection*> stuck;
  std::vector<CommandPtr> waiting;
  nv::Sqe store = sqe(nv::kv::kStore, 1);
  store.cdw10 = 1u << 20;
  store.cdw11 = 1;
  for (std::uint16_t qid = 1; qid <= 2; ++qid) {
    FakeConnection& io = world.io(world.last_cntlid, qid);
    io.hold_pulls = true;  // the host never sends what it was asked for
    for (int i = 0; i < 8; ++i) waiting.push_back(world.call(io, store, {}, 1u << 20));
    stuck.push_back(&io);
  }
  FakeConnection& good = world.io(world.last_cntlid, 3);
  const auto stored = world.call(good, store, Bytes(1u << 20), 1u << 20);
  EXPECT_EQ(stored->status(), sc::kSuccess);
  for (FakeConnection* io : stuck) io->release_pulls();
  world.run();
  for (const auto& command : waiting) EXPECT_EQ(command->status(), sc::kSuccess);
}

TEST(KvBuffers, ThoseThatWaitAreServedInTurn) {
  World world(World::small_buffers());
  world.admin();
  FakeConnection& greedy = world.io(world.last_cntlid, 1);
  FakeConnection& modest = world.io(world.last_cntlid, 2);
  world.pool.store(1).hold = true;
  nv::Sqe retrieve = sqe(nv::kv::kRetrieve, 1);
  retrieve.cdw10 = 1u << 20;
  retrieve.cdw11 = 1;
  std::vector<CommandPtr> many;
  for (int i = 0; i < 20; ++i) many.push_back(world.call(greedy, retrieve, {}, 1u << 20));
  std::vector<CommandPtr> few;
  for (int i = 0; i < 3; ++i) few.push_back(world.call(modest, retrieve, {}, 1u << 20));
  world.pool.store(1).hold = false;
  // As soon as the few are through, most of the many still wait.
  for (int turns = 0; !few.back()->done && turns < 100; ++turns) world.run_turn();
  EXPECT_TRUE(few.back()->done);
  const auto done = std::count_if(many.begin(), many.end(), [](const auto& c) { return c->done; });
  EXPECT_LE(done, 8);
  world.run();
  for (const auto& command : many) EXPECT_EQ(command->status(), sc::kKeyNotFound);
}

}  // namespace
}  // namespace furrow::test
