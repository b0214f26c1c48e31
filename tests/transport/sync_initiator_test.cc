// Establishes that the blocking initiator does what its calls say, from any number of threads at
// once and where one transfer does not do, and that its errors are those of the initiator under it.
// How: a Target over a pool of plain maps on a thread of its own; every value is compared.
#include "transport/sync_initiator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "tests/transport/initiator_rig.h"
#include "tests/transport/served.h"
#include "tests/zone/no_threads.h"

namespace furrow::transport {
namespace {

std::unique_ptr<SyncInitiator> connect_to(const Served& served) {
  InitiatorOptions options;
  options.port = served.target->port();
  auto connected = SyncInitiator::connect(options);
  EXPECT_TRUE(connected.ok()) << connected.status().describe();
  return connected.ok() ? std::move(*connected) : nullptr;
}

std::vector<std::byte> value_of(std::size_t bytes, unsigned seed) {
  std::vector<std::byte> value(bytes);
  for (std::size_t i = 0; i < bytes; ++i) value[i] = static_cast<std::byte>(seed + i * 7 + i / 251);
  return value;
}

TEST(SyncInitiator, OperationsAndTheirErrors) {
  Served served;
  const auto pages = connect_to(served);
  ASSERT_NE(pages, nullptr);
  const Key key = Key::from("k");
  EXPECT_EQ(pages->value_bytes_max(), 1u << 20);
  EXPECT_EQ(pages->get(key).status().code(), Code::not_found);
  EXPECT_EQ(pages->exist(key).code(), Code::not_found);
  EXPECT_TRUE(pages->remove(key).ok());
  PutOptions if_exists, if_absent, pinned;
  if_exists.condition = PageOp::Condition::if_exists;
  if_absent.condition = PageOp::Condition::if_absent;
  pinned.pinned = true;
  EXPECT_EQ(pages->put(key, value_of(9, 1), if_exists).code(), Code::not_found);
  EXPECT_TRUE(pages->put(key, value_of(9, 1), if_absent).ok());
  EXPECT_EQ(pages->put(key, value_of(9, 2), if_absent).code(), Code::exists);
  EXPECT_EQ(pages->put(key, value_of(9, 2), pinned).code(), Code::unsupported);
  EXPECT_EQ(pages->put(key, {}).code(), Code::invalid_argument);
  EXPECT_EQ(pages->put(key, value_of((1 << 20) + 1, 2)).code(), Code::too_large);
  EXPECT_EQ(pages->put(Key(), value_of(9, 2)).code(), Code::invalid_argument);
  EXPECT_TRUE(pages->exist(key).ok());
  EXPECT_TRUE(pages->flush().ok());
  const auto got = pages->get(key);
  ASSERT_TRUE(got.ok()) << got.status().describe();
  EXPECT_EQ(*got, value_of(9, 1));
  EXPECT_TRUE(pages->remove(key, Durability::flushed).ok());
  EXPECT_EQ(pages->exist(key).code(), Code::not_found);
}

// Longer than what get() makes room for at first, too.
TEST(SyncInitiator, ValuesOfEverySize) {
  Served served;
  const auto pages = connect_to(served);
  ASSERT_NE(pages, nullptr);
  for (const std::size_t bytes : {1u, 4096u, 65536u, 65537u, 1u << 20}) {
    ASSERT_TRUE(pages->put(Key::from("k"), value_of(bytes, 5)).ok());
    const auto got = pages->get(Key::from("k"));
    ASSERT_TRUE(got.ok()) << got.status().describe();
    EXPECT_TRUE(*got == value_of(bytes, 5)) << bytes;
  }
}

TEST(SyncInitiator, ThreadsAndBatches) {
  constexpr unsigned kThreads = 3, kKeys = 200;
  Served served;
  const auto pages = connect_to(served);
  ASSERT_NE(pages, nullptr);
  std::vector<std::jthread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&pages, t] {
      // More at once than the queue holds.
      std::vector<std::vector<std::byte>> values(kKeys);
      std::vector<PageOp> puts(kKeys);
      for (unsigned i = 0; i < kKeys; ++i) {
        values[i] = value_of(1 + i, t * 50 + i);
        puts[i].kind = PageOp::Kind::put;
        puts[i].key = Key::from(std::to_string(t) + "." + std::to_string(i));
        puts[i].data = values[i].data();
        puts[i].length = puts[i].capacity = static_cast<std::uint32_t>(values[i].size());
      }
      pages->run(puts);
      for (unsigned i = 0; i < kKeys; ++i) {
        ASSERT_TRUE(puts[i].status.ok()) << puts[i].status.describe();
        const auto got = pages->get(puts[i].key);
        ASSERT_TRUE(got.ok()) << got.status().describe();
        ASSERT_EQ(*got, values[i]);
      }
    });
  }
  threads.clear();
  std::vector<Key> all;
  for (Key after;;) {
    const auto some = pages->list(after, 100);
    ASSERT_TRUE(some.ok()) << some.status().describe();
    if (some->empty()) break;
    all.insert(all.end(), some->begin(), some->end());
    after = some->back();
  }
  EXPECT_EQ(all.size(), kThreads * kKeys);
}

TEST(SyncInitiator, AListIsLongerThanATransfer) {
  constexpr unsigned kKeys = 8000;  // 128 KiB have room for some 6600
  TargetOptions options;
  options.transfer_bytes_max = 128 << 10;
  Served served(options, 128 << 10);
  const auto pages = connect_to(served);
  ASSERT_NE(pages, nullptr);
  for (unsigned i = 0; i < kKeys; ++i) {
    ASSERT_TRUE(pages->put(Key::from(std::to_string(i) + "-a-long-key-"), value_of(9, i)).ok());
  }
  const auto all = pages->list(Key(), ~0u);
  ASSERT_TRUE(all.ok()) << all.status().describe();
  EXPECT_EQ(all->size(), kKeys);
  EXPECT_EQ(pages->list(Key(), 7000)->size(), 7000u);
}

// A volume that was made while the server ran takes larger values when that has started again.
TEST(SyncInitiator, ValuesMayBecomeLongerWithAReconnect) {
  constexpr std::uint32_t kLong = 2u << 20;
  Server server;
  server.start();
  server.on_home([&server] {
    VolumeOptions large;
    large.name = "large";
    large.nsid = 2;
    large.quota_bytes = 5 * FakePool::kZoneBytes;
    large.value_bytes_max = 2 * kLong;
    EXPECT_TRUE(server.pool.create_volume(large).ok());
    server.target->namespaces_changed();
  });
  InitiatorOptions options;
  options.port = server.target->port();
  options.nsid = 2;
  options.reconnect_delay_ms = 10;
  const auto pages = SyncInitiator::connect(options);
  ASSERT_TRUE(pages.ok()) << pages.status().describe();
  EXPECT_EQ((*pages)->value_bytes_max(), kLong / 2);
  server.stop(1000);
  server.start();
  ASSERT_TRUE((*pages)->exist(Key::from("k")).code() == Code::not_found);
  EXPECT_EQ((*pages)->value_bytes_max(), 2 * kLong);
  ASSERT_TRUE((*pages)->put(Key::from("k"), value_of(kLong, 3)).ok());
  const auto got = (*pages)->get(Key::from("k"));
  ASSERT_TRUE(got.ok()) << got.status().describe();
  EXPECT_TRUE(*got == value_of(kLong, 3));
}

TEST(SyncInitiator, WithoutAThreadItDoesNotConnect) {
  Served served;
  InitiatorOptions options;
  options.port = served.target->port();
  const test::NoThreads none;
  EXPECT_EQ(SyncInitiator::connect(options).status().sys_errno(), EAGAIN);
}

TEST(SyncInitiator, WhatCannotBeReachedIsSaid) {
  InitiatorOptions options;
  {
    Served served;
    options.port = served.target->port();
    options.nsid = 2;
    EXPECT_EQ(SyncInitiator::connect(options).status().code(), Code::not_found);
  }
  EXPECT_EQ(SyncInitiator::connect(options).status().code(), Code::io_error);
}

}  // namespace
}  // namespace furrow::transport
