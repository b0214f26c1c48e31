// Establishes that a reservation report over TCP has as many bytes as the host asked for, whatever
// the number of registrants and however it is cut (hosts and targets have written past the end of
// such pages: CVE-2025-57275), that there are 256 registrants and no more, and that what is refused
// is nobody else's trouble. How: Served, raw hosts, each with an identifier of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/transport/raw_host.h"
#include "tests/transport/served.h"
#include "transport/nvme_reservation.h"
#include "transport/reservations.h"

namespace furrow::transport {
namespace {

namespace resv = nvme::reservation;
namespace sc = nvme::sc;

constexpr std::uint32_t kPageBytes =
    sizeof(resv::StatusHeader) + Reservations::kRegistrantsMax * sizeof(resv::RegisteredController);

std::uint64_t key_of(std::uint64_t hostid) { return 0x5EED0000 + hostid; }

// A host's controller with one I/O queue.
class ReservingHost {
 public:
  ReservingHost(Served& served, std::uint64_t hostid)
      : hostid_(hostid), admin_(served.target->port()), io_(served.target->port()) {
    const std::string& subnqn = served.target->subsystem_nqn();
    const std::string nqn = "nqn.2026-11.test:host" + std::to_string(hostid);
    const std::uint16_t cntlid = enable_controller(admin_, subnqn, nqn, hostid);
    io_.init();
    io_.send(connect_capsule(io_, subnqn, 1, cntlid, 32, nqn, hostid));
    EXPECT_EQ(io_.expect_response(0).sct_sc(), 0);
  }

  std::uint16_t enrol() {
    nvme::Sqe command = of_namespace(resv::kRegister);
    const resv::RegisterData keys{0, key_of(hostid_)};
    io_.send(io_.capsule(command, std::as_bytes(std::span(&keys, 1))));
    return io_.expect_response(0).sct_sc();
  }

  struct Report {
    std::uint16_t status = 0;
    std::vector<std::byte> page;  // as much as came
  };
  // `said` bytes by CDW10, room for `room` by the SGL.
  Report report(std::uint32_t said, std::uint32_t room, std::uint32_t form = resv::kExtended) {
    nvme::Sqe command = of_namespace(resv::kReport);
    command.cdw10 = said / 4 - 1;
    command.cdw11 = form;
    io_.send(io_.capsule(command, {}, room));
    Report report;
    while (const auto pdu = io_.receive()) {
      if (pdu->type == PduType::capsule_resp) {
        report.status = pdu->as<CapsuleResp>().cqe.sct_sc();
        return report;
      }
      EXPECT_EQ(static_cast<int>(pdu->type), static_cast<int>(PduType::c2h_data));
      EXPECT_EQ(pdu->as<DataPdu>().datao, report.page.size());
      report.page.insert(report.page.end(), pdu->data.begin(), pdu->data.end());
      if ((pdu->header[1] & std::byte{kFlagSuccess}) != std::byte{0}) return report;
    }
    ADD_FAILURE() << "the target ended the connection";
    return report;
  }

 private:
  static nvme::Sqe of_namespace(std::uint8_t opcode) {
    nvme::Sqe command;
    command.opc = opcode;
    command.nsid = 1;
    return command;
  }

  const std::uint64_t hostid_;
  RawHost admin_, io_;
};

// Hosts `first` to `last` register and go, which leaves them registrants.
void enrol(Served& served, std::uint64_t first, std::uint64_t last) {
  for (std::uint64_t hostid = first; hostid <= last; ++hostid) {
    ASSERT_EQ(ReservingHost(served, hostid).enrol(), sc::kSuccess) << hostid;
  }
}

// What a report of `registrants` must be, of hosts 1, 2, ...; zeroes follow.
void expect_page(const ReservingHost::Report& report, std::uint64_t registrants,
                 std::uint32_t bytes) {
  EXPECT_EQ(report.status, sc::kSuccess);
  ASSERT_EQ(report.page.size(), bytes);
  std::vector<std::byte> whole(std::max<std::size_t>(bytes, kPageBytes));
  resv::StatusHeader header;
  header.gen = static_cast<std::uint32_t>(registrants);
  header.regctl[0] = static_cast<std::uint8_t>(registrants);
  header.regctl[1] = static_cast<std::uint8_t>(registrants >> 8);
  std::memcpy(whole.data(), &header, sizeof header);
  for (std::uint64_t hostid = 1; hostid <= registrants; ++hostid) {
    resv::RegisteredController entry;
    entry.rkey = key_of(hostid);
    entry.hostid[14] = static_cast<std::uint8_t>(hostid >> 8);
    entry.hostid[15] = static_cast<std::uint8_t>(hostid);
    std::memcpy(whole.data() + sizeof header + (hostid - 1) * sizeof entry, &entry, sizeof entry);
  }
  const auto [is, expected] = std::mismatch(report.page.begin(), report.page.end(), whole.begin());
  EXPECT_EQ(is, report.page.end()) << "byte " << is - report.page.begin() << " of " << bytes;
}

void expect_every_length(ReservingHost& host, std::uint64_t registrants) {
  const std::uint32_t all = static_cast<std::uint32_t>(
      sizeof(resv::StatusHeader) + registrants * sizeof(resv::RegisteredController));
  for (const std::uint32_t bytes : {4u, 60u, 64u, 68u, 1024u, 1028u, all - 4, all, all + 4,
                                    kPageBytes, kPageBytes + 4, 65536u}) {
    SCOPED_TRACE(bytes);
    expect_page(host.report(bytes, bytes), registrants, bytes);
  }
}

TEST(ReservationWire, ReportsOfManyRegistrants) {
  Served served;
  ReservingHost watcher(served, 1000);
  expect_every_length(watcher, 0);
  enrol(served, 1, 17);
  expect_every_length(watcher, 17);
  enrol(served, 18, 255);
  ReservingHost last(served, 256);
  ASSERT_EQ(last.enrol(), sc::kSuccess);
  EXPECT_EQ(ReservingHost(served, 257).enrol(), sc::kInternalError) << "the 257th";
  // More than there is room for, a form that has no room for these identifiers, too much at all.
  EXPECT_EQ(watcher.report(kPageBytes, 4096).status, sc::kDataSglLengthInvalid);
  EXPECT_EQ(watcher.report(4096, 4096, 0).status, sc::kHostIdInconsistent);
  EXPECT_EQ(watcher.report(0, 0xFFFFFFFC).status, sc::kInvalidField);
  // Neither has become another one's trouble.
  expect_every_length(watcher, 256);
  expect_every_length(last, 256);
}

}  // namespace
}  // namespace furrow::transport
