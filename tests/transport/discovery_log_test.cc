// Establishes what a host believes of a discovery log page: NVM subsystems over TCP, possible NQNs,
// each once, and only what the page has room for. How: pages made by hand, each wrong in one way.
#include "transport/discovery_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "transport/nvme.h"

namespace furrow::transport {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

nvme::DiscoveryLogEntry entry(std::string_view nqn) {
  nvme::DiscoveryLogEntry out;
  out.trtype = nvme::kTrtypeTcp;
  out.subtype = nvme::kSubtypeNvm;
  std::memcpy(out.subnqn, nqn.data(), nqn.size());
  return out;
}
std::vector<std::byte> page(const std::vector<nvme::DiscoveryLogEntry>& entries,
                            std::uint64_t numrec, std::uint16_t recfmt = 0) {
  nvme::DiscoveryLogHeader header;
  header.numrec = numrec;
  header.recfmt = recfmt;
  std::vector<std::byte> out(sizeof header + entries.size() * sizeof entries[0]);
  std::memcpy(out.data(), &header, sizeof header);
  if (!entries.empty()) {
    std::memcpy(out.data() + sizeof header, entries.data(), out.size() - sizeof header);
  }
  return out;
}

TEST(DiscoveryLog, NamesSubsystemsOnceEach) {
  auto other = entry("nqn.other:rdma");
  other.trtype = 1;
  auto referral = entry("nqn.another:discovery");
  referral.subtype = nvme::kSubtypeDiscovery;
  const auto found = decode_discovery_log(
      page({entry("nqn.a"), other, entry("nqn.b"), referral, entry("nqn.a")}, 5));
  ASSERT_TRUE(found.ok());
  EXPECT_THAT(*found, ElementsAre("nqn.a", "nqn.b"));
}

TEST(DiscoveryLog, MoreRecordsThanThereAre) {
  const auto found = decode_discovery_log(page({entry("nqn.a")}, ~std::uint64_t{0}));
  ASSERT_TRUE(found.ok());
  EXPECT_THAT(*found, ElementsAre("nqn.a"));
  EXPECT_THAT(*decode_discovery_log(page({entry("nqn.a")}, 0)), IsEmpty());
}

TEST(DiscoveryLog, ImpossibleNqnsArePassedOver) {
  for (const std::string& bad :
       {std::string(), std::string("no nqn"), std::string("nqn.a b"), std::string("nqn.\x01"),
        "nqn." + std::string(220, 'a'), "nqn." + std::string(252, 'a'),
        std::string(nvme::kDiscoveryNqn)}) {
    const auto found = decode_discovery_log(page({entry(bad), entry("nqn.good")}, 2));
    ASSERT_TRUE(found.ok());
    EXPECT_THAT(*found, ElementsAre("nqn.good")) << bad;
  }
}

TEST(DiscoveryLog, WhatIsNoSuchPageIsRefused) {
  EXPECT_EQ(decode_discovery_log({}).status().code(), Code::protocol);
  EXPECT_EQ(decode_discovery_log(std::vector<std::byte>(1023)).status().code(), Code::protocol);
  EXPECT_EQ(decode_discovery_log(page({entry("nqn.a")}, 1, 1)).status().code(), Code::protocol);
}

}  // namespace
}  // namespace furrow::transport
