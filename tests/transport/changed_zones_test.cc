// Establishes how far the log of changed zones counts: it names as many as it has room for, and of
// more it says only that there were too many, until the host has read it. (What is told of when:
// zns_commands_test.) How: a host without a wire, over a real pool in memory of very many zones.
#include <gtest/gtest.h>

#include "tests/engine/zoned/zones.h"
#include "tests/transport/served_pool.h"

namespace furrow::test {
namespace {

class ManyZones : public ServedPool {
 public:
  static constexpr std::uint32_t kLogged = 511;  // that the log has room for
  static constexpr std::uint64_t kZoneLbas = 256;

  ManyZones() : ServedPool("mem:544MiB?zone_size=1MiB") {
    EXPECT_TRUE(rig().pool->create_volume(testing::zoned_options(kZones)).ok());
    serve(nv::kCssAll);
    nv::Sqe config = sqe(nv::admin::kSetFeatures);
    config.cdw10 = nv::fid::kAsyncEvent;
    config.cdw11 = 1u << 27;
    EXPECT_EQ(call(*admin, config)->status(), sc::kSuccess);
    nv::Sqe finish = sqe(nv::zns::kManagementSend, kNsid);
    finish.cdw13 = nv::zns::kActionFinish;
    for (std::uint32_t i = 0; i < kZones; ++i) {
      finish.cdw10 = static_cast<std::uint32_t>(i * kZoneLbas);
      EXPECT_EQ(call(*io, finish)->status(), sc::kSuccess) << i;
    }
    for (const ZoneInfo& info : *rig().device->report()) {
      const bool ring = info.zone.value < 2;  // the pool's own
      if (!ring && info.state == ZoneState::full) lent_.push_back(info.zone);
    }
    EXPECT_EQ(lent_.size(), kZones);
  }

  // So many more, from the first; returns when the host has been told.
  void take_away(std::size_t count) {
    const CommandPtr event = admin->send(sqe(nv::admin::kAsyncEvent), {}, 0, false);
    for (; count != 0; --count) device->degrade(lent_[taken_++], ZoneState::read_only);
    while (!event->done) idle_turn();
    EXPECT_EQ(event->cqe.dw1, kNsid);
  }
  Bytes changed(bool retain) {
    nv::Sqe out = sqe(nv::admin::kGetLogPage, kNsid);
    out.cdw10 = nv::lid::kChangedZones | 1023u << 16 | (retain ? 1u << 15 : 0);
    return call(*admin, out, {}, 4096)->in;
  }

 private:
  static constexpr std::uint32_t kNsid = 2, kZones = kLogged + 2;

  std::vector<ZoneId> lent_;
  std::size_t taken_ = 0;
};

TEST(ChangedZones, TheLogNamesAsManyAsItHasRoomFor) {
  ManyZones host;
  host.take_away(ManyZones::kLogged);
  const Bytes log = host.changed(false);
  EXPECT_EQ(read<std::uint16_t>(log, 0), ManyZones::kLogged);
  for (std::uint32_t i = 0; i < ManyZones::kLogged; ++i) {
    ASSERT_EQ(read<std::uint64_t>(log, 8 + std::size_t{i} * 8), i * ManyZones::kZoneLbas);
  }
  host.take_away(1);
  const Bytes next = host.changed(false);
  EXPECT_EQ(read<std::uint16_t>(next, 0), 1u) << "it counts anew";
  EXPECT_EQ(read<std::uint64_t>(next, 8), ManyZones::kLogged * ManyZones::kZoneLbas);
}

TEST(ChangedZones, OfMoreItSaysThatThereAreTooMany) {
  ManyZones host;
  host.take_away(ManyZones::kLogged + 1);
  const Bytes log = host.changed(true);
  EXPECT_EQ(read<std::uint16_t>(log, 0), 0xFFFFu);
  EXPECT_EQ(Bytes(log.begin() + 2, log.end()), Bytes(4094)) << "and names none";
  EXPECT_EQ(host.changed(false), log) << "it was retained";
  EXPECT_EQ(host.changed(false), Bytes(4096));
}

}  // namespace
}  // namespace furrow::test
