// Establishes the exact bytes of the Identify structures at the offsets where hosts look, what the
// Linux host refuses to live without, and the errors of every CNS. How: a ready controller is asked
// and each field is read from the raw bytes.
#include <gtest/gtest.h>

#include "fake_host.h"

namespace furrow::test {
namespace {

std::string text(const Bytes& data, std::size_t offset, std::size_t length) {
  return {reinterpret_cast<const char*>(data.data()) + offset, length};
}

TEST(IdentifyController, HasWhatHostsNeed) {
  World world;
  FakeConnection& admin = world.admin();
  const auto done = world.identify(admin, 0x01);
  ASSERT_EQ(done->status(), sc::kSuccess);
  const Bytes& page = done->in;
  ASSERT_EQ(page.size(), 4096u);
  EXPECT_EQ(text(page, 4, 20), "00010203040506070809");
  EXPECT_EQ(text(page, 24, 40), "Furrow page server                      ");
  EXPECT_EQ(text(page, 64, 8), "0.1     ");
  EXPECT_EQ(read<std::uint8_t>(page, 76), 2u) << "CMIC: several controllers, no ANA";
  EXPECT_EQ(read<std::uint8_t>(page, 77), 8u) << "MDTS: 1 MiB";
  EXPECT_EQ(read<std::uint16_t>(page, 78), world.last_cntlid);
  EXPECT_EQ(read<std::uint32_t>(page, 80), 0x00020000u) << "VER, as the property says";
  EXPECT_EQ(read<std::uint32_t>(page, 92), 0x08000100u) << "OAES: namespace attributes, zones";
  EXPECT_EQ(read<std::uint32_t>(page, 96), 0x41u) << "CTRATT: host id of 128 bits, TBKAS";
  EXPECT_EQ(read<std::uint8_t>(page, 111), 1u) << "CNTRLTYPE: I/O";
  EXPECT_EQ(read<std::uint16_t>(page, 128), 10u) << "CRDT1: 1 s";
  EXPECT_EQ(read<std::uint8_t>(page, 258), 3u) << "ACL";
  EXPECT_EQ(read<std::uint8_t>(page, 259), 3u) << "AERL";
  EXPECT_EQ(read<std::uint8_t>(page, 260), 3u) << "FRMW: one read-only slot";
  EXPECT_EQ(read<std::uint8_t>(page, 261), 6u) << "LPA: effects, extended data";
  EXPECT_EQ(read<std::uint8_t>(page, 262), 63u) << "ELPE";
  EXPECT_EQ(read<std::uint64_t>(page, 280), 20 * FakePool::kZoneBytes) << "TNVMCAP";
  EXPECT_EQ(read<std::uint64_t>(page, 296), 8 * FakePool::kZoneBytes) << "UNVMCAP";
  EXPECT_EQ(read<std::uint16_t>(page, 320), 10u) << "KAS: 1 s";
  EXPECT_EQ(read<std::uint8_t>(page, 343), 0u) << "ANACAP";
  EXPECT_EQ(read<std::uint8_t>(page, 512), 0x66u) << "SQES";
  EXPECT_EQ(read<std::uint8_t>(page, 513), 0x44u) << "CQES";
  EXPECT_EQ(read<std::uint16_t>(page, 514), 1024u) << "MAXCMD";
  EXPECT_EQ(read<std::uint32_t>(page, 516), 1024u) << "NN";
  EXPECT_EQ(read<std::uint16_t>(page, 520), 0x2du)
      << "ONCS: Compare, Dataset Management, Write Zeroes, reservations; no timestamp, no "
         "save/select";
  EXPECT_EQ(read<std::uint16_t>(page, 522), 1u) << "FUSES: Compare and Write";
  EXPECT_EQ(read<std::uint8_t>(page, 525), 5u) << "VWC: present; Flush of one namespace";
  EXPECT_EQ(read<std::uint32_t>(page, 536), 0x300001u) << "SGLS";
  EXPECT_EQ(read<std::uint32_t>(page, 540), 1024u) << "MNAN";
  EXPECT_EQ(text(page, 768, 27), std::string("nqn.2026-11.io.furrow:unit") + std::string(1, 0));
  EXPECT_EQ(read<std::uint32_t>(page, 1792), (64u + 16384u) / 16) << "IOCCSZ";
  EXPECT_EQ(read<std::uint32_t>(page, 1796), 1u) << "IORCSZ";
  EXPECT_EQ(read<std::uint16_t>(page, 1800), 0u) << "ICDOFF";
  EXPECT_EQ(read<std::uint8_t>(page, 1802), 0u) << "FCATT: dynamic controllers";
  EXPECT_EQ(read<std::uint8_t>(page, 1803), 1u) << "MSDBD";
  EXPECT_EQ(read<std::uint16_t>(page, 1804), 1u) << "OFCS: Disconnect";
}

TEST(IdentifyNamespace, KeyValueStructure) {
  World world;
  FakeConnection& admin = world.admin();
  FakeConnection& io = world.io(world.last_cntlid);
  nv::Sqe store = sqe(nv::kv::kStore, 1);
  store.cdw10 = 100;
  store.cdw11 = 1;
  ASSERT_EQ(world.call(io, store, Bytes(100), 100)->status(), sc::kSuccess);
  const auto done = world.identify(admin, 0x05, 1, 1);
  ASSERT_EQ(done->status(), sc::kSuccess);
  const Bytes& page = done->in;
  EXPECT_EQ(read<std::uint64_t>(page, 0), 5 * FakePool::kZoneBytes) << "NSZE: the quota";
  EXPECT_EQ(read<std::uint64_t>(page, 16), 100u) << "NUSE";
  EXPECT_EQ(read<std::uint8_t>(page, 25), 0u) << "NKVF: one format, 0's-based";
  EXPECT_EQ(read<std::uint8_t>(page, 26), 1u) << "NMIC: shared";
  EXPECT_EQ(read<std::uint8_t>(page, 27), 0xFFu) << "RESCAP: all types, and they may persist";
  EXPECT_EQ(read<std::uint8_t>(page, 29), 0u) << "KVFC";
  EXPECT_EQ(read<std::uint32_t>(page, 32), 4096u) << "NOVG";
  EXPECT_EQ(read<std::uint32_t>(page, 36), 0u) << "ANAGRPID";
  const Uuid uuid = world.pool.store(1).info().uuid;
  EXPECT_EQ((read<Uuid>(page, 48)), uuid) << "NGUID";
  EXPECT_EQ(read<std::uint16_t>(page, 72), 16u) << "KML";
  EXPECT_EQ(read<std::uint32_t>(page, 76), 1u << 20) << "VML";
  EXPECT_EQ(read<std::uint32_t>(page, 80), 0u) << "most keys: not stated";
  // Nothing is said by: reserved bytes, NSFEAT, FPI, NSATTR, NVMSETID and ENDGID, EUI64, AFO, a
  // second format, the vendor's bytes.
  for (const auto& [first, end] : std::initializer_list<std::pair<std::size_t, std::size_t>>{
           {8, 16}, {24, 25}, {28, 29}, {30, 32}, {40, 48}, {64, 72}, {74, 76}, {84, 4096}}) {
    for (std::size_t at = first; at < end; ++at) EXPECT_EQ(page[at], std::byte{0}) << "byte " << at;
  }
}

TEST(IdentifyNamespace, DescriptorsCarryTheCommandSet) {
  World world;
  FakeConnection& admin = world.admin();
  const auto done = world.identify(admin, 0x03, 1);
  ASSERT_EQ(done->status(), sc::kSuccess);
  const Bytes& page = done->in;
  const Uuid uuid = world.pool.store(1).info().uuid;
  EXPECT_EQ(read<std::uint8_t>(page, 0), 2u);  // NGUID
  EXPECT_EQ(read<std::uint8_t>(page, 1), 16u);
  EXPECT_EQ((read<Uuid>(page, 4)), uuid);
  EXPECT_EQ(read<std::uint8_t>(page, 20), 3u);  // UUID
  EXPECT_EQ(read<std::uint8_t>(page, 21), 16u);
  EXPECT_EQ((read<Uuid>(page, 24)), uuid);
  EXPECT_EQ(read<std::uint8_t>(page, 40), 4u);  // CSI
  EXPECT_EQ(read<std::uint8_t>(page, 41), 1u);
  EXPECT_EQ(read<std::uint8_t>(page, 44), 1u);  // Key Value
  EXPECT_EQ(read<std::uint32_t>(page, 45), 0u) << "the end";
}

TEST(IdentifyNamespace, TheOtherStructures) {
  World world;
  FakeConnection& admin = world.admin();
  const auto independent = world.identify(admin, 0x08, 1);
  ASSERT_EQ(independent->status(), sc::kSuccess);
  EXPECT_EQ(read<std::uint8_t>(independent->in, 1), 1u) << "NMIC";
  EXPECT_EQ(read<std::uint8_t>(independent->in, 14), 1u) << "NSTAT.NRDY";
  const auto generic = world.identify(admin, 0x00, 1);
  ASSERT_EQ(generic->status(), sc::kSuccess);
  EXPECT_EQ(read<std::uint64_t>(generic->in, 0), 5 * FakePool::kZoneBytes / 4096);
  EXPECT_EQ(read<std::uint64_t>(generic->in, 8), 5 * FakePool::kZoneBytes / 4096)
      << "NCAP: 0 would remove the namespace";
  EXPECT_EQ((read<Uuid>(generic->in, 104)), world.pool.store(1).info().uuid) << "NGUID";
  EXPECT_EQ(read<std::uint32_t>(generic->in, 128), 12u << 16) << "LBAF0";
  EXPECT_EQ(read<std::uint32_t>(world.identify(admin, 0x06, 0, 1)->in, 0), 0x00010000u);
  EXPECT_EQ(read<std::uint64_t>(world.identify(admin, 0x1C)->in, 0), 7u);
  EXPECT_EQ(read<std::uint64_t>(world.identify(admin, 0x1C)->in, 8), 0u);
}

TEST(IdentifyList, NamespacesAndControllers) {
  World world;
  for (const std::uint32_t nsid : {7u, 3u}) {
    VolumeOptions options;
    options.name = "more" + std::to_string(nsid);
    options.nsid = nsid;
    ASSERT_TRUE(world.pool.create_volume(options).ok());
  }
  world.subsystem->namespaces_changed();
  FakeConnection& admin = world.admin();
  const std::uint16_t first = world.last_cntlid;
  world.admin();
  for (const std::uint8_t cns : {0x02, 0x07}) {
    const auto all = world.identify(admin, cns, 0, 1);
    ASSERT_EQ(all->status(), sc::kSuccess);
    EXPECT_EQ(read<std::uint32_t>(all->in, 0), 1u);
    EXPECT_EQ(read<std::uint32_t>(all->in, 4), 3u);
    EXPECT_EQ(read<std::uint32_t>(all->in, 8), 7u);
    EXPECT_EQ(read<std::uint32_t>(all->in, 12), 0u);
    EXPECT_EQ(read<std::uint32_t>(world.identify(admin, cns, 3, 1)->in, 0), 7u);
    EXPECT_EQ(world.identify(admin, cns, 0xFFFFFFFE, 1)->status(), sc::kInvalidNamespaceOrFormat);
  }
  EXPECT_EQ(read<std::uint32_t>(world.identify(admin, 0x07, 0, 0)->in, 0), 0u) << "no NVM ones";
  const auto controllers = world.identify(admin, 0x13);
  EXPECT_EQ(read<std::uint16_t>(controllers->in, 0), 2u);
  EXPECT_EQ(read<std::uint16_t>(controllers->in, 2), first);
  EXPECT_EQ(read<std::uint16_t>(controllers->in, 4), world.last_cntlid);
  EXPECT_EQ(read<std::uint16_t>(world.identify(admin, 0x12, 3)->in, 0), 2u);
  EXPECT_EQ(world.identify(admin, 0x12, 4)->status(), sc::kInvalidNamespaceOrFormat);
}

TEST(Identify, Errors) {
  World world;
  FakeConnection& admin = world.admin();
  for (const std::uint8_t cns : {0x04, 0x09, 0x10, 0x11, 0x14, 0x15, 0x17, 0x20, 0xFF}) {
    EXPECT_EQ(world.identify(admin, cns, 1)->status(), sc::kInvalidField) << int{cns};
  }
  for (const std::uint8_t cns : {0x00, 0x03, 0x05, 0x08}) {
    EXPECT_EQ(world.identify(admin, cns, 0, 1)->status(), sc::kInvalidNamespaceOrFormat);
    EXPECT_EQ(world.identify(admin, cns, 1025, 1)->status(), sc::kInvalidNamespaceOrFormat);
    EXPECT_EQ(world.identify(admin, cns, nv::kNsidAll, 1)->status(), sc::kInvalidNamespaceOrFormat);
  }
  // Inactive: zeroes, but no identifiers.
  EXPECT_EQ(world.identify(admin, 0x03, 2)->status(), sc::kInvalidNamespaceOrFormat);
  EXPECT_EQ(world.identify(admin, 0x05, 2, 1)->in, Bytes(4096));
  EXPECT_EQ(world.identify(admin, 0x05, 1, 0)->status(), sc::kInvalidIoCommandSet);
  EXPECT_EQ(world.identify(admin, 0x05, 1, 2)->status(), sc::kInvalidIoCommandSet);
  EXPECT_EQ(world.identify(admin, 0x05, 1, 3)->status(), sc::kInvalidField);
  EXPECT_EQ(world.identify(admin, 0x06, 0, 3)->status(), sc::kInvalidField);
  EXPECT_EQ(world.identify(admin, 0x07, 0, 3)->status(), sc::kInvalidField);
  EXPECT_EQ(world.identify(admin, 0x01, 0, 0, 2048)->status(), sc::kDataSglLengthInvalid);
}

}  // namespace
}  // namespace furrow::test
