// Establishes what IoCommands promises of every command set: which commands it refuses itself; that
// a page buffer is lent from the start of a command until its answer is sent, registered or not;
// that those without one wait, each queue's in their order and the queues in turn, and can be taken
// out again; that data which did not come is not stored; that a namespace is let go of when the
// last command that uses it has been answered, whatever became of the others; and that flush_all()
// waits for all and tells the first failure. How: on a reactor whose session keeps every operation
// until the test ends it. (What commands mean: kv_, nvm_ and zns_commands_test.)
#include <gtest/gtest.h>

#include <algorithm>

#include "fake_host.h"
#include "transport/reactor_impl.h"

namespace furrow::test {
namespace {

using transport::IoCommands;
using transport::NamespaceTable;

constexpr std::uint32_t kWholeBytes = 1u << 20;  // a value that takes a large buffer

// Operations stay where they are until they are ended.
class KeptSession final : public PageSession {
 public:
  struct Kept {
    PageStore* store;
    PageOp* op;
  };
  explicit KeptSession(bool pins) : pins_(pins) {}
  void submit(PageStore& store, PageOp& op) override { kept.push_back({&store, &op}); }
  unsigned wait(std::uint64_t) override { return 0; }
  Status register_buffers(std::span<const iovec> buffers) override {
    EXPECT_EQ(buffers.size(), 1u);
    slab = buffers[0];
    return pins_ ? Status() : Status(Code::unsupported, Origin::engine);
  }
  void may_block() override {}
  std::uint64_t system_calls() const override { return 0; }

  // The index-th of those that are kept.
  void end(std::size_t index, Code code = Code::not_found) {
    PageOp& op = *kept.at(index).op;
    kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(index));
    op.status = code == Code::ok ? Status() : Status(code, Origin::engine);
    op.on_result(op);
    if (op.on_released != nullptr) op.on_released(op);
  }

  std::vector<Kept> kept;
  iovec slab{};

 private:
  const bool pins_;
};

// The page buffers are four of each size; a connection may have two of them while all are free.
class IoWorld : public World {
 public:
  explicit IoWorld(bool pins = true) : World(small_buffers()) {
    auto kept = std::make_unique<KeptSession>(pins);
    session = kept.get();
    reactors[1] =
        std::make_unique<transport::ReactorImpl>(subsystem_impl(), executors[1], std::move(kept));
    admin();
  }
  ~IoWorld() {
    while (!session->kept.empty()) end(0);
  }
  transport::SubsystemImpl& subsystem_impl() {
    return static_cast<transport::SubsystemImpl&>(*subsystem);
  }
  IoCommands& commands() { return static_cast<transport::ReactorImpl&>(*reactors[1]).io(); }
  FakeConnection& queue(std::uint16_t id = 1) { return io(last_cntlid, id); }
  static transport::Queue& queue_of(FakeConnection& connection) {
    return *static_cast<transport::Queue*>(connection.controller_context);
  }
  void end(std::size_t index, Code code = Code::not_found) {
    session->end(index, code);
    run();
  }
  // Commands; each on a key that tells it in the session.
  static nv::Sqe retrieve(char key, std::uint32_t bytes = kWholeBytes, std::uint32_t nsid = 1) {
    return command(nv::kv::kRetrieve, key, bytes, nsid);
  }
  static nv::Sqe command(std::uint8_t opcode, char key, std::uint32_t bytes, std::uint32_t nsid) {
    nv::Sqe out = sqe(opcode, nsid);
    out.cdw2 = static_cast<std::uint32_t>(key);
    out.cdw10 = bytes;
    out.cdw11 = 1;
    return out;
  }
  CommandPtr get(FakeConnection& connection, char key, std::uint32_t nsid = 1) {
    return call(connection, retrieve(key, kWholeBytes, nsid), {}, kWholeBytes);
  }
  CommandPtr put(FakeConnection& connection, char key, std::uint32_t bytes) {
    return call(connection, command(nv::kv::kStore, key, bytes, 1), Bytes(bytes), bytes);
  }
  // The keys of the operations that the session has, in their order.
  std::string kept() const {
    std::string keys;
    for (const auto& each : session->kept) keys += static_cast<char>(each.op->key.bytes[0]);
    return keys;
  }
  void add_volume(const std::string& name, std::uint32_t nsid) {
    VolumeOptions volume;
    volume.name = name;
    volume.nsid = nsid;
    EXPECT_TRUE(pool.create_volume(volume).ok());
  }
  // Takes the pool's volumes over as they are, but for one.
  void apply(std::uint32_t without, bool& applied) {
    table_ = NamespaceTable(pool, table_, {without, without_}, kWholeBytes);
    without_ = without;
    commands().apply(table_, without, [&applied] {
      EXPECT_FALSE(applied) << "once";
      applied = true;
    });
  }
  void apply() {
    bool applied = false;
    apply(0, applied);
    EXPECT_TRUE(applied);
  }

  KeptSession* session = nullptr;

 private:
  NamespaceTable table_;
  std::uint32_t without_ = 0;
};

TEST(IoCommands, RefusesWhatNoNamespaceIsMeantBy) {
  IoWorld world;
  FakeConnection& queue = world.queue();
  for (const std::uint32_t nsid :
       {0u, 2u, transport::kNamespacesMax, transport::kNamespacesMax + 1, nv::kNsidAll}) {
    EXPECT_EQ(world.get(queue, 'a', nsid)->status(), sc::kInvalidNamespaceOrFormat) << nsid;
  }
  nv::Sqe fused = IoWorld::retrieve('a');
  fused.flags |= 1;
  EXPECT_EQ(world.call(queue, fused, {}, kWholeBytes)->status(), sc::kInvalidField);
  EXPECT_EQ(world.call(queue, IoWorld::retrieve('a'), {}, kWholeBytes + 4)->status(),
            sc::kInvalidField)
      << "longer than any transfer";
  EXPECT_EQ(world.kept(), "");
  EXPECT_TRUE(world.commands().idle());
}

TEST(IoCommands, AQueueSeesTheNamespacesOfItsCommandSetsOnly) {
  IoWorld world;
  FakeConnection& admin = world.open(0);
  const auto connected = world.connect(admin, {});
  ASSERT_EQ(world.set_cc(admin, nv::kCcEnable | nv::kCssNvm << nv::kCcCssShift)->status(),
            sc::kSuccess);
  FakeConnection& queue = world.io(static_cast<std::uint16_t>(connected->cqe.dw0));
  EXPECT_EQ(world.get(queue, 'a')->status(), sc::kInvalidNamespaceOrFormat);
  EXPECT_EQ(world.kept(), "");
}

TEST(IoCommands, ABufferIsLentUntilTheAnswerIsSent) {
  for (const bool pins : {true, false}) {
    IoWorld world(pins);
    EXPECT_EQ(world.commands().buffers_registered(), pins);
    FakeConnection& queue = world.queue();
    EXPECT_TRUE(world.commands().idle());
    const CommandPtr command = world.get(queue, 'a');
    ASSERT_EQ(world.kept(), "a");
    PageOp& op = *world.session->kept[0].op;
    const auto* const slab = static_cast<const std::byte*>(world.session->slab.iov_base);
    EXPECT_GE(op.data, slab);
    EXPECT_GE(op.capacity, kWholeBytes);
    EXPECT_LE(op.data + op.capacity, slab + world.session->slab.iov_len);
    EXPECT_EQ(op.buffer_index, pins ? 0 : -1);
    std::fill_n(op.data, 5000, std::byte{0x5A});
    op.length = 5000;
    queue.hold_answers = true;
    world.end(0, Code::ok);
    EXPECT_EQ(command->status(), sc::kSuccess);
    EXPECT_EQ(command->in, Bytes(5000, std::byte{0x5A}));
    EXPECT_FALSE(world.commands().idle()) << "the wire still has it";
    queue.release_answers();
    world.run();
    EXPECT_TRUE(world.commands().idle());
  }
}

TEST(IoCommands, CommandsOfAQueueWaitInTheirOrder) {
  IoWorld world;
  FakeConnection& queue = world.queue();
  std::vector<CommandPtr> commands;
  for (const char key : {'a', 'b', 'c', 'd', 'e'}) commands.push_back(world.get(queue, key));
  EXPECT_EQ(world.kept(), "ab");
  EXPECT_EQ(world.subsystem->stats().buffer_waits, 3u);
  world.end(1);
  EXPECT_EQ(world.kept(), "ac");
  queue.hold_answers = true;
  world.end(0);
  EXPECT_EQ(world.kept(), "c") << "its answer is not sent yet";
  queue.release_answers();
  world.run();
  EXPECT_EQ(world.kept(), "cd");
  commands.push_back(world.get(queue, 'f'));
  while (!world.kept().empty()) world.end(0);
  for (const CommandPtr& command : commands) EXPECT_EQ(command->status(), sc::kKeyNotFound);
  EXPECT_TRUE(world.commands().idle());
}

TEST(IoCommands, WhatNeedsLessDoesNotWaitForWhatNeedsMore) {
  IoWorld world;
  FakeConnection& queue = world.queue();
  for (const char key : {'a', 'b', 'c'}) world.get(queue, key);
  const CommandPtr small = world.call(queue, IoWorld::retrieve('s', 4096), {}, 4096);
  EXPECT_EQ(world.kept(), "abs");
}

TEST(IoCommands, QueuesThatWaitAreServedInTurn) {
  IoWorld world;
  for (const std::uint16_t id : {1, 2, 3, 4}) {
    world.get(world.queue(id), static_cast<char>('0' + id));
  }
  FakeConnection& first = world.queue(5);
  FakeConnection& second = world.queue(6);
  world.get(first, 'a');
  world.get(first, 'b');
  world.get(second, 'x');
  EXPECT_EQ(world.kept(), "1234") << "there are no more";
  world.end(0);
  EXPECT_EQ(world.kept(), "234a");
  world.end(3);
  EXPECT_EQ(world.kept(), "234x") << "the other one's turn";
  world.end(3);
  EXPECT_EQ(world.kept(), "234b");
}

TEST(IoCommands, WhatWaitsCanBeTakenOutAgain) {
  IoWorld world;
  FakeConnection& queue = world.queue();
  FakeConnection& other = world.queue(2);
  std::vector<CommandPtr> commands;
  for (const char key : {'a', 'b', 'c', 'd', 'e', 'f'}) commands.push_back(world.get(queue, key));
  world.get(other, 'x');
  world.get(other, 'y');
  ASSERT_EQ(world.kept(), "abx");
  const auto cancel = [&](std::int32_t cid, std::uint16_t status) {
    const unsigned count = world.commands().cancel_waiting(IoWorld::queue_of(queue), cid, status);
    world.run();
    return count;
  };
  EXPECT_EQ(cancel(commands[0]->sqe.cid, sc::kAbortRequested), 0u) << "it has its buffer";
  EXPECT_EQ(cancel(commands[3]->sqe.cid, sc::kAbortRequested), 1u);
  EXPECT_EQ(commands[3]->status(), sc::kAbortRequested);
  EXPECT_EQ(cancel(commands[5]->sqe.cid, sc::kAbortRequested), 1u) << "the last";
  commands.push_back(world.get(queue, 'g'));
  world.end(0);
  EXPECT_EQ(world.kept(), "bxc");
  EXPECT_EQ(cancel(IoCommands::kEveryCommand, sc::kAbortedSqDeletion), 2u);
  EXPECT_EQ(commands[4]->status(), sc::kAbortedSqDeletion);
  EXPECT_EQ(commands[6]->status(), sc::kAbortedSqDeletion);
  EXPECT_EQ(cancel(IoCommands::kEveryCommand, sc::kAbortedSqDeletion), 0u);
  world.end(0);
  EXPECT_EQ(world.kept(), "xcy") << "the other queue's are as they were";
  while (!world.kept().empty()) world.end(0);
  EXPECT_EQ(commands[1]->status(), sc::kKeyNotFound);
  EXPECT_EQ(commands[2]->status(), sc::kKeyNotFound);
  EXPECT_TRUE(world.commands().idle());
}

TEST(IoCommands, AQueueThatNoLongerWaitsHasNoTurn) {
  IoWorld world;
  for (const std::uint16_t id : {1, 2, 3, 4}) {
    world.get(world.queue(id), static_cast<char>('0' + id));
  }
  std::vector<FakeConnection*> waiting;
  for (const std::uint16_t id : {5, 6, 7}) waiting.push_back(&world.queue(id));
  for (FakeConnection* queue : waiting) world.get(*queue, 'a');
  const auto cancel = [&](FakeConnection& queue) {
    world.commands().cancel_waiting(IoWorld::queue_of(queue), IoCommands::kEveryCommand,
                                    sc::kAbortRequested);
    world.run();
  };
  cancel(*waiting[0]);  // the first and the last of them
  cancel(*waiting[2]);
  waiting[2]->disconnect();
  world.run();
  world.get(world.queue(8), 'b');
  world.call(*waiting[0], IoWorld::retrieve('s', 4096), {}, 4096);
  ASSERT_EQ(world.kept(), "1234s");
  world.end(4);
  EXPECT_EQ(world.kept(), "1234") << "what came back is too small";
  world.end(0);
  EXPECT_EQ(world.kept(), "234a");
  world.end(0);
  EXPECT_EQ(world.kept(), "34ab");
}

TEST(IoCommands, DataThatDidNotComeIsNotStored) {
  IoWorld world;
  FakeConnection& queue = world.queue();
  queue.pull_status = Status(Code::io_error, Origin::transport);
  EXPECT_EQ(world.put(queue, 'a', 4096)->status(), sc::kTransientTransportError);
  EXPECT_TRUE(world.commands().idle());
  queue.hold_pulls = true;
  world.put(queue, 'b', 4096);
  IoWorld::queue_of(queue).state = transport::Queue::State::closing;  // the controller ends it
  queue.release_pulls();
  world.run();
  EXPECT_EQ(world.kept(), "");
  EXPECT_TRUE(world.commands().idle());
  EXPECT_EQ(world.put(world.queue(2), 'c', 4096)->status(), 0xFFFF);
  EXPECT_EQ(world.kept(), "c");
}

TEST(IoCommands, ANamespaceIsLetGoOfAfterItsLastAnswer) {
  IoWorld world;
  world.add_volume("more", 2);
  world.apply();
  FakeConnection& queue = world.queue();
  bool applied = false;
  world.apply(2, applied);
  EXPECT_TRUE(applied) << "nothing used it";
  world.apply();
  world.get(queue, 'a', 1);
  const CommandPtr last = world.get(queue, 'b', 2);
  const CommandPtr waiting = world.get(queue, 'c', 2);  // for a buffer
  ASSERT_EQ(world.kept(), "ab");
  applied = false;
  world.apply(2, applied);
  EXPECT_EQ(world.get(queue, 'd', 2)->status(), sc::kInvalidNamespaceOrFormat);
  world.end(1);
  EXPECT_EQ(last->status(), sc::kKeyNotFound);
  EXPECT_FALSE(applied);
  ASSERT_EQ(world.kept(), "ac");
  queue.hold_answers = true;
  world.end(1);
  EXPECT_FALSE(applied) << "not answered yet";
  queue.release_answers();
  world.run();
  EXPECT_EQ(waiting->status(), sc::kKeyNotFound);
  EXPECT_TRUE(applied) << "though another namespace is in use";
  EXPECT_EQ(world.kept(), "a");
}

TEST(IoCommands, EachWithdrawalWaitsForItsOwnNamespace) {
  for (const bool first_ends_first : {true, false}) {
    IoWorld world;
    world.add_volume("more", 2);
    world.apply();
    FakeConnection& queue = world.queue();
    world.get(queue, 'a', 1);
    world.get(queue, 'b', 2);
    bool without_one = false, without_both = false;
    world.apply(1, without_one);
    EXPECT_TRUE(world.pool.delete_volume("pages").ok());
    world.apply(2, without_both);
    EXPECT_FALSE(without_one || without_both);
    world.end(first_ends_first ? 0 : 1);
    EXPECT_EQ(without_one, first_ends_first);
    EXPECT_EQ(without_both, !first_ends_first);
    world.end(0);
    EXPECT_TRUE(without_one && without_both);
  }
}

// The volume was not deleted after all.
TEST(IoCommands, ANamespaceThatComesBackIsAnotherOne) {
  IoWorld world;
  world.add_volume("more", 2);
  world.apply();
  FakeConnection& queue = world.queue();
  world.get(queue, 'a', 2);
  bool without = false, again = false;
  world.apply(2, without);
  world.apply(0, again);
  EXPECT_TRUE(again) << "to be there it waits for nothing";
  world.get(queue, 'b', 2);
  ASSERT_EQ(world.kept(), "ab");
  EXPECT_FALSE(without);
  world.end(0);
  EXPECT_TRUE(without) << "no command uses the one that went";
  EXPECT_EQ(world.kept(), "b");
}

TEST(IoCommands, FlushAllTellsTheFirstFailureWhenAllAreDone) {
  IoWorld world;
  world.add_volume("more", 2);
  world.add_volume("and", 3);
  world.apply();
  std::vector<Status> told;
  world.commands().flush_all([&](Status status) { told.push_back(status); });
  ASSERT_EQ(world.session->kept.size(), 3u);
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(world.session->kept[i].op->kind, PageOp::Kind::flush);
    EXPECT_EQ(world.session->kept[i].store, world.pool.find_nsid(i + 1));
  }
  EXPECT_FALSE(world.commands().idle());
  world.end(1, Code::no_space);
  world.end(0, Code::io_error);
  EXPECT_TRUE(told.empty());
  world.end(0, Code::ok);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].code(), Code::no_space);
  EXPECT_TRUE(world.commands().idle());
  world.commands().flush_all([&](Status status) { told.push_back(status); });
  for (int i = 0; i < 3; ++i) world.end(0, Code::ok);
  ASSERT_EQ(told.size(), 2u);
  EXPECT_TRUE(told[1].ok());
}

TEST(IoCommands, ANamespaceIsInUseWhileItIsFlushed) {
  IoWorld world;
  world.apply();
  unsigned told = 0;
  world.commands().flush_all([&](Status) { ++told; });
  bool applied = false;
  world.apply(1, applied);
  EXPECT_FALSE(applied);
  world.end(0, Code::ok);
  EXPECT_TRUE(applied);
  EXPECT_EQ(told, 1u);
  world.commands().flush_all([&](Status status) { told += status.ok() ? 10 : 100; });
  EXPECT_EQ(told, 11u) << "there is nothing to flush";
}

}  // namespace
}  // namespace furrow::test
