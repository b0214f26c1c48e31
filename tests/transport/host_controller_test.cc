// Establishes that a host's bring-up believes no step that went wrong: whichever answer is an
// error, missing, short or impossible, the controller is down once, with a status that says what to
// do, and everything that it had open is gone. And that a discovery log of any length is read as a
// whole, and as one, from a target with the smallest transfers that there are. How: a
// HostController and FuzzPeers on one thread, one wrong answer each time.
#include "transport/host_controller.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <span>
#include <string>

#include "tests/transport/peers_fixture.h"

namespace furrow::transport {
namespace {

using fuzz::FuzzPeer;

template <class Data>
bool send(FuzzPeer& peer, const nvme::Sqe& sqe, const Data& data,
          std::size_t bytes = sizeof(Data)) {
  peer.send_data(sqe.cid, 0, std::as_bytes(std::span(&data, 1)).first(bytes), kFlagLast);
  peer.complete(sqe.cid, 0, 0);
  return true;
}
bool fail(FuzzPeer& peer, const nvme::Sqe& sqe, std::uint16_t status, std::uint32_t dw0 = 0) {
  peer.complete(sqe.cid, dw0, 0, status, true);
  return true;
}
nvme::IdentifyController identify_controller() {
  nvme::IdentifyController data;
  data.ioccsz = 4;
  data.iorcsz = 1;
  return data;
}
nvme::IdentifyNamespaceKv identify_namespace() {
  nvme::IdentifyNamespaceKv data;
  data.nsze = 1;
  data.kvf[0].vml = 65536;
  return data;
}

bool is_fabrics(const nvme::Sqe& sqe, std::uint8_t type) {
  return sqe.opc == nvme::opcode::kFabrics && sqe.fctype() == type;
}
bool is_connect(const nvme::Sqe& sqe, unsigned qid) {
  return is_fabrics(sqe, nvme::fabrics::kConnect) && sqe.cdw10 >> 16 == qid;
}
bool is_get(const nvme::Sqe& sqe, std::uint32_t property) {
  return is_fabrics(sqe, nvme::fabrics::kPropertyGet) && sqe.cdw11 == property;
}
bool is_identify(const nvme::Sqe& sqe, std::uint8_t cns) {
  return sqe.opc == nvme::admin::kIdentify && (sqe.cdw10 & 0xff) == cns;
}

struct Wrong {
  const char* name;
  bool (*step)(const nvme::Sqe&);               // of which command
  bool (*answer)(FuzzPeer&, const nvme::Sqe&);  // instead
  Code code;
  bool discovery = false;
};
void PrintTo(const Wrong& wrong, std::ostream* out) { *out << wrong.name; }

constexpr auto kAdminConnect = [](const nvme::Sqe& sqe) { return is_connect(sqe, 0); };
constexpr auto kIoConnect = [](const nvme::Sqe& sqe) { return is_connect(sqe, 1); };
constexpr auto kSecondIoConnect = [](const nvme::Sqe& sqe) { return is_connect(sqe, 2); };
constexpr auto kCap = [](const nvme::Sqe& sqe) { return is_get(sqe, nvme::property::kCap); };
constexpr auto kCsts = [](const nvme::Sqe& sqe) { return is_get(sqe, nvme::property::kCsts); };
constexpr auto kVs = [](const nvme::Sqe& sqe) { return is_get(sqe, nvme::property::kVs); };
constexpr auto kEnable = [](const nvme::Sqe& sqe) {
  return is_fabrics(sqe, nvme::fabrics::kPropertySet);
};
constexpr auto kController = [](const nvme::Sqe& sqe) { return is_identify(sqe, 0x01); };
constexpr auto kNamespace = [](const nvme::Sqe& sqe) { return is_identify(sqe, 0x05); };
constexpr auto kQueues = [](const nvme::Sqe& sqe) { return sqe.opc == nvme::admin::kSetFeatures; };
constexpr auto kLog = [](const nvme::Sqe& sqe) { return sqe.opc == nvme::admin::kGetLogPage; };

template <std::uint16_t kStatus, std::uint32_t kDw0 = 0>
bool fails(FuzzPeer& peer, const nvme::Sqe& sqe) {
  return fail(peer, sqe, kStatus, kDw0);
}
bool says_nothing(FuzzPeer&, const nvme::Sqe&) { return true; }
bool hangs_up(FuzzPeer& peer, const nvme::Sqe&) {
  peer.hang_up();
  return true;
}
bool is_empty(FuzzPeer& peer, const nvme::Sqe& sqe) {
  peer.complete(sqe.cid, 0, 0);
  return true;
}
constexpr std::uint32_t kInData = 1u << 16;
constexpr std::uint32_t kSubnqn = kInData | offsetof(nvme::ConnectData, subnqn);

const Wrong kWrongs[] = {
    {"HostNotAllowed", kAdminConnect, fails<nvme::sc::kConnectInvalidHost>, Code::permission},
    {"NoSuchSubsystem", kAdminConnect, fails<nvme::sc::kConnectInvalidParameters, kSubnqn>,
     Code::not_found},
    {"TargetFull", kAdminConnect, fails<nvme::sc::kControllerBusy>, Code::busy},
    {"NoConnect", kAdminConnect, fails<nvme::sc::kInternalError>, Code::io_error},
    {"ConnectHangsUp", kAdminConnect, hangs_up, Code::aborted},
    {"ConnectSilent", kAdminConnect, says_nothing, Code::io_error},
    {"NoCapabilities", kCap, fails<nvme::sc::kInvalidField>, Code::io_error},
    {"NotEnabled", kEnable, fails<nvme::sc::kInvalidField>, Code::io_error},
    {"NoReadiness", kCsts, fails<nvme::sc::kInvalidField>, Code::io_error},
    {"HasFailed", kCsts,
     [](FuzzPeer& peer, const nvme::Sqe& sqe) {
       peer.complete(sqe.cid, nvme::kCstsFatal | nvme::kCstsReady, 0);
       return true;
     },
     Code::protocol},
    {"NeverReady", kCsts, is_empty, Code::io_error},
    {"NoVersion", kVs, fails<nvme::sc::kInvalidField>, Code::io_error},
    {"NoIdentify", kController, fails<nvme::sc::kInvalidField>, Code::io_error},
    {"IdentifyWithoutData", kController, is_empty, Code::protocol},
    {"IdentifyShort", kController,
     [](FuzzPeer& peer, const nvme::Sqe& sqe) {
       return send(peer, sqe, identify_controller(), 4095);
     },
     Code::protocol},
    {"CapsuleTooSmall", kController,
     [](FuzzPeer& peer, const nvme::Sqe& sqe) {
       auto data = identify_controller();
       data.ioccsz = 3;
       return send(peer, sqe, data);
     },
     Code::protocol},
    {"ResponseTooSmall", kController,
     [](FuzzPeer& peer, const nvme::Sqe& sqe) {
       auto data = identify_controller();
       data.iorcsz = 0;
       return send(peer, sqe, data);
     },
     Code::protocol},
    {"DataSomewhereInTheCapsule", kController,
     [](FuzzPeer& peer, const nvme::Sqe& sqe) {
       auto data = identify_controller();
       data.icdoff = 1;
       return send(peer, sqe, data);
     },
     Code::protocol},
    {"NoQueues", kQueues, fails<nvme::sc::kInvalidField>, Code::io_error},
    {"NoFirstQueue", kIoConnect, fails<nvme::sc::kControllerBusy>, Code::busy},
    {"NoSecondQueue", kSecondIoConnect, fails<nvme::sc::kInvalidQueueType>, Code::io_error},
    {"SecondQueueHangsUp", kSecondIoConnect, hangs_up, Code::aborted},
    {"NoNamespace", kNamespace, fails<nvme::sc::kInvalidNamespaceOrFormat>, Code::not_found},
    {"NamespaceOfNobody", kNamespace,
     [](FuzzPeer& peer, const nvme::Sqe& sqe) {
       return send(peer, sqe, nvme::IdentifyNamespaceKv());
     },
     Code::not_found},
    {"NamespaceShort", kNamespace,
     [](FuzzPeer& peer, const nvme::Sqe& sqe) {
       return send(peer, sqe, identify_namespace(), 4092);
     },
     Code::protocol},
    {"NoLog", kLog, fails<nvme::sc::kInvalidLogPage>, Code::io_error, true},
    {"LogWithoutData", kLog, is_empty, Code::protocol, true},
};

class BringUp : public PeersTest, private HostController::Owner {
 protected:
  ~BringUp() override {
    if (controller_ != nullptr) controller_->end();
    run_until([this] { return controller_ == nullptr; });
  }
  void start(bool discovery) {
    HostControllerOptions options;
    options.address = listener_.address();
    options.address_bytes = listener_.bytes();
    options.subsystem_nqn = "nqn.2026-11.io.furrow:unit";
    options.host_nqn = "nqn.2026-11.io.furrow:host";
    options.timeout_ms = 200;
    options.io_queues = 2;
    options.discovery = discovery;
    HostController::Owner& owner = *this;
    controller_ = std::make_unique<HostController>(*ring_, executor_, owner, options);
    controller_->start();
  }
  bool answers(FuzzPeer& peer, const nvme::Sqe& sqe) override {
    if (wrong_ != nullptr && wrong_->step(sqe)) {
      ++told_;
      return wrong_->answer(peer, sqe);
    }
    if (sqe.opc != nvme::admin::kSetFeatures || peer.io()) return false;
    peer.complete(sqe.cid, 1 | 1 << 16, 0);  // two queues
    return true;
  }
  void on_up() override { ++ups_; }
  void on_down(Status why) override {
    ++downs_;
    why_ = why;
  }
  void on_room() override {}
  void on_gone() override { controller_.reset(); }

  const Wrong* wrong_ = nullptr;
  std::unique_ptr<HostController> controller_;
  int ups_ = 0, downs_ = 0, told_ = 0;
  Status why_;
};

TEST_F(BringUp, OfAnHonestTargetSucceeds) {
  start(false);
  run_until([this] { return ups_ + downs_ != 0; });
  ASSERT_EQ(ups_, 1) << why_.describe();
  EXPECT_TRUE(controller_->up());
  EXPECT_EQ(peers_.size(), 3u) << "an admin and two I/O queues";
  EXPECT_EQ(controller_->facts().cntlid, 7u);
  EXPECT_EQ(controller_->facts().value_bytes_max, 65536u);
  HostQueue* queue = nullptr;
  HostCommand* command = controller_->take(queue);
  ASSERT_NE(command, nullptr);
  queue->give_back(*command);
  controller_->end();
  run_until([this] { return controller_ == nullptr; });
  EXPECT_EQ(downs_, 0) << "it was asked to end";
}

// Says of itself what the test wants.
class Telling : public BringUp {
 protected:
  bool answers(FuzzPeer& peer, const nvme::Sqe& sqe) override {
    if (kController(sqe)) return send(peer, sqe, identify_);
    if (kNamespace(sqe)) return send(peer, sqe, namespace_);
    if (!kCap(sqe) && (!kQueues(sqe) || peer.io())) return BringUp::answers(peer, sqe);
    if (kCap(sqe)) {
      peer.complete(sqe.cid, static_cast<std::uint32_t>(cap_), cap_ >> 32);
    } else {
      peer.complete(sqe.cid, queues_, 0);
    }
    return true;
  }
  const HostController::Facts& facts() {
    start(false);
    run_until([this] { return ups_ + downs_ != 0; });
    EXPECT_EQ(ups_, 1) << why_.describe();
    return controller_->facts();
  }
  std::uint64_t cap_ = 1023 | nvme::kCapCssAll;
  std::uint32_t queues_ = 1 | 1 << 16;
  nvme::IdentifyController identify_ = identify_controller();
  nvme::IdentifyNamespaceKv namespace_ = identify_namespace();
};

TEST_F(Telling, MdtsCountsPagesOfTheController) {
  cap_ |= std::uint64_t{4} << 48;  // MPSMIN: of 64 KiB
  identify_.mdts = 1;
  EXPECT_EQ(facts().transfer_bytes_max, 128u << 10);
}

TEST_F(Telling, MdtsBeyondWhatThisHostSendsIsNoLimit) {
  identify_.mdts = 31;
  EXPECT_EQ(facts().transfer_bytes_max, 4u << 20);
}

TEST_F(Telling, NoMoreQueuesThanBothOfAPairAreGranted) {
  queues_ = 1 | 0 << 16;
  (void)facts();
  EXPECT_EQ(peers_.size(), 2u) << "an admin and one I/O queue";
}

TEST_F(Telling, TheFormatOfTheNamespaceIsTheOneInUse) {
  namespace_.kvf[2].vml = 1000;
  namespace_.kvfc = 2;
  EXPECT_EQ(facts().value_bytes_max, 1000u);
}

// Serves a discovery log of which no more than 4 KiB can be had at a time, as MDTS says; it has
// `subsystems`, and is another one for the first `changes` looks.
class Discovering : public BringUp {
 protected:
  bool answers(FuzzPeer& peer, const nvme::Sqe& sqe) override {
    if (!kLog(sqe)) return BringUp::answers(peer, sqe);
    const std::size_t bytes = ((sqe.cdw10 >> 16 | sqe.cdw11 << 16) + std::size_t{1}) * 4;
    const std::size_t offset = sqe.cdw12;
    if (bytes > 4096) return fail(peer, sqe, nvme::sc::kInvalidField);
    if (offset == 0) ++looks_;
    nvme::DiscoveryLogHeader header;
    header.genctr = looks_ <= changes_ ? looks_ : 99;
    header.numrec = subsystems_;
    std::vector<std::byte> log(std::max<std::size_t>((subsystems_ + 1) * 1024, offset + bytes));
    std::memcpy(log.data(), &header, sizeof header);
    for (std::size_t i = 0; i < subsystems_; ++i) {
      nvme::DiscoveryLogEntry entry;
      entry.trtype = nvme::kTrtypeTcp;
      entry.subtype = nvme::kSubtypeNvm;
      const std::string nqn = "nqn.2026-11.io.furrow:" + std::to_string(header.genctr * 100 + i);
      std::memcpy(entry.subnqn, nqn.data(), nqn.size());
      std::memcpy(log.data() + (i + 1) * sizeof entry, &entry, sizeof entry);
    }
    peer.send_data(sqe.cid, 0, std::span(log).subspan(offset, bytes), kFlagLast);
    peer.complete(sqe.cid, 0, 0);
    return true;
  }
  std::size_t subsystems_ = 1, changes_ = 0, looks_ = 0;
};

TEST_F(Discovering, ALogIsReadInPiecesThatEveryTargetCanTransfer) {
  for (const std::size_t subsystems : {1u, 3u, 4u, 7u, 10u, 64u, 70u}) {
    subsystems_ = subsystems;
    start(true);
    run_until([this] { return ups_ + downs_ != 0; });
    ASSERT_EQ(std::exchange(ups_, 0), 1) << subsystems << why_.describe();
    const auto& found = controller_->facts().subsystems;
    ASSERT_EQ(found.size(), std::min<std::size_t>(subsystems, 64));
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i], "nqn.2026-11.io.furrow:" + std::to_string(9900 + i));
    }
    controller_->end();
    run_until([this] { return controller_ == nullptr; });
  }
}

TEST_F(Discovering, PiecesOfTwoLogsAreNone) {
  subsystems_ = 10;
  changes_ = 3;
  start(true);
  run_until([this] { return ups_ + downs_ != 0; });
  ASSERT_EQ(ups_, 1) << why_.describe();
  for (const std::string& nqn : controller_->facts().subsystems) {
    EXPECT_TRUE(nqn.starts_with("nqn.2026-11.io.furrow:99")) << nqn;
  }
}

class WrongAnswer : public BringUp, public ::testing::WithParamInterface<Wrong> {};

TEST_P(WrongAnswer, EndsTheBringUp) {
  wrong_ = &GetParam();
  start(wrong_->discovery);
  run_until([this] { return controller_ == nullptr; });
  EXPECT_GE(told_, 1) << "the bring-up did not come so far";
  EXPECT_EQ(ups_, 0);
  EXPECT_EQ(downs_, 1);
  EXPECT_EQ(why_.code(), wrong_->code) << why_.describe();
  EXPECT_STRNE(why_.hint(), "");
  if (wrong_->answer == says_nothing || std::strcmp(wrong_->name, "NeverReady") == 0) {
    EXPECT_EQ(why_.sys_errno(), ETIMEDOUT);
  }
}

INSTANTIATE_TEST_SUITE_P(Steps, WrongAnswer, ::testing::ValuesIn(kWrongs),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace furrow::transport
